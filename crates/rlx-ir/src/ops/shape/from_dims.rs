//! Sizes as data.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::element::Elements;
use crate::error::{IrError, OpError};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules};
use crate::tensor::{Tensor, Value};
use crate::types::{Shape, TensorType};

op! {
    /// An integer tensor whose elements are dims: what shape arithmetic becomes once its elements are known.
    pub struct FromDims = "from_dims" {
        /// Element type: an integer type or bool.
        pub dtype: DType,
        /// Shape of the result, all constants.
        pub shape: Vec<usize>,
        /// Elements, row-major.
        pub elems: Vec<Dim>,
    }
}

impl OpRules for FromDims {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(0)?;
        if !(self.dtype.is_int() || self.dtype == DType::Bool) {
            return Err(OpError::new(format!("dtype must be an integer type or bool, got {}", self.dtype)));
        }
        if crate::tensor::checked_numel(&self.shape)? != self.elems.len() {
            return Err(OpError::new(format!("shape {:?} does not hold {} elements", self.shape, self.elems.len())));
        }
        cx.result_elems(self.dtype, Shape::new(self.shape.iter().copied()), Some(self.elems.clone()));
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::from(0)
    }

    fn eval(&self, cx: &EvalCx<'_>, _args: &[Value]) -> Result<Vec<Value>, OpError> {
        let elems = self.elems.iter().map(|d| cx.int(d).map(i128::from)).collect::<Result<Vec<_>, _>>()?;
        Ok(vec![Tensor::from_elements(self.dtype, &self.shape, &Elements::Int(elems))?.into()])
    }
}

impl Builder {
    /// A vector of dims as `i64`.
    pub fn from_dims(&mut self, elems: Vec<Dim>) -> Result<ValueId, IrError> {
        self.op1(FromDims { dtype: DType::I64, shape: vec![elems.len()], elems }, &[])
    }

    /// One dim as an `i64` scalar.
    pub fn from_dim(&mut self, dim: Dim) -> Result<ValueId, IrError> {
        self.op1(FromDims { dtype: DType::I64, shape: vec![], elems: vec![dim] }, &[])
    }
}
