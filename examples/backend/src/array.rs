//! Tensors as lists of scalars, and walks over them.

use rlx::compile::RunError;
use rlx::ir::element::Elements;
use rlx::ir::ops::elementwise::Scalar;
use rlx::{DType, Tensor};

/// An error of a kernel on data.
pub fn fault(kernel: &str, message: impl Into<String>) -> RunError {
    RunError::Kernel { kernel: kernel.into(), loc: String::new(), message: message.into() }
}

/// A tensor, row-major.
#[derive(Clone, Debug)]
pub struct Array {
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub dims: Vec<usize>,
    /// Elements.
    pub data: Vec<Scalar>,
}

impl Array {
    /// From a tensor of numbers.
    pub fn of(t: &Tensor) -> Result<Array, RunError> {
        Ok(Array { dtype: t.dtype(), dims: t.dims().to_vec(), data: scalars(t)? })
    }

    /// As a tensor, rounded to the dtype.
    pub fn tensor(&self) -> Result<Tensor, RunError> {
        tensor(self.dtype, &self.dims, &self.data)
    }

    /// The element at an index of as many axes, or an error.
    pub fn at(&self, index: &[usize]) -> Result<Scalar, RunError> {
        let at = index.iter().zip(&self.dims).fold(0, |at, (&i, &n)| at * n + i);
        self.data.get(at).copied().ok_or_else(|| fault("read", format!("{index:?} is outside {:?}", self.dims)))
    }

    /// The element that stands at an index of a larger shape that this one broadcasts to.
    pub fn broadcast_at(&self, index: &[usize]) -> Result<Scalar, RunError> {
        let skip = index.len().saturating_sub(self.dims.len());
        let own: Vec<usize> =
            index.iter().skip(skip).zip(&self.dims).map(|(&i, &n)| if n == 1 { 0 } else { i }).collect();
        self.at(&own)
    }
}

/// A tensor's elements.
pub fn scalars(t: &Tensor) -> Result<Vec<Scalar>, RunError> {
    Ok(match t.elements() {
        Elements::Float(v) => v.into_iter().map(Scalar::F).collect(),
        Elements::Int(v) => v.into_iter().map(Scalar::I).collect(),
        _ => return Err(RunError::Unsupported(format!("tensors of {}", t.dtype()))),
    })
}

/// A tensor of a dtype from scalars of its class.
pub fn tensor(dtype: DType, dims: &[usize], data: &[Scalar]) -> Result<Tensor, RunError> {
    let elements = if dtype.is_float() {
        Elements::Float(data.iter().map(|&s| float(s)).collect())
    } else {
        Elements::Int(data.iter().map(|&s| int(s)).collect())
    };
    Tensor::from_elements(dtype, dims, &elements).map_err(|e| RunError::Memory(e.to_string()))
}

/// A scalar as a float.
pub fn float(s: Scalar) -> f64 {
    match s {
        Scalar::F(x) => x,
        Scalar::I(x) => x as f64,
        Scalar::C([re, _]) => re,
    }
}

/// A scalar as an integer.
pub fn int(s: Scalar) -> i128 {
    match s {
        Scalar::I(x) => x,
        Scalar::F(x) => x as i128,
        Scalar::C([re, _]) => re as i128,
    }
}

/// Every index of a shape, row-major.
pub fn indices(dims: &[usize]) -> impl Iterator<Item = Vec<usize>> + use<> {
    let dims = dims.to_vec();
    let count: usize = dims.iter().product();
    (0..count).map(move |mut p| {
        let mut index = vec![0; dims.len()];
        for (i, n) in index.iter_mut().zip(&dims).rev() {
            *i = p % n;
            p /= n;
        }
        index
    })
}
