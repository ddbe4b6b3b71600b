//! Each decomposition has the composite's types and values, with all sizes symbolic and no two known to be equal.

use super::{graph_of, ramp, run};
use crate::attr::FloatBits;
use crate::builder::Builder;
use crate::dim::Dim;
use crate::op::Op;
use crate::ops::contraction::ConvTranspose;
use crate::ops::neural::*;
use crate::{DType, Tensor};

/// Compares composite and decomposition on tensors; `dims` names each input's sizes.
fn check(op: impl Into<Op>, dims: &[&str], args: Vec<Tensor>) {
    let op = op.into();
    let types: Vec<(DType, Vec<Dim>)> = args
        .iter()
        .zip(dims)
        .map(|(t, d)| (t.dtype(), d.split_whitespace().map(|d| Dim::parse(d).unwrap()).collect()))
        .collect();
    let whole = graph_of(op.clone(), &types);
    let mut b = Builder::new("main");
    let ids: Vec<_> =
        types.iter().enumerate().map(|(i, (d, s))| b.input(&format!("x{i}"), *d, s.iter()).unwrap()).collect();
    let parts = op.def().decompose(&mut b, &ids).unwrap().unwrap();
    for (i, v) in parts.into_iter().enumerate() {
        b.output(&format!("y{i}"), v).unwrap();
    }
    let parts = b.finish();
    for (p, q) in whole.outputs().iter().zip(parts.outputs()) {
        assert_eq!(whole.ty(p.value), parts.ty(q.value), "{op}");
    }
    assert!(parts.nodes().iter().all(|n| n.op != op));
    for (x, y) in run(whole, args.clone()).iter().zip(run(parts, args)) {
        assert_eq!(x.dims(), y.dims());
        let tolerance = if x.dtype().bits() < 32 { 2e-2 } else { 1e-5 };
        for (p, q) in x.elements().to_f64().unwrap().into_iter().zip(y.elements().to_f64().unwrap()) {
            assert!((p - q).abs() <= tolerance * (1.0 + p.abs()) || p.is_nan() && q.is_nan(), "{op}: {p} {q}");
        }
    }
}

fn half(t: &Tensor) -> Tensor {
    Tensor::from_elements(DType::F16, t.dims(), &t.elements()).unwrap()
}

#[test]
fn softmaxes() {
    for log in [false, true] {
        for axis in 0..3 {
            check(Softmax { axis, log }, &["a b c"], vec![ramp(&[2, 5, 3], 0.5, -2.)]);
            check(Softmax { axis, log }, &["a b c"], vec![half(&ramp(&[2, 5, 3], 0.5, -2.))]);
        }
    }
    check(Softmax { axis: 1, log: false }, &["a b"], vec![ramp(&[2, 0], 1., 0.)]);
    let inf = f32::NEG_INFINITY;
    check(Softmax { axis: 0, log: false }, &["a"], vec![Tensor::from_slice(&[2], &[inf, inf]).unwrap()]);
}

#[test]
fn norms() {
    let eps = FloatBits::new(1e-5);
    let x = || ramp(&[2, 4, 3], 0.5, -2.);
    let layer = LayerNorm { axes: vec![1, 2], eps, has_scale: true, has_bias: true };
    check(layer.clone(), &["n c d", "d", "p q"], vec![x(), ramp(&[3], 0.5, 1.), ramp(&[4, 3], 0.5, -1.)]);
    check(layer.clone(), &["n c d", "d", "1 q"], vec![x(), ramp(&[3], 0.5, 1.), ramp(&[1, 3], 0.5, -1.)]);
    let plain = LayerNorm { has_scale: false, has_bias: false, ..layer.clone() };
    check(plain, &["n c d"], vec![half(&x())]);
    let bias = LayerNorm { has_scale: false, axes: vec![2], ..layer };
    check(bias, &["n c d", "e"], vec![x(), ramp(&[3], 0.5, 1.)]);
    let rms = RmsNorm { axes: vec![2], eps, has_scale: true };
    check(rms, &["n c d", "e"], vec![x(), ramp(&[3], 0.5, 1.)]);
    let c = || ramp(&[4], 0.5, 1.);
    check(BatchNorm { eps }, &["n c d", "c", "c", "e", "f"], vec![x(), c(), c(), c(), c()]);
    for groups in [Dim::from(1), Dim::from(2), Dim::symbol("c")] {
        let op = GroupNorm { groups, eps, has_scale: true, has_bias: true };
        check(op, &["n c d", "c", "e"], vec![x(), c(), c()]);
    }
}

#[test]
fn attentions() {
    let (q, k, v) = (ramp(&[2, 4, 3, 5], 0.25, -1.), ramp(&[2, 2, 6, 5], 0.5, -2.), ramp(&[2, 2, 6, 3], 1., -3.));
    let mask = Tensor::from_bytes(DType::Bool, &[2, 1, 3, 6], &[0, 1, 0, 0, 0, 1].repeat(6)).unwrap();
    let dims = &["b h s d", "b g t e", "b g t f"];
    let args = || vec![q.clone(), k.clone(), v.clone()];
    let with = |m: Tensor| [args(), vec![m]].concat();
    let base = || Attention::new(AttnLayout::Bhsd, 0.4);
    check(base(), dims, args());
    check(base(), dims, args().iter().map(half).collect());
    check(Attention { causal: true, softcap: Some(FloatBits::new(1.5)), ..base() }, dims, args());
    check(Attention { window: Some(2), ..base() }, dims, args());
    check(Attention { causal: true, window: Some(3), ..base() }, dims, args());
    let masked = Attention { mask: MaskKind::Bool, ..base() };
    check(masked.clone(), &["b h s d", "b g t e", "b g t f", "b 1 s t"], with(mask.clone()));
    check(masked.clone(), &["b h s d", "b g t e", "b g t f", "m n o p"], with(mask.clone()));
    // Nothing in sight.
    let none = Tensor::from_bytes(DType::Bool, &[1, 1], &[0]).unwrap();
    check(Attention { causal: true, ..masked }, &["b h s d", "b g t e", "b g t f", "1 1"], with(none));
    let additive = Attention { mask: MaskKind::Additive, ..base() };
    let bias = ramp(&[4, 3, 6], 0.5, -2.);
    check(additive, &["b h s d", "b g t e", "b g t f", "h s t"], with(bias));
    // More queries than keys: the first see none.
    let (k, v) = (ramp(&[2, 4, 2, 5], 0.5, -2.), ramp(&[2, 4, 2, 3], 1., -3.));
    let args = vec![q.clone(), k, v];
    check(Attention { causal: true, ..base() }, &["b h s d", "b h t d", "b h t f"], args);
    // Sequence before heads.
    let (q, k, v) = (ramp(&[2, 3, 4, 5], 0.25, -1.), ramp(&[2, 6, 2, 5], 0.5, -2.), ramp(&[2, 6, 2, 3], 1., -3.));
    let op = Attention { causal: true, ..Attention::new(AttnLayout::Bshd, 0.4) };
    check(op, &["b s h d", "b t g d", "b t g f"], vec![q, k, v]);
}

#[test]
fn rotary() {
    let x = || ramp(&[2, 3, 4, 6], 0.5, -2.);
    let t = |d: &[usize]| ramp(d, 0.1, -0.5);
    for interleaved in [false, true] {
        let all = RotaryEmbedding { interleaved, rotary_dim: None };
        check(all.clone(), &["b h s 6", "s 3", "s 3"], vec![x(), t(&[4, 3]), t(&[4, 3])]);
        check(all.clone(), &["b h s d", "c 1 s e", "s e"], vec![x(), t(&[2, 1, 4, 3]), t(&[4, 3])]);
        check(all, &["b h s 6", "s 3", "s 3"], vec![half(&x()), t(&[4, 3]), t(&[4, 3])]);
        let part = RotaryEmbedding { interleaved, rotary_dim: Some(4) };
        check(part, &["b h s d", "s 2", "s 2"], vec![x(), t(&[4, 2]), t(&[4, 2])]);
    }
}

#[test]
fn transposed_convolutions() {
    let p = |v: &[i64]| v.iter().map(|&x| Dim::from(x)).collect::<Vec<_>>();
    let op = ConvTranspose {
        strides: vec![2, 1],
        dilations: vec![1, 2],
        pad_low: p(&[1, 0]),
        pad_high: p(&[0, 3]),
        output_pad: vec![1, 0],
        groups: 2,
        has_bias: true,
    };
    let args = vec![ramp(&[2, 4, 3, 5], 0.5, -2.), ramp(&[4, 3, 3, 2], 0.25, -1.), ramp(&[6], 1., 0.)];
    check(op.clone(), &["n 4 h w", "4 3 3 2", "6"], args);
    let plain = ConvTranspose { groups: 1, has_bias: false, ..op };
    let args = vec![ramp(&[1, 2, 3, 5], 0.5, -2.), ramp(&[2, 3, 3, 2], 0.25, -1.)];
    check(plain, &["n c h w", "c o k l"], args);
}
