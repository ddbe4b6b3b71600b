//! Convolutions and their transposes, grouped, of any number of spatial axes.

use crate::buffers::{BindCx, BindError, BoundAccess, Ptr, RunCx, Sizes};
use crate::epilogue::{self, EpiloguePlan};
use crate::space::position;
use crate::tile::code::Code;
use crate::tile::{Work, scratch};
use rlx_compile::lir::ConvKernel;
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
    epilogue: EpiloguePlan,
}

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
    let space = |head: &[usize], tail: &[usize]| head.iter().chain(tail).copied().collect::<Sizes>();
    let input = cx.access(&k.input, &space(&[batch, in_channels], &in_spatial))?;
    let channels =
        if k.transposed { [in_channels, out_channels / groups] } else { [out_channels, in_channels / groups] };
    let weight = cx.access(&k.weight, &space(&channels, &window))?;
    let epilogue = epilogue::plan(&k.epilogue, code, &space(&[batch, out_channels], &out_spatial), 2, cx)?;
    Ok(ConvPlan {
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
        epilogue,
    })
}

impl ConvPlan {
    /// The input index that window element `w` of output index `o` meets on an axis, if there is one.
    fn source(&self, axis: usize, o: usize, w: usize) -> Option<usize> {
        let (o, w) = (o as i64, w as i64);
        let at = if self.transposed {
            let full = o + self.pad_low[axis] - w * self.dilations[axis];
            let stride = self.strides[axis].max(1);
            if full % stride != 0 {
                return None;
            }
            full / stride
        } else {
            o * self.strides[axis] + w * self.dilations[axis] - self.pad_low[axis]
        };
        usize::try_from(at).ok().filter(|&i| i < self.in_spatial[axis])
    }
}

/// Runs a convolution.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(p: &ConvPlan, code: &Code, run: &RunCx<'_>) {
    let (points, taps) = (p.out_spatial.iter().product::<usize>(), p.window.iter().product::<usize>());
    let (in_group, out_group) = (p.in_channels / p.groups, p.out_channels / p.groups);
    let (input, weight) = (Ptr(run.bufs.base(p.input.buffer)), Ptr(run.bufs.base(p.weight.buffer)));
    let work = Work::of(p.acc).unwrap_or(Work::F32);
    let rank = p.window.len();
    if points == 0 {
        return;
    }
    run.region.parallel_for(p.batch * p.out_channels, &|row| {
        let (b, oc) = (row / p.out_channels, row % p.out_channels);
        let group = oc / out_group.max(1);
        scratch::with(points * work.size(), |acc| {
            let acc = acc.as_mut_ptr();
            let mut pairs: Vec<(i64, i64)> = Vec::with_capacity(taps * in_group);
            let (mut out, mut tap) = (vec![0usize; rank], vec![0usize; rank]);
            for j in 0..points {
                unravel(j, &p.out_spatial, &mut out);
                pairs.clear();
                for t in 0..taps {
                    unravel(t, &p.window, &mut tap);
                    let mut x = p.input.offset + b as i64 * p.input.strides[0];
                    let inside = (0..rank).all(|a| match p.source(a, out[a], tap[a]) {
                        Some(i) => {
                            x += i as i64 * p.input.strides[2 + a];
                            true
                        }
                        None => false,
                    });
                    if !inside {
                        continue;
                    }
                    let w = position(t, &p.window, p.weight.offset, &p.weight.strides[2..]);
                    for c in 0..in_group {
                        let channel = group * in_group + c;
                        let (first, second) = if p.transposed { (channel, oc % out_group) } else { (oc, c) };
                        let w = w + first as i64 * p.weight.strides[0] + second as i64 * p.weight.strides[1];
                        pairs.push((x + channel as i64 * p.input.strides[1], w));
                    }
                }
                // SAFETY: the walks were checked to lie within their buffers at bind; acc holds `points` elements.
                unsafe {
                    let (x, w) =
                        ((p.input.dtype, input.get().cast_const()), (p.weight.dtype, weight.get().cast_const()));
                    crate::contract::dot(p.acc, x, w, pairs.len(), |c| pairs[c], acc, j);
                }
            }
            p.epilogue.with_runner(code, run.bufs, run.isa, |e| {
                // SAFETY: the row is this task's alone.
                unsafe { e.run(row, 0, points, acc) }
            });
        });
    });
}

/// The index on each axis of point number `point`.
pub(crate) fn unravel(mut point: usize, sizes: &[usize], index: &mut [usize]) {
    for (i, &n) in index.iter_mut().zip(sizes).rev() {
        *i = point % n.max(1);
        point /= n.max(1);
    }
}
