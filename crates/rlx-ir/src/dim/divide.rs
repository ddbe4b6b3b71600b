//! Simplification of floordiv, ceildiv and mod. The rules are numbered in the [module](super) header.

use super::monomial::Monomial;
use super::{Atom, Dim, Invalid, Term};

/// Steps of polynomial division before giving up on an exact quotient.
const MAX_DIVISION_STEPS: usize = 64;

/// Greatest constant divisor for the rules that add to or multiply the numerator; with a greater one they could make a
/// small value overflow on evaluation.
const MAX_SMALL_DIVISOR: i64 = i32::MAX as i64;

impl Dim {
    /// Division rounded towards negative infinity.
    #[must_use]
    pub fn floor_div(&self, divisor: impl Into<Dim>) -> Self {
        floor_div(self, &divisor.into())
    }

    /// Division rounded towards positive infinity.
    #[must_use]
    pub fn ceil_div(&self, divisor: impl Into<Dim>) -> Self {
        ceil_div(self, &divisor.into())
    }

    /// The remainder of floor division; it has the sign of the divisor.
    #[must_use]
    pub fn rem_floor(&self, divisor: impl Into<Dim>) -> Self {
        rem_floor(self, &divisor.into())
    }
}

/// Floor division of numbers; none for division by zero or overflow.
pub(super) fn floor_div_i64(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

/// Ceiling division of numbers; none for division by zero or overflow.
pub(super) fn ceil_div_i64(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) == (b < 0) { quotient + 1 } else { quotient })
}

/// Remainder of floor division of numbers; none for division by zero.
pub(super) fn rem_floor_i64(a: i64, b: i64) -> Option<i64> {
    if b == 0 {
        return None;
    }
    let rest = a.wrapping_rem(b);
    Some(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
}

fn floor_div(a: &Dim, b: &Dim) -> Dim {
    let atom = |a: Dim, b: Dim| Dim::from_atom(Atom::FloorDiv(a, b));
    match constants(a, b, floor_div_i64) {
        Early::Done(dim) => return dim,
        Early::ByZero => return atom(a.clone(), b.clone()),
        Early::Symbolic => {}
    }
    let Reduced { whole, mut num, mut den, .. } = reduce(a, b);
    if let Some(c) = den.as_const().filter(|c| *c > 0) {
        let g = coefficient_gcd(&num, c);
        if g > 1 {
            num = divide_floor(&num, g);
            den = Dim::constant(c / g);
        }
        if let Some((merged, divisor)) = merge_nested(&num, c / g) {
            return whole + floor_div(&merged, &divisor);
        }
    }
    match constants(&num, &den, floor_div_i64) {
        Early::Done(quotient) => whole + quotient,
        _ if is_proper(&num, &den) => whole,
        _ => whole + atom(num, den),
    }
}

fn ceil_div(a: &Dim, b: &Dim) -> Dim {
    let atom = |a: Dim, b: Dim| Dim::from_atom(Atom::CeilDiv(a, b));
    match constants(a, b, ceil_div_i64) {
        Early::Done(dim) => return dim,
        Early::ByZero => return atom(a.clone(), b.clone()),
        Early::Symbolic => {}
    }
    let Reduced { whole, num, den, .. } = reduce(a, b);
    if let Early::Done(quotient) = constants(&num, &den, ceil_div_i64) {
        return whole + quotient;
    }
    if let Some(c) = small_divisor(&den) {
        let shifted = &num + (c - 1);
        if shifted.as_invalid().is_none() {
            return whole + floor_div(&shifted, &den);
        }
    }
    if num.lower_bound() >= Some(1) && num.known_le(&den) == Some(true) {
        return whole + 1;
    }
    whole + atom(num, den)
}

fn rem_floor(a: &Dim, b: &Dim) -> Dim {
    let atom = |a: Dim, b: Dim| Dim::from_atom(Atom::Mod(a, b));
    match constants(a, b, rem_floor_i64) {
        Early::Done(dim) => return dim,
        Early::ByZero => return atom(a.clone(), b.clone()),
        Early::Symbolic => {}
    }
    let Reduced { mut num, mut den, mut scale, .. } = reduce(a, b);
    let mut rest = Dim::ZERO;
    if let Some(c) = small_divisor(&den) {
        num = residues(&num, c);
        let g = coefficient_gcd(&num, c);
        if g > 1 {
            rest = &scale * num.constant_term().rem_euclid(g);
            num = divide_floor(&num, g);
            den = Dim::constant(c / g);
            scale *= g;
        }
    }
    match constants(&num, &den, rem_floor_i64) {
        Early::Done(remainder) => scale * remainder + rest,
        _ if is_proper(&num, &den) => scale * num + rest,
        _ => scale * atom(num, den) + rest,
    }
}

enum Early {
    Done(Dim),
    ByZero,
    Symbolic,
}

/// Rule 1, and invalid operands.
fn constants(a: &Dim, b: &Dim, fold: fn(i64, i64) -> Option<i64>) -> Early {
    if let Some(reason) = a.as_invalid().or(b.as_invalid()) {
        return Early::Done(Dim::invalid(reason));
    }
    match (a.as_const(), b.as_const()) {
        (_, Some(0)) => Early::ByZero,
        (Some(0), _) => Early::Done(Dim::ZERO),
        (Some(a), Some(b)) => Early::Done(fold(a, b).map_or(Dim::invalid(Invalid::Overflow), Dim::constant)),
        _ => Early::Symbolic,
    }
}

/// A constant divisor that rule 7 applies to.
fn small_divisor(den: &Dim) -> Option<i64> {
    den.as_const().filter(|c| (1..=MAX_SMALL_DIVISOR).contains(c))
}

/// Rule 6: `0 ≤ num < den` for all symbol values.
fn is_proper(num: &Dim, den: &Dim) -> bool {
    num.lower_bound() >= Some(0) && (den - num).lower_bound() >= Some(1)
}

/// `a / b = whole + num / den` as rational numbers, and `a mod b = scale * (num mod den)`.
struct Reduced {
    whole: Dim,
    num: Dim,
    den: Dim,
    scale: Dim,
}

/// Rules 2 to 5, until none applies. Where a step overflows the division stays as it was.
fn reduce(a: &Dim, b: &Dim) -> Reduced {
    let mut reduced = Reduced { whole: Dim::ZERO, num: a.clone(), den: b.clone(), scale: Dim::ONE };
    if leading_coefficient(b) < 0 {
        let (num, den) = (-a, -b);
        if num.as_invalid().is_none() && den.as_invalid().is_none() {
            reduced = Reduced { num, den, scale: Dim::constant(-1), ..reduced };
        }
    }
    while step(&mut reduced) {}
    let parts = [&reduced.whole, &reduced.num, &reduced.den, &reduced.scale];
    if parts.iter().any(|dim| dim.as_invalid().is_some()) {
        return Reduced { whole: Dim::ZERO, num: a.clone(), den: b.clone(), scale: Dim::ONE };
    }
    reduced
}

/// One round of rules 3 to 5; true where another may find more.
fn step(r: &mut Reduced) -> bool {
    if r.num == Dim::ZERO || r.num.as_invalid().is_some() {
        return false;
    }
    if let Some(quotient) = exact_quotient(&r.num, &r.den) {
        r.whole += quotient;
        r.num = Dim::ZERO;
        return false;
    }
    let mut changed = false;
    if let Some((quotient, rest)) = pull_multiples(&r.num, &r.den) {
        r.whole += quotient;
        r.num = rest;
        changed = true;
    }
    if let Some((factor, num, den)) = cancel_content(&r.num, &r.den) {
        (r.num, r.den) = (num, den);
        r.scale *= factor;
        changed = true;
    }
    changed
}

/// Rule 3: the polynomial quotient, where the remainder is zero.
fn exact_quotient(num: &Dim, den: &Dim) -> Option<Dim> {
    let mut rest = num.clone();
    let mut quotient = Dim::ZERO;
    let (lead, lead_coefficient) = leading_term(den)?;
    for _ in 0..MAX_DIVISION_STEPS {
        let (monomial, coefficient) = leading_term(&rest)?;
        if coefficient.checked_rem(lead_coefficient)? != 0 {
            return None;
        }
        let part = single(monomial.divide(&lead)?, coefficient.checked_div(lead_coefficient)?);
        rest -= &part * den;
        quotient += part;
        if rest == Dim::ZERO {
            return Some(quotient);
        }
    }
    None
}

/// Rule 4: the multiples of a single-term divisor in the numerator, and the rest. Coefficients split towards zero, so
/// that both parts keep their sign and with it their bounds; constants split towards negative infinity.
fn pull_multiples(num: &Dim, den: &Dim) -> Option<(Dim, Dim)> {
    let (divisor, k) = match (den.terms(), den.constant_term()) {
        ([], k) => (Monomial(Vec::new()), k),
        ([term], 0) => (term.monomial.clone(), term.coefficient),
        _ => return None,
    };
    if k <= 0 {
        return None;
    }
    let mut quotient = Dim::ZERO;
    for term in num.terms() {
        let part = term.coefficient / k;
        if part != 0
            && let Some(monomial) = term.monomial.divide(&divisor)
        {
            quotient += single(monomial, part);
        }
    }
    if divisor.0.is_empty() {
        quotient += num.constant_term().div_euclid(k);
    }
    if quotient == Dim::ZERO {
        return None;
    }
    let rest = num - &quotient * den;
    Some((quotient, rest))
}

/// Rule 5: the greatest factor that all terms of both sides share, and both sides without it.
fn cancel_content(num: &Dim, den: &Dim) -> Option<(Dim, Dim, Dim)> {
    let (g, h) = (content(num)?, content(den)?);
    let factor = Term { monomial: g.monomial.common(&h.monomial), coefficient: gcd(g.coefficient, h.coefficient) };
    if factor.coefficient == 1 && factor.monomial.0.is_empty() {
        return None;
    }
    let (num, den) = (divide_exact(num, &factor)?, divide_exact(den, &factor)?);
    Some((single(factor.monomial, factor.coefficient), num, den))
}

/// The greatest term that divides every term; none where numbers have no representable common divisor.
fn content(dim: &Dim) -> Option<Term> {
    let mut parts = dim.terms().to_vec();
    if dim.constant_term() != 0 {
        parts.push(Term { monomial: Monomial(Vec::new()), coefficient: dim.constant_term() });
    }
    let mut parts = parts.into_iter();
    let mut common = parts.next()?;
    common.coefficient = common.coefficient.checked_abs()?;
    for part in parts {
        common.coefficient = gcd(common.coefficient, part.coefficient.checked_abs()?);
        common.monomial = common.monomial.common(&part.monomial);
    }
    Some(common)
}

/// The dim over a term that divides it.
fn divide_exact(dim: &Dim, factor: &Term) -> Option<Dim> {
    let mut quotient = Dim::ZERO;
    for term in dim.terms() {
        let monomial = term.monomial.divide(&factor.monomial)?;
        quotient += single(monomial, term.coefficient.checked_div(factor.coefficient)?);
    }
    Some(quotient + dim.constant_term().checked_div(factor.coefficient)?)
}

/// The greatest common divisor of `c` and the coefficients, leaving out the constant summand.
fn coefficient_gcd(dim: &Dim, c: i64) -> i64 {
    dim.terms().iter().fold(c, |g, term| term.coefficient.checked_abs().map_or(1, |coefficient| gcd(g, coefficient)))
}

/// The dim over a number that divides its coefficients, the constant summand rounded down.
fn divide_floor(dim: &Dim, g: i64) -> Dim {
    let terms = dim.terms().iter().map(|term| Term { coefficient: term.coefficient / g, ..term.clone() });
    Dim::from_parts(terms.collect(), dim.constant_term().div_euclid(g))
}

/// The dim with coefficients and constant reduced to `0..c`.
fn residues(dim: &Dim, c: i64) -> Dim {
    let terms = dim.terms().iter().map(|term| Term { coefficient: term.coefficient.rem_euclid(c), ..term.clone() });
    Dim::from_parts(terms.filter(|term| term.coefficient != 0).collect(), dim.constant_term().rem_euclid(c))
}

/// `(y + x floordiv a) floordiv c` as numerator `a·y + x` and divisor `a·c`, where the numerator has exactly one such
/// division and nothing overflows.
fn merge_nested(num: &Dim, c: i64) -> Option<(Dim, Dim)> {
    let mut divisions = num.terms().iter().filter_map(|term| match (term.coefficient, term.factors()) {
        (1, [(Atom::FloorDiv(x, a), 1)]) => Some((term, x, a.as_const().filter(|a| *a > 0)?)),
        _ => None,
    });
    let (term, x, a) = divisions.next()?;
    if divisions.next().is_some() {
        return None;
    }
    let divisor = a.checked_mul(c).filter(|product| *product <= MAX_SMALL_DIVISOR)?;
    let others = num - &single(term.monomial.clone(), term.coefficient);
    let merged = &others * a + x;
    merged.as_invalid().is_none().then(|| (merged, Dim::constant(divisor)))
}

fn leading_term(dim: &Dim) -> Option<(Monomial, i64)> {
    match dim.terms().first() {
        Some(term) => Some((term.monomial.clone(), term.coefficient)),
        None => dim.as_const().filter(|value| *value != 0).map(|value| (Monomial(Vec::new()), value)),
    }
}

fn leading_coefficient(dim: &Dim) -> i64 {
    dim.terms().first().map_or(dim.constant_term(), |term| term.coefficient)
}

/// The dim of one product; the empty product is the number.
fn single(monomial: Monomial, coefficient: i64) -> Dim {
    if monomial.0.is_empty() {
        return Dim::constant(coefficient);
    }
    Dim::from_parts(vec![Term { monomial, coefficient }], 0)
}

/// Greatest common divisor of non-negative numbers.
fn gcd(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
