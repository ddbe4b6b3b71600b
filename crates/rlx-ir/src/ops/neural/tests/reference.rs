//! Evaluations against values that others computed: ONNX Runtime (norms, recurrent layers) and the ONNX reference evaluator (attention,
//! resize), on the inputs that `ramp` makes.

use super::{close, evaluated, ramp};
use crate::attr::FloatBits;
use crate::dim::Dim;
use crate::ops::neural::*;
use crate::{DType, Op, Tensor};

fn bools(dims: &[usize], v: &[u8]) -> Tensor {
    Tensor::from_bytes(DType::Bool, dims, v).unwrap()
}

fn qkv() -> Vec<Tensor> {
    vec![ramp(&[1, 4, 2, 3], 0.25, -1.), ramp(&[1, 2, 3, 3], 0.5, -2.), ramp(&[1, 2, 3, 2], 1., -3.)]
}

#[test]
fn attention_with_hidden_rows() {
    // CASES N2: the second query sees no key and gives zeros. Grouped heads.
    let op = Attention { mask: MaskKind::Bool, ..Attention::new(AttnLayout::Bhsd, 0.5) };
    let mut args = qkv();
    args.push(bools(&[2, 3], &[1, 0, 1, 0, 0, 0]));
    close(
        &evaluated(op, args)[0],
        &[-2.54485, 3.62071, 0., 0., 2.73191, -0.776596, 0., 0., 1.21044, -2.78956, 0., 0., 1.37929, -2.62071, 0., 0.],
    );
}

#[test]
fn attention_causal_with_cap_and_window() {
    let op = Attention { causal: true, softcap: Some(FloatBits::new(2.0)), ..Attention::new(AttnLayout::Bhsd, 0.5) };
    close(
        &evaluated(op, qkv())[0],
        &[
            -2.71811, 4.28189, 1.27186, 3.22763, -0.23123, 6.76877, 1.27255, 3.05054, -1.39487, 4.77308, -0.275408,
            1.25773, -1.19105, 4.69664, -0.0323175, 0.994017,
        ],
    );
    let op =
        Attention { causal: true, window: Some(1), mask: MaskKind::Additive, ..Attention::new(AttnLayout::Bhsd, 0.5) };
    let mut args = qkv();
    args.push(ramp(&[2, 3], 0.5, -2.));
    close(&evaluated(op, args)[0], &[0., 7., 3., -1., 0., 7., 3., -1., -2., 5., 1., -3., -2., 5., 1., -3.]);
}

#[test]
fn softmax_of_infinities() {
    let inf = f32::INFINITY;
    let x = Tensor::from_slice(&[3, 2], &[-inf, -inf, -inf, 1., inf, 1.]).unwrap();
    let y = evaluated(Softmax { axis: 1, log: false }, vec![x])[0].elements().to_f64().unwrap();
    assert!(y[0].is_nan() && y[1].is_nan() && y[4].is_nan());
    assert_eq!(y[2..4], [0.0, 1.0]);
    // Along the first axis: exp(1) : exp(0) and its logarithm.
    let x = Tensor::from_slice(&[2, 2], &[1f32, 1000., 0., 999.]).unwrap();
    close(&evaluated(Softmax { axis: 0, log: false }, vec![x.clone()])[0], &[0.731059, 0.731059, 0.268941, 0.268941]);
    close(&evaluated(Softmax { axis: 0, log: true }, vec![x])[0], &[-0.313262, -0.313262, -1.313262, -1.313262]);
}

#[test]
fn layer_norm_of_large_means() {
    // CASES P1.
    let op = || LayerNorm { axes: vec![1], eps: FloatBits::new(1e-5), has_scale: false, has_bias: false };
    let x = Tensor::from_slice(&[1, 4], &[40000f32, 40001., 40002., 40003.]).unwrap();
    close(&evaluated(op(), vec![x])[0], &[-1.341635, -0.447212, 0.447212, 1.341635]);
    let x = Tensor::from_slice(&[1, 256], &[1234f32; 256]).unwrap();
    close(&evaluated(op(), vec![x])[0], &[0.; 256]);
}

#[test]
fn norms() {
    let x = || ramp(&[2, 4, 3], 0.5, -2.);
    let (s, b) = (|| ramp(&[4], 0.25, 0.5), || ramp(&[4], 0.5, -1.));
    let op = GroupNorm { groups: Dim::from(2), eps: FloatBits::new(1e-5), has_scale: true, has_bias: true };
    close(
        &evaluated(op, vec![x(), s(), b()])[0],
        &[
            -1.69652, -0.651738, -1.24876, 6.08213, 3.39553, 0.708936, 2.20246, 0.689162, -0.824135, 7.17792, 3.54601,
            -0.0859022, -0.856851, -1.54397, -0.341514, 2.37117, -0.720858, 4.69018, 0.857873, -0.859918, 2.14622,
            3.82822, -0.294477, 6.92024,
        ],
    );
    let op = BatchNorm { eps: FloatBits::new(1e-3) };
    close(
        &evaluated(op, vec![x(), s(), b(), ramp(&[4], 0.5, -1.), ramp(&[4], 0.5, 1.)])[0],
        &[
            -1.49975, 0.249376, -0.750125, 3.03027, 0.909187, -1.2119, 2.08082, 0.5, -1.08082, 1.55071, -0.898571,
            -3.34786, 0.249376, -0.750125, 0.999001, 0.909187, -1.2119, 2.5, 0.5, -1.08082, 1.68562, -0.898571,
            -3.34786, 0.938393,
        ],
    );
    let op = LayerNorm { axes: vec![1, 2], eps: FloatBits::new(1e-5), has_scale: true, has_bias: true };
    close(
        &evaluated(op, vec![x(), ramp(&[4, 3], 0.25, 0.5), ramp(&[4, 3], 0.5, -1.)])[0],
        &[
            -1.68858, 4.1338, -0.0946788, 8.88263, 2.85133, -0.776212, 7.14945, 1.71909, -1.30751, 5.56651, 0.737089,
            -1.68858, -0.702159, 0.916027, 2.46304, 4.81229, -0.0578108, 1.24552, 3.35108, -0.86919, 0.19045, 2.05232,
            -1.51811, -0.702159,
        ],
    );
}

fn lstm_args(d: usize) -> Vec<Tensor> {
    vec![
        ramp(&[3, 2, 2], 0.25, -1.),
        ramp(&[d, 8, 2], 0.125, -0.5),
        ramp(&[d, 8, 2], 0.0625, -0.25),
        ramp(&[d, 16], 0.125, -0.5),
        Tensor::from_slice(&[2], &[3i32, 2]).unwrap(),
        ramp(&[d, 2, 2], 0.25, -1.),
        ramp(&[d, 2, 2], 0.125, -0.5),
        ramp(&[d, 6], 0.25, -1.),
    ]
}

#[test]
fn lstm_with_all_operands() {
    let op = |direction| Lstm {
        direction,
        has_bias: true,
        has_lengths: true,
        has_init_h: true,
        has_init_c: true,
        has_peephole: true,
        ..Lstm::new(2)
    };
    let out = evaluated(op(RnnDirection::Forward), lstm_args(1));
    close(
        &out[0],
        &[
            -0.00147974,
            -0.0787141,
            0.0906009,
            0.448133,
            0.0991087,
            0.0962798,
            0.167455,
            0.673743,
            0.148313,
            0.0724986,
            0.,
            0.,
        ],
    );
    close(&out[1], &[0.148313, 0.0724986, 0.167455, 0.673743]);
    close(&out[2], &[0.473765, 0.13591, 0.349697, 0.925806]);
    let out = evaluated(op(RnnDirection::Bidirectional), lstm_args(2));
    close(
        &out[0],
        &[
            -0.00147974,
            -0.0787141,
            0.0906009,
            0.448133,
            -0.379784,
            0.530848,
            0.0580321,
            0.445381,
            0.0991087,
            0.0962798,
            0.167455,
            0.673743,
            -0.234304,
            0.240829,
            0.400016,
            0.0874984,
            0.148313,
            0.0724986,
            0.,
            0.,
            -0.164829,
            0.288152,
            0.,
            0.,
        ],
    );
    close(&out[1], &[0.148313, 0.0724986, 0.167455, 0.673743, -0.379784, 0.530848, 0.0580321, 0.445381]);
    close(&out[2], &[0.473765, 0.13591, 0.349697, 0.925806, -0.755873, 0.871412, 0.102554, 0.781527]);
}

#[test]
fn lstm_with_other_functions() {
    let mut args = lstm_args(2);
    args.truncate(3);
    let f = CellActivation::new;
    let op = Lstm {
        direction: RnnDirection::Bidirectional,
        activations: vec![
            f(CellFunction::HardSigmoid),
            f(CellFunction::Softsign),
            f(CellFunction::Relu),
            f(CellFunction::Sigmoid),
            f(CellFunction::Tanh),
            f(CellFunction::Tanh),
        ],
        clip: Some(FloatBits::new(0.5)),
        ..Lstm::new(2)
    };
    let out = evaluated(op, args);
    close(
        &out[0],
        &[
            0., 0., 0., 0.0479605, -0.103953, 0.0881163, 0.0721374, 0.0247181, 0.00193085, 0., 0.0351469, 0.128833,
            0.00468051, -0.0439353, 0.114521, -0.122733, 0., 0., 0.0399867, 0.026395, -0.0827133, 0.109567, -0.0234569,
            -0.108853,
        ],
    );
    close(&out[2], &[-0.171117, -0.153605, 0.073014, 0.0551265, -0.282419, 0.142519, 0.15275, 0.0397313]);
}

#[test]
fn gru_and_rnn() {
    let args = || {
        vec![
            ramp(&[3, 2, 2], 0.25, -1.),
            ramp(&[1, 6, 2], 0.125, -0.5),
            ramp(&[1, 6, 2], 0.0625, -0.25),
            ramp(&[1, 12], 0.125, -0.5),
            Tensor::from_slice(&[2], &[3i32, 2]).unwrap(),
            ramp(&[1, 2, 2], 0.25, -1.),
        ]
    };
    let op = |linear_before_reset| Gru {
        direction: RnnDirection::Reverse,
        has_bias: true,
        has_lengths: true,
        has_init_h: true,
        linear_before_reset,
        ..Gru::new(2)
    };
    let out = evaluated(op(false), args());
    close(
        &out[0],
        &[
            -0.0181883, -0.143129, 0.239371, 0.699861, -0.310564, 0.0530775, 0.00885566, 0.920661, -0.596655, 0.495654,
            0., 0.,
        ],
    );
    close(&out[1], &[-0.0181883, -0.143129, 0.239371, 0.699861]);
    let out = evaluated(op(true), args());
    close(
        &out[0],
        &[
            -0.0412846, -0.0967286, 0.156558, 0.706953, -0.337878, 0.0907708, -0.085761, 0.925008, -0.602245, 0.502772,
            0., 0.,
        ],
    );
    let args = vec![
        ramp(&[3, 2, 2], 0.25, -1.),
        ramp(&[1, 2, 2], 0.125, -0.5),
        ramp(&[1, 2, 2], 0.0625, -0.25),
        ramp(&[1, 4], 0.125, -0.5),
        ramp(&[1, 2, 2], 0.25, -1.),
    ];
    let op = Rnn {
        has_bias: true,
        has_init_h: true,
        activations: vec![CellActivation::new(CellFunction::Relu)],
        ..Rnn::new(2)
    };
    let out = evaluated(op, args);
    close(&out[0], &[0.546875, 2.15625, 0.40625, 2.85938, 0., 1.46191, 0., 2.20312, 0.399109, 2.51697, 0., 1.20117]);
    close(&out[1], &[0.399109, 2.51697, 0., 1.20117]);
}

fn resize(op: Resize) -> Tensor {
    evaluated(op, vec![ramp(&[1, 1, 4, 5], 1., 0.)]).remove(0)
}

#[test]
fn resize_by_scales() {
    // scales 1, 1, 0.6, 1.5; cubic with exclude_outside, nearest with round_prefer_ceil.
    let cases: [(CoordMode, [&[f32]; 3]); 5] = [
        (
            CoordMode::HalfPixel,
            [
                &[
                    0.666667, 4.16667, 7., 4.33333, 5.33333, 6.94444, 6.72222, 4., 2., 1.16667, 5.83333, 5., 4.16667,
                    8.83333,
                ],
                &[
                    -0.298534, 4.30809, 7.95162, 3.91366, 5.06458, 7.54166, 6.64535, 4.40541, 1.57143, 0.72685,
                    6.27315, 5., 3.76564, 9.01171,
                ],
                &[0., 7., 7., 3., 10., 10., 6., 4., 0., 0., 7., 3., 3., 10.],
            ],
        ),
        (
            CoordMode::HalfPixelSymmetric,
            [
                &[1.33333, 6., 7., 4.33333, 4.11111, 5.11111, 7.33333, 4.66667, 2., 3., 7.66667, 5., 4.77778, 7.],
                &[
                    1.08772, 6.92613, 8.53606, 4.08772, 3.35607, 5.03447, 7.08772, 4.91228, 0.705447, 1.97173, 7.91228,
                    5.27583, 4.59311, 7.05263,
                ],
                &[2., 9., 9., 5., 1., 1., 8., 4., 0., 0., 7., 3., 3., 10.],
            ],
        ),
        (
            CoordMode::PytorchHalfPixel,
            [
                &[
                    0.666667, 4.16667, 7., 4.33333, 5.33333, 6.94444, 6.72222, 4., 2., 1.16667, 5.83333, 5., 4.16667,
                    8.83333,
                ],
                &[
                    -0.298534, 4.30809, 7.95162, 3.91366, 5.06458, 7.54166, 6.64535, 4.40541, 1.57143, 0.72685,
                    6.27315, 5., 3.76564, 9.01171,
                ],
                &[0., 7., 7., 3., 10., 10., 6., 4., 0., 0., 7., 3., 3., 10.],
            ],
        ),
        (
            CoordMode::AlignCorners,
            [
                &[
                    0., 4.30769, 6.07692, 3.61538, 6.23077, 9.69231, 7.23077, 4.28571, 1.82418, 1.9011, 6.20879,
                    5.43956, 3.7033, 7.04396,
                ],
                &[
                    0., 4.53089, 6.67433, 3.05212, 6.13996, 10.0798, 7.34426, 4.42014, 0.758324, 0.816104, 6.64624,
                    5.90451, 3.58871, 7.3533,
                ],
                &[0., 7., 7., 3., 3., 10., 6., 4., 0., 0., 7., 7., 3., 10.],
            ],
        ),
        (
            CoordMode::Asymmetric,
            [
                &[
                    0., 4.66667, 5.66667, 3., 7.66667, 8.66667, 6., 3.33333, 3.11111, 4.11111, 6.33333, 3.66667,
                    4.66667, 9.33333,
                ],
                &[
                    0., 4.96491, 6.12963, 3., 8.01852, 9.33333, 6., 3.25926, 2.53834, 4.03224, 6.25926, 2.31481,
                    4.26218, 10.4815,
                ],
                &[0., 7., 7., 3., 10., 10., 6., 4., 0., 0., 7., 3., 3., 10.],
            ],
        ),
    ];
    for (coords, want) in cases {
        let base = || Resize {
            scales: [1., 1., f64::from(0.6f32), 1.5].map(|s| Some(FloatBits::new(s))).to_vec(),
            ..Resize::to_sizes([1, 1, 2, 7].map(Dim::from).to_vec(), ResizeMode::Linear, coords)
        };
        close(&resize(base()), want[0]);
        close(&resize(Resize { mode: ResizeMode::Cubic, exclude_outside: true, ..base() }), want[1]);
        let nearest = Resize { mode: ResizeMode::Nearest, nearest: NearestMode::RoundPreferCeil, ..base() };
        close(&resize(nearest), want[2]);
    }
}

#[test]
fn resize_with_antialias_and_region() {
    let base = |mode| Resize {
        antialias: true,
        ..Resize::to_sizes([1, 1, 2, 3].map(Dim::from).to_vec(), mode, CoordMode::HalfPixel)
    };
    close(&resize(base(ResizeMode::Linear)), &[3.35938, 5.16667, 6.6875, 3.76562, 5.61111, 4.6875]);
    close(&resize(base(ResizeMode::Cubic)), &[3.53256, 5.24881, 6.7869, 3.65039, 5.37107, 4.69976]);
    let floats = |v: [f32; 4]| v.map(FloatBits::from).to_vec();
    let op = Resize {
        roi_start: floats([0., 0., 0.4, -0.2]),
        roi_end: floats([1., 1., 0.9, 1.2]),
        extrapolation: FloatBits::new(9.0),
        ..Resize::to_sizes([1, 1, 3, 3].map(Dim::from).to_vec(), ResizeMode::Linear, CoordMode::TfCropAndResize)
    };
    close(&resize(op), &[9., 5.4, 9., 9., 6.9, 9., 9., 8.4, 9.]);
}

#[test]
fn rotary_pairs() {
    let x = Tensor::from_slice(&[1, 1, 1, 6], &[1f32, 2., 3., 4., 5., 6.]).unwrap();
    let t = |v: [f32; 2]| Tensor::from_slice(&[1, 2], &v).unwrap();
    let args = || vec![x.clone(), t([0., 0.5]), t([1., 0.25])];
    // By hand: (a cos − b sin, b cos + a sin) for pairs (1, 3), (2, 4), then (1, 2), (3, 4).
    let op = |interleaved| RotaryEmbedding { interleaved, rotary_dim: Some(4) };
    close(&evaluated(op(false), args())[0], &[-3., 0., 1., 2.5, 5., 6.]);
    close(&evaluated(op(true), args())[0], &[-2., 1., 0.5, 2.75, 5., 6.]);
}

#[test]
fn attributes_read_back() {
    let mut lstm = Lstm::new(3);
    lstm.activations =
        vec![CellActivation { function: CellFunction::Affine, alpha: FloatBits::new(0.5), beta: FloatBits::new(-1.0) }];
    let op = Op::from(lstm);
    let mut w = crate::attr::AttrWriter::default();
    op.def().attrs(&mut w);
    let entries = w.entries().iter().map(|(n, v)| (n.to_string(), v.clone())).collect();
    assert_eq!(Op::parse("lstm", crate::attr::AttrReader::new(entries)).unwrap(), op);
}
