//! Index operands: reading, checking, resolving.

use super::walk::Cursor;
use crate::buffers::{BoundView, KernelError, Ptr, RunCx};
use crate::space::position;
use crate::tile::io;
use rlx_driver::Region;
use rlx_ir::DType;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Indices read at a time.
pub const BATCH: usize = 256;
/// Indices checked in a task.
const TASK: usize = 1 << 14;

/// An operand of integers.
pub struct Indices<'a> {
    view: &'a BoundView,
    base: Ptr,
    dense: bool,
}

/// An index that may count from the end, once it is checked.
#[inline(always)]
pub fn resolve(index: i64, size: usize) -> i64 {
    if index < 0 { index + size as i64 } else { index }
}

impl<'a> Indices<'a> {
    /// Those of a view.
    pub fn new(view: &'a BoundView, run: &RunCx<'_>) -> Self {
        Indices { view, base: Ptr(run.bufs.base(view.access.buffer)), dense: view.is_dense() }
    }

    /// One index, by its position in memory; what does not fit i64 becomes its greatest value.
    /// # Safety
    /// The position is one that the view reaches.
    #[inline]
    pub unsafe fn at(&self, at: i64) -> i64 {
        // SAFETY: the caller's promise.
        unsafe {
            match self.view.access.dtype {
                DType::I64 => *self.base.get().cast::<i64>().offset(at as isize),
                DType::I32 => i64::from(*self.base.get().cast::<i32>().offset(at as isize)),
                d => i64::try_from(io::read_i128(d, self.base.get(), at)).unwrap_or(i64::MAX),
            }
        }
    }

    /// Indices number `start`, `start + 1`, … in row-major order.
    /// # Safety
    /// The view has that many, and its buffer has memory.
    pub unsafe fn load(&self, start: usize, out: &mut [i64]) {
        let a = &self.view.access;
        // SAFETY: the caller's promise.
        unsafe {
            if self.dense {
                let first = a.offset + start as i64;
                for (i, o) in out.iter_mut().enumerate() {
                    *o = self.at(first + i as i64);
                }
                return;
            }
            let mut walk = Cursor::new(&self.view.sizes, &a.strides, a.offset, start);
            for o in out {
                *o = self.at(walk.at());
                walk.advance();
            }
        }
    }

    /// Errors unless each index is in range. Index number p is one into axis `first_axis + p % sizes.len()`, whose size
    /// is `sizes[p % sizes.len()]`.
    /// # Safety
    /// The view's buffer has memory.
    pub unsafe fn check(&self, region: &Region<'_>, sizes: &[usize], first_axis: usize) -> Result<(), KernelError> {
        let (count, k) = (self.view.numel(), sizes.len());
        if k == 0 {
            return Ok(());
        }
        let bad = AtomicUsize::new(usize::MAX);
        region.parallel_ranges(count, TASK, &|r| {
            let mut buffer = [0i64; BATCH];
            let mut at = r.start;
            while at < r.end {
                let part = &mut buffer[..BATCH.min(r.end - at)];
                // SAFETY: the part lies within the view.
                unsafe { self.load(at, part) };
                let outside = |i: i64, n: usize| {
                    let n = n as i64;
                    i < -n || i >= n
                };
                let found = if k == 1 {
                    part.iter().position(|&i| outside(i, sizes[0]))
                } else {
                    part.iter().enumerate().position(|(j, &i)| outside(i, sizes[(at + j) % k]))
                };
                if let Some(j) = found {
                    bad.fetch_min(at + j, Ordering::Relaxed);
                    return;
                }
                at += part.len();
            }
        });
        let bad = bad.into_inner();
        if bad == usize::MAX {
            return Ok(());
        }
        let a = &self.view.access;
        // SAFETY: the point is one of the view's.
        let value =
            unsafe { io::read_i128(a.dtype, self.base.get(), position(bad, &self.view.sizes, a.offset, &a.strides)) };
        let (size, axis) = (sizes[bad % k], first_axis + bad % k);
        Err(format!(
            "index {value} (element {bad} of the indices) is out of range for the {size} elements of axis {axis}; \
             indices must be in -{size}..{size}"
        ))
    }
}
