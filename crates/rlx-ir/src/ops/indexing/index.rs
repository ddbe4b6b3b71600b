//! Index operands.

use crate::error::OpError;
use crate::op::InferCx;

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
