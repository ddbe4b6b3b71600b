//! Convolutions of floats as products: rows are output points, columns output channels.
//!
//! Points are cut into blocks by size alone; a task gathers what its block sees and multiplies it by the group's packed
//! weights. Where a point sees one tap and points lie evenly apart, the input is read where it lies.

use super::ConvPlan;
use super::gather::Source;
use super::phase::{Phase, phases};
use crate::buffers::{Ptr, RunCx};
use crate::contract::operand::{Axes, Operand, with_panels};
use crate::epilogue::tile::OnBlocks;
use crate::gemm::{self, BOperand, GemmArgs, Strided, panel_width};
use crate::space::unravel;
use crate::tile::code::Code;
use crate::tile::scratch;
use rlx_ir::DType;
use smallvec::SmallVec;

/// A convolution as products.
#[derive(Debug)]
pub struct Product {
    phases: Vec<Phase>,
    /// Weights of each phase.
    weights: Vec<Operand>,
    /// How each phase's points are cut.
    blocks: Vec<Blocks>,
    /// Channels are the outer axis of what is gathered: the input's spatial steps are the smaller ones.
    columns: bool,
}

impl Product {
    /// One phase alone: its points lie as the output's do.
    pub fn is_single(&self) -> bool {
        self.phases.len() == 1
    }
}

/// How a phase is divided into tasks.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    /// The step from one point to the next and the position of the first, where the input is read where it lies.
    plain: Option<(i64, i64)>,
    /// Points of a block.
    points: usize,
    /// Blocks of points.
    rows: usize,
    /// Parts of the columns.
    cols: usize,
}

/// Elements of what is gathered at a time: half of a usual second cache.
const GATHERED: usize = 1 << 17;
/// Fewest and most points of a block.
const POINTS: (usize, usize) = (64, 192);
/// Tasks that are wanted where the work is worth dividing.
const TASKS: usize = 8;
/// Fewest columns of a task that does not have them all.
const COLS: usize = 96;

/// Plans the products of a convolution.
pub fn plan(p: &ConvPlan) -> Product {
    let phases = phases(p);
    let (in_group, out_group) = (p.in_channels / p.groups, p.out_channels / p.groups);
    let smallest = p.input.strides.get(2..).unwrap_or(&[]).iter().map(|s| s.unsigned_abs()).min();
    let columns = in_group > 1 && smallest.is_some_and(|s| s < p.input.strides[1].unsigned_abs());
    let weights = phases.iter().map(|phase| weights(p, phase, columns)).collect();
    let blocks = phases
        .iter()
        .map(|phase| {
            let (points, k) = (phase.points(), (phase.taps() * in_group).max(1));
            let plain = plain(p, phase);
            let most = if plain.is_some() { POINTS.1 } else { (GATHERED / k).clamp(POINTS.0, POINTS.1) };
            // Even blocks of whole register tiles.
            let rows = points.div_ceil(most).max(1);
            let each = points.div_ceil(rows).next_multiple_of(6).max(1);
            let rows = points.div_ceil(each);
            let tasks = (rows * p.batch * p.groups).max(1);
            let worth = points.saturating_mul(k).saturating_mul(out_group) >> 18;
            let cols = (TASKS / tasks).min(worth).min(out_group / COLS).max(1);
            Blocks { plain, points: each, rows, cols }
        })
        .collect();
    Product { phases, weights, blocks, columns }
}

/// The weights that a phase meets, as rows of taps and channels.
fn weights(p: &ConvPlan, phase: &Phase, columns: bool) -> Operand {
    let (in_group, out_group) = (p.in_channels / p.groups, p.out_channels / p.groups);
    let w = &p.weight.strides;
    let (group, channel, col) =
        if p.transposed { (in_group as i64 * w[0], w[0], w[1]) } else { (out_group as i64 * w[0], w[1], w[0]) };
    let taps = phase.axes.iter().zip(&w[2..]);
    let offset = p.weight.offset + taps.clone().map(|(a, &s)| a.first_tap as i64 * s).sum::<i64>();
    let mut axes: SmallVec<[(usize, i64); 6]> = taps.map(|(a, &s)| (a.taps, a.tap_step as i64 * s)).collect();
    if columns {
        axes.insert(0, (in_group, channel));
    } else {
        axes.push((in_group, channel));
    }
    let (sizes, strides): (SmallVec<[usize; 6]>, SmallVec<[i64; 6]>) = axes.into_iter().unzip();
    Operand {
        buffer: p.weight.buffer,
        dtype: p.weight.dtype,
        offset,
        slabs: Axes::new(&[p.groups], &[group]),
        rows: Axes::new(&sizes, &strides),
        cols: Axes::new(&[out_group], &[col]),
    }
}

/// Step and start of a phase's points in the input, if each sees one tap and they lie evenly apart, all inside.
fn plain(p: &ConvPlan, phase: &Phase) -> Option<(i64, i64)> {
    let inside = phase.axes.iter().all(|a| a.taps == 1 && a.inside(0) == (0, a.outs));
    if !inside || p.input.dtype != DType::F32 {
        return None;
    }
    let sizes: SmallVec<[usize; 4]> = phase.axes.iter().map(|a| a.outs).collect();
    let strides: SmallVec<[i64; 4]> = phase.axes.iter().map(|a| a.per_out * a.stride).collect();
    let step = Axes::new(&sizes, &strides).single()?;
    Some((step as i64, phase.axes.iter().map(|a| a.source * a.stride).sum()))
}

/// Runs the products.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(c: &Product, p: &ConvPlan, code: &Code, run: &RunCx<'_>) {
    let (in_group, out_group) = (p.in_channels / p.groups, p.out_channels / p.groups);
    let base = Ptr(run.bufs.base(p.input.buffer));
    let nr = panel_width(run.isa);
    let each: SmallVec<[usize; 4]> = c.blocks.iter().map(|b| b.rows * b.cols * p.batch * p.groups).collect();
    let all_points: usize = p.out_spatial.iter().product();
    let work = |panels: &[crate::contract::operand::Panels], index: usize| {
        let (mut task, mut number) = (index, 0);
        while each.get(number).is_some_and(|&n| task >= n) {
            task -= each[number];
            number += 1;
        }
        let (phase, blocks, panels) = (&c.phases[number], c.blocks[number], panels[number]);
        // Neighbouring tasks share weights.
        let (block, task) = (task % blocks.rows, task / blocks.rows);
        let (image, task) = (task % p.batch, task / p.batch);
        let (part, group) = (task % blocks.cols, task / blocks.cols);
        let first = block * blocks.points;
        let points = first..phase.points().min(first + blocks.points);
        let wide = out_group.div_ceil(blocks.cols).next_multiple_of(nr);
        let cols = (part * wide).min(out_group)..((part + 1) * wide).min(out_group);
        if cols.is_empty() {
            return;
        }
        let k = phase.taps() * in_group;
        let image_at = p.input.offset + image as i64 * p.input.strides[0];
        let offset = image_at + (group * in_group) as i64 * p.input.strides[1];
        let row = |r: usize| image * all_points + output_point(phase, &p.out_spatial, points.start + r);
        let col = group * out_group + cols.start;
        let on_blocks = |plan| OnBlocks { plan, code, bufs: run.bufs, isa: run.isa, row: &row, col };
        let hook = p.finish.program().map(on_blocks);
        let mut args = GemmArgs {
            m: points.len(),
            n: cols.len(),
            k,
            a: Strided { data: std::ptr::null(), row: k as isize, col: 1 },
            b: BOperand::Packed(panels.slab(group).wrapping_add(cols.start * k)),
            c: std::ptr::null_mut(),
            c_row: 0,
            c_col: 1,
            accumulate: false,
            epilogue: gemm::Epilogue::default(),
        };
        match p.finish.direct() {
            Some(d) => d.set(&mut args, &run.bufs, &[p.batch], image, (first, col)),
            None => args.epilogue.hook = hook.as_ref().map(|h| h as _),
        }
        let gathered = if blocks.plain.is_some() { 0 } else { (points.len() * k).next_multiple_of(16) };
        if c.columns {
            (args.a.row, args.a.col) = (1, points.len() as isize);
        }
        let len = gathered + args.scratch_len(run.isa);
        scratch::with(len * size_of::<f32>(), |memory| {
            // SAFETY: the memory has room for `len` elements and is aligned to a cache line; walks were checked at bind;
            // tasks write disjoint points and channels.
            unsafe {
                let memory = std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<f32>(), len);
                let (dense, memory) = memory.split_at_mut(gathered);
                match blocks.plain {
                    Some((step, start)) => {
                        let at = offset + start + first as i64 * step;
                        let data = base.get().cast::<f32>().cast_const().wrapping_offset(at as isize);
                        args.a = Strided { data, row: step as isize, col: p.input.strides[1] as isize };
                    }
                    None => {
                        let source = Source {
                            phase,
                            dtype: p.input.dtype,
                            base: base.get(),
                            offset,
                            channels: in_group,
                            channel: p.input.strides[1],
                        };
                        if c.columns {
                            source.columns(points.clone(), dense.as_mut_ptr());
                        } else {
                            source.rows(points.clone(), dense.as_mut_ptr());
                        }
                        args.a.data = dense.as_ptr();
                    }
                }
                gemm::gemm(run.isa, &args, memory);
            }
        });
    };
    // SAFETY: the caller's promise.
    unsafe {
        with_panels(run, &c.weights, |panels| {
            run.region.parallel_for(each.iter().sum(), &|index| work(panels, index));
        });
    }
}

/// The number among all output points of a phase's point.
fn output_point(phase: &Phase, sizes: &[usize], point: usize) -> usize {
    let outs: SmallVec<[usize; 4]> = phase.axes.iter().map(|a| a.outs).collect();
    let mut index: SmallVec<[usize; 4]> = smallvec::smallvec![0; outs.len()];
    unravel(point, &outs, &mut index);
    let along = phase.axes.iter().zip(&index).map(|(a, &j)| a.first + j * a.step);
    along.zip(sizes).fold(0, |n, (o, &size)| n * size + o)
}
