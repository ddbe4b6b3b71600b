//! Arithmetic and order of elements in their working types, and typed access to memory of any dtype.

use crate::buffers::{BoundView, Ptr, RunCx};
use crate::simd::{Isa, Kernel, Simd, dispatch};
use crate::tile::{Work, io};
use rlx_ir::DType;
use rlx_ir::element::round_float;
use std::marker::PhantomData;

/// A working type: its layout is that of the dtype's slots (see [`Work`]).
pub trait Number: Copy + Default + PartialEq + Send + Sync + 'static {
    /// Sum; integers wrap.
    fn add(self, o: Self) -> Self;
    /// Product; integers wrap.
    fn mul(self, o: Self) -> Self;
    /// The smaller; NaN if either is; −0 before +0.
    fn min(self, o: Self) -> Self;
    /// The larger; NaN if either is; −0 before +0.
    fn max(self, o: Self) -> Self;
    /// Smaller than; false where either is NaN.
    fn below(self, o: Self) -> bool;
    /// Not a number.
    fn is_nan(self) -> bool;
    /// A number of a type of floats, or its real part.
    fn from_float(v: f64) -> Self;
    /// A number of a type of integers.
    fn from_int(v: i128) -> Self;
    /// As f64.
    fn to_f64(self) -> f64;
    /// Bits of [`Number::key`].
    const KEY_BITS: u32;
    /// An integer that orders as the number does, equal for equals: NaN above all, −0 as +0.
    fn key(self) -> u64;
    /// The smallest or largest of some elements, NaN if there is one; `None` where that is no faster than to look at
    /// them one by one.
    fn extreme(_isa: Isa, _v: &[Self], _largest: bool) -> Option<Self> {
        None
    }
}

macro_rules! ints {
    ($($t:ty)*) => {$(
        impl Number for $t {
            #[inline(always)]
            fn add(self, o: Self) -> Self { self.wrapping_add(o) }
            #[inline(always)]
            fn mul(self, o: Self) -> Self { self.wrapping_mul(o) }
            #[inline(always)]
            fn min(self, o: Self) -> Self { Ord::min(self, o) }
            #[inline(always)]
            fn max(self, o: Self) -> Self { Ord::max(self, o) }
            #[inline(always)]
            fn below(self, o: Self) -> bool { self < o }
            #[inline(always)]
            fn is_nan(self) -> bool { false }
            fn from_float(v: f64) -> Self { v as $t }
            fn from_int(v: i128) -> Self { v as $t }
            fn to_f64(self) -> f64 { self as f64 }
            const KEY_BITS: u32 = <$t>::BITS;
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn key(self) -> u64 {
                // The sign bit flipped, where there is one.
                let sign = if <$t>::MIN < 0 { 1u64 << (<$t>::BITS - 1) } else { 0 };
                let mask = u64::MAX >> (64 - <$t>::BITS);
                (self as u64 & mask) ^ sign
            }
        }
    )*};
}
ints!(i8 i16 i32 i64 u8 u16 u32 u64);

macro_rules! floats {
    ($($t:ty, $bits:ty { $($extra:tt)* })*) => {$(
        impl Number for $t {
            #[inline(always)]
            fn add(self, o: Self) -> Self { self + o }
            #[inline(always)]
            fn mul(self, o: Self) -> Self { self * o }
            #[inline(always)]
            fn min(self, o: Self) -> Self {
                if self.is_nan() || o.is_nan() {
                    <$t>::NAN
                } else if self < o || (self == o && self.is_sign_negative()) {
                    self
                } else {
                    o
                }
            }
            #[inline(always)]
            fn max(self, o: Self) -> Self {
                if self.is_nan() || o.is_nan() {
                    <$t>::NAN
                } else if self > o || (self == o && self.is_sign_positive()) {
                    self
                } else {
                    o
                }
            }
            #[inline(always)]
            fn below(self, o: Self) -> bool { self < o }
            #[inline(always)]
            fn is_nan(self) -> bool { <$t>::is_nan(self) }
            fn from_float(v: f64) -> Self { v as $t }
            fn from_int(v: i128) -> Self { v as $t }
            fn to_f64(self) -> f64 { self as f64 }
            const KEY_BITS: u32 = <$bits>::BITS;
            #[inline(always)]
            fn key(self) -> u64 {
                if self.is_nan() {
                    return u64::from(<$bits>::MAX);
                }
                let bits = (self + 0.0).to_bits();
                let sign = 1 << (<$bits>::BITS - 1);
                u64::from(if bits & sign == 0 { bits | sign } else { !bits })
            }
            $($extra)*
        }
    )*};
}
floats! {
    f32, u32 {
        fn extreme(isa: Isa, v: &[f32], largest: bool) -> Option<f32> {
            Some(dispatch(isa, Extreme { v, largest }))
        }
    }
    f64, u64 {}
}

/// Finds an extreme of f32.
struct Extreme<'a> {
    v: &'a [f32],
    largest: bool,
}

impl Kernel for Extreme<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let start = if self.largest { f32::NEG_INFINITY } else { f32::INFINITY };
        let mut acc = [s.splat(start); 4];
        let blocks = self.v.chunks_exact(4 * S::W);
        let mut most = start;
        for &x in blocks.remainder() {
            most = if self.largest { Number::max(most, x) } else { Number::min(most, x) };
        }
        for b in blocks {
            for (i, a) in acc.iter_mut().enumerate() {
                // SAFETY: a block has 4 · W elements.
                let x = unsafe { s.load(b.as_ptr().add(i * S::W)) };
                *a = if self.largest { s.max(*a, x) } else { s.min(*a, x) };
            }
        }
        let mut lanes = [start; crate::simd::MAX_W];
        for a in acc {
            // SAFETY: there are MAX_W ≥ W lanes.
            unsafe { s.store(lanes.as_mut_ptr(), a) };
            for &x in lanes.iter().take(S::W) {
                most = if self.largest { Number::max(most, x) } else { Number::min(most, x) };
            }
        }
        most
    }
}

/// A float of 8 or 4 bits: it is held in f64 and accumulates in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(transparent)]
pub struct Small(f64);

impl Number for Small {
    fn add(self, o: Self) -> Self {
        Small(f64::from(self.0 as f32 + o.0 as f32))
    }
    fn mul(self, o: Self) -> Self {
        Small(f64::from(self.0 as f32 * o.0 as f32))
    }
    fn min(self, o: Self) -> Self {
        Small(Number::min(self.0, o.0))
    }
    fn max(self, o: Self) -> Self {
        Small(Number::max(self.0, o.0))
    }
    fn below(self, o: Self) -> bool {
        self.0 < o.0
    }
    fn is_nan(self) -> bool {
        self.0.is_nan()
    }
    fn from_float(v: f64) -> Self {
        Small(v)
    }
    fn from_int(v: i128) -> Self {
        Small(v as f64)
    }
    fn to_f64(self) -> f64 {
        self.0
    }
    // Small floats are exact in f32.
    const KEY_BITS: u32 = 32;
    fn key(self) -> u64 {
        (self.0 as f32).key()
    }
}

/// A complex number, held in f64. With `NARROW` every operation is rounded to f32.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(transparent)]
pub struct Complex<const NARROW: bool>([f64; 2]);

impl<const NARROW: bool> Complex<NARROW> {
    fn sum(a: f64, b: f64) -> f64 {
        if NARROW { f64::from(a as f32 + b as f32) } else { a + b }
    }
    fn product(a: f64, b: f64) -> f64 {
        if NARROW { f64::from(a as f32 * b as f32) } else { a * b }
    }
}

impl<const NARROW: bool> Number for Complex<NARROW> {
    fn add(self, o: Self) -> Self {
        Complex([Self::sum(self.0[0], o.0[0]), Self::sum(self.0[1], o.0[1])])
    }
    fn mul(self, o: Self) -> Self {
        let ([a, b], [c, d]) = (self.0, o.0);
        Complex([
            Self::sum(Self::product(a, c), -Self::product(b, d)),
            Self::sum(Self::product(a, d), Self::product(b, c)),
        ])
    }
    // Complex numbers have no order; no op that needs one takes them.
    fn min(self, _: Self) -> Self {
        self
    }
    fn max(self, _: Self) -> Self {
        self
    }
    fn below(self, _: Self) -> bool {
        false
    }
    fn is_nan(self) -> bool {
        self.0[0].is_nan() || self.0[1].is_nan()
    }
    fn from_float(v: f64) -> Self {
        Complex([v, 0.0])
    }
    fn from_int(v: i128) -> Self {
        Complex([v as f64, 0.0])
    }
    fn to_f64(self) -> f64 {
        self.0[0]
    }
    const KEY_BITS: u32 = 32;
    fn key(self) -> u64 {
        0
    }
}

/// Evaluates `$body`, a `Result<_, String>`, with `$t` as the working type of a dtype.
macro_rules! for_number {
    ($dtype:expr, $t:ident => $body:expr) => {
        $crate::library::number::for_number!(@arms $dtype, $t, $body,
            (F32 F16 BF16, f32) (F64, f64) (I8 I4 I2, i8) (I16, i16) (I32, i32) (I64, i64)
            (U8 U4 U2 Bool, u8) (U16, u16) (U32, u32) (U64, u64)
            (C64, $crate::library::number::Complex<true>) (C128, $crate::library::number::Complex<false>)
            (F8E4M3FN F8E4M3FNUZ F8E5M2 F8E5M2FNUZ F8E8M0 F4E2M1, $crate::library::number::Small))
    };
    (@arms $dtype:expr, $t:ident, $body:expr, $(($($d:ident)+, $ty:ty))+) => {
        match $dtype {
            $($(rlx_ir::DType::$d)|+ => {
                type $t = $ty;
                $body
            })+
            rlx_ir::DType::Str => Err("it has no kernel for strings".into()),
        }
    };
}
pub(crate) use for_number;

/// Memory of a dtype whose working type is `T`.
#[derive(Clone, Copy, Debug)]
pub struct Cells<T> {
    dtype: DType,
    base: Ptr,
    plain: bool,
    /// A float that only some of the values of `T` are: what is written is rounded to it.
    small: bool,
    of: PhantomData<fn() -> T>,
}

impl<T: Number> Cells<T> {
    /// Elements of memory at `base`; `T` is the working type of `dtype`, as [`for_number!`] gives it.
    pub fn new(dtype: DType, base: Ptr) -> Self {
        let small = dtype.is_float() && dtype.bits() <= 8;
        Cells { dtype, base, plain: Work::is_storage(dtype), small, of: PhantomData }
    }

    /// Those of a view's buffer.
    pub fn of(view: &BoundView, run: &RunCx<'_>) -> Self {
        Self::new(view.access.dtype, Ptr(run.bufs.base(view.access.buffer)))
    }

    /// One element.
    /// # Safety
    /// It lies in the memory, which is aligned for the dtype.
    #[inline(always)]
    pub unsafe fn get(&self, at: i64) -> T {
        // SAFETY: the caller's promise; of a storage dtype T is the memory's type.
        unsafe {
            if self.plain {
                return *self.base.get().cast::<T>().offset(at as isize);
            }
            let mut v = T::default();
            io::load(self.dtype, self.base.get(), at, ONE, (&raw mut v).cast());
            v
        }
    }

    /// Writes one element.
    /// # Safety
    /// As [`Cells::get`]; no other thread touches its byte.
    #[inline(always)]
    pub unsafe fn set(&self, at: i64, v: T) {
        // SAFETY: the caller's promise.
        unsafe {
            if self.plain {
                *self.base.get().cast::<T>().offset(at as isize) = v;
            } else {
                let v = if self.small { T::from_float(round_float(self.dtype, v.to_f64())) } else { v };
                io::store(self.dtype, self.base.get(), at, ONE, (&raw const v).cast());
            }
        }
    }

    /// Elements side by side in memory, if they lie there as they are.
    /// # Safety
    /// As [`Cells::get`], for each; nothing writes them while the slice lives.
    #[inline]
    pub unsafe fn slice<'a>(&self, at: i64, n: usize) -> Option<&'a [T]> {
        // No elements may have no memory.
        if n == 0 {
            return Some(&[]);
        }
        // SAFETY: the caller's promise; of a storage dtype T is the memory's type.
        self.plain.then(|| unsafe { std::slice::from_raw_parts(self.base.get().cast::<T>().offset(at as isize), n) })
    }

    /// Elements at `at`, `at + step`, ….
    /// # Safety
    /// As [`Cells::get`], for each.
    #[inline]
    pub unsafe fn load(&self, at: i64, step: i64, out: &mut [T]) {
        // SAFETY: the caller's promise.
        unsafe {
            let block = io::Block { sizes: &[out.len()], strides: &[step] };
            io::load(self.dtype, self.base.get(), at, block, out.as_mut_ptr().cast());
        }
    }

    /// Writes elements at `at`, `at + step`, ….
    /// # Safety
    /// As [`Cells::set`], for each.
    #[inline]
    pub unsafe fn store(&self, at: i64, step: i64, v: &[T]) {
        // SAFETY: the caller's promise.
        unsafe {
            if self.small {
                return (0i64..).zip(v).for_each(|(i, &v)| self.set(at + i * step, v));
            }
            let block = io::Block { sizes: &[v.len()], strides: &[step] };
            io::store(self.dtype, self.base.get(), at, block, v.as_ptr().cast());
        }
    }
}

const ONE: io::Block<'static> = io::Block { sizes: &[], strides: &[] };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_keep_nan_and_order_zeros() {
        for (a, b) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
            assert!(Number::min(a, b).is_nan() && Number::max(a, b).is_nan());
        }
        for (a, b) in [(0.0f32, -0.0f32), (-0.0, 0.0)] {
            assert!(Number::min(a, b).is_sign_negative() && Number::max(a, b).is_sign_positive());
        }
    }

    #[test]
    fn working_types_have_the_size_of_slots() {
        for &d in DType::ALL {
            let r: Result<usize, String> = for_number!(d, T => Ok(size_of::<T>()));
            assert_eq!(r.ok(), Work::of(d).map(Work::size), "{d}");
        }
    }
}
