//! Resampling whose scales or region only the run tells: along each axis a gather of the elements around each place, and their sum with
//! weights that are computed. The same places and weights as of the op `resize`, whose scales are attributes.

use rlx_ir::ops::neural::{CoordMode, NearestMode, Resize, ResizeMode};
use rlx_ir::ops::reduction::ReduceKind;
use rlx_ir::{DType, Dim, ValueId};

use super::context::{Failure, NodeCx};

/// One axis that is resampled.
pub(super) struct Axis {
    /// Which.
    pub axis: usize,
    /// Its size in the result.
    pub size: Dim,
    /// Elements of the result per element of the operand: a scalar of f64.
    pub scale: ValueId,
    /// Whether the nearest element is the one after a place where the axis shrinks, and the one before it elsewhere, as in operator set 10.
    pub simple: bool,
    /// Start and end of the region of interest in parts of the axis, scalars of f64.
    pub region: Option<[ValueId; 2]>,
}

/// Beyond any axis, and exact in both f64 and i64.
const FAR: f64 = (1u64 << 52) as f64;

/// The filter's width is the inverse of the scale; a smaller one would only exhaust memory.
const MIN_ANTIALIAS_SCALE: f64 = 1e-4;

/// Sizes times scales, rounded down: what a scale that is not positive makes of a size is none, an error of the run.
pub(super) fn scaled_sizes(cx: &mut NodeCx<'_, '_>, sizes: Vec<Dim>, scales: ValueId) -> Result<Vec<Dim>, Failure> {
    let sizes = cx.b().from_dims(sizes)?;
    let b = cx.b();
    let sizes = b.convert(sizes, DType::F64)?;
    let scaled = b.mul(sizes, scales)?;
    let scaled = b.floor(scaled)?;
    positive(cx, scaled, scales)
}

/// `sizes` as sizes where the scales are positive numbers.
fn positive(cx: &mut NodeCx<'_, '_>, sizes: ValueId, scales: ValueId) -> Result<Vec<Dim>, Failure> {
    let (zero, minus, far) =
        (cx.scalar_like(scales, 0.0)?, cx.scalar_like(scales, -1.0)?, cx.scalar_like(scales, f64::INFINITY)?);
    let b = cx.b();
    let (above, below) = (b.gt(scales, zero)?, b.lt(scales, far)?);
    let fine = b.and(above, below)?;
    let sizes = b.select(fine, sizes, minus)?;
    let sizes = b.convert(sizes, DType::I64)?;
    cx.sizes(sizes, "the sizes")
}

/// Sizes of axes that are all scaled alike, so that none becomes larger (or smaller) than asked for; and the scale.
pub(super) fn alike(
    cx: &mut NodeCx<'_, '_>,
    sizes: Vec<Dim>,
    asked: ValueId,
    larger: bool,
) -> Result<(Vec<Dim>, ValueId), Failure> {
    let sizes = cx.b().from_dims(sizes)?;
    let b = cx.b();
    let (sizes, asked) = (b.convert(sizes, DType::F64)?, b.convert(asked, DType::F64)?);
    let ratios = b.div(asked, sizes)?;
    let kind = if larger { ReduceKind::Max } else { ReduceKind::Min };
    let scale = b.reduce(ratios, kind, &[0], false)?;
    let scaled = b.mul(sizes, scale)?;
    let scaled = cx.plus(scaled, 0.5)?;
    let scaled = cx.b().floor(scaled)?;
    Ok((positive(cx, scaled, scale)?, scale))
}

/// Element `i` of a vector.
pub(super) fn element(cx: &mut NodeCx<'_, '_>, v: ValueId, i: usize) -> Result<ValueId, Failure> {
    let i = Dim::from(i as i64);
    let v = cx.range_of(v, 0, i.clone(), i + 1, 1)?;
    crate::import::scalar(cx.b(), v)
}

/// The operand resampled along axes, one after the other; of `op` all but sizes, scales and region counts.
pub(super) fn resample(cx: &mut NodeCx<'_, '_>, x: ValueId, op: &Resize, axes: Vec<Axis>) -> Result<ValueId, Failure> {
    let dtype = cx.dtype(x)?;
    if dtype.is_complex() || dtype == DType::Str {
        return Err(Failure::refused(format!("takes real numbers, got {dtype}")));
    }
    if op.antialias && op.mode == ResizeMode::Nearest {
        return Err(Failure::refused("antialias has no meaning for mode nearest"));
    }
    let picks = op.mode == ResizeMode::Nearest;
    let wide = match dtype {
        _ if picks => dtype,
        DType::F32 | DType::F16 | DType::BF16 => DType::F32,
        _ => DType::F64,
    };
    let mut y = cx.b().convert(x, wide)?;
    for a in axes {
        let size = cx.shape(y)?.get(a.axis).cloned().unwrap_or(Dim::ONE);
        let n = cx.dim_as(size, DType::F64)?;
        let place = place(cx, op, &a, n)?;
        let last = cx.plus(n, -1.0)?;
        let zero = cx.scalar_like(n, 0.0)?;
        let made = if picks {
            let mut at = nearest(cx, op, place, last)?;
            if a.simple {
                let ceil = Resize { nearest: NearestMode::Ceil, ..op.clone() };
                let after = nearest(cx, &ceil, place, last)?;
                let one = cx.scalar_like(n, 1.0)?;
                let shrinks = cx.b().lt(a.scale, one)?;
                at = cx.b().select(shrinks, after, at)?;
            }
            cx.b().gather(y, at, a.axis as i64)?
        } else {
            weighted(cx, op, &a, y, place, last)?
        };
        y = made;
        if op.coords == CoordMode::TfCropAndResize {
            let inside = cx.between(place, zero, last)?;
            let rank = cx.rank(y)?;
            let inside = cx.along(inside, a.axis, rank)?;
            let outside = cx.scalar_like(y, op.extrapolation.get())?;
            y = cx.b().select(inside, y, outside)?;
        }
    }
    Ok(cx.b().convert(y, dtype)?)
}

/// Where the elements of the result lie on an axis of `n` elements.
fn place(cx: &mut NodeCx<'_, '_>, op: &Resize, a: &Axis, n: ValueId) -> Result<ValueId, Failure> {
    let i = cx.b().iota(DType::F64, [a.size.clone()], 0)?;
    let stretched = cx.b().mul(n, a.scale)?;
    let (one, last) = (cx.scalar_like(n, 1.0)?, cx.plus(n, -1.0)?);
    let single = cx.b().eq(stretched, one)?;
    let steps = cx.plus(stretched, -1.0)?;
    let middle = cx.plus(i, 0.5)?;
    let middle = cx.b().div(middle, a.scale)?;
    let half_pixel = cx.plus(middle, -0.5)?;
    Ok(match op.coords {
        CoordMode::HalfPixel => half_pixel,
        CoordMode::PytorchHalfPixel => {
            let start = cx.scalar_like(n, -0.5)?;
            cx.b().select(single, start, half_pixel)?
        }
        CoordMode::HalfPixelSymmetric => {
            let out = cx.dim_as(a.size.clone(), DType::F64)?;
            let b = cx.b();
            let part = b.div(out, stretched)?;
            let part = b.sub(one, part)?;
            let part = b.mul(n, part)?;
            let part = cx.times(part, 0.5)?;
            cx.b().add(part, half_pixel)?
        }
        CoordMode::Asymmetric => cx.b().div(i, a.scale)?,
        CoordMode::AlignCorners => {
            let first = cx.scalar_like(n, 0.0)?;
            let b = cx.b();
            let at = b.mul(i, last)?;
            let at = b.div(at, steps)?;
            b.select(single, first, at)?
        }
        CoordMode::TfCropAndResize => {
            let [start, end] = a.region.ok_or_else(|| Failure::refused("the region of interest is missing"))?;
            let b = cx.b();
            let extent = b.sub(end, start)?;
            let extent = b.mul(extent, last)?;
            let at = b.mul(i, extent)?;
            let at = b.div(at, steps)?;
            let centre = cx.times(extent, 0.5)?;
            let b = cx.b();
            let at = b.select(single, centre, at)?;
            let start = b.mul(start, last)?;
            b.add(at, start)?
        }
    })
}

/// A place as the index before it and the part in (0, 1] of the way to the next: one on an element is the end of the way before it.
fn between(cx: &mut NodeCx<'_, '_>, place: ValueId) -> Result<[ValueId; 2], Failure> {
    let (far, near, one) = (cx.scalar_like(place, FAR)?, cx.scalar_like(place, -FAR)?, cx.scalar_like(place, 1.0)?);
    let b = cx.b();
    let place = b.clamp(place, near, far)?;
    let below = b.floor(place)?;
    let whole = b.eq(place, below)?;
    let ratio = b.sub(place, below)?;
    let ratio = b.select(whole, one, ratio)?;
    let before = b.sub(below, one)?;
    Ok([b.select(whole, before, below)?, ratio])
}

/// Indices of whole places, within the axis.
fn indices(cx: &mut NodeCx<'_, '_>, at: ValueId, last: ValueId) -> Result<ValueId, Failure> {
    let zero = cx.scalar_like(at, 0.0)?;
    let b = cx.b();
    let at = b.minimum(at, last)?;
    let at = b.maximum(at, zero)?;
    Ok(b.convert(at, DType::I64)?)
}

fn nearest(cx: &mut NodeCx<'_, '_>, op: &Resize, place: ValueId, last: ValueId) -> Result<ValueId, Failure> {
    let [before, ratio] = between(cx, place)?;
    let (one, half) = (cx.scalar_like(place, 1.0)?, cx.scalar_like(place, 0.5)?);
    let next = cx.plus(before, 1.0)?;
    let b = cx.b();
    let upper = match op.nearest {
        NearestMode::RoundPreferFloor => b.gt(ratio, half)?,
        NearestMode::RoundPreferCeil => b.ge(ratio, half)?,
        NearestMode::Floor => b.eq(ratio, one)?,
        NearestMode::Ceil => return indices(cx, next, last),
    };
    let at = b.select(upper, next, before)?;
    indices(cx, at, last)
}

/// Sums of the elements around places, with weights that fall with the distance.
fn weighted(
    cx: &mut NodeCx<'_, '_>,
    op: &Resize,
    a: &Axis,
    x: ValueId,
    place: ValueId,
    last: ValueId,
) -> Result<ValueId, Failure> {
    let radius = if op.mode == ResizeMode::Cubic { 2.0 } else { 1.0 };
    let [before, ratio] = between(cx, place)?;
    let (zero, one) = (cx.scalar_like(place, 0.0)?, cx.scalar_like(place, 1.0)?);
    // How many elements there are, the first of them counted from the one before the place, and what distances are multiplied with.
    let (count, first, narrow) = if op.antialias {
        let (least, minus) = (cx.scalar_like(place, MIN_ANTIALIAS_SCALE)?, cx.scalar_like(place, -1.0)?);
        let narrow = cx.b().minimum(a.scale, one)?;
        let reach = cx.scalar_like(place, -radius)?;
        let reach = cx.b().div(reach, narrow)?;
        let reach = cx.b().floor(reach)?;
        let first = cx.plus(reach, 1.0)?;
        let count = cx.times(first, -2.0)?;
        let count = cx.plus(count, 2.0)?;
        // A filter of a scale below the least is an error of the run: it has no size.
        let fine = cx.b().ge(narrow, least)?;
        let count = cx.b().select(fine, count, minus)?;
        let count = cx.b().convert(count, DType::I64)?;
        let count = cx.sizes(count, "the width of the filter")?;
        let count = count.into_iter().next().ok_or_else(|| Failure::refused("the filter has no width"))?;
        (count, first, Some(narrow))
    } else {
        (Dim::from(2 * radius as i64), cx.scalar_like(place, 1.0 - radius)?, None)
    };
    let k = cx.b().iota(DType::F64, [Dim::ONE, count], 1)?;
    let k = cx.b().add(k, first)?;
    let (before, ratio) = (cx.b().expand_dims(before, &[1])?, cx.b().expand_dims(ratio, &[1])?);
    let at = cx.b().add(before, k)?;
    let distance = cx.b().sub(k, ratio)?;
    let distance = match narrow {
        Some(s) => cx.b().mul(distance, s)?,
        None => distance,
    };
    let distance = cx.b().abs(distance)?;
    let mut weight = if op.mode == ResizeMode::Cubic {
        cubic(cx, distance, op.cubic_a.get())?
    } else {
        let rest = cx.b().sub(one, distance)?;
        cx.b().maximum(rest, zero)?
    };
    if op.antialias {
        let sum = cx.b().reduce(weight, ReduceKind::Sum, &[1], true)?;
        weight = cx.b().div(weight, sum)?;
    }
    if op.exclude_outside {
        let inside = cx.between(at, zero, last)?;
        weight = cx.b().select(inside, weight, zero)?;
        let sum = cx.b().reduce(weight, ReduceKind::Sum, &[1], true)?;
        let none = cx.b().eq(sum, zero)?;
        let sum = cx.b().select(none, one, sum)?;
        weight = cx.b().div(weight, sum)?;
    }
    let at = indices(cx, at, last)?;
    let y = cx.b().gather(x, at, a.axis as i64)?;
    let (dtype, rank) = (cx.dtype(y)?, cx.rank(y)?);
    let weight = cx.b().convert(weight, dtype)?;
    let behind: Vec<i64> = (2..(rank - a.axis) as i64).collect();
    let weight = cx.b().expand_dims(weight, &behind)?;
    let y = cx.b().mul(y, weight)?;
    Ok(cx.b().reduce(y, ReduceKind::Sum, &[a.axis as i64 + 1], false)?)
}

/// The cubic kernel with coefficient `c` at distances.
fn cubic(cx: &mut NodeCx<'_, '_>, x: ValueId, c: f64) -> Result<ValueId, Failure> {
    // ((c + 2) x − (c + 3)) x² + 1 up to 1; ((c x − 5 c) x + 8 c) x − 4 c up to 2.
    let near = cx.times(x, c + 2.0)?;
    let near = cx.plus(near, -(c + 3.0))?;
    let near = cx.b().mul(near, x)?;
    let near = cx.b().mul(near, x)?;
    let near = cx.plus(near, 1.0)?;
    let far = cx.times(x, c)?;
    let far = cx.plus(far, -5.0 * c)?;
    let far = cx.b().mul(far, x)?;
    let far = cx.plus(far, 8.0 * c)?;
    let far = cx.b().mul(far, x)?;
    let far = cx.plus(far, -4.0 * c)?;
    let (zero, one, two) = (cx.scalar_like(x, 0.0)?, cx.scalar_like(x, 1.0)?, cx.scalar_like(x, 2.0)?);
    let b = cx.b();
    let (first, second) = (b.le(x, one)?, b.lt(x, two)?);
    let rest = b.select(second, far, zero)?;
    Ok(b.select(first, near, rest)?)
}
