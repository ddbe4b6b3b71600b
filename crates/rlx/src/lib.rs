//! rlx
#![forbid(unsafe_code)]
