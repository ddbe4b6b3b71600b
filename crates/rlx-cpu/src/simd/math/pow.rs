//! Powers: exp(y · log|x|) in two floats, then the special cases of IEEE 754's `pow`.

use super::exp::exp_bounded;
use super::log::exponent;
use super::polynomial;
use crate::simd::Simd;

/// atanh(q) = q + q³ · p(q²) on |q| ≤ (√2 − 1)/(√2 + 1); relative error 2.9e-11.
const ATANH: [f32; 4] = [0.333_333_3, 0.200_004_26, 0.142_549_47, 0.120_170_88];
/// ln 2 in two floats.
const LN2: f32 = std::f32::consts::LN_2;
const LN2_REST: f32 = -1.904_654_2e-9;

/// log(a) as an unevaluated sum, for positive finite a; relative error about 1e-9.
#[inline(always)]
fn log_extended<S: Simd>(s: S, a: S::F) -> (S::F, S::F) {
    let subnormal = s.lt(a, s.splat(f32::MIN_POSITIVE));
    let v = s.select(subnormal, s.mul(a, s.splat(8_388_608.0)), a);
    let e = exponent(s, v);
    let m = s.from_bits(s.sub_i(s.bits(v), s.shl_i::<23>(e)));
    let i = s.add(s.to_float(e), s.select(subnormal, s.splat(-23.0), s.zero()));
    // q = (m − 1)/(m + 1) in two floats.
    let one = s.splat(1.0);
    let r = s.div(one, s.add(m, one));
    let m1 = s.sub(m, one);
    let q = s.mul(m1, r);
    let q_lo = s.mul(r, s.fnma(q, m1, s.fma(q, s.splat(-2.0), m1)));
    // q³ in two floats.
    let q2 = s.mul(q, q);
    let q2_lo = s.fma(q, s.add(q_lo, q_lo), s.fma(q, q, s.neg(q2)));
    let q3 = s.mul(q2, q);
    let q3_lo = s.fma(q2, q_lo, s.fma(q2_lo, q, s.fma(q2, q, s.neg(q3))));
    let p = polynomial(s, q2, &ATANH);
    let rest = s.fma(p, q3, s.fma(p, q3_lo, q_lo));
    // 2 atanh(q) + i ln 2.
    let main = s.add(q, q);
    let ln2 = s.splat(LN2);
    let t = s.fma(ln2, i, main);
    let back = s.fnma(ln2, i, t);
    let low = s.fma(s.splat(LN2_REST), i, s.fma(s.splat(2.0), rest, s.sub(main, back)));
    let hi = s.add(t, low);
    (hi, s.add(s.sub(t, hi), low))
}

/// x to the power y.
#[inline(always)]
pub fn pow<S: Simd>(s: S, x: S::F, y: S::F) -> S::F {
    let (zero, one) = (s.zero(), s.splat(1.0));
    let inf = s.splat(f32::INFINITY);
    let (a, b) = (s.abs(x), s.abs(y));

    let (l, l_lo) = log_extended(s, a);
    let z = s.mul(y, l);
    let z_lo = s.fma(y, l_lo, s.fma(y, l, s.neg(z)));
    // Beyond ±110 the result is 0 or ∞, and the low part may be no number at all.
    let inside = s.lt(s.abs(z), s.splat(110.0));
    let z = s.min_fast(s.splat(110.0), s.max_fast(s.splat(-110.0), z));
    let mut r = exp_bounded(s, z, Some(s.select(inside, z_lo, zero)));

    // |x| is 0 or ∞: 0 or ∞ by the sign of y.
    let x_edge = s.or_m(s.eq(a, zero), s.eq(a, inf));
    let grows = s.lt(zero, s.select(s.eq(a, zero), s.neg(y), y));
    r = s.select(x_edge, s.select(grows, inf, zero), r);
    // |y| is ∞: by |x| against 1.
    let y_edge = s.eq(b, inf);
    let grows = s.lt(one, s.select(s.lt(y, zero), s.div(one, a), a));
    let limit = s.select(grows, inf, s.select(s.eq(a, one), one, zero));
    r = s.select(y_edge, limit, r);
    // A negative x takes integer y only; an odd one keeps the sign. From 2²⁴ on every float is an even integer.
    let huge = s.le(s.splat(16_777_216.0), b);
    let integer = s.or_m(huge, s.eq(s.trunc(y), y));
    let half = s.mul(y, s.splat(0.5));
    let odd = s.and_m(integer, s.not_m(s.or_m(huge, s.eq(s.trunc(half), half))));
    let signed = s.from_bits(s.xor_i(s.bits(r), s.sign_bit(x)));
    r = s.select(odd, signed, r);
    let negative = s.and_m(s.lt(x, zero), s.not_m(s.or_m(s.eq(a, inf), y_edge)));
    r = s.select(s.and_m(negative, s.not_m(integer)), s.splat(f32::NAN), r);
    // NaN in, NaN out; but 1 to any power and any number to the power 0 are 1.
    r = s.select(s.or_m(s.is_nan(x), s.is_nan(y)), s.splat(f32::NAN), r);
    s.select(s.or_m(s.eq(x, one), s.eq(y, zero)), one, r)
}
