//! Sums, differences, products and substitution.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::{Add, AddAssign, Mul, MulAssign, Neg, Sub, SubAssign};

use super::expr::MAX_SIZE;
use super::monomial::Monomial;
use super::{Atom, Dim, Invalid, Symbol, Term};

impl Dim {
    /// `self + scale * other`.
    pub(super) fn add_scaled(&self, other: &Self, scale: i64) -> Self {
        if let Some(reason) = self.as_invalid().or(other.as_invalid()) {
            return Self::invalid(reason);
        }
        self.try_add_scaled(other, scale).unwrap_or(Self::invalid(Invalid::Overflow))
    }

    fn try_add_scaled(&self, other: &Self, scale: i64) -> Option<Self> {
        let constant = self.constant_term().checked_add(other.constant_term().checked_mul(scale)?)?;
        if scale == 0 || other.terms().is_empty() {
            return Some(Self::from_parts(self.terms().to_vec(), constant));
        }
        let mut terms = Vec::with_capacity(self.terms().len() + other.terms().len());
        let (mut left, mut right) = (self.terms().iter().peekable(), other.terms().iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (None, None) => return Some(Self::from_parts(terms, constant)),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => a.monomial.cmp(&b.monomial),
            };
            let a = if order.is_le() { left.next() } else { None };
            let b = if order.is_ge() { right.next() } else { None };
            let scaled = b.map_or(Some(0), |term| term.coefficient.checked_mul(scale))?;
            let coefficient = a.map_or(0, |term| term.coefficient).checked_add(scaled)?;
            if let (true, Some(term)) = (coefficient != 0, a.or(b)) {
                terms.push(Term { monomial: term.monomial.clone(), coefficient });
            }
        }
    }

    fn multiply(&self, other: &Self) -> Self {
        if let Some(reason) = self.as_invalid().or(other.as_invalid()) {
            return Self::invalid(reason);
        }
        if let (Some(a), Some(b)) = (self.as_const(), other.as_const()) {
            return a.checked_mul(b).map_or(Self::invalid(Invalid::Overflow), Self::constant);
        }
        let (mut products, mut constant) = (BTreeMap::new(), 0i64);
        if (self.terms().len() + 1).saturating_mul(other.terms().len() + 1) > MAX_SIZE as usize {
            return Self::invalid(Invalid::TooLarge);
        }
        let unit = Monomial(Vec::new());
        let parts = |dim: &Self| -> Vec<(Monomial, i64)> {
            let terms = dim.terms().iter().map(|term| (term.monomial.clone(), term.coefficient));
            terms.chain([(unit.clone(), dim.constant_term())]).filter(|(_, c)| *c != 0).collect()
        };
        let right = parts(other);
        for (m, c) in parts(self) {
            for (n, d) in &right {
                let Some(monomial) = m.multiply(n) else {
                    return Self::invalid(Invalid::TooLarge);
                };
                let sum = if monomial.0.is_empty() { &mut constant } else { products.entry(monomial).or_insert(0) };
                match c.checked_mul(*d).and_then(|product| sum.checked_add(product)) {
                    Some(total) => *sum = total,
                    None => return Self::invalid(Invalid::Overflow),
                }
            }
        }
        let terms = products.into_iter().filter(|(_, coefficient)| *coefficient != 0);
        Self::from_parts(terms.map(|(monomial, coefficient)| Term { monomial, coefficient }).collect(), constant)
    }

    /// The power with a non-negative exponent.
    pub(super) fn power(&self, exponent: u32) -> Self {
        let mut result = Self::ONE;
        for _ in 0..exponent {
            result = result.multiply(self);
        }
        result
    }

    /// The product of all items; 1 for none.
    pub fn product<D: Into<Dim>>(items: impl IntoIterator<Item = D>) -> Self {
        items.into_iter().fold(Self::ONE, |product, item| product.multiply(&item.into()))
    }

    /// The sum of all items; 0 for none.
    pub fn sum<D: Into<Dim>>(items: impl IntoIterator<Item = D>) -> Self {
        items.into_iter().fold(Self::ZERO, |sum, item| sum.add_scaled(&item.into(), 1))
    }

    /// The dim with each symbol in `map` replaced by its dim, simplified again.
    #[must_use]
    pub fn substitute(&self, map: &BTreeMap<Symbol, Dim>) -> Self {
        self.substitute_with(&|symbol| map.get(symbol).cloned())
    }

    /// Like [`Dim::substitute`], with the replacement given by a function.
    #[must_use]
    pub fn substitute_with(&self, replace: &impl Fn(&Symbol) -> Option<Dim>) -> Self {
        if self.terms().is_empty() {
            return self.clone();
        }
        let mut total = Self::constant(self.constant_term());
        for term in self.terms() {
            let mut product = Self::constant(term.coefficient);
            for (atom, power) in term.factors() {
                product = product.multiply(&atom.substitute_with(replace).power(*power));
            }
            total = total.add_scaled(&product, 1);
        }
        total
    }
}

impl Atom {
    fn substitute_with(&self, replace: &impl Fn(&Symbol) -> Option<Dim>) -> Dim {
        let with = |dim: &Dim| dim.substitute_with(replace);
        match self {
            Self::Symbol(symbol) => replace(symbol).unwrap_or_else(|| Dim::symbol(symbol)),
            Self::FloorDiv(a, b) => with(a).floor_div(with(b)),
            Self::CeilDiv(a, b) => with(a).ceil_div(with(b)),
            Self::Mod(a, b) => with(a).rem_floor(with(b)),
            Self::Min(list) => Dim::min_of(list.iter().map(with)),
            Self::Max(list) => Dim::max_of(list.iter().map(with)),
            Self::Bcast(list) => Dim::bcast_of(list.iter().map(with)),
        }
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $assign_trait:ident $assign:ident |$a:ident, $b:ident| $body:expr;)*) => {$(
        impl $trait<&Dim> for &Dim {
            type Output = Dim;
            fn $method(self, other: &Dim) -> Dim {
                let ($a, $b) = (self, other);
                $body
            }
        }
        impl $trait<Dim> for &Dim {
            type Output = Dim;
            fn $method(self, other: Dim) -> Dim {
                $trait::$method(self, &other)
            }
        }
        impl $trait<i64> for &Dim {
            type Output = Dim;
            fn $method(self, other: i64) -> Dim {
                $trait::$method(self, &Dim::constant(other))
            }
        }
        impl<T> $trait<T> for Dim where for<'a> &'a Dim: $trait<T, Output = Dim> {
            type Output = Dim;
            fn $method(self, other: T) -> Dim {
                $trait::$method(&self, other)
            }
        }
        impl<T> $assign_trait<T> for Dim where for<'a> &'a Dim: $trait<T, Output = Dim> {
            fn $assign(&mut self, other: T) {
                *self = $trait::$method(&*self, other);
            }
        }
    )*};
}

operators! {
    Add add AddAssign add_assign |a, b| a.add_scaled(b, 1);
    Sub sub SubAssign sub_assign |a, b| a.add_scaled(b, -1);
    Mul mul MulAssign mul_assign |a, b| a.multiply(b);
}

impl Neg for &Dim {
    type Output = Dim;
    fn neg(self) -> Dim {
        Dim::ZERO.add_scaled(self, -1)
    }
}

impl Neg for Dim {
    type Output = Dim;
    fn neg(self) -> Dim {
        -&self
    }
}
