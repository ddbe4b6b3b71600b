//! RLX: a machine-learning compiler and runtime in Rust.
//!
#![doc = include_str!("guide.md")]
#![forbid(unsafe_code)]

pub mod custom;
pub mod embed;
pub mod nn;
pub mod trace;

pub use rlx_compile as compile;
pub use rlx_driver as driver;
pub use rlx_ir as ir;
pub use rlx_onnx as onnx;
pub use rlx_runtime as runtime;

pub use trace::trace;

#[cfg(feature = "macros")]
pub use rlx_macros::include_model;

pub use rlx_ir::{
    Builder, DType, Dim, DimBinding, Graph, GraphModule, HirModule, Module, RngOptions, Shape, Symbol, Tensor, Value,
};
pub use rlx_runtime::artefact;
pub use rlx_runtime::{
    Artefact, ArtefactError, Availability, Backend, Cache, CacheUse, CompileError, CompileOptions, CompileReport,
    CompiledGraph, CustomPolicy, Device, Error, ExecutableGraph, Fusion, Input, InputProblem, LoadOptions, LowerError,
    MatmulPrecision, OpClass, Otherwise, Outputs, PortInfo, Precision, PrecisionPolicy, PrecisionRule, RunError,
    SaveOptions, Saved, ScaledQuant, Selector, Session, TensorMut, TensorRef, Verify, availability, backend_for,
    feature_compiled, is_available, register_backend, registered_devices,
};

/// What most programs need.
pub mod prelude {
    pub use crate::{
        Builder, CompileOptions, CompiledGraph, DType, Device, Dim, Graph, Input, Module, Precision, Session, Tensor,
    };
}
