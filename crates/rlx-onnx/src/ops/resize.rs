//! Resampling of images.

use rlx_ir::attr::FloatBits;
use rlx_ir::ops::neural::{CoordMode, NearestMode, Resize, ResizeMode};
use rlx_ir::{Dim, ValueId};

use super::context::{Failure, NodeCx, Out};
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

/// A size times a scale, rounded down.
fn scaled(size: &Dim, scale: f64) -> Result<Dim, Failure> {
    if let Some(n) = size.as_const() {
        return Ok(Dim::from((n as f64 * scale).floor() as i64));
    }
    // A scale is a ratio of small integers, or nothing is known of the size.
    for d in 1..=64i64 {
        let n = scale * d as f64;
        if (n - n.round()).abs() < 1e-6 * n.max(1.0) {
            return Ok((size * (n.round() as i64)).floor_div(d));
        }
    }
    Err(Failure::refused(format!(
        "the size {size} is not known when the model is compiled, and the scale {scale} is no ratio of small integers"
    )))
}

fn with_scales(shape: &[Dim], axes: &[usize], scales: &[f64], op: &mut Resize) -> Result<(), Failure> {
    op.sizes = shape.to_vec();
    for (&a, &s) in axes.iter().zip(scales) {
        if !(s > 0.0 && s.is_finite()) {
            return Err(Failure::refused(format!("scale {s} must be positive")));
        }
        op.sizes[a] = scaled(&shape[a], s)?;
        op.scales[a] = Some(FloatBits::from(s));
    }
    Ok(())
}

fn upsample(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let shape = cx.shape(x)?.into_dims();
    let mode = cx.word("mode", "nearest", MODES)?;
    let scales = if cx.version < 9 {
        cx.opt_floats("scales")?.ok_or_else(|| Failure::refused("attribute `scales` is missing"))?
    } else {
        cx.floats_at(1, "the scales")?
    };
    asymmetric(cx, x, &shape, mode, &scales)
}

fn asymmetric(cx: &mut NodeCx<'_, '_>, x: ValueId, shape: &[Dim], mode: ResizeMode, scales: &[f64]) -> Out {
    let axes: Vec<usize> = (0..shape.len()).collect();
    if scales.len() != axes.len() {
        return Err(Failure::refused(format!("{} scales for {} axes", scales.len(), axes.len())));
    }
    let mut op = plain(mode, CoordMode::Asymmetric, NearestMode::Floor, axes.len());
    with_scales(shape, &axes, scales, &mut op)?;
    Ok(vec![cx.b().resize(op, x)?])
}

fn resize(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let shape = cx.shape(x)?.into_dims();
    let mode = cx.word("mode", "nearest", MODES)?;
    if cx.version < 11 {
        let scales = cx.floats_at(1, "the scales")?;
        return asymmetric(cx, x, &shape, mode, &scales);
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
    let scales = match cx.has(2) {
        true => Some(cx.floats_at(2, "the scales")?).filter(|s| !s.is_empty()),
        false => None,
    };
    match scales {
        Some(s) if s.len() == axes.len() => with_scales(&shape, &axes, &s, &mut op)?,
        Some(s) => return Err(Failure::refused(format!("{} scales for {} axes", s.len(), axes.len()))),
        None if cx.has(3) => with_sizes(cx, &shape, &axes, policy, &mut op)?,
        None => return Err(Failure::refused("neither scales nor sizes are given")),
    }
    if coords == CoordMode::TfCropAndResize {
        let roi = cx.floats_at(1, "the region of interest")?;
        if roi.len() != 2 * axes.len() {
            return Err(Failure::refused(format!("{} numbers for a region of {} axes", roi.len(), axes.len())));
        }
        let (mut start, mut end) = (vec![FloatBits::from(0.0); shape.len()], vec![FloatBits::from(1.0); shape.len()]);
        for (i, &a) in axes.iter().enumerate() {
            (start[a], end[a]) = (roi[i].into(), roi[i + axes.len()].into());
        }
        (op.roi_start, op.roi_end) = (start, end);
    }
    Ok(vec![cx.b().resize(op, x)?])
}

/// Whether the ratio of sizes is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Not,
    NotLarger,
    NotSmaller,
}

fn with_sizes(
    cx: &mut NodeCx<'_, '_>,
    shape: &[Dim],
    axes: &[usize],
    keep: Keep,
    op: &mut Resize,
) -> Result<(), Failure> {
    let sizes = cx.sizes_at(3, "the sizes")?;
    if sizes.len() != axes.len() {
        return Err(Failure::refused(format!("{} sizes for {} axes", sizes.len(), axes.len())));
    }
    op.sizes = shape.to_vec();
    if keep == Keep::Not {
        for (&a, s) in axes.iter().zip(sizes) {
            op.sizes[a] = s;
        }
        return Ok(());
    }
    let ratio = |(&a, s): (&usize, &Dim)| Some(s.as_const()? as f64 / shape[a].as_const()? as f64);
    let ratios = axes.iter().zip(&sizes).map(ratio).collect::<Option<Vec<_>>>();
    let ratios = ratios.ok_or_else(|| {
        Failure::refused("with keep_aspect_ratio_policy, sizes must be known when the model is compiled")
    })?;
    let pick = if keep == Keep::NotLarger { f64::min } else { f64::max };
    let scale = ratios.into_iter().reduce(pick).unwrap_or(1.0);
    for &a in axes {
        let n = shape[a].as_const().unwrap_or(0) as f64;
        op.sizes[a] = Dim::from((n * scale).round() as i64);
        op.scales[a] = Some(scale.into());
    }
    Ok(())
}
