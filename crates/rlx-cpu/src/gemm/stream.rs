//! Few rows of A by a B that is read where it is, row by row: what a packing pass would cost more than it saves.
//!
//! Running sums of one block of K stand in a buffer of the nearest cache; several rows of B are added at a time, in
//! order, so that each element keeps the order of summation of `gemm`.

use super::Strided;
use crate::simd::{Kernel, Simd};

/// Elements of the buffer of running sums.
pub(super) const SUMS: usize = 4096;
/// Rows of B added at a time.
const STEPS: usize = 4;

/// `c[r][j] (+)= Σ a[r][p] b[p][j]` over one block of K, with unit column stride of B and C.
pub(super) struct Stream {
    pub rows: usize,
    pub cols: usize,
    pub k: usize,
    /// A at row 0 and the block's first k.
    pub a: Strided,
    /// B at the block's first k and column 0.
    pub b: *const f32,
    pub b_row: isize,
    pub c: *mut f32,
    pub c_row: isize,
    pub add: bool,
}

impl Kernel for Stream {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // Whole vectors a row, so that sums need no partial access.
        let width = self.cols.next_multiple_of(S::W);
        let mut buffer = [0.0f32; SUMS];
        assert!(self.rows * width <= SUMS, "the caller cuts columns to the buffer");
        let sums = buffer.as_mut_ptr();
        let whole = self.cols - self.cols % S::W;
        let rest = self.cols - whole;
        // SAFETY: for the whole body, p < k, r < rows and lanes below `cols` keep within A, B and C, for which the caller
        // answers; sums stay within the buffer by the assertion.
        unsafe {
            let mut p = 0;
            while p < self.k {
                let steps = (self.k - p).min(STEPS);
                for r in 0..self.rows {
                    let mut av = [s.zero(); STEPS];
                    for (i, v) in av.iter_mut().enumerate().take(steps) {
                        *v = s.splat(*self.a.at(r, p + i));
                    }
                    let row = self.b.wrapping_offset(p as isize * self.b_row);
                    let to = sums.add(r * width);
                    let mut j = 0;
                    if steps == STEPS {
                        while j < whole {
                            let mut v = s.load(to.add(j));
                            for (i, a) in av.iter().enumerate() {
                                v = s.mul_add(*a, s.load(row.wrapping_offset(i as isize * self.b_row).add(j)), v);
                            }
                            s.store(to.add(j), v);
                            j += S::W;
                        }
                    }
                    while j < self.cols {
                        let lanes = (self.cols - j).min(S::W);
                        let mut v = s.load(to.add(j));
                        for (i, a) in av.iter().enumerate().take(steps) {
                            let from = row.wrapping_offset(i as isize * self.b_row).add(j);
                            v = s.mul_add(*a, s.load_partial(from, lanes), v);
                        }
                        s.store(to.add(j), v);
                        j += S::W;
                    }
                }
                p += steps;
            }
            for r in 0..self.rows {
                let (from, to) = (sums.add(r * width), self.c.offset(r as isize * self.c_row));
                let mut j = 0;
                while j < whole {
                    let v = s.load(from.add(j));
                    s.store(to.add(j), if self.add { s.add(s.load(to.add(j)), v) } else { v });
                    j += S::W;
                }
                if rest > 0 {
                    let v = s.load(from.add(j));
                    let v = if self.add { s.add(s.load_partial(to.add(j), rest), v) } else { v };
                    s.store_partial(to.add(j), v, rest);
                }
            }
        }
    }
}
