//! Windows, Fourier transforms, mel weights. Angles and sums are of f64, whatever the operands' dtype.

use std::f64::consts::TAU;

use rlx_ir::dim::Constraint;
use rlx_ir::ops::shape::PadMode;
use rlx_ir::{DType, Dim, ValueId};

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

/// Real and imaginary parts in f64.
type Parts = (ValueId, Option<ValueId>);

/// The parts of an operand whose last axis has one (real) or two (complex) elements.
fn parts(cx: &mut NodeCx<'_, '_>, x: ValueId) -> Result<Parts, Failure> {
    let shape = cx.shape(x)?;
    let last = shape.rank().checked_sub(1).ok_or_else(|| Failure::refused("the operand has no axes"))?;
    let x = cx.b().convert(x, DType::F64)?;
    let n = shape.last().and_then(Dim::as_const);
    let mut part = |i: i64| -> Result<ValueId, Failure> {
        let p = cx.range_of(x, last, Dim::from(i), Dim::from(i + 1), 1)?;
        Ok(cx.b().squeeze(p, &[-1])?)
    };
    match n {
        Some(1) => Ok((part(0)?, None)),
        Some(2) => Ok((part(0)?, Some(part(1)?))),
        _ => Err(Failure::refused(format!("the last axis must have 1 or 2 elements, the operand is {shape}"))),
    }
}

/// `cos` and `sin` of `2π n k / length`, `[n, k]`.
fn turns(cx: &mut NodeCx<'_, '_>, n: &Dim, k: &Dim, length: &Dim) -> Result<(ValueId, ValueId), Failure> {
    let row = cx.b().iota(DType::I64, [n.clone(), Dim::ONE], 0)?;
    let column = cx.b().iota(DType::I64, [Dim::ONE, k.clone()], 1)?;
    let whole = cx.b().from_dim(length.clone())?;
    let whole_f = cx.dim_as(length.clone(), DType::F64)?;
    let b = cx.b();
    // Whole turns are taken off while the numbers are exact.
    let p = b.mul(row, column)?;
    let p = b.rem(p, whole)?;
    let p = b.convert(p, DType::F64)?;
    let p = b.div(p, whole_f)?;
    let angle = cx.times(p, TAU)?;
    Ok((cx.b().cos(angle)?, cx.b().sin(angle)?))
}

/// How a transform is made.
struct Transform {
    /// Points that it is over.
    length: Dim,
    inverse: bool,
    /// Only the first half of a spectrum is there, the rest being its mirror image.
    onesided: bool,
}

impl Transform {
    /// The transform of the last axis; `[..., bins]`.
    fn apply(&self, cx: &mut NodeCx<'_, '_>, (re, im): Parts) -> Result<Parts, Failure> {
        let half = self.length.floor_div(2) + 1;
        let (taken, bins) = match (self.onesided, self.inverse) {
            (true, true) => (half, self.length.clone()),
            (true, false) => (self.length.clone(), half),
            (false, _) => (self.length.clone(), self.length.clone()),
        };
        let re = fit(cx, re, &taken)?;
        let im = im.map(|v| fit(cx, v, &taken)).transpose()?;
        let (mut cos, mut sin) = turns(cx, &taken, &bins, &self.length)?;
        if self.inverse {
            let n = cx.dim_as(self.length.clone(), DType::F64)?;
            let mut weight = cx.b().reciprocal(n)?;
            if self.onesided {
                // Bins with a mirror image count twice: all but the first, and the middle one of an even number.
                let k = cx.b().iota(DType::I64, [taken, Dim::ONE], 0)?;
                let zero = cx.scalar_like(k, 0.0)?;
                let first = cx.b().eq(k, zero)?;
                let twice = cx.b().add(k, k)?;
                let whole = cx.b().from_dim(self.length.clone())?;
                let middle = cx.b().eq(twice, whole)?;
                let single = cx.b().or(first, middle)?;
                let double = cx.times(weight, 2.0)?;
                weight = cx.b().select(single, weight, double)?;
            }
            (cos, sin) = (cx.b().mul(cos, weight)?, cx.b().mul(sin, weight)?);
            sin = cx.b().neg(sin)?;
        }
        // e^{-jφ} = cos φ − j sin φ.
        let b = cx.b();
        let (mut out_re, cross) = (b.matmul(re, cos)?, b.matmul(re, sin)?);
        let mut out_im = b.neg(cross)?;
        if let Some(im) = im {
            let (a, c) = (b.matmul(im, sin)?, b.matmul(im, cos)?);
            (out_re, out_im) = (b.add(out_re, a)?, b.add(out_im, c)?);
        }
        Ok((out_re, (!(self.inverse && self.onesided)).then_some(out_im)))
    }
}

/// The first `n` elements of the last axis, zeros after those that are there.
fn fit(cx: &mut NodeCx<'_, '_>, x: ValueId, n: &Dim) -> Result<ValueId, Failure> {
    let shape = cx.shape(x)?;
    let Some(size) = shape.last().cloned() else { return Ok(x) };
    if size == *n {
        return Ok(x);
    }
    let axis = shape.rank() - 1;
    let kept = size.min(n.clone());
    let x = cx.range_of(x, axis, Dim::ZERO, kept.clone(), 1)?;
    let low = vec![Dim::ZERO; axis + 1];
    let mut high = low.clone();
    high[axis] = n - kept;
    let zero = cx.scalar_like(x, 0.0)?;
    Ok(cx.b().pad(x, Some(zero), low, high, PadMode::Constant)?)
}

/// Parts as one tensor of a dtype with a last axis of one or two.
fn join(cx: &mut NodeCx<'_, '_>, (re, im): Parts, to: DType) -> Result<ValueId, Failure> {
    let mut all = vec![cx.b().expand_dims(re, &[-1])?];
    if let Some(im) = im {
        all.push(cx.b().expand_dims(im, &[-1])?);
    }
    let y = if all.len() == 1 { all[0] } else { cx.b().concat(&all, -1)? };
    Ok(cx.b().convert(y, to)?)
}

fn dft(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let to = cx.dtype(x)?;
    let (inverse, onesided) = (cx.flag("inverse", false)?, cx.flag("onesided", false)?);
    let axis = if cx.version < 20 {
        cx.int("axis", 1)?
    } else if cx.has(2) {
        cx.int_at(2, "the axis")?
    } else {
        -2
    };
    let axis = cx.axis(x, axis)?;
    let rank = cx.rank(x)?;
    if axis + 1 == rank {
        return Err(Failure::refused("the last axis holds real and imaginary parts and cannot be transformed"));
    }
    let size = cx.shape(x)?[axis].clone();
    let length = match cx.has(1) {
        true => cx.size_at(1, "the length of the transform")?,
        false if inverse && onesided => (size - 1) * 2,
        false => size,
    };
    let (re, im) = parts(cx, x)?;
    let swap = |cx: &mut NodeCx<'_, '_>, v: ValueId| -> Result<ValueId, Failure> {
        Ok(if axis + 2 == rank { v } else { cx.b().swap_axes(v, axis as i64, -1)? })
    };
    let re = swap(cx, re)?;
    let im = im.map(|v| swap(cx, v)).transpose()?;
    let (re, im) = Transform { length, inverse, onesided }.apply(cx, (re, im))?;
    let re = swap(cx, re)?;
    let im = im.map(|v| swap(cx, v)).transpose()?;
    Ok(vec![join(cx, (re, im), to)?])
}

/// Transforms of windows over a signal `[batch, points, 1 or 2]`: `[batch, frames, bins, 2]`.
fn stft(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let to = cx.dtype(x)?;
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
    let points = cx.shape(x)?[1].clone();
    let frames = (points - &length).floor_div(step.clone()) + 1;
    let first = cx.b().iota(DType::I64, [frames, Dim::ONE], 0)?;
    let step = cx.b().from_dim(step)?;
    let first = cx.b().mul(first, step)?;
    let offset = cx.b().iota(DType::I64, [Dim::ONE, length.clone()], 1)?;
    let at = cx.b().add(first, offset)?;
    let (re, im) = parts(cx, x)?;
    if im.is_some() && onesided {
        return Err(Failure::refused("a complex signal has no one-sided transform"));
    }
    let window = window.map(|w| cx.b().convert(w, DType::F64)).transpose()?;
    let mut frame = |v: ValueId| -> Result<ValueId, Failure> {
        let f = cx.b().gather(v, at, 1)?;
        Ok(match window {
            Some(w) => cx.b().mul(f, w)?,
            None => f,
        })
    };
    let re = frame(re)?;
    let im = im.map(&mut frame).transpose()?;
    let y = Transform { length, inverse: false, onesided }.apply(cx, (re, im))?;
    Ok(vec![join(cx, y, to)?])
}
