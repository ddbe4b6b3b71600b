//! The transforms of inputs and of sums, over channels that lie side by side.
//!
//! A tile is two by two outputs; it sees four by four inputs d. Bᵀ d B are sixteen numbers for each input channel, Aᵀ m A
//! four for each output channel, where
//!
//! ```text
//!      1  0 −1  0
//! Bᵀ = 0  1  1  0      Aᵀ = 1  1  1  0
//!      0 −1  1  0           0  1 −1 −1
//!      0  1  0 −1
//! ```

use super::super::phase::Along;
use crate::gemm::{Finish, Lines, load};
use crate::simd::{Kernel, Simd};

/// How sixteen matrices of tiles by channels lie in memory.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// From one matrix to the next.
    plane: usize,
    /// From one tile to the next.
    row: usize,
}

impl Layout {
    /// Steps are odd numbers of cache lines: what is read and written at a time does not fall into the same sets of the
    /// nearest cache.
    pub fn new(tiles: usize, channels: usize) -> Layout {
        let odd = |n: usize| n.div_ceil(LINE) | 1;
        let row = odd(channels) * LINE;
        Layout { plane: odd(tiles * row) * LINE, row }
    }

    /// Elements in all.
    pub fn len(&self) -> usize {
        16 * self.plane
    }

    /// The matrices in memory.
    pub fn at(self, data: *mut f32) -> Planes {
        Planes { data, layout: self }
    }
}

/// Sixteen matrices of tiles by channels.
#[derive(Clone, Copy, Debug)]
pub struct Planes {
    /// The first element.
    data: *mut f32,
    layout: Layout,
}

impl Planes {
    /// From a tile on.
    #[inline(always)]
    pub fn from(self, tile: usize) -> Planes {
        Planes { data: self.data.wrapping_add(tile * self.layout.row), ..self }
    }

    /// A matrix; tiles are rows.
    #[inline(always)]
    pub fn matrix(&self, plane: usize) -> Lines {
        Lines { data: self.data.wrapping_add(plane * self.layout.plane), row: self.layout.row as isize }
    }
}

/// Elements of a cache line.
const LINE: usize = 16;

/// Tiles of an image.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// The axes.
    pub y: Along,
    /// The last one.
    pub x: Along,
}

impl Grid {
    /// Tiles from the top to the bottom.
    pub fn down(&self) -> usize {
        self.y.outs.div_ceil(2)
    }

    /// Tiles from left to right.
    pub fn across(&self) -> usize {
        self.x.outs.div_ceil(2)
    }
}

/// Transforms what tiles in a row, one after another, see of an image; returns whether a flag was set. The maker answers for the memory: the input,
/// `channels` zeros, the tiles' rows of the planes.
pub struct Input<'a> {
    /// Element (0, 0) of the image, channel 0.
    pub image: *const f32,
    pub grid: &'a Grid,
    pub channels: usize,
    pub zeros: *const f32,
    /// The tiles' row.
    pub row: usize,
    /// The first of them, and how many there are.
    pub first: usize,
    pub tiles: usize,
    /// The first tile's.
    pub to: Planes,
    /// One for each tile: whether it sees something that is not finite or huge.
    pub odd: *mut u8,
}

impl Kernel for Input<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> bool {
        let mut any = false;
        let Grid { y, x } = *self.grid;
        let top = y.source + 2 * self.row as i64;
        let inside = |first: i64, a: Along| first >= 0 && first + 4 <= a.input as i64;
        for t in 0..self.tiles {
            let left = x.source + 2 * (self.first + t) as i64;
            let corner = self.image.wrapping_offset((top * y.stride + left * x.stride) as isize);
            let to = self.to.from(t);
            let odd = if inside(top, y) && inside(left, x) {
                let mut rows = [corner; 4];
                for (i, row) in rows.iter_mut().enumerate() {
                    *row = corner.wrapping_offset(i as isize * y.stride as isize);
                }
                // SAFETY: all sixteen lie in the image.
                unsafe { all::<S, Inside>(s, &Inside { rows, step: x.stride as isize }, self.channels, to) }
            } else {
                let mut from = [self.zeros; 16];
                for (i, p) in from.iter_mut().enumerate() {
                    let (r, c) = ((i / 4) as i64, (i % 4) as i64);
                    if (0..y.input as i64).contains(&(top + r)) && (0..x.input as i64).contains(&(left + c)) {
                        *p = corner.wrapping_offset((r * y.stride + c * x.stride) as isize);
                    }
                }
                // SAFETY: what lies outside reads zeros.
                unsafe { all::<S, Edge>(s, &Edge { from }, self.channels, to) }
            };
            // SAFETY: a flag for each tile.
            unsafe { *self.odd.add(t) = u8::from(odd) };
            any |= odd;
        }
        any
    }
}

/// Where the sixteen inputs of a tile are.
trait From {
    /// Channel 0 of an input.
    fn at(&self, r: usize, c: usize) -> *const f32;
}

/// A tile inside the image.
struct Inside {
    rows: [*const f32; 4],
    step: isize,
}

impl From for Inside {
    #[inline(always)]
    fn at(&self, r: usize, c: usize) -> *const f32 {
        self.rows[r].wrapping_offset(c as isize * self.step)
    }
}

/// A tile that reaches over the image's edge.
struct Edge {
    from: [*const f32; 16],
}

impl From for Edge {
    #[inline(always)]
    fn at(&self, r: usize, c: usize) -> *const f32 {
        self.from[4 * r + c]
    }
}

/// All channels of a tile; returns whether something is not finite or huge.
/// # Safety
/// The inputs are readable, and the tile's rows writable up to whole vectors.
#[inline(always)]
unsafe fn all<S: Simd, F: From>(s: S, from: &F, channels: usize, to: Planes) -> bool {
    let mut squares = [s.zero(); 4];
    let mut c = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while c + S::W <= channels {
            squares = vector::<S, F, true>(s, from, c, S::W, to, squares);
            c += S::W;
        }
        if c < channels {
            squares = vector::<S, F, false>(s, from, c, channels - c, to, squares);
        }
    }
    let sum = s.add(s.add(squares[0], squares[1]), s.add(squares[2], squares[3]));
    // Whatever is not finite stays so in a sum of squares, and what is beyond 2⁶⁴ becomes so.
    s.any(s.not_m(s.lt(sum, s.splat(f32::INFINITY))))
}

/// One vector of channels of a tile.
/// # Safety
/// As [`all`].
#[inline(always)]
unsafe fn vector<S: Simd, F: From, const WHOLE: bool>(
    s: S,
    from: &F,
    c: usize,
    lanes: usize,
    to: Planes,
    mut squares: [S::F; 4],
) -> [S::F; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        // Two rows of the inputs, the second taken away or added, give a row of Bᵀ d.
        let first = rows::<S, F, 0, 2, false, WHOLE>(s, from, c, lanes);
        store(s, first, to, 0, c, &mut squares);
        let second = rows::<S, F, 1, 2, true, WHOLE>(s, from, c, lanes);
        store(s, second, to, 1, c, &mut squares);
        let third = rows::<S, F, 2, 1, false, WHOLE>(s, from, c, lanes);
        store(s, third, to, 2, c, &mut squares);
        let fourth = rows::<S, F, 1, 3, false, WHOLE>(s, from, c, lanes);
        store(s, fourth, to, 3, c, &mut squares);
    }
    squares
}

/// Row P of the inputs, with row Q added if PLUS, else taken away.
/// # Safety
/// As [`all`].
#[inline(always)]
unsafe fn rows<S: Simd, F: From, const P: usize, const Q: usize, const PLUS: bool, const WHOLE: bool>(
    s: S,
    from: &F,
    c: usize,
    lanes: usize,
) -> [S::F; 4] {
    let mut line = [s.zero(); 4];
    for (j, v) in line.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            let a = load::<S, WHOLE>(s, from.at(P, j).wrapping_add(c), lanes);
            let b = load::<S, WHOLE>(s, from.at(Q, j).wrapping_add(c), lanes);
            *v = if PLUS { s.add(a, b) } else { s.sub(a, b) };
        }
    }
    line
}

/// Stores row `i` of Bᵀ d, times B, and adds its squares.
/// # Safety
/// As [`all`].
#[inline(always)]
unsafe fn store<S: Simd>(s: S, line: [S::F; 4], to: Planes, i: usize, c: usize, squares: &mut [S::F; 4]) {
    let out = [s.sub(line[0], line[2]), s.add(line[1], line[2]), s.sub(line[2], line[1]), s.sub(line[1], line[3])];
    for (j, v) in out.into_iter().enumerate() {
        squares[j] = s.mul_add(v, v, squares[j]);
        // SAFETY: the caller's promise.
        unsafe { s.store(to.matrix(4 * i + j).at(0, c), v) };
    }
}

/// Transforms the sums of tiles in a row, one after another, to their outputs. The maker answers for the memory.
pub struct Output {
    /// The first tile's sums.
    pub from: Planes,
    pub tiles: usize,
    pub columns: usize,
    /// Lines of outputs of a tile that there are, and outputs of a line of the last tile.
    pub down: usize,
    pub last: usize,
    /// One for each tile: not 0 for those that are left out.
    pub odd: *const u8,
    /// Where the two lines go, from the first tile's first outputs on. `None`: to the sums of each tile, output (i, j) to those of
    /// matrix 2 i + j.
    pub to: Option<[(Lines, Finish); 2]>,
}

impl Kernel for Output {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for t in 0..self.tiles {
            // SAFETY: a flag for each tile.
            if unsafe { *self.odd.add(t) } != 0 {
                continue;
            }
            let wide = if t + 1 == self.tiles { self.last } else { 2 };
            let mut j = 0;
            // SAFETY: the maker answers for the tile's sums, and for its outputs.
            unsafe {
                while j + S::W <= self.columns {
                    self.vector::<S, true>(s, t, wide, j, S::W);
                    j += S::W;
                }
                if j < self.columns {
                    self.vector::<S, false>(s, t, wide, j, self.columns - j);
                }
            }
        }
    }
}

impl Output {
    /// One vector of columns of a tile.
    /// # Safety
    /// `lanes` columns from `j` on lie within the sums and the outputs; they are a whole vector if WHOLE.
    #[inline(always)]
    // Plain index loops: constant bounds, unrolled whole.
    #[allow(clippy::needless_range_loop)]
    unsafe fn vector<S: Simd, const WHOLE: bool>(&self, s: S, t: usize, wide: usize, j: usize, lanes: usize) {
        let from = self.from.from(t);
        // SAFETY: the caller's promise; rows of sums are whole lines.
        unsafe {
            let mut lines = [[s.zero(); 4]; 2];
            for k in 0..4 {
                let mut m = [s.zero(); 4];
                for (i, v) in m.iter_mut().enumerate() {
                    *v = s.load(from.matrix(4 * i + k).at(0, j));
                }
                lines[0][k] = s.add(s.add(m[0], m[1]), m[2]);
                lines[1][k] = s.sub(s.sub(m[1], m[2]), m[3]);
            }
            for (i, l) in lines.into_iter().enumerate().take(self.down) {
                let out = [s.add(s.add(l[0], l[1]), l[2]), s.sub(s.sub(l[1], l[2]), l[3])];
                let Some(to) = &self.to else {
                    s.store(from.matrix(2 * i).at(0, j), out[0]);
                    s.store(from.matrix(2 * i + 1).at(0, j), out[1]);
                    continue;
                };
                let (c, mut finish) = to[i];
                finish.residual = finish.residual.below(2 * t);
                let ends = (Lines::NONE, c.below(2 * t));
                if wide == 2 {
                    finish.store::<S, 2, WHOLE>(s, out, ends, j, lanes);
                } else {
                    finish.store::<S, 1, WHOLE>(s, [out[0]], ends, j, lanes);
                }
            }
        }
    }
}
