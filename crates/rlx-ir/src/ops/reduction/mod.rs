//! Reductions over axes, windows and prefixes.

mod kinds;

pub use kinds::{ReduceKind, WindowKind};
