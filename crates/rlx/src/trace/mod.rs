//! Tracing: a Rust closure over [`Traced`] values becomes a graph.
//!
//! Operators and methods record ops instead of computing. What a method names is recorded as that composite (softmax, layer norm,
//! attention), never as its parts. Shapes broadcast as in NumPy; dtypes are never mixed silently. Nothing fails on the way: what cannot
//! be is noted with its place in the source, values that depend on it are skipped, and the end reports all of it at once.
//!
//! ```
//! use rlx::prelude::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let module = rlx::trace("attend", [("x", "f32[batch, 8]"), ("keys", "f32[n, 8]")], |_, [x, keys]| {
//!     let scores = x.matmul(keys.t()) / 8f64.sqrt();
//!     scores.softmax(-1).matmul(keys)
//! })?;
//! let program = Session::new(Device::Cpu)?.compile_hir(&module)?;
//! let y = program.run(&[("x", &[1.0; 16]), ("keys", &[0.5; 24])])?;
//! assert_eq!(y[0].len(), 2 * 8);
//! # Ok(()) }
//! ```
//!
//! The closure's first argument declares parameters and constants, and blocks of [`nn`](crate::nn) apply to traced values:
//!
//! ```
//! use rlx::nn::{Activation, Linear};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let module = rlx::trace("head", [("x", "f32[batch, 8]")], |t, [x]| {
//!     let scale = t.param("scale", "f32[8]");
//!     (x * scale).through("fc", &Linear::new(8, 3)).apply(&Activation::Relu)
//! })?;
//! let names: Vec<&str> = module.main.params().iter().map(|p| &*p.name).collect();
//! assert_eq!(names, ["scale", "fc.weight", "fc.bias"]);
//! # Ok(()) }
//! ```

mod error;
mod methods;
mod operators;
mod tracer;

use rlx_ir::Module;

pub use error::{TraceError, TraceProblem};
pub use tracer::{InputType, Trace, Traced, Tracer};

/// Traces a closure from inputs (names with types, `"f32[batch, 384]"`) to one output, `out0`. For weights, dtypes or several outputs see
/// [`Trace`].
pub fn trace<const N: usize, T, F>(name: &str, inputs: [(&str, T); N], f: F) -> Result<Module, TraceError>
where
    T: InputType,
    F: for<'t> FnOnce(&'t Tracer, [Traced<'t>; N]) -> Traced<'t>,
{
    Trace::new(name).run(inputs, f)
}
