//! What can be wrong inside a well-formed file.
//!
//! A reader collects faults and goes on, so that one look at the list is enough to repair a file.

use std::fmt;

use crate::tensor::TensorProblem;
use crate::text::{listed, shown};

/// One structural fault. `graph` is the path of the graph: `main`, `main/If_3.then_branch`,
/// `function my.domain:Gelu`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Nodes that need each other's results.
    #[error("{graph}: the nodes {} form a cycle", listed(nodes))]
    Cycle {
        /// Where.
        graph: String,
        /// Labels of the nodes of the cycle, in file order.
        nodes: Vec<String>,
    },
    /// An operand that nothing defines, here or in an enclosing graph.
    #[error(
        "{graph}: operand {operand} of node '{}' ({}) is '{}', which nothing defines",
        shown(node),
        shown(op),
        shown(value)
    )]
    DanglingInput {
        /// Where.
        graph: String,
        /// Label of the node.
        node: String,
        /// Its op.
        op: String,
        /// Position among its inputs.
        operand: usize,
        /// The missing value.
        value: String,
    },
    /// A result of the graph that nothing defines.
    #[error("{graph}: the output '{}' is never produced", shown(value))]
    OutputNotProduced {
        /// Where.
        graph: String,
        /// The missing value.
        value: String,
    },
    /// Two definitions of one name in one graph.
    #[error("{graph}: the value '{}' is defined twice: as {first} and as {second}", shown(value))]
    DuplicateValue {
        /// Where.
        graph: String,
        /// The name.
        value: String,
        /// What defines it first.
        first: String,
        /// What defines it again.
        second: String,
    },
    /// Two initialisers of one name.
    #[error("{graph}: the initialiser '{}' appears more than once", shown(value))]
    DuplicateInitialiser {
        /// Where.
        graph: String,
        /// The name.
        value: String,
    },
    /// A graph input, initialiser or output without a name.
    #[error("{graph}: {what} has no name")]
    Unnamed {
        /// Where.
        graph: String,
        /// What lacks the name.
        what: String,
    },
    /// A node that does not say what it computes.
    #[error("{graph}: node '{}' has no op type", shown(node))]
    NoOpType {
        /// Where.
        graph: String,
        /// Label of the node.
        node: String,
    },
    /// Two attributes of one name on one node.
    #[error("{graph}: node '{}' has more than one attribute '{}'", shown(node), shown(attribute))]
    DuplicateAttribute {
        /// Where.
        graph: String,
        /// Label of the node.
        node: String,
        /// The name.
        attribute: String,
    },
    /// An attribute whose content does not fit its type.
    #[error("{graph}: attribute '{}' of node '{}': {reason}", shown(attribute), shown(node))]
    BadAttribute {
        /// Where.
        graph: String,
        /// Label of the node.
        node: String,
        /// The attribute.
        attribute: String,
        /// What is wrong.
        reason: String,
    },
    /// A tensor that cannot be read.
    #[error("{graph}: {what} '{}': {problem}", shown(tensor))]
    Tensor {
        /// Where.
        graph: String,
        /// What the tensor is there: an initialiser, an attribute of a node.
        what: String,
        /// Its name.
        tensor: String,
        /// What is wrong.
        problem: TensorProblem,
    },
    /// A declared type that is no type.
    #[error("{graph}: the type of '{}': {reason}", shown(value))]
    BadType {
        /// Where.
        graph: String,
        /// The value.
        value: String,
        /// What is wrong.
        reason: String,
    },
    /// A domain that nodes use and the file does not import.
    #[error(
        "the operator set '{}' is not imported, but {count} node(s) use it, the first is '{}' in {graph}",
        domain_name(domain),
        shown(node)
    )]
    MissingOpset {
        /// The domain; empty for the standard one.
        domain: String,
        /// Where the first such node is.
        graph: String,
        /// Label of the first such node.
        node: String,
        /// How many nodes there are.
        count: usize,
    },
    /// A domain imported at two versions, or at one that cannot be.
    #[error("the operator set '{}' is imported at {versions}", domain_name(domain))]
    BadOpset {
        /// The domain; empty for the standard one.
        domain: String,
        /// The versions.
        versions: String,
    },
    /// Two functions of one domain, name and overload.
    #[error("the function '{}' is defined more than once", shown(function))]
    DuplicateFunction {
        /// Domain, name and overload.
        function: String,
    },
    /// Functions that call each other.
    #[error("the functions {} call each other without end", listed(functions))]
    RecursiveFunctions {
        /// Their identifiers.
        functions: Vec<String>,
    },
}

/// The standard domain is written as an empty string in a file; people know it by this name.
fn domain_name(domain: &str) -> String {
    if domain.is_empty() { "ai.onnx".into() } else { shown(domain) }
}

impl Fault {
    /// A name for the kind of fault that stays the same between versions.
    pub fn code(&self) -> &'static str {
        match self {
            Fault::Cycle { .. } => "onnx.cycle",
            Fault::DanglingInput { .. } => "onnx.dangling-input",
            Fault::OutputNotProduced { .. } => "onnx.output-not-produced",
            Fault::DuplicateValue { .. } => "onnx.duplicate-value",
            Fault::DuplicateInitialiser { .. } => "onnx.duplicate-initialiser",
            Fault::Unnamed { .. } => "onnx.unnamed",
            Fault::NoOpType { .. } => "onnx.no-op-type",
            Fault::DuplicateAttribute { .. } => "onnx.duplicate-attribute",
            Fault::BadAttribute { .. } => "onnx.bad-attribute",
            Fault::Tensor { .. } => "onnx.tensor",
            Fault::BadType { .. } => "onnx.bad-type",
            Fault::MissingOpset { .. } => "onnx.missing-opset",
            Fault::BadOpset { .. } => "onnx.bad-opset",
            Fault::DuplicateFunction { .. } => "onnx.duplicate-function",
            Fault::RecursiveFunctions { .. } => "onnx.recursive-functions",
        }
    }

    fn hint(&self) -> Option<&'static str> {
        match self {
            Fault::Tensor { problem, .. } => problem.hint(),
            Fault::MissingOpset { .. } => Some("add the operator set to the model's opset_import"),
            Fault::DanglingInput { .. } | Fault::OutputNotProduced { .. } => {
                Some("the file was cut or edited by hand: export the model again")
            }
            _ => None,
        }
    }
}

/// All faults of a file, in the order in which they were met.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Faults {
    list: Vec<Fault>,
    omitted: usize,
    most: usize,
}

impl Faults {
    pub(crate) fn new(most: usize) -> Faults {
        Faults { list: Vec::new(), omitted: 0, most: most.max(1) }
    }

    pub(crate) fn push(&mut self, fault: Fault) {
        if self.list.len() < self.most {
            self.list.push(fault);
        } else {
            self.omitted += 1;
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The faults, as many as [`crate::Limits::max_faults`] allows.
    pub fn list(&self) -> &[Fault] {
        &self.list
    }

    /// How many more there are.
    pub fn omitted(&self) -> usize {
        self.omitted
    }

    pub(crate) fn hint(&self) -> Option<String> {
        self.list.iter().find_map(Fault::hint).map(str::to_owned)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.list.as_slice() {
            [only] if self.omitted == 0 => write!(f, "the model is not valid: {only}"),
            list => {
                let count = list.len() + self.omitted;
                write!(f, "the model is not valid, {count} faults:")?;
                for fault in list {
                    write!(f, "\n  - {fault}")?;
                }
                if self.omitted > 0 {
                    write!(f, "\n  - and {} more", self.omitted)?;
                }
                Ok(())
            }
        }
    }
}
