//! Layer and RMS normalisation, in the forms of PyTorch, TensorFlow and JAX; scale and bias are taken in by rules of their own.

use rlx_ir::ops::Neural;
use rlx_ir::ops::elementwise::{Binary, Unary};
use rlx_ir::ops::neural::{LayerNorm, RmsNorm};
use rlx_ir::{Dim, Op, ValueId};

use super::look::{Folded, Look, Views};
use super::{Found, Recogniser};

const OTHER: &str = "it divides by the deviation of something else";
const NOT_LAST: &str = "it normalises axes that are not the last";
const ASTRAY: &str = "its deviation does not lie along what it divides";
const SCALE: &str = "its scale or bias does not lie along the normalised axes";

/// `x·1/√(s)` in its spellings: candidates for (x, s), the views that lie above s, and what the inverse is further multiplied by.
struct Quotient {
    x: ValueId,
    /// What is under the root.
    s: ValueId,
    views: Views,
    /// The root, or its inverse, as it meets x.
    inverse: ValueId,
    /// A factor that was multiplied into the inverse root first.
    gamma: Option<ValueId>,
}

/// `√s`: s.
fn root(l: Look<'_>, v: ValueId, views: &mut Views) -> Option<ValueId> {
    let v = l.under_views(v, views);
    l.unary(v, Unary::Sqrt).or_else(|| l.binary(v, Binary::Pow).filter(|(_, n)| l.is(*n, 0.5)).map(|(s, _)| s))
}

/// `1/√s`: s.
fn inverse_root(l: Look<'_>, v: ValueId, views: &mut Views) -> Option<ValueId> {
    let v = l.under_views(v, views);
    if let Some(s) = l.unary(v, Unary::Rsqrt) {
        return Some(s);
    }
    if let Some((s, n)) = l.binary(v, Binary::Pow) {
        return l.is(n, -0.5).then_some(s);
    }
    if let Some(d) = l.unary(v, Unary::Reciprocal) {
        return root(l, d, views);
    }
    let (one, d) = l.binary(v, Binary::Div)?;
    if l.is(one, 1.0) { root(l, d, views) } else { None }
}

fn quotients(l: Look<'_>, v: ValueId) -> Vec<Quotient> {
    let mut found = Vec::new();
    if let Some((x, d)) = l.binary(v, Binary::Div) {
        let mut views = Views::default();
        found.extend(root(l, d, &mut views).map(|s| Quotient { x, s, views, inverse: d, gamma: None }));
    }
    for (x, i) in l.either(v, Binary::Mul) {
        let mut views = Views::default();
        if let Some(s) = inverse_root(l, i, &mut views) {
            found.push(Quotient { x, s, views, inverse: i, gamma: None });
            continue;
        }
        for (i, gamma) in l.either(i, Binary::Mul) {
            let mut views = Views::default();
            if let Some(s) = inverse_root(l, i, &mut views) {
                found.push(Quotient { x, s, views, inverse: i, gamma: Some(gamma) });
            }
        }
    }
    found
}

/// `m + eps`: m and eps.
fn with_eps(l: Look<'_>, s: ValueId, views: &mut Views) -> Option<(ValueId, f64)> {
    let s = l.under_views(s, views);
    l.either(s, Binary::Add).find_map(|(m, e)| {
        let eps = l.number(e).filter(|&e| e > 0.0 && e < 0.1)?;
        l.fits(e, m).then_some((m, eps))
    })
}

/// The y of `y·y`.
fn squared(l: Look<'_>, v: ValueId) -> Option<ValueId> {
    match l.binary(v, Binary::Mul) {
        Some((a, b)) => (a == b).then_some(a),
        None => l.binary(v, Binary::Pow).filter(|(_, n)| l.is(*n, 2.0)).map(|(a, _)| a),
    }
}

/// The deviation that `v = x − mean(x)` is: the mean.
fn deviation(l: Look<'_>, v: ValueId) -> Option<Folded> {
    let (x, m) = l.binary(v, Binary::Sub)?;
    l.mean(m).filter(|f| f.x == x)
}

/// What `v` is the variance of, and over which axes: `mean((x − mean)²)` or `mean(x²) − mean(x)²`, not below zero.
fn variance(l: Look<'_>, v: ValueId, views: &mut Views) -> Option<Folded> {
    let v = l.under_views(v, views);
    if let Some(f) = l.mean_noting(v, views) {
        let of = deviation(l, squared(l, f.x)?)?;
        return (of.axes == f.axes).then_some(of);
    }
    let v = match l.unary(v, Unary::Relu) {
        Some(u) => l.under_views(u, views),
        None => v,
    };
    let (of_squares, square_of) = l.binary(v, Binary::Sub).filter(|(a, b)| l.shape(*a) == l.shape(*b))?;
    let squares = l.mean_noting(of_squares, views)?;
    let square_of = l.under_views(square_of, views);
    let mean = l.mean_noting(squared(l, square_of)?, views)?;
    (squared(l, squares.x)? == mean.x && squares.axes == mean.axes).then_some(mean)
}

/// True if these are the last axes of a value.
fn trailing(l: Look<'_>, f: &Folded) -> bool {
    let rank = l.shape(f.x).map_or(0, |s| s.rank());
    !f.axes.is_empty() && f.axes.iter().copied().eq(rank.saturating_sub(f.axes.len())..rank)
}

/// An operand that scales or shifts along the normalised axes, without the axes of 1 before them.
fn along(r: &mut Recogniser<'_>, v: ValueId, x: ValueId, axes: &[usize]) -> Found {
    let l = r.look();
    let (Some(s), Some(full)) = (l.shape(v), l.shape(x)) else { return Ok(None) };
    let Some(skip) = (s.rank() <= full.rank()).then(|| s.rank().saturating_sub(axes.len())) else { return Ok(None) };
    let (outer, inner) = (&s[..skip], s[skip..].to_vec());
    let fits = inner.iter().rev().zip(full.iter().rev()).all(|(a, b)| a == b || *a == Dim::ONE);
    let scalar = inner.iter().all(|d| *d == Dim::ONE) && !axes.iter().all(|&a| full.get(a) == Some(&Dim::ONE));
    if !fits || scalar || outer.iter().any(|d| *d != Dim::ONE) {
        return Ok(None);
    }
    if outer.is_empty() { Ok(Some(v)) } else { r.rw.b.reshape(v, inner).map(Some) }
}

/// `(x − mean)/√(variance + eps)`.
pub fn layer_norm(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let mut why = None;
    let found = quotients(l, v).into_iter().find_map(|mut q| {
        let of = deviation(l, q.x)?;
        let (m, eps) = with_eps(l, q.s, &mut q.views)?;
        let var = variance(l, m, &mut q.views)?;
        why = match l.lies_along(q.inverse, &var, &q.views) {
            _ if var != of => Some(OTHER),
            _ if !trailing(l, &of) => Some(NOT_LAST),
            false => Some(ASTRAY),
            true => return Some((of, eps, q.gamma)),
        };
        None
    });
    let Some((of, eps, gamma)) = found else {
        r.why = why;
        return Ok(None);
    };
    let scale = match gamma {
        Some(g) => match along(r, g, of.x, &of.axes)? {
            Some(g) => Some(g),
            None => return r.nearly(SCALE),
        },
        None => None,
    };
    r.rw.b.layer_norm(of.x, scale, None, &of.axes, eps).map(Some)
}

/// `x·k + (bias − mean·k)` with `k = scale/√(variance + eps)`, as TensorFlow writes it.
pub fn from_moments(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let sums = l.either(v, Binary::Add).filter_map(|(a, b)| {
        let (bias, mk) = l.binary(b, Binary::Sub)?;
        Some((a, mk, bias))
    });
    let mut found = None;
    for (xk, mk, bias) in sums {
        for (x, k) in l.either(xk, Binary::Mul) {
            let mean = l.either(mk, Binary::Mul).find_map(|(m, j)| l.mean(m).filter(|f| j == k && f.x == x));
            let Some(mean) = mean else { continue };
            for (i, gamma) in l.either(k, Binary::Mul) {
                let mut views = Views::default();
                let Some(s) = inverse_root(l, i, &mut views) else { continue };
                let Some((m, eps)) = with_eps(l, s, &mut views) else { continue };
                let var = variance(l, m, &mut views);
                if var.as_ref() == Some(&mean) && trailing(l, &mean) && l.lies_along(i, &mean, &views) {
                    found = Some((mean.clone(), eps, gamma, bias));
                }
            }
        }
    }
    let Some((of, eps, gamma, bias)) = found else { return Ok(None) };
    let (Some(gamma), Some(bias)) = (along(r, gamma, of.x, &of.axes)?, along(r, bias, of.x, &of.axes)?) else {
        return r.nearly(SCALE);
    };
    r.rw.b.layer_norm(of.x, Some(gamma), Some(bias), &of.axes, eps).map(Some)
}

/// `x/√(mean(x²) + eps)`.
pub fn rms_norm(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let mut why = None;
    let found = quotients(l, v).into_iter().find_map(|mut q| {
        let (m, eps) = with_eps(l, q.s, &mut q.views)?;
        let of = l.mean_noting(m, &mut q.views)?;
        let x = squared(l, of.x)?;
        why = match l.lies_along(q.inverse, &of, &q.views) {
            _ if x != q.x => Some(OTHER),
            _ if !trailing(l, &of) => Some(NOT_LAST),
            false => Some(ASTRAY),
            true => return Some((x, of.axes, eps, q.gamma)),
        };
        None
    });
    let Some((x, axes, eps, gamma)) = found else {
        r.why = why;
        return Ok(None);
    };
    let scale = match gamma {
        Some(g) => match along(r, g, x, &axes)? {
            Some(g) => Some(g),
            None => return r.nearly(SCALE),
        },
        None => None,
    };
    norm(r, RmsNorm { axes, eps: eps.into(), has_scale: scale.is_some() }.into(), [Some(x), scale, None])
}

fn norm(r: &mut Recogniser<'_>, op: Op, operands: [Option<ValueId>; 3]) -> Found {
    let operands: Vec<ValueId> = operands.into_iter().flatten().collect();
    r.rw.b.op1(op, &operands).map(Some)
}

/// A norm and its operands.
fn normalised(l: Look<'_>, v: ValueId) -> Option<(Neural, Vec<ValueId>)> {
    match l.op(v)? {
        (Op::Neural(n @ (Neural::LayerNorm(_) | Neural::RmsNorm(_))), operands) => Some((n.clone(), operands.to_vec())),
        _ => None,
    }
}

/// A norm without scale and bias, times a scale.
pub fn scale(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let pairs: Vec<_> = l.either(v, Binary::Mul).filter_map(|(n, g)| Some((normalised(l, n)?, g))).collect();
    for ((op, operands), gamma) in pairs {
        let &[x] = &operands[..] else { continue };
        let (op, axes): (Op, _) = match op {
            Neural::LayerNorm(n) => (LayerNorm { has_scale: true, ..n.clone() }.into(), n.axes),
            Neural::RmsNorm(n) => (RmsNorm { has_scale: true, ..n.clone() }.into(), n.axes),
            _ => continue,
        };
        if let Some(gamma) = along(r, gamma, x, &axes)? {
            return norm(r, op, [Some(x), Some(gamma), None]);
        }
    }
    Ok(None)
}

/// A layer norm without bias, plus a bias.
pub fn bias(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let pairs: Vec<_> = l.either(v, Binary::Add).filter_map(|(n, b)| Some((normalised(l, n)?, b))).collect();
    for ((op, operands), beta) in pairs {
        let (Neural::LayerNorm(n), [x, scale @ ..]) = (op, &operands[..]) else { continue };
        if n.has_bias {
            continue;
        }
        if let Some(beta) = along(r, beta, *x, &n.axes)? {
            let op = LayerNorm { has_bias: true, ..n };
            return norm(r, op.into(), [Some(*x), scale.first().copied(), Some(beta)]);
        }
    }
    Ok(None)
}
