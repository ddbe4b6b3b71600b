//! Counts of n-grams. Tokens are integers; strings are not supported yet.

use rlx_ir::ops::indexing::Combiner;
use rlx_ir::ops::reduction::ReduceKind;
use rlx_ir::{DType, Dim, Tensor, ValueId};

use super::context::{Failure, NodeCx, Out};
use super::{OpEntry, op};

pub(super) const OPS: &[OpEntry] = &[op("TfIdfVectorizer", 9, tf_idf)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Weighting {
    Tf,
    Idf,
    TfIdf,
}

/// Comparisons of tokens that are written out.
const MOST_COMPARISONS: i64 = 1 << 11;

/// Results of a row.
const MOST_RESULTS: i64 = 1 << 24;

/// For each row of tokens, how often each n-gram of the pool occurs, with up to so many tokens left out between its own.
fn tf_idf(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    if cx.dtype(x)? == DType::Str || cx.attr("pool_strings").is_some() {
        return Err(Failure::unsupported("strings"));
    }
    let need = |cx: &NodeCx<'_, '_>, name: &'static str| {
        cx.opt_ints(name)?.ok_or_else(|| Failure::refused(format!("attribute `{name}` is missing")))
    };
    let (pool, counts, places) = (need(cx, "pool_int64s")?, need(cx, "ngram_counts")?, need(cx, "ngram_indexes")?);
    let (shortest, longest) = (cx.need_int_attr("min_gram_length")?, cx.need_int_attr("max_gram_length")?);
    let skips = cx.need_int_attr("max_skip_count")?;
    let words = [("TF", Weighting::Tf), ("IDF", Weighting::Idf), ("TFIDF", Weighting::TfIdf)];
    let mode = cx.word("mode", "", &words)?;
    let weights = cx.opt_floats("weights")?;
    let size = places.iter().copied().max().map_or(0, |m| m.saturating_add(1));
    // Each length, skip and token of an n-gram is a comparison of its own.
    let lengths = longest.clamp(0, counts.len() as i64);
    let work = lengths.saturating_mul(lengths).saturating_mul(skips.saturating_add(1));
    if shortest < 1 || longest < 1 || skips < 0 || work > MOST_COMPARISONS || size > MOST_RESULTS {
        return Err(Failure::refused(format!(
            "n-grams of {shortest} to {longest} tokens with {skips} skips and {size} results are too many or none"
        )));
    }
    let shape = cx.shape(x)?;
    let rows = match shape.dims() {
        [c] => [Dim::ONE, c.clone()],
        [n, c] => [n.clone(), c.clone()],
        _ => return Err(Failure::refused(format!("tokens must have one or two axes, got {shape}"))),
    };
    let [n, c] = rows.clone();
    let x = cx.b().convert(x, DType::I64)?;
    let x = cx.b().reshape(x, rows)?;
    let zero = cx.b().scalar(DType::F32, 0.0)?;
    let mut out = cx.b().broadcast_to(zero, [n.clone(), Dim::from(size)])?;
    let mut seen = 0;
    for (i, &start) in counts.iter().enumerate() {
        let length = i + 1;
        let end = counts.get(i + 1).copied().unwrap_or(pool.len() as i64);
        let part = usize::try_from(start).ok().zip(usize::try_from(end).ok());
        let grams = part.and_then(|(s, e)| pool.get(s..e)).filter(|g| g.len().is_multiple_of(length));
        let grams = grams.ok_or_else(|| Failure::refused("attribute `ngram_counts` does not fit the pool"))?;
        let columns = places.get(seen..seen + grams.len() / length);
        let columns = columns.ok_or_else(|| Failure::refused("attribute `ngram_indexes` is too short"))?;
        seen += columns.len();
        if grams.is_empty() || !(shortest..=longest).contains(&(length as i64)) {
            continue;
        }
        if let Some(p) = columns.iter().find(|p| **p < 0) {
            return Err(Failure::refused(format!("attribute `ngram_indexes` has {p}")));
        }
        let found = occurrences(cx, x, &c, grams, length, if length == 1 { 0 } else { skips })?;
        let columns = cx.ints_constant(columns)?;
        let at = cx.b().broadcast_to(columns, [n.clone(), Dim::from((grams.len() / length) as i64)])?;
        out = cx.b().scatter_elements(out, at, found, 1, Combiner::Add)?;
    }
    if mode != Weighting::Tf {
        // The standard's text has weights in the order of the pool; its reference and ONNX Runtime have them in that of results.
        let mut by_place = vec![1.0f32; size as usize];
        if let Some(w) = weights {
            by_place.iter_mut().zip(&w).for_each(|(slot, &w)| *slot = w as f32);
        }
        let w = cx.b().constant(Tensor::from_slice(&[by_place.len()], &by_place)?)?;
        out = if mode == Weighting::TfIdf {
            cx.b().mul(out, w)?
        } else {
            let there = cx.b().gt(out, zero)?;
            cx.b().select(there, w, zero)?
        };
    }
    if shape.rank() == 1 {
        out = cx.b().reshape(out, [size])?;
    }
    Ok(vec![out])
}

/// How often each n-gram occurs in rows `[n, c]`: `[n, grams]`.
fn occurrences(
    cx: &mut NodeCx<'_, '_>,
    x: ValueId,
    c: &Dim,
    grams: &[i64],
    length: usize,
    skips: i64,
) -> Result<ValueId, Failure> {
    let count = grams.len() / length;
    let mut total = None;
    for skip in 0..=skips {
        let step = skip + 1;
        let starts = (c - (length as i64 - 1) * step).max(Dim::ZERO);
        let mut all = None;
        for k in 0..length {
            let from = Dim::from(k as i64 * step).min(c - &starts);
            let token = cx.range_of(x, 1, from.clone(), from + &starts, 1)?;
            let token = cx.b().expand_dims(token, &[2])?;
            let wanted: Vec<i64> = grams.iter().skip(k).step_by(length).copied().collect();
            let wanted = cx.ints_constant(&wanted)?;
            let same = cx.b().eq(token, wanted)?;
            all = Some(match all {
                Some(a) => cx.b().and(a, same)?,
                None => same,
            });
        }
        let Some(all) = all else { continue };
        let hits = cx.b().convert(all, DType::F32)?;
        let hits = cx.b().reduce(hits, ReduceKind::Sum, &[1], false)?;
        total = Some(match total {
            Some(t) => cx.b().add(t, hits)?,
            None => hits,
        });
    }
    total.ok_or_else(|| Failure::refused(format!("{count} n-grams have no tokens")))
}
