//! Bounds of dims by interval arithmetic, and what they decide.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Atom, Dim, Symbol};

/// Known ranges of symbols. A symbol without one is ≥ 0 and has no upper bound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bounds(BTreeMap<Symbol, (i64, Option<i64>)>);

impl Bounds {
    /// No ranges.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Sets the range of a symbol, both ends included. A lower end below 0 counts as 0.
    pub fn set(&mut self, symbol: impl Into<Symbol>, min: i64, max: Option<i64>) {
        self.0.insert(symbol.into(), (min, max));
    }

    /// The range of a symbol.
    pub fn get(&self, symbol: &Symbol) -> (i64, Option<i64>) {
        let (min, max) = self.0.get(symbol).copied().unwrap_or((0, None));
        (min.max(0), max)
    }

    /// All ranges that were set, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Symbol, (i64, Option<i64>))> {
        self.0.keys().map(|symbol| (symbol, self.get(symbol)))
    }
}

impl<S: Into<Symbol>> FromIterator<(S, (i64, Option<i64>))> for Bounds {
    fn from_iter<I: IntoIterator<Item = (S, (i64, Option<i64>))>>(items: I) -> Self {
        Self(items.into_iter().map(|(symbol, range)| (symbol.into(), range)).collect())
    }
}

static UNBOUNDED: Bounds = Bounds::new();

impl Dim {
    /// The range of values with no bounds but that symbols are ≥ 0.
    pub fn interval(&self) -> Interval {
        self.interval_with(&UNBOUNDED)
    }

    /// The range of values under bounds of symbols. Sound, not tight.
    pub fn interval_with(&self, bounds: &Bounds) -> Interval {
        if self.as_invalid().is_some() {
            return Interval::ALL;
        }
        let mut total = Interval::point(self.constant_term());
        for term in self.terms() {
            let mut product = Interval::point(term.coefficient());
            for (atom, power) in term.factors() {
                product = product.mul(atom.interval_with(bounds).pow(*power));
            }
            total = total.add(product);
        }
        total
    }

    /// The least value known, where there is one.
    pub fn lower_bound(&self) -> Option<i64> {
        self.interval().min()
    }

    /// The greatest value known, where there is one.
    pub fn upper_bound(&self) -> Option<i64> {
        self.interval().max()
    }

    /// [`Dim::lower_bound`] under bounds of symbols.
    pub fn lower_bound_with(&self, bounds: &Bounds) -> Option<i64> {
        self.interval_with(bounds).min()
    }

    /// [`Dim::upper_bound`] under bounds of symbols.
    pub fn upper_bound_with(&self, bounds: &Bounds) -> Option<i64> {
        self.interval_with(bounds).max()
    }

    /// Whether the two are equal for all symbol values; none where that is not known.
    pub fn known_eq(&self, other: &Dim) -> Option<bool> {
        self.known_eq_with(other, &UNBOUNDED)
    }

    /// [`Dim::known_eq`] under bounds of symbols.
    pub fn known_eq_with(&self, other: &Dim, bounds: &Bounds) -> Option<bool> {
        if self.as_invalid().or(other.as_invalid()).is_some() {
            return None;
        }
        if self == other {
            return Some(true);
        }
        // Constants at both ends of the range have no difference in 64 bits.
        if self.is_const() && other.is_const() {
            return Some(false);
        }
        let difference = self.add_scaled(other, -1).interval_with(bounds);
        match (difference.min(), difference.max()) {
            (Some(0), Some(0)) => Some(true),
            (Some(min), _) if min > 0 => Some(false),
            (_, Some(max)) if max < 0 => Some(false),
            _ => None,
        }
    }

    /// Whether `self ≤ other` for all symbol values (true), for none (false), or not known.
    pub fn known_le(&self, other: &Dim) -> Option<bool> {
        self.known_le_with(other, &UNBOUNDED)
    }

    /// [`Dim::known_le`] under bounds of symbols.
    pub fn known_le_with(&self, other: &Dim, bounds: &Bounds) -> Option<bool> {
        if let (Some(a), Some(b)) = (self.as_const(), other.as_const()) {
            return Some(a <= b);
        }
        let difference = other.add_scaled(self, -1).interval_with(bounds);
        match (difference.min(), difference.max()) {
            (Some(min), _) if min >= 0 => Some(true),
            (_, Some(max)) if max < 0 => Some(false),
            _ => None,
        }
    }
}

impl Atom {
    fn interval_with(&self, bounds: &Bounds) -> Interval {
        let of = |dim: &Dim| dim.interval_with(bounds);
        match self {
            Self::Symbol(symbol) => {
                let (min, max) = bounds.get(symbol);
                Interval { lo: End::Finite(min), hi: max.map_or(End::PosInf, End::Finite) }
            }
            Self::FloorDiv(a, b) => of(a).floor_div(of(b)),
            Self::CeilDiv(a, b) => of(a).neg().floor_div(of(b)).neg(),
            Self::Mod(a, b) => of(a).rem_floor(of(b)),
            Self::Min(list) => fold(list, of, |a, b| Interval { lo: a.lo.min(b.lo), hi: a.hi.min(b.hi) }),
            Self::Max(list) => fold(list, of, |a, b| Interval { lo: a.lo.max(b.lo), hi: a.hi.max(b.hi) }),
            Self::Bcast(list) => {
                // An operand that cannot be 1 is the result; otherwise any of them may be.
                let never_one = |dim: &&Dim| !of(dim).contains(1);
                match list.iter().find(never_one) {
                    Some(dim) => of(dim),
                    None => fold(list, of, |a, b| Interval { lo: a.lo.min(b.lo), hi: a.hi.max(b.hi) }),
                }
            }
        }
    }
}

fn fold(list: &[Dim], of: impl Fn(&Dim) -> Interval, f: impl Fn(Interval, Interval) -> Interval) -> Interval {
    list.iter().map(of).reduce(f).unwrap_or(Interval::ALL)
}

/// A range of integers, both ends included, possibly without an end. Ends that leave `i64` widen to no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    lo: End,
    hi: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    NegInf,
    Finite(i64),
    PosInf,
}

impl End {
    fn of(value: i128) -> Self {
        match i64::try_from(value) {
            Ok(value) => Self::Finite(value),
            Err(_) if value < 0 => Self::NegInf,
            Err(_) => Self::PosInf,
        }
    }

    fn sign(self) -> i128 {
        match self {
            Self::NegInf => -1,
            Self::Finite(value) => value.signum().into(),
            Self::PosInf => 1,
        }
    }

    fn neg(self) -> Self {
        match self {
            Self::NegInf => Self::PosInf,
            Self::Finite(value) => Self::of(-i128::from(value)),
            Self::PosInf => Self::NegInf,
        }
    }

    /// The sum of two ends of the same side, one of which may be infinite.
    fn add(self, other: Self) -> Self {
        match (self, other) {
            (Self::Finite(a), Self::Finite(b)) => Self::of(i128::from(a) + i128::from(b)),
            (Self::Finite(_), infinite) | (infinite, _) => infinite,
        }
    }

    fn mul(self, other: Self) -> Self {
        match (self, other) {
            (Self::Finite(a), Self::Finite(b)) => Self::of(i128::from(a) * i128::from(b)),
            _ => match self.sign() * other.sign() {
                0 => Self::Finite(0),
                sign if sign < 0 => Self::NegInf,
                _ => Self::PosInf,
            },
        }
    }

    /// Floor division by an end ≥ 1.
    fn floor_div(self, divisor: Self) -> Self {
        match (self, divisor) {
            (Self::Finite(a), Self::Finite(b)) => Self::of(i128::from(a).div_euclid(i128::from(b.max(1)))),
            (Self::Finite(a), _) => Self::Finite(if a < 0 { -1 } else { 0 }),
            (infinite, _) => infinite,
        }
    }
}

impl Interval {
    /// All integers.
    pub const ALL: Self = Self { lo: End::NegInf, hi: End::PosInf };

    /// Just this integer.
    pub const fn point(value: i64) -> Self {
        Self { lo: End::Finite(value), hi: End::Finite(value) }
    }

    /// The lower end.
    pub fn min(self) -> Option<i64> {
        match self.lo {
            End::Finite(value) => Some(value),
            _ => None,
        }
    }

    /// The upper end.
    pub fn max(self) -> Option<i64> {
        match self.hi {
            End::Finite(value) => Some(value),
            _ => None,
        }
    }

    /// Whether the integer is in the range.
    pub fn contains(self, value: i64) -> bool {
        self.lo <= End::Finite(value) && End::Finite(value) <= self.hi
    }

    /// A range whose lower end passed `i64` upwards, or its upper end downwards, has no value that evaluates; the
    /// nearest representable end keeps the ends in order.
    fn ordered(lo: End, hi: End) -> Self {
        Self {
            lo: if lo == End::PosInf { End::Finite(i64::MAX) } else { lo },
            hi: if hi == End::NegInf { End::Finite(i64::MIN) } else { hi },
        }
    }

    fn neg(self) -> Self {
        Self::ordered(self.hi.neg(), self.lo.neg())
    }

    fn add(self, other: Self) -> Self {
        Self::ordered(self.lo.add(other.lo), self.hi.add(other.hi))
    }

    fn mul(self, other: Self) -> Self {
        let corners = [self.lo.mul(other.lo), self.lo.mul(other.hi), self.hi.mul(other.lo), self.hi.mul(other.hi)];
        let lo = corners.into_iter().min().unwrap_or(End::NegInf);
        let hi = corners.into_iter().max().unwrap_or(End::PosInf);
        Self::ordered(lo, hi)
    }

    fn pow(self, exponent: u32) -> Self {
        let mut result = Self::point(1);
        for _ in 0..exponent {
            result = result.mul(self);
        }
        if exponent.is_multiple_of(2) {
            result.lo = result.lo.max(End::Finite(0));
        }
        result
    }

    fn floor_div(self, divisor: Self) -> Self {
        if divisor.lo >= End::Finite(0) {
            let divisor = Self { lo: divisor.lo.max(End::Finite(1)), ..divisor };
            let lo = self.lo.floor_div(if self.lo.sign() < 0 { divisor.lo } else { divisor.hi });
            let hi = self.hi.floor_div(if self.hi.sign() < 0 { divisor.hi } else { divisor.lo });
            return Self::ordered(lo, hi);
        }
        if divisor.hi <= End::Finite(0) {
            return self.neg().floor_div(divisor.neg());
        }
        let magnitude = self.lo.neg().max(self.lo).max(self.hi.neg()).max(self.hi);
        Self::ordered(magnitude.neg(), magnitude)
    }

    fn rem_floor(self, divisor: Self) -> Self {
        let (zero, one) = (End::Finite(0), Self::point(1));
        let (below, above) = (divisor.lo.add(one.lo), divisor.hi.add(End::Finite(-1)));
        if divisor.lo >= zero {
            // The remainder of a number ≥ 0 is at most that number.
            let own = if self.lo >= zero { self.hi } else { End::PosInf };
            return Self::ordered(zero, above.min(own).max(zero));
        }
        if divisor.hi <= zero {
            return Self::ordered(below.min(zero), zero);
        }
        Self::ordered(below.min(zero), above.max(zero))
    }
}
