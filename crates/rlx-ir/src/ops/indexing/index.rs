//! Index operands.

use crate::error::OpError;
use crate::eval::row_major_strides;
use crate::op::InferCx;
use crate::tensor::checked_numel;
use crate::types::Shape;

/// Resolves an index that may count from the end.
pub(crate) fn resolve(index: i64, size: usize, axis: usize) -> Result<usize, OpError> {
    let n = size as i128;
    let i = i128::from(index);
    let at = if i < 0 { i + n } else { i };
    if (0..n).contains(&at) {
        Ok(at as usize)
    } else {
        Err(OpError::new(format!("index {index} is out of range for the {size} elements of axis {axis}"))
            .hint(format!("indices must be in -{size}..{size}")))
    }
}

/// Errors unless operand `i` holds integers.
pub(crate) fn expect_indices(cx: &InferCx<'_>, i: usize) -> Result<(), OpError> {
    let d = cx.dtype(i)?;
    if d.is_int() { Ok(()) } else { Err(OpError::new(format!("indices (operand {i}) must be integers, got {d}"))) }
}

/// Length of the index tuples in the last axis of `indices`, which must be known and fit the operand's rank.
pub(super) fn tuple_len(x: &Shape, indices: &Shape, batch_dims: usize) -> Result<usize, OpError> {
    let k = indices.last().ok_or_else(|| OpError::new("indices need an axis of tuples, got a scalar"))?;
    let len = k.as_const().and_then(|k| usize::try_from(k).ok()).ok_or_else(|| {
        OpError::new(format!("the length of index tuples, {k}, must be a constant: the result's rank depends on it"))
    })?;
    if batch_dims >= indices.rank() || batch_dims.saturating_add(len) > x.rank() {
        return Err(OpError::new(format!(
            "tuples of {len} after {batch_dims} batch axes in indices {indices} do not fit the operand {x}"
        )));
    }
    Ok(len)
}

/// Index tuples in the last axis of an index tensor, each naming a slice of an operand.
pub(super) struct Tuples<'a> {
    x: &'a [usize],
    batch_dims: usize,
    /// Tuples per batch.
    per_batch: usize,
    /// Batches.
    batches: usize,
    /// Indices in a tuple.
    pub len: usize,
    /// Elements of a slice.
    pub slice: usize,
}

impl<'a> Tuples<'a> {
    /// Tuples of `indices` into `x`, whose first `batch_dims` axes are walked side by side.
    pub fn new(x: &'a [usize], indices: &[usize], batch_dims: usize) -> Result<Self, OpError> {
        let fits = |len: usize| batch_dims.checked_add(len).is_some_and(|n| n <= x.len());
        let (len, outer) = match indices.split_last() {
            Some((&len, outer)) if batch_dims <= outer.len() && fits(len) => (len, outer),
            _ => return Err(OpError::new(format!("indices {indices:?} do not fit the operand {x:?}"))),
        };
        if outer[..batch_dims] != x[..batch_dims] {
            return Err(OpError::new(format!("batch axes of {x:?} and indices {indices:?} differ")));
        }
        Ok(Tuples {
            x,
            batch_dims,
            per_batch: checked_numel(&outer[batch_dims..])?,
            batches: checked_numel(&x[..batch_dims])?,
            len,
            slice: checked_numel(&x[batch_dims + len..])?,
        })
    }

    /// Linear position of the first element of each tuple's slice. Checks every index.
    pub fn positions(&self, indices: &[i64]) -> Result<Vec<usize>, OpError> {
        let strides = row_major_strides(self.x);
        let batch = checked_numel(&self.x[self.batch_dims..])?;
        let mut out = Vec::with_capacity(self.batches.saturating_mul(self.per_batch));
        let mut walk = indices.iter();
        for b in 0..self.batches {
            for _ in 0..self.per_batch {
                let mut at = b * batch;
                let axes = self.x.iter().zip(&strides).enumerate().skip(self.batch_dims).take(self.len);
                for (axis, (&size, stride)) in axes {
                    at += resolve(walk.next().copied().unwrap_or(0), size, axis)? * stride;
                }
                out.push(at);
            }
        }
        Ok(out)
    }
}
