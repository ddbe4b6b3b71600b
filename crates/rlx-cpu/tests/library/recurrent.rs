//! Recurrent layers.

use crate::harness::*;
use rlx_ir::attr::FloatBits;
use rlx_ir::element::Elements;
use rlx_ir::ops::neural::{CellActivation, CellFunction, Gru, Lstm, Rnn, RnnDirection};
use rlx_ir::{DType, Op, Tensor};

const DIRECTIONS: [RnnDirection; 3] = [RnnDirection::Forward, RnnDirection::Reverse, RnnDirection::Bidirectional];

/// Sizes t, b, i, h.
type Sizes = [usize; 4];

fn tolerance(d: DType) -> f64 {
    match d {
        DType::F64 => 1e-12,
        DType::F32 => 1e-5,
        DType::F16 => 4e-3,
        _ => 3e-2,
    }
}

/// Operands in the op's order: which of bias, lengths, h0, c0, peephole there are.
fn operands(d: DType, [t, b, i, h]: Sizes, directions: usize, gates: usize, has: [bool; 5]) -> Vec<Tensor> {
    // Weights that let differences die out from step to step.
    let weights = |n: usize, seed: u64| {
        let w = finite(DType::F64, &[directions, gates * h, n], seed);
        let scaled = w.elements().to_f64().unwrap().iter().map(|x| x / (n.max(1) as f64).sqrt()).collect();
        Tensor::from_elements(d, w.dims(), &Elements::Float(scaled)).unwrap()
    };
    let mut v = vec![finite(d, &[t, b, i], 1), weights(i, 2), weights(h, 3)];
    let lengths: Vec<i32> = (0..b).map(|s| ((s * 5 + t / 2) % (t + 1)) as i32).collect();
    let optional = [
        finite(d, &[directions, 2 * gates * h], 4),
        Tensor::from_slice(&[b], &lengths).unwrap(),
        finite(d, &[directions, b, h], 5),
        finite(d, &[directions, b, h], 6),
        finite(d, &[directions, 3 * h], 7),
    ];
    v.extend(optional.into_iter().zip(has).filter(|(_, has)| *has).map(|(t, _)| t));
    v
}

fn layer(op: impl Into<Op>, inputs: &[Tensor], tolerance: f64) -> Vec<Tensor> {
    let op = op.into();
    check(inputs, tolerance, &|b, v| b.op(op.clone(), v))
}

fn lstm(h: usize, direction: RnnDirection, has: [bool; 5]) -> Lstm {
    let [has_bias, has_lengths, has_init_h, has_init_c, has_peephole] = has;
    Lstm { direction, has_bias, has_lengths, has_init_h, has_init_c, has_peephole, ..Lstm::new(h as i64) }
}

fn gru(h: usize, direction: RnnDirection, has: [bool; 5], linear_before_reset: bool) -> Gru {
    let [has_bias, has_lengths, has_init_h, ..] = has;
    Gru { direction, has_bias, has_lengths, has_init_h, linear_before_reset, ..Gru::new(h as i64) }
}

fn rnn(h: usize, direction: RnnDirection, has: [bool; 5]) -> Rnn {
    let [has_bias, has_lengths, has_init_h, ..] = has;
    Rnn { direction, has_bias, has_lengths, has_init_h, ..Rnn::new(h as i64) }
}

fn all(d: DType, s: Sizes, direction: RnnDirection, has: [bool; 5]) {
    let (n, h, e) = (direction.count(), s[3], tolerance(d));
    let three = [has[0], has[1], has[2], false, false];
    layer(lstm(h, direction, has), &operands(d, s, n, 4, has), e);
    for linear in [false, true] {
        layer(gru(h, direction, three, linear), &operands(d, s, n, 3, three), e);
    }
    layer(rnn(h, direction, three), &operands(d, s, n, 1, three), e);
}

#[test]
fn directions_and_optional_operands() {
    for direction in DIRECTIONS {
        for bits in 0..32u32 {
            let has = [0, 1, 2, 3, 4].map(|k| bits >> k & 1 == 1);
            all(DType::F32, [5, 3, 4, 7], direction, has);
        }
    }
}

#[test]
fn shapes() {
    for s in [[1, 1, 1, 1], [0, 2, 3, 4], [3, 0, 3, 4], [3, 2, 0, 4], [7, 1, 31, 33], [2, 17, 8, 16], [40, 4, 24, 65]] {
        for direction in [RnnDirection::Reverse, RnnDirection::Bidirectional] {
            all(DType::F32, s, direction, [true, s[0] > 1, true, true, true]);
        }
    }
}

#[test]
fn every_float() {
    for d in [DType::F64, DType::F16, DType::BF16] {
        all(d, [5, 3, 4, 9], RnnDirection::Bidirectional, [true; 5]);
    }
}

#[test]
fn functions_and_clip() {
    let f = CellActivation::new;
    let functions = [
        CellFunction::Relu,
        CellFunction::Affine,
        CellFunction::LeakyRelu,
        CellFunction::ThresholdedRelu,
        CellFunction::ScaledTanh,
        CellFunction::HardSigmoid,
        CellFunction::Elu,
        CellFunction::Softsign,
        CellFunction::Softplus,
    ];
    let (s, has) = ([4, 2, 3, 5], [true; 5]);
    for g in functions {
        let mut op = rnn(5, RnnDirection::Bidirectional, [true, false, true, false, false]);
        op.activations =
            vec![f(g), CellActivation { alpha: FloatBits::new(0.5), beta: FloatBits::new(0.25), function: g }];
        op.clip = Some(FloatBits::new(0.75));
        layer(op, &operands(DType::F32, s, 2, 1, [true, false, true, false, false]), 1e-5);
        let mut op = lstm(5, RnnDirection::Forward, has);
        op.activations = vec![f(CellFunction::HardSigmoid), f(g), f(CellFunction::Softsign)];
        op.clip = Some(FloatBits::new(0.5));
        op.input_forget = true;
        layer(op, &operands(DType::F32, s, 1, 4, has), 1e-5);
    }
    let mut op = gru(5, RnnDirection::Reverse, has, true);
    op.clip = Some(FloatBits::new(0.25));
    layer(op, &operands(DType::F32, s, 1, 3, [true, true, true, false, false]), 1e-5);
}

#[test]
fn one_step_by_hand() {
    // All weights 0: gates are the functions of the biases.
    let (zero, bias) = (|d: &[usize]| Tensor::zeros(DType::F32, d).unwrap(), [0.5f32, 1.0, -0.5, 2.0]);
    let both: Vec<f32> = bias.iter().chain(&[0.0; 4]).copied().collect();
    let inputs = [
        zero(&[1, 1, 2]),
        zero(&[1, 4, 2]),
        zero(&[1, 4, 1]),
        Tensor::from_slice(&[1, 8], &both).unwrap(),
        zero(&[1, 1, 1]),
        Tensor::from_slice(&[1, 1, 1], &[3.0f32]).unwrap(),
    ];
    let got = layer(lstm(1, RnnDirection::Forward, [true, false, true, true, false]), &inputs, 1e-6);
    let s = |x: f64| 1.0 / (1.0 + (-x).exp());
    let c = s(-0.5) * 3.0 + s(0.5) * 2f64.tanh();
    let h = s(1.0) * c.tanh();
    for (t, want) in got.iter().zip([h, h, c]) {
        assert!((f64::from(t.as_slice::<f32>().unwrap()[0]) - want).abs() < 1e-6);
    }
}

#[test]
fn lengths_are_checked() {
    let mut inputs = operands(DType::F32, [3, 2, 2, 2], 1, 1, [false, true, false, false, false]);
    inputs[3] = Tensor::from_slice(&[2], &[1i32, 4]).unwrap();
    let op: Op = rnn(2, RnnDirection::Forward, [false, true, false, false, false]).into();
    let e = fails(&inputs, &|b, v| b.op(op.clone(), v));
    assert!(e.contains("length 4 of sequence 1") && e.contains("0..=3"), "{e}");
}
