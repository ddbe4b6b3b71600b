//! Norms, attention, rotary embedding, recurrent layers.

use super::{computes, union};
use crate::attr::FloatBits;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::element::Elements;
use crate::ops::neural::{
    Attention, AttnLayout, BatchNorm, GroupNorm, Gru, Lstm, MaskKind, RmsNorm, Rnn, RnnDirection, RotaryEmbedding,
};
use crate::tensor::Tensor;
use crate::testing::data::BOUND;
use crate::testing::generate::{Gen, Known, Plan};

/// A large epsilon keeps the norm of equal elements from blowing up its rounding errors.
fn epsilon(g: &Gen<'_>) -> FloatBits {
    FloatBits::new(if g.options.tame { 0.25 } else { 1e-5 })
}

pub(super) fn rms_norm(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|k| !k.dims.is_empty() && k.dtype.is_float()).filter(|k| computes(g, k))?;
    let rank = x.dims.len();
    let first = rank - 1 - g.rng.below(rank.min(2));
    let mut operands = vec![x.clone()];
    let has_scale = g.rng.chance(60);
    if has_scale {
        let dims = (first..rank).map(|a| g.plain(&x.dims[a], x.sizes[a])).collect();
        operands.push(g.source(x.dtype, dims, x.sizes[first..].to_vec())?);
    }
    let n: usize = x.sizes[first..].iter().product();
    let bound = BOUND * (1.0 + (n as f64).sqrt());
    let op = RmsNorm { axes: (first..rank).collect(), eps: epsilon(g), has_scale };
    Some(Plan { op: op.into(), operands, exact: false, bound })
}

/// An image with a known number of channels.
fn image(g: &mut Gen<'_>) -> Option<Known> {
    let fits = |k: &Known| k.dims.len() >= 2 && k.dims[1].is_const() && k.sizes[1] > 0 && k.dtype.is_float();
    if g.rng.chance(50) {
        return g.pick(fits).filter(|k| computes(g, k));
    }
    let dtype = g.dtype(|d| d.is_float() && d.bits() >= 16)?;
    let (n, batch) = g.dim();
    let c = [1, 2, 4, 6][g.rng.below(4)];
    let (h, height) = g.dim();
    g.source(dtype, vec![n, Dim::from(c), h], vec![batch, c, height])
}

pub(super) fn group_norm(g: &mut Gen<'_>) -> Option<Plan> {
    let x = image(g)?;
    let c = x.sizes[1];
    let list: Vec<usize> = (1..=c).filter(|n| c.is_multiple_of(*n)).collect();
    let groups = *g.rng.pick(&list)?;
    let (has_scale, has_bias) = (g.rng.chance(60), g.rng.chance(50));
    let mut operands = vec![x.clone()];
    for _ in 0..usize::from(has_scale) + usize::from(has_bias) {
        operands.push(g.source(x.dtype, vec![Dim::from(c)], vec![c])?);
    }
    let n = c / groups * x.sizes[2..].iter().product::<usize>();
    let bound = BOUND * (2.0 + (n as f64).sqrt());
    let op = GroupNorm { groups: Dim::from(groups), eps: epsilon(g), has_scale, has_bias };
    Some(Plan { op: op.into(), operands, exact: false, bound })
}

pub(super) fn batch_norm(g: &mut Gen<'_>) -> Option<Plan> {
    let x = image(g)?;
    let c = x.sizes[1];
    let mut operands = vec![x.clone()];
    for _ in 0..3 {
        operands.push(g.source(x.dtype, vec![Dim::from(c)], vec![c])?);
    }
    let variance = (0..c).map(|_| 1.5 + g.rng.unit()).collect();
    let variance = Tensor::from_elements(x.dtype, &[c], &Elements::Float(variance)).ok()?;
    operands.push(g.source_of(vec![Dim::from(c)], variance)?);
    let bound = BOUND * (x.bound + BOUND) * 2.0 + BOUND;
    Some(Plan { op: BatchNorm { eps: epsilon(g) }.into(), operands, exact: false, bound })
}

pub(super) fn attention(g: &mut Gen<'_>) -> Option<Plan> {
    let dtype = g.dtype(|d| d.is_float() && d.bits() >= 16)?;
    let layout = *g.rng.pick(AttnLayout::ALL)?;
    let (hk, per) = (1 + g.rng.below(2), 1 + g.rng.below(3));
    let (d, dv) = ([1, 2, 8, 9][g.rng.below(4)], [1, 3, 8, 16][g.rng.below(4)]);
    let ((b, batch), (s, queries), (t, keys)) = (g.dim(), g.dim(), g.dim());
    let (t, keys) = if g.rng.chance(40) { (s.clone(), queries) } else { (t, keys) };
    let part = |g: &mut Gen<'_>, heads: usize, n: &Dim, size: usize, features: usize| {
        let (h, f) = (Dim::from(heads), Dim::from(features));
        if batch * heads * size * features > g.options.max_elems {
            return None;
        }
        match layout {
            AttnLayout::Bhsd => g.source(dtype, vec![b.clone(), h, n.clone(), f], vec![batch, heads, size, features]),
            AttnLayout::Bshd => g.source(dtype, vec![b.clone(), n.clone(), h, f], vec![batch, size, heads, features]),
        }
    };
    let q = part(g, hk * per, &s, queries, d)?;
    let k = part(g, hk, &t, keys, d)?;
    let v = part(g, hk, &t, keys, dv)?;
    let mut operands = vec![q, k, v];
    let mask = *g.rng.pick(MaskKind::ALL)?;
    if mask != MaskKind::None {
        let full = [(b.clone(), batch), (Dim::from(hk * per), hk * per), (s.clone(), queries), (t.clone(), keys)];
        let skip = g.rng.below(3);
        let (mut dims, mut sizes) = (Vec::new(), Vec::new());
        for (dim, n) in full.into_iter().skip(skip) {
            let one = g.rng.chance(30);
            dims.push(if one { Dim::ONE } else { dim });
            sizes.push(if one { 1 } else { n });
        }
        if sizes.iter().product::<usize>() > g.options.max_elems {
            return None;
        }
        let dtype = if mask == MaskKind::Bool { DType::Bool } else { dtype };
        operands.push(g.source(dtype, dims, sizes)?);
    }
    let op = Attention {
        layout,
        scale: FloatBits::new([1.0, 0.5, 0.125][g.rng.below(3)]),
        causal: g.rng.chance(40),
        window: g.rng.chance(25).then(|| 1 + g.rng.below(5) as i64),
        softcap: g.rng.chance(25).then(|| FloatBits::new(2.0)),
        mask,
    };
    Some(Plan { op: op.into(), operands, exact: false, bound: BOUND })
}

pub(super) fn rotary_embedding(g: &mut Gen<'_>) -> Option<Plan> {
    let dtype = g.dtype(|d| d.is_float() && d.bits() >= 16)?;
    let ((b, batch), (s, n)) = (g.dim(), g.dim());
    let (heads, d) = (1 + g.rng.below(3), [2, 4, 8, 10][g.rng.below(4)]);
    let rotary_dim = (d > 2 && g.rng.chance(30)).then_some(2);
    let half = rotary_dim.map_or(d / 2, |r| r as usize / 2);
    if batch * heads * n * d > g.options.max_elems {
        return None;
    }
    let x = g.source(dtype, vec![b, Dim::from(heads), s.clone(), Dim::from(d)], vec![batch, heads, n, d])?;
    let angle = |g: &mut Gen<'_>| g.source(dtype, vec![s.clone(), Dim::from(half)], vec![n, half]);
    let (cos, sin) = (angle(g)?, angle(g)?);
    let op = RotaryEmbedding { interleaved: g.rng.chance(50), rotary_dim };
    Some(Plan { op: op.into(), operands: vec![x, cos, sin], exact: false, bound: 2.0 * BOUND * BOUND })
}

/// What recurrent layers share: direction, hidden size, and operands x, w, r, and some of bias, lengths and initial states.
struct Layer {
    direction: RnnDirection,
    hidden: usize,
    operands: Vec<Known>,
    has_bias: bool,
    has_lengths: bool,
    has_init_h: bool,
    has_init_c: bool,
    has_peephole: bool,
}

fn layer(g: &mut Gen<'_>, gates: usize, cell: bool) -> Option<Layer> {
    let dtype = g.dtype(|d| d.is_float() && d.bits() >= 16)?;
    let direction = *g.rng.pick(RnnDirection::ALL)?;
    let d = direction.count();
    let (hidden, inputs) = ([1, 2, 5, 8][g.rng.below(4)], [1, 3, 8][g.rng.below(3)]);
    let ((t, steps), (b, batch)) = (g.dim(), g.dim());
    if steps * batch * d * hidden.max(inputs) > g.options.max_elems {
        return None;
    }
    let mut operands = vec![g.source(dtype, vec![t, b.clone(), Dim::from(inputs)], vec![steps, batch, inputs])?];
    let fixed =
        |g: &mut Gen<'_>, sizes: Vec<usize>| g.source(dtype, sizes.iter().map(|&n| Dim::from(n)).collect(), sizes);
    operands.push(fixed(g, vec![d, gates * hidden, inputs])?);
    // Large recurrent weights are chaotic: a rounding grows with every step. Columns whose magnitudes add up to less than 1 are not.
    let sizes = [d, gates * hidden, hidden];
    let shrink = if g.options.tame { 1.0 / (BOUND * hidden as f64) } else { 1.0 };
    let weights = (0..sizes.iter().product()).map(|_| g.rng.unit() * BOUND * shrink).collect();
    let weights = Tensor::from_elements(dtype, &sizes, &Elements::Float(weights)).ok()?;
    operands.push(g.source_of(sizes.iter().map(|&n| Dim::from(n)).collect(), weights)?);
    let has_bias = g.rng.chance(60);
    if has_bias {
        operands.push(fixed(g, vec![d, 2 * gates * hidden])?);
    }
    let has_lengths = g.rng.chance(30);
    if has_lengths {
        let list: Vec<i32> = (0..batch).map(|_| g.rng.below(steps + 1) as i32).collect();
        operands.push(g.source_of(vec![b.clone()], Tensor::from_slice(&[batch], &list).ok()?)?);
    }
    let (has_init_h, has_init_c) = (g.rng.chance(40), cell && g.rng.chance(40));
    for _ in 0..usize::from(has_init_h) + usize::from(has_init_c) {
        let dims = vec![Dim::from(d), b.clone(), Dim::from(hidden)];
        operands.push(g.source(dtype, dims, vec![d, batch, hidden])?);
    }
    let has_peephole = cell && g.rng.chance(30);
    if has_peephole {
        operands.push(fixed(g, vec![d, 3 * hidden])?);
    }
    Some(Layer { direction, hidden, operands, has_bias, has_lengths, has_init_h, has_init_c, has_peephole })
}

pub(super) fn lstm(g: &mut Gen<'_>) -> Option<Plan> {
    let l = layer(g, 4, true)?;
    let steps = l.operands[0].sizes[0] as f64;
    let op = Lstm {
        direction: l.direction,
        hidden: l.hidden as i64,
        has_bias: l.has_bias,
        has_lengths: l.has_lengths,
        has_init_h: l.has_init_h,
        has_init_c: l.has_init_c,
        has_peephole: l.has_peephole,
        activations: vec![],
        clip: g.rng.chance(30).then(|| FloatBits::new(1.5)),
        input_forget: g.rng.chance(20),
    };
    // The cell's state adds up to one a step.
    Some(Plan { op: op.into(), bound: union(&l.operands) + steps, operands: l.operands, exact: false })
}

pub(super) fn gru(g: &mut Gen<'_>) -> Option<Plan> {
    let l = layer(g, 3, false)?;
    let op = Gru {
        direction: l.direction,
        hidden: l.hidden as i64,
        has_bias: l.has_bias,
        has_lengths: l.has_lengths,
        has_init_h: l.has_init_h,
        activations: vec![],
        clip: g.rng.chance(30).then(|| FloatBits::new(1.5)),
        linear_before_reset: g.rng.chance(50),
    };
    Some(Plan { op: op.into(), operands: l.operands, exact: false, bound: BOUND })
}

pub(super) fn rnn(g: &mut Gen<'_>) -> Option<Plan> {
    let l = layer(g, 1, false)?;
    let op = Rnn {
        direction: l.direction,
        hidden: l.hidden as i64,
        has_bias: l.has_bias,
        has_lengths: l.has_lengths,
        has_init_h: l.has_init_h,
        activations: vec![],
        clip: g.rng.chance(30).then(|| FloatBits::new(1.5)),
    };
    Some(Plan { op: op.into(), operands: l.operands, exact: false, bound: BOUND })
}
