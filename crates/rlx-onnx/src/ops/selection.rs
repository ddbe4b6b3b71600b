//! What depends on data for how much there is: distinct elements, boxes that are kept. And determinants, which pick pivots.

use rlx_ir::builder::Builder;
use rlx_ir::ops::control::LoopStep;
use rlx_ir::ops::indexing::Combiner;
use rlx_ir::ops::reduction::{ArgKind, CumKind, ReduceKind};
use rlx_ir::{DType, Dim, IrError, Tensor, ValueId};

use super::context::{Failure, NodeCx, Out};
use super::{OpEntry, op};

pub(super) const OPS: &[OpEntry] =
    &[op("Unique", 11, unique), op("NonMaxSuppression", 10, non_max_suppression), op("Det", 11, det)];

/// Distinct rows: sorted, equal ones are neighbours, and the first of each run stands for it.
fn unique(cx: &mut NodeCx<'_, '_>) -> Out {
    let sorted = cx.flag("sorted", true)?;
    let axis = cx.opt_int("axis")?;
    unique_of(cx, sorted, axis)
}

/// Distinct slices along an axis, or distinct elements, ascending or in the order in which they are met: they, where each is met first,
/// which of them each slice is, and how often there are.
pub(super) fn unique_of(cx: &mut NodeCx<'_, '_>, sorted: bool, axis: Option<i64>) -> Out {
    let x = cx.input(0)?;
    let shape = cx.shape(x)?;
    // Rows [n, m]: slices along the axis, or single elements.
    let (rows, rest) = match axis {
        None => (cx.b().reshape(x, [shape.numel(), Dim::ONE])?, None),
        Some(a) => {
            let a = cx.axis(x, a)?;
            // The other axes keep their order: that of comparing slices follows from it.
            let perm: Vec<usize> = [a].into_iter().chain((0..shape.rank()).filter(|&i| i != a)).collect();
            let front = cx.b().transpose(x, &perm)?;
            let rest: Vec<Dim> = cx.shape(front)?.into_dims().split_off(1);
            let m = super::sizes::product(&rest);
            (cx.b().reshape(front, [shape[a].clone(), m])?, Some((a, rest)))
        }
    };
    let dims = cx.shape(rows)?;
    let (n, m) = (dims[0].clone(), dims[1].clone());
    let order = lexicographic(cx.b(), rows, &n, &m)?;
    let in_order = cx.b().gather(rows, order, 0)?;
    let starts = run_starts(cx, in_order, &n)?;
    let count = cx.imp.fresh_symbol("distinct");
    let b = cx.b();
    let at = b.nonzero(starts, count)?;
    let at = b.squeeze(at, &[0])?;
    // Where each run begins in the sorted rows; equal rows keep their order, so its first is the first there is.
    let first = b.gather(order, at, 0)?;
    let groups = b.convert(starts, DType::I64)?;
    let groups = b.cumulative(groups, CumKind::Sum, 0, false, false)?;
    let one = b.scalar(DType::I64, 1.0)?;
    let groups = b.sub(groups, one)?;
    let inverse = b.scatter_elements(order, order, groups, 0, Combiner::Set)?;
    let k = b.shape(at)?[0].clone();
    let total = b.from_dim(n)?;
    let total = b.reshape(total, [1i64])?;
    let ends = b.slice(at, vec![Dim::ONE.min(k.clone())], vec![k.clone()], vec![1])?;
    let some = Dim::ONE.min(k.clone());
    let total = b.broadcast_to(total, [some])?;
    let ends = b.concat(&[ends, total], 0)?;
    let mut counts = b.sub(ends, at)?;
    let (mut first, mut inverse) = (first, inverse);
    if !sorted {
        let (ascending, perm) = b.sort(first, 0, false)?;
        first = ascending;
        counts = b.gather(counts, perm, 0)?;
        let places = b.iota(DType::I64, [k.clone()], 0)?;
        let rank = b.scatter_elements(perm, perm, places, 0, Combiner::Set)?;
        inverse = b.gather(rank, inverse, 0)?;
    }
    let y = b.gather(rows, first, 0)?;
    let y = match rest {
        None => b.reshape(y, [k])?,
        Some((a, rest)) => {
            let rank = rest.len() + 1;
            let y = b.reshape(y, [k].into_iter().chain(rest))?;
            let perm: Vec<usize> = (1..=a).chain([0]).chain(a + 1..rank).collect();
            b.transpose(y, &perm)?
        }
    };
    Ok(vec![y, first, inverse, counts])
}

/// The order of rows `[n, m]`: stable sorts by the columns, the last one first.
fn lexicographic(b: &mut Builder, rows: ValueId, n: &Dim, m: &Dim) -> Result<ValueId, IrError> {
    if m.as_const() == Some(1) {
        let column = b.reshape(rows, [n.clone()])?;
        return Ok(b.sort(column, 0, false)?.1);
    }
    let start = b.iota(DType::I64, [n.clone()], 0)?;
    let trips = b.from_dim(m.clone())?;
    let last = b.from_dim(m - 1)?;
    let out = b.loop_(Some(trips), None, &[start], &[rows, last], |b, a| {
        let at = b.sub(a.captures[1], a.iteration)?;
        let column = b.gather(a.captures[0], at, 1)?;
        let column = b.gather(column, a.carried[0], 0)?;
        let (_, perm) = b.sort(column, 0, false)?;
        Ok(LoopStep { cond: a.cond, carried: vec![b.gather(a.carried[0], perm, 0)?], scans: vec![] })
    })?;
    out.first().copied().ok_or_else(|| IrError::Eval("a loop gave nothing".into()))
}

/// Which sorted rows differ from the one before; the first does. NaNs equal each other.
fn run_starts(cx: &mut NodeCx<'_, '_>, rows: ValueId, n: &Dim) -> Result<ValueId, Failure> {
    let float = cx.dtype(rows)?.is_float();
    let some = Dim::ONE.min(n.clone());
    let all_but = (n - 1).max(Dim::ZERO);
    let later = cx.range_of(rows, 0, some.clone(), n.clone(), 1)?;
    let earlier = cx.range_of(rows, 0, Dim::ZERO, all_but, 1)?;
    let b = cx.b();
    let mut differ = b.ne(later, earlier)?;
    if float {
        let (x, y) = (b.is_nan(later)?, b.is_nan(earlier)?);
        let both = b.and(x, y)?;
        let other = b.not(both)?;
        differ = b.and(differ, other)?;
    }
    let differ = b.reduce(differ, ReduceKind::Any, &[1], false)?;
    let first = b.constant(Tensor::from_bools(&[1], &[true])?)?;
    let first = b.broadcast_to(first, [some])?;
    Ok(b.concat(&[first, differ], 0)?)
}

/// Corners `[lower, upper]` of boxes along one axis of the plane: `[batches, 1, boxes]` each.
fn corners(cx: &mut NodeCx<'_, '_>, boxes: ValueId, axis: i64, centred: bool) -> Result<(ValueId, ValueId), Failure> {
    let mut part = |k: i64| -> Result<ValueId, Failure> {
        let v = cx.range_of(boxes, 2, Dim::from(k), Dim::from(k + 1), 1)?;
        Ok(cx.b().transpose(v, &[0, 2, 1])?)
    };
    let (a, c) = (part(axis)?, part(axis + 2)?);
    if centred {
        let half = cx.times(c, 0.5)?;
        return Ok((cx.b().sub(a, half)?, cx.b().add(a, half)?));
    }
    Ok((cx.b().minimum(a, c)?, cx.b().maximum(a, c)?))
}

/// Boxes in order of their scores; each that is still there strikes out the later ones that it overlaps.
fn non_max_suppression(cx: &mut NodeCx<'_, '_>) -> Out {
    let (boxes, scores) = (cx.input(0)?, cx.input(1)?);
    let centred = cx.flag("center_point_box", false)?;
    let ss = cx.shape(scores)?;
    let [batches, classes, n] = ss.dims() else {
        return Err(Failure::refused(format!("scores must have axes [batches, classes, boxes], got {ss}")));
    };
    let mut numbers = Vec::new();
    for (i, dtype) in [(2, DType::I64), (3, DType::F32), (4, DType::F32)] {
        numbers.push(match cx.opt(i)? {
            Some(v) => {
                let v = crate::import::scalar(cx.b(), v)?;
                Some(cx.b().convert(v, dtype)?)
            }
            None => None,
        });
    }
    let [most, overlap, least] = numbers[..] else { return Err(Failure::refused("takes five operands")) };
    let zero = cx.b().scalar(DType::I64, 0.0)?;
    let most = most.unwrap_or(zero);
    let overlap = match overlap {
        Some(v) => v,
        None => cx.b().scalar(DType::F32, 0.0)?,
    };
    let scores = cx.b().convert(scores, DType::F32)?;
    let boxes = cx.b().convert(boxes, DType::F32)?;
    let (sorted, order) = cx.b().sort(scores, 2, true)?;
    let all = [batches.clone(), classes.clone(), n.clone()];
    let mut sides = Vec::new();
    for axis in [0, 1] {
        let (lo, hi) = corners(cx, boxes, axis, centred)?;
        for v in [lo, hi] {
            let v = cx.b().broadcast_to(v, all.clone())?;
            sides.push(cx.b().gather_elements(v, order, 2)?);
        }
    }
    let start = match least {
        Some(t) => cx.b().gt(sorted, t)?,
        None => {
            let t = cx.b().constant(Tensor::from_bools(&[], &[true])?)?;
            cx.b().broadcast_to(t, all.clone())?
        }
    };
    let trips = cx.b().from_dim(n.clone())?;
    let places = cx.b().iota(DType::I64, [Dim::ONE, Dim::ONE, n.clone()], 2)?;
    let captures = [sides[0], sides[1], sides[2], sides[3], overlap, places];
    let kept = cx.b().loop_(Some(trips), None, &[start], &captures, |b, a| {
        let [lo_y, hi_y, lo_x, hi_x, limit, places] = a.captures[..] else {
            return Err(IrError::Eval("a capture is missing".into()));
        };
        let zero = b.scalar(DType::F32, 0.0)?;
        let mine = |b: &mut Builder, v: ValueId| {
            let v = b.gather(v, a.iteration, 2)?;
            b.expand_dims(v, &[2])
        };
        let common = |b: &mut Builder, lo: ValueId, hi: ValueId| {
            let (l, h) = (mine(b, lo)?, mine(b, hi)?);
            let (top, bottom) = (b.minimum(hi, h)?, b.maximum(lo, l)?);
            let d = b.sub(top, bottom)?;
            let (all, own) = (b.sub(hi, lo)?, b.sub(h, l)?);
            Ok::<_, IrError>((b.maximum(d, zero)?, all, own))
        };
        let (dy, ay, oy) = common(b, lo_y, hi_y)?;
        let (dx, ax, ox) = common(b, lo_x, hi_x)?;
        let shared = b.mul(dy, dx)?;
        let (area, own) = (b.mul(ay, ax)?, b.mul(oy, ox)?);
        let both = b.add(area, own)?;
        let either = b.sub(both, shared)?;
        // Without an area nothing overlaps.
        let bound = b.mul(limit, either)?;
        let over = b.gt(shared, bound)?;
        let later = b.gt(places, a.iteration)?;
        let there = b.gather(a.carried[0], a.iteration, 2)?;
        let there = b.expand_dims(there, &[2])?;
        let strike = b.and(over, later)?;
        let strike = b.and(strike, there)?;
        let stay = b.not(strike)?;
        Ok(LoopStep { cond: a.cond, carried: vec![b.and(a.carried[0], stay)?], scans: vec![] })
    })?;
    let kept = kept.first().copied().ok_or_else(|| Failure::refused("a loop gave nothing"))?;
    let count = cx.imp.fresh_symbol("boxes");
    let b = cx.b();
    let ranks = b.convert(kept, DType::I64)?;
    let ranks = b.cumulative(ranks, CumKind::Sum, 2, false, false)?;
    let few = b.le(ranks, most)?;
    let kept = b.and(kept, few)?;
    let at = b.nonzero(kept, count)?;
    let at = b.transpose(at, &[1, 0])?;
    let index = b.gather_nd(order, at, 0)?;
    let index = b.expand_dims(index, &[1])?;
    let lead = cx.range_of(at, 1, Dim::ZERO, Dim::from(2), 1)?;
    Ok(vec![cx.b().concat(&[lead, index], 1)?])
}

/// Elimination that picks the largest pivot of each column among the rows left, without moving rows: the sign follows from how many
/// rows left stand above the pivot.
fn det(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let shape = cx.shape(x)?;
    let rank = shape.rank();
    let Some(n) = shape.last().cloned().filter(|_| rank >= 2) else {
        return Err(Failure::refused(format!("the operand must be square matrices, got {shape}")));
    };
    let dtype = cx.dtype(x)?;
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let batch = shape.dims()[..rank - 2].to_vec();
    let matrices = super::sizes::product(&batch);
    let x = cx.b().convert(x, wide)?;
    let x = cx.b().reshape(x, [matrices.clone(), n.clone(), n.clone()])?;
    let one = cx.b().scalar(wide, 1.0)?;
    let product = cx.b().broadcast_to(one, [matrices.clone()])?;
    if n.as_const() == Some(0) {
        // The empty product; there is no column to pick a pivot of.
        let y = cx.b().reshape(product, batch)?;
        return Ok(vec![cx.b().convert(y, dtype)?]);
    }
    let free = cx.b().broadcast_to(one, [matrices, n.clone()])?;
    let trips = cx.b().from_dim(n.clone())?;
    let rows = cx.b().iota(DType::I64, [Dim::ONE, n], 1)?;
    let out = cx.b().loop_(Some(trips), None, &[x, product, free], &[rows], |b, a| {
        let [x, product, free] = a.carried[..] else { return Err(IrError::Eval("a value is missing".into())) };
        let rows = a.captures[0];
        let dtype = b.dtype(x)?;
        let (zero, one, none) = (b.scalar(dtype, 0.0)?, b.scalar(dtype, 1.0)?, b.scalar(dtype, -1.0)?);
        let column = b.gather(x, a.iteration, 2)?;
        let size = b.abs(column)?;
        let is_free = b.gt(free, zero)?;
        let size = b.select(is_free, size, none)?;
        let at = b.arg_reduce(size, ArgKind::Max, 1, true, false)?;
        let is_pivot = b.eq(rows, at)?;
        let hot = b.convert(is_pivot, dtype)?;
        let above = b.lt(rows, at)?;
        let above = b.select(above, free, zero)?;
        let above = b.reduce(above, ReduceKind::Sum, &[1], false)?;
        let two = b.scalar(dtype, 2.0)?;
        let odd = b.rem(above, two)?;
        let odd = b.gt(odd, zero)?;
        let pivots = b.select(is_pivot, column, zero)?;
        let pivot = b.reduce(pivots, ReduceKind::Sum, &[1], true)?;
        let flat = b.squeeze(pivot, &[1])?;
        let turned = b.neg(flat)?;
        let factor = b.select(odd, turned, flat)?;
        let product = b.mul(product, factor)?;
        let free = b.sub(free, hot)?;
        // A column of zeros makes the product zero, whatever follows.
        let singular = b.eq(pivot, zero)?;
        let divisor = b.select(singular, one, pivot)?;
        let share = b.div(column, divisor)?;
        let left = b.gt(free, zero)?;
        let share = b.select(left, share, zero)?;
        let share = b.expand_dims(share, &[2])?;
        let wide_hot = b.expand_dims(is_pivot, &[2])?;
        let row = b.select(wide_hot, x, zero)?;
        let row = b.reduce(row, ReduceKind::Sum, &[1], true)?;
        let off = b.mul(share, row)?;
        let x = b.sub(x, off)?;
        Ok(LoopStep { cond: a.cond, carried: vec![x, product, free], scans: vec![] })
    })?;
    let y = out.get(1).copied().ok_or_else(|| Failure::refused("a loop gave nothing"))?;
    let y = cx.b().reshape(y, batch)?;
    Ok(vec![cx.b().convert(y, dtype)?])
}
