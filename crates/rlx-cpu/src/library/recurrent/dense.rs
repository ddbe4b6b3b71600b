//! Operands as dense arrays of the type that a layer computes in.

use super::super::memory;
use super::super::number::{Cells, Number};
use crate::buffers::{BoundView, KernelError, RunCx};
use rlx_driver::AlignedBuffer;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Memory for elements of a plain type.
pub struct Owned<T>(AlignedBuffer, PhantomData<T>);

impl<T: bytemuck::Pod> Owned<T> {
    /// Zeros.
    pub fn zeroed(n: usize) -> Result<Self, KernelError> {
        let bytes = n.checked_mul(size_of::<T>()).ok_or_else(|| format!("{n} elements are too many"))?;
        Ok(Owned(AlignedBuffer::zeroed(bytes).map_err(|e| e.to_string())?, PhantomData))
    }
}

impl<T: bytemuck::Pod> Deref for Owned<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.0.typed().unwrap_or(&[])
    }
}

impl<T: bytemuck::Pod> DerefMut for Owned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.0.typed_mut().unwrap_or(&mut [])
    }
}

/// An operand, where it lies or copied.
pub enum Dense<'a, T> {
    Own(Owned<T>),
    There(&'a [T]),
}

impl<T: bytemuck::Pod> Deref for Dense<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match self {
            Dense::Own(m) => m,
            Dense::There(m) => m,
        }
    }
}

/// A view's elements, row-major.
/// # Safety
/// The view was checked at bind and is not written while the elements are used; `T` is its dtype's working type.
pub unsafe fn read<'a, T: Number + bytemuck::Pod>(
    view: &BoundView,
    run: &RunCx<'_>,
) -> Result<Dense<'a, T>, KernelError> {
    let n = view.numel();
    // SAFETY: the caller's promise.
    unsafe {
        if view.is_dense()
            && n > 0
            && let Some(m) = Cells::<T>::of(view, run).slice(view.access.offset, n)
        {
            return Ok(Dense::There(m));
        }
        let mut m = Owned::zeroed(n)?;
        memory::load(view, run, &mut m);
        Ok(Dense::Own(m))
    }
}

/// As [`read`]; zeros of number `n` where there is no operand.
/// # Safety
/// As [`read`].
pub unsafe fn copy<T: Number + bytemuck::Pod>(
    view: Option<&BoundView>,
    n: usize,
    run: &RunCx<'_>,
) -> Result<Owned<T>, KernelError> {
    let mut m = Owned::zeroed(n)?;
    if let Some(v) = view {
        // SAFETY: the caller's promise.
        unsafe { memory::load(v, run, &mut m) };
    }
    Ok(m)
}
