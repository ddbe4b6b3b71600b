//! Resampling of images.

use rlx_ir::attr::FloatBits;
use rlx_ir::ops::neural::{CoordMode, NearestMode, Resize, ResizeMode};
use rlx_ir::{DType, Dim, ValueId};

use super::context::{Failure, NodeCx, Out};
use super::resample::{self, Axis};
use super::{OpEntry, old, op};

pub(super) const OPS: &[OpEntry] = &[old("Upsample", 7, 9, upsample), op("Resize", 10, resize)];

const MODES: &[(&str, ResizeMode)] = &[
    ("nearest", ResizeMode::Nearest),
    ("linear", ResizeMode::Linear),
    ("bilinear", ResizeMode::Linear),
    ("cubic", ResizeMode::Cubic),
];

const COORDS: &[(&str, CoordMode)] = &[
    ("half_pixel", CoordMode::HalfPixel),
    ("half_pixel_symmetric", CoordMode::HalfPixelSymmetric),
    ("pytorch_half_pixel", CoordMode::PytorchHalfPixel),
    ("align_corners", CoordMode::AlignCorners),
    ("asymmetric", CoordMode::Asymmetric),
    ("tf_crop_and_resize", CoordMode::TfCropAndResize),
];

const NEAREST: &[(&str, NearestMode)] = &[
    ("round_prefer_floor", NearestMode::RoundPreferFloor),
    ("round_prefer_ceil", NearestMode::RoundPreferCeil),
    ("floor", NearestMode::Floor),
    ("ceil", NearestMode::Ceil),
];

/// A resize of all axes; sizes and scales are to be filled in.
fn plain(mode: ResizeMode, coords: CoordMode, nearest: NearestMode, rank: usize) -> Resize {
    Resize {
        sizes: Vec::new(),
        scales: vec![None; rank],
        mode,
        coords,
        nearest,
        cubic_a: (-0.75).into(),
        exclude_outside: false,
        antialias: false,
        roi_start: Vec::new(),
        roi_end: Vec::new(),
        extrapolation: 0.0.into(),
    }
}

/// A size times a scale, rounded down; `None` if that is no expression in the size.
fn scaled(size: &Dim, scale: f64) -> Option<Dim> {
    if let Some(n) = size.as_const() {
        return Some(Dim::from((n as f64 * scale).floor() as i64));
    }
    // A scale is a ratio of small integers, or nothing is known of the size.
    (1..=64i64).find_map(|d| {
        let n = scale * d as f64;
        ((n - n.round()).abs() < 1e-6 * n.max(1.0)).then(|| (size * (n.round() as i64)).floor_div(d))
    })
}

/// What says how large the result is.
enum Target {
    /// Scales that are known, and that give sizes which are expressions in those of the operand.
    Scales(Vec<f64>, Vec<Dim>),
    /// Scales as data: a vector of f64.
    Data(ValueId),
    /// Sizes.
    Sizes,
}

/// Scales that are operand `i`; `None` if there are no such.
fn target(cx: &mut NodeCx<'_, '_>, i: usize, shape: &[Dim], axes: &[usize]) -> Result<Option<Target>, Failure> {
    let data = match cx.known_floats_at(i, "the scales")? {
        Some(scales) if scales.is_empty() => return Ok(None),
        Some(scales) => {
            if scales.len() != axes.len() {
                return Err(Failure::refused(format!("{} scales for {} axes", scales.len(), axes.len())));
            }
            if let Some(s) = scales.iter().find(|&&s| !(s > 0.0 && s.is_finite())) {
                return Err(Failure::refused(format!("scale {s} must be positive")));
            }
            let sizes = axes.iter().zip(&scales).map(|(&a, &s)| scaled(&shape[a], s)).collect::<Option<Vec<_>>>();
            if let Some(sizes) = sizes {
                return Ok(Some(Target::Scales(scales, sizes)));
            }
            let t = rlx_ir::Tensor::from_slice(&[scales.len()], &scales)?;
            cx.b().constant(t)?
        }
        None => {
            let v = cx.input(i)?;
            let n = cx.shape(v)?.numel();
            if n != axes.len() as i64 {
                return Err(Failure::refused(format!("{n} scales for {} axes", axes.len())));
            }
            let v = cx.b().reshape(v, [n])?;
            cx.b().convert(v, DType::F64)?
        }
    };
    Ok(Some(Target::Data(data)))
}

fn upsample(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let shape = cx.shape(x)?.into_dims();
    let mode = cx.word("mode", "nearest", MODES)?;
    if cx.version >= 9 {
        return asymmetric(cx, x, shape, mode, 1);
    }
    let scales = cx.opt_floats("scales")?.ok_or_else(|| Failure::refused("attribute `scales` is missing"))?;
    if scales.len() != shape.len() {
        return Err(Failure::refused(format!("{} scales for {} axes", scales.len(), shape.len())));
    }
    let t = rlx_ir::Tensor::from_slice(&[scales.len()], &scales)?;
    let mut op = plain(mode, CoordMode::Asymmetric, NearestMode::Floor, shape.len());
    let axes: Vec<usize> = (0..shape.len()).collect();
    let sizes = axes.iter().zip(&scales).map(|(&a, &s)| scaled(&shape[a], s)).collect::<Option<Vec<_>>>();
    match sizes {
        Some(sizes) if scales.iter().all(|&s| s > 0.0 && s.is_finite()) => {
            with_scales(&shape, &axes, &scales, sizes, &mut op);
            Ok(vec![cx.b().resize(op, x)?])
        }
        _ => {
            let scales = cx.b().constant(t)?;
            by_scales(cx, x, &op, &shape, &axes, Data { scales, region: None, simple: false })
        }
    }
}

fn asymmetric(cx: &mut NodeCx<'_, '_>, x: ValueId, shape: Vec<Dim>, mode: ResizeMode, scales: usize) -> Out {
    let axes: Vec<usize> = (0..shape.len()).collect();
    let mut op = plain(mode, CoordMode::Asymmetric, NearestMode::Floor, axes.len());
    match target(cx, scales, &shape, &axes)? {
        Some(Target::Scales(scales, sizes)) => {
            with_scales(&shape, &axes, &scales, sizes, &mut op);
            if mode != ResizeMode::Nearest || cx.version < 10 || scales.iter().all(|&s| s >= 1.0) {
                return Ok(vec![cx.b().resize(op, x)?]);
            }
            // What shrinks takes the element after the place, what grows the one before.
            let mut shrunk = Resize { nearest: NearestMode::Ceil, ..op.clone() };
            for (a, &s) in scales.iter().enumerate() {
                if s >= 1.0 {
                    (shrunk.sizes[a], shrunk.scales[a]) = (shape[a].clone(), None);
                } else {
                    op.scales[a] = None;
                }
            }
            let y = cx.b().resize(shrunk, x)?;
            Ok(vec![cx.b().resize(op, y)?])
        }
        Some(Target::Data(scales)) => {
            by_scales(cx, x, &op, &shape, &axes, Data { scales, region: None, simple: cx.version >= 10 })
        }
        _ => Err(Failure::refused("the scales are missing")),
    }
}

/// What of a resampling is data.
struct Data {
    /// Scales of the axes.
    scales: ValueId,
    /// The region of interest.
    region: Option<ValueId>,
    /// See [`Axis::simple`].
    simple: bool,
}

fn with_scales(shape: &[Dim], axes: &[usize], scales: &[f64], sizes: Vec<Dim>, op: &mut Resize) {
    op.sizes = shape.to_vec();
    for ((&a, &s), size) in axes.iter().zip(scales).zip(sizes) {
        (op.sizes[a], op.scales[a]) = (size, Some(FloatBits::from(s)));
    }
}

/// Resampling along axes with scales that are data, and a region that may be.
fn by_scales(
    cx: &mut NodeCx<'_, '_>,
    x: ValueId,
    op: &Resize,
    shape: &[Dim],
    axes: &[usize],
    Data { scales, region, simple }: Data,
) -> Out {
    let sizes = axes.iter().map(|&a| shape[a].clone()).collect();
    let sizes = resample::scaled_sizes(cx, sizes, scales)?;
    let mut all = Vec::new();
    for (i, (&axis, size)) in axes.iter().zip(sizes).enumerate() {
        let scale = resample::element(cx, scales, i)?;
        all.push(Axis { axis, size, scale, simple, region: region_of(cx, region, i, axes.len())? });
    }
    Ok(vec![resample::resample(cx, x, op, all)?])
}

/// Start and end of the region on axis `i` of `n`.
fn region_of(
    cx: &mut NodeCx<'_, '_>,
    region: Option<ValueId>,
    i: usize,
    n: usize,
) -> Result<Option<[ValueId; 2]>, Failure> {
    let Some(region) = region else { return Ok(None) };
    Ok(Some([resample::element(cx, region, i)?, resample::element(cx, region, i + n)?]))
}

/// The region of interest as a vector of f64, start of all axes and then ends.
fn region(cx: &mut NodeCx<'_, '_>, axes: usize) -> Result<ValueId, Failure> {
    let v = cx.input(1)?;
    let n = cx.shape(v)?.numel();
    if n != 2 * axes as i64 {
        return Err(Failure::refused(format!("{n} numbers for a region of {axes} axes")));
    }
    let v = cx.b().reshape(v, [n])?;
    Ok(cx.b().convert(v, DType::F64)?)
}

fn resize(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let shape = cx.shape(x)?.into_dims();
    let mode = cx.word("mode", "nearest", MODES)?;
    if cx.version < 11 {
        return asymmetric(cx, x, shape, mode, 1);
    }
    let mut nearest = cx.word("nearest_mode", "round_prefer_floor", NEAREST)?;
    let coords = if cx.string("coordinate_transformation_mode", "half_pixel")? == "tf_half_pixel_for_nn" {
        // Its coordinate is that of half_pixel plus a half: rounding that down is rounding the other.
        if nearest != NearestMode::Floor {
            return Err(Failure::unsupported("tf_half_pixel_for_nn with a nearest_mode that is not floor"));
        }
        nearest = NearestMode::RoundPreferCeil;
        CoordMode::HalfPixel
    } else {
        cx.word("coordinate_transformation_mode", "half_pixel", COORDS)?
    };
    let mut op = plain(mode, coords, nearest, shape.len());
    op.cubic_a = cx.float("cubic_coeff_a", -0.75)?.into();
    op.exclude_outside = cx.flag("exclude_outside", false)?;
    op.antialias = cx.flag("antialias", false)?;
    op.extrapolation = cx.float("extrapolation_value", 0.0)?.into();
    let policy = cx.word(
        "keep_aspect_ratio_policy",
        "stretch",
        &[("stretch", Keep::Not), ("not_larger", Keep::NotLarger), ("not_smaller", Keep::NotSmaller)],
    )?;
    let axes = match cx.opt_ints("axes")? {
        Some(a) => a.iter().map(|&a| cx.axis(x, a)).collect::<Result<Vec<_>, _>>()?,
        None => (0..shape.len()).collect(),
    };
    let scales = if cx.has(2) { target(cx, 2, &shape, &axes)? } else { None };
    let crop = coords == CoordMode::TfCropAndResize;
    // What of the region is data makes the whole be computed.
    let known_region = if crop { cx.known_floats_at(1, "the region of interest")? } else { None };
    let region = if crop { Some(region(cx, axes.len())?) } else { None };
    let free = crop && known_region.is_none();
    if let Some(roi) = known_region {
        let (mut start, mut end) = (vec![FloatBits::from(0.0); shape.len()], vec![FloatBits::from(1.0); shape.len()]);
        let (starts, ends) = roi.split_at(axes.len());
        for ((&a, &s), &e) in axes.iter().zip(starts).zip(ends) {
            (start[a], end[a]) = (s.into(), e.into());
        }
        (op.roi_start, op.roi_end) = (start, end);
    }
    match scales.unwrap_or(Target::Sizes) {
        Target::Scales(scales, sizes) if !free => {
            with_scales(&shape, &axes, &scales, sizes, &mut op);
            Ok(vec![cx.b().resize(op, x)?])
        }
        Target::Scales(scales, _) => {
            let scales = cx.b().constant(rlx_ir::Tensor::from_slice(&[scales.len()], &scales)?)?;
            by_scales(cx, x, &op, &shape, &axes, Data { scales, region, simple: false })
        }
        Target::Data(scales) => by_scales(cx, x, &op, &shape, &axes, Data { scales, region, simple: false }),
        Target::Sizes if !cx.has(3) => Err(Failure::refused("neither scales nor sizes are given")),
        Target::Sizes => {
            let sizes = with_sizes(cx, &shape, &axes, policy, &mut op)?;
            let (sizes, scale) = match sizes {
                Sizes::Known if !free => return Ok(vec![cx.b().resize(op, x)?]),
                Sizes::Known => (axes.iter().map(|&a| op.sizes[a].clone()).collect(), None),
                Sizes::Data(sizes, scale) => (sizes, Some(scale)),
            };
            let mut all = Vec::new();
            for (i, (&axis, size)) in axes.iter().zip(sizes).enumerate() {
                let scale = match scale {
                    Some(s) => s,
                    None => {
                        let to = cx.dim_as(size.clone(), DType::F64)?;
                        let from = cx.dim_as(shape[axis].clone(), DType::F64)?;
                        cx.b().div(to, from)?
                    }
                };
                all.push(Axis { axis, size, scale, simple: false, region: region_of(cx, region, i, axes.len())? });
            }
            Ok(vec![resample::resample(cx, x, &op, all)?])
        }
    }
}

/// Whether the ratio of sizes is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Not,
    NotLarger,
    NotSmaller,
}

/// Sizes that are asked for.
enum Sizes {
    /// They stand in the op.
    Known,
    /// Sizes that the run tells, and the scale of all axes.
    Data(Vec<Dim>, ValueId),
}

fn with_sizes(
    cx: &mut NodeCx<'_, '_>,
    shape: &[Dim],
    axes: &[usize],
    keep: Keep,
    op: &mut Resize,
) -> Result<Sizes, Failure> {
    let fits = |n: usize| match n == axes.len() {
        true => Ok(()),
        false => Err(Failure::refused(format!("{n} sizes for {} axes", axes.len()))),
    };
    op.sizes = shape.to_vec();
    if keep == Keep::Not {
        let sizes = cx.sizes_at(3, "the sizes")?;
        fits(sizes.len())?;
        for (&a, s) in axes.iter().zip(sizes) {
            op.sizes[a] = s;
        }
        return Ok(Sizes::Known);
    }
    let from: Vec<Dim> = axes.iter().map(|&a| shape[a].clone()).collect();
    let known = cx.known_sizes_at(3, "the sizes")?;
    let ratios = known.as_ref().and_then(|sizes| {
        let ratio = |(n, s): (&Dim, &Dim)| Some(s.as_const()? as f64 / n.as_const()? as f64);
        from.iter().zip(sizes).map(ratio).collect::<Option<Vec<_>>>()
    });
    let Some(ratios) = ratios else {
        let asked = cx.input(3)?;
        fits(cx.length(asked, "the sizes")?)?;
        let (sizes, scale) = resample::alike(cx, from, asked, keep == Keep::NotSmaller)?;
        return Ok(Sizes::Data(sizes, scale));
    };
    fits(known.map_or(0, |k| k.len()))?;
    let pick = if keep == Keep::NotLarger { f64::min } else { f64::max };
    let scale = ratios.into_iter().reduce(pick).unwrap_or(1.0);
    for &a in axes {
        let n = shape[a].as_const().unwrap_or(0) as f64;
        op.sizes[a] = Dim::from((n * scale).round() as i64);
        op.scales[a] = Some(scale.into());
    }
    Ok(Sizes::Known)
}
