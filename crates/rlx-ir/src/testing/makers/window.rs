//! Convolutions, pooling, running folds, borders, resizing.

use super::{computes, steady};
use crate::attr::FloatBits;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::ops::contraction::{Conv, ConvTranspose};
use crate::ops::neural::{CoordMode, NearestMode, Resize, ResizeMode};
use crate::ops::reduction::{CumKind, Cumulative, MaxPoolIndices, ReduceWindow, WindowKind};
use crate::ops::shape::{Pad, PadMode};
use crate::ops::signal::Fft;
use crate::testing::data::BOUND;
use crate::testing::generate::{Gen, Known, Plan};

pub(super) fn cumulative(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|k| !k.dims.is_empty()).filter(|k| computes(g, k))?;
    let axis = g.rng.below(x.dims.len());
    let rounds = x.dtype.is_float() || x.dtype.is_complex();
    let tame = g.options.tame && rounds;
    let list: &[CumKind] = if tame { &[CumKind::Sum, CumKind::Max, CumKind::Min] } else { CumKind::ALL };
    let kind = *g.rng.pick(list)?;
    let (exclusive, reverse) = (g.rng.chance(40), g.rng.chance(40));
    // The largest of nothing is infinite.
    if tame && exclusive && kind != CumKind::Sum {
        return None;
    }
    let sums = matches!(kind, CumKind::Sum | CumKind::Prod);
    let bound = if sums { x.bound * x.sizes[axis] as f64 } else { x.bound };
    Some(Plan {
        op: Cumulative { kind, axis, exclusive, reverse }.into(),
        operands: vec![x],
        exact: !sums || !rounds,
        bound,
    })
}

pub(super) fn fft(g: &mut Gen<'_>) -> Option<Plan> {
    let dtype = g.dtype(|d| d.is_float() && d.bits() >= 16)?;
    let ((a, x), (b, y)) = (g.dim(), g.dim());
    let (parts, axis) = (1 + g.rng.below(2), g.rng.below(2));
    if 2 * x * y * parts > g.options.max_elems {
        return None;
    }
    let operand = g.source(dtype, vec![a, b, Dim::from(parts)], vec![x, y, parts])?;
    let length = 1 + g.rng.below(14);
    if 2 * length * [y, x][axis] > g.options.max_elems {
        return None;
    }
    let (inverse, onesided) = (g.rng.chance(50), g.rng.chance(50));
    let bound = 2.0 * operand.bound * length as f64;
    Some(Plan {
        op: Fft { axis, length: Dim::from(length), inverse, onesided }.into(),
        operands: vec![operand],
        exact: false,
        bound,
    })
}

/// Attributes of a window over some axes.
struct Window {
    taps: Vec<i64>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    low: Vec<Dim>,
    high: Vec<Dim>,
}

/// A window that fits into padded axes of these sizes.
fn window(g: &mut Gen<'_>, sizes: &[usize]) -> Option<Window> {
    let mut w = Window { taps: vec![], strides: vec![], dilations: vec![], low: vec![], high: vec![] };
    for &n in sizes {
        let taps = 1 + g.rng.below(3) as i64;
        let dilation = [1, 1, 2][g.rng.below(3)];
        let reach = (taps - 1) * dilation + 1;
        let (low, high) = (g.rng.below(reach as usize) as i64, g.rng.below(reach as usize) as i64);
        let crop = -i64::from(n > 6 && g.rng.chance(10));
        if n as i64 + low + high + crop < reach {
            return None;
        }
        w.taps.push(taps);
        w.strides.push([1, 1, 2, 3][g.rng.below(4)]);
        w.dilations.push(dilation);
        w.low.push(Dim::from(low + crop));
        w.high.push(Dim::from(high));
    }
    Some(w)
}

pub(super) fn reduce_window(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|k| !k.dims.is_empty()).filter(|k| computes(g, k))?;
    let axes = 1 + g.rng.below(x.sizes.len().min(3));
    let w = window(g, &x.sizes[x.sizes.len() - axes..])?;
    let kind = *g.rng.pick(WindowKind::ALL)?;
    let (count_include_pad, ceil) = (g.rng.chance(50), g.rng.chance(40));
    let taps = w.taps.iter().product::<i64>() as f64;
    // A window of nothing but padding has an infinite maximum.
    let padded = w.low.iter().chain(&w.high).any(|d| *d != Dim::ZERO) || ceil;
    if g.options.tame && x.dtype.is_float() && kind == WindowKind::Max && padded && x.sizes.contains(&0) {
        return None;
    }
    let exact = kind == WindowKind::Max || !x.dtype.is_float() && !x.dtype.is_complex();
    let bound = if kind == WindowKind::Sum { x.bound * taps } else { x.bound };
    let op = ReduceWindow {
        kind,
        window: w.taps,
        strides: w.strides,
        dilations: w.dilations,
        pad_low: w.low,
        pad_high: w.high,
        count_include_pad,
        ceil,
    };
    Some(Plan { op: op.into(), operands: vec![x], exact, bound })
}

pub(super) fn max_pool_with_indices(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|k| !k.dims.is_empty() && !k.sizes.contains(&0)).filter(|k| steady(g, k))?;
    let axes = 1 + g.rng.below(x.sizes.len().min(3));
    let w = window(g, &x.sizes[x.sizes.len() - axes..])?;
    let op = MaxPoolIndices {
        window: w.taps,
        strides: w.strides,
        dilations: w.dilations,
        pad_low: w.low,
        pad_high: w.high,
        ceil: g.rng.chance(40),
        column_major: g.rng.chance(30),
    };
    Some(Plan::moves(op, vec![x]))
}

/// An image of `[n, groups · c, spatial…]`, often new, and its groups.
fn image(g: &mut Gen<'_>) -> Option<(Known, usize)> {
    if g.rng.chance(40) {
        let x = g.pick(|k| k.dims.len() >= 3 && k.dims[1].is_const() && k.sizes[1] > 0).filter(|k| computes(g, k))?;
        let c = x.sizes[1];
        let list: Vec<usize> = (1..=c).filter(|n| c.is_multiple_of(*n)).collect();
        let groups = *g.rng.pick(&list)?;
        return Some((x, groups));
    }
    let tame = g.options.tame;
    let dtype = g.dtype(|d| d.is_int() || d.is_float() && (!tame || d.bits() >= 16))?;
    let spatial = 1 + g.rng.below(3);
    let groups = [1, 1, 2, 3, 8][g.rng.below(5)];
    let c = groups * [1, 1, 2, 3, 8][g.rng.below(5)];
    let (n, batch) = g.dim();
    let (mut dims, mut sizes) = (vec![n, Dim::from(c)], vec![batch, c]);
    for _ in 0..spatial {
        let (d, n) = g.dim();
        dims.push(d);
        sizes.push(n);
    }
    if sizes.iter().product::<usize>() > g.options.max_elems {
        return None;
    }
    Some((g.source(dtype, dims, sizes)?, groups))
}

/// Operands of a convolution: image, weights of these sizes, and a bias sometimes.
fn weighted(g: &mut Gen<'_>, x: Known, w: Vec<usize>, outputs: usize) -> Option<(Vec<Known>, bool)> {
    if w.iter().product::<usize>() > g.options.max_elems {
        return None;
    }
    let dtype = x.dtype;
    let weights = g.source(dtype, w.iter().map(|&n| Dim::from(n)).collect(), w)?;
    let mut operands = vec![x, weights];
    let has_bias = g.rng.chance(50);
    if has_bias {
        operands.push(g.source(dtype, vec![Dim::from(outputs)], vec![outputs])?);
    }
    Some((operands, has_bias))
}

pub(super) fn conv(g: &mut Gen<'_>) -> Option<Plan> {
    let (x, groups) = image(g)?;
    let w = window(g, &x.sizes[2..])?;
    let per = [1, 1, 2, 5, 8][g.rng.below(5)];
    let terms = (x.sizes[1] / groups) as f64 * w.taps.iter().product::<i64>() as f64;
    let (bound, exact) = (BOUND * (x.bound * terms + 1.0), !x.dtype.is_float());
    let mut sizes = vec![groups * per, x.sizes[1] / groups];
    sizes.extend(w.taps.iter().map(|&t| t as usize));
    let (operands, has_bias) = weighted(g, x, sizes, groups * per)?;
    let lhs_dilation = w.taps.iter().map(|_| if g.rng.chance(10) { 2 } else { 1 }).collect();
    let op = Conv {
        strides: w.strides,
        dilations: w.dilations,
        pad_low: w.low,
        pad_high: w.high,
        lhs_dilation,
        groups: groups as i64,
        has_bias,
    };
    Some(Plan { op: op.into(), operands, exact, bound })
}

pub(super) fn conv_transpose(g: &mut Gen<'_>) -> Option<Plan> {
    let (x, groups) = image(g)?;
    let w = window(g, &x.sizes[2..])?;
    let per = [1, 1, 2, 5][g.rng.below(4)];
    let terms = (x.sizes[1] / groups) as f64 * w.taps.iter().product::<i64>() as f64;
    let (bound, exact) = (BOUND * (x.bound * terms + 1.0), !x.dtype.is_float());
    let mut sizes = vec![x.sizes[1], per];
    sizes.extend(w.taps.iter().map(|&t| t as usize));
    let (operands, has_bias) = weighted(g, x, sizes, groups * per)?;
    let output_pad = w.strides.iter().map(|&s| g.rng.below(s as usize) as i64).collect();
    let op = ConvTranspose {
        strides: w.strides,
        dilations: w.dilations,
        pad_low: w.low,
        pad_high: w.high,
        output_pad,
        groups: groups as i64,
        has_bias,
    };
    Some(Plan { op: op.into(), operands, exact, bound })
}

/// Padding that repeats elements; a mirror is at most as deep as the axis.
pub(super) fn border(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|k| !k.dims.is_empty() && !k.sizes.contains(&0))?;
    let mode = [PadMode::Edge, PadMode::Reflect, PadMode::Wrap][g.rng.below(3)];
    let mut ends = |n: usize| {
        let most = if mode == PadMode::Reflect { n - 1 } else { n };
        Dim::from(g.rng.below(most.min(3) + 1) as i64 - i64::from(n > 6) * 2)
    };
    let low = x.sizes.iter().map(|&n| ends(n)).collect();
    let high = x.sizes.iter().map(|&n| ends(n)).collect();
    Some(Plan::moves(Pad { low, high, mode }, vec![x]))
}

pub(super) fn resize(g: &mut Gen<'_>) -> Option<Plan> {
    let fits = |k: &Known| (1..=4).contains(&k.dims.len()) && !k.sizes.contains(&0) && k.dtype.is_float();
    let x = g.pick(fits).filter(|k| computes(g, k) && k.dtype != DType::F64)?;
    let mut sizes = x.dims.clone();
    for _ in 0..1 + g.rng.below(2) {
        let a = g.rng.below(sizes.len());
        sizes[a] = Dim::from([1, 2, 3, 5, 2 * x.sizes[a], 3 * x.sizes[a]][g.rng.below(6)]);
    }
    let mode = *g.rng.pick(ResizeMode::ALL)?;
    let coords = *g.rng.pick(&[
        CoordMode::HalfPixel,
        CoordMode::HalfPixelSymmetric,
        CoordMode::PytorchHalfPixel,
        CoordMode::AlignCorners,
        CoordMode::Asymmetric,
    ])?;
    let op = Resize {
        scales: vec![None; sizes.len()],
        mode,
        coords,
        nearest: *g.rng.pick(NearestMode::ALL)?,
        cubic_a: FloatBits::new(if g.rng.chance(50) { -0.75 } else { -0.5 }),
        exclude_outside: g.rng.chance(20),
        antialias: mode != ResizeMode::Nearest && g.rng.chance(20),
        roi_start: vec![],
        roi_end: vec![],
        extrapolation: FloatBits::new(0.0),
        sizes,
    };
    // Cubic weights sum to 1 with some below 0, on each of up to four axes.
    let bound = x.bound * 4.0;
    Some(Plan { op: op.into(), operands: vec![x], exact: mode == ResizeMode::Nearest, bound })
}
