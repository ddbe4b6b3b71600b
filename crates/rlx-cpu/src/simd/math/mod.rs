//! Vector mathematics in f32: one body a function, for every level.
//!
//! Bounds, against the exact result rounded once, in units in the last place: at most 2 for exp, expm1, log, log1p,
//! tanh, erf, sin, cos; at most 2.5 for sigmoid; at most 4 for tan, pow, softplus, silu, mish and both gelus, in their tails too (a
//! result that is subnormal counts in units of the smallest subnormal). NaN gives NaN; infinities, −0.0, overflow and
//! gradual underflow follow IEEE 754. `x · g(x)` with g(−∞) = 0 (silu, mish, gelu) is NaN at −∞, as by its formula.
//!
//! Levels differ in the last bits only where the portable level's `fma` rounds twice.
//!
//! Coefficients are weighted minimax fits, rounded to f32 one after another.

mod activation;
mod erf;
mod exp;
mod log;
mod pow;
mod trig;

pub use activation::{
    gelu, gelu_block, gelu_tanh, hard_swish, log_sigmoid, mish, relu, sigmoid, silu, softplus, softsign,
};
pub use erf::erf;
pub use exp::{exp, exp_weight, expm1, tanh};
pub use log::{log, log1p};
pub use pow::pow;
pub use trig::{cos, sin, tan};

use super::Simd;

/// Evaluates `c[0] + c[1] x + …` by Horner's rule.
#[inline(always)]
pub(super) fn polynomial<S: Simd, const N: usize>(s: S, x: S::F, c: &[f32; N]) -> S::F {
    let mut r = s.splat(c[N - 1]);
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        r = s.fma(r, x, s.splat(c[i]));
    }
    r
}

/// −1, 0 or 1; NaN for NaN, and zeros keep their sign.
#[inline(always)]
pub fn sign<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.with_sign(s.splat(1.0), x);
    s.select(s.lt(s.zero(), s.abs(x)), one, x)
}
