//! sin, cos, tan: three-step reduction by π/2 up to [`FAR`], exact reduction in f64 lane by lane beyond it.

use super::exp::ROUNDER;
use super::polynomial;
use crate::simd::Simd;

/// Up to here the reduction in f32 pieces leaves no visible error.
const FAR: f32 = 48_000.0;
const TWO_OVER_PI: f32 = std::f32::consts::FRAC_2_PI;
/// π/2 in three pieces; the first has its three low bits clear.
const HALF_PI: [f32; 3] = [f32::from_bits(0x3fc9_0fd8), 3.139_164_7e-7, 5.390_302_5e-15];
/// sin(r) = r + r³ · p(r²) on |r| ≤ π/4; relative error 1.9e-10.
const SIN: [f32; 4] = [-0.166_666_67, 0.008_333_373, -1.985_028_6e-4, 2.804_183_4e-6];
/// cos(r) = 1 − r²/2 + r⁴ · p(r²) on |r| ≤ π/4; relative error 1.2e-10.
const COS: [f32; 3] = [0.041_666_646, -0.001_388_730_8, 2.443_210_9e-5];

/// sin and cos of x less the nearest multiple of π/2, and that multiple's number.
#[inline(always)]
fn sin_cos_reduced<S: Simd>(s: S, x: S::F) -> (S::F, S::F, S::I) {
    let t = s.fma(x, s.splat(TWO_OVER_PI), s.splat(ROUNDER));
    let q = s.bits(t);
    let j = s.sub(t, s.splat(ROUNDER));
    let mut r = s.fnma(j, s.splat(HALF_PI[0]), x);
    r = s.fnma(j, s.splat(HALF_PI[1]), r);
    r = s.fnma(j, s.splat(HALF_PI[2]), r);
    let r2 = s.mul(r, r);
    let sin = s.fma(s.mul(r, r2), polynomial(s, r2, &SIN), r);
    let cos = s.fma(s.mul(r2, r2), polynomial(s, r2, &COS), s.fma(r2, s.splat(-0.5), s.splat(1.0)));
    (sin, cos, q)
}

/// Replaces the lanes where |x| > [`FAR`] (or infinite) by `f` in f64.
#[inline(always)]
fn with_far<S: Simd>(s: S, x: S::F, near: S::F, f: impl Fn(f64) -> f64) -> S::F {
    let far = s.lt(s.splat(FAR), s.abs(x));
    if s.any(far) {
        let exact = s.map(x, |v| if v.abs() > FAR { f(f64::from(v)) as f32 } else { v });
        s.select(far, exact, near)
    } else {
        near
    }
}

/// Bit 1 of the quadrant, moved to the sign.
#[inline(always)]
fn quadrant_sign<S: Simd>(s: S, q: S::I) -> S::I {
    s.shl_i::<30>(s.and_i(q, s.splat_i(2)))
}

/// Is the quadrant odd?
#[inline(always)]
fn odd<S: Simd>(s: S, q: S::I) -> S::M {
    s.eq_i(s.and_i(q, s.splat_i(1)), s.splat_i(1))
}

/// Sine.
#[inline(always)]
pub fn sin<S: Simd>(s: S, x: S::F) -> S::F {
    let (sin, cos, q) = sin_cos_reduced(s, x);
    let v = s.select(odd(s, q), cos, sin);
    let v = s.from_bits(s.xor_i(s.bits(v), quadrant_sign(s, q)));
    let v = s.select(s.eq(x, s.zero()), x, v);
    with_far(s, x, v, libm::sin)
}

/// Cosine.
#[inline(always)]
pub fn cos<S: Simd>(s: S, x: S::F) -> S::F {
    let (sin, cos, q) = sin_cos_reduced(s, x);
    let q = s.add_i(q, s.splat_i(1));
    let v = s.select(odd(s, q), cos, sin);
    let v = s.from_bits(s.xor_i(s.bits(v), quadrant_sign(s, q)));
    with_far(s, x, v, libm::cos)
}

/// Tangent.
#[inline(always)]
pub fn tan<S: Simd>(s: S, x: S::F) -> S::F {
    let (sin, cos, q) = sin_cos_reduced(s, x);
    let odd = odd(s, q);
    let num = s.select(odd, s.neg(cos), sin);
    let den = s.select(odd, sin, cos);
    let v = s.select(s.eq(x, s.zero()), x, s.div(num, den));
    with_far(s, x, v, libm::tan)
}
