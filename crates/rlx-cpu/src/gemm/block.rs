//! The loop nest over one block of C: packing, blocks of K, panels, row tiles, epilogue.
//!
//! ```text
//! for columns (all, or as many as packed B may take of scratch)     pack B, if it is not
//!   for rows (as many as stay in the second cache)                  pack A over all of K
//!     for columns (as many as let a block of C stay there too)
//!       for blocks of K
//!         for panels, for row tiles                                 register tile; the last block of K: the menu
//!       the epilogue's hook
//! ```

use super::epilogue::{ApplyMenu, Lines, OutputBlock};
use super::microkernel::{self, Tile, panels_at_once};
use super::pack::{PackPanels, PackTiles, panel_width, row_tile};
use super::stream::{SUMS, Stream};
use super::{BOperand, GemmArgs, Strided, k_block};
use crate::simd::{Isa, Kernel, MAX_TILE_VECTORS, MAX_W, Simd};
use std::ops::Range;

/// Rows of A packed at a time, a multiple of all tile heights' common sizes: 192 by 384 f32 are 288 KiB.
const ROWS: usize = 192;
/// Bound on packed A, in elements, where K is large.
const A_LIMIT: usize = 1 << 20;
/// Bound on B packed on the fly, in elements.
const B_LIMIT: usize = 1 << 18;
/// Columns of C worked on before the hook runs and the next block of A's rows begins.
const COLS: usize = 384;
/// Up to so many rows, a B with unit column stride is read where it is: packing would cost more than it saves.
const DIRECT_ROWS: usize = 4;
/// The alignment of packed operands, in elements.
const ALIGN: usize = 16;

/// How a product uses scratch. All sizes are in elements and multiples of [`ALIGN`].
struct Plan {
    /// Rows of A packed at a time.
    rows: usize,
    /// Columns of B packed at a time, whole panels; 0 where B is packed already.
    b_cols: usize,
    a_len: usize,
    b_len: usize,
    c_len: usize,
}

impl Plan {
    fn new(nr: usize, args: &GemmArgs<'_>, m: usize, n: usize) -> Self {
        let k = args.k.max(1);
        let blocks = m.div_ceil(ROWS.min(A_LIMIT / k).max(1)).max(1);
        // Even blocks, of whole tiles on the levels that have 6 rows.
        let rows = m.div_ceil(blocks).next_multiple_of(6).min(m);
        let b_cols = match args.b {
            BOperand::Packed(_) => 0,
            BOperand::Strided(_) => (B_LIMIT / k).next_multiple_of(nr).clamp(nr, n.next_multiple_of(nr).max(nr)),
        };
        let block_cols = COLS.next_multiple_of(nr).min(n);
        Plan {
            rows,
            b_cols,
            a_len: (rows * args.k).next_multiple_of(ALIGN),
            b_len: (b_cols * args.k).next_multiple_of(ALIGN),
            c_len: if in_scratch(args) { (rows * block_cols).next_multiple_of(ALIGN) } else { 0 },
        }
    }
    fn len(&self) -> usize {
        self.a_len + self.b_len + self.c_len + ALIGN
    }
}

/// Whether sums are kept in scratch: there is no C, or it holds what is still to be added.
fn in_scratch(args: &GemmArgs<'_>) -> bool {
    args.c.is_null() || (args.epilogue.in_place && args.k > k_block(args.k).max(1))
}

/// See [`GemmArgs::scratch_len`]: enough for the whole of C and for any part of it.
pub(super) fn scratch_len(isa: Isa, args: &GemmArgs<'_>) -> usize {
    let nr = panel_width(isa);
    // A part with fewer rows may have larger even blocks, but never beyond the bounds.
    let k = args.k.max(1);
    let rows = (ROWS.min(A_LIMIT / k).max(1) + 6).min(args.m);
    let whole = Plan::new(nr, args, args.m, args.n);
    let c_len = if in_scratch(args) { rows * COLS.next_multiple_of(nr).min(args.n) } else { 0 };
    (rows * args.k).next_multiple_of(ALIGN) + whole.b_len + c_len.next_multiple_of(ALIGN) + ALIGN
}

/// The scratch that one block of C uses.
#[cfg(test)]
pub(super) fn needed(isa: Isa, args: &GemmArgs<'_>, rows: Range<usize>, cols: Range<usize>) -> usize {
    Plan::new(panel_width(isa), args, rows.len(), cols.len()).len()
}

/// One block of C: the kernel that `dispatch` runs.
pub(super) struct Block<'a> {
    args: &'a GemmArgs<'a>,
    rows: Range<usize>,
    cols: Range<usize>,
    plan: Plan,
    a: *mut f32,
    b: *mut f32,
    c: *mut f32,
    hook_scratch: &'a mut [f32],
}

impl<'a> Block<'a> {
    /// Divides the scratch.
    ///
    /// # Safety
    /// The promise of [`GemmArgs`]; `rows` and `cols` lie within C.
    pub(super) unsafe fn new(
        isa: Isa,
        args: &'a GemmArgs<'a>,
        rows: Range<usize>,
        cols: Range<usize>,
        scratch: &'a mut [f32],
    ) -> Self {
        let plan = Plan::new(panel_width(isa), args, rows.len(), cols.len());
        assert!(
            scratch.len() >= plan.len(),
            "a product needs {} elements of scratch, not {}",
            plan.len(),
            scratch.len()
        );
        let skip = scratch.as_ptr().align_offset(ALIGN * size_of::<f32>()).min(ALIGN);
        let (_, rest) = scratch.split_at_mut(skip);
        let (a, rest) = rest.split_at_mut(plan.a_len);
        let (b, rest) = rest.split_at_mut(plan.b_len);
        let (c, hook_scratch) = rest.split_at_mut(plan.c_len);
        Block { args, rows, cols, a: a.as_mut_ptr(), b: b.as_mut_ptr(), c: c.as_mut_ptr(), plan, hook_scratch }
    }
}

/// Panels of B from some column on.
#[derive(Clone, Copy)]
struct Panels {
    data: *const f32,
    /// From one k-step to the next.
    step: isize,
    /// From one panel to the next.
    panel: isize,
}

/// Where a block of C is written: C itself or scratch.
#[derive(Clone, Copy)]
struct Out {
    data: *mut f32,
    row: isize,
    col: isize,
}

impl Kernel for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let nr = S::W * S::TILE_VECTORS;
        let args = self.args;
        if self.rows.is_empty() || self.cols.is_empty() {
            return;
        }
        if let Some(b) = self.direct_b() {
            // SAFETY: `direct_b` looked at the strides.
            unsafe { self.direct(s, b) };
            return;
        }
        let b_cols = if self.plan.b_cols == 0 { self.cols.len() } else { self.plan.b_cols };
        let mut packed_rows = None;
        for col in self.cols.clone().step_by(b_cols) {
            let cols = col..self.cols.end.min(col + b_cols);
            // SAFETY: the columns lie within C, hence within B.
            let panels = unsafe { self.b_panels(s, cols.clone()) };
            for row in self.rows.clone().step_by(self.plan.rows) {
                let rows = row..self.rows.end.min(row + self.plan.rows);
                let a = if rows.len() == 1 && args.a.col == 1 {
                    args.a.at(row, 0)
                } else {
                    if packed_rows != Some(row) {
                        let from = Strided { data: args.a.at(row, 0), ..args.a };
                        s.vectorize(PackTiles { src: from, rows: rows.len(), k: args.k, dst: self.a });
                        packed_rows = Some(row);
                    }
                    self.a.cast_const()
                };
                let step = COLS.next_multiple_of(nr);
                for c0 in cols.clone().step_by(step) {
                    let part = c0..cols.end.min(c0 + step);
                    // SAFETY: rows and columns lie within C, A is packed, `panels` covers the columns.
                    unsafe { self.part(s, a, panels, cols.start, rows.clone(), part) };
                }
            }
        }
    }
}

impl Block<'_> {
    /// The panels of some columns, packed here if they are not.
    ///
    /// # Safety
    /// `cols` lies within B and starts at a panel's edge.
    unsafe fn b_panels<S: Simd>(&self, s: S, cols: Range<usize>) -> Panels {
        let k = self.args.k;
        let nr = S::W * S::TILE_VECTORS;
        let packed = Panels { data: self.b, step: nr as isize, panel: (k * nr) as isize };
        match self.args.b {
            BOperand::Packed(data) => Panels { data: data.wrapping_add(cols.start * k), ..packed },
            BOperand::Strided(b) => {
                let src = Strided { data: b.at(0, cols.start), ..b };
                s.vectorize(PackPanels { src, k, cols: cols.len(), dst: self.b });
                packed
            }
        }
    }

    /// B, where it is better read in place than packed.
    fn direct_b(&self) -> Option<Strided> {
        match self.args.b {
            BOperand::Strided(b) if b.col == 1 && self.rows.len() <= DIRECT_ROWS && self.args.c_col == 1 => {
                (!self.args.epilogue.in_place).then_some(b)
            }
            _ => None,
        }
    }

    /// All of this block of C, reading B in place.
    ///
    /// # Safety
    /// `b` is B with unit column stride, and so is C's.
    #[inline(always)]
    unsafe fn direct<S: Simd>(&mut self, s: S, b: Strided) {
        let args = self.args;
        let rows = self.rows.clone();
        // What fits the buffer of sums, and the scratch block where C is one.
        let step = if args.c.is_null() { COLS } else { SUMS / DIRECT_ROWS };
        for c in self.cols.clone().step_by(step) {
            let cols = c..self.cols.end.min(c + step);
            let out = self.out(rows.start, cols.start, cols.len());
            let depth = k_block(args.k).max(1);
            let mut k0 = 0;
            loop {
                let k = (args.k - k0).min(depth);
                s.vectorize(Stream {
                    rows: rows.len(),
                    cols: cols.len(),
                    k,
                    a: Strided { data: args.a.at(rows.start, k0), ..args.a },
                    b: b.at(k0, cols.start),
                    b_row: b.row,
                    c: out.data,
                    c_row: out.row,
                    add: k0 > 0 || args.accumulate,
                });
                k0 += k;
                if k0 == args.k {
                    break;
                }
            }
            if !args.epilogue.is_identity() {
                s.vectorize(ApplyMenu {
                    epilogue: &args.epilogue,
                    row: rows.start,
                    col: cols.start,
                    rows: rows.len(),
                    cols: cols.len(),
                    from: Lines { data: out.data, row: out.row },
                    to: Lines { data: out.data, row: out.row },
                });
            }
            self.hook(rows.clone(), cols, out);
        }
    }

    /// Where the block of C from `row` and `col` on, `width` columns wide, is written.
    fn out(&self, row: usize, col: usize, width: usize) -> Out {
        let args = self.args;
        if args.c.is_null() {
            return Out { data: self.c, row: width as isize, col: 1 };
        }
        let offset = row as isize * args.c_row + col as isize * args.c_col;
        Out { data: args.c.wrapping_offset(offset), row: args.c_row, col: args.c_col }
    }

    /// Shows a finished block to the epilogue's hook.
    fn hook(&mut self, rows: Range<usize>, cols: Range<usize>, out: Out) {
        if let Some(hook) = self.args.epilogue.hook {
            hook.run(OutputBlock {
                rows,
                cols,
                data: out.data,
                row_stride: out.row,
                col_stride: out.col,
                scratch: &mut *self.hook_scratch,
            });
        }
    }

    /// One part of C over all of K, with its epilogue.
    ///
    /// # Safety
    /// `a` holds the packed `rows`; `panels` starts at column `first` and covers `cols`; all lies within C.
    #[inline(always)]
    unsafe fn part<S: Simd>(
        &mut self,
        s: S,
        a: *const f32,
        panels: Panels,
        first: usize,
        rows: Range<usize>,
        cols: Range<usize>,
    ) {
        let args = self.args;
        let nr = S::W * S::TILE_VECTORS;
        let out = self.out(rows.start, cols.start, cols.len());
        let whole_end = cols.start + cols.len() / nr * nr;
        let depth = k_block(args.k).max(1);
        let mut k0 = 0;
        loop {
            let k = (args.k - k0).min(depth);
            let last = k0 + k == args.k;
            let mut c = cols.start;
            while c < cols.end {
                let j = (c - first) / nr;
                // Several panels at a time only where all row tiles are that small, and all these panels whole.
                let at_once = panels_at_once(rows.len());
                let group = if c + at_once * nr <= whole_end && out.col == 1 { at_once } else { 1 };
                let b = panels.data.wrapping_offset(j as isize * panels.panel);
                let width = (cols.end - c).min(group * nr);
                for t in 0..rows.len().div_ceil(S::TILE_ROWS) {
                    let tile_rows = row_tile(rows.len(), S::TILE_ROWS, t);
                    let to = Out {
                        data: out
                            .data
                            .wrapping_offset(tile_rows.start as isize * out.row + (c - cols.start) as isize * out.col),
                        ..out
                    };
                    let tile = Tile {
                        k,
                        a: a.wrapping_add(tile_rows.start * args.k + k0 * tile_rows.len()),
                        b: b.wrapping_offset(k0 as isize * panels.step),
                        b_step: panels.step,
                        b_panel: panels.panel,
                        c: to.data,
                        c_row: to.row,
                        add: k0 > 0 || args.accumulate,
                    };
                    let menu = last && !args.epilogue.is_identity();
                    let here = Lines { data: to.data, row: to.row };
                    let apply = ApplyMenu {
                        epilogue: &args.epilogue,
                        row: rows.start + tile_rows.start,
                        col: c,
                        rows: tile_rows.len(),
                        cols: width,
                        from: here,
                        to: here,
                    };
                    // Sums of the blocks of K before, and this one's where the menu still reads C.
                    let sums = Out {
                        data: self.c.wrapping_add(tile_rows.start * cols.len() + (c - cols.start)),
                        row: cols.len() as isize,
                        col: 1,
                    };
                    let kept = args.epilogue.in_place && !last;
                    if let (true, Some(residual)) = (menu, &args.epilogue.residual) {
                        // It is far away and would be waited for after the product.
                        for r in 0..tile_rows.len() {
                            let row = rows.start + tile_rows.start + r;
                            for line in (0..width).step_by(16) {
                                s.prefetch(residual.at(row, c + line));
                            }
                        }
                    }
                    // SAFETY: the tile lies within the packed operands and C; an edge goes through a buffer.
                    unsafe {
                        if to.col == 1 && width == group * nr && !args.epilogue.in_place {
                            microkernel::run(s, tile_rows.len(), group, tile);
                            if menu {
                                s.vectorize(apply);
                            }
                        } else if width == group * nr && kept {
                            let tile = Tile { c: sums.data, c_row: sums.row, ..tile };
                            microkernel::run(s, tile_rows.len(), group, tile);
                        } else {
                            let mut buffer = [0.0f32; MAX_TILE_ROWS * MAX_TILE_VECTORS * MAX_W];
                            let data = buffer.as_mut_ptr();
                            let wide = group * nr;
                            let edge = Tile { c: data, c_row: wide as isize, add: false, ..tile };
                            microkernel::run(s, tile_rows.len(), group, edge);
                            let (before, after) = match (args.epilogue.in_place, last) {
                                (false, _) => (to, to),
                                (true, false) => (sums, sums),
                                (true, true) => (sums, to),
                            };
                            if tile.add {
                                each(tile_rows.len(), width, |r, j| *data.add(r * wide + j) += *before.at(r, j));
                            }
                            let from = Lines { data, row: wide as isize };
                            if menu && after.col == 1 {
                                s.vectorize(ApplyMenu { from, ..apply });
                                continue;
                            }
                            if menu {
                                s.vectorize(ApplyMenu { from, to: from, ..apply });
                            }
                            each(tile_rows.len(), width, |r, j| *after.at(r, j) = *data.add(r * wide + j));
                        }
                    }
                }
                c += group * nr;
            }
            k0 += k;
            if last {
                break;
            }
        }
        self.hook(rows, cols, out);
    }
}

/// The greatest height of any level's register tile.
const MAX_TILE_ROWS: usize = 14;

impl Out {
    #[inline(always)]
    fn at(&self, r: usize, c: usize) -> *mut f32 {
        self.data.wrapping_offset(r as isize * self.row + c as isize * self.col)
    }
}

#[inline(always)]
fn each(rows: usize, cols: usize, mut f: impl FnMut(usize, usize)) {
    for r in 0..rows {
        for c in 0..cols {
            f(r, c);
        }
    }
}
