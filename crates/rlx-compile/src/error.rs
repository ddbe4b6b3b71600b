//! Errors of compiling and of running.

use rlx_ir::error::NodeRef;
use rlx_ir::{DType, IrError};

/// Why a module could not be compiled.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// A pass produced or met a graph that is not well formed.
    #[error("[compile-pass] in pass `{pass}`: {source}")]
    Pass {
        /// The pass.
        pass: &'static str,
        /// What it met.
        source: IrError,
    },
    /// The target can neither run nor decompose these.
    #[error("[compile-unsupported] the target `{target}` cannot run {} op(s):{}", .ops.len(), list(.ops))]
    Unsupported {
        /// The target.
        target: String,
        /// Every offending node, with why.
        ops: Vec<(NodeRef, String)>,
    },
    /// An option speaks of a stage that the module has passed.
    #[error("[compile-option] option `{0}` has no effect at this stage; compile from an earlier one")]
    NoEffectAtStage(&'static str),
    /// Options that ask for what does not exist: everything that is wrong with them.
    #[error("[compile-options] {}", .0.join("; "))]
    Options(Vec<String>),
    /// A pass or phase name that does not exist.
    #[error("[compile-name] unknown {kind} `{name}`; there are: {}", .known.join(", "))]
    UnknownName {
        /// `pass` or `phase`.
        kind: &'static str,
        /// The name.
        name: String,
        /// Names that exist.
        known: Vec<&'static str>,
    },
    /// LIR broke one of its own rules.
    #[error("[compile-lir] {0}")]
    Lir(String),
    /// The backend refused.
    #[error("[compile-backend] {0}")]
    Backend(String),
    /// Writing a dump failed.
    #[error("[compile-dump] {0}")]
    Dump(String),
}

fn list(ops: &[(NodeRef, String)]) -> String {
    ops.iter().map(|(n, why)| format!("\n  {n}: {why}")).collect()
}

/// The name under which users of lowering know [`CompileError`].
pub type LowerError = CompileError;

/// One thing that is wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputProblem {
    /// No such input.
    #[error("there is no {kind} `{name}`; there are: {}", .known.join(", "))]
    Unknown {
        /// `input`, `parameter`, `output` or `state`.
        kind: &'static str,
        /// The name given.
        name: String,
        /// Names that exist.
        known: Vec<String>,
    },
    /// Not given.
    #[error("{kind} `{name}` ({expected}) is missing")]
    Missing {
        /// `input` or `parameter`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Its type.
        expected: String,
    },
    /// Given twice.
    #[error("{kind} `{name}` is given twice")]
    Duplicate {
        /// `input` or `parameter`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// Of another dtype.
    #[error("{kind} `{name}` must be {expected}, got {got}")]
    DType {
        /// `input`, `parameter` or `output`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Dtype declared.
        expected: DType,
        /// Dtype given.
        got: DType,
    },
    /// Of another rank, or with a dim that does not fit.
    #[error("{kind} `{name}` must be {expected}, got shape {got:?}{}", if .why.is_empty() { String::new() } else { format!(": {}", .why) })]
    Shape {
        /// `input`, `parameter` or `output`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Its type, symbolic.
        expected: String,
        /// Sizes given.
        got: Vec<usize>,
        /// More detail, may be empty.
        why: String,
    },
    /// Bytes do not make up elements.
    #[error("{kind} `{name}` needs {expected} bytes, got {got}")]
    Length {
        /// `input`, `parameter` or `output`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Bytes needed.
        expected: usize,
        /// Bytes given.
        got: usize,
    },
    /// A symbol or constraint does not work out.
    #[error("{0}")]
    Binding(String),
}

/// Why a run did not give results.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The call does not fit the program: everything that is wrong with it.
    #[error("[run-inputs] {}", join(.0))]
    Inputs(Vec<InputProblem>),
    /// A kernel met data that its op refuses (an index out of range, a size below zero).
    #[error("[run-kernel] {kernel} at \"{loc}\": {message}")]
    Kernel {
        /// Kind of the kernel.
        kernel: String,
        /// Source nodes.
        loc: String,
        /// What is wrong.
        message: String,
    },
    /// Memory could not be had.
    #[error("[run-memory] {0}")]
    Memory(String),
    /// The backend does not do this.
    #[error("[run-unsupported] {0}")]
    Unsupported(String),
}

fn join(problems: &[InputProblem]) -> String {
    match problems {
        [p] => p.to_string(),
        _ => format!("{} problems:{}", problems.len(), problems.iter().map(|p| format!("\n  {p}")).collect::<String>()),
    }
}
