//! Normalisation and softmax.

use rlx_ir::ops::reduction::{ReduceWindow, WindowKind};
use rlx_ir::{DType, Dim, ValueId};

use super::context::{Failure, NodeCx, Out};
use super::sizes::product;
use super::{OpEntry, ms, op};

pub(super) const OPS: &[OpEntry] = &[
    op("Softmax", 1, |cx| along_axis(cx, |cx, x, axis| Ok(cx.b().softmax(x, axis)?))),
    op("LogSoftmax", 1, |cx| along_axis(cx, |cx, x, axis| Ok(cx.b().log_softmax(x, axis)?))),
    op("BatchNormalization", 1, batch_norm),
    op("InstanceNormalization", 6, instance_norm),
    op("GroupNormalization", 18, group_norm),
    op("LayerNormalization", 17, layer_norm),
    op("RMSNormalization", 23, rms_norm),
    op("LpNormalization", 1, lp_norm),
    op("MeanVarianceNormalization", 9, mean_variance_norm),
    op("LRN", 1, local_response_norm),
    ms("SkipLayerNormalization", skip_layer_norm),
    ms("SkipSimplifiedLayerNormalization", skip_rms_norm),
    // ONNX Runtime writes this one under the standard domain.
    op("SimplifiedLayerNormalization", 1, rms_norm),
];

/// A function along an axis. Before operator set 13 the operand is taken as a matrix of the axes before and from `axis` on, and the
/// function goes along its rows.
pub(super) fn along_axis(
    cx: &mut NodeCx<'_, '_>,
    f: fn(&mut NodeCx<'_, '_>, ValueId, usize) -> Result<ValueId, Failure>,
) -> Out {
    let x = cx.input(0)?;
    let flat = cx.version < 13;
    let axis = cx.int("axis", if flat { 1 } else { -1 })?;
    let axis = cx.axis(x, axis)?;
    let shape = cx.shape(x)?;
    if !flat || axis + 1 == shape.rank() {
        return Ok(vec![f(cx, x, axis)?]);
    }
    let (outer, inner) = shape.dims().split_at(axis);
    let y = cx.b().reshape(x, [product(outer), product(inner)])?;
    let y = f(cx, y, 1)?;
    Ok(vec![cx.b().reshape(y, shape.into_dims())?])
}

fn batch_norm(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, scale, bias, mean, variance) = (cx.input(0)?, cx.input(1)?, cx.input(2)?, cx.input(3)?, cx.input(4)?);
    let eps = cx.float("epsilon", 1e-5)?;
    let momentum = cx.float("momentum", 0.9)?;
    if cx.version < 7 {
        cx.ignore(&["consumed_inputs"]);
        if !cx.flag("is_test", false)? {
            return Err(Failure::unsupported("training before operator set 7"));
        }
    }
    if cx.int("spatial", 1)? == 0 {
        return Err(Failure::unsupported("spatial = 0"));
    }
    if !cx.flag("training_mode", false)? {
        let dtype = cx.dtype(x)?;
        let mut like_x = [scale, bias, mean, variance];
        for v in &mut like_x {
            *v = cx.b().convert(*v, dtype)?;
        }
        let [scale, bias, mean, variance] = like_x;
        return Ok(vec![cx.b().batch_norm(x, scale, bias, mean, variance, eps)?]);
    }
    let axes: Vec<i64> = (0..cx.rank(x)? as i64).filter(|&a| a != 1).collect();
    let batch_mean = cx.b().reduce_mean(x, &axes, false)?;
    let rank = cx.rank(x)?;
    let centre = cx.along(batch_mean, 1, rank)?;
    let d = cx.b().sub(x, centre)?;
    let d2 = cx.b().mul(d, d)?;
    let batch_variance = cx.b().reduce_mean(d2, &axes, false)?;
    let y = cx.b().batch_norm(x, scale, bias, batch_mean, batch_variance, eps)?;
    let mut out = vec![y];
    for (old, new) in [(mean, batch_mean), (variance, batch_variance)] {
        let (k, l) = (cx.scalar_like(old, momentum)?, cx.scalar_like(new, 1.0 - momentum)?);
        let (old, new) = (cx.b().mul(old, k)?, cx.b().mul(new, l)?);
        out.push(cx.b().add(old, new)?);
    }
    Ok(out)
}

fn instance_norm(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, scale, bias) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let eps = cx.float("epsilon", 1e-5)?;
    Ok(vec![cx.b().instance_norm(x, Some(scale), Some(bias), eps)?])
}

fn group_norm(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, mut scale, mut bias) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let groups = cx.need_int_attr("num_groups")?;
    let eps = cx.float("epsilon", 1e-5)?;
    cx.ignore(&["stash_type"]);
    if cx.version < 21 {
        // Scale and bias had one element for each group.
        let channels = cx.shape(x)?.get(1).cloned().unwrap_or(Dim::ONE);
        for v in [&mut scale, &mut bias] {
            let column = cx.b().reshape(*v, [groups, 1])?;
            let each = cx.b().broadcast_to(column, [Dim::from(groups), channels.floor_div(groups)])?;
            *v = cx.b().reshape(each, [channels.clone()])?;
        }
    }
    Ok(vec![cx.b().group_norm(x, Some(scale), Some(bias), groups, eps)?])
}

/// The axes from `axis` on.
fn trailing(cx: &mut NodeCx<'_, '_>, x: ValueId) -> Result<Vec<usize>, Failure> {
    let axis = cx.int("axis", -1)?;
    let axis = cx.axis(x, axis)?;
    Ok((axis..cx.rank(x)?).collect())
}

fn layer_norm(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, scale, bias) = (cx.input(0)?, cx.opt(1)?, cx.opt(2)?);
    let eps = cx.float("epsilon", 1e-5)?;
    cx.ignore(&["stash_type"]);
    let axes = trailing(cx, x)?;
    let mut out = vec![cx.b().layer_norm(x, scale, bias, &axes, eps)?];
    if cx.wants(1) || cx.wants(2) {
        let (mean, inverse) = statistics(cx, x, &axes, eps)?;
        out.extend([mean, inverse]);
    }
    Ok(out)
}

/// Mean and inverse deviation over axes, in `f32` or wider.
fn statistics(cx: &mut NodeCx<'_, '_>, x: ValueId, axes: &[usize], eps: f64) -> Result<(ValueId, ValueId), Failure> {
    let axes: Vec<i64> = axes.iter().map(|&a| a as i64).collect();
    let wide = if cx.dtype(x)? == DType::F64 { DType::F64 } else { DType::F32 };
    let x = cx.b().convert(x, wide)?;
    let eps = cx.scalar_like(x, eps)?;
    let b = cx.b();
    let mean = b.reduce_mean(x, &axes, true)?;
    let d = b.sub(x, mean)?;
    let d2 = b.mul(d, d)?;
    let variance = b.reduce_mean(d2, &axes, true)?;
    let shifted = b.add(variance, eps)?;
    Ok((mean, b.rsqrt(shifted)?))
}

fn rms_norm(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, scale) = (cx.input(0)?, cx.opt(1)?);
    let eps = cx.float("epsilon", 1e-5)?;
    cx.ignore(&["stash_type"]);
    let axes = trailing(cx, x)?;
    Ok(vec![cx.b().rms_norm(x, scale, &axes, eps)?])
}

fn lp_norm(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let axis = cx.int("axis", -1)?;
    let p = cx.int("p", 2)?;
    let norm = match p {
        1 => cx.b().reduce_l1(x, &[axis], true)?,
        2 => cx.b().reduce_l2(x, &[axis], true)?,
        _ => return Err(Failure::refused(format!("attribute `p` must be 1 or 2, got {p}"))),
    };
    // A vector of zeros stays one.
    let (zero, one) = (cx.scalar_like(norm, 0.0)?, cx.scalar_like(norm, 1.0)?);
    let b = cx.b();
    let empty = b.eq(norm, zero)?;
    let divisor = b.select(empty, one, norm)?;
    Ok(vec![b.div(x, divisor)?])
}

fn mean_variance_norm(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let axes = cx.opt_ints("axes")?.unwrap_or_else(|| vec![0, 2, 3]);
    let eps = cx.scalar_like(x, 1e-9)?;
    let b = cx.b();
    let mean = b.reduce_mean(x, &axes, true)?;
    let d = b.sub(x, mean)?;
    let d2 = b.mul(d, d)?;
    let variance = b.reduce_mean(d2, &axes, true)?;
    let deviation = b.sqrt(variance)?;
    let divisor = b.add(deviation, eps)?;
    Ok(vec![b.div(d, divisor)?])
}

/// `x / (bias + alpha / size · Σ x²)^beta`, the sum over neighbouring channels.
fn local_response_norm(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let size = cx.need_int_attr("size")?;
    let (alpha, beta, bias) = (cx.float("alpha", 1e-4)?, cx.float("beta", 0.75)?, cx.float("bias", 1.0)?);
    let rank = cx.rank(x)?;
    if rank < 2 || size < 1 {
        return Err(Failure::refused(format!("size {size} and an operand of {rank} axes do not fit")));
    }
    let ones = vec![1i64; rank - 1];
    let mut window = ones.clone();
    let (mut low, mut high) = (vec![Dim::ZERO; rank - 1], vec![Dim::ZERO; rank - 1]);
    (window[0], low[0], high[0]) = (size, Dim::from((size - 1) / 2), Dim::from(size / 2));
    let op = ReduceWindow {
        kind: WindowKind::Sum,
        window,
        strides: ones.clone(),
        dilations: ones,
        pad_low: low,
        pad_high: high,
        count_include_pad: false,
        ceil: false,
    };
    let (k, beta, bias) = (cx.scalar_like(x, alpha / size as f64)?, cx.scalar_like(x, beta)?, cx.scalar_like(x, bias)?);
    let b = cx.b();
    let squares = b.mul(x, x)?;
    let sum = b.reduce_window(squares, op)?;
    let scaled = b.mul(sum, k)?;
    let base = b.add(scaled, bias)?;
    let divisor = b.pow(base, beta)?;
    Ok(vec![b.div(x, divisor)?])
}

/// Layer normalisation of a sum: input, skip, gamma, beta, bias. The fourth result is the sum.
fn skip_layer_norm(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, skip, scale, shift) = (cx.input(0)?, cx.input(1)?, cx.input(2)?, cx.opt(3)?);
    let eps = cx.float("epsilon", 1e-12)?;
    let mut sum = cx.b().add(x, skip)?;
    if let Some(bias) = cx.opt(4)? {
        sum = cx.b().add(sum, bias)?;
    }
    let last = cx.rank(sum)?.saturating_sub(1);
    let y = cx.b().layer_norm(sum, Some(scale), shift, &[last], eps)?;
    // Results that nobody wants are stood in for by any value.
    let (mean, inverse) = if cx.wants(1) || cx.wants(2) { statistics(cx, sum, &[last], eps)? } else { (sum, sum) };
    Ok(vec![y, mean, inverse, sum])
}

/// RMS normalisation of a sum: input, skip, gamma, bias. The fourth result is the sum.
fn skip_rms_norm(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, skip, scale) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let eps = cx.float("epsilon", 1e-12)?;
    if cx.wants(1) || cx.wants(2) {
        return Err(Failure::unsupported("mean or inverse deviation as a result"));
    }
    let mut sum = cx.b().add(x, skip)?;
    if let Some(bias) = cx.opt(3)? {
        sum = cx.b().add(sum, bias)?;
    }
    let last = cx.rank(sum)?.saturating_sub(1);
    let y = cx.b().rms_norm(sum, Some(scale), &[last], eps)?;
    Ok(vec![y, sum, sum, sum])
}
