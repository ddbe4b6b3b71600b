//! Symbols from observed sizes: equations linear in one unknown at a time, to a fixed point.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Atom, Bounds, Dim, DimBinding, DimError, Symbol};

/// A dim whose size was observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Equation {
    /// The expression.
    pub dim: Dim,
    /// Its observed value.
    pub value: i64,
    /// Where it was observed, for people: ``input `ids` axis 0``.
    pub origin: Arc<str>,
}

impl Equation {
    /// An equation with its origin.
    pub fn new(dim: impl Into<Dim>, value: i64, origin: impl Into<Arc<str>>) -> Self {
        Self { dim: dim.into(), value, origin: origin.into() }
    }
}

/// One thing that is wrong with observed sizes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SolveError {
    /// Two observations give one symbol different values.
    #[error("symbol `{symbol}` is {first} (from {first_origin}) but {second} (from {second_origin})")]
    Conflict {
        /// The symbol.
        symbol: Symbol,
        /// The value taken first.
        first: i64,
        /// Where it was taken from.
        first_origin: Arc<str>,
        /// The other value.
        second: i64,
        /// Where that comes from.
        second_origin: Arc<str>,
    },
    /// A size is not what its expression says.
    #[error("{origin} is {found}, but `{dim}` is {expected}{known}")]
    Mismatch {
        /// The expression.
        dim: Dim,
        /// Its value.
        expected: i64,
        /// The observed size.
        found: i64,
        /// Where it was observed.
        origin: Arc<str>,
        /// The values of its symbols and where they come from, as a clause; empty for a constant.
        known: String,
    },
    /// No integer solves the equation.
    #[error("`{dim}` cannot be {value} (from {origin}) for an integer `{symbol}`{known}")]
    NotDivisible {
        /// The expression.
        dim: Dim,
        /// The observed size.
        value: i64,
        /// The unknown.
        symbol: Symbol,
        /// Where it was observed.
        origin: Arc<str>,
        /// The values of the other symbols and where they come from, as a clause.
        known: String,
    },
    /// A symbol would be negative.
    #[error("symbol `{symbol}` would be {value} (from {origin}), but a size is never negative")]
    Negative {
        /// The symbol.
        symbol: Symbol,
        /// The value.
        value: i64,
        /// Where it comes from.
        origin: Arc<str>,
    },
    /// A symbol is outside its bounds.
    #[error("symbol `{symbol}` is {value} (from {origin}), outside its bounds {min}..={}", max.map_or(String::new(), |max| max.to_string()))]
    OutOfBounds {
        /// The symbol.
        symbol: Symbol,
        /// The value.
        value: i64,
        /// The least value allowed.
        min: i64,
        /// The greatest value allowed.
        max: Option<i64>,
        /// Where it comes from.
        origin: Arc<str>,
    },
    /// An expression of known symbols has no value.
    #[error("{source} (from {origin})")]
    Eval {
        /// Why.
        source: DimError,
        /// Where its size was observed.
        origin: Arc<str>,
    },
}

/// Solves symbols from observed sizes, starting with those bound explicitly. All problems are reported. Symbols that
/// the sizes do not determine stay unbound; see [`unsolved`].
pub fn solve(equations: &[Equation], initial: &DimBinding, bounds: &Bounds) -> Result<DimBinding, Vec<SolveError>> {
    let mut solver = Solver { binding: initial.clone(), origins: BTreeMap::new(), bounds, errors: Vec::new() };
    let explicit: Arc<str> = Arc::from("the explicit binding");
    for (symbol, value) in initial.iter() {
        solver.origins.insert(symbol.clone(), explicit.clone());
        solver.check_range(symbol, value, &explicit);
    }
    let mut open = equations.iter().collect::<Vec<_>>();
    loop {
        let before = open.len();
        open.retain(|equation| !solver.visit(equation));
        if open.len() == before {
            break;
        }
    }
    if solver.errors.is_empty() { Ok(solver.binding) } else { Err(solver.errors) }
}

/// The symbols of the dims that have no value, by name.
pub fn unsolved(dims: &[Dim], binding: &DimBinding) -> Vec<Symbol> {
    let mut missing = BTreeSet::new();
    for dim in dims {
        dim.for_each_symbol(&mut |symbol| {
            if binding.get(symbol).is_none() && !missing.contains(symbol) {
                missing.insert(symbol.clone());
            }
        });
    }
    missing.into_iter().collect()
}

struct Solver<'a> {
    binding: DimBinding,
    origins: BTreeMap<Symbol, Arc<str>>,
    bounds: &'a Bounds,
    errors: Vec<SolveError>,
}

/// `dim = coefficient * unknown + constant` under the known symbols.
struct Linear {
    unknown: Option<Symbol>,
    coefficient: i64,
    constant: i64,
}

enum View {
    Linear(Linear),
    /// More than one unknown, or an unknown inside an atom.
    Open,
    Failed(DimError),
}

impl Solver<'_> {
    /// Uses the equation; false where it must wait for other symbols.
    fn visit(&mut self, equation: &Equation) -> bool {
        let view = match linear(&equation.dim, &self.binding) {
            View::Open if has_composite_atom(&equation.dim) => {
                // Known operands can make an atom vanish: `bcast(1, n)` is `n`.
                let known = |symbol: &Symbol| self.binding.get(symbol).filter(|v| *v >= 0).map(Dim::from);
                linear(&equation.dim.substitute_with(&known), &self.binding)
            }
            view => view,
        };
        match view {
            View::Open => return false,
            View::Failed(source) => {
                self.errors.push(SolveError::Eval { source, origin: equation.origin.clone() });
            }
            View::Linear(Linear { unknown: Some(symbol), coefficient, constant }) if coefficient != 0 => {
                self.assign(equation, symbol, coefficient, constant);
            }
            View::Linear(Linear { constant, .. }) if constant != equation.value => self.mismatch(equation, constant),
            View::Linear(_) => {}
        }
        true
    }

    fn assign(&mut self, equation: &Equation, symbol: Symbol, coefficient: i64, constant: i64) {
        let origin = equation.origin.clone();
        let Some(value) = solve_linear(coefficient, constant, equation.value) else {
            let (dim, value, known) = (equation.dim.clone(), equation.value, self.known_values(&equation.dim));
            self.errors.push(SolveError::NotDivisible { dim, value, symbol, origin, known });
            return;
        };
        if self.check_range(&symbol, value, &origin) {
            self.origins.insert(symbol.clone(), origin);
            self.binding.set(symbol, value);
        }
    }

    /// Reports a value that is negative or out of bounds. False for a negative one, which can have no further use.
    fn check_range(&mut self, symbol: &Symbol, value: i64, origin: &Arc<str>) -> bool {
        let (symbol, origin) = (symbol.clone(), origin.clone());
        let (min, max) = self.bounds.get(&symbol);
        if value < 0 {
            self.errors.push(SolveError::Negative { symbol, value, origin });
            return false;
        }
        if value < min || max.is_some_and(|max| value > max) {
            self.errors.push(SolveError::OutOfBounds { symbol, value, min, max, origin });
        }
        true
    }

    /// Reports an equation of known symbols that does not hold, as two values of a symbol where it has only one.
    fn mismatch(&mut self, equation: &Equation, expected: i64) {
        let origin = equation.origin.clone();
        let symbols = equation.dim.symbols();
        if let (Some(symbol), 1) = (symbols.first(), symbols.len())
            && let View::Linear(alone) = linear(&equation.dim, &DimBinding::new())
            && let (Some(first), Some(first_origin)) = (self.binding.get(symbol), self.origins.get(symbol))
            && let Some(second) = solve_linear(alone.coefficient, alone.constant, equation.value)
        {
            let (symbol, first_origin) = (symbol.clone(), first_origin.clone());
            self.errors.push(SolveError::Conflict { symbol, first, first_origin, second, second_origin: origin });
            return;
        }
        let (dim, known) = (equation.dim.clone(), self.known_values(&equation.dim));
        self.errors.push(SolveError::Mismatch { dim, expected, found: equation.value, origin, known });
    }

    /// `, where batch = 2 (from input a axis 0)`, or nothing.
    fn known_values(&self, dim: &Dim) -> String {
        let symbols = dim.symbols();
        let values = symbols.iter().filter_map(|symbol| {
            let (value, origin) = (self.binding.get(symbol)?, self.origins.get(symbol)?);
            Some(format!("`{symbol}` = {value} (from {origin})"))
        });
        let values = values.collect::<Vec<_>>();
        if values.is_empty() { String::new() } else { format!(", where {}", values.join(" and ")) }
    }
}

fn has_composite_atom(dim: &Dim) -> bool {
    dim.terms().iter().flat_map(|term| term.factors()).any(|(atom, _)| !matches!(atom, Atom::Symbol(_)))
}

/// The integer `x` with `coefficient * x + constant = value`.
fn solve_linear(coefficient: i64, constant: i64, value: i64) -> Option<i64> {
    let rest = i128::from(value) - i128::from(constant);
    let coefficient = i128::from(coefficient);
    if coefficient == 0 || rest % coefficient != 0 {
        return None;
    }
    i64::try_from(rest / coefficient).ok()
}

/// The dim as a linear function of its one unbound symbol.
fn linear(dim: &Dim, binding: &DimBinding) -> View {
    if let Some(value) = dim.as_const() {
        return View::Linear(Linear { unknown: None, coefficient: 0, constant: value });
    }
    let mut unknown: Option<Symbol> = None;
    let (mut coefficient, mut constant) = (0i64, dim.constant_term());
    let overflow = || View::Failed(DimError::Overflow { dim: dim.clone() });
    for term in dim.terms() {
        let (mut factor, mut of_term) = (term.coefficient(), None);
        for (atom, power) in term.factors() {
            let value = match atom.eval(binding) {
                Ok(value) => value,
                Err(DimError::Unbound { .. }) => match (atom, *power, &of_term) {
                    (Atom::Symbol(symbol), 1, None) => {
                        of_term = Some(symbol);
                        continue;
                    }
                    _ => return View::Open,
                },
                Err(error) => return View::Failed(error),
            };
            for _ in 0..*power {
                match factor.checked_mul(value) {
                    Some(product) => factor = product,
                    None => return overflow(),
                }
            }
        }
        let sum = match (of_term, &unknown) {
            (None, _) => &mut constant,
            (Some(symbol), Some(other)) if symbol == other => &mut coefficient,
            (Some(symbol), None) => {
                unknown = Some(symbol.clone());
                &mut coefficient
            }
            _ => return View::Open,
        };
        match sum.checked_add(factor) {
            Some(total) => *sum = total,
            None => return overflow(),
        }
    }
    match dim.as_invalid() {
        None => View::Linear(Linear { unknown, coefficient, constant }),
        Some(_) => View::Failed(super::eval::check_valid(dim).err().unwrap_or(DimError::TooLarge)),
    }
}
