//! Counting along an axis.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::element::{Elements, wrap_int};
use crate::error::{IrError, OpError};
use crate::eval::for_each_index;
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules};
use crate::tensor::{Tensor, Value, checked_numel};
use crate::types::{Shape, TensorType};

use super::known::{check_axis, small_sizes};

op! {
    /// Each element is its index along an axis.
    pub struct Iota = "iota" {
        /// Element type: integers or floats.
        pub dtype: DType,
        /// Sizes of the result.
        pub dims: Vec<Dim>,
        /// The axis counted along.
        pub axis: usize,
    }
}

fn counts(dims: &[usize], axis: usize) -> Result<Vec<i128>, OpError> {
    let mut out = Vec::with_capacity(checked_numel(dims)?);
    for_each_index(dims, |index| out.push(index[axis] as i128));
    Ok(out)
}

impl OpRules for Iota {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(0)?;
        if !(self.dtype.is_int() || self.dtype.is_float()) {
            return Err(OpError::new(format!("counts in integers or floats, not {}", self.dtype)));
        }
        check_axis(self.axis, self.dims.len())?;
        if let Some(d) = self.dims.iter().find(|d| d.as_const().is_some_and(|c| c < 0)) {
            return Err(OpError::new(format!("size {d} is negative")));
        }
        let shape = Shape::from(self.dims.clone());
        let elems = small_sizes(&shape).filter(|_| self.dtype.is_int()).and_then(|sizes| {
            let all = counts(&sizes, self.axis).ok()?;
            all.into_iter().map(|i| i64::try_from(wrap_int(self.dtype, i)).ok().map(Dim::from)).collect()
        });
        cx.result_elems(self.dtype, shape, elems);
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::from(0)
    }

    fn eval(&self, cx: &EvalCx<'_>, _args: &[Value]) -> Result<Vec<Value>, OpError> {
        let dims = cx.sizes(&self.dims)?;
        Ok(vec![Tensor::from_elements(self.dtype, &dims, &Elements::Int(counts(&dims, self.axis)?))?.into()])
    }
}

impl Builder {
    /// Indices along an axis, which may count from the end.
    pub fn iota(
        &mut self,
        dtype: DType,
        dims: impl IntoIterator<Item = impl Into<Dim>>,
        axis: i64,
    ) -> Result<ValueId, IrError> {
        let dims: Vec<Dim> = dims.into_iter().map(Into::into).collect();
        let axis = crate::types::normalize_axis(axis, dims.len()).ok_or_else(|| {
            self.refuse("iota", &[], OpError::new(format!("axis {axis} is out of range for rank {}", dims.len())))
        })?;
        self.op1(Iota { dtype, dims, axis }, &[])
    }
}
