//! The register tile: R rows by P panels of C, over one block of K.

use crate::simd::{Kernel, MAX_TILE_VECTORS, Simd};

/// How many k-steps ahead panels of B are asked for.
const PREFETCH_STEPS: usize = 12;

/// Where a tile reads and writes.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    /// Depth of the block.
    pub k: usize,
    /// A tile of packed A: R values a k-step.
    pub a: *const f32,
    /// The first panel of B at this block of K.
    pub b: *const f32,
    /// Elements from one k-step of B to the next.
    pub b_step: isize,
    /// Elements from one panel of B to the next.
    pub b_panel: isize,
    /// The tile of C: whole panels wide, unit column stride.
    pub c: *mut f32,
    /// Elements from one row of C to the next.
    pub c_row: isize,
    /// Add to C instead of writing it.
    pub add: bool,
}

/// Runs the tile of `rows` by `panels`: `rows` ≤ the level's tile height, and `panels` from [`panels_at_once`].
///
/// # Safety
/// All that [`Tile`] names is valid: `rows · k` elements of A; of B and C whole panels.
#[inline(always)]
pub(super) unsafe fn run<S: Simd>(s: S, rows: usize, panels: usize, tile: Tile) {
    macro_rules! tiles {
        ($($rows:literal),*) => {
            match rows {
                $($rows => s.vectorize(Fixed::<$rows, 1>(tile)),)*
                _ => debug_assert!(false, "no register tile of {rows} rows"),
            }
        };
    }
    match (rows, panels) {
        (1, 4) => s.vectorize(Fixed::<1, 4>(tile)),
        (2, 2) => s.vectorize(Fixed::<2, 2>(tile)),
        (3, 2) => s.vectorize(Fixed::<3, 2>(tile)),
        // The conditions are constants: a level only gets the tiles it can hold.
        _ if S::TILE_ROWS == 4 => tiles!(1, 2, 3, 4),
        _ if S::TILE_ROWS == 6 => tiles!(1, 2, 3, 4, 5, 6),
        _ if S::TILE_ROWS == 8 => tiles!(1, 2, 3, 4, 5, 6, 7, 8),
        _ => tiles!(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14),
    }
}

/// With few rows, several panels at a time: one alone has too few independent sums to hide the latency of the
/// multiply-add.
#[inline(always)]
pub(super) fn panels_at_once(rows: usize) -> usize {
    match rows {
        1 => 4,
        2 | 3 => 2,
        _ => 1,
    }
}

struct Fixed<const R: usize, const P: usize>(Tile);

impl<const R: usize, const P: usize> Kernel for Fixed<R, P> {
    type Output = ();

    // Plain index loops: constant bounds, unrolled whole, so that the sums stay in registers.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Tile { k, mut a, mut b, b_step, b_panel, c, c_row, add } = self.0;
        let vectors = S::TILE_VECTORS;
        let nr = vectors * S::W;
        // The arrays are as wide as any level needs; what a level leaves unused vanishes.
        let mut acc = [[[s.zero(); MAX_TILE_VECTORS]; P]; R];
        // SAFETY: `run`'s caller answers for k steps of A and B and the tile of C. Prefetched addresses
        // need not be valid and are formed by wrapping arithmetic.
        unsafe {
            for r in 0..R {
                let row = c.offset(r as isize * c_row);
                s.prefetch(row);
                s.prefetch(row.wrapping_add(P * nr - 1));
            }
            let ahead = b_step * PREFETCH_STEPS as isize;
            for _ in 0..k {
                for q in 0..P {
                    let panel = b.wrapping_offset(q as isize * b_panel);
                    s.prefetch(panel.wrapping_offset(ahead));
                    if nr > 16 {
                        s.prefetch(panel.wrapping_offset(ahead + 16));
                    }
                    let mut bv = [s.zero(); MAX_TILE_VECTORS];
                    for v in 0..vectors {
                        bv[v] = s.load(panel.wrapping_add(v * S::W));
                    }
                    for r in 0..R {
                        let av = s.splat(*a.wrapping_add(r));
                        for v in 0..vectors {
                            acc[r][q][v] = s.mul_add(av, bv[v], acc[r][q][v]);
                        }
                    }
                }
                a = a.wrapping_add(R);
                b = b.wrapping_offset(b_step);
            }
            for r in 0..R {
                for q in 0..P {
                    for v in 0..vectors {
                        let to = c.offset(r as isize * c_row).add(q * nr + v * S::W);
                        let sum = if add { s.add(s.load(to), acc[r][q][v]) } else { acc[r][q][v] };
                        s.store(to, sum);
                    }
                }
            }
        }
    }
}
