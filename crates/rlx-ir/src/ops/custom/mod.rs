//! Ops that users bring. The graph holds a name and attributes, plain data like any op's; what they mean is looked up by the name in the
//! registry of the process ([`register`]).
//!
//! An op with a decomposition runs on every backend. One without needs a kernel of the backend's own, which backends register by the same
//! name.

mod attributes;
mod registry;
#[cfg(test)]
mod tests;

use crate::builder::Builder;
use crate::dim::Dim;
use crate::error::{IrError, OpError};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, Rule};
use crate::tensor::Value;
use crate::types::TensorType;

pub use attributes::{Attribute, Attributes};
pub use registry::{is_registered, names, register};

op! {
    /// An op that a user brings: its rules are those that are registered under the name.
    pub struct CustomOp = "custom" {
        /// Its name, with a domain in front: `com.acme.Swirl`.
        pub name: String,
        /// What its rules need to know.
        pub attributes: Attributes,
    }
}

crate::op_family! {
    /// Ops that users bring.
    pub enum Custom { CustomOp }
}

/// What a custom op is. All of it must follow from operands and attributes alone: equal ones give equal results, so that the op may be shared,
/// folded and dropped.
pub trait CustomRules: Send + Sync {
    /// The type rule: checks operands and attributes, and states the results' types.
    fn infer(&self, attributes: &Attributes, cx: &mut InferCx<'_>) -> Result<(), OpError>;

    /// The reference semantics.
    fn eval(&self, attributes: &Attributes, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError>;

    /// The same results from other ops; `None` where there are no such.
    fn decompose(&self, attributes: &Attributes, b: &mut Builder, args: &[ValueId]) -> Rule<Vec<ValueId>> {
        let _ = (attributes, b, args);
        None
    }

    /// Arithmetic operations of one application, for reports.
    fn work(&self, attributes: &Attributes, operands: &[TensorType], results: &[TensorType]) -> Dim {
        let _ = (attributes, operands);
        Dim::sum(results.iter().map(|t| t.shape.numel()))
    }
}

impl OpRules for CustomOp {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        registry::rules(&self.name)?.infer(&self.attributes, cx)
    }

    fn work(&self, operands: &[TensorType], results: &[TensorType]) -> Dim {
        registry::rules(&self.name).map_or(Dim::ZERO, |r| r.work(&self.attributes, operands, results))
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        registry::rules(&self.name)?.eval(&self.attributes, cx, args)
    }

    fn decompose(&self, b: &mut Builder, args: &[ValueId]) -> Rule<Vec<ValueId>> {
        registry::rules(&self.name).ok()?.decompose(&self.attributes, b, args)
    }
}

impl Builder {
    /// A custom op, whose rules must be registered under the name.
    pub fn custom(
        &mut self,
        name: impl Into<String>,
        attributes: Attributes,
        operands: &[ValueId],
    ) -> Result<Vec<ValueId>, IrError> {
        self.op(CustomOp { name: name.into(), attributes }, operands)
    }
}
