//! Cases from public bug reports of other systems, of the kinds nonfinite, integer, quant, index and window, each with its siblings,
//! and of random masks.
//! A module per kind; tests are named after the case's number.
//!
//! Each is a small ONNX model. It runs in the evaluator, compiled, without optimisation, on portable kernels, with inputs as
//! parameters and as constants; all are held against the answer that is known beforehand: signs of zeros and places of NaNs too.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod index;
mod integer;
mod nonfinite;
mod onnx;
mod operands;
mod quant;
mod random;
mod ways;
mod window;
