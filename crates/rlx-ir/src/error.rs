//! Errors of the IR: what an op refuses, and what a graph cannot be.

use std::fmt;

/// What an op's rule says when its operands do not fit. The graph adds which node it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpError {
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl OpError {
    /// An error with a message alone.
    pub fn new(message: impl Into<String>) -> Self {
        OpError { message: message.into(), hint: None }
    }

    /// The same error with advice.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(h) = &self.hint {
            write!(f, "; {h}")?;
        }
        Ok(())
    }
}

impl std::error::Error for OpError {}

macro_rules! into_op_error {
    ($($t:ty),*) => { $(impl From<$t> for OpError {
        fn from(e: $t) -> Self { OpError::new(e.to_string()) }
    })* };
}
into_op_error!(crate::tensor::TensorError, crate::dim::DimError, crate::dim::ConstraintViolation);

/// Which node an error speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRef {
    /// The op with its attributes in text form.
    pub op: String,
    /// The source's name for it, if any.
    pub name: Option<String>,
    /// Its operands as `%name: type`.
    pub operands: Vec<String>,
}

impl fmt::Display for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.op)?;
        if let Some(n) = &self.name {
            write!(f, " at \"{n}\"")?;
        }
        write!(f, " on ({})", self.operands.join(", "))
    }
}

/// Why a graph could not be built, read, verified or evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IrError {
    /// An op refuses its operands or attributes.
    #[error("[ir-op] {node}: {error}")]
    Op {
        /// The node.
        node: Box<NodeRef>,
        /// What is wrong and what to do.
        error: OpError,
    },
    /// A value id that the graph does not have.
    #[error("[ir-value] value {0} is not of graph `{1}`; values of one graph cannot be used in another")]
    UnknownValue(u32, String),
    /// Two inputs, parameters or outputs share a name.
    #[error("[ir-name] {kind} `{name}` is declared twice in graph `{graph}`; give each a name of its own")]
    DuplicateName {
        /// `input`, `parameter`, `output` or `state`.
        kind: &'static str,
        /// The name.
        name: String,
        /// The graph.
        graph: String,
    },
    /// The verifier found a broken invariant.
    #[error("[ir-verify] invariant {invariant} does not hold in graph `{graph}`: {message}")]
    Verify {
        /// Number of the invariant, as listed at the head of the verifier.
        invariant: u32,
        /// The graph.
        graph: String,
        /// What is wrong, naming node and values.
        message: String,
    },
    /// Text that is not IR.
    #[error("[ir-parse] line {line}, column {column}: {message}")]
    Parse {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What was expected.
        message: String,
    },
    /// Inputs do not fit the graph, or the graph cannot be evaluated on them.
    #[error("[ir-eval] {0}")]
    Eval(String),
    /// Several of these at once.
    #[error("{}", join(.0))]
    Many(Vec<IrError>),
}

fn join(errors: &[IrError]) -> String {
    let mut s = format!("{} errors:", errors.len());
    for e in errors {
        s.push_str("\n  ");
        s.push_str(&e.to_string());
    }
    s
}

impl IrError {
    /// One error from a list; `None` if the list is empty.
    pub fn from_list(mut errors: Vec<IrError>) -> Option<IrError> {
        match errors.len() {
            0 => None,
            1 => errors.pop(),
            _ => Some(IrError::Many(errors)),
        }
    }
}
