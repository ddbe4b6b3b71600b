//! Convolutions of 8-bit integers summed in i32: what points see is gathered as bytes, a block of points at a time, and multiplied by
//! packed weights as [`crate::contract::integer`] does it. Outside of the image stands the input's zero point.

use super::ConvPlan;
use super::gather::Source;
use super::phase::{Phase, phases};
use super::product::weights;
use crate::buffers::{BoundAccess, Ptr, RunCx};
use crate::contract::integer::{Right, with_panels};
use crate::contract::kept::Numbers;
use crate::contract::operand::{Axes, Operand};
use crate::epilogue::tile::OnBlocks;
use crate::gemm::{self, Bytes, IntArgs, gemm_integers};
use crate::tile::code::Code;
use crate::tile::{io, scratch};
use rlx_ir::DType;
use smallvec::SmallVec;

/// Bytes that are gathered at a time.
const GATHERED: usize = 1 << 17;
/// Fewest and most points of a block.
const POINTS: (usize, usize) = (24, 192);

/// A convolution of integers as products.
#[derive(Debug)]
pub struct Integer {
    phase: Phase,
    weights: Operand,
    weight_zero: Option<Numbers>,
    input_zero: Option<BoundAccess>,
    /// Points of a task.
    points: usize,
}

/// Plans a convolution, if it is one of 8-bit integers.
pub fn plan(p: &ConvPlan, input_zero: Option<BoundAccess>, weight_zero: Option<BoundAccess>) -> Option<Integer> {
    let small = |d: DType| matches!(d, DType::I8 | DType::U8);
    let zeros = [&input_zero, &weight_zero].into_iter().flatten().all(|z| z.dtype.is_int() && z.dtype.bits() >= 8);
    let fits = p.acc == DType::I32 && !p.transposed && small(p.input.dtype) && small(p.weight.dtype) && zeros;
    let still = |z: &Option<BoundAccess>, from: usize, sizes: &[usize]| {
        let along = |z: &BoundAccess| z.strides.iter().zip(sizes).skip(from).all(|(&s, &n)| s == 0 || n == 1);
        z.as_ref().is_none_or(along)
    };
    let out_group = p.out_channels / p.groups;
    let in_sizes: SmallVec<[usize; 6]> =
        [p.batch, p.in_channels].into_iter().chain(p.in_spatial.iter().copied()).collect();
    let w_sizes: SmallVec<[usize; 6]> =
        [p.out_channels, p.in_channels / p.groups].into_iter().chain(p.window.iter().copied()).collect();
    if !fits || !still(&input_zero, 0, &in_sizes) || !still(&weight_zero, 1, &w_sizes) {
        return None;
    }
    let phase = phases(p).into_iter().next()?;
    let weights = weights(p, &phase, false);
    let weight_zero = weight_zero.map(|z| {
        let step = z.strides.first().copied().filter(|_| p.out_channels != 1).unwrap_or(0);
        Numbers {
            buffer: z.buffer,
            dtype: z.dtype,
            offset: z.offset,
            slabs: Axes::new(&[p.groups], &[step * out_group as i64]),
            rows: Axes::new(&[weights.rows.len()], &[0]),
            cols: Axes::new(&[out_group], &[step]),
        }
    });
    if weights.rows.len() == 0 {
        return None;
    }
    let (points, k) = (phase.points(), weights.rows.len());
    let most = (GATHERED / k).clamp(POINTS.0, POINTS.1);
    let even = points.div_ceil(points.div_ceil(most).max(1)).next_multiple_of(6).max(1);
    Some(Integer { phase, weights, weight_zero, input_zero, points: even })
}

impl Integer {
    /// The weights.
    fn right(&self) -> Right<'_> {
        Right { operand: &self.weights, zero: self.weight_zero.as_ref() }
    }

    /// Makes the panels that runs keep.
    /// # Safety
    /// `run` has the weights' memory.
    pub unsafe fn pack(&self, run: &RunCx<'_>) {
        if run.weight.is_some() {
            // SAFETY: the caller's promise.
            unsafe { with_panels(self.right(), run, |_| ()) };
        }
    }
}

/// Runs the products.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(c: &Integer, p: &ConvPlan, code: &Code, run: &RunCx<'_>) {
    let (in_group, out_group) = (p.in_channels / p.groups, p.out_channels / p.groups);
    let base = Ptr(run.bufs.base(p.input.buffer));
    let (all, k) = (c.phase.points(), c.weights.rows.len());
    let blocks = all.div_ceil(c.points);
    // SAFETY: the walk was checked at bind.
    let zero = c.input_zero.as_ref().map(|z| unsafe {
        let start = Ptr(run.bufs.base(z.buffer));
        io::read_i128(z.dtype, start.get(), z.offset) as i32
    });
    let zero_of = move |_: usize| zero.unwrap_or(0);
    // SAFETY: the caller's promise.
    unsafe {
        with_panels(c.right(), run, |panels| {
            run.region.parallel_for(p.batch * p.groups * blocks, &|index| {
                let (block, task) = (index % blocks, index / blocks);
                let (image, group) = (task % p.batch, task / p.batch);
                let points = block * c.points..((block + 1) * c.points).min(all);
                let row = |r: usize| image * all + points.start + r;
                let hook = p.finish.program().map(|plan| OnBlocks {
                    plan,
                    code,
                    bufs: run.bufs,
                    isa: run.isa,
                    row: &row,
                    col: group * out_group,
                });
                let mut args = IntArgs {
                    m: points.len(),
                    n: out_group,
                    k,
                    a: Bytes { data: std::ptr::null(), signed: p.input.dtype == DType::I8, row: k as isize, col: 1 },
                    a_zero: zero.is_some().then_some(&zero_of as _),
                    b: panels.slab(group),
                    layout: panels.layout,
                    factors: [None, None],
                    c: std::ptr::null_mut(),
                    c_row: 0,
                    epilogue: gemm::Epilogue::default(),
                };
                args.epilogue.hook = hook.as_ref().map(|h| h as _);
                let gathered = (points.len() * k).next_multiple_of(64);
                let len = gathered + args.scratch_bytes();
                let offset =
                    p.input.offset + image as i64 * p.input.strides[0] + (group * in_group) as i64 * p.input.strides[1];
                scratch::with(len, |memory| {
                    // The memory has room for `len` bytes; the walks were checked at bind; tasks write disjoint points and channels.
                    let memory = std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<u8>(), len);
                    let (own, memory) = memory.split_at_mut(gathered);
                    let source = Source {
                        phase: &c.phase,
                        dtype: p.input.dtype,
                        base: base.get(),
                        offset,
                        channels: in_group,
                        channel: p.input.strides[1],
                    };
                    source.rows(points.clone(), zero.unwrap_or(0) as u8, own.as_mut_ptr());
                    args.a.data = own.as_ptr();
                    gemm_integers(run.isa, &args, 0..points.len(), 0..out_group, memory);
                });
            });
        });
    }
}
