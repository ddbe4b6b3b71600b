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
    let last = panels.end.min(n.div_ceil(nr));
    for j in panels.start..last {
        let from = Strided { data: src.at(0, j * nr), ..src };
        // SAFETY: panel j lies within the packed length, and its columns within n.
        unsafe { pack_panel(from, k, (n - j * nr).min(nr), nr, dst.add(j * k * nr)) };
    }
}

/// Writes one panel of `width` real columns, `nr` with padding.
///
/// # Safety
/// `src` is readable within `k` by `width`; `dst` is writable for `k · nr` elements and does not overlap it.
pub(super) unsafe fn pack_panel(src: Strided, k: usize, width: usize, nr: usize, dst: *mut f32) {
    // SAFETY (whole body): p < k, c < width ≤ nr, so reads stay in the source and writes in the panel.
    unsafe {
        if src.col == 1 {
            for p in 0..k {
                let to = dst.add(p * nr);
                std::ptr::copy_nonoverlapping(src.at(p, 0), to, width);
                std::ptr::write_bytes(to.add(width), 0, nr - width);
            }
            return;
        }
        // Squares small enough for their lines to stay in the nearest cache, whichever way the source runs.
        const DEPTH: usize = 16;
        for p0 in (0..k).step_by(DEPTH) {
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

/// The rows of tile `t` when `rows` are split into tiles of at most `mr` rows as evenly as possible.
#[inline(always)]
pub(super) fn row_tile(rows: usize, mr: usize, t: usize) -> Range<usize> {
    let tiles = rows.div_ceil(mr);
    let (small, larger) = (rows / tiles, rows % tiles);
    let start = t * small + t.min(larger);
    start..start + small + usize::from(t < larger)
}

/// Writes all row tiles of a `rows` by `k` matrix; the tile of rows r.. starts at `r · k`.
///
/// # Safety
/// `src` is readable within `rows` by `k`; `dst` is writable for `rows · k` elements and does not overlap it.
pub(super) unsafe fn pack_a(src: Strided, rows: usize, k: usize, mr: usize, dst: *mut f32) {
    for t in 0..rows.div_ceil(mr) {
        let tile = row_tile(rows, mr, t);
        let from = Strided { data: src.at(tile.start, 0), row: src.col, col: src.row };
        // SAFETY: a tile is a panel of the transpose, without padding; it lies within rows · k.
        unsafe { pack_panel(from, k, tile.len(), tile.len(), dst.add(tile.start * k)) };
    }
}
