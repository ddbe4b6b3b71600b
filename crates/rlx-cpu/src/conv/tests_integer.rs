//! Convolutions of 8-bit integers against plain sums: exact, whatever the level and the number of threads.

use crate::simd::Isa;
use crate::testing::{Maker, Rng, poisoned, row_major, run};
use rlx_compile::lir::{ConvKernel, Epilogue, Kernel, ScalarOp, ScalarProgram};
use rlx_ir::{DType, Dim, Tensor};

struct Case {
    batch: usize,
    /// Channels of a group, in and out.
    channels: [usize; 2],
    groups: usize,
    input: [usize; 2],
    window: [usize; 2],
    stride: usize,
    dilation: usize,
    pads: [usize; 2],
    dtypes: [DType; 2],
    /// Whether there are zero points: of the input; of the weight, none, one, or one for each channel.
    zeros: (bool, usize),
    /// Channels of the input lie side by side.
    last: bool,
    /// The weight is a parameter.
    kept: bool,
}

/// The sums as they are.
fn plain() -> ScalarProgram {
    let mut p = ScalarProgram::default();
    let sum = p.push(ScalarOp::Acc, vec![], DType::I32);
    p.results = vec![sum];
    p
}

fn bytes(rng: &mut Rng, n: usize) -> Vec<u8> {
    (0..n).map(|_| if rng.below(5) == 0 { [0, 127, 128, 255][rng.below(4)] } else { rng.below(256) as u8 }).collect()
}

fn value(dtype: DType, byte: u8) -> i32 {
    if dtype == DType::I8 { i32::from(byte as i8) } else { i32::from(byte) }
}

fn check(c: &Case, isa: Isa, threads: usize) {
    let (ci, co) = (c.channels[0] * c.groups, c.channels[1] * c.groups);
    let out = [0, 1].map(|a| {
        let reach = (c.window[a] - 1) * c.dilation + 1;
        (c.input[a] + 2 * c.pads[a]).checked_sub(reach).map_or(0, |n| n / c.stride + 1)
    });
    let mut rng = Rng((ci * 31 + co * 7 + c.input[0]) as u64 + 1);
    let x = bytes(&mut rng, c.batch * ci * c.input[0] * c.input[1]);
    let w = bytes(&mut rng, co * c.channels[0] * c.window[0] * c.window[1]);
    let zx = if c.zeros.0 { bytes(&mut rng, 1)[0] } else { 0 };
    let zw = bytes(&mut rng, if c.zeros.1 == 2 { co } else { 1 });
    let of_weight = |o: usize| match c.zeros.1 {
        0 => 0,
        1 => value(c.dtypes[1], zw[0]),
        _ => value(c.dtypes[1], zw[o]),
    };

    let mut m = Maker::new();
    let dims = |s: &[usize]| s.iter().map(|&n| Dim::from(n)).collect::<Vec<_>>();
    let shape = [c.batch, ci, c.input[0], c.input[1]];
    let weight_shape = [co, c.channels[0], c.window[0], c.window[1]];
    let laid = if c.last { [c.batch, c.input[0], c.input[1], ci] } else { shape };
    let input = m.input(c.dtypes[0], &dims(&laid));
    // Zero points may stand in wider integers.
    let zero_input = m.input(DType::I32, &[]);
    let by_channel_dims = if c.zeros.1 == 2 { vec![co] } else { Vec::new() };
    let zero_weight = m.input(c.dtypes[1], &dims(&by_channel_dims));
    let weights = Tensor::from_bytes(c.dtypes[1], &weight_shape, &w).unwrap();
    let weight = match c.kept {
        true => m.param("w", c.dtypes[1], &dims(&weight_shape), Some(weights.clone())),
        false => m.input(c.dtypes[1], &dims(&weight_shape)),
    };
    let y = m.output("y", DType::I32, &dims(&[c.batch, co, out[0], out[1]]));
    let strides = row_major(&dims(&laid));
    let strides = match c.last {
        true => [strides[0].clone(), strides[3].clone(), strides[1].clone(), strides[2].clone()].to_vec(),
        false => strides,
    };
    let input_walk = m.access(input, 0, &strides);
    let still = [Dim::ZERO, Dim::ZERO, Dim::ZERO, Dim::ZERO];
    let by_channel = [Dim::ONE, Dim::ZERO, Dim::ZERO, Dim::ZERO];
    let input_zero = c.zeros.0.then(|| m.access(zero_input, 0, &still));
    let weight_zero =
        (c.zeros.1 > 0).then(|| m.access(zero_weight, 0, if c.zeros.1 == 2 { &by_channel } else { &still }));
    let (weight_walk, write) = (m.dense(weight), m.dense(y));
    let kernel = ConvKernel {
        transposed: false,
        batch: m.dim(c.batch),
        groups: c.groups as i64,
        in_channels: m.dim(ci),
        out_channels: m.dim(co),
        in_spatial: m.dims(&dims(&c.input)),
        out_spatial: m.dims(&dims(&out)),
        window: m.dims(&dims(&c.window)),
        strides: vec![c.stride as i64; 2],
        dilations: vec![c.dilation as i64; 2],
        pad_low: m.dims(&dims(&c.pads)),
        input: input_walk,
        weight: weight_walk,
        input_zero,
        weight_zero,
        acc: DType::I32,
        epilogue: Epilogue { reads: vec![], program: plain(), writes: vec![write] },
    };
    m.kernel(Kernel::Conv(kernel));
    let e = m.executable(&poisoned(isa, threads));

    // Element (image, channel, row, column) of the input.
    let at = |b: usize, ch: usize, i: usize, j: usize| match c.last {
        true => ((b * c.input[0] + i) * c.input[1] + j) * ci + ch,
        false => ((b * ci + ch) * c.input[0] + i) * c.input[1] + j,
    };
    let mut want = Vec::new();
    for (b, o) in (0..c.batch).flat_map(|b| (0..co).map(move |o| (b, o))) {
        for (i, j) in (0..out[0]).flat_map(|i| (0..out[1]).map(move |j| (i, j))) {
            let mut sum = 0i32;
            for ch in 0..c.channels[0] {
                for (s, t) in (0..c.window[0]).flat_map(|s| (0..c.window[1]).map(move |t| (s, t))) {
                    let inside = |o: usize, t: usize, a: usize| {
                        (o * c.stride + t * c.dilation).checked_sub(c.pads[a]).filter(|&n| n < c.input[a])
                    };
                    let (Some(row), Some(col)) = (inside(i, s, 0), inside(j, t, 1)) else { continue };
                    let channel = o / c.channels[1] * c.channels[0] + ch;
                    let x = value(c.dtypes[0], x[at(b, channel, row, col)]) - value(c.dtypes[0], zx);
                    let tap = ((o * c.channels[0] + ch) * c.window[0] + s) * c.window[1] + t;
                    sum = sum.wrapping_add(x * (value(c.dtypes[1], w[tap]) - of_weight(o)));
                }
            }
            want.push(sum);
        }
    }
    let x = Tensor::from_bytes(c.dtypes[0], &laid, &x).unwrap();
    let zx = Tensor::scalar(value(c.dtypes[0], zx));
    let zw = Tensor::from_bytes(c.dtypes[1], &by_channel_dims, &zw).unwrap();
    let mut inputs = vec![&x, &zx, &zw];
    if !c.kept {
        inputs.push(&weights);
    }
    // Twice: panels that are kept are made at the first run.
    for _ in 0..2 {
        let got = run(&e, &inputs).remove(0);
        assert_eq!(got.as_slice::<i32>().unwrap().as_ref(), want, "{ci}->{co} {:?} {:?} at {isa:?}", c.input, c.window);
    }
}

#[test]
fn integers_are_exact() {
    let both = [DType::U8, DType::I8];
    let mut number = 0usize;
    for isa in Isa::available() {
        for channels in [[1, 1], [3, 8], [16, 17], [33, 5], [64, 33]] {
            for (input, window) in [
                ([1, 1], [1, 1]),
                ([5, 7], [3, 3]),
                ([8, 8], [1, 1]),
                ([9, 4], [2, 3]),
                ([17, 13], [5, 1]),
                ([2, 2], [3, 3]),
            ] {
                number += 1;
                let c = Case {
                    batch: 1 + number % 2,
                    channels,
                    groups: 1 + usize::from(number.is_multiple_of(3)),
                    input,
                    window,
                    stride: 1 + usize::from(number % 4 == 1),
                    dilation: 1 + usize::from(number % 5 == 2),
                    pads: [number % 3, number % 2],
                    dtypes: [both[number % 2], both[number / 2 % 2]],
                    zeros: (number % 4 != 3, number % 3),
                    last: number.is_multiple_of(2),
                    kept: number % 3 != 1,
                };
                check(&c, isa, 1 + number % 3);
            }
        }
    }
}
