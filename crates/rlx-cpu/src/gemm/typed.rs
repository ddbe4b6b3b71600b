//! Products of other element types: plain blocked loops, right first.

use half::{bf16, f16};
use std::ops::Range;

/// An element of a product: what it is accumulated in, and how.
pub trait Element: Copy + Send + Sync + 'static {
    /// The type of a running sum.
    type Sum: Copy + Default + Send + Sync;
    /// `sum + a · b`; integers wrap.
    fn multiply_add(sum: Self::Sum, a: Self, b: Self) -> Self::Sum;
    /// The sum as an element, rounded once.
    fn from_sum(sum: Self::Sum) -> Self;
    /// An element as a sum.
    fn to_sum(self) -> Self::Sum;
    /// `a + b`; integers wrap.
    fn add(a: Self::Sum, b: Self::Sum) -> Self::Sum;
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Element for $t {
            type Sum = $t;
            #[inline(always)]
            fn multiply_add(sum: $t, a: $t, b: $t) -> $t {
                sum.wrapping_add(a.wrapping_mul(b))
            }
            #[inline(always)]
            fn from_sum(sum: $t) -> $t {
                sum
            }
            #[inline(always)]
            fn to_sum(self) -> $t {
                self
            }
            #[inline(always)]
            fn add(a: $t, b: $t) -> $t {
                a.wrapping_add(b)
            }
        }
    )*};
}
integers!(i8 i16 i32 i64 u8 u16 u32 u64);

macro_rules! floats {
    ($($t:ty, $sum:ty, |$x:ident| $to:expr, |$s:ident| $from:expr;)*) => {$(
        impl Element for $t {
            type Sum = $sum;
            #[inline(always)]
            fn multiply_add(sum: $sum, a: $t, b: $t) -> $sum {
                sum + a.to_sum() * b.to_sum()
            }
            #[inline(always)]
            fn from_sum($s: $sum) -> $t {
                $from
            }
            #[inline(always)]
            fn to_sum(self) -> $sum {
                let $x = self;
                $to
            }
            #[inline(always)]
            fn add(a: $sum, b: $sum) -> $sum {
                a + b
            }
        }
    )*};
}
floats! {
    f32, f32, |x| x, |s| s;
    f64, f64, |x| x, |s| s;
    f16, f32, |x| x.to_f32(), |s| f16::from_f32(s);
    bf16, f32, |x| x.to_f32(), |s| bf16::from_f32(s);
}

/// A matrix in memory, with strides in elements.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<P> {
    /// Element (0, 0).
    pub data: P,
    /// Elements from one row to the next.
    pub row: isize,
    /// Elements from one column to the next.
    pub col: isize,
}

impl<T> Matrix<*const T> {
    #[inline(always)]
    fn at(&self, r: usize, c: usize) -> *const T {
        self.data.wrapping_offset(r as isize * self.row + c as isize * self.col)
    }
}

/// Columns whose sums are kept at a time.
const WIDTH: usize = 64;

/// The rows `rows` of C = A · B, or C += A · B. Each element is one sum in ascending k, so that a division of the rows
/// among threads never changes a result.
///
/// # Safety
/// A is readable within `rows` by `k` (rows counted from 0 of the whole), B within `k` by `n`, C writable within `rows`
/// by `n`; C overlaps neither and no two of its elements coincide.
#[inline(always)]
pub unsafe fn gemm_rows<T: Element>(
    rows: Range<usize>,
    n: usize,
    k: usize,
    a: Matrix<*const T>,
    b: Matrix<*const T>,
    c: Matrix<*mut T>,
    accumulate: bool,
) {
    for r in rows {
        for c0 in (0..n).step_by(WIDTH) {
            let width = (n - c0).min(WIDTH);
            let mut sums = [T::Sum::default(); WIDTH];
            // SAFETY: r < rows.end, p < k and c0 + j < n: the caller's promise covers them.
            unsafe {
                for p in 0..k {
                    let x = *a.at(r, p);
                    if b.col == 1 {
                        let row = std::slice::from_raw_parts(b.at(p, c0), width);
                        for (sum, &y) in sums.iter_mut().zip(row) {
                            *sum = T::multiply_add(*sum, x, y);
                        }
                    } else {
                        for (j, sum) in sums.iter_mut().enumerate().take(width) {
                            *sum = T::multiply_add(*sum, x, *b.at(p, c0 + j));
                        }
                    }
                }
                for (j, &sum) in sums.iter().enumerate().take(width) {
                    let to = c.data.wrapping_offset(r as isize * c.row + (c0 + j) as isize * c.col);
                    let old = if accumulate { T::add((*to).to_sum(), sum) } else { sum };
                    *to = T::from_sum(old);
                }
            }
        }
    }
}
