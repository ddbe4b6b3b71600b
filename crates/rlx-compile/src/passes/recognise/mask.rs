//! Masks of attention: what is added to scores or selected in their place, and which of it is causality.

use rlx_ir::element::Elements;
use rlx_ir::ops::ShapeOp;
use rlx_ir::ops::elementwise::{Binary, Compare, Elementwise, Unary};
use rlx_ir::ops::neural::MaskKind;
use rlx_ir::ops::shape::Iota;
use rlx_ir::{Dim, IrError, Op, ValueId};

use super::Recogniser;
use super::look::Look;

/// What is this low hides a key: its weight is 0 beside any that is not.
pub const LOW: f64 = -1e4;

/// One mask on the way to the softmax.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// A value added, times a factor.
    Add(ValueId, f64),
    /// A number in place of scores, where the condition is not `keep`.
    Select {
        /// The condition.
        cond: ValueId,
        /// The truth value with which scores stay.
        keep: bool,
        /// The number.
        hidden: f64,
    },
}

/// All masks together.
pub struct Combined {
    /// Whether they hide what comes after a query's position.
    pub causal: bool,
    /// What else they do.
    pub operand: Option<(ValueId, MaskKind)>,
}

/// Joins masks for scores of these dims; `None` where one does not broadcast to them. The number of keys may be written otherwise than
/// the last of the dims, which is then held to it elsewhere.
pub fn combined(
    r: &mut Recogniser<'_>,
    parts: Vec<Part>,
    scores: &[Dim],
    keys: &Dim,
    like: ValueId,
) -> Result<Option<Combined>, IrError> {
    let mut dims = scores.to_vec();
    if let Some(last) = dims.last_mut() {
        *last = keys.clone();
    }
    let dims = &dims[..];
    let mut causal = false;
    let (mut keeps, mut sums) = (Vec::new(), Vec::new());
    let mut todo: Vec<Part> = parts;
    while let Some(part) = todo.pop() {
        let l = r.look();
        match part {
            Part::Add(v, scale) => {
                if adds_causality(l, v, scale, dims) {
                    causal = true;
                } else if let Some((a, b)) = l
                    .binary(v, Binary::Add)
                    .filter(|(a, b)| [a, b].into_iter().any(|&x| adds_causality(l, x, scale, dims)))
                {
                    todo.extend([Part::Add(a, scale), Part::Add(b, scale)]);
                } else {
                    sums.push((v, scale));
                }
            }
            Part::Select { cond, keep, hidden } => {
                let (cond, keep) = match l.unary(cond, Unary::Not) {
                    Some(c) => (c, !keep),
                    None => (cond, keep),
                };
                let parts = l.binary(cond, if keep { Binary::And } else { Binary::Or });
                if hides(hidden, dims) && is_causal(l, cond, keep, dims, 0) {
                    causal = true;
                } else if let Some((a, b)) = parts {
                    todo.extend([a, b].map(|cond| Part::Select { cond, keep, hidden }));
                } else {
                    keeps.push((cond, keep, hidden));
                }
            }
        }
    }
    let l = r.look();
    let values = sums.iter().map(|s| s.0).chain(keeps.iter().map(|k| k.0));
    let fits = |v: ValueId| {
        l.shape(v).is_some_and(|s| {
            s.rank() <= scores.len() && s.iter().rev().zip(scores.iter().rev()).all(|(a, b)| a.bcast(b) == *b)
        })
    };
    if !values.into_iter().all(fits) {
        return Ok(None);
    }
    let operand = if sums.is_empty() && keeps.iter().all(|k| k.2 == f64::NEG_INFINITY) {
        let mut all = None;
        for (cond, keep, _) in keeps {
            let cond = if keep { cond } else { r.rw.b.not(cond)? };
            all = Some(match all {
                Some(other) => r.rw.b.and(other, cond)?,
                None => cond,
            });
        }
        all.map(|m| (m, MaskKind::Bool))
    } else {
        let mut terms = Vec::new();
        for (v, scale) in sums {
            let factor = if scale == 1.0 { None } else { Some(r.rw.b.scalar_like(v, scale)?) };
            terms.push(factor.map_or(Ok(v), |f| r.rw.b.mul(v, f))?);
        }
        // A finite number hides a key only beside others; a row of nothing else stays what it was.
        for (cond, keep, hidden) in keeps {
            let (zero, low) = (r.rw.b.scalar_like(like, 0.0)?, r.rw.b.scalar_like(like, hidden)?);
            let (a, b) = if keep { (zero, low) } else { (low, zero) };
            terms.push(r.rw.b.select(cond, a, b)?);
        }
        let mut all = None;
        for t in terms {
            all = Some(match all {
                Some(sum) => r.rw.b.add(sum, t)?,
                None => t,
            });
        }
        all.map(|m| (m, MaskKind::Additive))
    };
    Ok(Some(Combined { causal, operand }))
}

/// True if adding the value hides just what comes after a query's position.
fn adds_causality(l: Look<'_>, v: ValueId, scale: f64, dims: &[Dim]) -> bool {
    let low = |x: f64| hides(x * scale, dims);
    match l.op(v) {
        Some((Op::ShapeOp(ShapeOp::Reshape(_)), &[x])) if same_table(l, x, v) => adds_causality(l, x, scale, dims),
        Some((Op::ShapeOp(ShapeOp::BroadcastTo(_)), &[x])) => adds_causality(l, x, scale, dims),
        Some((Op::Elementwise(Elementwise::Select), &[cond, a, b])) => {
            let (Some(a), Some(b)) = (l.number(a), l.number(b)) else { return false };
            (a == 0.0 && low(b) && is_causal(l, cond, true, dims, 0))
                || (b == 0.0 && low(a) && is_causal(l, cond, false, dims, 0))
        }
        Some((Op::ShapeOp(ShapeOp::Constant(_)), _)) => table(l, v, dims, |e, i| match e {
            Elements::Float(v) => v.get(i).and_then(|&x| if x == 0.0 { Some(true) } else { low(x).then_some(false) }),
            _ => None,
        }),
        _ => false,
    }
}

/// True if the condition has the value `keep` just for keys up to a query's position.
fn is_causal(l: Look<'_>, cond: ValueId, keep: bool, dims: &[Dim], depth: usize) -> bool {
    let Some((op, operands)) = l.op(cond).filter(|_| depth < 8) else { return false };
    match (op, operands) {
        (Op::Elementwise(Elementwise::Unary(Unary::Not)), &[c]) => is_causal(l, c, !keep, dims, depth + 1),
        (Op::ShapeOp(ShapeOp::BroadcastTo(_)), &[c]) => is_causal(l, c, keep, dims, depth + 1),
        (Op::ShapeOp(ShapeOp::Constant(_)), _) => {
            table(l, cond, dims, |e, i| e.ints()?.get(i).map(|&x| (x != 0) == keep))
        }
        (Op::ShapeOp(ShapeOp::Reshape(_)), &[c]) => same_table(l, c, cond) && is_causal(l, c, keep, dims, depth + 1),
        (Op::Elementwise(Elementwise::Compare(c)), &[a, b]) => compares_positions(l, *c, a, b, keep, dims),
        _ => false,
    }
}

/// True if a number hides keys for good. Beside a finite one, a query that sees no key at all would see all of them alike, so there must be
/// none: no more queries than keys.
fn hides(hidden: f64, dims: &[Dim]) -> bool {
    let [.., s, t] = dims else { return false };
    hidden == f64::NEG_INFINITY || (hidden <= LOW && s.known_le(t) == Some(true))
}

/// True if one value is the other but for axes of 1 before the last two.
fn same_table(l: Look<'_>, a: ValueId, b: ValueId) -> bool {
    let parts = |v: ValueId| {
        let s = l.shape(v)?;
        let (outer, inner) = s.split_at(s.rank().checked_sub(2)?);
        outer.iter().all(|d| *d == Dim::ONE).then_some(inner)
    };
    parts(a).is_some() && parts(a) == parts(b)
}

/// True if `a op b` compares positions of keys and queries so that just keys up to the query's position are kept.
fn compares_positions(l: Look<'_>, op: Compare, a: ValueId, b: ValueId, keep: bool, dims: &[Dim]) -> bool {
    let (Some(a), Some(b)) = (position(l, a, 0), position(l, b, 0)) else { return false };
    // The comparison as key ≤ query, with what is added to the query's side.
    let op = match (op, keep) {
        (op, true) => op,
        (Compare::Lt, false) => Compare::Ge,
        (Compare::Le, false) => Compare::Gt,
        (Compare::Gt, false) => Compare::Le,
        (Compare::Ge, false) => Compare::Lt,
        _ => return false,
    };
    let (key, query, strict) = match op {
        Compare::Le => (a, b, 0),
        Compare::Lt => (a, b, 1),
        Compare::Ge => (b, a, 0),
        Compare::Gt => (b, a, 1),
        _ => return false,
    };
    let [.., s, t] = dims else { return false };
    (key.0, query.0) == (0, 1) && query.1 - key.1 - Dim::from(strict) == t - s
}

/// A value that grows by 1 along one axis, counted from the last: the axis, and its first element.
fn position(l: Look<'_>, v: ValueId, depth: usize) -> Option<(usize, Dim)> {
    if depth > 8 {
        return None;
    }
    let shape = l.shape(v)?;
    match l.op(v)? {
        (Op::ShapeOp(ShapeOp::Iota(Iota { axis, .. })), _) => Some((shape.rank().checked_sub(axis + 1)?, Dim::ZERO)),
        (Op::ShapeOp(ShapeOp::BroadcastTo(_)), &[x]) | (Op::Elementwise(Elementwise::Convert { .. }), &[x]) => {
            position(l, x, depth + 1)
        }
        (Op::ShapeOp(ShapeOp::Reshape(_)), &[x]) => {
            let (axis, first) = position(l, x, depth + 1)?;
            let n = l.shape(x)?.iter().rev().nth(axis)?;
            // The one axis that is more than 1 keeps its meaning wherever it goes.
            let alone = |s: &[Dim]| s.iter().filter(|d| **d != Dim::ONE).count() == 1;
            let at = shape.iter().rev().position(|d| d == n)?;
            (alone(l.shape(x)?) && alone(shape)).then_some((at, first))
        }
        (Op::Elementwise(Elementwise::Binary(op @ (Binary::Add | Binary::Sub))), &[a, b]) => {
            let (x, c, sign) = match (l.g.elems(a), l.g.elems(b), op) {
                (_, Some([c]), Binary::Add) => (a, c, 1),
                (Some([c]), _, Binary::Add) => (b, c, 1),
                (_, Some([c]), Binary::Sub) => (a, c, -1),
                _ => return None,
            };
            let (axis, first) = position(l, x, depth + 1)?;
            Some((axis, first + c * sign))
        }
        _ => None,
    }
}

/// True if a literal, read by `keeps`, keeps just keys up to each query's position.
fn table(l: Look<'_>, v: ValueId, dims: &[Dim], keeps: impl Fn(&Elements, usize) -> Option<bool>) -> bool {
    let ([.., s, t], Some(value)) = (dims, l.g.as_constant(v)) else { return false };
    let (&[.., rows, columns], Some(s), Some(t)) = (value.dims(), s.as_const(), t.as_const()) else { return false };
    if (rows as i64, columns as i64) != (s, t) || value.numel() != rows * columns || value.numel() == 0 {
        return false;
    }
    let elements = value.elements();
    (0..value.numel()).all(|i| {
        let (row, column) = ((i / columns) as i64, (i % columns) as i64);
        keeps(&elements, i) == Some(column <= row + t - s)
    })
}
