//! Inputs that callers feed from outputs of the run before, made states: exported decoders take `past` and give `present`, recurrent
//! models take a hidden state and give the next. As states they stay where the program runs, and what a run appends is all that moves.

use std::collections::BTreeMap;

use super::{Def, Graph, Module, State, ValueId};
use crate::dim::{Constraint, Dim, Symbol};
use crate::error::IrError;
use crate::types::Type;

impl Graph {
    /// The graph with inputs made states of the same names: each pair names an input, and the output that it is after a run, which is no
    /// output any more. Where the two differ in their length on one axis, the state grows on that axis; it begins with length 0 there, and
    /// with zeros otherwise. A size that is a symbol in the input, and in the output one that does not mention it (that of another input, as
    /// files often have it), is taken to be the same, and becomes that one everywhere.
    ///
    /// ```
    /// use rlx_ir::{Builder, DType, Dim};
    /// let mut b = Builder::new("main");
    /// let x = b.input("x", DType::F32, [Dim::symbol("new"), Dim::from(8)])?;
    /// let past = b.input("past", DType::F32, [Dim::symbol("old"), Dim::from(8)])?;
    /// let present = b.concat(&[past, x], 0)?;
    /// let y = b.reduce_mean(present, &[0], false)?;
    /// b.output("y", y)?;
    /// b.output("present", present)?;
    /// let graph = b.finish().carry(&[("past", "present")])?;
    /// assert_eq!(graph.inputs().len(), 1);
    /// assert_eq!(graph.states()[0].grows, Some(0));
    /// # Ok::<(), rlx_ir::IrError>(())
    /// ```
    pub fn carry<S: AsRef<str>>(&self, pairs: &[(S, S)]) -> Result<Graph, IrError> {
        let mut linked = self.clone();
        for (input, output) in pairs {
            if let Ok((value, next)) = linked.pair(input.as_ref(), output.as_ref()) {
                let links = links(linked.ty(value), linked.ty(next));
                if !links.is_empty() {
                    linked = linked.substituted(&links);
                }
            }
        }
        linked.carry_linked(pairs)
    }

    fn carry_linked<S: AsRef<str>>(&self, pairs: &[(S, S)]) -> Result<Graph, IrError> {
        let mut carried: Vec<(ValueId, State)> = Vec::with_capacity(pairs.len());
        let mut errors = Vec::new();
        for (input, output) in pairs {
            match self.carried(input.as_ref(), output.as_ref()) {
                Ok(s) if carried.iter().any(|(v, _)| *v == s.value) => {
                    errors.push(IrError::DuplicateName {
                        kind: "state",
                        name: s.name.to_string(),
                        graph: self.name.clone(),
                    });
                }
                Ok(s) => carried.push((s.value, s)),
                Err(e) => errors.push(e),
            }
        }
        if let Some(e) = IrError::from_list(errors) {
            return Err(e);
        }
        let mut g = self.clone();
        g.inputs.retain(|v| carried.iter().all(|(c, _)| c != v));
        g.outputs.retain(|o| pairs.iter().all(|(_, output)| output.as_ref() != &*o.name));
        for (value, state) in carried {
            if let Some(info) = g.values.get_mut(value.index()) {
                info.def = Def::State(g.states.len() as u32);
                info.elems = None;
            }
            g.states.push(state);
        }
        for (n, v) in (0u32..).zip(&g.inputs) {
            if let Some(info) = g.values.get_mut(v.index()) {
                info.def = Def::Input(n);
            }
        }
        Ok(g)
    }

    /// An input and an output by their names.
    fn pair(&self, input: &str, output: &str) -> Result<(ValueId, ValueId), IrError> {
        let of = |names: Vec<&str>| names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
        let named = |&&v: &&ValueId| self.value(v).name.as_deref() == Some(input);
        let Some(&value) = self.inputs.iter().find(named) else {
            let known = of(self.inputs.iter().filter_map(|&v| self.value(v).name.as_deref()).collect());
            return Err(IrError::Eval(format!("graph `{}` has no input `{input}`; it has {known}", self.name)));
        };
        let Some(next) = self.outputs.iter().find(|o| &*o.name == output).map(|o| o.value) else {
            let known = of(self.outputs.iter().map(|o| &*o.name).collect());
            return Err(IrError::Eval(format!("graph `{}` has no output `{output}`; it has {known}", self.name)));
        };
        Ok((value, next))
    }

    /// The graph with symbols replaced, in nested graphs too.
    fn substituted(&self, map: &BTreeMap<Symbol, Dim>) -> Graph {
        let mut g = self.clone();
        for v in &mut g.values {
            v.ty = v.ty.substitute(map);
            v.elems = v.elems.as_ref().map(|e| e.iter().map(|d| d.substitute(map)).collect());
        }
        for n in &mut g.nodes {
            n.op = n.op.def().map_dims(&mut |d| d.substitute(map));
            n.regions = n.regions.iter().map(|r| r.substituted(map)).collect();
        }
        for c in &mut g.constraints {
            let of = |d: &Dim| d.substitute(map);
            c.constraint = match &c.constraint {
                Constraint::Eq(a, b) => Constraint::Eq(of(a), of(b)),
                Constraint::Broadcastable(a, b) => Constraint::Broadcastable(of(a), of(b)),
                Constraint::Le(a, b) => Constraint::Le(of(a), of(b)),
                Constraint::Divisible(a, b) => Constraint::Divisible(of(a), b.clone()),
            };
        }
        g
    }

    /// The state that an input is whose next value is an output.
    fn carried(&self, input: &str, output: &str) -> Result<State, IrError> {
        let (value, next) = self.pair(input, output)?;
        if self.states.iter().any(|s| &*s.name == input) {
            return Err(IrError::DuplicateName { kind: "state", name: input.into(), graph: self.name.clone() });
        }
        if self.value(value).elems.is_some() {
            let why = "sizes of other values come from its elements, which must be known before a run";
            return Err(IrError::Eval(format!("input `{input}` cannot be a state: {why}")));
        }
        let grows = differing_axis(self.ty(value), self.ty(next)).ok_or_else(|| {
            let (is, becomes) = (self.ty(value), self.ty(next));
            IrError::Eval(format!(
                "input `{input}` is {is} and output `{output}` is {becomes}; a state keeps its dtype and its sizes on all axes but one"
            ))
        })?;
        Ok(State { name: input.into(), value, init: None, grows, next: Some(next) })
    }
}

/// Symbols of a state's sizes for which its next value has other sizes that do not mention them.
fn links(is: &Type, next: &Type) -> BTreeMap<Symbol, Dim> {
    let (Type::Tensor(a), Type::Tensor(b)) = (is, next) else { return BTreeMap::new() };
    if a.dtype != b.dtype || a.shape.rank() != b.shape.rank() {
        return BTreeMap::new();
    }
    let link = |(d, e): (&Dim, &Dim)| {
        let s = d.as_symbol().filter(|s| !e.is_const() && !e.symbols().contains(s))?;
        Some((s.clone(), e.clone()))
    };
    a.shape.iter().zip(b.shape.iter()).filter_map(link).collect()
}

/// The axis on which two types differ, if any; `None` if they differ in more than that.
fn differing_axis(a: &Type, b: &Type) -> Option<Option<usize>> {
    let (Type::Tensor(a), Type::Tensor(b)) = (a, b) else { return None };
    if a.dtype != b.dtype || a.shape.rank() != b.shape.rank() {
        return None;
    }
    let mut axes = (0..a.shape.rank()).filter(|&i| a.shape.dims().get(i) != b.shape.dims().get(i));
    let first = axes.next();
    axes.next().is_none().then_some(first)
}

impl Module {
    /// The module with inputs of its main graph made states: see [`Graph::carry`].
    pub fn carry<S: AsRef<str>>(&self, pairs: &[(S, S)]) -> Result<Module, IrError> {
        Ok(Module { main: self.main.carry(pairs)?, ..self.clone() })
    }
}
