//! Walking index spaces by strides.

use crate::error::OpError;
use crate::eval::Raw;
use crate::tensor::{Tensor, checked_numel};

/// Walks a shape in row-major order, a row of the last axis at a time. Each walker has strides (one per axis, in elements, of any
/// sign, 0 to repeat) and an offset; `f` gets the walkers' positions at the start of a row, the row's length, and their steps along it.
pub fn for_each_row<const N: usize>(
    dims: &[usize],
    offsets: [isize; N],
    strides: [&[isize]; N],
    mut f: impl FnMut([isize; N], usize, [isize; N]),
) {
    if dims.contains(&0) {
        return;
    }
    let at = |k: usize, axis: usize| strides[k].get(axis).copied().unwrap_or(0);
    let Some((&len, outer)) = dims.split_last() else {
        f(offsets, 1, [0; N]);
        return;
    };
    let steps: [isize; N] = std::array::from_fn(|k| at(k, outer.len()));
    let mut index = vec![0usize; outer.len()];
    let mut pos = offsets;
    loop {
        f(pos, len, steps);
        let mut axis = outer.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            if index[axis] < outer[axis] {
                (0..N).for_each(|k| pos[k] += at(k, axis));
                break;
            }
            (0..N).for_each(|k| pos[k] -= at(k, axis) * (outer[axis] as isize - 1));
            index[axis] = 0;
        }
    }
}

/// Row-major strides as signed numbers.
pub fn signed_strides(dims: &[usize]) -> Vec<isize> {
    crate::eval::row_major_strides(dims).into_iter().map(|s| s as isize).collect()
}

/// The linear positions that one walker visits.
pub fn strided_positions(dims: &[usize], offset: isize, strides: &[isize]) -> Result<Vec<usize>, OpError> {
    let mut out = Vec::with_capacity(checked_numel(dims)?);
    for_each_row(dims, [offset], [strides], |[mut p], len, [step]| {
        for _ in 0..len {
            // A negative position wraps to one that no tensor has, which the copy refuses.
            out.push(p as usize);
            p += step;
        }
    });
    Ok(out)
}

/// A tensor of shape `dims` made of the operand's elements at linear positions; `None` is the first element of `fill`.
pub fn take_or_fill(
    x: &Tensor,
    fill: Option<&Tensor>,
    dims: &[usize],
    positions: &[Option<usize>],
) -> Result<Tensor, OpError> {
    // The fill becomes one more cell after the operand's; without one, its position is outside, which the copy refuses.
    let n = x.numel();
    let mut from = Raw::of(x);
    if let Some(fill) = fill {
        from.extend(&Raw::of(fill), 0, 1)?;
    }
    let mut out = Raw::with_capacity(x.dtype(), positions.len());
    out.extend_at(&from, positions.iter().map(|p| p.unwrap_or(n)))?;
    out.finish(dims)
}
