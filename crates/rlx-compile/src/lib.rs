//! rlx-compile
#![forbid(unsafe_code)]
