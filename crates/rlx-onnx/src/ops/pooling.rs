//! Pooling.

use rlx_ir::ops::indexing::Combiner;
use rlx_ir::ops::reduction::{MaxPoolIndices, ReduceKind, ReduceWindow, WindowKind};
use rlx_ir::ops::shape::PadMode;
use rlx_ir::{Dim, ValueId};

use super::context::{Failure, NodeCx, Out};
use super::convolution::{Window, per_axis, window};
use super::sizes::product;
use super::{OpEntry, op};

pub(super) const OPS: &[OpEntry] = &[
    op("MaxPool", 1, max_pool),
    op("AveragePool", 1, average_pool),
    op("LpPool", 2, lp_pool),
    op("MaxUnpool", 9, max_unpool),
    op("GlobalMaxPool", 1, |cx| global(cx, |cx, x, axes| Ok(cx.b().reduce(x, ReduceKind::Max, axes, true)?))),
    op("GlobalAveragePool", 1, |cx| global(cx, |cx, x, axes| Ok(cx.b().reduce_mean(x, axes, true)?))),
    op("GlobalLpPool", 2, |cx| global(cx, global_lp)),
];

struct Pool {
    window: Vec<i64>,
    at: Window,
    ceil: bool,
}

fn pool(cx: &mut NodeCx<'_, '_>, x: ValueId) -> Result<Pool, Failure> {
    let window_size =
        cx.opt_ints("kernel_shape")?.ok_or_else(|| Failure::refused("attribute `kernel_shape` is missing"))?;
    let kernel: Vec<Dim> = window_size.iter().map(|&k| Dim::from(k)).collect();
    let at = window(cx, x, &kernel)?;
    Ok(Pool { window: window_size, at, ceil: cx.flag("ceil_mode", false)? })
}

fn reduce_window(
    cx: &mut NodeCx<'_, '_>,
    x: ValueId,
    p: Pool,
    kind: WindowKind,
    count_include_pad: bool,
) -> Result<ValueId, Failure> {
    let op = ReduceWindow {
        kind,
        window: p.window,
        strides: p.at.strides,
        dilations: p.at.dilations,
        pad_low: p.at.low,
        pad_high: p.at.high,
        count_include_pad,
        ceil: p.ceil,
    };
    Ok(cx.b().reduce_window(x, op)?)
}

/// The largest elements of a value in the windows that the node names.
pub(super) fn max_of(cx: &mut NodeCx<'_, '_>, x: ValueId) -> Result<ValueId, Failure> {
    let p = pool(cx, x)?;
    reduce_window(cx, x, p, WindowKind::Max, false)
}

fn max_pool(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let p = pool(cx, x)?;
    let column_major = cx.flag("storage_order", false)?;
    if !cx.wants(1) {
        return Ok(vec![reduce_window(cx, x, p, WindowKind::Max, false)?]);
    }
    let op = MaxPoolIndices {
        window: p.window,
        strides: p.at.strides,
        dilations: p.at.dilations,
        pad_low: p.at.low,
        pad_high: p.at.high,
        ceil: p.ceil,
        column_major,
    };
    let (values, indices) = cx.b().max_pool_with_indices(x, op)?;
    Ok(vec![values, indices])
}

fn average_pool(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    Ok(vec![average_of(cx, x)?])
}

/// The averages of a value in the windows that the node names.
pub(super) fn average_of(cx: &mut NodeCx<'_, '_>, x: ValueId) -> Result<ValueId, Failure> {
    let p = pool(cx, x)?;
    let include = cx.flag("count_include_pad", false)?;
    reduce_window(cx, x, p, WindowKind::Mean, include)
}

/// `|x|ᵖ`, whose sum's p-th root is the norm.
fn powered(cx: &mut NodeCx<'_, '_>, x: ValueId, p: i64) -> Result<ValueId, Failure> {
    let a = cx.b().abs(x)?;
    let p = cx.scalar_like(x, p as f64)?;
    Ok(cx.b().pow(a, p)?)
}

fn root(cx: &mut NodeCx<'_, '_>, x: ValueId, p: i64) -> Result<ValueId, Failure> {
    let p = cx.scalar_like(x, 1.0 / p as f64)?;
    Ok(cx.b().pow(x, p)?)
}

fn order(cx: &NodeCx<'_, '_>) -> Result<i64, Failure> {
    let p = cx.int("p", 2)?;
    if p < 1 { Err(Failure::refused(format!("attribute `p` must be ≥ 1, got {p}"))) } else { Ok(p) }
}

fn lp_pool(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let p = order(cx)?;
    let at = pool(cx, x)?;
    let y = powered(cx, x, p)?;
    let sum = reduce_window(cx, y, at, WindowKind::Sum, false)?;
    Ok(vec![root(cx, sum, p)?])
}

fn global(cx: &mut NodeCx<'_, '_>, f: fn(&mut NodeCx<'_, '_>, ValueId, &[i64]) -> Result<ValueId, Failure>) -> Out {
    let x = cx.input(0)?;
    let axes: Vec<i64> = (2..cx.rank(x)? as i64).collect();
    Ok(vec![f(cx, x, &axes)?])
}

fn global_lp(cx: &mut NodeCx<'_, '_>, x: ValueId, axes: &[i64]) -> Result<ValueId, Failure> {
    let p = order(cx)?;
    let y = powered(cx, x, p)?;
    let sum = cx.b().reduce(y, ReduceKind::Sum, axes, true)?;
    root(cx, sum, p)
}

/// Each element goes where its index says in a larger tensor of zeros: the inverse of `MaxPool` with indices.
fn max_unpool(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, indices) = (cx.input(0)?, cx.input(1)?);
    let shape = cx.shape(x)?;
    let kernel = cx.opt_ints("kernel_shape")?.ok_or_else(|| Failure::refused("attribute `kernel_shape` is missing"))?;
    let n = kernel.len();
    let (strides, pads) = (per_axis(cx, "strides", n, 1)?, per_axis(cx, "pads", 2 * n, 0)?);
    if shape.rank() != n + 2 {
        return Err(Failure::refused(format!("a kernel of {n} axes does not fit {shape}")));
    }
    // Indices count over the tensor that was pooled, also where a larger result is asked for.
    let mut pooled = shape.dims()[..2].to_vec();
    for i in 0..n {
        pooled.push((&shape[i + 2] - 1) * strides[i] + kernel[i] - pads[i] - pads[i + n]);
    }
    let dtype = cx.dtype(x)?;
    let count = shape.numel();
    let zero = cx.b().scalar(dtype, 0.0)?;
    let b = cx.b();
    let flat = b.broadcast_to(zero, [product(&pooled)])?;
    let (at, values) = (b.reshape(indices, [count.clone()])?, b.reshape(x, [count])?);
    let filled = b.scatter_elements(flat, at, values, 0, Combiner::Set)?;
    let y = b.reshape(filled, pooled.clone())?;
    if !cx.has(2) {
        return Ok(vec![y]);
    }
    let to = cx.sizes_at(2, "the output shape")?;
    if to.len() != pooled.len() {
        return Err(Failure::refused(format!("an output shape of {} axes for {shape}", to.len())));
    }
    let low = vec![Dim::ZERO; to.len()];
    let high = to.iter().zip(&pooled).map(|(t, p)| t - p).collect();
    Ok(vec![cx.b().pad(y, None, low, high, PadMode::Constant)?])
}
