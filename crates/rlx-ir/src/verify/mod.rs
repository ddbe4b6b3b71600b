//! The verifier: what every module must be, whoever made it.
//!
//! Invariants, by the number that an [`IrError::Verify`] names:
//!
//! 1. Every value that a node, output, state or list of the graph names is a value of that graph.
//! 2. Definitions point back: input, parameter, state and result number n of whatever defines a value says so, and each value is
//!    defined exactly once.
//! 3. A node reads only values that are defined before it.
//! 4. Results are as many as the op's type rule states, and their types and known elements are what it infers. (How the inputs of
//!    nested graphs fit the node's operands is part of that rule.)
//! 5. Every constraint that a type rule records is recorded in the graph.
//! 6. Inputs, parameters, states and outputs have names that are unique among their kind; parameters and states are named as their
//!    values are.
//! 7. Symbols are in scope: a dim may use the symbols of the graph's inputs, parameters and states, those that earlier nodes define,
//!    those that the graph bounds and no node defines (they are bound by name), and in a nested graph those of the graph around it. A
//!    node defines only symbols that are not in scope yet.
//! 8. Parameters and states are tensors. A default or initial value has its type's dtype and rank, and its size where that is known and
//!    the state does not grow there.
//!    Known elements of inputs are as many as the input has.
//! 9. What a state becomes has the state's type, but for the length on the axis on which the state grows, if it does. That axis is one of
//!    its own.
//! 10. Only the entry graph has parameters and states.
//! 11. Graphs nest at most [`MAX_DEPTH`](crate::eval::MAX_DEPTH) deep.
//! 12. A function's graph has the function's name. A `call` names a function of the module, passes values of its inputs' dtypes and
//!     ranks, and states results of its outputs' dtypes and ranks. No function calls itself, directly or through others.
//! 13. At stage MIR every op is one that the target claims.
//!
//! All violations are listed, up to a limit. It runs in release builds too: after import, and after every pass where asked for.

mod calls;
mod symbols;

use std::collections::{BTreeSet, HashSet};

use crate::dim::{Constraint, Symbol};
use crate::error::IrError;
use crate::graph::{Def, Graph, Module, Node, NodeId, Stage, ValueId};
use crate::tensor::Tensor;
use crate::types::Type;

/// Most violations that are listed.
const MAX_ERRORS: usize = 100;

/// Checks every invariant and lists what does not hold.
pub fn verify(module: &Module) -> Result<(), IrError> {
    let mut v = Verifier { stage: &module.stage, errors: Vec::new() };
    v.graph(&module.main, None, 0);
    for (name, g) in &module.functions {
        if g.name() != name {
            v.fail(12, g, format!("it is function `{name}`; the names must be equal"));
        }
        v.graph(g, None, 1);
    }
    calls::check(&mut v, module);
    IrError::from_list(v.errors).map_or(Ok(()), Err)
}

struct Verifier<'m> {
    stage: &'m Stage,
    errors: Vec<IrError>,
}

/// A node in messages: `node 3 "conv" at "layer1/conv"`.
fn node_text(i: usize, n: &Node) -> String {
    let name = n.op.name();
    n.loc.name().map_or_else(|| format!("node {i} `{name}`"), |at| format!("node {i} `{name}` at \"{at}\""))
}

impl Verifier<'_> {
    fn fail(&mut self, invariant: u32, g: &Graph, message: impl Into<String>) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(IrError::Verify { invariant, graph: g.name().into(), message: message.into() });
        }
    }

    /// Checks a graph. `outer` has the symbols of the graph around it; depth 0 is the entry.
    fn graph(&mut self, g: &Graph, outer: Option<&BTreeSet<Symbol>>, depth: usize) {
        let found = self.errors.len();
        self.definitions(g);
        self.uses(g);
        // The rest looks values up, which a graph that fails so far may not survive.
        if self.errors.len() > found {
            return;
        }
        self.names(g);
        self.boundary(g, depth == 0);
        self.rules(g);
        self.claims(g);
        let scopes = symbols::check(self, g, outer);
        for (n, scope) in g.nodes().iter().zip(&scopes) {
            for r in &n.regions {
                if depth >= crate::eval::MAX_DEPTH {
                    let most = crate::eval::MAX_DEPTH;
                    self.fail(11, g, format!("graph `{}` is nested deeper than {most} levels", r.name()));
                } else {
                    self.graph(r, Some(scope), depth + 1);
                }
            }
        }
    }

    fn definitions(&mut self, g: &Graph) {
        let boundary = (g.inputs().iter().enumerate().map(|(i, &v)| (v, Def::Input(i as u32))))
            .chain(g.params().iter().enumerate().map(|(i, p)| (p.value, Def::Param(i as u32))))
            .chain(g.states().iter().enumerate().map(|(i, s)| (s.value, Def::State(i as u32))));
        let results = g
            .node_ids()
            .zip(g.nodes())
            .flat_map(|(id, n)| n.results.iter().enumerate().map(move |(i, &v)| (v, Def::Result(id, i as u32))));
        let mut defined = vec![false; g.num_values()];
        for (v, def) in boundary.chain(results) {
            match g.get_value(v) {
                None => self.fail(1, g, format!("{v}, {}, is not a value of the graph", def_text(g, def))),
                Some(info) if info.def != def => {
                    let message = format!("{v} is {}, but says it is {}", def_text(g, def), def_text(g, info.def));
                    self.fail(2, g, message);
                }
                Some(_) => {
                    if let Some(d) = defined.get_mut(v.index()) {
                        *d = true;
                    }
                }
            }
        }
        for (v, _) in g.value_ids().zip(defined).filter(|(_, d)| !d) {
            self.fail(2, g, format!("{v} is not defined by what it says defines it"));
        }
    }

    fn uses(&mut self, g: &Graph) {
        for (i, n) in g.nodes().iter().enumerate() {
            for &v in &n.operands {
                match g.get_value(v).map(|info| info.def) {
                    None => {
                        self.fail(1, g, format!("{} reads {v}, which is not a value of the graph", node_text(i, n)))
                    }
                    Some(Def::Result(d, _)) if d.index() >= i => {
                        let message = format!("{} reads {} before it is defined", node_text(i, n), g.value_name(v));
                        self.fail(3, g, message);
                    }
                    _ => {}
                }
            }
        }
        for o in g.outputs() {
            if g.get_value(o.value).is_none() {
                self.fail(1, g, format!("output `{}` is {}, which is not a value of the graph", o.name, o.value));
            }
        }
        for s in g.states() {
            if let Some(v) = s.next.filter(|&v| g.get_value(v).is_none()) {
                self.fail(1, g, format!("state `{}` becomes {v}, which is not a value of the graph", s.name));
            }
        }
    }

    fn names(&mut self, g: &Graph) {
        let input = |&v: &ValueId| g.value(v).name.as_deref();
        let lists: [(&str, Vec<Option<&str>>); 4] = [
            ("input", g.inputs().iter().map(input).collect()),
            ("parameter", g.params().iter().map(|p| Some(&*p.name)).collect()),
            ("state", g.states().iter().map(|s| Some(&*s.name)).collect()),
            ("output", g.outputs().iter().map(|o| Some(&*o.name)).collect()),
        ];
        for (kind, names) in lists {
            let mut seen = HashSet::new();
            for (i, name) in names.into_iter().enumerate() {
                match name {
                    None => self.fail(6, g, format!("{kind} {i} has no name")),
                    Some(n) if !seen.insert(n) => self.fail(6, g, format!("{kind} `{n}` is declared twice")),
                    _ => {}
                }
            }
        }
        let kept = (g.params().iter().map(|p| ("parameter", &p.name, p.value)))
            .chain(g.states().iter().map(|s| ("state", &s.name, s.value)));
        for (kind, name, v) in kept {
            if g.value(v).name.as_ref() != Some(name) {
                self.fail(6, g, format!("{kind} `{name}` has the value {}", g.value_name(v)));
            }
        }
    }

    fn boundary(&mut self, g: &Graph, entry: bool) {
        let keeps = !g.params().is_empty() || !g.states().is_empty();
        if keeps && !entry {
            self.fail(10, g, "it has parameters or states; only the entry may have them");
        }
        let kept = (g.params().iter().map(|p| ("parameter", &p.name, p.value, &p.default, None)))
            .chain(g.states().iter().map(|s| ("state", &s.name, s.value, &s.init, s.grows)));
        for (kind, name, v, value, grows) in kept {
            let ty = g.ty(v);
            if ty.as_tensor().is_none() {
                self.fail(8, g, format!("{kind} `{name}` is {ty}, which is no tensor"));
            }
            if let Some(t) = value.as_ref().filter(|t| !fits(t, ty, grows)) {
                self.fail(8, g, format!("{kind} `{name}` is {ty}, but its value is {t:?}"));
            }
        }
        for &v in g.inputs() {
            if let Some(elems) = g.elems(v) {
                let n = g.tensor_type(v).and_then(|t| t.shape.static_numel());
                if n != i64::try_from(elems.len()).ok() {
                    let (name, ty) = (g.value_name(v), g.ty(v));
                    self.fail(8, g, format!("{} elements of {name} are known, which is {ty}", elems.len()));
                }
            }
        }
        for s in g.states() {
            let ty = g.ty(s.value);
            if let Some(axis) = s.grows.filter(|&a| ty.as_tensor().is_none_or(|t| a >= t.shape.rank())) {
                self.fail(
                    9,
                    g,
                    format!("state `{}` is {ty}, and grows on axis {axis}, which it does not have", s.name),
                );
            }
            if let Some(next) = s.next
                && !becomes(ty, g.ty(next), s.grows)
            {
                let (ty, next, next_ty) = (g.ty(s.value), g.value_name(next), g.ty(next));
                self.fail(9, g, format!("state `{}` is {ty} but becomes {next}, which is {next_ty}", s.name));
            }
        }
    }

    /// Runs every node's type rule again.
    fn rules(&mut self, g: &Graph) {
        let recorded: HashSet<&Constraint> = g.constraints().iter().map(|c| &c.constraint).collect();
        for (i, n) in g.nodes().iter().enumerate() {
            let (results, constraints) = match g.infer(&n.op, &n.operands, &n.regions, &n.loc) {
                Ok(r) => r,
                Err(e) => {
                    self.fail(4, g, format!("{}: {e}", node_text(i, n)));
                    continue;
                }
            };
            if results.len() != n.results.len() {
                let message =
                    format!("{} has {} results, inferred {}", node_text(i, n), n.results.len(), results.len());
                self.fail(4, g, message);
            }
            for (&v, r) in n.results.iter().zip(&results) {
                let info = g.value(v);
                if info.ty != r.ty {
                    let name = g.value_name(v);
                    self.fail(4, g, format!("{}: {name} is {}, inferred {}", node_text(i, n), info.ty, r.ty));
                } else if info.elems.as_deref() != r.elems.as_deref() {
                    let message = format!(
                        "{}: known elements of {} are {:?}, inferred {:?}",
                        node_text(i, n),
                        g.value_name(v),
                        info.elems,
                        r.elems
                    );
                    self.fail(4, g, message);
                }
            }
            for c in constraints {
                // What became decidable since (by tighter bounds) need not be recorded.
                if !recorded.contains(&c.constraint) && c.constraint.decide_with(g.bounds()) != Some(true) {
                    let message = format!("{} needs that {}, which is not recorded", node_text(i, n), c.constraint);
                    self.fail(5, g, message);
                }
            }
        }
    }

    fn claims(&mut self, g: &Graph) {
        let Stage::Mir { target, claims } = self.stage else { return };
        for (i, n) in g.nodes().iter().enumerate() {
            if !claims.contains(n.op.name()) {
                self.fail(13, g, format!("{} is not claimed by target `{target}`", node_text(i, n)));
            }
        }
    }
}

fn def_text(g: &Graph, def: Def) -> String {
    match def {
        Def::Input(n) => format!("input {n}"),
        Def::Param(n) => format!("parameter {n}"),
        Def::State(n) => format!("state {n}"),
        Def::Result(id, n) => format!("result {n} of {}", node_at(g, id)),
    }
}

fn node_at(g: &Graph, id: NodeId) -> String {
    g.nodes().get(id.index()).map_or_else(|| format!("node {}", id.index()), |n| node_text(id.index(), n))
}

/// Whether a state of one type may be of the other after a run.
fn becomes(is: &Type, next: &Type, grows: Option<usize>) -> bool {
    match (is, next) {
        (Type::Tensor(a), Type::Tensor(b)) => {
            let sizes = a.shape.iter().zip(b.shape.iter()).enumerate();
            a.dtype == b.dtype
                && a.shape.rank() == b.shape.rank()
                && sizes.into_iter().all(|(axis, (x, y))| x == y || grows == Some(axis))
        }
        _ => is == next,
    }
}

/// Whether a value can be of a type, as far as its sizes are known, but for the axis on which it grows.
fn fits(t: &Tensor, ty: &Type, grows: Option<usize>) -> bool {
    ty.as_tensor().is_some_and(|ty| {
        ty.dtype == t.dtype()
            && ty.shape.rank() == t.rank()
            && ty
                .shape
                .iter()
                .zip(t.dims())
                .enumerate()
                .all(|(axis, (d, &n))| grows == Some(axis) || d.as_const().is_none_or(|c| i64::try_from(n) == Ok(c)))
    })
}

#[cfg(test)]
mod tests;
