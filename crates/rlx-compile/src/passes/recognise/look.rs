//! Looking at what a value is made of.

use rlx_ir::ops::elementwise::{Binary, Elementwise, Unary};
use rlx_ir::ops::reduction::ReduceKind;
use rlx_ir::ops::{Reduction, ShapeOp};
use rlx_ir::{DType, Dim, Graph, Op, Shape, ValueId};

use super::super::canonicalise::{Number, uniform};

/// How deep rules look.
const MAX_DEPTH: usize = 12;

/// A graph to look at.
#[derive(Clone, Copy)]
pub struct Look<'g> {
    /// The graph.
    pub g: &'g Graph,
}

/// A reduction over axes of `x`, laid out so that it broadcasts against `x`: its axes are kept with size 1 (or filled by a broadcast).
#[derive(Clone, Debug, PartialEq)]
pub struct Folded {
    /// What is reduced.
    pub x: ValueId,
    /// Over which axes, ascending.
    pub axes: Vec<usize>,
}

/// Reshapes and broadcasts met on the way down to a reduction, to be judged when its axes are known.
#[derive(Default)]
pub struct Views(Vec<(Shape, Shape)>);

impl<'g> Look<'g> {
    /// The op that defines a value, with its operands.
    pub fn op(self, v: ValueId) -> Option<(&'g Op, &'g [ValueId])> {
        self.g.def_node(v).map(|(_, n)| (&n.op, &n.operands[..]))
    }

    /// The shape of a tensor.
    pub fn shape(self, v: ValueId) -> Option<&'g Shape> {
        self.g.tensor_type(v).map(|t| &t.shape)
    }

    /// The dtype of a tensor.
    pub fn dtype(self, v: ValueId) -> Option<DType> {
        self.g.tensor_type(v).map(|t| t.dtype)
    }

    /// The operand of a function of one operand.
    pub fn unary(self, v: ValueId, u: Unary) -> Option<ValueId> {
        match self.op(v)? {
            (Op::Elementwise(Elementwise::Unary(w)), &[x]) if *w == u => Some(x),
            _ => None,
        }
    }

    /// The operands of a function of two.
    pub fn binary(self, v: ValueId, b: Binary) -> Option<(ValueId, ValueId)> {
        match self.op(v)? {
            (Op::Elementwise(Elementwise::Binary(c)), &[x, y]) if *c == b => Some((x, y)),
            _ => None,
        }
    }

    /// The operands of a commutative function of two, in both orders.
    pub fn either(self, v: ValueId, b: Binary) -> impl Iterator<Item = (ValueId, ValueId)> {
        self.binary(v, b).into_iter().flat_map(|(x, y)| [(x, y), (y, x)])
    }

    /// The number that all elements of a literal are.
    pub fn number(self, v: ValueId) -> Option<f64> {
        match uniform(self.g, v)? {
            Number::Float(x) => Some(x),
            Number::Int(i) => Some(i as f64),
        }
    }

    /// True if two numbers are the same as far as a dtype (and what exporters write down) tells.
    pub fn close(self, of: ValueId, a: f64, b: f64) -> bool {
        let tolerance = match self.dtype(of) {
            Some(DType::F16) => 2e-3,
            Some(DType::BF16) => 1e-2,
            _ => 2e-5,
        };
        (a - b).abs() <= tolerance * b.abs()
    }

    /// True for a literal of this number.
    pub fn is(self, v: ValueId, x: f64) -> bool {
        self.number(v).is_some_and(|n| self.close(v, n, x))
    }

    /// True if broadcasting with `x` leaves its shape.
    pub fn fits(self, small: ValueId, x: ValueId) -> bool {
        match (self.shape(small), self.shape(x)) {
            (Some(a), Some(b)) => {
                a.rank() <= b.rank() && a.iter().rev().zip(b.iter().rev()).all(|(a, b)| *a == Dim::ONE || a == b)
            }
            _ => false,
        }
    }

    /// `v = c·x` or `x/c`, for a literal c: x and the factor.
    pub fn scaled(self, v: ValueId) -> Option<(ValueId, f64)> {
        if let Some(x) = self.unary(v, Unary::Neg) {
            return Some((x, -1.0));
        }
        if let Some((x, c)) = self.binary(v, Binary::Div) {
            return self.number(c).filter(|_| self.fits(c, x)).map(|c| (x, 1.0 / c));
        }
        self.either(v, Binary::Mul).find_map(|(x, c)| self.number(c).filter(|_| self.fits(c, x)).map(|c| (x, c)))
    }

    /// Values that a product is made of: itself, its factors, theirs, and so on.
    pub fn factors(self, v: ValueId) -> Vec<ValueId> {
        let mut found = vec![v];
        let mut at = 0;
        while let Some(&v) = found.get(at).filter(|_| found.len() < 24) {
            at += 1;
            let parts = match self.scaled(v) {
                Some((x, _)) => vec![x],
                None => self.binary(v, Binary::Mul).map(|(x, y)| vec![x, y]).unwrap_or_default(),
            };
            parts.into_iter().for_each(|p| {
                if !found.contains(&p) {
                    found.push(p);
                }
            });
        }
        found
    }

    /// The literal k of `v = k·x·f`, if v is that.
    pub fn times(self, v: ValueId, x: ValueId, f: ValueId) -> Option<f64> {
        let (k, n) = self.times_in(v, x, f, 0)?;
        (n == [1, 1]).then_some(k)
    }

    fn times_in(self, v: ValueId, x: ValueId, f: ValueId, depth: usize) -> Option<(f64, [usize; 2])> {
        if v == x {
            return Some((1.0, [1, 0]));
        }
        if v == f {
            return Some((1.0, [0, 1]));
        }
        if depth > MAX_DEPTH {
            return None;
        }
        if let Some((y, c)) = self.scaled(v) {
            return self.times_in(y, x, f, depth + 1).map(|(k, n)| (k * c, n));
        }
        let (a, b) = self.binary(v, Binary::Mul)?;
        let ((k, m), (l, n)) = (self.times_in(a, x, f, depth + 1)?, self.times_in(b, x, f, depth + 1)?);
        Some((k * l, [m[0] + n[0], m[1] + n[1]]))
    }

    /// Coefficients of a polynomial in x of degree up to 3.
    pub fn polynomial(self, v: ValueId, x: ValueId) -> Option<[f64; 4]> {
        self.polynomial_in(v, x, 0)
    }

    fn polynomial_in(self, v: ValueId, x: ValueId, depth: usize) -> Option<[f64; 4]> {
        if v == x {
            return Some([0.0, 1.0, 0.0, 0.0]);
        }
        if depth > MAX_DEPTH {
            return None;
        }
        if let Some(c) = self.number(v) {
            return self.fits(v, x).then_some([c, 0.0, 0.0, 0.0]);
        }
        let of = |v: ValueId| self.polynomial_in(v, x, depth + 1);
        if let Some(y) = self.unary(v, Unary::Neg) {
            return of(y).map(|p| p.map(|c| -c));
        }
        let (Op::Elementwise(Elementwise::Binary(op)), &[a, b]) = self.op(v)? else { return None };
        let zip = |f: fn(f64, f64) -> f64| {
            let (p, q) = (of(a)?, of(b)?);
            Some([f(p[0], q[0]), f(p[1], q[1]), f(p[2], q[2]), f(p[3], q[3])])
        };
        match op {
            Binary::Add => zip(|p, q| p + q),
            Binary::Sub => zip(|p, q| p - q),
            Binary::Mul => multiply(of(a)?, of(b)?),
            Binary::Div => {
                let d = self.number(b)?;
                of(a).map(|p| p.map(|c| c / d))
            }
            Binary::Pow => {
                let p = of(a)?;
                match self.number(b)? {
                    2.0 => multiply(p, p),
                    3.0 => multiply(multiply(p, p)?, p),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The operand under reshapes and broadcasts, which are noted.
    pub fn under_views(self, mut v: ValueId, views: &mut Views) -> ValueId {
        while let Some((Op::ShapeOp(ShapeOp::Reshape(_) | ShapeOp::BroadcastTo(_)), &[x])) = self.op(v) {
            if let (Some(a), Some(b)) = (self.shape(x), self.shape(v)) {
                views.0.push((a.clone(), b.clone()));
            }
            v = x;
        }
        v
    }

    /// A reduction under reshapes and broadcasts.
    pub fn reduced(self, v: ValueId, kind: ReduceKind) -> Option<Folded> {
        let mut views = Views::default();
        let mut at = self.under_views(v, &mut views);
        if kind == ReduceKind::Max {
            // JAX writes max(−∞, max x).
            let low = |(x, c): (ValueId, ValueId)| (self.number(c) == Some(f64::NEG_INFINITY)).then_some(x);
            if let Some(x) = self.either(at, Binary::Max).find_map(low) {
                at = self.under_views(x, &mut views);
            }
        }
        let folded = self.reduce(at, kind)?;
        self.lies_along(v, &folded, &views).then_some(folded)
    }

    fn reduce(self, v: ValueId, kind: ReduceKind) -> Option<Folded> {
        match self.op(v)? {
            (Op::Reduction(Reduction::Reduce(r)), &[x]) if r.kind == kind => {
                let mut axes = r.axes.clone();
                axes.sort_unstable();
                Some(Folded { x, axes })
            }
            _ => None,
        }
    }

    /// A mean under reshapes and broadcasts.
    pub fn mean(self, v: ValueId) -> Option<Folded> {
        let mut views = Views::default();
        let folded = self.mean_noting(v, &mut views)?;
        self.lies_along(v, &folded, &views).then_some(folded)
    }

    /// A mean under reshapes and broadcasts that the caller judges.
    pub fn mean_noting(self, v: ValueId, views: &mut Views) -> Option<Folded> {
        let (mut at, mut scale, mut count) = (v, 1.0, Dim::ONE);
        for _ in 0..8 {
            at = self.under_views(at, views);
            if let Some((x, c)) = self.scaled(at) {
                (at, scale) = (x, scale * c);
            } else if let Some((x, n)) = self.binary(at, Binary::Div) {
                (at, count) = (x, count * self.size(n)?);
            } else {
                break;
            }
        }
        let folded = self.reduce(at, ReduceKind::Sum)?;
        let shape = self.shape(folded.x)?;
        let n = Dim::product(folded.axes.iter().filter_map(|&a| shape.get(a).cloned()));
        let is_mean = match n.as_const() {
            Some(n) => n > 0 && count == Dim::ONE && self.close(at, scale * n as f64, 1.0),
            None => scale == 1.0 && count == n,
        };
        is_mean.then_some(folded)
    }

    /// A scalar that is a size.
    fn size(self, v: ValueId) -> Option<Dim> {
        let (Op::Elementwise(Elementwise::Convert { .. }), &[x]) = self.op(v)? else { return None };
        match self.g.elems(x)? {
            [d] => Some(d.clone()),
            _ => None,
        }
    }

    /// True if `v`, over these views of a reduction of x, broadcasts against x with each number where it belongs.
    pub fn lies_along(self, v: ValueId, folded: &Folded, views: &Views) -> bool {
        let Some(full) = self.shape(folded.x) else { return false };
        let kept = kept_shape(full, folded);
        // Reshapes keep the order of elements; a broadcast puts them right only from the kept shape to the full one.
        let fine = |(from, to): &(Shape, Shape)| {
            (*from == kept && to == full) || (from.numel() == to.numel() && to.numel() == kept.numel())
        };
        self.shape(v).is_some_and(|s| *s == kept || s == full) && views.0.iter().all(fine)
    }
}

/// The shape of a reduction that keeps its axes.
fn kept_shape(full: &Shape, folded: &Folded) -> Shape {
    (0..full.rank()).map(|a| if folded.axes.contains(&a) { Dim::ONE } else { full[a].clone() }).collect()
}

fn multiply(p: [f64; 4], q: [f64; 4]) -> Option<[f64; 4]> {
    let mut out = [0.0; 4];
    for (i, a) in p.iter().enumerate() {
        for (j, b) in q.iter().enumerate() {
            match out.get_mut(i + j) {
                Some(o) => *o += a * b,
                None if a * b == 0.0 => {}
                None => return None,
            }
        }
    }
    Some(out)
}
