//! Operands of contractions that are integers of 8 bits or fewer, widened, less a zero point, times a scale: the contraction is given the
//! integers, and says what they stand for ([`Scaling`](crate::lir::Scaling)). The wider form is then not made where nothing else reads it.
//!
//! A product of integers takes operands so whatever they are; one of floats only weights, whose form its backend keeps.

use rlx_ir::ops::elementwise::{Binary, Elementwise};
use rlx_ir::{DType, Dim};

use crate::lir::{Literal, Scope, Storage};

use super::groups::{Arg, GroupKind, ItemOp};
use super::planner::Planner;
use super::roots::{RootId, Source};
use super::views::{Step, Val, Walk};

/// An operand as it lies in memory.
#[derive(Clone, Debug)]
pub(super) struct Scaled {
    pub raw: Val,
    pub zero: Option<Val>,
    pub scale: Option<Val>,
}

impl Scaled {
    /// An operand that stands for itself.
    pub fn plain(v: &Val) -> Self {
        Scaled { raw: v.clone(), zero: None, scale: None }
    }

    /// What is read.
    pub fn vals(&self) -> impl Iterator<Item = &Val> {
        [&self.raw].into_iter().chain(&self.zero).chain(&self.scale)
    }
}

/// A value one of whose axes is made of two that no single step walks: a scale for each block of an axis, repeated along it.
pub(super) struct Unmerged {
    /// The value with both axes.
    pub val: Val,
    /// Axes of it that each axis of the value is made of.
    pub axes: Vec<Vec<usize>>,
}

impl Unmerged {
    /// Sees a value as it was before the reshape that joined the axes; `None` where there is none, or what follows it is more than a
    /// transpose.
    pub fn of(v: &Val, root_dims: &[Dim]) -> Option<Self> {
        let mut walk = Walk::dense(root_dims);
        let mut joined = None;
        for (i, s) in v.steps.iter().enumerate() {
            match walk.step(s) {
                Some(w) => walk = w,
                None => {
                    joined = Some(i);
                    break;
                }
            }
        }
        let (before, rest) = v.steps.split_at(joined?);
        let (Step::Reshape { from, to }, after) = rest.split_first()? else { return None };
        if *from != walk.dims || from.len() != to.len() + 1 {
            return None;
        }
        let at = from.iter().zip(to).position(|(a, b)| a != b)?;
        let whole =
            from.get(at + 1).zip(to.get(at)).is_some_and(|(inner, both)| from[at].clone() * inner.clone() == *both);
        if !whole || from.get(at + 2..) != to.get(at + 1..) {
            return None;
        }
        let of = |a: usize| {
            if a < at {
                vec![a]
            } else if a == at {
                vec![a, a + 1]
            } else {
                vec![a + 1]
            }
        };
        let mut axes: Vec<Vec<usize>> = (0..to.len()).map(of).collect();
        for s in after {
            let Step::Transpose(perm) = s else { return None };
            axes = perm.iter().map(|&p| axes.get(p).cloned()).collect::<Option<_>>()?;
        }
        Some(Unmerged { val: Val { root: v.root, steps: before.to_vec(), dims: from.clone() }, axes })
    }
}

/// What a value is made of: an elementwise function of values of its own sizes.
struct Made {
    op: Elementwise,
    args: Vec<Part>,
}

/// An argument.
enum Part {
    Val(Val),
    Literal(Literal, DType),
}

/// Integers that products take as they are.
fn is_small(d: DType) -> bool {
    matches!(d, DType::I8 | DType::U8 | DType::I4 | DType::U4)
}

impl Planner<'_> {
    /// An operand of a product that is summed in `acc`, as integers, if that is what it is; or why it is not taken as such, if it is made
    /// of integers.
    pub(super) fn scaled(&mut self, v: &Val, acc: DType, right: bool) -> Result<Scaled, Option<&'static str>> {
        let before = self.roots.len();
        let found = self.find_scaled(v, acc, right);
        // Instructions that were only looked at make no tensors.
        if self.roots.len() > before {
            let kept: Vec<RootId> = found.iter().flat_map(|s| s.vals().map(|v| v.root)).collect();
            for item in &mut self.items {
                item.root = item.root.filter(|r| r.index() < before || kept.contains(r));
            }
        }
        found
    }

    fn find_scaled(&mut self, v: &Val, acc: DType, right: bool) -> Result<Scaled, Option<&'static str>> {
        const NO_INTEGERS: Option<&str> = None;
        if self.root(v.root).dtype != acc || !matches!(acc, DType::I32 | DType::F32) {
            return Err(NO_INTEGERS);
        }
        let (mut at, mut scale) = (v.clone(), None);
        if acc == DType::F32
            && let Some(Made { op: Elementwise::Binary(Binary::Mul), args }) = self.made(&at)
        {
            let [a, b] = <[Part; 2]>::try_from(args).map_err(|_| NO_INTEGERS)?;
            // The scale is what does not come from integers.
            let (x, by) = match (a, b) {
                (Part::Val(x), by) if self.is_whole(&x) => (x, by),
                (by, Part::Val(x)) if self.is_whole(&x) => (x, by),
                _ => return Err(NO_INTEGERS),
            };
            let made = self.stored_part(by, &v.dims);
            scale = Some(made.ok_or(Some("its scale is a size or an index"))?);
            at = x;
        }
        let (mut raw, mut zero) = (self.widened(&at).unwrap_or(at), None);
        let wide = self.root(raw.root).dtype;
        if let Some(Made { op: Elementwise::Binary(Binary::Sub), args }) = self.made(&raw)
            && (wide == DType::F32 || wide.is_int() && wide.bits() > 8)
        {
            let [x, z] = <[Part; 2]>::try_from(args).map_err(|_| NO_INTEGERS)?;
            let Part::Val(x) = x else { return Err(NO_INTEGERS) };
            raw = self.widened(&x).unwrap_or(x);
            let z = match z {
                Part::Val(z) => Part::Val(self.widened(&z).unwrap_or(z)),
                literal => literal,
            };
            let made = self.stored_part(z, &v.dims);
            zero = Some(made.ok_or(if is_small(self.root(raw.root).dtype) {
                Some("its zero point is a size or an index")
            } else {
                NO_INTEGERS
            })?);
        }
        let dtype = self.root(raw.root).dtype;
        if !is_small(dtype) {
            return Err(NO_INTEGERS);
        }
        if raw.dims != v.dims {
            return Err(Some("they are spread over more positions"));
        }
        if dtype.bits() < 8 && !acc.is_float() {
            return Err(Some("products of integers take none below 8 bits"));
        }
        if let Some(z) = zero.take() {
            match self.zeros(&z, dtype) {
                Some(true) => {}
                Some(false) => zero = Some(z),
                None => return Err(Some("their zero points may lie outside their range")),
            }
        }
        if let Some(s) = &scale
            && self.root(s.root).dtype != DType::F32
        {
            return Err(Some("their scale is no f32"));
        }
        if acc.is_float() && !right {
            return Err(Some("they are the left operand of a product of floats"));
        }
        let scaled = Scaled { raw, zero, scale };
        // What a backend keeps must stay the same from run to run.
        let kept = scaled
            .vals()
            .all(|v| matches!(self.root(v.root).source, Source::Boundary(Storage::Param(_)) | Source::Const(_)));
        if kept || !acc.is_float() {
            Ok(scaled)
        } else {
            Err(Some("they are not weights, which are kept as they are read"))
        }
    }

    /// Takes out instructions that nothing needs any more, since contractions read what those were made of, or rows make them themselves.
    pub(super) fn drop_unread(&mut self) {
        if self.scaled.is_empty() && !self.sunk {
            return;
        }
        let mut live = vec![false; self.items.len()];
        for i in (0..self.items.len()).rev() {
            let item = &self.items[i];
            let read = item.root.is_some_and(|r| self.root(r).uses > 0);
            let args = item.args.clone();
            live[i] |= read || matches!(item.op, ItemOp::Acc);
            for a in args {
                match a {
                    Arg::Item(j) => live[j.index()] |= live[i],
                    Arg::Val(v, _) if !live[i] => {
                        let root = &mut self.roots[v.root.index()];
                        root.uses = root.uses.saturating_sub(1);
                    }
                    _ => {}
                }
            }
        }
        for g in &mut self.groups {
            g.items.retain(|i| live[i.index()]);
        }
    }

    /// Whether a value is small integers, widened, or less a zero point.
    fn is_whole(&mut self, v: &Val) -> bool {
        if self.widened(v).is_some() {
            return true;
        }
        match self.made(v) {
            Some(Made { op: Elementwise::Binary(Binary::Sub), args }) => {
                matches!(args.first(), Some(Part::Val(x)) if self.widened(x).is_some())
            }
            _ => false,
        }
    }

    /// Whether zero points are all zero; `None` where they may lie outside the range of the operand's dtype.
    fn zeros(&self, z: &Val, dtype: DType) -> Option<bool> {
        let root = self.root(z.root);
        if let Source::Const(t) = &root.source {
            let (lo, hi) = dtype.int_range()?;
            let elements = t.elements();
            let values: Vec<i128> = match elements.ints() {
                Some(ints) => ints.to_vec(),
                None => match elements {
                    rlx_ir::element::Elements::Float(f) if f.iter().all(|x| x.fract() == 0.0 && x.abs() < 256.0) => {
                        f.iter().map(|&x| x as i128).collect()
                    }
                    _ => return None,
                },
            };
            let fits = values.iter().all(|&v| v >= lo && v <= hi);
            return fits.then(|| values.iter().all(|&v| v == 0));
        }
        is_small(root.dtype).then_some(false)
    }

    /// What is converted without loss from integers, if the value is that.
    fn widened(&mut self, v: &Val) -> Option<Val> {
        let mut at = v.clone();
        let mut found = None;
        // i8 to i32 to f32, or a bit more than that.
        for _ in 0..3 {
            let Some(Made { op: Elementwise::Convert { to, .. }, args }) = self.made(&at) else { break };
            let Some(Part::Val(x)) = args.into_iter().next() else { break };
            let from = self.root(x.root).dtype;
            let exact = if is_small(from) {
                to == DType::F32 || to.is_int() && to.bits() > 8 && (to.int_range()?.0 < 0 || from.int_range()?.0 >= 0)
            } else {
                // Differences of small integers stay exact; others are not looked for.
                matches!((from, to), (DType::I16 | DType::I32, DType::I32 | DType::F32))
                    && self.is_difference_of_small(&x)
            };
            if !exact {
                break;
            }
            found = Some(x.clone());
            at = x;
        }
        found
    }

    /// Whether a value is made of small integers by a widening or a difference.
    fn is_difference_of_small(&mut self, v: &Val) -> bool {
        let Some(made) = self.made(v) else { return false };
        match made.op {
            Elementwise::Convert { .. } | Elementwise::Binary(Binary::Sub) => {}
            _ => return false,
        }
        made.args.into_iter().all(|p| match p {
            Part::Literal(Literal::Int(x), _) => x.unsigned_abs() < 256,
            Part::Literal(..) => false,
            Part::Val(x) => {
                let root = self.root(x.root);
                let constant = matches!(&root.source, Source::Const(_));
                is_small(root.dtype)
                    || constant
                    || self.made(&x).is_some_and(|m| match m.args.first() {
                        Some(Part::Val(y)) => {
                            matches!(m.op, Elementwise::Convert { .. }) && is_small(self.root(y.root).dtype)
                        }
                        _ => false,
                    })
            }
        })
    }

    /// What a value that is seen through steps is made of.
    fn made(&mut self, v: &Val) -> Option<Made> {
        let item = self.item_of(v.root)?;
        let (op, args, scope) = {
            let it = self.items.get(item.index())?;
            let ItemOp::Apply(op) = it.op else { return None };
            (op, it.args.clone(), it.scope)
        };
        let group = self.group_of(item);
        let group = self.groups.get(group.index())?;
        if matches!(group.kind, GroupKind::Single(_)) {
            return None;
        }
        let space = match (scope, &group.kind) {
            (Scope::Element, _) => group.space.clone(),
            (Scope::Row, GroupKind::Row(_)) => group.outer_dims(),
            (Scope::Row, _) => return None,
        };
        if self.root(v.root).dims != space {
            return None;
        }
        let args = args.into_iter().map(|a| {
            let inner = match a {
                Arg::Literal(l, d) => return Some(Part::Literal(l, d)),
                Arg::Size(_) => return None,
                Arg::Val(x, _) if x.dims == space => x,
                // One element for all rows.
                Arg::Val(x, _) if self.root(x.root).dims.iter().all(|d| *d == Dim::ONE) => {
                    Val::whole(x.root, &self.root(x.root).dims.clone()).reshape(&[]).broadcast(&space)
                }
                Arg::Val(..) => return None,
                Arg::Item(j) => {
                    let root = self.item_root(j);
                    let dims = self.root(root).dims.clone();
                    Val::whole(root, &dims).broadcast(&space)
                }
            };
            let steps = inner.steps.into_iter().chain(v.steps.iter().cloned()).collect();
            Some(Part::Val(Val { root: inner.root, steps, dims: v.dims.clone() }))
        });
        Some(Made { op, args: args.collect::<Option<_>>()? })
    }

    /// A part in memory, of these sizes.
    fn stored_part(&mut self, part: Part, dims: &[Dim]) -> Option<Val> {
        let (literal, dtype) = match part {
            Part::Val(v) => match self.root(v.root).source {
                Source::Literal(l) => (l, self.root(v.root).dtype),
                Source::Size(_) | Source::Iota(_) => return None,
                _ => return Some(v),
            },
            Part::Literal(l, d) => (l, d),
        };
        let t = super::emit::literal_tensor(dtype, literal).ok()?;
        let root = self.new_root(Source::Const(t), dtype, Vec::new());
        Some(Val::whole(root, &[]).broadcast(dims))
    }
}
