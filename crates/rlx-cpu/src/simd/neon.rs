//! The NEON level: four lanes.

// One reason serves every block: NEON is part of the aarch64 baseline (`dispatch` asks `Isa` for it), and the memory
// operations pass their caller's promise on.
#![allow(clippy::undocumented_unsafe_blocks, unused_unsafe)]

use super::{Kernel, Simd};
use std::arch::aarch64::*;

/// Proof that the machine has NEON.
#[derive(Clone, Copy)]
pub struct Neon(());

impl Neon {
    /// The token: every aarch64 target of ours has NEON.
    #[inline]
    pub fn new() -> Self {
        Self(())
    }
}

impl Simd for Neon {
    type F = float32x4_t;
    type I = int32x4_t;
    type M = uint32x4_t;
    const W: usize = 4;
    const TILE_ROWS: usize = 8;
    const TILE_VECTORS: usize = 3;

    #[inline(never)]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }
    #[inline(always)]
    fn splat(self, v: f32) -> float32x4_t {
        unsafe { vdupq_n_f32(v) }
    }
    #[inline(always)]
    fn splat_i(self, v: i32) -> int32x4_t {
        unsafe { vdupq_n_s32(v) }
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> float32x4_t {
        unsafe { vld1q_f32(p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: float32x4_t) {
        unsafe { vst1q_f32(p, v) }
    }
    #[inline(always)]
    unsafe fn load_partial(self, p: *const f32, n: usize) -> float32x4_t {
        let mut r = [0.0; 4];
        for (i, lane) in r.iter_mut().enumerate().take(n) {
            *lane = unsafe { *p.add(i) };
        }
        unsafe { vld1q_f32(r.as_ptr()) }
    }
    #[inline(always)]
    unsafe fn store_partial(self, p: *mut f32, v: float32x4_t, n: usize) {
        let mut r = [0.0; 4];
        unsafe { vst1q_f32(r.as_mut_ptr(), v) };
        for (i, lane) in r.iter().enumerate().take(n) {
            unsafe { *p.add(i) = *lane };
        }
    }
    #[inline(always)]
    fn add(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vaddq_f32(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vsubq_f32(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vmulq_f32(a, b) }
    }
    #[inline(always)]
    fn div(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vdivq_f32(a, b) }
    }
    #[inline(always)]
    fn min_fast(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vbslq_f32(vcltq_f32(a, b), a, b) }
    }
    #[inline(always)]
    fn max_fast(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vbslq_f32(vcgtq_f32(a, b), a, b) }
    }
    #[inline(always)]
    fn fma(self, a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        unsafe { vfmaq_f32(c, a, b) }
    }
    #[inline(always)]
    fn mul_add(self, a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        unsafe { vfmaq_f32(c, a, b) }
    }
    #[inline(always)]
    fn fnma(self, a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        unsafe { vfmsq_f32(c, a, b) }
    }
    #[inline(always)]
    fn sqrt(self, a: float32x4_t) -> float32x4_t {
        unsafe { vsqrtq_f32(a) }
    }
    #[inline(always)]
    fn floor(self, a: float32x4_t) -> float32x4_t {
        unsafe { vrndmq_f32(a) }
    }
    #[inline(always)]
    fn ceil(self, a: float32x4_t) -> float32x4_t {
        unsafe { vrndpq_f32(a) }
    }
    #[inline(always)]
    fn trunc(self, a: float32x4_t) -> float32x4_t {
        unsafe { vrndq_f32(a) }
    }
    #[inline(always)]
    fn round_even(self, a: float32x4_t) -> float32x4_t {
        unsafe { vrndnq_f32(a) }
    }
    #[inline(always)]
    fn lt(self, a: float32x4_t, b: float32x4_t) -> uint32x4_t {
        unsafe { vcltq_f32(a, b) }
    }
    #[inline(always)]
    fn le(self, a: float32x4_t, b: float32x4_t) -> uint32x4_t {
        unsafe { vcleq_f32(a, b) }
    }
    #[inline(always)]
    fn eq(self, a: float32x4_t, b: float32x4_t) -> uint32x4_t {
        unsafe { vceqq_f32(a, b) }
    }
    #[inline(always)]
    fn and_m(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        unsafe { vandq_u32(a, b) }
    }
    #[inline(always)]
    fn or_m(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        unsafe { vorrq_u32(a, b) }
    }
    #[inline(always)]
    fn not_m(self, a: uint32x4_t) -> uint32x4_t {
        unsafe { vmvnq_u32(a) }
    }
    #[inline(always)]
    fn any(self, m: uint32x4_t) -> bool {
        unsafe { vmaxvq_u32(m) != 0 }
    }
    #[inline(always)]
    fn select(self, m: uint32x4_t, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vbslq_f32(m, a, b) }
    }
    #[inline(always)]
    fn bits(self, a: float32x4_t) -> int32x4_t {
        unsafe { vreinterpretq_s32_f32(a) }
    }
    #[inline(always)]
    fn from_bits(self, a: int32x4_t) -> float32x4_t {
        unsafe { vreinterpretq_f32_s32(a) }
    }
    #[inline(always)]
    fn and_i(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        unsafe { vandq_s32(a, b) }
    }
    #[inline(always)]
    fn or_i(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        unsafe { vorrq_s32(a, b) }
    }
    #[inline(always)]
    fn xor_i(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        unsafe { veorq_s32(a, b) }
    }
    #[inline(always)]
    fn add_i(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        unsafe { vaddq_s32(a, b) }
    }
    #[inline(always)]
    fn sub_i(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        unsafe { vsubq_s32(a, b) }
    }
    #[inline(always)]
    fn shl_i<const N: u32>(self, a: int32x4_t) -> int32x4_t {
        unsafe { vshlq_s32(a, vdupq_n_s32(N as i32)) }
    }
    #[inline(always)]
    fn sar_i<const N: u32>(self, a: int32x4_t) -> int32x4_t {
        unsafe { vshlq_s32(a, vdupq_n_s32(-(N as i32))) }
    }
    #[inline(always)]
    fn eq_i(self, a: int32x4_t, b: int32x4_t) -> uint32x4_t {
        unsafe { vceqq_s32(a, b) }
    }
    #[inline(always)]
    fn to_float(self, a: int32x4_t) -> float32x4_t {
        unsafe { vcvtq_f32_s32(a) }
    }
    #[inline(always)]
    fn to_int(self, a: float32x4_t) -> int32x4_t {
        unsafe { vcvtq_s32_f32(a) }
    }
    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> int32x4_t {
        unsafe {
            let four = vcreate_s8(u64::from(p.cast::<u32>().read_unaligned()));
            vmovl_s16(vget_low_s16(vmovl_s8(four)))
        }
    }
    #[inline(always)]
    unsafe fn load_u8(self, p: *const u8) -> int32x4_t {
        unsafe {
            let four = vcreate_u8(u64::from(p.cast::<u32>().read_unaligned()));
            vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(four))))
        }
    }
    #[inline(always)]
    unsafe fn load_u16(self, p: *const u16) -> int32x4_t {
        unsafe { vreinterpretq_s32_u32(vmovl_u16(vld1_u16(p))) }
    }
    #[inline(always)]
    unsafe fn store_u16(self, p: *mut u16, v: int32x4_t) {
        unsafe { vst1_u16(p, vmovn_u32(vreinterpretq_u32_s32(v))) }
    }
    #[inline(always)]
    unsafe fn store_i16(self, p: *mut i16, v: int32x4_t) {
        unsafe { vst1_s16(p, vmovn_s32(v)) }
    }
    #[inline(always)]
    fn mul_i(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        unsafe { vmulq_s32(a, b) }
    }
    #[inline(always)]
    unsafe fn load_pairs_i8(self, p: *const i8) -> int32x4_t {
        unsafe { vreinterpretq_s32_s16(vmovl_s8(vld1_s8(p))) }
    }
    #[inline(always)]
    fn dot_pairs(self, acc: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        unsafe {
            let (a, b) = (vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b));
            let low = vmull_s16(vget_low_s16(a), vget_low_s16(b));
            vaddq_s32(acc, vpaddq_s32(low, vmull_high_s16(a, b)))
        }
    }
}
