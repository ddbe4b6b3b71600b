//! Faults seen in earlier systems of this design: none may exist here. A test per fault, named after its number. What another test shows in
//! full is named beside.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod caches;
mod compiler;
mod dynamic;
mod engineering;
#[path = "../contract/harness.rs"]
#[allow(dead_code)]
mod harness;
mod running;
mod session;
