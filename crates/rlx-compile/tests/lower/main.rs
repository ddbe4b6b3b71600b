//! Lowering: what is fused, and that programs compute what graphs mean.
#![allow(missing_docs)]

mod control;
mod fusion;
mod harness;
mod interp;
mod random;
