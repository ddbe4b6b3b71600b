//! Writing at computed places.

use crate::harness::*;
use rlx_ir::ops::indexing::Combiner;
use rlx_ir::{DType, Dim, Tensor};

const ALL: [Combiner; 5] = [Combiner::Set, Combiner::Add, Combiner::Mul, Combiner::Min, Combiner::Max];

fn takes(how: Combiner, d: DType) -> bool {
    match how {
        Combiner::Set => true,
        Combiner::Add | Combiner::Mul => d != DType::Bool,
        Combiner::Min | Combiner::Max => !d.is_complex(),
    }
}

#[test]
fn elements_of_every_dtype_combiner_and_axis() {
    for d in dtypes() {
        let x = data(d, &[3, 5, 7], 1);
        for how in ALL.into_iter().filter(|&h| takes(h, d)) {
            for axis in 0..3usize {
                // More updates than places: many meet.
                let mut dims = [3, 4, 6];
                dims[axis] = 23;
                let inputs = [x.clone(), indices(DType::I64, &dims, x.dims()[axis], 2), data(d, &dims, 3)];
                check(&inputs, 0.0, &|b, v| Ok(vec![b.scatter_elements(v[0], v[1], v[2], axis as i64, how)?]));
            }
        }
    }
}

#[test]
fn nd_of_every_dtype_and_combiner() {
    for d in dtypes() {
        let x = data(d, &[3, 5, 7], 1);
        for how in ALL.into_iter().filter(|&h| takes(h, d)) {
            let tuples: Vec<i64> = (0..34).map(|i| (i * 5 % 6) - 3).collect();
            for (dims, k, updates) in [
                (&[17usize, 2][..], 2, &[17usize, 7][..]),
                (&[34, 1], 1, &[34, 5, 7]),
                (&[2, 17, 1], 1, &[2, 17, 5, 7]),
            ] {
                let n: usize = dims.iter().product();
                let i = Tensor::from_slice(dims, &tuples[..n]).unwrap();
                check(&[x.clone(), i, data(d, updates, 4)], 0.0, &|b, v| {
                    let mut to: Vec<Dim> = dims.iter().map(|&n| Dim::from(n)).collect();
                    *to.last_mut().unwrap() = Dim::from(k);
                    let i = b.reshape(v[1], to)?;
                    Ok(vec![b.scatter_nd(v[0], i, v[2], how)?])
                });
            }
        }
    }
}

#[test]
fn sums_do_not_depend_on_threads() {
    let x = finite(DType::F32, &[13, 257], 1);
    let inputs = [x.clone(), indices(DType::I32, &[97, 257], 13, 2), finite(DType::F32, &[97, 257], 3)];
    check_symbolic(&inputs, 0.0, &|b, v| Ok(vec![b.scatter_elements(v[0], v[1], v[2], 0, Combiner::Add)?]));
    let inputs = [x, indices(DType::I64, &[301, 1], 13, 2), finite(DType::F32, &[301, 257], 3)];
    check(&inputs, 0.0, &|b, v| {
        let u = b.transpose(v[2], &[1, 0])?;
        let u = b.transpose(u, &[1, 0])?;
        Ok(vec![b.scatter_nd(v[0], v[1], u, Combiner::Add)?])
    });
}

#[test]
fn views_and_empty_shapes() {
    let inputs = [data(DType::BF16, &[5, 3], 1), indices(DType::I16, &[4, 3], 5, 2), data(DType::BF16, &[3, 4], 3)];
    check_symbolic(&inputs, 0.0, &|b, v| {
        let (x, u) = (b.transpose(v[0], &[1, 0])?, b.transpose(v[2], &[1, 0])?);
        let x = b.transpose(x, &[1, 0])?;
        Ok(vec![b.scatter_elements(x, v[1], u, 0, Combiner::Set)?])
    });
    for (dims, at) in [(&[0usize, 3][..], &[0usize, 2][..]), (&[4, 3], &[0, 3]), (&[4, 0], &[2, 0])] {
        let n = dims[0].max(1);
        let inputs = [data(DType::F32, dims, 1), indices(DType::I64, at, n, 2), data(DType::F32, at, 3)];
        check(&inputs, 0.0, &|b, v| Ok(vec![b.scatter_elements(v[0], v[1], v[2], 0, Combiner::Add)?]));
    }
}

#[test]
fn places_out_of_range_are_errors() {
    let x = data(DType::F32, &[3, 2], 1);
    for bad in [3i64, -4, i64::MIN] {
        let inputs = [x.clone(), Tensor::from_slice(&[2, 1], &[2i64, bad]).unwrap(), data(DType::F32, &[2, 1], 2)];
        for how in ALL {
            let e = fails(&inputs, &|b, v| Ok(vec![b.scatter_elements(v[0], v[1], v[2], 0, how)?]));
            assert!(e.contains(&format!("index {bad} (element 1")) && e.contains("3 elements of axis 0"), "{e}");
        }
    }
    let inputs = [x, Tensor::from_slice(&[1, 2], &[0i64, 2]).unwrap(), data(DType::F32, &[1], 2)];
    let e = fails(&inputs, &|b, v| {
        let i = b.reshape(v[1], vec![Dim::from(1), Dim::from(2)])?;
        Ok(vec![b.scatter_nd(v[0], i, v[2], Combiner::Add)?])
    });
    assert!(e.contains("index 2") && e.contains("2 elements of axis 1"), "{e}");
}
