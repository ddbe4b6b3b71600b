//! The general product of two tensors.

use super::number::{Accumulator, Number, accumulator, result_dtype, with_number};
use super::product::{add_matmul, add_matmul_transposed, permuted};
use crate::builder::Builder;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{IrError, OpError};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::tensor::{Tensor, Value, checked_numel};
use crate::types::{Shape, TensorType};

op! {
    /// Products summed over contracted axes, for each index of the batch axes. The result's axes are: batch, free axes of the left operand, free axes of the right.
    pub struct DotGeneral = "dot_general" {
        /// Batch axes of the left operand.
        pub lhs_batch: Vec<usize>,
        /// Batch axes of the right operand, in the same order.
        pub rhs_batch: Vec<usize>,
        /// Axes of the left operand that are summed over.
        pub lhs_contract: Vec<usize>,
        /// Axes of the right operand that are summed over, in the same order.
        pub rhs_contract: Vec<usize>,
        /// Dtype of the result, if not that of the operands.
        pub accumulate: Option<DType>,
    }
}

/// Below this many rows a right operand is not reordered.
const FEW_ROWS: usize = 8;

/// Axes of a rank that are in neither list.
fn free_axes(rank: usize, batch: &[usize], contract: &[usize]) -> Vec<usize> {
    (0..rank).filter(|a| !batch.contains(a) && !contract.contains(a)).collect()
}

fn check_axes(side: &str, shape: &Shape, batch: &[usize], contract: &[usize]) -> Result<(), OpError> {
    let mut seen = vec![false; shape.rank()];
    for &a in batch.iter().chain(contract) {
        match seen.get_mut(a) {
            Some(s) if !*s => *s = true,
            Some(_) => return Err(OpError::new(format!("{side} axis {a} is listed twice"))),
            None => return Err(OpError::new(format!("{side} axis {a} is out of range for {shape}"))),
        }
    }
    Ok(())
}

impl DotGeneral {
    /// Free axes of the left operand of a rank.
    pub fn lhs_free(&self, rank: usize) -> Vec<usize> {
        free_axes(rank, &self.lhs_batch, &self.lhs_contract)
    }

    /// Free axes of the right operand of a rank.
    pub fn rhs_free(&self, rank: usize) -> Vec<usize> {
        free_axes(rank, &self.rhs_batch, &self.rhs_contract)
    }

    fn product<T: Number>(&self, dtype: DType, a: &Tensor, b: &Tensor) -> Result<Tensor, OpError> {
        let (lhs_free, rhs_free) = (self.lhs_free(a.rank()), self.rhs_free(b.rank()));
        let sizes = |t: &Tensor, axes: &[usize]| axes.iter().map(|&i| t.dims()[i]).collect::<Vec<_>>();
        let batch = sizes(a, &self.lhs_batch);
        let contract = sizes(a, &self.lhs_contract);
        if batch != sizes(b, &self.rhs_batch) || contract != sizes(b, &self.rhs_contract) {
            return Err(OpError::new(format!("sizes of {a:?} and {b:?} do not agree")));
        }
        let dims = [batch.clone(), sizes(a, &lhs_free), sizes(b, &rhs_free)].concat();
        let mut out = vec![T::ZERO; checked_numel(&dims)?];
        let (n, k) = (checked_numel(&sizes(b, &rhs_free))?, checked_numel(&contract)?);
        let m = checked_numel(&sizes(a, &lhs_free))?;
        if !out.is_empty() && k > 0 {
            let lhs = permuted(T::widen(a), a.dims(), &[&self.lhs_batch[..], &lhs_free, &self.lhs_contract].concat());
            let by_column = [&self.rhs_batch[..], &rhs_free, &self.rhs_contract].concat();
            // With few rows, reordering a right operand that lies column by column would cost more than the product.
            let few = m < FEW_ROWS && by_column.iter().copied().eq(0..b.rank());
            let order = if few { by_column } else { [&self.rhs_batch[..], &self.rhs_contract, &rhs_free].concat() };
            let rhs = permuted(T::widen(b), b.dims(), &order);
            let batches = lhs.chunks_exact(m * k).zip(rhs.chunks_exact(k * n));
            for ((x, y), z) in batches.zip(out.chunks_exact_mut(m * n)) {
                if few { add_matmul_transposed(x, y, z, k, n) } else { add_matmul(x, y, z, k, n) }
            }
        }
        T::narrow(dtype, &dims, out)
    }
}

impl OpRules for DotGeneral {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(2)?;
        let (a, b) = (cx.tensor(0)?, cx.tensor(1)?);
        let dtype = result_dtype(&[a.dtype, b.dtype], self.accumulate)?;
        check_axes("left", &a.shape, &self.lhs_batch, &self.lhs_contract)?;
        check_axes("right", &b.shape, &self.rhs_batch, &self.rhs_contract)?;
        for (what, left, right) in
            [("batch", &self.lhs_batch, &self.rhs_batch), ("contracted", &self.lhs_contract, &self.rhs_contract)]
        {
            if left.len() != right.len() {
                return Err(OpError::new(format!("{what} axes {left:?} and {right:?} must be as many on both sides")));
            }
            for (&i, &j) in left.iter().zip(right) {
                cx.require_eq(&a.shape[i], &b.shape[j], &format!("{what} axes {i} and {j}"))?;
            }
        }
        let (lhs_free, rhs_free) = (self.lhs_free(a.shape.rank()), self.rhs_free(b.shape.rank()));
        let left = self.lhs_batch.iter().chain(&lhs_free).map(|&i| a.shape[i].clone());
        let shape: Vec<Dim> = left.chain(rhs_free.iter().map(|&j| b.shape[j].clone())).collect();
        cx.result(dtype, shape);
        Ok(())
    }

    fn work(&self, operands: &[TensorType], results: &[TensorType]) -> Dim {
        let contracted =
            |t: &TensorType| Dim::product(self.lhs_contract.iter().filter_map(|&a| t.shape.get(a).cloned()));
        Dim::product(operands.first().map(contracted).into_iter().chain(results.first().map(|t| t.shape.numel()))) * 2
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let (a, b) = (arg(args, 0)?, arg(args, 1)?);
        let dtype = result_dtype(&[a.dtype(), b.dtype()], self.accumulate)?;
        let out = with_number!(accumulator(dtype, cx.options)?, T => self.product::<T>(dtype, a, b)?);
        Ok(vec![out.into()])
    }
}

impl Builder {
    /// The general product of two tensors; see [`DotGeneral`].
    #[allow(clippy::too_many_arguments)]
    pub fn dot_general(
        &mut self,
        a: ValueId,
        b: ValueId,
        lhs_batch: &[usize],
        rhs_batch: &[usize],
        lhs_contract: &[usize],
        rhs_contract: &[usize],
        accumulate: Option<DType>,
    ) -> Result<ValueId, IrError> {
        let accumulate = accumulate.filter(|&d| self.dtype(a).ok() != Some(d) || self.dtype(b).ok() != Some(d));
        self.op1(
            DotGeneral {
                lhs_batch: lhs_batch.to_vec(),
                rhs_batch: rhs_batch.to_vec(),
                lhs_contract: lhs_contract.to_vec(),
                rhs_contract: rhs_contract.to_vec(),
                accumulate,
            },
            &[a, b],
        )
    }
}
