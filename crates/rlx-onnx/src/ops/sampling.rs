//! Reading between the points of a grid: sampling at computed places, regions of interest, deformable convolution.
//!
//! A place on an axis becomes taps: indices with weights. A result is the sum over all combinations of taps of the axes, each read
//! by one gather of whole rows of channels.

use rlx_ir::ops::reduction::ReduceKind;
use rlx_ir::{DType, Dim, Shape, ValueId};

use super::context::{Failure, NodeCx, Out};
use super::convolution::per_axis;
use super::sizes::product;
use super::{OpEntry, op};

pub(super) const OPS: &[OpEntry] = &[
    op("AffineGrid", 20, affine_grid),
    op("GridSample", 16, grid_sample),
    op("RoiAlign", 10, roi_align),
    op("DeformConv", 19, deform_conv),
    op("MaxRoiPool", 1, max_roi_pool),
];

/// How places between points are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Nearest,
    Linear,
    Cubic,
}

/// What stands outside the grid.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outside {
    Zeros,
    Border,
    /// Mirrored at the centres of the outer points, or at their edges.
    Reflection {
        centres: bool,
    },
}

/// Combinations of taps that are written out: cubic on four axes.
const MOST_TAPS: usize = 256;

/// One tap of every place: its index on the axis, and its weight.
type Tap = (ValueId, ValueId);

/// Images as rows of channels: `[images · points, channels]`, in a float dtype.
struct Rows {
    rows: ValueId,
    /// Points of each axis.
    sizes: Vec<Dim>,
    /// Points of an image.
    points: Dim,
}

fn float_for(d: DType) -> DType {
    if d == DType::F64 { DType::F64 } else { DType::F32 }
}

impl Rows {
    /// Of `[images, channels, sizes…]`.
    fn of(cx: &mut NodeCx<'_, '_>, x: ValueId, wide: DType) -> Result<Rows, Failure> {
        let shape = cx.shape(x)?;
        let [images, channels, sizes @ ..] = shape.dims() else {
            return Err(Failure::refused(format!("the operand must have axes [N, C, …], got {shape}")));
        };
        let x = cx.b().convert(x, wide)?;
        let points = product(sizes);
        let flat = cx.b().reshape(x, [images.clone(), channels.clone(), points.clone()])?;
        let last = cx.b().transpose(flat, &[0, 2, 1])?;
        let rows = cx.b().reshape(last, [images * &points, channels.clone()])?;
        Ok(Rows { rows, sizes: sizes.to_vec(), points })
    }

    /// The weighted values of combinations of taps, `[…, channels]` each. `image` has the image of every place and broadcasts to
    /// the taps.
    fn values(&self, cx: &mut NodeCx<'_, '_>, taps: &[Vec<Tap>], image: ValueId) -> Result<Vec<ValueId>, Failure> {
        let combinations = taps.iter().fold(1usize, |n, t| n.saturating_mul(t.len()));
        if combinations > MOST_TAPS {
            return Err(Failure::unsupported(format!("{combinations} points around each place")));
        }
        let points = cx.b().from_dim(self.points.clone())?;
        let start = cx.b().mul(image, points)?;
        let mut all: Vec<(ValueId, Option<ValueId>)> = vec![(start, None)];
        for (axis, taps) in taps.iter().enumerate() {
            let step = product(self.sizes.get(axis + 1..).unwrap_or_default());
            let step = cx.b().from_dim(step)?;
            let mut next = Vec::new();
            for &(at, weight) in &all {
                for &(index, w) in taps {
                    let offset = cx.b().mul(index, step)?;
                    let at = cx.b().add(at, offset)?;
                    let weight = match weight {
                        Some(v) => cx.b().mul(v, w)?,
                        None => w,
                    };
                    next.push((at, Some(weight)));
                }
            }
            all = next;
        }
        let mut out = Vec::new();
        for (at, weight) in all {
            let mut v = cx.b().gather(self.rows, at, 0)?;
            if let Some(w) = weight {
                let w = cx.b().expand_dims(w, &[-1])?;
                v = cx.b().mul(v, w)?;
            }
            out.push(v);
        }
        Ok(out)
    }

    fn sum(&self, cx: &mut NodeCx<'_, '_>, taps: &[Vec<Tap>], image: ValueId) -> Result<ValueId, Failure> {
        let values = self.values(cx, taps, image)?;
        fold(cx, &values, |cx, a, b| Ok(cx.b().add(a, b)?))
    }
}

fn fold(
    cx: &mut NodeCx<'_, '_>,
    values: &[ValueId],
    f: impl Fn(&mut NodeCx<'_, '_>, ValueId, ValueId) -> Result<ValueId, Failure>,
) -> Result<ValueId, Failure> {
    let (&first, rest) = values.split_first().ok_or_else(|| Failure::refused("there is nothing to sample"))?;
    rest.iter().try_fold(first, |a, &b| f(cx, a, b))
}

/// A place mirrored into the range from `lo` to `hi`.
fn reflect(cx: &mut NodeCx<'_, '_>, x: ValueId, lo: ValueId, hi: ValueId) -> Result<ValueId, Failure> {
    let zero = cx.scalar_like(x, 0.0)?;
    let b = cx.b();
    let span = b.sub(hi, lo)?;
    let period = b.add(span, span)?;
    let t = b.sub(x, lo)?;
    let t = b.abs(t)?;
    let turns = b.div(t, period)?;
    let turns = b.floor(turns)?;
    let whole = b.mul(turns, period)?;
    let t = b.sub(t, whole)?;
    let back = b.sub(period, t)?;
    let over = b.gt(t, span)?;
    let t = b.select(over, back, t)?;
    // A range without an extent has one place.
    let none = b.eq(span, zero)?;
    let t = b.select(none, zero, t)?;
    Ok(b.add(lo, t)?)
}

/// The range in which an axis of a size is not outside.
fn extent(cx: &mut NodeCx<'_, '_>, size: ValueId, centres: bool) -> Result<(ValueId, ValueId), Failure> {
    let (lo, hi) = if centres { (0.0, -1.0) } else { (-0.5, -0.5) };
    Ok((cx.scalar_like(size, lo)?, cx.plus(size, hi)?))
}

/// The taps of places on an axis of a size. `centres` says where the grid's range ends, for places outside it.
fn taps(
    cx: &mut NodeCx<'_, '_>,
    x: ValueId,
    size: &Dim,
    mode: Mode,
    outside: Outside,
    centres: bool,
) -> Result<Vec<Tap>, Failure> {
    let dtype = cx.dtype(x)?;
    let n = cx.dim_as(size.clone(), dtype)?;
    let (zero, last) = (cx.scalar_like(x, 0.0)?, cx.plus(n, -1.0)?);
    let mut x = if mode == Mode::Nearest { cx.b().round_even(x)? } else { x };
    let (lo, hi) = extent(cx, n, centres)?;
    if outside != Outside::Zeros {
        let inside = cx.between(x, lo, hi)?;
        let moved = match outside {
            Outside::Reflection { .. } => reflect(cx, x, lo, hi)?,
            _ => cx.b().clamp(x, zero, last)?,
        };
        x = cx.b().select(inside, x, moved)?;
    }
    let base = if mode == Mode::Nearest { x } else { cx.b().floor(x)? };
    let t = cx.b().sub(x, base)?;
    let weights = match mode {
        Mode::Nearest => vec![(0.0, cx.scalar_like(x, 1.0)?)],
        Mode::Linear => {
            let rest = cx.b().neg(t)?;
            vec![(0.0, cx.plus(rest, 1.0)?), (1.0, t)]
        }
        Mode::Cubic => {
            let back = cx.b().neg(t)?;
            let (before, after) = (cx.plus(t, 1.0)?, cx.plus(back, 1.0)?);
            let far = cx.plus(after, 1.0)?;
            vec![(-1.0, outer(cx, before)?), (0.0, inner(cx, t)?), (1.0, inner(cx, after)?), (2.0, outer(cx, far)?)]
        }
    };
    let mut out = Vec::new();
    for (offset, mut weight) in weights {
        let mut at = if offset == 0.0 { base } else { cx.plus(base, offset)? };
        match outside {
            Outside::Zeros => {
                let inside = cx.between(at, zero, last)?;
                weight = cx.b().select(inside, weight, zero)?;
            }
            Outside::Border => {}
            Outside::Reflection { .. } => {
                let inside = cx.between(at, zero, last)?;
                let moved = reflect(cx, at, lo, hi)?;
                at = cx.b().select(inside, at, moved)?;
            }
        }
        out.push((index_of(cx, at, zero, last)?, weight));
    }
    Ok(out)
}

/// A place that is an integer, as an index that lies within the axis whatever the place.
fn index_of(cx: &mut NodeCx<'_, '_>, at: ValueId, zero: ValueId, last: ValueId) -> Result<ValueId, Failure> {
    let b = cx.b();
    let at = b.clamp(at, zero, last)?;
    let at = b.convert(at, DType::I64)?;
    let none = b.scalar(DType::I64, 0.0)?;
    Ok(b.maximum(at, none)?)
}

/// The cubic kernel with a = −3/4 from 0 to 1.
fn inner(cx: &mut NodeCx<'_, '_>, t: ValueId) -> Result<ValueId, Failure> {
    let y = cx.times(t, 1.25)?;
    let y = cx.plus(y, -2.25)?;
    let y = cx.b().mul(y, t)?;
    let y = cx.b().mul(y, t)?;
    cx.plus(y, 1.0)
}

/// The cubic kernel with a = −3/4 from 1 to 2.
fn outer(cx: &mut NodeCx<'_, '_>, t: ValueId) -> Result<ValueId, Failure> {
    let y = cx.times(t, -0.75)?;
    let y = cx.plus(y, 3.75)?;
    let y = cx.b().mul(y, t)?;
    let y = cx.plus(y, -6.0)?;
    let y = cx.b().mul(y, t)?;
    cx.plus(y, 3.0)
}

/// `[N, P…, C]` as `[N, C, sizes…]`.
fn channels_first(cx: &mut NodeCx<'_, '_>, y: ValueId, sizes: &[Dim]) -> Result<ValueId, Failure> {
    let shape = cx.shape(y)?;
    let (Some(n), Some(c)) = (shape.first().cloned(), shape.last().cloned()) else { return Ok(y) };
    let y = cx.b().reshape(y, [n.clone(), product(sizes), c.clone()])?;
    let y = cx.b().transpose(y, &[0, 2, 1])?;
    Ok(cx.b().reshape(y, [n, c].into_iter().chain(sizes.iter().cloned()))?)
}

/// Numbers of images along the first axis of `rank`.
fn images(cx: &mut NodeCx<'_, '_>, n: Dim, rank: usize) -> Result<ValueId, Failure> {
    let v = cx.b().iota(DType::I64, [n], 0)?;
    cx.along(v, 0, rank)
}

fn affine_grid(cx: &mut NodeCx<'_, '_>) -> Out {
    let theta = cx.input(0)?;
    let size = cx.sizes_at(1, "the size of the grid")?;
    let centres = cx.flag("align_corners", false)?;
    let [n, _, sizes @ ..] = &size[..] else { return Err(Failure::refused("the size must be [N, C, …]")) };
    let (rank, dtype) = (sizes.len(), cx.dtype(theta)?);
    let mut grid = Vec::new();
    for (axis, d) in sizes.iter().enumerate().rev() {
        let t = cx.b().iota(dtype, [d.clone()], 0)?;
        let count = cx.dim_as(d.clone(), dtype)?;
        let x = if centres {
            // One point stands at −1.
            let (one, steps) = (cx.scalar_like(count, 1.0)?, cx.plus(count, -1.0)?);
            let steps = cx.b().maximum(steps, one)?;
            let t = cx.times(t, 2.0)?;
            cx.b().div(t, steps)?
        } else {
            let t = cx.times(t, 2.0)?;
            let t = cx.plus(t, 1.0)?;
            cx.b().div(t, count)?
        };
        let x = cx.plus(x, -1.0)?;
        let x = cx.along(x, axis, rank)?;
        let x = cx.b().broadcast_to(x, sizes.to_vec())?;
        grid.push(cx.b().reshape(x, [Dim::ONE, product(sizes)])?);
    }
    let one = cx.b().scalar(dtype, 1.0)?;
    grid.push(cx.b().broadcast_to(one, [Dim::ONE, product(sizes)])?);
    let grid = cx.b().concat(&grid, 0)?;
    let y = cx.b().matmul(theta, grid)?;
    let y = cx.b().transpose(y, &[0, 2, 1])?;
    let dims = [n.clone()].into_iter().chain(sizes.iter().cloned()).chain([Dim::from(rank as i64)]);
    Ok(vec![cx.b().reshape(y, dims)?])
}

pub(super) fn grid_sample(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, grid) = (cx.input(0)?, cx.input(1)?);
    let centres = cx.flag("align_corners", false)?;
    let modes = [
        ("nearest", Mode::Nearest),
        ("linear", Mode::Linear),
        ("bilinear", Mode::Linear),
        ("cubic", Mode::Cubic),
        ("bicubic", Mode::Cubic),
    ];
    let mode = cx.word("mode", "linear", &modes)?;
    let outside =
        [("zeros", Outside::Zeros), ("border", Outside::Border), ("reflection", Outside::Reflection { centres })];
    let outside = cx.word("padding_mode", "zeros", &outside)?;
    let dtype = cx.dtype(x)?;
    let wide = float_for(dtype);
    let (xs, gs) = (cx.shape(x)?, cx.shape(grid)?);
    let axes = xs.rank().saturating_sub(2);
    if gs.rank() != xs.rank() || gs.last().and_then(Dim::as_const) != Some(axes as i64) {
        return Err(Failure::refused(format!("the grid {gs} does not name places of the operand {xs}")));
    }
    let places = gs.get(1..=axes).unwrap_or_default().to_vec();
    let grid = cx.b().convert(grid, wide)?;
    let grid = cx.b().reshape(grid, [gs[0].clone(), product(&places), Dim::from(axes as i64)])?;
    let rows = Rows::of(cx, x, wide)?;
    let mut all = Vec::new();
    for (axis, size) in rows.sizes.clone().iter().enumerate() {
        // The last axis comes first in the grid.
        let k = (axes - 1 - axis) as i64;
        let v = cx.range_of(grid, 2, Dim::from(k), Dim::from(k + 1), 1)?;
        let v = cx.b().squeeze(v, &[2])?;
        let n = cx.dim_as(size.clone(), wide)?;
        let v = cx.plus(v, 1.0)?;
        let v = if centres {
            let last = cx.plus(n, -1.0)?;
            let v = cx.b().mul(v, last)?;
            cx.times(v, 0.5)?
        } else {
            let v = cx.b().mul(v, n)?;
            let v = cx.plus(v, -1.0)?;
            cx.times(v, 0.5)?
        };
        all.push(taps(cx, v, size, mode, outside, centres)?);
    }
    let image = images(cx, xs[0].clone(), 2)?;
    let y = rows.sum(cx, &all, image)?;
    let y = channels_first(cx, y, &places)?;
    Ok(vec![cx.b().convert(y, dtype)?])
}

/// Places of one axis of all regions: `[regions, out · samples]`, which of them count, and how many a bin has.
struct Places {
    at: ValueId,
    counted: Option<ValueId>,
    count: ValueId,
    samples: Dim,
}

/// Samples in the bins of regions from `start`, of extent `size`, on one axis; `ratio` 0 takes as many as a bin is long.
fn places(cx: &mut NodeCx<'_, '_>, start: ValueId, size: ValueId, out: i64, ratio: i64) -> Result<Places, Failure> {
    let dtype = cx.dtype(size)?;
    let bin = cx.times(size, 1.0 / out as f64)?;
    let (count, samples) = if ratio > 0 {
        (cx.scalar_like(size, ratio as f64)?, Dim::from(ratio))
    } else {
        let (zero, one) = (cx.scalar_like(size, 0.0)?, cx.b().constant(rlx_ir::Tensor::from_slice(&[1], &[0i64])?)?);
        let b = cx.b();
        let long = b.ceil(bin)?;
        let long = b.maximum(long, zero)?;
        // Without regions there is no longest one.
        let all = b.convert(long, DType::I64)?;
        let all = b.concat(&[all, one], 0)?;
        let most = b.reduce(all, ReduceKind::Max, &[0], false)?;
        let most = b.reshape(most, [1i64])?;
        let most = cx.sizes(most, "the number of samples")?;
        let most = most.into_iter().next().ok_or_else(|| Failure::refused("no number of samples"))?;
        (long, most)
    };
    let column = |cx: &mut NodeCx<'_, '_>, v: ValueId| -> Result<ValueId, Failure> {
        if cx.rank(v)? == 0 { Ok(v) } else { Ok(cx.b().expand_dims(v, &[1, 2])?) }
    };
    let (bin, start, each) = (column(cx, bin)?, column(cx, start)?, column(cx, count)?);
    let p = cx.b().iota(dtype, [Dim::ONE, Dim::from(out), Dim::ONE], 1)?;
    let i = cx.b().iota(dtype, [Dim::ONE, Dim::ONE, samples.clone()], 2)?;
    let counted = if ratio > 0 { None } else { Some(cx.b().lt(i, each)?) };
    let i = cx.plus(i, 0.5)?;
    let b = cx.b();
    let within = b.mul(i, bin)?;
    let within = b.div(within, each)?;
    let at = b.mul(p, bin)?;
    let at = b.add(at, within)?;
    Ok(Places { at: b.add(at, start)?, counted, count, samples })
}

/// The two taps of places on an axis, none for places beyond a point outside of it.
fn roi_taps(cx: &mut NodeCx<'_, '_>, p: &Places, size: &Dim) -> Result<Vec<Tap>, Failure> {
    let dtype = cx.dtype(p.at)?;
    let n = cx.dim_as(size.clone(), dtype)?;
    let (zero, last) = (cx.scalar_like(n, 0.0)?, cx.plus(n, -1.0)?);
    let edge = cx.scalar_like(n, -1.0)?;
    let mut inside = cx.between(p.at, edge, n)?;
    if let Some(counted) = p.counted {
        inside = cx.b().and(inside, counted)?;
    }
    let at = cx.b().clamp(p.at, zero, last)?;
    let base = cx.b().floor(at)?;
    let t = cx.b().sub(at, base)?;
    let rest = cx.b().neg(t)?;
    let rest = cx.plus(rest, 1.0)?;
    let next = cx.plus(base, 1.0)?;
    let mut out = Vec::new();
    for (at, w) in [(base, rest), (next, t)] {
        let w = cx.b().select(inside, w, zero)?;
        out.push((index_of(cx, at, zero, last)?, w));
    }
    Ok(out)
}

fn roi_align(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, rois, batch) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let max = cx.word("mode", "avg", &[("avg", false), ("max", true)])?;
    let (height, width) = (cx.int("output_height", 1)?, cx.int("output_width", 1)?);
    let ratio = cx.int("sampling_ratio", 0)?;
    let scale = cx.float("spatial_scale", 1.0)?;
    let default = if cx.version < 16 { "output_half_pixel" } else { "half_pixel" };
    let words = [("half_pixel", true), ("output_half_pixel", false)];
    let half = cx.word("coordinate_transformation_mode", default, &words)?;
    let (xs, rs) = (cx.shape(x)?, cx.shape(rois)?);
    if xs.rank() != 4 || rs.rank() != 2 || height < 1 || width < 1 || ratio < 0 {
        return Err(Failure::refused(format!("the operand {xs} must have 4 axes, the regions {rs} 2, sizes be ≥ 1")));
    }
    let dtype = cx.dtype(x)?;
    let wide = float_for(dtype);
    let rows = Rows::of(cx, x, wide)?;
    let rois = cx.b().convert(rois, wide)?;
    let rois = cx.times(rois, scale)?;
    let rois = cx.plus(rois, if half { -0.5 } else { 0.0 })?;
    let corner = |cx: &mut NodeCx<'_, '_>, k: i64| -> Result<ValueId, Failure> {
        let v = cx.range_of(rois, 1, Dim::from(k), Dim::from(k + 1), 1)?;
        Ok(cx.b().squeeze(v, &[1])?)
    };
    let mut along = Vec::new();
    for (k, out) in [(1, height), (0, width)] {
        let (start, end) = (corner(cx, k)?, corner(cx, k + 2)?);
        let mut size = cx.b().sub(end, start)?;
        if !half {
            let one = cx.scalar_like(size, 1.0)?;
            size = cx.b().maximum(size, one)?;
        }
        along.push(places(cx, start, size, out, ratio)?);
    }
    let [v, h] = &along[..] else { return Err(Failure::refused("takes two axes")) };
    // Axes: region, row, sample, column, sample.
    let spread = |cx: &mut NodeCx<'_, '_>, taps: Vec<Tap>, axes: [i64; 2]| -> Result<Vec<Tap>, Failure> {
        taps.into_iter().map(|(i, w)| Ok((cx.b().expand_dims(i, &axes)?, cx.b().expand_dims(w, &axes)?))).collect()
    };
    let (down, right) = (roi_taps(cx, v, &rows.sizes[0])?, roi_taps(cx, h, &rows.sizes[1])?);
    let (down, right) = (spread(cx, down, [3, 4])?, spread(cx, right, [1, 2])?);
    let image = cx.b().convert(batch, DType::I64)?;
    let image = cx.along(image, 0, 5)?;
    let values = rows.values(cx, &[down, right], image)?;
    let y = if max {
        let y = fold(cx, &values, |cx, a, b| Ok(cx.b().maximum(a, b)?))?;
        let y = match (v.counted, h.counted) {
            // What is no sample must not be the largest.
            (Some(a), Some(b)) => {
                let (a, b) = (cx.b().expand_dims(a, &[3, 4])?, cx.b().expand_dims(b, &[1, 2])?);
                let counts = cx.b().and(a, b)?;
                let counts = cx.b().expand_dims(counts, &[-1])?;
                let least = cx.scalar_like(y, f64::NEG_INFINITY)?;
                cx.b().select(counts, y, least)?
            }
            _ => y,
        };
        let y = cx.b().reduce(y, ReduceKind::Max, &[2, 4], false)?;
        // A bin without samples gives 0.
        let (least, zero) = (cx.scalar_like(y, f64::NEG_INFINITY)?, cx.scalar_like(y, 0.0)?);
        let none = cx.b().eq(y, least)?;
        if ratio > 0 { y } else { cx.b().select(none, zero, y)? }
    } else {
        let y = fold(cx, &values, |cx, a, b| Ok(cx.b().add(a, b)?))?;
        let y = cx.b().reduce(y, ReduceKind::Sum, &[2, 4], false)?;
        let n = cx.b().mul(v.count, h.count)?;
        let one = cx.scalar_like(n, 1.0)?;
        let n = cx.b().maximum(n, one)?;
        let n = if cx.rank(n)? == 0 { n } else { cx.along(n, 0, 4)? };
        cx.b().div(y, n)?
    };
    debug_assert!(v.samples == h.samples || ratio == 0);
    let y = channels_first(cx, y, &[Dim::from(height), Dim::from(width)])?;
    Ok(vec![cx.b().convert(y, dtype)?])
}

fn deform_conv(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, w, offset) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let (bias, mask) = (cx.opt(3)?, cx.opt(4)?);
    cx.ignore(&["kernel_shape"]);
    let (groups, offset_groups) = (cx.int("group", 1)?, cx.int("offset_group", 1)?);
    let (xs, ws, os) = (cx.shape(x)?, cx.shape(w)?, cx.shape(offset)?);
    let axes = xs.rank().saturating_sub(2);
    if axes < 1 || ws.rank() != axes + 2 || os.rank() != axes + 2 || groups < 1 || offset_groups < 1 {
        return Err(Failure::refused(format!("operand {xs}, kernel {ws} and offsets {os} do not fit together")));
    }
    let (strides, dilations) = (per_axis(cx, "strides", axes, 1)?, per_axis(cx, "dilations", axes, 1)?);
    let pads = per_axis(cx, "pads", 2 * axes, 0)?;
    let dtype = cx.dtype(x)?;
    let wide = float_for(dtype);
    let (kernel, out) = (ws.dims()[2..].to_vec(), os.dims()[2..].to_vec());
    let (n, channels, filters) = (xs[0].clone(), xs[1].clone(), ws[0].clone());
    let (g, og) = (Dim::from(groups), Dim::from(offset_groups));
    // Each group of offsets is a group of images of its own: [N · og, C / og, sizes…].
    let each = channels.floor_div(offset_groups);
    let grouped: Vec<Dim> = [&n * &og, each.clone()].into_iter().chain(xs.dims()[2..].iter().cloned()).collect();
    let grouped = cx.b().reshape(x, grouped)?;
    let rows = Rows::of(cx, grouped, wide)?;
    // Offsets [N · og, taps…, axis, out…] on axes: image, taps…, out….
    let rank = 1 + 2 * axes;
    let split =
        [&n * &og].into_iter().chain(kernel.iter().cloned()).chain([Dim::from(axes as i64)]).chain(out.iter().cloned());
    let offset = cx.b().convert(offset, wide)?;
    let offset = cx.b().reshape(offset, split)?;
    let mut all = Vec::new();
    for axis in 0..axes {
        let part = cx.range_of(offset, 1 + axes, Dim::from(axis as i64), Dim::from(axis as i64 + 1), 1)?;
        let part = cx.b().squeeze(part, &[1 + axes as i64])?;
        let tap = cx.b().iota(wide, [kernel[axis].clone()], 0)?;
        let tap = cx.times(tap, dilations[axis] as f64)?;
        let tap = cx.along(tap, 1 + axis, rank)?;
        let at = cx.b().iota(wide, [out[axis].clone()], 0)?;
        let at = cx.times(at, strides[axis] as f64)?;
        let at = cx.plus(at, -(pads[axis] as f64))?;
        let at = cx.along(at, 1 + axes + axis, rank)?;
        let at = cx.b().add(at, tap)?;
        let at = cx.b().add(at, part)?;
        all.push(taps(cx, at, &rows.sizes[axis], Mode::Linear, Outside::Zeros, true)?);
    }
    let image = images(cx, &n * &og, rank)?;
    let mut y = rows.sum(cx, &all, image)?;
    if let Some(mask) = mask {
        let dims: Shape = [&n * &og].into_iter().chain(kernel.iter().cloned()).chain(out.iter().cloned()).collect();
        let mask = cx.b().convert(mask, wide)?;
        let mask = cx.b().reshape(mask, dims.into_dims())?;
        let mask = cx.b().expand_dims(mask, &[-1])?;
        y = cx.b().mul(y, mask)?;
    }
    // [N, og, taps, places, C / og] to [N, G, C / G · taps, places].
    let (k, p) = (product(&kernel), product(&out));
    let y = cx.b().reshape(y, [n.clone(), og, k.clone(), p.clone(), each])?;
    let y = cx.b().transpose(y, &[0, 1, 4, 2, 3])?;
    let width = channels.floor_div(groups) * &k;
    let y = cx.b().reshape(y, [n.clone(), g.clone(), width.clone(), p.clone()])?;
    let w = cx.b().convert(w, wide)?;
    let w = cx.b().reshape(w, [Dim::ONE, g, filters.floor_div(groups), width])?;
    let y = cx.b().matmul(w, y)?;
    let dims = [n, filters].into_iter().chain(out);
    let mut y = cx.b().reshape(y, dims)?;
    if let Some(bias) = bias {
        let bias = cx.b().convert(bias, wide)?;
        let bias = cx.along(bias, 1, axes + 2)?;
        y = cx.b().add(y, bias)?;
    }
    Ok(vec![cx.b().convert(y, dtype)?])
}

/// Which of `size` points lie in each of `out` bins of a range `[start, end]` of whole points: `[regions, out, size]`.
fn bins(cx: &mut NodeCx<'_, '_>, start: ValueId, end: ValueId, size: &Dim, out: i64) -> Result<ValueId, Failure> {
    let dtype = cx.dtype(start)?;
    let one = cx.scalar_like(start, 1.0)?;
    let extent = cx.b().sub(end, start)?;
    let extent = cx.plus(extent, 1.0)?;
    let extent = cx.b().maximum(extent, one)?;
    let bin = cx.times(extent, 1.0 / out as f64)?;
    let (bin, start) = (cx.b().expand_dims(bin, &[1, 2])?, cx.b().expand_dims(start, &[1, 2])?);
    let k = cx.b().iota(dtype, [Dim::ONE, Dim::from(out), Dim::ONE], 1)?;
    let next = cx.plus(k, 1.0)?;
    let b = cx.b();
    let (lo, hi) = (b.mul(k, bin)?, b.mul(next, bin)?);
    let (lo, hi) = (b.floor(lo)?, b.ceil(hi)?);
    let (lo, hi) = (b.add(lo, start)?, b.add(hi, start)?);
    let at = b.iota(dtype, [Dim::ONE, Dim::ONE, size.clone()], 2)?;
    let (after, before) = (b.ge(at, lo)?, b.lt(at, hi)?);
    Ok(b.and(after, before)?)
}

/// The largest value in each bin of regions `[image, x1, y1, x2, y2]` of whole points; 0 of an empty bin.
fn max_roi_pool(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, rois) = (cx.input(0)?, cx.input(1)?);
    let out = cx.opt_ints("pooled_shape")?.unwrap_or_default();
    let scale = cx.float("spatial_scale", 1.0)?;
    let (xs, rs) = (cx.shape(x)?, cx.shape(rois)?);
    let &[height, width] = &out[..] else {
        return Err(Failure::refused(format!("attribute `pooled_shape` must have two entries, got {out:?}")));
    };
    if xs.rank() != 4 || rs.rank() != 2 || height < 1 || width < 1 {
        return Err(Failure::refused(format!("the operand {xs} must have 4 axes, the regions {rs} 2, sizes be ≥ 1")));
    }
    let dtype = cx.dtype(x)?;
    let mut columns = Vec::new();
    for k in 0..5 {
        let v = cx.range_of(rois, 1, Dim::from(k), Dim::from(k + 1), 1)?;
        columns.push(cx.b().squeeze(v, &[1])?);
    }
    let image = cx.b().convert(columns[0], DType::I64)?;
    // Corners are rounded, halves away from zero.
    for v in &mut columns[1..] {
        let scaled = cx.times(*v, scale)?;
        let (size, sign) = (cx.b().abs(scaled)?, cx.b().sign(scaled)?);
        let size = cx.plus(size, 0.5)?;
        let whole = cx.b().floor(size)?;
        *v = cx.b().mul(whole, sign)?;
    }
    let rows = bins(cx, columns[2], columns[4], &xs[2], height)?;
    let across = bins(cx, columns[1], columns[3], &xs[3], width)?;
    let least = cx.b().scalar(dtype, f64::NEG_INFINITY)?;
    // [regions, channels, height, width], first along rows of points, then down.
    let picked = cx.b().gather(x, image, 0)?;
    let wide = cx.b().expand_dims(picked, &[3])?;
    let across = cx.b().expand_dims(across, &[1, 2])?;
    let line = cx.b().select(across, wide, least)?;
    let line = cx.b().reduce(line, ReduceKind::Max, &[4], false)?;
    let tall = cx.b().expand_dims(line, &[2])?;
    let rows = cx.b().expand_dims(rows, &[1, 4])?;
    let y = cx.b().select(rows, tall, least)?;
    let y = cx.b().reduce(y, ReduceKind::Max, &[3], false)?;
    let (none, zero) = (cx.b().eq(y, least)?, cx.scalar_like(y, 0.0)?);
    Ok(vec![cx.b().select(none, zero, y)?])
}
