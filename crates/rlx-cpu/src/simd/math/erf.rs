//! The error function.

use super::exp::exp_bounded;
use super::polynomial;
use crate::simd::Simd;

/// erf(x) = x + x · p(x²) on |x| ≤ 475/512.
const SMALL: [f32; 6] = [0.128_379_17, -0.376_125_34, 0.112_819_925, -0.026_768_135, 0.004_991_194, -5.967_617e-4];
/// erf(t) = 1 − exp(−t + t · p(t)) from there to 4, where it rounds to 1.
const LARGE: [f32; 7] =
    [-0.128_717_51, -0.634_846_7, -0.106_777_88, 0.024_254_622, -0.003_883_964_4, 3.831_971_3e-4, -1.728_534_7e-5];

/// Error function.
#[inline(always)]
pub fn erf<S: Simd>(s: S, x: S::F) -> S::F {
    let a = s.abs(x);
    let t = s.min_fast(s.splat(4.0), a);
    let e = exp_bounded(s, s.fma(polynomial(s, t, &LARGE), t, s.neg(t)), None);
    let large = s.sub(s.splat(1.0), e);
    let small = s.fma(polynomial(s, s.mul(a, a), &SMALL), a, a);
    s.with_sign(s.select(s.lt(a, s.splat(0.927_734_4)), small, large), x)
}
