//! Products and convolutions with what follows them, embeddings with their norm, weights in blocks of few bits.

use rlx_ir::ops::elementwise::{Binary, Unary};
use rlx_ir::ops::reduction::ReduceKind;
use rlx_ir::{DType, Dim, ValueId};

use super::super::context::{Failure, NodeCx, Out};
use super::super::{OpEntry, convolution, linear, ms};

pub(super) const OPS: &[OpEntry] = &[
    ms("FusedMatMul", fused_matmul),
    ms("TransposeMatMul", fused_matmul),
    ms("FusedGemm", |cx| {
        let y = linear::gemm(cx)?;
        activated(cx, y)
    }),
    ms("FusedConv", fused_conv),
    ms("MatMulNBits", matmul_bits),
    ms("EmbedLayerNormalization", embeddings),
];

/// A result under the activation that the node names.
fn activated(cx: &mut NodeCx<'_, '_>, y: Vec<ValueId>) -> Out {
    let name = cx.string("activation", "")?;
    let given = cx.opt_floats("activation_params")?;
    // The fused product names its parameters one by one.
    let (alpha, beta) = (cx.opt_float("activation_alpha")?, cx.opt_float("activation_beta")?);
    let parameter = |i: usize, named: Option<f64>, default: f64| {
        named.or_else(|| given.as_ref().and_then(|g| g.get(i).copied())).unwrap_or(default)
    };
    let x = y.first().copied().ok_or_else(|| Failure::refused("there is no result"))?;
    let y = match name.as_str() {
        "" => x,
        "Relu" => cx.b().op1(Unary::Relu, &[x])?,
        "Tanh" => cx.b().op1(Unary::Tanh, &[x])?,
        "Sigmoid" => cx.b().op1(Unary::Sigmoid, &[x])?,
        "LeakyRelu" => cx.b().leaky_relu(x, parameter(0, alpha, 0.01))?,
        "Clip" => {
            let (lo, hi) = (parameter(0, alpha, f64::NEG_INFINITY), parameter(1, beta, f64::INFINITY));
            let (lo, hi) = (cx.scalar_like(x, lo)?, cx.scalar_like(x, hi)?);
            cx.b().clamp(x, lo, hi)?
        }
        "HardSigmoid" => cx.b().hard_sigmoid(x, parameter(0, alpha, 0.2), parameter(1, beta, 0.5))?,
        other => return Err(Failure::unsupported(format!("activation {}", crate::text::shown(other)))),
    };
    Ok(vec![y])
}

/// `alpha · A B`; operands may have their last two axes swapped, or their first one stand before the last.
fn fused_matmul(cx: &mut NodeCx<'_, '_>) -> Out {
    let (mut a, mut b) = (cx.input(0)?, cx.input(1)?);
    let sides = [("transA", "transBatchA", &mut a), ("transB", "transBatchB", &mut b)];
    for (swap, batch, v) in sides {
        let rank = cx.rank(*v)?;
        if cx.flag(batch, false)? && rank >= 3 {
            let perm: Vec<usize> = (1..rank - 1).chain([0, rank - 1]).collect();
            *v = cx.b().transpose(*v, &perm)?;
        }
        if cx.flag(swap, false)? && rank >= 2 {
            *v = cx.b().swap_axes(*v, -1, -2)?;
        }
    }
    let alpha = cx.float("alpha", 1.0)?;
    let y = cx.b().matmul(a, b)?;
    Ok(vec![if alpha == 1.0 { y } else { cx.times(y, alpha)? }])
}

fn fused_conv(cx: &mut NodeCx<'_, '_>) -> Out {
    let mut y = convolution::conv(cx)?;
    if let (Some(z), Some(first)) = (cx.opt(3)?, y.first_mut()) {
        *first = cx.b().op1(Binary::Add, &[*first, z])?;
    }
    activated(cx, y)
}

/// Numbers of a few bits packed into bytes, low ones first, along the last axis: `8 / bits` times as many.
fn unpacked(cx: &mut NodeCx<'_, '_>, x: ValueId, bits: i64) -> Result<ValueId, Failure> {
    if bits == 8 {
        return Ok(x);
    }
    let mut dims = cx.shape(x)?.into_dims();
    let mask = cx.scalar_like(x, ((1 << bits) - 1) as f64)?;
    let mut parts = Vec::new();
    for shift in (0..8).step_by(bits as usize) {
        let shift = cx.scalar_like(x, f64::from(shift))?;
        let v = cx.b().op1(Binary::ShiftRight, &[x, shift])?;
        parts.push(cx.b().op1(Binary::And, &[v, mask])?);
    }
    let wide = cx.b().stack(&parts, -1)?;
    if let Some(last) = dims.last_mut() {
        *last = &*last * (8 / bits);
    }
    let wide = cx.b().reshape(wide, dims)?;
    // As numbers of that many bits they are no larger than before, and stay so.
    Ok(if bits == 4 { cx.b().convert(wide, DType::U4)? } else { wide })
}

/// A product with a matrix of rows `[n, k]` in blocks along `k`, each with its scale and zero point.
fn matmul_bits(cx: &mut NodeCx<'_, '_>) -> Out {
    let (a, w, scales) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let (k, n, block) = (cx.need_int_attr("K")?, cx.need_int_attr("N")?, cx.need_int_attr("block_size")?);
    let bits = cx.int("bits", 4)?;
    cx.ignore(&["accuracy_level"]);
    if cx.has(4) || cx.int("weight_prepacked", 0)? != 0 {
        return Err(Failure::unsupported("reordered or prepacked weights in MatMulNBits"));
    }
    if !matches!(bits, 2 | 4 | 8) {
        return Err(Failure::unsupported(format!("{bits} bits in MatMulNBits")));
    }
    let sizes = 1..=1 << 40;
    if !sizes.contains(&k) || !sizes.contains(&n) || !(1..=1 << 20).contains(&block) {
        return Err(Failure::refused(format!("K {k}, N {n} and block size {block} must be at least 1 and not absurd")));
    }
    let blocks = Dim::from((k - 1) / block + 1);
    let dtype = cx.dtype(a)?;
    let scales = cx.b().reshape(scales, [Dim::from(n), blocks.clone(), Dim::ONE])?;
    let w = unpacked(cx, w, bits)?;
    let w = cx.b().reshape(w, [Dim::from(n), blocks.clone(), Dim::from(block)])?;
    let w = cx.b().convert(w, dtype)?;
    let zero = match cx.opt(3)? {
        None => cx.b().scalar(dtype, f64::from(1 << (bits - 1)))?,
        Some(z) if cx.dtype(z)? == DType::U8 => {
            let per_row = Dim::from(((k - 1) / block + 1 + 8 / bits - 1) / (8 / bits));
            let z = cx.b().reshape(z, [Dim::from(n), per_row])?;
            let z = unpacked(cx, z, bits)?;
            let z = cx.range_of(z, 1, Dim::ZERO, blocks, 1)?;
            let z = cx.b().convert(z, dtype)?;
            cx.b().expand_dims(z, &[2])?
        }
        Some(z) => {
            let z = cx.b().convert(z, dtype)?;
            cx.b().reshape(z, [Dim::from(n), blocks, Dim::ONE])?
        }
    };
    let w = cx.b().sub(w, zero)?;
    let w = cx.b().mul(w, scales)?;
    let w = cx.b().reshape(w, [Dim::from(n), Dim::from(((k - 1) / block + 1) * block)])?;
    // The last block may go beyond the rows.
    let w = cx.range_of(w, 1, Dim::ZERO, Dim::from(k), 1)?;
    let w = cx.b().transpose(w, &[1, 0])?;
    let mut y = cx.b().matmul(a, w)?;
    if let Some(bias) = cx.opt(5)? {
        y = cx.b().add(y, bias)?;
    }
    Ok(vec![y])
}

/// Embeddings of words, positions and segments, added and normed.
fn embeddings(cx: &mut NodeCx<'_, '_>) -> Out {
    let (ids, words, positions) = (cx.input(0)?, cx.input(2)?, cx.input(3)?);
    let (scale, bias) = (cx.input(5)?, cx.input(6)?);
    let eps = cx.float("epsilon", 1e-12)?;
    cx.ignore(&["mask_index_type"]);
    let shape = cx.shape(ids)?;
    if shape.rank() != 2 {
        return Err(Failure::refused(format!("words must have axes [batch, sequence], got {shape}")));
    }
    let at = match cx.opt(8)? {
        Some(p) => p,
        None => cx.b().iota(DType::I64, [Dim::ONE, shape[1].clone()], 1)?,
    };
    let word = cx.b().gather(words, ids, 0)?;
    let place = cx.b().gather(positions, at, 0)?;
    let mut sum = cx.b().add(word, place)?;
    if let (Some(segments), Some(table)) = (cx.opt(1)?, cx.opt(4)?) {
        let segment = cx.b().gather(table, segments, 0)?;
        sum = cx.b().add(sum, segment)?;
    }
    let y = cx.b().layer_norm(sum, Some(scale), Some(bias), &[2], eps)?;
    let lengths = match cx.opt(7)? {
        Some(mask) => {
            let mask = cx.b().convert(mask, DType::I32)?;
            cx.b().reduce(mask, ReduceKind::Sum, &[1], false)?
        }
        None => {
            let zero = cx.b().scalar(DType::I32, 0.0)?;
            cx.b().broadcast_to(zero, [shape[0].clone()])?
        }
    };
    Ok(vec![y, lengths, sum])
}
