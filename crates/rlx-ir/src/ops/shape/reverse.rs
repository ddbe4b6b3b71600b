//! Reversal of axes.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::error::{IrError, OpError};
use crate::eval::{signed_strides, strided_positions, take_linear};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::tensor::Value;
use crate::types::TensorType;

use super::known::{check_axes, rearranged};

op! {
    /// The operand with the order of elements reversed along axes.
    pub struct Reverse = "reverse" {
        /// The axes, ascending.
        pub axes: Vec<usize>,
    }
}

impl Reverse {
    fn positions(&self, dims: &[usize]) -> Result<Vec<usize>, OpError> {
        // Strides of an empty tensor with other huge sizes do not fit a machine word.
        if dims.contains(&0) {
            return Ok(Vec::new());
        }
        let mut strides = signed_strides(dims);
        let mut offset = 0;
        for &a in &self.axes {
            offset += strides[a] * (dims[a] - 1) as isize;
            strides[a] = -strides[a];
        }
        strided_positions(dims, offset, &strides)
    }
}

impl OpRules for Reverse {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        let t = cx.tensor(0)?;
        check_axes(&self.axes, t.shape.rank())?;
        let elems = rearranged(cx.elems(0), &t.shape, &t.shape, |from, _| self.positions(from).ok());
        cx.result_elems(t.dtype, t.shape.clone(), elems);
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::from(0)
    }

    fn eval(&self, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = arg(args, 0)?;
        check_axes(&self.axes, x.rank())?;
        Ok(vec![take_linear(x, x.dims(), &self.positions(x.dims())?)?.into()])
    }
}

impl Builder {
    /// `x` reversed along axes, which may count from the end.
    pub fn reverse(&mut self, x: ValueId, axes: &[i64]) -> Result<ValueId, IrError> {
        let axes = self.axes("reverse", x, axes)?;
        if axes.is_empty() {
            return Ok(x);
        }
        self.op1(Reverse { axes }, &[x])
    }
}
