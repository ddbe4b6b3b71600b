//! RLX: a machine-learning compiler and runtime in Rust.
//!
//! A model goes in (an ONNX file, or a graph made with [`Builder`]); a compiled program comes out and runs on a device at any input shape.
//!
//! ```no_run
//! use rlx::prelude::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = rlx::onnx::load("model.onnx", &rlx::onnx::ImportOptions::default())?;
//! let program = Session::new(Device::Cpu)?.compile_hir(&model.module)?;
//! let x = Tensor::from_slice(&[1, 3], &[1.0f32, 2.0, 3.0])?;
//! let outputs = program.run_tensors(&[("x", &x)])?;
//! println!("{:?}", outputs[0].as_slice::<f32>()?);
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

pub mod nn;
pub mod trace;

pub use rlx_compile as compile;
pub use rlx_driver as driver;
pub use rlx_ir as ir;
pub use rlx_onnx as onnx;
pub use rlx_runtime as runtime;

pub use trace::trace;

pub use rlx_ir::{
    Builder, DType, Dim, DimBinding, Graph, GraphModule, HirModule, Module, RngOptions, Shape, Symbol, Tensor, Value,
};
pub use rlx_runtime::{
    Availability, Backend, CompileError, CompileOptions, CompileReport, CompiledGraph, Device, Error, ExecutableGraph,
    Fusion, Input, InputProblem, LowerError, MatmulPrecision, Outputs, Precision, PrecisionPolicy, RunError,
    ScaledQuant, Session, TensorMut, TensorRef, availability, backend_for, feature_compiled, is_available,
    register_backend, registered_devices,
};

/// What most programs need.
pub mod prelude {
    pub use crate::{
        Builder, CompileOptions, CompiledGraph, DType, Device, Dim, Graph, Input, Module, Precision, Session, Tensor,
    };
}
