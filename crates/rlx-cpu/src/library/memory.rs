//! Working memory of kernels, and errors of their tasks.

use super::number::Cells;
use super::walk::Cursor;
use crate::buffers::{BoundView, KernelError, RunCx};
use crate::library::number::Number;
use crate::space::Space;
use crate::tile::scratch;
use rlx_driver::AlignedBuffer;
use std::sync::{Mutex, PoisonError};

/// Bytes that a thread keeps for the next kernel.
const KEPT: usize = 4 << 20;

/// Runs `f` with memory for `len` elements of unspecified value.
pub fn with<T: bytemuck::Pod, R>(len: usize, f: impl FnOnce(&mut [T]) -> R) -> Result<R, KernelError> {
    let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| format!("{len} elements are too many"))?;
    let run = |m: &mut [u8]| {
        let m = m.get_mut(..bytes).unwrap_or_default();
        bytemuck::try_cast_slice_mut(m).map(f).map_err(|e| e.to_string())
    };
    if bytes <= KEPT {
        return scratch::with(bytes, run);
    }
    let mut m = AlignedBuffer::uninit(bytes).map_err(|e| e.to_string())?;
    run(m.as_mut_slice())
}

/// The first error that tasks report; which one that is where several fail is not specified.
#[derive(Debug, Default)]
pub struct Failure(Mutex<Option<KernelError>>);

impl Failure {
    /// Takes a task's result.
    pub fn note(&self, r: Result<(), KernelError>) {
        if let Err(e) = r {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
        }
    }

    /// The outcome.
    pub fn result(self) -> Result<(), KernelError> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

/// Calls `f(position, step, number of the row's first element, elements)` for rows that make up a view in row-major order.
fn rows(view: &BoundView, mut f: impl FnMut(i64, i64, usize, usize)) {
    if view.sizes.contains(&0) {
        return;
    }
    let s = Space::in_order(&view.sizes, &[&view.access.strides]);
    let (Some((&n, sizes)), Some(walk)) = (s.sizes.split_last(), s.walks.first()) else { return };
    let mut at = Cursor::new(sizes, walk, view.access.offset, 0);
    for row in 0..sizes.iter().product() {
        f(at.at(), walk.last().copied().unwrap_or(0), row * n, n);
        at.advance();
    }
}

/// Reads all elements of a view, row-major.
/// # Safety
/// The view was checked at bind and has memory; `T` is its dtype's working type.
pub unsafe fn load<T: Number>(view: &BoundView, run: &RunCx<'_>, out: &mut [T]) {
    let cells = Cells::<T>::of(view, run);
    rows(view, |at, step, first, n| {
        if let Some(part) = out.get_mut(first..first + n) {
            // SAFETY: the row lies within the view.
            unsafe { cells.load(at, step, part) };
        }
    });
}

/// Writes all elements of a view, row-major.
/// # Safety
/// As [`load`]; no other thread touches the view.
pub unsafe fn store<T: Number>(view: &BoundView, run: &RunCx<'_>, from: &[T]) {
    let cells = Cells::<T>::of(view, run);
    rows(view, |at, step, first, n| {
        if let Some(part) = from.get(first..first + n) {
            // SAFETY: the row lies within the view.
            unsafe { cells.store(at, step, part) };
        }
    });
}
