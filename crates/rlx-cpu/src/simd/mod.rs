//! A small SIMD layer: one generic body, instantiated once per instruction set.
//!
//! [`Simd`] names a level (a zero-sized token) and its f32, i32 and mask vectors. A [`Kernel`] is a body generic over the
//! level; [`dispatch`] runs it inside a function compiled with the level's `#[target_feature]`s. Everything between
//! `dispatch` and the intrinsics must be `#[inline(always)]`: a function left out of line is compiled for the
//! baseline, which is right but slow.
//!
//! Invariants:
//! - A level's token exists only where the machine has its features: tokens have private fields, and only `dispatch`
//!   (after detection) makes them. That is the reason behind the intrinsics' `unsafe` blocks in the level files.
//! - Every operation works lane by lane, so an element's result never depends on its lane or on its neighbours.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod binary;
pub mod math;
pub mod narrow;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod small_floats;
mod unary;

pub use binary::{BinaryF32, binary_f32};
pub use rlx_driver::Isa;
pub use small_floats::{byte_format, decode_byte_floats, widen_byte_floats};
pub use unary::{UnaryF32, unary_f32, unary_f32_in_place, unary_f32_raw, unary_lanes};

/// One instruction-set level with its vectors of `W` lanes.
///
/// The names follow IEEE 754 where it has one. Comparisons are ordered and quiet: false when an operand is NaN.
// `self` is the level, never the operand: the conventions on names of conversions are not meant for it.
#[allow(clippy::wrong_self_convention)]
pub trait Simd: Copy + Send + Sync + 'static {
    /// f32 lanes.
    type F: Copy;
    /// i32 lanes.
    type I: Copy;
    /// One truth value a lane.
    type M: Copy;
    /// Number of lanes.
    const W: usize;
    /// Rows of the GEMM register tile: with [`Self::TILE_VECTORS`] columns of vectors it fills the registers.
    const TILE_ROWS: usize;
    /// Whether tiles of one row leave it to the machine to read ahead: asking for B line by line disturbs its streams
    /// where this was measured (Zen 3: 27 instead of 33 GB/s).
    const ROW_STREAMS: bool = false;
    /// Vectors in a row of the GEMM register tile, at most [`MAX_TILE_VECTORS`].
    const TILE_VECTORS: usize;

    /// Runs `kernel` in a function of its own that has this level's features.
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output;
    /// The same with what [`Self::dot_quads`] needs; only where [`quads`] says so, or on levels without it.
    #[inline(always)]
    fn vectorize_quads<K: Kernel>(self, kernel: K) -> K::Output {
        self.vectorize(kernel)
    }

    /// All lanes `v`.
    fn splat(self, v: f32) -> Self::F;
    /// All lanes `v`.
    fn splat_i(self, v: i32) -> Self::I;
    /// Reads `W` elements.
    /// # Safety
    /// `p` must be valid for reading `W` f32.
    unsafe fn load(self, p: *const f32) -> Self::F;
    /// Writes `W` elements.
    /// # Safety
    /// `p` must be valid for writing `W` f32.
    unsafe fn store(self, p: *mut f32, v: Self::F);
    /// Reads the first `n ≤ W` elements; the other lanes are zero.
    /// # Safety
    /// `p` must be valid for reading `n` f32.
    unsafe fn load_partial(self, p: *const f32, n: usize) -> Self::F;
    /// Writes the first `n ≤ W` lanes.
    /// # Safety
    /// `p` must be valid for writing `n` f32.
    unsafe fn store_partial(self, p: *mut f32, v: Self::F, n: usize);

    /// Writes eight columns of up to eight rows as eight rows of eight; rows beyond `rows` count as zeros.
    /// # Safety
    /// Eight elements from `src + i · src_row` on must be readable for each `i < rows ≤ 8`, and eight from
    /// `dst + j · dst_row` on writable for each `j < 8`. Rows of `dst` may overlap: they are written in order.
    #[inline(always)]
    unsafe fn transpose8(self, src: *const f32, src_row: isize, rows: usize, dst: *mut f32, dst_row: usize) {
        for j in 0..8 {
            for i in 0..8 {
                // SAFETY: the caller's promise.
                unsafe {
                    let v = if i < rows { *src.offset(i as isize * src_row).add(j) } else { 0.0 };
                    *dst.add(j * dst_row + i) = v;
                }
            }
        }
    }
    /// Asks for the cache line at `p`, which need not be valid.
    #[inline(always)]
    fn prefetch(self, _p: *const f32) {}
    /// The same, for the second cache only.
    #[inline(always)]
    fn prefetch_far(self, _p: *const f32) {}

    /// `a + b`.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a - b`.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b`.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c` rounded once (the portable level: once to f64, then to f32).
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `a * b + c`, rounded once or twice, whichever the level does fastest.
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// Square root, correctly rounded.
    fn sqrt(self, a: Self::F) -> Self::F;
    /// Toward −∞.
    fn floor(self, a: Self::F) -> Self::F;
    /// Toward +∞.
    fn ceil(self, a: Self::F) -> Self::F;
    /// Toward zero.
    fn trunc(self, a: Self::F) -> Self::F;
    /// To nearest, ties to even.
    fn round_even(self, a: Self::F) -> Self::F;
    /// `a < b ? a : b`: the second operand where either is NaN or both are zeros.
    fn min_fast(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a > b ? a : b`: the second operand where either is NaN or both are zeros.
    fn max_fast(self, a: Self::F, b: Self::F) -> Self::F;

    /// `a < b`.
    fn lt(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a <= b`.
    fn le(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a == b`.
    fn eq(self, a: Self::F, b: Self::F) -> Self::M;
    /// Both.
    fn and_m(self, a: Self::M, b: Self::M) -> Self::M;
    /// Either.
    fn or_m(self, a: Self::M, b: Self::M) -> Self::M;
    /// Neither's opposite.
    fn not_m(self, a: Self::M) -> Self::M;
    /// Is any lane true?
    fn any(self, m: Self::M) -> bool;
    /// `m ? a : b`.
    fn select(self, m: Self::M, a: Self::F, b: Self::F) -> Self::F;

    /// The bits of each lane.
    fn bits(self, a: Self::F) -> Self::I;
    /// The lanes that have these bits.
    fn from_bits(self, a: Self::I) -> Self::F;
    /// Bitwise and.
    fn and_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise or.
    fn or_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise exclusive or.
    fn xor_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Wrapping `a + b`.
    fn add_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Wrapping `a - b`.
    fn sub_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// `a << N`.
    fn shl_i<const N: u32>(self, a: Self::I) -> Self::I;
    /// `a >> N`, copying the sign.
    fn sar_i<const N: u32>(self, a: Self::I) -> Self::I;
    /// `a == b`.
    fn eq_i(self, a: Self::I, b: Self::I) -> Self::M;
    /// The nearest f32 of each integer.
    fn to_float(self, a: Self::I) -> Self::F;
    /// The integer part; out of i32's range and NaN give an unspecified value.
    fn to_int(self, a: Self::F) -> Self::I;

    /// Reads `W` integers of 8 bits with their signs.
    /// # Safety
    /// `p` must be valid for reading `W` bytes.
    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> Self::I {
        // SAFETY: the caller's promise.
        unsafe { narrow::lanes_from(self, |i| i32::from(*p.add(i))) }
    }
    /// Reads `W` integers of 8 bits without signs.
    /// # Safety
    /// `p` must be valid for reading `W` bytes.
    #[inline(always)]
    unsafe fn load_u8(self, p: *const u8) -> Self::I {
        // SAFETY: the caller's promise.
        unsafe { narrow::lanes_from(self, |i| i32::from(*p.add(i))) }
    }
    /// Reads `W` integers of 16 bits without signs.
    /// # Safety
    /// `p` must be valid for reading `W` of them; it need not be aligned.
    #[inline(always)]
    unsafe fn load_u16(self, p: *const u16) -> Self::I {
        // SAFETY: the caller's promise.
        unsafe { narrow::lanes_from(self, |i| i32::from(p.add(i).read_unaligned())) }
    }
    /// Writes the low 16 bits of each lane, whose high bits must be zero.
    /// # Safety
    /// `p` must be valid for writing `W` of them; it need not be aligned.
    #[inline(always)]
    unsafe fn store_u16(self, p: *mut u16, v: Self::I) {
        // SAFETY: the caller's promise.
        narrow::each_lane(self, v, |i, x| unsafe { p.add(i).write_unaligned(x as u16) });
    }
    /// Writes the low 16 bits of each lane, which must hold the lane with its sign.
    /// # Safety
    /// As [`Self::store_u16`].
    #[inline(always)]
    unsafe fn store_i16(self, p: *mut i16, v: Self::I) {
        // SAFETY: the caller's promise.
        narrow::each_lane(self, v, |i, x| unsafe { p.add(i).write_unaligned(x as i16) });
    }
    /// Wrapping `a · b`.
    #[inline(always)]
    fn mul_i(self, a: Self::I, b: Self::I) -> Self::I {
        narrow::zip_lanes(self, a, b, b, |a, b, _| a.wrapping_mul(b))
    }
    /// Reads `W` f16.
    /// # Safety
    /// As [`Self::load_u16`].
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> Self::F {
        // SAFETY: the caller's promise.
        let bits = |i| unsafe { half::f16::from_bits(p.add(i).read_unaligned()).to_f32().to_bits() as i32 };
        self.from_bits(narrow::lanes_from(self, bits))
    }
    /// Writes each lane as f16, rounded to nearest even.
    /// # Safety
    /// As [`Self::store_u16`].
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: Self::F) {
        let half = |x: i32| half::f16::from_f32(f32::from_bits(x as u32)).to_bits();
        // SAFETY: the caller's promise.
        narrow::each_lane(self, self.bits(v), |i, x| unsafe { p.add(i).write_unaligned(half(x)) });
    }
    /// Reads `W` bf16.
    /// # Safety
    /// As [`Self::load_u16`].
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> Self::F {
        // SAFETY: the caller's promise.
        unsafe { self.from_bits(self.shl_i::<16>(self.load_u16(p))) }
    }
    /// Writes each lane as bf16, rounded to nearest even; NaN stays NaN.
    /// # Safety
    /// As [`Self::store_u16`].
    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut u16, v: Self::F) {
        // SAFETY: the caller's promise; `bf16_bits` leaves the high bits zero.
        unsafe { self.store_u16(p, narrow::bf16_bits(self, v)) }
    }
    /// Reads `2 W` integers of 8 bits with their signs as as many of 16 bits, two a lane.
    /// # Safety
    /// `p` must be valid for reading `2 W` bytes.
    #[inline(always)]
    unsafe fn load_pairs_i8(self, p: *const i8) -> Self::I {
        // SAFETY: the caller's promise.
        unsafe { narrow::lanes_from(self, |i| pair(i16::from(*p.add(2 * i)), i16::from(*p.add(2 * i + 1)))) }
    }
    /// Each lane of `acc` plus the sum of the products of its two pairs of 16-bit integers; exact but for wrapping.
    #[inline(always)]
    fn dot_pairs(self, acc: Self::I, a: Self::I, b: Self::I) -> Self::I {
        narrow::zip_lanes(self, acc, a, b, |acc, a, b| {
            let low = i32::from(a as i16) * i32::from(b as i16);
            acc.wrapping_add(low).wrapping_add((a >> 16) * (b >> 16))
        })
    }
    /// Each lane of `acc` plus the sum of the products of four integers of 8 bits: `a`'s without signs, `b`'s with;
    /// exact but for wrapping. Fast only where [`quads`] says so.
    #[inline(always)]
    fn dot_quads(self, acc: Self::I, a: Self::I, b: Self::I) -> Self::I {
        narrow::zip_lanes(self, acc, a, b, |acc, a, b| {
            let pairs = a.to_ne_bytes().into_iter().zip(b.to_ne_bytes());
            pairs.fold(acc, |sum, (x, y)| sum.wrapping_add(i32::from(x) * i32::from(y as i8)))
        })
    }

    /// All lanes zero.
    #[inline(always)]
    fn zero(self) -> Self::F {
        self.splat(0.0)
    }
    /// `c - a * b` rounded once.
    #[inline(always)]
    fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        self.fma(self.neg(a), b, c)
    }
    /// Flips the sign bit.
    #[inline(always)]
    fn neg(self, a: Self::F) -> Self::F {
        self.from_bits(self.xor_i(self.bits(a), self.splat_i(i32::MIN)))
    }
    /// Clears the sign bit.
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        self.from_bits(self.and_i(self.bits(a), self.splat_i(i32::MAX)))
    }
    /// The sign bit alone.
    #[inline(always)]
    fn sign_bit(self, a: Self::F) -> Self::I {
        self.and_i(self.bits(a), self.splat_i(i32::MIN))
    }
    /// `magnitude` (which must not be negative) with the sign of `sign`.
    #[inline(always)]
    fn with_sign(self, magnitude: Self::F, sign: Self::F) -> Self::F {
        self.from_bits(self.or_i(self.bits(magnitude), self.sign_bit(sign)))
    }
    /// Which lanes are NaN?
    #[inline(always)]
    fn is_nan(self, a: Self::F) -> Self::M {
        self.not_m(self.eq(a, a))
    }
    /// The lesser; NaN where either is NaN; −0 before +0.
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        // On equal operands, or-ing the bits keeps a −0.
        let least = self.select(self.lt(b, a), b, a);
        let equal = self.from_bits(self.or_i(self.bits(a), self.bits(b)));
        let r = self.select(self.eq(a, b), equal, least);
        // `least` is `a` where either is NaN, hence only b's NaN is missing.
        self.select(self.is_nan(b), b, r)
    }
    /// The greater; NaN where either is NaN; +0 before −0.
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        let most = self.select(self.lt(a, b), b, a);
        let equal = self.from_bits(self.and_i(self.bits(a), self.bits(b)));
        let r = self.select(self.eq(a, b), equal, most);
        self.select(self.is_nan(b), b, r)
    }
    /// Applies a scalar function to each lane.
    #[inline(always)]
    fn map(self, a: Self::F, f: impl Fn(f32) -> f32) -> Self::F {
        let mut lanes = [0.0f32; MAX_W];
        // SAFETY: the array has MAX_W ≥ W elements.
        unsafe { self.store(lanes.as_mut_ptr(), a) };
        for lane in lanes.iter_mut().take(Self::W) {
            *lane = f(*lane);
        }
        // SAFETY: as above.
        unsafe { self.load(lanes.as_ptr()) }
    }
    /// Applies a scalar function to each pair of lanes.
    #[inline(always)]
    fn map2(self, a: Self::F, b: Self::F, f: impl Fn(f32, f32) -> f32) -> Self::F {
        let (mut x, mut y) = ([0.0f32; MAX_W], [0.0f32; MAX_W]);
        // SAFETY: the arrays have MAX_W ≥ W elements.
        unsafe {
            self.store(x.as_mut_ptr(), a);
            self.store(y.as_mut_ptr(), b);
        }
        for (p, q) in x.iter_mut().zip(&y).take(Self::W) {
            *p = f(*p, *q);
        }
        // SAFETY: as above.
        unsafe { self.load(x.as_ptr()) }
    }
}

/// Two 16-bit integers in one of 32 bits, the first one in the low half.
#[inline(always)]
pub fn pair(first: i16, second: i16) -> i32 {
    (i32::from(second) << 16) | i32::from(first as u16)
}

/// True where the level has an instruction for [`Simd::dot_quads`].
pub fn quads(isa: Isa) -> bool {
    match effective(isa) {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Amx => is_x86_feature_detected!("avx512vnni"),
        _ => false,
    }
}

/// The most vectors in a row of any level's GEMM register tile.
pub const MAX_TILE_VECTORS: usize = 3;
/// The most lanes that any level has.
pub const MAX_W: usize = 16;

/// A body that any level can run. `run` must be `#[inline(always)]`.
pub trait Kernel {
    /// What the body returns.
    type Output;
    /// The body.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// Runs a kernel at the level `isa`, or at the portable level where this machine or build lacks it.
#[inline]
pub fn dispatch<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    // Beside a model of the matrix unit stand the vectors that there are.
    #[cfg(test)]
    let isa = if isa == Isa::Amx && !isa.is_available() { Isa::best() } else { isa };
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => match avx2::Avx2::detect() {
            Some(s) => s.vectorize(kernel),
            None => portable::Portable.vectorize(kernel),
        },
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Amx => match avx512::Avx512::detect() {
            Some(s) => s.vectorize(kernel),
            None => portable::Portable.vectorize(kernel),
        },
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => neon::Neon::new().vectorize(kernel),
        _ => portable::Portable.vectorize(kernel),
    }
}

/// The level that [`dispatch`] really runs when asked for `isa`: layouts that depend on the level ask this first.
#[inline]
pub fn effective(isa: Isa) -> Isa {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 if avx2::Avx2::detect().is_some() => Isa::Avx2,
        Isa::Amx if crate::gemm::amx::has_tiles(isa) => Isa::Amx,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Amx if avx512::Avx512::detect().is_some() => Isa::Avx512,
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => Isa::Neon,
        _ => Isa::Portable,
    }
}

/// The levels of the machine, and that of matrix units, by a model of them where it has none.
#[cfg(test)]
pub fn levels() -> Vec<Isa> {
    let mut all = Isa::available();
    if crate::gemm::amx::has_tiles(Isa::Amx) && !all.contains(&Isa::Amx) {
        all.push(Isa::Amx);
    }
    all
}

#[cfg(test)]
mod tests;
