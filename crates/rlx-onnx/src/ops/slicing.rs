//! Ranges and borders, whose places may be data.

use rlx_ir::dim::Constraint;
use rlx_ir::ops::shape::PadMode;
use rlx_ir::{DType, Dim, ValueId};

use super::axes::{Axes, Named};
use super::context::{Failure, NodeCx, Out};
use super::{OpEntry, op};
use crate::import::scalar;

pub(super) const OPS: &[OpEntry] =
    &[op("Slice", 1, slice), op("Pad", 2, pad), op("CenterCropPad", 18, center_crop_pad)];

/// Beyond any axis; what is longer would only overflow.
const LONGEST_STEP: i64 = 1 << 40;

fn slice(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let shape = cx.shape(x)?;
    let by_attribute = cx.version < 10;
    let (axes, steps) = if by_attribute {
        (cx.opt_ints("axes")?, None)
    } else {
        let axes = cx.axes_at(3, "the axes")?;
        let steps = if cx.has(4) { Some(cx.known_ints_at(4, "the steps")?) } else { None };
        match (axes, steps) {
            (Some(Axes::Data(axes)), _) => return taken(cx, x, Some(Axes::Data(axes))),
            (axes, Some(None)) => return taken(cx, x, axes),
            (Some(Axes::Known(axes)), steps) => (Some(axes), steps.flatten()),
            (None, steps) => (None, steps.flatten()),
        }
    };
    let given = |v: Option<Vec<i64>>| v.unwrap_or_default().into_iter().map(Dim::from).collect::<Vec<_>>();
    let (starts, ends) = if by_attribute {
        (Bounds::Written(given(cx.opt_ints("starts")?)), Bounds::Written(given(cx.opt_ints("ends")?)))
    } else {
        (slice_bounds(cx, 1, "the starts")?, slice_bounds(cx, 2, "the ends")?)
    };
    let n = starts.len(cx)?;
    let axes = axes.unwrap_or_else(|| (0..n as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; n]);
    if axes.len() != n || steps.len() != n || ends.len(cx)? != n {
        let m = ends.len(cx)?;
        return Err(Failure::refused(format!("{n} starts, {m} ends, {} axes and {} steps", axes.len(), steps.len())));
    }
    if steps.contains(&0) {
        return Err(Failure::refused("a step is 0; steps must not be 0"));
    }
    let steps: Vec<i64> = steps.into_iter().map(|s| s.clamp(-LONGEST_STEP, LONGEST_STEP)).collect();
    let at = axes.iter().map(|&a| cx.axis(x, a)).collect::<Result<Vec<_>, _>>()?;
    if let (Bounds::Written(starts), Bounds::Written(ends)) = (&starts, &ends) {
        let mut y = x;
        for (((&axis, start), end), &step) in axes.iter().zip(starts).zip(ends).zip(&steps) {
            y = cx.b().slice_axis(y, axis, start.clone(), end.clone(), step)?;
        }
        return Ok(vec![y]);
    }
    let sizes: Vec<Dim> = at.iter().filter_map(|&a| shape.get(a).cloned()).collect();
    let starts = starts.read(cx, &sizes, &steps, true)?;
    let ends = ends.read(cx, &sizes, &steps, false)?;
    let mut y = x;
    for (((&axis, start), end), &step) in at.iter().zip(starts).zip(ends).zip(&steps) {
        y = cx.range_of(y, axis, start, end, step)?;
    }
    Ok(vec![y])
}

/// A slice whose axes or steps only the run tells: a gather along each axis that may be meant.
fn taken(cx: &mut NodeCx<'_, '_>, x: ValueId, axes: Option<Axes>) -> Out {
    let shape = cx.shape(x)?.into_dims();
    let (mut starts, mut ends, mut steps) = (cx.input(1)?, cx.input(2)?, cx.opt(4)?);
    let n = cx.shape(starts)?.numel();
    for v in [Some(ends), steps].into_iter().flatten() {
        let m = cx.shape(v)?.numel();
        cx.require(Constraint::Eq(n.clone(), m), "as many starts as ends and steps")?;
    }
    let at: Vec<usize> = match axes {
        Some(Axes::Data(axes)) => {
            let m = cx.shape(axes)?.numel();
            cx.require(Constraint::Eq(n, m), "as many starts as axes")?;
            let named = Named::of(cx, axes, shape.len())?;
            let sizes = cx.b().from_dims(shape.clone())?;
            let (zero, one) = (cx.scalar_like(sizes, 0.0)?, cx.scalar_like(sizes, 1.0)?);
            (starts, ends) = (named.spread(cx, starts, zero)?, named.spread(cx, ends, sizes)?);
            steps = steps.map(|s| named.spread(cx, s, one)).transpose()?;
            (0..shape.len()).collect()
        }
        Some(Axes::Known(axes)) => axes.iter().map(|&a| cx.axis(x, a)).collect::<Result<_, _>>()?,
        None => {
            let n = n.as_const().and_then(|n| usize::try_from(n).ok()).filter(|&n| n <= shape.len());
            (0..n.ok_or_else(|| Failure::refused("the number of starts must be known, and at most that of axes"))?)
                .collect()
        }
    };
    let sizes: Vec<Dim> = at.iter().filter_map(|&a| shape.get(a).cloned()).collect();
    let sizes = cx.b().from_dims(sizes)?;
    let [starts, steps, counts] = walks(cx, [starts, ends], steps, sizes)?;
    let counts = cx.sizes(counts, "the sizes of the slice")?;
    if counts.len() != at.len() {
        return Err(Failure::refused(format!("{} starts for {} axes", counts.len(), at.len())));
    }
    let mut y = x;
    for (i, (axis, count)) in at.into_iter().zip(counts).enumerate() {
        let i = Dim::from(i as i64);
        let start = cx.range_of(starts, 0, i.clone(), &i + 1, 1)?;
        let step = cx.range_of(steps, 0, i.clone(), i + 1, 1)?;
        let b = cx.b();
        let t = b.iota(DType::I64, [count], 0)?;
        let t = b.mul(t, step)?;
        let t = b.add(t, start)?;
        y = b.gather(y, t, axis as i64)?;
    }
    Ok(vec![y])
}

/// First indices, steps, and numbers of elements of slices of axes of `sizes`: vectors of `i64`. A step of 0 has −1 elements, which is no
/// size: an error of the run.
fn walks(
    cx: &mut NodeCx<'_, '_>,
    [starts, ends]: [ValueId; 2],
    steps: Option<ValueId>,
    sizes: ValueId,
) -> Result<[ValueId; 3], Failure> {
    let (zero, one) = (cx.scalar_like(sizes, 0.0)?, cx.scalar_like(sizes, 1.0)?);
    let steps = match steps {
        Some(s) => cx.b().convert(s, DType::I64)?,
        None => {
            let dims = cx.shape(sizes)?.into_dims();
            cx.b().broadcast_to(one, dims)?
        }
    };
    let b = cx.b();
    // A step beyond the axis is as good as the longest on it.
    let most = b.add(sizes, one)?;
    let least = b.neg(most)?;
    let steps = b.clamp(steps, least, most)?;
    let down = b.lt(steps, zero)?;
    let last = b.sub(sizes, one)?;
    let hi = b.select(down, last, sizes)?;
    let minus = b.neg(one)?;
    let lo = b.select(down, minus, zero)?;
    // A descending slice does not start before the first element of an axis that has one.
    let first = b.minimum(zero, hi)?;
    let mut ends_of = [(starts, first), (ends, lo)];
    for (v, lo) in &mut ends_of {
        let x = b.convert(*v, DType::I64)?;
        let from_end = b.add(x, sizes)?;
        let negative = b.lt(x, zero)?;
        let x = b.select(negative, from_end, x)?;
        *v = b.clamp(x, *lo, hi)?;
    }
    let [(starts, _), (ends, _)] = ends_of;
    let (up, back) = (b.sub(ends, starts)?, b.sub(starts, ends)?);
    let span = b.select(down, back, up)?;
    let long = b.abs(steps)?;
    let round = b.add(span, long)?;
    let round = b.sub(round, one)?;
    let count = b.div(round, long)?;
    let count = b.maximum(count, zero)?;
    let none = b.eq(steps, zero)?;
    let count = b.select(none, minus, count)?;
    Ok([starts, steps, count])
}

/// Starts or ends of a slice.
enum Bounds {
    /// As dims, which may count from the end.
    Written(Vec<Dim>),
    /// As data.
    Data(ValueId),
}

fn slice_bounds(cx: &mut NodeCx<'_, '_>, i: usize, what: &str) -> Result<Bounds, Failure> {
    match cx.known_sizes_at(i, what)? {
        Some(known) => Ok(Bounds::Written(known)),
        None => cx.input(i).map(Bounds::Data),
    }
}

impl Bounds {
    fn len(&self, cx: &mut NodeCx<'_, '_>) -> Result<usize, Failure> {
        match self {
            Bounds::Written(v) => Ok(v.len()),
            Bounds::Data(v) => cx.length(*v, "starts and ends"),
        }
    }

    /// Starts or ends within their axes. Arithmetic brings them there before they become sizes, which cannot be negative.
    fn read(self, cx: &mut NodeCx<'_, '_>, sizes: &[Dim], steps: &[i64], starts: bool) -> Result<Vec<Dim>, Failure> {
        let v = match self {
            Bounds::Data(v) => cx.b().convert(v, DType::I64)?,
            Bounds::Written(elems) => cx.b().from_dims(elems)?,
        };
        let n = cx.b().from_dims(sizes.to_vec())?;
        // Positions of a descending slice lie between −1 and the last index; one is added on the way.
        let down: Vec<i64> = steps.iter().map(|&s| i64::from(s < 0)).collect();
        let shift = cx.ints_constant(&down)?;
        let zero = cx.scalar_like(v, 0.0)?;
        let b = cx.b();
        let negative = b.lt(v, zero)?;
        let from_end = b.add(v, n)?;
        let at = b.select(negative, from_end, v)?;
        // Clamped before the shift, which could overflow at the far ends. A descending slice does not start before the first element
        // of an axis that has one.
        let hi = b.sub(n, shift)?;
        let lo = if starts { b.minimum(zero, hi)? } else { b.neg(shift)? };
        let at = b.clamp(at, lo, hi)?;
        let at = b.add(at, shift)?;
        let what = if starts { "the starts" } else { "the ends" };
        Ok(cx.sizes(at, what)?.into_iter().zip(down).map(|(d, s)| d - s).collect())
    }
}

const PAD_MODES: &[(&str, PadMode)] =
    &[("constant", PadMode::Constant), ("edge", PadMode::Edge), ("reflect", PadMode::Reflect), ("wrap", PadMode::Wrap)];

fn pad(cx: &mut NodeCx<'_, '_>) -> Out {
    let version = cx.version;
    pad_as(cx, version)
}

/// [`pad`] as of a version of the standard operator set.
pub(super) fn pad_as(cx: &mut NodeCx<'_, '_>, version: i64) -> Out {
    let x = cx.input(0)?;
    let rank = cx.rank(x)?;
    let mode = cx.word("mode", "constant", PAD_MODES)?;
    let value = if mode != PadMode::Constant {
        None
    } else if version < 11 {
        let value = cx.float("value", 0.0)?;
        Some(cx.scalar_like(x, value)?)
    } else {
        cx.opt(2)?.map(|v| scalar(cx.b(), v)).transpose()?
    };
    let pads = if version < 11 {
        let pads = cx.opt_ints("pads")?.ok_or_else(|| Failure::refused("attribute `pads` is missing"))?;
        Some(pads.into_iter().map(Dim::from).collect())
    } else {
        cx.known_sizes_at(1, "the pads")?
    };
    let axes = if version < 18 { None } else { cx.axes_at(3, "the axes")? };
    let shape = cx.shape(x)?.into_dims();
    let (at, named) = match axes {
        None => ((0..rank).collect(), None),
        Some(Axes::Known(a)) => (a.iter().map(|&a| cx.axis(x, a)).collect::<Result<Vec<_>, _>>()?, None),
        Some(Axes::Data(axes)) => ((0..rank).collect(), Some(Named::of(cx, axes, rank)?)),
    };
    let pads = match (pads, &named) {
        (Some(known), None) => known,
        (known, named) => {
            let pads = match known {
                Some(known) => cx.b().from_dims(known)?,
                None => cx.input(1)?,
            };
            let sizes = at.iter().filter_map(|&a: &usize| shape.get(a).cloned()).collect();
            borders(cx, pads, sizes, named.as_ref())?
        }
    };
    if pads.len() != 2 * at.len() {
        return Err(Failure::refused(format!("{} pads for {} axes; two for each are needed", pads.len(), at.len())));
    }
    let (mut low, mut high) = (vec![Dim::ZERO; rank], vec![Dim::ZERO; rank]);
    let (before, after) = pads.split_at(at.len());
    for ((&a, l), h) in at.iter().zip(before).zip(after) {
        (low[a], high[a]) = (l.clone(), h.clone());
    }
    Ok(vec![cx.b().pad(x, value, low, high, mode)?])
}

/// Pads of axes of these sizes that only the run tells: what stands before each axis, then after each. Sizes that are read cannot be negative, so
/// what is added before and what is cropped there are read apart, and so is how long the axis becomes, from which the other end follows.
fn borders(
    cx: &mut NodeCx<'_, '_>,
    pads: ValueId,
    sizes: Vec<Dim>,
    named: Option<&Named>,
) -> Result<Vec<Dim>, Failure> {
    let pads = cx.b().convert(pads, DType::I64)?;
    let zero = cx.scalar_like(pads, 0.0)?;
    let n = cx.shape(pads)?.numel();
    let half = n.floor_div(2);
    let axes = match named {
        Some(named) => named.names(cx)?,
        None => Dim::from(sizes.len() as i64),
    };
    cx.require(Constraint::Eq(n.clone(), axes * 2), "two pads for each axis")?;
    let mut low = cx.range_of(pads, 0, Dim::ZERO, half.clone(), 1)?;
    let mut high = cx.range_of(pads, 0, half, n, 1)?;
    if let Some(named) = named {
        (low, high) = (named.spread(cx, low, zero)?, named.spread(cx, high, zero)?);
    }
    let from = cx.b().from_dims(sizes.clone())?;
    let b = cx.b();
    let added = b.maximum(low, zero)?;
    let cropped = b.neg(low)?;
    let cropped = b.maximum(cropped, zero)?;
    let long = b.add(from, low)?;
    let long = b.add(long, high)?;
    let all = b.concat(&[added, cropped, long], 0)?;
    let read = cx.sizes(all, "the pads and the sizes that they give")?;
    let [added, cropped, long] = [0, 1, 2].map(|i| read.iter().skip(i * sizes.len()).take(sizes.len()));
    let low: Vec<Dim> = added.zip(cropped).map(|(a, c)| a - c).collect();
    let high = long.zip(&sizes).zip(&low).map(|((to, from), low)| to - from - low);
    Ok(low.iter().cloned().chain(high).collect())
}

fn center_crop_pad(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let shape = cx.shape(x)?;
    let to = cx.sizes_at(1, "the sizes")?;
    let axes = match cx.opt_ints("axes")? {
        Some(a) => a.iter().map(|&a| cx.axis(x, a)).collect::<Result<Vec<_>, _>>()?,
        None => (0..shape.rank()).collect(),
    };
    if to.len() != axes.len() {
        return Err(Failure::refused(format!("{} sizes for {} axes", to.len(), axes.len())));
    }
    let (mut low, mut high) = (vec![Dim::ZERO; shape.rank()], vec![Dim::ZERO; shape.rank()]);
    let mut cropped = x;
    for (&a, t) in axes.iter().zip(&to) {
        let d = &shape[a];
        // The half that is rounded down stands before, whether it is cropped or added.
        let start = (d - t).max(Dim::ZERO).floor_div(2);
        let kept = d.min(t);
        cropped = cx.range_of(cropped, a, start.clone(), start + &kept, 1)?;
        let missing = t - &kept;
        low[a] = missing.floor_div(2);
        high[a] = &missing - &low[a];
    }
    Ok(vec![cx.b().pad(cropped, None, low, high, PadMode::Constant)?])
}
