//! Activations with parameters against their formulas.

use super::run;
use crate::builder::Builder;
use crate::{DType, IrError, Tensor, ValueId};

const X: [f32; 7] = [-3.0, -0.5, -0.0, 0.0, 0.25, 1.0, 4.0];

fn check(f: impl Fn(&mut Builder, ValueId) -> Result<ValueId, IrError>, want: impl Fn(f64) -> f64) {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [8]).unwrap();
    let y = f(&mut b, x).unwrap();
    b.output("y", y).unwrap();
    let xs = [&X[..], &[f32::NAN]].concat();
    let y = run(b.finish(), vec![Tensor::from_slice(&[8], &xs).unwrap()])[0].elements().to_f64().unwrap();
    for (x, y) in xs.iter().zip(&y) {
        let w = want(f64::from(*x));
        assert!((y - w).abs() < 1e-6 || y.is_nan() && w.is_nan(), "{x}: {y} for {w}");
    }
}

#[test]
fn formulas() {
    let elu = |x: f64, a: f64| if x < 0.0 { a * (x.exp() - 1.0) } else { x };
    check(|b, x| b.leaky_relu(x, 0.1), |x| if x < 0.0 { 0.1 * x } else { x });
    check(|b, x| b.elu(x, 2.0), |x| elu(x, 2.0));
    check(|b, x| b.selu(x, 1.5, 2.0), |x| 2.0 * elu(x, 1.5));
    check(|b, x| b.celu(x, 2.0), |x| if x < 0.0 { 2.0 * ((x / 2.0).exp() - 1.0) } else { x });
    check(|b, x| b.hard_sigmoid(x, 0.2, 0.5), |x| if x.is_nan() { x } else { (0.2 * x + 0.5).clamp(0.0, 1.0) });
    check(|b, x| b.thresholded_relu(x, 1.0), |x| if x <= 1.0 { 0.0 } else { x });
    check(
        |b, x| b.shrink(x, 0.5, 0.25),
        |x| {
            if x > 0.5 {
                x - 0.25
            } else if x < -0.5 {
                x + 0.25
            } else {
                0.0
            }
        },
    );
}
