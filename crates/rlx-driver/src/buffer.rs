//! Heap memory with a chosen alignment: arenas, packed weights, tensors.
//!
//! Invariants: every byte is initialised from the start, so reading is never undefined behaviour; a failed allocation
//! is an error and never an abort; a buffer of 1 MiB or more starts at a 2 MiB boundary and is advised to lie in huge
//! pages. [`Slab`] cuts smaller ones from such buffers: a first write to a small page costs microseconds, to a huge one as
//! much as some forty small ones.
//!
//! All memory comes zeroed from the global allocator at byte alignment, with room to move the start up to the boundary
//! asked for: an over-aligned zeroed allocation would be written in full, while a plain large one is fresh pages from
//! the system that cost nothing until they are touched.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Alignment of a buffer when none is asked for: a cache line, and the widest vector register.
pub const DEFAULT_ALIGN: usize = 64;

/// The size of a huge page.
pub const HUGE_PAGE: usize = 2 << 20;

/// The size from which buffers are aligned to huge pages and advised to lie in them.
const HUGE_FROM: usize = HUGE_PAGE / 2;

/// Owned, aligned, initialised bytes of fixed length.
pub struct AlignedBuffer {
    data: NonNull<u8>,
    len: usize,
    align: usize,
    memory: Memory,
}

/// What a buffer lies in.
enum Memory {
    /// Nothing: it is empty.
    None,
    /// What the allocator gave.
    Own(NonNull<u8>, Layout),
    /// Part of a slab's buffer.
    Part(#[allow(dead_code, reason = "held so that the memory lives")] Arc<AlignedBuffer>),
}

// SAFETY: the buffer owns its memory alone and hands it out only through borrows of itself, as `Vec<u8>` does.
unsafe impl Send for AlignedBuffer {}
// SAFETY: as above; shared borrows only read.
unsafe impl Sync for AlignedBuffer {}

/// Why a buffer could not be made or viewed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    /// The alignment is no power of two, or larger than a huge page.
    #[error("alignment {align} is not a power of two between 1 and {HUGE_PAGE}")]
    Alignment {
        /// The alignment asked for.
        align: usize,
    },
    /// The size is beyond what any allocation can have.
    #[error("a buffer of {len} bytes is larger than the address space allows")]
    TooLarge {
        /// The size asked for.
        len: usize,
    },
    /// The allocator has no room.
    #[error("out of memory: {len} bytes asked for; use a smaller batch or shape, or raise the memory limit")]
    OutOfMemory {
        /// The size asked for.
        len: usize,
    },
    /// The bytes are no whole number of elements at the element's alignment.
    #[error(
        "a buffer of {len} bytes aligned to {align} is no slice of elements of {element_size} bytes aligned to {element_align}"
    )]
    Cast {
        /// Bytes in the buffer.
        len: usize,
        /// Alignment of the buffer.
        align: usize,
        /// Bytes of one element.
        element_size: usize,
        /// Alignment of one element.
        element_align: usize,
    },
}

impl AlignedBuffer {
    /// A buffer of zero bytes, aligned to [`DEFAULT_ALIGN`], or to [`HUGE_PAGE`] from half that size on.
    pub fn zeroed(len: usize) -> Result<Self, BufferError> {
        Self::zeroed_with_align(len, DEFAULT_ALIGN)
    }

    /// A buffer of zero bytes with at least the given alignment, a power of two up to [`HUGE_PAGE`].
    pub fn zeroed_with_align(len: usize, align: usize) -> Result<Self, BufferError> {
        if !align.is_power_of_two() || align > HUGE_PAGE {
            return Err(BufferError::Alignment { align });
        }
        let align = if len >= HUGE_FROM { HUGE_PAGE } else { align };
        if len == 0 {
            return Ok(AlignedBuffer { data: dangling(align), len, align, memory: Memory::None });
        }
        let too_large = BufferError::TooLarge { len };
        // Most of a huge page becomes a whole one.
        let rest = len % HUGE_PAGE;
        let filled = if rest >= HUGE_FROM { HUGE_PAGE - rest } else { 0 };
        let room = len.checked_add(filled + align - 1).ok_or(too_large.clone())?;
        let layout = Layout::from_size_align(room, 1).map_err(|_| too_large)?;
        // SAFETY: the layout's size is not zero, since `len` is not.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).ok_or(BufferError::OutOfMemory { len })?;
        let shift = base.addr().get().wrapping_neg() & (align - 1);
        // SAFETY: `shift` is below `align`, and the allocation has `align - 1` bytes more than `len`.
        let data = unsafe { base.add(shift) };
        // SAFETY: whole huge pages of the allocation: `room` has what fills the last one.
        unsafe { advise_huge(data, (len + filled) / HUGE_PAGE * HUGE_PAGE) };
        Ok(AlignedBuffer { data, len, align, memory: Memory::Own(base, layout) })
    }

    /// A buffer whose bytes the caller shall set before relying on them.
    ///
    /// They hold some value (reading them is safe), but not always zero: debug builds fill smaller buffers with 0xff,
    /// which is a NaN in every float format, so that a reader of unset memory shows in tests.
    pub fn uninit(len: usize) -> Result<Self, BufferError> {
        Self::uninit_with_align(len, DEFAULT_ALIGN)
    }

    /// As [`AlignedBuffer::uninit`] with at least the given alignment, a power of two up to [`HUGE_PAGE`].
    pub fn uninit_with_align(len: usize, align: usize) -> Result<Self, BufferError> {
        let mut buffer = Self::zeroed_with_align(len, align)?;
        if cfg!(debug_assertions) && len < HUGE_PAGE {
            buffer.poison(0xff);
        }
        Ok(buffer)
    }

    /// A buffer holding a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Result<Self, BufferError> {
        let mut buffer = Self::zeroed(bytes.len())?;
        buffer.as_mut_slice().copy_from_slice(bytes);
        Ok(buffer)
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The alignment that the start is sure to have.
    pub fn align(&self) -> usize {
        self.align
    }

    /// The first byte; dangling but aligned when the buffer is empty.
    pub fn as_ptr(&self) -> *const u8 {
        self.data.as_ptr()
    }

    /// The first byte, for writing; dangling but aligned when the buffer is empty.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.data.as_ptr()
    }

    /// All bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `data` points to `len` initialised bytes owned by this buffer, and the borrow keeps writers away.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }

    /// All bytes, for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; the exclusive borrow keeps every other access away.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }

    /// All bytes as elements of a plain type.
    pub fn typed<T: bytemuck::AnyBitPattern>(&self) -> Result<&[T], BufferError> {
        bytemuck::try_cast_slice(self.as_slice()).map_err(|_| self.cast_error::<T>())
    }

    /// All bytes as elements of a plain type, for writing.
    pub fn typed_mut<T: bytemuck::Pod>(&mut self) -> Result<&mut [T], BufferError> {
        let error = self.cast_error::<T>();
        bytemuck::try_cast_slice_mut(self.as_mut_slice()).map_err(|_| error)
    }

    /// Sets every byte, so that a test sees who reads what was never written.
    pub fn poison(&mut self, byte: u8) {
        self.as_mut_slice().fill(byte);
    }

    fn cast_error<T>(&self) -> BufferError {
        BufferError::Cast {
            len: self.len,
            align: self.align,
            element_size: size_of::<T>(),
            element_align: align_of::<T>(),
        }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if let Memory::Own(base, layout) = self.memory {
            // SAFETY: the allocator gave `base` for this very layout, and nothing else frees it.
            unsafe { dealloc(base.as_ptr(), layout) };
        }
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuffer").field("len", &self.len).field("align", &self.align).finish_non_exhaustive()
    }
}

impl AsRef<[u8]> for AlignedBuffer {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

/// A pointer that is aligned and never read.
fn dangling(align: usize) -> NonNull<u8> {
    NonNull::new(std::ptr::without_provenance_mut(align)).unwrap_or(NonNull::dangling())
}

/// Asks for huge pages below a large buffer. Advice only: a kernel without them says no, and nothing changes.
/// # Safety
/// The range lies within an allocation of ours; it is empty, or starts and ends at boundaries of huge pages.
#[cfg(target_os = "linux")]
unsafe fn advise_huge(data: NonNull<u8>, whole: usize) {
    if whole > 0 {
        // SAFETY: the caller's promise; this advice changes no content.
        unsafe { libc::madvise(data.as_ptr().cast(), whole, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
unsafe fn advise_huge(_: NonNull<u8>, _: usize) {}

/// Buffers that live as long as each other, such as the packed weights of a program, side by side in blocks of huge pages. A block's
/// memory is given back when all buffers in it are dropped; none is used twice. Of a block only pages that were written take memory.
#[derive(Debug, Default)]
pub struct Slab {
    open: Mutex<Option<(Arc<AlignedBuffer>, usize)>>,
    /// Bytes of a block; 0: every buffer is one of its own.
    block: usize,
}

/// Bytes of the largest blocks.
const LARGEST_BLOCK: usize = 32 * HUGE_PAGE;

impl Slab {
    /// For buffers of about so many bytes together: less than half a huge page is not worth one.
    pub fn for_bytes(total: usize) -> Slab {
        let block = if total < HUGE_FROM { 0 } else { total.min(LARGEST_BLOCK).next_multiple_of(HUGE_PAGE) };
        Slab { open: Mutex::default(), block }
    }

    /// A buffer whose bytes the caller shall set before relying on them, aligned to [`DEFAULT_ALIGN`]: as [`AlignedBuffer::uninit`].
    pub fn uninit(&self, len: usize) -> Result<AlignedBuffer, BufferError> {
        // A block that ends with a large hole would be no gain.
        if len == 0 || len > self.block / 4 && len >= HUGE_FROM || len > self.block {
            return AlignedBuffer::uninit(len);
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let (block, used) = match open.take().filter(|(block, used)| block.len() - used >= len) {
            Some(found) => found,
            None => (Arc::new(AlignedBuffer::zeroed(self.block)?), 0),
        };
        // SAFETY: `used + len` is within the block.
        let data = unsafe { block.data.add(used) };
        *open = Some((block.clone(), (used + len).next_multiple_of(DEFAULT_ALIGN).min(block.len())));
        let mut buffer = AlignedBuffer { data, len, align: DEFAULT_ALIGN, memory: Memory::Part(block) };
        if cfg!(debug_assertions) {
            buffer.poison(0xff);
        }
        Ok(buffer)
    }

    /// A buffer holding a copy of `bytes`.
    pub fn copy_of(&self, bytes: &[u8]) -> Result<AlignedBuffer, BufferError> {
        let mut buffer = self.uninit(bytes.len())?;
        buffer.as_mut_slice().copy_from_slice(bytes);
        Ok(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroed_at_every_size_and_alignment() {
        for len in [0, 1, 7, 63, 64, 65, 4095, HUGE_PAGE - 1, HUGE_PAGE, HUGE_PAGE + 1] {
            for align in [1, 2, 64, 4096, HUGE_PAGE] {
                let mut b = AlignedBuffer::zeroed_with_align(len, align).unwrap();
                assert_eq!((b.len(), b.is_empty()), (len, len == 0));
                assert!(b.align() >= align);
                assert_eq!(b.as_ptr().addr() % b.align(), 0);
                assert!(b.as_slice().iter().all(|&x| x == 0));
                b.poison(0xa5);
                assert!(b.as_slice().iter().all(|&x| x == 0xa5));
            }
        }
        let b = AlignedBuffer::zeroed(3 * HUGE_PAGE).unwrap();
        assert_eq!(b.as_ptr().addr() % HUGE_PAGE, 0);
        assert_eq!(AlignedBuffer::zeroed(8).unwrap().align(), DEFAULT_ALIGN);
    }

    #[test]
    fn reused_memory_is_zeroed_again() {
        for len in [100, 5000, HUGE_PAGE + 5] {
            for _ in 0..4 {
                let mut b = AlignedBuffer::zeroed(len).unwrap();
                assert!(b.as_slice().iter().all(|&x| x == 0));
                b.poison(1);
            }
        }
    }

    #[test]
    fn impossible_requests_are_errors() {
        for align in [0, 3, 2 * HUGE_PAGE, usize::MAX] {
            let e = AlignedBuffer::zeroed_with_align(8, align).unwrap_err();
            assert_eq!(e, BufferError::Alignment { align });
        }
        let len = usize::MAX;
        let e = AlignedBuffer::uninit(len).unwrap_err();
        assert_eq!(e, BufferError::TooLarge { len });
        let len = isize::MAX as usize - HUGE_PAGE;
        let e = AlignedBuffer::zeroed(len).unwrap_err();
        assert_eq!(e, BufferError::OutOfMemory { len });
        assert!(e.to_string().contains(&len.to_string()));
    }

    #[test]
    fn typed_views_check_length() {
        let mut b = AlignedBuffer::zeroed(12).unwrap();
        b.typed_mut::<f32>().unwrap().copy_from_slice(&[1.0, -0.0, 2.5]);
        assert_eq!(b.typed::<u32>().unwrap(), [0x3f80_0000, 0x8000_0000, 0x4020_0000]);
        let e = b.typed::<f64>().unwrap_err();
        assert!(matches!(e, BufferError::Cast { len: 12, element_size: 8, .. }), "{e}");
        assert!(b.typed_mut::<u64>().is_err());
        assert!(AlignedBuffer::zeroed(0).unwrap().typed::<f64>().unwrap().is_empty());
    }

    #[test]
    fn copies_hold_the_bytes() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(AlignedBuffer::copy_of(&bytes).unwrap().as_ref(), bytes);
    }

    #[test]
    fn unset_memory_shows_in_debug_builds() {
        let b = AlignedBuffer::uninit(64).unwrap();
        assert_eq!(b.typed::<f32>().unwrap().iter().all(|x| x.is_nan()), cfg!(debug_assertions));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn large_buffers_cost_nothing_until_touched() {
        let resident = || -> usize {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        let before = resident();
        let b = AlignedBuffer::uninit(1 << 30).unwrap();
        assert!(resident().saturating_sub(before) < 1 << 28);
        assert_eq!(b.as_slice().last(), Some(&0));
    }

    #[test]
    fn buffers_cross_threads() {
        let b = AlignedBuffer::copy_of(&[1, 2, 3]).unwrap();
        let sum = std::thread::spawn(move || b.as_slice().iter().sum::<u8>());
        assert_eq!(sum.join().unwrap(), 6);
    }

    #[test]
    fn slabs_cut_buffers_that_do_not_meet() {
        for total in [0, HUGE_PAGE, 9 * HUGE_PAGE, usize::MAX] {
            let slab = Slab::for_bytes(total);
            let lens = [1, 63, 64, 65, 0, 700_000, 900_000, 600_000, HUGE_PAGE / 2, HUGE_PAGE + 1, 5];
            let mut all: Vec<AlignedBuffer> = lens.iter().map(|&n| slab.uninit(n).unwrap()).collect();
            for (i, b) in all.iter_mut().enumerate() {
                assert_eq!((b.len(), b.as_ptr().addr() % DEFAULT_ALIGN), (lens[i], 0));
                b.poison(i as u8);
            }
            drop(all.remove(1));
            drop(slab);
            for (i, b) in all.iter().enumerate() {
                let byte = if i == 0 { 0 } else { i as u8 + 1 };
                assert!(b.as_slice().iter().all(|&x| x == byte));
            }
            let slab = Slab::for_bytes(total);
            assert_eq!(slab.copy_of(&[1, 2, 3]).unwrap().as_slice(), [1, 2, 3]);
        }
    }
}
