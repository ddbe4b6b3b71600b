//! Products of atoms and their order.

use std::cmp::Ordering;

use super::Atom;

/// Greatest total degree of a product.
pub(super) const MAX_DEGREE: u32 = 64;

/// A product of atoms: sorted, distinct, powers ≥ 1. Ordered so that a sorted list starts with the leading term of the
/// graded lexicographic order, which multiplication keeps.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Monomial(pub(super) Vec<(Atom, u32)>);

impl Monomial {
    pub(super) fn degree(&self) -> u32 {
        self.0.iter().map(|(_, power)| *power).sum()
    }

    /// The product; none where its degree passes the limit.
    pub(super) fn multiply(&self, other: &Self) -> Option<Self> {
        if self.degree() + other.degree() > MAX_DEGREE {
            return None;
        }
        let mut factors = Vec::with_capacity(self.0.len() + other.0.len());
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (None, None) => return Some(Self(factors).without_truths()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((a, _)), Some((b, _))) => a.structural_cmp(b),
            };
            match order {
                Ordering::Less => factors.extend(left.next().cloned()),
                Ordering::Greater => factors.extend(right.next().cloned()),
                Ordering::Equal => {
                    if let (Some((atom, p)), Some((_, q))) = (left.next(), right.next()) {
                        factors.push((atom.clone(), p + q));
                    }
                }
            }
        }
    }

    /// Without factors `min(1, n)` beside a symbol n: it is 1, or the product is 0 anyway.
    fn without_truths(mut self) -> Self {
        if self.0.len() < 2 || !self.0.iter().any(|(a, _)| matches!(a, Atom::Min(_))) {
            return self;
        }
        let symbols: Vec<Atom> =
            self.0.iter().map(|(a, _)| a.clone()).filter(|a| matches!(a, Atom::Symbol(_))).collect();
        self.0.retain(|(atom, _)| match atom {
            Atom::Min(list) => match &list[..] {
                [a, b] => {
                    let (one, n) = if *a == 1 { (a, b) } else { (b, a) };
                    *one != 1 || !n.as_symbol().is_some_and(|n| symbols.contains(&Atom::Symbol(n.clone())))
                }
                _ => true,
            },
            _ => true,
        });
        self
    }

    /// The quotient, where `other` divides this.
    pub(super) fn divide(&self, other: &Self) -> Option<Self> {
        let mut rest = other.0.iter().peekable();
        let mut factors = Vec::with_capacity(self.0.len());
        for (atom, power) in &self.0 {
            match rest.peek() {
                Some((divisor, q)) if divisor == atom => {
                    let left = power.checked_sub(*q)?;
                    if left > 0 {
                        factors.push((atom.clone(), left));
                    }
                    rest.next();
                }
                _ => factors.push((atom.clone(), *power)),
            }
        }
        rest.peek().is_none().then_some(Self(factors))
    }

    /// The greatest common divisor.
    pub(super) fn common(&self, other: &Self) -> Self {
        let shared = self.0.iter().filter_map(|(atom, power)| {
            let (_, other_power) = other.0.iter().find(|(a, _)| a == atom)?;
            Some((atom.clone(), *power.min(other_power)))
        });
        Self(shared.collect())
    }
}

impl Ord for Monomial {
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .degree()
            .cmp(&self.degree())
            .then_with(|| lexicographic(&self.0, &other.0, |(a, p), (b, q)| a.structural_cmp(b).then(q.cmp(p))))
    }
}

impl PartialOrd for Monomial {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The order of the first items that differ, or else of the lengths.
pub(super) fn lexicographic<T>(left: &[T], right: &[T], cmp: impl Fn(&T, &T) -> Ordering) -> Ordering {
    let orders = left.iter().zip(right).map(|(a, b)| cmp(a, b));
    orders.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| left.len().cmp(&right.len()))
}
