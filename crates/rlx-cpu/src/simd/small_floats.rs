//! What floats of 8 bits stand for, in lanes: the same numbers as [`rlx_ir::element`]'s tables.

use super::{Isa, Kernel, Simd, dispatch};
use rlx_ir::DType;
use rlx_ir::element::SmallFloat;

/// The format of a dtype of 8 bits with a sign and a mantissa.
pub fn byte_format(dtype: DType) -> Option<SmallFloat> {
    SmallFloat::of(dtype).filter(|_| dtype.bits() == 8)
}

/// The numbers that bytes of a format stand for, a byte a lane.
#[inline(always)]
pub fn decode_byte_floats<S: Simd>(s: S, f: SmallFloat, code: S::I) -> S::F {
    let byte = |bits: u8| s.splat_i(bits.into());
    let magnitude = s.and_i(code, byte(0x7f));
    let up = match f.mantissa() {
        3 => s.shl_i::<20>(magnitude),
        _ => s.shl_i::<21>(magnitude),
    };
    // Exponents differ by the biases; what is subnormal here is so there.
    let number = s.mul(s.from_bits(up), s.splat(f.unbias()));
    let sign = s.shl_i::<24>(s.and_i(code, byte(0x80)));
    let signed = s.from_bits(s.or_i(s.bits(number), sign));
    let nan = s.splat(f32::NAN);
    if let Some(infinity) = f.infinity() {
        let is_top = s.eq_i(s.and_i(magnitude, byte(infinity)), byte(infinity));
        let is_whole = s.eq_i(magnitude, byte(infinity));
        let infinite = s.from_bits(s.or_i(s.bits(s.splat(f32::INFINITY)), sign));
        return s.select(is_top, s.select(is_whole, infinite, nan), signed);
    }
    let special = |bits: u8, rest: S::F| s.select(s.eq_i(code, byte(bits)), nan, rest);
    match f.not_a_number() {
        // Where −0 would be.
        Some(0x80) => special(0x80, signed),
        Some(bits) => special(bits, special(bits | 0x80, signed)),
        None => signed,
    }
}

/// Widens `n` bytes of a format that lie side by side.
/// # Safety
/// `from` and `to` hold `n` elements.
pub unsafe fn widen_byte_floats(isa: Isa, format: SmallFloat, from: *const u8, to: *mut f32, n: usize) {
    dispatch(isa, Widen { format, from, to, n });
}

struct Widen {
    format: SmallFloat,
    from: *const u8,
    to: *mut f32,
    n: usize,
}

impl Kernel for Widen {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the maker answers for `n` elements on both sides; vectors stay within them, or within the part.
        unsafe {
            let mut i = 0;
            while i + S::W <= self.n {
                s.store(self.to.add(i), decode_byte_floats(s, self.format, s.load_u8(self.from.add(i))));
                i += S::W;
            }
            if i < self.n {
                let mut part = [0u8; super::MAX_W];
                std::ptr::copy_nonoverlapping(self.from.add(i), part.as_mut_ptr(), self.n - i);
                let numbers = decode_byte_floats(s, self.format, s.load_u8(part.as_ptr()));
                s.store_partial(self.to.add(i), numbers, self.n - i);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_ir::element::small_float_values;

    #[test]
    fn every_byte_is_its_number_at_every_level() {
        for d in [DType::F8E4M3FN, DType::F8E4M3FNUZ, DType::F8E5M2, DType::F8E5M2FNUZ] {
            let codes: Vec<u8> = (0..=255).collect();
            for isa in super::super::levels() {
                for n in [0, 1, 7, 8, 9, 15, 17, 33, 256] {
                    let (mut to, from) = (vec![-1.0f32; n + 1], &codes[256 - n..]);
                    let format = SmallFloat::of(d).unwrap();
                    // SAFETY: both hold `n` elements.
                    unsafe { widen_byte_floats(isa, format, from.as_ptr(), to.as_mut_ptr(), n) };
                    for (x, &code) in to.iter().zip(from) {
                        let want = small_float_values(d)[usize::from(code)];
                        let same = x.to_bits() == want.to_bits() || x.is_nan() && want.is_nan();
                        assert!(same, "{d} {code:#x} on {isa:?}: {x}, not {want}");
                    }
                    assert_eq!(to[n], -1.0);
                }
            }
        }
    }
}
