//! Elements at indices along an axis.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::error::{IrError, OpError};
use crate::eval::{for_each_index, index_elements, row_major_strides, take_linear};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::ops::shape::known::{check_axis, require_le};
use crate::tensor::{Value, checked_numel};
use crate::types::{Shape, TensorType};

use super::index::{expect_indices, resolve};

op! {
    /// For each index, the element that stands there along an axis and where the index itself stands along the others
    /// (NumPy `take_along_axis`).
    pub struct GatherElements = "gather_elements" {
        /// The axis.
        pub axis: usize,
    }
}

/// Errors unless indices have the operand's rank and, on other axes than `axis`, at most its sizes.
pub(super) fn fit(cx: &mut InferCx<'_>, axis: usize, x: &Shape, indices: &Shape) -> Result<(), OpError> {
    check_axis(axis, x.rank())?;
    if indices.rank() != x.rank() {
        return Err(OpError::new(format!("indices {indices} must have the rank of the operand {x}")));
    }
    for a in (0..x.rank()).filter(|&a| a != axis) {
        require_le(cx, &indices[a], &x[a], &format!("indices on axis {a}"))?;
    }
    Ok(())
}

/// Linear positions in a tensor of sizes `x` that indices of sizes `dims` name.
pub(super) fn positions(axis: usize, x: &[usize], dims: &[usize], indices: &[i64]) -> Result<Vec<usize>, OpError> {
    check_axis(axis, x.len())?;
    let larger = (0..x.len()).any(|a| a != axis && dims.get(a).is_none_or(|&d| d > x[a]));
    if dims.len() != x.len() || larger {
        return Err(OpError::new(format!("indices {dims:?} do not fit the operand {x:?}")));
    }
    let strides = row_major_strides(x);
    let mut out = Vec::with_capacity(checked_numel(dims)?);
    let (mut walk, mut failed) = (indices.iter(), None);
    for_each_index(dims, |index| {
        let at = walk.next().map_or(Ok(0), |&i| resolve(i, x[axis], axis));
        match at {
            Ok(at) => out.push(
                index.iter().zip(&strides).enumerate().map(|(a, (i, s))| if a == axis { at * s } else { i * s }).sum(),
            ),
            Err(e) => failed = failed.take().or(Some(e)),
        }
    });
    failed.map_or(Ok(out), Err)
}

impl OpRules for GatherElements {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(2)?;
        let (t, indices) = (cx.tensor(0)?, cx.shape(1)?);
        expect_indices(cx, 1)?;
        fit(cx, self.axis, &t.shape, indices)?;
        cx.result(t.dtype, indices.clone());
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::ZERO
    }

    fn eval(&self, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let (x, indices) = (arg(args, 0)?, arg(args, 1)?);
        let at = positions(self.axis, x.dims(), indices.dims(), &index_elements(indices)?)?;
        Ok(vec![take_linear(x, indices.dims(), &at)?.into()])
    }
}

impl Builder {
    /// Elements of `x` at indices along an axis, which may count from the end.
    pub fn gather_elements(&mut self, x: ValueId, indices: ValueId, axis: i64) -> Result<ValueId, IrError> {
        let axis = self.axis("gather_elements", x, axis)?;
        self.op1(GatherElements { axis }, &[x, indices])
    }
}
