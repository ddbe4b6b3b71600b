//! Panels: the one layout of packed operands.
//!
//! B is cut into panels of NR columns (NR = [`panel_width`] of the level). A panel holds, for each k in turn, its NR
//! values of row k; columns past N are zero. Panel j starts at j · K · NR. Nothing else is stored.
//!
//! A is cut into row tiles of R rows (R ≤ the level's tile height); a tile holds, for each k in turn, its R values of
//! column k. Strides are arbitrary on the source side, so that a transpose costs nothing beyond the copy.

use super::Strided;
use crate::simd::{Isa, Kernel, Simd, dispatch};
use std::ops::Range;

/// Columns in a panel of B at this level.
pub fn panel_width(isa: Isa) -> usize {
    struct Width;
    impl Kernel for Width {
        type Output = usize;
        #[inline(always)]
        fn run<S: Simd>(self, _: S) -> usize {
            S::W * S::TILE_VECTORS
        }
    }
    dispatch(isa, Width)
}

/// Elements that [`pack_b`] writes for a K by N matrix; `None` where that overflows.
pub fn packed_b_len(isa: Isa, k: usize, n: usize) -> Option<usize> {
    n.checked_next_multiple_of(panel_width(isa))?.checked_mul(k)
}

/// Packs a K by N matrix.
///
/// # Safety
/// Every element of `src` within `k` by `n` is readable; `dst` is valid for writing [`packed_b_len`] elements and does
/// not overlap them.
pub unsafe fn pack_b(isa: Isa, src: Strided, k: usize, n: usize, dst: *mut f32) {
    // SAFETY: the caller's promise, for all panels.
    unsafe { pack_b_panels(isa, src, k, n, 0..n.div_ceil(panel_width(isa)), dst) }
}

/// Packs some panels of a K by N matrix; panels of one matrix may be packed by different threads.
///
/// # Safety
/// As [`pack_b`]: `dst` is where panel 0 begins; only the elements of `panels` are written.
pub unsafe fn pack_b_panels(isa: Isa, src: Strided, k: usize, n: usize, panels: Range<usize>, dst: *mut f32) {
    let nr = panel_width(isa);
    let start = panels.start.min(n.div_ceil(nr));
    let end = n.min(panels.end.saturating_mul(nr));
    if start * nr < end {
        let from = Strided { data: src.at(0, start * nr), ..src };
        dispatch(isa, PackPanels { src: from, k, cols: end - start * nr, dst: dst.wrapping_add(start * k * nr) });
    }
}

/// Packs adjacent panels: `cols` columns from the first of `src` on, to `dst`. The maker answers for `src` being
/// readable within `k` by `cols`, and `dst` writable for the panels and apart from it.
pub(super) struct PackPanels {
    pub src: Strided,
    pub k: usize,
    pub cols: usize,
    pub dst: *mut f32,
}

impl Kernel for PackPanels {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let nr = S::W * S::TILE_VECTORS;
        let PackPanels { src, k, cols, dst } = self;
        let mut first = 0;
        if src.col == 1 {
            // Rows of the source run along panels: several at a time, so that lines are read in runs.
            first = cols / nr;
            for j in (0..first).step_by(GROUP) {
                for p in 0..k {
                    let from = src.at(p, j * nr);
                    prefetch(from.wrapping_offset(AHEAD * src.row));
                    for q in j..first.min(j + GROUP) {
                        for v in 0..S::TILE_VECTORS {
                            let at = v * S::W;
                            // SAFETY: panel q < cols / nr is whole; p < k.
                            unsafe {
                                let lanes = s.load(from.wrapping_add((q - j) * nr + at));
                                s.store(dst.add((q * k + p) * nr + at), lanes);
                            }
                        }
                    }
                }
            }
        }
        for j in first..cols.div_ceil(nr) {
            let from = Strided { data: src.at(0, j * nr), ..src };
            // SAFETY: the panel's columns lie within `cols`, its place within the packed length.
            unsafe { pack_panel(s, from, k, (cols - j * nr).min(nr), nr, dst.add(j * k * nr)) };
        }
    }
}

/// Panels filled at a time.
const GROUP: usize = 4;
/// Rows asked for ahead.
const AHEAD: isize = 8;

/// Writes one panel of `width` real columns, `nr` with padding.
///
/// # Safety
/// `src` is readable within `k` by `width`; `dst` is writable for `k · nr` elements and does not overlap it.
#[inline(always)]
unsafe fn pack_panel<S: Simd>(s: S, src: Strided, k: usize, width: usize, nr: usize, dst: *mut f32) {
    // SAFETY: for the whole body, p < k, c < width ≤ nr, so reads stay in the source and writes in the panel.
    unsafe {
        if src.col == 1 {
            // Whole vectors; what runs over into the next k-step is written again by it.
            for p in 0..k {
                for at in (0..nr).step_by(S::W) {
                    let lanes = s.load_partial(src.at(p, at), width.saturating_sub(at).min(S::W));
                    let to = dst.add(p * nr + at);
                    let room = k * nr - (p * nr + at);
                    if room >= S::W { s.store(to, lanes) } else { s.store_partial(to, lanes, room) }
                }
            }
            return;
        }
        let mut p0 = 0;
        if src.row == 1 {
            // Squares of eight. The last group of columns may run over into the next k-step (where nr is no multiple
            // of eight): groups are written from the last to the first, steps in ascending order, and the last steps
            // are left to the loop below, so that what ran over is written again.
            let groups = nr.div_ceil(8);
            let run_over = (8 * groups - nr).div_ceil(nr);
            while p0 + 8 + run_over <= k {
                for g in (0..groups).rev() {
                    let rows = width.saturating_sub(8 * g).min(8);
                    let from = src.at(p0, 8 * g);
                    for i in 0..rows {
                        prefetch(from.wrapping_offset(i as isize * src.col + 32));
                    }
                    s.transpose8(from, src.col, rows, dst.add(p0 * nr + 8 * g), nr);
                }
                p0 += 8;
            }
        }
        // Squares small enough for their lines to stay in the nearest cache, whichever way the source runs.
        const DEPTH: usize = 16;
        for p0 in (p0..k).step_by(DEPTH) {
            let depth = (k - p0).min(DEPTH);
            for c in 0..width {
                let mut from = src.at(p0, c);
                let to = dst.add(p0 * nr + c);
                for p in 0..depth {
                    *to.add(p * nr) = *from;
                    from = from.wrapping_offset(src.row);
                }
            }
            for p in p0..p0 + depth {
                std::ptr::write_bytes(dst.add(p * nr + width), 0, nr - width);
            }
        }
    }
}

/// Asks for the line at `p`, which need not be valid.
#[inline(always)]
fn prefetch(p: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE belongs to x86-64, and a prefetch never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(p.cast())
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

/// `rows` split into tiles of at most `mr` rows as evenly as possible: heights and how many there are of each, in order.
#[inline(always)]
pub(super) fn row_tiles(rows: usize, mr: usize) -> [(usize, usize); 2] {
    let tiles = rows.div_ceil(mr).max(1);
    let (small, larger) = (rows / tiles, rows % tiles);
    [(small + 1, larger), (small.max(1), if rows == 0 { 0 } else { tiles - larger })]
}

/// Writes all row tiles of a `rows` by `k` matrix; the tile of rows r.. starts at `r · k`. The maker answers for `src`
/// being readable within `rows` by `k`, and `dst` writable for `rows · k` elements and apart from it.
pub(super) struct PackTiles {
    pub src: Strided,
    pub rows: usize,
    pub k: usize,
    pub dst: *mut f32,
}

impl Kernel for PackTiles {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let PackTiles { src, rows, k, dst } = self;
        let mut row = 0;
        for (height, count) in row_tiles(rows, S::TILE_ROWS) {
            for _ in 0..count {
                let from = Strided { data: src.at(row, 0), row: src.col, col: src.row };
                // SAFETY: a tile is a panel of the transpose, without padding; it lies within rows · k.
                unsafe { pack_panel(s, from, k, height, height, dst.add(row * k)) };
                row += height;
            }
        }
    }
}
