//! Quantisation, made of elementwise ops: divided or multiplied by scales, shifted by zero points, rounded to even.

use rlx_ir::ops::reduction::ReduceKind;
use rlx_ir::{DType, Dim, ValueId};

use super::context::{Failure, NodeCx, Out};
use super::convolution::{kernel_of, window};
use super::elementwise::convert;
use super::{OpEntry, op};

pub(super) const OPS: &[OpEntry] = &[
    op("QuantizeLinear", 10, quantize),
    op("DequantizeLinear", 10, dequantize),
    op("DynamicQuantizeLinear", 11, dynamic_quantize),
    op("QLinearMatMul", 10, quantized_matmul),
    op("QLinearConv", 10, quantized_conv),
];

/// A scale or zero point in the shape that broadcasts with the operand: one element, one along an axis, or one for each block along it.
fn spread(cx: &mut NodeCx<'_, '_>, v: ValueId, x: ValueId, axis: i64, block: i64) -> Result<ValueId, Failure> {
    let (vs, xs) = (cx.shape(v)?, cx.shape(x)?);
    if vs.rank() == 0 {
        return Ok(v);
    }
    if vs.rank() == 1 && block == 0 {
        if vs.numel() == Dim::ONE {
            return crate::import::scalar(cx.b(), v);
        }
        let axis = cx.axis(x, axis)?;
        return cx.along(v, axis, xs.rank());
    }
    if vs == xs {
        return Ok(v);
    }
    if block < 1 {
        return Err(Failure::refused(format!("scales {vs} for an operand {xs} need attribute `block_size`")));
    }
    let axis = cx.axis(x, axis)?;
    if vs.rank() != xs.rank() {
        return Err(Failure::refused(format!("scales {vs} do not have the axes of the operand {xs}")));
    }
    // Each scale is repeated for its block; the last block may be cut off.
    let mut dims = vs.dims().to_vec();
    let wide = cx.b().expand_dims(v, &[axis as i64 + 1])?;
    dims.insert(axis + 1, Dim::from(block));
    let wide = cx.b().broadcast_to(wide, dims)?;
    let mut whole = vs.dims().to_vec();
    whole[axis] = &vs[axis] * block;
    let wide = cx.b().reshape(wide, whole)?;
    cx.range_of(wide, axis, Dim::ZERO, xs[axis].clone(), 1)
}

/// Rounds to the integers of `to` within its range, or converts to a small float.
pub(super) fn round_to(
    cx: &mut NodeCx<'_, '_>,
    x: ValueId,
    to: DType,
    zero: Option<ValueId>,
    saturate: bool,
) -> Result<ValueId, Failure> {
    let Some((lo, hi)) = to.int_range() else {
        return convert(cx, x, to, saturate);
    };
    let dtype = cx.dtype(x)?;
    let mut y = cx.b().round_even(x)?;
    if let Some(z) = zero {
        let z = cx.b().convert(z, dtype)?;
        y = cx.b().add(y, z)?;
    }
    let (lo, hi) = (cx.scalar_like(y, lo as f64)?, cx.scalar_like(y, hi as f64)?);
    let y = cx.b().clamp(y, lo, hi)?;
    convert(cx, y, to, true)
}

pub(super) fn quantize(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, scale, zero) = (cx.input(0)?, cx.input(1)?, cx.opt(2)?);
    let (axis, block) = (cx.int("axis", 1)?, cx.int("block_size", 0)?);
    let saturate = cx.flag("saturate", true)?;
    let said = cx.opt_dtype_unless_zero("output_dtype")?;
    let precision = cx.opt_dtype_unless_zero("precision")?;
    let to = match (zero, said) {
        (Some(z), _) => cx.dtype(z)?,
        (None, Some(d)) => d,
        (None, None) => DType::U8,
    };
    let scale = spread(cx, scale, x, axis, block)?;
    let zero = zero.map(|z| spread(cx, z, x, axis, block)).transpose()?;
    // The quotient is taken in f32 or wider: 16-bit floats would round it before it is rounded to an integer.
    let (dx, ds) = (cx.dtype(x)?, cx.dtype(scale)?);
    let wide = precision.unwrap_or(if dx == DType::F64 || ds == DType::F64 { DType::F64 } else { DType::F32 });
    let b = cx.b();
    let (xw, sw) = (b.convert(x, wide)?, b.convert(scale, wide)?);
    let y = b.div(xw, sw)?;
    Ok(vec![round_to(cx, y, to, zero, saturate)?])
}

pub(super) fn dequantize(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, scale, zero) = (cx.input(0)?, cx.input(1)?, cx.opt(2)?);
    let (axis, block) = (cx.int("axis", 1)?, cx.int("block_size", 0)?);
    let said = cx.opt_dtype_unless_zero("output_dtype")?;
    let to = match said {
        Some(d) => d,
        None => cx.dtype(scale)?,
    };
    Ok(vec![made_real(cx, x, (scale, zero), (axis, block), to)?])
}

/// Integers less their zero points times their scales, which may differ along an axis or by blocks of it.
pub(super) fn made_real(
    cx: &mut NodeCx<'_, '_>,
    x: ValueId,
    (scale, zero): (ValueId, Option<ValueId>),
    (axis, block): (i64, i64),
    to: DType,
) -> Result<ValueId, Failure> {
    let scale = spread(cx, scale, x, axis, block)?;
    let zero = zero.map(|z| spread(cx, z, x, axis, block)).transpose()?;
    let integer = cx.dtype(x)?.is_int();
    // Differences of integers are exact in i32; small floats are exact in f32.
    let wide = if to == DType::F64 { DType::F64 } else { DType::F32 };
    let mut y = x;
    if integer {
        y = cx.b().convert(y, DType::I32)?;
        if let Some(z) = zero {
            let z = cx.b().convert(z, DType::I32)?;
            y = cx.b().sub(y, z)?;
        }
    }
    let b = cx.b();
    let (y, s) = (b.convert(y, wide)?, b.convert(scale, wide)?);
    let y = b.mul(y, s)?;
    Ok(b.convert(y, to)?)
}

/// Scale and zero point follow from the operand's own range, which is widened to hold 0.
fn dynamic_quantize(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    Ok(dynamic(cx, x)?.to_vec())
}

/// An operand as u8, with its scale and its zero point.
pub(super) fn dynamic(cx: &mut NodeCx<'_, '_>, x: ValueId) -> Result<[ValueId; 3], Failure> {
    let rank = cx.rank(x)? as i64;
    let axes: Vec<i64> = (0..rank).collect();
    let (zero, top) = (cx.scalar_like(x, 0.0)?, cx.scalar_like(x, 255.0)?);
    let b = cx.b();
    let lo = b.reduce(x, ReduceKind::Min, &axes, false)?;
    let hi = b.reduce(x, ReduceKind::Max, &axes, false)?;
    let (lo, hi) = (b.minimum(lo, zero)?, b.maximum(hi, zero)?);
    let span = b.sub(hi, lo)?;
    let scale = b.div(span, top)?;
    let shift = b.div(lo, scale)?;
    let shift = b.neg(shift)?;
    let shift = b.clamp(shift, zero, top)?;
    let shift = b.round_even(shift)?;
    let point = b.convert(shift, DType::U8)?;
    let y = b.div(x, scale)?;
    let y = round_to(cx, y, DType::U8, Some(point), true)?;
    Ok([y, scale, point])
}

/// `quantize(dequantize(a) @ dequantize(b))`, the product being exact in integers.
fn quantized_matmul(cx: &mut NodeCx<'_, '_>) -> Out {
    let mut sides = Vec::new();
    for (i, rows) in [(0, true), (3, false)] {
        let (x, scale, zero) = (cx.input(i)?, cx.input(i + 1)?, cx.input(i + 2)?);
        let mut fit = |v: ValueId| -> Result<ValueId, Failure> {
            if cx.shape(v)?.numel() == Dim::ONE {
                crate::import::scalar(cx.b(), v)
            } else if rows && cx.rank(v)? == 1 {
                Ok(cx.b().expand_dims(v, &[1])?)
            } else {
                Ok(v)
            }
        };
        let (scale, zero) = (fit(scale)?, fit(zero)?);
        let b = cx.b();
        let (x, zero) = (b.convert(x, DType::I32)?, b.convert(zero, DType::I32)?);
        sides.push((b.sub(x, zero)?, b.convert(scale, DType::F32)?));
    }
    let (scale, zero) = (cx.input(6)?, cx.input(7)?);
    let to = cx.dtype(zero)?;
    let [(a, sa), (c, sc)] = sides[..] else { return Err(Failure::refused("takes two matrices")) };
    let b = cx.b();
    let y = b.matmul(a, c)?;
    let y = b.convert(y, DType::F32)?;
    let k = b.mul(sa, sc)?;
    let scale = b.convert(scale, DType::F32)?;
    let k = b.div(k, scale)?;
    let y = b.mul(y, k)?;
    Ok(vec![round_to(cx, y, to, Some(zero), true)?])
}

/// A convolution of quantised operands, exact in integers, and quantised again. Kernel scales may differ by output channel.
fn quantized_conv(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    Ok(vec![quantized_conv_of(cx, x)?])
}

/// [`quantized_conv`] of a value in the place of operand 0.
pub(super) fn quantized_conv_of(cx: &mut NodeCx<'_, '_>, x: ValueId) -> Result<ValueId, Failure> {
    let (x_scale, x_zero) = (cx.input(1)?, cx.input(2)?);
    let (w, w_scale, w_zero) = (cx.input(3)?, cx.input(4)?, cx.input(5)?);
    let (y_scale, y_zero, bias) = (cx.input(6)?, cx.input(7)?, cx.opt(8)?);
    let to = cx.dtype(y_zero)?;
    let rank = cx.rank(x)?;
    let kernel = kernel_of(cx, w)?;
    let win = window(cx, x, &kernel)?;
    let groups = cx.int("group", 1)?;
    // One element, or one along an axis.
    let fit = |cx: &mut NodeCx<'_, '_>, v: ValueId, axis: usize, to: DType| -> Result<ValueId, Failure> {
        let v = cx.b().convert(v, to)?;
        if cx.shape(v)?.numel() == Dim::ONE { crate::import::scalar(cx.b(), v) } else { cx.along(v, axis, rank) }
    };
    let (x_zero, w_zero) = (fit(cx, x_zero, 0, DType::I32)?, fit(cx, w_zero, 0, DType::I32)?);
    let b = cx.b();
    let (x, w) = (b.convert(x, DType::I32)?, b.convert(w, DType::I32)?);
    let (x, w) = (b.sub(x, x_zero)?, b.sub(w, w_zero)?);
    let mut y = b.conv(x, w, None, &win.strides, &win.dilations, &win.low, &win.high, groups)?;
    if let Some(bias) = bias {
        let bias = cx.along(bias, 1, rank)?;
        y = cx.b().add(y, bias)?;
    }
    let (xs, ws) = (fit(cx, x_scale, 0, DType::F32)?, fit(cx, w_scale, 1, DType::F32)?);
    let ys = fit(cx, y_scale, 0, DType::F32)?;
    let b = cx.b();
    let k = b.mul(xs, ws)?;
    let k = b.div(k, ys)?;
    let y = b.convert(y, DType::F32)?;
    let y = b.mul(y, k)?;
    let zero = crate::import::scalar(cx.b(), y_zero)?;
    round_to(cx, y, to, Some(zero), true)
}
