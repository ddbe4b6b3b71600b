//! Sessions: the way from a graph to results on a device.
//!
//! A [`Session`] names a device and how to compile for it; it makes [`CompiledGraph`]s, which take inputs of any shape that fits.
//! Devices come from a registry ([`register_backend`]) that other crates add to.
#![forbid(unsafe_code)]

pub mod artefact;
mod boundary;
mod cache;
mod compiled;
mod error;
mod inputs;
mod registry;
pub mod safetensors;
mod session;
mod specialise;

pub use artefact::{Artefact, ArtefactError, LoadOptions, SaveOptions, Saved, Verify};
pub use cache::{Cache, CacheUse};
pub use compiled::{CompiledGraph, Outputs};
pub use error::{Error, Result};
pub use inputs::Input;
pub use registry::{availability, backend_for, feature_compiled, is_available, register_backend, registered_devices};
pub use rlx_compile::engine::{Call, Done, Engine, EngineExecutable};
pub use rlx_compile::error::LowerError;
pub use rlx_compile::error::{CompileError, InputProblem, RunError};
pub use rlx_compile::lir::LirModule;
pub use rlx_compile::options::{
    CompileOptions, CustomPolicy, EnvError, Fusion, MatmulPrecision, OpClass, Otherwise, Precision, PrecisionPolicy,
    PrecisionRule, ScaledQuant, Selector,
};
pub use rlx_compile::report::{CompileReport, Fallback, FusionReport, KernelReport, PassReport};
pub use rlx_compile::target::{
    Backend, BindMiss, BorrowedTensor, BorrowedTensors, Claims, ExecStats, ExecutableGraph, Extent, KernelProfile,
    MemoryReport, MissReason, PortInfo, SegmentMemory, TargetModule, TensorMut, TensorRef,
};
#[cfg(feature = "cpu")]
pub use rlx_cpu::{CustomKernel, KernelInput, KernelOutput, register_kernel};
pub use rlx_driver::{Availability, Device};
pub use rlx_ir::ops::random::RngOptions;
pub use safetensors::LoadedParams;
pub use session::{AnyModule, Session, SessionOptions};
