//! How types cross the border between a graph and its regions.

use std::collections::{BTreeMap, BTreeSet};

use crate::dim::{Dim, Symbol};
use crate::dtype::DType;
use crate::error::OpError;
use crate::graph::Graph;
use crate::op::InferCx;
use crate::types::{Shape, TensorType, Type};

/// Symbols of a region that have no meaning outside: those that its nodes define.
pub(super) fn local_symbols(g: &Graph) -> BTreeSet<Symbol> {
    g.nodes().iter().flat_map(|n| n.op.def().defines()).collect()
}

/// What the symbols of a region's input types are outside.
pub(super) struct Entry {
    map: BTreeMap<Symbol, Dim>,
    local: BTreeSet<Symbol>,
}

impl Entry {
    /// Fits the types of a region's inputs to those of its arguments; `what` names the region.
    pub fn new(cx: &mut InferCx<'_>, what: &str, region: &Graph, args: &[Type]) -> Result<Entry, OpError> {
        if region.inputs().len() != args.len() {
            return Err(OpError::new(format!(
                "{what} takes {} inputs, {} are passed",
                region.inputs().len(),
                args.len()
            )));
        }
        let mut map = BTreeMap::new();
        // Plain symbols first, so that expressions over them can be compared whatever the order of inputs.
        for (&v, arg) in region.inputs().iter().zip(args) {
            collect(region.ty(v), arg, &mut map);
        }
        for (i, (&v, arg)) in region.inputs().iter().zip(args).enumerate() {
            let ty = region.ty(v).substitute(&map);
            require_same(cx, &ty, arg, &format!("{what}: input {i}, {}", region.value_name(v)))?;
        }
        Ok(Entry { map, local: local_symbols(region) })
    }

    /// A type of the region as seen from outside, and for each of its dims whether it has a meaning there.
    pub fn outside(&self, ty: &Type) -> Seen {
        match ty {
            Type::Tensor(t) => Seen::Tensor(t.dtype, t.shape.iter().map(|d| self.dim(d)).collect()),
            Type::Sequence(t) => Seen::Sequence(Box::new(self.outside(t))),
            Type::Optional(t) => Seen::Optional(Box::new(self.outside(t))),
        }
    }

    /// A dim of the region as seen from outside; `None` if it has no meaning there.
    pub fn dim(&self, d: &Dim) -> Option<Dim> {
        if d.symbols().iter().any(|s| self.local.contains(s)) { None } else { Some(d.substitute(&self.map)) }
    }

    /// From now on the symbol has no meaning outside.
    pub fn hide(&mut self, s: &Symbol) {
        self.local.insert(s.clone());
    }
}

/// A type whose dims may be unknown.
#[derive(Clone)]
pub(super) enum Seen {
    Tensor(DType, Vec<Option<Dim>>),
    Sequence(Box<Seen>),
    Optional(Box<Seen>),
}

impl Seen {
    /// Dims where both agree, unknown where they do not; `None` if rank, dtype or kind differ.
    pub fn join(&self, other: &Seen) -> Option<Seen> {
        match (self, other) {
            (Seen::Tensor(d, a), Seen::Tensor(e, b)) if d == e && a.len() == b.len() => Some(Seen::Tensor(
                *d,
                a.iter().zip(b).map(|(a, b)| a.clone().filter(|a| Some(a) == b.as_ref())).collect(),
            )),
            (Seen::Sequence(a), Seen::Sequence(b)) => Some(Seen::Sequence(Box::new(a.join(b)?))),
            (Seen::Optional(a), Seen::Optional(b)) => Some(Seen::Optional(Box::new(a.join(b)?))),
            _ => None,
        }
    }

    /// The type, with the next of the node's symbols for each unknown dim.
    pub fn name(self, next: &mut dyn FnMut() -> Result<Symbol, OpError>) -> Result<Type, OpError> {
        Ok(match self {
            Seen::Tensor(dtype, dims) => {
                let dims = dims.into_iter().map(|d| d.map_or_else(|| next().map(Dim::from), Ok));
                Type::Tensor(TensorType { dtype, shape: dims.collect::<Result<Vec<_>, _>>().map(Shape::from)? })
            }
            Seen::Sequence(t) => Type::Sequence(Box::new(t.name(next)?)),
            Seen::Optional(t) => Type::Optional(Box::new(t.name(next)?)),
        })
    }

    /// Number of unknown dims.
    pub fn unknowns(&self) -> usize {
        match self {
            Seen::Tensor(_, dims) => dims.iter().filter(|d| d.is_none()).count(),
            Seen::Sequence(t) | Seen::Optional(t) => t.unknowns(),
        }
    }
}

/// Names the unknown dims of results after the symbols that a node defines, which must be exactly as many.
pub(super) fn name_results(cx: &mut InferCx<'_>, seen: Vec<Seen>, defines: &[Symbol]) -> Result<(), OpError> {
    let need: usize = seen.iter().map(Seen::unknowns).sum();
    if need != defines.len() {
        return Err(OpError::new(format!("defines {} symbols, its results need {need}", defines.len()))
            .hint("`defines` lists one symbol for each size of the results that is not known before the run"));
    }
    let mut left = defines.iter().cloned();
    let mut next = || left.next().ok_or_else(|| OpError::new("defines too few symbols"));
    for s in seen {
        let ty = s.name(&mut next)?;
        cx.result_type(ty);
    }
    Ok(())
}

/// Maps each plain symbol of an input's type to the argument's dim, where it is met first.
fn collect(ty: &Type, arg: &Type, map: &mut BTreeMap<Symbol, Dim>) {
    match (ty, arg) {
        (Type::Tensor(t), Type::Tensor(a)) => {
            for (d, e) in t.shape.iter().zip(a.shape.iter()) {
                if let Some(s) = d.as_symbol() {
                    map.entry(s.clone()).or_insert_with(|| e.clone());
                }
            }
        }
        (Type::Sequence(t), Type::Sequence(a)) | (Type::Optional(t), Type::Optional(a)) => collect(t, a, map),
        _ => {}
    }
}

/// Requires two types to be equal; dims that are not known to be are checked when sizes are known.
pub(super) fn require_same(cx: &mut InferCx<'_>, a: &Type, b: &Type, why: &str) -> Result<(), OpError> {
    match (a, b) {
        (Type::Tensor(x), Type::Tensor(y)) if x.dtype == y.dtype && x.shape.rank() == y.shape.rank() => {
            cx.require_same_shape(&x.shape, &y.shape, why)
        }
        (Type::Sequence(x), Type::Sequence(y)) | (Type::Optional(x), Type::Optional(y)) => require_same(cx, x, y, why),
        _ => Err(OpError::new(format!("{why} must be {a}, got {b}"))),
    }
}
