//! Numbers: what is kept and what is computed in.

use std::fmt;

use rlx_ir::DType;
use serde::{Deserialize, Serialize};

pub use super::custom::{CustomPolicy, OpClass, Otherwise, PrecisionRule, Selector};

/// Numbers that activations and weights are kept in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Precision {
    /// As the model says.
    #[default]
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    BF16,
}

impl Precision {
    /// The dtype of these numbers.
    pub fn dtype(self) -> DType {
        match self {
            Precision::F32 => DType::F32,
            Precision::F16 => DType::F16,
            Precision::BF16 => DType::BF16,
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Precision::F32 => "f32",
            Precision::F16 => "f16",
            Precision::BF16 => "bf16",
        })
    }
}

/// Which ops compute in low precision. Plain data: equal policies make equal programs.
///
/// A policy speaks of f32 values; numbers of other dtypes stay as the model says. An op that is *low* reads operands and keeps its
/// result in the low dtype; sums accumulate in f32 either way, and a value that is read by one op of the same kernel alone (a bias on
/// its way to an activation) is not rounded in between. The program's boundary keeps the dtypes that the model declares: inputs, outputs,
/// parameters, states and what loops carry are cast inside, parameters once, in prepare.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum PrecisionPolicy {
    /// All as the model says.
    #[default]
    AlwaysF32,
    /// All in this precision.
    AlwaysLow(Precision),
    /// Contractions and attention in this precision; reductions, norms, softmax, losses and recurrent cells in f32; elementwise ops,
    /// moves and pooling in what all their operands are in, f32 where they differ.
    Mixed(Precision),
    /// Operands of contractions in this precision, their results and everything else in f32.
    ConservativeMixed(Precision),
    /// By op class, mnemonic or name of the node.
    Custom(CustomPolicy),
}

impl PrecisionPolicy {
    /// The low precision; `None` if there is none.
    pub fn low(&self) -> Option<Precision> {
        let p = match self {
            PrecisionPolicy::AlwaysF32 => Precision::F32,
            PrecisionPolicy::AlwaysLow(p) | PrecisionPolicy::Mixed(p) | PrecisionPolicy::ConservativeMixed(p) => *p,
            PrecisionPolicy::Custom(c) => c.low,
        };
        (p != Precision::F32).then_some(p)
    }
}

impl fmt::Display for PrecisionPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrecisionPolicy::AlwaysF32 => f.write_str("always f32"),
            PrecisionPolicy::AlwaysLow(p) => write!(f, "always {p}"),
            PrecisionPolicy::Mixed(p) => write!(f, "mixed {p}"),
            PrecisionPolicy::ConservativeMixed(p) => write!(f, "conservative mixed {p}"),
            PrecisionPolicy::Custom(c) => c.fmt(f),
        }
    }
}

/// How exact f32 contractions are, in the field's terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MatmulPrecision {
    /// f32 accuracy.
    #[default]
    Highest,
    /// Three bf16 products, where a matrix unit does them; f32 elsewhere, and the report says so.
    High,
    /// bf16 inputs, f32 accumulation.
    Medium,
}

impl fmt::Display for MatmulPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            MatmulPrecision::Highest => "highest",
            MatmulPrecision::High => "high",
            MatmulPrecision::Medium => "medium",
        })
    }
}

/// A format that contractions are quantised to at run time, with scales found from the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ScaledQuant {
    /// 8-bit integers, symmetric; a scale for each row of the left operand and each column of the right one.
    Int8,
    /// 8-bit floats with four exponent bits; scales as for `Int8`.
    Fp8E4M3,
    /// 8-bit floats with five exponent bits; scales as for `Int8`.
    Fp8E5M2,
    /// 8-bit floats with four exponent bits in blocks of 32 that share a power of two.
    Mxfp8E4M3,
    /// 8-bit floats with five exponent bits in blocks of 32 that share a power of two.
    Mxfp8E5M2,
    /// 6-bit floats with two exponent bits in blocks of 32 that share a power of two. Each number is kept in a byte.
    Mxfp6E2M3,
    /// 6-bit floats with three exponent bits in blocks of 32 that share a power of two. Each number is kept in a byte.
    Mxfp6E3M2,
    /// 4-bit floats in blocks of 32 that share a power of two.
    Mxfp4,
}

impl ScaledQuant {
    /// All formats.
    pub const ALL: [ScaledQuant; 8] = [
        ScaledQuant::Int8,
        ScaledQuant::Fp8E4M3,
        ScaledQuant::Fp8E5M2,
        ScaledQuant::Mxfp8E4M3,
        ScaledQuant::Mxfp8E5M2,
        ScaledQuant::Mxfp6E2M3,
        ScaledQuant::Mxfp6E3M2,
        ScaledQuant::Mxfp4,
    ];

    /// The dtype that its numbers are kept in, which has all of them.
    pub fn dtype(self) -> DType {
        match self {
            ScaledQuant::Int8 => DType::I8,
            ScaledQuant::Fp8E4M3 | ScaledQuant::Mxfp8E4M3 | ScaledQuant::Mxfp6E2M3 => DType::F8E4M3FN,
            ScaledQuant::Fp8E5M2 | ScaledQuant::Mxfp8E5M2 | ScaledQuant::Mxfp6E3M2 => DType::F8E5M2,
            ScaledQuant::Mxfp4 => DType::F4E2M1,
        }
    }

    /// True if blocks share scales that are powers of two.
    pub fn is_mx(self) -> bool {
        !matches!(self, ScaledQuant::Int8 | ScaledQuant::Fp8E4M3 | ScaledQuant::Fp8E5M2)
    }

    /// The greatest number that is used.
    pub fn largest(self) -> f64 {
        match self {
            ScaledQuant::Mxfp6E2M3 => 7.5,
            ScaledQuant::Mxfp6E3M2 => 28.0,
            ScaledQuant::Fp8E4M3 | ScaledQuant::Mxfp8E4M3 => 448.0,
            ScaledQuant::Fp8E5M2 | ScaledQuant::Mxfp8E5M2 => 57344.0,
            ScaledQuant::Mxfp4 => 6.0,
            ScaledQuant::Int8 => 127.0,
        }
    }

    /// The exponent of two of the greatest number.
    pub(crate) fn largest_exponent(self) -> i32 {
        match self {
            ScaledQuant::Mxfp6E2M3 | ScaledQuant::Mxfp4 => 2,
            ScaledQuant::Mxfp6E3M2 => 4,
            ScaledQuant::Fp8E4M3 | ScaledQuant::Mxfp8E4M3 => 8,
            ScaledQuant::Fp8E5M2 | ScaledQuant::Mxfp8E5M2 => 15,
            ScaledQuant::Int8 => 6,
        }
    }

    /// Where the dtype has more numbers than the format: bits of the format's fraction, and the exponent of its least normal number.
    pub(crate) fn coarser(self) -> Option<(i32, i32)> {
        match self {
            ScaledQuant::Mxfp6E2M3 => Some((3, 0)),
            ScaledQuant::Mxfp6E3M2 => Some((2, -2)),
            _ => None,
        }
    }
}

impl fmt::Display for ScaledQuant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ScaledQuant::Int8 => "int8",
            ScaledQuant::Fp8E4M3 => "fp8-e4m3",
            ScaledQuant::Fp8E5M2 => "fp8-e5m2",
            ScaledQuant::Mxfp8E4M3 => "mxfp8-e4m3",
            ScaledQuant::Mxfp8E5M2 => "mxfp8-e5m2",
            ScaledQuant::Mxfp6E2M3 => "mxfp6-e2m3",
            ScaledQuant::Mxfp6E3M2 => "mxfp6-e3m2",
            ScaledQuant::Mxfp4 => "mxfp4",
        })
    }
}
