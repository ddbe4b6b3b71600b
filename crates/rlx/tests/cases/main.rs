//! Cases from public bug reports of other systems, of the kinds compiler, dynamic, shape, runtime and precision, each with its siblings.
//! A module per kind; tests are named after the case's number.
//!
//! Every case runs in the evaluator, compiled, without optimisation, at every instruction set, with inputs as parameters, and with inputs
//! as constants so that the folder computes it; all are held against the answer that is known beforehand.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod compiler;
mod dynamic;
#[path = "../contract/harness.rs"]
#[allow(dead_code)]
mod harness;
mod precision;
mod runtime;
mod shape;
mod ways;
