//! What a trace reports.

use std::fmt;
use std::panic::Location;

use rlx_ir::IrError;

use crate::nn::NnError;

/// One thing that could not be recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceProblem {
    /// Where in the source.
    pub place: &'static Location<'static>,
    /// What is wrong.
    pub error: NnError,
}

impl fmt::Display for TraceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.error)
    }
}

/// All that was wrong with a trace, in order; values that depend on a failed one are not counted again.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("[trace] {} problem(s):{}", .problems.len(), .problems.iter().map(|p| format!("\n  {p}")).collect::<String>())]
pub struct TraceError {
    /// The problems.
    pub problems: Vec<TraceProblem>,
}

/// An error in words.
pub(super) fn told(message: impl Into<String>) -> NnError {
    NnError::Graph(IrError::Eval(message.into()))
}
