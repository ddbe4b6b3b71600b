//! The register tile: R rows by P panels of C, over one block of K, finished on its way to memory.

use super::epilogue::{Finish, Lines};
use super::narrow::{self, Part};
use crate::simd::{Kernel, MAX_TILE_VECTORS, Simd};

/// How many k-steps ahead panels of B are asked for.
const PREFETCH_STEPS: usize = 12;
/// Rows of a narrow tile: as many sums as two vectors a row of half as many rows have.
pub(super) const NARROW_ROWS: usize = 12;

/// Where the rows of A are, from the first tile's first row and this block's first k on.
#[derive(Clone, Copy)]
pub(super) enum Left {
    /// Packed tiles: R values a k-step, and elements from one tile to the next.
    Packed(*const f32, usize),
    /// Rows of unit stride.
    InPlace(Lines),
    /// Rows in segments.
    Segments(Segments),
}

/// Rows in segments of unit stride: segment `i` of row `r` begins at `starts[r · row_step + i]`.
#[derive(Clone, Copy)]
pub(super) struct Segments {
    /// The first row's first segment of this block of K.
    pub starts: *const *const f32,
    /// From one row to the next.
    pub row_step: usize,
    /// Elements of the first segment that belong to blocks before.
    pub skip: usize,
    /// Elements of a segment.
    pub width: usize,
}

/// Where tiles below one another read and write.
#[derive(Clone, Copy)]
pub(super) struct Column {
    /// Tiles.
    pub count: usize,
    /// Depth of the block.
    pub k: usize,
    /// Their rows.
    pub a: Left,
    /// The first panel of B at this block of K.
    pub b: *const f32,
    /// Elements from one panel of B to the next.
    pub b_panel: usize,
    /// What is added to the product first: the sums of blocks before. Null: nothing.
    pub before: Lines,
    /// Where the tiles are written.
    pub c: Lines,
    /// What of B is read after this panel, asked for while the tiles run: an address, and elements from one k-step to
    /// the next.
    pub ahead: (*const f32, usize),
    /// Columns of the tiles; what panels hold beyond is dropped.
    pub width: usize,
    /// What happens on the way.
    pub finish: Finish,
    /// Where B is, if its elements are narrow and the tiles widen them.
    pub narrow: Option<Part>,
}

/// Runs tiles of `rows` by `panels`: `rows` ≤ the level's tile height, and `panels` from [`panels_at_once`]. A narrow
/// tile is at most one vector wide, and may have [`NARROW_ROWS`] rows.
///
/// # Safety
/// All that [`Column`] names is valid: `k` elements of each row of A; whole panels of B; `width` columns of the rest.
#[inline(always)]
pub(super) unsafe fn run<S: Simd>(s: S, rows: usize, panels: usize, narrow: bool, tile: &Column) {
    if let Some(part) = &tile.narrow {
        // SAFETY: the caller's promise.
        return unsafe { narrow::run(s, rows, panels, part, tile) };
    }
    match (tile.a, narrow) {
        (Left::Packed(..), false) => wide::<S, true>(s, rows, panels, tile),
        (_, false) => wide::<S, false>(s, rows, panels, tile),
        (Left::Packed(..), true) => one::<S, true, true>(s, rows, tile),
        (_, true) if rows == NARROW_ROWS && S::TILE_ROWS < NARROW_ROWS => {
            s.vectorize(Fixed::<NARROW_ROWS, 1, false, true>(tile));
        }
        (_, true) => one::<S, false, true>(s, rows, tile),
    }
}

#[inline(always)]
fn wide<S: Simd, const PACKED: bool>(s: S, rows: usize, panels: usize, tile: &Column) {
    match (rows, panels) {
        (1, 4) => s.vectorize(Fixed::<1, 4, PACKED, false>(tile)),
        (2, 2) => s.vectorize(Fixed::<2, 2, PACKED, false>(tile)),
        (3, 2) => s.vectorize(Fixed::<3, 2, PACKED, false>(tile)),
        _ => one::<S, PACKED, false>(s, rows, tile),
    }
}

#[inline(always)]
fn one<S: Simd, const PACKED: bool, const NARROW: bool>(s: S, rows: usize, tile: &Column) {
    macro_rules! tiles {
        ($($rows:literal),*) => {
            match rows {
                $($rows => s.vectorize(Fixed::<$rows, 1, PACKED, NARROW>(tile)),)*
                _ => debug_assert!(false, "no register tile of {rows} rows"),
            }
        };
    }
    // The conditions are constants: a level only gets the tiles it can hold.
    if S::TILE_ROWS == 4 {
        tiles!(1, 2, 3, 4)
    } else if S::TILE_ROWS == 6 {
        tiles!(1, 2, 3, 4, 5, 6)
    } else if S::TILE_ROWS == 8 {
        tiles!(1, 2, 3, 4, 5, 6, 7, 8)
    } else {
        tiles!(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
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

struct Fixed<'a, const R: usize, const P: usize, const PACKED: bool, const NARROW: bool>(&'a Column);

/// The sums of a tile. The arrays are as wide as any level needs; what a level leaves unused vanishes.
type Sums<S, const R: usize, const P: usize> = [[[<S as Simd>::F; MAX_TILE_VECTORS]; P]; R];

impl<const R: usize, const P: usize, const PACKED: bool, const NARROW: bool> Kernel
    for Fixed<'_, R, P, PACKED, NARROW>
{
    type Output = ();

    // Plain index loops: constant bounds, unrolled whole, so that the sums stay in registers.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut t = *self.0;
        let wide = if NARROW { S::W } else { P * S::TILE_VECTORS * S::W };
        for _ in 0..t.count {
            // SAFETY: `run`'s caller answers for every tile.
            unsafe {
                let acc = self.sums(s, &mut t);
                if t.width == wide {
                    self.store::<S, true>(s, &t, &acc);
                } else {
                    self.store::<S, false>(s, &t, &acc);
                }
            }
            t.c = t.c.below(R);
            t.before = t.before.below(R);
            t.finish.residual = t.finish.residual.below(R);
        }
    }
}

impl<const R: usize, const P: usize, const PACKED: bool, const NARROW: bool> Fixed<'_, R, P, PACKED, NARROW> {
    /// The product of one tile; moves on to the next one's rows.
    ///
    /// # Safety
    /// `k` steps of A and B are valid. Prefetched addresses need not be, and are formed by wrapping arithmetic.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    unsafe fn sums<S: Simd>(&self, s: S, t: &mut Column) -> Sums<S, R, P> {
        let nr = S::TILE_VECTORS * S::W;
        let asks = R > 1 || !S::ROW_STREAMS;
        let mut acc: Sums<S, R, P> = [[[s.zero(); MAX_TILE_VECTORS]; P]; R];
        for r in 0..R {
            let row = t.c.at(r, 0);
            s.prefetch(row);
            s.prefetch(row.wrapping_add(t.width - 1));
        }
        if !t.finish.residual.data.is_null() {
            // It is far away and would be waited for after the product.
            for r in 0..R {
                for line in (0..t.width).step_by(16) {
                    s.prefetch(t.finish.residual.at(r, line));
                }
            }
        }
        let mut b = t.b;
        let (mut ahead, ahead_step) = t.ahead;
        // SAFETY: the caller's promise.
        unsafe {
            if PACKED {
                if let Left::Packed(first, step) = &mut t.a {
                    let mut a = *first;
                    *first = first.wrapping_add(*step);
                    for _ in 0..t.k {
                        if asks {
                            s.prefetch_far(ahead);
                        }
                        ahead = ahead.wrapping_add(ahead_step);
                        self.step(s, &mut acc, b, |r| *a.wrapping_add(r));
                        a = a.wrapping_add(R);
                        b = b.wrapping_add(nr);
                    }
                }
            } else {
                let (mut left, mut done) = (t.k, 0);
                while left > 0 {
                    let mut from = [std::ptr::null::<f32>(); R];
                    let n = match &t.a {
                        Left::Segments(rows) => {
                            let skip = if done == 0 { rows.skip } else { 0 };
                            let starts = rows.starts.wrapping_add(done);
                            for r in 0..R {
                                from[r] = (*starts.add(r * rows.row_step)).wrapping_add(skip);
                            }
                            done += 1;
                            (rows.width - skip).min(left)
                        }
                        Left::InPlace(rows) => {
                            for r in 0..R {
                                from[r] = rows.at(r, 0);
                            }
                            left
                        }
                        Left::Packed(..) => break,
                    };
                    for i in 0..n {
                        if asks {
                            s.prefetch_far(ahead);
                        }
                        ahead = ahead.wrapping_add(ahead_step);
                        self.step(s, &mut acc, b, |r| *from[r].wrapping_add(i));
                        b = b.wrapping_add(nr);
                    }
                    left -= n;
                }
                match &mut t.a {
                    Left::Segments(rows) => rows.starts = rows.starts.wrapping_add(R * rows.row_step),
                    Left::InPlace(rows) => *rows = rows.below(R),
                    Left::Packed(..) => {}
                }
            }
        }
        t.ahead.0 = ahead;
        acc
    }

    /// One k-step.
    ///
    /// # Safety
    /// `b` is a k-step of the panels.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    unsafe fn step<S: Simd>(&self, s: S, acc: &mut Sums<S, R, P>, b: *const f32, a: impl Fn(usize) -> f32) {
        let nr = S::TILE_VECTORS * S::W;
        let vectors = if NARROW { 1 } else { S::TILE_VECTORS };
        for q in 0..P {
            let panel = b.wrapping_add(q * self.0.b_panel);
            let asks = R > 1 || !S::ROW_STREAMS;
            if asks {
                s.prefetch(panel.wrapping_add(PREFETCH_STEPS * nr));
            }
            if asks && nr > 16 && !NARROW {
                s.prefetch(panel.wrapping_add(PREFETCH_STEPS * nr + 16));
            }
            let mut bv = [s.zero(); MAX_TILE_VECTORS];
            for v in 0..vectors {
                // SAFETY: panels are whole.
                bv[v] = unsafe { s.load(panel.wrapping_add(v * S::W)) };
            }
            for r in 0..R {
                let av = s.splat(a(r));
                for v in 0..vectors {
                    acc[r][q][v] = s.mul_add(av, bv[v], acc[r][q][v]);
                }
            }
        }
    }

    /// Finishes the sums and writes them.
    ///
    /// # Safety
    /// `width` columns of what the tile reads and writes are valid; all vectors are whole if WHOLE.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    unsafe fn store<S: Simd, const WHOLE: bool>(&self, s: S, t: &Column, acc: &Sums<S, R, P>) {
        let vectors = if NARROW { 1 } else { S::TILE_VECTORS };
        for q in 0..P {
            for v in 0..vectors {
                let j = (q * S::TILE_VECTORS + v) * S::W;
                let lanes = if WHOLE { S::W } else { t.width.saturating_sub(j).min(S::W) };
                if !WHOLE && lanes == 0 {
                    continue;
                }
                let mut column = [acc[0][q][v]; R];
                for r in 1..R {
                    column[r] = acc[r][q][v];
                }
                // SAFETY: the caller's promise: `lanes` lanes from column j on lie within the tile.
                unsafe { t.finish.store::<S, R, WHOLE>(s, column, (t.before, t.c), j, lanes) };
            }
        }
    }
}
