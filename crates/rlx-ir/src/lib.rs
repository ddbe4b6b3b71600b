//! The graph language of RLX: dtypes, symbolic shapes, tensors, the op families, graphs and their builder, text form, verifier, and the
//! reference evaluator.
//!
//! A graph at any stage of the compiler is a [`Graph`] in a [`Module`]. Each op's whole truth (type rule, reference semantics, text form,
//! decomposition, derivative, batching) stands once, in its family's folder under [`ops`].
#![forbid(unsafe_code)]

pub mod attr;
pub mod builder;
pub mod dim;
pub mod dtype;
pub mod element;
pub mod error;
pub mod eval;
pub mod fingerprint;
pub mod graph;
pub mod op;
pub mod ops;
pub mod tensor;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
pub mod types;
pub mod verify;

pub use builder::Builder;
pub use dim::{Dim, DimBinding, Symbol};
pub use dtype::DType;
pub use error::{IrError, OpError};
pub use fingerprint::{Fingerprint, fingerprint};
pub use graph::{Graph, GraphModule, HirModule, Loc, Module, Node, NodeId, Stage, ValueId};
pub use ops::Op;
pub use ops::random::RngOptions;
pub use tensor::{Tensor, Value};
pub use types::{Shape, TensorType, Type};
pub use verify::verify;

/// The sources that this crate was compiled from, as a number in hexadecimal: files that depend on what ops mean name it.
pub const SOURCES: &str = env!("RLX_SOURCES");
