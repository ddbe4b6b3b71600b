//! Sizes out of shapes, and sizes out of data.

use crate::builder::Builder;
use crate::dim::{Dim, Symbol};
use crate::dtype::DType;
use crate::error::{IrError, OpError};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::tensor::{Tensor, Value};
use crate::types::TensorType;

op! {
    /// The operand's sizes, as a vector of `i64` whose elements are known.
    pub struct ShapeOf = "shape_of" {}
}

impl OpRules for ShapeOf {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        let dims = cx.shape(0)?.dims().to_vec();
        cx.result_elems(DType::I64, vec![Dim::from(dims.len() as i64)], Some(dims));
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::from(0)
    }

    fn eval(&self, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let dims: Vec<i64> = arg(args, 0)?.dims().iter().map(|&d| d as i64).collect();
        Ok(vec![Tensor::from_slice(&[dims.len()], &dims)?.into()])
    }
}

op! {
    /// The operand, whose elements get names: here data becomes sizes. They must not be negative.
    pub struct ReadDims = "read_dims" {
        /// The symbols that this node defines, one per element.
        pub symbols: Vec<Symbol>,
    }
}

impl OpRules for ReadDims {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        let t = cx.tensor(0)?;
        if !t.dtype.is_int() {
            return Err(OpError::new(format!("sizes must be integers, got {}", t.dtype)));
        }
        let n = t.shape.numel();
        if t.shape.rank() > 1 || n.as_const() != i64::try_from(self.symbols.len()).ok() {
            return Err(OpError::new(format!(
                "reads a scalar or a vector of {} elements, got {}",
                self.symbols.len(),
                t.shape
            )));
        }
        let elems = self.symbols.iter().map(Dim::symbol).collect();
        cx.result_elems(t.dtype, t.shape.clone(), Some(elems));
        Ok(())
    }

    fn eval(&self, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        Ok(vec![arg(args, 0)?.clone().into()])
    }
}

impl Builder {
    /// The sizes of `x` as a vector of `i64`.
    pub fn shape_of(&mut self, x: ValueId) -> Result<ValueId, IrError> {
        self.op1(ShapeOf {}, &[x])
    }

    /// `x` with its elements known as these symbols; `x` itself if they are known already.
    pub fn read_dims(&mut self, x: ValueId, symbols: Vec<Symbol>) -> Result<ValueId, IrError> {
        self.ty(x)?;
        if self.graph().elems(x).is_some() {
            return Ok(x);
        }
        self.op1(ReadDims { symbols }, &[x])
    }
}
