//! Attention with grouped heads over a cache of keys and values, as generating models write it.

use rlx_ir::ops::indexing::Combiner;
use rlx_ir::ops::shape::PadMode;
use rlx_ir::{DType, Dim, ValueId};

use super::super::attention::split_heads;
use super::super::context::{Failure, NodeCx, Out};
use super::super::{OpEntry, ms};
use super::attention::{Heads, reach, rotate, scale_of};

pub(super) const OPS: &[OpEntry] = &[ms("GroupQueryAttention", grouped)];

/// New keys or values `[b, h, s, d]` written into a cache of `total` places or more, from `start` (`[b, 1, 1, 1]`) on.
fn appended(
    cx: &mut NodeCx<'_, '_>,
    past: Option<ValueId>,
    new: ValueId,
    start: ValueId,
    total: &Dim,
) -> Result<ValueId, Failure> {
    let shape = cx.shape(new)?;
    let zero = cx.scalar_like(new, 0.0)?;
    let cache = match past {
        Some(p) => {
            let there = cx.shape(p)?.get(2).cloned().unwrap_or(Dim::ZERO);
            let more = (total - &there).max(Dim::ZERO);
            let low = vec![Dim::ZERO; 4];
            let mut high = low.clone();
            high[2] = more;
            cx.b().pad(p, Some(zero), low, high, PadMode::Constant)?
        }
        None => {
            let mut dims = shape.dims().to_vec();
            dims[2] = total.clone();
            cx.b().broadcast_to(zero, dims)?
        }
    };
    let at = cx.b().iota(DType::I64, [Dim::ONE, Dim::ONE, shape[2].clone(), Dim::ONE], 2)?;
    let at = cx.b().add(at, start)?;
    let at = cx.b().broadcast_to(at, shape.into_dims())?;
    Ok(cx.b().scatter_elements(cache, at, new, 2, Combiner::Set)?)
}

fn grouped(cx: &mut NodeCx<'_, '_>) -> Out {
    let (q_heads, kv_heads) = (cx.need_int_attr("num_heads")?, cx.need_int_attr("kv_num_heads")?);
    if kv_heads < 1 || q_heads < kv_heads || q_heads % kv_heads != 0 {
        return Err(Failure::refused(format!("{q_heads} heads of queries do not share {kv_heads} of keys")));
    }
    for (i, what) in [(12, "a quantised cache"), (16, "chunks")] {
        if cx.has(i) {
            return Err(Failure::unsupported(format!("{what} in GroupQueryAttention")));
        }
    }
    if cx.flag("sliding_window_cache", false)? || cx.int("qk_output", 0)? != 0 {
        return Err(Failure::unsupported("window caches and scores as a result in GroupQueryAttention"));
    }
    cx.ignore(&["k_quant_type", "v_quant_type", "kv_cache_bit_width"]);
    let query = cx.input(0)?;
    let (q, k, v) = match (cx.opt(1)?, cx.opt(2)?) {
        (Some(k), Some(v)) => (query, k, v),
        _ => {
            // Packed: all heads of queries, of keys, of values.
            let each = cx.shape(query)?.last().cloned().unwrap_or(Dim::ONE).floor_div(q_heads + 2 * kv_heads);
            let sizes = [&each * q_heads, &each * kv_heads, &each * kv_heads];
            match cx.b().split(query, 2, &sizes)?[..] {
                [q, k, v] => (q, k, v),
                _ => return Err(Failure::refused("takes three parts")),
            }
        }
    };
    let (mut q, mut k, v) =
        (split_heads(cx, q, q_heads)?, split_heads(cx, k, kv_heads)?, split_heads(cx, v, kv_heads)?);
    let eps = cx.float("qk_norm_epsilon", 1e-6)?;
    for (v, i, name) in [(&mut q, 14, "q_norm_epsilon"), (&mut k, 15, "k_norm_epsilon")] {
        let eps = cx.opt_float(name)?.unwrap_or(eps);
        if let Some(scale) = cx.opt(i)? {
            *v = cx.b().rms_norm(*v, Some(scale), &[3], eps)?;
        }
    }
    let s = cx.shape(q)?[2].clone();
    let last = cx.input(5)?;
    let last = cx.b().convert(last, DType::I64)?;
    let last = cx.along(last, 0, 4)?;
    let total = cx.size_at(6, "the total length of sequences")?;
    // Where each sequence's new tokens stand. A first prompt, which may be padded at its end, begins at 0.
    let (count, whole) = (cx.b().from_dim(s.clone())?, cx.b().from_dim(total.clone())?);
    let zero = cx.scalar_like(last, 0.0)?;
    let start = cx.plus(last, 1.0)?;
    let start = cx.b().sub(start, count)?;
    let first = cx.b().eq(count, whole)?;
    let start = cx.b().select(first, zero, start)?;
    if cx.flag("do_rotary", false)? {
        let interleaved = cx.flag("rotary_interleaved", false)?;
        let tables = [cx.input(7)?, cx.input(8)?];
        let positions = match cx.opt(9)? {
            Some(p) => cx.b().convert(p, DType::I64)?,
            None => {
                let steps = cx.b().iota(DType::I64, [Dim::ONE, s.clone()], 1)?;
                let b = cx.shape(start)?[0].clone();
                let start = cx.b().reshape(start, [b, Dim::ONE])?;
                cx.b().add(start, steps)?
            }
        };
        q = rotate(cx, q, positions, tables, interleaved)?;
        k = rotate(cx, k, positions, tables, interleaved)?;
    } else {
        cx.ignore(&["rotary_interleaved"]);
    }
    let (past_k, past_v) = (cx.opt(3)?, cx.opt(4)?);
    let k = appended(cx, past_k, k, start, &total)?;
    let v = appended(cx, past_v, v, start, &total)?;
    let t = cx.shape(k)?[2].clone();
    let window = Some(cx.int("local_window_size", -1)?).filter(|&w| w > 0);
    let allowed = if cx.flag("causal", true)? {
        reach(cx, (&s, &t), start, window)?
    } else {
        let key = cx.b().iota(DType::I64, [Dim::ONE, Dim::ONE, Dim::ONE, t], 3)?;
        cx.b().le(key, last)?
    };
    let added = cx.opt(10)?;
    let softcap = cx.float("softcap", 0.0)?;
    let scale = scale_of(cx, q)?;
    let sink = match cx.opt(11)? {
        Some(sink) => Some(sink),
        None if cx.flag("smooth_softmax", false)? => {
            let zero = cx.scalar_like(q, 0.0)?;
            Some(cx.b().broadcast_to(zero, [q_heads])?)
        }
        None => None,
    };
    let heads = Heads { q, k, v, added, allowed: Some(allowed), softcap };
    let heads = match sink {
        Some(sink) => heads.with_sink(cx, sink)?,
        None => heads,
    };
    Ok(vec![heads.attend(cx, scale)?, k, v])
}
