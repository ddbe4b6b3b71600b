//! The canonical form of a dim expression.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Symbol;
use super::monomial::{Monomial, lexicographic};

/// Most nodes (terms and atoms, counted as in a tree) that an expression may have.
pub const MAX_SIZE: u32 = 1024;
/// Most levels of atoms within atoms that an expression may have.
pub const MAX_DEPTH: u32 = 64;

/// An integer expression over symbols, in canonical form. See the [module](super) for its invariants and rules.
///
/// There is no `Ord`: `<` and [`Ord::min`] would compare structure where a reader expects values. Use
/// [`Dim::known_le`], [`Dim::min`], or [`Dim::structural_cmp`] to sort.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Dim(Repr);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Const(i64),
    Sum(Arc<Sum>),
    Invalid(Invalid),
}

/// Terms are non-empty, sorted, distinct in their factors, and have non-zero coefficients.
#[derive(PartialEq, Eq, Hash)]
struct Sum {
    terms: Vec<Term>,
    constant: i64,
    size: u32,
    depth: u32,
}

/// Why an expression could not be built. An invalid dim evaluates to the matching [`DimError`](super::DimError).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Invalid {
    /// A constant left the range of `i64`.
    Overflow,
    /// The expression passed [`MAX_SIZE`] or [`MAX_DEPTH`].
    TooLarge,
}

/// A coefficient times a product of atoms.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Term {
    pub(super) monomial: Monomial,
    pub(super) coefficient: i64,
}

impl Term {
    /// The integer factor; never 0.
    pub fn coefficient(&self) -> i64 {
        self.coefficient
    }

    /// The atoms with their powers (≥ 1); never empty.
    pub fn factors(&self) -> &[(Atom, u32)] {
        &self.monomial.0
    }

    /// The symbol, where the term is that symbol with coefficient 1.
    pub fn as_symbol(&self) -> Option<&Symbol> {
        match (self.coefficient, self.monomial.0.as_slice()) {
            (1, [(Atom::Symbol(symbol), 1)]) => Some(symbol),
            _ => None,
        }
    }
}

/// What a product is made of. Operands are canonical dims; lists have at least two operands, sorted and distinct.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Atom {
    /// A symbol.
    Symbol(Symbol),
    /// Division rounded towards negative infinity.
    FloorDiv(Dim, Dim),
    /// Division rounded towards positive infinity.
    CeilDiv(Dim, Dim),
    /// Remainder of floor division; it has the sign of the divisor.
    Mod(Dim, Dim),
    /// The smallest operand.
    Min(Arc<[Dim]>),
    /// The greatest operand.
    Max(Arc<[Dim]>),
    /// The common size of operands that broadcast: that of those which are not 1.
    Bcast(Arc<[Dim]>),
}

impl Atom {
    /// The operands; none for a symbol.
    pub fn operands(&self) -> Vec<&Dim> {
        match self {
            Self::Symbol(_) => Vec::new(),
            Self::FloorDiv(a, b) | Self::CeilDiv(a, b) | Self::Mod(a, b) => vec![a, b],
            Self::Min(list) | Self::Max(list) | Self::Bcast(list) => list.iter().collect(),
        }
    }

    /// Symbols by name, then the other atoms by kind and operands.
    pub(super) fn structural_cmp(&self, other: &Self) -> Ordering {
        let rank = |atom: &Self| match atom {
            Self::Symbol(_) => 0,
            Self::FloorDiv(..) => 1,
            Self::CeilDiv(..) => 2,
            Self::Mod(..) => 3,
            Self::Min(_) => 4,
            Self::Max(_) => 5,
            Self::Bcast(_) => 6,
        };
        if let (Self::Symbol(a), Self::Symbol(b)) = (self, other) {
            return a.cmp(b);
        }
        rank(self).cmp(&rank(other)).then_with(|| {
            let (left, right) = (self.operands(), other.operands());
            lexicographic(&left, &right, |a, b| a.structural_cmp(b))
        })
    }
}

impl Dim {
    /// The constant 0.
    pub const ZERO: Self = Self(Repr::Const(0));
    /// The constant 1.
    pub const ONE: Self = Self(Repr::Const(1));

    /// The dim that is this symbol.
    pub fn symbol(symbol: impl Into<Symbol>) -> Self {
        Self::from_atom(Atom::Symbol(symbol.into()))
    }

    /// The constant.
    pub(super) const fn constant(value: i64) -> Self {
        Self(Repr::Const(value))
    }

    /// A dim that could not be built.
    pub(super) const fn invalid(reason: Invalid) -> Self {
        Self(Repr::Invalid(reason))
    }

    /// The dim of one atom, whose operands must be canonical and simplified.
    pub(super) fn from_atom(atom: Atom) -> Self {
        Self::from_parts(vec![Term { monomial: Monomial(vec![(atom, 1)]), coefficient: 1 }], 0)
    }

    /// The sum of terms, which must be sorted and distinct with non-zero coefficients, and a constant.
    pub(super) fn from_parts(terms: Vec<Term>, constant: i64) -> Self {
        if terms.is_empty() {
            return Self::constant(constant);
        }
        let (mut size, mut depth) = (1u32, 0u32);
        for term in &terms {
            for (atom, _) in term.factors() {
                size = size.saturating_add(1);
                for operand in atom.operands() {
                    match &operand.0 {
                        Repr::Const(_) => size = size.saturating_add(1),
                        Repr::Invalid(reason) => return Self::invalid(*reason),
                        Repr::Sum(sum) => {
                            size = size.saturating_add(sum.size);
                            depth = depth.max(sum.depth + 1);
                        }
                    }
                }
            }
        }
        if size > MAX_SIZE || depth > MAX_DEPTH {
            return Self::invalid(Invalid::TooLarge);
        }
        Self(Repr::Sum(Arc::new(Sum { terms, constant, size, depth })))
    }

    /// The value, where the dim is a constant.
    pub fn as_const(&self) -> Option<i64> {
        match self.0 {
            Repr::Const(value) => Some(value),
            _ => None,
        }
    }

    /// True for a constant.
    pub fn is_const(&self) -> bool {
        self.as_const().is_some()
    }

    /// The symbol, where the dim is nothing but that symbol.
    pub fn as_symbol(&self) -> Option<&Symbol> {
        match self.terms() {
            [term] if self.constant_term() == 0 => term.as_symbol(),
            _ => None,
        }
    }

    /// The atom, where the dim is nothing but that atom.
    pub fn as_atom(&self) -> Option<&Atom> {
        match self.terms() {
            [Term { coefficient: 1, monomial }] if self.constant_term() == 0 => match monomial.0.as_slice() {
                [(atom, 1)] => Some(atom),
                _ => None,
            },
            _ => None,
        }
    }

    /// Why the dim could not be built, where that is so.
    pub fn as_invalid(&self) -> Option<Invalid> {
        match self.0 {
            Repr::Invalid(reason) => Some(reason),
            _ => None,
        }
    }

    /// The terms that are not constant, leading term first.
    pub fn terms(&self) -> &[Term] {
        match &self.0 {
            Repr::Sum(sum) => &sum.terms,
            _ => &[],
        }
    }

    /// The constant summand.
    pub fn constant_term(&self) -> i64 {
        match &self.0 {
            Repr::Const(value) => *value,
            Repr::Sum(sum) => sum.constant,
            Repr::Invalid(_) => 0,
        }
    }

    /// A fixed total order of expressions, for sorting. It says nothing about values.
    pub fn structural_cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Repr::Const(a), Repr::Const(b)) => a.cmp(b),
            (Repr::Const(_), _) => Ordering::Less,
            (_, Repr::Const(_)) => Ordering::Greater,
            (Repr::Invalid(a), Repr::Invalid(b)) => a.cmp(b),
            (Repr::Invalid(_), _) => Ordering::Greater,
            (_, Repr::Invalid(_)) => Ordering::Less,
            (Repr::Sum(a), Repr::Sum(b)) if Arc::ptr_eq(a, b) => Ordering::Equal,
            (Repr::Sum(a), Repr::Sum(b)) => lexicographic(&a.terms, &b.terms, |s, t| {
                s.monomial.cmp(&t.monomial).then(s.coefficient.cmp(&t.coefficient))
            })
            .then(a.constant.cmp(&b.constant)),
        }
    }

    /// All symbols in the expression.
    pub fn symbols(&self) -> BTreeSet<Symbol> {
        let mut found = BTreeSet::new();
        self.for_each_symbol(&mut |symbol| {
            if !found.contains(symbol) {
                found.insert(symbol.clone());
            }
        });
        found
    }

    /// Calls `visit` for every occurrence of a symbol.
    pub fn for_each_symbol(&self, visit: &mut impl FnMut(&Symbol)) {
        for (atom, _) in self.terms().iter().flat_map(Term::factors) {
            match atom {
                Atom::Symbol(symbol) => visit(symbol),
                _ => atom.operands().into_iter().for_each(|dim| dim.for_each_symbol(visit)),
            }
        }
    }
}

impl From<i64> for Dim {
    fn from(value: i64) -> Self {
        Self::constant(value)
    }
}

impl From<i32> for Dim {
    fn from(value: i32) -> Self {
        Self::constant(value.into())
    }
}

impl From<usize> for Dim {
    fn from(value: usize) -> Self {
        i64::try_from(value).map_or(Self::invalid(Invalid::Overflow), Self::constant)
    }
}

impl From<Symbol> for Dim {
    fn from(symbol: Symbol) -> Self {
        Self::symbol(symbol)
    }
}

impl From<&Symbol> for Dim {
    fn from(symbol: &Symbol) -> Self {
        Self::symbol(symbol)
    }
}

impl From<&Dim> for Dim {
    fn from(dim: &Dim) -> Self {
        dim.clone()
    }
}

impl PartialEq<i64> for Dim {
    fn eq(&self, other: &i64) -> bool {
        self.as_const() == Some(*other)
    }
}

/// Dims serialise as their text, so that reading one checks it like any other input.
impl Serialize for Dim {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Dim {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}
