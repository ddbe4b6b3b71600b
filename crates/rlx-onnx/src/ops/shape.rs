//! Constants, views and rearrangements.

use rlx_ir::dim::Constraint;
use rlx_ir::ops::reduction::ReduceKind;
use rlx_ir::{DType, Dim, Tensor, ValueId};

use super::axes::{Axes, Named};
use super::context::{Failure, NodeCx, Out};
use super::sizes::product;
use super::{OpEntry, op};
use crate::import::{scalar, to_dense, to_tensor};
use crate::model::Attr;

pub(super) const OPS: &[OpEntry] = &[
    op("Identity", 1, identity),
    op("OptionalGetElement", 18, identity),
    op("OptionalHasElement", 15, has_element),
    op("ConstantOfShape", 9, constant_of_shape),
    op("Reshape", 5, reshape),
    op("Transpose", 1, transpose),
    op("Squeeze", 1, squeeze),
    op("Unsqueeze", 1, unsqueeze),
    op("Flatten", 1, flatten),
    op("Concat", 4, concat),
    op("Split", 2, split),
    op("Expand", 8, expand),
    op("Tile", 6, tile),
    op("DepthToSpace", 1, depth_to_space),
    op("SpaceToDepth", 1, space_to_depth),
    op("Shape", 1, shape_of),
    op("Size", 1, size_of),
    op("Range", 11, range),
    op("EyeLike", 9, eye_like),
    op("Trilu", 14, trilu),
];

/// Axes that data may add.
const MOST_AXES: usize = 64;

fn identity(cx: &mut NodeCx<'_, '_>) -> Out {
    Ok(vec![cx.input(0)?])
}

/// In inference the operand itself; the mask is all true.
/// The content of a `Constant` node.
pub(crate) fn constant_tensor(cx: &NodeCx<'_, '_>) -> Result<Tensor, Failure> {
    match cx.attr("value") {
        Some(Attr::Tensor(t)) => return to_tensor(t).map_err(Failure::refused),
        Some(a) => return Err(Failure::refused(format!("attribute `value` must be a tensor, got {}", a.kind()))),
        None => {}
    }
    if let Some(x) = cx.opt_float("value_float")? {
        return Ok(Tensor::scalar(x as f32));
    }
    if let Some(i) = cx.opt_int("value_int")? {
        return Ok(Tensor::scalar(i));
    }
    if let Some(v) = cx.opt_floats("value_floats")? {
        let v: Vec<f32> = v.iter().map(|&x| x as f32).collect();
        return Ok(Tensor::from_slice(&[v.len()], &v)?);
    }
    if let Some(v) = cx.opt_ints("value_ints")? {
        return Ok(Tensor::from_slice(&[v.len()], &v)?);
    }
    if let Some(v) = cx.opt_strings("value_strings")? {
        return Ok(Tensor::from_strings(&[v.len()], v)?);
    }
    match (cx.attr("value_string"), cx.attr("sparse_value")) {
        (Some(Attr::String(s)), _) => Ok(Tensor::from_strings(&[], vec![s.clone()])?),
        (_, Some(Attr::SparseTensor(t))) => to_dense(t).map_err(Failure::refused),
        _ => Err(Failure::refused("the constant has no value")),
    }
}

fn constant_of_shape(cx: &mut NodeCx<'_, '_>) -> Out {
    let dims = cx.sizes_at(0, "the shape")?;
    let value = match cx.attr("value") {
        None => Tensor::scalar(0f32),
        Some(Attr::Tensor(t)) => to_tensor(t).map_err(Failure::refused)?,
        Some(a) => return Err(Failure::refused(format!("attribute `value` must be a tensor, got {}", a.kind()))),
    };
    let value = value.reshaped(&[])?;
    let v = cx.b().constant(value)?;
    Ok(vec![cx.b().broadcast_to(v, dims)?])
}

fn reshape(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let allow_zero = cx.flag("allowzero", false)?;
    let from = cx.shape(x)?.into_dims();
    let mut to = match cx.known_sizes_at(1, "the shape")? {
        Some(known) => known,
        None => {
            let shape = cx.input(1)?;
            let resolved = resolve_shape(cx, shape, &from, allow_zero)?;
            // A size that is known to be one stays what it is.
            let mut parts = cx.parts(shape);
            parts.iter_mut().for_each(|d| *d = d.take().filter(|d| d.as_const().is_none_or(|c| c > 0)));
            cx.sizes_beside(resolved, &parts, "the shape")?
        }
    };
    let is = |d: &Dim, c: i64| d.as_const() == Some(c);
    if let Some(d) = to.iter().find(|d| d.as_const().is_some_and(|c| c < -1)) {
        return Err(Failure::refused(format!("size {d} in the shape must be −1 or more")));
    }
    if to.iter().filter(|d| is(d, -1)).count() > 1 {
        return Err(Failure::refused("the shape has more than one −1"));
    }
    if allow_zero && to.iter().any(|d| is(d, -1)) && to.iter().any(|d| is(d, 0)) {
        return Err(Failure::refused("with `allowzero`, the shape must not hold both 0 and −1"));
    }
    // Sizes that are taken over cancel out of the inferred one, also where they are 0.
    let (mut rest, mut known) = (Vec::new(), Vec::new());
    let n = to.len();
    for (i, d) in to.iter_mut().enumerate() {
        let copied = from.get(i);
        if !allow_zero && is(d, 0) {
            *d = copied
                .cloned()
                .ok_or_else(|| Failure::refused(format!("the shape copies axis {i}, which the operand has not")))?;
        } else {
            if !is(d, -1) {
                known.push(d.clone());
            }
            rest.extend(copied.cloned());
        }
    }
    rest.extend(from.iter().skip(n).cloned());
    if let Some(d) = to.iter_mut().find(|d| is(d, -1)) {
        // Equal sizes on both sides cancel exactly, whatever their value is.
        known.retain(|k| match rest.iter().position(|r| r == k) {
            Some(at) if k.as_const().is_none() => {
                rest.swap_remove(at);
                false
            }
            _ => true,
        });
        let known = product(&known);
        if known.as_const() == Some(0) {
            return Err(Failure::refused("the size for −1 cannot be told beside a size of 0"));
        }
        *d = product(&rest).floor_div(known);
    }
    if to == from {
        return Ok(vec![x]);
    }
    Ok(vec![cx.b().reshape(x, to)?])
}

/// A shape that only the run tells, with its zeros and its −1 resolved by arithmetic.
fn resolve_shape(cx: &mut NodeCx<'_, '_>, shape: ValueId, from: &[Dim], allow_zero: bool) -> Result<ValueId, Failure> {
    let n = cx.length(shape, "the shape")?;
    let mut s = cx.b().convert(shape, DType::I64)?;
    let zero = cx.scalar_like(s, 0.0)?;
    let (one, minus) = (cx.scalar_like(s, 1.0)?, cx.scalar_like(s, -1.0)?);
    if !allow_zero {
        let mut copied: Vec<Dim> = from.to_vec();
        copied.resize(n, Dim::ZERO);
        let copied = cx.b().from_dims(copied)?;
        let is_zero = cx.b().eq(s, zero)?;
        s = cx.b().select(is_zero, copied, s)?;
    }
    let total = cx.b().from_dim(product(from))?;
    let b = cx.b();
    let open = b.eq(s, minus)?;
    let known = b.select(open, one, s)?;
    let known = b.reduce(known, ReduceKind::Prod, &[0], false)?;
    let inferred = b.div(total, known)?;
    Ok(b.select(open, inferred, s)?)
}

fn transpose(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let rank = cx.rank(x)?;
    let perm = match cx.opt_ints("perm")? {
        None => (0..rank).rev().collect(),
        Some(p) => p.iter().map(|&a| cx.axis(x, a)).collect::<Result<Vec<_>, _>>()?,
    };
    if perm.iter().copied().eq(0..rank) {
        return Ok(vec![x]);
    }
    Ok(vec![cx.b().transpose(x, &perm)?])
}

/// Axes from the attribute, or from operand 1 since operator set 13.
fn axes_of(cx: &mut NodeCx<'_, '_>) -> Result<Option<Axes>, Failure> {
    if cx.version < 13 { Ok(cx.opt_ints("axes")?.map(Axes::Known)) } else { cx.axes_at(1, "the axes") }
}

fn squeeze(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    match axes_of(cx)? {
        Some(Axes::Known(axes)) => return Ok(vec![cx.b().squeeze(x, &axes)?]),
        Some(Axes::Data(axes)) => {
            let rank = cx.rank(x)?;
            return Ok(vec![Named::of(cx, axes, rank)?.squeeze(cx, x)?]);
        }
        None => {}
    }
    if let Some(d) = cx.shape(x)?.iter().find(|d| !d.is_const()) {
        return Err(Failure::refused(format!("without axes, it must be known whether the size {d} is 1")));
    }
    Ok(vec![cx.b().squeeze_all(x)?])
}

fn unsqueeze(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    match axes_of(cx)?.ok_or_else(|| Failure::refused("the axes are missing"))? {
        Axes::Known(axes) => Ok(vec![cx.b().expand_dims(x, &axes)?]),
        Axes::Data(axes) => Ok(vec![unsqueezed(cx, x, axes)?]),
    }
}

/// The operand with axes of one element where data say.
pub(super) fn unsqueezed(cx: &mut NodeCx<'_, '_>, x: ValueId, axes: ValueId) -> Result<ValueId, Failure> {
    let n = cx.length(axes, "the axes")?;
    let rank = cx.rank(x)?;
    if n > MOST_AXES {
        return Err(Failure::refused(format!("{n} axes are added; at most {MOST_AXES} are")));
    }
    Named::of(cx, axes, rank + n)?.unsqueeze(cx, x)
}

fn flatten(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let axis = cx.int("axis", 1)?;
    Ok(vec![cx.b().flatten(x, axis)?])
}

fn concat(cx: &mut NodeCx<'_, '_>) -> Out {
    let xs = cx.inputs_from(0)?;
    let axis = cx.need_int_attr("axis")?;
    Ok(vec![cx.b().concat(&xs, axis)?])
}

fn split(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let axis = cx.int("axis", 0)?;
    let parts = if cx.version < 13 {
        cx.opt_ints("split")?.map(|v| v.into_iter().map(Dim::from).collect())
    } else if cx.has(1) {
        Some(cx.sizes_at(1, "the sizes of the parts")?)
    } else {
        None
    };
    let n = cx.opt_int("num_outputs")?.unwrap_or(cx.node.outputs.len() as i64);
    if let Some(parts) = parts {
        return Ok(cx.b().split(x, axis, &parts)?);
    }
    let parts = usize::try_from(n).ok().filter(|&n| n <= cx.node.outputs.len());
    let parts = parts.ok_or_else(|| Failure::refused(format!("{} outputs for {n} parts", cx.node.outputs.len())))?;
    if cx.version < 18 {
        // Before, the parts had to be equal.
        let at = cx.axis(x, axis)?;
        let size = cx.shape(x)?.get(at).cloned().unwrap_or(Dim::ONE);
        cx.require(Constraint::Divisible(size, Dim::from(n)), "equal parts")?;
    }
    Ok(cx.b().split_even(x, axis, parts)?)
}

fn expand(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let to = cx.sizes_at(1, "the shape")?;
    Ok(vec![cx.b().expand(x, to)?])
}

fn tile(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let repeats = cx.sizes_at(1, "the repeats")?;
    Ok(vec![cx.b().tile(x, &repeats)?])
}

fn depth_to_space(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let block = cx.need_int_attr("blocksize")?;
    let columns_first = cx.word("mode", "DCR", &[("DCR", false), ("CRD", true)])?;
    Ok(vec![cx.b().depth_to_space(x, block, columns_first)?])
}

fn space_to_depth(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let block = cx.need_int_attr("blocksize")?;
    let columns_first = cx.word("mode", "DCR", &[("DCR", false), ("CRD", true)])?;
    let y = cx.b().space_to_depth(x, block)?;
    if !columns_first {
        return Ok(vec![y]);
    }
    // Channels come as [block, block, c]; here c is to be the slowest.
    let (from, to) = (cx.shape(x)?, cx.shape(y)?);
    let apart = [to[0].clone(), Dim::from(block), Dim::from(block), from[1].clone(), to[2].clone(), to[3].clone()];
    let b = cx.b();
    let y = b.reshape(y, apart)?;
    let y = b.transpose(y, &[0, 3, 1, 2, 4, 5])?;
    Ok(vec![b.reshape(y, to.into_dims())?])
}

fn shape_of(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let shape = cx.shape(x)?;
    let rank = shape.rank() as i64;
    let at = |a: i64| (if a < 0 { a.saturating_add(rank) } else { a }).clamp(0, rank) as usize;
    let start = at(cx.int("start", 0)?);
    let end = at(cx.int("end", i64::MAX)?);
    let dims = shape.get(start..end.max(start)).unwrap_or(&[]).to_vec();
    Ok(vec![cx.b().from_dims(dims)?])
}

fn size_of(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let n = cx.shape(x)?.numel();
    Ok(vec![cx.b().from_dim(n)?])
}

fn range(cx: &mut NodeCx<'_, '_>) -> Out {
    let v = [cx.input(0)?, cx.input(1)?, cx.input(2)?];
    range_of(cx, v)
}

/// Numbers from a start to a limit in steps.
pub(super) fn range_of(cx: &mut NodeCx<'_, '_>, mut v: [ValueId; 3]) -> Out {
    for x in &mut v {
        *x = scalar(cx.b(), *x)?;
    }
    let [start, limit, delta] = v;
    if let (Some(s), Some(l), Some(d)) = (one(cx, start), one(cx, limit), one(cx, delta))
        && let Some(d) = d.as_const()
        && cx.dtype(start)? == DType::I64
    {
        return Ok(vec![cx.b().range_dims(s, l, d)?]);
    }
    let n = range_len(cx, start, limit, delta)?;
    Ok(vec![cx.b().range(start, n, delta)?])
}

fn one(cx: &mut NodeCx<'_, '_>, v: ValueId) -> Option<Dim> {
    cx.elems(v).and_then(|e| e.first().cloned())
}

fn range_len(cx: &mut NodeCx<'_, '_>, start: ValueId, limit: ValueId, delta: ValueId) -> Result<Dim, Failure> {
    let dtype = cx.dtype(start)?;
    // The quotient in f64 is exact for sizes of tensors that fit any memory.
    let wide = if dtype == DType::F64 || dtype.is_int() { DType::F64 } else { DType::F32 };
    let b = cx.b();
    let (s, l, d) = (b.convert(start, wide)?, b.convert(limit, wide)?, b.convert(delta, wide)?);
    let span = b.sub(l, s)?;
    let n = b.div(span, d)?;
    let n = b.ceil(n)?;
    let n = b.convert(n, DType::I64)?;
    let zero = cx.scalar_like(n, 0.0)?;
    let n = cx.b().maximum(n, zero)?;
    if let Some([n]) = cx.known_ints(n).as_deref() {
        return Ok(Dim::from(*n));
    }
    match &cx.sizes(n, "the length of the range")?[..] {
        [n] => Ok(n.clone()),
        _ => Err(Failure::refused("start, limit and delta must be scalars")),
    }
}

fn eye_like(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let dtype = match cx.opt_dtype("dtype")? {
        Some(d) => d,
        None => cx.dtype(x)?,
    };
    let k = cx.int("k", 0)?;
    let shape = cx.shape(x)?;
    let [m, n] = shape.dims() else {
        return Err(Failure::refused(format!("the operand must have two axes, got {shape}")));
    };
    let b = cx.b();
    let row = b.iota(DType::I64, [m.clone(), Dim::ONE], 0)?;
    let column = b.iota(DType::I64, [Dim::ONE, n.clone()], 1)?;
    let k = b.constant(Tensor::scalar(k))?;
    let edge = b.add(row, k)?;
    let on = b.eq(column, edge)?;
    Ok(vec![b.convert(on, dtype)?])
}

pub(super) fn trilu(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let upper = cx.flag("upper", true)?;
    let k = match cx.opt(1)? {
        Some(k) => scalar(cx.b(), k)?,
        None => cx.b().constant(Tensor::scalar(0i64))?,
    };
    Ok(vec![cx.b().trilu(x, k, upper)?])
}

/// Whether an optional holds something: a tensor does, what is left out does not.
fn has_element(cx: &mut NodeCx<'_, '_>) -> Out {
    let there = cx.has(0);
    Ok(vec![cx.b().constant(Tensor::from_bools(&[], &[there])?)?])
}
