//! Where elements are not zero.

use super::number::{Cells, Number, for_number};
use super::walk::Cursor;
use super::{Defined, Routine, operands};
use crate::buffers::{BindError, BoundView, KernelError, Ptr, RunCx};
use rlx_driver::AlignedBuffer;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Elements in a task.
const TASK: usize = 1 << 14;

#[derive(Debug)]
struct NonZero(BoundView);

/// Plans `nonzero`.
pub fn plan(inputs: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    let [x] = operands(inputs)?;
    Ok(Box::new(NonZero(x.clone())))
}

impl Routine for NonZero {
    unsafe fn run(&self, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError> {
        // SAFETY: passes the caller's promise on.
        unsafe { for_number!(self.0.access.dtype, T => find::<T>(&self.0, run)).map(Some) }
    }
}

/// # Safety
/// The view was checked at bind; `T` is its dtype's working type.
unsafe fn find<T: Number>(x: &BoundView, run: &RunCx<'_>) -> Result<Defined, KernelError> {
    let (cells, a, rank) = (Cells::<T>::of(x, run), &x.access, x.sizes.len());
    let (n, zero) = (x.numel(), T::default());
    let counts: Vec<AtomicUsize> = (0..n.div_ceil(TASK)).map(|_| AtomicUsize::new(0)).collect();
    run.region.parallel_ranges(n, TASK, &|r| {
        let mut at = Cursor::new(&x.sizes, &a.strides, a.offset, r.start);
        let mut found = 0;
        for _ in r.clone() {
            // SAFETY: the point is one of the view's.
            found += usize::from(unsafe { cells.get(at.at()) } != zero);
            at.advance();
        }
        counts[r.start / TASK].store(found, Ordering::Relaxed);
    });
    let mut total = 0;
    let starts: Vec<usize> = counts
        .into_iter()
        .map(|c| {
            total += c.into_inner();
            total
        })
        .collect();
    let bytes = total.checked_mul(rank * 8).ok_or("it has too many results")?;
    let mut out = AlignedBuffer::uninit(bytes).map_err(|e| e.to_string())?;
    let to = Ptr(out.as_mut_ptr());
    run.region.parallel_ranges(n, TASK, &|r| {
        let task = r.start / TASK;
        let mut column = if task == 0 { 0 } else { starts[task - 1] };
        let mut at = Cursor::new(&x.sizes, &a.strides, a.offset, r.start);
        for _ in r {
            // SAFETY: the point is one of the view's; there is a column for each that is not zero, as counted above,
            // and columns of tasks are disjoint.
            unsafe {
                if cells.get(at.at()) != zero {
                    for (axis, &i) in at.index().iter().enumerate() {
                        *to.get().cast::<i64>().add(axis * total + column) = i as i64;
                    }
                    column += 1;
                }
            }
            at.advance();
        }
    });
    Ok(Defined { symbols: vec![total as i64], outputs: vec![out] })
}
