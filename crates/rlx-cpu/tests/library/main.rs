//! Library kernels against the evaluator, on 1, 2 and 3 threads.

#![allow(clippy::unwrap_used)]

mod harness;
mod indexing;
mod order;
mod pool;
mod random;
mod recurrent;
mod resize;
mod scatter;
