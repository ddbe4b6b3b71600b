//! Random numbers, drawn from the graph's generator: its state `rng` of seed and position.
//!
//! A node's `seed` takes the place of the generator's; the position is the generator's, so that runs differ.

use rlx_ir::{DType, Dim, Tensor, ValueId};

use super::context::{Failure, NodeCx, Out};
use super::{OpEntry, op};

pub(super) const OPS: &[OpEntry] = &[
    op("RandomNormal", 1, |cx| shaped(cx, normal)),
    op("RandomNormalLike", 1, |cx| like(cx, normal)),
    op("RandomUniform", 1, |cx| shaped(cx, uniform)),
    op("RandomUniformLike", 1, |cx| like(cx, uniform)),
    op("Bernoulli", 15, bernoulli),
    op("Multinomial", 7, multinomial),
    op("Dropout", 1, dropout),
];

type Draw = fn(&mut NodeCx<'_, '_>, DType, Vec<Dim>) -> Out;

/// The key that the node draws with, and its stream.
fn source(cx: &mut NodeCx<'_, '_>) -> Result<(ValueId, u32), Failure> {
    let seed = match cx.attr("seed") {
        Some(crate::model::Attr::Int(i)) => Some(*i as u64),
        _ => cx.opt_float("seed")?.map(|s| (s as f32).to_bits().into()),
    };
    let key = cx.imp.rng_key()?;
    let Some(seed) = seed else { return Ok((key, cx.imp.next_stream())) };
    // Nodes of one seed give the same numbers, as they are of one generator.
    let seed = cx.b().constant(Tensor::from_slice(&[1], &[seed])?)?;
    let position = cx.range_of(key, 0, Dim::ONE, Dim::from(2), 1)?;
    Ok((cx.b().concat(&[seed, position], 0)?, 0))
}

fn normal(cx: &mut NodeCx<'_, '_>, dtype: DType, dims: Vec<Dim>) -> Out {
    let parameters = (cx.float("mean", 0.0)?, cx.float("scale", 1.0)?);
    let (key, stream) = source(cx)?;
    Ok(vec![cx.b().random_normal(key, dtype, dims, parameters, stream)?])
}

fn uniform(cx: &mut NodeCx<'_, '_>, dtype: DType, dims: Vec<Dim>) -> Out {
    let bounds = (cx.float("low", 0.0)?, cx.float("high", 1.0)?);
    let (key, stream) = source(cx)?;
    Ok(vec![cx.b().random_uniform(key, dtype, dims, bounds, stream)?])
}

fn shaped(cx: &mut NodeCx<'_, '_>, draw: Draw) -> Out {
    let shape = cx.opt_ints("shape")?.ok_or_else(|| Failure::refused("attribute `shape` is missing"))?;
    let dtype = cx.opt_dtype("dtype")?.unwrap_or(DType::F32);
    draw(cx, dtype, shape.into_iter().map(Dim::from).collect())
}

fn like(cx: &mut NodeCx<'_, '_>, draw: Draw) -> Out {
    let x = cx.input(0)?;
    let dtype = match cx.opt_dtype_unless_zero("dtype")? {
        Some(d) => d,
        None => cx.dtype(x)?,
    };
    let dims = cx.shape(x)?.into_dims();
    draw(cx, dtype, dims)
}

fn bernoulli(cx: &mut NodeCx<'_, '_>) -> Out {
    let p = cx.input(0)?;
    let to = match cx.opt_dtype_unless_zero("dtype")? {
        Some(d) => d,
        None => cx.dtype(p)?,
    };
    let (key, stream) = source(cx)?;
    let hit = cx.b().random_bernoulli(key, p, stream)?;
    Ok(vec![cx.b().convert(hit, to)?])
}

fn multinomial(cx: &mut NodeCx<'_, '_>) -> Out {
    let logits = cx.input(0)?;
    let n = cx.int("sample_size", 1)?;
    let to = cx.opt_dtype("dtype")?.unwrap_or(DType::I32);
    if n < 0 {
        return Err(Failure::refused(format!("attribute `sample_size` is {n}")));
    }
    let (key, stream) = source(cx)?;
    let drawn = cx.b().random_multinomial(key, logits, n, stream)?;
    Ok(vec![cx.b().convert(drawn, to)?])
}

/// What training drops, and the scale of what it keeps; without training the operand.
fn dropout(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    cx.ignore(&["seed", "ratio", "is_test", "consumed_inputs"]);
    let training = if cx.version < 12 { None } else { cx.opt(2)? };
    let known = training.and_then(|t| cx.known_bool(t));
    let dims = cx.shape(x)?.into_dims();
    let Some(training) = training.filter(|_| known != Some(false)) else {
        let mut out = vec![x];
        if cx.wants(1) {
            let all = cx.b().constant(Tensor::from_bools(&[], &[true])?)?;
            // Before operator set 10 the mask has the operand's type.
            let dtype = if cx.version < 10 { cx.dtype(x)? } else { DType::Bool };
            let all = cx.b().convert(all, dtype)?;
            out.push(cx.b().broadcast_to(all, dims)?);
        }
        return Ok(out);
    };
    let dtype = cx.dtype(x)?;
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let ratio = match cx.opt(1)? {
        Some(r) => {
            let r = crate::import::scalar(cx.b(), r)?;
            cx.b().convert(r, wide)?
        }
        None => cx.b().scalar(wide, 0.5)?,
    };
    let (key, stream) = source(cx)?;
    let u = cx.b().random_unit(key, wide, dims, stream)?;
    let mut keep = cx.b().ge(u, ratio)?;
    if known.is_none() {
        let training = crate::import::scalar(cx.b(), training)?;
        let inference = cx.b().not(training)?;
        keep = cx.b().or(keep, inference)?;
    }
    let one = cx.b().scalar(wide, 1.0)?;
    let kept = cx.b().sub(one, ratio)?;
    let mut scale = cx.b().div(one, kept)?;
    if known.is_none() {
        let training = crate::import::scalar(cx.b(), training)?;
        scale = cx.b().select(training, scale, one)?;
    }
    let scale = cx.b().convert(scale, dtype)?;
    let zero = cx.scalar_like(x, 0.0)?;
    let scaled = cx.b().mul(x, scale)?;
    Ok(vec![cx.b().select(keep, scaled, zero)?, keep])
}
