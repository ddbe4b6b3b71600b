//! The compiler of RLX: passes over graphs, lowering to LIR, and what a device backend is.
//!
//! A module travels HIR → MIR → LIR through one list of passes, whichever door it came in by; see [`pipeline`].
#![forbid(unsafe_code)]

pub mod dump;
pub mod engine;
pub mod error;
pub mod lir;
pub mod lower;
pub mod options;
pub mod pass;
pub mod passes;
pub mod pipeline;
pub mod remark;
pub mod report;
pub mod rewrite;
pub mod target;

pub use engine::{Call, Done, Engine, EngineExecutable};
pub use error::{CompileError, InputProblem, LowerError, RunError};
pub use options::{
    CompileOptions, CustomPolicy, EnvError, Fusion, MatmulPrecision, OpClass, Otherwise, Precision, PrecisionPolicy,
    PrecisionRule, ScaledQuant, Selector,
};
pub use pass::{Pass, PassCx, Phase};
pub use pipeline::{Compiled, compile_lir, compile_module, load_lir, pass_names, run_pass, run_passes};
pub use remark::{Remark, RemarkKind, Remarks};
pub use report::{CompileReport, Fallback, FusionReport, KernelReport, PassReport};
pub use target::{Backend, Claims, ExecutableGraph, TargetModule};

/// The version of programs of kernels: crates' version and sources, since what a kernel means is told by these alone. A file that holds
/// such a program is taken by the same version only.
pub fn version() -> String {
    format!("{}+{}.{}", env!("CARGO_PKG_VERSION"), rlx_ir::SOURCES, env!("RLX_SOURCES"))
}
