//! A shape around one axis.

use crate::error::OpError;
use crate::tensor::checked_numel;

/// A row-major shape seen as `[outer, size, inner]` around one axis.
#[derive(Clone, Copy, Debug)]
pub struct AroundAxis {
    /// Elements of the axes before it.
    pub outer: usize,
    /// Its size.
    pub size: usize,
    /// Elements of the axes after it: the distance of neighbours along it.
    pub inner: usize,
}

impl AroundAxis {
    /// Splits a shape at an axis.
    pub fn new(dims: &[usize], axis: usize) -> Result<Self, OpError> {
        let Some(&size) = dims.get(axis) else {
            return Err(OpError::new(format!("axis {axis} is out of range for rank {}", dims.len())));
        };
        checked_numel(dims)?;
        Ok(AroundAxis { outer: checked_numel(&dims[..axis])?, size, inner: checked_numel(&dims[axis + 1..])? })
    }

    /// Calls `f` with the position of the first element of every line along the axis, in row-major order; the `k`-th element of the
    /// line is `k · inner` further.
    pub fn for_each_line(&self, mut f: impl FnMut(usize)) {
        if self.size == 0 || self.inner == 0 {
            return;
        }
        for o in 0..self.outer {
            for i in 0..self.inner {
                f(o * self.size * self.inner + i);
            }
        }
    }
}
