//! rlx-ir
#![forbid(unsafe_code)]
