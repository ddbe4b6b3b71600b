//! Values of symbols.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Symbol;

/// The values of symbols for one call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DimBinding(BTreeMap<Symbol, i64>);

impl DimBinding {
    /// The binding of no symbol.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a symbol and returns its value before.
    pub fn set(&mut self, symbol: impl Into<Symbol>, value: i64) -> Option<i64> {
        self.0.insert(symbol.into(), value)
    }

    /// The value of a symbol.
    pub fn get(&self, symbol: &Symbol) -> Option<i64> {
        self.0.get(symbol).copied()
    }

    /// All symbols with their values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Symbol, i64)> {
        self.0.iter().map(|(symbol, value)| (symbol, *value))
    }

    /// The number of symbols bound.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True where no symbol is bound.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<S: Into<Symbol>> FromIterator<(S, i64)> for DimBinding {
    fn from_iter<I: IntoIterator<Item = (S, i64)>>(items: I) -> Self {
        Self(items.into_iter().map(|(symbol, value)| (symbol.into(), value)).collect())
    }
}

/// Prints `batch = 2, seq = 128`.
impl fmt::Display for DimBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (symbol, value)) in self.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{symbol} = {value}")?;
        }
        Ok(())
    }
}
