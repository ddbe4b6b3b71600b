//! Reading and writing by index; orders and extremes.

use rlx_ir::ops::indexing::Combiner;
use rlx_ir::ops::reduction::{ArgKind, CumKind};
use rlx_ir::{DType, Dim, Tensor};

use super::axes::{Arranged, Axes, Named};
use super::context::{Failure, NodeCx, Out};
use super::{OpEntry, old, op};
use crate::import::scalar;

pub(super) const OPS: &[OpEntry] = &[
    op("Gather", 1, gather),
    op("GatherElements", 11, gather_elements),
    op("GatherND", 11, gather_nd),
    old("Scatter", 9, 10, scatter_elements),
    op("ScatterElements", 11, scatter_elements),
    op("ScatterND", 11, scatter_nd),
    op("TensorScatter", 24, tensor_scatter),
    op("TopK", 1, top_k),
    op("NonZero", 9, non_zero),
    op("Compress", 9, compress),
    op("CumSum", 11, |cx| cumulative(cx, CumKind::Sum)),
    op("CumProd", 26, |cx| cumulative(cx, CumKind::Prod)),
    op("ArgMax", 1, |cx| arg(cx, ArgKind::Max)),
    op("ArgMin", 1, |cx| arg(cx, ArgKind::Min)),
    op("OneHot", 9, one_hot),
    op("Hardmax", 1, hardmax),
    op("ReverseSequence", 10, reverse_sequence),
];

fn gather(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, indices) = (cx.input(0)?, cx.input(1)?);
    let axis = cx.int("axis", 0)?;
    Ok(vec![cx.b().gather(x, indices, axis)?])
}

fn cumulative(cx: &mut NodeCx<'_, '_>, kind: CumKind) -> Out {
    let x = cx.input(0)?;
    let (exclusive, reverse) = (cx.flag("exclusive", false)?, cx.flag("reverse", false)?);
    let axis = cx.axes_at(1, "the axis")?.ok_or_else(|| Failure::refused("the axis is missing"))?;
    let axis = match axis {
        Axes::Data(axis) => {
            let shape = cx.shape(x)?.into_dims();
            let named = Named::one(cx, axis, shape.len())?;
            let apart = Arranged::of(cx, &named, &shape, false)?;
            let rows = apart.matrix(cx, x, &[])?;
            let y = cx.b().cumulative(rows, kind, 1, exclusive, reverse)?;
            return Ok(vec![apart.back(cx, &named, y, Some(&shape))?]);
        }
        Axes::Known(axes) => match axes[..] {
            [axis] => axis,
            _ => return Err(Failure::refused(format!("the axis must be one number, got {}", axes.len()))),
        },
    };
    Ok(vec![cx.b().cumulative(x, kind, axis, exclusive, reverse)?])
}

fn arg(cx: &mut NodeCx<'_, '_>, kind: ArgKind) -> Out {
    let x = cx.input(0)?;
    let axis = cx.int("axis", 0)?;
    let (keep, last) = (cx.flag("keepdims", true)?, cx.flag("select_last_index", false)?);
    Ok(vec![cx.b().arg_reduce(x, kind, axis, keep, last)?])
}

fn one_hot(cx: &mut NodeCx<'_, '_>) -> Out {
    let indices = cx.input(0)?;
    let axis = cx.int("axis", -1)?;
    let depth = match cx.content(1)? {
        // The depth may be a float.
        Some(t) => match t.elements().to_f64().as_deref() {
            Some([d]) => Dim::from(*d as i64),
            _ => return Err(Failure::refused("the depth must be one number")),
        },
        None => {
            let depth = cx.input(1)?;
            let depth = cx.b().convert(depth, DType::I64)?;
            match &cx.sizes(depth, "the depth")?[..] {
                [d] => d.clone(),
                d => return Err(Failure::refused(format!("the depth must be one number, got {}", d.len()))),
            }
        }
    };
    let values = cx.input(2)?;
    let (off, on) =
        (cx.range_of(values, 0, Dim::ZERO, Dim::ONE, 1)?, cx.range_of(values, 0, Dim::ONE, Dim::from(2), 1)?);
    let (off, on) = (scalar(cx.b(), off)?, scalar(cx.b(), on)?);
    Ok(vec![cx.b().one_hot(indices, depth, axis, on, off)?])
}

/// One at the first largest element along the axis, zero elsewhere.
fn hardmax(cx: &mut NodeCx<'_, '_>) -> Out {
    super::normalisation::along_axis(cx, |cx, x, axis| {
        let dtype = cx.dtype(x)?;
        let n = cx.shape(x)?.get(axis).cloned().unwrap_or(Dim::ONE);
        let at = cx.b().arg_reduce(x, ArgKind::Max, axis as i64, true, false)?;
        let rank = cx.rank(x)?;
        let count = cx.b().iota(DType::I64, [n], 0)?;
        let count = cx.along(count, axis, rank)?;
        let hit = cx.b().eq(at, count)?;
        Ok(cx.b().convert(hit, dtype)?)
    })
}

/// The first `length` elements along the time axis in reverse order, for each element of the batch axis: a gather at computed positions.
fn reverse_sequence(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, lengths) = (cx.input(0)?, cx.input(1)?);
    let (batch, time) = (cx.int("batch_axis", 1)?, cx.int("time_axis", 0)?);
    let (batch, time) = (cx.axis(x, batch)?, cx.axis(x, time)?);
    let shape = cx.shape(x)?;
    let rank = shape.rank();
    let steps = shape.get(time).cloned().unwrap_or(Dim::ONE);
    let t = cx.b().iota(DType::I64, [steps], 0)?;
    let t = cx.along(t, time, rank)?;
    let lengths = cx.b().convert(lengths, DType::I64)?;
    let lengths = cx.along(lengths, batch, rank)?;
    let one = cx.b().constant(Tensor::scalar(1i64))?;
    let b = cx.b();
    let inside = b.lt(t, lengths)?;
    let last = b.sub(lengths, one)?;
    let mirrored = b.sub(last, t)?;
    let at = b.select(inside, mirrored, t)?;
    let at = b.broadcast_to(at, shape.into_dims())?;
    Ok(vec![cx.b().gather_elements(x, at, time as i64)?])
}

fn gather_elements(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, indices) = (cx.input(0)?, cx.input(1)?);
    let axis = cx.int("axis", 0)?;
    Ok(vec![cx.b().gather_elements(x, indices, axis)?])
}

pub(super) fn gather_nd(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, indices) = (cx.input(0)?, cx.input(1)?);
    let batch = cx.int("batch_dims", 0)?;
    let batch = usize::try_from(batch).map_err(|_| Failure::refused(format!("attribute `batch_dims` is {batch}")))?;
    Ok(vec![cx.b().gather_nd(x, indices, batch)?])
}

const COMBINERS: &[(&str, Combiner)] = &[
    ("none", Combiner::Set),
    ("add", Combiner::Add),
    ("mul", Combiner::Mul),
    ("min", Combiner::Min),
    ("max", Combiner::Max),
];

fn scatter_elements(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, indices, updates) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let axis = cx.int("axis", 0)?;
    let combiner = cx.word("reduction", "none", COMBINERS)?;
    Ok(vec![cx.b().scatter_elements(x, indices, updates, axis, combiner)?])
}

fn scatter_nd(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, indices, updates) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let combiner = cx.word("reduction", "none", COMBINERS)?;
    Ok(vec![cx.b().scatter_nd(x, indices, updates, combiner)?])
}

/// Writes updates along an axis from a position on, one for each batch: the next tokens of a cache.
fn tensor_scatter(cx: &mut NodeCx<'_, '_>) -> Out {
    let (cache, update) = (cx.input(0)?, cx.input(1)?);
    let axis = cx.int("axis", -2)?;
    let axis = cx.axis(cache, axis)?;
    let circular = cx.word("mode", "linear", &[("linear", false), ("circular", true)])?;
    let (shape, rank) = (cx.shape(update)?, cx.rank(update)?);
    let Some(steps) = shape.get(axis).filter(|_| rank == cx.shape(cache).map_or(0, |s| s.rank())).cloned() else {
        let cache = cx.shape(cache)?;
        return Err(Failure::refused(format!("the update {shape} must have as many axes as the cache {cache}")));
    };
    let at = cx.b().iota(DType::I64, [steps], 0)?;
    let mut at = cx.along(at, axis, rank)?;
    if let Some(start) = cx.opt(2)? {
        let start = cx.b().convert(start, DType::I64)?;
        let start = cx.along(start, 0, rank)?;
        at = cx.b().add(at, start)?;
    }
    if circular {
        let size = cx.shape(cache)?[axis].clone();
        let size = cx.b().from_dim(size)?;
        at = cx.b().rem(at, size)?;
    }
    let at = cx.b().broadcast_to(at, shape.into_dims())?;
    Ok(vec![cx.b().scatter_elements(cache, at, update, axis as i64, Combiner::Set)?])
}

fn top_k(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let axis = cx.int("axis", -1)?;
    let k = if cx.version < 10 { Dim::from(cx.need_int_attr("k")?) } else { cx.size_at(1, "the number of elements")? };
    let (largest, sorted) = (cx.flag("largest", true)?, cx.flag("sorted", true)?);
    let (values, indices) = cx.b().top_k(x, k, axis, largest, sorted)?;
    Ok(vec![values, indices])
}

fn non_zero(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let count = cx.imp.fresh_symbol("count");
    Ok(vec![cx.b().nonzero(x, count)?])
}

/// The slices whose condition is true: a gather at the positions of the true ones.
fn compress(cx: &mut NodeCx<'_, '_>) -> Out {
    let (mut x, condition) = (cx.input(0)?, cx.input(1)?);
    let axis = match cx.opt_int("axis")? {
        Some(axis) => axis,
        None => {
            let n = cx.shape(x)?.numel();
            x = cx.b().reshape(x, [n])?;
            0
        }
    };
    let count = cx.imp.fresh_symbol("count");
    let at = cx.b().nonzero(condition, count)?;
    let at = cx.b().squeeze(at, &[0])?;
    Ok(vec![cx.b().gather(x, at, axis)?])
}
