//! Rules of reshapes, transposes, slices, broadcasts, pads, reversals and what is written as one of them.

use rlx_ir::ops::shape::{Concat, Reshape, Reverse, Slice, Transpose};
use rlx_ir::ops::{Indexing, ShapeOp};
use rlx_ir::{DType, Dim, Op, ValueId};

use super::{Canon, Found};

fn shape_op(op: &Op) -> Option<&ShapeOp> {
    if let Op::ShapeOp(s) = op { Some(s) } else { None }
}

/// What rearranges nothing.
pub fn no_op(c: &mut Canon<'_, '_>, op: &Op, operands: &[ValueId]) -> Found {
    let (Some(op), &[x, ..]) = (shape_op(op), operands) else { return Ok(None) };
    let Some(t) = c.g().tensor_type(x) else { return Ok(None) };
    let (zero, one) = (Some(0), Dim::ONE);
    let nothing = match op {
        ShapeOp::Reshape(r) => r.dims == t.shape.dims(),
        ShapeOp::BroadcastTo(b) => b.dims == t.shape.dims(),
        ShapeOp::Transpose(p) => p.perm.iter().copied().eq(0..t.shape.rank()),
        ShapeOp::Slice(s) => {
            s.starts.iter().all(|d| d.as_const() == zero)
                && s.limits == t.shape.dims()
                && s.strides.iter().all(|&s| s == 1)
        }
        ShapeOp::Pad(p) => p.low.iter().chain(&p.high).all(|d| d.as_const() == zero),
        ShapeOp::Reverse(r) => r.axes.iter().all(|&a| t.shape.get(a) == Some(&one)),
        _ => false,
    };
    Ok(nothing.then_some(x))
}

/// Two views in a row that are one.
pub fn chain(c: &mut Canon<'_, '_>, op: &Op, operands: &[ValueId]) -> Found {
    let (Some(outer), &[x]) = (shape_op(op), operands) else { return Ok(None) };
    let Some((Op::ShapeOp(inner), &[y])) = c.def(x) else { return Ok(None) };
    let merged: Op = match (outer, inner) {
        (ShapeOp::Reshape(_), ShapeOp::Reshape(_)) => op.clone(),
        (ShapeOp::BroadcastTo(_), ShapeOp::BroadcastTo(_)) => op.clone(),
        (ShapeOp::Transpose(o), ShapeOp::Transpose(i)) => {
            let Some(perm) = o.perm.iter().map(|&a| i.perm.get(a).copied()).collect() else { return Ok(None) };
            Transpose { perm }.into()
        }
        (ShapeOp::Reverse(o), ShapeOp::Reverse(i)) => {
            let mut axes: Vec<usize> = o.axes.iter().filter(|a| !i.axes.contains(a)).copied().collect();
            axes.extend(i.axes.iter().filter(|a| !o.axes.contains(a)));
            axes.sort_unstable();
            Reverse { axes }.into()
        }
        (ShapeOp::Slice(o), ShapeOp::Slice(i)) => match merge_slices(o, i) {
            Some(s) => s.into(),
            None => return Ok(None),
        },
        // A broadcast that only puts axes of 1 in front is a reshape of the operand as it was.
        (ShapeOp::Reshape(r), ShapeOp::BroadcastTo(b)) => {
            let Some(from) = c.g().tensor_type(y).map(|t| &t.shape) else { return Ok(None) };
            let trailing = b.dims.len().checked_sub(from.rank()).map(|n| &b.dims[n..]);
            if trailing != Some(from.dims()) || b.dims[..b.dims.len() - from.rank()].iter().any(|d| *d != Dim::ONE) {
                return Ok(None);
            }
            Reshape { dims: r.dims.clone() }.into()
        }
        _ => return Ok(None),
    };
    c.emit(merged, &[y]).map(Some)
}

/// A slice of a slice, where on each axis one of them takes every element in order.
fn merge_slices(outer: &Slice, inner: &Slice) -> Option<Slice> {
    let mut merged = Slice { starts: vec![], limits: vec![], strides: vec![] };
    let mut push = |start: Dim, limit: Dim, stride: i64| {
        merged.starts.push(start);
        merged.limits.push(limit);
        merged.strides.push(stride);
    };
    for axis in 0..inner.starts.len() {
        let (start, limit, stride) = (inner.starts.get(axis)?, inner.limits.get(axis)?, *inner.strides.get(axis)?);
        let (from, to, step) = (outer.starts.get(axis)?, outer.limits.get(axis)?, *outer.strides.get(axis)?);
        if stride != 1 {
            let n = Dim::max(&(limit - start).ceil_div(stride.checked_abs()?), Dim::ZERO);
            if stride < 0 || from.as_const() != Some(0) || *to != n || step != 1 {
                return None;
            }
            push(start.clone(), limit.clone(), stride);
        } else if step < 0 {
            return None;
        } else {
            push(start + from, start + to, step);
        }
    }
    Some(merged)
}

/// How many parts a join may get by taking over those of its operands: joins of the same operand twice, again and again, would have 2^n.
const MAX_PARTS: usize = 256;

/// Joins of one, of nothing, of joins.
pub fn concat(c: &mut Canon<'_, '_>, op: &Op, operands: &[ValueId]) -> Found {
    let Some(ShapeOp::Concat(Concat { axis })) = shape_op(op) else { return Ok(None) };
    if let &[x] = operands {
        return Ok(Some(x));
    }
    let mut parts = Vec::with_capacity(operands.len());
    for &v in operands {
        let empty = c.g().tensor_type(v).and_then(|t| t.shape.get(*axis)).is_some_and(|d| d.as_const() == Some(0));
        match c.def(v) {
            _ if empty => {}
            Some((Op::ShapeOp(ShapeOp::Concat(inner)), xs)) if inner.axis == *axis => parts.extend_from_slice(xs),
            _ => parts.push(v),
        }
    }
    if parts == operands || parts.is_empty() || parts.len() > operands.len().max(MAX_PARTS) {
        return Ok(None);
    }
    c.emit(op.clone(), &parts).map(Some)
}

/// Taking positions that follow each other along an axis is a slice.
pub fn gather(c: &mut Canon<'_, '_>, op: &Op, operands: &[ValueId]) -> Found {
    let (Op::Indexing(Indexing::Gather(gather)), &[x, index]) = (op, operands) else { return Ok(None) };
    let (Some(t), Some(i)) = (c.g().tensor_type(x), c.g().tensor_type(index)) else { return Ok(None) };
    let Some(size) = t.shape.get(gather.axis) else { return Ok(None) };
    let Some((start, limit)) = positions(c, index, size) else { return Ok(None) };
    // Out of range, the run says so.
    if limit.known_le_with(size, c.g().bounds()) == Some(false) {
        return Ok(None);
    }
    let rank = t.shape.rank();
    let (mut starts, mut limits) = (vec![Dim::ZERO; rank], t.shape.to_vec());
    let mut dims = t.shape[..gather.axis].to_vec();
    dims.extend(i.shape.iter().cloned());
    dims.extend_from_slice(&t.shape[gather.axis + 1..]);
    (starts[gather.axis], limits[gather.axis]) = (start, limit);
    let slice = c.emit(Slice { starts, limits, strides: vec![1; rank] }, &[x])?;
    c.emit(Reshape { dims }, &[slice]).map(Some)
}

/// Start and end of the positions that indices name, if these are integers in a row.
fn positions(c: &Canon<'_, '_>, index: ValueId, size: &Dim) -> Option<(Dim, Dim)> {
    if let Some(elems) = c.g().elems(index) {
        let first = elems.first()?.as_const()?;
        let first = if first < 0 { first.checked_add(size.as_const()?)? } else { first };
        let in_row = |(n, d): (usize, &Dim)| {
            let at = d.as_const()?;
            let at = if at < 0 { at.checked_add(size.as_const()?)? } else { at };
            Some(at == first.checked_add(i64::try_from(n).ok()?)?)
        };
        // One position of a size that is not known is left to the run, and so is what is out of range.
        let known = elems.len() > 1 || size.is_const();
        let all = known && first >= 0 && elems.iter().enumerate().all(|e| in_row(e) == Some(true));
        let end = first.checked_add(i64::try_from(elems.len()).ok()?)?;
        return all.then(|| (Dim::from(first), Dim::from(end)));
    }
    let mut at = index;
    while let Some((Op::ShapeOp(ShapeOp::Reshape(_)), &[inner])) = c.def(at) {
        at = inner;
    }
    let Some((Op::ShapeOp(ShapeOp::Iota(iota)), _)) = c.def(at) else { return None };
    let others = iota.dims.iter().enumerate().filter(|(a, _)| *a != iota.axis);
    let counts = matches!(iota.dtype, DType::I64 | DType::I32) && others.into_iter().all(|(_, d)| *d == Dim::ONE);
    counts.then(|| (Dim::ZERO, iota.dims.get(iota.axis).cloned().unwrap_or(Dim::ONE)))
}
