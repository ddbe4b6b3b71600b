//! Tests of dims. Expected values are written by hand or come from the plain expression trees in `random`.

mod constraints;
mod random;
mod simplify;
mod solve;
mod text;

use super::Dim;

/// The dim of a text.
fn dim(text: &str) -> Dim {
    Dim::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}
