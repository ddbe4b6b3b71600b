//! The same elements in the same order under another shape.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::error::{IrError, OpError};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::tensor::Value;
use crate::types::{Shape, TensorType};

op! {
    /// The same elements, row-major, under another shape of as many elements.
    pub struct Reshape = "reshape" {
        /// Sizes of the result.
        pub dims: Vec<Dim>,
    }
}

impl OpRules for Reshape {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        let t = cx.tensor(0)?;
        let to = Shape::from(self.dims.clone());
        if let Some(d) = self.dims.iter().find(|d| d.as_const().is_some_and(|c| c < 0)) {
            return Err(OpError::new(format!("size {d} is negative")));
        }
        cx.require_eq(&t.shape.numel(), &to.numel(), "number of elements")?;
        let elems = cx.elems(0).map(<[Dim]>::to_vec);
        cx.result_elems(t.dtype, to, elems);
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::from(0)
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        Ok(vec![arg(args, 0)?.reshaped(&cx.sizes(&self.dims)?)?.into()])
    }
}

impl Builder {
    /// The same elements under another shape.
    pub fn reshape(&mut self, x: ValueId, dims: impl IntoIterator<Item = impl Into<Dim>>) -> Result<ValueId, IrError> {
        self.op1(Reshape { dims: dims.into_iter().map(Into::into).collect() }, &[x])
    }
}
