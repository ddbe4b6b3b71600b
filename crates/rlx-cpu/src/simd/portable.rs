//! The portable level: arrays of eight lanes, left to the compiler's vectoriser.

use super::{Kernel, Simd};

/// Eight lanes of plain Rust.
#[derive(Clone, Copy)]
pub struct Portable;

/// Eight f32 lanes.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub struct F8([f32; 8]);

/// Eight i32 lanes.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub struct I8([i32; 8]);

/// Eight truth values: 0 or −1.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub struct M8([i32; 8]);

macro_rules! lanes {
    ($out:ident, |$i:ident| $e:expr) => {{
        let mut r = [Default::default(); 8];
        let mut $i = 0;
        while $i < 8 {
            r[$i] = $e;
            $i += 1;
        }
        $out(r)
    }};
}

impl Simd for Portable {
    type F = F8;
    type I = I8;
    type M = M8;
    const W: usize = 8;
    const TILE_ROWS: usize = 4;
    const TILE_VECTORS: usize = 1;

    #[inline(never)]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }

    #[inline(always)]
    fn splat(self, v: f32) -> F8 {
        F8([v; 8])
    }
    #[inline(always)]
    fn splat_i(self, v: i32) -> I8 {
        I8([v; 8])
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> F8 {
        // SAFETY: the caller vouches for eight readable f32; an array has f32's alignment.
        F8(unsafe { *p.cast::<[f32; 8]>() })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: F8) {
        // SAFETY: the caller vouches for eight writable f32.
        unsafe { *p.cast::<[f32; 8]>() = v.0 };
    }
    #[inline(always)]
    unsafe fn load_partial(self, p: *const f32, n: usize) -> F8 {
        let mut r = [0.0; 8];
        for (i, lane) in r.iter_mut().enumerate().take(n) {
            // SAFETY: i < n, and the caller vouches for n readable f32.
            *lane = unsafe { *p.add(i) };
        }
        F8(r)
    }
    #[inline(always)]
    unsafe fn store_partial(self, p: *mut f32, v: F8, n: usize) {
        for (i, lane) in v.0.iter().enumerate().take(n) {
            // SAFETY: i < n, and the caller vouches for n writable f32.
            unsafe { *p.add(i) = *lane };
        }
    }

    #[inline(always)]
    fn add(self, a: F8, b: F8) -> F8 {
        lanes!(F8, |i| a.0[i] + b.0[i])
    }
    #[inline(always)]
    fn sub(self, a: F8, b: F8) -> F8 {
        lanes!(F8, |i| a.0[i] - b.0[i])
    }
    #[inline(always)]
    fn mul(self, a: F8, b: F8) -> F8 {
        lanes!(F8, |i| a.0[i] * b.0[i])
    }
    #[inline(always)]
    fn div(self, a: F8, b: F8) -> F8 {
        lanes!(F8, |i| a.0[i] / b.0[i])
    }
    #[inline(always)]
    fn fma(self, a: F8, b: F8, c: F8) -> F8 {
        // A baseline without FMA would call a slow libm routine for `mul_add`. The product is exact in f64.
        if cfg!(target_feature = "fma") || cfg!(target_arch = "aarch64") {
            lanes!(F8, |i| a.0[i].mul_add(b.0[i], c.0[i]))
        } else {
            lanes!(F8, |i| (f64::from(a.0[i]) * f64::from(b.0[i]) + f64::from(c.0[i])) as f32)
        }
    }
    #[inline(always)]
    fn mul_add(self, a: F8, b: F8, c: F8) -> F8 {
        lanes!(F8, |i| a.0[i] * b.0[i] + c.0[i])
    }
    #[inline(always)]
    fn sqrt(self, a: F8) -> F8 {
        lanes!(F8, |i| a.0[i].sqrt())
    }
    #[inline(always)]
    fn floor(self, a: F8) -> F8 {
        lanes!(F8, |i| a.0[i].floor())
    }
    #[inline(always)]
    fn ceil(self, a: F8) -> F8 {
        lanes!(F8, |i| a.0[i].ceil())
    }
    #[inline(always)]
    fn trunc(self, a: F8) -> F8 {
        lanes!(F8, |i| a.0[i].trunc())
    }
    #[inline(always)]
    fn round_even(self, a: F8) -> F8 {
        lanes!(F8, |i| a.0[i].round_ties_even())
    }
    #[inline(always)]
    fn min_fast(self, a: F8, b: F8) -> F8 {
        lanes!(F8, |i| if a.0[i] < b.0[i] { a.0[i] } else { b.0[i] })
    }
    #[inline(always)]
    fn max_fast(self, a: F8, b: F8) -> F8 {
        lanes!(F8, |i| if a.0[i] > b.0[i] { a.0[i] } else { b.0[i] })
    }

    #[inline(always)]
    fn lt(self, a: F8, b: F8) -> M8 {
        lanes!(M8, |i| -i32::from(a.0[i] < b.0[i]))
    }
    #[inline(always)]
    fn le(self, a: F8, b: F8) -> M8 {
        lanes!(M8, |i| -i32::from(a.0[i] <= b.0[i]))
    }
    #[inline(always)]
    fn eq(self, a: F8, b: F8) -> M8 {
        lanes!(M8, |i| -i32::from(a.0[i] == b.0[i]))
    }
    #[inline(always)]
    fn and_m(self, a: M8, b: M8) -> M8 {
        lanes!(M8, |i| a.0[i] & b.0[i])
    }
    #[inline(always)]
    fn or_m(self, a: M8, b: M8) -> M8 {
        lanes!(M8, |i| a.0[i] | b.0[i])
    }
    #[inline(always)]
    fn not_m(self, a: M8) -> M8 {
        lanes!(M8, |i| !a.0[i])
    }
    #[inline(always)]
    fn any(self, m: M8) -> bool {
        m.0.iter().fold(0, |x, y| x | y) != 0
    }
    #[inline(always)]
    fn select(self, m: M8, a: F8, b: F8) -> F8 {
        lanes!(F8, |i| f32::from_bits((a.0[i].to_bits() & m.0[i] as u32) | (b.0[i].to_bits() & !m.0[i] as u32)))
    }

    #[inline(always)]
    fn bits(self, a: F8) -> I8 {
        lanes!(I8, |i| a.0[i].to_bits() as i32)
    }
    #[inline(always)]
    fn from_bits(self, a: I8) -> F8 {
        lanes!(F8, |i| f32::from_bits(a.0[i] as u32))
    }
    #[inline(always)]
    fn and_i(self, a: I8, b: I8) -> I8 {
        lanes!(I8, |i| a.0[i] & b.0[i])
    }
    #[inline(always)]
    fn or_i(self, a: I8, b: I8) -> I8 {
        lanes!(I8, |i| a.0[i] | b.0[i])
    }
    #[inline(always)]
    fn xor_i(self, a: I8, b: I8) -> I8 {
        lanes!(I8, |i| a.0[i] ^ b.0[i])
    }
    #[inline(always)]
    fn add_i(self, a: I8, b: I8) -> I8 {
        lanes!(I8, |i| a.0[i].wrapping_add(b.0[i]))
    }
    #[inline(always)]
    fn sub_i(self, a: I8, b: I8) -> I8 {
        lanes!(I8, |i| a.0[i].wrapping_sub(b.0[i]))
    }
    #[inline(always)]
    fn shl_i<const N: u32>(self, a: I8) -> I8 {
        lanes!(I8, |i| a.0[i] << N)
    }
    #[inline(always)]
    fn sar_i<const N: u32>(self, a: I8) -> I8 {
        lanes!(I8, |i| a.0[i] >> N)
    }
    #[inline(always)]
    fn eq_i(self, a: I8, b: I8) -> M8 {
        lanes!(M8, |i| -i32::from(a.0[i] == b.0[i]))
    }
    #[inline(always)]
    fn to_float(self, a: I8) -> F8 {
        lanes!(F8, |i| a.0[i] as f32)
    }
    #[inline(always)]
    fn to_int(self, a: F8) -> I8 {
        lanes!(I8, |i| a.0[i] as i32)
    }
}
