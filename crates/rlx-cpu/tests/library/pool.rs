//! Pooling with indices.

use crate::harness::*;
use rlx_ir::ops::reduction::{MaxPoolIndices, ReduceWindow, WindowKind};
use rlx_ir::{DType, Dim};

fn op(window: &[i64], strides: &[i64], dilations: &[i64], low: &[i64], high: &[i64]) -> ReduceWindow {
    let dims = |v: &[i64]| v.iter().map(|&n| Dim::from(n)).collect();
    ReduceWindow {
        strides: strides.to_vec(),
        dilations: dilations.to_vec(),
        pad_low: dims(low),
        pad_high: dims(high),
        ..ReduceWindow::new(WindowKind::Max, window)
    }
}

#[test]
fn every_dtype_with_padding_and_dilation() {
    for d in ordered().filter(|&d| d != DType::Bool) {
        for column_major in [false, true] {
            let w = op(&[2, 3], &[2, 1], &[1, 2], &[1, 2], &[0, 1]);
            check(&[data(d, &[2, 3, 7, 9], 1)], 0.0, &|b, v| {
                let (y, i) = b.max_pool_with_indices(v[0], MaxPoolIndices::new(w.clone(), column_major))?;
                Ok(vec![y, i])
            });
        }
    }
}

#[test]
fn windows_of_every_kind() {
    for (dims, w, ceil) in [
        (&[1usize, 1, 5][..], op(&[3], &[3], &[1], &[1], &[1]), true),
        (&[2, 9], op(&[7], &[3], &[1], &[0], &[3]), true),
        (&[2, 9], op(&[2], &[2], &[3], &[-2], &[-1]), false),
        // Windows that see nothing but padding.
        (&[1, 3], op(&[2], &[1], &[1], &[4], &[4]), false),
        (&[1, 2, 5, 4, 6], op(&[2, 2, 2], &[2, 2, 2], &[1, 1, 1], &[0, 1, 0], &[1, 0, 0]), true),
        (&[3, 0, 8], op(&[3], &[1], &[1], &[0], &[0]), false),
        (&[3, 50, 61], op(&[3, 3], &[1, 1], &[1, 1], &[1, 1], &[1, 1]), false),
    ] {
        for column_major in [false, true] {
            check_symbolic(&[data(DType::F32, dims, 1)], 0.0, &|b, v| {
                let w = ReduceWindow { ceil, ..w.clone() };
                let (y, i) = b.max_pool_with_indices(v[0], MaxPoolIndices::new(w, column_major))?;
                Ok(vec![y, i])
            });
        }
    }
}
