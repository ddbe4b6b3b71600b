//! Elements in their widest form, and the exact rules of rounding and packing each dtype.
//!
//! This is the one place that knows how a dtype's bits read as numbers: the evaluator, the folder, printers and tests use it.

mod small;

use half::{bf16, f16};

use crate::dtype::{Class, DType};

pub use small::{SmallFloat, decode_small_float, encode_small_float, small_float_values};

/// Elements widened without loss: floats to f64, integers and booleans to i128.
#[derive(Clone, Debug, PartialEq)]
pub enum Elements {
    /// Floats of any width.
    Float(Vec<f64>),
    /// Integers of any width; booleans as 0 and 1.
    Int(Vec<i128>),
    /// Real and imaginary parts.
    Complex(Vec<[f64; 2]>),
    /// Strings.
    Str(Vec<String>),
}

impl Elements {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Elements::Float(v) => v.len(),
            Elements::Int(v) => v.len(),
            Elements::Complex(v) => v.len(),
            Elements::Str(v) => v.len(),
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Floats as they are, integers rounded to the nearest f64; `None` for complex and strings.
    pub fn to_f64(&self) -> Option<Vec<f64>> {
        match self {
            Elements::Float(v) => Some(v.clone()),
            Elements::Int(v) => Some(v.iter().map(|&i| i as f64).collect()),
            _ => None,
        }
    }

    /// Integers (and booleans); `None` otherwise.
    pub fn ints(&self) -> Option<&[i128]> {
        match self {
            Elements::Int(v) => Some(v),
            _ => None,
        }
    }
}

/// Rounds a wide float to the values that `dtype` can hold (to nearest even).
pub fn round_float(dtype: DType, x: f64) -> f64 {
    match dtype {
        DType::F64 => x,
        DType::F32 => f64::from(x as f32),
        DType::F16 => to_f16(x).to_f64(),
        DType::BF16 => to_bf16(x).to_f64(),
        _ => decode_small_float(dtype, encode_small_float(dtype, x, true)),
    }
}

/// A number as f32 such that rounding that to fewer bits rounds the number itself: what is not exact has an odd last place. (Rounding to
/// nearest twice would make ties of what lies beside one.)
fn to_odd(x: f64) -> f32 {
    let near = x as f32;
    if near.is_nan() || f64::from(near) == x {
        return near;
    }
    // The bits of magnitudes ascend with them.
    let down = near.to_bits() - u32::from(f64::from(near.abs()) > x.abs());
    f32::from_bits(down | 1)
}

/// The f16 nearest to a number, ties to even.
pub fn to_f16(x: f64) -> f16 {
    f16::from_f32(to_odd(x))
}

/// The bf16 nearest to a number, ties to even.
pub fn to_bf16(x: f64) -> bf16 {
    bf16::from_f32(to_odd(x))
}

/// Wraps a wide integer into the range of an integer dtype; for `bool`, anything but 0 is 1.
pub fn wrap_int(dtype: DType, x: i128) -> i128 {
    match dtype.class() {
        Class::Bool => i128::from(x != 0),
        Class::Int => {
            let shift = 128 - dtype.bits() as u32;
            (x << shift) >> shift
        }
        Class::UInt => x & ((1i128 << dtype.bits()) - 1),
        _ => x,
    }
}

/// Widens `n` packed elements.
pub fn decode(dtype: DType, bytes: &[u8], n: usize) -> Elements {
    macro_rules! wide {
        ($t:ty, $variant:ident, $w:ty) => {
            Elements::$variant(
                bytes
                    .chunks_exact(size_of::<$t>())
                    .take(n)
                    .map(|c| <$w>::from(bytemuck::pod_read_unaligned::<$t>(c)))
                    .collect(),
            )
        };
    }
    match dtype {
        DType::Bool => Elements::Int(bytes.iter().take(n).map(|&b| i128::from(b != 0)).collect()),
        DType::I8 => wide!(i8, Int, i128),
        DType::I16 => wide!(i16, Int, i128),
        DType::I32 => wide!(i32, Int, i128),
        DType::I64 => wide!(i64, Int, i128),
        DType::U8 => wide!(u8, Int, i128),
        DType::U16 => wide!(u16, Int, i128),
        DType::U32 => wide!(u32, Int, i128),
        DType::U64 => wide!(u64, Int, i128),
        DType::F16 => wide!(f16, Float, f64),
        DType::BF16 => wide!(bf16, Float, f64),
        DType::F32 => wide!(f32, Float, f64),
        DType::F64 => wide!(f64, Float, f64),
        DType::C64 => Elements::Complex(
            bytes.chunks_exact(8).take(n).map(|c| bytemuck::pod_read_unaligned::<[f32; 2]>(c).map(f64::from)).collect(),
        ),
        DType::C128 => {
            Elements::Complex(bytes.chunks_exact(16).take(n).map(bytemuck::pod_read_unaligned::<[f64; 2]>).collect())
        }
        DType::I2 | DType::I4 | DType::U2 | DType::U4 => {
            Elements::Int(sub_byte(dtype, bytes, n).map(|b| wrap_int(dtype, i128::from(b))).collect())
        }
        DType::F4E2M1 => Elements::Float(sub_byte(dtype, bytes, n).map(|b| decode_small_float(dtype, b)).collect()),
        DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ | DType::F8E8M0 => {
            Elements::Float(bytes.iter().take(n).map(|&b| decode_small_float(dtype, b)).collect())
        }
        DType::Str => Elements::Str(Vec::new()),
    }
}

/// Unpacks `n` sub-byte elements, a byte each.
pub(crate) fn sub_byte(dtype: DType, bytes: &[u8], n: usize) -> impl Iterator<Item = u8> {
    let bits = dtype.bits();
    let per = 8 / bits;
    let mask = (1u8 << bits) - 1;
    (0..n).map(move |i| bytes.get(i / per).map_or(0, |b| b >> (bits * (i % per)) & mask))
}

/// Rounds and packs elements. Elements of another class than the dtype's are converted by value first.
pub fn encode(dtype: DType, elements: &Elements) -> Vec<u8> {
    let floats = || -> Vec<f64> {
        match elements {
            Elements::Complex(v) => v.iter().map(|c| c[0]).collect(),
            e => e.to_f64().unwrap_or_default(),
        }
    };
    let ints = || -> Vec<i128> {
        match elements {
            Elements::Int(v) => v.iter().map(|&x| wrap_int(dtype, x)).collect(),
            _ => floats().into_iter().map(|x| float_to_int(dtype, x)).collect(),
        }
    };
    let pairs = || -> Vec<[f64; 2]> {
        match elements {
            Elements::Complex(v) => v.clone(),
            _ => floats().into_iter().map(|x| [x, 0.0]).collect(),
        }
    };
    let mut out = Vec::with_capacity(dtype.bytes_for(elements.len()).unwrap_or(0));
    match dtype {
        DType::F64 => floats().iter().for_each(|x| out.extend(x.to_le_bytes())),
        DType::F32 => floats().iter().for_each(|&x| out.extend((x as f32).to_le_bytes())),
        DType::F16 => floats().iter().for_each(|&x| out.extend(to_f16(x).to_le_bytes())),
        DType::BF16 => floats().iter().for_each(|&x| out.extend(to_bf16(x).to_le_bytes())),
        DType::C64 => pairs().iter().flatten().for_each(|&x| out.extend((x as f32).to_le_bytes())),
        DType::C128 => pairs().iter().flatten().for_each(|&x| out.extend(x.to_le_bytes())),
        DType::F4E2M1 => pack_sub_byte(dtype, floats().iter().map(|&x| encode_small_float(dtype, x, true)), &mut out),
        DType::I2 | DType::I4 | DType::U2 | DType::U4 => {
            pack_sub_byte(dtype, ints().iter().map(|&x| x as u8), &mut out);
        }
        d if d.is_float() => out.extend(floats().iter().map(|&x| encode_small_float(d, x, true))),
        DType::Str => {}
        d => {
            let size = d.size().unwrap_or(1);
            ints().iter().for_each(|x| out.extend(x.to_le_bytes().iter().take(size)));
        }
    }
    out
}

/// Packs sub-byte elements, the first in the low bits.
pub(crate) fn pack_sub_byte(dtype: DType, values: impl Iterator<Item = u8>, out: &mut Vec<u8>) {
    let bits = dtype.bits();
    let per = 8 / bits;
    let mask = (1u8 << bits) - 1;
    for (i, v) in values.enumerate() {
        if i % per == 0 {
            out.push(0);
        }
        if let Some(last) = out.last_mut() {
            *last |= (v & mask) << (bits * (i % per));
        }
    }
}

/// Float to integer: truncated toward zero, saturated at the ends of the range, NaN is 0; for `bool`, anything but 0 (NaN too) is 1.
///
/// The ONNX standard leaves out-of-range values undefined; this is the rule of StableHLO `convert` on saturating targets and of Rust's `as`.
pub fn float_to_int(dtype: DType, x: f64) -> i128 {
    match dtype.int_range() {
        Some((0, 1)) if dtype == DType::Bool => i128::from(x != 0.0),
        Some((lo, hi)) => (x as i128).clamp(lo, hi),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits that `ml_dtypes` 0.5 gives for these values (NaN omitted), without saturation.
    #[test]
    fn small_floats_round_as_ml_dtypes() {
        let inf = f64::INFINITY;
        let xs = [
            0.0,
            -0.0,
            1.0,
            -1.5,
            448.,
            449.,
            464.,
            465.,
            480.,
            1e9,
            -1e9,
            inf,
            -inf,
            0.001953125,
            0.0009765625,
            0.000986328125,
            0.0029296875,
            0.0195,
            240.,
            248.,
            57344.,
            61440.,
            61439.,
            65536.,
            1.52587890625e-05,
            7.62939453125e-06,
            8.392333984375e-06,
            6.,
            5.,
            0.25,
            0.75,
            0.26,
            1.75,
            2.5,
            3.5,
            7.,
        ];
        let cases: [(DType, [u8; 36]); 5] = [
            (
                DType::F8E4M3FN,
                [
                    0, 128, 56, 188, 126, 126, 126, 127, 127, 127, 255, 127, 255, 1, 0, 1, 2, 10, 119, 120, 127, 127,
                    127, 127, 0, 0, 0, 76, 74, 40, 52, 40, 62, 66, 70, 78,
                ],
            ),
            (
                DType::F8E4M3FNUZ,
                [
                    0, 0, 64, 196, 128, 128, 128, 128, 128, 128, 128, 128, 128, 2, 1, 1, 3, 18, 127, 128, 128, 128,
                    128, 128, 0, 0, 0, 84, 82, 48, 60, 48, 70, 74, 78, 86,
                ],
            ),
            (
                DType::F8E5M2,
                [
                    0, 128, 60, 190, 95, 95, 95, 95, 96, 124, 252, 124, 252, 24, 20, 20, 26, 37, 92, 92, 123, 124, 123,
                    124, 1, 0, 1, 70, 69, 52, 58, 52, 63, 65, 67, 71,
                ],
            ),
            (
                DType::F8E5M2FNUZ,
                [
                    0, 0, 64, 194, 99, 99, 99, 99, 100, 128, 128, 128, 128, 28, 24, 24, 30, 41, 96, 96, 127, 128, 127,
                    128, 2, 1, 1, 74, 73, 56, 62, 56, 67, 69, 71, 75,
                ],
            ),
            (
                DType::F4E2M1,
                [
                    0, 8, 2, 11, 7, 7, 7, 7, 7, 7, 15, 7, 15, 0, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 0, 0, 0, 7, 6, 0, 2, 1,
                    4, 4, 6, 7,
                ],
            ),
        ];
        for (dtype, want) in cases {
            for (x, w) in xs.iter().zip(want) {
                let got = encode_small_float(dtype, *x, false);
                let same_nan = decode_small_float(dtype, got).is_nan() && decode_small_float(dtype, w).is_nan();
                assert!(got == w || same_nan, "{dtype} of {x}: {got}, want {w}");
            }
            let n = 1u32 << dtype.bits();
            for bits in 0..n {
                let x = decode_small_float(dtype, bits as u8);
                if x.is_finite() {
                    assert_eq!(encode_small_float(dtype, x, true), bits as u8, "{dtype} bits {bits}");
                }
            }
        }
    }

    #[test]
    fn saturation_never_overflows() {
        for d in [DType::F8E4M3FN, DType::F8E5M2, DType::F8E4M3FNUZ, DType::F8E5M2FNUZ, DType::F4E2M1, DType::F8E8M0] {
            for x in [1e30, f64::INFINITY, 1e9] {
                assert!(decode_small_float(d, encode_small_float(d, x, true)).is_finite(), "{d}");
            }
        }
    }

    #[test]
    fn integers_wrap_and_floats_saturate_into_them() {
        assert_eq!(wrap_int(DType::I8, 300), 44);
        assert_eq!(wrap_int(DType::U4, -1), 15);
        assert_eq!(wrap_int(DType::I64, i128::from(i64::MAX) + 1), i128::from(i64::MIN));
        assert_eq!(float_to_int(DType::I8, 300.0), 127);
        assert_eq!(float_to_int(DType::U8, -3.0), 0);
        assert_eq!(float_to_int(DType::I32, f64::NAN), 0);
        assert_eq!(float_to_int(DType::Bool, f64::NAN), 1);
        assert_eq!(float_to_int(DType::I64, -2.9), -2);
    }

    #[test]
    fn packed_elements_round_trip() {
        for &d in DType::ALL.iter().filter(|d| **d != DType::Str) {
            for n in [0usize, 1, 3, 7, 8, 9] {
                let bytes: Vec<u8> = match d.class() {
                    Class::Bool => (0..n).map(|i| (i % 2) as u8).collect(),
                    _ => encode(d, &Elements::Float((0..n).map(|i| (i % 2) as f64).collect())),
                };
                let e = decode(d, &bytes, n);
                assert_eq!(e.len(), n);
                assert_eq!(encode(d, &e), bytes, "{d} x {n}");
            }
        }
    }

    /// Ties are ties of the number itself: half of an ulp, and a little to either side, below what an f32 or the high half of an f64 holds.
    #[test]
    fn halves_are_rounded_once() {
        for e in [-40, -30, -29, -23] {
            let little = f64::powi(2.0, e);
            // One and an ulp of half: bf16 has 7 bits after the point, f16 10.
            for (to, ulp) in [(DType::BF16, f64::powi(2.0, -7)), (DType::F16, f64::powi(2.0, -10))] {
                let tie = 1.0 + ulp / 2.0;
                assert_eq!(round_float(to, tie), 1.0, "{to}: to even");
                assert_eq!(round_float(to, tie + little), 1.0 + ulp, "{to}: above by 2^{e}");
                assert_eq!(round_float(to, tie - little), 1.0, "{to}: below by 2^{e}");
                assert_eq!(round_float(to, -(tie + ulp - little)), -(1.0 + ulp), "{to}: below the next tie");
            }
        }
        assert_eq!(round_float(DType::F16, 65520.0 - 1e-9), 65504.0);
        assert_eq!(round_float(DType::F16, 65520.0), f64::INFINITY);
        assert_eq!(round_float(DType::BF16, 1e39), f64::INFINITY);
        assert_eq!(round_float(DType::BF16, -1e-50), 0.0);
        assert!(round_float(DType::BF16, -1e-50).is_sign_negative());
        assert!(round_float(DType::BF16, f64::NAN).is_nan());
        // Every f32 beside a tie, against integers.
        for bits in [0x3f80_8001u32, 0x3f81_8000, 0x3f80_8000, 0x3f80_7fff, 0x4049_8001] {
            let near = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff_0000;
            assert_eq!(
                round_float(DType::BF16, f64::from(f32::from_bits(bits))) as f32,
                f32::from_bits(near),
                "{bits:x}"
            );
        }
    }
}
