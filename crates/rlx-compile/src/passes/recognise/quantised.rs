//! Quantised tables and products.
//!
//! A product of two dequantised operands is one of integers, scaled afterwards: `Σ (a−z)·s · (b−y)·t = s·t · Σ (a−z)·(b−y)`. The sum of
//! integers is exact, so the result is nearer to what is meant than the sum of rounded products. Rows of a table that is dequantised are
//! taken from the integers, and only they are dequantised.

use rlx_ir::ops::contraction::DotGeneral;
use rlx_ir::ops::elementwise::{Binary, Elementwise};
use rlx_ir::ops::{Contraction, Indexing};
use rlx_ir::{DType, Dim, IrError, Op, ValueId};

use super::look::Look;
use super::{Found, Recogniser};

/// The longest sum of products of integers that is sure to stay within 32 bits.
const LONGEST: i64 = (i32::MAX / (255 * 255)) as i64;

/// `(x − zero) · scale` in f32, with x an integer of 8 bits.
struct Real {
    x: ValueId,
    zero: Option<ValueId>,
    scale: ValueId,
}

fn real(l: Look<'_>, v: ValueId) -> Option<Real> {
    l.either(v, Binary::Mul).find_map(|(wide, scale)| {
        let (x, zero) = integers(l, converted(l, wide).filter(|_| l.dtype(wide) == Some(DType::F32))?)?;
        Some(Real { x, zero, scale })
    })
}

/// Integers of 8 bits, as they are or in i32, and what is subtracted from them there.
fn integers(l: Look<'_>, v: ValueId) -> Option<(ValueId, Option<ValueId>)> {
    let small = |v: ValueId| matches!(l.dtype(v), Some(DType::I8 | DType::U8));
    if small(v) {
        return Some((v, None));
    }
    if l.dtype(v) != Some(DType::I32) {
        return None;
    }
    if let Some(x) = converted(l, v).filter(|&x| small(x)) {
        return Some((x, None));
    }
    let (x, z) = l.binary(v, Binary::Sub)?;
    let x = converted(l, x).filter(|&x| small(x))?;
    zero_fits(l, x, z).then_some((x, Some(z)))
}

/// True for a zero point that the integers' dtype has: only then are differences within 255.
fn zero_fits(l: Look<'_>, x: ValueId, z: ValueId) -> bool {
    let of_range = |(low, high): (i128, i128)| l.number(z).is_some_and(|n| (low as f64..=high as f64).contains(&n));
    converted(l, z).is_some_and(|z| l.dtype(z) == l.dtype(x))
        || l.dtype(x).and_then(DType::int_range).is_some_and(of_range)
}

/// True for what would be [`real`], were its zero point not too far from its integers.
fn has_far_zero(l: Look<'_>, v: ValueId) -> bool {
    l.either(v, Binary::Mul).filter_map(|(wide, _)| l.binary(converted(l, wide)?, Binary::Sub)).any(|(x, z)| {
        let small = converted(l, x).filter(|&x| matches!(l.dtype(x), Some(DType::I8 | DType::U8)));
        small.is_some_and(|x| l.number(z).is_some() && !zero_fits(l, x, z))
    })
}

fn converted(l: Look<'_>, v: ValueId) -> Option<ValueId> {
    match l.op(v)? {
        (Op::Elementwise(Elementwise::Convert { .. }), &[x]) => Some(x),
        _ => None,
    }
}

/// A product of dequantised operands whose scales are one for the left side, and one for all or for each column of the right one.
pub(super) fn product(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let Some((Op::Contraction(Contraction::DotGeneral(d)), &[a, b])) = l.op(v) else { return Ok(None) };
    let d: DotGeneral = d.clone();
    let (Some(left), Some(right)) = (real(l, a), real(l, b)) else {
        let far = [a, b].into_iter().any(|v| has_far_zero(l, v));
        return if far { r.nearly("a zero point is out of its integers' range") } else { Ok(None) };
    };
    let (Some(sa), Some(sb)) = (l.shape(a).cloned(), l.shape(b).cloned()) else { return Ok(None) };
    let (Some(of_a), Some(of_b)) = (l.shape(left.scale).cloned(), l.shape(right.scale).cloned()) else {
        return Ok(None);
    };
    let depth = Dim::product(d.lhs_contract.iter().filter_map(|&i| sa.get(i).cloned()));
    let short = depth.upper_bound_with(l.g.bounds()).is_some_and(|k| k <= LONGEST);
    if l.dtype(v) != Some(DType::F32) || of_b.rank() > sb.rank() {
        return Ok(None);
    }
    if !short {
        return r.nearly("its sums may be too long for 32 bits");
    }
    if of_a.numel() != Dim::ONE {
        return r.nearly("the left operand has more scales than one");
    }
    // The right scale's size on each axis of the operand.
    let missing = sb.rank() - of_b.rank();
    let along = |axis: usize| axis.checked_sub(missing).and_then(|i| of_b.get(i).cloned()).unwrap_or(Dim::ONE);
    if d.rhs_batch.iter().chain(&d.rhs_contract).any(|&i| along(i) != Dim::ONE) {
        return r.nearly("the scales of the right operand vary along what is summed");
    }
    let columns: Vec<Dim> = d.rhs_free(sb.rank()).into_iter().map(along).collect();
    let g = &mut r.rw.b;
    let mut whole = |side: &Real| {
        let x = g.convert(side.x, DType::I32)?;
        side.zero.map_or(Ok(x), |z| g.sub(x, z))
    };
    let (x, y) = (whole(&left)?, whole(&right)?);
    let sum = g.dot_general(x, y, &d.lhs_batch, &d.rhs_batch, &d.lhs_contract, &d.rhs_contract, None)?;
    let sum = g.convert(sum, DType::F32)?;
    let (s, t) = (g.reshape(left.scale, Vec::<Dim>::new())?, g.reshape(right.scale, columns)?);
    let scale = g.mul(s, t)?;
    g.mul(sum, scale).map(Some)
}

/// The longest sum of products of integers, each of at most 8 bits and a sign, that f32 holds exactly whatever the order.
const EXACT: i64 = (1 << 24) / (255 * 255);
/// With fewer output channels a group, a convolution of integers has no products of matrices to gain from.
const CHANNELS: i64 = 8;

/// Whether a convolution has few output channels in a group; false where that is not known.
fn is_narrow(l: Look<'_>, groups: i64, w: ValueId) -> bool {
    l.shape(w).and_then(|s| s.first()).and_then(Dim::as_const).is_some_and(|n| groups > 1 && n / groups < CHANNELS)
}

/// A convolution of small integers with few output channels a group and a short sum, which f32 computes exactly.
pub(super) fn narrow_convolution(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let Some((Op::Contraction(Contraction::Conv(c)), &[x, w])) = l.op(v) else { return Ok(None) };
    let c = c.clone();
    let whole = |v: ValueId| l.dtype(v) == Some(DType::I32) && integers(l, v).is_some();
    let depth = l.shape(w).map(|s| Dim::product(s.iter().skip(1).cloned())).and_then(|d| d.as_const());
    if !is_narrow(l, c.groups, w) || !whole(x) || !whole(w) || depth.is_none_or(|k| k > EXACT) {
        return Ok(None);
    }
    let g = &mut r.rw.b;
    let (x, w) = (g.convert(x, DType::F32)?, g.convert(w, DType::F32)?);
    let sum = g.op1(c, &[x, w])?;
    g.convert(sum, DType::I32).map(Some)
}

/// A convolution of dequantised operands, with one scale for the input, and one for the weight or one for each output channel.
pub(super) fn convolution(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let Some((Op::Contraction(Contraction::Conv(c)), &[x, w, ref bias @ ..])) = l.op(v) else { return Ok(None) };
    let (c, bias) = (c.clone(), bias.first().copied());
    if is_narrow(l, c.groups, w) {
        return Ok(None);
    }
    let (Some(left), Some(right)) = (real(l, x), real(l, w)) else { return Ok(None) };
    let (Some(of_x), Some(of_w)) = (l.shape(left.scale).cloned(), l.shape(right.scale).cloned()) else {
        return Ok(None);
    };
    let Some(window) = l.shape(w).cloned() else { return Ok(None) };
    // A zero point of the input's own kind is subtracted before zeros are put around.
    let one = |z: Option<ValueId>| z.is_none_or(|z| l.shape(z).is_some_and(|s| s.numel() == Dim::ONE));
    let by_channel = |s: &rlx_ir::Shape| {
        s.numel() == Dim::ONE
            || s.rank() == window.rank() && s.first() == window.first() && s.iter().skip(1).all(|d| *d == Dim::ONE)
    };
    let zeros = right.zero.is_none_or(|z| l.shape(z).is_some_and(by_channel));
    let depth = Dim::product(window.iter().skip(1).cloned());
    let short = depth.upper_bound_with(l.g.bounds()).is_some_and(|k| k <= LONGEST);
    if l.dtype(v) != Some(DType::F32)
        || !short
        || of_x.numel() != Dim::ONE
        || !one(left.zero)
        || !by_channel(&of_w)
        || !zeros
    {
        return Ok(None);
    }
    let columns = if of_w.numel() == Dim::ONE {
        Vec::new()
    } else {
        window.first().cloned().into_iter().chain(window.iter().skip(2).map(|_| Dim::ONE)).collect()
    };
    let along: Vec<Dim> = window.first().cloned().into_iter().chain(window.iter().skip(2).map(|_| Dim::ONE)).collect();
    let g = &mut r.rw.b;
    let mut whole = |side: &Real| {
        let x = g.convert(side.x, DType::I32)?;
        side.zero.map_or(Ok(x), |z| g.sub(x, z))
    };
    let (x, y) = (whole(&left)?, whole(&right)?);
    let sum = g.op1(rlx_ir::ops::contraction::Conv { has_bias: false, ..c }, &[x, y])?;
    let sum = g.convert(sum, DType::F32)?;
    let (s, t) = (g.reshape(left.scale, Vec::<Dim>::new())?, g.reshape(right.scale, columns)?);
    let scale = g.mul(s, t)?;
    let y = g.mul(sum, scale)?;
    match bias {
        Some(bias) => {
            let bias = g.reshape(bias, along)?;
            g.add(y, bias).map(Some)
        }
        None => Ok(Some(y)),
    }
}

/// How deep a table's chain of functions may be.
const DEPTH: usize = 4;

/// A step from a table to what it is made of.
enum Step {
    Convert(Elementwise),
    /// A function of the table and another value, which is the same for all rows (and broadcasts as it did), or has its own for each row.
    With(Binary, ValueId, bool),
}

/// Rows of a table that depends on parameters only and is wider than what it is made of: the rows are taken first.
pub(super) fn rows(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let Some((Op::Indexing(Indexing::Gather(g)), &[table, indices])) = l.op(v) else { return Ok(None) };
    let widened = step(l, table).is_some_and(|(_, x)| l.dtype(x).is_some_and(|d| d.bits() <= 8));
    if g.axis != 0 || !r.is_invariant(table) {
        return if widened { r.nearly("it takes no rows of a table of parameters") } else { Ok(None) };
    }
    let (mut at, mut steps, mut narrower) = (table, Vec::new(), false);
    while steps.len() < DEPTH && !narrower {
        let Some((step, x)) = step(l, at) else { break };
        narrower = matches!((l.dtype(x), l.dtype(at)), (Some(a), Some(b)) if a.bits() < b.bits() && a.bits() <= 8);
        steps.push(step);
        at = x;
    }
    // The integers themselves may be converted twice.
    while let (true, Some((s @ Step::Convert(_), x))) = (steps.len() < DEPTH, step(l, at)) {
        steps.push(s);
        at = x;
        narrower = true;
    }
    if !narrower || l.dtype(at).is_none_or(|d| d.bits() > 8) {
        return Ok(None);
    }
    let b = &mut r.rw.b;
    let mut y = b.gather(at, indices, 0)?;
    for step in steps.into_iter().rev() {
        y = match step {
            Step::Convert(f) => b.op1(f, &[y])?,
            Step::With(f, other, by_row) => {
                let other = if by_row { b.gather(other, indices, 0)? } else { flat(b, other, table)? };
                b.op1(f, &[y, other])?
            }
        };
    }
    Ok(Some(y))
}

/// A value that is the same for all rows, without the axis of rows.
fn flat(b: &mut rlx_ir::Builder, v: ValueId, table: ValueId) -> Result<ValueId, IrError> {
    let (s, t) = (b.shape(v)?, b.shape(table)?);
    if s.rank() < t.rank() {
        return Ok(v);
    }
    b.reshape(v, s.iter().skip(1).cloned().collect::<Vec<_>>())
}

fn step(l: Look<'_>, v: ValueId) -> Option<(Step, ValueId)> {
    let shape = l.shape(v)?;
    match l.op(v)? {
        (Op::Elementwise(f @ Elementwise::Convert { .. }), &[x]) => Some((Step::Convert(*f), x)),
        (Op::Elementwise(Elementwise::Binary(f @ (Binary::Mul | Binary::Sub))), &[x, other]) => {
            let s = l.shape(other)?;
            let of_row = s.rank() == shape.rank() && s.first() == shape.first() && s.first() != Some(&Dim::ONE);
            let still = s.rank() < shape.rank() || s.first() == Some(&Dim::ONE);
            (l.shape(x)? == shape && (of_row || still)).then_some((Step::With(*f, other, of_row), x))
        }
        _ => None,
    }
}
