//! Operators that ONNX Runtime had before the standard, or has with other operands than it.

use rlx_ir::ValueId;

use super::super::axes::Axes;
use super::super::context::{Failure, NodeCx, Out};
use super::super::{OpEntry, indexing, ms, sampling, selection, shape, slicing};

pub(super) const OPS: &[OpEntry] = &[
    ms("ExpandDims", expand_dims),
    ms("GatherND", indexing::gather_nd),
    ms("GridSample", sampling::grid_sample),
    ms("Pad", |cx| slicing::pad_as(cx, PADS_AS_OPERANDS)),
    ms("Range", range),
    ms("Trilu", shape::trilu),
    ms("Unique", unique),
];

/// A version of the standard operator set whose `Pad` has operands for pads and value, and none for axes.
const PADS_AS_OPERANDS: i64 = 11;

fn expand_dims(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    match cx.axes_at(1, "the axis")?.ok_or_else(|| Failure::refused("the axis is missing"))? {
        Axes::Known(axes) => Ok(vec![cx.b().expand_dims(x, &axes)?]),
        Axes::Data(axis) => Ok(vec![shape::unsqueezed(cx, x, axis)?]),
    }
}

fn range(cx: &mut NodeCx<'_, '_>) -> Out {
    let (start, limit) = (cx.input(0)?, cx.input(1)?);
    let delta: ValueId = match cx.opt(2)? {
        Some(d) => d,
        None => cx.scalar_like(start, 1.0)?,
    };
    shape::range_of(cx, [start, limit, delta])
}

fn unique(cx: &mut NodeCx<'_, '_>) -> Out {
    let mut all = selection::unique_of(cx, false, None)?;
    if all.len() > 1 {
        all.remove(1);
    }
    Ok(all)
}
