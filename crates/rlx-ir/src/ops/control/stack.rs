//! Slices that iterations give, stacked into one tensor.

use crate::DType;
use crate::dim::DimBinding;
use crate::error::OpError;
use crate::eval::{Raw, gather_elements, row_major_strides};
use crate::graph::{Graph, ValueId};
use crate::op::EvalCx;
use crate::tensor::{Tensor, Value};

/// What a slice counts at least against the limit of elements.
const SLICE_COST: usize = 4;

/// Slices of one shape and dtype.
#[derive(Clone, Default)]
pub(super) struct Stack {
    slices: Vec<Tensor>,
    elements: usize,
}

impl Stack {
    /// Adds the next slice, as long as the stack is within the limit.
    pub fn push(&mut self, cx: &EvalCx<'_>, v: Value) -> Result<(), OpError> {
        let Value::Tensor(t) = v else { return Err(OpError::new("a scan output must be a tensor")) };
        if let Some(first) = self.slices.first()
            && (first.dims() != t.dims() || first.dtype() != t.dtype())
        {
            return Err(OpError::new(format!(
                "iteration {} gives {t:?} where the first gave {first:?}",
                self.slices.len()
            ))
            .hint("a scan output has the same shape in all iterations"));
        }
        // A slice costs memory even where it has no elements.
        self.elements = self.elements.saturating_add(t.numel().max(SLICE_COST));
        cx.options.check_results(self.elements)?;
        self.slices.push(t);
        Ok(())
    }

    /// Reverses the order of slices.
    pub fn reverse(&mut self) {
        self.slices.reverse();
    }

    /// The slices along a new axis; `empty` tells dtype and shape of a slice if there is none.
    pub fn finish(
        self,
        axis: usize,
        empty: impl FnOnce() -> Result<(DType, Vec<usize>), OpError>,
    ) -> Result<Value, OpError> {
        let (dtype, slice) = match self.slices.first() {
            Some(t) => (t.dtype(), t.dims().to_vec()),
            None => empty()?,
        };
        let mut out = Raw::with_capacity(dtype, 0);
        for t in &self.slices {
            out.extend(&Raw::of(t), 0, t.numel())?;
        }
        let stacked = [&[self.slices.len()], &slice[..]].concat();
        let t = out.finish(&stacked)?;
        if axis == 0 {
            return Ok(t.into());
        }
        let mut dims = slice;
        dims.insert(axis.min(dims.len()), self.slices.len());
        let mut strides = row_major_strides(&stacked);
        let first = strides.remove(0);
        strides.insert(axis.min(strides.len()), first);
        Ok(gather_elements(&t, &dims, |i| i.iter().zip(&strides).map(|(i, s)| i * s).sum())?.into())
    }
}

/// Slice `i` of a tensor along an axis.
pub(super) fn slice(x: &Tensor, axis: usize, i: usize) -> Result<Value, OpError> {
    let mut dims = x.dims().to_vec();
    let mut strides = row_major_strides(&dims);
    if axis >= dims.len() {
        return Err(OpError::new(format!("axis {axis} is out of range for {x:?}")));
    }
    dims.remove(axis);
    let start = i * strides.remove(axis);
    Ok(gather_elements(x, &dims, |at| start + at.iter().zip(&strides).map(|(i, s)| i * s).sum::<usize>())?.into())
}

/// Dtype and sizes that a region's value would have on these inputs, found without running it: sizes that only running it tells are 0.
pub(super) fn region_sizes(
    cx: &EvalCx<'_>,
    region: &Graph,
    value: ValueId,
    inputs: &[Value],
) -> Result<(DType, Vec<usize>), OpError> {
    let mut binding: DimBinding = cx.binding.iter().map(|(s, v)| (s.clone(), v)).collect();
    for (&v, x) in region.inputs().iter().zip(inputs) {
        if let (Some(ty), Value::Tensor(t)) = (region.tensor_type(v), x) {
            for (d, &n) in ty.shape.iter().zip(t.dims()) {
                if let Some(s) = d.as_symbol() {
                    binding.set(s.clone(), i64::try_from(n).unwrap_or(i64::MAX));
                }
            }
        }
    }
    let ty = region.tensor_type(value).ok_or_else(|| OpError::new("a scan output must be a tensor"))?;
    let sizes = ty.shape.iter().map(|d| d.eval(&binding).ok().and_then(|n| usize::try_from(n).ok()).unwrap_or(0));
    Ok((ty.dtype, sizes.collect()))
}
