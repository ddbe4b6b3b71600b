//! rlx-runtime
#![forbid(unsafe_code)]
