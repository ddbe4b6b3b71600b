//! Contractions of f64 and of integers: typed loops on operands widened to the accumulator's type.

use super::ContractPlan;
use super::operand::Axes;
use crate::buffers::{Ptr, RunCx, Sizes, Strides};
use crate::gemm::typed::{Element, Matrix, gemm_rows};
use crate::simd::{Kernel, Simd, dispatch};
use crate::space::position;
use crate::tile::code::Code;
use crate::tile::{Work, scratch};
use rlx_ir::DType;
use std::ops::Range;

/// A contraction as typed products.
#[derive(Debug)]
pub struct Product {
    left: Side,
    right: Side,
}

/// An operand: free rows by contracted columns.
#[derive(Debug)]
struct Side {
    rows: Axes,
    cols: Axes,
    batch: Strides,
}

/// A contraction as typed products, if its dtypes are those of this file.
pub fn plan(p: &ContractPlan) -> Option<Product> {
    let takes = |d: DType| match p.acc {
        DType::F64 => d == DType::F64,
        _ => is_integer(d),
    };
    let sums = p.acc == DType::F64 || is_integer(p.acc);
    if !sums || !takes(p.lhs.dtype) || !takes(p.rhs.dtype) {
        return None;
    }
    let side = |strides: &Strides, free: &Sizes| {
        let (nb, nf) = (p.batch.len(), free.len());
        Side {
            batch: strides[..nb].into(),
            rows: Axes::new(free, &strides[nb..nb + nf]),
            cols: Axes::new(&p.k, &strides[nb + nf..]),
        }
    };
    Some(Product { left: side(&p.lhs.strides, &p.m), right: side(&p.rhs.strides, &p.n) })
}

/// Integers whose memory is their working type.
fn is_integer(d: DType) -> bool {
    d.is_int() && Work::is_storage(d)
}

/// Runs a contraction.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(t: &Product, p: &ContractPlan, code: &Code, run: &RunCx<'_>) {
    // SAFETY: the caller's promise, and the type is that of the accumulator.
    unsafe {
        match p.acc {
            DType::F64 => typed::<f64>(t, p, code, run),
            DType::I8 => typed::<i8>(t, p, code, run),
            DType::I16 => typed::<i16>(t, p, code, run),
            DType::I32 => typed::<i32>(t, p, code, run),
            DType::I64 => typed::<i64>(t, p, code, run),
            DType::U8 => typed::<u8>(t, p, code, run),
            DType::U16 => typed::<u16>(t, p, code, run),
            DType::U32 => typed::<u32>(t, p, code, run),
            DType::U64 => typed::<u64>(t, p, code, run),
            _ => {}
        }
    }
}

/// Multiply-adds of a task.
const TASK: usize = 1 << 18;

/// # Safety
/// As [`run`]; `T` is the accumulator's type.
unsafe fn typed<T: Element + Widen>(t: &Product, p: &ContractPlan, code: &Code, run: &RunCx<'_>) {
    let (batch, m, n, k) =
        (p.batch.iter().product::<usize>(), t.left.rows.len(), t.right.rows.len(), t.left.cols.len());
    let (lhs, rhs) = (Ptr(run.bufs.base(p.lhs.buffer)), Ptr(run.bufs.base(p.rhs.buffer)));
    let rows_each = (TASK / (n * k).max(1)).clamp(1, m);
    let parts = m.div_ceil(rows_each);
    let (a_len, b_len) = (m * k, k * n);
    // Both operands of one batch element at a time, dense and in the accumulator's type; B turned to k by n.
    for b in 0..batch {
        let left = position(b, &p.batch, p.lhs.offset, &t.left.batch);
        let right = position(b, &p.batch, p.rhs.offset, &t.right.batch);
        scratch::with((a_len + b_len).max(1) * size_of::<T>(), |memory| {
            let a = Ptr(memory.as_mut_ptr());
            let bt = Ptr(memory.as_mut_ptr().cast::<T>().wrapping_add(a_len).cast());
            run.region.parallel_for(m, &|r| {
                let at = t.left.rows.at(r, left);
                // SAFETY: the walk was checked at bind; the memory has room for the operand, and this row is the task's.
                unsafe { T::widen(p.lhs.dtype, lhs.get(), at, &t.left.cols, a.get().cast::<T>().add(r * k)) };
            });
            run.region.parallel_for(k, &|c| {
                let at = t.right.cols.at(c, right);
                // SAFETY: as above.
                unsafe { T::widen(p.rhs.dtype, rhs.get(), at, &t.right.rows, bt.get().cast::<T>().add(c * n)) };
            });
            run.region.parallel_for(parts, &|part| {
                let rows = part * rows_each..m.min((part + 1) * rows_each);
                scratch::with((rows.len() * n).max(1) * size_of::<T>(), |c| {
                    let c = c.as_mut_ptr();
                    let product = Rows {
                        rows: 0..rows.len(),
                        n,
                        k,
                        a: Matrix {
                            data: a.get().cast::<T>().cast_const().wrapping_add(rows.start * k),
                            row: k as isize,
                            col: 1,
                        },
                        b: Matrix { data: bt.get().cast::<T>().cast_const(), row: n as isize, col: 1 },
                        c: Matrix { data: c.cast::<T>(), row: n as isize, col: 1 },
                    };
                    dispatch(run.isa, product);
                    p.finish.with_runner(code, run.bufs, run.isa, |e| {
                        for (i, r) in rows.clone().enumerate() {
                            // SAFETY: the rows are this task's alone; c holds them.
                            unsafe { e.run(b * m + r, 0, n, c.add(i * n * size_of::<T>())) };
                        }
                    });
                });
            });
        });
    }
}

/// Rows of a product at an instruction-set level. The maker answers for the memory.
struct Rows<T> {
    rows: Range<usize>,
    n: usize,
    k: usize,
    a: Matrix<*const T>,
    b: Matrix<*const T>,
    c: Matrix<*mut T>,
}

impl<T: Element> Kernel for Rows<T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        // SAFETY: the maker's promise.
        unsafe { gemm_rows(self.rows, self.n, self.k, self.a, self.b, self.c, false) }
    }
}

/// Reading elements of other types as this one; integers wrap.
trait Widen: Sized {
    /// Copies the points of a walk to `dst`.
    /// # Safety
    /// The walk from `at` on lies in memory at `base`, of elements of `dtype`; `dst` has room.
    unsafe fn widen(dtype: DType, base: *const u8, at: i64, axes: &Axes, dst: *mut Self);
}

macro_rules! copy {
    ($from:ty, $to:ty, $base:ident, $at:ident, $axes:ident, $dst:ident) => {{
        let base = $base.cast::<$from>();
        let inner = $axes.sizes.last().copied().unwrap_or(1);
        let step = $axes.strides.last().copied().unwrap_or(0) as isize;
        for row in 0..$axes.len() / inner.max(1) {
            let from = base.wrapping_offset($axes.at(row * inner, $at) as isize);
            let to = $dst.wrapping_add(row * inner);
            for i in 0..inner {
                *to.wrapping_add(i) = *from.wrapping_offset(i as isize * step) as $to;
            }
        }
    }};
}

macro_rules! widen_integers {
    ($($t:ty)*) => {$(
        impl Widen for $t {
            #[allow(clippy::unnecessary_cast, clippy::cast_lossless)]
            unsafe fn widen(dtype: DType, base: *const u8, at: i64, axes: &Axes, dst: *mut $t) {
                // SAFETY: the caller's promise.
                unsafe {
                    match dtype {
                        DType::I8 => copy!(i8, $t, base, at, axes, dst),
                        DType::I16 => copy!(i16, $t, base, at, axes, dst),
                        DType::I32 => copy!(i32, $t, base, at, axes, dst),
                        DType::I64 => copy!(i64, $t, base, at, axes, dst),
                        DType::U8 => copy!(u8, $t, base, at, axes, dst),
                        DType::U16 => copy!(u16, $t, base, at, axes, dst),
                        DType::U32 => copy!(u32, $t, base, at, axes, dst),
                        DType::U64 => copy!(u64, $t, base, at, axes, dst),
                        _ => {}
                    }
                }
            }
        }
    )*};
}
widen_integers!(i8 i16 i32 i64 u8 u16 u32 u64);

impl Widen for f64 {
    unsafe fn widen(_: DType, base: *const u8, at: i64, axes: &Axes, dst: *mut f64) {
        // SAFETY: the caller's promise; the dtype is f64.
        unsafe { copy!(f64, f64, base, at, axes, dst) }
    }
}
