//! The AVX2 and FMA level: eight lanes.

// One reason serves every block: a token exists only after detection (see the module header of `simd`), and the memory
// operations pass their caller's promise on.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::{Kernel, Simd};
use std::arch::x86_64::*;

/// Proof that the machine has AVX2 and FMA.
#[derive(Clone, Copy)]
pub struct Avx2(());

/// `TAIL[8 - n ..]` has its first `n` words set: the mask of a partial load or store.
static TAIL: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

impl Avx2 {
    /// The token, where the machine has the features.
    #[inline]
    pub fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2"))
        .then_some(Self(()))
    }
    #[inline(always)]
    fn tail(self, n: usize) -> __m256i {
        debug_assert!(n <= 8);
        // SAFETY: 8 − n is in 0..=8, so the eight words lie within the table.
        unsafe { _mm256_loadu_si256(TAIL.as_ptr().add(8 - n.min(8)).cast()) }
    }
}

/// See [`Simd::transpose8`].
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn transpose8(src: *const f32, src_row: isize, rows: usize, dst: *mut f32, dst_row: usize) {
    let mut r = [_mm256_setzero_ps(); 8];
    for (i, v) in r.iter_mut().enumerate() {
        if i < rows {
            *v = unsafe { _mm256_loadu_ps(src.wrapping_offset(i as isize * src_row)) };
        }
    }
    // Pairs of rows, then fours, then halves of registers.
    let (a0, a1) = (_mm256_unpacklo_ps(r[0], r[1]), _mm256_unpackhi_ps(r[0], r[1]));
    let (a2, a3) = (_mm256_unpacklo_ps(r[2], r[3]), _mm256_unpackhi_ps(r[2], r[3]));
    let (a4, a5) = (_mm256_unpacklo_ps(r[4], r[5]), _mm256_unpackhi_ps(r[4], r[5]));
    let (a6, a7) = (_mm256_unpacklo_ps(r[6], r[7]), _mm256_unpackhi_ps(r[6], r[7]));
    let (b0, b1) = (_mm256_shuffle_ps::<0x44>(a0, a2), _mm256_shuffle_ps::<0xee>(a0, a2));
    let (b2, b3) = (_mm256_shuffle_ps::<0x44>(a1, a3), _mm256_shuffle_ps::<0xee>(a1, a3));
    let (b4, b5) = (_mm256_shuffle_ps::<0x44>(a4, a6), _mm256_shuffle_ps::<0xee>(a4, a6));
    let (b6, b7) = (_mm256_shuffle_ps::<0x44>(a5, a7), _mm256_shuffle_ps::<0xee>(a5, a7));
    let columns = [
        _mm256_permute2f128_ps::<0x20>(b0, b4),
        _mm256_permute2f128_ps::<0x20>(b1, b5),
        _mm256_permute2f128_ps::<0x20>(b2, b6),
        _mm256_permute2f128_ps::<0x20>(b3, b7),
        _mm256_permute2f128_ps::<0x31>(b0, b4),
        _mm256_permute2f128_ps::<0x31>(b1, b5),
        _mm256_permute2f128_ps::<0x31>(b2, b6),
        _mm256_permute2f128_ps::<0x31>(b3, b7),
    ];
    for (j, v) in columns.into_iter().enumerate() {
        unsafe { _mm256_storeu_ps(dst.wrapping_add(j * dst_row), v) };
    }
}

impl Simd for Avx2 {
    type F = __m256;
    type I = __m256i;
    type M = __m256;
    const W: usize = 8;
    const TILE_ROWS: usize = 6;
    const ROW_STREAMS: bool = true;
    const TILE_VECTORS: usize = 2;

    #[inline(always)]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        #[inline(never)]
        #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2")]
        fn with_features<K: Kernel>(s: Avx2, kernel: K) -> K::Output {
            kernel.run(s)
        }
        unsafe { with_features(self, kernel) }
    }

    #[inline(always)]
    fn splat(self, v: f32) -> __m256 {
        unsafe { _mm256_set1_ps(v) }
    }
    #[inline(always)]
    fn splat_i(self, v: i32) -> __m256i {
        unsafe { _mm256_set1_epi32(v) }
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m256 {
        unsafe { _mm256_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m256) {
        unsafe { _mm256_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn load_partial(self, p: *const f32, n: usize) -> __m256 {
        unsafe { _mm256_maskload_ps(p, self.tail(n)) }
    }
    #[inline(always)]
    unsafe fn store_partial(self, p: *mut f32, v: __m256, n: usize) {
        // A masked store takes tens of cycles on some machines.
        unsafe {
            debug_assert!(n <= 8);
            if n >= 8 {
                return _mm256_storeu_ps(p, v);
            }
            let (mut p, mut half) = (p, _mm256_castps256_ps128(v));
            if n & 4 != 0 {
                _mm_storeu_ps(p, half);
                (p, half) = (p.add(4), _mm256_extractf128_ps::<1>(v));
            }
            if n & 2 != 0 {
                _mm_storel_pd(p.cast(), _mm_castps_pd(half));
                (p, half) = (p.add(2), _mm_movehl_ps(half, half));
            }
            if n & 1 != 0 {
                _mm_store_ss(p, half);
            }
        }
    }
    #[inline(always)]
    unsafe fn transpose8(self, src: *const f32, src_row: isize, rows: usize, dst: *mut f32, dst_row: usize) {
        unsafe { transpose8(src, src_row, rows, dst, dst_row) }
    }
    #[inline(always)]
    fn prefetch(self, p: *const f32) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    fn prefetch_far(self, p: *const f32) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_div_ps(a, b) }
    }
    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn fnma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fnmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn sqrt(self, a: __m256) -> __m256 {
        unsafe { _mm256_sqrt_ps(a) }
    }
    #[inline(always)]
    fn floor(self, a: __m256) -> __m256 {
        unsafe { _mm256_floor_ps(a) }
    }
    #[inline(always)]
    fn ceil(self, a: __m256) -> __m256 {
        unsafe { _mm256_ceil_ps(a) }
    }
    #[inline(always)]
    fn trunc(self, a: __m256) -> __m256 {
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn round_even(self, a: __m256) -> __m256 {
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn min_fast(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_min_ps(a, b) }
    }
    #[inline(always)]
    fn max_fast(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_max_ps(a, b) }
    }

    #[inline(always)]
    fn lt(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_cmp_ps::<_CMP_LT_OQ>(a, b) }
    }
    #[inline(always)]
    fn le(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_cmp_ps::<_CMP_LE_OQ>(a, b) }
    }
    #[inline(always)]
    fn eq(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b) }
    }
    #[inline(always)]
    fn and_m(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_and_ps(a, b) }
    }
    #[inline(always)]
    fn or_m(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_or_ps(a, b) }
    }
    #[inline(always)]
    fn not_m(self, a: __m256) -> __m256 {
        unsafe { _mm256_xor_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(-1))) }
    }
    #[inline(always)]
    fn any(self, m: __m256) -> bool {
        unsafe { _mm256_movemask_ps(m) != 0 }
    }
    #[inline(always)]
    fn select(self, m: __m256, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_blendv_ps(b, a, m) }
    }

    #[inline(always)]
    fn bits(self, a: __m256) -> __m256i {
        unsafe { _mm256_castps_si256(a) }
    }
    #[inline(always)]
    fn from_bits(self, a: __m256i) -> __m256 {
        unsafe { _mm256_castsi256_ps(a) }
    }
    #[inline(always)]
    fn and_i(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_and_si256(a, b) }
    }
    #[inline(always)]
    fn or_i(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_or_si256(a, b) }
    }
    #[inline(always)]
    fn xor_i(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_xor_si256(a, b) }
    }
    #[inline(always)]
    fn add_i(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_add_epi32(a, b) }
    }
    #[inline(always)]
    fn sub_i(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_sub_epi32(a, b) }
    }
    #[inline(always)]
    fn shl_i<const N: u32>(self, a: __m256i) -> __m256i {
        unsafe { _mm256_sllv_epi32(a, _mm256_set1_epi32(N as i32)) }
    }
    #[inline(always)]
    fn sar_i<const N: u32>(self, a: __m256i) -> __m256i {
        unsafe { _mm256_srav_epi32(a, _mm256_set1_epi32(N as i32)) }
    }
    #[inline(always)]
    fn eq_i(self, a: __m256i, b: __m256i) -> __m256 {
        unsafe { _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b)) }
    }
    #[inline(always)]
    fn to_float(self, a: __m256i) -> __m256 {
        unsafe { _mm256_cvtepi32_ps(a) }
    }
    #[inline(always)]
    fn to_int(self, a: __m256) -> __m256i {
        unsafe { _mm256_cvttps_epi32(a) }
    }
    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> __m256i {
        unsafe { _mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_u8(self, p: *const u8) -> __m256i {
        unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_u16(self, p: *const u16) -> __m256i {
        unsafe { _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    unsafe fn store_u16(self, p: *mut u16, v: __m256i) {
        unsafe {
            let both = _mm256_packus_epi32(v, v);
            let low = _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b1000>(both));
            _mm_storeu_si128(p.cast(), low);
        }
    }
    #[inline(always)]
    unsafe fn store_i16(self, p: *mut i16, v: __m256i) {
        unsafe {
            let both = _mm256_packs_epi32(v, v);
            let low = _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b1000>(both));
            _mm_storeu_si128(p.cast(), low);
        }
    }
    #[inline(always)]
    fn mul_i(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_mullo_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> __m256 {
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: __m256) {
        unsafe { _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }
    #[inline(always)]
    unsafe fn load_pairs_i8(self, p: *const i8) -> __m256i {
        unsafe { _mm256_cvtepi8_epi16(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    fn dot_pairs(self, acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_add_epi32(acc, _mm256_madd_epi16(a, b)) }
    }
}
