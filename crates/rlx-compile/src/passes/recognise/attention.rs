//! Attention: `softmax(q·kᵀ·scale + mask)·v`, through what exporters put around it.
//!
//! Taken in: a scale on the scores, on q, on k or on both; a tanh cap; additive masks and selections, causality among them; keys and
//! values repeated for grouped heads; transposes from `[b, s, h, d]`, in which case the result is made in that layout too, so that the
//! transposes and reshapes around it remain mere views.

use rlx_ir::ops::elementwise::{Binary, Elementwise, Unary};
use rlx_ir::ops::neural::{Attention, AttnLayout, MaskKind, Softmax};
use rlx_ir::ops::shape::{Reshape, Transpose};
use rlx_ir::ops::{Contraction, Neural, ShapeOp};
use rlx_ir::{Dim, IrError, Op, ValueId};

use super::look::Look;
use super::mask::{self, Part};
use super::{Found, Recogniser};

/// What is done to the product of q and k before the softmax.
struct Scores {
    q: ValueId,
    k: ValueId,
    /// Whether the features of k are its last axis.
    k_features_last: bool,
    scale: f64,
    cap: Option<f64>,
    /// Each with the rank that scores had where it was joined to them.
    masks: Vec<(Part, usize)>,
    /// Batch and heads, where scores of rank 3 were seen as scores of rank 4 for a mask.
    heads: Option<[Dim; 2]>,
    /// Batch and windows, where scores of rank 4 were seen as scores of rank 5 for a mask of each window.
    windows: Option<[Dim; 2]>,
}

/// A product over batch and head axes (`[0, 1]`, or `[0]` for both in one): the operands, and the axis of the right one that is
/// contracted, counted from the last.
fn head_product(l: Look<'_>, v: ValueId) -> Option<(ValueId, ValueId, usize)> {
    let (Op::Contraction(Contraction::DotGeneral(d)), &[a, b]) = l.op(v)? else { return None };
    let (rank, other) = (l.shape(a)?.rank(), l.shape(b)?.rank());
    let &[contracted] = &d.rhs_contract[..] else { return None };
    let batch: Vec<usize> = (0..rank.checked_sub(2)?).collect();
    let heads = d.lhs_batch == batch && d.rhs_batch == batch && d.lhs_contract == [rank - 1];
    (matches!(rank, 3 | 4) && other == rank && heads && d.accumulate.is_none()).then_some((a, b, rank - 1 - contracted))
}

/// True if a mask that was joined to scores `x` left its axes but perhaps the last two as they are. Those may have become sizes of which
/// it is only known that they broadcast: of queries, which are then spread, and of keys, which the product with the values holds to theirs.
fn widened_rows(l: Look<'_>, x: ValueId, v: ValueId) -> bool {
    let (Some(from), Some(to)) = (l.shape(x), l.shape(v)) else { return false };
    let n = from.rank();
    from == to || (n >= 3 && to.rank() == n && from[..n - 2] == to[..n - 2])
}

/// The way from the softmax down to the product; `scale` multiplies all that follows.
fn scores(l: Look<'_>, v: ValueId, scale: f64, depth: usize) -> Option<Scores> {
    if depth > 8 {
        return None;
    }
    if let Some((q, k, contracted)) = head_product(l, v) {
        let k_features_last = contracted == 0;
        return Some(Scores { q, k, k_features_last, scale, cap: None, masks: Vec::new(), heads: None, windows: None });
    }
    if let (Op::ShapeOp(ShapeOp::Reshape(_)), &[x]) = l.op(v)? {
        return match (l.shape(x)?.dims(), l.shape(v)?.dims()) {
            // From and to [batch·heads, s, t], where the mask is added to [batch, heads, s, t].
            ([b, h, from @ ..], [_, to @ ..]) | ([_, from @ ..], [b, h, to @ ..]) if from.len() == 2 && from == to => {
                let inner = scores(l, x, scale, depth + 1)?;
                let heads = [b.clone(), h.clone()];
                inner.heads.as_ref().is_none_or(|h| *h == heads).then_some(Scores { heads: Some(heads), ..inner })
            }
            // From and to [batch·windows, heads, s, t].
            ([b, w, from @ ..], [_, to @ ..]) | ([_, from @ ..], [b, w, to @ ..]) if from.len() == 3 && from == to => {
                let inner = scores(l, x, scale, depth + 1)?;
                let windows = [b.clone(), w.clone()];
                let same = inner.windows.as_ref().is_none_or(|w| *w == windows);
                same.then_some(Scores { windows: Some(windows), ..inner })
            }
            _ => None,
        };
    }
    if let Some((x, c)) = l.scaled(v) {
        // cap·tanh(x/cap)
        if let Some(u) = l.unary(x, Unary::Tanh) {
            let inner = scores(l, u, 1.0, depth + 1)?;
            let plain = inner.cap.is_none() && inner.masks.is_empty() && scale == 1.0 && c > 0.0;
            return plain.then_some(Scores { scale: inner.scale * c, cap: Some(c), ..inner });
        }
        return scores(l, x, scale * c, depth + 1);
    }
    for (x, m) in l.either(v, Binary::Add) {
        if widened_rows(l, x, v)
            && let Some(mut s) = scores(l, x, scale, depth + 1)
        {
            s.masks.push((Part::Add(m, scale), l.shape(v)?.rank()));
            return Some(s);
        }
    }
    if let (Op::Elementwise(Elementwise::Select), &[cond, a, b]) = l.op(v)? {
        for (x, hidden, keep) in [(a, b, true), (b, a, false)] {
            let Some(n) = l.number(hidden).map(|n| n * scale).filter(|&n| n <= mask::LOW) else { continue };
            if widened_rows(l, x, v)
                && let Some(mut s) = scores(l, x, scale, depth + 1)
            {
                s.masks.push((Part::Select { cond, keep, hidden: n }, l.shape(v)?.rank()));
                return Some(s);
            }
        }
    }
    None
}

/// The softmax over keys, also where rows of NaN (no key at all) are replaced by zeros, and where batch and heads become one axis after it.
fn probabilities(l: Look<'_>, v: ValueId) -> Option<ValueId> {
    match l.op(v)? {
        (Op::ShapeOp(ShapeOp::Reshape(_)), &[p]) => match (l.shape(p)?.dims(), l.shape(v)?.dims()) {
            ([_, _, from @ ..], [_, to @ ..]) if from.len() == 2 && from == to => probabilities(l, p),
            _ => None,
        },
        (Op::Neural(Neural::Softmax(Softmax { axis, log: false })), &[s]) if *axis + 1 == l.shape(v)?.rank() => Some(s),
        (Op::Elementwise(Elementwise::Select), &[cond, zero, p]) => {
            let cleaned = l.unary(cond, Unary::IsNan) == Some(p) && l.number(zero) == Some(0.0);
            if cleaned { probabilities(l, p) } else { None }
        }
        _ => None,
    }
}

/// The rule.
pub fn attention(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let Some((p, values, 1)) = head_product(l, v) else { return Ok(None) };
    let Some(under) = probabilities(l, p) else { return Ok(None) };
    let Some(s) = scores(l, under, 1.0, 0) else {
        return r.nearly("what its softmax reads is no product of queries and keys with a scale and masks");
    };
    let (Some(dims), Some(result)) = (l.shape(p).map(|s| s.to_vec()), l.shape(v).cloned()) else { return Ok(None) };
    // Both products see batch and heads alike.
    if l.shape(s.q).map(|q| q.rank()) != Some(dims.len()) {
        return Ok(None);
    }
    let (q, a) = unscaled(r, s.q)?;
    let (k, b) = unscaled(r, s.k)?;
    let k = if s.k_features_last { k } else { transposed(r, k)? };
    // Batch and heads as two axes, whatever they were.
    let (dims, [q, k, values]) = match &dims[..] {
        [all, from, to] => {
            let [b, h] = s.heads.unwrap_or([all.clone(), Dim::ONE]);
            let four = [b, h, from.clone(), to.clone()];
            let values = [q, k, values].map(|v| split_heads(r, v, &four[..2]));
            let [q, k, v] = values;
            (four.to_vec(), [q?, k?, v?])
        }
        _ => (dims, [q, k, values]),
    };
    let (k, values) = match (ungrouped(r, k)?, ungrouped(r, values)?) {
        (Some(k), Some(v)) => (k, v),
        _ => (k, values),
    };
    let mut masks = Vec::new();
    for (mut m, rank) in s.masks {
        let (Part::Add(v, _) | Part::Select { cond: v, .. }) = &mut m;
        if rank == 3 && r.rw.b.shape(*v)?.rank() == 3 {
            match per_head(r, *v, &dims[..2])? {
                Some(apart) => *v = apart,
                None => return Ok(None),
            }
        }
        if let Some(windows) = &s.windows
            && rank == 5
            && r.rw.b.shape(*v)?.rank() >= 4
        {
            match per_window(r, *v, windows)? {
                Some(flat) => *v = flat,
                None => return Ok(None),
            }
        }
        masks.push(m);
    }
    let keys = r.rw.b.shape(values)?[2].clone();
    let Some(mask) = mask::combined(r, masks, &dims, &keys, q)? else { return Ok(None) };
    let mut spread = r.rw.b.shape(q)?.into_dims();
    let q = if spread[2] == dims[2] {
        q
    } else {
        spread[2] = dims[2].clone();
        r.rw.b.broadcast_to(q, spread)?
    };
    let op = Attention {
        causal: mask.causal,
        softcap: s.cap.map(Into::into),
        mask: mask.operand.map_or(MaskKind::None, |(_, kind)| kind),
        ..Attention::new(AttnLayout::Bhsd, s.scale * a * b)
    };
    let (op, [q, k, values]) = match swapped(r, [q, k, values]) {
        Some(operands) => (Attention { layout: AttnLayout::Bshd, ..op }, operands),
        None => (op, [q, k, values]),
    };
    let layout = op.layout;
    let made = r.rw.b.attention(op, q, k, values, mask.operand.map(|(m, _)| m))?;
    let made = if layout == AttnLayout::Bshd { r.rw.b.transpose(made, &[0, 2, 1, 3])? } else { made };
    if result.rank() == 3 { r.rw.b.reshape(made, result.into_dims()).map(Some) } else { Ok(Some(made)) }
}

/// A mask `[batch, windows, heads, s, t]`, sizes of 1 standing for any and the first left out or not, as `[batch·windows, heads, s, t]`.
fn per_window(r: &mut Recogniser<'_>, v: ValueId, [b, w]: &[Dim; 2]) -> Found {
    let mut shape = r.rw.b.shape(v)?.into_dims();
    if shape.len() == 4 {
        shape.insert(0, Dim::ONE);
    }
    let [_, _, inner @ ..] = &shape[..] else { return Ok(None) };
    if shape[0].bcast(b) != *b || shape[1].bcast(w) != *w {
        return Ok(None);
    }
    let wide: Vec<Dim> = [b, w].into_iter().chain(inner).cloned().collect();
    let flat: Vec<Dim> = [b * w].into_iter().chain(inner.iter().cloned()).collect();
    let all = r.rw.b.broadcast_to(v, wide)?;
    r.rw.b.reshape(all, flat).map(Some)
}

/// A mask of scores `[batch·heads, s, t]`, sizes of 1 standing for any, as one of scores `[batch, heads, s, t]`.
fn per_head(r: &mut Recogniser<'_>, v: ValueId, heads: &[Dim]) -> Found {
    let shape = r.rw.b.shape(v)?.into_dims();
    let [all, inner @ ..] = &shape[..] else { return Ok(None) };
    let outer = match heads {
        _ if *all == Dim::ONE => vec![Dim::ONE, Dim::ONE],
        [b, h] if *all == b * h => vec![b.clone(), h.clone()],
        _ => return Ok(None),
    };
    let apart: Vec<Dim> = outer.into_iter().chain(inner.iter().cloned()).collect();
    r.rw.b.reshape(v, apart).map(Some)
}

/// `[batch·heads, s, d]` as `[batch, heads, s, d]`.
fn split_heads(r: &mut Recogniser<'_>, v: ValueId, heads: &[Dim]) -> Result<ValueId, IrError> {
    let shape = r.rw.b.shape(v)?;
    let to: Vec<Dim> = heads.iter().chain(shape.iter().skip(1)).cloned().collect();
    match r.look().op(v) {
        Some((Op::ShapeOp(ShapeOp::Reshape(_)), &[x])) if r.look().shape(x).is_some_and(|s| s.dims() == to) => Ok(x),
        _ => r.rw.b.reshape(v, to),
    }
}

/// A value without a literal factor that was multiplied in before transposes and reshapes, and the factor.
fn unscaled(r: &mut Recogniser<'_>, v: ValueId) -> Result<(ValueId, f64), IrError> {
    let (mut views, mut at): (Vec<Op>, _) = (Vec::new(), v);
    loop {
        let l = r.look();
        if let Some((x, c)) = l.scaled(at).filter(|(_, c)| c.is_finite() && *c != 0.0) {
            let rebuilt = views.into_iter().rev().try_fold(x, |x, op| r.rw.b.op1(op, &[x]))?;
            return Ok((rebuilt, c));
        }
        match l.op(at) {
            Some((op @ Op::ShapeOp(ShapeOp::Reshape(_) | ShapeOp::Transpose(_)), &[x])) if views.len() < 8 => {
                views.push(op.clone());
                at = x;
            }
            _ => return Ok((v, 1.0)),
        }
    }
}

/// The last two axes swapped, merged with the transpose that makes the value.
fn transposed(r: &mut Recogniser<'_>, v: ValueId) -> Result<ValueId, IrError> {
    let (x, mut perm) = match r.look().op(v) {
        Some((Op::ShapeOp(ShapeOp::Transpose(Transpose { perm })), &[x])) => (x, perm.clone()),
        _ => (v, (0..r.rw.b.shape(v)?.rank()).collect()),
    };
    let n = perm.len();
    if n >= 2 {
        perm.swap(n - 2, n - 1);
    }
    if perm.iter().copied().eq(0..n) { Ok(x) } else { r.rw.b.transpose(x, &perm) }
}

/// The keys or values `[b, g, t, d]` that were repeated to `[b, g·n, t, d]`.
fn ungrouped(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let Some((Op::ShapeOp(ShapeOp::Reshape(Reshape { dims })), &[spread])) = l.op(v) else { return Ok(None) };
    let Some((Op::ShapeOp(ShapeOp::BroadcastTo(wide)), &[x])) = l.op(spread) else { return Ok(None) };
    let ([b, g, n, t, d], Some(from)) = (&wide.dims[..], l.shape(x)) else { return Ok(None) };
    let narrow = [b.clone(), g.clone(), Dim::ONE, t.clone(), d.clone()];
    if from.dims() != narrow || dims[..] != [b.clone(), g * n, t.clone(), d.clone()] {
        return Ok(None);
    }
    let to = [b.clone(), g.clone(), t.clone(), d.clone()];
    match l.op(x) {
        Some((Op::ShapeOp(ShapeOp::Reshape(_)), &[y])) if l.shape(y).is_some_and(|s| s.dims() == to) => Ok(Some(y)),
        _ => r.rw.b.reshape(x, to).map(Some),
    }
}

/// The operands `[b, s, h, d]` of three transposes to `[b, h, s, d]`.
fn swapped(r: &Recogniser<'_>, values: [ValueId; 3]) -> Option<[ValueId; 3]> {
    let l = r.look();
    let under = |v: ValueId| match l.op(v)? {
        (Op::ShapeOp(ShapeOp::Transpose(t)), &[x]) if t.perm == [0, 2, 1, 3] => Some(x),
        _ => None,
    };
    let [q, k, v] = values;
    Some([under(q)?, under(k)?, under(v)?])
}
