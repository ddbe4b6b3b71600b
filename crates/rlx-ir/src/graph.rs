//! Graphs: nodes in topological order over single-assignment values.
//!
//! A graph only grows. Passes do not edit one in place: they build a new graph from an old one (see `rlx-compile`), so that an
//! edit is applied whole or not at all, and a graph at hand is always well formed. Nested graphs (regions of a node) take
//! everything they use as inputs: block arguments first, then what they capture from outside, which the node lists among its
//! operands; so each graph stands alone and every pass works on it unchanged.

mod carry;
mod edit;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::dim::{Bounds, ConstraintRecord, Dim, Symbol};
use crate::error::{IrError, NodeRef};
use crate::op::{InferCx, Op, OperandInfo, ResultInfo};
use crate::tensor::Tensor;
use crate::types::{TensorType, Type};

pub use edit::{OperandsAndRegions, Restriction};

/// A value of one graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueId(pub(crate) u32);

/// A node of one graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub(crate) u32);

impl ValueId {
    /// Position in the graph's list of values.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl NodeId {
    /// Position in the graph's list of nodes.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Def {
    /// Input number n.
    Input(u32),
    /// Parameter number n.
    Param(u32),
    /// The value that state number n has when the run starts.
    State(u32),
    /// Result number n of a node.
    Result(NodeId, u32),
}

/// What is known of a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValueInfo {
    /// Its type.
    pub ty: Type,
    /// Where it comes from.
    pub def: Def,
    /// The source's name for it.
    pub name: Option<Arc<str>>,
    /// Its elements as dims (row-major), where they follow from shapes alone.
    pub elems: Option<Arc<[Dim]>>,
}

/// Where in the source a node comes from: the names of the source nodes that became it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Loc(Option<Arc<str>>);

impl Loc {
    /// No source.
    pub const fn none() -> Self {
        Loc(None)
    }

    /// A source node's name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Loc(Some(name.into()))
    }

    /// The name, if any.
    pub fn name(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// The place of a node made from several.
    pub fn merge(&self, other: &Loc) -> Loc {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) if a != b && a.len() + b.len() < 256 => Loc::new(format!("{a}+{b}")),
            (Some(_), _) => self.clone(),
            (None, _) => other.clone(),
        }
    }
}

/// One application of an op.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The op.
    pub op: Op,
    /// What it reads. Optional operands that are absent are not listed: the op's attributes say which are there.
    pub operands: Vec<ValueId>,
    /// What it defines.
    pub results: Vec<ValueId>,
    /// Nested graphs.
    pub regions: Vec<Graph>,
    /// Where it comes from.
    pub loc: Loc,
}

/// A named value that is constant over runs unless set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Param {
    /// Its name.
    pub name: Arc<str>,
    /// The value in the graph.
    pub value: ValueId,
    /// What it is until set.
    pub default: Option<Tensor>,
}

/// A named value kept from run to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Its name.
    pub name: Arc<str>,
    /// The value at the start of a run.
    pub value: ValueId,
    /// What it is before the first run; zeros if `None`, and of length 0 along the axis on which it grows.
    pub init: Option<Tensor>,
    /// The axis on which runs may change its length; all its other sizes stay.
    pub grows: Option<usize>,
    /// What it is after a run; unchanged if `None`.
    pub next: Option<ValueId>,
}

/// A named result of a graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Its name.
    pub name: Arc<str>,
    /// The value.
    pub value: ValueId,
}

/// A graph. See the module's documentation.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Graph {
    name: String,
    nodes: Vec<Node>,
    values: Vec<ValueInfo>,
    inputs: Vec<ValueId>,
    params: Vec<Param>,
    states: Vec<State>,
    outputs: Vec<Output>,
    constraints: Vec<ConstraintRecord>,
    bounds: Bounds,
}

impl Graph {
    /// An empty graph.
    pub fn new(name: impl Into<String>) -> Self {
        Graph { name: name.into(), ..Graph::default() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Nodes in topological order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Ids of the nodes, in topological order.
    pub fn node_ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// Ids of all values, in order of definition.
    pub fn value_ids(&self) -> impl DoubleEndedIterator<Item = ValueId> + use<> {
        (0..self.values.len() as u32).map(ValueId)
    }

    /// A node of this graph.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// What is known of a value of this graph.
    pub fn value(&self, id: ValueId) -> &ValueInfo {
        &self.values[id.index()]
    }

    /// What is known of a value, `None` if it is of another graph.
    pub fn get_value(&self, id: ValueId) -> Option<&ValueInfo> {
        self.values.get(id.index())
    }

    /// Number of values.
    pub fn num_values(&self) -> usize {
        self.values.len()
    }

    /// The type of a value of this graph.
    pub fn ty(&self, id: ValueId) -> &Type {
        &self.value(id).ty
    }

    /// The tensor type of a value; `None` for sequences and optionals.
    pub fn tensor_type(&self, id: ValueId) -> Option<&TensorType> {
        self.value(id).ty.as_tensor()
    }

    /// Known elements of a value.
    pub fn elems(&self, id: ValueId) -> Option<&[Dim]> {
        self.value(id).elems.as_deref()
    }

    /// The node that defines a value, if a node does.
    pub fn def_node(&self, id: ValueId) -> Option<(NodeId, &Node)> {
        match self.value(id).def {
            Def::Result(n, _) => Some((n, self.node(n))),
            _ => None,
        }
    }

    /// The literal, if the value is a constant.
    pub fn as_constant(&self, id: ValueId) -> Option<&Tensor> {
        self.def_node(id).and_then(|(_, n)| n.op.as_constant())
    }

    /// Inputs in order.
    pub fn inputs(&self) -> &[ValueId] {
        &self.inputs
    }

    /// Parameters in order.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// States in order.
    pub fn states(&self) -> &[State] {
        &self.states
    }

    /// Outputs in order.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// Constraints recorded while types were inferred; checked when sizes are known.
    pub fn constraints(&self) -> &[ConstraintRecord] {
        &self.constraints
    }

    /// Bounds of symbols.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Bounds of symbols, to be narrowed.
    pub fn bounds_mut(&mut self) -> &mut Bounds {
        &mut self.bounds
    }

    /// Renames the graph.
    pub fn set_name(&mut self, name: impl Into<String>) {
        self.name = name.into();
    }

    /// A printable name of a value: `%name` of the source, or `%number`.
    pub fn value_name(&self, id: ValueId) -> String {
        match self.get_value(id).and_then(|v| v.name.as_ref()) {
            Some(n) => format!("%{n}"),
            None => format!("%{}", id.0),
        }
    }

    /// For each value, the nodes that read it (once per operand), in order.
    pub fn users(&self) -> Vec<Vec<NodeId>> {
        let mut users = vec![Vec::new(); self.values.len()];
        for (i, n) in self.nodes.iter().enumerate() {
            for o in &n.operands {
                users[o.index()].push(NodeId(i as u32));
            }
        }
        users
    }

    /// For each value, how often nodes, outputs and states read it.
    pub fn use_counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.values.len()];
        self.nodes.iter().flat_map(|n| &n.operands).for_each(|v| counts[v.index()] += 1);
        for o in &self.outputs {
            counts[o.value.index()] += 1;
        }
        for next in self.states.iter().filter_map(|s| s.next) {
            counts[next.index()] += 1;
        }
        counts
    }

    /// Symbols in the types of inputs and parameters: those that a call's shapes can bind.
    pub fn input_symbols(&self) -> BTreeSet<Symbol> {
        let mut out = BTreeSet::new();
        for v in self
            .inputs
            .iter()
            .copied()
            .chain(self.params.iter().map(|p| p.value))
            .chain(self.states.iter().map(|s| s.value))
        {
            self.ty(v).collect_symbols(&mut out);
        }
        out
    }

    /// All symbols of the graph's own values (nested graphs not included).
    pub fn symbols(&self) -> BTreeSet<Symbol> {
        let mut out = BTreeSet::new();
        for v in &self.values {
            v.ty.collect_symbols(&mut out);
            v.elems.iter().flat_map(|e| e.iter()).for_each(|d| out.extend(d.symbols()));
        }
        out
    }

    /// A symbol name that the graph does not use yet, made from `base`.
    pub fn fresh_symbol(&self, base: &str) -> Symbol {
        let used = self.symbols();
        let mut n = self.values.len();
        loop {
            let s = Symbol::new(format!("{base}{n}"));
            if !used.contains(&s) {
                return s;
            }
            n += 1;
        }
    }

    fn push_value(&mut self, info: ValueInfo) -> ValueId {
        let id = ValueId(self.values.len() as u32);
        self.values.push(info);
        id
    }

    fn check_name(&self, kind: &'static str, name: &str, mut taken: impl Iterator<Item = bool>) -> Result<(), IrError> {
        if taken.any(|t| t) {
            return Err(IrError::DuplicateName { kind, name: name.into(), graph: self.name.clone() });
        }
        Ok(())
    }

    /// Errors on a declared size below zero.
    fn check_sizes(&self, kind: &str, name: &str, ty: &Type) -> Result<(), IrError> {
        let negative = |t: &TensorType| t.shape.iter().any(|d| d.as_const().is_some_and(|c| c < 0));
        match ty.as_tensor().filter(|t| negative(t)) {
            Some(t) => Err(IrError::Eval(format!("{kind} `{name}` is declared {t}: sizes are not negative"))),
            None => Ok(()),
        }
    }

    /// Declares an input.
    pub fn add_input(&mut self, name: &str, ty: impl Into<Type>) -> Result<ValueId, IrError> {
        let ty = ty.into();
        self.check_sizes("input", name, &ty)?;
        self.check_name("input", name, self.inputs.iter().map(|&v| self.value(v).name.as_deref() == Some(name)))?;
        let def = Def::Input(self.inputs.len() as u32);
        let id = self.push_value(ValueInfo { ty, def, name: Some(name.into()), elems: None });
        self.inputs.push(id);
        Ok(id)
    }

    /// States what is known of an input's elements (inside nested graphs, where the caller knows them).
    pub fn set_input_elems(&mut self, id: ValueId, elems: Option<Vec<Dim>>) {
        if let Some(v) = self.values.get_mut(id.index())
            && matches!(v.def, Def::Input(_))
        {
            v.elems = elems.map(Into::into);
        }
    }

    /// Declares a parameter, with a default value if it has one.
    pub fn add_param(&mut self, name: &str, ty: impl Into<Type>, default: Option<Tensor>) -> Result<ValueId, IrError> {
        let ty = ty.into();
        self.check_sizes("parameter", name, &ty)?;
        self.check_name("parameter", name, self.params.iter().map(|p| &*p.name == name))?;
        let def = Def::Param(self.params.len() as u32);
        let name: Arc<str> = name.into();
        let value = self.push_value(ValueInfo { ty, def, name: Some(name.clone()), elems: None });
        self.params.push(Param { name, value, default });
        Ok(value)
    }

    /// Declares a state.
    pub fn add_state(&mut self, name: &str, ty: impl Into<Type>, init: Option<Tensor>) -> Result<ValueId, IrError> {
        let ty = ty.into();
        self.check_sizes("state", name, &ty)?;
        self.check_name("state", name, self.states.iter().map(|s| &*s.name == name))?;
        let def = Def::State(self.states.len() as u32);
        let name: Arc<str> = name.into();
        let value = self.push_value(ValueInfo { ty, def, name: Some(name.clone()), elems: None });
        self.states.push(State { name, value, init, grows: None, next: None });
        Ok(value)
    }

    /// Lets runs change a state's length on an axis: its successor may be of another length there. A symbol there is the length that the
    /// state has when a run starts, which is 0 before the first run, if the state has no initial value. A cache that a run appends rows to
    /// is such a state.
    pub fn set_state_grows(&mut self, state: usize, axis: usize) -> Result<(), IrError> {
        let Some(s) = self.states.get(state) else {
            return Err(IrError::Eval(format!("graph `{}` has no state number {state}", self.name)));
        };
        let (name, ty) = (s.name.clone(), self.ty(s.value));
        if ty.as_tensor().is_none_or(|t| axis >= t.shape.rank()) {
            return Err(IrError::Eval(format!("state `{name}` is {ty}: it has no axis {axis} to grow on")));
        }
        if let Some(s) = self.states.get_mut(state) {
            s.grows = Some(axis);
        }
        Ok(())
    }

    /// Says what a state becomes after a run.
    pub fn set_state_next(&mut self, state: usize, next: ValueId) -> Result<(), IrError> {
        self.check_value(next)?;
        match self.states.get_mut(state) {
            Some(s) => {
                s.next = Some(next);
                Ok(())
            }
            None => Err(IrError::Eval(format!("graph `{}` has no state number {state}", self.name))),
        }
    }

    /// Declares an output.
    pub fn add_output(&mut self, name: &str, value: ValueId) -> Result<(), IrError> {
        self.check_value(value)?;
        self.check_name("output", name, self.outputs.iter().map(|o| &*o.name == name))?;
        self.outputs.push(Output { name: name.into(), value });
        Ok(())
    }

    /// Names a value after its name in the source.
    pub fn set_value_name(&mut self, id: ValueId, name: impl Into<Arc<str>>) {
        if let Some(v) = self.values.get_mut(id.index())
            && matches!(v.def, Def::Result(..))
        {
            v.name = Some(name.into());
        }
    }

    fn check_value(&self, v: ValueId) -> Result<(), IrError> {
        if v.index() < self.values.len() { Ok(()) } else { Err(IrError::UnknownValue(v.0, self.name.clone())) }
    }

    /// Runs an op's type rule without adding the node.
    pub fn infer(
        &self,
        op: &Op,
        operands: &[ValueId],
        regions: &[Graph],
        loc: &Loc,
    ) -> Result<(Vec<ResultInfo>, Vec<ConstraintRecord>), IrError> {
        for &v in operands {
            self.check_value(v)?;
        }
        let infos: Vec<OperandInfo<'_>> =
            operands.iter().map(|&v| OperandInfo { ty: self.ty(v), elems: self.elems(v) }).collect();
        let origin = loc.name().unwrap_or(op.def().name());
        let mut cx = InferCx::new(&infos, regions, &self.bounds, origin);
        match op.def().infer(&mut cx) {
            Ok(()) => Ok(cx.finish()),
            Err(error) => Err(IrError::Op { node: Box::new(self.describe(op, operands, loc)), error }),
        }
    }

    /// Names an op application for messages.
    pub fn describe(&self, op: &Op, operands: &[ValueId], loc: &Loc) -> NodeRef {
        NodeRef {
            op: op.to_string(),
            name: loc.name().map(Into::into),
            operands: operands
                .iter()
                .map(|&v| match self.get_value(v) {
                    Some(i) => format!("{}: {}", self.value_name(v), i.ty),
                    None => format!("%{}: ?", v.0),
                })
                .collect(),
        }
    }

    /// Appends a node whose results' types are inferred.
    pub fn add_node(
        &mut self,
        op: Op,
        operands: Vec<ValueId>,
        regions: Vec<Graph>,
        loc: Loc,
    ) -> Result<NodeId, IrError> {
        let (results, constraints) = self.infer(&op, &operands, &regions, &loc)?;
        for c in constraints {
            if !self.constraints.iter().any(|d| d.constraint == c.constraint) {
                self.constraints.push(c);
            }
        }
        let id = NodeId(self.nodes.len() as u32);
        let results = results
            .into_iter()
            .enumerate()
            .map(|(i, r)| {
                self.push_value(ValueInfo {
                    ty: r.ty,
                    def: Def::Result(id, i as u32),
                    name: None,
                    elems: r.elems.map(Into::into),
                })
            })
            .collect();
        self.nodes.push(Node { op, operands, results, regions, loc });
        Ok(id)
    }

    /// Adds constraints recorded elsewhere (by a graph that this one is made from).
    pub fn add_constraints(&mut self, records: &[ConstraintRecord]) {
        for c in records {
            if !self.constraints.iter().any(|d| d.constraint == c.constraint) {
                self.constraints.push(c.clone());
            }
        }
    }
}

/// At which point of its way a module is. The verifier checks that its graphs are legal there.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Stage {
    /// Any op.
    #[default]
    Hir,
    /// Only ops that the target claims.
    Mir {
        /// The target's name.
        target: String,
        /// Mnemonics that it claims.
        claims: BTreeSet<String>,
    },
}

/// A main graph, the functions that it calls, and the stage they are at.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Module {
    /// The entry.
    pub main: Graph,
    /// Functions that `call` names.
    pub functions: BTreeMap<String, Graph>,
    /// The stage.
    pub stage: Stage,
}

/// The name that users of graph-level APIs know.
pub type GraphModule = Module;
/// The name that users of graph-level APIs know for a module at the first stage.
pub type HirModule = Module;

impl Module {
    /// A module of one graph.
    pub fn from_graph(main: Graph) -> Self {
        Module { main, functions: BTreeMap::new(), stage: Stage::Hir }
    }

    /// Dtypes of inputs and outputs (`None` for values that are no tensors).
    pub fn io_dtypes(&self) -> (Vec<Option<crate::DType>>, Vec<Option<crate::DType>>) {
        let dt = |v: ValueId| self.main.tensor_type(v).map(|t| t.dtype);
        (self.main.inputs().iter().map(|&v| dt(v)).collect(), self.main.outputs().iter().map(|o| dt(o.value)).collect())
    }

    /// True if any input, parameter or output has a dim that is not a constant.
    pub fn has_dynamic_dims(&self) -> bool {
        let g = &self.main;
        g.inputs()
            .iter()
            .copied()
            .chain(g.params().iter().map(|p| p.value))
            .chain(g.outputs().iter().map(|o| o.value))
            .filter_map(|v| g.tensor_type(v))
            .any(|t| t.shape.has_dynamic_dims())
    }
}

impl fmt::Display for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}
