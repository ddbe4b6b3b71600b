//! rlx-ir
#![forbid(unsafe_code)]
pub mod dim;
