//! What models embedded by `include_model!` are made of: typed views of inputs, typed outputs, and how they are loaded.
//!
//! The macro (feature `macros`) reads the model when the program is built, from the folder of the package's `Cargo.toml`:
//!
#![cfg_attr(feature = "macros", doc = "```")]
#![cfg_attr(not(feature = "macros"), doc = "```ignore")]
//! rlx::include_model! {
//!     /// Tells speech from silence.
//!     pub struct Vad = "../../models/silero_vad/model.onnx";
//! }
//! # fn main() -> Result<(), rlx::Error> {
//! let mut vad = Vad::new(rlx::Device::Cpu)?;
//! let (sound, state) = ([0.0f32; 576], rlx::embed::Array::zeros([2, 1, 128]));
//! let out = vad.run(rlx::embed::View::new([1, 576], &sound), state.view(), 16_000)?;
//! assert!(out.output[0][0] < 0.5, "silence is no speech");
//! # Ok(()) }
//! ```

use std::sync::Arc;

use rlx_compile::error::{InputProblem, RunError};
use rlx_ir::{DType, Tensor};
use rlx_runtime::{CompileOptions, CompiledGraph, Device, Error, LoadOptions, Outputs, Session, TensorRef, Verify};

pub use half::{bf16, f16};

/// A Rust type of elements.
pub trait Scalar: Copy + Default {
    /// The dtype whose elements it is.
    const DTYPE: DType;
    /// Its bytes.
    fn bytes(values: &[Self]) -> &[u8];
    /// Elements from packed bytes.
    fn read(bytes: &[u8]) -> Vec<Self>;
}

macro_rules! scalars {
    ($($t:ty => $d:ident),* $(,)?) => { $(impl Scalar for $t {
        const DTYPE: DType = DType::$d;
        fn bytes(values: &[Self]) -> &[u8] {
            bytemuck::cast_slice(values)
        }
        fn read(bytes: &[u8]) -> Vec<Self> {
            bytemuck::pod_collect_to_vec(bytes)
        }
    })* };
}
scalars!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64, f16 => F16, bf16 => BF16,
    f32 => F32, f64 => F64);

impl Scalar for bool {
    const DTYPE: DType = DType::Bool;
    fn bytes(values: &[Self]) -> &[u8] {
        bytemuck::cast_slice(values)
    }
    fn read(bytes: &[u8]) -> Vec<Self> {
        bytes.iter().map(|&b| b != 0).collect()
    }
}

/// A tensor of `R` axes that someone else holds, row-major. Sizes are checked when it is used: against the model's, and against the data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View<'a, T, const R: usize> {
    /// Sizes.
    pub dims: [usize; R],
    /// Elements.
    pub data: &'a [T],
}

impl<'a, T: Scalar, const R: usize> View<'a, T, R> {
    /// A view.
    pub fn new(dims: [usize; R], data: &'a [T]) -> Self {
        View { dims, data }
    }

    /// As a program takes it.
    pub fn tensor(&self) -> TensorRef<'_> {
        TensorRef { dtype: T::DTYPE, dims: &self.dims, bytes: T::bytes(self.data) }
    }
}

/// A tensor of `R` axes, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Array<T, const R: usize> {
    /// Sizes.
    pub dims: [usize; R],
    /// Elements.
    pub data: Vec<T>,
}

impl<T: Scalar, const R: usize> Array<T, R> {
    /// Zeros.
    pub fn zeros(dims: [usize; R]) -> Self {
        Array { dims, data: vec![T::default(); dims.iter().product()] }
    }

    /// A view of all.
    pub fn view(&self) -> View<'_, T, R> {
        View { dims: self.dims, data: &self.data }
    }
}

/// Bytes of a literal where kernels can read them.
#[derive(Debug)]
#[repr(align(64))]
pub struct Aligned<const N: usize>(pub [u8; N]);

/// A parameter in an included file: name, dtype, sizes, number of the file, offset.
pub type Part = (&'static str, DType, &'static [usize], usize, usize);

/// A part of an included file.
struct Included(&'static [u8]);

impl AsRef<[u8]> for Included {
    fn as_ref(&self) -> &[u8] {
        self.0
    }
}

/// The program of an embedded model.
pub fn load(
    device: Device,
    options: CompileOptions,
    program: &'static [u8],
    files: &'static [&'static [u8]],
    parts: &'static [Part],
) -> Result<CompiledGraph, Error> {
    // What stands in this program is what was built into it.
    let mut how = LoadOptions::new().verify(Verify::Program).trust_sources();
    for &(name, dtype, dims, file, offset) in parts {
        let len = rlx_ir::tensor::checked_numel(dims).ok().and_then(|n| dtype.bytes_for(n));
        let bytes = len.and_then(|n| files.get(file)?.get(offset..)?.get(..n));
        let value = Tensor::from_source(dtype, dims, Arc::new(Included(bytes.unwrap_or(&[]))));
        how = how.source(name, value.map_err(|e| wrong(name, &e.to_string()))?);
    }
    Session::with_options(device, options)?.load_bytes(Arc::new(Included(program)), &how)
}

fn wrong(name: &str, why: &str) -> Error {
    RunError::Inputs(vec![InputProblem::Binding(format!("`{name}`: {why}"))]).into()
}

/// Result number `i` as an array.
pub fn take<T: Scalar, const R: usize>(outputs: &Outputs<'_>, i: usize, name: &str) -> Result<Array<T, R>, Error> {
    let out = outputs.get(i).ok_or_else(|| wrong(name, "there is no such output"))?;
    match <[usize; R]>::try_from(out.dims) {
        Ok(dims) if out.dtype == T::DTYPE => Ok(Array { dims, data: T::read(out.bytes) }),
        _ => Err(wrong(name, &format!("it is {}{:?}, not {} with {R} axes", out.dtype, out.dims, T::DTYPE))),
    }
}

/// The element of an array without axes.
pub fn one<T: Scalar>(array: Array<T, 0>) -> Result<T, Error> {
    array.data.first().copied().ok_or_else(|| wrong("output", "it has no element"))
}

/// Rows as an array of fixed size.
pub fn boxed<T, const N: usize>(rows: Vec<T>, name: &str) -> Result<Box<[T; N]>, Error> {
    let n = rows.len();
    rows.into_boxed_slice().try_into().map_err(|_| wrong(name, &format!("it has {n} rows, not {N}")))
}
