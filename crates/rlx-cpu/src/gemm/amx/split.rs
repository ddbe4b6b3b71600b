//! f32 as sums of bf16, on its way into tiles.
//!
//! A number of 24 bits is the sum of three numbers of 8 bits, each the rest rounded to nearest: products of parts are
//! exact, and f32 sums of them lose no more than f32 products do. What such sums cannot show stays with f32: tiles take
//! subnormals for zeros, a rest of an infinity is no number, and sums may leave the range on the way to a result inside
//! it. Each row of A and each column of B therefore says between which magnitudes it lies ([`Extent`]), and an element
//! whose row and column do not fit is computed by multiply-adds: by its own row and column alone, whoever stands beside.

use super::super::AOperand;
use super::tiles::SIDE;
use crate::simd::{Kernel, MAX_W, Simd};

/// How many bf16 numbers stand for one of f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// One, rounded: numbers that are bf16, or are meant to become so.
    One,
    /// Two, and three products: relative to the norm, errors of some 5e-6.
    Two,
    /// Three, and six products: as exact as f32.
    Three,
}

impl Parts {
    /// How many.
    pub fn count(self) -> usize {
        match self {
            Parts::One => 1,
            Parts::Two => 2,
            Parts::Three => 3,
        }
    }

    /// Which part of A meets which part of B, the smallest products first.
    pub fn products(self) -> &'static [(usize, usize)] {
        match self {
            Parts::One => &[(0, 0)],
            Parts::Two => &[(0, 1), (1, 0), (0, 0)],
            Parts::Three => &[(0, 2), (2, 0), (1, 1), (0, 1), (1, 0), (0, 0)],
        }
    }
}

/// Elements of K in a tile.
pub const DEPTH: usize = 2 * SIDE;
/// Numbers of 16 bits in a tile.
pub const TILE: usize = SIDE * DEPTH;

/// Between which magnitudes the numbers of a row or column lie that are not zero.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    least: f32,
    /// Infinite where one is not finite.
    most: f32,
}

impl Extent {
    /// Of no number.
    pub const NONE: Extent = Extent { least: f32::MAX, most: 0.0 };

    /// Of both.
    pub fn join(self, other: Extent) -> Extent {
        Extent { least: self.least.min(other.least), most: self.most.max(other.most) }
    }

    /// Whether sums of `k` products of parts are as good as multiply-adds.
    pub fn fits(self, other: Extent, k: usize) -> bool {
        /// Below, the last part of a number would be subnormal.
        const LEAST: f64 = 1.0 / (1u128 << 102) as f64;
        /// Below, what products of parts lose to zero would show.
        const LEAST_PRODUCT: f64 = 1.0 / (1u128 << 100) as f64;
        /// Above, the first part might round to infinity.
        const MOST: f64 = 3e38;
        /// Above, sums might.
        const MOST_SUM: f64 = 1e38;
        let [a, b, c, d] = [self.least, other.least, self.most, other.most].map(f64::from);
        a >= LEAST && b >= LEAST && c <= MOST && d <= MOST && a * b >= LEAST_PRODUCT && c * d * k as f64 <= MOST_SUM
    }
}

/// Extents by lane.
#[derive(Clone, Copy)]
struct Seen<S: Simd> {
    least: S::F,
    most: S::F,
    /// NaN where a number is not finite.
    finite: S::F,
}

impl<S: Simd> Seen<S> {
    #[inline(always)]
    fn new(s: S) -> Self {
        Seen { least: s.splat(f32::MAX), most: s.zero(), finite: s.zero() }
    }

    #[inline(always)]
    fn see(&mut self, s: S, x: S::F) {
        let size = s.abs(x);
        self.most = s.max_fast(size, self.most);
        self.least = s.min_fast(s.select(s.eq(x, s.zero()), s.splat(f32::MAX), size), self.least);
        self.finite = s.add(self.finite, s.sub(x, x));
    }

    #[inline(always)]
    fn lanes(&self, s: S) -> [Extent; MAX_W] {
        let (mut least, mut most) = ([f32::MAX; MAX_W], [0.0f32; MAX_W]);
        let infinite = s.splat(f32::INFINITY);
        // SAFETY: the arrays have MAX_W ≥ W elements.
        unsafe {
            s.store(least.as_mut_ptr(), self.least);
            s.store(most.as_mut_ptr(), s.select(s.is_nan(self.finite), infinite, self.most));
        }
        std::array::from_fn(|i| Extent { least: least[i], most: most[i] })
    }
}

/// The nearest bf16, as f32; ties to even. Not for NaN.
#[inline(always)]
fn nearest<S: Simd>(s: S, x: S::F) -> S::F {
    let bits = s.bits(x);
    let odd = s.and_i(s.sar_i::<16>(bits), s.splat_i(1));
    let up = s.add_i(bits, s.add_i(odd, s.splat_i(0x7fff)));
    s.from_bits(s.and_i(up, s.splat_i(!0xffff)))
}

/// The parts of numbers, as f32; those beyond `parts` are left out.
#[inline(always)]
fn split<S: Simd>(s: S, parts: Parts, x: S::F) -> [S::F; 3] {
    let first = nearest(s, x);
    if parts == Parts::One {
        // NaN must stay one.
        let kept = s.from_bits(s.or_i(s.and_i(s.bits(x), s.splat_i(!0xffff)), s.splat_i(0x40_0000)));
        return [s.select(s.is_nan(x), kept, first), s.zero(), s.zero()];
    }
    let rest = s.sub(x, first);
    let second = nearest(s, rest);
    let third = if parts == Parts::Three { nearest(s, s.sub(rest, second)) } else { s.zero() };
    [first, second, third]
}

/// Rows of A, as tiles: for each sixteen rows, tile after tile along K; one part after the other.
pub struct Rows<'a> {
    /// A.
    pub a: AOperand<'a>,
    /// The first row.
    pub row: usize,
    /// Columns of A.
    pub k: usize,
    /// How numbers are taken apart; bf16 have one part.
    pub parts: Parts,
    /// Has room for [`Rows::len`] numbers.
    pub to: *mut u16,
    /// One for each row; written where there are several parts.
    pub extents: &'a mut [Extent],
}

impl Rows<'_> {
    /// Numbers of one part of `rows` rows.
    pub fn len(rows: usize, k: usize) -> usize {
        rows.next_multiple_of(SIDE) * k.next_multiple_of(DEPTH)
    }
}

/// Elements of a row taken at a time.
const CHUNK: usize = 512;

impl Kernel for Rows<'_> {
    type Output = ();

    // The parts are pushed in a plain loop over constants.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Rows { a, row, k, parts, to, extents } = self;
        let part = Rows::len(extents.len(), k);
        let steps = k.div_ceil(DEPTH);
        let mut buffer = [0.0f32; CHUNK];
        let rows = extents.len();
        for (i, extent) in extents.iter_mut().enumerate() {
            // Where element k of this row goes: tile by tile.
            let line = to.wrapping_add(i / SIDE * steps * TILE + i % SIDE * DEPTH);
            let at = |p: usize| line.wrapping_add(p / DEPTH * TILE + p % DEPTH);
            let mut done = 0;
            // SAFETY: the maker answers for A and the room; `at(p)` lies in this row's lines for p < steps · DEPTH, and
            // vectors do not cross lines, since W divides DEPTH.
            unsafe {
                if let AOperand::Bf16 { data, row: step, col } = a {
                    debug_assert_eq!(parts, Parts::One, "bf16 are not taken apart");
                    let from = data.wrapping_offset((row + i) as isize * step);
                    while done < k {
                        let n = (k - done).min(DEPTH);
                        if col == 1 {
                            std::ptr::copy_nonoverlapping(from.add(done).cast::<u8>(), at(done).cast(), 2 * n);
                        } else {
                            for p in done..done + n {
                                *at(p) = from.offset(p as isize * col).read_unaligned();
                            }
                        }
                        done += n;
                    }
                } else {
                    let mut seen = Seen::new(s);
                    for k0 in (0..k).step_by(CHUNK) {
                        let n = (k - k0).min(CHUNK);
                        let from = chunk(a, row + i, k0..k0 + n, k, &mut buffer);
                        for c in (0..n).step_by(S::W) {
                            let lanes = (n - c).min(S::W);
                            let x =
                                if lanes == S::W { s.load(from.add(c)) } else { s.load_partial(from.add(c), lanes) };
                            if parts != Parts::One {
                                seen.see(s, x);
                            }
                            let split = split(s, parts, x);
                            for q in 0..parts.count() {
                                let bits = s.and_i(s.sar_i::<16>(s.bits(split[q])), s.splat_i(0xffff));
                                s.store_u16(at(k0 + c).wrapping_add(q * part), bits);
                            }
                        }
                    }
                    done = k.next_multiple_of(S::W);
                    if parts != Parts::One {
                        *extent = seen.lanes(s).into_iter().take(S::W).fold(Extent::NONE, Extent::join);
                    }
                }
                if done < steps * DEPTH {
                    for q in 0..parts.count() {
                        std::ptr::write_bytes(at(done).wrapping_add(q * part), 0, steps * DEPTH - done);
                    }
                }
            }
        }
        // Rows that are not there: what is computed of them is dropped, but must not be memory that nobody wrote.
        for i in rows..rows.next_multiple_of(SIDE) {
            for p in 0..steps * parts.count() {
                let (q, p) = (p / steps, p % steps);
                let line = to.wrapping_add(q * part + i / SIDE * steps * TILE + p * TILE + i % SIDE * DEPTH);
                // SAFETY: lines of the last tiles.
                unsafe { std::ptr::write_bytes(line, 0, DEPTH) };
            }
        }
    }
}

/// Elements `k` of a row of A, where they lie or gathered.
///
/// # Safety
/// They are valid; at most [`CHUNK`] of them.
#[inline(always)]
unsafe fn chunk(
    a: AOperand<'_>,
    row: usize,
    range: std::ops::Range<usize>,
    k: usize,
    buffer: &mut [f32; CHUNK],
) -> *const f32 {
    // SAFETY: the caller's promise.
    unsafe {
        match a {
            AOperand::Strided(m) if m.col == 1 => return m.at(row, range.start),
            AOperand::Strided(m) => {
                for (x, p) in buffer.iter_mut().zip(range) {
                    *x = *m.at(row, p);
                }
            }
            AOperand::Segments { starts, width } => {
                let width = width.max(1);
                let starts = starts.as_ptr().add(row * (k / width));
                let mut p = range.start;
                while p < range.end {
                    let n = (width - p % width).min(range.end - p);
                    let from = (*starts.add(p / width)).add(p % width);
                    std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr().add(p - range.start), n);
                    p += n;
                }
            }
            AOperand::Bf16 { .. } => debug_assert!(false, "rows of bf16 are copied"),
        }
    }
    buffer.as_ptr()
}

/// Columns of packed B, as tiles: for each sixteen columns, tile after tile along K; one part after the other.
pub struct Columns<'a> {
    /// Panels of f32 at this level.
    pub b: *const f32,
    /// Columns of B.
    pub n: usize,
    /// The first column, at a vector's edge.
    pub col: usize,
    /// Rows of B.
    pub k: usize,
    /// How numbers are taken apart.
    pub parts: Parts,
    /// Has room for [`Columns::len`] numbers of each part.
    pub to: *mut u16,
    /// One for each column: a multiple of [`SIDE`], of which some may lie beyond N.
    pub extents: &'a mut [Extent],
}

impl Columns<'_> {
    /// Numbers of one part of `cols` columns.
    pub fn len(cols: usize, k: usize) -> usize {
        cols.next_multiple_of(SIDE) * k.next_multiple_of(DEPTH)
    }
}

impl Kernel for Columns<'_> {
    type Output = ();

    // The parts are pushed in a plain loop over constants.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Columns { b, n, col, k, parts, to, extents } = self;
        let nr = S::W * S::TILE_VECTORS;
        let part = Columns::len(extents.len(), k);
        let steps = k.div_ceil(DEPTH);
        let packed = n.next_multiple_of(nr);
        let low = s.splat_i(0xffff);
        for first in (0..extents.len()).step_by(S::W) {
            let c = col + first;
            let there = c < packed;
            let from = b.wrapping_add(c / nr * nr * k + c % nr);
            // Pairs of rows, as numbers of 32 bits.
            let to = to.cast::<f32>().wrapping_add(first / SIDE * steps * TILE / 2 + first % SIDE);
            let mut seen = Seen::new(s);
            for pair in 0..steps * SIDE {
                let at = to.wrapping_add(pair * SIDE);
                // SAFETY: the maker answers for the panels and the room; a vector lies within one panel and one tile's row.
                unsafe {
                    let row = |p: usize| if there && p < k { s.load(from.wrapping_add(p * nr)) } else { s.zero() };
                    let (even, odd) = (row(2 * pair), row(2 * pair + 1));
                    seen.see(s, even);
                    seen.see(s, odd);
                    let (even, odd) = (split(s, parts, even), split(s, parts, odd));
                    for q in 0..parts.count() {
                        let both = s.or_i(s.and_i(s.sar_i::<16>(s.bits(even[q])), low), s.bits(odd[q]));
                        s.store(at.wrapping_add(q * part / 2), s.from_bits(both));
                    }
                }
            }
            let lanes = seen.lanes(s);
            extents[first..first + S::W].copy_from_slice(&lanes[..S::W]);
        }
    }
}
