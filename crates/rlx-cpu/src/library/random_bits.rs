//! Random words: each is a function of key, stream and place, so that any division of the work gives the same.

use super::{Defined, Routine, agree, operands, split};
use crate::buffers::{BindError, BoundView, KernelError, Ptr, RunCx};
use crate::space::position;
use rlx_ir::ops::random::RandomBits;

/// Blocks of four words of one task.
const BLOCKS: usize = 1 << 12;

#[derive(Debug)]
struct Plan {
    stream: u32,
    key: BoundView,
    out: BoundView,
    /// The result is one run of memory.
    dense: bool,
}

/// Plans `random_bits`.
pub fn plan(op: &RandomBits, inputs: &[BoundView], outputs: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    let ([key], [out]) = (operands(inputs)?, operands(outputs)?);
    let fits = key.sizes.as_slice() == [2] && out.access.dtype == op.dtype && matches!(op.dtype.bits(), 32 | 64);
    agree(fits, "random_bits", inputs, outputs)?;
    op.words(out.numel()).map_err(|e| e.to_string())?;
    Ok(Box::new(Plan { stream: op.stream, key: key.clone(), out: out.clone(), dense: out.is_dense() }))
}

/// Philox4x32 with ten rounds; see `rlx_ir::ops::random`.
#[inline(always)]
fn block(i: u32, stream: u32, position: u64, seed: u64) -> [u32; 4] {
    let (mut a, mut b, mut c, mut d) = (i, stream, position as u32, (position >> 32) as u32);
    let (mut low, mut high) = (seed as u32, (seed >> 32) as u32);
    for _ in 0..10 {
        let x = u64::from(a) * 0xD251_1F53;
        let y = u64::from(c) * 0xCD9E_8D57;
        (a, b, c, d) = ((y >> 32) as u32 ^ b ^ low, y as u32, (x >> 32) as u32 ^ d ^ high, x as u32);
        low = low.wrapping_add(0x9E37_79B9);
        high = high.wrapping_add(0xBB67_AE85);
    }
    [a, b, c, d]
}

impl Plan {
    /// Writes word `n` of the result.
    /// # Safety
    /// The result has memory for it, and no other thread writes its element.
    #[inline]
    unsafe fn put(&self, base: Ptr, n: usize, word: u32) {
        let per = self.out.access.dtype.bits() / 32;
        let at = if self.dense {
            self.out.access.offset + (n / per) as i64
        } else {
            position(n / per, &self.out.sizes, self.out.access.offset, &self.out.access.strides)
        };
        // SAFETY: the caller's promise; a wide element is two words, the low one first in numbers, not in memory.
        unsafe {
            match per {
                1 => *base.get().cast::<u32>().offset(at as isize) = word,
                _ => {
                    let slot = base.get().cast::<u64>().offset(at as isize);
                    *slot = if n.is_multiple_of(2) { u64::from(word) } else { *slot | u64::from(word) << 32 };
                }
            }
        }
    }
}

impl Routine for Plan {
    unsafe fn run(&self, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError> {
        let (k, y) = (&self.key.access, &self.out.access);
        let word = |i: i64| {
            // SAFETY: the key's two elements lie within its buffer, as checked at bind.
            unsafe { *run.bufs.base(k.buffer).cast::<u64>().offset((k.offset + i * k.strides[0]) as isize) }
        };
        let (seed, at) = (word(0), word(1));
        let words = self.out.numel() * (y.dtype.bits() / 32);
        let base = Ptr(run.bufs.base(y.buffer));
        split(run, y.dtype, words.div_ceil(4), BLOCKS, &|blocks| {
            for i in blocks {
                let four = block(i as u32, self.stream, at, seed);
                for (j, &w) in four.iter().enumerate().take(words - i * 4) {
                    // SAFETY: words below their number are in the result; blocks hold whole elements.
                    unsafe { self.put(base, i * 4 + j, w) };
                }
            }
        });
        Ok(None)
    }
}
