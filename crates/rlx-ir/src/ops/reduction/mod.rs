//! Reductions, scans and windows.
//!
//! Rules that hold for all: NaN in gives NaN out; integers wrap; floats of 32 bits and fewer accumulate one after another in f32, or
//! in f64 where the evaluation's options say so, and are rounded once to their dtype at the end; `f64` accumulates in f64.

pub(crate) mod accumulate;
mod arg_reduce;
mod cumulative;
mod helpers;
mod kinds;
mod reduce;
mod reduce_window;
mod window;

use crate::dim::{Constraint, Dim};
use crate::error::OpError;
use crate::op::InferCx;

pub use arg_reduce::{ArgKind, ArgReduce};
pub use cumulative::Cumulative;
pub use kinds::{CumKind, ReduceKind, WindowKind};
pub use reduce::Reduce;
pub use reduce_window::{MaxPoolIndices, ReduceWindow};

crate::op_family! {
    /// Reductions, scans and windows.
    pub enum Reduction { Reduce, ArgReduce, Cumulative, ReduceWindow, MaxPoolIndices }
}

/// Requires an axis to have an element.
fn require_some(cx: &mut InferCx<'_>, size: &Dim, axis: usize) -> Result<(), OpError> {
    cx.require(Constraint::Le(Dim::ONE, size.clone()), &format!("axis {axis} must not be empty"))
}

#[cfg(test)]
mod tests;
