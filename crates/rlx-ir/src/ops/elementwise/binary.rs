//! Functions of two operands of one dtype, with a result of that dtype.

use serde::{Deserialize, Serialize};

use super::{Domain, Scalar};
use crate::builder::Builder;
use crate::dtype::DType;
use crate::element::wrap_int;
use crate::error::IrError;
use crate::graph::ValueId;

macro_rules! binary {
    ($($(#[doc = $doc:literal])+ $variant:ident $method:ident $domain:ident $comm:ident { $($class:ident: $f:expr),* $(,)? })*) => {
        /// A function of two operands.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Binary { $($(#[doc = $doc])+ $variant,)* }

        impl Binary {
            /// All of them.
            pub const ALL: &'static [Binary] = &[$(Binary::$variant,)*];

            /// The mnemonic.
            pub const fn name(self) -> &'static str {
                match self { $(Binary::$variant => stringify!($method),)* }
            }

            /// One line of documentation.
            pub const fn doc(self) -> &'static str {
                match self { $(Binary::$variant => concat!($($doc, " "),+),)* }
            }

            /// The dtypes it takes.
            pub const fn domain(self) -> Domain {
                match self { $(Binary::$variant => Domain::$domain,)* }
            }

            /// `op(a, b) = op(b, a)`.
            pub const fn commutative(self) -> bool {
                match self { $(Binary::$variant => binary!(@comm $comm),)* }
            }

            /// The function's value, unrounded.
            pub fn value(self, dtype: DType, a: Scalar, b: Scalar) -> Option<Scalar> {
                let _ = dtype;
                match self { $(Binary::$variant => {
                    $(if let (Scalar::$class(x), Scalar::$class(y)) = (a, b) {
                        return Some(Scalar::$class(($f)(x, y, dtype)));
                    })*
                    None
                })* }
            }
        }

        impl Builder {
            $($(#[doc = $doc])+ pub fn $method(&mut self, a: ValueId, b: ValueId) -> Result<ValueId, IrError> {
                self.op1(Binary::$variant, &[a, b])
            })*
        }
    };
    (@comm commutes) => { true };
    (@comm ordered) => { false };
}

type D = DType;
type C = [f64; 2];

/// The smaller; NaN if either is, −0 below +0.
pub(crate) fn min(x: f64, y: f64) -> f64 {
    if x.is_nan() || y.is_nan() {
        f64::NAN
    } else if x == y {
        // −0 is below +0, so that the result does not depend on the order of operands.
        if x.is_sign_negative() { x } else { y }
    } else {
        x.min(y)
    }
}

/// The larger; NaN if either is, +0 above −0.
pub(crate) fn max(x: f64, y: f64) -> f64 {
    -min(-x, -y)
}

/// Remainder with the sign of the divisor.
fn mod_floor(x: f64, y: f64) -> f64 {
    let r = x % y;
    if r != 0.0 && (r < 0.0) != (y < 0.0) {
        r + y
    } else if r == 0.0 {
        r.abs().copysign(y)
    } else {
        r
    }
}

/// Integer power by wrapping products; a negative exponent gives the truncated reciprocal.
fn int_pow(base: i128, mut exp: i128, d: D) -> i128 {
    if exp < 0 {
        return match base {
            1 => 1,
            -1 => {
                if exp % 2 == 0 {
                    1
                } else {
                    -1
                }
            }
            _ => 0,
        };
    }
    let (mut result, mut square) = (1i128, base);
    while exp > 0 {
        if exp & 1 == 1 {
            result = wrap_int(d, result.wrapping_mul(square));
        }
        square = wrap_int(d, square.wrapping_mul(square));
        exp >>= 1;
    }
    result
}

fn shift_left(x: i128, by: i128, d: D) -> i128 {
    if (0..d.bits() as i128).contains(&by) { x << by } else { 0 }
}

fn shift_right(x: i128, by: i128, d: D) -> i128 {
    if (0..d.bits() as i128).contains(&by) {
        x >> by
    } else if x < 0 {
        -1
    } else {
        0
    }
}

fn complex_div(a: C, b: C) -> C {
    let n = b[0] * b[0] + b[1] * b[1];
    [(a[0] * b[0] + a[1] * b[1]) / n, (a[1] * b[0] - a[0] * b[1]) / n]
}

binary! {
    /// Sum.
    Add add Ring commutes { F: |x: f64, y: f64, _: D| x + y, I: |x: i128, y: i128, _: D| x.wrapping_add(y), C: |a: C, b: C, _: D| [a[0] + b[0], a[1] + b[1]] }
    /// Difference.
    Sub sub Ring ordered { F: |x: f64, y: f64, _: D| x - y, I: |x: i128, y: i128, _: D| x.wrapping_sub(y), C: |a: C, b: C, _: D| [a[0] - b[0], a[1] - b[1]] }
    /// Product.
    Mul mul Ring commutes { F: |x: f64, y: f64, _: D| x * y, I: |x: i128, y: i128, _: D| x.wrapping_mul(y), C: |a: C, b: C, _: D| [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]] }
    /// Quotient; integers truncate toward zero, and by zero give 0.
    Div div Ring ordered { F: |x: f64, y: f64, _: D| x / y, I: |x: i128, y: i128, _: D| if y == 0 { 0 } else { x / y }, C: |a: C, b: C, _: D| complex_div(a, b) }
    /// Remainder with the sign of the dividend (C `fmod`); integers by zero give 0.
    Rem rem Number ordered { F: |x: f64, y: f64, _: D| x % y, I: |x: i128, y: i128, _: D| if y == 0 { 0 } else { x % y } }
    /// Remainder with the sign of the divisor (Python `%`); integers by zero give 0.
    Mod mod_floor Number ordered { F: |x: f64, y: f64, _: D| mod_floor(x, y), I: |x: i128, y: i128, _: D| if y == 0 { 0 } else { ((x % y) + y) % y } }
    /// Smaller of two; NaN if either is, −0 below +0.
    Min minimum Number commutes { F: |x: f64, y: f64, _: D| min(x, y), I: |x: i128, y: i128, _: D| x.min(y) }
    /// Larger of two; NaN if either is, +0 above −0.
    Max maximum Number commutes { F: |x: f64, y: f64, _: D| max(x, y), I: |x: i128, y: i128, _: D| x.max(y) }
    /// Power.
    Pow pow Number ordered { F: |x: f64, y: f64, _: D| x.powf(y), I: |x: i128, y: i128, d: D| int_pow(x, y, d) }
    /// Angle of the point (second, first) in radians.
    Atan2 atan2 Float ordered { F: |y: f64, x: f64, _: D| y.atan2(x) }
    /// Bitwise and; logical for booleans.
    And and Bits commutes { I: |x: i128, y: i128, _: D| x & y }
    /// Bitwise or; logical for booleans.
    Or or Bits commutes { I: |x: i128, y: i128, _: D| x | y }
    /// Bitwise exclusive or; logical for booleans.
    Xor xor Bits commutes { I: |x: i128, y: i128, _: D| x ^ y }
    /// Left shift; by a count outside the width, 0.
    ShiftLeft shift_left Int ordered { I: |x: i128, y: i128, d: D| shift_left(x, y, d) }
    /// Right shift, keeping the sign of signed integers; by a count outside the width, 0 or −1.
    ShiftRight shift_right Int ordered { I: |x: i128, y: i128, d: D| shift_right(x, y, d) }
}

impl Binary {
    /// By mnemonic.
    pub fn from_name(name: &str) -> Option<Binary> {
        Binary::ALL.iter().copied().find(|u| u.name() == name)
    }
}
