//! Simplification of min, max and bcast. The rules are in the [module](super) header.

use std::sync::Arc;

use super::{Atom, Dim, Invalid};

/// Most operands of one min, max or bcast; their simplification compares all pairs.
const MAX_OPERANDS: usize = 64;

impl Dim {
    /// The smaller of the two.
    #[must_use]
    pub fn min(&self, other: impl Into<Dim>) -> Self {
        Self::min_of([self.clone(), other.into()])
    }

    /// The greater of the two.
    #[must_use]
    pub fn max(&self, other: impl Into<Dim>) -> Self {
        Self::max_of([self.clone(), other.into()])
    }

    /// The size of an axis on which the two broadcast: equal, or one of them 1. Where that is not known the caller
    /// records [`Constraint::Broadcastable`](super::Constraint::Broadcastable).
    #[must_use]
    pub fn bcast(&self, other: impl Into<Dim>) -> Self {
        Self::bcast_of([self.clone(), other.into()])
    }

    /// The smallest item; the greatest `i64` for none.
    pub fn min_of(items: impl IntoIterator<Item = Dim>) -> Self {
        let nested = |atom: &Atom| match atom {
            Atom::Min(list) => Some(list.clone()),
            _ => None,
        };
        extremum(items, nested, |a, b| a.known_le(b) == Some(true), i64::MAX, Atom::Min)
    }

    /// The greatest item; the least `i64` for none.
    pub fn max_of(items: impl IntoIterator<Item = Dim>) -> Self {
        let nested = |atom: &Atom| match atom {
            Atom::Max(list) => Some(list.clone()),
            _ => None,
        };
        extremum(items, nested, |a, b| b.known_le(a) == Some(true), i64::MIN, Atom::Max)
    }

    /// The common size of all items; 1 for none. See [`Dim::bcast`].
    pub fn bcast_of(items: impl IntoIterator<Item = Dim>) -> Self {
        let nested = |atom: &Atom| match atom {
            Atom::Bcast(list) => Some(list.clone()),
            _ => None,
        };
        let mut operands = match flatten(items, nested) {
            Ok(operands) => operands,
            Err(reason) => return Self::invalid(reason),
        };
        operands.retain(|dim| *dim != 1);
        if operands.iter().any(Dim::is_const) {
            operands.retain(Dim::is_const);
        }
        let all = operands.clone();
        operands.retain(|dim| !all.iter().any(|whole| whole != dim && dim.is_cut_of(whole)));
        from_operands(operands, 1, Atom::Bcast)
    }
}

impl Dim {
    /// True if this is `min(whole, …)` with bounds of 2 or more: of two sizes that broadcast it is then the whole, for it is 1 only where
    /// the whole is.
    fn is_cut_of(&self, whole: &Dim) -> bool {
        let Some(Atom::Min(list)) = self.as_atom() else { return false };
        let parts = match whole.as_atom() {
            Some(Atom::Min(parts)) => &parts[..],
            _ => std::slice::from_ref(whole),
        };
        let at_least_two = |dim: &Dim| dim.lower_bound().is_some_and(|least| least >= 2);
        parts.iter().all(|part| list.contains(part)) && list.iter().all(|d| parts.contains(d) || at_least_two(d))
    }
}

/// The operand that beats all others, or the atom of those that none provably beats.
fn extremum(
    items: impl IntoIterator<Item = Dim>,
    nested: impl Fn(&Atom) -> Option<Arc<[Dim]>>,
    beats: impl Fn(&Dim, &Dim) -> bool,
    neutral: i64,
    atom: fn(Arc<[Dim]>) -> Atom,
) -> Dim {
    let operands = match flatten(items, nested) {
        Ok(operands) => operands,
        Err(reason) => return Dim::invalid(reason),
    };
    let mut kept: Vec<Dim> = Vec::with_capacity(operands.len());
    for operand in operands {
        if !kept.iter().any(|other| beats(other, &operand)) {
            kept.retain(|other| !beats(&operand, other));
            kept.push(operand);
        }
    }
    from_operands(kept, neutral, atom)
}

/// The operands with those of nested atoms in their place, sorted and distinct.
fn flatten(
    items: impl IntoIterator<Item = Dim>,
    nested: impl Fn(&Atom) -> Option<Arc<[Dim]>>,
) -> Result<Vec<Dim>, Invalid> {
    let mut operands = Vec::new();
    for item in items {
        if let Some(reason) = item.as_invalid() {
            return Err(reason);
        }
        match item.as_atom().and_then(&nested) {
            Some(list) => operands.extend(list.iter().cloned()),
            None => operands.push(item),
        }
    }
    operands.sort_by(Dim::structural_cmp);
    operands.dedup();
    if operands.len() > MAX_OPERANDS {
        return Err(Invalid::TooLarge);
    }
    Ok(operands)
}

fn from_operands(mut operands: Vec<Dim>, neutral: i64, atom: fn(Arc<[Dim]>) -> Atom) -> Dim {
    match operands.len() {
        0 => Dim::constant(neutral),
        1 => operands.swap_remove(0),
        _ => Dim::from_atom(atom(operands.into())),
    }
}
