//! Instructions in f64: for f64 itself and for the floats of 8 and 4 bits.

use super::loops::{OpFn, op};
use rlx_ir::ops::elementwise::{Binary, Compare, Unary};

fn min(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a == b {
        // −0 before +0.
        f64::from_bits(a.to_bits() | b.to_bits())
    } else if b < a {
        b
    } else {
        a
    }
}

fn max(a: f64, b: f64) -> f64 {
    -min(-a, -b)
}

fn rem_floor(a: f64, b: f64) -> f64 {
    let r = a % b;
    if r == 0.0 {
        r.abs().copysign(b)
    } else if (r < 0.0) != (b < 0.0) {
        r + b
    } else {
        r
    }
}

fn sigmoid(x: f64) -> f64 {
    let e = (-x.abs()).exp();
    if x >= 0.0 { 1.0 / (1.0 + e) } else { e / (1.0 + e) }
}

fn softplus(x: f64) -> f64 {
    if x.is_nan() { x } else { x.max(0.0) + (-x.abs()).exp().ln_1p() }
}

fn gelu(x: f64) -> f64 {
    0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

fn gelu_tanh(x: f64) -> f64 {
    // (1 + tanh z) / 2 is sigmoid(2z), which keeps the tail that the sum cancels.
    let c = (2.0 / std::f64::consts::PI).sqrt();
    x * sigmoid(2.0 * c * (x + 0.044_715 * x * x * x))
}

fn sign(x: f64) -> f64 {
    if x == 0.0 || x.is_nan() { x } else { x.signum() }
}

/// The loop of a function of one operand.
pub fn unary(f: Unary) -> Option<OpFn> {
    Some(match f {
        Unary::Neg => op!(map1, f64, f64; |x| -x),
        Unary::Abs => op!(map1, f64, f64; |x: f64| x.abs()),
        Unary::Sign => op!(plain1, f64, f64; sign),
        Unary::Ceil => op!(map1, f64, f64; |x: f64| x.ceil()),
        Unary::Floor => op!(map1, f64, f64; |x: f64| x.floor()),
        Unary::RoundEven => op!(map1, f64, f64; |x: f64| x.round_ties_even()),
        Unary::Trunc => op!(map1, f64, f64; |x: f64| x.trunc()),
        Unary::Sqrt => op!(map1, f64, f64; |x: f64| x.sqrt()),
        Unary::Rsqrt => op!(map1, f64, f64; |x: f64| 1.0 / x.sqrt()),
        Unary::Reciprocal => op!(map1, f64, f64; |x: f64| 1.0 / x),
        Unary::Exp => op!(plain1, f64, f64; |x: f64| x.exp()),
        Unary::Expm1 => op!(plain1, f64, f64; |x: f64| x.exp_m1()),
        Unary::Log => op!(plain1, f64, f64; |x: f64| x.ln()),
        Unary::Log1p => op!(plain1, f64, f64; |x: f64| x.ln_1p()),
        Unary::Sin => op!(plain1, f64, f64; |x: f64| x.sin()),
        Unary::Cos => op!(plain1, f64, f64; |x: f64| x.cos()),
        Unary::Tan => op!(plain1, f64, f64; |x: f64| x.tan()),
        Unary::Asin => op!(plain1, f64, f64; |x: f64| x.asin()),
        Unary::Acos => op!(plain1, f64, f64; |x: f64| x.acos()),
        Unary::Atan => op!(plain1, f64, f64; |x: f64| x.atan()),
        Unary::Sinh => op!(plain1, f64, f64; |x: f64| x.sinh()),
        Unary::Cosh => op!(plain1, f64, f64; |x: f64| x.cosh()),
        Unary::Tanh => op!(plain1, f64, f64; |x: f64| x.tanh()),
        Unary::Asinh => op!(plain1, f64, f64; libm::asinh),
        Unary::Acosh => op!(plain1, f64, f64; libm::acosh),
        Unary::Atanh => op!(plain1, f64, f64; libm::atanh),
        Unary::Erf => op!(plain1, f64, f64; libm::erf),
        Unary::Sigmoid => op!(plain1, f64, f64; sigmoid),
        Unary::Relu => op!(map1, f64, f64; |x: f64| if x > 0.0 || x.is_nan() { x } else { 0.0 }),
        Unary::Gelu => op!(plain1, f64, f64; gelu),
        Unary::GeluTanh => op!(plain1, f64, f64; gelu_tanh),
        Unary::Silu => op!(plain1, f64, f64; |x| x * sigmoid(x)),
        Unary::HardSwish => op!(plain1, f64, f64; |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0)),
        Unary::Mish => op!(plain1, f64, f64; |x| x * softplus(x).tanh()),
        Unary::Softplus => op!(plain1, f64, f64; softplus),
        Unary::Softsign => {
            op!(plain1, f64, f64; |x: f64| if x.is_infinite() { x.signum() } else { x / (1.0 + x.abs()) })
        }
        Unary::IsNan => op!(map1, f64, u8; |x: f64| u8::from(x.is_nan())),
        Unary::IsInf => op!(map1, f64, u8; |x: f64| u8::from(x.is_infinite())),
        Unary::IsFinite => op!(map1, f64, u8; |x: f64| u8::from(x.is_finite())),
        Unary::Not | Unary::Popcnt => return None,
    })
}

/// The loop of a function of two operands.
pub fn binary(f: Binary) -> Option<OpFn> {
    Some(match f {
        Binary::Add => op!(map2, f64, f64; |a, b| a + b),
        Binary::Sub => op!(map2, f64, f64; |a, b| a - b),
        Binary::Mul => op!(map2, f64, f64; |a, b| a * b),
        Binary::Div => op!(map2, f64, f64; |a, b| a / b),
        Binary::Min => op!(map2, f64, f64; min),
        Binary::Max => op!(map2, f64, f64; max),
        Binary::Rem => op!(plain2, f64, f64; |a: f64, b: f64| a % b),
        Binary::Mod => op!(plain2, f64, f64; rem_floor),
        Binary::Pow => op!(plain2, f64, f64; |a: f64, b: f64| a.powf(b)),
        Binary::Atan2 => op!(plain2, f64, f64; |a: f64, b: f64| a.atan2(b)),
        Binary::And | Binary::Or | Binary::Xor | Binary::ShiftLeft | Binary::ShiftRight => return None,
    })
}

/// The loop of a comparison.
pub fn compare(f: Compare) -> OpFn {
    match f {
        Compare::Eq => op!(map2, f64, u8; |a, b| u8::from(a == b)),
        Compare::Ne => op!(map2, f64, u8; |a, b| u8::from(a != b)),
        Compare::Lt => op!(map2, f64, u8; |a, b| u8::from(a < b)),
        Compare::Le => op!(map2, f64, u8; |a, b| u8::from(a <= b)),
        Compare::Gt => op!(map2, f64, u8; |a, b| u8::from(a > b)),
        Compare::Ge => op!(map2, f64, u8; |a, b| u8::from(a >= b)),
    }
}

/// The loop of `clamp`.
pub fn clamp() -> OpFn {
    op!(map3, f64, f64, f64; |x, lo, hi| min(max(x, lo), hi))
}
