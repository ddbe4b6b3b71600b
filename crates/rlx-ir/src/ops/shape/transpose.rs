//! Reordering of axes.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::error::{IrError, OpError};
use crate::eval::{signed_strides, strided_positions, take_linear};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::tensor::Value;
use crate::types::{Shape, TensorType};

use super::known::rearranged;

op! {
    /// Reorders axes: axis `i` of the result is axis `perm[i]` of the operand.
    pub struct Transpose = "transpose" {
        /// A permutation of the operand's axes.
        pub perm: Vec<usize>,
    }
}

impl Transpose {
    fn positions(&self, from: &[usize], to: &[usize]) -> Result<Vec<usize>, OpError> {
        let strides = signed_strides(from);
        let strides: Vec<isize> = self.perm.iter().map(|&p| strides[p]).collect();
        strided_positions(to, 0, &strides)
    }
}

impl OpRules for Transpose {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        let t = cx.tensor(0)?;
        let mut sorted = self.perm.clone();
        sorted.sort_unstable();
        if sorted.iter().copied().ne(0..t.shape.rank()) {
            return Err(OpError::new(format!(
                "perm {:?} is not a permutation of the {} axes",
                self.perm,
                t.shape.rank()
            )));
        }
        let shape: Shape = self.perm.iter().map(|&p| t.shape[p].clone()).collect();
        let elems = rearranged(cx.elems(0), &t.shape, &shape, |from, to| self.positions(from, to).ok());
        cx.result_elems(t.dtype, shape, elems);
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::ZERO
    }

    fn eval(&self, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = arg(args, 0)?;
        let dims: Vec<usize> = self.perm.iter().map(|&p| x.dims()[p]).collect();
        Ok(vec![take_linear(x, &dims, &self.positions(x.dims(), &dims)?)?.into()])
    }
}

impl Builder {
    /// Reorders axes.
    pub fn transpose(&mut self, x: ValueId, perm: &[usize]) -> Result<ValueId, IrError> {
        self.op1(Transpose { perm: perm.to_vec() }, &[x])
    }
}
