//! The tile machine: runs scalar programs over blocks of elements.
//!
//! Each instruction is one loop over a block that stays in the nearest cache; its values lie in *slots*, buffers of a
//! block each. The loops are plain Rust or [`crate::simd`] bodies, instantiated for every instruction set. A program is
//! compiled once ([`Code`]); which of its values are uniform over a block, and where operands can be read in place,
//! is known when sizes are ([`machine`]).
//!
//! Every dtype has a *working type* ([`Work`]) that its values have in slots. After each instruction the value is
//! rounded to the instruction's dtype ([`Round`]): f16 and bf16 are computed in f32 and rounded to nearest even at once,
//! so that a fused program gives bit for bit what separate kernels would.

pub mod code;
mod complex;
pub mod convert;
pub mod f32;
mod f64;
mod int;
pub mod io;
pub mod loops;
pub mod machine;
pub mod reduce;
pub mod resolve;
pub mod scratch;

use rlx_ir::DType;

pub use code::Code;
pub use machine::Machine;

/// Elements in a block of a map.
pub const BLOCK: usize = 512;
/// Elements of a row that is kept whole; longer rows are passed over in blocks of this size.
pub const ROW_BLOCK: usize = 4096;

/// The type that a dtype's values have in slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// f32, f16, bf16.
    F32,
    /// f64 and the floats of 8 and 4 bits.
    F64,
    /// i8 and narrower.
    I8,
    /// i16.
    I16,
    /// i32.
    I32,
    /// i64.
    I64,
    /// u8 and narrower.
    U8,
    /// u16.
    U16,
    /// u32.
    U32,
    /// u64.
    U64,
    /// 0 or 1 in a byte.
    Bool,
    /// Pairs of f64.
    Complex,
}

impl Work {
    /// The working type of a dtype; none for strings.
    pub fn of(dtype: DType) -> Option<Work> {
        Some(match dtype {
            DType::F32 | DType::F16 | DType::BF16 => Work::F32,
            DType::I8 | DType::I4 | DType::I2 => Work::I8,
            DType::U8 | DType::U4 | DType::U2 => Work::U8,
            DType::I16 => Work::I16,
            DType::I32 => Work::I32,
            DType::I64 => Work::I64,
            DType::U16 => Work::U16,
            DType::U32 => Work::U32,
            DType::U64 => Work::U64,
            DType::Bool => Work::Bool,
            DType::C64 | DType::C128 => Work::Complex,
            DType::Str => return None,
            _ => Work::F64,
        })
    }

    /// Bytes of an element.
    pub const fn size(self) -> usize {
        match self {
            Work::I8 | Work::U8 | Work::Bool => 1,
            Work::I16 | Work::U16 => 2,
            Work::F32 | Work::I32 | Work::U32 => 4,
            Work::F64 | Work::I64 | Work::U64 => 8,
            Work::Complex => 16,
        }
    }

    /// True if memory of the dtype can be read and written as it is. Booleans are made 0 or 1 when read.
    pub fn is_storage(dtype: DType) -> bool {
        matches!(
            dtype,
            DType::F32
                | DType::F64
                | DType::I8
                | DType::I16
                | DType::I32
                | DType::I64
                | DType::U8
                | DType::U16
                | DType::U32
                | DType::U64
                | DType::C128
        )
    }
}

/// How a value in its working type becomes one that its dtype has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// It is one.
    None,
    /// Rounded to binary16.
    F16,
    /// Rounded to bfloat16.
    BF16,
    /// Rounded to a float of 8 or 4 bits, saturating.
    Small(DType),
    /// Wrapped to an integer of fewer than 8 bits.
    Wrap(DType),
    /// Both parts rounded to f32.
    C64,
}

impl Round {
    /// The rounding of a dtype.
    pub fn of(dtype: DType) -> Round {
        match dtype {
            DType::F16 => Round::F16,
            DType::BF16 => Round::BF16,
            DType::C64 => Round::C64,
            DType::I2 | DType::I4 | DType::U2 | DType::U4 => Round::Wrap(dtype),
            d if d.is_float() && d.bits() <= 8 => Round::Small(dtype),
            _ => Round::None,
        }
    }
}
