//! Blocks and traces: against NumPy in f64, against the evaluator, and against the same model from ONNX.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod bert;
mod blocks;
mod errors;
mod fixtures;
mod harness;
mod minilm;
mod precision;
mod small;
mod traced;
mod weights;
