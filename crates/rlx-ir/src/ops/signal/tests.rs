//! Transforms against values known in closed form, and the decomposition against the evaluator.

#![allow(clippy::unwrap_used)]

use super::Fft;
use crate::builder::Builder;
use crate::dim::Dim;
use crate::eval::{EvalInputs, evaluate};
use crate::op::{EvalOptions, Op};
use crate::{DType, Module, Tensor};

fn module(x: &Tensor, dims: &[&str], op: &Fft, decomposed: bool) -> Module {
    let mut b = Builder::new("main");
    let dims: Vec<Dim> = dims.iter().map(|d| Dim::parse(d).unwrap()).collect();
    let v = b.input("x", x.dtype(), dims.iter()).unwrap();
    let y = match decomposed {
        true => Op::from(op.clone()).def().decompose(&mut b, &[v]).unwrap().unwrap()[0],
        false => b.fft(v, op.clone()).unwrap(),
    };
    b.output("y", y).unwrap();
    Module::from_graph(b.finish())
}

fn run(x: &Tensor, dims: &[&str], op: &Fft, decomposed: bool) -> Tensor {
    let m = module(x, dims, op, decomposed);
    let inputs = EvalInputs { inputs: vec![x.clone().into()], ..EvalInputs::default() };
    evaluate(&m, &inputs, EvalOptions::default()).unwrap().outputs[0].as_tensor().unwrap().clone()
}

fn near(got: &Tensor, want: &[f64]) {
    let got = got.elements().to_f64().unwrap();
    assert_eq!(got.len(), want.len());
    for (g, w) in got.iter().zip(want) {
        assert!((g - w).abs() < 1e-12, "{got:?} {want:?}");
    }
}

fn noise(dims: &[usize]) -> Tensor {
    let n: usize = dims.iter().product();
    let v: Vec<f64> = (0..n).map(|i| ((i * 37 + 11) % 64) as f64 / 16.0 - 2.0).collect();
    Tensor::from_slice(dims, &v).unwrap()
}

#[test]
fn what_is_known_in_closed_form() {
    let op = Fft { axis: 0, length: Dim::from(4), inverse: false, onesided: false };
    // An impulse at 1 turns once backwards.
    let x = Tensor::from_slice(&[4, 1], &[0.0, 1.0, 0.0, 0.0]).unwrap();
    near(&run(&x, &["4", "1"], &op, false), &[1.0, 0.0, 0.0, -1.0, -1.0, 0.0, 0.0, 1.0]);
    let half = Fft { onesided: true, ..op.clone() };
    near(&run(&x, &["4", "1"], &half, false), &[1.0, 0.0, 0.0, -1.0, -1.0, 0.0]);
    // i times it, inverse: a quarter of the forward turn.
    let x = Tensor::from_slice(&[4, 2], &[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]).unwrap();
    let back = Fft { inverse: true, ..op.clone() };
    near(&run(&x, &["4", "2"], &back, false), &[0.0, 0.25, -0.25, 0.0, 0.0, -0.25, 0.25, 0.0]);
    // A spectrum of which half is there: 1 + 2·cos.
    let x = Tensor::from_slice(&[3, 2], &[4.0, 0.0, 4.0, 0.0, 0.0, 0.0]).unwrap();
    let real = Fft { inverse: true, onesided: true, ..op };
    near(&run(&x, &["3", "2"], &real, false), &[3.0, 1.0, -1.0, 1.0]);
}

#[test]
fn the_decomposition_is_equal() {
    for inverse in [false, true] {
        for onesided in [false, true] {
            for parts in [1, 2] {
                for length in [1, 2, 5, 6, 9] {
                    for (axis, dims) in [(0, [6, 3]), (1, [2, 6])] {
                        let x = noise(&[dims[0], dims[1], parts]);
                        let op = Fft { axis, length: Dim::from(length), inverse, onesided };
                        let names = ["a", "b", if parts == 1 { "1" } else { "2" }];
                        let (whole, split) = (run(&x, &names, &op, false), run(&x, &names, &op, true));
                        assert_eq!((whole.dtype(), whole.dims()), (split.dtype(), split.dims()));
                        near(&split, &whole.elements().to_f64().unwrap());
                    }
                }
            }
        }
    }
}

#[test]
fn inverse_after_forward_is_the_signal() {
    for n in [1usize, 4, 7, 10] {
        let x = noise(&[n, 2]);
        let op = Fft { axis: 0, length: Dim::from(n), inverse: false, onesided: false };
        let y = run(&x, &["n", "2"], &op, false);
        let z = run(&y, &["n", "2"], &Fft { inverse: true, ..op.clone() }, false);
        near(&z, &x.elements().to_f64().unwrap());
        let x = noise(&[n, 1]);
        let y = run(&x, &["n", "1"], &Fft { onesided: true, ..op.clone() }, false);
        let z = run(&y, &["h", "2"], &Fft { onesided: true, inverse: true, ..op }, false);
        near(&z, &x.elements().to_f64().unwrap());
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |dtype, dims: &[&str], axis| -> String {
        let mut b = Builder::new("main");
        let dims: Vec<Dim> = dims.iter().map(|d| Dim::parse(d).unwrap()).collect();
        let v = b.input("x", dtype, dims.iter()).unwrap();
        let op = Fft { axis, length: Dim::from(4), inverse: false, onesided: false };
        b.fft(v, op).unwrap_err().to_string()
    };
    assert!(refused(DType::I32, &["4", "1"], 0).contains("takes floats"));
    assert!(refused(DType::F32, &["4", "3"], 0).contains("1 or 2 elements"));
    assert!(refused(DType::F32, &["4", "2"], 1).contains("must stand before"));
}
