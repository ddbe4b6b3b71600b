//! Moving elements, bits as they are.

use crate::buffers::{BoundView, Ptr, RunCx, Sizes, Strides};
use crate::space::Space;
use crate::tile::io;
use rlx_ir::DType;
use std::marker::PhantomData;

/// How an element of some width is moved.
pub trait Cell {
    /// Moves element `f` of the memory at `from` to element `t` of that at `to`, whatever their alignment.
    /// # Safety
    /// Both lie in memory; no other thread touches the byte written.
    unsafe fn copy(from: *const u8, f: i64, to: *mut u8, t: i64);
}

/// Elements of whole bytes.
pub struct Whole<T>(PhantomData<T>);
/// Elements of 2 bits.
pub struct Two;
/// Elements of 4 bits.
pub struct Four;

impl<T: Copy> Cell for Whole<T> {
    #[inline(always)]
    unsafe fn copy(from: *const u8, f: i64, to: *mut u8, t: i64) {
        // SAFETY: the caller's promise.
        unsafe {
            let x = from.cast::<T>().wrapping_offset(f as isize).read_unaligned();
            to.cast::<T>().wrapping_offset(t as isize).write_unaligned(x);
        }
    }
}

macro_rules! narrow {
    ($name:ident, $carrier:expr) => {
        impl Cell for $name {
            #[inline]
            unsafe fn copy(from: *const u8, f: i64, to: *mut u8, t: i64) {
                // SAFETY: the caller's promise.
                unsafe { io::set_narrow($carrier, to, t, io::narrow($carrier, from, f)) }
            }
        }
    };
}
narrow!(Two, DType::U2);
narrow!(Four, DType::U4);

/// Evaluates `$body` with `$c` as the cell type of elements of this many bits.
macro_rules! for_cell {
    ($bits:expr, $c:ident => $body:expr) => {
        match $bits {
            2 => {
                type $c = $crate::library::moves::Two;
                $body
            }
            4 => {
                type $c = $crate::library::moves::Four;
                $body
            }
            8 => {
                type $c = $crate::library::moves::Whole<u8>;
                $body
            }
            16 => {
                type $c = $crate::library::moves::Whole<u16>;
                $body
            }
            32 => {
                type $c = $crate::library::moves::Whole<u32>;
                $body
            }
            64 => {
                type $c = $crate::library::moves::Whole<u64>;
                $body
            }
            _ => {
                type $c = $crate::library::moves::Whole<[u64; 2]>;
                $body
            }
        }
    };
}
pub(crate) use for_cell;

/// A block of elements that is moved as one: its sizes, and its steps on both sides.
#[derive(Clone, Debug)]
pub struct Block {
    bits: usize,
    sizes: Sizes,
    from: Strides,
    to: Strides,
    /// Bytes, where the block is one run on both sides.
    run: Option<usize>,
    empty: bool,
}

impl Block {
    /// A block with these steps at its source and its destination.
    pub fn new(dtype: DType, sizes: &[usize], from: &[i64], to: &[i64]) -> Block {
        let bits = dtype.bits();
        let mut s = Space::simplified(sizes, &[from, to], 1);
        let mut walk = || s.walks.pop().unwrap_or_default();
        let (to, from) = (walk(), walk());
        let one = s.sizes.len() == 1 && (s.sizes[0] == 1 || (from[0] == 1 && to[0] == 1));
        let run = (one && bits >= 8 && !sizes.contains(&0)).then(|| s.sizes[0] * (bits / 8));
        Block { bits, empty: sizes.contains(&0), sizes: s.sizes, from, to, run }
    }

    /// Bits of all its elements.
    pub fn bits(&self) -> usize {
        if self.empty { 0 } else { self.sizes.iter().product::<usize>().saturating_mul(self.bits) }
    }

    /// Moves the block.
    /// # Safety
    /// With its first element at position `f` of `from` and `t` of `to`, the block lies in both memories, of any
    /// alignment; they do not overlap, and no other thread touches the bytes written.
    #[inline]
    pub unsafe fn copy(&self, from: Ptr, f: i64, to: Ptr, t: i64) {
        // SAFETY: the caller's promise.
        unsafe {
            let (from, to) = (from.get().cast_const(), to.get());
            let Some(bytes) = self.run else {
                return for_cell!(self.bits, C => self.rows::<C>(from, f, to, t));
            };
            let size = (self.bits / 8) as isize;
            let (x, y) = (from.offset(f as isize * size), to.offset(t as isize * size));
            match bytes {
                4 => y.cast::<[u8; 4]>().write(x.cast::<[u8; 4]>().read()),
                8 => y.cast::<[u8; 8]>().write(x.cast::<[u8; 8]>().read()),
                _ => std::ptr::copy_nonoverlapping(x, y, bytes),
            }
        }
    }

    /// # Safety
    /// As [`Block::copy`].
    unsafe fn rows<C: Cell>(&self, from: *const u8, f: i64, to: *mut u8, t: i64) {
        if self.empty {
            return;
        }
        let last = self.sizes.len() - 1;
        let (n, fs, ts) = (self.sizes[last], self.from[last], self.to[last]);
        let mut index: Sizes = smallvec::smallvec![0; last];
        let (mut f, mut t) = (f, t);
        loop {
            // SAFETY: the row lies within the block.
            unsafe {
                if self.bits >= 8 && fs == 1 && ts == 1 {
                    let size = (self.bits / 8) as isize;
                    let (x, y) = (from.offset(f as isize * size), to.offset(t as isize * size));
                    std::ptr::copy_nonoverlapping(x, y, n * size as usize);
                } else {
                    for i in 0..n as i64 {
                        C::copy(from, f + i * fs, to, t + i * ts);
                    }
                }
            }
            let mut axis = last;
            loop {
                if axis == 0 {
                    return;
                }
                axis -= 1;
                index[axis] += 1;
                f += self.from[axis];
                t += self.to[axis];
                if index[axis] < self.sizes[axis] {
                    break;
                }
                f -= self.from[axis] * index[axis] as i64;
                t -= self.to[axis] * index[axis] as i64;
                index[axis] = 0;
            }
        }
    }

    /// [`Block::copy`] on all threads.
    /// # Safety
    /// As [`Block::copy`].
    pub unsafe fn copy_parallel(&self, run: &RunCx<'_>, from: Ptr, f: i64, to: Ptr, t: i64) {
        let n = self.sizes[0];
        if self.bits < 8 || self.empty || self.bits() < 8 * TASK_BYTES {
            // SAFETY: the caller's promise.
            return unsafe { self.copy(from, f, to, t) };
        }
        let chunk = (TASK_BYTES * 8 / (self.bits() / n)).max(1);
        run.region.parallel_ranges(n, chunk, &|r| {
            let mut part = self.clone();
            part.sizes[0] = r.len();
            part.run = self.run.map(|_| r.len() * (self.bits / 8));
            // SAFETY: the part lies within the block, and parts do not overlap.
            unsafe { part.copy(from, f + r.start as i64 * self.from[0], to, t + r.start as i64 * self.to[0]) };
        });
    }
}

/// Bytes that are worth a task.
pub const TASK_BYTES: usize = 1 << 16;

/// Copies a view to another of the same sizes and dtype, unless both are the same memory.
/// # Safety
/// Both views were checked at bind, and have memory that overlaps nowhere or entirely.
pub unsafe fn copy_view(run: &RunCx<'_>, x: &BoundView, y: &BoundView) {
    let (a, b) = (&x.access, &y.access);
    if a.buffer == b.buffer && a.offset == b.offset && a.strides == b.strides {
        return;
    }
    let block = Block::new(a.dtype, &x.sizes, &a.strides, &b.strides);
    let (from, to) = (Ptr(run.bufs.base(a.buffer)), Ptr(run.bufs.base(b.buffer)));
    // SAFETY: the caller's promise.
    unsafe { block.copy_parallel(run, from, a.offset, to, b.offset) };
}
