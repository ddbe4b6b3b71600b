//! Calls of functions.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::error::{IrError, OpError};
use crate::eval::eval_nested;
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules};
use crate::tensor::Value;
use crate::types::{TensorType, Type};

op! {
    /// The results of a function of the module on the operands. The types of its results are stated, since a graph does not see the module.
    pub struct Call = "call" {
        /// The function's name in the module.
        pub callee: String,
        /// Types of the results.
        pub result_types: Vec<Type>,
    }
}

impl OpRules for Call {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        self.result_types.iter().for_each(|t| cx.result_type(t.clone()));
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::ZERO
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let f = cx.functions.get(&self.callee).ok_or_else(|| {
            let known: Vec<&str> = cx.functions.keys().map(String::as_str).collect();
            OpError::new(format!("the module has no function `{}`; it has [{}]", self.callee, known.join(", ")))
        })?;
        eval_nested(f, args, cx)
    }
}

impl Builder {
    /// A call of a function whose results have these types.
    pub fn call(
        &mut self,
        callee: &str,
        operands: &[ValueId],
        result_types: Vec<Type>,
    ) -> Result<Vec<ValueId>, IrError> {
        self.op(Call { callee: callee.into(), result_types }, operands)
    }
}
