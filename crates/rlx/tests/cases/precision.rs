//! Kind precision: P1, P5, P6.

use half::bf16;
use rlx::{Builder, DType, Dim, Graph, Tensor};

use crate::harness::f32s;
use crate::ways::{all, near};

fn layer_norm(n: usize, eps: f64) -> Graph {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("rows"), n.into()]).unwrap();
    let y = b.layer_norm(x, None, None, &[1], eps).unwrap();
    b.output("y", y).unwrap();
    b.finish()
}

/// Two passes in f64.
fn normed(x: &[f32], eps: f64) -> Vec<f64> {
    let n = x.len() as f64;
    let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
    let var = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n;
    x.iter().map(|&x| (f64::from(x) - mean) / (var + eps).sqrt()).collect()
}

/// P1: a large mean neither cancels nor gives NaN; equal rows are zeros. At every length around a vector's.
#[test]
fn case_p1_norms_of_rows_with_a_large_mean() {
    let row = [40000f32, 40001., 40002., 40003.];
    near(&layer_norm(4, 1e-5), &[f32s(&[1, 4], &row)], &[-1.341_635, -0.447_212, 0.447_212, 1.341_635], 1e-5, 1e-5);
    near(&layer_norm(256, 1e-5), &[f32s(&[1, 256], &[1234.0; 256])], &[0.0; 256], 0.0, 1e-4);
    for n in [1usize, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 257] {
        for m in [0f32, 100.0, 10000.0] {
            let x: Vec<f32> = (0..n).map(|i| m + i as f32 * 1e-3).collect();
            // The mean is rounded to f32, by half a unit in the last place of m; all that is less than √ε ≈ 3.2e-3 before it is divided.
            let atol = 1e-4 + f64::from(m) * f64::from(f32::EPSILON) / (1e-5f64).sqrt();
            near(&layer_norm(n, 1e-5), &[f32s(&[1, n], &x)], &normed(&x, 1e-5), 1e-3, atol);
        }
    }
    // Siblings: variance as exporters write it, and the other norms.
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [1, 4]).unwrap();
    let mean = b.reduce_mean(x, &[1], true).unwrap();
    let d = b.sub(x, mean).unwrap();
    let sq = b.mul(d, d).unwrap();
    let var = b.reduce_mean(sq, &[1], false).unwrap();
    b.output("var", var).unwrap();
    near(&b.finish(), &[f32s(&[1, 4], &row)], &[1.25], 1e-6, 0.0);
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [1, 2, 4]).unwrap();
    let y = b.instance_norm(x, None, None, 1e-5).unwrap();
    b.output("y", y).unwrap();
    let twice = f32s(&[1, 2, 4], &[row, row].concat());
    let want = [normed(&row, 1e-5), normed(&row, 1e-5)].concat();
    near(&b.finish(), &[twice], &want, 1e-5, 1e-5);
}

/// P5: angles of positions are formed in f32 whatever dtype the model has, and rounded once at the end.
#[test]
fn case_p5_rotary_angles_are_not_rounded_to_bf16() {
    let mut b = Builder::new("main");
    let p = b.input("p", DType::I64, [Dim::symbol("n")]).unwrap();
    let f = b.convert(p, DType::F32).unwrap();
    let c = b.cos(f).unwrap();
    let c = b.convert(c, DType::BF16).unwrap();
    b.output("cos", c).unwrap();
    let g = b.finish();
    let positions = [255i64, 256, 257, 15962];
    for (way, got) in all(&g, &[Tensor::from_slice(&[4], &positions).unwrap()]) {
        for (got, p) in got[0].as_slice::<bf16>().unwrap().iter().zip(positions) {
            let want = (p as f64).cos();
            assert!((f64::from(got.to_f32()) - want).abs() < 4e-3, "{way}: cos({p}) is {want}, got {got}");
        }
        let c = got[0].as_slice::<bf16>().unwrap().to_vec();
        assert_ne!(c[1], c[2], "{way}");
    }
    // In f32 itself: libm's cosine at every size of argument.
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n")]).unwrap();
    let c = b.cos(x).unwrap();
    b.output("cos", c).unwrap();
    let x: Vec<f32> =
        (0..200).map(|i| (i as f32 * 1.37).exp2().min(1e6) * if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
    let want: Vec<f64> = x.iter().map(|&x| f64::from(x).cos()).collect();
    near(&b.finish(), &[f32s(&[x.len()], &x)], &want, 1e-6, 1e-6);
}

/// P6: softplus far from zero on both sides, at infinities and NaN, in the vector's body and its tail.
#[test]
fn case_p6_softplus_and_its_kin_in_the_tails() {
    let mut points =
        vec![-12.3392f32, -50., -20., 20., 90., 1000., f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1e-30];
    points.extend((-60..=60).map(|i| i as f32 * 1.7));
    let exact = |x: f32| {
        let x = f64::from(x);
        if x.is_nan() { x } else { x.max(0.0) + (-x.abs()).exp().ln_1p() }
    };
    for n in [1, 7, 8, 9, 15, 16, 17, points.len()] {
        let mut b = Builder::new("main");
        let x = b.input("x", DType::F32, [Dim::symbol("n")]).unwrap();
        let y = b.softplus(x).unwrap();
        b.output("y", y).unwrap();
        let x = &points[..n];
        near(
            &b.finish(),
            &[f32s(&[n], x)],
            &x.iter().map(|&x| exact(x)).collect::<Vec<_>>(),
            2e-6,
            f64::from(f32::MIN_POSITIVE),
        );
    }
    // log(1 + eˣ) as exporters write it keeps what f32 can: not better than its own steps, but no NaN for large x.
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [points.len()]).unwrap();
    let y = b.log1p(x).unwrap();
    b.output("y", y).unwrap();
    let want: Vec<f64> = points.iter().map(|&x| f64::from(x).ln_1p()).collect();
    near(&b.finish(), &[f32s(&[points.len()], &points)], &want, 1e-6, 0.0);
}
