//! Conversions between dtypes, and rounding of values in their working types.
//!
//! Floats go to integers truncated and saturated with NaN as 0, integers wrap, and everything is rounded once: an
//! integer or f64 that becomes f16 or bf16 does not pass through f32.

use super::loops::{Args, OpFn, map1, op};
use super::{Round, Work};
use half::f16;
use half::slice::HalfFloatSliceExt;
use rlx_ir::DType;
use rlx_ir::element::{
    self, SmallFloat, decode_small_float, encode_small_float, float_to_int, round_float, to_f16, wrap_int,
};

macro_rules! numbers {
    ($from:ident, $wide:ident, $bool:expr, $f16:expr, $bf16:expr) => {
        /// The loop that converts from this type.
        pub fn $from(to: Work, dtype: DType) -> Option<OpFn> {
            Some(match (dtype, to) {
                (DType::F16, _) => op!(plain1, $from, f32; |x: $from| ($f16)(x)),
                (DType::BF16, _) => op!($wide, $from, f32; |x: $from| ($bf16)(x)),
                (_, Work::F32) => op!(map1, $from, f32; |x: $from| x as f32),
                (_, Work::F64) => op!(plain1, $from, f64; |x: $from| x as f64),
                (_, Work::I8) => op!($wide, $from, i8; |x: $from| x as i8),
                (_, Work::I16) => op!(plain1, $from, i16; |x: $from| x as i16),
                (_, Work::I32) => op!($wide, $from, i32; |x: $from| x as i32),
                (_, Work::I64) => op!(plain1, $from, i64; |x: $from| x as i64),
                (_, Work::U8) => op!($wide, $from, u8; |x: $from| x as u8),
                (_, Work::U16) => op!(plain1, $from, u16; |x: $from| x as u16),
                (_, Work::U32) => op!(plain1, $from, u32; |x: $from| x as u32),
                (_, Work::U64) => op!(plain1, $from, u64; |x: $from| x as u64),
                (_, Work::Bool) => op!($wide, $from, u8; |x: $from| u8::from(($bool)(x))),
                (_, Work::Complex) => op!(plain1, $from, [f64; 2]; |x: $from| [x as f64, 0.0]),
            })
        }
    };
}

#[allow(clippy::unnecessary_cast, clippy::cast_lossless)]
mod from {
    use super::*;
    // What an f32 holds is rounded once.
    numbers!(f32, map1, |x| x != 0.0, |x| f16::from_f32(x).to_f32(), round_bf16);
    numbers!(f64, plain1, |x| x != 0.0, |x| to_f16(x).to_f32(), |x| element::to_bf16(x).to_f32());
    numbers!(i8, plain1, |x| x != 0, f32::from, f32::from);
    numbers!(i16, plain1, |x| x != 0, |x| to_f16(f64::from(x)).to_f32(), |x| round_bf16(f32::from(x)));
    numbers!(i32, plain1, |x| x != 0, |x| to_f16(f64::from(x)).to_f32(), |x| element::to_bf16(f64::from(x)).to_f32());
    numbers!(i64, plain1, |x| x != 0, |x| to_f16(x as f64).to_f32(), |x| element::to_bf16(x as f64).to_f32());
    numbers!(u8, plain1, |x| x != 0, f32::from, f32::from);
    numbers!(u16, plain1, |x| x != 0, |x| to_f16(f64::from(x)).to_f32(), |x| round_bf16(f32::from(x)));
    numbers!(u32, plain1, |x| x != 0, |x| to_f16(f64::from(x)).to_f32(), |x| element::to_bf16(f64::from(x)).to_f32());
    numbers!(u64, plain1, |x| x != 0, |x| to_f16(x as f64).to_f32(), |x| element::to_bf16(x as f64).to_f32());
}

/// A value of any class, for conversions that are not worth a loop of their own.
#[derive(Clone, Copy)]
enum Any {
    F(f64),
    I(i128),
    C([f64; 2]),
}

/// # Safety
/// `p` holds an element of the type.
unsafe fn get(work: Work, p: *const u8, i: usize) -> Any {
    // SAFETY: the caller's promise.
    unsafe {
        match work {
            Work::F32 => Any::F(f64::from(*p.cast::<f32>().add(i))),
            Work::F64 => Any::F(*p.cast::<f64>().add(i)),
            Work::I8 => Any::I(i128::from(*p.cast::<i8>().add(i))),
            Work::I16 => Any::I(i128::from(*p.cast::<i16>().add(i))),
            Work::I32 => Any::I(i128::from(*p.cast::<i32>().add(i))),
            Work::I64 => Any::I(i128::from(*p.cast::<i64>().add(i))),
            Work::U8 | Work::Bool => Any::I(i128::from(*p.add(i))),
            Work::U16 => Any::I(i128::from(*p.cast::<u16>().add(i))),
            Work::U32 => Any::I(i128::from(*p.cast::<u32>().add(i))),
            Work::U64 => Any::I(i128::from(*p.cast::<u64>().add(i))),
            Work::Complex => Any::C(*p.cast::<[f64; 2]>().add(i)),
        }
    }
}

/// One element at a time: to and from complex numbers, small floats and narrow integers.
/// # Safety
/// See [`Args`]; the operand is of `from`'s working type, the result of `to`'s.
pub unsafe fn slow(x: &Args, from: DType, to: DType, saturate: bool) {
    let (Some(wf), Some(wt)) = (Work::of(from), Work::of(to)) else { return };
    let float = |v: f64| {
        if to.bits() <= 8 { decode_small_float(to, encode_small_float(to, v, saturate)) } else { round_float(to, v) }
    };
    for i in 0..x.n {
        // SAFETY: i < n.
        let v = unsafe { get(wf, x.a[0], i) };
        let real = match v {
            Any::F(v) => v,
            Any::I(v) => v as f64,
            Any::C(c) => c[0],
        };
        let int = || match v {
            Any::I(v) => wrap_int(to, v),
            Any::C(c) if to == DType::Bool => i128::from(c != [0.0, 0.0]),
            _ => float_to_int(to, real),
        };
        // SAFETY: i < n.
        unsafe {
            match wt {
                Work::F32 => *x.y.cast::<f32>().add(i) = float(real) as f32,
                Work::F64 => *x.y.cast::<f64>().add(i) = float(real),
                Work::I8 => *x.y.cast::<i8>().add(i) = int() as i8,
                Work::I16 => *x.y.cast::<i16>().add(i) = int() as i16,
                Work::I32 => *x.y.cast::<i32>().add(i) = int() as i32,
                Work::I64 => *x.y.cast::<i64>().add(i) = int() as i64,
                Work::U8 | Work::Bool => *x.y.add(i) = int() as u8,
                Work::U16 => *x.y.cast::<u16>().add(i) = int() as u16,
                Work::U32 => *x.y.cast::<u32>().add(i) = int() as u32,
                Work::U64 => *x.y.cast::<u64>().add(i) = int() as u64,
                Work::Complex => {
                    let part = if to == DType::C64 { DType::F32 } else { DType::F64 };
                    let c = if let Any::C(c) = v { c } else { [real, 0.0] };
                    *x.y.cast::<[f64; 2]>().add(i) = c.map(|v| round_float(part, v));
                }
            }
        }
    }
}

/// The loop that rounds f32 to a small float.
fn small(to: DType, saturate: bool) -> Option<OpFn> {
    macro_rules! loops {
        ($($d:ident is $format:ident),*) => {
            match (to, saturate) {
                $((DType::$d, true) => Some(op!(map1, f32, f64; |x: f32| f64::from(SmallFloat::$format.round_f32(x, true)))),
                (DType::$d, false) => Some(op!(map1, f32, f64; |x: f32| f64::from(SmallFloat::$format.round_f32(x, false)))),)*
                _ => None,
            }
        };
    }
    loops!(F8E4M3FN is E4M3FN, F8E4M3FNUZ is E4M3FNUZ, F8E5M2 is E5M2, F8E5M2FNUZ is E5M2FNUZ, F4E2M1 is E2M1)
}

/// The fast loop of a conversion, where there is one.
pub fn fast(from: DType, to: DType, saturate: bool) -> Option<OpFn> {
    let plain = |d: DType| d.bits() >= 8 && !d.is_complex() && (!d.is_float() || d.bits() >= 16);
    let is_small = |d: DType| d.is_float() && d.bits() <= 8;
    if Work::of(from) == Some(Work::F32) && is_small(to) {
        return small(to, saturate);
    }
    // A small float's working type is f64, which holds it as any other.
    if !plain(from) && !is_small(from) || !plain(to) {
        return None;
    }
    let w = Work::of(to)?;
    match Work::of(from)? {
        Work::F32 => from::f32(w, to),
        Work::F64 => from::f64(w, to),
        Work::I8 => from::i8(w, to),
        Work::I16 => from::i16(w, to),
        Work::I32 => from::i32(w, to),
        Work::I64 => from::i64(w, to),
        Work::U8 | Work::Bool => from::u8(w, to),
        Work::U16 => from::u16(w, to),
        Work::U32 => from::u32(w, to),
        Work::U64 => from::u64(w, to),
        Work::Complex => None,
    }
}

/// bfloat16 of an f32, to nearest even; NaN stays NaN.
#[inline(always)]
pub fn to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let quiet = (bits >> 16) | 0x40;
    (if bits & 0x7fff_ffff > 0x7f80_0000 { quiet } else { rounded }) as u16
}

/// An f32 rounded to bfloat16.
#[inline(always)]
pub fn round_bf16(x: f32) -> f32 {
    f32::from_bits(u32::from(to_bf16(x)) << 16)
}

/// Rounds a block in place.
/// # Safety
/// `x.y` holds `n` elements of the working type of the rounding's dtype.
pub unsafe fn round(how: Round, x: &Args) {
    // SAFETY: operand and result are the same block of n elements.
    unsafe {
        match how {
            Round::None => {}
            Round::BF16 => {
                let same = Args { a: [x.y, x.y, x.y], ..*x };
                map1::<f32, f32>(&same, round_bf16);
            }
            Round::F16 => {
                let block = std::slice::from_raw_parts_mut(x.y.cast::<f32>(), x.n);
                let mut half = [f16::ZERO; 64];
                for part in block.chunks_mut(64) {
                    if let Some(half) = half.get_mut(..part.len()) {
                        half.convert_from_f32_slice(part);
                        half.convert_to_f32_slice(part);
                    }
                }
            }
            Round::Small(dtype) => {
                for v in std::slice::from_raw_parts_mut(x.y.cast::<f64>(), x.n) {
                    *v = round_float(dtype, *v);
                }
            }
            Round::Wrap(dtype) => {
                let unused = 8 - dtype.bits() as u32;
                let same = Args { a: [x.y, x.y, x.y], ..*x };
                if dtype.is_unsigned() {
                    map1::<u8, u8>(&same, |v| (v << unused) >> unused);
                } else {
                    map1::<i8, i8>(&same, |v| (v << unused) >> unused);
                }
            }
            Round::C64 => {
                for v in std::slice::from_raw_parts_mut(x.y.cast::<f64>(), 2 * x.n) {
                    *v = f64::from(*v as f32);
                }
            }
        }
    }
}
