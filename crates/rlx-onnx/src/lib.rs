//! ONNX files: reading them as hostile input, and the model they hold as plain structures.
//!
//! [`OnnxFile::open`] maps a file, walks it within [`Limits`] and decodes it; [`OnnxFile::into_model`]
//! checks its structure as a whole and gives a [`Model`], or the list of all faults. Weights stay
//! where the file has them. [`TestCase`] reads the folders of inputs and outputs that ONNX ships.
#![forbid(unsafe_code)]

mod case;
mod dtype;
mod error;
mod export;
mod external;
mod fault;
mod file;
mod import;
pub mod model;
mod ops;
mod options;
pub mod proto;
pub mod quantize;
mod scan;
mod schema;
mod source;
mod tensor;
mod text;
mod typed;

pub use case::{CaseValue, TestCase};
pub use dtype::OnnxType;
pub use error::OnnxError;
pub use export::{ExportError, export};
pub use external::ExternalProblem;
pub use fault::{Fault, Faults};
pub use file::OnnxFile;
pub use import::{
    ImportError, ImportFault, ImportOptions, ImportWarning, Imported, UnsupportedOp, import, load, to_tensor,
};
pub use model::Model;
pub use ops::{Operator, operators};
pub use options::{Limits, ReadOptions};
pub use rlx_driver::FileAccess;
pub use source::Sources;
pub use tensor::{RawSparseTensor, RawTensor, TensorData, TensorProblem};
