//! Element types of tensors.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How the bits of a dtype are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// `bool`, one byte an element, 0 or 1.
    Bool,
    /// Two's complement integers.
    Int,
    /// Unsigned integers.
    UInt,
    /// Binary floating point of any width.
    Float,
    /// A pair of floats, real part first.
    Complex,
    /// UTF-8 strings.
    Str,
}

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident, $name:literal, $class:ident, $bits:literal;)*) => {
        /// The type of a tensor's elements.
        ///
        /// Sub-byte types are packed, the first element in the low bits.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum DType { $($(#[$doc])* $variant,)* }

        impl DType {
            /// Every dtype, in order of declaration.
            pub const ALL: &'static [DType] = &[$(DType::$variant,)*];

            /// The name in text form (`f32`, `i64`, …).
            pub const fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)* }
            }

            /// How the bits are to be read.
            pub const fn class(self) -> Class {
                match self { $(DType::$variant => Class::$class,)* }
            }

            /// Bits an element; 0 for strings.
            pub const fn bits(self) -> usize {
                match self { $(DType::$variant => $bits,)* }
            }
        }

        impl FromStr for DType {
            type Err = UnknownDType;
            fn from_str(s: &str) -> Result<Self, UnknownDType> {
                match s { $($name => Ok(DType::$variant),)* _ => Err(UnknownDType(s.chars().take(32).collect())) }
            }
        }
    };
}

dtypes! {
    /// Booleans, a byte each.
    Bool, "bool", Bool, 8;
    /// 2-bit signed integers.
    I2, "i2", Int, 2;
    /// 4-bit signed integers.
    I4, "i4", Int, 4;
    /// 8-bit signed integers.
    I8, "i8", Int, 8;
    /// 16-bit signed integers.
    I16, "i16", Int, 16;
    /// 32-bit signed integers.
    I32, "i32", Int, 32;
    /// 64-bit signed integers.
    I64, "i64", Int, 64;
    /// 2-bit unsigned integers.
    U2, "u2", UInt, 2;
    /// 4-bit unsigned integers.
    U4, "u4", UInt, 4;
    /// 8-bit unsigned integers.
    U8, "u8", UInt, 8;
    /// 16-bit unsigned integers.
    U16, "u16", UInt, 16;
    /// 32-bit unsigned integers.
    U32, "u32", UInt, 32;
    /// 64-bit unsigned integers.
    U64, "u64", UInt, 64;
    /// IEEE 754 binary16.
    F16, "f16", Float, 16;
    /// bfloat16: the high half of an `f32`.
    BF16, "bf16", Float, 16;
    /// IEEE 754 binary32.
    F32, "f32", Float, 32;
    /// IEEE 754 binary64.
    F64, "f64", Float, 64;
    /// OCP 8-bit float, 4 exponent and 3 mantissa bits, no infinities.
    F8E4M3FN, "f8e4m3fn", Float, 8;
    /// As `f8e4m3fn` with one zero and NaN at 0x80.
    F8E4M3FNUZ, "f8e4m3fnuz", Float, 8;
    /// OCP 8-bit float, 5 exponent and 2 mantissa bits.
    F8E5M2, "f8e5m2", Float, 8;
    /// As `f8e5m2` with one zero, no infinities and NaN at 0x80.
    F8E5M2FNUZ, "f8e5m2fnuz", Float, 8;
    /// OCP block scale: a power of two, no sign, no mantissa.
    F8E8M0, "f8e8m0", Float, 8;
    /// OCP 4-bit float, 2 exponent and 1 mantissa bits.
    F4E2M1, "f4e2m1", Float, 4;
    /// A pair of `f32`.
    C64, "c64", Complex, 64;
    /// A pair of `f64`.
    C128, "c128", Complex, 128;
    /// UTF-8 strings.
    Str, "str", Str, 0;
}

impl DType {
    /// True for all binary floating-point types.
    pub const fn is_float(self) -> bool {
        matches!(self.class(), Class::Float)
    }

    /// True for signed and unsigned integers, not for `bool`.
    pub const fn is_int(self) -> bool {
        matches!(self.class(), Class::Int | Class::UInt)
    }

    /// True for unsigned integers.
    pub const fn is_unsigned(self) -> bool {
        matches!(self.class(), Class::UInt)
    }

    /// True for pairs of floats.
    pub const fn is_complex(self) -> bool {
        matches!(self.class(), Class::Complex)
    }

    /// Bytes that `n` elements take, packed; `None` on overflow. Strings count as 0.
    pub const fn bytes_for(self, n: usize) -> Option<usize> {
        let bits = self.bits();
        if bits >= 8 {
            n.checked_mul(bits / 8)
        } else {
            match n.checked_mul(bits) {
                Some(b) => Some(b.div_ceil(8)),
                None => None,
            }
        }
    }

    /// Bytes an element for types of a byte or more; `None` for sub-byte types and strings.
    pub const fn size(self) -> Option<usize> {
        match self.bits() {
            b if b >= 8 => Some(b / 8),
            _ => None,
        }
    }

    /// Smallest and largest value of an integer type or of `bool`; `None` otherwise.
    pub const fn int_range(self) -> Option<(i128, i128)> {
        match self.class() {
            Class::Bool => Some((0, 1)),
            Class::Int => Some((-(1i128 << (self.bits() - 1)), (1i128 << (self.bits() - 1)) - 1)),
            Class::UInt => Some((0, (1i128 << self.bits()) - 1)),
            _ => None,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no dtype has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown dtype `{0}`; dtypes are bool, i2..i64, u2..u64, f16, bf16, f32, f64, f8*, f4e2m1, c64, c128, str")]
pub struct UnknownDType(pub String);
