//! Order along an axis, extremes and running folds.

use crate::harness::*;
use rlx_ir::ops::reduction::{ArgKind, ArgReduce, CumKind};
use rlx_ir::{DType, Tensor};

#[test]
fn sort_and_top_k_of_every_dtype() {
    for d in ordered() {
        for dims in [&[1usize][..], &[33], &[3, 17, 5], &[0, 4], &[4, 0]] {
            let x = data(d, dims, 1);
            for axis in 0..dims.len() as i64 {
                for down in [false, true] {
                    let k = (dims[axis as usize] as i64).min(5);
                    check(std::slice::from_ref(&x), 0.0, &|b, v| {
                        let (a, i) = b.sort(v[0], axis, down)?;
                        let (c, j) = b.top_k(v[0], k, axis, down, true)?;
                        let (e, l) = b.top_k(v[0], k / 2, axis, down, false)?;
                        Ok(vec![a, i, c, j, e, l])
                    });
                }
            }
        }
    }
}

#[test]
fn long_lines_are_permutations_in_order() {
    for n in [1023usize, 1024, 1025, 4096, 32000] {
        // A shuffle of 0..n: n and the factor have no divisor in common.
        let v: Vec<f32> = (0..n).map(|i| ((i * 7919 + 13) % n) as f32).collect();
        for down in [false, true] {
            for dims in [[1, n], [n, 1]] {
                let x = Tensor::from_slice(&dims, &v).unwrap();
                let axis = if dims[0] == 1 { 1 } else { 0 };
                let got = check(&[x], 0.0, &|b, v| {
                    let (a, i) = b.sort(v[0], axis, down)?;
                    Ok(vec![a, i])
                });
                let (sorted, at) = (got[0].as_slice::<f32>().unwrap(), got[1].as_slice::<i64>().unwrap());
                for (j, (&s, &i)) in sorted.iter().zip(at.iter()).enumerate() {
                    assert_eq!(s, if down { n - 1 - j } else { j } as f32);
                    assert_eq!(v[i as usize], s);
                }
            }
        }
    }
}

#[test]
fn views_of_lines() {
    check_symbolic(&[data(DType::F32, &[7, 131, 3], 1)], 0.0, &|b, v| {
        let x = b.transpose(v[0], &[2, 0, 1])?;
        let (a, i) = b.sort(x, 1, true)?;
        let (c, j) = b.top_k(x, 4, 2, true, true)?;
        let m = b.arg_reduce(x, ArgKind::Max, 2, true, false)?;
        let n = b.arg_reduce(x, ArgKind::Min, 0, false, true)?;
        let s = b.cumulative(x, CumKind::Max, 2, false, true)?;
        Ok(vec![a, i, c, j, m, n, s])
    });
}

#[test]
fn extremes_of_every_dtype() {
    for d in ordered() {
        for dims in [&[1usize][..], &[515], &[3, 17, 5], &[2, 3, 67], &[0, 4]] {
            let x = data(d, dims, 1);
            for axis in (0..dims.len()).filter(|&a| dims[a] > 0) {
                check(std::slice::from_ref(&x), 0.0, &|b, v| {
                    let mut out = Vec::new();
                    for kind in [ArgKind::Min, ArgKind::Max] {
                        for (keep, last) in [(false, false), (true, true)] {
                            out.push(b.arg_reduce(v[0], kind, axis as i64, keep, last)?);
                        }
                    }
                    let dtype = DType::I32;
                    let op = ArgReduce { kind: ArgKind::Max, axis, keep_dims: true, select_last: false, dtype };
                    out.push(b.op1(op, &[v[0]])?);
                    Ok(out)
                });
            }
        }
    }
}

#[test]
fn nan_is_the_extreme_wherever_it_stands() {
    for k in [0usize, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 511, 512, 513] {
        for nans in [0usize, 1, 3] {
            let mut v = vec![1.0f32; k];
            v.extend(std::iter::repeat_n(f32::NAN, nans));
            v.extend([42.0, -42.0, 1.0]);
            let n = v.len();
            let got = check(&[Tensor::from_slice(&[1, n], &v).unwrap()], 0.0, &|b, x| {
                Ok(vec![
                    b.arg_reduce(x[0], ArgKind::Max, 1, false, false)?,
                    b.arg_reduce(x[0], ArgKind::Min, 1, false, true)?,
                ])
            });
            let want = if nans > 0 { [k, k + nans - 1] } else { [k, k + 1] };
            assert_eq!([0, 1].map(|i| got[i].as_slice::<i64>().unwrap()[0]), want.map(|w| w as i64));
        }
    }
}

#[test]
fn running_folds_of_every_dtype() {
    for d in dtypes() {
        for kind in [CumKind::Sum, CumKind::Prod, CumKind::Max, CumKind::Min] {
            let arithmetic = matches!(kind, CumKind::Sum | CumKind::Prod);
            if (arithmetic && d == DType::Bool) || (!arithmetic && d.is_complex()) {
                continue;
            }
            for dims in [&[3usize, 19, 5][..], &[1], &[0, 3]] {
                let x = data(d, dims, 1);
                for axis in 0..dims.len() as i64 {
                    for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
                        check(std::slice::from_ref(&x), 0.0, &|b, v| {
                            Ok(vec![b.cumulative(v[0], kind, axis, exclusive, reverse)?])
                        });
                    }
                }
            }
        }
    }
    for axis in 0..2 {
        let x = finite(DType::F32, &[700, 130], 3);
        check_symbolic(&[x], 0.0, &|b, v| Ok(vec![b.cumulative(v[0], CumKind::Sum, axis, false, false)?]));
    }
}
