//! Evaluation of a dim under a binding.

use super::divide::{ceil_div_i64, floor_div_i64, rem_floor_i64};
use super::{Atom, Dim, DimBinding, DimError, Invalid};

impl Dim {
    /// The value under a binding of its symbols.
    pub fn eval(&self, binding: &DimBinding) -> Result<i64, DimError> {
        check_valid(self)?;
        let overflow = || DimError::Overflow { dim: self.clone() };
        let mut total = self.constant_term();
        for term in self.terms() {
            let mut product = 1i64;
            for (atom, power) in term.factors() {
                let value = atom.eval(binding)?;
                for _ in 0..*power {
                    product = product.checked_mul(value).ok_or_else(overflow)?;
                }
            }
            product = product.checked_mul(term.coefficient()).ok_or_else(overflow)?;
            total = total.checked_add(product).ok_or_else(overflow)?;
        }
        Ok(total)
    }
}

impl Atom {
    /// The value under a binding of its symbols.
    pub(super) fn eval(&self, binding: &DimBinding) -> Result<i64, DimError> {
        let dim = || Dim::from_atom(self.clone());
        let divide =
            |a: &Dim, b: &Dim, f: fn(i64, i64) -> Option<i64>| divide(a.eval(binding)?, b.eval(binding)?, f, dim);
        match self {
            Self::Symbol(symbol) => match binding.get(symbol) {
                Some(value) if value < 0 => Err(DimError::Negative { symbol: symbol.clone(), value }),
                Some(value) => Ok(value),
                None => Err(DimError::Unbound { symbol: symbol.clone(), dim: dim() }),
            },
            Self::FloorDiv(a, b) => divide(a, b, floor_div_i64),
            Self::CeilDiv(a, b) => divide(a, b, ceil_div_i64),
            Self::Mod(a, b) => divide(a, b, rem_floor_i64),
            Self::Min(list) => fold(list, binding, |a, b| Ok(a.min(b))),
            Self::Max(list) => fold(list, binding, |a, b| Ok(a.max(b))),
            Self::Bcast(list) => fold(list, binding, |a, b| broadcast(a, b, dim)),
        }
    }
}

fn fold(list: &[Dim], binding: &DimBinding, f: impl Fn(i64, i64) -> Result<i64, DimError>) -> Result<i64, DimError> {
    let mut result = None;
    for dim in list {
        let value = dim.eval(binding)?;
        result = Some(match result {
            None => value,
            Some(so_far) => f(so_far, value)?,
        });
    }
    // Canonical operand lists have at least two operands; an empty broadcast is 1.
    Ok(result.unwrap_or(1))
}

/// An error for a dim that could not be built.
pub(super) fn check_valid(dim: &Dim) -> Result<(), DimError> {
    match dim.as_invalid() {
        None => Ok(()),
        Some(Invalid::Overflow) => Err(DimError::Overflow { dim: dim.clone() }),
        Some(Invalid::TooLarge) => Err(DimError::TooLarge),
    }
}

/// Divides with errors that name the division.
pub(super) fn divide(a: i64, b: i64, f: fn(i64, i64) -> Option<i64>, dim: impl Fn() -> Dim) -> Result<i64, DimError> {
    f(a, b).ok_or_else(|| match b {
        0 => DimError::DivisionByZero { dim: dim() },
        _ => DimError::Overflow { dim: dim() },
    })
}

/// The broadcast of two sizes.
pub(super) fn broadcast(a: i64, b: i64, dim: impl Fn() -> Dim) -> Result<i64, DimError> {
    match (a, b) {
        (1, size) | (size, 1) => Ok(size),
        _ if a == b => Ok(a),
        _ => Err(DimError::BroadcastMismatch { dim: dim(), left: a, right: b }),
    }
}
