//! Reductions of whole axes.

use rlx_ir::ops::reduction::ReduceKind;
use rlx_ir::{Builder, DType, IrError, ValueId};

use super::axes::{Arranged, Axes, Named};
use super::context::{NodeCx, Out};
use super::{OpEntry, op};

pub(super) const OPS: &[OpEntry] = &[
    op("ReduceSum", 1, |cx| reduce(cx, 13, |b, x, axes, keep| b.reduce(x, ReduceKind::Sum, axes, keep))),
    op("ReduceProd", 1, |cx| reduce(cx, 18, |b, x, axes, keep| b.reduce(x, ReduceKind::Prod, axes, keep))),
    op("ReduceMax", 1, |cx| {
        reduce(cx, 18, |b, x, axes, keep| extreme(b, x, axes, keep, ReduceKind::Max, ReduceKind::Any))
    }),
    op("ReduceMin", 1, |cx| {
        reduce(cx, 18, |b, x, axes, keep| extreme(b, x, axes, keep, ReduceKind::Min, ReduceKind::All))
    }),
    op("ReduceMean", 1, |cx| reduce(cx, 18, |b, x, axes, keep| b.reduce_mean(x, axes, keep))),
    op("ReduceL1", 1, |cx| reduce(cx, 18, |b, x, axes, keep| b.reduce_l1(x, axes, keep))),
    op("ReduceL2", 1, |cx| reduce(cx, 18, |b, x, axes, keep| b.reduce_l2(x, axes, keep))),
    op("ReduceLogSum", 1, |cx| reduce(cx, 18, |b, x, axes, keep| b.reduce_log_sum(x, axes, keep))),
    op("ReduceLogSumExp", 1, |cx| reduce(cx, 18, |b, x, axes, keep| b.reduce_log_sum_exp(x, axes, keep))),
    op("ReduceSumSquare", 1, |cx| reduce(cx, 18, |b, x, axes, keep| b.reduce_sum_square(x, axes, keep))),
];

/// Reduces over axes of the attribute, or of operand 1 since `since`; without axes over all, or over none if the node says so.
fn reduce(
    cx: &mut NodeCx<'_, '_>,
    since: i64,
    f: fn(&mut Builder, ValueId, &[i64], bool) -> Result<ValueId, IrError>,
) -> Out {
    let x = cx.input(0)?;
    let keep = cx.flag("keepdims", true)?;
    let rank = cx.rank(x)? as i64;
    let (axes, none) = if cx.version < since {
        (cx.opt_ints("axes")?.map(Axes::Known), false)
    } else {
        (cx.axes_at(1, "the axes")?, cx.flag("noop_with_empty_axes", false)?)
    };
    let axes = match axes {
        None => Vec::new(),
        Some(Axes::Known(axes)) => axes,
        Some(Axes::Data(axes)) => {
            let mut named = Named::of(cx, axes, rank as usize)?;
            if !none {
                named = named.or_all(cx)?;
            }
            let shape = cx.shape(x)?.into_dims();
            let apart = Arranged::of(cx, &named, &shape, !keep)?;
            let rows = apart.matrix(cx, x, &[])?;
            let y = f(cx.b(), rows, &[1], false)?;
            return Ok(vec![cx.b().reshape(y, apart.rest)?]);
        }
    };
    if axes.is_empty() && none {
        // The functions before and after the sum still apply: an axis of size 1 is added, reduced and dropped.
        let wide = cx.b().expand_dims(x, &[0])?;
        return Ok(vec![f(cx.b(), wide, &[0], false)?]);
    }
    let axes = if axes.is_empty() { (0..rank).collect() } else { axes };
    if axes.is_empty() {
        let wide = cx.b().expand_dims(x, &[0])?;
        return Ok(vec![f(cx.b(), wide, &[0], false)?]);
    }
    Ok(vec![f(cx.b(), x, &axes, keep)?])
}

/// Of booleans, the largest is "any" and the smallest "all".
fn extreme(
    b: &mut Builder,
    x: ValueId,
    axes: &[i64],
    keep: bool,
    number: ReduceKind,
    truth: ReduceKind,
) -> Result<ValueId, IrError> {
    let kind = if b.dtype(x)? == DType::Bool { truth } else { number };
    b.reduce(x, kind, axes, keep)
}
