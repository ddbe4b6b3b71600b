//! From an elementwise op and its dtypes to the loop that runs it.

use super::loops::{Args, OpFn, op};
use super::{Work, complex, convert, f32, f64, int};
use crate::simd::{UnaryF32, unary_f32_raw};
use rlx_ir::DType;
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::elementwise::Binary;
use rlx_ir::ops::reduction::ReduceKind;

/// What runs an instruction.
#[derive(Clone, Copy)]
pub enum Run {
    /// A vector function.
    Unary(UnaryF32),
    /// A loop.
    Loop(OpFn),
    /// A conversion element by element.
    Convert {
        /// Dtype of the operand.
        from: DType,
        /// Dtype of the result.
        to: DType,
        /// Whether small floats saturate.
        saturate: bool,
    },
    /// The operand itself.
    Copy,
}

impl Run {
    /// Runs it.
    /// # Safety
    /// See [`Args`]; the types are those that it was resolved for.
    #[inline]
    pub unsafe fn call(&self, x: &Args) {
        // SAFETY: passes the caller's promise on; operand and result are equal or disjoint.
        unsafe {
            match *self {
                Run::Unary(f) => unary_f32_raw(f, x.isa, x.a[0].cast(), x.y.cast(), x.n),
                Run::Loop(f) => f(x),
                Run::Convert { from, to, saturate } => convert::slow(x, from, to, saturate),
                Run::Copy => {}
            }
        }
    }
}

/// The loop of an op on operands of these dtypes, and which operands may be one element for a whole block (bit i for
/// operand i). `None` where the op does not take the dtypes.
pub fn resolve(op: &Elementwise, args: &[DType], out: DType) -> Option<(Run, u8)> {
    if op.arity() != args.len() || op.result_dtype(args).ok()? != out {
        return None;
    }
    let dtype = *args.last()?;
    let work = Work::of(dtype)?;
    let plain = |f: OpFn| Some((Run::Loop(f), 0u8));
    match *op {
        Elementwise::Unary(f) => match work {
            Work::F32 => match f32::unary(f) {
                Some(u) => Some((Run::Unary(u), 0)),
                None => plain(f32::predicate(f)?),
            },
            Work::F64 => plain(f64::unary(f)?),
            Work::Complex => plain(complex::unary(f)?),
            _ => plain(int::unary(f, dtype)?),
        },
        Elementwise::Binary(f) => match work {
            Work::F32 => Some((Run::Loop(f32::binary(f)?), 3)),
            Work::F64 => plain(f64::binary(f)?),
            Work::Complex => plain(complex::binary(f)?),
            _ => plain(int::binary(f, work)?),
        },
        Elementwise::Compare(f) => match work {
            Work::F32 => plain(f32::compare(f)),
            Work::F64 => plain(f64::compare(f)),
            Work::Complex => plain(complex::compare(f)?),
            _ => plain(int::compare(f, work)?),
        },
        Elementwise::Clamp => match work {
            Work::F32 => Some((Run::Loop(f32::clamp()), 6)),
            Work::F64 => plain(f64::clamp()),
            _ => plain(int::clamp(work)?),
        },
        Elementwise::Select => plain(match work.size() {
            1 => op!(map3, u8, u8, u8; |c, a, b| if c != 0 { a } else { b }),
            2 => op!(map3, u8, u16, u16; |c, a, b| if c != 0 { a } else { b }),
            4 => op!(map3, u8, u32, u32; |c, a, b| if c != 0 { a } else { b }),
            8 => op!(map3, u8, u64, u64; |c, a, b| if c != 0 { a } else { b }),
            _ => op!(map3, u8, [u64; 2], [u64; 2]; |c, a, b| if c != 0 { a } else { b }),
        }),
        Elementwise::Convert { to, saturate } => {
            if to == dtype {
                return Some((Run::Copy, 0));
            }
            match convert::fast(dtype, to, saturate) {
                Some(f) => plain(f),
                None => Some((Run::Convert { from: dtype, to, saturate }, 0)),
            }
        }
    }
}

/// The loop that combines two blocks lane by lane as a reduction does.
pub fn lanes(kind: ReduceKind, work: Work) -> Option<OpFn> {
    let f = match kind {
        ReduceKind::Sum => Binary::Add,
        ReduceKind::Prod => Binary::Mul,
        ReduceKind::Min => Binary::Min,
        ReduceKind::Max => Binary::Max,
        ReduceKind::Any => Binary::Or,
        ReduceKind::All => Binary::And,
    };
    match work {
        Work::F32 => f32::binary(f),
        Work::F64 => f64::binary(f),
        Work::Complex => complex::binary(f),
        _ => int::binary(f, work),
    }
}
