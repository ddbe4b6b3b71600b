//! Windows, Fourier transforms, mel weights.

use std::f64::consts::TAU;

use rlx_ir::dim::Constraint;
use rlx_ir::ops::signal::Fft;
use rlx_ir::{DType, Dim, ValueId};

use super::axes::{Arranged, Axes, Named};
use super::context::{Failure, NodeCx, Out};
use super::{OpEntry, op};

pub(super) const OPS: &[OpEntry] = &[
    op("HannWindow", 17, |cx| cosine_window(cx, [0.5, 0.5, 0.0])),
    op("HammingWindow", 17, |cx| cosine_window(cx, [25.0 / 46.0, 21.0 / 46.0, 0.0])),
    op("BlackmanWindow", 17, |cx| cosine_window(cx, [0.42, 0.5, 0.08])),
    op("MelWeightMatrix", 17, mel_weights),
    op("DFT", 17, dft),
    op("STFT", 17, stft),
];

/// `a0 − a1 cos(φ) + a2 cos(2φ)`, φ going once round over the window.
fn cosine_window(cx: &mut NodeCx<'_, '_>, [a0, a1, a2]: [f64; 3]) -> Out {
    let to = cx.opt_dtype("output_datatype")?.unwrap_or(DType::F32);
    let periodic = cx.flag("periodic", true)?;
    let n = cx.size_at(0, "the size of the window")?;
    let round = cx.dim_as(if periodic { n.clone() } else { &n - 1 }, DType::F64)?;
    let t = cx.b().iota(DType::F64, [n], 0)?;
    let turns = cx.b().div(t, round)?;
    let angle = cx.times(turns, TAU)?;
    let once = cx.b().cos(angle)?;
    let double = cx.times(angle, 2.0)?;
    let twice = cx.b().cos(double)?;
    let (once, twice) = (cx.times(once, -a1)?, cx.times(twice, a2)?);
    let y = cx.plus(once, a0)?;
    let y = cx.b().add(y, twice)?;
    Ok(vec![cx.b().convert(y, to)?])
}

/// Triangles with their corners at bins that are evenly spaced on the mel scale: `[bins of the spectrum, mel bins]`.
fn mel_weights(cx: &mut NodeCx<'_, '_>) -> Out {
    let to = cx.opt_dtype("output_datatype")?.unwrap_or(DType::F32);
    let (bands, length) = (cx.size_at(0, "the number of mel bins")?, cx.size_at(1, "the length of the transform")?);
    let bins = length.floor_div(2) + 1;
    let mut scalars = Vec::new();
    for i in 2..5 {
        let v = cx.input(i)?;
        let v = crate::import::scalar(cx.b(), v)?;
        scalars.push(cx.b().convert(v, DType::F64)?);
    }
    let [rate, low, high] = scalars[..] else { return Err(Failure::refused("takes five operands")) };
    let mel = |cx: &mut NodeCx<'_, '_>, hertz: ValueId| -> Result<ValueId, Failure> {
        let x = cx.times(hertz, 1.0 / 700.0)?;
        let x = cx.plus(x, 1.0)?;
        let x = cx.b().log(x)?;
        cx.times(x, 2595.0 / std::f64::consts::LN_10)
    };
    let (low, high) = (mel(cx, low)?, mel(cx, high)?);
    let span = cx.b().sub(high, low)?;
    let corners = cx.dim_as(&bands + 2, DType::F64)?;
    let step = cx.b().div(span, corners)?;
    let i = cx.b().iota(DType::F64, [&bands + 2], 0)?;
    let m = cx.b().mul(i, step)?;
    let m = cx.b().add(m, low)?;
    let ten = cx.b().scalar(DType::F64, 10.0)?;
    let m = cx.times(m, 1.0 / 2595.0)?;
    let hertz = cx.b().pow(ten, m)?;
    let hertz = cx.plus(hertz, -1.0)?;
    let hertz = cx.times(hertz, 700.0)?;
    let scale = cx.dim_as(&length + 1, DType::F64)?;
    let place = cx.b().mul(hertz, scale)?;
    let place = cx.b().div(place, rate)?;
    let place = cx.b().floor(place)?;
    let part = |cx: &mut NodeCx<'_, '_>, from: i64| -> Result<ValueId, Failure> {
        let v = cx.range_of(place, 0, Dim::from(from), &bands + from, 1)?;
        Ok(cx.b().expand_dims(v, &[0])?)
    };
    let (lower, centre, upper) = (part(cx, 0)?, part(cx, 1)?, part(cx, 2)?);
    let j = cx.b().iota(DType::F64, [bins, Dim::ONE], 0)?;
    let (one, zero) = (cx.b().scalar(DType::F64, 1.0)?, cx.b().scalar(DType::F64, 0.0)?);
    let b = cx.b();
    // The rising side ends at the centre; without a width it is the centre alone.
    let width = b.sub(centre, lower)?;
    let (run, width) = (b.sub(j, lower)?, b.maximum(width, one)?);
    let up = b.div(run, width)?;
    let flat = b.eq(lower, centre)?;
    let up = b.select(flat, one, up)?;
    let (after, before) = (b.ge(j, lower)?, b.le(j, centre)?);
    let rising = b.and(after, before)?;
    let width = b.sub(upper, centre)?;
    let (run, width) = (b.sub(upper, j)?, b.maximum(width, one)?);
    let down = b.div(run, width)?;
    let (after, before) = (b.ge(j, centre)?, b.lt(j, upper)?);
    let falling = b.and(after, before)?;
    let y = b.select(rising, up, zero)?;
    let y = b.select(falling, down, y)?;
    Ok(vec![b.convert(y, to)?])
}

fn dft(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let (inverse, onesided) = (cx.flag("inverse", false)?, cx.flag("onesided", false)?);
    let axis = if cx.version < 20 {
        cx.int("axis", 1)?
    } else {
        match cx.axes_at(2, "the axis")? {
            None => -2,
            Some(Axes::Data(axis)) => return dft_along(cx, x, axis, inverse, onesided),
            Some(Axes::Known(axes)) => match axes[..] {
                [axis] => axis,
                _ => return Err(Failure::refused(format!("the axis must be one number, got {}", axes.len()))),
            },
        }
    };
    let axis = cx.axis(x, axis)?;
    if axis + 1 == cx.rank(x)? {
        return Err(Failure::refused("the last axis holds real and imaginary parts and cannot be transformed"));
    }
    let size = cx.shape(x)?[axis].clone();
    let length = match cx.has(1) {
        true => cx.size_at(1, "the length of the transform")?,
        false if inverse && onesided => (size - 1) * 2,
        false => size,
    };
    Ok(vec![cx.b().fft(x, Fft { axis, length, inverse, onesided })?])
}

/// A transform along an axis that only the run tells.
fn dft_along(cx: &mut NodeCx<'_, '_>, x: ValueId, axis: ValueId, inverse: bool, onesided: bool) -> Out {
    let shape = cx.shape(x)?.into_dims();
    let Some((parts, outer)) = shape.split_last() else {
        return Err(Failure::refused("the operand must have an axis of real and imaginary parts"));
    };
    let named = Named::one(cx, axis, shape.len())?.before_last(cx, outer.len())?;
    let apart = Arranged::of(cx, &named, outer, false)?;
    let size = apart.columns();
    let length = match cx.has(1) {
        true => cx.size_at(1, "the length of the transform")?,
        false if inverse && onesided => (size - 1) * 2,
        false => size,
    };
    let rows = apart.matrix(cx, x, std::slice::from_ref(parts))?;
    let y = cx.b().fft(rows, Fft { axis: 1, length, inverse, onesided })?;
    Ok(vec![apart.back(cx, &named, y, None)?])
}

/// Transforms of windows over a signal `[batch, points, 1 or 2]`: `[batch, frames, bins, 2]`.
fn stft(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let onesided = cx.flag("onesided", true)?;
    if cx.rank(x)? != 3 {
        let shape = cx.shape(x)?;
        return Err(Failure::refused(format!("the signal must have axes [batch, points, 1 or 2], got {shape}")));
    }
    let step = cx.size_at(1, "the step between frames")?;
    cx.require(Constraint::Le(Dim::ONE, step.clone()), "the step between frames")?;
    let window = cx.opt(2)?;
    let length = match (cx.has(3), window) {
        (true, _) => cx.size_at(3, "the length of frames")?,
        (false, Some(w)) => cx.shape(w)?.numel(),
        (false, None) => return Err(Failure::refused("neither a window nor a length of frames is given")),
    };
    let shape = cx.shape(x)?;
    if onesided && shape[2].as_const() == Some(2) {
        return Err(Failure::refused("a complex signal has no one-sided transform"));
    }
    let frames = (&shape[1] - &length).floor_div(step.clone()) + 1;
    let first = cx.b().iota(DType::I64, [frames, Dim::ONE], 0)?;
    let step = cx.b().from_dim(step)?;
    let first = cx.b().mul(first, step)?;
    let offset = cx.b().iota(DType::I64, [Dim::ONE, length.clone()], 1)?;
    let at = cx.b().add(first, offset)?;
    let mut framed = cx.b().gather(x, at, 1)?;
    if let Some(w) = window {
        let w = cx.b().reshape(w, [length.clone(), Dim::ONE])?;
        framed = cx.b().mul(framed, w)?;
    }
    Ok(vec![cx.b().fft(framed, Fft { axis: 2, length, inverse: false, onesided })?])
}
