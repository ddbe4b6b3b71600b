//! Instructions on integers and booleans. Arithmetic wraps; division by zero gives 0.

use super::Work;
use super::loops::{OpFn, op};
use rlx_ir::DType;
use rlx_ir::ops::elementwise::{Binary, Compare, Unary};

/// Loops at the block's instruction set for the types that matter, at the baseline for the others: every loop is
/// compiled once for each set.
macro_rules! int_type {
    ($module:ident, $t:ident, $map1:ident, $map2:ident, $map3:ident) => {
        mod $module {
            use super::*;

            fn rem_floor(a: $t, b: $t) -> $t {
                if b == 0 {
                    return 0;
                }
                let r = a.wrapping_rem(b);
                // Never true for unsigned types.
                #[allow(unused_comparisons)]
                let crosses = r != 0 && (r < 0) != (b < 0);
                if crosses { r.wrapping_add(b) } else { r }
            }

            fn pow(base: $t, exp: $t) -> $t {
                #[allow(unused_comparisons)]
                if exp < 0 {
                    // The truncated reciprocal: only 1 and −1 have one that is not 0.
                    return match base {
                        1 => 1,
                        b if b == (0 as $t).wrapping_sub(1) => if exp & 1 == 0 { 1 } else { b },
                        _ => 0,
                    };
                }
                let (mut result, mut square, mut e) = (1 as $t, base, exp);
                while e != 0 {
                    if e & 1 == 1 {
                        result = result.wrapping_mul(square);
                    }
                    square = square.wrapping_mul(square);
                    e >>= 1;
                }
                result
            }

            fn shift_left(a: $t, by: $t) -> $t {
                match u32::try_from(by) {
                    Ok(by) => a.checked_shl(by).unwrap_or(0),
                    Err(_) => 0,
                }
            }

            fn shift_right(a: $t, by: $t) -> $t {
                #[allow(unused_comparisons)]
                let past: $t = if a < 0 { (0 as $t).wrapping_sub(1) } else { 0 };
                match u32::try_from(by) {
                    Ok(by) => a.checked_shr(by).unwrap_or(past),
                    Err(_) => past,
                }
            }

            pub fn binary(f: Binary) -> Option<OpFn> {
                Some(match f {
                    Binary::Min => op!($map2, $t, $t; |a, b| if b < a { b } else { a }),
                    Binary::Max => op!($map2, $t, $t; |a, b| if b > a { b } else { a }),
                    Binary::Div => op!(plain2, $t, $t; |a, b| if b == 0 { 0 } else { a.wrapping_div(b) }),
                    Binary::Rem => op!(plain2, $t, $t; |a, b| if b == 0 { 0 } else { a.wrapping_rem(b) }),
                    Binary::Mod => op!(plain2, $t, $t; rem_floor),
                    Binary::Pow => op!(plain2, $t, $t; pow),
                    Binary::ShiftLeft => op!(plain2, $t, $t; shift_left),
                    Binary::ShiftRight => op!(plain2, $t, $t; shift_right),
                    _ => return None,
                })
            }

            pub fn compare(f: Compare) -> Option<OpFn> {
                Some(match f {
                    Compare::Lt => op!($map2, $t, u8; |a, b| u8::from(a < b)),
                    Compare::Le => op!($map2, $t, u8; |a, b| u8::from(a <= b)),
                    Compare::Gt => op!($map2, $t, u8; |a, b| u8::from(a > b)),
                    Compare::Ge => op!($map2, $t, u8; |a, b| u8::from(a >= b)),
                    Compare::Eq | Compare::Ne => return None,
                })
            }

            pub fn unary(f: Unary) -> Option<OpFn> {
                Some(match f {
                    Unary::Neg => op!($map1, $t, $t; |a| a.wrapping_neg()),
                    #[allow(unused_comparisons)]
                    Unary::Abs => op!($map1, $t, $t; |a| if a < 0 { a.wrapping_neg() } else { a }),
                    #[allow(unused_comparisons)]
                    Unary::Sign => op!($map1, $t, $t; |a| if a < 0 { (0 as $t).wrapping_sub(1) } else { <$t>::from(a != 0) }),
                    #[allow(unused_comparisons)]
                    Unary::Relu => op!($map1, $t, $t; |a| if a < 0 { 0 } else { a }),
                    Unary::Not => op!($map1, $t, $t; |a| !a),
                    Unary::Popcnt => op!($map1, $t, $t; |a| a.count_ones() as $t),
                    _ => return None,
                })
            }

            pub fn clamp() -> OpFn {
                op!($map3, $t, $t, $t; |x, lo, hi| {
                    let x = if x < lo { lo } else { x };
                    if x > hi { hi } else { x }
                })
            }
        }
    };
}

int_type!(on_i8, i8, plain1, plain2, plain3);
int_type!(on_i16, i16, plain1, plain2, plain3);
int_type!(on_i32, i32, map1, map2, map3);
int_type!(on_i64, i64, map1, map2, map3);
int_type!(on_u8, u8, map1, map2, map3);
int_type!(on_u16, u16, plain1, plain2, plain3);
int_type!(on_u32, u32, plain1, plain2, plain3);
int_type!(on_u64, u64, plain1, plain2, plain3);

/// What is the same for signed and unsigned integers.
macro_rules! bits_type {
    ($module:ident, $t:ident) => {
        mod $module {
            use super::*;

            pub fn binary(f: Binary) -> Option<OpFn> {
                Some(match f {
                    Binary::Add => op!(map2, $t, $t; |a, b| a.wrapping_add(b)),
                    Binary::Sub => op!(map2, $t, $t; |a, b| a.wrapping_sub(b)),
                    Binary::Mul => op!(map2, $t, $t; |a, b| a.wrapping_mul(b)),
                    Binary::And => op!(map2, $t, $t; |a, b| a & b),
                    Binary::Or => op!(map2, $t, $t; |a, b| a | b),
                    Binary::Xor => op!(map2, $t, $t; |a, b| a ^ b),
                    _ => return None,
                })
            }

            pub fn compare(f: Compare) -> Option<OpFn> {
                Some(match f {
                    Compare::Eq => op!(map2, $t, u8; |a, b| u8::from(a == b)),
                    Compare::Ne => op!(map2, $t, u8; |a, b| u8::from(a != b)),
                    _ => return None,
                })
            }
        }
    };
}

bits_type!(bits8, u8);
bits_type!(bits16, u16);
bits_type!(bits32, u32);
bits_type!(bits64, u64);

macro_rules! by_type {
    ($work:expr, $f:ident ( $($arg:expr),* ), $wrap:expr) => {
        match $work {
            Work::I8 => $wrap(on_i8::$f($($arg),*)),
            Work::I16 => $wrap(on_i16::$f($($arg),*)),
            Work::I32 => $wrap(on_i32::$f($($arg),*)),
            Work::I64 => $wrap(on_i64::$f($($arg),*)),
            Work::U8 | Work::Bool => $wrap(on_u8::$f($($arg),*)),
            Work::U16 => $wrap(on_u16::$f($($arg),*)),
            Work::U32 => $wrap(on_u32::$f($($arg),*)),
            Work::U64 => $wrap(on_u64::$f($($arg),*)),
            Work::F32 | Work::F64 | Work::Complex => None,
        }
    };
}

macro_rules! by_width {
    ($work:expr, $f:ident ( $arg:expr )) => {
        match $work.size() {
            1 => bits8::$f($arg),
            2 => bits16::$f($arg),
            4 => bits32::$f($arg),
            _ => bits64::$f($arg),
        }
    };
}

/// The loop of a function of two operands.
pub fn binary(f: Binary, work: Work) -> Option<OpFn> {
    by_width!(work, binary(f)).or_else(|| by_type!(work, binary(f), |x| x))
}

/// The loop of a comparison.
pub fn compare(f: Compare, work: Work) -> Option<OpFn> {
    by_width!(work, compare(f)).or_else(|| by_type!(work, compare(f), |x| x))
}

/// The loop of `clamp`.
pub fn clamp(work: Work) -> Option<OpFn> {
    by_type!(work, clamp(), Some)
}

/// The loop of a function of one operand.
pub fn unary(f: Unary, dtype: DType) -> Option<OpFn> {
    let work = Work::of(dtype)?;
    match (f, dtype) {
        (Unary::Not, DType::Bool) => Some(op!(map1, u8, u8; |a| u8::from(a == 0))),
        (Unary::Popcnt, DType::I4) => Some(op!(map1, u8, u8; |a| (a & 15).count_ones() as u8)),
        (Unary::Popcnt, DType::I2) => Some(op!(map1, u8, u8; |a| (a & 3).count_ones() as u8)),
        _ => by_type!(work, unary(f), |x| x),
    }
}
