//! Pooling against plain f64 loops.

// Buffers have the sizes that the plans were made for.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::*;
use crate::rig::{Rig, assert_near, dense, noise};
use crate::simd::Isa;
use crate::space::unravel;
use rlx_ir::DType;

#[derive(Clone, Debug)]
struct Case {
    kind: WindowKind,
    dtype: DType,
    channels: usize,
    input: Vec<usize>,
    window: Vec<i64>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    pads: Vec<[i64; 2]>,
    /// Windows that hang over the end.
    extra: usize,
    include: bool,
    last: bool,
    odd: Vec<(usize, f64)>,
}

#[track_caller]
fn check(c: &Case) {
    let rank = c.input.len();
    let out: Vec<usize> = (0..rank)
        .map(|a| {
            let reach = (c.window[a] - 1) * c.dilations[a] + 1;
            let span = c.input[a] as i64 + c.pads[a][0] + c.pads[a][1] - reach;
            (span.div_euclid(c.strides[a]) + 1).max(0) as usize + c.extra
        })
        .collect();
    let count = |s: &[usize]| s.iter().product::<usize>();
    let lay = |spatial: &[usize]| {
        if !c.last {
            return dense(&[&[2, c.channels], spatial].concat());
        }
        let d = dense(&[&[2], spatial, &[c.channels]].concat());
        let mut s = vec![d[0], d[rank + 1]];
        s.extend(&d[1..=rank]);
        s
    };
    let integer = !c.dtype.is_float();
    let mut values = noise(2 * c.channels * count(&c.input), 1);
    if integer {
        values.iter_mut().for_each(|v| *v = (*v * 50.0).round());
    }
    c.odd.iter().for_each(|&(i, v)| values[i] = v);
    let mut rig = Rig::default();
    let input = rig.buffer(c.dtype, &values);
    let output = rig.buffer(c.dtype, &vec![5.0; 2 * c.channels * count(&out)]);
    let (xs, ys) = (lay(&c.input), lay(&out));
    let kernel = WindowKernel {
        kind: c.kind,
        outer: rig.sizes(&[2, c.channels]),
        in_spatial: rig.sizes(&c.input),
        out_spatial: rig.sizes(&out),
        window: c.window.clone(),
        strides: c.strides.clone(),
        dilations: c.dilations.clone(),
        pad_low: c.pads.iter().map(|p| rig.dim(p[0])).collect(),
        pad_high: c.pads.iter().map(|p| rig.dim(p[1])).collect(),
        count_include_pad: c.include,
        input: rig.access(input, 0, &xs),
        output: rig.access(output, 0, &ys),
    };
    let x = rig.values(input);
    let mut want = vec![0.0; 2 * c.channels * count(&out)];
    let taps: Vec<usize> = c.window.iter().map(|&w| w as usize).collect();
    let (mut o, mut t) = (vec![0; rank], vec![0; rank]);
    for plane in 0..2 * c.channels {
        let (b, ch) = ((plane / c.channels) as i64, (plane % c.channels) as i64);
        for point in 0..count(&out) {
            unravel(point, &out, &mut o);
            let (mut cells, mut padded) = (Vec::new(), 0);
            for tap in 0..count(&taps) {
                unravel(tap, &taps, &mut t);
                let at: Vec<i64> = (0..rank)
                    .map(|a| o[a] as i64 * c.strides[a] + t[a] as i64 * c.dilations[a] - c.pads[a][0])
                    .collect();
                let below = (0..rank).all(|a| at[a] < c.input[a] as i64 + c.pads[a][1]);
                padded += usize::from(below);
                if below && (0..rank).all(|a| at[a] >= 0 && at[a] < c.input[a] as i64) {
                    let i = b * xs[0] + ch * xs[1] + (0..rank).map(|a| at[a] * xs[2 + a]).sum::<i64>();
                    cells.push(x[i as usize]);
                }
            }
            let n = if c.include { padded } else { cells.len() };
            let lowest = if integer { f64::from(i32::MIN) } else { f64::NEG_INFINITY };
            let v = match c.kind {
                WindowKind::Max if cells.iter().any(|v| v.is_nan()) => f64::NAN,
                WindowKind::Max => cells.iter().copied().fold(lowest, f64::max),
                WindowKind::Sum => cells.iter().sum(),
                WindowKind::Mean if n == 0 => 0.0,
                WindowKind::Mean => cells.iter().sum::<f64>() / n as f64,
            };
            let at = b * ys[0] + ch * ys[1] + (0..rank).map(|a| o[a] as i64 * ys[2 + a]).sum::<i64>();
            want[at as usize] = v;
        }
    }
    let tolerance = if c.dtype == DType::BF16 { 1e-2 } else { 1e-6 };
    for isa in Isa::available() {
        for threads in [1, 3] {
            let plan = rig.bind(isa, |cx| plan(&kernel, cx)).unwrap();
            rig.run(isa, threads, None, |cx| unsafe { run(&plan, cx) });
            assert_near(&rig.values(output), &want, tolerance, &format!("{c:?} {isa} {threads}"));
        }
    }
}

fn check_all(c: Case) {
    for kind in [WindowKind::Max, WindowKind::Mean, WindowKind::Sum] {
        for last in [false, true] {
            for include in [false, true] {
                check(&Case { kind, last, include, ..c.clone() });
            }
        }
    }
}

fn case(channels: usize, input: &[usize], window: &[i64]) -> Case {
    let rank = input.len();
    Case {
        kind: WindowKind::Max,
        dtype: DType::F32,
        channels,
        input: input.into(),
        window: window.into(),
        strides: vec![1; rank],
        dilations: vec![1; rank],
        pads: vec![[0, 0]; rank],
        extra: 0,
        include: false,
        last: false,
        odd: vec![],
    }
}

#[test]
fn windows() {
    for channels in [1, 7, 8, 33, 70] {
        check_all(Case { strides: vec![2, 2], pads: vec![[1, 1]; 2], ..case(channels, &[7, 9], &[3, 3]) });
    }
    check_all(Case { pads: vec![[0, 1], [2, 1]], ..case(3, &[6, 41], &[2, 3]) });
    check_all(Case { dilations: vec![2, 3], ..case(3, &[9, 11], &[3, 2]) });
    check_all(Case { strides: vec![3], pads: vec![[1, 2]], ..case(5, &[40], &[4]) });
    check_all(Case { pads: vec![[1, 1]; 3], ..case(3, &[3, 4, 5], &[2, 3, 2]) });
    check_all(case(3, &[5, 6], &[5, 6]));
}

#[test]
fn overhang_and_cropping() {
    check_all(Case { extra: 1, strides: vec![2, 2], pads: vec![[1, 0]; 2], ..case(4, &[6, 8], &[3, 3]) });
    check_all(Case { pads: vec![[-1, -2], [2, -1]], ..case(4, &[8, 8], &[3, 3]) });
    // Windows of nothing but padding.
    check_all(Case { pads: vec![[3, 3]], ..case(4, &[2], &[2]) });
}

#[test]
fn nan_and_infinities() {
    for v in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        check_all(Case { odd: vec![(20, v)], pads: vec![[1, 1]; 2], ..case(4, &[6, 6], &[3, 3]) });
    }
}

#[test]
fn other_dtypes() {
    for dtype in [DType::BF16, DType::F64] {
        check_all(Case { dtype, pads: vec![[1, 1]; 2], ..case(4, &[6, 6], &[3, 3]) });
    }
    for kind in [WindowKind::Max, WindowKind::Sum] {
        check(&Case { kind, dtype: DType::I32, ..case(4, &[6, 6], &[2, 2]) });
    }
}
