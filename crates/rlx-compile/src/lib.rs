//! The compiler of RLX: passes over graphs, lowering to LIR, and what a device backend is.
//!
//! A module travels HIR → MIR → LIR through one list of passes, whichever door it came in by; see [`pipeline`].
#![forbid(unsafe_code)]

pub mod error;
pub mod lir;
pub mod options;
pub mod remark;
pub mod rewrite;
pub mod target;

pub use error::{CompileError, InputProblem, LowerError, RunError};
pub use options::{CompileOptions, Fusion, MatmulPrecision, Precision};
pub use remark::{Remark, RemarkKind, Remarks};
pub use target::{Backend, Claims, ExecutableGraph, TargetModule};
