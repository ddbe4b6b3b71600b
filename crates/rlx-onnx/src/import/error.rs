//! Why a model could not be imported, and what was odd about one that could.

use std::fmt;

use crate::error::OnnxError;
use crate::text::{listed, shown};

/// Why a model could not be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file could not be read.
    #[error(transparent)]
    Read(#[from] OnnxError),
    /// Ops that are not supported, and nodes that do not fit together: all of them.
    #[error("{}", report(unsupported, faults))]
    Model {
        /// Ops without an import.
        unsupported: Vec<UnsupportedOp>,
        /// Everything else.
        faults: Vec<ImportFault>,
    },
}

impl ImportError {
    /// A name for the kind of error that stays the same between versions.
    pub fn code(&self) -> &'static str {
        match self {
            ImportError::Read(e) => e.code(),
            ImportError::Model { unsupported, .. } if !unsupported.is_empty() => "onnx.unsupported",
            ImportError::Model { .. } => "onnx.import",
        }
    }

    /// What to do about it, where the message does not say it.
    pub fn hint(&self) -> Option<String> {
        match self {
            ImportError::Read(e) => e.hint(),
            ImportError::Model { unsupported, .. } if !unsupported.is_empty() => {
                Some("export the model with another opset or without these ops, or report the list".into())
            }
            ImportError::Model { .. } => None,
        }
    }
}

/// An op, or a use of one, that cannot be imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsupportedOp {
    /// The domain; the standard one is empty.
    pub domain: String,
    /// The op type.
    pub op_type: String,
    /// Version of the domain's operator set.
    pub opset: i64,
    /// Which use of the op is meant; empty: every one.
    pub reason: String,
    /// Labels of the nodes.
    pub nodes: Vec<String>,
}

impl fmt::Display for UnsupportedOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let domain = if self.domain.is_empty() { "ai.onnx" } else { &self.domain };
        write!(f, "{} of {} (opset {})", shown(&self.op_type), shown(domain), self.opset)?;
        if !self.reason.is_empty() {
            write!(f, ": {}", self.reason)?;
        }
        let n = self.nodes.len();
        write!(f, ", {n} node{}: ", if n == 1 { "" } else { "s" })?;
        f.write_str(&listed(&self.nodes))
    }
}

/// One thing that is wrong with a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImportFault {
    /// A node's operands or attributes do not fit.
    #[error("node '{}' ({} of {}): {message}", shown(node), shown(op_type), operands.join(", "))]
    Node {
        /// The node's label.
        node: String,
        /// Its op.
        op_type: String,
        /// Its operands as `name: type`.
        operands: Vec<String>,
        /// What is wrong.
        message: String,
    },
    /// A value of the graph that cannot be had.
    #[error("'{}': {message}", shown(value))]
    Value {
        /// Its name.
        value: String,
        /// What is wrong.
        message: String,
    },
}

/// Something odd that does not hinder the import.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImportWarning {
    /// The node or value.
    pub place: String,
    /// What is odd.
    pub message: String,
}

impl fmt::Display for ImportWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}': {}", shown(&self.place), self.message)
    }
}

/// Faults shown one by one; more are counted.
const MOST: usize = 20;

fn report(unsupported: &[UnsupportedOp], faults: &[ImportFault]) -> String {
    let mut out = String::from("the model cannot be imported");
    if !unsupported.is_empty() {
        out.push_str(&format!("\n{} not supported:", ops(unsupported.len())));
        unsupported.iter().for_each(|u| out.push_str(&format!("\n  {u}")));
    }
    if !faults.is_empty() {
        out.push_str(&format!("\n{} fault{}:", faults.len(), if faults.len() == 1 { "" } else { "s" }));
        faults.iter().take(MOST).for_each(|e| out.push_str(&format!("\n  {e}")));
        if faults.len() > MOST {
            out.push_str(&format!("\n  and {} more", faults.len() - MOST));
        }
    }
    out
}

fn ops(n: usize) -> String {
    if n == 1 { "1 op is".into() } else { format!("{n} ops are") }
}
