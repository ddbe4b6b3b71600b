//! From a checked [`Model`] to a [`Module`]: ONNX's ops become ops of the IR.
//!
//! The importer walks graphs in order. Each value name stands for a [`scope::Entry`]: a value of a graph being built, content of the
//! file that nobody has asked for yet, or nothing (its node could not be imported). A node that fails is recorded and its results
//! become nothing; so one import lists everything that is wrong. Content becomes a constant or a parameter when first used.
//!
//! A nested graph is built in a [`scope::Frame`] of its own and takes what it uses from outside as inputs. A branch whose condition is
//! known and the body of a function are built in the frame that they stand in.

mod error;
mod functions;
mod graph;
mod hints;
mod nested;
mod options;
mod rng;
mod scope;
mod values;

use std::path::Path;

use rlx_ir::Module;

pub use error::{ImportError, ImportFault, ImportWarning, UnsupportedOp};
pub(crate) use nested::scalar;
pub use options::ImportOptions;
pub(crate) use scope::{Entry, Importer, Turn};
pub use values::to_tensor;
pub(crate) use values::{dtype, dtype_of_code, to_dense};

use crate::file::OnnxFile;
use crate::model::Model;

/// What an import gives.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The model as a module at the first stage. Its inputs and outputs are those of the model, in order.
    pub module: Module,
    /// What was odd, but no hindrance.
    pub warnings: Vec<ImportWarning>,
}

/// Imports a model. The error lists everything that stands in the way.
pub fn import(model: &Model, options: &ImportOptions) -> Result<Imported, ImportError> {
    Importer::new(model, options).run()
}

/// Reads and imports a file.
pub fn load(path: impl AsRef<Path>, options: &ImportOptions) -> Result<Imported, ImportError> {
    let model = OnnxFile::open(path, &options.read)?.into_model()?;
    import(&model, options)
}
