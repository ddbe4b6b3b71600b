use super::*;
use crate::ops::testing::{arange, fails, floats, of, run, run_static, run1, t};
use crate::{DType, Dim, Symbol, Tensor};

#[test]
fn gather_takes_slices() {
    let i = t(&[2, 1], &[-1i32, 0]);
    let y = run1(&[arange(&[2, 3]), i], |b, x| b.gather(x[0], x[1], 1));
    assert_eq!(y, t(&[2, 2, 1], &[2f32, 0., 5., 3.]));
    assert_eq!(run1(&[arange(&[2, 3]), t(&[0], &[0i64; 0])], |b, x| b.gather(x[0], x[1], 0)).dims(), &[0, 3]);
}

#[test]
fn gather_refuses_indices_out_of_range() {
    for i in [3i64, -4, i64::MIN, i64::MAX] {
        let e = fails(&[arange(&[3]), t(&[1], &[i])], |b, x| b.gather(x[0], x[1], 0));
        assert!(e.contains("out of range") && e.contains("gather"), "{e}");
        // Constant indices of a constant axis are refused when the graph is built.
        let e = run_static(&[arange(&[3])], |b, x| {
            let c = b.constant(t(&[1], &[i]))?;
            let built = b.gather(x[0], c, 0);
            assert!(built.is_err());
            built.map(|v| vec![v])
        });
        assert!(e.unwrap_err().to_string().contains("out of range"));
    }
}

#[test]
fn gather_elements_and_nd_follow_onnx() {
    // The examples of the ONNX operator texts.
    let x = t(&[2, 2], &[1f32, 2., 3., 4.]);
    let y = run1(&[x, t(&[2, 2], &[0i64, 0, 1, -2])], |b, x| b.gather_elements(x[0], x[1], 1));
    assert_eq!(floats(&y), [1., 1., 4., 3.]);
    let x = t(&[2, 2], &[0i32, 1, 2, 3]);
    let nd = |dims: &[usize], i: &[i64], batch| {
        run1(std::slice::from_ref(&x), |b, x| {
            let i = b.constant(t(dims, i))?;
            b.gather_nd(x[0], i, batch)
        })
    };
    assert_eq!(nd(&[2, 2], &[0, 0, 1, -1], 0), t(&[2], &[0i32, 3]));
    assert_eq!(nd(&[2, 1], &[1, 0], 0), t(&[2, 2], &[2i32, 3, 0, 1]));
    assert_eq!(nd(&[2, 1], &[1, 0], 1), t(&[2], &[1i32, 2]));
    assert_eq!(nd(&[0, 1], &[], 0).dims(), &[0, 2]);
    assert_eq!(nd(&[2, 0], &[], 0), t(&[2, 2, 2], &[0i32, 1, 2, 3, 0, 1, 2, 3]));
    let mismatch = fails(&[arange(&[2, 3])], |b, x| {
        let i = b.constant(t(&[3, 1], &[0i64; 3]))?;
        b.gather_nd(x[0], i, 1)
    });
    assert!(mismatch.contains("batch axis 0") && mismatch.contains('3'), "{mismatch}");
    for i in [2i64, -3] {
        assert!(
            fails(&[arange(&[2, 2]), t(&[1, 2], &[0i64, i])], |b, x| b.gather_elements(x[0], x[1], 1))
                .contains("range")
        );
        let e = fails(&[arange(&[2])], |b, x| {
            let i = b.constant(t(&[1, 1], &[i]))?;
            b.gather_nd(x[0], i, 0)
        });
        assert!(e.contains("out of range"), "{e}");
    }
}

#[test]
fn scatter_combines_in_order() {
    let s = |combiner| {
        let (x, i, u) = (t(&[3], &[1f32, 2., 3.]), t(&[4], &[0i64, -1, 0, 2]), t(&[4], &[5f32, 7., 6., -1.]));
        floats(&run1(&[x, i, u], |b, x| b.scatter_elements(x[0], x[1], x[2], 0, combiner)))
    };
    assert_eq!(s(Combiner::Set), [6., 2., -1.]);
    assert_eq!(s(Combiner::Add), [12., 2., 9.]);
    assert_eq!(s(Combiner::Mul), [30., 2., -21.]);
    assert_eq!(s(Combiner::Min), [1., 2., -1.]);
    assert_eq!(s(Combiner::Max), [6., 2., 7.]);
    let y = run1(&[t(&[3], &[1f32, f32::NAN, 3.]), t(&[1], &[0i64]), t(&[1], &[f32::NAN])], |b, x| {
        b.scatter_elements(x[0], x[1], x[2], 0, Combiner::Max)
    });
    assert!(floats(&y)[0].is_nan() && floats(&y)[1].is_nan());
    for i in [3i64, -4] {
        let e = fails(&[arange(&[3]), t(&[1], &[i]), arange(&[1])], |b, x| {
            b.scatter_elements(x[0], x[1], x[2], 0, Combiner::Set)
        });
        assert!(e.contains("out of range"), "{e}");
    }
    let (x, u) = (arange(&[4, 2]), t(&[2, 2], &[50f32, 51., 60., 61.]));
    let y = run1(&[x, u], |b, x| {
        let i = b.constant(t(&[2, 1], &[2i32, 0]))?;
        b.scatter_nd(x[0], i, x[1], Combiner::Set)
    });
    assert_eq!(floats(&y), [60., 61., 2., 3., 50., 51., 6., 7.]);
    // 2048 + 1 + 1 in f16 needs a wider accumulator.
    let y = run1(&[of(DType::F16, &[1], &[2048.]), t(&[2, 1], &[0i64, 0]), of(DType::F16, &[2], &[1., 1.])], |b, x| {
        let i = b.constant(t(&[2, 1], &[0i64, 0]))?;
        b.scatter_nd(x[0], i, x[2], Combiner::Add)
    });
    assert_eq!(floats(&y), [2050.]);
}

#[test]
fn sort_is_stable_and_puts_nan_last() {
    let s = |descending| {
        let x = t(&[6], &[2f32, f32::NAN, -0.0, 2., 0.0, f32::NEG_INFINITY]);
        let out = run(&[x], |b, x| b.sort(x[0], 0, descending).map(|(v, i)| vec![v, i])).unwrap();
        out[1].as_slice::<i64>().unwrap().to_vec()
    };
    assert_eq!(s(false), [5, 2, 4, 0, 3, 1]);
    assert_eq!(s(true), [1, 0, 3, 2, 4, 5]);
    for n in [1usize, 1023, 1024, 1025, 4096, 32000] {
        // A permutation: multiplication by a number without common factor.
        let x: Vec<i32> = (0..n).map(|i| ((i * 7919) % n) as i32).collect();
        for (dims, axis) in [(vec![n, 1], 0), (vec![1, n], -1)] {
            for descending in [false, true] {
                let out = run(&[t(&dims, &x)], |b, v| b.sort(v[0], axis, descending).map(|(v, i)| vec![v, i])).unwrap();
                let got = out[0].as_slice::<i32>().unwrap().to_vec();
                let want: Vec<i32> = if descending { (0..n as i32).rev().collect() } else { (0..n as i32).collect() };
                assert_eq!(got, want);
                let by: Vec<i32> = out[1].as_slice::<i64>().unwrap().iter().map(|&i| x[i as usize]).collect();
                assert_eq!(by, want);
            }
        }
    }
}

#[test]
fn top_k_names_the_lower_index_first() {
    let k = |x: &[f32], k: i64, largest| {
        let out = run(&[t(&[x.len()], x)], |b, v| b.top_k(v[0], k, 0, largest, true).map(|(v, i)| vec![v, i])).unwrap();
        out[1].as_slice::<i64>().unwrap().to_vec()
    };
    assert_eq!(k(&[1., 3., 3., 2.], 3, true), [1, 2, 3]);
    assert_eq!(k(&[1., 3., 1., 2.], 2, false), [0, 2]);
    assert_eq!(k(&[1., f32::NAN, 5.], 1, true), [1]);
    assert_eq!(k(&[1., f32::NAN, 5.], 2, false), [0, 2]);
    assert_eq!(k(&[], 0, true), [0i64; 0]);
    assert!(fails(&[arange(&[2])], |b, x| Ok(b.top_k(x[0], 3, 0, true, true)?.0)).contains("at most"));
    let out = run(&[t(&[2, 2, 2], &[0i32, 1, 2, 3, 7, 6, 5, 4])], |b, v| {
        b.top_k(v[0], 1, 1, true, true).map(|(v, i)| vec![v, i])
    });
    assert_eq!(out.unwrap(), [t(&[2, 1, 2], &[2i32, 3, 7, 6]), t(&[2, 1, 2], &[1i64, 1, 0, 0])]);
}

#[test]
fn nonzero_counts_itself() {
    let x = t(&[2, 3], &[0f32, 1., -0.0, f32::NAN, 0., 5.]);
    let out = run(&[x], |b, x| {
        let i = b.nonzero(x[0], Symbol::new("count"))?;
        Ok(vec![i, b.iota(DType::I32, [Dim::symbol("count")], 0)?])
    });
    assert_eq!(out.unwrap(), [t(&[2, 3], &[0i64, 1, 1, 1, 0, 2]), t(&[3], &[0i32, 1, 2])]);
    assert_eq!(run1(&[t(&[0, 2], &[0u8; 0])], |b, x| b.nonzero(x[0], "c")).dims(), &[2, 0]);
    assert_eq!(run1(&[Tensor::scalar(3i8)], |b, x| b.nonzero(x[0], "c")).dims(), &[0, 1]);
}

#[test]
fn dynamic_blocks_are_clamped() {
    let d = |start: i64| {
        floats(&run1(&[arange(&[5]), t(&[1], &[start])], |b, x| b.dynamic_slice(x[0], x[1], vec![Dim::from(2)])))
    };
    assert_eq!((d(1), d(-7), d(i64::MAX)), (vec![1., 2.], vec![0., 1.], vec![3., 4.]));
    let y = run1(&[arange(&[2, 3]), t(&[1, 2], &[8f32, 9.]), t(&[2], &[1i32, 5])], |b, x| {
        b.dynamic_update_slice(x[0], x[1], x[2])
    });
    assert_eq!(floats(&y), [0., 1., 2., 3., 8., 9.]);
    assert!(
        fails(&[arange(&[2]), arange(&[3]), t(&[1], &[0i64])], |b, x| b.dynamic_update_slice(x[0], x[1], x[2]))
            .contains("at most")
    );
}
