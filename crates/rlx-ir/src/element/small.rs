//! Floats of 8 bits and fewer: how their bits read, and how numbers round to them.

use std::sync::LazyLock;

use crate::dtype::DType;

/// The format of a small float: exponent and mantissa bits, bias, and how its special values are coded.
#[derive(Clone, Copy, Debug)]
pub struct SmallFloat {
    exp: u32,
    man: u32,
    bias: i32,
    /// IEEE style: the top exponent holds infinities and NaNs.
    ieee: bool,
    /// One zero; NaN where −0 would be.
    fnuz: bool,
    /// Has a NaN at all-ones (the `fn` types); false with `ieee` and `fnuz` false means no NaN at all.
    nan_all_ones: bool,
}

/// A power of two within the normal range of f32.
const fn power(e: i32) -> f32 {
    f32::from_bits(((127 + e) as u32) << 23)
}

impl SmallFloat {
    const PLAIN: Self = SmallFloat { exp: 0, man: 0, bias: 0, ieee: false, fnuz: false, nan_all_ones: false };
    /// `f8e4m3fn`.
    pub const E4M3FN: Self = SmallFloat { exp: 4, man: 3, bias: 7, nan_all_ones: true, ..Self::PLAIN };
    /// `f8e4m3fnuz`.
    pub const E4M3FNUZ: Self = SmallFloat { exp: 4, man: 3, bias: 8, fnuz: true, ..Self::PLAIN };
    /// `f8e5m2`.
    pub const E5M2: Self = SmallFloat { exp: 5, man: 2, bias: 15, ieee: true, ..Self::PLAIN };
    /// `f8e5m2fnuz`.
    pub const E5M2FNUZ: Self = SmallFloat { exp: 5, man: 2, bias: 16, fnuz: true, ..Self::PLAIN };
    /// `f4e2m1`.
    pub const E2M1: Self = SmallFloat { exp: 2, man: 1, bias: 1, ..Self::PLAIN };

    /// The format of a dtype; `None` where it is no small float with a sign and a mantissa.
    pub const fn of(dtype: DType) -> Option<Self> {
        Some(match dtype {
            DType::F8E4M3FN => Self::E4M3FN,
            DType::F8E4M3FNUZ => Self::E4M3FNUZ,
            DType::F8E5M2 => Self::E5M2,
            DType::F8E5M2FNUZ => Self::E5M2FNUZ,
            DType::F4E2M1 => Self::E2M1,
            _ => return None,
        })
    }

    /// Exponent of the smallest normal number.
    const fn least(&self) -> i32 {
        1 - self.bias
    }

    /// The largest finite number.
    #[inline]
    pub const fn most(&self) -> f32 {
        let bits = self.max_bits();
        let (e, m) = ((bits >> self.man) as i32 + self.least() - 1, bits & ((1 << self.man) - 1));
        power(e) + m as f32 * power(e - self.man as i32)
    }

    /// Mantissa bits in memory.
    #[inline]
    pub const fn mantissa(&self) -> u32 {
        self.man
    }

    /// The smallest normal number.
    #[inline]
    pub const fn least_normal(&self) -> f32 {
        power(self.least())
    }

    /// Beside this, a subnormal's step is the last place of an f32: adding and subtracting it rounds to that.
    #[inline]
    pub const fn shift(&self) -> f32 {
        power(self.least() - self.man as i32) * 12_582_912.0
    }

    /// What a number too large becomes.
    #[inline]
    pub const fn beyond(&self, saturate: bool) -> f32 {
        match self.nan_bits() {
            _ if saturate => self.most(),
            _ if self.ieee => f32::INFINITY,
            Some(_) => f32::NAN,
            None => self.most(),
        }
    }

    /// Whether zero has no sign.
    #[inline]
    pub const fn has_one_zero(&self) -> bool {
        self.fnuz
    }

    /// The bits of NaN, if there is one.
    #[inline]
    pub const fn not_a_number(&self) -> Option<u8> {
        self.nan_bits()
    }

    /// The bits of infinity, if there is one.
    #[inline]
    pub const fn infinity(&self) -> Option<u8> {
        if self.ieee { Some((((1u32 << self.exp) - 1) << self.man) as u8) } else { None }
    }

    /// What the upper bits of an f32 are less than the bits of a normal number.
    #[inline]
    pub const fn first_normal_code(&self) -> i32 {
        (126 + self.least()) << self.man
    }

    /// A subnormal number times this is its bits.
    #[inline]
    pub const fn codes_of_subnormals(&self) -> f32 {
        power(self.man as i32 - self.least())
    }

    /// Bits at the places of an f32's, times this, are the number.
    #[inline]
    pub const fn unbias(&self) -> f32 {
        power(127 - self.bias)
    }

    /// What [`encode`](Self::encode) makes of an f32, as a number: the same rounding, without branches, for loops over many.
    #[inline(always)]
    pub fn round_f32(&self, x: f32, saturate: bool) -> f32 {
        let (a, cut) = (x.abs(), 23 - self.man);
        let bits = a.to_bits();
        let normal = bits.wrapping_add((1 << (cut - 1)) - 1 + (bits >> cut & 1)) >> cut << cut;
        let subnormal = (a + self.shift()) - self.shift();
        let near = if a < self.least_normal() { subnormal } else { f32::from_bits(normal) };
        let near = if near > self.most() { self.beyond(saturate) } else { near };
        let near = if self.fnuz && near == 0.0 { 0.0 } else { near.copysign(x) };
        let none = if self.nan_bits().is_some() { f32::NAN } else { -0.0 };
        if x.is_nan() { none } else { near }
    }

    /// The bits of a number of the format.
    #[inline(always)]
    pub fn bits_of(&self, x: f32) -> u8 {
        let (a, width) = (x.abs(), self.exp + self.man);
        let normal = (a.to_bits() >> (23 - self.man)).wrapping_sub(self.first_normal_code() as u32);
        // The integer stands in the last places.
        let subnormal = (a * self.codes_of_subnormals() + 8_388_608.0).to_bits() & 0xff;
        let code = if a < self.least_normal() { subnormal } else { normal };
        let code = match self.infinity() {
            Some(bits) if a == f32::INFINITY => bits.into(),
            _ => code,
        };
        let signed = code as u8 | ((x.to_bits() >> 31) as u8) << width;
        let none = match self.nan_bits() {
            Some(bits) => bits,
            None => 1 << width,
        };
        if x.is_nan() { none } else { signed }
    }

    /// What bits stand for.
    pub fn decode(&self, bits: u8) -> f64 {
        let width = self.exp + self.man;
        let neg = bits >> width & 1 == 1;
        let mag = u32::from(bits) & ((1 << width) - 1);
        let e = mag >> self.man;
        let m = mag & ((1 << self.man) - 1);
        let sign = if neg { -1.0 } else { 1.0 };
        if self.fnuz && neg && mag == 0 {
            return f64::NAN;
        }
        if self.ieee && e == (1 << self.exp) - 1 {
            return if m == 0 { sign * f64::INFINITY } else { f64::NAN };
        }
        if self.nan_all_ones && mag == (1 << width) - 1 {
            return f64::NAN;
        }
        let frac = f64::from(m) / f64::from(1u32 << self.man);
        let v = if e == 0 { frac * 2f64.powi(1 - self.bias) } else { (1.0 + frac) * 2f64.powi(e as i32 - self.bias) };
        sign * v
    }

    /// Largest finite magnitude, as bits.
    const fn max_bits(&self) -> u32 {
        let all = (1u32 << (self.exp + self.man)) - 1;
        if self.ieee {
            (((1 << self.exp) - 1) << self.man) - 1
        } else if self.nan_all_ones {
            all - 1
        } else {
            all
        }
    }

    const fn nan_bits(&self) -> Option<u8> {
        let width = self.exp + self.man;
        if self.fnuz {
            Some(1 << width)
        } else if self.ieee {
            // Quiet: the top mantissa bit alone.
            Some(((((1u32 << self.exp) - 1) << self.man) | 1 << (self.man - 1)) as u8)
        } else if self.nan_all_ones {
            Some(((1u32 << width) - 1) as u8)
        } else {
            None
        }
    }

    /// Rounds to nearest even. Overflow goes to the largest finite value when `saturate`, else to infinity or NaN.
    pub fn encode(&self, x: f64, saturate: bool) -> u8 {
        let width = self.exp + self.man;
        let sign = if x.is_sign_negative() { 1u8 << width } else { 0 };
        let max = self.max_bits();
        if x.is_nan() {
            // Types without NaN give −0, as `ml_dtypes` does.
            return self.nan_bits().unwrap_or(1 << width);
        }
        let a = x.abs();
        let over = || -> u8 {
            match self.nan_bits() {
                _ if saturate => sign | max as u8,
                // The first code of the top exponent is infinity.
                _ if self.ieee => sign | ((((1u32 << self.exp) - 1) << self.man) as u8),
                Some(nan) => nan,
                None => sign | max as u8,
            }
        };
        if a.is_infinite() {
            return over();
        }
        // The grid step at this magnitude; below the smallest normal it is that of the subnormals.
        let min_exp = 1 - self.bias;
        let e = if a == 0.0 { min_exp } else { exponent(a).max(min_exp) };
        let step = 2f64.powi(e - self.man as i32);
        let q = (a / step).round_ties_even();
        let mut code = q as u32;
        let mut e = e;
        if code >= 2 << self.man {
            code >>= 1;
            e += 1;
        }
        let bits = if code < 1 << self.man {
            code
        } else {
            (((e - min_exp + 1) as u32) << self.man) + (code - (1 << self.man))
        };
        if bits > max {
            return over();
        }
        if self.fnuz && bits == 0 {
            return 0;
        }
        sign | bits as u8
    }
}

/// Unbiased exponent of a positive finite f64.
fn exponent(a: f64) -> i32 {
    let bits = (a.to_bits() >> 52 & 0x7ff) as i32;
    if bits == 0 { -1023 } else { bits - 1023 }
}

/// An `f8e8m0` power of two, rounded to nearest in the exponent; NaN at 0xff.
fn encode_e8m0(x: f64, saturate: bool) -> u8 {
    if x.is_nan() || x.is_infinite() && !saturate {
        return 0xff;
    }
    let a = x.abs();
    if a == 0.0 {
        return 0;
    }
    if a.is_infinite() {
        return 0xfe;
    }
    let mut e = exponent(a);
    // Ties go up, as the OCP conversion does: the midpoint between 2^e and 2^(e+1) is 1.5 × 2^e.
    if a >= 1.5 * 2f64.powi(e) {
        e += 1;
    }
    let code = e + 127;
    if code > 254 { if saturate { 0xfe } else { 0xff } } else { code.max(0) as u8 }
}

/// What all bits of a float dtype of 8 bits or fewer stand for.
fn values(dtype: DType) -> [f32; 256] {
    let of = |bits: u8| match (SmallFloat::of(dtype), dtype) {
        (Some(format), _) => format.decode(bits),
        (None, DType::F8E8M0) if bits != 0xff => 2f64.powi(i32::from(bits) - 127),
        _ => f64::NAN,
    };
    std::array::from_fn(|bits| of(bits as u8) as f32)
}

/// What the bits of a float dtype of 8 bits or fewer stand for, as a table (f32 holds all of them): NaN throughout for other dtypes.
pub fn small_float_values(dtype: DType) -> &'static [f32; 256] {
    macro_rules! tables {
        ($($d:ident),*) => {
            match dtype {
                $(DType::$d => {
                    static TABLE: LazyLock<[f32; 256]> = LazyLock::new(|| values(DType::$d));
                    &TABLE
                })*
                _ => {
                    static NONE: [f32; 256] = [f32::NAN; 256];
                    &NONE
                }
            }
        };
    }
    tables!(F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0, F4E2M1)
}

/// Reads the bits of one float dtype of 8 bits or fewer.
pub fn decode_small_float(dtype: DType, bits: u8) -> f64 {
    small_float_values(dtype)[usize::from(bits)].into()
}

/// Rounds to a float dtype of 8 bits or fewer. With `saturate`, what overflows becomes the largest finite value.
pub fn encode_small_float(dtype: DType, x: f64, saturate: bool) -> u8 {
    match dtype {
        DType::F8E8M0 => encode_e8m0(x, saturate),
        _ => SmallFloat::of(dtype).map_or(0, |m| m.encode(x, saturate)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every value of every format, what lies between two of them, and their neighbours among f32s.
    #[test]
    fn loops_over_f32_round_as_encode_does() {
        for dtype in [DType::F8E4M3FN, DType::F8E4M3FNUZ, DType::F8E5M2, DType::F8E5M2FNUZ, DType::F4E2M1] {
            let format = SmallFloat::of(dtype).unwrap();
            let mut xs = vec![0.0f32, f32::MAX, f32::MIN_POSITIVE, f32::INFINITY, f32::NAN, 1e-45, 1e9];
            let mut values: Vec<f32> = small_float_values(dtype).iter().copied().filter(|v| !v.is_nan()).collect();
            values.sort_by(f32::total_cmp);
            xs.extend(values.windows(2).flat_map(|w| [w[0], (w[0] + w[1]) / 2.0, w[1], w[1] * 1.5, w[1] * 2.0]));
            let all = xs.iter().flat_map(|&x| {
                [x, f32::from_bits(x.to_bits().wrapping_add(1)), f32::from_bits(x.to_bits().wrapping_sub(1))]
            });
            for x in all.flat_map(|x| [x, -x]) {
                for saturate in [true, false] {
                    let (want, got) = (format.encode(x.into(), saturate), format.round_f32(x, saturate));
                    let value = format.decode(want) as f32;
                    assert!(
                        got.to_bits() == value.to_bits() || got.is_nan() && value.is_nan(),
                        "{dtype} {x} {saturate}: {got}, not {value}"
                    );
                    assert_eq!(format.bits_of(got), want, "{dtype} {x} {saturate}");
                }
            }
        }
    }
}
