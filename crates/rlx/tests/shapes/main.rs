//! One compilation serves all shapes: a transformer, the shipped model, and the models of `../shared` where that folder is.
//!
//! The oracles are outputs that ONNX Runtime gave (stored beside the models) and the evaluator with f64 accumulation.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod harness;
mod models;
mod transformer;
