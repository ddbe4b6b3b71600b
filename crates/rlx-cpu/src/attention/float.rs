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
const QUERIES: usize = 128;
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
    let args = |m, n, k, a: Strided, b, c, c_row, accumulate| GemmArgs {
        m,
        n,
        k,
        a: a.into(),
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
            if seen.is_empty() {
                out.write_bytes(0, m * dv);
            }
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
                    dispatch(run.isa, Dots { q, k, m, n, d, scale: p.scale as f32, scores });
                } else {
                    let turned = Strided { row: k.col, col: k.row, ..k };
                    let mut product_args = args(m, n, d, q, turned, scores, KEYS as isize, false);
                    product_args.epilogue.scale = Some(p.scale as f32);
                    gemm(run.isa, &product_args, product);
                }
                // What each row sees, with what is added to it.
                let mask_of = |i: usize, low: usize, n: usize, row: *mut f32| {
                    p.mask.as_ref().map(|(boolean, a)| {
                        let start = a.start([b, h, i]) + (first + low) as i64 * a.strides[3];
                        mask_values(*boolean, a, base(a), start, n, row.add(low), bytes.cast()).wrapping_sub(low)
                    })
                };
                let each = |r: usize| {
                    let i = queries.start + r;
                    let visible = reach(p, i..i + 1);
                    let low = visible.start.clamp(keys.start, keys.end) - first;
                    let high = (visible.end.clamp(keys.start, keys.end) - first).max(low);
                    let mask = if low < high { mask_of(i, low, high - low, mask_row) } else { None };
                    Seen { low, high, mask }
                };
                let alike = !p.causal && p.window.is_none() && p.mask.as_ref().is_none_or(|(_, a)| a.strides[2] == 0);
                let sees = if alike {
                    // A mask that hides nothing is left out.
                    let mask = mask_of(queries.start, 0, n, mask_row).filter(|&m| (0..n).any(|j| *m.add(j) != 0.0));
                    Sees::Alike(Seen { low: 0, high: n, mask })
                } else {
                    Sees::Each(&each)
                };
                let softcap = p.softcap.map(|c| c as f32);
                let rows_of = SoftmaxRows { scores, n, softcap, most, sums, out, width: dv, sees };
                dispatch(run.isa, rows_of);
                let v = rows(&p.v, base(&p.v), p.v.start([b, kv, first]), n, dv, wide_v);
                let weights = Strided { data: scores, row: KEYS as isize, col: 1 };
                let add = first != seen.start;
                gemm(run.isa, &args(m, dv, n, weights, v, out, dv as isize, add), product);
            }
            // A row that is not finite is computed again.
            let redo = |r: usize| generic::row(p, run, b, h, queries.start + r);
            let start = p.out.start([b, h, queries.start]);
            let data = base(&p.out).get();
            dispatch(run.isa, Divide { out, width: dv, sums, plan: &p.out, data, start, redo: &redo });
        }
    });
}

/// What queries see of a block of keys.
enum Sees<'a> {
    /// All the same.
    Alike(Seen),
    /// What row r sees; its mask may lie in memory that is used again for the next row.
    Each(&'a dyn Fn(usize) -> Seen),
}

/// What a query sees of a block of keys.
#[derive(Clone, Copy)]
struct Seen {
    /// Keys that it sees; others get weight 0.
    low: usize,
    high: usize,
    /// What is added to scores, from the block's first key on.
    mask: Option<*const f32>,
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

/// Turns rows of scaled products into weights relative to the greatest score so far, and rescales what has been summed.
/// The maker answers for the memory.
struct SoftmaxRows<'a> {
    scores: *mut f32,
    /// Keys of the block.
    n: usize,
    softcap: Option<f32>,
    most: &'a mut [f32],
    sums: &'a mut [f32],
    out: *mut f32,
    width: usize,
    sees: Sees<'a>,
}

impl Kernel for SoftmaxRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for r in 0..self.most.len().min(self.sums.len()) {
            let scores = self.scores.wrapping_add(r * KEYS);
            let seen = match &self.sees {
                Sees::Alike(seen) => *seen,
                Sees::Each(of) => of(r),
            };
            let (most, sum) = (&mut self.most[r], &mut self.sums[r]);
            // SAFETY: the maker answers for a row of scores and of the result.
            let shrink = unsafe { softmax_row(s, scores, self.n, &seen, self.softcap, most, sum) };
            if shrink != 1.0 {
                let (by, out) = (s.splat(shrink), self.out.wrapping_add(r * self.width));
                let mut j = 0;
                while j < self.width {
                    let lanes = (self.width - j).min(S::W);
                    let at = out.wrapping_add(j);
                    // SAFETY: the row is `width` long.
                    unsafe { write(s, at, s.mul(read(s, at, lanes), by), lanes) };
                    j += lanes;
                }
            }
        }
    }
}

/// Vectors whose maxima and sums are kept apart, so that one does not wait for the other.
const APART: usize = 4;

/// One row; gives the factor for what was summed before.
/// # Safety
/// `scores` holds `n` elements, and so does the mask where it is seen.
#[inline(always)]
unsafe fn softmax_row<S: Simd>(
    s: S,
    scores: *mut f32,
    n: usize,
    seen: &Seen,
    softcap: Option<f32>,
    row_most: &mut f32,
    row_sum: &mut f32,
) -> f32 {
    let &Seen { low, high, mask } = seen;
    let lowest = s.splat(f32::NEG_INFINITY);
    let mut most = [lowest; APART];
    // SAFETY: for the whole body, indices stay below `n`.
    unsafe {
        let mut j = low;
        if softcap.is_none() {
            while j + APART * S::W <= high {
                for (i, most) in most.iter_mut().enumerate() {
                    let at = scores.add(j + i * S::W);
                    let mut v = s.load(at);
                    if let Some(mask) = mask {
                        v = s.add(v, s.load(mask.wrapping_add(j + i * S::W)));
                        s.store(at, v);
                    }
                    // NaN is left out here and found in the sum.
                    *most = s.max_fast(v, *most);
                }
                j += APART * S::W;
            }
        }
        while j < high {
            let lanes = (high - j).min(S::W);
            let at = scores.add(j);
            let mut v = read(s, at, lanes);
            if let Some(cap) = softcap {
                let cap = s.splat(cap);
                v = s.mul(cap, math::tanh(s, s.div(v, cap)));
            }
            if let Some(mask) = mask {
                v = s.add(v, read(s, mask.wrapping_add(j), lanes));
            }
            write(s, at, v, lanes);
            let v = if lanes == S::W { v } else { tail(s, at, lanes, f32::NEG_INFINITY) };
            most[0] = s.max_fast(v, most[0]);
            j += lanes;
        }
        let most = s.max_fast(s.max_fast(most[0], most[1]), s.max_fast(most[2], most[3]));
        let before = *row_most;
        let most = fold(s, most, |a, b| if b > a { b } else { a });
        let now = if most > before { most } else { before };
        scores.write_bytes(0, low);
        scores.add(high).write_bytes(0, n - high);
        if now == f32::NEG_INFINITY {
            // Nothing seen so far, or nothing but NaN.
            let nan = (low..high).any(|j| (*scores.add(j)).is_nan());
            scores.add(low).write_bytes(0, high - low);
            if nan {
                *row_sum = f32::NAN;
            }
            return 1.0;
        }
        let top = s.splat(now);
        let mut sums = [s.zero(); APART];
        let mut j = low;
        while j + APART * S::W <= high {
            for (i, sum) in sums.iter_mut().enumerate() {
                let at = scores.add(j + i * S::W);
                let v = math::exp_weight(s, s.sub(s.load(at), top));
                s.store(at, v);
                *sum = s.add(*sum, v);
            }
            j += APART * S::W;
        }
        while j < high {
            let lanes = (high - j).min(S::W);
            let at = scores.add(j);
            let v = math::exp_weight(s, s.sub(read(s, at, lanes), top));
            write(s, at, v, lanes);
            sums[0] = s.add(sums[0], if lanes == S::W { v } else { tail(s, at, lanes, 0.0) });
            j += lanes;
        }
        let sum = s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3]));
        // Nothing was summed before the first visible key.
        let shrink = if before == now || before == f32::NEG_INFINITY { 1.0 } else { (before - now).exp() };
        *row_most = now;
        *row_sum = *row_sum * shrink + fold(s, sum, |a, b| a + b);
        shrink
    }
}

/// Divides rows by their sums on their way to the result. The maker answers for the memory.
struct Divide<'a> {
    out: *mut f32,
    width: usize,
    sums: &'a [f32],
    plan: &'a BoundAccess,
    data: *mut u8,
    /// Where row 0 begins in the result.
    start: i64,
    /// Computes row r again.
    redo: &'a dyn Fn(usize),
}

impl Kernel for Divide<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (row_step, step) = (self.plan.strides[2], self.plan.strides[3]);
        let direct = self.plan.dtype == DType::F32 && step == 1;
        let data = self.data.cast::<f32>();
        // 0 · x is 0 for finite x only.
        let mut zeros = s.zero();
        let mut empty = false;
        // SAFETY: for the whole body: rows are `width` long, and lie in the result at `row_step` from each other.
        unsafe {
            for r in 0..self.sums.len() {
                let row = self.out.wrapping_add(r * self.width);
                let to = self.start + r as i64 * row_step;
                let at = if direct { data.wrapping_offset(to as isize) } else { row };
                empty |= self.sums[r] == 0.0;
                zeros = s.add(zeros, self.row(s, r, at));
                if !direct {
                    let block = io::Block { sizes: &[self.width], strides: &[step] };
                    io::store(self.plan.dtype, self.data, to, block, row.cast());
                }
            }
            if !empty && fold(s, zeros, |a, b| a + b) == 0.0 {
                return;
            }
            for r in 0..self.sums.len() {
                // Rows that lie in the result already are divided once more, for the check alone.
                let row = self.out.wrapping_add(r * self.width);
                let zeros = if direct { self.row(s, r, row) } else { finite(s, row, self.width) };
                if self.sums[r] == 0.0 || fold(s, zeros, |a, b| a + b) != 0.0 {
                    (self.redo)(r);
                }
            }
        }
    }
}

impl Divide<'_> {
    /// Row r divided by its sum, to `to`; gives zeros if all of it is finite.
    /// # Safety
    /// `to` has room for the row.
    #[inline(always)]
    unsafe fn row<S: Simd>(&self, s: S, r: usize, to: *mut f32) -> S::F {
        let (row, by) = (self.out.wrapping_add(r * self.width), s.splat(self.sums[r]));
        let (mut zeros, mut j) = (s.zero(), 0);
        // SAFETY: the caller's promise.
        unsafe {
            while j + S::W <= self.width {
                let v = s.div(s.load(row.add(j)), by);
                s.store(to.add(j), v);
                zeros = s.add(zeros, s.mul(v, s.zero()));
                j += S::W;
            }
            if j < self.width {
                let lanes = self.width - j;
                let v = s.div(s.load_partial(row.add(j), lanes), by);
                s.store_partial(to.add(j), v, lanes);
                zeros = s.add(zeros, s.mul(tail(s, to.add(j), lanes, 0.0), s.zero()));
            }
        }
        zeros
    }
}

/// Zeros if all of a row is finite.
/// # Safety
/// `row` holds `width` elements.
#[inline(always)]
unsafe fn finite<S: Simd>(s: S, row: *const f32, width: usize) -> S::F {
    let mut zeros = s.zero();
    for j in (0..width).step_by(S::W) {
        // SAFETY: the caller's promise.
        zeros = s.add(zeros, s.mul(unsafe { tail(s, row.add(j), (width - j).min(S::W), 0.0) }, s.zero()));
    }
    zeros
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

/// Folds lanes, each half onto the other.
#[inline(always)]
fn fold<S: Simd>(s: S, v: S::F, f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; crate::simd::MAX_W];
    // SAFETY: the array has MAX_W ≥ W elements.
    unsafe { s.store(lanes.as_mut_ptr(), v) };
    let mut n = S::W;
    while n > 1 {
        n /= 2;
        for i in 0..n {
            lanes[i] = f(lanes[i], lanes[i + n]);
        }
    }
    lanes[0]
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
    scale: f32,
    scores: *mut f32,
}

impl Kernel for Dots {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Dots { q, k, m, n, d, scale, scores } = self;
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
                    unsafe { *scores.add(r * KEYS + j + i) = fold(s, sum, |a, b| a + b) * scale };
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
