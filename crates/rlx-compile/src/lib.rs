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
pub use options::{CompileOptions, EnvError, Fusion, MatmulPrecision, Precision, PrecisionPolicy, ScaledQuant};
pub use pass::{Pass, PassCx, Phase};
pub use pipeline::{Compiled, compile_lir, compile_module, pass_names, run_pass, run_passes};
pub use remark::{Remark, RemarkKind, Remarks};
pub use report::{CompileReport, Fallback, FusionReport, KernelReport, PassReport};
pub use target::{Backend, Claims, ExecutableGraph, TargetModule};
