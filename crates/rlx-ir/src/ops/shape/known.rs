//! What is known of elements after they are rearranged.

use crate::dim::{Atom, Constraint, Dim};
use crate::dtype::DType;
use crate::element::wrap_int;
use crate::error::OpError;
use crate::op::{InferCx, MAX_KNOWN_ELEMS};
use crate::types::Shape;

/// The sizes of a shape that is small enough for its elements to be known.
pub(crate) fn small_sizes(shape: &Shape) -> Option<Vec<usize>> {
    let sizes = shape.as_static()?;
    crate::tensor::checked_numel(&sizes).ok().filter(|&n| n <= MAX_KNOWN_ELEMS)?;
    Some(sizes)
}

/// The operand's known elements at linear positions, which `positions` computes from the static sizes of operand and result.
pub(crate) fn rearranged(
    elems: Option<&[Dim]>,
    from: &Shape,
    to: &Shape,
    positions: impl FnOnce(&[usize], &[usize]) -> Option<Vec<usize>>,
) -> Option<Vec<Dim>> {
    let elems = elems?;
    let (from, to) = (small_sizes(from)?, small_sizes(to)?);
    positions(&from, &to)?.into_iter().map(|p| elems.get(p).cloned()).collect()
}

/// Elements computed by dim arithmetic as the dtype holds them: constants wrapped, and nothing known where 64 bits do not suffice.
pub(crate) fn settled(dtype: DType, elems: Vec<Dim>) -> Option<Vec<Dim>> {
    elems
        .into_iter()
        .map(|d| match d.as_const() {
            _ if d.as_invalid().is_some() => None,
            Some(c) => i64::try_from(wrap_int(dtype, i128::from(c))).ok().map(Dim::from),
            None => Some(d),
        })
        .collect()
}

/// `a ≤ b` by bounds, or because the operands of a min or max show it.
pub(crate) fn shown_le(a: &Dim, b: &Dim) -> Option<bool> {
    let direct = a.known_le(b);
    if direct.is_some() {
        return direct;
    }
    let shown = match (a.as_atom(), b.as_atom()) {
        (Some(Atom::Min(list)), _) => list.iter().any(|x| x.known_le(b) == Some(true)),
        (Some(Atom::Max(list)), _) => list.iter().all(|x| x.known_le(b) == Some(true)),
        (_, Some(Atom::Min(list))) => list.iter().all(|x| a.known_le(x) == Some(true)),
        (_, Some(Atom::Max(list))) => list.iter().any(|x| a.known_le(x) == Some(true)),
        _ => false,
    };
    shown.then_some(true)
}

/// Requires `a ≤ b`: an error if known not to hold, a recorded constraint if unknown.
pub(crate) fn require_le(cx: &mut InferCx<'_>, a: &Dim, b: &Dim, why: &str) -> Result<(), OpError> {
    match shown_le(a, b) {
        Some(true) => Ok(()),
        Some(false) => Err(OpError::new(format!("{why}: {a} must be at most {b}"))),
        None => {
            cx.record(Constraint::Le(a.clone(), b.clone()), why);
            Ok(())
        }
    }
}

/// Errors unless a list of attributes has one entry per axis.
pub(crate) fn one_per_axis(what: &str, got: usize, rank: usize) -> Result<(), OpError> {
    if got == rank {
        return Ok(());
    }
    Err(OpError::new(format!("{what} has {got} entries for {rank} axes; give one per axis")))
}

/// Errors unless an axis is one of `rank`.
pub(crate) fn check_axis(axis: usize, rank: usize) -> Result<(), OpError> {
    if axis < rank { Ok(()) } else { Err(OpError::new(format!("axis {axis} is out of range for rank {rank}"))) }
}

/// Errors unless axes are in range, ascending and distinct.
pub(crate) fn check_axes(axes: &[usize], rank: usize) -> Result<(), OpError> {
    axes.iter().try_for_each(|&a| check_axis(a, rank))?;
    if axes.windows(2).any(|w| w[0] >= w[1]) {
        return Err(OpError::new(format!("axes {axes:?} must ascend without repeats")));
    }
    Ok(())
}
