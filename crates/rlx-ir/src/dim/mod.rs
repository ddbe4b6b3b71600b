//! Symbolic integer dimension expressions.
//!
//! A [`Dim`] is an integer expression over [`Symbol`]s in canonical form: a sum of integer coefficients times
//! products of atoms with powers, where an [`Atom`] is a symbol or one of floordiv, ceildiv, mod, min, max, bcast.
//! Two dims are `==` when their canonical forms are the same; [`Dim::known_eq`] decides more by bounds. There is no
//! general prover: what the fixed rules below cannot decide becomes a [`Constraint`] that is checked at bind.
//!
//! # Invariants
//!
//! * Every symbol is ≥ 0. [`Bounds`] may narrow a symbol further, never widen it. A dim may have any `i64` value.
//! * A dim is immutable, cheap to clone, and limited in size and nesting ([`MAX_SIZE`], [`MAX_DEPTH`]), so that
//!   printing, evaluating and dropping it are bounded. Passing a limit, or a constant that leaves `i64`, gives an
//!   [`Invalid`] dim, which absorbs everything and evaluates to an error. No constructor panics.
//! * Simplified and unsimplified expressions have the same value wherever both evaluate. A simplified one may
//!   evaluate where the other divides by zero, overflows or fails to broadcast, never the reverse except by
//!   overflow of a reordered sum.
//!
//! # Rules
//!
//! Sums and products: constants fold, products distribute over sums, equal terms collect, terms stand in graded
//! lexicographic order (higher degree first, symbols before other atoms); `n·min(1, n)` is `n` for a symbol n.
//!
//! Division `a / b`, for floordiv, ceildiv and mod alike:
//! 1. constants fold; `0 / b` is 0; division by 1 disappears; division by the constant 0 stays and fails on evaluation;
//! 2. the sign moves to the numerator: `a / -b` is `-a / b`;
//! 3. an exact polynomial quotient is that quotient: `(a·s + a) / (s + 1)` is `a`;
//! 4. where `b` is a single term, multiples of it leave the numerator: `(c·a + r) / c` is `a + r / c`;
//! 5. common factors, numeric and symbolic, cancel: `(b·s·5) / (b·2)` is `(5·s) / 2`. This takes cancelled symbols as
//!    non-zero, which changes nothing except that a division by zero is not reported;
//! 6. `0 ≤ a < b` by bounds: floordiv is 0 and mod is `a`; `1 ≤ a ≤ b`: ceildiv is 1;
//! 7. for a constant `c > 0` (below 2³¹ where the numerator grows): `a ceildiv c` is `(a + c - 1) floordiv c`; `(g·x + k) floordiv (g·c)` is
//!    `(x + k floordiv g) floordiv c`; `(y + x floordiv a) floordiv c` is `(a·y + x) floordiv (a·c)`;
//!    coefficients under `mod c` are reduced to `0..c`, and `(g·x + k) mod (g·c)` is
//!    `g·((x + k floordiv g) mod c) + k mod g`.
//!
//! min and max: nested ones flatten, equal operands collapse, an operand that another one provably beats (by bounds of
//! the difference) disappears.
//!
//! bcast: nested ones flatten, equal operands and the constant 1 disappear, and a constant other than 1 is the result
//! (that the other operands fit it is a [`Constraint::Broadcastable`], which the caller records); `bcast(a, min(a, 32))` is `a`.

mod arith;
mod binding;
mod bounds;
mod constraint;
mod divide;
mod error;
mod eval;
mod expr;
mod monomial;
mod parse;
mod print;
mod program;
mod simplify;
mod solve;
mod symbol;

#[cfg(test)]
mod tests;

pub use binding::DimBinding;
pub use bounds::{Bounds, Interval};
pub use constraint::{Constraint, ConstraintRecord, ConstraintViolation};
pub use error::{DimError, DimParseError};
pub use expr::{Atom, Dim, Invalid, MAX_DEPTH, MAX_SIZE, Term};
pub use program::DimProgram;
pub use solve::{Equation, SolveError, solve, unsolved};
pub use symbol::Symbol;
