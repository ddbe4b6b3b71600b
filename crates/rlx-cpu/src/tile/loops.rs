//! The loops that instructions are made of.
//!
//! Elements go through small arrays, so that a result may lie exactly where an operand lies and the compiler still
//! makes vectors of the loop without asking whether the two overlap.

use crate::simd::{Isa, Kernel, Simd, dispatch};

/// Operands and result of one instruction on one block. Result and operands are valid for `n` elements of their
/// working types (operands marked `splat` for one) and equal or disjoint.
#[derive(Clone, Copy)]
pub struct Args {
    /// Instruction set.
    pub isa: Isa,
    /// Operands; those that the instruction does not have are null.
    pub a: [*const u8; 3],
    /// Which operands are one element for the whole block. Only instructions that say so take them.
    pub splat: [bool; 3],
    /// The result.
    pub y: *mut u8,
    /// Number of elements.
    pub n: usize,
}

/// An instruction's loop.
/// # Safety
/// [`Args`] as its text says, of the types that the function was made for.
pub type OpFn = unsafe fn(&Args);

/// Elements that go through an array at once.
const CHUNK: usize = 16;

struct Loop1<A, R, F> {
    a: *const A,
    y: *mut R,
    n: usize,
    f: F,
}

impl<A: Copy, R: Copy, F: Fn(A) -> R> Kernel for Loop1<A, R, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.go();
    }
}

impl<A: Copy, R: Copy, F: Fn(A) -> R> Loop1<A, R, F> {
    #[inline(always)]
    fn go(self) {
        let Loop1 { a, y, n, f } = self;
        let mut i = 0;
        // SAFETY: operands and result hold n elements and i stays within; arrays have their element's alignment.
        unsafe {
            while i + CHUNK <= n {
                let x = *a.add(i).cast::<[A; CHUNK]>();
                *y.add(i).cast::<[R; CHUNK]>() = std::array::from_fn(|j| f(x[j]));
                i += CHUNK;
            }
            while i < n {
                *y.add(i) = f(*a.add(i));
                i += 1;
            }
        }
    }
}

struct Loop2<A, B, R, F> {
    a: *const A,
    b: *const B,
    y: *mut R,
    n: usize,
    f: F,
}

impl<A: Copy, B: Copy, R: Copy, F: Fn(A, B) -> R> Kernel for Loop2<A, B, R, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.go();
    }
}

impl<A: Copy, B: Copy, R: Copy, F: Fn(A, B) -> R> Loop2<A, B, R, F> {
    #[inline(always)]
    fn go(self) {
        let Loop2 { a, b, y, n, f } = self;
        let mut i = 0;
        // SAFETY: as in `Loop1`.
        unsafe {
            while i + CHUNK <= n {
                let (u, v) = (*a.add(i).cast::<[A; CHUNK]>(), *b.add(i).cast::<[B; CHUNK]>());
                *y.add(i).cast::<[R; CHUNK]>() = std::array::from_fn(|j| f(u[j], v[j]));
                i += CHUNK;
            }
            while i < n {
                *y.add(i) = f(*a.add(i), *b.add(i));
                i += 1;
            }
        }
    }
}

struct Loop3<A, B, R, F> {
    a: *const A,
    b: *const B,
    c: *const B,
    y: *mut R,
    n: usize,
    f: F,
}

impl<A: Copy, B: Copy, R: Copy, F: Fn(A, B, B) -> R> Kernel for Loop3<A, B, R, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.go();
    }
}

impl<A: Copy, B: Copy, R: Copy, F: Fn(A, B, B) -> R> Loop3<A, B, R, F> {
    #[inline(always)]
    fn go(self) {
        let Loop3 { a, b, c, y, n, f } = self;
        let mut i = 0;
        // SAFETY: as in `Loop1`.
        unsafe {
            while i + CHUNK <= n {
                let u = *a.add(i).cast::<[A; CHUNK]>();
                let (v, w) = (*b.add(i).cast::<[B; CHUNK]>(), *c.add(i).cast::<[B; CHUNK]>());
                *y.add(i).cast::<[R; CHUNK]>() = std::array::from_fn(|j| f(u[j], v[j], w[j]));
                i += CHUNK;
            }
            while i < n {
                *y.add(i) = f(*a.add(i), *b.add(i), *c.add(i));
                i += 1;
            }
        }
    }
}

/// `y = f(a)` at the block's instruction set.
/// # Safety
/// See [`Args`].
pub unsafe fn map1<A: Copy, R: Copy>(x: &Args, f: impl Fn(A) -> R) {
    dispatch(x.isa, Loop1 { a: x.a[0].cast::<A>(), y: x.y.cast::<R>(), n: x.n, f });
}

/// `y = f(a)` at the baseline: for functions that gain nothing from wider vectors.
/// # Safety
/// See [`Args`].
pub unsafe fn plain1<A: Copy, R: Copy>(x: &Args, f: impl Fn(A) -> R) {
    Loop1 { a: x.a[0].cast::<A>(), y: x.y.cast::<R>(), n: x.n, f }.go();
}

/// `y = f(a, b)` at the block's instruction set.
/// # Safety
/// See [`Args`].
pub unsafe fn map2<A: Copy, R: Copy>(x: &Args, f: impl Fn(A, A) -> R) {
    dispatch(x.isa, Loop2 { a: x.a[0].cast::<A>(), b: x.a[1].cast::<A>(), y: x.y.cast::<R>(), n: x.n, f });
}

/// `y = f(a, b)` at the baseline.
/// # Safety
/// See [`Args`].
pub unsafe fn plain2<A: Copy, R: Copy>(x: &Args, f: impl Fn(A, A) -> R) {
    Loop2 { a: x.a[0].cast::<A>(), b: x.a[1].cast::<A>(), y: x.y.cast::<R>(), n: x.n, f }.go();
}

/// `y = f(a, b, c)` at the block's instruction set.
/// # Safety
/// See [`Args`].
pub unsafe fn map3<A: Copy, B: Copy, R: Copy>(x: &Args, f: impl Fn(A, B, B) -> R) {
    let (a, b, c) = (x.a[0].cast::<A>(), x.a[1].cast::<B>(), x.a[2].cast::<B>());
    dispatch(x.isa, Loop3 { a, b, c, y: x.y.cast::<R>(), n: x.n, f });
}

/// `y = f(a, b, c)` at the baseline.
/// # Safety
/// See [`Args`].
pub unsafe fn plain3<A: Copy, B: Copy, R: Copy>(x: &Args, f: impl Fn(A, B, B) -> R) {
    let (a, b, c) = (x.a[0].cast::<A>(), x.a[1].cast::<B>(), x.a[2].cast::<B>());
    Loop3 { a, b, c, y: x.y.cast::<R>(), n: x.n, f }.go();
}

/// An [`OpFn`] of a loop and a function without captures.
macro_rules! op {
    ($loop:ident, $($t:ty),+; $f:expr) => {{
        unsafe fn run(x: &$crate::tile::loops::Args) {
            // SAFETY: passes the caller's promise on.
            unsafe { $crate::tile::loops::$loop::<$($t),+>(x, $f) }
        }
        run as $crate::tile::loops::OpFn
    }};
}
pub(crate) use op;
