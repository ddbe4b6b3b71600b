//! Integers of up to 32 bits, each in a lane of 32: sign- or zero-extended, and wrapped to their width after each function.

use super::nest::Width;
use super::small_floats::is_byte_float;
use super::tape::{Recorder, Small, Two, V};
use crate::simd::Simd;
use rlx_ir::DType;
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::elementwise::{Binary, Compare, Unary};

/// What a lane holds of a dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// f32; of halves what they widen to.
    Float,
    /// All bits or none.
    Mask,
    /// i32.
    Int,
    /// A narrower integer.
    Small(Small),
}

impl Lane {
    /// The lane of a dtype; none where it has no machine code.
    pub fn of(dtype: DType) -> Option<Lane> {
        Some(match dtype {
            DType::F32 | DType::F16 | DType::BF16 => Lane::Float,
            d if is_byte_float(d) => Lane::Float,
            DType::Bool => Lane::Mask,
            DType::I32 => Lane::Int,
            DType::I8 => Lane::Small(Small::I8),
            DType::U8 => Lane::Small(Small::U8),
            DType::I16 => Lane::Small(Small::I16),
            DType::U16 => Lane::Small(Small::U16),
            _ => return None,
        })
    }

    /// The lane of what lies in memory: of floats of 8 bits, bytes.
    pub fn stored(dtype: DType) -> Option<Lane> {
        if is_byte_float(dtype) { Some(Lane::Small(Small::U8)) } else { Lane::of(dtype) }
    }

    /// How its elements lie in memory, or in the slot that stands for it.
    pub fn width(self) -> Width {
        match self {
            Lane::Float | Lane::Int => Width::Word,
            Lane::Mask => Width::Mask,
            Lane::Small(small) => Width::Small(small),
        }
    }

    /// The lane of an element's bits.
    pub fn bits(self, bits: u64) -> i32 {
        match self {
            Lane::Float | Lane::Int => bits as i32,
            Lane::Mask => -i32::from(bits != 0),
            Lane::Small(Small::I8) => i32::from(bits as i8),
            Lane::Small(Small::U8) => i32::from(bits as u8),
            Lane::Small(Small::I16) => i32::from(bits as i16),
            Lane::Small(Small::U16) => i32::from(bits as u16),
        }
    }
}

/// What is left of a number in fewer bits.
pub fn wrap(s: Recorder, v: V, lane: Lane) -> V {
    match lane {
        Lane::Small(Small::I8) => s.sar_i::<24>(s.shl_i::<24>(v)),
        Lane::Small(Small::I16) => s.sar_i::<16>(s.shl_i::<16>(v)),
        Lane::Small(Small::U8) => s.and_i(v, s.splat_i(0xff)),
        Lane::Small(Small::U16) => s.and_i(v, s.splat_i(0xffff)),
        _ => v,
    }
}

/// A float truncated and saturated; of NaN 0.
pub fn from_float(s: Recorder, x: V, lane: Lane) -> V {
    // Lanes that are ordered with themselves.
    let x = s.and_i(x, s.two(Two::Compare(7), x, x));
    match lane {
        Lane::Small(small) => {
            let (low, high) = small.range();
            let x = s.max_fast(x, s.splat(low as f32));
            s.to_int(s.min_fast(x, s.splat(high as f32)))
        }
        _ => {
            // Too small a number already becomes the smallest one; too large a one would too.
            let large = s.le(s.splat(2_147_483_648.0), x);
            s.select(large, s.splat_i(i32::MAX), s.to_int(x))
        }
    }
}

/// A function of integers; none where it has no operation here.
pub fn apply(s: Recorder, op: Elementwise, lane: Lane, dtype: DType, args: [Option<V>; 3]) -> Option<V> {
    let a = args[0]?;
    let zero = || s.splat_i(0);
    let above = |x: V, y: V| s.two(Two::GtI, x, y);
    let wide = match op {
        Elementwise::Unary(f) => match f {
            Unary::Neg => s.sub_i(zero(), a),
            Unary::Abs if dtype.is_unsigned() => return Some(a),
            Unary::Abs => s.two(Two::MaxI, a, s.sub_i(zero(), a)),
            Unary::Relu => return Some(s.two(Two::MaxI, a, zero())),
            Unary::Not => s.xor_i(a, s.splat_i(-1)),
            // Masks are −1.
            Unary::Sign => return Some(s.sub_i(above(zero(), a), above(a, zero()))),
            _ => return None,
        },
        Elementwise::Binary(f) => {
            let b = args[1]?;
            match f {
                Binary::Add => s.add_i(a, b),
                Binary::Sub => s.sub_i(a, b),
                Binary::Mul => s.two(Two::MulI, a, b),
                Binary::Min => return Some(s.two(Two::MinI, a, b)),
                Binary::Max => return Some(s.two(Two::MaxI, a, b)),
                Binary::And => return Some(s.and_i(a, b)),
                Binary::Or => return Some(s.or_i(a, b)),
                Binary::Xor => return Some(s.xor_i(a, b)),
                _ => return None,
            }
        }
        Elementwise::Compare(f) => {
            let b = args[1]?;
            return Some(match f {
                Compare::Eq => s.eq_i(a, b),
                Compare::Ne => s.not_m(s.eq_i(a, b)),
                Compare::Lt => above(b, a),
                Compare::Ge => s.not_m(above(b, a)),
                Compare::Gt => above(a, b),
                Compare::Le => s.not_m(above(a, b)),
            });
        }
        Elementwise::Clamp => {
            let least = s.two(Two::MaxI, a, args[1]?);
            return Some(s.two(Two::MinI, least, args[2]?));
        }
        _ => return None,
    };
    Some(wrap(s, wide, lane))
}
