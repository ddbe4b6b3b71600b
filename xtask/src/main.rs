//! Checks of the project as code.
fn main() {}
