//! Activations: products of x with a function of x, in any association and with their literals anywhere.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use rlx_ir::Op;
use rlx_ir::ValueId;
use rlx_ir::ops::elementwise::{Binary, Elementwise, Unary};

use super::look::Look;
use super::{Found, Recogniser};

/// √(2/π).
const TANH_SLOPE: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
/// Said of functions of the right form.
const NUMBERS: &str = "its numbers are others";
/// The cubic coefficient inside the tanh.
const TANH_CUBIC: f64 = 0.044_715;

/// `a·f(u) + a` for a function f: u and a.
fn one_plus(l: Look<'_>, v: ValueId, f: Unary) -> Option<(ValueId, f64)> {
    l.either(v, Binary::Add).find_map(|(t, c)| {
        let b = l.number(c)?;
        let (t, a) = l.scaled(t).unwrap_or((t, 1.0));
        l.unary(t, f).filter(|_| l.close(v, a, b)).map(|u| (u, a))
    })
}

/// The x and k of `v = k·x·f`, where `accepts` finds f to be right for x and k.
fn product_with(
    l: Look<'_>,
    v: ValueId,
    factors: &[ValueId],
    f: ValueId,
    accepts: impl Fn(ValueId, f64) -> bool,
) -> Option<ValueId> {
    factors.iter().copied().filter(|&x| x != v && x != f).find(|&x| l.times(v, x, f).is_some_and(|k| accepts(x, k)))
}

/// `x/2·(1 + erf(x/√2))`.
pub fn gelu(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let factors = l.factors(v);
    let mut near = false;
    let found = factors.iter().find_map(|&f| {
        let (u, a) = one_plus(l, f, Unary::Erf)?;
        near = factors.iter().any(|&x| l.polynomial(u, x).is_some());
        product_with(l, v, &factors, f, |x, k| {
            let slope = l.polynomial(u, x).filter(|p| p[0] == 0.0 && p[2] == 0.0 && p[3] == 0.0).map(|p| p[1]);
            l.close(v, k * a, 0.5) && slope.is_some_and(|s| l.close(v, s, FRAC_1_SQRT_2))
        })
    });
    match found {
        Some(x) => r.rw.b.gelu(x).map(Some),
        None if near => r.nearly(NUMBERS),
        None => Ok(None),
    }
}

/// `x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))`, also as `x·sigmoid` of twice that.
pub fn gelu_tanh(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let factors = l.factors(v);
    let mut near = false;
    let found = factors.iter().find_map(|&f| {
        // tanh(u) = 2·sigmoid(2u) − 1
        let (u, a, slope) = match one_plus(l, f, Unary::Tanh) {
            Some((u, a)) => {
                near = factors.iter().any(|&x| l.polynomial(u, x).is_some());
                (u, a, TANH_SLOPE)
            }
            None => (l.unary(f, Unary::Sigmoid)?, 0.5, 2.0 * TANH_SLOPE),
        };
        product_with(l, v, &factors, f, |x, k| {
            let p = l.polynomial(u, x).filter(|p| p[0] == 0.0 && p[2] == 0.0);
            let shape = |p: [f64; 4]| l.close(v, p[1], slope) && l.close(v, p[3], slope * TANH_CUBIC);
            l.close(v, k * a, 0.5) && p.is_some_and(shape)
        })
    });
    match found {
        Some(x) => r.rw.b.gelu_tanh(x).map(Some),
        None if near => r.nearly(NUMBERS),
        None => Ok(None),
    }
}

/// `x·sigmoid(x)`, `x/(1 + exp(−x))`.
pub fn silu(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    if let Some((x, d)) = l.binary(v, Binary::Div) {
        return match one_plus_exp(l, d) {
            Some(n) if negated(l, n) == Some(x) => r.rw.b.silu(x).map(Some),
            _ => Ok(None),
        };
    }
    let factors = l.factors(v);
    let found = factors.iter().find_map(|&f| {
        let x = l.unary(f, Unary::Sigmoid)?;
        l.times(v, x, f).filter(|&k| k == 1.0).map(|_| x)
    });
    found.map(|x| r.rw.b.silu(x)).transpose()
}

/// `clamp(u, lo, hi)` in its spellings: u, lo, hi.
fn clamped(l: Look<'_>, v: ValueId) -> Option<(ValueId, f64, f64)> {
    match l.op(v)? {
        (Op::Elementwise(Elementwise::Clamp), &[u, lo, hi]) if l.fits(lo, u) && l.fits(hi, u) => {
            Some((u, l.number(lo)?, l.number(hi)?))
        }
        (Op::Elementwise(Elementwise::Unary(Unary::Relu)), &[u]) => {
            let (u, hi) = l.either(u, Binary::Min).find_map(|(u, c)| Some((u, l.number(c)?)))?;
            (hi > 0.0).then_some((u, 0.0, hi))
        }
        (Op::Elementwise(Elementwise::Binary(Binary::Min)), _) => l.either(v, Binary::Min).find_map(|(m, c)| {
            let hi = l.number(c)?;
            if let Some(u) = l.unary(m, Unary::Relu) {
                return Some((u, 0.0, hi));
            }
            l.either(m, Binary::Max).find_map(|(u, c)| Some((u, l.number(c)?, hi)))
        }),
        _ => None,
    }
}

/// `x·clamp(x + 3, 0, 6)/6`, `x·clamp(x/6 + 1/2, 0, 1)`.
pub fn hard_swish(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let factors = l.factors(v);
    let mut near = false;
    let found = factors.iter().find_map(|&f| {
        let (u, lo, hi) = clamped(l, f)?;
        near = factors.iter().any(|&x| x != f && l.polynomial(u, x).is_some_and(|p| p[1] != 0.0));
        product_with(l, v, &factors, f, |x, k| {
            let p = l.polynomial(u, x).filter(|p| p[2] == 0.0 && p[3] == 0.0);
            let shape = |p: [f64; 4]| l.close(v, k * p[1], 1.0 / 6.0) && l.close(v, k * p[0], 0.5);
            lo == 0.0 && l.close(v, k * hi, 1.0) && p.is_some_and(shape)
        })
    });
    match found {
        Some(x) => r.rw.b.hard_swish(x).map(Some),
        None if near => r.nearly(NUMBERS),
        None => Ok(None),
    }
}

/// `x·tanh(softplus(x))`.
pub fn mish(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let factors = l.factors(v);
    let found = factors.iter().find_map(|&f| {
        let x = l.unary(l.unary(f, Unary::Tanh)?, Unary::Softplus)?;
        l.times(v, x, f).filter(|&k| k == 1.0).map(|_| x)
    });
    found.map(|x| r.rw.b.mish(x)).transpose()
}

/// `1 + exp(u)`: u.
fn one_plus_exp(l: Look<'_>, v: ValueId) -> Option<ValueId> {
    l.either(v, Binary::Add).find_map(|(e, c)| l.unary(e, Unary::Exp).filter(|&u| l.is(c, 1.0) && l.fits(c, u)))
}

/// The y of `v = −y`.
fn negated(l: Look<'_>, v: ValueId) -> Option<ValueId> {
    l.scaled(v).filter(|(_, c)| *c == -1.0).map(|(y, _)| y)
}

/// `log(1 + exp(x))`.
pub fn softplus(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let found = match l.unary(v, Unary::Log) {
        Some(s) => one_plus_exp(l, s),
        None => l.unary(v, Unary::Log1p).and_then(|e| l.unary(e, Unary::Exp)),
    };
    found.map(|x| r.rw.b.softplus(x)).transpose()
}

/// `1/(1 + exp(−x))`, `exp(x)/(1 + exp(x))`.
pub fn sigmoid(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let found = match l.binary(v, Binary::Div) {
        Some((n, d)) => one_plus_exp(l, d).and_then(|u| {
            if l.is(n, 1.0) && l.fits(n, u) { negated(l, u) } else { l.unary(n, Unary::Exp).filter(|&x| x == u) }
        }),
        None => l.unary(v, Unary::Reciprocal).and_then(|d| one_plus_exp(l, d)).and_then(|u| negated(l, u)),
    };
    found.map(|x| r.rw.b.sigmoid(x)).transpose()
}
