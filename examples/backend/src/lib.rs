//! Two backends written outside the workspace of RLX, as an author of a device would write them. Both are plain interpreters that can be
//! read in one sitting; `docs/backend.md` of the repository walks through them.
//!
//! - [`GraphBackend`] takes graphs (MIR): it claims a handful of ops, and all others arrive decomposed into these. It takes fixed sizes
//!   only, so that a session compiles for it anew for each shape.
//! - [`KernelBackend`] takes kernels over buffers (LIR): maps, rows, contractions and a gather. One program serves all shapes.
//!
//! ```
//! use std::sync::Arc;
//! use rlx::prelude::*;
//! use rlx_example_backend::KernelBackend;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! rlx::register_backend(Device::Hexagon, Arc::new(KernelBackend));
//! let mut b = Builder::new("double");
//! let x = b.input("x", DType::F32, [Dim::symbol("n")])?;
//! let y = b.add(x, x)?;
//! b.output("y", y)?;
//! let program = Session::new(Device::Hexagon)?.compile(b.finish())?;
//! assert_eq!(program.run(&[("x", &[1.0, 2.5])])?, [[2.0, 5.0]]);
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

mod array;
mod fold;
mod graphs;
mod kernels;

pub use graphs::GraphBackend;
pub use kernels::KernelBackend;
