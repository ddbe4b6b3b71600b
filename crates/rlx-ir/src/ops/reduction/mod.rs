//! Reductions, scans and windows.
//!
//! Rules that hold for all: NaN in gives NaN out; integers wrap; floats of 32 bits and fewer accumulate one after another in f32, or
//! in f64 where the evaluation's options say so, and are rounded once to their dtype at the end; `f64` accumulates in f64.

mod accumulate;
mod kinds;
mod reduce;

pub use kinds::{ReduceKind, WindowKind};
pub use reduce::Reduce;

crate::op_family! {
    /// Reductions, scans and windows.
    pub enum Reduction { Reduce }
}

#[cfg(test)]
mod tests;
