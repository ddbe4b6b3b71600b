//! Errors of evaluating and of parsing dims.

use super::{Dim, Symbol};

/// Why a dim has no value under a binding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DimError {
    /// A symbol has no value.
    #[error("symbol `{symbol}` in `{dim}` has no value; bind it explicitly or pass an input whose shape gives it")]
    Unbound {
        /// The symbol.
        symbol: Symbol,
        /// The expression that needs it.
        dim: Dim,
    },
    /// A symbol was given a negative value.
    #[error("symbol `{symbol}` is {value}, but a size is never negative")]
    Negative {
        /// The symbol.
        symbol: Symbol,
        /// Its value.
        value: i64,
    },
    /// A value left the range of `i64`.
    #[error("`{dim}` does not fit in 64 bits")]
    Overflow {
        /// The expression that overflows.
        dim: Dim,
    },
    /// The expression passed the limits on size or nesting when it was built.
    #[error("a dim expression grew past {max} nodes or {depth} levels", max = super::MAX_SIZE, depth = super::MAX_DEPTH)]
    TooLarge,
    /// A divisor is zero.
    #[error("division by zero in `{dim}`")]
    DivisionByZero {
        /// The division.
        dim: Dim,
    },
    /// Operands of a broadcast differ and neither is 1.
    #[error("sizes {left} and {right} do not broadcast in `{dim}`: they must be equal or one of them 1")]
    BroadcastMismatch {
        /// The broadcast.
        dim: Dim,
        /// The size so far.
        left: i64,
        /// The size that does not fit.
        right: i64,
    },
    /// A program was given the wrong number of symbol values.
    #[error("the dim program takes {expected} symbol values, but {found} were given")]
    ValueCount {
        /// Number of input symbols.
        expected: usize,
        /// Number of values given.
        found: usize,
    },
}

/// Why a text is no dim expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} at byte {offset}")]
pub struct DimParseError {
    /// Byte offset into the text.
    pub offset: usize,
    /// What is wrong there.
    pub message: String,
}
