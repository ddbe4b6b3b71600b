//! Imports of real models and of small ones made for one property each.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[path = "../reading/make.rs"]
#[allow(dead_code)]
mod make;
mod models;
mod npz;
mod small;
