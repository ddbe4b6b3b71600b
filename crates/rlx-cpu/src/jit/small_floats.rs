//! Floats of 8 bits: numbers in lanes of f32, made of the bytes that memory holds and made bytes again. The same bits as
//! [`rlx_ir::element`]'s loops.

use super::tape::{Recorder, Two, V};
use crate::simd::{Simd, byte_format, decode_byte_floats};
use rlx_ir::DType;
use rlx_ir::element::SmallFloat;

/// Whether a dtype is one of these: in memory an integer of 8 bits.
pub fn is_byte_float(dtype: DType) -> bool {
    dtype == DType::F8E8M0 || byte_format(dtype).is_some()
}

fn down(s: Recorder, f: SmallFloat, v: V) -> V {
    match f.mantissa() {
        3 => s.sar_i::<20>(v),
        _ => s.sar_i::<21>(v),
    }
}

/// A magnitude plus what carries to the format's last place where it is to be rounded up, to nearest even: cut off there, it is rounded.
fn carried(s: Recorder, f: SmallFloat, a: V) -> V {
    let odd = s.and_i(down(s, f, a), s.splat_i(1));
    let cut = 23 - f.mantissa();
    s.add_i(a, s.add_i(odd, s.splat_i((1 << (cut - 1)) - 1)))
}

/// The number that bytes stand for.
pub fn decode(s: Recorder, dtype: DType, code: V) -> Option<V> {
    let Some(f) = byte_format(dtype) else {
        let normal = s.select(s.eq_i(code, s.splat_i(0)), s.splat_i(0x0040_0000), s.shl_i::<23>(code));
        return (dtype == DType::F8E8M0).then(|| s.select(s.eq_i(code, s.splat_i(0xff)), s.splat(f32::NAN), normal));
    };
    Some(decode_byte_floats(s, f, code))
}

/// A number rounded to a format.
pub fn round(s: Recorder, dtype: DType, x: V, saturate: bool) -> Option<V> {
    let f = byte_format(dtype)?;
    let a = s.abs(x);
    let normal = s.and_i(carried(s, f, a), s.splat_i(!((1 << (23 - f.mantissa())) - 1)));
    let shift = s.splat(f.shift());
    let subnormal = s.sub(s.add(a, shift), shift);
    let near = s.select(s.lt(a, s.splat(f.least_normal())), subnormal, normal);
    let near = s.select(s.lt(s.splat(f.most()), near), s.splat(f.beyond(saturate)), near);
    let signed = s.or_i(near, s.and_i(x, s.splat_i(i32::MIN)));
    let signed = if f.has_one_zero() { s.select(s.eq(near, s.splat(0.0)), s.splat(0.0), signed) } else { signed };
    let none = if f.not_a_number().is_some() { f32::NAN } else { -0.0 };
    Some(s.select(s.is_nan(x), s.splat(none), signed))
}

/// The bytes of numbers of a format.
pub fn encode(s: Recorder, dtype: DType, x: V) -> Option<V> {
    let f = byte_format(dtype)?;
    let a = s.abs(x);
    let normal = s.sub_i(down(s, f, a), s.splat_i(f.first_normal_code()));
    let scaled = s.add(s.mul(a, s.splat(f.codes_of_subnormals())), s.splat(8_388_608.0));
    let subnormal = s.and_i(scaled, s.splat_i(0xff));
    let code = s.select(s.lt(a, s.splat(f.least_normal())), subnormal, normal);
    let code = match f.infinity() {
        Some(bits) => s.select(s.eq(a, s.splat(f32::INFINITY)), s.splat_i(bits.into()), code),
        None => code,
    };
    let signed = s.or_i(code, s.and_i(s.sar_i::<24>(x), s.splat_i(0x80)));
    let none = f.not_a_number().unwrap_or(0x80);
    Some(s.select(s.is_nan(x), s.splat_i(none.into()), signed))
}

/// The bytes of numbers rounded to a format: what [`encode`] makes of what [`round`] does, in fewer steps.
pub fn encode_rounded(s: Recorder, dtype: DType, x: V, saturate: bool) -> Option<V> {
    let f = byte_format(dtype)?;
    let a = s.abs(x);
    let normal = s.sub_i(down(s, f, carried(s, f, a)), s.splat_i(f.first_normal_code()));
    // Rounded by the addition; what becomes normal has the next code.
    let scaled = s.add(s.mul(a, s.splat(f.codes_of_subnormals())), s.splat(8_388_608.0));
    let subnormal = s.and_i(scaled, s.splat_i(0xff));
    let code = s.select(s.lt(a, s.splat(f.least_normal())), subnormal, normal);
    let (most, beyond) = (i32::from(f.bits_of(f.most())), f.beyond(saturate));
    let (code, no_number) = if beyond == f.most() {
        (s.two(Two::MinI, code, s.splat_i(most)), s.is_nan(x))
    } else {
        let is_beyond = s.two(Two::GtI, code, s.splat_i(most));
        match f.infinity().filter(|_| !beyond.is_nan()) {
            Some(infinity) => (s.select(is_beyond, s.splat_i(infinity.into()), code), s.is_nan(x)),
            None => (code, s.or_i(is_beyond, s.is_nan(x))),
        }
    };
    let sign = s.and_i(s.sar_i::<24>(x), s.splat_i(0x80));
    let signed = s.or_i(code, sign);
    let signed = if f.has_one_zero() { s.select(s.eq_i(code, s.splat_i(0)), code, signed) } else { signed };
    let none = f.not_a_number().unwrap_or(0x80);
    Some(s.select(no_number, s.splat_i(none.into()), signed))
}
