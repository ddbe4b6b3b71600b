//! The loop nest over one block of C: packing, blocks of K, panels, row tiles, epilogue.
//!
//! ```text
//! for columns (all, or as many as packed B may take of scratch)     pack B, if it is not
//!   for rows (as many as stay in the second cache)                  pack A over all of K, if that pays
//!     for columns (as many as let a block of C stay there too)
//!       for blocks of K
//!         for panels, for row tiles                                 register tile; the last block of K: the menu
//!       the epilogue's hook
//! ```

use super::epilogue::{Activate, Activation, ApplyMenu, Finish, Lines, OutputBlock};
use super::microkernel::{self, Column, Left, NARROW_ROWS, Segments, panels_at_once};
use super::narrow::{self, Part, Widen};
use super::pack::{PackPanels, PackTiles, panel_width, row_tiles};
use super::stream::{SUMS, Stream};
use super::{AOperand, BOperand, GemmArgs, Strided, k_block};
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
/// Up to so many columns, or rows, rows of A are read where they are: a packed copy would be read too seldom.
const UNPACKED: (usize, usize) = (256, 24);
/// The alignment of packed operands, in elements.
const ALIGN: usize = 16;

/// How a product uses scratch. All sizes are in elements and multiples of [`ALIGN`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Rows of A packed at a time.
    rows: usize,
    /// Columns of B packed at a time, whole panels; 0 where B is packed already.
    b_cols: usize,
    a_len: usize,
    b_len: usize,
    c_len: usize,
}

impl Plan {
    pub(super) fn new(nr: usize, args: &GemmArgs<'_>, m: usize, n: usize) -> Self {
        let k = args.k.max(1);
        let blocks = m.div_ceil(ROWS.min(A_LIMIT / k).max(1)).max(1);
        // Even blocks, of whole tiles on the levels that have 6 rows.
        let rows = m.div_ceil(blocks).next_multiple_of(6).min(m);
        let b_cols = match args.b {
            BOperand::Packed(_) | BOperand::Split(..) | BOperand::Narrow(_) => 0,
            BOperand::Strided(_) => (B_LIMIT / k).next_multiple_of(nr).clamp(nr, n.next_multiple_of(nr).max(nr)),
        };
        let block_cols = COLS.next_multiple_of(nr).min(n);
        Plan {
            rows,
            b_cols,
            a_len: if reads_a(args, m, n) { 0 } else { (rows * args.k).next_multiple_of(ALIGN) },
            b_len: match args.b {
                BOperand::Narrow(_) => panels_at_once(1) * nr * k_block(args.k),
                _ => (b_cols * args.k).next_multiple_of(ALIGN),
            },
            c_len: if in_scratch(args) { (rows * block_cols).next_multiple_of(ALIGN) } else { 0 },
        }
    }
    /// Elements of scratch.
    pub(super) fn len(&self) -> usize {
        let used = self.a_len + self.b_len + self.c_len;
        if used == 0 { 0 } else { used + ALIGN }
    }
}

/// Whether sums are kept in scratch: there is no C, or it holds what is still to be added.
fn in_scratch(args: &GemmArgs<'_>) -> bool {
    args.c.is_null() || (args.epilogue.in_place && args.k > k_block(args.k).max(1))
}

/// Whether a block of C reads A where it is.
fn reads_a(args: &GemmArgs<'_>, m: usize, n: usize) -> bool {
    match args.a {
        AOperand::Segments { .. } | AOperand::Bf16 { .. } => true,
        AOperand::Strided(a) => a.col == 1 && (n <= UNPACKED.0 || m <= UNPACKED.1),
    }
}

/// See [`GemmArgs::scratch_len`]: enough for the whole of C and for any part of it.
pub(super) fn scratch_len(isa: Isa, args: &GemmArgs<'_>) -> usize {
    let nr = panel_width(isa);
    // A part with fewer rows may have larger even blocks, but never beyond the bounds.
    let k = args.k.max(1);
    let rows = (ROWS.min(A_LIMIT / k).max(1) + 6).min(args.m);
    let whole = Plan::new(nr, args, args.m, args.n);
    let c_len = if in_scratch(args) { rows * COLS.next_multiple_of(nr).min(args.n) } else { 0 };
    let a_len = if matches!(args.a, AOperand::Segments { .. }) { 0 } else { rows * args.k };
    a_len.next_multiple_of(ALIGN) + whole.b_len + c_len.next_multiple_of(ALIGN) + ALIGN
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
    /// The promise of [`GemmArgs`]; `rows` and `cols` lie within C; `plan` is that of as many rows and columns.
    pub(super) unsafe fn new(
        plan: Plan,
        args: &'a GemmArgs<'a>,
        rows: Range<usize>,
        cols: Range<usize>,
        scratch: &'a mut [f32],
    ) -> Self {
        assert!(
            scratch.len() >= plan.len(),
            "a product needs {} elements of scratch, not {}",
            plan.len(),
            scratch.len()
        );
        let skip = match plan.len() {
            0 => 0,
            _ => scratch.as_ptr().align_offset(ALIGN * size_of::<f32>()).min(ALIGN),
        };
        let (_, rest) = scratch.split_at_mut(skip);
        let (a, rest) = rest.split_at_mut(plan.a_len);
        let (b, rest) = rest.split_at_mut(plan.b_len);
        let (c, hook_scratch) = rest.split_at_mut(plan.c_len);
        Block { args, rows, cols, a: a.as_mut_ptr(), b: b.as_mut_ptr(), c: c.as_mut_ptr(), plan, hook_scratch }
    }
}

/// Rows of A from some row on.
#[derive(Clone, Copy)]
enum Source<'a> {
    Packed(*const f32),
    InPlace(Strided),
    Segments { starts: &'a [*const f32], width: usize },
}

impl Source<'_> {
    /// Tiles of `height` rows from row `row` on, at `k0`.
    #[inline(always)]
    fn tiles(&self, row: usize, height: usize, k0: usize, k: usize) -> Left {
        match *self {
            Source::Packed(a) => Left::Packed(a.wrapping_add(row * k + k0 * height), height * k),
            Source::InPlace(a) => Left::InPlace(Lines { data: a.at(row, k0).cast_mut(), row: a.row }),
            Source::Segments { starts, width } => {
                let (width, segments) = (width.max(1), k / width.max(1));
                let starts = starts.as_ptr().wrapping_add(row * segments + k0 / width);
                Left::Segments(Segments { starts, row_step: segments, skip: k0 % width, width })
            }
        }
    }

    /// The same from row `r` on.
    fn below(self, r: usize, k: usize) -> Self {
        match self {
            Source::Packed(a) => Source::Packed(a.wrapping_add(r * k)),
            Source::InPlace(a) => Source::InPlace(Strided { data: a.at(r, 0), ..a }),
            Source::Segments { starts, width } => {
                let starts = starts.get(r * (k / width.max(1))..).unwrap_or(&[]);
                Source::Segments { starts, width }
            }
        }
    }
}

/// Panels of B from some column on.
#[derive(Clone, Copy)]
struct Panels {
    data: *const f32,
    /// From one panel to the next.
    panel: usize,
}

/// Where a block of C is written: C itself or scratch.
#[derive(Clone, Copy)]
pub(super) struct Out {
    pub data: *mut f32,
    pub row: isize,
    pub col: isize,
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
        if let Some((a, b)) = self.direct_b() {
            // SAFETY: `direct_b` looked at the strides.
            unsafe { self.direct(s, a, b) };
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
                let a = match args.a {
                    AOperand::Segments { starts, width } => Source::Segments { starts, width }.below(row, args.k),
                    AOperand::Bf16 { .. } => {
                        debug_assert!(false, "rows of bf16 are for products of bf16 on a matrix unit");
                        return;
                    }
                    AOperand::Strided(a) if self.plan.a_len == 0 => {
                        let a = Strided { data: a.at(row, 0), ..a };
                        if rows.len() == 1 { Source::Packed(a.data) } else { Source::InPlace(a) }
                    }
                    AOperand::Strided(a) => {
                        if packed_rows != Some(row) {
                            let src = Strided { data: a.at(row, 0), ..a };
                            s.vectorize(PackTiles { src, rows: rows.len(), k: args.k, dst: self.a });
                            packed_rows = Some(row);
                        }
                        Source::Packed(self.a)
                    }
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
        let packed = Panels { data: self.b, panel: k * nr };
        match self.args.b {
            // As exact as parts, and slower: a level without a matrix unit has no other way.
            BOperand::Packed(data) | BOperand::Split(data, _) => {
                Panels { data: data.wrapping_add(cols.start * k), ..packed }
            }
            // Widened where they are used.
            BOperand::Narrow(_) => Panels { data: self.b, panel: 0 },
            BOperand::Strided(b) => {
                let src = Strided { data: b.at(0, cols.start), ..b };
                s.vectorize(PackPanels { src, k, cols: cols.len(), dst: self.b });
                packed
            }
        }
    }

    /// A and B, where B is better read in place than packed.
    fn direct_b(&self) -> Option<(Strided, Strided)> {
        match (self.args.a, self.args.b) {
            (AOperand::Strided(a), BOperand::Strided(b))
                if b.col == 1 && self.rows.len() <= DIRECT_ROWS && self.args.c_col == 1 =>
            {
                (!self.args.epilogue.in_place).then_some((a, b))
            }
            _ => None,
        }
    }

    /// All of this block of C, reading B in place.
    ///
    /// # Safety
    /// `a` and `b` are A and B, B with unit column stride, and so is C's.
    #[inline(always)]
    unsafe fn direct<S: Simd>(&mut self, s: S, a: Strided, b: Strided) {
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
                    a: Strided { data: a.at(rows.start, k0), ..a },
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

    /// One tile that goes through a buffer: a long activation, an epilogue with operands across rows, columns of C that
    /// do not lie side by side.
    ///
    /// # Safety
    /// The tile lies within the operands and C; `ends` are what was summed before and where the tile goes.
    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    unsafe fn through_buffer<S: Simd>(
        &self,
        s: S,
        column: &mut Column,
        (rows, group, narrow): (usize, usize, bool),
        plain: bool,
        menu: bool,
        (row, col): (usize, usize),
        (before, to): (Option<Out>, Out),
    ) {
        let epilogue = &self.args.epilogue;
        let width = column.width;
        let mut buffer = Buffer::uninit();
        let data = buffer.as_mut_ptr();
        // SAFETY: the caller's promise; the buffer holds the largest tile of any level.
        unsafe {
            if let (true, true, Some((_, activation))) = (plain, menu, epilogue.in_registers()) {
                column.c = Lines { data, row: width as isize };
                microkernel::run(s, rows, group, narrow, column);
                let affine = epilogue.affine;
                s.vectorize(Activate { activation, affine, tile: data, rows, cols: width, to: to.lines() });
                return;
            }
            let wide = if narrow { S::W } else { group * S::W * S::TILE_VECTORS };
            let lines = Lines { data, row: wide as isize };
            column.c = lines;
            if !plain {
                column.before = Lines::NONE;
            }
            microkernel::run(s, rows, group, narrow, column);
            if let (false, Some(before)) = (plain, before) {
                each(rows, width, |r, j| *lines.at(r, j) += *before.at(r, j));
            }
            // Without steps it copies.
            if menu || to.col == 1 {
                let to = if to.col == 1 { to.lines() } else { lines };
                s.vectorize(ApplyMenu { epilogue, row, col, rows, cols: width, from: lines, to });
            }
            if to.col != 1 {
                each(rows, width, |r, j| *to.at(r, j) = *lines.at(r, j));
            }
        }
    }

    /// One part of C over all of K, with its epilogue.
    ///
    /// # Safety
    /// `a` holds `rows`; `panels` starts at column `first` and covers `cols`; all lies within C.
    #[inline(always)]
    unsafe fn part<S: Simd>(
        &mut self,
        s: S,
        a: Source<'_>,
        panels: Panels,
        first: usize,
        rows: Range<usize>,
        cols: Range<usize>,
    ) {
        let args = self.args;
        let nr = S::W * S::TILE_VECTORS;
        let out = self.out(rows.start, cols.start, cols.len());
        // Sums of the blocks of K before, apart from C where the menu still reads it.
        let sums = if args.epilogue.in_place && in_scratch(args) {
            Out { data: self.c, row: cols.len() as isize, col: 1 }
        } else {
            out
        };
        let epilogue = &args.epilogue;
        let identity = epilogue.is_identity();
        let short = epilogue.in_registers();
        let narrow_b = if let BOperand::Narrow(b) = args.b { Some(b) } else { None };
        // Whether the tiles widen a narrow B.
        let direct = narrow_b.filter(|_| match a {
            Source::Packed(_) => rows.len() == 1,
            Source::InPlace(_) => rows.len() <= narrow::DIRECT_ROWS,
            Source::Segments { .. } => false,
        });
        let depth = k_block(args.k).max(1);
        let mut k0 = 0;
        loop {
            let k = (args.k - k0).min(depth);
            let last = k0 + k == args.k;
            let before = match (k0, args.accumulate) {
                (0, false) => None,
                (0, true) => Some(out),
                _ => Some(sums),
            };
            let to = if last { out } else { sums };
            let menu = last && !identity;
            let mut c = cols.start;
            while c < cols.end {
                let j = (c - first) / nr;
                // Several panels at a time only where all row tiles are that small.
                let at_once = panels_at_once(rows.len());
                let group = if (cols.end - c).div_ceil(nr) >= at_once { at_once } else { 1 };
                let width = (cols.end - c).min(group * nr);
                let narrow = S::TILE_VECTORS > 1 && group == 1 && width <= S::W;
                let narrow = narrow && direct.is_none();
                let mut b = panels.data.wrapping_add(j * panels.panel + k0 * nr);
                let mut b_panel = panels.panel;
                if let (Some(narrow_b), None) = (narrow_b, direct) {
                    (b, b_panel) = (self.b, k * nr);
                    let panels = width.div_ceil(nr);
                    s.vectorize(Widen { b: narrow_b, j: first / nr + j, panels, k0, k, dst: self.b });
                }
                let runs = match direct {
                    Some(_) => narrow_runs::<S>(rows.len()),
                    None => tile_runs::<S>(rows.len(), narrow && !matches!(a, Source::Packed(_))),
                };
                // The panels read next, or those of the next block of K; each tile asks for its share.
                let next = if c + group * nr < cols.end {
                    b.wrapping_add(group * panels.panel)
                } else {
                    panels.data.wrapping_add((cols.start - first) / nr * panels.panel + (k0 + k) * nr)
                };
                let tiles = runs.iter().map(|r| r.1).sum::<usize>().max(1);
                let (next, share) = match narrow_b {
                    Some(b) if c + group * nr < cols.end => {
                        let bits = b.layout.elem.bits();
                        (b.at(first / nr + j + group, k0).cast(), (nr * bits / 32).div_ceil(tiles))
                    }
                    _ => (next, nr.div_ceil(tiles)),
                };
                let plain = to.col == 1 && before.is_none_or(|b| b.col == 1);
                let mut row = 0;
                for (height, count) in runs {
                    // Long activations, and what is not plain, take tile by tile through a buffer.
                    let at_once = plain && (!menu || short.is_some_and(|(_, long)| long == Activation::None));
                    let (times, each) = if at_once { (usize::from(count > 0), count) } else { (count, 1) };
                    for _ in 0..times {
                        let here = |m: Out| m.part(row, c - cols.start);
                        let mut column = Column {
                            count: each,
                            k,
                            a: a.tiles(row, height, k0, args.k),
                            b,
                            b_panel,
                            ahead: (next.wrapping_add(row / height * k * share), share),
                            before: before.map_or(Lines::NONE, |m| here(m).lines()),
                            c: here(to).lines(),
                            width,
                            finish: Finish::NONE,
                            narrow: direct.map(|b| Part { b, j: first / nr + j, k0 }),
                        };
                        if let (true, true, Some((short, _))) = (plain, menu, short) {
                            column.finish = epilogue.finish(short, rows.start + row, c);
                        }
                        // SAFETY: the tiles lie within the operands and C.
                        unsafe {
                            if at_once {
                                microkernel::run(s, height, group, narrow, &column);
                            } else {
                                let place = (rows.start + row, c);
                                let ends = (before.map(here), here(to));
                                self.through_buffer(s, &mut column, (height, group, narrow), plain, menu, place, ends);
                            }
                        }
                        row += each * height;
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

/// How rows are cut into tiles: heights and how many there are of each, one below the other.
#[inline(always)]
fn tile_runs<S: Simd>(rows: usize, narrow: bool) -> [(usize, usize); 3] {
    let tall = if narrow && S::TILE_ROWS < NARROW_ROWS { rows / NARROW_ROWS } else { 0 };
    let [larger, small] = row_tiles(rows - tall * NARROW_ROWS, S::TILE_ROWS);
    [(NARROW_ROWS, tall), larger, small]
}

/// The same for tiles that widen B.
#[inline(always)]
fn narrow_runs<S: Simd>(rows: usize) -> [(usize, usize); 3] {
    let [larger, small] = row_tiles(rows, S::TILE_ROWS.min(narrow::TILE_ROWS));
    [(1, 0), larger, small]
}

/// The greatest height of any level's register tile.
const MAX_TILE_ROWS: usize = 14;
/// Elements of the largest register tile.
const MAX_TILE: usize = MAX_TILE_ROWS * MAX_TILE_VECTORS * MAX_W;

/// Room for a register tile.
#[repr(align(64))]
struct Buffer(std::mem::MaybeUninit<[f32; MAX_TILE]>);

impl Buffer {
    #[inline(always)]
    fn uninit() -> Self {
        Buffer(std::mem::MaybeUninit::uninit())
    }

    #[inline(always)]
    fn as_mut_ptr(&mut self) -> *mut f32 {
        self.0.as_mut_ptr().cast()
    }
}

impl Out {
    #[inline(always)]
    pub fn at(&self, r: usize, c: usize) -> *mut f32 {
        self.data.wrapping_offset(r as isize * self.row + c as isize * self.col)
    }

    /// The same from a row and column on.
    #[inline(always)]
    pub fn part(self, r: usize, c: usize) -> Out {
        Out { data: self.at(r, c), ..self }
    }

    /// Its rows; where columns do not lie side by side they are not to be used.
    #[inline(always)]
    pub fn lines(self) -> Lines {
        Lines { data: self.data, row: self.row }
    }
}

#[inline(always)]
pub(super) fn each(rows: usize, cols: usize, mut f: impl FnMut(usize, usize)) {
    for r in 0..rows {
        for c in 0..cols {
            f(r, c);
        }
    }
}
