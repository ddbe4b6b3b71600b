use super::*;
use crate::DType;
use crate::op::EvalOptions;
use crate::ops::testing::{arange, floats, of, run_with, run1, t};

#[test]
fn nan_wins_wherever_it_stands() {
    for k in (1..=9).chain([15, 16, 17, 31, 32, 33]) {
        let mut v = vec![f32::NAN; k];
        v.push(42.0);
        for rotate in [0, k / 2, k] {
            v.rotate_left(rotate);
            for kind in [ReduceKind::Max, ReduceKind::Min] {
                assert!(floats(&run1(&[t(&[k + 1], &v)], |b, x| b.reduce(x[0], kind, &[0], false)))[0].is_nan());
            }
        }
    }
}

#[test]
fn sums_over_any_axes() {
    let x = arange(&[2, 3, 2]);
    let r = |axes: &[i64], keep| run1(std::slice::from_ref(&x), |b, x| b.reduce(x[0], ReduceKind::Sum, axes, keep));
    assert_eq!(r(&[1], false), t(&[2, 2], &[6f32, 9., 24., 27.]));
    assert_eq!(r(&[0, -1], true), t(&[1, 3, 1], &[14f32, 22., 30.]));
    assert_eq!(r(&[0, 1, 2], false), t(&[], &[66f32]));
    assert_eq!(r(&[2], true), t(&[2, 3, 1], &[1f32, 5., 9., 13., 17., 21.]));
}

#[test]
fn folds_of_nothing_are_neutral() {
    let r = |kind, x| run1(&[x], |b, v| b.reduce(v[0], kind, &[0], false));
    assert_eq!(r(ReduceKind::Max, t(&[0, 1], &[0f32; 0])), t(&[1], &[f32::NEG_INFINITY]));
    assert_eq!(r(ReduceKind::Min, t(&[0], &[0u8; 0])), crate::Tensor::scalar(255u8));
    assert_eq!(r(ReduceKind::Prod, t(&[0], &[0i32; 0])), crate::Tensor::scalar(1i32));
    assert_eq!(r(ReduceKind::Sum, t(&[0, 2], &[0f64; 0])), t(&[2], &[0f64; 2]));
    assert_eq!(r(ReduceKind::Sum, t(&[3, 0], &[0f64; 0])).dims(), &[0]);
}

#[test]
fn integers_wrap_and_small_floats_accumulate_wider() {
    let r = |kind, x| run1(&[x], |b, v| b.reduce(v[0], kind, &[0], false));
    assert_eq!(r(ReduceKind::Sum, t(&[2], &[i32::MAX, 1])), crate::Tensor::scalar(i32::MIN));
    assert_eq!(r(ReduceKind::Prod, t(&[2], &[1i64 << 62, 6])), crate::Tensor::scalar(i64::MIN));
    // In f16 the sum would stick at 2048.
    assert_eq!(floats(&r(ReduceKind::Sum, of(DType::F16, &[4096], &[1.0; 4096]))), [4096.0]);
    let x = t(&[3], &[1e8f32, 1.0, -1e8]);
    assert_eq!(floats(&r(ReduceKind::Sum, x.clone())), [0.0]);
    let wide =
        run_with(&[x], EvalOptions::accurate(), true, |b, v| Ok(vec![b.reduce(v[0], ReduceKind::Sum, &[0], false)?]));
    assert_eq!(floats(&wide.unwrap()[0]), [1.0]);
}

fn list(x: &crate::Tensor) -> Vec<f64> {
    floats(x).into_iter().map(|v| (v * 1e4).round() / 1e4).collect()
}

#[test]
fn means_of_something_and_nothing() {
    let mean = |x: &crate::Tensor, axes: &[i64]| run1(std::slice::from_ref(x), |b, v| b.reduce_mean(v[0], axes, false));
    let x = t(&[1, 2, 4], &[1f32, 2., 3., 4., 5., 6., 7., 9.]);
    assert_eq!(floats(&mean(&x, &[1])), [3., 4., 5., 6.5]);
    assert!(floats(&mean(&t(&[0], &[0f32; 0]), &[0]))[0].is_nan());
    assert_eq!(mean(&t(&[2], &[-3i32, -4]), &[0]), crate::Tensor::scalar(-3i32));
    // The sum alone would overflow f16.
    assert_eq!(floats(&mean(&of(DType::F16, &[3], &[60000.0; 3]), &[0])), [60000.0]);
}

#[test]
fn log_sum_exp_neither_overflows_nor_loses_infinities() {
    let f = |v: &[f32]| floats(&run1(&[t(&[v.len()], v)], |b, x| b.reduce_log_sum_exp(x[0], &[0], true)))[0];
    assert!((f(&[1000.0, 1000.0]) - (1000.0 + 2f64.ln())).abs() < 1e-3);
    assert_eq!(f(&[f32::NEG_INFINITY; 2]), f64::NEG_INFINITY);
    assert_eq!(f(&[f32::INFINITY, 0.0]), f64::INFINITY);
    assert_eq!(f(&[]), f64::NEG_INFINITY);
    assert!(f(&[f32::NAN, 0.0]).is_nan());
    let n = |x: &[f32]| {
        let x = t(&[x.len()], x);
        run_with(&[x], EvalOptions::default(), true, |b, x| {
            Ok(vec![
                b.reduce_l1(x[0], &[0], false)?,
                b.reduce_l2(x[0], &[0], false)?,
                b.reduce_sum_square(x[0], &[0], false)?,
                b.reduce_log_sum(x[0], &[0], false)?,
            ])
        })
        .unwrap()
        .iter()
        .map(|t| floats(t)[0])
        .collect::<Vec<_>>()
    };
    assert_eq!(n(&[3.0, 4.0])[..3], [7.0, 5.0, 25.0]);
    assert!((n(&[3.0, 4.0])[3] - 7f64.ln()).abs() < 1e-6);
    assert!(n(&[3.0, -4.0])[3].is_nan());
}

#[test]
fn arg_reduce_ties_and_nan() {
    let f = |v: &[f32], kind, last| {
        let y = run1(&[t(&[v.len()], v)], |b, x| b.arg_reduce(x[0], kind, 0, false, last));
        y.as_slice::<i64>().unwrap()[0]
    };
    let x = [1., 3., 2., 3.];
    assert_eq!((f(&x, ArgKind::Max, false), f(&x, ArgKind::Max, true), f(&x, ArgKind::Min, true)), (1, 3, 0));
    let x = [1., f32::NAN, 9., f32::NAN, 0.];
    for kind in [ArgKind::Max, ArgKind::Min] {
        assert_eq!((f(&x, kind, false), f(&x, kind, true)), (1, 3));
    }
    assert!(
        crate::ops::testing::fails(&[t(&[0], &[0f32; 0])], |b, x| b.arg_reduce(x[0], ArgKind::Max, 0, true, false))
            .contains("empty")
    );
    let y = run1(&[t(&[2, 3], &[1u8, 9, 2, 7, 3, 8])], |b, x| b.arg_reduce(x[0], ArgKind::Max, 0, true, false));
    assert_eq!(y, t(&[1, 3], &[1i64, 0, 1]));
}

#[test]
fn cumulative_directions() {
    let f = |exclusive, reverse| {
        let y = run1(&[t(&[4], &[1i32, 2, 3, 4])], |b, x| b.cumulative(x[0], CumKind::Sum, 0, exclusive, reverse));
        y.as_slice::<i32>().unwrap().to_vec()
    };
    assert_eq!(f(false, false), [1, 3, 6, 10]);
    assert_eq!(f(true, false), [0, 1, 3, 6]);
    assert_eq!(f(false, true), [10, 9, 7, 4]);
    assert_eq!(f(true, true), [9, 7, 4, 0]);
    let y = run1(&[t(&[2, 2], &[1f64, 2., 3., 4.])], |b, x| b.cumulative(x[0], CumKind::Prod, 0, false, false));
    assert_eq!(floats(&y), [1., 2., 3., 8.]);
    let y = run1(&[t(&[3], &[2f32, f32::NAN, 5.])], |b, x| b.cumulative(x[0], CumKind::Max, 0, false, false));
    assert!(floats(&y)[0] == 2.0 && floats(&y)[1].is_nan() && floats(&y)[2].is_nan());
}

/// One-dimensional mean pooling.
fn mean_pool(n: i64, first: f32, k: i64, s: i64, pads: [i64; 2], ceil: bool, include: bool) -> Vec<f64> {
    let x: Vec<f32> = (0..n).map(|i| first + i as f32).collect();
    let op = ReduceWindow {
        strides: vec![s],
        pad_low: vec![pads[0].into()],
        pad_high: vec![pads[1].into()],
        ceil,
        count_include_pad: include,
        ..ReduceWindow::new(WindowKind::Mean, &[k])
    };
    list(&run1(&[t(&[1, 1, x.len()], &x)], |b, v| b.reduce_window(v[0], op)))
}

#[test]
fn mean_pool_divisors() {
    assert_eq!(mean_pool(5, 1.0, 3, 3, [1, 1], true, false), [1.5, 4.0]);
    assert_eq!(mean_pool(6, 0.0, 5, 1, [2, 2], false, true), [0.6, 1.2, 2.0, 3.0, 2.8, 2.4]);
    assert_eq!(mean_pool(9, 1.0, 7, 3, [0, 3], true, true), [4.0, 5.5714, 4.0]);
    assert_eq!(mean_pool(9, 1.0, 7, 3, [0, 3], true, false), [4.0, 6.5, 8.0]);
    assert_eq!(mean_pool(1, 5.0, 1, 1, [1, 0], false, false), [0.0, 5.0]);
}

#[test]
fn max_pool_finds_where() {
    // ONNX MaxPool with storage_order 0 and 1 on 1..25, kernel 2, stride 2.
    let x: Vec<f32> = (1..=25).map(|i| i as f32).collect();
    let pool = |column_major| {
        let op = ReduceWindow { strides: vec![2, 2], ..ReduceWindow::new(WindowKind::Max, &[2, 2]) };
        run_with(&[t(&[1, 1, 5, 5], &x)], EvalOptions::default(), true, |b, v| {
            let (y, i) = b.max_pool_with_indices(v[0], MaxPoolIndices::new(op, column_major))?;
            Ok(vec![y, i])
        })
        .unwrap()
    };
    assert_eq!(floats(&pool(false)[0]), [7., 9., 17., 19.]);
    assert_eq!(pool(false)[1], t(&[1, 1, 2, 2], &[6i64, 8, 16, 18]));
    assert_eq!(pool(true)[1], t(&[1, 1, 2, 2], &[6i64, 16, 8, 18]));
    let op = ReduceWindow { dilations: vec![2], ..ReduceWindow::new(WindowKind::Max, &[2]) };
    assert_eq!(floats(&run1(&[t(&[4], &[1f32, f32::NAN, 3., 0.])], |b, v| b.reduce_window(v[0], op)))[0], 3.0);
    let op = ReduceWindow { pad_low: vec![2.into()], ..ReduceWindow::new(WindowKind::Max, &[2]) };
    let y = run_with(&[t(&[2], &[7i8, 7])], EvalOptions::default(), true, |b, v| {
        let (y, i) = b.max_pool_with_indices(v[0], MaxPoolIndices::new(op, false))?;
        Ok(vec![y, i])
    })
    .unwrap();
    assert_eq!((y[0].clone(), y[1].clone()), (t(&[3], &[-128i8, 7, 7]), t(&[3], &[-1i64, 0, 0])));
}
