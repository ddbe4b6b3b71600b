//! A model as plain structures: checked, sorted, and free of protobuf.
//!
//! Invariants of a [`Model`], for each of its graphs:
//! 1. every value has one definition: an input, an initialiser, or an output of one node;
//! 2. every operand and every graph output is defined there, or in an enclosing graph (then it is
//!    listed in [`GraphDef::captures`]); an empty name is an operand left out;
//! 3. nodes stand in an order in which each comes after what it needs, captures of its nested
//!    graphs included; a file that is sorted keeps its order;
//! 4. attribute names are unique, attributes have the content that their type needs;
//! 5. every node's domain has a version, or a function of the model implements the node;
//! 6. functions do not call each other in a circle.

mod attr;
mod attributes;
mod functions;
mod graph;
mod order;
mod read;
mod types;

use std::collections::BTreeMap;

pub use attr::Attr;
pub(crate) use read::read_model;
pub use types::{DimDef, TypeDef, ValueDef};

use crate::source::Sources;
use crate::tensor::{RawSparseTensor, RawTensor};

/// Versions of the operator sets in use, by domain; the standard domain is the empty string.
pub type Opsets = BTreeMap<String, i64>;

/// A checked model.
#[derive(Debug, Clone)]
pub struct Model {
    /// The version of the file format.
    pub ir_version: i64,
    /// Operator sets.
    pub opsets: Opsets,
    /// What wrote the file, with its version.
    pub producer: String,
    /// Functions that nodes may call.
    pub functions: BTreeMap<FunctionId, FunctionDef>,
    /// The graph.
    pub main: GraphDef,
    /// Named values that the writer left.
    pub metadata: BTreeMap<String, String>,
    /// The files that its tensors lie in.
    pub sources: Sources,
}

impl Model {
    /// The function that a node calls, if it calls one.
    pub fn function_of(&self, node: &NodeDef) -> Option<&FunctionDef> {
        self.functions.get(&node.function_id())
    }
}

/// What names a function; nodes of this domain, op type and overload call it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId {
    /// The domain; the standard one is empty.
    pub domain: String,
    /// The op type.
    pub name: String,
    /// Tells functions of one name apart; usually empty.
    pub overload: String,
}

impl std::fmt::Display for FunctionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.domain, self.name)?;
        if self.overload.is_empty() { Ok(()) } else { write!(f, ":{}", self.overload) }
    }
}

/// A function of the model.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionDef {
    /// Its name.
    pub id: FunctionId,
    /// Attributes that a call must give.
    pub attributes: Vec<String>,
    /// Attributes that a call may give, with their defaults.
    pub defaults: BTreeMap<String, Attr>,
    /// Operator sets of its nodes; what the function does not say, the model says.
    pub opsets: Opsets,
    /// Its body: inputs and outputs are positional, types are usually absent.
    pub body: GraphDef,
}

/// A graph: the main one, a nested one, or the body of a function.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GraphDef {
    /// The name in the file; may be empty.
    pub name: String,
    /// Inputs that a caller gives. An input with an initialiser stands there, not here.
    pub inputs: Vec<ValueDef>,
    /// Names of all declared inputs in file order, those with an initialiser included.
    pub declared_inputs: Vec<String>,
    /// Outputs.
    pub outputs: Vec<ValueDef>,
    /// Values with content.
    pub initialisers: Vec<Initialiser>,
    /// Declared types of inner values: hints.
    pub value_infos: Vec<ValueDef>,
    /// Nodes, each after what it needs.
    pub nodes: Vec<NodeDef>,
    /// Values of enclosing graphs that this graph, or a graph nested in it, uses.
    pub captures: Vec<String>,
}

impl GraphDef {
    /// Nodes of this graph and of all graphs nested in it.
    pub fn count_nodes(&self) -> usize {
        let nested = |node: &NodeDef| node.graphs().map(GraphDef::count_nodes).sum::<usize>();
        self.nodes.iter().map(|node| 1 + nested(node)).sum()
    }
}

/// A value that the file gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Initialiser {
    /// Name of the value.
    pub name: String,
    /// The content.
    pub content: InitialiserContent,
    /// The declaration as a graph input, where there is one.
    pub declared: Option<ValueDef>,
    /// Whether a caller may give another value: it is declared as an input, and the IR version is
    /// at least 4 (before that, every initialiser had to be declared so).
    pub overridable: bool,
}

/// The content of an initialiser.
#[derive(Debug, Clone, PartialEq)]
pub enum InitialiserContent {
    /// All elements.
    Dense(RawTensor),
    /// The elements that are not zero.
    Sparse(RawSparseTensor),
}

/// A node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeDef {
    /// The name in the file; may be empty, need not be unique.
    pub name: String,
    /// A name for messages: the name, or op type and position in the file.
    pub label: String,
    /// The op.
    pub op_type: String,
    /// Its domain; the standard one is empty.
    pub domain: String,
    /// Which function of that name; usually empty.
    pub overload: String,
    /// Operands; an empty name is one left out.
    pub inputs: Vec<String>,
    /// Results; an empty name is one that nobody wants.
    pub outputs: Vec<String>,
    /// Attributes by name.
    pub attributes: BTreeMap<String, Attr>,
    /// Position among the graph's nodes in the file.
    pub index: usize,
}

impl NodeDef {
    /// The function that this node would call.
    pub fn function_id(&self) -> FunctionId {
        FunctionId { domain: self.domain.clone(), name: self.op_type.clone(), overload: self.overload.clone() }
    }

    /// An attribute.
    pub fn attr(&self, name: &str) -> Option<&Attr> {
        self.attributes.get(name)
    }

    /// The graphs among the attributes.
    pub fn graphs(&self) -> impl Iterator<Item = &GraphDef> {
        self.attributes.values().flat_map(Attr::graphs)
    }
}
