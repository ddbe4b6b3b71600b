//! Convolution and its transpose.

use rlx_ir::dim::Constraint;
use rlx_ir::ops::indexing::Combiner;
use rlx_ir::{DType, Dim, ValueId};

use super::context::{Failure, NodeCx, Out};
use super::sizes::product;
use super::{OpEntry, op};

pub(super) const OPS: &[OpEntry] = &[
    op("Conv", 1, conv),
    op("ConvInteger", 10, conv_integer),
    op("ConvTranspose", 1, conv_transpose),
    op("Col2Im", 18, col2im),
];

/// How a window moves over spatial axes.
pub(super) struct Window {
    pub strides: Vec<i64>,
    pub dilations: Vec<i64>,
    pub low: Vec<Dim>,
    pub high: Vec<Dim>,
}

/// What pads are to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AutoPad {
    Given,
    SameUpper,
    SameLower,
    Valid,
}

pub(super) const AUTO_PAD: &[(&str, AutoPad)] = &[
    ("NOTSET", AutoPad::Given),
    ("SAME_UPPER", AutoPad::SameUpper),
    ("SAME_LOWER", AutoPad::SameLower),
    ("VALID", AutoPad::Valid),
];

/// An attribute with one integer for each spatial axis.
pub(super) fn per_axis(cx: &NodeCx<'_, '_>, name: &'static str, n: usize, default: i64) -> Result<Vec<i64>, Failure> {
    match cx.opt_ints(name)? {
        None => Ok(vec![default; n]),
        Some(v) if v.len() == n => Ok(v),
        Some(v) => Err(Failure::refused(format!("attribute `{name}` has {} entries for {n} spatial axes", v.len()))),
    }
}

/// Padding of `total` in two halves; the odd element stands at the end (upper) or start (lower).
fn halves(total: Dim, upper: bool) -> (Dim, Dim) {
    let small = total.floor_div(2);
    let large = total - &small;
    if upper { (small, large) } else { (large, small) }
}

/// The window of a node over an operand with two leading axes; `kernel` has its taps.
pub(super) fn window(cx: &mut NodeCx<'_, '_>, x: ValueId, kernel: &[Dim]) -> Result<Window, Failure> {
    let n = kernel.len();
    let shape = cx.shape(x)?;
    if shape.rank() != n + 2 {
        return Err(Failure::refused(format!("the operand must have axes [N, C] and {n} spatial ones, got {shape}")));
    }
    let strides = per_axis(cx, "strides", n, 1)?;
    let dilations = per_axis(cx, "dilations", n, 1)?;
    if strides.iter().chain(&dilations).any(|&s| s < 1) {
        return Err(Failure::refused(format!("strides {strides:?} and dilations {dilations:?} must be ≥ 1")));
    }
    let auto = cx.word("auto_pad", "NOTSET", AUTO_PAD)?;
    let pads = per_axis(cx, "pads", 2 * n, 0)?;
    let (mut low, mut high) = (Vec::with_capacity(n), Vec::with_capacity(n));
    for i in 0..n {
        let (l, h) = match auto {
            AutoPad::Given => (Dim::from(pads[i]), Dim::from(pads[i + n])),
            AutoPad::Valid => (Dim::ZERO, Dim::ZERO),
            AutoPad::SameUpper | AutoPad::SameLower => {
                let size = &shape[i + 2];
                let extent = (&kernel[i] - 1) * dilations[i] + 1;
                let total = (size.ceil_div(strides[i]) - 1) * strides[i] + extent - size;
                halves(total.max(Dim::ZERO), auto == AutoPad::SameUpper)
            }
        };
        low.push(l);
        high.push(h);
    }
    Ok(Window { strides, dilations, low, high })
}

/// The taps of a kernel operand `[O, C, taps…]`, compared with the attribute if that is given.
pub(super) fn kernel_of(cx: &mut NodeCx<'_, '_>, w: ValueId) -> Result<Vec<Dim>, Failure> {
    let shape = cx.shape(w)?;
    let taps = shape
        .get(2..)
        .map(<[Dim]>::to_vec)
        .ok_or_else(|| Failure::refused(format!("the kernel must have three axes or more, got {shape}")))?;
    if let Some(said) = cx.opt_ints("kernel_shape")? {
        let fits =
            said.len() == taps.len() && taps.iter().zip(&said).all(|(t, &s)| t.known_eq(&Dim::from(s)) != Some(false));
        if !fits {
            return Err(Failure::refused(format!("attribute `kernel_shape` is {said:?}, the kernel is {shape}")));
        }
    }
    Ok(taps)
}

pub(super) fn conv(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    Ok(vec![conv_of(cx, x)?])
}

/// [`conv`] of a value in the place of operand 0.
pub(super) fn conv_of(cx: &mut NodeCx<'_, '_>, x: ValueId) -> Result<ValueId, Failure> {
    let (w, bias) = (cx.input(1)?, cx.opt(2)?);
    let kernel = kernel_of(cx, w)?;
    let win = window(cx, x, &kernel)?;
    let groups = cx.int("group", 1)?;
    Ok(cx.b().conv(x, w, bias, &win.strides, &win.dilations, &win.low, &win.high, groups)?)
}

fn conv_integer(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, w) = (cx.input(0)?, cx.input(1)?);
    let kernel = kernel_of(cx, w)?;
    let win = window(cx, x, &kernel)?;
    let groups = cx.int("group", 1)?;
    let x = less_zero_point(cx, x, 2, false)?;
    let w = less_zero_point(cx, w, 3, true)?;
    Ok(vec![cx.b().conv(x, w, None, &win.strides, &win.dilations, &win.low, &win.high, groups)?])
}

/// An integer operand in `i32` less its zero point; that of the kernel may have one element for each output channel.
fn less_zero_point(cx: &mut NodeCx<'_, '_>, x: ValueId, i: usize, channels: bool) -> Result<ValueId, Failure> {
    let rank = cx.rank(x)?;
    let x = cx.b().convert(x, DType::I32)?;
    let Some(z) = cx.opt(i)? else { return Ok(x) };
    let mut z = cx.b().convert(z, DType::I32)?;
    if channels && cx.rank(z)? == 1 {
        z = cx.along(z, 0, rank)?;
    }
    Ok(cx.b().sub(x, z)?)
}

fn conv_transpose(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, w, bias) = (cx.input(0)?, cx.input(1)?, cx.opt(2)?);
    let kernel = kernel_of(cx, w)?;
    let n = kernel.len();
    let shape = cx.shape(x)?;
    if shape.rank() != n + 2 {
        return Err(Failure::refused(format!("the operand {shape} does not fit a kernel of {n} spatial axes")));
    }
    let strides = per_axis(cx, "strides", n, 1)?;
    let dilations = per_axis(cx, "dilations", n, 1)?;
    let output_pad = per_axis(cx, "output_padding", n, 0)?;
    let pads = per_axis(cx, "pads", 2 * n, 0)?;
    let auto = cx.word("auto_pad", "NOTSET", AUTO_PAD)?;
    let groups = cx.int("group", 1)?;
    // The attribute may hold batch and channels too.
    let output = cx.opt_ints("output_shape")?.map(|v| v[v.len().saturating_sub(n)..].to_vec());
    if output.as_ref().is_some_and(|v| v.len() != n) {
        return Err(Failure::refused(format!(
            "attribute `output_shape` must have one entry for each of {n} spatial axes"
        )));
    }
    let (mut low, mut high) = (Vec::with_capacity(n), Vec::with_capacity(n));
    for i in 0..n {
        let extent = (&kernel[i] - 1) * dilations[i] + 1;
        let full = (&shape[i + 2] - 1) * strides[i] + output_pad[i] + extent;
        let wanted = match (&output, auto) {
            (Some(v), _) => Some(Dim::from(v[i])),
            (None, AutoPad::SameUpper | AutoPad::SameLower) => Some(&shape[i + 2] * strides[i]),
            (None, AutoPad::Given | AutoPad::Valid) => None,
        };
        let (l, h) = match wanted {
            Some(size) => halves(full - size, auto == AutoPad::SameUpper),
            None if auto == AutoPad::Valid => (Dim::ZERO, Dim::ZERO),
            None => (Dim::from(pads[i]), Dim::from(pads[i + n])),
        };
        low.push(l);
        high.push(h);
    }
    Ok(vec![cx.b().conv_transpose(x, w, bias, &strides, &dilations, &low, &high, &output_pad, groups)?])
}

/// Columns of patches added up to an image: a transposed convolution whose kernel has a single one for each patch element.
fn col2im(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let image = cx.known_ints_at(1, "the image shape")?;
    let block = cx.known_ints_at(2, "the block shape")?;
    let (Some(image), Some(block)) = (image, block) else { return patches_added(cx, x) };
    let n = image.len();
    let strides = per_axis(cx, "strides", n, 1)?;
    let dilations = per_axis(cx, "dilations", n, 1)?;
    let pads = per_axis(cx, "pads", 2 * n, 0)?;
    if block.len() != n || block.iter().chain(&strides).chain(&dilations).any(|&k| !(1..=1 << 20).contains(&k)) {
        return Err(Failure::refused(format!(
            "blocks {block:?}, strides {strides:?} and dilations {dilations:?} do not fit an image {image:?}"
        )));
    }
    let taps = block.iter().try_fold(1i64, |a, &k| a.checked_mul(k)).filter(|&t| t <= 1 << 16);
    let taps = taps.ok_or_else(|| Failure::refused(format!("blocks {block:?} are too large")))?;
    let shape = cx.shape(x)?;
    let [batch, columns, _] = shape.dims() else {
        return Err(Failure::refused(format!("the operand must have axes [N, C·block, patches], got {shape}")));
    };
    let channels = columns.floor_div(taps);
    let groups = channels.as_const().ok_or_else(|| Failure::refused("the number of channels must be known"))?;
    let (mut grid, mut rest) = (vec![batch.clone(), columns.clone()], Vec::new());
    for i in 0..n {
        let free = image[i].saturating_add(pads[i]).saturating_add(pads[i + n]);
        let free = free.saturating_sub((block[i] - 1) * dilations[i] + 1);
        if free < 0 {
            return Err(Failure::refused(format!("a block of {} does not fit into {} pixels", block[i], image[i])));
        }
        grid.push(Dim::from(free / strides[i] + 1));
        rest.push(free % strides[i]);
    }
    let dtype = cx.dtype(x)?;
    let b = cx.b();
    let row = b.iota(DType::I64, [Dim::from(taps), Dim::ONE], 0)?;
    let column = b.iota(DType::I64, [Dim::ONE, Dim::from(taps)], 1)?;
    let one = b.eq(row, column)?;
    let one = b.convert(one, dtype)?;
    let each = b.broadcast_to(one, [channels, Dim::from(taps), Dim::from(taps)])?;
    let kernel: Vec<Dim> = [columns.clone(), Dim::ONE].into_iter().chain(block.iter().map(|&k| Dim::from(k))).collect();
    let w = b.reshape(each, kernel)?;
    let x = b.reshape(x, grid)?;
    let pad = |at: usize| pads[at..at + n].iter().map(|&p| Dim::from(p)).collect::<Vec<_>>();
    Ok(vec![b.conv_transpose(x, w, None, &strides, &dilations, &pad(0), &pad(n), &rest, groups)?])
}

/// The same where only the run tells the shape of the image or of the blocks: every element is added where it belongs.
fn patches_added(cx: &mut NodeCx<'_, '_>, x: ValueId) -> Out {
    let (image, block) = (cx.sizes_at(1, "the image shape")?, cx.sizes_at(2, "the block shape")?);
    let n = image.len();
    let (strides, dilations) = (per_axis(cx, "strides", n, 1)?, per_axis(cx, "dilations", n, 1)?);
    let pads = per_axis(cx, "pads", 2 * n, 0)?;
    if block.len() != n || strides.iter().chain(&dilations).any(|&k| !(1..=1 << 20).contains(&k)) {
        return Err(Failure::refused(format!(
            "blocks of {} axes, strides {strides:?} and dilations {dilations:?} do not fit an image of {n}",
            block.len()
        )));
    }
    let shape = cx.shape(x)?;
    let [batch, columns, _] = shape.dims() else {
        return Err(Failure::refused(format!("the operand must have axes [N, C·block, patches], got {shape}")));
    };
    let mut grid = Vec::new();
    for i in 0..n {
        let extent = (&block[i] - 1) * dilations[i] + 1;
        let free = &image[i] + pads[i] + pads[i + n] - extent;
        cx.require(Constraint::Le(Dim::ONE, block[i].clone()), "blocks")?;
        cx.require(Constraint::Le(Dim::ZERO, free.clone()), "a block fits into the image")?;
        grid.push(free.floor_div(strides[i]) + 1);
    }
    let (taps, patches, pixels) = (product(&block), product(&grid), product(&image));
    let channels = columns.floor_div(taps.clone());
    // Where tap t of patch l stands in the image, axis by axis, and whether it does.
    let t = cx.b().iota(DType::I64, [taps.clone(), Dim::ONE], 0)?;
    let l = cx.b().iota(DType::I64, [Dim::ONE, patches.clone()], 1)?;
    let (mut at, mut inside) = (None, None);
    for i in 0..n {
        let mut part = |v: ValueId, sizes: &[Dim], step: i64| -> Result<ValueId, Failure> {
            let (behind, size) = (product(&sizes[i + 1..]), sizes[i].clone());
            let (behind, size) = (cx.b().from_dim(behind)?, cx.b().from_dim(size)?);
            let v = cx.b().div(v, behind)?;
            let v = cx.b().rem(v, size)?;
            cx.times(v, step as f64)
        };
        let (tap, patch) = (part(t, &block, dilations[i])?, part(l, &grid, strides[i])?);
        let place = cx.b().add(tap, patch)?;
        let place = cx.plus(place, -(pads[i] as f64))?;
        let (zero, last) = (cx.scalar_like(place, 0.0)?, cx.b().from_dim(&image[i] - 1)?);
        let here = cx.between(place, zero, last)?;
        let step = cx.b().from_dim(product(&image[i + 1..]))?;
        let place = cx.b().mul(place, step)?;
        at = Some(match at {
            Some(a) => cx.b().add(a, place)?,
            None => place,
        });
        inside = Some(match inside {
            Some(a) => cx.b().and(a, here)?,
            None => here,
        });
    }
    let (Some(at), Some(inside)) = (at, inside) else { return Err(Failure::refused("the image has no axes")) };
    let planes = batch * &channels;
    let cells = &taps * &patches;
    // What lies in the border goes nowhere: as a zero to the first pixel.
    let first = cx.scalar_like(at, 0.0)?;
    let at = cx.b().select(inside, at, first)?;
    let at = cx.b().reshape(at, [Dim::ONE, cells.clone()])?;
    let at = cx.b().broadcast_to(at, [planes.clone(), cells.clone()])?;
    let none = cx.scalar_like(x, 0.0)?;
    let b = cx.b();
    let x = b.reshape(x, [planes.clone(), taps, patches])?;
    let x = b.select(inside, x, none)?;
    let x = b.reshape(x, [planes.clone(), cells])?;
    let blank = b.broadcast_to(none, [planes, pixels])?;
    let y = b.scatter_elements(blank, at, x, 1, Combiner::Add)?;
    Ok(vec![b.reshape(y, [batch.clone(), channels].into_iter().chain(image))?])
}
