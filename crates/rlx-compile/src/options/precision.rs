//! Numbers: what is kept and what is computed in.

use std::fmt;

/// Numbers that activations and weights are kept in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Precision {
    /// As the model says.
    #[default]
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    BF16,
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

/// Which ops compute in low precision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PrecisionPolicy {
    /// All as the model says.
    #[default]
    AlwaysF32,
    /// All in this precision.
    AlwaysLow(Precision),
    /// Contractions in this precision; reductions, norms, softmax and losses in f32.
    Mixed(Precision),
    /// Contractions alone in this precision, everything else in f32.
    ConservativeMixed(Precision),
}

impl fmt::Display for PrecisionPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrecisionPolicy::AlwaysF32 => f.write_str("always f32"),
            PrecisionPolicy::AlwaysLow(p) => write!(f, "always {p}"),
            PrecisionPolicy::Mixed(p) => write!(f, "mixed {p}"),
            PrecisionPolicy::ConservativeMixed(p) => write!(f, "conservative mixed {p}"),
        }
    }
}

/// How exact f32 contractions are, in the field's terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MatmulPrecision {
    /// f32 accuracy.
    #[default]
    Highest,
    /// Three bf16 products.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScaledQuant {
    /// 8-bit integers, symmetric.
    Int8,
    /// 8-bit floats with four exponent bits.
    Fp8E4M3,
    /// 8-bit floats with five exponent bits.
    Fp8E5M2,
    /// 8-bit floats in blocks of 32 that share a scale.
    Mxfp8,
    /// 4-bit floats in blocks of 32 that share a scale.
    Mxfp4,
}
