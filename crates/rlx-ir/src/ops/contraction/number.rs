//! The numbers that contractions add up in, and operands widened to them.

use std::borrow::Cow;

use crate::dtype::{Class, DType};
use crate::element::Elements;
use crate::error::OpError;
use crate::op::EvalOptions;
use crate::tensor::Tensor;

/// A number that products add up in.
pub(super) trait Number: Copy {
    /// Nothing added yet.
    const ZERO: Self;

    /// The factor that changes nothing.
    const ONE: Self;

    /// `self + a·b`, rounded after each step.
    fn add_product(self, a: Self, b: Self) -> Self;

    /// A tensor's elements in this type.
    fn widen(t: &Tensor) -> Cow<'_, [Self]>;

    /// A tensor of sums, rounded or wrapped to `dtype`.
    fn narrow(dtype: DType, dims: &[usize], sums: Vec<Self>) -> Result<Tensor, OpError>;
}

impl Number for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;

    fn add_product(self, a: f32, b: f32) -> f32 {
        self + a * b
    }

    fn widen(t: &Tensor) -> Cow<'_, [f32]> {
        match t.as_slice::<f32>() {
            Ok(s) => s,
            Err(_) => t.elements().to_f64().unwrap_or_default().into_iter().map(|x| x as f32).collect(),
        }
    }

    fn narrow(dtype: DType, dims: &[usize], sums: Vec<f32>) -> Result<Tensor, OpError> {
        if dtype == DType::F32 {
            return Ok(Tensor::from_slice(dims, &sums)?);
        }
        f64::narrow(dtype, dims, sums.into_iter().map(f64::from).collect())
    }
}

impl Number for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;

    fn add_product(self, a: f64, b: f64) -> f64 {
        self + a * b
    }

    fn widen(t: &Tensor) -> Cow<'_, [f64]> {
        t.elements().to_f64().unwrap_or_default().into()
    }

    fn narrow(dtype: DType, dims: &[usize], sums: Vec<f64>) -> Result<Tensor, OpError> {
        Ok(Tensor::from_elements(dtype, dims, &Elements::Float(sums))?)
    }
}

/// Wrapping modulo 2⁶⁴ agrees with wrapping modulo any narrower power of two, so this one type serves all integers.
impl Number for i64 {
    const ZERO: i64 = 0;
    const ONE: i64 = 1;

    fn add_product(self, a: i64, b: i64) -> i64 {
        self.wrapping_add(a.wrapping_mul(b))
    }

    fn widen(t: &Tensor) -> Cow<'_, [i64]> {
        t.elements().ints().unwrap_or(&[]).iter().map(|&x| x as i64).collect()
    }

    fn narrow(dtype: DType, dims: &[usize], sums: Vec<i64>) -> Result<Tensor, OpError> {
        let wide = sums.into_iter().map(i128::from).collect();
        Ok(Tensor::from_elements(dtype, dims, &Elements::Int(wide))?)
    }
}

/// A complex number, real part first.
impl Number for [f64; 2] {
    const ZERO: [f64; 2] = [0.0; 2];
    const ONE: [f64; 2] = [1.0, 0.0];

    fn add_product(self, a: [f64; 2], b: [f64; 2]) -> [f64; 2] {
        [self[0] + a[0] * b[0] - a[1] * b[1], self[1] + a[0] * b[1] + a[1] * b[0]]
    }

    fn widen(t: &Tensor) -> Cow<'_, [[f64; 2]]> {
        match t.elements() {
            Elements::Complex(v) => v.into(),
            _ => Cow::Borrowed(&[]),
        }
    }

    fn narrow(dtype: DType, dims: &[usize], sums: Vec<[f64; 2]>) -> Result<Tensor, OpError> {
        Ok(Tensor::from_elements(dtype, dims, &Elements::Complex(sums))?)
    }
}

/// Which [`Number`] a contraction of some dtype adds up in.
pub(super) enum Accumulator {
    F32,
    F64,
    I64,
    Complex,
}

/// The accumulator for a result of `dtype`.
pub(super) fn accumulator(dtype: DType, options: EvalOptions) -> Result<Accumulator, OpError> {
    match dtype.class() {
        Class::Float if dtype == DType::F64 || options.f64_accumulate => Ok(Accumulator::F64),
        Class::Float => Ok(Accumulator::F32),
        Class::Int | Class::UInt => Ok(Accumulator::I64),
        Class::Complex => Ok(Accumulator::Complex),
        Class::Bool | Class::Str => Err(OpError::new(format!("takes numbers, got {dtype}"))),
    }
}

/// The dtype of a contraction's result, checked: that of the operands, or what `accumulate` asks for.
pub(super) fn result_dtype(operands: &[DType], accumulate: Option<DType>) -> Result<DType, OpError> {
    let class = |d: DType| match d.class() {
        Class::UInt => Class::Int,
        c => c,
    };
    let first = operands.first().copied().unwrap_or(DType::F32);
    let out = accumulate.unwrap_or(first);
    for &d in operands {
        if matches!(d.class(), Class::Bool | Class::Str) {
            return Err(OpError::new(format!("takes numbers, got {d}")).hint("insert a `convert`"));
        }
        if accumulate.is_none() && d != first || class(d) != class(out) {
            return Err(OpError::new(format!("operands of {first} and {d} cannot be contracted to {out}")).hint(
                "insert a `convert`, or for integers of several widths give the result's dtype as `accumulate`",
            ));
        }
        if d != first && !d.is_int() {
            return Err(
                OpError::new(format!("operands must share a dtype, got {first} and {d}")).hint("insert a `convert`")
            );
        }
    }
    Ok(out)
}

/// Runs `$body` with `$T` as the number type of an [`Accumulator`].
macro_rules! with_number {
    ($acc:expr, $T:ident => $body:expr) => {
        match $acc {
            Accumulator::F32 => {
                type $T = f32;
                $body
            }
            Accumulator::F64 => {
                type $T = f64;
                $body
            }
            Accumulator::I64 => {
                type $T = i64;
                $body
            }
            Accumulator::Complex => {
                type $T = [f64; 2];
                $body
            }
        }
    };
}
pub(super) use with_number;
