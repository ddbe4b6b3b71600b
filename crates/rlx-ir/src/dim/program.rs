//! Many dims evaluated at once: a straight-line program with shared subexpressions.
//!
//! The program agrees with [`Dim::eval`] for every dim: the same values, and an error where any of the dims has one.
//! It serialises as its symbols and dims and is compiled again when read, so that a hostile file cannot hold a broken
//! one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::divide::{ceil_div_i64, floor_div_i64, rem_floor_i64};
use super::eval::{broadcast, check_valid, divide};
use super::{Atom, Dim, DimError, Symbol};

/// A straight-line program that evaluates a list of dims.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Source", into = "Source")]
pub struct DimProgram {
    source: Source,
    steps: Vec<Step>,
    /// The expression that each step is part of, for errors.
    parts: Vec<Dim>,
    results: Vec<u32>,
    invalid: Option<DimError>,
}

/// What a program is compiled from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Source {
    symbols: Vec<Symbol>,
    dims: Vec<Dim>,
}

/// An operation on earlier values. Values are numbered: first the input symbols, then one per step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    Const(i64),
    Offset(u32, i64),
    Scale(u32, i64),
    Add(u32, u32),
    Mul(u32, u32),
    FloorDiv(u32, u32),
    CeilDiv(u32, u32),
    Mod(u32, u32),
    Min(u32, u32),
    Max(u32, u32),
    Bcast(u32, u32),
}

impl DimProgram {
    /// Compiles the dims. The input symbols are all those that occur, by name.
    pub fn new(dims: impl IntoIterator<Item = Dim>) -> Self {
        let dims = dims.into_iter().collect::<Vec<_>>();
        let symbols = dims.iter().flat_map(Dim::symbols).collect::<BTreeSet<_>>();
        Self::with_symbols(symbols, dims)
    }

    /// Compiles the dims with input symbols in the given order; symbols that occur besides those follow by name.
    pub fn with_symbols(symbols: impl IntoIterator<Item = Symbol>, dims: impl IntoIterator<Item = Dim>) -> Self {
        let mut source = Source { symbols: Vec::new(), dims: dims.into_iter().collect() };
        let mut slots = BTreeMap::new();
        let found = source.dims.iter().flat_map(Dim::symbols).collect::<BTreeSet<_>>();
        for symbol in symbols.into_iter().chain(found) {
            if !slots.contains_key(&symbol) {
                slots.insert(symbol.clone(), index(source.symbols.len()));
                source.symbols.push(symbol);
            }
        }
        let compiler = Compiler { inputs: source.symbols.len(), slots, ..Compiler::default() };
        compiler.compile(source)
    }

    /// The input symbols, in the order in which their values are given.
    pub fn symbols(&self) -> &[Symbol] {
        &self.source.symbols
    }

    /// The dims, in the order of the results.
    pub fn dims(&self) -> &[Dim] {
        &self.source.dims
    }

    /// The number of steps, as a measure of cost.
    pub fn step_count(&self) -> usize {
        self.steps.len()
    }

    /// Evaluates all dims; `out` holds their values on success and nothing of use after an error. Allocates nothing
    /// where `out` was used for this program before.
    pub fn eval_into(&self, symbol_values: &[i64], out: &mut Vec<i64>) -> Result<(), DimError> {
        out.clear();
        let symbols = self.symbols();
        if symbol_values.len() != symbols.len() {
            return Err(DimError::ValueCount { expected: symbols.len(), found: symbol_values.len() });
        }
        if let Some(error) = &self.invalid {
            return Err(error.clone());
        }
        if let Some((symbol, value)) = symbols.iter().zip(symbol_values).find(|(_, value)| **value < 0) {
            return Err(DimError::Negative { symbol: symbol.clone(), value: *value });
        }
        // Results come first, so that cutting the working values off leaves them.
        let base = self.results.len();
        out.reserve(base + symbols.len() + self.steps.len());
        out.resize(base, 0);
        out.extend_from_slice(symbol_values);
        for (step, part) in self.steps.iter().zip(&self.parts) {
            // Compiling numbers operands below the steps that use them.
            let value = |slot: u32| out.get(base + slot as usize).copied().unwrap_or(0);
            let overflow = || DimError::Overflow { dim: part.clone() };
            let dim = || part.clone();
            let result = match *step {
                Step::Const(constant) => constant,
                Step::Offset(a, constant) => value(a).checked_add(constant).ok_or_else(overflow)?,
                Step::Scale(a, constant) => value(a).checked_mul(constant).ok_or_else(overflow)?,
                Step::Add(a, b) => value(a).checked_add(value(b)).ok_or_else(overflow)?,
                Step::Mul(a, b) => value(a).checked_mul(value(b)).ok_or_else(overflow)?,
                Step::FloorDiv(a, b) => divide(value(a), value(b), floor_div_i64, dim)?,
                Step::CeilDiv(a, b) => divide(value(a), value(b), ceil_div_i64, dim)?,
                Step::Mod(a, b) => divide(value(a), value(b), rem_floor_i64, dim)?,
                Step::Min(a, b) => value(a).min(value(b)),
                Step::Max(a, b) => value(a).max(value(b)),
                Step::Bcast(a, b) => broadcast(value(a), value(b), dim)?,
            };
            out.push(result);
        }
        for (position, slot) in self.results.iter().enumerate() {
            let value = out.get(base + *slot as usize).copied().unwrap_or(0);
            if let Some(result) = out.get_mut(position) {
                *result = value;
            }
        }
        out.truncate(base);
        Ok(())
    }
}

impl PartialEq for DimProgram {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for DimProgram {}

impl From<Source> for DimProgram {
    fn from(source: Source) -> Self {
        Self::with_symbols(source.symbols, source.dims)
    }
}

impl From<DimProgram> for Source {
    fn from(program: DimProgram) -> Self {
        program.source
    }
}

/// Slot numbers; programs of 2³² values do not fit in memory as dims.
fn index(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

#[derive(Default)]
struct Compiler {
    inputs: usize,
    slots: BTreeMap<Symbol, u32>,
    steps: Vec<Step>,
    parts: Vec<Dim>,
    step_slots: HashMap<Step, u32>,
    dim_slots: HashMap<Dim, u32>,
}

impl Compiler {
    fn compile(mut self, source: Source) -> DimProgram {
        let invalid = source.dims.iter().find_map(|dim| check_valid(dim).err());
        let results = source.dims.iter().map(|dim| self.dim(dim)).collect();
        DimProgram { source, steps: self.steps, parts: self.parts, results, invalid }
    }

    fn push(&mut self, step: Step, part: &Dim) -> u32 {
        if let Some(slot) = self.step_slots.get(&step) {
            return *slot;
        }
        let slot = index(self.inputs + self.steps.len());
        self.steps.push(step);
        self.parts.push(part.clone());
        self.step_slots.insert(step, slot);
        slot
    }

    /// The steps of a dim, in the order of [`Dim::eval`] so that the same sums overflow.
    fn dim(&mut self, dim: &Dim) -> u32 {
        if let Some(slot) = self.dim_slots.get(dim) {
            return *slot;
        }
        let constant = dim.constant_term();
        let mut total = None;
        for term in dim.terms() {
            let mut product = None;
            for (atom, power) in term.factors() {
                let value = self.atom(atom);
                for _ in 0..*power {
                    product = Some(match product {
                        None => value,
                        Some(product) => self.push(Step::Mul(product, value), dim),
                    });
                }
            }
            let Some(mut value) = product else { continue };
            if term.coefficient() != 1 {
                value = self.push(Step::Scale(value, term.coefficient()), dim);
            }
            total = Some(match total {
                Some(total) => self.push(Step::Add(total, value), dim),
                None if constant != 0 => self.push(Step::Offset(value, constant), dim),
                None => value,
            });
        }
        let slot = total.unwrap_or_else(|| self.push(Step::Const(constant), dim));
        self.dim_slots.insert(dim.clone(), slot);
        slot
    }

    fn atom(&mut self, atom: &Atom) -> u32 {
        if let Atom::Symbol(symbol) = atom {
            return self.slots.get(symbol).copied().unwrap_or(0);
        }
        let part = Dim::from_atom(atom.clone());
        let step: fn(u32, u32) -> Step = match atom {
            Atom::FloorDiv(..) => Step::FloorDiv,
            Atom::CeilDiv(..) => Step::CeilDiv,
            Atom::Mod(..) => Step::Mod,
            Atom::Max(_) => Step::Max,
            Atom::Bcast(_) => Step::Bcast,
            Atom::Min(_) | Atom::Symbol(_) => Step::Min,
        };
        let operands = atom.operands().into_iter().map(|dim| self.dim(dim)).collect::<Vec<_>>();
        let result = operands.into_iter().reduce(|a, b| self.push(step(a, b), &part));
        result.unwrap_or(0)
    }
}
