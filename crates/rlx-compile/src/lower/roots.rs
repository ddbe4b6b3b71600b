//! Root tensors: what values are walks over. A root has memory of its own, or is so simple that readers make its elements themselves.

use std::sync::Arc;

use rlx_ir::{DType, Dim, NodeId, Tensor};

use crate::lir::{Literal, Storage};

use super::groups::ItemId;

/// A root of one graph being lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RootId(pub u32);

impl RootId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a root's elements come from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// Memory at the program's boundary.
    Boundary(Storage),
    /// A literal tensor.
    Const(Tensor),
    /// One literal for all elements.
    Literal(Literal),
    /// One size for all elements.
    Size(Dim),
    /// Sizes, row-major.
    Sizes(Vec<Dim>),
    /// Each element is its index on this axis.
    Iota(usize),
    /// An instruction of a group.
    Item(ItemId),
    /// Result of a node with a kernel of its own.
    Node(NodeId),
}

/// What is known of a root.
#[derive(Clone, Debug)]
pub(super) struct Root {
    pub source: Source,
    pub dtype: DType,
    pub dims: Vec<Dim>,
    pub name: Option<Arc<str>>,
    /// Axes from outermost to innermost in memory; row-major if `None`.
    pub order: Option<Vec<usize>>,
    /// How often kernels other than its own, and outputs, read it.
    pub uses: u32,
    /// True if some reader sees it reshaped, which a concatenation's slice may not allow.
    pub reshaped: bool,
}

impl Root {
    /// True if readers make the elements themselves, so that scalar programs need no memory for it.
    pub fn is_free(&self) -> bool {
        matches!(self.source, Source::Literal(_) | Source::Size(_) | Source::Iota(_))
    }
}

/// The literal that all elements of a tensor are, if it has just one.
pub(super) fn splat(t: &Tensor) -> Option<Literal> {
    if t.numel() != 1 {
        return None;
    }
    match t.elements() {
        rlx_ir::element::Elements::Float(v) => v.first().map(|&x| Literal::Float(x.into())),
        rlx_ir::element::Elements::Complex(v) => v.first().map(|c| Literal::Complex(c[0].into(), c[1].into())),
        e => e.ints()?.first().map(|&x| Literal::Int(x)),
    }
}
