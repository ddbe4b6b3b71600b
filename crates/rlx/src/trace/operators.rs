//! `+ - * / %` and unary `-` of traced values and numbers, `& | !` of traced booleans and integers.

use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Rem, Sub};
use std::panic::Location;

use rlx_ir::{Builder, IrError, ValueId};

use super::tracer::Traced;

/// A number as a literal of a value's dtype, if the dtype has it.
pub(super) fn literal(b: &mut Builder, like: ValueId, number: f64) -> Result<ValueId, IrError> {
    let dtype = b.dtype(like)?;
    let whole = number.fract() == 0.0 && dtype.int_range().is_none_or(|(lo, hi)| (lo..=hi).contains(&(number as i128)));
    if !dtype.is_float() && !dtype.is_complex() && !whole {
        let why = format!("{number} is no {dtype}; convert the other operand first");
        return Err(b.refuse("literal", &[like], rlx_ir::OpError::new(why)));
    }
    b.scalar_like(like, number)
}

// One float and one integer type, so that the type of a literal is never in doubt.
macro_rules! operators {
    ($($trait:ident $method:ident $op:ident);* $(;)?) => { $(
        operators!(@value $trait $method $op);
        operators!(@number $trait $method $op f64 i64);
    )* };
    (@value $trait:ident $method:ident $op:ident) => {
        impl<'t> $trait for Traced<'t> {
            type Output = Traced<'t>;
            #[track_caller]
            fn $method(self, other: Traced<'t>) -> Traced<'t> {
                self.tracer.record(Location::caller(), &[self, other], |b, x| b.$op(x[0], x[1]))
            }
        }
    };
    (@number $trait:ident $method:ident $op:ident $($number:ty)*) => { $(
        impl<'t> $trait<$number> for Traced<'t> {
            type Output = Traced<'t>;
            #[track_caller]
            fn $method(self, number: $number) -> Traced<'t> {
                self.tracer.record(Location::caller(), &[self], |b, x| {
                    let n = literal(b, x[0], number as f64)?;
                    b.$op(x[0], n)
                })
            }
        }

        impl<'t> $trait<Traced<'t>> for $number {
            type Output = Traced<'t>;
            #[track_caller]
            fn $method(self, other: Traced<'t>) -> Traced<'t> {
                other.tracer.record(Location::caller(), &[other], |b, x| {
                    let n = literal(b, x[0], self as f64)?;
                    b.$op(n, x[0])
                })
            }
        }
    )* };
}

operators! {
    Add add add;
    Sub sub sub;
    Mul mul mul;
    Div div div;
    Rem rem rem;
}

impl<'t> Neg for Traced<'t> {
    type Output = Traced<'t>;
    #[track_caller]
    fn neg(self) -> Traced<'t> {
        self.tracer.record(Location::caller(), &[self], |b, x| b.neg(x[0]))
    }
}

operators!(@value BitAnd bitand and);
operators!(@value BitOr bitor or);

/// Complement; logical for booleans.
impl<'t> Not for Traced<'t> {
    type Output = Traced<'t>;
    #[track_caller]
    fn not(self) -> Traced<'t> {
        self.tracer.record(Location::caller(), &[self], |b, x| b.not(x[0]))
    }
}
