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
    let wide = run_with(&[x], EvalOptions { f64_accumulate: true }, true, |b, v| {
        Ok(vec![b.reduce(v[0], ReduceKind::Sum, &[0], false)?])
    });
    assert_eq!(floats(&wide.unwrap()[0]), [1.0]);
}
