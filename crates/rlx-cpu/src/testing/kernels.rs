//! Contractions, convolutions, pooling and attention against plain f64 loops.

use super::{Maker, Rng, poisoned, run};
use rlx_compile::lir::{
    AttentionKernel, AttentionMask, ContractKernel, ConvKernel, Epilogue, Kernel, ScalarOp, ScalarProgram, WindowKernel,
};
use rlx_driver::Isa;
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::elementwise::{Binary, Unary};
use rlx_ir::ops::reduction::WindowKind;
use rlx_ir::{DType, Dim, Tensor};

fn plain(dtype: DType) -> ScalarProgram {
    let mut p = ScalarProgram::default();
    let a = p.push(ScalarOp::Acc, vec![], dtype);
    p.results = vec![a];
    p
}

fn tensor(dims: &[usize], v: &[f32]) -> Tensor {
    Tensor::from_slice(dims, v).unwrap()
}

fn assert_close(got: &Tensor, want: &[f64], tolerance: f64) {
    let got = got.as_slice::<f32>().unwrap();
    assert_eq!(got.len(), want.len());
    for (i, (&g, &w)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(g) - w).abs() <= tolerance * (1.0 + w.abs()), "element {i}: {g}, not {w}");
    }
}

/// relu(a · bᵀ + bias), written with batch and rows swapped.
#[test]
fn contraction_with_bias_and_a_permuted_result() {
    for [b, m, n, k] in [[1usize, 1, 1, 1], [2, 3, 5, 7], [1, 17, 33, 64], [3, 8, 1, 9], [2, 4, 6, 0], [0, 2, 2, 2]] {
        let mut mk = Maker::new();
        let [db, dm, dn, dk] = ["b", "m", "n", "k"].map(Dim::symbol);
        let a = mk.input(DType::F32, &[db.clone(), dm.clone(), dk.clone()]);
        let w = mk.input(DType::F32, &[dn.clone(), dk.clone()]);
        let bias = mk.input(DType::F32, std::slice::from_ref(&dn));
        let y = mk.output("y", DType::F32, &[dm.clone(), db.clone(), dn.clone()]);
        let lhs = mk.dense(a);
        let rhs = mk.access(w, 0, &[Dim::ZERO, dk.clone(), Dim::ONE]);
        let mut p = plain(DType::F32);
        let r = p.push(ScalarOp::Read(0), vec![], DType::F32);
        let s = p.push(ScalarOp::Apply(Elementwise::Binary(Binary::Add)), vec![0, r], DType::F32);
        let z = p.push(ScalarOp::Apply(Elementwise::Unary(Unary::Relu)), vec![s], DType::F32);
        p.results = vec![z];
        let reads = vec![mk.access(bias, 0, &[Dim::ZERO, Dim::ZERO, Dim::ONE])];
        let writes = vec![mk.access(y, 0, &[dn.clone(), &db * &dn, Dim::ONE])];
        let kernel = ContractKernel {
            batch: vec![mk.dim(db)],
            m: vec![mk.dim(dm)],
            n: vec![mk.dim(dn)],
            k: vec![mk.dim(dk)],
            lhs,
            rhs,
            lhs_scaling: Default::default(),
            rhs_scaling: Default::default(),
            acc: DType::F32,
            epilogue: Epilogue { reads, program: p, writes },
        };
        mk.kernel(Kernel::Contract(kernel));
        let e = mk.executable(&poisoned(Isa::best(), 2));
        let mut rng = Rng(11);
        let (va, vw, vb) = (rng.floats(b * m * k), rng.floats(n * k), rng.floats(n));
        let got = run(&e, &[&tensor(&[b, m, k], &va), &tensor(&[n, k], &vw), &tensor(&[n], &vb)]).remove(0);
        let mut want = vec![0.0; m * b * n];
        for (bi, i, j) in (0..b).flat_map(|x| (0..m).flat_map(move |y| (0..n).map(move |z| (x, y, z)))) {
            let dot: f64 = (0..k).map(|c| f64::from(va[(bi * m + i) * k + c]) * f64::from(vw[j * k + c])).sum();
            want[(i * b + bi) * n + j] = (dot + f64::from(vb[j])).max(0.0);
        }
        assert_close(&got, &want, 1e-5);
    }
}

#[test]
fn integer_contraction_wraps() {
    let mut mk = Maker::new();
    let (a, w) = (mk.input(DType::I8, &[2.into(), 3.into()]), mk.input(DType::U8, &[2.into(), 3.into()]));
    let y = mk.output("y", DType::I32, &[2.into(), 2.into()]);
    let (lhs, rhs, write) = (mk.dense(a), mk.dense(w), mk.dense(y));
    let two = mk.dim(2);
    let kernel = ContractKernel {
        batch: vec![],
        m: vec![two],
        n: vec![two],
        k: vec![mk.dim(3)],
        lhs,
        rhs,
        lhs_scaling: Default::default(),
        rhs_scaling: Default::default(),
        acc: DType::I32,
        epilogue: Epilogue { reads: vec![], program: plain(DType::I32), writes: vec![write] },
    };
    mk.kernel(Kernel::Contract(kernel));
    let e = mk.executable(&poisoned(Isa::best(), 1));
    let a = Tensor::from_slice(&[2, 3], &[1i8, -2, 3, -128, 127, 0]).unwrap();
    let w = Tensor::from_slice(&[2, 3], &[255u8, 1, 0, 10, 20, 30]).unwrap();
    let got = run(&e, &[&a, &w]).remove(0);
    assert_eq!(got.as_slice::<i32>().unwrap().as_ref(), [253, 60, -128 * 255 + 127, -1280 + 2540]);
}

struct Case {
    transposed: bool,
    groups: usize,
    stride: i64,
    dilation: i64,
    pad: i64,
    /// Input and window, height by width.
    input: [usize; 2],
    window: [usize; 2],
}

#[test]
fn convolutions_and_their_transposes() {
    let (batch, ci, co) = (2usize, 4usize, 6usize);
    for transposed in [false, true] {
        for (groups, stride, dilation, pad) in [(1, 1, 1, 0), (2, 2, 1, 1), (1, 1, 2, 2), (2, 3, 2, 1)] {
            let c = Case { transposed, groups, stride, dilation, pad, input: [7, 9], window: [3, 2] };
            let out = [0, 1].map(|a| {
                let (n, w) = (c.input[a] as i64, (c.window[a] as i64 - 1) * dilation + 1);
                (if transposed { (n - 1) * stride + w - 2 * pad } else { (n + 2 * pad - w) / stride + 1 }) as usize
            });
            let weight_shape = if transposed { [ci, co / groups] } else { [co, ci / groups] };
            let weight = [weight_shape[0], weight_shape[1], c.window[0], c.window[1]];
            let mut m = Maker::new();
            let dims = |s: &[usize]| s.iter().map(|&n| Dim::from(n)).collect::<Vec<_>>();
            let x = m.input(DType::F32, &dims(&[batch, ci, c.input[0], c.input[1]]));
            let w = m.input(DType::F32, &dims(&weight));
            let y = m.output("y", DType::F32, &dims(&[batch, co, out[0], out[1]]));
            let (input, weight_walk, write) = (m.dense(x), m.dense(w), m.dense(y));
            let pad_low = m.dims(&[pad, pad]);
            let kernel = ConvKernel {
                transposed,
                batch: m.dim(batch),
                groups: groups as i64,
                in_channels: m.dim(ci),
                out_channels: m.dim(co),
                in_spatial: m.dims(&dims(&c.input)),
                out_spatial: m.dims(&dims(&out)),
                window: m.dims(&dims(&c.window)),
                strides: vec![stride; 2],
                dilations: vec![dilation; 2],
                pad_low,
                input,
                weight: weight_walk,
                input_zero: None,
                weight_zero: None,
                acc: DType::F32,
                epilogue: Epilogue { reads: vec![], program: plain(DType::F32), writes: vec![write] },
            };
            m.kernel(Kernel::Conv(kernel));
            let e = m.executable(&poisoned(Isa::best(), 2));
            let mut rng = Rng(23);
            let vx = rng.floats(batch * ci * c.input[0] * c.input[1]);
            let vw = rng.floats(weight.iter().product());
            let got = run(&e, &[&tensor(&[batch, ci, c.input[0], c.input[1]], &vx), &tensor(&weight, &vw)]).remove(0);
            assert_close(&got, &reference(&c, batch, ci, co, out, &vx, &vw), 1e-5);
        }
    }
}

/// Every (input element, window element) pair adds to where it belongs.
fn reference(c: &Case, batch: usize, ci: usize, co: usize, out: [usize; 2], x: &[f32], w: &[f32]) -> Vec<f64> {
    let mut y = vec![0.0; batch * co * out[0] * out[1]];
    let (ig, og) = (ci / c.groups, co / c.groups);
    for b in 0..batch {
        for g in 0..c.groups {
            for (i, o) in (0..ig).flat_map(|i| (0..og).map(move |o| (i, o))) {
                for (h, v) in (0..c.input[0]).flat_map(|h| (0..c.input[1]).map(move |v| (h, v))) {
                    for (p, q) in (0..c.window[0]).flat_map(|p| (0..c.window[1]).map(move |q| (p, q))) {
                        let place = |n: usize, t: usize, size: usize| {
                            let (n, t) = (n as i64, t as i64);
                            let at = if c.transposed {
                                n * c.stride + t * c.dilation - c.pad
                            } else {
                                let from = n + c.pad - t * c.dilation;
                                if from % c.stride != 0 { -1 } else { from / c.stride }
                            };
                            usize::try_from(at).ok().filter(|&a| a < size)
                        };
                        let (Some(r), Some(s)) = (place(h, p, out[0]), place(v, q, out[1])) else { continue };
                        let (xi, yo) = (g * ig + i, g * og + o);
                        let first = if c.transposed { xi * og + o } else { yo * ig + i };
                        let weight = w[(first * c.window[0] + p) * c.window[1] + q];
                        let value = x[((b * ci + xi) * c.input[0] + h) * c.input[1] + v];
                        y[((b * co + yo) * out[0] + r) * out[1] + s] += f64::from(weight) * f64::from(value);
                    }
                }
            }
        }
    }
    y
}

#[test]
fn pooling_counts_padding_as_asked() {
    for (kind, include) in
        [(WindowKind::Max, false), (WindowKind::Mean, false), (WindowKind::Mean, true), (WindowKind::Sum, false)]
    {
        // Input 5, window 3, stride 2, padding 1 before and 1 after; the last of 4 windows overhangs.
        let (n, out) = (5i64, 4i64);
        let mut m = Maker::new();
        let (x, y) = (m.input(DType::F32, &[2.into(), n.into()]), m.output("y", DType::F32, &[2.into(), out.into()]));
        let (input, output) = (m.dense(x), m.dense(y));
        let one = m.dim(1);
        let kernel = WindowKernel {
            kind,
            outer: vec![m.dim(2)],
            in_spatial: vec![m.dim(n)],
            out_spatial: vec![m.dim(out)],
            window: vec![3],
            strides: vec![2],
            dilations: vec![1],
            pad_low: vec![one],
            pad_high: vec![one],
            count_include_pad: include,
            input,
            output,
        };
        m.kernel(Kernel::Window(kernel));
        let e = m.executable(&poisoned(Isa::best(), 1));
        let v: Vec<f32> = vec![1.0, -2.0, 3.0, 4.0, 5.0, -1.0, -1.0, -1.0, -7.0, -1.0];
        let got = run(&e, &[&tensor(&[2, 5], &v)]).remove(0);
        let mut want = Vec::new();
        for row in v.chunks(5) {
            for o in 0..out {
                let places: Vec<i64> = (0..3).map(|t| o * 2 + t - 1).collect();
                let inside: Vec<f64> =
                    places.iter().filter(|&&p| (0..n).contains(&p)).map(|&p| f64::from(row[p as usize])).collect();
                let padded = places.iter().filter(|&&p| p <= n).count();
                let sum: f64 = inside.iter().sum();
                want.push(match kind {
                    WindowKind::Max => inside.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    WindowKind::Sum => sum,
                    WindowKind::Mean => sum / if include { padded } else { inside.len() } as f64,
                });
            }
        }
        if want.iter().all(|w| w.is_finite()) {
            assert_close(&got, &want, 1e-6);
        }
    }
}

#[test]
fn attention_with_masks_and_grouped_heads() {
    let (b, h, hk, s, t, d, dv) = (2usize, 4usize, 2usize, 5usize, 7usize, 8usize, 3usize);
    for (causal, boolean) in [(false, None), (true, None), (false, Some(true)), (true, Some(false))] {
        let mut m = Maker::new();
        let dims = |s: &[usize]| s.iter().map(|&n| Dim::from(n)).collect::<Vec<_>>();
        let q = m.input(DType::F32, &dims(&[b, h, s, d]));
        let k = m.input(DType::F32, &dims(&[b, hk, t, d]));
        let v = m.input(DType::F32, &dims(&[b, hk, t, dv]));
        let mask_type = if boolean == Some(true) { DType::Bool } else { DType::F32 };
        let mask = m.input(mask_type, &dims(&[s, t]));
        let y = m.output("y", DType::F32, &dims(&[b, h, s, dv]));
        let (qa, ka, va, out) = (m.dense(q), m.dense(k), m.dense(v), m.dense(y));
        let mask = boolean.map(|boolean| AttentionMask {
            boolean,
            access: m.access(mask, 0, &[Dim::ZERO, Dim::ZERO, Dim::from(t), Dim::ONE]),
        });
        let [db, dh, dhk, ds, dt, dd, ddv] = [b, h, hk, s, t, d, dv].map(|n| m.dim(n));
        let kernel = AttentionKernel {
            batch: db,
            heads: dh,
            kv_heads: dhk,
            queries: ds,
            keys: dt,
            head_dim: dd,
            value_dim: ddv,
            q: qa,
            k: ka,
            v: va,
            out,
            mask,
            scale: 0.35.into(),
            causal,
            window: None,
            softcap: None,
        };
        m.kernel(Kernel::Attention(kernel));
        let e = m.executable(&poisoned(Isa::best(), 2));
        let mut rng = Rng(77);
        let (vq, vk, vv) = (rng.floats(b * h * s * d), rng.floats(b * hk * t * d), rng.floats(b * hk * t * dv));
        // The first query sees no key at all where the mask is boolean.
        let seen: Vec<bool> = (0..s * t).map(|i| i >= t && rng.below(3) > 0).collect();
        let added = rng.floats(s * t);
        let mask_tensor = match boolean {
            Some(true) => Tensor::from_bools(&[s, t], &seen).unwrap(),
            _ => tensor(&[s, t], &added),
        };
        let inputs =
            [tensor(&[b, h, s, d], &vq), tensor(&[b, hk, t, d], &vk), tensor(&[b, hk, t, dv], &vv), mask_tensor];
        let got = run(&e, &inputs.iter().collect::<Vec<_>>()).remove(0);
        let mut want = vec![0.0f64; b * h * s * dv];
        for (bi, hi, i) in (0..b).flat_map(|x| (0..h).flat_map(move |y| (0..s).map(move |z| (x, y, z)))) {
            let kv = bi * hk + hi / (h / hk);
            let score = |j: usize| {
                let dot: f64 = (0..d)
                    .map(|c| f64::from(vq[((bi * h + hi) * s + i) * d + c]) * f64::from(vk[(kv * t + j) * d + c]))
                    .sum();
                let past = !causal || j <= i + t - s;
                let visible = past && (boolean != Some(true) || seen[i * t + j]);
                let extra = if boolean == Some(false) { f64::from(added[i * t + j]) } else { 0.0 };
                if visible { (dot * 0.35 + extra).exp() } else { 0.0 }
            };
            let weights: Vec<f64> = (0..t).map(score).collect();
            let total: f64 = weights.iter().sum();
            for c in 0..dv {
                let sum: f64 = (0..t).map(|j| weights[j] * f64::from(vv[(kv * t + j) * dv + c])).sum();
                want[((bi * h + hi) * s + i) * dv + c] = if total == 0.0 { 0.0 } else { sum / total };
            }
        }
        assert_close(&got, &want, 1e-5);
    }
}
