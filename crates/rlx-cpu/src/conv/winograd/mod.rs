//! Convolutions of 3×3 windows by Winograd's F(2×2, 3×3): sixteen products of transformed tiles and weights give what
//! thirty-six multiplications of each pair of channels would.
//!
//! Transforms hold 0, ±1 and ±½ alone, and no chain of additions is longer than a part of the channels, so that results are
//! about as near to the exact ones as those of the direct sum are. What the sums of a transform could spoil is computed directly: outputs of
//! tiles that see an infinity, a NaN or something huge, and all outputs where the weights hold such.
//!
//! Tiles are counted through all images and cut into blocks by size alone. Where blocks are many, a task transforms those
//! of its block, multiplies and transforms back; where they are few, all tiles are transformed first, and tasks divide the
//! output channels too.

mod transform;
mod weights;

#[cfg(test)]
mod tests;

use self::transform::{Grid, Input, Layout, Output, Planes};
use self::weights::{PLANES, Transformed, Weights};
use super::ConvPlan;
use super::product::{self, Piece, Product};
use crate::buffers::{Ptr, RunCx};
use crate::contract::operand::{panels, with_panels};
use crate::epilogue::direct::Direct;
use crate::gemm::{
    self, AOperand, BOperand, GemmArgs, Lines, Planned, Strided, apply_menu_to, gemm_planned, panel_width,
};
use crate::simd::{Isa, dispatch};
use crate::tile::code::Code;
use crate::tile::scratch;
use rlx_ir::DType;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// A convolution by transforms.
#[derive(Debug)]
pub struct Winograd {
    /// The same without.
    direct: Product,
    weights: Weights,
    grid: Grid,
    /// Tiles in all, and of a block.
    tiles: usize,
    block: usize,
    /// Output channels that are multiplied at a time: whole panels.
    columns: usize,
    /// All tiles are transformed before any is multiplied.
    ahead: bool,
}

// Measured beside the direct product on AVX2, weights in the cache and from memory: what is chosen is faster by a tenth or more.

/// Fewest input and output channels, and pairs of them.
const CHANNELS: (usize, usize) = (16, 24 * 24);
/// Fewest tiles of an image: fewer would read more of the weights than they save multiplications.
const TILES: usize = 12;
/// Multiplications of the direct sum for two of tiles, at least: tiles that reach far over the edge save none.
const GAIN: usize = 3;
/// Transformed inputs of a block, in elements.
const BLOCK: usize = 1 << 18;
/// Fewest and most tiles of a block: fewer would read the weights too often.
const BLOCK_TILES: (usize, usize) = (24, 64);
/// Output channels multiplied at a time, at most; and where tasks would be few.
const COLUMNS: (usize, usize) = (128, 64);
/// Tasks that are wanted.
const TASKS: usize = 4;
/// Blocks that are enough to divide among threads; more are a multiple of that.
const BLOCKS: usize = 8;
/// Bytes of transformed inputs that are made ahead, at most.
const AHEAD: usize = 8 << 20;
/// Transformed numbers of a task that does nothing else.
const PIECE: usize = 1 << 16;

/// Plans it, if the convolution is one of those that gain by it. `direct` is what the result is written by, if a product can.
pub fn plan(p: &ConvPlan, direct: Option<&Direct>, isa: Isa) -> Option<Winograd> {
    let ones = |v: &[i64]| v.iter().all(|&n| n == 1);
    let window = p.window[..] == [3, 3] && ones(&p.strides) && ones(&p.dilations);
    if !window || p.transposed || p.groups != 1 || p.input.dtype != DType::F32 || p.input.strides[1] != 1 {
        return None;
    }
    let many =
        p.in_channels.min(p.out_channels) >= CHANNELS.0 && p.in_channels.saturating_mul(p.out_channels) >= CHANNELS.1;
    let gains = many && {
        let tiles: usize = p.out_spatial.iter().map(|n| n.div_ceil(2)).product();
        let points: usize = p.out_spatial.iter().product();
        tiles >= TILES && points.saturating_mul(9 * 2) >= tiles.saturating_mul(PLANES * GAIN)
    };
    let fits = direct.is_none_or(|d| d.steps().1 == 1);
    if gains && fits { of(p, isa) } else { None }
}

/// Plans it for a window of three by three with steps of one, whether that gains or not.
pub fn of(p: &ConvPlan, isa: Isa) -> Option<Winograd> {
    let weights = Weights::new(isa, &p.weight, p.in_channels, p.out_channels)?;
    let direct = product::plan(p, isa, None);
    let &[y, x] = &direct.phases().first()?.axes[..] else { return None };
    let grid = Grid { y, x };
    let tiles = grid.down().checked_mul(grid.across())?.checked_mul(p.batch)?;
    let most = (BLOCK / (PLANES * p.in_channels)).clamp(BLOCK_TILES.0, BLOCK_TILES.1);
    let mut blocks = tiles.div_ceil(most).max(1);
    if blocks > BLOCKS {
        blocks = blocks.next_multiple_of(BLOCKS);
    }
    let parts = p.out_channels.div_ceil(COLUMNS.0);
    let parts = if blocks * parts < TASKS { p.out_channels.div_ceil(COLUMNS.1) } else { parts };
    let ahead = blocks < BLOCKS && Layout::new(tiles, p.in_channels).len() <= AHEAD / size_of::<f32>();
    Some(Winograd {
        weights,
        grid,
        tiles,
        block: tiles.div_ceil(blocks).max(1),
        columns: p.out_channels.div_ceil(parts).next_multiple_of(panel_width(isa)),
        ahead,
        direct,
    })
}

/// Makes the form of the weights that runs keep.
/// # Safety
/// `run` has the weights' memory.
pub unsafe fn pack(w: &Winograd, run: &RunCx<'_>) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(kept) = w.weights.kept(run)
            && !kept.fit()
        {
            panels(run, w.direct.weights());
        }
    }
}

/// Runs it.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(w: &Winograd, p: &ConvPlan, code: &Code, run: &RunCx<'_>) {
    // SAFETY: the caller's promise.
    unsafe {
        w.weights.with(run, |weights| {
            if !weights.fit() {
                return product::run(&w.direct, p, code, run);
            }
            let zeros = p.in_channels * size_of::<f32>();
            // Zeros for what lies outside, and a flag for each tile.
            scratch::with(zeros + w.tiles, |memory| {
                let (zeros, odd) = memory.split_at_mut(zeros);
                zeros.fill(0);
                let job = Job {
                    w,
                    p,
                    code,
                    run,
                    weights,
                    zeros: Ptr(zeros.as_mut_ptr()),
                    odd: Ptr(odd.as_mut_ptr()),
                    any: AtomicBool::new(false),
                };
                job.run();
                if job.any.load(Ordering::Relaxed) {
                    job.mend();
                }
            });
        });
    }
}

/// One run.
struct Job<'a> {
    w: &'a Winograd,
    p: &'a ConvPlan,
    code: &'a Code,
    run: &'a RunCx<'a>,
    weights: Transformed,
    zeros: Ptr,
    /// For each tile: not 0 where it sees what transforms would spoil.
    odd: Ptr,
    any: AtomicBool,
}

/// Tiles in a row of an image, one after another.
struct Line {
    image: usize,
    row: usize,
    /// The first of them in the row.
    first: usize,
    /// The first of them among all.
    tile: usize,
    tiles: usize,
}

impl Job<'_> {
    /// # Safety
    /// As [`run`].
    unsafe fn run(&self) {
        let (w, p) = (self.w, self.p);
        let blocks = w.tiles.div_ceil(w.block.max(1));
        let parts = p.out_channels.div_ceil(w.columns);
        let sums = Layout::new(w.block, w.columns);
        let block = |b: usize| b * w.block..w.tiles.min((b + 1) * w.block);
        let columns = |part: usize| part * w.columns..p.out_channels.min((part + 1) * w.columns);
        let region = self.run.region;
        let inputs = Layout::new(if w.ahead { w.tiles } else { w.block }, p.in_channels);
        if w.ahead {
            scratch::with(inputs.len() * size_of::<f32>(), |memory| {
                let memory = Ptr(memory.as_mut_ptr());
                let inputs = |tile: usize| inputs.at(memory.get().cast()).from(tile);
                let each = (PIECE / (PLANES * p.in_channels)).max(1);
                // SAFETY: the caller's promise; tiles have rows of their own.
                region.parallel_ranges(w.tiles, each, &|tiles| unsafe {
                    self.transform(tiles.clone(), inputs(tiles.start));
                });
                region.parallel_for(blocks * parts, &|task| {
                    // Neighbouring tasks share weights.
                    let (tiles, columns) = (block(task % blocks), columns(task / blocks));
                    scratch::with(sums.len() * size_of::<f32>(), |memory| {
                        let sums = sums.at(memory.as_mut_ptr().cast());
                        // SAFETY: the caller's promise; tasks have tiles and channels of their own.
                        unsafe { self.multiply(tiles.clone(), columns, inputs(tiles.start), sums) };
                    });
                });
            });
            return;
        }
        region.parallel_for(blocks, &|b| {
            scratch::with((inputs.len() + sums.len()) * size_of::<f32>(), |memory| {
                let memory = memory.as_mut_ptr().cast::<f32>();
                let (sums, inputs) = (sums.at(memory.wrapping_add(inputs.len())), inputs.at(memory));
                // SAFETY: the caller's promise; tasks have tiles of their own.
                unsafe {
                    self.transform(block(b), inputs);
                    for part in 0..parts {
                        self.multiply(block(b), columns(part), inputs, sums);
                    }
                }
            });
        });
    }

    /// Calls `f` for the lines of some tiles.
    fn lines(&self, tiles: Range<usize>, mut f: impl FnMut(Line)) {
        let across = self.w.grid.across();
        let each = across * self.w.grid.down();
        let mut tile = tiles.start;
        while tile < tiles.end {
            let (image, at) = (tile / each, tile % each);
            let (row, first) = (at / across, at % across);
            let n = (across - first).min(tiles.end - tile);
            f(Line { image, row, first, tile, tiles: n });
            tile += n;
        }
    }

    /// Transforms what tiles see.
    /// # Safety
    /// As [`run`]; `to` has room for the tiles.
    unsafe fn transform(&self, tiles: Range<usize>, to: Planes) {
        let (p, start) = (self.p, tiles.start);
        let base = self.run.bufs.base(p.input.buffer).cast::<f32>().cast_const();
        self.lines(tiles, |line| {
            let image = p.input.offset + line.image as i64 * p.input.strides[0];
            let body = Input {
                image: base.wrapping_offset(image as isize),
                grid: &self.w.grid,
                channels: p.in_channels,
                zeros: self.zeros.get().cast(),
                row: line.row,
                first: line.first,
                tiles: line.tiles,
                to: to.from(line.tile - start),
                odd: self.odd.get().wrapping_add(line.tile),
            };
            if dispatch(self.run.isa, body) {
                self.any.store(true, Ordering::Relaxed);
            }
        });
    }

    /// Multiplies transformed tiles by some columns of the weights, transforms the sums back and writes the results.
    /// # Safety
    /// As [`run`]; `inputs` are the tiles', `sums` has room for tiles and columns.
    unsafe fn multiply(&self, tiles: Range<usize>, columns: Range<usize>, inputs: Planes, sums: Planes) {
        let (p, isa) = (self.p, self.run.isa);
        for part in self.w.weights.parts() {
            let left = |plane: usize| {
                let rows = inputs.matrix(plane);
                AOperand::from(Strided { data: rows.at(0, part.start), row: rows.row, col: 1 })
            };
            let right = |plane| {
                let panels = self.weights.panels(plane, part.start);
                BOperand::Packed(panels.wrapping_add(columns.start * part.len()))
            };
            let mut args = GemmArgs {
                m: tiles.len(),
                n: columns.len(),
                k: part.len(),
                a: left(0),
                b: right(0),
                c: sums.matrix(0).data,
                c_row: sums.matrix(0).row,
                c_col: 1,
                accumulate: part.start > 0,
                epilogue: gemm::Epilogue::default(),
            };
            let planned = Planned::new(isa, &args);
            scratch::with(planned.scratch_len() * size_of::<f32>(), |memory| {
                let len = memory.len() / size_of::<f32>();
                // SAFETY: this thread's memory, aligned to a cache line.
                let memory = unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<f32>(), len) };
                for plane in 0..PLANES {
                    (args.a, args.b, args.c) = (left(plane), right(plane), sums.matrix(plane).data);
                    // SAFETY: the caller's promise; columns begin at a panel's edge.
                    unsafe { gemm_planned(isa, &args, &planned, memory) };
                }
            });
        }
        // SAFETY: the caller's promise.
        unsafe {
            match p.finish.direct() {
                Some(d) => self.finish(d, tiles, columns, sums),
                None => self.finish_by_program(tiles, columns, sums),
            }
        }
    }

    /// The transform back of a line of tiles.
    fn output(&self, line: &Line, columns: usize, from: Planes) -> Output {
        let Grid { y, x } = self.w.grid;
        Output {
            from,
            tiles: line.tiles,
            columns,
            down: (y.outs - 2 * line.row).min(2),
            last: (x.outs - 2 * (line.first + line.tiles - 1)).min(2),
            odd: self.odd.get().wrapping_add(line.tile),
            to: None,
        }
    }

    /// The number of an output point of a line: in line `i` of its tiles, `j` behind the first.
    fn point(&self, line: &Line, i: usize, j: usize) -> usize {
        (2 * line.row + i) * self.w.grid.x.outs + 2 * line.first + j
    }

    /// Results by the menu.
    /// # Safety
    /// As [`Job::multiply`].
    unsafe fn finish(&self, d: &Direct, tiles: Range<usize>, columns: Range<usize>, sums: Planes) {
        let (p, run, start) = (self.p, self.run, tiles.start);
        self.lines(tiles, |line| {
            let place = |i: usize, j: usize| {
                let point = self.point(&line, i, j);
                let (c, menu) = d.at(&run.bufs, &[p.batch], line.image, point, columns.start);
                (Lines { data: c.data.cast_mut(), row: c.row }, menu)
            };
            let mut body = self.output(&line, columns.len(), sums.from(line.tile - start));
            let down = body.down;
            let ends = [0, 1].map(|i| {
                let (c, menu) = place(i.min(down - 1), 0);
                Some((c, menu.finish_at_once()?))
            });
            if let [Some(upper), Some(lower)] = ends {
                body.to = Some([upper, lower]);
                dispatch(run.isa, body);
                return;
            }
            let (from, last) = (body.from, body.last);
            dispatch(run.isa, body);
            // Outputs of the same place in each tile: every other point of a line.
            self.runs(&line, false, |tiles| {
                for (i, j) in (0..down).flat_map(|i| [(i, 0), (i, 1)]) {
                    let rows = if tiles.end == line.tiles && j >= last { tiles.len() - 1 } else { tiles.len() };
                    let (mut to, mut menu) = place(i, 2 * tiles.start + j);
                    to.row *= 2;
                    for m in menu.bias.iter_mut().chain(&mut menu.residual) {
                        m.row *= 2;
                    }
                    let from = from.from(tiles.start).matrix(2 * i + j);
                    // SAFETY: these outputs are within the result, which the menu's operands cover.
                    unsafe { apply_menu_to(run.isa, &menu, (from, to), rows, columns.len()) };
                }
            });
        });
    }

    /// Calls `f` with the runs of tiles of a line that are left out, or that are not.
    fn runs(&self, line: &Line, left_out: bool, mut f: impl FnMut(Range<usize>)) {
        // SAFETY: a flag for each tile.
        let is = |t: usize| unsafe { (*self.odd.get().add(line.tile + t) != 0) == left_out };
        let mut t = 0;
        while t < line.tiles {
            let end = (t..line.tiles).find(|&t| !is(t)).unwrap_or(line.tiles);
            if end > t {
                f(t..end);
            }
            t = end + 1;
        }
    }

    /// Results by the program.
    /// # Safety
    /// As [`Job::multiply`].
    unsafe fn finish_by_program(&self, tiles: Range<usize>, columns: Range<usize>, sums: Planes) {
        let (p, run, start) = (self.p, self.run, tiles.start);
        let points: usize = p.out_spatial.iter().product();
        p.finish.with_runner(self.code, run.bufs, run.isa, |runner| {
            self.lines(tiles, |line| {
                let body = self.output(&line, columns.len(), sums.from(line.tile - start));
                let (from, down, last) = (body.from, body.down, body.last);
                dispatch(run.isa, body);
                self.runs(&line, false, |tiles| {
                    for t in tiles {
                        let wide = if t + 1 == line.tiles { last } else { 2 };
                        for (i, j) in (0..down).flat_map(|i| (0..wide).map(move |j| (i, j))) {
                            let row = line.image * points + self.point(&line, i, 2 * t + j);
                            let sums = from.from(t).matrix(2 * i + j).data.cast();
                            // SAFETY: the output is within the plan's, and this task's alone, as the sums are.
                            unsafe { runner.run(row, columns.start, columns.len(), sums) };
                        }
                    }
                });
            });
        });
    }

    /// Computes the outputs of tiles that were left out.
    /// # Safety
    /// As [`run`].
    unsafe fn mend(&self) {
        let (w, p, run) = (self.w, self.p, self.run);
        let across = w.grid.across();
        // SAFETY: the caller's promise.
        unsafe {
            with_panels(run, w.direct.weights(), |panels| {
                run.region.parallel_for(w.tiles / across, &|row| {
                    self.lines(row * across..(row + 1) * across, |line| {
                        self.runs(&line, true, |tiles| {
                            let outs = w.grid.x.outs - 2 * tiles.start;
                            for i in 0..(w.grid.y.outs - 2 * line.row).min(2) {
                                let first = self.point(&line, i, 2 * tiles.start);
                                let piece = Piece {
                                    image: line.image,
                                    group: 0,
                                    points: first..first + outs.min(2 * tiles.len()),
                                    cols: 0..p.out_channels,
                                };
                                product::multiply(&w.direct, p, self.code, run, panels, 0, piece);
                            }
                        });
                    });
                });
            });
        }
    }
}
