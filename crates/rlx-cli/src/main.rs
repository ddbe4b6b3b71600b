//! The `rlx` program.
fn main() {}
