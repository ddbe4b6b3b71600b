//! Attention of floats of up to 32 bits, a block of queries by a block of keys at a time, with running maxima and sums:
//! no score matrix, and working memory whose size depends on the blocks and features alone.
//!
//! A row that comes out infinite or NaN is computed again by [`super::generic`], which leaves hidden keys out instead of
//! weighing them with zero.

use super::{AttentionPlan, generic};
use crate::buffers::{BoundAccess, Ptr, RunCx};
use crate::gemm::{BOperand, Epilogue, GemmArgs, Strided, gemm};
use crate::simd::{Kernel, Simd, dispatch, math};
use crate::tile::{Work, io, scratch};
use rlx_ir::DType;
use std::ops::Range;

/// Most queries of a block.
const QUERIES: usize = 96;
/// Keys of a block.
const KEYS: usize = 128;
/// Up to so many queries, scores are dot products of rows as they lie.
const FEW: usize = 4;

/// Whether this file takes it.
pub fn takes(p: &AttentionPlan) -> bool {
    let narrow = |a: &BoundAccess| Work::of(a.dtype) == Some(Work::F32);
    let mask = p.mask.as_ref().is_none_or(|(boolean, a)| *boolean || narrow(a));
    narrow(&p.q) && narrow(&p.k) && narrow(&p.v) && narrow(&p.out) && mask
}

/// Divides working memory, in parts aligned to a cache line.
struct Parts(*mut f32);

impl Parts {
    const fn padded(n: usize) -> usize {
        n.next_multiple_of(16)
    }
    fn take(&mut self, n: usize) -> *mut f32 {
        let part = self.0;
        self.0 = self.0.wrapping_add(Self::padded(n));
        part
    }
}

/// Runs an attention.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(p: &AttentionPlan, run: &RunCx<'_>) {
    let blocks = p.queries.div_ceil(QUERIES);
    let each = p.queries.div_ceil(blocks.max(1)).max(1);
    run.region.parallel_for(p.batch * p.heads * blocks, &|task| {
        let (head, block) = (task / blocks, task % blocks);
        let (b, h) = (head / p.heads, head % p.heads);
        let queries = (block * each).min(p.queries)..((block + 1) * each).min(p.queries);
        // SAFETY: the caller's promise; blocks of the result are disjoint.
        unsafe { one_block(p, run, b, h, queries) };
    });
}

/// Keys that some query of a block may see, by causality and window.
fn reach(p: &AttentionPlan, queries: Range<usize>) -> Range<usize> {
    let keys = p.keys as i64;
    let position = |i: usize| i as i64 + keys - p.queries as i64;
    let (first, last) = (position(queries.start), position(queries.end.saturating_sub(1)));
    let mut low = 0;
    let mut high = keys;
    if p.causal {
        high = high.min(last + 1);
    }
    if let Some(w) = p.window {
        low = low.max(first.saturating_sub(w) + 1);
        high = high.min(last.saturating_add(w));
    }
    let high = high.max(0);
    low.clamp(0, high) as usize..high as usize
}

/// A matrix of rows of features: where it lies, or widened into `dense`.
/// # Safety
/// The rows lie within the walk, whose buffer is at `base`; `dense` has room for them.
unsafe fn rows(a: &BoundAccess, base: Ptr, start: i64, n: usize, width: usize, dense: *mut f32) -> Strided {
    let (row, col) = (a.strides[2], a.strides[3]);
    if a.dtype == DType::F32 {
        let data = base.get().cast::<f32>().cast_const().wrapping_offset(start as isize);
        return Strided { data, row: row as isize, col: col as isize };
    }
    let block = io::Block { sizes: &[n, width], strides: &[row, col] };
    // SAFETY: the caller's promise.
    unsafe { io::load(a.dtype, base.get(), start, block, dense.cast()) };
    Strided { data: dense, row: width as isize, col: 1 }
}

/// # Safety
/// As [`run`], for one block of queries of one head.
unsafe fn one_block(p: &AttentionPlan, run: &RunCx<'_>, b: usize, h: usize, queries: Range<usize>) {
    let base = |a: &BoundAccess| Ptr(run.bufs.base(a.buffer));
    let (m, d, dv) = (queries.len(), p.head_dim, p.value_dim);
    let kv = h / (p.heads / p.kv_heads.max(1)).max(1);
    let seen = reach(p, queries.clone());
    let args = |m, n, k, a, b, c, c_row, accumulate| GemmArgs {
        m,
        n,
        k,
        a,
        b: BOperand::Strided(b),
        c,
        c_row,
        c_col: 1,
        accumulate,
        epilogue: Epilogue::default(),
    };
    let none = Strided { data: std::ptr::null(), row: 0, col: 1 };
    let any = std::ptr::NonNull::dangling().as_ptr();
    let products = (args(m, KEYS, d, none, none, any, 1, false).scratch_len(run.isa))
        .max(args(m, dv, KEYS, none, none, any, 1, true).scratch_len(run.isa));
    let lengths = [m * KEYS, m * dv, m, m, KEYS, KEYS, m * d, KEYS * d, KEYS * dv, products];
    let total: usize = lengths.iter().map(|&n| Parts::padded(n)).sum();
    scratch::with(total * size_of::<f32>(), |memory| {
        let mut parts = Parts(memory.as_mut_ptr().cast());
        let [scores, out, most, sums, mask_row, bytes, wide_q, wide_k, wide_v, product] =
            lengths.map(|n| parts.take(n));
        // SAFETY: parts lie within the memory and apart; walks were checked at bind.
        unsafe {
            let product = std::slice::from_raw_parts_mut(product, products);
            std::slice::from_raw_parts_mut(out, m * dv).fill(0.0);
            let most = std::slice::from_raw_parts_mut(most, m);
            let sums = std::slice::from_raw_parts_mut(sums, m);
            most.fill(f32::NEG_INFINITY);
            sums.fill(0.0);
            let q = rows(&p.q, base(&p.q), p.q.start([b, h, queries.start]), m, d, wide_q);
            for first in seen.clone().step_by(KEYS) {
                let keys = first..seen.end.min(first + KEYS);
                let n = keys.len();
                let k = rows(&p.k, base(&p.k), p.k.start([b, kv, first]), n, d, wide_k);
                if m <= FEW && k.col == 1 {
                    dispatch(run.isa, Dots { q, k, m, n, d, scores });
                } else {
                    let turned = Strided { row: k.col, col: k.row, ..k };
                    gemm(run.isa, &args(m, n, d, q, turned, scores, KEYS as isize, false), product);
                }
                for r in 0..m {
                    let i = queries.start + r;
                    let visible = reach(p, i..i + 1);
                    let low = visible.start.clamp(keys.start, keys.end) - first;
                    let high = (visible.end.clamp(keys.start, keys.end) - first).max(low);
                    let mask = p.mask.as_ref().filter(|_| low < high);
                    let mask = mask.map(|(boolean, a)| {
                        let start = a.start([b, h, i]) + (first + low) as i64 * a.strides[3];
                        let at = mask_row.add(low);
                        mask_values(*boolean, a, base(a), start, high - low, at, bytes.cast())
                    });
                    let row = SoftmaxRow {
                        scores: scores.add(r * KEYS),
                        low,
                        high,
                        n,
                        mask: mask.map(|m| m.wrapping_sub(low)),
                        scale: p.scale as f32,
                        softcap: p.softcap.map(|c| c as f32),
                        most: &mut most[r],
                        sum: &mut sums[r],
                        out: out.add(r * dv),
                        width: dv,
                    };
                    dispatch(run.isa, row);
                }
                let v = rows(&p.v, base(&p.v), p.v.start([b, kv, first]), n, dv, wide_v);
                let weights = Strided { data: scores, row: KEYS as isize, col: 1 };
                gemm(run.isa, &args(m, dv, n, weights, v, out, dv as isize, true), product);
            }
            for (r, &sum) in sums.iter().enumerate() {
                let row = std::slice::from_raw_parts_mut(out.add(r * dv), dv);
                row.iter_mut().for_each(|x| *x /= sum);
                if sum == 0.0 || row.iter().any(|x| !x.is_finite()) {
                    generic::row(p, run, b, h, queries.start + r);
                    continue;
                }
                let to = p.out.start([b, h, queries.start + r]);
                let block = io::Block { sizes: &[dv], strides: &p.out.strides[3..] };
                io::store(p.out.dtype, base(&p.out).get(), to, block, row.as_ptr().cast());
            }
        }
    });
}

/// Numbers to be added to scores: where they lie, or in `row`.
/// # Safety
/// The mask's `n` elements from `start` on lie in its buffer; `row` and `bytes` have room for as many.
unsafe fn mask_values(
    boolean: bool,
    a: &BoundAccess,
    base: Ptr,
    start: i64,
    n: usize,
    row: *mut f32,
    bytes: *mut u8,
) -> *const f32 {
    let step = a.strides[3];
    if a.dtype == DType::F32 && step == 1 {
        return base.get().cast::<f32>().wrapping_offset(start as isize);
    }
    let block = io::Block { sizes: &[n], strides: &[step] };
    // SAFETY: the caller's promise.
    unsafe {
        if boolean {
            io::load(a.dtype, base.get(), start, block, bytes);
            for i in 0..n {
                *row.add(i) = if *bytes.add(i) != 0 { 0.0 } else { f32::NEG_INFINITY };
            }
        } else {
            io::load(a.dtype, base.get(), start, block, row.cast());
        }
    }
    row
}

/// Turns a row of products into weights relative to the greatest score so far, and rescales what has been summed. The
/// maker answers for the memory.
struct SoftmaxRow<'a> {
    scores: *mut f32,
    /// Visible keys of the block; others get weight 0.
    low: usize,
    high: usize,
    n: usize,
    mask: Option<*const f32>,
    scale: f32,
    softcap: Option<f32>,
    most: &'a mut f32,
    sum: &'a mut f32,
    out: *mut f32,
    width: usize,
}

impl Kernel for SoftmaxRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let SoftmaxRow { scores, low, high, n, .. } = self;
        let scale = s.splat(self.scale);
        let lowest = s.splat(f32::NEG_INFINITY);
        let mut most = lowest;
        // SAFETY: for the whole body, indices stay below `n` in scores and mask and below `width` in the result.
        unsafe {
            let mut j = low;
            while j < high {
                let lanes = (high - j).min(S::W);
                let at = scores.add(j);
                let mut v = s.mul(read(s, at, lanes), scale);
                if let Some(cap) = self.softcap {
                    let cap = s.splat(cap);
                    v = s.mul(cap, math::tanh(s, s.div(v, cap)));
                }
                if let Some(mask) = self.mask {
                    v = s.add(v, read(s, mask.wrapping_add(j), lanes));
                }
                write(s, at, v, lanes);
                // NaN is left out here and found in the sum.
                let seen = if lanes == S::W { v } else { tail(s, at, lanes, f32::NEG_INFINITY) };
                most = s.max_fast(seen, most);
                j += lanes;
            }
            let before = *self.most;
            let now = fold(s, most, before, f32::max);
            std::ptr::write_bytes(scores, 0, low);
            std::ptr::write_bytes(scores.add(high), 0, n - high);
            if now == f32::NEG_INFINITY {
                // Nothing seen so far, or nothing but NaN.
                let nan = (low..high).any(|j| (*scores.add(j)).is_nan());
                std::ptr::write_bytes(scores.add(low), 0, high - low);
                if nan {
                    *self.sum = f32::NAN;
                }
                return;
            }
            let top = s.splat(now);
            let mut sum = s.zero();
            let mut j = low;
            while j < high {
                let lanes = (high - j).min(S::W);
                let at = scores.add(j);
                let v = math::exp(s, s.sub(read(s, at, lanes), top));
                write(s, at, v, lanes);
                sum = s.add(sum, if lanes == S::W { v } else { tail(s, at, lanes, 0.0) });
                j += lanes;
            }
            let shrink = if before == now { 1.0 } else { (before - now).exp() };
            *self.most = now;
            *self.sum = fold(s, sum, *self.sum * shrink, |a, b| a + b);
            if shrink != 1.0 {
                let by = s.splat(shrink);
                let mut j = 0;
                while j < self.width {
                    let lanes = (self.width - j).min(S::W);
                    let at = self.out.add(j);
                    write(s, at, s.mul(read(s, at, lanes), by), lanes);
                    j += lanes;
                }
            }
        }
    }
}

/// Reads up to `W` elements; partial accesses are slow on some machines.
/// # Safety
/// `at` holds `lanes` elements.
#[inline(always)]
unsafe fn read<S: Simd>(s: S, at: *const f32, lanes: usize) -> S::F {
    // SAFETY: the caller's promise.
    unsafe { if lanes == S::W { s.load(at) } else { s.load_partial(at, lanes) } }
}

/// Writes up to `W` lanes.
/// # Safety
/// `at` has room for `lanes` elements.
#[inline(always)]
unsafe fn write<S: Simd>(s: S, at: *mut f32, v: S::F, lanes: usize) {
    // SAFETY: the caller's promise.
    unsafe { if lanes == S::W { s.store(at, v) } else { s.store_partial(at, v, lanes) } }
}

/// Fewer than `W` elements, with `fill` in the other lanes.
/// # Safety
/// `at` holds `lanes` elements.
#[inline(always)]
unsafe fn tail<S: Simd>(s: S, at: *const f32, lanes: usize, fill: f32) -> S::F {
    let mut all = [fill; crate::simd::MAX_W];
    for (i, x) in all.iter_mut().enumerate().take(lanes) {
        // SAFETY: i < lanes.
        *x = unsafe { *at.add(i) };
    }
    // SAFETY: the array has MAX_W ≥ W elements.
    unsafe { s.load(all.as_ptr()) }
}

/// Folds lanes in order.
#[inline(always)]
fn fold<S: Simd>(s: S, v: S::F, init: f32, f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; crate::simd::MAX_W];
    // SAFETY: the array has MAX_W ≥ W elements.
    unsafe { s.store(lanes.as_mut_ptr(), v) };
    lanes.iter().take(S::W).fold(init, |a, &b| f(a, b))
}

/// Keys asked for ahead.
const AHEAD: usize = 8;

/// Scores of few queries: dot products with keys whose features lie side by side. The maker answers for the memory.
struct Dots {
    q: Strided,
    k: Strided,
    m: usize,
    n: usize,
    d: usize,
    scores: *mut f32,
}

impl Kernel for Dots {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Dots { q, k, m, n, d, scores } = self;
        for r in 0..m {
            let mut j = 0;
            while j < n {
                // Four keys at a time: independent sums.
                let many = (n - j).min(4);
                let mut sums = [s.zero(); 4];
                for i in 0..many {
                    // Rows of a key lie too far apart for the machine to foresee them.
                    for line in (0..d).step_by(16) {
                        s.prefetch(k.at(j + i + AHEAD, line));
                    }
                }
                let mut at = 0;
                while at < d {
                    let lanes = (d - at).min(S::W);
                    // SAFETY: features and keys lie within the operands.
                    unsafe {
                        let x =
                            if q.col == 1 { s.load_partial(q.at(r, at), lanes) } else { strided(s, q, r, at, lanes) };
                        for (i, sum) in sums.iter_mut().enumerate().take(many) {
                            *sum = s.mul_add(x, read(s, k.at(j + i, at), lanes), *sum);
                        }
                    }
                    at += lanes;
                }
                for (i, &sum) in sums.iter().enumerate().take(many) {
                    // SAFETY: row r of the scores holds KEYS elements.
                    unsafe { *scores.add(r * KEYS + j + i) = fold(s, sum, 0.0, |a, b| a + b) };
                }
                j += many;
            }
        }
    }
}

/// # Safety
/// The lanes lie within the matrix.
#[inline(always)]
unsafe fn strided<S: Simd>(s: S, q: Strided, r: usize, at: usize, lanes: usize) -> S::F {
    let mut all = [0.0f32; crate::simd::MAX_W];
    for (i, x) in all.iter_mut().enumerate().take(lanes) {
        // SAFETY: the caller's promise.
        *x = unsafe { *q.at(r, at + i) };
    }
    // SAFETY: the array has MAX_W ≥ W elements.
    unsafe { s.load(all.as_ptr()) }
}
