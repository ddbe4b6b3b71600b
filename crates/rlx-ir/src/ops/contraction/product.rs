//! Plain matrix products of row-major operands, and reordering of axes into that form.

use std::borrow::Cow;

use super::number::Number;
use crate::eval::{for_each_index, row_major_strides};

/// `out[m, n] += a[m, k] · b[k, n]`, each sum in order of k.
///
/// The inner loop runs along n over contiguous memory, except for a narrow result, where it runs along k.
pub(super) fn add_matmul<T: Number>(a: &[T], b: &[T], out: &mut [T], k: usize, n: usize) {
    if n == 0 || k == 0 {
        return;
    }
    for (row, sums) in a.chunks_exact(k).zip(out.chunks_exact_mut(n)) {
        if n < 8 {
            for (j, sum) in sums.iter_mut().enumerate() {
                *sum = row.iter().zip(b.iter().skip(j).step_by(n)).fold(*sum, |s, (&x, &y)| s.add_product(x, y));
            }
            continue;
        }
        for (&x, line) in row.iter().zip(b.chunks_exact(n)) {
            for (sum, &y) in sums.iter_mut().zip(line) {
                *sum = sum.add_product(x, y);
            }
        }
    }
}

/// `out[m, n] += a[m, k] · b[n, k]`, each sum in order of k.
pub(super) fn add_matmul_transposed<T: Number>(a: &[T], b: &[T], out: &mut [T], k: usize, n: usize) {
    if n == 0 || k == 0 {
        return;
    }
    for (row, sums) in a.chunks_exact(k).zip(out.chunks_exact_mut(n)) {
        for (sum, column) in sums.iter_mut().zip(b.chunks_exact(k)) {
            *sum = row.iter().zip(column).fold(*sum, |s, (&x, &y)| s.add_product(x, y));
        }
    }
}

/// The elements with axes reordered: axis `i` of the result is axis `order[i]`.
pub(super) fn permuted<'a, T: Copy>(data: Cow<'a, [T]>, dims: &[usize], order: &[usize]) -> Cow<'a, [T]> {
    if order.iter().copied().eq(0..dims.len()) {
        return data;
    }
    let strides = row_major_strides(dims);
    let to: Vec<usize> = order.iter().map(|&a| dims[a]).collect();
    let step: Vec<usize> = order.iter().map(|&a| strides[a]).collect();
    let (Some((&last, outer)), Some((&last_step, outer_step))) = (to.split_last(), step.split_last()) else {
        return data;
    };
    let mut out = Vec::with_capacity(data.len());
    for_each_index(outer, |index| {
        let start: usize = index.iter().zip(outer_step).map(|(i, s)| i * s).sum();
        out.extend((0..last).filter_map(|i| data.get(start + i * last_step).copied()));
    });
    out.into()
}
