//! Index arithmetic and copying of elements of any dtype, shared by the evaluations of rearranging ops.

use crate::dtype::DType;
use crate::error::OpError;
use crate::eval::Raw;
use crate::tensor::{Tensor, checked_numel};

/// Strides of a row-major tensor, in elements.
pub fn row_major_strides(dims: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; dims.len()];
    for i in (1..dims.len()).rev() {
        strides[i - 1] = strides[i].saturating_mul(dims[i]);
    }
    strides
}

/// Calls `f` with every index of a shape, in row-major order.
pub fn for_each_index(dims: &[usize], mut f: impl FnMut(&[usize])) {
    if dims.contains(&0) {
        return;
    }
    let mut index = vec![0usize; dims.len()];
    loop {
        f(&index);
        let mut axis = dims.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            if index[axis] < dims[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}

/// A tensor of shape `dims` whose element at an index is the operand's element at the linear position that `at` gives.
pub fn gather_elements(x: &Tensor, dims: &[usize], mut at: impl FnMut(&[usize]) -> usize) -> Result<Tensor, OpError> {
    let n = checked_numel(dims)?;
    let mut positions = Vec::with_capacity(n);
    for_each_index(dims, |index| positions.push(at(index)));
    take_linear(x, dims, &positions)
}

/// A tensor of shape `dims` made of the operand's elements at linear positions.
pub fn take_linear(x: &Tensor, dims: &[usize], positions: &[usize]) -> Result<Tensor, OpError> {
    let from = Raw::of(x);
    let mut out = Raw::with_capacity(x.dtype(), positions.len());
    out.extend_at(&from, positions.iter().copied())?;
    out.finish(dims)
}

/// Integer elements of an index operand.
pub fn index_elements(x: &Tensor) -> Result<Vec<i64>, OpError> {
    if !x.dtype().is_int() && x.dtype() != DType::Bool {
        return Err(OpError::new(format!("indices must be integers, got {}", x.dtype())));
    }
    let e = x.elements();
    e.ints()
        .unwrap_or(&[])
        .iter()
        .map(|&i| i64::try_from(i).map_err(|_| OpError::new(format!("index {i} is out of range"))))
        .collect()
}
