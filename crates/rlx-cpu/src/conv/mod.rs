//! Convolutions and their transposes, grouped, of any number of spatial axes.
//!
//! Floats of up to 32 bits become products of what points see and packed weights ([`product`]), read where it lies, from a
//! copy with zeros around ([`image`]) or gathered ([`gather`]): a transpose is cut into one plain convolution for each phase of
//! its strides ([`phase`]). Windows of three by three take fewer multiplications ([`winograd`]). One channel a group has loops
//! of its own ([`depthwise`]). 8-bit integers are gathered as they are and multiplied exactly ([`integer`]). Other dtypes go
//! element by element ([`generic`]).

mod depthwise;
mod gather;
mod generic;
mod image;
mod integer;
pub(crate) mod phase;
mod product;
mod winograd;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_integer;

use crate::buffers::{BindCx, BindError, BoundAccess, RunCx, Sizes, Strides};
use crate::contract::operand::{has_panels, panels};
use crate::epilogue::direct::{self, Direct, Matrix};
use crate::epilogue::menu::Menu;
use crate::epilogue::{self, Finish};
use crate::gemm::amx::Parts;
use crate::space::Space;
use crate::tile::Work;
use crate::tile::code::Code;
use rlx_compile::lir::{Access, ConvKernel};
use rlx_ir::DType;

/// A convolution at concrete sizes.
#[derive(Debug)]
pub struct ConvPlan {
    transposed: bool,
    batch: usize,
    groups: usize,
    in_channels: usize,
    out_channels: usize,
    in_spatial: Sizes,
    out_spatial: Sizes,
    window: Sizes,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    pad_low: Vec<i64>,
    input: BoundAccess,
    weight: BoundAccess,
    acc: DType,
    /// Rows are images and points, columns channels; or rows are images and channels, columns points.
    finish: Finish,
    how: How,
}

#[derive(Debug)]
enum How {
    Nothing,
    Product(Box<product::Product>),
    Winograd(Box<winograd::Winograd>),
    Depthwise(Box<depthwise::Depthwise>),
    Integer(Box<integer::Integer>),
    Generic,
}

/// A transposed convolution is a convolution for each way in which strides and output points meet: as many as the product of its strides.
const MAX_PHASES: usize = 1 << 16;

/// Plans a convolution.
pub fn plan(k: &ConvKernel, code: &Code, cx: &BindCx<'_>) -> Result<ConvPlan, BindError> {
    let (batch, in_channels, out_channels) = (cx.size(k.batch)?, cx.size(k.in_channels)?, cx.size(k.out_channels)?);
    let (in_spatial, out_spatial) = (cx.sizes(&k.in_spatial)?, cx.sizes(&k.out_spatial)?);
    let window = cx.sizes(&k.window)?;
    let groups = usize::try_from(k.groups).ok().filter(|&g| g > 0).ok_or("a convolution needs at least one group")?;
    if in_channels % groups != 0 || out_channels % groups != 0 {
        return Err(format!(
            "{in_channels} input and {out_channels} output channels do not divide into {groups} groups"
        ));
    }
    let rank = window.len();
    if [in_spatial.len(), out_spatial.len(), k.strides.len(), k.dilations.len(), k.pad_low.len()] != [rank; 5] {
        return Err("a convolution's spatial attributes differ in rank".into());
    }
    if k.strides.iter().chain(&k.dilations).any(|&s| s < 1) {
        return Err(format!("a convolution with strides {:?} and dilations {:?}", k.strides, k.dilations));
    }
    let phases = |(&s, &n): (&i64, &usize)| usize::try_from(s).unwrap_or(usize::MAX).min(n);
    let phases = k.strides.iter().zip(&out_spatial).map(phases).fold(1, usize::saturating_mul);
    if k.transposed && phases > MAX_PHASES {
        return Err(format!(
            "a transposed convolution with strides {:?} is more than {MAX_PHASES} convolutions",
            k.strides
        ));
    }
    let space = |head: &[usize], tail: &[usize]| head.iter().chain(tail).copied().collect::<Sizes>();
    let input = cx.access(&k.input, &space(&[batch, in_channels], &in_spatial))?;
    let channels =
        if k.transposed { [in_channels, out_channels / groups] } else { [out_channels, in_channels / groups] };
    let weight = cx.access(&k.weight, &space(&channels, &window))?;
    let out = space(&[batch, out_channels], &out_spatial);
    let channels_first: Sizes = (0..out.len()).collect();
    let channels_last: Sizes = std::iter::once(0).chain(2..out.len()).chain([1]).collect();
    let program = |order: &[usize], rows| {
        epilogue::plan(&k.epilogue, code, &out, order, rows, cx).map(|p| Finish::Program(Box::new(p)))
    };
    let mut plan = ConvPlan {
        transposed: k.transposed,
        batch,
        groups,
        in_channels,
        out_channels,
        in_spatial,
        out_spatial,
        window,
        strides: k.strides.clone(),
        dilations: k.dilations.clone(),
        pad_low: k.pad_low.iter().map(|&d| cx.value(d)).collect(),
        input,
        weight,
        acc: k.acc,
        finish: Finish::Nothing,
        how: How::Generic,
    };
    let narrow = |d: DType| Work::of(d) == Some(Work::F32);
    if out.contains(&0) {
        plan.how = How::Nothing;
    } else if k.acc == DType::F32 && narrow(plan.input.dtype) && narrow(plan.weight.dtype) {
        let direct = matrices(k, &out, cx)?;
        let last;
        let usable;
        if let Some(d) = depthwise::plan(&plan, cx.isa) {
            last = d.last;
            // A row of channels, or of points, is written as one, before what is added is read.
            let fits = |m: &Direct| !m.in_place() && if last { m.steps().1 == 1 } else { m.steps().0 == 1 };
            usable = direct.as_ref().is_some_and(fits);
            plan.how = How::Depthwise(Box::new(d));
        } else {
            (last, usable) = (true, true);
            let parts = product::parts(&plan, cx.isa, cx.matmul);
            // Where all six products are wanted, a matrix unit gains less than transforms do.
            let transformed = match parts {
                None | Some(Parts::Three) => winograd::plan(&plan, direct.as_ref(), cx.isa),
                Some(_) => None,
            };
            plan.how = match transformed {
                Some(w) => How::Winograd(Box::new(w)),
                None => How::Product(Box::new(product::plan(&plan, cx.isa, parts))),
            };
        }
        plan.finish = match direct.filter(|_| usable) {
            Some(d) => Finish::Direct(Box::new(d)),
            None if last => program(&channels_last, 1 + rank)?,
            None => program(&channels_first, 2)?,
        };
    } else {
        let zero = |a: &Option<Access>, sizes: &[usize]| a.as_ref().map(|a| cx.access(a, sizes)).transpose();
        let input_zero = zero(&k.input_zero, &space(&[batch, in_channels], &plan.in_spatial))?;
        let weight_zero = zero(&k.weight_zero, &space(&channels, &plan.window))?;
        let zeros = input_zero.is_some() || weight_zero.is_some();
        match integer::plan(&plan, input_zero, weight_zero) {
            Some(integer) => {
                plan.how = How::Integer(Box::new(integer));
                plan.finish = program(&channels_last, 1 + rank)?;
            }
            None if zeros => return Err("a convolution whose zero points differ along an image or a window".into()),
            None => plan.finish = program(&channels_first, 2)?,
        }
    }
    Ok(plan)
}

/// The result as matrices of points by channels, one for each image, if the epilogue is on the menu.
fn matrices(k: &ConvKernel, out: &[usize], cx: &BindCx<'_>) -> Result<Option<Direct>, BindError> {
    let Some(menu) = Menu::of(&k.epilogue) else { return Ok(None) };
    let mut walks: Vec<BoundAccess> = Vec::new();
    for a in k.epilogue.writes.iter().chain(menu.reads().filter_map(|r| k.epilogue.reads.get(r as usize))) {
        walks.push(cx.access(a, out)?);
    }
    let Some(in_place) = direct::in_place(&walks) else { return Ok(None) };
    let points: Vec<&[i64]> = walks.iter().map(|w| w.strides.get(2..).unwrap_or(&[])).collect();
    let points = Space::in_order(&out[2..], &points);
    if points.sizes.len() != 1 || walks.iter().any(|w| w.dtype != DType::F32) {
        return Ok(None);
    }
    let matrix = |(i, w): (usize, &BoundAccess)| Matrix {
        buffer: w.buffer,
        offset: w.offset,
        outer: w.strides.iter().take(1).copied().collect::<Strides>(),
        row: points.walks.get(i).and_then(|s| s.first()).copied().unwrap_or(0),
        col: w.strides.get(1).copied().unwrap_or(0),
    };
    Ok(Direct::new(menu, walks.iter().enumerate().map(matrix), in_place))
}

/// True if a run reads the weights where they lie, and not only a kept form of them.
pub fn reads_weights(p: &ConvPlan, run: &RunCx<'_>) -> bool {
    match &p.how {
        How::Nothing => false,
        How::Product(product) => !has_panels(run, product.weights()),
        How::Depthwise(d) => !has_panels(run, d.weights()),
        How::Integer(_) | How::Winograd(_) | How::Generic => true,
    }
}

/// Makes the form of the weights that runs keep, if there is one.
/// # Safety
/// `run` has the weights' memory.
pub unsafe fn pack(p: &ConvPlan, run: &RunCx<'_>) {
    let weights = match &p.how {
        How::Product(product) => product.weights(),
        How::Depthwise(d) => d.weights(),
        // SAFETY: the caller's promise.
        How::Integer(i) => return unsafe { i.pack(run) },
        // SAFETY: as above.
        How::Winograd(w) => return unsafe { winograd::pack(w, run) },
        How::Nothing | How::Generic => return,
    };
    // SAFETY: the caller's promise.
    unsafe { panels(run, weights) };
}

/// Runs a convolution.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(p: &ConvPlan, code: &Code, run: &RunCx<'_>) {
    // SAFETY: the caller's promise.
    unsafe {
        match &p.how {
            How::Nothing => {}
            How::Product(product) => product::run(product, p, code, run),
            How::Winograd(w) => winograd::run(w, p, code, run),
            How::Depthwise(d) => depthwise::run(d, p, code, run),
            How::Integer(i) => integer::run(i, p, code, run),
            How::Generic => generic::run(p, code, run),
        }
    }
}
