//! What this machine can do at most: fused multiply-adds from registers, and bytes read from memory, measured.

use crate::simd::{Isa, Kernel, Simd, dispatch};
use rlx_compile::target::Peak;
use std::time::Instant;

/// Chains of multiply-adds that do not wait for each other: enough to hide four cycles on two units.
const CHAINS: usize = 10;
/// Steps of a chain in one timing.
const STEPS: usize = 1 << 15;
/// Bytes that each thread reads in one timing: beyond usual last caches when all threads are counted.
const BYTES: usize = 64 << 20;
/// Timings, of which the best counts.
const ROUNDS: usize = 7;

/// Multiply-adds in registers; gives their sum so that they are not left out.
struct Fma;

impl Kernel for Fma {
    type Output = (f32, usize);

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> (f32, usize) {
        let (a, b) = (s.splat(0.999_9), s.splat(1e-6));
        let mut acc = [s.splat(1.0); CHAINS];
        for _ in 0..STEPS {
            for x in &mut acc {
                *x = s.mul_add(*x, a, b);
            }
        }
        let sum = acc.into_iter().fold(s.splat(0.0), |t, x| s.add(t, x));
        let mut lanes = [0.0f32; crate::simd::MAX_W];
        // SAFETY: there is room for the widest level's lanes.
        unsafe { s.store(lanes.as_mut_ptr(), sum) };
        (lanes[0], 2 * S::W * CHAINS * STEPS)
    }
}

/// Reads memory once; gives the sum.
struct Read<'a>(&'a [f32]);

impl Kernel for Read<'_> {
    type Output = (f32, usize);

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> (f32, usize) {
        let mut acc = [s.splat(0.0); 8];
        for part in self.0.chunks_exact(8 * S::W) {
            for (i, x) in acc.iter_mut().enumerate() {
                // SAFETY: the part has eight vectors.
                *x = s.add(*x, unsafe { s.load(part.as_ptr().add(i * S::W)) });
            }
        }
        let sum = acc.into_iter().fold(s.splat(0.0), |t, x| s.add(t, x));
        let mut lanes = [0.0f32; crate::simd::MAX_W];
        // SAFETY: there is room for the widest level's lanes.
        unsafe { s.store(lanes.as_mut_ptr(), sum) };
        (lanes[0], size_of_val(self.0))
    }
}

/// The best rate of `work` in several timings.
fn rate(mut work: impl FnMut() -> (f32, usize)) -> f64 {
    let once = |_| {
        let start = Instant::now();
        let (value, amount) = std::hint::black_box(work());
        std::hint::black_box(value);
        amount as f64 / start.elapsed().as_secs_f64().max(1e-9)
    };
    (0..ROUNDS).map(once).fold(0.0, f64::max)
}

/// Measures, in about a tenth of a second, with this many threads at once.
pub fn measure(isa: Isa, threads: usize) -> Peak {
    let each = |_: usize| {
        let ops = rate(|| dispatch(isa, Fma));
        let data = vec![1.0f32; BYTES / size_of::<f32>()];
        (ops, rate(|| dispatch(isa, Read(&data))))
    };
    let rates: Vec<(f64, f64)> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads.max(1)).map(|i| scope.spawn(move || each(i))).collect();
        handles.into_iter().filter_map(|h| h.join().ok()).collect()
    });
    let sum = |f: fn(&(f64, f64)) -> f64| rates.iter().map(f).sum();
    Peak { ops: sum(|r| r.0), bytes: sum(|r| r.1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_counts_what_it_does() {
        for isa in Isa::available() {
            let (sum, ops) = dispatch(isa, Fma);
            assert!(sum.is_finite() && sum > 0.0 && ops >= 2 * CHAINS * STEPS, "{isa}");
            let data = [1.0f32; 1024];
            let (sum, bytes) = dispatch(isa, Read(&data));
            // Lanes of eight accumulators share the elements.
            assert!(1024 % sum as usize == 0 && bytes == 4096, "{isa}: {sum}");
        }
    }
}
