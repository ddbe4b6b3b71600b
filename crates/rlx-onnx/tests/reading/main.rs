//! Reading ONNX files: good ones, odd ones and hostile ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod cases;
mod external;
mod files;
mod make;
mod models;
mod structure;
mod tensors;
