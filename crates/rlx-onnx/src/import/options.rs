//! What a caller may choose about importing.

use std::collections::BTreeMap;

use rlx_ir::{Dim, Tensor};

use crate::options::ReadOptions;

/// How a model is imported.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// How the file is read.
    pub read: ReadOptions,
    /// Shapes of inputs, in place of those that the file declares: to give a shape where the file has none, or to unlink dims that
    /// share a name by mistake.
    pub input_shapes: BTreeMap<String, Vec<Dim>>,
    /// Inputs that are the same in every call. They become constants and are no inputs any more; so an operand that must be known
    /// when the model is compiled can be given here.
    pub fixed_inputs: BTreeMap<String, Tensor>,
}
