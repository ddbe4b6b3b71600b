//! Attention and rotary position embedding.

use rlx_ir::ops::neural::{Attention, AttnLayout, MaskKind};
use rlx_ir::ops::reduction::ReduceKind;
use rlx_ir::ops::shape::PadMode;
use rlx_ir::{DType, Dim, ValueId};

use super::context::{Failure, NodeCx, Out};
use super::{OpEntry, op};

pub(super) const OPS: &[OpEntry] = &[op("Attention", 23, attention), op("RotaryEmbedding", 23, rotary_embedding)];

/// Operands with axes `[b, h, s, d]`, and what the mask follows from.
struct Parts {
    q: ValueId,
    k: ValueId,
    v: ValueId,
    /// Keys before the first query's own: a number of keys, or one for each batch.
    offset: Offset,
}

enum Offset {
    Known(Dim),
    PerBatch(ValueId),
}

fn attention(cx: &mut NodeCx<'_, '_>) -> Out {
    let flat = cx.input(0).and_then(|q| cx.rank(q))? == 3;
    let parts = parts(cx, flat)?;
    let (present_k, present_v) = (parts.k, parts.v);
    let causal = cx.flag("is_causal", false)?;
    let (left, right) = (cx.int("left_window_size", -1)?, cx.int("right_window_size", -1)?);
    let softcap = Some(cx.float("softcap", 0.0)?).filter(|&c| c != 0.0);
    cx.ignore(&["softmax_precision"]);
    let d = cx.shape(parts.q)?[3].clone();
    let scale = match cx.opt_float("scale")?.filter(|&s| s != 0.0) {
        Some(s) => s,
        None => {
            let d = d
                .as_const()
                .ok_or_else(|| Failure::refused("attribute `scale` is needed where the head size is not known"))?;
            1.0 / (d as f64).sqrt()
        }
    };
    let (s, t) = (cx.shape(parts.q)?[2].clone(), cx.shape(parts.k)?[2].clone());
    // The op's own causality and window are aligned at the end of the keys.
    let aligned = matches!(&parts.offset, Offset::Known(o) if *o == &t - &s);
    let one_sided = left < 0 || (causal && right < 0) || (causal && right == 0);
    let own = aligned && causal && one_sided;
    let reach = if own { None } else { in_reach(cx, &parts, causal, left, right)? };
    let valid = if cx.has(6) { Some(valid_keys(cx, &t)?) } else { None };
    let given = mask_of(cx, &t)?;
    let mut allowed = reach;
    let mut added = None;
    for m in [valid, given].into_iter().flatten() {
        if cx.dtype(m)? == DType::Bool {
            allowed = Some(match allowed {
                Some(a) => cx.b().and(a, m)?,
                None => m,
            });
        } else {
            added = Some(m);
        }
    }
    let mask = match (allowed, added) {
        (Some(a), Some(m)) => {
            let hidden = cx.scalar_like(m, f64::NEG_INFINITY)?;
            Some(cx.b().select(a, m, hidden)?)
        }
        (a, m) => a.or(m),
    };
    let kind = match (mask.is_some(), added.is_some()) {
        (false, _) => MaskKind::None,
        (true, true) => MaskKind::Additive,
        (true, false) => MaskKind::Bool,
    };
    let op = Attention {
        causal: own && causal,
        window: (own && left >= 0).then(|| left.saturating_add(1)),
        softcap: softcap.map(Into::into),
        mask: kind,
        ..Attention::new(AttnLayout::Bhsd, scale)
    };
    let scores = if cx.wants(3) { Some(scores(cx, &parts, &op, mask)?) } else { None };
    let mask = mask.map(|m| four_axes(cx, m)).transpose()?;
    let y = cx.b().attention(op, parts.q, parts.k, parts.v, mask)?;
    let y = if flat { merge_heads(cx, y)? } else { y };
    let mut out = vec![y, present_k, present_v];
    out.extend(scores);
    Ok(out)
}

/// `[b, s, h·d]` to `[b, h, s, d]`.
pub(super) fn split_heads(cx: &mut NodeCx<'_, '_>, x: ValueId, heads: i64) -> Result<ValueId, Failure> {
    let shape = cx.shape(x)?;
    let [b, s, hidden] = shape.dims() else {
        return Err(Failure::refused(format!("the operand must have axes [batch, sequence, features], got {shape}")));
    };
    if heads < 1 {
        return Err(Failure::refused("the number of heads must be given and at least 1"));
    }
    let apart = [b.clone(), s.clone(), Dim::from(heads), hidden.floor_div(heads)];
    let y = cx.b().reshape(x, apart)?;
    Ok(cx.b().transpose(y, &[0, 2, 1, 3])?)
}

/// `[b, h, s, d]` to `[b, s, h·d]`.
pub(super) fn merge_heads(cx: &mut NodeCx<'_, '_>, x: ValueId) -> Result<ValueId, Failure> {
    let y = cx.b().transpose(x, &[0, 2, 1, 3])?;
    let shape = cx.shape(y)?;
    let dims = [shape[0].clone(), shape[1].clone(), &shape[2] * &shape[3]];
    Ok(cx.b().reshape(y, dims)?)
}

fn parts(cx: &mut NodeCx<'_, '_>, flat: bool) -> Result<Parts, Failure> {
    let (mut q, mut k, mut v) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let (q_heads, kv_heads) = (cx.int("q_num_heads", 0)?, cx.int("kv_num_heads", 0)?);
    if flat {
        q = split_heads(cx, q, q_heads)?;
        k = split_heads(cx, k, kv_heads)?;
        v = split_heads(cx, v, kv_heads)?;
    }
    for x in [q, k, v] {
        let shape = cx.shape(x)?;
        if shape.rank() != 4 {
            return Err(Failure::refused(format!("operands must have 3 or 4 axes alike, got {shape}")));
        }
    }
    let mut offset = Offset::Known(Dim::ZERO);
    if let (Some(past_k), Some(past_v)) = (cx.opt(4)?, cx.opt(5)?) {
        offset = Offset::Known(cx.shape(past_k)?.get(2).cloned().unwrap_or(Dim::ZERO));
        k = cx.b().concat(&[past_k, k], 2)?;
        v = cx.b().concat(&[past_v, v], 2)?;
    } else if let Some(valid) = cx.opt(6)? {
        let s = cx.shape(q)?[2].clone();
        let s = cx.b().from_dim(s)?;
        let valid = cx.b().convert(valid, DType::I64)?;
        let before = cx.b().sub(valid, s)?;
        offset = Offset::PerBatch(cx.along(before, 0, 4)?);
    }
    Ok(Parts { q, k, v, offset })
}

/// Which keys causality and window let each query see: booleans that broadcast to `[b, h, s, t]`; none if all.
fn in_reach(
    cx: &mut NodeCx<'_, '_>,
    parts: &Parts,
    causal: bool,
    left: i64,
    right: i64,
) -> Result<Option<ValueId>, Failure> {
    let right = if causal && right < 0 {
        0
    } else if causal {
        right.min(0)
    } else {
        right
    };
    if left < 0 && right < 0 {
        return Ok(None);
    }
    let (s, t) = (cx.shape(parts.q)?[2].clone(), cx.shape(parts.k)?[2].clone());
    let query = cx.b().iota(DType::I64, [Dim::ONE, Dim::ONE, s, Dim::ONE], 2)?;
    let key = cx.b().iota(DType::I64, [Dim::ONE, Dim::ONE, Dim::ONE, t], 3)?;
    let offset = match &parts.offset {
        Offset::Known(d) => cx.b().from_dim(d.clone())?,
        Offset::PerBatch(v) => *v,
    };
    let at = cx.b().add(query, offset)?;
    let mut seen = None;
    for (limit, before) in [(left, true), (right, false)] {
        if limit < 0 {
            continue;
        }
        let limit = cx.scalar_like(at, limit as f64)?;
        let b = cx.b();
        let side = if before {
            let first = b.sub(at, limit)?;
            b.ge(key, first)?
        } else {
            let last = b.add(at, limit)?;
            b.le(key, last)?
        };
        seen = Some(match seen {
            Some(s) => b.and(s, side)?,
            None => side,
        });
    }
    Ok(seen)
}

/// Which keys are no padding: `[b, 1, 1, t]`.
fn valid_keys(cx: &mut NodeCx<'_, '_>, t: &Dim) -> Result<ValueId, Failure> {
    let n = cx.input(6)?;
    let n = cx.b().convert(n, DType::I64)?;
    let n = cx.along(n, 0, 4)?;
    let key = cx.b().iota(DType::I64, [Dim::ONE, Dim::ONE, Dim::ONE, t.clone()], 3)?;
    Ok(cx.b().lt(key, n)?)
}

/// The mask operand, hidden keys added where it is shorter than the keys.
fn mask_of(cx: &mut NodeCx<'_, '_>, t: &Dim) -> Result<Option<ValueId>, Failure> {
    let Some(m) = cx.opt(3)? else { return Ok(None) };
    let shape = cx.shape(m)?;
    let Some(last) = shape.last().cloned() else { return Ok(Some(m)) };
    if last == *t || last == Dim::ONE || last.known_le(t) != Some(true) {
        return Ok(Some(m));
    }
    let dtype = cx.dtype(m)?;
    let fill = if dtype == DType::Bool { 0.0 } else { f64::NEG_INFINITY };
    let fill = cx.b().scalar(dtype, fill)?;
    let low = vec![Dim::ZERO; shape.rank()];
    let mut high = low.clone();
    if let Some(h) = high.last_mut() {
        *h = t - last;
    }
    Ok(Some(cx.b().pad(m, Some(fill), low, high, PadMode::Constant)?))
}

/// The mask with all four axes written out.
fn four_axes(cx: &mut NodeCx<'_, '_>, m: ValueId) -> Result<ValueId, Failure> {
    let rank = cx.rank(m)?;
    let new: Vec<i64> = (0..4i64.saturating_sub(rank as i64)).collect();
    Ok(cx.b().expand_dims(m, &new)?)
}

/// The fourth result: the scores at the stage that the node names.
fn scores(cx: &mut NodeCx<'_, '_>, parts: &Parts, op: &Attention, mask: Option<ValueId>) -> Result<ValueId, Failure> {
    let mode = cx.int("qk_matmul_output_mode", 0)?;
    let (qs, ks) = (cx.shape(parts.q)?, cx.shape(parts.k)?);
    if qs.rank() != 4 || ks.rank() != 4 {
        return Err(Failure::refused(format!("queries {qs} and keys {ks} must have four axes")));
    }
    let mut k = parts.k;
    if qs[1] != ks[1] {
        // Each head of keys serves several of queries, neighbours sharing one.
        let each = qs[1].floor_div(&ks[1]);
        k = cx.b().expand_dims(k, &[2])?;
        k = cx.b().broadcast_to(k, [ks[0].clone(), ks[1].clone(), each, ks[2].clone(), ks[3].clone()])?;
        k = cx.b().reshape(k, [ks[0].clone(), qs[1].clone(), ks[2].clone(), ks[3].clone()])?;
    }
    let scale = cx.scalar_like(parts.q, op.scale.get())?;
    let b = cx.b();
    let raw = b.dot_general(parts.q, k, &[0, 1], &[0, 1], &[3], &[3], None)?;
    let mut y = b.mul(raw, scale)?;
    if mode == 0 {
        return Ok(y);
    }
    if let Some(cap) = op.softcap {
        let cap = cx.scalar_like(y, cap.get())?;
        let b = cx.b();
        let part = b.div(y, cap)?;
        let part = b.tanh(part)?;
        y = b.mul(part, cap)?;
    }
    if mode == 1 {
        return Ok(y);
    }
    let mut mask = mask;
    if op.causal {
        // The op does this by itself, so it is written out only here.
        let left = op.window.map_or(-1, |w| w - 1);
        let reach = in_reach(cx, parts, true, left, -1)?;
        mask = match (reach, mask) {
            (Some(r), Some(m)) if cx.dtype(m)? == DType::Bool => Some(cx.b().and(r, m)?),
            (Some(r), Some(m)) => {
                let hidden = cx.scalar_like(m, f64::NEG_INFINITY)?;
                Some(cx.b().select(r, m, hidden)?)
            }
            (r, m) => r.or(m),
        };
    }
    if let Some(m) = mask {
        y = if cx.dtype(m)? == DType::Bool {
            let hidden = cx.scalar_like(y, f64::NEG_INFINITY)?;
            cx.b().select(m, y, hidden)?
        } else {
            cx.b().add(y, m)?
        };
    }
    if mode == 2 {
        return Ok(y);
    }
    let p = cx.b().softmax(y, 3)?;
    let top = cx.b().reduce(y, ReduceKind::Max, &[3], true)?;
    let hidden = cx.scalar_like(y, f64::NEG_INFINITY)?;
    let zero = cx.scalar_like(y, 0.0)?;
    let b = cx.b();
    let none = b.eq(top, hidden)?;
    Ok(b.select(none, zero, p)?)
}

fn rotary_embedding(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, cos, sin) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let interleaved = cx.flag("interleaved", false)?;
    let part = Some(cx.int("rotary_embedding_dim", 0)?).filter(|&n| n != 0);
    let heads = cx.int("num_heads", 0)?;
    let flat = cx.rank(x)? == 3;
    let x4 = if flat { split_heads(cx, x, heads)? } else { x };
    let positions = cx.opt(3)?;
    let mut table = |v: ValueId| -> Result<ValueId, Failure> {
        let rows = match positions {
            Some(p) => cx.b().gather(v, p, 0)?,
            None => v,
        };
        // The axis of heads.
        Ok(cx.b().expand_dims(rows, &[1])?)
    };
    let (cos, sin) = (table(cos)?, table(sin)?);
    let y = cx.b().rotary_embedding(x4, cos, sin, interleaved, part)?;
    Ok(vec![if flat { merge_heads(cx, y)? } else { y }])
}
