//! Activations of neural networks: sigmoid and its family, the gelus, softplus.
//!
//! For negative arguments they end in a tail of the form x · eᶻ: the product is formed before the last scaling by 2ⁿ,
//! so that it stays accurate when eᶻ alone would be subnormal.

use super::exp::{exp_parts, exp_reduced, reduce, scale};
use super::{log1p, polynomial};
use crate::simd::Simd;

/// Beyond this |z|, eᶻ times any factor used here is 0.
const DEEP: f32 = 110.0;

/// With c = 4 and q = (t − c)/(t + c): (t + c) · e^(t²/2) · Φ(−t) = p(q) on 0 ≤ t ≤ 14.6; relative error 1.8e-8.
const NORMAL_TAIL: [f32; 10] = [
    0.755_285_14,
    -0.607_896_6,
    0.387_136_67,
    -0.186_522_89,
    0.060_405_854,
    -0.007_527_278_7,
    -0.003_519_796_3,
    0.001_570_357_2,
    1.885_348_8e-4,
    -1.271_777_1e-4,
];

/// 1 / (1 + e⁻ˣ).
#[inline(always)]
pub fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    let (_, _, e) = exp_of_negative(s, s.abs(x), None);
    let one = s.splat(1.0);
    s.div(s.select(s.lt(x, s.zero()), e, one), s.add(one, e))
}

/// `(p, n, e)` with e = exp(−z) = p · 2ⁿ for z ≥ 0, or as good as 0 beyond [`DEEP`]. `lo` is added to −z.
#[inline(always)]
fn exp_of_negative<S: Simd>(s: S, z: S::F, lo: Option<S::F>) -> (S::F, S::I, S::F) {
    let z = s.min_fast(s.splat(DEEP), z);
    let (w, n) = exp_parts(s, s.neg(z), lo);
    let p = s.add(w, s.splat(1.0));
    (p, n, scale(s, p, n))
}

/// NaN at −∞, else `r`.
#[inline(always)]
fn nan_at_minus_infinity<S: Simd>(s: S, x: S::F, r: S::F) -> S::F {
    s.select(s.eq(x, s.splat(f32::NEG_INFINITY)), s.splat(f32::NAN), r)
}

/// x · u(x) where u is `pos / den` for x ≥ 0 and `neg · 2ⁿ / den` below, without losing a subnormal result.
#[inline(always)]
fn x_times<S: Simd>(s: S, x: S::F, pos: S::F, neg: S::F, den: S::F, n: S::I) -> S::F {
    let below = s.lt(x, s.zero());
    // Far below, n no longer follows x: bound x so that the product still vanishes.
    let bounded = s.max_fast(s.splat(-DEEP), x);
    let num = s.mul(bounded, s.select(below, neg, pos));
    let q = s.div(num, den);
    nan_at_minus_infinity(s, x, s.select(below, scale(s, q, n), q))
}

/// x · sigmoid(x).
#[inline(always)]
pub fn silu<S: Simd>(s: S, x: S::F) -> S::F {
    let (p, n, e) = exp_of_negative(s, s.abs(x), None);
    let one = s.splat(1.0);
    x_times(s, x, one, p, s.add(one, e), n)
}

/// x · tanh(softplus(x)).
#[inline(always)]
pub fn mish<S: Simd>(s: S, x: S::F) -> S::F {
    // tanh(log u) = (u² − 1)/(u² + 1) with u = 1 + eˣ, freed of large powers on either side.
    let (p, n, e) = exp_of_negative(s, s.abs(x), None);
    let (one, two) = (s.splat(1.0), s.splat(2.0));
    let below = s.lt(x, s.zero());
    let e2 = s.add(e, two);
    let pos = s.fma(e, two, one);
    let num = s.select(below, s.mul(e, e2), pos);
    let rest = s.select(below, two, s.mul(s.mul(e, e), two));
    x_times(s, x, pos, s.mul(p, e2), s.add(num, rest), n)
}

/// log(1 + eˣ).
#[inline(always)]
pub fn softplus<S: Simd>(s: S, x: S::F) -> S::F {
    let (_, _, e) = exp_of_negative(s, s.abs(x), None);
    s.add(s.max_fast(s.zero(), x), log1p(s, e))
}

/// log(sigmoid(x)) = −softplus(−x).
#[inline(always)]
pub fn log_sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    s.neg(softplus(s, s.neg(x)))
}

/// x / (1 + |x|).
#[inline(always)]
pub fn softsign<S: Simd>(s: S, x: S::F) -> S::F {
    let r = s.div(x, s.add(s.splat(1.0), s.abs(x)));
    let infinite = s.eq(s.abs(x), s.splat(f32::INFINITY));
    s.select(infinite, s.with_sign(s.splat(1.0), x), r)
}

/// max(x, 0), which is +0 for −0; NaN stays.
#[inline(always)]
pub fn relu<S: Simd>(s: S, x: S::F) -> S::F {
    s.add(s.max_fast(s.zero(), x), s.zero())
}

/// x · min(max(x + 3, 0), 6) / 6.
#[inline(always)]
pub fn hard_swish<S: Simd>(s: S, x: S::F) -> S::F {
    let gate = s.fma(x, s.splat(1.0 / 6.0), s.splat(0.5));
    s.mul(x, s.min_fast(s.splat(1.0), s.max_fast(s.zero(), gate)))
}

/// x · Φ(x) with the normal distribution function Φ: the erf form of gelu.
#[inline(always)]
pub fn gelu<S: Simd>(s: S, x: S::F) -> S::F {
    let (q, d) = gelu_ratio(s, x);
    let (n, r) = gelu_reduce(s, x);
    gelu_finish(s, x, gelu_tail(s, q, d), exp_reduced(s, r), n)
}

/// Vectors that [`gelu_block`] takes at a time: enough for one's latency to hide behind the others' work.
const TOGETHER: usize = 16;

/// [`gelu`] of `count` vectors that lie side by side, in place, stage by stage: one vector after the other would wait for
/// the long chain of each, and small stages keep their constants in registers.
///
/// # Safety
/// `data` holds `count` vectors.
#[inline(always)]
pub unsafe fn gelu_block<S: Simd>(s: S, data: *mut f32, count: usize) {
    let (mut tail, mut rest, mut power) = ([s.zero(); TOGETHER], [s.zero(); TOGETHER], [s.splat_i(0); TOGETHER]);
    for start in (0..count).step_by(TOGETHER) {
        let n = (count - start).min(TOGETHER);
        let at = data.wrapping_add(start * S::W);
        // SAFETY: the caller's promise: all vectors are among its own.
        unsafe {
            for i in 0..n {
                (tail[i], rest[i]) = gelu_ratio(s, s.load(at.add(i * S::W)));
            }
            for i in 0..n {
                tail[i] = gelu_tail(s, tail[i], rest[i]);
            }
            for i in 0..n {
                (power[i], rest[i]) = gelu_reduce(s, s.load(at.add(i * S::W)));
            }
            for r in rest.iter_mut().take(n) {
                *r = exp_reduced(s, *r);
            }
            for i in 0..n {
                let to = at.add(i * S::W);
                s.store(to, gelu_finish(s, s.load(to), tail[i], rest[i], power[i]));
            }
        }
    }
}

/// |x|, as far as the result depends on it.
#[inline(always)]
fn gelu_argument<S: Simd>(s: S, x: S::F) -> S::F {
    s.min_fast(s.splat(15.0), s.abs(x))
}

/// q = (t − c)/(t + c) and d = 1/(t + c) for t = |x|.
#[inline(always)]
fn gelu_ratio<S: Simd>(s: S, x: S::F) -> (S::F, S::F) {
    let t = gelu_argument(s, x);
    let c = s.splat(4.0);
    let d = s.div(s.splat(1.0), s.add(t, c));
    // One Newton step each takes the roundings of t + c out of d and those of t − c and d out of q.
    let d = s.fma(d, s.fnma(d, t, s.fnma(d, c, s.splat(1.0))), d);
    let q = s.mul(s.sub(t, c), d);
    let residual = s.fnma(q, t, s.fnma(s.add(q, s.splat(1.0)), c, t));
    (s.fma(d, residual, q), d)
}

/// e^(t²/2) · Φ(−t).
#[inline(always)]
fn gelu_tail<S: Simd>(s: S, q: S::F, d: S::F) -> S::F {
    s.mul(polynomial(s, q, &NORMAL_TAIL), d)
}

/// n and r with e^(−t²/2) = 2ⁿ · eʳ.
#[inline(always)]
fn gelu_reduce<S: Simd>(s: S, x: S::F) -> (S::I, S::F) {
    let t = gelu_argument(s, x);
    let half = s.splat(-0.5);
    let square = s.mul(t, t);
    let rest = s.fma(t, t, s.neg(square));
    let (n, r) = reduce(s, s.mul(square, half));
    (n, s.add(r, s.mul(rest, half)))
}

/// The result, given [`gelu_tail`] and e^(−t²/2) = (1 + w) · 2ⁿ.
#[inline(always)]
fn gelu_finish<S: Simd>(s: S, x: S::F, tail: S::F, w: S::F, n: S::I) -> S::F {
    // y = −t Φ(−t) is the value at −t; at +t it is t + y.
    let v = s.mul(s.neg(gelu_argument(s, x)), tail);
    let y = scale(s, s.fma(v, w, v), n);
    let r = s.select(s.lt(x, s.zero()), y, s.add(x, y));
    nan_at_minus_infinity(s, x, r)
}

/// ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))).
#[inline(always)]
pub fn gelu_tanh<S: Simd>(s: S, x: S::F) -> S::F {
    // This is x · sigmoid(z) with z = 2√(2/π) x (1 + 0.044715 x²), and an error in z counts |z| times over in the
    // tail: z is formed in two floats.
    const C0: f32 = 1.595_769_2;
    const C0_LO: f32 = (1.595_769_121_605_730_7 - C0 as f64) as f32;
    const C1: f32 = 0.071_354_814;
    const C1_LO: f32 = (1.595_769_121_605_730_7 * 0.044_715 - C1 as f64) as f32;
    let t = s.min_fast(s.splat(15.0), s.abs(x));
    let h = s.mul(t, t);
    let l = s.fma(t, t, s.neg(h));
    let (c0, c1) = (s.splat(C0), s.splat(C1));
    let p = s.mul(c1, h);
    let p_lo = s.fma(c1, h, s.neg(p));
    let w = s.add(p, c0);
    let back = s.sub(w, p);
    let w_err = s.add(s.sub(p, s.sub(w, back)), s.sub(c0, back));
    let mut w_lo = s.fma(c1, l, s.add(w_err, p_lo));
    w_lo = s.fma(s.splat(C1_LO), h, s.add(w_lo, s.splat(C0_LO)));
    let z = s.mul(t, w);
    let z_lo = s.fma(t, w_lo, s.fma(t, w, s.neg(z)));
    let (p, n, e) = exp_of_negative(s, z, Some(s.neg(z_lo)));
    let one = s.splat(1.0);
    x_times(s, x, one, p, s.add(one, e), n)
}
