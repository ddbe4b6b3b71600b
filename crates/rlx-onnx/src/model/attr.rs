//! Attributes of nodes.

use super::{GraphDef, TypeDef};
use crate::tensor::{RawSparseTensor, RawTensor};

/// The content of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Attr {
    /// A float.
    Float(f32),
    /// An integer.
    Int(i64),
    /// A string.
    String(String),
    /// A tensor.
    Tensor(RawTensor),
    /// A sparse tensor.
    SparseTensor(RawSparseTensor),
    /// A nested graph.
    Graph(Box<GraphDef>),
    /// A type.
    Type(TypeDef),
    /// Floats.
    Floats(Vec<f32>),
    /// Integers.
    Ints(Vec<i64>),
    /// Strings.
    Strings(Vec<String>),
    /// Tensors.
    Tensors(Vec<RawTensor>),
    /// Sparse tensors.
    SparseTensors(Vec<RawSparseTensor>),
    /// Nested graphs.
    Graphs(Vec<GraphDef>),
    /// Types.
    Types(Vec<TypeDef>),
    /// In the body of a function: the attribute of the call that has this name. A call that lacks
    /// it leaves this attribute out.
    Reference(String),
}

impl Attr {
    /// What the content is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Attr::Float(_) => "a float",
            Attr::Int(_) => "an integer",
            Attr::String(_) => "a string",
            Attr::Tensor(_) => "a tensor",
            Attr::SparseTensor(_) => "a sparse tensor",
            Attr::Graph(_) => "a graph",
            Attr::Type(_) => "a type",
            Attr::Floats(_) => "floats",
            Attr::Ints(_) => "integers",
            Attr::Strings(_) => "strings",
            Attr::Tensors(_) => "tensors",
            Attr::SparseTensors(_) => "sparse tensors",
            Attr::Graphs(_) => "graphs",
            Attr::Types(_) => "types",
            Attr::Reference(_) => "a reference",
        }
    }

    /// The graphs in the content.
    pub fn graphs(&self) -> std::slice::Iter<'_, GraphDef> {
        match self {
            Attr::Graph(graph) => std::slice::from_ref(&**graph).iter(),
            Attr::Graphs(graphs) => graphs.iter(),
            _ => [].iter(),
        }
    }
}
