//! Convolutions of floats as products: rows are output points, columns output channels.
//!
//! Points are cut into blocks by size alone; a task multiplies what its block sees by the group's packed weights. The
//! input is read where it lies if channels lie side by side or a point sees one tap and points lie evenly apart; else it
//! is gathered first.

use super::ConvPlan;
use super::gather::Source;
use super::image::Image;
use super::phase::{Phase, phases};
use crate::buffers::RunCx;
use crate::contract::operand::{Axes, Operand, Panels, Rights, with_panels};
use crate::epilogue::tile::OnBlocks;
use crate::gemm::amx::{self, Parts};
use crate::gemm::{self, AOperand, BOperand, GemmArgs, Strided, panel_width};
use crate::simd::Isa;
use crate::space::unravel;
use crate::tile::code::Code;
use crate::tile::scratch;
use rlx_compile::MatmulPrecision;
use rlx_ir::DType;
use smallvec::SmallVec;
use std::ops::Range;

/// A convolution as products.
#[derive(Debug)]
pub struct Product {
    phases: Vec<Phase>,
    /// Weights of each phase.
    weights: Rights,
    /// How each phase's points are cut.
    blocks: Vec<Blocks>,
    /// What a matrix unit takes the panels of weights apart to; `None`: they are multiplied as they are.
    parts: Option<Parts>,
}

impl Product {
    /// The weights that runs keep in panels.
    pub fn weights(&self) -> &Rights {
        &self.weights
    }

    /// Whether it runs on a matrix unit.
    #[cfg(test)]
    pub fn on_unit(&self) -> bool {
        self.parts.is_some()
    }

    /// Its phases.
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }
}

/// How a phase is divided into tasks.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    /// How the input is read.
    reading: Reading,
    /// Points that blocks are cut from: all, or those of a line of the last axis.
    line: usize,
    /// Points of a block.
    points: usize,
    /// Blocks of points.
    rows: usize,
    /// Parts of the columns.
    cols: usize,
}

/// How a block reads the input.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// A point's channels lie at a step from those of the point before; the first ones at a position.
    Even { step: i64, first: i64 },
    /// Each tap of each point is a segment of channels.
    Segments,
    /// Each line of taps of each point is a segment of a copy with channels last and zeros around.
    Image,
    /// Gathered to dense rows.
    Rows,
    /// Gathered to dense columns: channels are the outer axis.
    Columns,
}

/// Fewest channels of a segment.
const SEGMENT: usize = 8;
/// Points of a block that copies what it sees of the input: few blocks copy the same lines.
const IMAGE: usize = 1536;
/// Elements of what is gathered at a time: half of a usual second cache.
const GATHERED: usize = 1 << 17;
/// Fewest and most points of a block.
const POINTS: (usize, usize) = (64, 192);
/// Tasks that are wanted where the work is worth dividing.
const TASKS: usize = 8;
/// Fewest columns of a task that does not have them all.
const COLS: usize = 96;

/// Fewest output channels of a group that are worth a matrix unit: half of a tile's columns.
const UNIT_COLS: usize = 8;

/// What a matrix unit takes panels apart to in a convolution of this exactness, if it is one for the unit.
pub fn parts(p: &ConvPlan, isa: Isa, matmul: MatmulPrecision) -> Option<Parts> {
    let bf16 = [p.input.dtype, p.weight.dtype] == [DType::BF16; 2];
    let points: usize = p.out_spatial.iter().product();
    let parts = amx::parts(isa, matmul, bf16, points);
    parts.filter(|_| p.out_channels / p.groups >= UNIT_COLS)
}

/// Plans the products of a convolution; `parts` are those of [`parts`].
pub fn plan(p: &ConvPlan, isa: Isa, parts: Option<Parts>) -> Product {
    let phases = phases(p);
    let (in_group, out_group) = (p.in_channels / p.groups, p.out_channels / p.groups);
    let smallest = p.input.strides.get(2..).unwrap_or(&[]).iter().map(|s| s.unsigned_abs()).min();
    let columns = in_group > 1 && smallest.is_some_and(|s| s < p.input.strides[1].unsigned_abs());
    let single = phases.len() == 1;
    let segments = p.input.strides[1] == 1 && in_group >= SEGMENT && p.input.dtype == DType::F32;
    let blocks: Vec<Blocks> = phases
        .iter()
        .map(|phase| {
            let (points, k) = (phase.points(), (phase.taps() * in_group).max(1));
            let reading = match even(p, phase) {
                Some((step, first)) => Reading::Even { step, first },
                None if segments => Reading::Segments,
                None if in_group < SEGMENT && Image::serves(phase) => Reading::Image,
                None if columns => Reading::Columns,
                None => Reading::Rows,
            };
            let most = match reading {
                Reading::Even { .. } | Reading::Image => POINTS.1,
                // A pointer for each tap.
                Reading::Segments => (GATHERED / phase.taps().max(1)).clamp(POINTS.0, POINTS.1),
                Reading::Rows | Reading::Columns => (GATHERED / k).clamp(POINTS.0, POINTS.1),
            };
            // One of several phases goes along the last axis: its points lie evenly apart in the output.
            let line = if single { points } else { phase.axes.last().map_or(1, |a| a.outs).max(1) };
            let (line, each) = match reading {
                Reading::Image => image_blocks(phase),
                _ => {
                    // Even blocks of whole register tiles.
                    let cuts = line.div_ceil(most).max(1);
                    (line, line.div_ceil(cuts).next_multiple_of(12).clamp(1, line.max(1)))
                }
            };
            let rows = line.div_ceil(each) * (points / line.max(1));
            let tasks = (rows * p.batch * p.groups).max(1);
            let worth = points.saturating_mul(k).saturating_mul(out_group) >> 18;
            let cols = (TASKS / tasks).min(worth).min(out_group / COLS).max(1);
            Blocks { reading, line, points: each, rows, cols }
        })
        .collect();
    let columns =
        |b: &Blocks| matches!(b.reading, Reading::Columns) || (columns && matches!(b.reading, Reading::Even { .. }));
    let weights = phases.iter().zip(&blocks).map(|(phase, b)| weights(p, phase, columns(b))).collect();
    Product { phases, weights: Rights::new(isa, weights), blocks, parts }
}

/// The points that blocks are cut from, and those of a block: whole lines of the output, or even parts of long ones.
fn image_blocks(phase: &Phase) -> (usize, usize) {
    let width = phase.axes.last().map_or(1, |a| a.outs).max(1);
    let lines = phase.points() / width;
    if width >= IMAGE {
        return (width, width.div_ceil(width.div_ceil(IMAGE)).next_multiple_of(12).min(width));
    }
    let some = (IMAGE / width).min(lines.div_ceil(TASKS)).max(1);
    (phase.points(), some * width)
}

/// The weights that a phase meets, as rows of taps and channels.
pub(super) fn weights(p: &ConvPlan, phase: &Phase, columns: bool) -> Operand {
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
fn even(p: &ConvPlan, phase: &Phase) -> Option<(i64, i64)> {
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
    let out_group = p.out_channels / p.groups;
    let nr = panel_width(run.isa);
    let each: SmallVec<[usize; 4]> = c.blocks.iter().map(|b| b.rows * b.cols * p.batch * p.groups).collect();
    let work = |panels: &[Panels], index: usize| {
        let (mut task, mut number) = (index, 0);
        while each.get(number).is_some_and(|&n| task >= n) {
            task -= each[number];
            number += 1;
        }
        let blocks = c.blocks[number];
        // Neighbouring tasks share weights.
        let (block, task) = (task % blocks.rows, task / blocks.rows);
        let (image, task) = (task % p.batch, task / p.batch);
        let (part, group) = (task % blocks.cols, task / blocks.cols);
        let cuts = blocks.line.div_ceil(blocks.points);
        let line = block / cuts * blocks.line;
        let first = line + block % cuts * blocks.points;
        let points = first..(line + blocks.line).min(first + blocks.points);
        let wide = out_group.div_ceil(blocks.cols).next_multiple_of(nr);
        let cols = (part * wide).min(out_group)..((part + 1) * wide).min(out_group);
        if !cols.is_empty() {
            // SAFETY: the caller's promise; tasks have disjoint points and channels.
            unsafe { multiply(c, p, code, run, panels, number, Piece { image, group, points, cols }) };
        }
    };
    // SAFETY: the caller's promise.
    unsafe {
        with_panels(run, &c.weights, |panels| {
            run.region.parallel_for(each.iter().sum(), &|index| work(panels, index));
        });
    }
}

/// A part of the output.
pub struct Piece {
    /// The image.
    pub image: usize,
    /// The group.
    pub group: usize,
    /// Points of a phase.
    pub points: Range<usize>,
    /// Columns of the group, from a panel's edge on.
    pub cols: Range<usize>,
}

/// The product of one piece of a phase.
/// # Safety
/// As [`crate::map::run`]; the piece lies within the phase's output, and no other thread writes it. `panels` are those of
/// [`Product::weights`].
pub unsafe fn multiply(
    c: &Product,
    p: &ConvPlan,
    code: &Code,
    run: &RunCx<'_>,
    panels: &[Panels],
    number: usize,
    piece: Piece,
) {
    let (in_group, out_group) = (p.in_channels / p.groups, p.out_channels / p.groups);
    let (phase, blocks, panels) = (&c.phases[number], c.blocks[number], panels[number]);
    let Piece { image, group, points, cols } = piece;
    let base = run.bufs.base(p.input.buffer);
    let all_points: usize = p.out_spatial.iter().product();
    let k = phase.taps() * in_group;
    let image_at = p.input.offset + image as i64 * p.input.strides[0];
    let offset = image_at + (group * in_group) as i64 * p.input.strides[1];
    let row = |r: usize| image * all_points + output_point(phase, &p.out_spatial, points.start + r);
    let col = group * out_group + cols.start;
    let on_blocks = |plan| OnBlocks { plan, code, bufs: run.bufs, isa: run.isa, row: &row, col };
    let hook = p.finish.program().map(on_blocks);
    let weights = panels.slab(group).wrapping_add(cols.start * k);
    let mut args = GemmArgs {
        m: points.len(),
        n: cols.len(),
        k,
        a: Strided { data: std::ptr::null(), row: 0, col: 1 }.into(),
        b: c.parts.map_or(BOperand::Packed(weights), |parts| BOperand::Split(weights, parts)),
        c: std::ptr::null_mut(),
        c_row: 0,
        c_col: 1,
        accumulate: false,
        epilogue: gemm::Epilogue::default(),
    };
    match p.finish.direct() {
        Some(d) => {
            let (first, step) = (output_point(phase, &p.out_spatial, points.start), output_step(phase));
            d.set(&mut args, &run.bufs, &[p.batch], image, (first, col), step);
        }
        None => args.epilogue.hook = hook.as_ref().map(|h| h as _),
    }
    // Pointers to segments and a segment of zeros, or what is gathered.
    const POINTER: usize = size_of::<*const f32>() / size_of::<f32>();
    let mut pointers = 0;
    let image = matches!(blocks.reading, Reading::Image).then(|| Image::of(phase, in_group, points.clone()));
    let own = match blocks.reading {
        Reading::Even { .. } => 0,
        Reading::Segments | Reading::Image => {
            let (starts, copy, width) = match &image {
                Some(image) => (points.len() * image.lines, image.len(), image.width),
                None => (points.len() * phase.taps(), in_group, in_group),
            };
            pointers = starts;
            args.a = AOperand::Segments { starts: &[], width };
            (starts * POINTER + copy).next_multiple_of(16)
        }
        Reading::Rows | Reading::Columns => (points.len() * k).next_multiple_of(16),
    };
    let len = own + args.scratch_len(run.isa);
    scratch::with(len * size_of::<f32>(), |memory| {
        // SAFETY: the memory has room for `len` elements and is aligned to a cache line; walks were checked at bind;
        // tasks write disjoint points and channels.
        unsafe {
            let memory = std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<f32>(), len);
            let (own, memory) = memory.split_at_mut(own);
            let source =
                Source { phase, dtype: p.input.dtype, base, offset, channels: in_group, channel: p.input.strides[1] };
            match blocks.reading {
                Reading::Even { step, first } => {
                    let at = offset + first + points.start as i64 * step;
                    let data = base.cast::<f32>().cast_const().wrapping_offset(at as isize);
                    let (row, col) = (step as isize, p.input.strides[1] as isize);
                    args.a = Strided { data, row, col }.into();
                }
                Reading::Segments | Reading::Image => {
                    let (starts, copy) = own.split_at_mut(pointers * POINTER);
                    let starts = starts.as_mut_ptr().cast::<*const f32>();
                    if let Some(image) = &image {
                        image.fill(&source, copy.as_mut_ptr());
                        image.starts(phase, points.clone(), copy.as_ptr(), starts);
                    } else {
                        copy.fill(0.0);
                        source.starts(points.clone(), copy.as_ptr(), starts);
                    }
                    let width = image.as_ref().map_or(in_group, |i| i.width);
                    let starts = std::slice::from_raw_parts(starts, pointers);
                    args.a = AOperand::Segments { starts, width };
                }
                Reading::Rows => {
                    source.rows(points.clone(), 0.0f32, own.as_mut_ptr());
                    args.a = Strided { data: own.as_ptr(), row: k as isize, col: 1 }.into();
                }
                Reading::Columns => {
                    source.columns(points.clone(), own.as_mut_ptr());
                    args.a = Strided { data: own.as_ptr(), row: 1, col: points.len() as isize }.into();
                }
            }
            gemm::gemm(run.isa, &args, memory);
        }
    });
}

/// Output points from one point of a phase to the next along the last axis.
fn output_step(phase: &Phase) -> usize {
    phase.axes.last().map_or(1, |a| a.step)
}

/// The number among all output points of a phase's point.
fn output_point(phase: &Phase, sizes: &[usize], point: usize) -> usize {
    let outs: SmallVec<[usize; 4]> = phase.axes.iter().map(|a| a.outs).collect();
    let mut index: SmallVec<[usize; 4]> = smallvec::smallvec![0; outs.len()];
    unravel(point, &outs, &mut index);
    let along = phase.axes.iter().zip(&index).map(|(a, &j)| a.first + j * a.step);
    along.zip(sizes).fold(0, |n, (o, &size)| n * size + o)
}
