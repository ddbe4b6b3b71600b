//! Scaled dot-product attention.

use crate::buffers::{BindCx, BindError, BoundAccess, Ptr, RunCx, Sizes};
use crate::tile::{Work, io, scratch};
use rlx_compile::lir::AttentionKernel;

/// An attention at concrete sizes.
#[derive(Debug)]
pub struct AttentionPlan {
    batch: usize,
    heads: usize,
    kv_heads: usize,
    queries: usize,
    keys: usize,
    head_dim: usize,
    value_dim: usize,
    q: BoundAccess,
    k: BoundAccess,
    v: BoundAccess,
    out: BoundAccess,
    mask: Option<(bool, BoundAccess)>,
    scale: f64,
    causal: bool,
    window: Option<i64>,
    softcap: Option<f64>,
}

/// Plans an attention.
pub fn plan(k: &AttentionKernel, cx: &BindCx<'_>) -> Result<AttentionPlan, BindError> {
    let s = |d| cx.size(d);
    let (batch, heads, kv_heads) = (s(k.batch)?, s(k.heads)?, s(k.kv_heads)?);
    let (queries, keys) = (s(k.queries)?, s(k.keys)?);
    let (head_dim, value_dim) = (s(k.head_dim)?, s(k.value_dim)?);
    if kv_heads == 0 && heads > 0 || kv_heads > 0 && heads % kv_heads != 0 {
        return Err(format!("{heads} query heads do not divide into groups of {kv_heads} key heads"));
    }
    let mask = match &k.mask {
        Some(m) => Some((m.boolean, cx.access(&m.access, &[batch, heads, queries, keys])?)),
        None => None,
    };
    Ok(AttentionPlan {
        batch,
        heads,
        kv_heads,
        queries,
        keys,
        head_dim,
        value_dim,
        q: cx.access(&k.q, &[batch, heads, queries, head_dim])?,
        k: cx.access(&k.k, &[batch, kv_heads, keys, head_dim])?,
        v: cx.access(&k.v, &[batch, kv_heads, keys, value_dim])?,
        out: cx.access(&k.out, &[batch, heads, queries, value_dim])?,
        mask,
        scale: k.scale.get(),
        causal: k.causal,
        window: k.window,
        softcap: k.softcap.map(|c| c.get()),
    })
}

/// Runs an attention.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(p: &AttentionPlan, run: &RunCx<'_>) {
    let base = |a: &BoundAccess| Ptr(run.bufs.base(a.buffer));
    let (q, k, v, out) = (base(&p.q), base(&p.k), base(&p.v), base(&p.out));
    let mask = p.mask.as_ref().map(|(_, a)| base(a));
    let at = |a: &BoundAccess, i: [usize; 3]| a.offset + (0..3).map(|x| i[x] as i64 * a.strides[x]).sum::<i64>();
    let group = p.heads / p.kv_heads.max(1);
    run.region.parallel_for(p.batch * p.heads * p.queries, &|row| {
        let (b, rest) = (row / (p.heads * p.queries), row % (p.heads * p.queries));
        let (h, i) = (rest / p.queries, rest % p.queries);
        scratch::with((p.keys + p.value_dim) * 8, |memory| {
            let sizes: Sizes = smallvec::smallvec![p.keys, p.value_dim];
            // SAFETY: the memory is aligned for f64 and has room for keys and values; walks were checked at bind, and
            // each row of the result is one task's alone.
            unsafe {
                let scores = std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<f64>(), sizes[0]);
                let result = std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<f64>().add(sizes[0]), sizes[1]);
                let q_row = at(&p.q, [b, h, i]);
                let last = i as i64 + p.keys as i64 - p.queries as i64;
                for (j, score) in scores.iter_mut().enumerate() {
                    let key = j as i64;
                    let hidden = (p.causal && key > last) || p.window.is_some_and(|w| key <= last - w);
                    let m = p.mask.as_ref().zip(mask).map(|((boolean, a), m)| {
                        let pos = at(a, [b, h, i]) + key * a.strides[3];
                        if *boolean {
                            if io::read_i128(a.dtype, m.get(), pos) != 0 { 0.0 } else { f64::NEG_INFINITY }
                        } else {
                            io::read_f64(a.dtype, m.get(), pos)
                        }
                    });
                    let added = if hidden { f64::NEG_INFINITY } else { m.unwrap_or(0.0) };
                    if added == f64::NEG_INFINITY {
                        *score = added;
                        continue;
                    }
                    let k_row = at(&p.k, [b, h / group, j]);
                    let mut sum = 0.0;
                    for d in 0..p.head_dim as i64 {
                        sum += io::read_f64(p.q.dtype, q.get(), q_row + d * p.q.strides[3])
                            * io::read_f64(p.k.dtype, k.get(), k_row + d * p.k.strides[3]);
                    }
                    sum *= p.scale;
                    if let Some(cap) = p.softcap {
                        sum = cap * (sum / cap).tanh();
                    }
                    *score = sum + added;
                }
                let most = scores.iter().fold(f64::NEG_INFINITY, |a, &b| if b.is_nan() { b } else { a.max(b) });
                let mut total = 0.0;
                result.fill(0.0);
                for (j, &score) in scores.iter().enumerate() {
                    if most == f64::NEG_INFINITY || score == f64::NEG_INFINITY {
                        continue;
                    }
                    let weight = (score - most).exp();
                    total += weight;
                    let v_row = at(&p.v, [b, h / group, j]);
                    for (d, r) in result.iter_mut().enumerate() {
                        *r += weight * io::read_f64(p.v.dtype, v.get(), v_row + d as i64 * p.v.strides[3]);
                    }
                }
                let to = at(&p.out, [b, h, i]);
                for (d, r) in result.iter().enumerate() {
                    let value = if total == 0.0 { 0.0 } else { r / total };
                    let mut slot = [0u64; 2];
                    let s = slot.as_mut_ptr().cast::<u8>();
                    match Work::of(p.out.dtype) {
                        Some(Work::F32) => *s.cast::<f32>() = value as f32,
                        _ => *s.cast::<f64>() = value,
                    }
                    let one = io::Block { sizes: &[], strides: &[] };
                    io::store(p.out.dtype, out.get(), to + d as i64 * p.out.strides[3], one, s);
                }
            }
        });
    });
}
