//! Reordering of axes.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::error::{IrError, OpError};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::tensor::Value;
use crate::types::{Shape, TensorType};

op! {
    /// Reorders axes: axis `i` of the result is axis `perm[i]` of the operand.
    pub struct Transpose = "transpose" {
        /// A permutation of the operand's axes.
        pub perm: Vec<usize>,
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
        let elems = if t.shape.rank() <= 1 { cx.elems(0).map(<[Dim]>::to_vec) } else { None };
        cx.result_elems(t.dtype, shape, elems);
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::from(0)
    }

    fn eval(&self, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = arg(args, 0)?;
        let dims: Vec<usize> = self.perm.iter().map(|&p| x.dims()[p]).collect();
        let strides = crate::eval::row_major_strides(x.dims());
        let strides: Vec<usize> = self.perm.iter().map(|&p| strides[p]).collect();
        Ok(vec![
            crate::eval::gather_elements(x, &dims, |index| index.iter().zip(&strides).map(|(i, s)| i * s).sum())?
                .into(),
        ])
    }
}

impl Builder {
    /// Reorders axes.
    pub fn transpose(&mut self, x: ValueId, perm: &[usize]) -> Result<ValueId, IrError> {
        self.op1(Transpose { perm: perm.to_vec() }, &[x])
    }
}
