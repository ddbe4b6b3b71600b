//! Matrix products and Einstein sums.

use rlx_ir::ops::reduction::ReduceKind;
use rlx_ir::{DType, Dim, ValueId};

use super::context::{Failure, NodeCx, Out};
use super::{OpEntry, op};

pub(super) const OPS: &[OpEntry] =
    &[op("MatMul", 1, matmul), op("Gemm", 1, gemm), op("MatMulInteger", 10, matmul_integer), op("Einsum", 12, einsum)];

fn matmul(cx: &mut NodeCx<'_, '_>) -> Out {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    Ok(vec![cx.b().matmul(a, b)?])
}

pub(super) fn gemm(cx: &mut NodeCx<'_, '_>) -> Out {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let (trans_a, trans_b) = (cx.flag("transA", false)?, cx.flag("transB", false)?);
    let (alpha, beta) = (cx.float("alpha", 1.0)?, cx.float("beta", 1.0)?);
    // Before operator set 7 it said whether C may be spread.
    if cx.version < 7 {
        cx.ignore(&["broadcast"]);
    }
    for (v, name) in [(a, "A"), (b, "B")] {
        if cx.rank(v)? != 2 {
            let shape = cx.shape(v)?;
            return Err(Failure::refused(format!("{name} must have two axes, got {shape}")));
        }
    }
    let mut y = cx.b().dot_general(a, b, &[], &[], &[usize::from(!trans_a)], &[usize::from(trans_b)], None)?;
    if alpha != 1.0 {
        let k = cx.scalar_like(y, alpha)?;
        y = cx.b().mul(y, k)?;
    }
    if let Some(mut c) = cx.opt(2)?.filter(|_| beta != 0.0) {
        if beta != 1.0 {
            let k = cx.scalar_like(c, beta)?;
            c = cx.b().mul(c, k)?;
        }
        y = cx.b().add(y, c)?;
    }
    Ok(vec![y])
}

fn matmul_integer(cx: &mut NodeCx<'_, '_>) -> Out {
    let (mut a, mut b) = (cx.input(0)?, cx.input(1)?);
    if cx.has(2) || cx.has(3) {
        a = without_zero_point(cx, a, 2, true)?;
        b = without_zero_point(cx, b, 3, false)?;
    }
    Ok(vec![cx.b().matmul_to(a, b, Some(DType::I32))?])
}

/// An integer operand in `i32` less its zero point, which is a scalar, or has one element for each row (or column).
fn without_zero_point(cx: &mut NodeCx<'_, '_>, x: ValueId, i: usize, rows: bool) -> Result<ValueId, Failure> {
    let x = cx.b().convert(x, DType::I32)?;
    let Some(z) = cx.opt(i)? else { return Ok(x) };
    let mut z = cx.b().convert(z, DType::I32)?;
    let rank = cx.rank(x)?;
    if rows && cx.rank(z)? == 1 && rank >= 2 && cx.shape(z)?.numel() != Dim::ONE {
        z = cx.b().expand_dims(z, &[-1])?;
    } else if cx.shape(z)?.numel() == Dim::ONE {
        z = crate::import::scalar(cx.b(), z)?;
    }
    Ok(cx.b().sub(x, z)?)
}

/// A term: its letters, with those of the ellipsis as numbers from 0 upwards.
type Term = Vec<Letter>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Letter {
    Dots(usize),
    Name(char),
}

fn einsum(cx: &mut NodeCx<'_, '_>) -> Out {
    let equation = cx.string("equation", "")?;
    let operands = cx.inputs_from(0)?;
    let text: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match text.split_once("->") {
        Some((l, r)) => (l, Some(r)),
        None => (&text[..], None),
    };
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != operands.len() {
        return Err(Failure::refused(format!(
            "equation `{equation}` has {} terms, {} operands are given",
            terms.len(),
            operands.len()
        )));
    }
    // Axes under an ellipsis are numbered so that the last ones of all operands match.
    let mut dots = 0;
    for (t, &v) in terms.iter().zip(&operands) {
        let named = t.replace("...", "").chars().count();
        if t.contains("...") {
            dots = dots.max(cx.rank(v)?.saturating_sub(named));
        }
    }
    let mut values = Vec::new();
    let mut seen: Vec<Letter> = Vec::new();
    for (t, &v) in terms.iter().zip(&operands) {
        let rank = cx.rank(v)?;
        let letters = letters(t, rank, dots)
            .ok_or_else(|| Failure::refused(format!("term `{t}` of equation `{equation}` does not fit {rank} axes")))?;
        seen.extend(&letters);
        values.push(diagonal(cx, v, letters)?);
    }
    let output = match right {
        Some(r) => letters(r, dots + r.replace("...", "").chars().count(), dots),
        // Without an arrow: the ellipsis, then letters that occur once, in order.
        None => {
            let mut once: Term = (0..dots).map(Letter::Dots).collect();
            let mut names: Term = seen
                .iter()
                .copied()
                .filter(|l| matches!(l, Letter::Name(_)))
                .filter(|l| seen.iter().filter(|m| *m == l).count() == 1)
                .collect();
            names.sort_unstable();
            once.extend(names);
            Some(once)
        }
    };
    let output = output.ok_or_else(|| Failure::refused(format!("equation `{equation}` has a bad result")))?;
    if let Some(l) = output.iter().find(|l| matches!(l, Letter::Name(_)) && !seen.contains(l)) {
        return Err(Failure::refused(format!("equation `{equation}`: {l:?} of the result is in no term")));
    }
    let mut rest = values.into_iter();
    let mut left = rest.next().ok_or_else(|| Failure::refused("takes at least one operand"))?;
    let others: Vec<(ValueId, Term)> = rest.collect();
    for (i, right) in others.iter().enumerate() {
        let later: Vec<Letter> =
            others.iter().skip(i + 1).flat_map(|(_, t)| t.iter().copied()).chain(output.iter().copied()).collect();
        left = contract(cx, left, right.clone(), &later)?;
    }
    let (v, term) = sum_out(cx, left, &output)?;
    // Letters of an ellipsis that no operand has are axes of size 1, which broadcasting made unnecessary.
    let perm = output.iter().filter_map(|l| term.iter().position(|m| m == l)).collect::<Vec<_>>();
    Ok(vec![if perm.iter().copied().eq(0..perm.len()) { v } else { cx.b().transpose(v, &perm)? }])
}

/// The letters of a term for an operand of `rank` axes.
fn letters(term: &str, rank: usize, dots: usize) -> Option<Term> {
    let mut out = Vec::new();
    match term.split_once("...") {
        None => out.extend(term.chars().map(Letter::Name)),
        Some((before, after)) => {
            let under = rank.checked_sub(before.chars().count() + after.chars().count())?;
            out.extend(before.chars().map(Letter::Name));
            out.extend((dots.checked_sub(under)?..dots).map(Letter::Dots));
            out.extend(after.chars().map(Letter::Name));
        }
    }
    let named = |l: &Letter| matches!(l, Letter::Name(c) if !c.is_alphabetic());
    (out.len() == rank && !out.iter().any(named)).then_some(out)
}

/// An operand whose letters are distinct: of repeated ones the diagonal is taken.
fn diagonal(cx: &mut NodeCx<'_, '_>, mut v: ValueId, mut term: Term) -> Result<(ValueId, Term), Failure> {
    while let Some((i, j)) = repeated(&term) {
        let shape = cx.shape(v)?;
        let (rank, n) = (shape.rank(), shape.get(i).cloned().unwrap_or(Dim::ONE));
        let m = shape.get(j).cloned().unwrap_or(Dim::ONE);
        let (row, column) = (cx.b().iota(DType::I64, [n], 0)?, cx.b().iota(DType::I64, [m], 0)?);
        let (row, column) = (cx.along(row, i, rank)?, cx.along(column, j, rank)?);
        let zero = cx.scalar_like(v, 0.0)?;
        let b = cx.b();
        let on = b.eq(row, column)?;
        let kept = b.select(on, v, zero)?;
        v = b.reduce(kept, ReduceKind::Sum, &[j as i64], false)?;
        term.remove(j);
    }
    Ok((v, term))
}

fn repeated(term: &[Letter]) -> Option<(usize, usize)> {
    term.iter().enumerate().find_map(|(j, l)| term.iter().take(j).position(|m| m == l).map(|i| (i, j)))
}

/// Sums over letters that `needed` does not have.
fn sum_out(cx: &mut NodeCx<'_, '_>, (v, term): (ValueId, Term), needed: &[Letter]) -> Result<(ValueId, Term), Failure> {
    let axes: Vec<i64> = term.iter().enumerate().filter(|(_, l)| !needed.contains(l)).map(|(i, _)| i as i64).collect();
    let v = cx.b().reduce(v, ReduceKind::Sum, &axes, false)?;
    Ok((v, term.into_iter().filter(|l| needed.contains(l)).collect()))
}

/// The product of two operands, summed over letters that `later` does not have.
fn contract(
    cx: &mut NodeCx<'_, '_>,
    left: (ValueId, Term),
    right: (ValueId, Term),
    later: &[Letter],
) -> Result<(ValueId, Term), Failure> {
    let keep = |other: &Term| later.iter().chain(other).copied().collect::<Vec<_>>();
    let (keep_left, keep_right) = (keep(&right.1), keep(&left.1));
    let (mut a, ta) = sum_out(cx, left, &keep_left)?;
    let (mut b, tb) = sum_out(cx, right, &keep_right)?;
    // An axis of size 1 broadcasts against a larger one.
    for (i, l) in ta.iter().enumerate() {
        let Some(j) = tb.iter().position(|m| m == l) else { continue };
        let (sa, sb) = (cx.shape(a)?, cx.shape(b)?);
        let (da, db) = (sa[i].clone(), sb[j].clone());
        if da != db {
            let n = da.bcast(&db);
            let widen = |s: &rlx_ir::Shape, at: usize| {
                let mut dims = s.dims().to_vec();
                dims[at] = n.clone();
                dims
            };
            a = cx.b().broadcast_to(a, widen(&sa, i))?;
            b = cx.b().broadcast_to(b, widen(&sb, j))?;
        }
    }
    let shared: Vec<(usize, usize, Letter)> =
        ta.iter().enumerate().filter_map(|(i, l)| tb.iter().position(|m| m == l).map(|j| (i, j, *l))).collect();
    let (batch, sum): (Vec<_>, Vec<_>) = shared.iter().partition(|(_, _, l)| later.contains(l));
    let side = |v: &[(usize, usize, Letter)]| {
        (v.iter().map(|x| x.0).collect::<Vec<_>>(), v.iter().map(|x| x.1).collect::<Vec<_>>())
    };
    let ((ba, bb), (ca, cb)) = (side(&batch), side(&sum));
    let y = cx.b().dot_general(a, b, &ba, &bb, &ca, &cb, None)?;
    let free = |t: &Term, used: &[usize], more: &[usize]| {
        t.iter()
            .enumerate()
            .filter(|(i, _)| !used.contains(i) && !more.contains(i))
            .map(|(_, l)| *l)
            .collect::<Vec<_>>()
    };
    let term = batch.iter().map(|x| x.2).chain(free(&ta, &ba, &ca)).chain(free(&tb, &bb, &cb)).collect();
    Ok((y, term))
}
