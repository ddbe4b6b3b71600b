//! Facts about dims that could not be decided when a graph was built and are checked at bind.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::eval::broadcast;
use super::{Bounds, Dim, DimBinding, DimError};

/// A fact about two dims that an op needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Constraint {
    /// The two are equal.
    Eq(Dim, Dim),
    /// The two are equal or one of them is 1.
    Broadcastable(Dim, Dim),
    /// The first is at most the second.
    Le(Dim, Dim),
    /// The first is a multiple of the second; 0 divides only 0.
    Divisible(Dim, Dim),
}

impl Constraint {
    /// The two dims.
    pub fn dims(&self) -> (&Dim, &Dim) {
        match self {
            Self::Eq(a, b) | Self::Broadcastable(a, b) | Self::Le(a, b) | Self::Divisible(a, b) => (a, b),
        }
    }

    /// Whether it holds for all symbol values (true), for none (false), or must be checked.
    pub fn decide(&self) -> Option<bool> {
        self.decide_with(&Bounds::new())
    }

    /// [`Constraint::decide`] under bounds of symbols.
    pub fn decide_with(&self, bounds: &Bounds) -> Option<bool> {
        let one = Dim::ONE;
        match self {
            Self::Eq(a, b) => a.known_eq_with(b, bounds),
            Self::Le(a, b) => a.known_le_with(b, bounds),
            Self::Broadcastable(a, b) => {
                let ways = [a.known_eq_with(b, bounds), a.known_eq_with(&one, bounds), b.known_eq_with(&one, bounds)];
                if ways.contains(&Some(true)) {
                    Some(true)
                } else if ways == [Some(false); 3] {
                    Some(false)
                } else {
                    None
                }
            }
            Self::Divisible(a, b) => match (a.as_const(), b.as_const()) {
                (Some(a), Some(b)) => Some(divides(a, b)),
                _ => {
                    let rest = a.rem_floor(b);
                    match rest.as_const() {
                        Some(0) if b.known_eq_with(&Dim::ZERO, bounds) == Some(false) => Some(true),
                        Some(rest) if rest != 0 => Some(false),
                        _ => None,
                    }
                }
            },
        }
    }

    fn holds(&self, left: i64, right: i64) -> bool {
        match self {
            Self::Eq(..) => left == right,
            Self::Broadcastable(..) => broadcast(left, right, || Dim::ONE).is_ok(),
            Self::Le(..) => left <= right,
            Self::Divisible(..) => divides(left, right),
        }
    }
}

fn divides(a: i64, b: i64) -> bool {
    if b == 0 { a == 0 } else { a.wrapping_rem(b) == 0 }
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (a, b) = self.dims();
        let relation = match self {
            Self::Eq(..) => "equals",
            Self::Broadcastable(..) => "broadcasts with",
            Self::Le(..) => "is at most",
            Self::Divisible(..) => "is a multiple of",
        };
        write!(f, "`{a}` {relation} `{b}`")
    }
}

/// A constraint and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConstraintRecord {
    /// The fact.
    pub constraint: Constraint,
    /// What needs it, for people: ``add `encoder/add_3` axis 1``.
    pub origin: Arc<str>,
}

impl ConstraintRecord {
    /// A constraint with its origin.
    pub fn new(constraint: Constraint, origin: impl Into<Arc<str>>) -> Self {
        Self { constraint, origin: origin.into() }
    }

    /// Checks the constraint under a binding.
    pub fn check(&self, binding: &DimBinding) -> Result<(), ConstraintViolation> {
        let value = |dim: &Dim| {
            let failed = |source| ConstraintViolation::Unevaluated { record: self.clone(), source };
            dim.eval(binding).map_err(failed)
        };
        let (a, b) = self.constraint.dims();
        let (left, right) = (value(a)?, value(b)?);
        if self.constraint.holds(left, right) {
            return Ok(());
        }
        Err(ConstraintViolation::Violated { record: self.clone(), left, right })
    }
}

/// A constraint that does not hold, or has no value, under a binding.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConstraintViolation {
    /// It does not hold.
    Violated {
        /// The constraint.
        record: ConstraintRecord,
        /// The value of its first dim.
        left: i64,
        /// The value of its second dim.
        right: i64,
    },
    /// One of its dims has no value.
    Unevaluated {
        /// The constraint.
        record: ConstraintRecord,
        /// Why.
        source: DimError,
    },
}

impl fmt::Display for ConstraintViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Violated { record, left, right } => {
                let (a, b) = record.constraint.dims();
                let (a, b) = (named_value(a, *left), named_value(b, *right));
                match record.constraint {
                    Constraint::Eq(..) => write!(f, "{a} and {b} must be equal")?,
                    Constraint::Broadcastable(..) => {
                        write!(f, "{a} and {b} do not broadcast: they must be equal or one of them 1")?;
                    }
                    Constraint::Le(..) => write!(f, "{a} must be at most {b}")?,
                    Constraint::Divisible(..) => write!(f, "{a} must be a multiple of {b}")?,
                }
                write!(f, " (from {})", record.origin)
            }
            Self::Unevaluated { record, source } => {
                write!(f, "cannot check that {} (from {}): {source}", record.constraint, record.origin)
            }
        }
    }
}

/// A dim with its value; a constant is just its value.
fn named_value(dim: &Dim, value: i64) -> String {
    if dim.is_const() { value.to_string() } else { format!("`{dim}` = {value}") }
}

impl std::error::Error for ConstraintViolation {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Violated { .. } => None,
            Self::Unevaluated { source, .. } => Some(source),
        }
    }
}
