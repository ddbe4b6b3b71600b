//! Reading at computed places: gather and its kin, dynamic slices, borders, what is not zero.

use crate::harness::*;
use rlx_ir::ops::shape::PadMode;
use rlx_ir::{DType, Dim, Tensor};

#[test]
fn gather_of_every_dtype_and_axis() {
    for d in dtypes() {
        let x = data(d, &[3, 5, 7], 1);
        for axis in 0..3usize {
            let i = indices(DType::I64, &[2, 3], x.dims()[axis], 2);
            check(&[x.clone(), i], 0.0, &|b, v| Ok(vec![b.gather(v[0], v[1], axis as i64)?]));
        }
    }
}

#[test]
fn gather_of_odd_shapes_and_views() {
    for (dims, idx, axis) in [
        (&[1usize][..], &[][..], 0i64),
        (&[4, 0, 3], &[2], 0),
        (&[4, 3], &[0], 0),
        (&[0, 3], &[0], 0),
        (&[1, 1, 1], &[1, 1], 1),
        (&[257, 33], &[67], 0),
        (&[31, 257], &[67], 1),
    ] {
        let n = dims[axis as usize].max(1);
        let inputs = [data(DType::F32, dims, 3), indices(DType::I32, idx, n, 4)];
        check_symbolic(&inputs, 0.0, &|b, v| Ok(vec![b.gather(v[0], v[1], axis)?]));
    }
    // Operand, indices and result as strided views.
    let inputs = [data(DType::F16, &[6, 5, 7], 5), indices(DType::I8, &[4, 3], 5, 6)];
    check_symbolic(&inputs, 0.0, &|b, v| {
        let x = b.transpose(v[0], &[2, 0, 1])?;
        let i = b.transpose(v[1], &[1, 0])?;
        let a = b.gather(x, i, 2)?;
        let c = b.gather(x, i, 2)?;
        Ok(vec![b.concat(&[a, c], 3)?])
    });
    for d in [DType::I4, DType::U2, DType::I16, DType::U8, DType::U16, DType::U32, DType::U64] {
        let inputs = [data(DType::F64, &[2, 9], 7), indices(d, &[5], 2, 8)];
        check(&inputs, 0.0, &|b, v| Ok(vec![b.gather(v[0], v[1], 0)?]));
    }
}

#[test]
fn large_embeddings() {
    let inputs = [finite(DType::F32, &[1009, 129], 1), indices(DType::I64, &[3, 701], 1009, 2)];
    check(&inputs, 0.0, &|b, v| Ok(vec![b.gather(v[0], v[1], 0)?]));
}

#[test]
fn indices_out_of_range_are_errors() {
    let x = data(DType::F32, &[3, 2], 1);
    for bad in [3i64, -4, i64::MAX, i64::MIN] {
        let i = Tensor::from_slice(&[4], &[0i64, -3, bad, bad]).unwrap();
        let e = fails(&[x.clone(), i.clone()], &|b, v| Ok(vec![b.gather(v[0], v[1], 0)?]));
        assert!(e.contains(&format!("index {bad} (element 2")) && e.contains("3 elements of axis 0"), "{e}");
        let i = i.reshaped(&[4, 1]).unwrap();
        let e = fails(&[x.clone(), i], &|b, v| Ok(vec![b.gather_elements(v[0], v[1], 0)?]));
        assert!(e.contains(&format!("index {bad}")), "{e}");
    }
    let big = Tensor::from_slice(&[1], &[u64::MAX]).unwrap();
    let e = fails(&[x.clone(), big], &|b, v| Ok(vec![b.gather(v[0], v[1], 1)?]));
    assert!(e.contains("18446744073709551615") && e.contains("2 elements of axis 1"), "{e}");
    let none = data(DType::F32, &[0, 2], 1);
    let e = fails(&[none, Tensor::from_slice(&[1], &[0i64]).unwrap()], &|b, v| Ok(vec![b.gather(v[0], v[1], 0)?]));
    assert!(e.contains("0 elements of axis 0"), "{e}");
}

#[test]
fn gather_nd_tuples_and_batches() {
    let tuples = |list: &[i64], dims: &[usize]| Tensor::from_slice(dims, list).unwrap();
    for d in dtypes() {
        let x = data(d, &[2, 3, 5], 1);
        let nd = |i: Tensor, batch: usize| {
            let k = Dim::from(i.dims()[i.dims().len() - 1]);
            let dims: Vec<usize> = i.dims().to_vec();
            check(&[x.clone(), i], 0.0, &|b, v| {
                let mut to: Vec<Dim> = dims.iter().map(|&n| Dim::from(n)).collect();
                *to.last_mut().unwrap() = k.clone();
                let i = b.reshape(v[1], to)?;
                Ok(vec![b.gather_nd(v[0], i, batch)?])
            });
        };
        nd(tuples(&[0, -1, 1, 2, -2, 0], &[3, 2]), 0);
        nd(tuples(&[1, 0, -1], &[3, 1]), 0);
        nd(tuples(&[1, 2, 4, -2, -3, -5], &[2, 1, 3]), 0);
        nd(tuples(&[2, -1, 0, 1], &[2, 2, 1]), 1);
        nd(tuples(&[4, -5, 0, 1, 2, 3], &[2, 3, 1]), 2);
        nd(tuples(&[], &[2, 0]), 1);
    }
    let x = data(DType::F32, &[2, 3], 1);
    let e = fails(&[x, tuples(&[0, 0, 1, 3], &[2, 2])], &|b, v| {
        let i = b.reshape(v[1], vec![Dim::from(2), Dim::from(2)])?;
        Ok(vec![b.gather_nd(v[0], i, 0)?])
    });
    assert!(e.contains("index 3") && e.contains("axis 1"), "{e}");
}

#[test]
fn gather_elements_of_every_dtype_and_axis() {
    for d in dtypes() {
        let x = data(d, &[3, 5, 7], 1);
        for axis in 0..3usize {
            let mut dims = [2, 5, 3];
            dims[axis] = 9;
            let i = indices(DType::I64, &dims, x.dims()[axis], 2);
            check(&[x.clone(), i], 0.0, &|b, v| Ok(vec![b.gather_elements(v[0], v[1], axis as i64)?]));
        }
    }
    let inputs = [finite(DType::F32, &[131, 257], 1), indices(DType::I32, &[127, 131], 257, 2)];
    check_symbolic(&inputs, 0.0, &|b, v| {
        let i = b.transpose(v[1], &[1, 0])?;
        Ok(vec![b.gather_elements(v[0], i, 1)?])
    });
}

#[test]
fn dynamic_slices_are_clamped() {
    for d in dtypes() {
        let (x, u) = (data(d, &[5, 4, 7], 1), data(d, &[2, 4, 3], 2));
        for starts in [[0i64, 0, 0], [1, 9, 4], [-3, i64::MIN, i64::MAX]] {
            let s = Tensor::from_slice(&[3], &starts).unwrap();
            check(&[x.clone(), s.clone()], 0.0, &|b, v| {
                Ok(vec![b.dynamic_slice(v[0], v[1], [2i64, 4, 3].map(Dim::from).to_vec())?])
            });
            check(&[x.clone(), u.clone(), s], 0.0, &|b, v| Ok(vec![b.dynamic_update_slice(v[0], v[1], v[2])?]));
        }
    }
    let inputs =
        [finite(DType::F32, &[3, 400, 300], 1), finite(DType::F32, &[3, 390, 7], 2), indices(DType::I32, &[3], 50, 3)];
    check_symbolic(&inputs, 0.0, &|b, v| Ok(vec![b.dynamic_update_slice(v[0], v[1], v[2])?]));
}

#[test]
fn borders_of_every_mode() {
    let modes = [PadMode::Edge, PadMode::Reflect, PadMode::Wrap, PadMode::Constant];
    for d in dtypes() {
        for mode in modes {
            let x = data(d, &[3, 1, 5], 1);
            check(&[x], 0.0, &|b, v| {
                let (low, high) = ([2i64, 0, 9].map(Dim::from).to_vec(), [1i64, 3, -2].map(Dim::from).to_vec());
                Ok(vec![b.pad(v[0], None, low, high, mode)?])
            });
        }
    }
    for mode in modes {
        for (dims, low, high) in [
            (&[7usize, 5][..], &[-2i64, 3][..], &[4i64, -1][..]),
            (&[4, 6, 3], &[1, 2, 0], &[0, 7, 0]),
            (&[0, 4, 3], &[0, 1, 0], &[0, 2, 0]),
            (&[200, 300], &[17, 31], &[13, 1]),
        ] {
            let ints = |v: &[i64]| v.iter().map(|&n| Dim::from(n)).collect::<Vec<_>>();
            check_symbolic(&[data(DType::F32, dims, 2)], 0.0, &|b, v| {
                let axes: Vec<usize> = (0..dims.len()).rev().collect();
                let x = b.transpose(v[0], &axes)?;
                Ok(vec![b.pad(v[0], None, ints(low), ints(high), mode)?, b.pad(x, None, ints(low), ints(high), mode)?])
            });
        }
    }
}

#[test]
fn nonzero_counts_and_places() {
    for d in dtypes() {
        for dims in [&[][..], &[0], &[7], &[3, 1, 5], &[2, 0, 3]] {
            let x = data(d, dims, 1);
            check_symbolic(&[x], 0.0, &|b, v| Ok(vec![b.nonzero(v[0], "n")?]));
        }
    }
    // Many tasks, and what follows uses the count.
    let x = data(DType::I8, &[257, 331], 2);
    check_symbolic(&[x], 0.0, &|b, v| {
        let x = b.transpose(v[0], &[1, 0])?;
        let at = b.nonzero(x, "n")?;
        Ok(vec![at, b.transpose(at, &[1, 0])?])
    });
}
