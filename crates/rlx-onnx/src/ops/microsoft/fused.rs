//! Products and convolutions with what follows them, embeddings with their norm.

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

/// Embeddings of words, positions and segments, added and normed.
fn embeddings(cx: &mut NodeCx<'_, '_>) -> Out {
    let (words, positions) = (cx.input(2)?, cx.input(3)?);
    let (scale, bias) = (cx.input(5)?, cx.input(6)?);
    let (segments, at) = (cx.opt(4)?, cx.opt(8)?);
    normed(cx, [words, positions], segments, [scale, bias], at)
}

/// Rows of tables added and normed: words and segments as operands 0 and 1 say, positions as `at` does or one after another.
pub(super) fn normed(
    cx: &mut NodeCx<'_, '_>,
    [words, positions]: [ValueId; 2],
    segments: Option<ValueId>,
    [scale, bias]: [ValueId; 2],
    at: Option<ValueId>,
) -> Out {
    let ids = cx.input(0)?;
    let eps = cx.float("epsilon", 1e-12)?;
    cx.ignore(&["mask_index_type"]);
    let shape = cx.shape(ids)?;
    if shape.rank() != 2 {
        return Err(Failure::refused(format!("words must have axes [batch, sequence], got {shape}")));
    }
    let at = match at {
        Some(p) => p,
        None => cx.b().iota(DType::I64, [Dim::ONE, shape[1].clone()], 1)?,
    };
    let word = cx.b().gather(words, ids, 0)?;
    let place = cx.b().gather(positions, at, 0)?;
    let mut sum = cx.b().add(word, place)?;
    if let (Some(which), Some(table)) = (cx.opt(1)?, segments) {
        let segment = cx.b().gather(table, which, 0)?;
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
