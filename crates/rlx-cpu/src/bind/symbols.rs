//! Symbols from the shapes of a call.
//!
//! Nearly always each symbol stands alone as a dim of some input: its value is read off, and one dim program checks all
//! dims of all ports. Anything else, and every error, goes to the general solver, which finds all that is wrong.

use crate::states::State;
use rlx_compile::InputProblem;
use rlx_compile::lir::Lir;
use rlx_ir::DimBinding;
use rlx_ir::dim::{Bounds, Dim, DimProgram, Equation, Symbol, solve, unsolved};
use smallvec::SmallVec;

/// Sizes of inputs, then of those parameters whose shapes are symbolic.
pub type Shapes<'a> = &'a [&'a [usize]];

/// Where a symbol's value is found.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// Axis of a port.
    Axis(usize, usize),
    /// Axis of a state, by position among those that have symbols.
    State(usize, usize),
    /// Given by the surrounding program, by position.
    Outer(usize),
    /// Fixed when the program was compiled.
    Given(i64),
    /// By the general solver alone.
    Solve,
}

/// A state whose sizes have symbols.
struct Held {
    /// Its number.
    state: usize,
    port: Port,
    /// The axis on which it grows: its length there is 0 before it has a value.
    grows: Option<usize>,
}

/// A port whose sizes are observed.
struct Port {
    kind: &'static str,
    name: String,
    dims: Vec<Dim>,
    text: String,
}

/// Finds the values of symbols.
pub struct Solver {
    symbols: Vec<Symbol>,
    sources: Vec<Source>,
    ranges: Vec<(i64, Option<i64>)>,
    ports: Vec<Port>,
    /// All dims of all ports, then of the states with symbols.
    check: DimProgram,
    outer: Vec<Symbol>,
    given: DimBinding,
    bounds: Bounds,
    /// Parameters that are ports too.
    pub symbolic_params: Vec<usize>,
    /// States with symbolic shapes.
    states: Vec<Held>,
}

/// Sizes of the states with symbolic shapes; `None` before a state has one.
pub type StateSizes<'a> = SmallVec<[Option<&'a [usize]>; 8]>;

impl Solver {
    /// A solver of these symbols.
    pub fn new(lir: &Lir, symbols: &[Symbol], outer: &[Symbol], given: &DimBinding) -> Solver {
        let sized = |kind, name: &str, buffer: rlx_compile::lir::BufId, shape: &[rlx_compile::lir::DimId]| {
            let dims: Vec<Dim> = shape.iter().map(|&d| lir.dims.get(d).clone()).collect();
            let text = format!("{}{}", lir.buffer(buffer).dtype, rlx_ir::Shape::from(dims.clone()));
            Port { kind, name: name.to_string(), dims, text }
        };
        let port = |kind, name: &str, buffer| sized(kind, name, buffer, &lir.buffer(buffer).shape);
        let mut ports: Vec<Port> = lir.inputs.iter().map(|p| port("input", &p.name, p.buffer)).collect();
        let mut symbolic_params = Vec::new();
        for (i, p) in lir.params.iter().enumerate() {
            let p = port("parameter", &p.name, p.buffer);
            if p.dims.iter().any(|d| !d.is_const()) {
                symbolic_params.push(i);
                ports.push(p);
            }
        }
        let states: Vec<Held> = lir
            .states
            .iter()
            .enumerate()
            .map(|(state, s)| {
                let port = sized("state", &s.name, s.buffer, &s.shape);
                Held { state, port, grows: s.grows.map(|a| a as usize) }
            })
            .filter(|h| h.port.dims.iter().any(|d| !d.is_const()))
            .collect();
        let axis = |port: &Port, s: &Symbol| port.dims.iter().position(|d| d.as_symbol() == Some(s));
        let alone = |s: &Symbol| {
            let of_port = |(p, port)| axis(port, s).map(|a| Source::Axis(p, a));
            let of_state = |(p, held): (usize, &Held)| axis(&held.port, s).map(|a| Source::State(p, a));
            let found = ports.iter().enumerate().find_map(of_port);
            found.or_else(|| states.iter().enumerate().find_map(of_state))
        };
        let source = |s: &Symbol| {
            (given.get(s).map(Source::Given))
                .or_else(|| outer.iter().position(|o| o == s).map(Source::Outer))
                .or_else(|| alone(s))
                .unwrap_or(Source::Solve)
        };
        let sources = symbols.iter().map(source).collect();
        let ranges = symbols.iter().map(|s| lir.bounds.get(s)).collect();
        let all = ports.iter().chain(states.iter().map(|h| &h.port)).flat_map(|p| p.dims.iter().cloned());
        let check = DimProgram::with_symbols(symbols.iter().cloned(), all);
        Solver {
            symbols: symbols.to_vec(),
            sources,
            ranges,
            ports,
            check,
            outer: outer.to_vec(),
            given: given.clone(),
            bounds: lir.bounds.clone(),
            symbolic_params,
            states,
        }
    }

    /// Sizes that the states with symbolic shapes have now, or will have at their first run.
    pub fn state_sizes<'a>(&self, lir: &'a Lir, states: &'a [State]) -> StateSizes<'a> {
        let size = |i: usize| -> Option<&'a [usize]> {
            match states.get(i)? {
                State { memory: Some(_), dims } => Some(dims.as_slice()),
                _ => lir.states.get(i)?.init.as_ref().map(|t| t.dims()),
            }
        };
        self.states.iter().map(|h| size(h.state)).collect()
    }

    /// As [`state_sizes`](Self::state_sizes), but the states that grow have the sizes that a binding gives them, where it does.
    pub fn bound_sizes<'a>(
        &self,
        lir: &'a Lir,
        states: &'a [State],
        binding: &DimBinding,
        memory: &'a mut Vec<Option<Vec<usize>>>,
    ) -> StateSizes<'a> {
        let grown = |h: &Held| {
            let dims = h.grows.map(|_| &h.port.dims)?.iter();
            dims.map(|d| d.eval(binding).ok().and_then(|n| usize::try_from(n).ok())).collect()
        };
        *memory = self.states.iter().map(grown).collect();
        let now = self.state_sizes(lir, states);
        memory.iter().zip(now).map(|(bound, now)| bound.as_deref().or(now)).collect()
    }

    /// Values that a call might give the symbols: `n` where their ranges allow it, what is fixed otherwise. `params` are the shapes of
    /// symbolic parameters. Not checked against any constraint.
    pub fn sample(&self, n: i64, params: &[&[usize]], outer: &[i64]) -> Vec<i64> {
        let inputs = self.ports.len() - self.symbolic_params.len();
        let of_params = |s: &Symbol| {
            self.ports.iter().skip(inputs).zip(params).find_map(|(port, dims)| {
                let axis = port.dims.iter().position(|d| d.as_symbol() == Some(s))?;
                i64::try_from(*dims.get(axis)?).ok()
            })
        };
        let one = |((symbol, source), (min, max)): ((&Symbol, &Source), &(i64, Option<i64>))| match *source {
            Source::Given(v) => v,
            Source::Outer(i) => outer.get(i).copied().unwrap_or(n),
            _ => of_params(symbol).unwrap_or_else(|| n.max(*min).min(max.unwrap_or(i64::MAX))),
        };
        self.symbols.iter().zip(&self.sources).zip(&self.ranges).map(one).collect()
    }

    /// Values of the symbols, in order.
    pub fn solve(
        &self,
        shapes: Shapes<'_>,
        states: &[Option<&[usize]>],
        outer: &[i64],
    ) -> Result<Vec<i64>, Vec<InputProblem>> {
        match self.read_off(shapes, states, outer) {
            Some(values) => Ok(values),
            None => self.solve_all(shapes, states, outer),
        }
    }

    fn read_off(&self, shapes: Shapes<'_>, states: &[Option<&[usize]>], outer: &[i64]) -> Option<Vec<i64>> {
        let mut values = Vec::with_capacity(self.symbols.len());
        for (source, (min, max)) in self.sources.iter().zip(&self.ranges) {
            let v = match *source {
                Source::Axis(port, axis) => i64::try_from(*shapes.get(port)?.get(axis)?).ok()?,
                Source::State(state, axis) => match states.get(state)? {
                    Some(dims) => i64::try_from(*dims.get(axis)?).ok()?,
                    None if self.states.get(state)?.grows == Some(axis) => 0,
                    None => return None,
                },
                Source::Outer(i) => *outer.get(i)?,
                Source::Given(v) => v,
                Source::Solve => return None,
            };
            if v < *min || max.is_some_and(|m| v > m) {
                return None;
            }
            values.push(v);
        }
        let mut dims = Vec::new();
        self.check.eval_into(&values, &mut dims).ok()?;
        let mut found = dims.iter();
        for (port, shape) in self.ports.iter().zip(shapes) {
            if port.dims.len() != shape.len() {
                return None;
            }
            for &n in shape.iter() {
                if found.next().copied() != i64::try_from(n).ok() {
                    return None;
                }
            }
        }
        for (held, now) in self.states.iter().zip(states) {
            if now.is_some_and(|now| now.len() != held.port.dims.len()) {
                return None;
            }
            for axis in 0..held.port.dims.len() {
                let want = match now {
                    Some(now) => now.get(axis).and_then(|&n| i64::try_from(n).ok()),
                    None if held.grows == Some(axis) => Some(0),
                    // Nothing is known of it yet.
                    None => found.as_slice().first().copied(),
                };
                if found.next().copied() != want {
                    return None;
                }
            }
        }
        Some(values)
    }

    fn solve_all(
        &self,
        shapes: Shapes<'_>,
        states: &[Option<&[usize]>],
        outer: &[i64],
    ) -> Result<Vec<i64>, Vec<InputProblem>> {
        let mut problems = Vec::new();
        let mut equations = Vec::new();
        let held = self.states.iter().zip(states).filter_map(|(h, s)| Some((&h.port, s.as_ref()?)));
        for (port, shape) in self.ports.iter().zip(shapes).chain(held) {
            if port.dims.len() != shape.len() {
                problems.push(InputProblem::Shape {
                    kind: port.kind,
                    name: port.name.clone(),
                    expected: port.text.clone(),
                    got: shape.to_vec(),
                    why: format!("it must have {} axes", port.dims.len()),
                });
                continue;
            }
            for (axis, (dim, &n)) in port.dims.iter().zip(shape.iter()).enumerate() {
                let n = i64::try_from(n).unwrap_or(i64::MAX);
                equations.push(Equation::new(dim.clone(), n, format!("{} `{}` axis {axis}", port.kind, port.name)));
            }
        }
        for (held, _) in self.states.iter().zip(states).filter(|(_, now)| now.is_none()) {
            if let Some(dim) = held.grows.and_then(|axis| held.port.dims.get(axis)) {
                equations.push(Equation::new(dim.clone(), 0, format!("state `{}`, which is new", held.port.name)));
            }
        }
        let mut initial = self.given.clone();
        for (s, &v) in self.outer.iter().zip(outer) {
            initial.set(s.clone(), v);
        }
        let binding = match solve(&equations, &initial, &self.bounds) {
            Ok(b) => b,
            Err(errors) => {
                problems.extend(errors.iter().map(|e| InputProblem::Binding(e.to_string())));
                return Err(problems);
            }
        };
        let dims: Vec<Dim> = self.symbols.iter().map(|s| Dim::symbol(s.clone())).collect();
        for s in unsolved(&dims, &binding) {
            problems.push(InputProblem::Binding(format!(
                "no input's shape determines symbol `{s}`; bind it explicitly when compiling"
            )));
        }
        // Composite dims that nothing solved are checked here.
        for e in &equations {
            match e.dim.eval(&binding) {
                Ok(v) if v == e.value => {}
                Ok(v) => {
                    problems.push(InputProblem::Binding(format!("{} is {}, but `{}` is {v}", e.origin, e.value, e.dim)))
                }
                Err(error) if problems.is_empty() => problems.push(InputProblem::Binding(error.to_string())),
                Err(_) => {}
            }
        }
        if problems.is_empty() {
            Ok(self.symbols.iter().map(|s| binding.get(s).unwrap_or(0)).collect())
        } else {
            Err(problems)
        }
    }
}
