//! Operators of the newest operator sets: attention with nested graphs, linear attention, causal convolution, gated units, bits.

use rlx_ir::ops::control::LoopStep;
use rlx_ir::{DType, Dim, IrError, ValueId};

use super::attention::split_heads;
use super::context::{Failure, NodeCx, Out};
use super::elementwise::swish_of;
use super::{OpEntry, op};

pub(super) const OPS: &[OpEntry] = &[
    OpEntry { domain: "ai.onnx.preview", name: "FlexAttention", since: 1, until: i64::MAX, run: flex_attention },
    op("LinearAttention", 27, linear_attention),
    op("CausalConvWithState", 27, causal_conv),
    op("SwiGLU", 28, swiglu),
    op("BitCast", 26, bit_cast),
];

fn bit_cast(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let to = cx.opt_dtype("to")?.ok_or_else(|| Failure::refused("attribute `to` is missing"))?;
    Ok(vec![cx.b().bitcast_convert(x, to)?])
}

fn swiglu(cx: &mut NodeCx<'_, '_>) -> Out {
    let (gate, value) = (cx.input(0)?, cx.input(1)?);
    let alpha = cx.float("alpha", 1.0)?;
    let gate = swish_of(cx, gate, alpha)?[0];
    Ok(vec![cx.b().mul(gate, value)?])
}

/// Attention whose scores and probabilities nested graphs may change.
fn flex_attention(cx: &mut NodeCx<'_, '_>) -> Out {
    let (q, k, v) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let (qs, ks, vs) = (cx.shape(q)?, cx.shape(k)?, cx.shape(v)?);
    if [&qs, &ks, &vs].iter().any(|s| s.rank() != 4) {
        return Err(Failure::refused(format!("operands must have four axes, got {qs}, {ks}, {vs}")));
    }
    let dtype = cx.dtype(q)?;
    let scale = match cx.opt_float("scale")? {
        Some(s) => s,
        None => head_scale(&qs[3])?,
    };
    let wide = match cx.opt_dtype_unless_zero("softmax_precision")? {
        Some(d) => d,
        None if dtype == DType::F64 => DType::F64,
        None => DType::F32,
    };
    // Each head of keys serves several of queries, neighbours sharing one.
    let (k, v) = (shared_heads(cx, k, &qs[1])?, shared_heads(cx, v, &qs[1])?);
    let (q, k) = (cx.times(q, scale.sqrt())?, cx.times(k, scale.sqrt())?);
    let scores = cx.b().dot_general(q, k, &[0, 1], &[0, 1], &[3], &[3], None)?;
    let mut x = cx.b().convert(scores, wide)?;
    x = modified(cx, "score_mod", x)?;
    x = cx.b().softmax(x, 3)?;
    x = modified(cx, "prob_mod", x)?;
    let p = cx.b().convert(x, dtype)?;
    Ok(vec![cx.b().matmul(p, v)?])
}

/// One over the root of a head's size.
pub(super) fn head_scale(d: &Dim) -> Result<f64, Failure> {
    let d =
        d.as_const().ok_or_else(|| Failure::refused("attribute `scale` is needed where the head size is not known"))?;
    Ok(1.0 / (d as f64).sqrt())
}

/// `[b, kv heads, s, d]` with each head repeated for its neighbours: `[b, heads, s, d]`.
pub(super) fn shared_heads(cx: &mut NodeCx<'_, '_>, k: ValueId, heads: &Dim) -> Result<ValueId, Failure> {
    let s = cx.shape(k)?;
    if s.rank() != 4 || s[1] == *heads {
        return Ok(k);
    }
    let each = heads.floor_div(s[1].clone());
    let k = cx.b().expand_dims(k, &[2])?;
    let k = cx.b().broadcast_to(k, [s[0].clone(), s[1].clone(), each, s[2].clone(), s[3].clone()])?;
    Ok(cx.b().reshape(k, [s[0].clone(), heads.clone(), s[2].clone(), s[3].clone()])?)
}

/// What a nested graph of one input makes of a value.
fn modified(cx: &mut NodeCx<'_, '_>, name: &'static str, x: ValueId) -> Result<ValueId, Failure> {
    if cx.attr(name).is_none() {
        return Ok(x);
    }
    let graph = cx.graph(name)?;
    let (dtype, shape) = (cx.dtype(x)?, cx.shape(x)?);
    let out = cx.imp.inline_graph(graph, &[x])?;
    let [y] = out[..] else { return Err(Failure::refused(format!("graph `{name}` must give one value"))) };
    let y = cx.b().convert(y, dtype)?;
    Ok(cx.b().broadcast_to(y, shape.into_dims())?)
}

/// A packed operand `[b, t, heads · d]` as steps `[t, b, heads, d]` in f32.
fn steps(cx: &mut NodeCx<'_, '_>, x: ValueId, heads: i64) -> Result<ValueId, Failure> {
    let x = split_heads(cx, x, heads)?;
    let x = cx.b().transpose(x, &[2, 0, 1, 3])?;
    Ok(cx.b().convert(x, DType::F32)?)
}

/// A state of a matrix a head, to which each step adds an outer product, and which it may let fade and correct.
fn linear_attention(cx: &mut NodeCx<'_, '_>) -> Out {
    cx.ignore(&["chunk_size"]);
    let rules =
        [("linear", (false, false)), ("gated", (true, false)), ("delta", (false, true)), ("gated_delta", (true, true))];
    let (gated, delta) = cx.word("update_rule", "gated_delta", &rules)?;
    let (q_heads, kv_heads) = (cx.need_int_attr("q_num_heads")?, cx.need_int_attr("kv_num_heads")?);
    if kv_heads < 1 || q_heads < kv_heads || q_heads % kv_heads != 0 {
        return Err(Failure::refused(format!("{q_heads} heads of queries do not share {kv_heads} of keys")));
    }
    let (query, key, value) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let to = cx.dtype(query)?;
    let (q, k, v) = (steps(cx, query, q_heads)?, steps(cx, key, kv_heads)?, steps(cx, value, kv_heads)?);
    let (qs, vs) = (cx.shape(q)?, cx.shape(v)?);
    let (t, b, d_k, d_v) = (qs[0].clone(), qs[1].clone(), qs[3].clone(), vs[3].clone());
    let scale = match cx.float("scale", 0.0)? {
        0.0 => head_scale(&d_k)?,
        s => s,
    };
    let mut captures = vec![q, k, v];
    for (there, i, what) in [(gated, 4, "decay"), (delta, 5, "beta")] {
        if !there {
            if cx.has(i) {
                return Err(Failure::refused(format!("this update rule takes no {what}")));
            }
            continue;
        }
        let x = cx.input(i)?;
        // One number a head, one for all heads, or one for each element of a key.
        let last = cx.shape(x)?.last().cloned().unwrap_or(Dim::ONE);
        let heads = if last == Dim::ONE { 1 } else { kv_heads };
        captures.push(steps(cx, x, heads)?);
    }
    let dims = [b.clone(), Dim::from(kv_heads), d_k, d_v.clone()];
    let (state, state_dtype) = match cx.opt(3)? {
        Some(s) => (cx.b().convert(s, DType::F32)?, cx.dtype(s)?),
        None => {
            let zero = cx.b().scalar(DType::F32, 0.0)?;
            (cx.b().broadcast_to(zero, dims)?, to)
        }
    };
    let trips = cx.b().from_dim(t.clone())?;
    let groups = q_heads / kv_heads;
    let out = cx.b().loop_(Some(trips), None, &[state], &captures, |bld, a| {
        let mut now = Vec::new();
        for &c in a.captures {
            now.push(bld.gather(c, a.iteration, 0)?);
        }
        let (q, k, mut v) = (now[0], now[1], now[2]);
        let mut state = a.carried[0];
        if gated {
            let fade = bld.exp(now[3])?;
            let fade = bld.expand_dims(fade, &[-1])?;
            state = bld.mul(state, fade)?;
        }
        if delta {
            let beta = now.last().copied().ok_or_else(|| IrError::Eval("beta is missing".into()))?;
            let row = bld.expand_dims(k, &[2])?;
            let known = bld.matmul(row, state)?;
            let known = bld.squeeze(known, &[2])?;
            let fresh = bld.sub(v, known)?;
            v = bld.mul(beta, fresh)?;
        }
        let (column, row) = (bld.expand_dims(k, &[3])?, bld.expand_dims(v, &[2])?);
        let added = bld.mul(column, row)?;
        state = bld.add(state, added)?;
        // Queries of one head of keys are rows of one product.
        let qs = bld.shape(q)?;
        let q = bld.reshape(q, [qs[0].clone(), Dim::from(kv_heads), Dim::from(groups), qs[2].clone()])?;
        let y = bld.matmul(q, state)?;
        Ok(LoopStep { cond: a.cond, carried: vec![state], scans: vec![y] })
    })?;
    let [state, y] = out[..] else { return Err(Failure::refused("a loop gave nothing")) };
    // [t, b, kv heads, groups, d] to [b, t, heads · d].
    let y = cx.times(y, scale)?;
    let y = cx.b().transpose(y, &[1, 0, 2, 3, 4])?;
    let y = cx.b().reshape(y, [b, t, d_v * q_heads])?;
    Ok(vec![cx.b().convert(y, to)?, cx.b().convert(state, state_dtype)?])
}

/// A depthwise convolution over what was there before and what is there now; the last positions are what the next call continues.
fn causal_conv(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, w, bias) = (cx.input(0)?, cx.input(1)?, cx.opt(2)?);
    let words = [("none", false), ("silu", true), ("swish", true)];
    let gated = cx.word("activation", "none", &words)?;
    let (xs, ws) = (cx.shape(x)?, cx.shape(w)?);
    let ([b, c, length], 3) = (xs.dims(), ws.rank()) else {
        return Err(Failure::refused(format!("operand {xs} and kernel {ws} must have three axes")));
    };
    let groups = c.as_const().ok_or_else(|| Failure::refused("the number of channels must be known"))?;
    let before = &ws[2] - 1;
    let past = match cx.opt(3)? {
        Some(p) => p,
        None => {
            let zero = cx.scalar_like(x, 0.0)?;
            cx.b().broadcast_to(zero, [b.clone(), c.clone(), before.clone()])?
        }
    };
    let all = cx.b().concat(&[past, x], 2)?;
    let none = [Dim::ZERO];
    let mut y = cx.b().conv(all, w, bias, &[1], &[1], &none, &none, groups)?;
    if gated {
        y = cx.b().silu(y)?;
    }
    let end = length + &before;
    Ok(vec![y, cx.range_of(all, 2, length.clone(), end, 1)?])
}
