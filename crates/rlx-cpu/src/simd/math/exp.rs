//! exp and what stands on it directly: expm1, tanh.
//!
//! exp(x) = 2ⁿ · (1 + w) with n the nearest integer to x / ln 2 and 1 + w in about [√½, √2]. The two parts are handed out
//! apart ([`exp_parts`]), so that a caller can multiply before the last scaling and keep a subnormal product accurate.

use super::polynomial;
use crate::simd::Simd;

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two pieces; the first has 15 trailing zero bits, so that its product with n is exact.
pub(super) const LN2_HI: f32 = 0.693_359_4;
pub(super) const LN2_LO: f32 = -2.121_944_4e-4;
/// Adding 1.5 · 2²³ rounds to an integer, which then stands in the low bits.
pub(super) const ROUNDER: f32 = 12_582_912.0;

/// exp(r) = 1 + r + r² · q(r) on |r| ≤ ln 2 / 2; relative error 3.2e-9.
const EXP: [f32; 5] = [0.499_999_94, 0.166_665_2, 0.041_668_24, 0.008_368_824, 0.001_382_321_4];
/// The same with one more term, for a result without the 1; relative error 4.5e-10.
const EXPM1: [f32; 6] = [0.5, 0.166_666_67, 0.041_666_478, 0.008_333_189, 0.001_393_371, 1.996_102_8e-4];
/// tanh(x) = x + x³ · p(x²) on |x| ≤ 0.625; relative error 4.2e-9.
const TANH: [f32; 5] = [-0.333_332_84, 0.133_314_86, -0.053_743_172, 0.020_649_707, -0.005_716_198];

/// The nearest integer to x / ln 2 (as float and as integer), and x less that many ln 2.
#[inline(always)]
pub(super) fn reduce<S: Simd>(s: S, x: S::F) -> (S::I, S::F) {
    let t = s.fma(x, s.splat(LOG2_E), s.splat(ROUNDER));
    let n = s.sub_i(s.bits(t), s.splat_i(ROUNDER.to_bits() as i32));
    let nf = s.sub(t, s.splat(ROUNDER));
    let r = s.fnma(nf, s.splat(LN2_HI), x);
    (n, s.fnma(nf, s.splat(LN2_LO), r))
}

/// `(w, n)` with exp(hi + lo) = (1 + w) · 2ⁿ, for |hi| ≤ 170 and `lo` small against 1. NaN comes out in `w`.
#[inline(always)]
pub(super) fn exp_parts<S: Simd>(s: S, hi: S::F, lo: Option<S::F>) -> (S::F, S::I) {
    let (n, mut r) = reduce(s, hi);
    if let Some(lo) = lo {
        r = s.add(r, lo);
    }
    (exp_reduced(s, r), n)
}

/// eʳ − 1 for |r| up to about ln 2 / 2.
#[inline(always)]
pub(super) fn exp_reduced<S: Simd>(s: S, r: S::F) -> S::F {
    let q = polynomial(s, r, &EXP);
    s.fma(q, s.mul(r, r), r)
}

/// `p · 2ⁿ` for −250 ≤ n ≤ 250 in two steps: the first is exact, the second rounds once.
#[inline(always)]
pub(super) fn scale<S: Simd>(s: S, p: S::F, n: S::I) -> S::F {
    let half = s.sar_i::<1>(n);
    let bias = s.splat_i(127);
    let a = s.from_bits(s.shl_i::<23>(s.add_i(half, bias)));
    let b = s.from_bits(s.shl_i::<23>(s.add_i(s.sub_i(n, half), bias)));
    s.mul(s.mul(p, a), b)
}

/// exp(x) for −170 ≤ x ≤ 170, or NaN.
#[inline(always)]
pub(super) fn exp_bounded<S: Simd>(s: S, x: S::F, lo: Option<S::F>) -> S::F {
    let (w, n) = exp_parts(s, x, lo);
    scale(s, s.add(w, s.splat(1.0)), n)
}

/// eˣ.
#[inline(always)]
pub fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    // Beyond these bounds the result is 0 or ∞; a NaN passes, being the second operand.
    let x = s.min_fast(s.splat(89.0), s.max_fast(s.splat(-104.0), x));
    exp_bounded(s, x, None)
}

/// eˣ for x ≤ 0 with 0 for what would be subnormal: a weight beside weights of which the greatest is 1.
#[inline(always)]
pub fn exp_weight<S: Simd>(s: S, x: S::F) -> S::F {
    // ln of the least normal number is −87.34.
    let lowest = s.splat(-87.0);
    let below = s.lt(x, lowest);
    let (w, n) = exp_parts(s, s.max_fast(lowest, x), None);
    let power = s.from_bits(s.shl_i::<23>(s.add_i(n, s.splat_i(127))));
    s.select(below, s.zero(), s.fma(w, power, power))
}

/// eˣ − 1.
#[inline(always)]
pub fn expm1<S: Simd>(s: S, x: S::F) -> S::F {
    let c = s.min_fast(s.splat(89.0), s.max_fast(s.splat(-18.0), x));
    let (n, r) = reduce(s, c);
    let q = polynomial(s, r, &EXPM1);
    let m = s.fma(q, s.mul(r, r), r);
    // Half the result, because 2ⁿ itself overflows at n = 128: m · 2ⁿ⁻¹ + (2ⁿ⁻¹ − ½).
    let t = s.from_bits(s.shl_i::<23>(s.add_i(n, s.splat_i(126))));
    let y = s.fma(m, t, s.sub(t, s.splat(0.5)));
    s.with_sign(s.abs(s.add(y, y)), x)
}

/// Hyperbolic tangent.
#[inline(always)]
pub fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let t = s.abs(x);
    // From 9.02 on the result rounds to 1.
    let c = s.min_fast(s.splat(9.5), t);
    let e = exp_bounded(s, s.add(c, c), None);
    let large = s.sub(s.splat(1.0), s.div(s.splat(2.0), s.add(e, s.splat(1.0))));
    let x2 = s.mul(t, t);
    let small = s.fma(s.mul(t, x2), polynomial(s, x2, &TANH), t);
    s.with_sign(s.select(s.lt(t, s.splat(0.625)), small, large), x)
}
