//! Working memory of a thread: grown when a larger block is asked for, and kept.

use rlx_driver::AlignedBuffer;
use std::cell::RefCell;

thread_local! {
    static KEPT: RefCell<Vec<AlignedBuffer>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` with at least `len` bytes of this thread's memory, aligned to a cache line. Nested calls get memory of
/// their own.
///
/// # Panics
/// When the system has no memory for a block of this size: plans ask for a few MiB at most.
#[allow(clippy::panic)]
pub fn with<R>(len: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
    let kept = KEPT.with_borrow_mut(Vec::pop);
    let mut buffer = match kept {
        Some(b) if b.len() >= len => b,
        _ => match AlignedBuffer::uninit(len.next_power_of_two().max(1 << 16)) {
            Ok(b) => b,
            Err(e) => panic!("no working memory for a kernel: {e}"),
        },
    };
    let result = f(buffer.as_mut_slice());
    KEPT.with_borrow_mut(|k| k.push(buffer));
    result
}
