//! Operands as dense arrays of the type that a layer computes in.

use super::super::memory;
use super::super::number::{Cells, Number};
use crate::buffers::{BoundView, KernelError, RunCx};
use rlx_driver::AlignedBuffer;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Blocks that a thread keeps for the next layer.
const BLOCKS: usize = 16;
/// Blocks larger than this are not kept.
const LARGEST: usize = 1 << 20;

thread_local! {
    static FREE: RefCell<Vec<AlignedBuffer>> = const { RefCell::new(Vec::new()) };
}

/// Memory for elements of a plain type; its block is used again by the thread that drops it.
pub struct Owned<T> {
    block: Option<AlignedBuffer>,
    len: usize,
    of: PhantomData<T>,
}

impl<T: bytemuck::Pod> Owned<T> {
    /// Zeros.
    pub fn zeroed(n: usize) -> Result<Self, KernelError> {
        let bytes = n.checked_mul(size_of::<T>()).ok_or_else(|| format!("{n} elements are too many"))?;
        let kept = FREE.with_borrow_mut(|f| f.iter().position(|b| b.len() >= bytes).map(|at| f.swap_remove(at)));
        let block = match kept {
            Some(mut b) => {
                b.as_mut_slice()[..bytes].fill(0);
                b
            }
            None => {
                let size = if bytes <= LARGEST { bytes.next_power_of_two().max(64) } else { bytes };
                AlignedBuffer::zeroed(size).map_err(|e| e.to_string())?
            }
        };
        Ok(Owned { block: Some(block), len: n, of: PhantomData })
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if let Some(block) = self.block.take().filter(|b| b.len() <= LARGEST) {
            FREE.with_borrow_mut(|f| {
                if f.len() < BLOCKS {
                    f.push(block);
                }
            });
        }
    }
}

impl<T: bytemuck::Pod> Deref for Owned<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        let all = self.block.as_ref().and_then(|b| b.typed().ok());
        all.and_then(|a| a.get(..self.len)).unwrap_or(&[])
    }
}

impl<T: bytemuck::Pod> DerefMut for Owned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let len = self.len;
        let all = self.block.as_mut().and_then(|b| b.typed_mut().ok());
        all.and_then(|a| a.get_mut(..len)).unwrap_or(&mut [])
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
