//! Attention of any float dtype, a row at a time in f64: right first.
//!
//! A key that is hidden, or whose weight is zero, does not touch the result, whatever its value is.

use super::AttentionPlan;
use crate::buffers::{BoundAccess, Ptr, RunCx};
use crate::tile::{Work, io, scratch};

/// Runs an attention.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(p: &AttentionPlan, run: &RunCx<'_>) {
    run.region.parallel_for(p.batch * p.heads * p.queries, &|index| {
        let (b, rest) = (index / (p.heads * p.queries), index % (p.heads * p.queries));
        // SAFETY: the caller's promise; each row of the result is one task's alone.
        unsafe { row(p, run, b, rest / p.queries, rest % p.queries) };
    });
}

/// The result of one query.
/// # Safety
/// As [`crate::map::run`]; no other thread writes this row.
pub unsafe fn row(p: &AttentionPlan, run: &RunCx<'_>, b: usize, h: usize, i: usize) {
    let base = |a: &BoundAccess| Ptr(run.bufs.base(a.buffer));
    let kv = h / (p.heads / p.kv_heads.max(1)).max(1);
    let position = i as i64 + p.keys as i64 - p.queries as i64;
    let hides = |j: i64| (p.causal && j > position) || p.window.is_some_and(|w| (position - j).abs() >= w);
    let q = p.q.start([b, h, i]);
    scratch::with((p.keys + p.value_dim).max(1) * size_of::<f64>(), |memory| {
        // SAFETY: the memory is aligned for f64 and has room for keys and values; walks were checked at bind.
        unsafe {
            let start = memory.as_mut_ptr().cast::<f64>();
            let scores = std::slice::from_raw_parts_mut(start, p.keys);
            let result = std::slice::from_raw_parts_mut(start.add(p.keys), p.value_dim);
            let at = |a: &BoundAccess, position: i64| io::read_f64(a.dtype, base(a).get(), position);
            for (j, score) in scores.iter_mut().enumerate() {
                let mask = p.mask.as_ref().map_or(0.0, |(boolean, a)| {
                    let seen = a.start([b, h, i, j]);
                    if !*boolean {
                        at(a, seen)
                    } else if io::read_i128(a.dtype, base(a).get(), seen) != 0 {
                        0.0
                    } else {
                        f64::NEG_INFINITY
                    }
                });
                *score = f64::NEG_INFINITY;
                if hides(j as i64) || mask == f64::NEG_INFINITY {
                    continue;
                }
                let k = p.k.start([b, kv, j]);
                let product = |d: i64| at(&p.q, q + d * p.q.strides[3]) * at(&p.k, k + d * p.k.strides[3]);
                let x = (0..p.head_dim as i64).map(product).sum::<f64>() * p.scale;
                *score = p.softcap.map_or(x, |c| c * (x / c).tanh()) + mask;
            }
            result.fill(0.0);
            let nothing = p.can_hide() && scores.iter().all(|&x| x == f64::NEG_INFINITY);
            if !nothing {
                // NaN is no maximum, but makes the sum NaN.
                let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                scores.iter_mut().for_each(|x| *x = (*x - most).exp());
                let sum: f64 = scores.iter().sum();
                for (j, &weight) in scores.iter().enumerate().filter(|(_, w)| **w != 0.0) {
                    let v = p.v.start([b, kv, j]);
                    for (d, r) in result.iter_mut().enumerate() {
                        *r += weight / sum * at(&p.v, v + d as i64 * p.v.strides[3]);
                    }
                }
            }
            let to = p.out.start([b, h, i]);
            for (d, &value) in result.iter().enumerate() {
                let (narrow, wide) = (value as f32, value);
                let slot: *const u8 = match Work::of(p.out.dtype) {
                    Some(Work::F32) => (&raw const narrow).cast(),
                    _ => (&raw const wide).cast(),
                };
                let one = io::Block { sizes: &[], strides: &[] };
                io::store(p.out.dtype, base(&p.out).get(), to + d as i64 * p.out.strides[3], one, slot);
            }
        }
    });
}
