//! Attention with its projections, over several heads, and rotary embedding.

use rlx_ir::ops::neural::{Attention, AttnLayout, MaskKind};
use rlx_ir::{DType, Dim, ValueId};

use super::super::attention::{merge_heads, split_heads};
use super::super::context::{Failure, NodeCx, Out};
use super::super::recent::{head_scale, shared_heads};
use super::super::{OpEntry, ms};
use super::diffusion::packed_part;

pub(super) const OPS: &[OpEntry] =
    &[ms("Attention", projected), ms("MultiHeadAttention", multi_head), ms("RotaryEmbedding", rotary)];

/// Operands `[b, h, s, d]` and what changes the scores.
pub(super) struct Heads {
    pub q: ValueId,
    pub k: ValueId,
    pub v: ValueId,
    /// Added to the scores; broadcasts to `[b, h, s, t]`.
    pub added: Option<ValueId>,
    /// Which keys are seen; broadcasts alike.
    pub allowed: Option<ValueId>,
    pub softcap: f64,
}

impl Heads {
    /// Attention, `[b, s, h · d]`.
    pub fn attend(self, cx: &mut NodeCx<'_, '_>, scale: f64) -> Result<ValueId, Failure> {
        let heads = cx.shape(self.q)?[1].clone();
        let (k, v) = (shared_heads(cx, self.k, &heads)?, shared_heads(cx, self.v, &heads)?);
        let (mask, kind) = match (self.added, self.allowed) {
            (None, None) => (None, MaskKind::None),
            (None, Some(a)) => (Some(a), MaskKind::Bool),
            (Some(m), None) => (Some(m), MaskKind::Additive),
            (Some(m), Some(a)) => {
                let hidden = cx.scalar_like(m, f64::NEG_INFINITY)?;
                (Some(cx.b().select(a, m, hidden)?), MaskKind::Additive)
            }
        };
        let mask = match mask {
            Some(m) if kind == MaskKind::Additive => {
                let dtype = cx.dtype(self.q)?;
                Some(cx.b().convert(m, dtype)?)
            }
            m => m,
        };
        let softcap = (self.softcap != 0.0).then(|| self.softcap.into());
        let op = Attention { mask: kind, softcap, ..Attention::new(AttnLayout::Bhsd, scale) };
        let y = cx.b().attention(op, self.q, k, v, mask)?;
        merge_heads(cx, y)
    }
}

impl Heads {
    /// The same with a score for each head that takes part in the sums of exponentials and brings no value: one more key, whose product
    /// with any query is 0 and to which the score is added.
    pub fn with_sink(self, cx: &mut NodeCx<'_, '_>, sink: ValueId) -> Result<Heads, Failure> {
        let mut longer = [self.k, self.v];
        for x in &mut longer {
            let mut dims = cx.shape(*x)?.into_dims();
            if let Some(d) = dims.get_mut(2) {
                *d = Dim::ONE;
            }
            let zero = cx.scalar_like(*x, 0.0)?;
            let none = cx.b().broadcast_to(zero, dims)?;
            *x = cx.b().concat(&[*x, none], 2)?;
        }
        let (qs, ks) = (cx.shape(self.q)?, cx.shape(self.k)?);
        let dtype = cx.dtype(self.q)?;
        let mut scores = match self.added {
            Some(m) => cx.b().convert(m, dtype)?,
            None => cx.b().scalar(dtype, 0.0)?,
        };
        if let Some(allowed) = self.allowed {
            let hidden = cx.b().scalar(dtype, f64::NEG_INFINITY)?;
            scores = cx.b().select(allowed, scores, hidden)?;
        }
        let [b, h, s, t] = [qs[0].clone(), qs[1].clone(), qs[2].clone(), ks[2].clone()];
        let scores = cx.b().broadcast_to(scores, [b.clone(), h.clone(), s.clone(), t])?;
        let sink = cx.b().convert(sink, dtype)?;
        let sink = cx.along(sink, 1, 4)?;
        let sink = cx.b().broadcast_to(sink, [b, h, s, Dim::ONE])?;
        let scores = cx.b().concat(&[scores, sink], 3)?;
        Ok(Heads { k: longer[0], v: longer[1], added: Some(scores), allowed: None, ..self })
    }
}

/// Keys that each query may see when it stands `offset` (a number, or one for each batch as `[b, 1, 1, 1]`) keys in, at most `window`
/// of them back.
pub(super) fn reach(
    cx: &mut NodeCx<'_, '_>,
    (s, t): (&Dim, &Dim),
    offset: ValueId,
    window: Option<i64>,
) -> Result<ValueId, Failure> {
    let query = cx.b().iota(DType::I64, [Dim::ONE, Dim::ONE, s.clone(), Dim::ONE], 2)?;
    let key = cx.b().iota(DType::I64, [Dim::ONE, Dim::ONE, Dim::ONE, t.clone()], 3)?;
    let at = cx.b().add(query, offset)?;
    let seen = cx.b().le(key, at)?;
    let Some(window) = window else { return Ok(seen) };
    let first = cx.plus(at, -(window as f64))?;
    let near = cx.b().gt(key, first)?;
    Ok(cx.b().and(seen, near)?)
}

/// What the scale is if the node does not say it.
pub(super) fn scale_of(cx: &mut NodeCx<'_, '_>, q: ValueId) -> Result<f64, Failure> {
    match cx.float("scale", 0.0)? {
        0.0 => {
            let d = cx.shape(q)?.last().cloned().unwrap_or(Dim::ONE);
            head_scale(&d)
        }
        s => Ok(s),
    }
}

/// A mask of keys as numbers to add: `[b]` lengths, `[b, t]`, `[b, s, t]` or `[b, 1, s, t]` with 0 for hidden ones.
fn mask_of(cx: &mut NodeCx<'_, '_>, mask: ValueId, like: ValueId, t: &Dim) -> Result<ValueId, Failure> {
    let filter = cx.float("mask_filter_value", -10000.0)?;
    let shape = cx.shape(mask)?;
    let seen = if shape.rank() == 1 {
        let b = cx.shape(like)?[0].clone();
        if shape[0].known_eq(&b) == Some(false) {
            return Err(Failure::unsupported("masks with starts and ends of sequences"));
        }
        let length = cx.b().convert(mask, DType::I64)?;
        let length = cx.along(length, 0, 4)?;
        let key = cx.b().iota(DType::I64, [Dim::ONE, Dim::ONE, Dim::ONE, t.clone()], 3)?;
        cx.b().lt(key, length)?
    } else {
        let axes: &[i64] = match shape.rank() {
            2 => &[1, 2],
            3 => &[1],
            4 => &[],
            _ => return Err(Failure::refused(format!("a mask of shape {shape} is unknown"))),
        };
        let mask = cx.b().expand_dims(mask, axes)?;
        let zero = cx.scalar_like(mask, 0.0)?;
        cx.b().gt(mask, zero)?
    };
    let dtype = cx.dtype(like)?;
    let (none, filter) = (cx.b().scalar(dtype, 0.0)?, cx.b().scalar(dtype, filter)?);
    Ok(cx.b().select(seen, none, filter)?)
}

fn sum(cx: &mut NodeCx<'_, '_>, a: Option<ValueId>, b: Option<ValueId>) -> Result<Option<ValueId>, Failure> {
    match (a, b) {
        (Some(a), Some(b)) => Ok(Some(cx.b().add(a, b)?)),
        (a, b) => Ok(a.or(b)),
    }
}

/// One product projects queries, keys and values.
fn projected(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, w, bias) = (cx.input(0)?, cx.input(1)?, cx.opt(2)?);
    if cx.has(6) {
        return Err(Failure::unsupported("shared caches inside Attention"));
    }
    let mut y = cx.b().matmul(x, w)?;
    if let Some(bias) = bias {
        y = cx.b().add(y, bias)?;
    }
    let (mask, past, added) = (cx.opt(3)?, cx.opt(4)?, cx.opt(5)?);
    attend_packed(cx, y, mask, past, added)
}

/// Attention of queries, keys and values that stand beside each other in rows `[b, s, all]`, after those of the past.
pub(super) fn attend_packed(
    cx: &mut NodeCx<'_, '_>,
    y: ValueId,
    mask: Option<ValueId>,
    past: Option<ValueId>,
    added: Option<ValueId>,
) -> Out {
    let heads = cx.need_int_attr("num_heads")?;
    let causal = cx.flag("unidirectional", false)?;
    if cx.flag("do_rotary", false)? || cx.flag("past_present_share_buffer", false)? {
        return Err(Failure::unsupported("rotary embedding and shared caches inside Attention"));
    }
    let sizes = parts_of(cx, y)?;
    let parts = cx.b().split(y, 2, &sizes)?;
    let mut apart = Vec::new();
    for p in parts {
        apart.push(split_heads(cx, p, heads)?);
    }
    let [q, mut k, mut v] = apart[..] else { return Err(Failure::refused("takes three parts")) };
    let mut offset = Dim::ZERO;
    if let Some(past) = past {
        offset = cx.shape(past)?.get(3).cloned().unwrap_or(Dim::ZERO);
        let mut half = |i: i64| -> Result<ValueId, Failure> {
            let p = cx.range_of(past, 0, Dim::from(i), Dim::from(i + 1), 1)?;
            Ok(cx.b().squeeze(p, &[0])?)
        };
        let (past_k, past_v) = (half(0)?, half(1)?);
        (k, v) = (cx.b().concat(&[past_k, k], 2)?, cx.b().concat(&[past_v, v], 2)?);
    }
    let out = attend_past(cx, [q, k, v], (mask, added), causal.then_some(offset))?;
    let mut results = vec![out];
    if cx.wants(1) {
        results.push(cx.b().stack(&[k, v], 0)?);
    }
    Ok(results)
}

/// Projected operands `[b, s, h · d]`; keys and values of another sequence may have their heads apart.
fn multi_head(cx: &mut NodeCx<'_, '_>) -> Out {
    let heads = cx.need_int_attr("num_heads")?;
    let causal = cx.flag("unidirectional", false)?;
    if cx.has(8) || cx.has(9) {
        return Err(Failure::unsupported("shared caches and beams inside MultiHeadAttention"));
    }
    let query = cx.input(0)?;
    let qs = cx.shape(query)?;
    // The bias of the projections, one part after another.
    let bias = cx.opt(3)?;
    let biased = |cx: &mut NodeCx<'_, '_>, x: ValueId, at: Dim| -> Result<ValueId, Failure> {
        let Some(bias) = bias else { return Ok(x) };
        let n = cx.shape(x)?.last().cloned().unwrap_or(Dim::ONE);
        let part = cx.range_of(bias, 0, at.clone(), at + n, 1)?;
        Ok(cx.b().add(x, part)?)
    };
    let [q, mut k, mut v] = match (cx.opt(1)?, cx.opt(2)?) {
        (Some(key), Some(value)) => {
            let hidden = qs.last().cloned().unwrap_or(Dim::ONE);
            let q = biased(cx, query, Dim::ZERO)?;
            let q = split_heads(cx, q, heads)?;
            if cx.rank(key)? == 4 {
                [q, key, value]
            } else {
                let key = biased(cx, key, hidden.clone())?;
                let value = biased(cx, value, hidden * 2)?;
                [q, split_heads(cx, key, heads)?, split_heads(cx, value, heads)?]
            }
        }
        (packed, None) => {
            // Parts of each head beside each other: of all three, or of keys and values.
            let (first, from) = match packed {
                Some(_) => (query, 0),
                None => (packed_part(cx, query, 0)?, 1),
            };
            let of = packed.unwrap_or(query);
            let (key, value) = (packed_part(cx, of, from)?, packed_part(cx, of, from + 1)?);
            let hidden = cx.shape(first)?.last().cloned().unwrap_or(Dim::ONE);
            let q = biased(cx, first, Dim::ZERO)?;
            let key = biased(cx, key, hidden.clone())?;
            let value = biased(cx, value, hidden * 2)?;
            [split_heads(cx, q, heads)?, split_heads(cx, key, heads)?, split_heads(cx, value, heads)?]
        }
        (None, Some(_)) => return Err(Failure::refused("values are given without keys")),
    };
    let mut offset = Dim::ZERO;
    if let (Some(past_k), Some(past_v)) = (cx.opt(6)?, cx.opt(7)?) {
        offset = cx.shape(past_k)?.get(2).cloned().unwrap_or(Dim::ZERO);
        (k, v) = (cx.b().concat(&[past_k, k], 2)?, cx.b().concat(&[past_v, v], 2)?);
    }
    if cx.wants(3) {
        return Err(Failure::unsupported("scores as a result"));
    }
    let (mask, bias) = (cx.opt(4)?, cx.opt(5)?);
    Ok(vec![attend_past(cx, [q, k, v], (mask, bias), causal.then_some(offset))?, k, v])
}

/// Attention of queries to keys with those of the past in front. With an offset, causal: the first query stands there.
fn attend_past(
    cx: &mut NodeCx<'_, '_>,
    [q, k, v]: [ValueId; 3],
    (mask, bias): (Option<ValueId>, Option<ValueId>),
    causal: Option<Dim>,
) -> Result<ValueId, Failure> {
    let (s, t) = (cx.shape(q)?[2].clone(), cx.shape(k)?[2].clone());
    let mask = mask.map(|m| mask_of(cx, m, q, &t)).transpose()?;
    let added = sum(cx, mask, bias)?;
    let allowed = match causal {
        Some(offset) => {
            let offset = cx.b().from_dim(offset)?;
            Some(reach(cx, (&s, &t), offset, None)?)
        }
        None => None,
    };
    let scale = scale_of(cx, q)?;
    Heads { q, k, v, added, allowed, softcap: 0.0 }.attend(cx, scale)
}

/// Rotates `[b, h, s, d]` by rows of tables at positions that broadcast to `[b, s]`.
pub(super) fn rotate(
    cx: &mut NodeCx<'_, '_>,
    x: ValueId,
    positions: ValueId,
    tables: [ValueId; 2],
    interleaved: bool,
) -> Result<ValueId, Failure> {
    let half = cx.shape(tables[0])?.last().cloned().unwrap_or(Dim::ONE);
    let mut rows = Vec::new();
    for t in tables {
        let r = cx.b().gather(t, positions, 0)?;
        rows.push(cx.b().expand_dims(r, &[1])?);
    }
    let whole = cx.shape(x)?.last().cloned().unwrap_or(Dim::ONE);
    let part = (&half * 2).as_const().filter(|&n| whole.as_const() != Some(n));
    Ok(cx.b().rotary_embedding(x, rows[0], rows[1], interleaved, part)?)
}

fn rotary(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, positions, cos, sin) = (cx.input(0)?, cx.input(1)?, cx.input(2)?, cx.input(3)?);
    let interleaved = cx.flag("interleaved", false)?;
    cx.ignore(&["rotary_embedding_dim"]);
    if cx.flag("is_packed_batching", false)? || cx.float("scale", 1.0)? != 1.0 {
        return Err(Failure::unsupported("ragged batches or a scale"));
    }
    let shape = cx.shape(x)?;
    let flat = shape.rank() == 3;
    if !flat && shape.rank() != 4 {
        return Err(Failure::refused(format!("the operand must have three or four axes, got {shape}")));
    }
    let heads = match cx.int("num_heads", 0)? {
        0 => {
            let width = cx.shape(cos)?.last().cloned().unwrap_or(Dim::ONE) * 2;
            shape.last().cloned().unwrap_or(Dim::ONE).floor_div(width).as_const()
        }
        n => Some(n),
    };
    let x4 = match heads {
        _ if !flat => x,
        Some(n) => split_heads(cx, x, n)?,
        None => return Err(Failure::refused("the number of heads must be known")),
    };
    let mut positions = cx.b().convert(positions, DType::I64)?;
    if cx.rank(positions)? == 1 {
        // The first position; the others follow.
        let s = cx.shape(x4)?[2].clone();
        let steps = cx.b().iota(DType::I64, [Dim::ONE, s], 1)?;
        let first = cx.b().reshape(positions, [1i64, 1])?;
        positions = cx.b().add(first, steps)?;
    }
    let y = rotate(cx, x4, positions, [cos, sin], interleaved)?;
    Ok(vec![if flat { merge_heads(cx, y)? } else { y }])
}

/// Widths of queries, keys and values that lie side by side along the last axis.
pub(super) fn parts_of(cx: &mut NodeCx<'_, '_>, y: ValueId) -> Result<Vec<Dim>, Failure> {
    let width = cx.shape(y)?.last().cloned().unwrap_or(Dim::ONE);
    match cx.opt_ints("qkv_hidden_sizes")? {
        Some(s) if s.len() == 3 => Ok(s.into_iter().map(Dim::from).collect()),
        Some(s) => Err(Failure::refused(format!("attribute `qkv_hidden_sizes` has {} entries, not 3", s.len()))),
        None => Ok(vec![width.floor_div(3); 3]),
    }
}
