//! log and log1p.

use super::exp::{LN2_HI, LN2_LO};
use super::polynomial;
use crate::simd::Simd;

/// log(1 + f) = f − f²/2 + f³ · p(f) on √½ − 1 ≤ f ≤ √2 − 1; error 7.3e-10 of f.
const LOG: [f32; 9] = [
    0.333_333_1,
    -0.249_999_87,
    0.200_022_24,
    -0.166_692_48,
    0.142_187_15,
    -0.123_844_415,
    0.118_726_775,
    -0.117_891_1,
    0.069_151_3,
];
pub(super) const SQRT_HALF_BITS: i32 = 0x3f35_04f3;

/// The e for which x / 2ᵉ lies in [√½, √2), for positive normal x.
#[inline(always)]
pub(super) fn exponent<S: Simd>(s: S, x: S::F) -> S::I {
    s.sar_i::<23>(s.sub_i(s.bits(x), s.splat_i(SQRT_HALF_BITS)))
}

/// log((1 + f) · 2ᵉ).
#[inline(always)]
fn log_of_parts<S: Simd>(s: S, f: S::F, e: S::F) -> S::F {
    let f2 = s.mul(f, f);
    let mut y = s.mul(s.mul(f, f2), polynomial(s, f, &LOG));
    y = s.fma(e, s.splat(LN2_LO), y);
    y = s.fma(f2, s.splat(-0.5), y);
    s.fma(e, s.splat(LN2_HI), s.add(f, y))
}

/// Puts in what log and log1p give at and beyond the ends of their domain; `u` is the logarithm's argument.
#[inline(always)]
fn log_limits<S: Simd>(s: S, u: S::F, r: S::F) -> S::F {
    let inf = s.splat(f32::INFINITY);
    let r = s.select(s.eq(u, inf), inf, r);
    let r = s.select(s.eq(u, s.zero()), s.neg(inf), r);
    // "Not ≥ 0" is true of NaN too.
    s.select(s.le(s.zero(), u), r, s.splat(f32::NAN))
}

/// Natural logarithm.
#[inline(always)]
pub fn log<S: Simd>(s: S, x: S::F) -> S::F {
    let subnormal = s.lt(x, s.splat(f32::MIN_POSITIVE));
    let v = s.select(subnormal, s.mul(x, s.splat(8_388_608.0)), x);
    let e = exponent(s, v);
    let m = s.from_bits(s.sub_i(s.bits(v), s.shl_i::<23>(e)));
    let ef = s.add(s.to_float(e), s.select(subnormal, s.splat(-23.0), s.zero()));
    log_limits(s, x, log_of_parts(s, s.sub(m, s.splat(1.0)), ef))
}

/// log(1 + x).
#[inline(always)]
pub fn log1p<S: Simd>(s: S, x: S::F) -> S::F {
    let u = s.add(x, s.splat(1.0));
    let e = exponent(s, u);
    // f = x · 2⁻ᵉ + (2⁻ᵉ − 1) does not see the rounding of u. The factor is 4 · 2⁻ᵉ because 2⁻¹²⁸ is subnormal.
    let k = s.from_bits(s.shl_i::<23>(s.sub_i(s.splat_i(129), e)));
    let quarter = s.splat(0.25);
    let f = s.fma(s.mul(x, quarter), k, s.fma(k, quarter, s.splat(-1.0)));
    let r = log_limits(s, u, log_of_parts(s, f, s.to_float(e)));
    // A quarter of a subnormal is inexact; down there the result is x.
    s.select(s.lt(s.abs(x), s.splat(2.9e-8)), x, r)
}
