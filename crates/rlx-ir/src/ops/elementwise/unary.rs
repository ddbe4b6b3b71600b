//! Functions of one operand.

use serde::{Deserialize, Serialize};

use super::{Domain, Scalar};
use crate::builder::Builder;
use crate::dtype::DType;
use crate::error::IrError;
use crate::graph::ValueId;

macro_rules! unary {
    ($($(#[doc = $doc:literal])+ $variant:ident $method:ident $domain:ident $kind:ident { $($class:ident: $f:expr),* $(,)? })*) => {
        /// A function of one operand.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Unary { $($(#[doc = $doc])+ $variant,)* }

        impl Unary {
            /// All of them.
            pub const ALL: &'static [Unary] = &[$(Unary::$variant,)*];

            /// The mnemonic.
            pub const fn name(self) -> &'static str {
                match self { $(Unary::$variant => stringify!($method),)* }
            }

            /// One line of documentation.
            pub const fn doc(self) -> &'static str {
                match self { $(Unary::$variant => concat!($($doc, " "),+),)* }
            }

            /// The dtypes it takes.
            pub const fn domain(self) -> Domain {
                match self { $(Unary::$variant => Domain::$domain,)* }
            }

            /// True if the result is boolean whatever the operand is.
            pub const fn is_predicate(self) -> bool {
                match self { $(Unary::$variant => unary!(@pred $kind),)* }
            }

            /// The function's value, unrounded.
            pub fn value(self, dtype: DType, x: Scalar) -> Option<Scalar> {
                let _ = dtype;
                match self { $(Unary::$variant => {
                    $(if let Scalar::$class(x) = x {
                        return Some(unary!(@wrap $kind $class ($f)(x, dtype)));
                    })*
                    None
                })* }
            }
        }

        impl Builder {
            $($(#[doc = $doc])+ pub fn $method(&mut self, x: ValueId) -> Result<ValueId, IrError> {
                self.op1(Unary::$variant, &[x])
            })*
        }
    };
    (@pred same) => { false };
    (@pred pred) => { true };
    (@wrap same $class:ident $e:expr) => { Scalar::$class($e) };
    (@wrap pred $class:ident $e:expr) => { Scalar::I(i128::from($e)) };
}

type D = DType;

/// Logistic function without overflow on either side.
pub(crate) fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 {
        1.0 / (1.0 + (-x).exp())
    } else {
        let e = x.exp();
        e / (1.0 + e)
    }
}

/// `log(1 + exp(x))` without overflow or loss at either end.
pub(crate) fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p() + if x.is_nan() { x } else { 0.0 }
}

fn gelu_tanh(x: f64) -> f64 {
    // (1 + tanh z) / 2 is sigmoid(2z), which keeps the tail that the sum cancels.
    let c = (2.0 / std::f64::consts::PI).sqrt();
    x * sigmoid(2.0 * c * (x + 0.044_715 * x * x * x))
}

fn gelu(x: f64) -> f64 {
    // erfc keeps the tail that 1 + erf cancels.
    0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

unary! {
    /// Negation.
    Neg neg Ring same { F: |x: f64, _: D| -x, I: |x: i128, _: D| x.wrapping_neg(), C: |c: [f64; 2], _: D| c.map(|x| -x) }
    /// Absolute value; of the smallest integer, itself.
    Abs abs Number same { F: |x: f64, _: D| x.abs(), I: |x: i128, _: D| x.wrapping_abs() }
    /// −1, 0 or 1 by sign; keeps zeros and NaN.
    Sign sign Number same { F: |x: f64, _: D| if x == 0.0 || x.is_nan() { x } else { x.signum() }, I: |x: i128, _: D| x.signum() }
    /// Smallest integer not below.
    Ceil ceil Float same { F: |x: f64, _: D| x.ceil() }
    /// Largest integer not above.
    Floor floor Float same { F: |x: f64, _: D| x.floor() }
    /// Nearest integer, ties to even.
    RoundEven round_even Float same { F: |x: f64, _: D| x.round_ties_even() }
    /// Integer part.
    Trunc trunc Float same { F: |x: f64, _: D| x.trunc() }
    /// Square root; NaN below zero.
    Sqrt sqrt Float same { F: |x: f64, _: D| x.sqrt() }
    /// One over the square root.
    Rsqrt rsqrt Float same { F: |x: f64, _: D| 1.0 / x.sqrt() }
    /// One over the operand.
    Reciprocal reciprocal Float same { F: |x: f64, _: D| 1.0 / x }
    /// Exponential.
    Exp exp Float same { F: |x: f64, _: D| x.exp() }
    /// `exp(x) − 1` without cancellation.
    Expm1 expm1 Float same { F: |x: f64, _: D| x.exp_m1() }
    /// Natural logarithm.
    Log log Float same { F: |x: f64, _: D| x.ln() }
    /// `log(1 + x)` without cancellation.
    Log1p log1p Float same { F: |x: f64, _: D| x.ln_1p() }
    /// Sine, radians.
    Sin sin Float same { F: |x: f64, _: D| x.sin() }
    /// Cosine, radians.
    Cos cos Float same { F: |x: f64, _: D| x.cos() }
    /// Tangent, radians.
    Tan tan Float same { F: |x: f64, _: D| x.tan() }
    /// Inverse sine.
    Asin asin Float same { F: |x: f64, _: D| x.asin() }
    /// Inverse cosine.
    Acos acos Float same { F: |x: f64, _: D| x.acos() }
    /// Inverse tangent.
    Atan atan Float same { F: |x: f64, _: D| x.atan() }
    /// Hyperbolic sine.
    Sinh sinh Float same { F: |x: f64, _: D| x.sinh() }
    /// Hyperbolic cosine.
    Cosh cosh Float same { F: |x: f64, _: D| x.cosh() }
    /// Hyperbolic tangent.
    Tanh tanh Float same { F: |x: f64, _: D| x.tanh() }
    /// Inverse hyperbolic sine.
    Asinh asinh Float same { F: |x: f64, _: D| libm::asinh(x) }
    /// Inverse hyperbolic cosine.
    Acosh acosh Float same { F: |x: f64, _: D| libm::acosh(x) }
    /// Inverse hyperbolic tangent.
    Atanh atanh Float same { F: |x: f64, _: D| libm::atanh(x) }
    /// Error function.
    Erf erf Float same { F: |x: f64, _: D| libm::erf(x) }
    /// `1 / (1 + exp(−x))`.
    Sigmoid sigmoid Float same { F: |x: f64, _: D| sigmoid(x) }
    /// `max(x, 0)`; NaN stays.
    Relu relu Number same { F: |x: f64, _: D| if x > 0.0 || x.is_nan() { x } else { 0.0 }, I: |x: i128, _: D| x.max(0) }
    /// Gaussian error linear unit: `x Φ(x)` with the exact Φ.
    Gelu gelu Float same { F: |x: f64, _: D| gelu(x) }
    /// Its approximation by tanh.
    GeluTanh gelu_tanh Float same { F: |x: f64, _: D| gelu_tanh(x) }
    /// `x sigmoid(x)`.
    Silu silu Float same { F: |x: f64, _: D| x * sigmoid(x) }
    /// `x · clamp(x / 6 + 1/2, 0, 1)`; NaN at −∞, as the formula gives.
    HardSwish hard_swish Float same { F: |x: f64, _: D| x * (x / 6.0 + 0.5).clamp(0.0, 1.0) }
    /// `x · tanh(softplus(x))`.
    Mish mish Float same { F: |x: f64, _: D| x * softplus(x).tanh() }
    /// `log(1 + exp(x))`.
    Softplus softplus Float same { F: |x: f64, _: D| softplus(x) }
    /// `x / (1 + |x|)`.
    Softsign softsign Float same { F: |x: f64, _: D| if x.is_infinite() { x.signum() } else { x / (1.0 + x.abs()) } }
    /// Bitwise complement; logical for booleans.
    Not not Bits same { I: |x: i128, d: D| if d == DType::Bool { i128::from(x == 0) } else { !x } }
    /// Number of one bits.
    Popcnt popcnt Int same { I: |x: i128, d: D| i128::from((x & ((1i128 << d.bits()) - 1)).count_ones()) }
    /// True for NaN.
    IsNan is_nan Float pred { F: |x: f64, _: D| x.is_nan() }
    /// True for infinities of either sign.
    IsInf is_inf Float pred { F: |x: f64, _: D| x.is_infinite() }
    /// True for what is neither infinite nor NaN.
    IsFinite is_finite Float pred { F: |x: f64, _: D| x.is_finite() }
}

impl Unary {
    /// By mnemonic.
    pub fn from_name(name: &str) -> Option<Unary> {
        Unary::ALL.iter().copied().find(|u| u.name() == name)
    }
}
