//! Steps of optimisers: `ai.onnx.preview.training`.

use rlx_ir::{DType, ValueId};

use super::OpEntry;
use super::context::{Failure, NodeCx, Out};

const fn op(name: &'static str, run: fn(&mut NodeCx<'_, '_>) -> Out) -> OpEntry {
    OpEntry { domain: "ai.onnx.preview.training", name, since: 1, until: i64::MAX, run }
}

pub(super) const OPS: &[OpEntry] = &[op("Adagrad", adagrad), op("Adam", adam), op("Momentum", momentum)];

/// Learning rate, step count as a float, and for each optimised tensor its `N` operands.
struct Step<const N: usize> {
    rate: ValueId,
    count: ValueId,
    groups: Vec<[ValueId; N]>,
}

impl<const N: usize> Step<N> {
    fn of(cx: &mut NodeCx<'_, '_>) -> Result<Self, Failure> {
        let (rate, count) = (cx.input(0)?, cx.input(1)?);
        let (rate, count) = (crate::import::scalar(cx.b(), rate)?, crate::import::scalar(cx.b(), count)?);
        let rest = cx.inputs_from(2)?;
        if rest.is_empty() || !rest.len().is_multiple_of(N) {
            return Err(Failure::refused(format!("takes rate, count and {N} tensors for each that is optimised")));
        }
        let n = rest.len() / N;
        let group = |i: usize| std::array::from_fn(|k| rest[i + k * n]);
        let dtype = cx.dtype(rest[0])?;
        let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let count = cx.b().convert(count, wide)?;
        let rate = cx.b().convert(rate, wide)?;
        Ok(Step { rate, count, groups: (0..n).map(group).collect() })
    }
}

/// Results of all tensors, the first ones first.
fn interleaved<const N: usize>(results: &[[ValueId; N]]) -> Vec<ValueId> {
    (0..N).flat_map(|k| results.iter().map(move |r| r[k])).collect()
}

/// The gradient with that of the squared norm.
fn regularised(cx: &mut NodeCx<'_, '_>, x: ValueId, g: ValueId) -> Result<ValueId, Failure> {
    let norm = cx.float("norm_coefficient", 0.0)?;
    let pull = cx.times(x, norm)?;
    Ok(cx.b().add(pull, g)?)
}

fn adagrad(cx: &mut NodeCx<'_, '_>) -> Out {
    let (epsilon, decay) = (cx.float("epsilon", 1e-6)?, cx.float("decay_factor", 0.0)?);
    let step = Step::<3>::of(cx)?;
    let slower = cx.times(step.count, decay)?;
    let slower = cx.plus(slower, 1.0)?;
    let rate = cx.b().div(step.rate, slower)?;
    let mut out = Vec::new();
    for [x, g, h] in step.groups {
        let g = regularised(cx, x, g)?;
        let square = cx.b().mul(g, g)?;
        let h = cx.b().add(h, square)?;
        let root = cx.b().sqrt(h)?;
        let root = cx.plus(root, epsilon)?;
        let dtype = cx.dtype(x)?;
        let rate = cx.b().convert(rate, dtype)?;
        let move_ = cx.b().mul(g, rate)?;
        let move_ = cx.b().div(move_, root)?;
        out.push([cx.b().sub(x, move_)?, h]);
    }
    Ok(interleaved(&out))
}

/// `1 − k^count`.
fn remains(cx: &mut NodeCx<'_, '_>, k: f64, count: ValueId) -> Result<ValueId, Failure> {
    let k = cx.scalar_like(count, k)?;
    let p = cx.b().pow(k, count)?;
    let p = cx.b().neg(p)?;
    cx.plus(p, 1.0)
}

fn adam(cx: &mut NodeCx<'_, '_>) -> Out {
    let (alpha, beta) = (cx.float("alpha", 0.9)?, cx.float("beta", 0.999)?);
    let (epsilon, after) = (cx.float("epsilon", 1e-6)?, cx.float("norm_coefficient_post", 0.0)?);
    let step = Step::<4>::of(cx)?;
    // The bias of the averages is corrected from the second step on.
    let (first, second) = (remains(cx, alpha, step.count)?, remains(cx, beta, step.count)?);
    let zero = cx.scalar_like(step.count, 0.0)?;
    let b = cx.b();
    let root = b.sqrt(second)?;
    let corrected = b.mul(step.rate, root)?;
    let corrected = b.div(corrected, first)?;
    let started = b.gt(step.count, zero)?;
    let rate = b.select(started, corrected, step.rate)?;
    let mut out = Vec::new();
    for [x, g, v, h] in step.groups {
        let g = regularised(cx, x, g)?;
        let square = cx.b().mul(g, g)?;
        let (v, fresh) = (cx.times(v, alpha)?, cx.times(g, 1.0 - alpha)?);
        let v = cx.b().add(v, fresh)?;
        let (h, fresh) = (cx.times(h, beta)?, cx.times(square, 1.0 - beta)?);
        let h = cx.b().add(h, fresh)?;
        let root = cx.b().sqrt(h)?;
        let root = cx.plus(root, epsilon)?;
        let dtype = cx.dtype(x)?;
        let rate = cx.b().convert(rate, dtype)?;
        let move_ = cx.b().div(v, root)?;
        let move_ = cx.b().mul(move_, rate)?;
        let x = cx.b().sub(x, move_)?;
        out.push([cx.times(x, 1.0 - after)?, v, h]);
    }
    Ok(interleaved(&out))
}

fn momentum(cx: &mut NodeCx<'_, '_>) -> Out {
    let (alpha, beta) = (cx.float("alpha", 0.0)?, cx.float("beta", 0.0)?);
    let nesterov = cx.word("mode", "standard", &[("standard", false), ("nesterov", true)])?;
    let step = Step::<3>::of(cx)?;
    let (zero, one) = (cx.scalar_like(step.count, 0.0)?, cx.scalar_like(step.count, 1.0)?);
    let beta = cx.scalar_like(step.count, beta)?;
    let started = cx.b().gt(step.count, zero)?;
    let beta = cx.b().select(started, beta, one)?;
    let mut out = Vec::new();
    for [x, g, v] in step.groups {
        let dtype = cx.dtype(x)?;
        let g = regularised(cx, x, g)?;
        let (rate, beta) = (cx.b().convert(step.rate, dtype)?, cx.b().convert(beta, dtype)?);
        let (v, fresh) = (cx.times(v, alpha)?, cx.b().mul(g, beta)?);
        let v = cx.b().add(v, fresh)?;
        let along = if nesterov {
            let ahead = cx.times(v, alpha)?;
            cx.b().add(g, ahead)?
        } else {
            v
        };
        let move_ = cx.b().mul(along, rate)?;
        out.push([cx.b().sub(x, move_)?, v]);
    }
    Ok(interleaved(&out))
}
