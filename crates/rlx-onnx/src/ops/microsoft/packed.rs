//! Sequences of unlike lengths without their padding: rows of all of them one after another.
//!
//! Offsets `[batch, sequence]` say where each row stands among the padded ones: first those of the rows that are there, then those of the
//! padding. Ends `[batch + 1]` add up the lengths.

use rlx_ir::ops::indexing::Combiner;
use rlx_ir::ops::reduction::{CumKind, ReduceKind};
use rlx_ir::{DType, Dim, ValueId};

use super::super::attention::split_heads;
use super::super::context::{Failure, NodeCx, Out};
use super::super::{OpEntry, ms};
use super::attention::{Heads, parts_of, scale_of};

pub(super) const OPS: &[OpEntry] = &[
    ms("RemovePadding", remove_padding),
    ms("RestorePadding", restore_padding),
    ms("PackedAttention", packed_attention),
    ms("PackedMultiHeadAttention", packed_multi_head),
];

/// Rows `[batch, sequence, width]` of which the first `lengths[b]` of each sequence are kept.
fn remove_padding(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, lengths) = (cx.input(0)?, cx.input(1)?);
    let shape = cx.shape(x)?;
    let [batch, steps, width] = shape.dims() else {
        return Err(Failure::refused(format!("rows must have axes [batch, sequence, width], got {shape}")));
    };
    let all = batch * steps;
    let dtype = cx.dtype(lengths)?;
    let lengths = cx.b().convert(lengths, DType::I64)?;
    let column = cx.along(lengths, 0, 2)?;
    let b = cx.b();
    let step = b.iota(DType::I64, [batch.clone(), steps.clone()], 1)?;
    let padding = b.ge(step, column)?;
    let padding = b.convert(padding, DType::I32)?;
    let padding = b.reshape(padding, [all.clone()])?;
    // Sorting keeps the order of equal ones.
    let (_, order) = b.sort(padding, 0, false)?;
    let ends = b.cumulative(lengths, CumKind::Sum, 0, false, false)?;
    let count = b.reduce(lengths, ReduceKind::Sum, &[0], true)?;
    let longest = b.reduce(lengths, ReduceKind::Max, &[0], true)?;
    let start = b.scalar(DType::I64, 0.0)?;
    let start = b.reshape(start, [1i64])?;
    let ends = b.concat(&[start, ends], 0)?;
    let count = cx.sizes(count, "the number of rows")?;
    let count = count.into_iter().next().ok_or_else(|| Failure::refused("there is no number of rows"))?;
    let kept = cx.range_of(order, 0, Dim::ZERO, count, 1)?;
    let rows = cx.b().reshape(x, [all, width.clone()])?;
    let rows = cx.b().gather(rows, kept, 0)?;
    let b = cx.b();
    let order = b.reshape(order, [batch.clone(), steps.clone()])?;
    Ok(vec![rows, b.convert(order, dtype)?, b.convert(ends, dtype)?, b.convert(longest, dtype)?])
}

/// Offsets of the rows that are there: as many as `rows` has.
fn places(cx: &mut NodeCx<'_, '_>, rows: ValueId, offsets: ValueId) -> Result<ValueId, Failure> {
    let (count, all) = (cx.shape(rows)?.first().cloned().unwrap_or(Dim::ZERO), cx.shape(offsets)?.numel());
    let flat = cx.b().reshape(offsets, [all])?;
    let flat = cx.b().convert(flat, DType::I64)?;
    cx.range_of(flat, 0, Dim::ZERO, count, 1)
}

/// Rows put where they belong among zeros: `[batch, sequence, width]`.
fn restored(cx: &mut NodeCx<'_, '_>, rows: ValueId, offsets: ValueId) -> Result<ValueId, Failure> {
    let (shape, os) = (cx.shape(rows)?, cx.shape(offsets)?);
    let ([count, width], [batch, steps]) = (shape.dims(), os.dims()) else {
        return Err(Failure::refused(format!("rows {shape} and offsets {os} must have two axes each")));
    };
    let at = places(cx, rows, offsets)?;
    let zero = cx.scalar_like(rows, 0.0)?;
    let b = cx.b();
    let at = b.reshape(at, [count.clone(), Dim::ONE])?;
    let blank = b.broadcast_to(zero, [batch * steps, width.clone()])?;
    let y = b.scatter_nd(blank, at, rows, Combiner::Set)?;
    Ok(b.reshape(y, [batch.clone(), steps.clone(), width.clone()])?)
}

fn restore_padding(cx: &mut NodeCx<'_, '_>) -> Out {
    let (rows, offsets) = (cx.input(0)?, cx.input(1)?);
    Ok(vec![restored(cx, rows, offsets)?])
}

/// Attention of rows to those of their own sequence, as rows again.
fn attend(
    cx: &mut NodeCx<'_, '_>,
    parts: [ValueId; 3],
    heads: i64,
    (offsets, ends): (ValueId, ValueId),
    added: Option<ValueId>,
) -> Out {
    let mut apart = [parts[0]; 3];
    for (to, from) in apart.iter_mut().zip(parts) {
        let padded = restored(cx, from, offsets)?;
        *to = split_heads(cx, padded, heads)?;
    }
    let [q, k, v] = apart;
    let steps = cx.shape(k)?[2].clone();
    let n = cx.shape(ends)?.numel();
    let b = cx.b();
    let ends = b.convert(ends, DType::I64)?;
    let after = cx.range_of(ends, 0, Dim::ONE, n.clone(), 1)?;
    let before = cx.range_of(ends, 0, Dim::ZERO, n - 1, 1)?;
    let lengths = cx.b().sub(after, before)?;
    let lengths = cx.along(lengths, 0, 4)?;
    let key = cx.b().iota(DType::I64, [Dim::ONE, Dim::ONE, Dim::ONE, steps], 3)?;
    let allowed = Some(cx.b().lt(key, lengths)?);
    // Hidden keys are left out altogether, whatever number the original adds.
    cx.ignore(&["mask_filter_value"]);
    let scale = scale_of(cx, q)?;
    let y = Heads { q, k, v, added, allowed, softcap: 0.0 }.attend(cx, scale)?;
    let shape = cx.shape(y)?;
    let at = places(cx, parts[0], offsets)?;
    let flat = cx.b().reshape(y, [&shape[0] * &shape[1], shape[2].clone()])?;
    Ok(vec![cx.b().gather(flat, at, 0)?])
}

fn packed_attention(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, w, bias) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let (offsets, ends, added) = (cx.input(3)?, cx.input(4)?, cx.opt(5)?);
    let heads = cx.need_int_attr("num_heads")?;
    let y = cx.b().matmul(x, w)?;
    let y = cx.b().add(y, bias)?;
    let sizes = parts_of(cx, y)?;
    match cx.b().split(y, 1, &sizes)?[..] {
        [q, k, v] => attend(cx, [q, k, v], heads, (offsets, ends), added),
        _ => Err(Failure::refused("takes three parts")),
    }
}

fn packed_multi_head(cx: &mut NodeCx<'_, '_>) -> Out {
    let query = cx.input(0)?;
    let (offsets, ends, added) = (cx.input(4)?, cx.input(5)?, cx.opt(6)?);
    let heads = cx.need_int_attr("num_heads")?;
    let mut parts = match (cx.opt(1)?, cx.opt(2)?) {
        (Some(k), Some(v)) => [query, k, v],
        _ => {
            let shape = cx.shape(query)?;
            let [count, n, _, d] = shape.dims() else {
                return Err(Failure::refused(format!(
                    "packed heads must have axes [rows, heads, 3, size], got {shape}"
                )));
            };
            let (count, width) = (count.clone(), n * d);
            let mut part = |i: i64| -> Result<ValueId, Failure> {
                let p = cx.range_of(query, 2, Dim::from(i), Dim::from(i + 1), 1)?;
                Ok(cx.b().reshape(p, [count.clone(), width.clone()])?)
            };
            [part(0)?, part(1)?, part(2)?]
        }
    };
    if let Some(bias) = cx.opt(3)? {
        let mut at = Dim::ZERO;
        for p in &mut parts {
            let n = cx.shape(*p)?.last().cloned().unwrap_or(Dim::ONE);
            let end = &at + &n;
            let part = cx.range_of(bias, 0, at, end.clone(), 1)?;
            *p = cx.b().add(*p, part)?;
            at = end;
        }
    }
    attend(cx, parts, heads, (offsets, ends), added)
}
