//! The arithmetic that reductions, scans and windows fold with.

use crate::dtype::DType;
use crate::op::EvalOptions;

/// True if floats of this dtype are to be accumulated in f32.
pub(crate) fn narrow(dtype: DType, options: EvalOptions) -> bool {
    dtype != DType::F64 && dtype != DType::C128 && !options.f64_accumulate
}

/// Sum in f64, or rounded to f32.
pub(crate) fn add(narrow: bool) -> impl Fn(f64, f64) -> f64 + Copy {
    move |a, b| if narrow { f64::from(a as f32 + b as f32) } else { a + b }
}

/// Product in f64, or rounded to f32.
pub(crate) fn mul(narrow: bool) -> impl Fn(f64, f64) -> f64 + Copy {
    move |a, b| if narrow { f64::from(a as f32 * b as f32) } else { a * b }
}

/// Product of complex numbers.
pub(crate) fn complex_mul(narrow: bool) -> impl Fn([f64; 2], [f64; 2]) -> [f64; 2] + Copy {
    let (add, mul) = (add(narrow), mul(narrow));
    move |a, b| [add(mul(a[0], b[0]), -mul(a[1], b[1])), add(mul(a[0], b[1]), mul(a[1], b[0]))]
}
