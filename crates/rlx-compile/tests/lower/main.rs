//! Lowering: what is fused, and that programs compute what graphs mean.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(missing_docs)]

mod control;
mod fusion;
mod harness;
mod interp;
mod random;
mod scaled;
