//! Attention against plain f64 loops.

// Buffers have the sizes that the plans were made for.
#![allow(clippy::undocumented_unsafe_blocks)]
// Loops are written as the sums that they stand for.
#![allow(clippy::needless_range_loop)]

use super::*;
use crate::rig::{Rig, assert_near, dense, noise};
use rlx_compile::lir::AttentionMask;
use rlx_ir::DType;

#[derive(Clone, Debug)]
struct Case {
    batch: usize,
    heads: [usize; 2],
    queries: usize,
    keys: usize,
    dims: [usize; 2],
    /// Sequence before heads in memory.
    sequence_first: bool,
    dtype: DType,
    /// Boolean or added, and the sizes of the mask before broadcasting.
    mask: Option<(bool, [usize; 4])>,
    causal: bool,
    window: Option<i64>,
    softcap: Option<f64>,
    /// Values put into operand 0, 1, 2 or the mask at a position.
    odd: Vec<(usize, usize, f64)>,
}

impl Case {
    fn new(queries: usize, keys: usize, dim: usize) -> Case {
        Case {
            batch: 2,
            heads: [2, 2],
            queries,
            keys,
            dims: [dim, dim],
            sequence_first: false,
            dtype: DType::F32,
            mask: None,
            causal: false,
            window: None,
            softcap: None,
            odd: vec![],
        }
    }
}

fn lay(sizes: [usize; 4], sequence_first: bool) -> Vec<i64> {
    if !sequence_first {
        return dense(&sizes);
    }
    let d = dense(&[sizes[0], sizes[2], sizes[1], sizes[3]]);
    vec![d[0], d[2], d[1], d[3]]
}

#[track_caller]
fn check(c: &Case) {
    let [h, hk] = c.heads;
    let [d, dv] = c.dims;
    let sizes =
        [[c.batch, h, c.queries, d], [c.batch, hk, c.keys, d], [c.batch, hk, c.keys, dv], [c.batch, h, c.queries, dv]];
    let count = |s: &[usize]| s.iter().product::<usize>();
    let mut rig = Rig::default();
    let mut buffers = Vec::new();
    for (i, s) in sizes.iter().enumerate() {
        let mut values: Vec<f64> = noise(count(s), i as u64 + 1).iter().map(|x| x * 2.0).collect();
        for &(_, at, v) in c.odd.iter().filter(|o| o.0 == i) {
            values[at] = v;
        }
        buffers.push(rig.buffer(c.dtype, &values));
    }
    let strides: Vec<Vec<i64>> = sizes.iter().map(|&s| lay(s, c.sequence_first)).collect();
    let mask = c.mask.map(|(boolean, sizes)| {
        let mut values: Vec<f64> = noise(count(&sizes), 9);
        if boolean {
            values.iter_mut().for_each(|v| *v = f64::from(*v > -0.4));
        }
        for &(_, at, v) in c.odd.iter().filter(|o| o.0 == 3) {
            values[at] = v;
        }
        let buffer = rig.buffer(if boolean { DType::Bool } else { c.dtype }, &values);
        let mut s = dense(&sizes);
        s.iter_mut().zip(&sizes).for_each(|(s, &n)| *s *= i64::from(n != 1));
        (boolean, buffer, s)
    });
    let scale = 0.7;
    let access = |rig: &mut Rig, i: usize| rig.access(buffers[i], 0, &strides[i]);
    let kernel = AttentionKernel {
        batch: rig.dim(c.batch as i64),
        heads: rig.dim(h as i64),
        kv_heads: rig.dim(hk as i64),
        queries: rig.dim(c.queries as i64),
        keys: rig.dim(c.keys as i64),
        head_dim: rig.dim(d as i64),
        value_dim: rig.dim(dv as i64),
        q: access(&mut rig, 0),
        k: access(&mut rig, 1),
        v: access(&mut rig, 2),
        out: access(&mut rig, 3),
        mask: mask.as_ref().map(|(boolean, b, s)| AttentionMask { boolean: *boolean, access: rig.access(*b, 0, s) }),
        scale: scale.into(),
        causal: c.causal,
        window: c.window,
        softcap: c.softcap.map(Into::into),
    };
    let values: Vec<Vec<f64>> = buffers.iter().map(|&b| rig.values(b)).collect();
    let mask = mask.map(|(boolean, b, s)| (boolean, rig.values(b), s));
    let at = |i: usize, index: [usize; 4]| {
        values[i][index.iter().zip(&strides[i]).map(|(&x, &s)| x as i64 * s).sum::<i64>() as usize]
    };
    let mut want = vec![0.0; count(&sizes[3])];
    for b in 0..c.batch {
        for head in 0..h {
            let kv = head / (h / hk);
            for i in 0..c.queries {
                let p = i as i64 + c.keys as i64 - c.queries as i64;
                let scores: Vec<f64> = (0..c.keys)
                    .map(|j| {
                        let m = mask.as_ref().map_or(0.0, |(boolean, v, s)| {
                            let at = [b, head, i, j].iter().zip(s).map(|(&x, &s)| x as i64 * s).sum::<i64>() as usize;
                            if *boolean { if v[at] != 0.0 { 0.0 } else { f64::NEG_INFINITY } } else { v[at] }
                        });
                        let far = c.window.is_some_and(|w| (p - j as i64).abs() >= w);
                        if (c.causal && j as i64 > p) || far || m == f64::NEG_INFINITY {
                            return f64::NEG_INFINITY;
                        }
                        let x = (0..d).map(|e| at(0, [b, head, i, e]) * at(1, [b, kv, j, e])).sum::<f64>() * scale;
                        c.softcap.map_or(x, |cap| cap * (x / cap).tanh()) + m
                    })
                    .collect();
                let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|x| (x - most).exp()).collect();
                let total: f64 = weights.iter().sum();
                for e in 0..dv {
                    let o = [b, head, i, e].iter().zip(&strides[3]).map(|(&x, &s)| x as i64 * s).sum::<i64>() as usize;
                    let hidden = (mask.is_some() || c.causal || c.window.is_some()) && most == f64::NEG_INFINITY;
                    let hidden = hidden && !scores.iter().any(|s| s.is_nan());
                    want[o] = if hidden || c.keys == 0 {
                        0.0
                    } else {
                        (0..c.keys)
                            .filter(|&j| weights[j] != 0.0)
                            .map(|j| weights[j] / total * at(2, [b, kv, j, e]))
                            .sum()
                    };
                }
            }
        }
    }
    let tolerance = match c.dtype {
        DType::F64 => 1e-12,
        DType::BF16 => 1e-2,
        DType::F16 => 2e-3,
        _ => 3e-6,
    };
    for isa in crate::simd::levels() {
        let mut first: Option<Vec<u8>> = None;
        for threads in 1..=3 {
            let plan = rig.bind(isa, |cx| plan(&kernel, cx)).unwrap();
            rig.run(isa, threads, None, |cx| unsafe { run(&plan, cx) });
            assert_near(&rig.values(buffers[3]), &want, tolerance, &format!("{c:?} {isa} {threads}"));
            let bytes = rig.bytes(buffers[3]);
            assert_eq!(first.get_or_insert_with(|| bytes.clone()), &bytes, "{c:?} {isa} {threads} threads");
        }
    }
}

#[test]
fn sizes_of_sequences_and_features() {
    for (q, k) in [(1, 1), (1, 37), (3, 7), (5, 5), (16, 16), (17, 130), (100, 33), (4, 300), (0, 5), (5, 0)] {
        check(&Case::new(q, k, 16));
        check(&Case { sequence_first: true, dims: [12, 7], ..Case::new(q, k, 16) });
    }
    check(&Case::new(3, 9, 1));
    check(&Case::new(3, 9, 33));
    check(&Case { dims: [0, 3], ..Case::new(3, 9, 0) });
}

#[test]
fn grouped_heads() {
    check(&Case { heads: [6, 2], ..Case::new(5, 9, 8) });
    check(&Case { heads: [3, 1], sequence_first: true, ..Case::new(5, 9, 8) });
}

#[test]
fn causality_and_windows() {
    for (q, k) in [(9, 9), (5, 140), (140, 140), (9, 5)] {
        check(&Case { causal: true, ..Case::new(q, k, 8) });
        check(&Case { causal: true, window: Some(3), ..Case::new(q, k, 8) });
        check(&Case { window: Some(2), ..Case::new(q, k, 8) });
        check(&Case { window: Some(i64::MAX), ..Case::new(q, k, 8) });
    }
}

#[test]
fn masks_broadcast() {
    for boolean in [true, false] {
        for sizes in [[2, 2, 6, 140], [1, 1, 6, 140], [2, 1, 1, 140], [1, 2, 6, 1], [1, 1, 1, 1]] {
            check(&Case { mask: Some((boolean, sizes)), ..Case::new(6, 140, 8) });
            check(&Case { mask: Some((boolean, sizes)), causal: true, softcap: Some(1.5), ..Case::new(6, 140, 8) });
        }
    }
}

#[test]
fn hidden_rows_give_zeros_and_hidden_keys_nothing() {
    let hidden = (0..7).map(|j| (3, j, 0.0)).collect::<Vec<_>>();
    check(&Case { mask: Some((true, [1, 1, 3, 7])), odd: hidden, ..Case::new(3, 7, 8) });
    let hidden = (0..7).map(|j| (3, j, f64::NEG_INFINITY)).collect::<Vec<_>>();
    check(&Case { mask: Some((false, [1, 1, 3, 7])), odd: hidden, ..Case::new(3, 7, 8) });
    // Key 6 is seen by no query, and its value and features are not numbers.
    let mut odd: Vec<_> = (0..3).map(|i| (3, i * 7 + 6, 0.0)).collect();
    odd.extend([(2, 6 * 8, f64::NAN), (2, 6 * 8 + 1, f64::INFINITY), (1, 6 * 8, f64::NAN)]);
    check(&Case { mask: Some((true, [1, 1, 3, 7])), odd, ..Case::new(3, 7, 8) });
}

#[test]
fn infinities_and_nan() {
    for v in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for operand in 0..3 {
            check(&Case { odd: vec![(operand, 11, v)], ..Case::new(3, 7, 8) });
            check(&Case { odd: vec![(operand, 11, v)], causal: true, ..Case::new(7, 7, 8) });
        }
        check(&Case { mask: Some((false, [1, 1, 3, 7])), odd: vec![(3, 4, v)], ..Case::new(3, 7, 8) });
    }
}

#[test]
fn other_dtypes() {
    for dtype in [DType::F64, DType::BF16, DType::F16] {
        check(&Case { dtype, ..Case::new(5, 140, 8) });
        check(&Case {
            dtype,
            mask: Some((false, [1, 1, 5, 9])),
            causal: true,
            sequence_first: true,
            ..Case::new(5, 9, 8)
        });
    }
}
