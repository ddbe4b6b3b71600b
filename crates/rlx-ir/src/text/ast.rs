//! Text after its syntax is read and before names, ops and types mean anything. Offsets are those of the text, for errors.

use crate::dim::{ConstraintRecord, Dim, Symbol};
use crate::types::Type;

/// How text refers to a value: numbers and names do not mix, `%3` and `%"3"` are two values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Number(String),
    Name(String),
}

impl Key {
    /// As text spells it.
    pub(super) fn text(&self) -> String {
        match self {
            Key::Number(n) => format!("%{n}"),
            Key::Name(n) => format!("%{}", super::name_text(n)),
        }
    }
}

/// A use of a value.
#[derive(Clone, Debug)]
pub(super) struct Ref {
    pub(super) key: Key,
    pub(super) at: usize,
}

/// A definition of a value. A name that cannot be the key follows it: `%3 "x"`.
#[derive(Clone, Debug)]
pub(super) struct Defined {
    pub(super) key: Key,
    pub(super) note: Option<String>,
    pub(super) at: usize,
}

impl Defined {
    /// The source's name of the value.
    pub(super) fn name(&self) -> Option<&str> {
        match (&self.note, &self.key) {
            (Some(n), _) | (None, Key::Name(n)) => Some(n),
            _ => None,
        }
    }
}

/// A default or initial value.
#[derive(Clone, Debug)]
pub(super) enum Literal {
    Inline { text: String, at: usize },
    External(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeclKind {
    Input,
    Param,
    State,
}

/// An input, parameter or state.
#[derive(Clone, Debug)]
pub(super) struct Decl {
    pub(super) kind: DeclKind,
    pub(super) value: Defined,
    pub(super) ty: Type,
    pub(super) elems: Option<Vec<Dim>>,
    pub(super) literal: Option<Literal>,
    /// The axis on which a state grows, and where the text says so.
    pub(super) grows: Option<(usize, usize)>,
    pub(super) next: Option<Ref>,
}

/// What the head says of an output.
#[derive(Clone, Debug)]
pub(super) struct OutputDecl {
    pub(super) name: Option<String>,
    pub(super) ty: Option<Type>,
    pub(super) at: usize,
}

/// The range of a symbol.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub(super) symbol: Symbol,
    pub(super) min: i64,
    pub(super) max: Option<i64>,
}

#[derive(Clone, Debug)]
pub(super) struct NodeText {
    pub(super) results: Vec<Defined>,
    pub(super) op: String,
    pub(super) op_at: usize,
    pub(super) operands: Vec<Ref>,
    pub(super) attrs: Vec<(String, String)>,
    pub(super) types: Option<Vec<Type>>,
    pub(super) loc: Option<String>,
    pub(super) regions: Vec<GraphText>,
}

#[derive(Clone, Debug)]
pub(super) struct GraphText {
    pub(super) name: String,
    pub(super) at: usize,
    pub(super) decls: Vec<Decl>,
    pub(super) outputs: Option<Vec<OutputDecl>>,
    pub(super) bounds: Vec<Range>,
    pub(super) constraints: Vec<ConstraintRecord>,
    pub(super) nodes: Vec<NodeText>,
    pub(super) returns: Vec<Ref>,
    pub(super) return_at: usize,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ModuleText {
    /// Attributes of the `module` line.
    pub(super) header: Vec<(String, String)>,
    pub(super) header_at: usize,
    pub(super) graphs: Vec<GraphText>,
}
