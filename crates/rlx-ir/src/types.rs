//! Shapes and the types of values.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::dim::{Dim, DimBinding, DimError, Symbol};
use crate::dtype::DType;

/// The sizes of a tensor's axes, outermost first. Rank 0 is a scalar.
///
/// Clones share their dims: passes copy types from graph to graph many times over.
#[derive(Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Shape(Arc<[Dim]>);

impl Shape {
    /// A shape of these dims.
    pub fn new(dims: impl IntoIterator<Item = impl Into<Dim>>) -> Self {
        Shape(dims.into_iter().map(Into::into).collect())
    }

    /// The shape of a scalar.
    pub fn scalar() -> Self {
        Shape::default()
    }

    /// The dims as a slice.
    pub fn dims(&self) -> &[Dim] {
        &self.0
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Product of all dims.
    pub fn numel(&self) -> Dim {
        Dim::product(self.0.iter().cloned())
    }

    /// The product of all dims, where it is a constant: what [`numel`](Self::numel) gives then, without products of symbols.
    pub fn static_numel(&self) -> Option<i64> {
        if self.0.iter().all(Dim::is_const) {
            return self.0.iter().try_fold(1i64, |n, d| n.checked_mul(d.as_const()?));
        }
        // 0 times a symbol is 0.
        self.0.contains(&Dim::ZERO).then(|| self.numel().as_const()).flatten()
    }

    /// The sizes, if all are constants ≥ 0.
    pub fn as_static(&self) -> Option<Vec<usize>> {
        // Most shapes that are not static show it before anything is allocated.
        if self.has_dynamic_dims() {
            return None;
        }
        self.0.iter().map(|d| d.as_const().and_then(|c| usize::try_from(c).ok())).collect()
    }

    /// True if any dim is not a constant.
    pub fn has_dynamic_dims(&self) -> bool {
        self.0.iter().any(|d| !d.is_const())
    }

    /// The sizes under a binding.
    pub fn eval(&self, binding: &DimBinding) -> Result<Vec<i64>, DimError> {
        self.0.iter().map(|d| d.eval(binding)).collect()
    }

    /// The same shape with symbols replaced.
    pub fn substitute(&self, map: &std::collections::BTreeMap<Symbol, Dim>) -> Self {
        Shape(self.0.iter().map(|d| d.substitute(map)).collect())
    }

    /// Consumes the shape into its dims.
    pub fn into_dims(self) -> Vec<Dim> {
        self.0.to_vec()
    }

    /// Resolves an axis that may count from the end; `None` when out of range.
    pub fn axis(&self, axis: i64) -> Option<usize> {
        normalize_axis(axis, self.rank())
    }
}

/// Resolves an axis in `-rank..rank`; `None` when out of range.
pub fn normalize_axis(axis: i64, rank: usize) -> Option<usize> {
    let r = i64::try_from(rank).ok()?;
    let a = if axis < 0 { axis.checked_add(r)? } else { axis };
    (0..r).contains(&a).then_some(a as usize)
}

impl Deref for Shape {
    type Target = [Dim];
    fn deref(&self) -> &[Dim] {
        &self.0
    }
}

impl From<Vec<Dim>> for Shape {
    fn from(v: Vec<Dim>) -> Self {
        Shape(v.into())
    }
}

impl FromIterator<Dim> for Shape {
    fn from_iter<T: IntoIterator<Item = Dim>>(iter: T) -> Self {
        Shape(iter.into_iter().collect())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, d) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{d}")?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A tensor's dtype and shape, printed `f32[batch, 384]`.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Sizes of the axes.
    pub shape: Shape,
}

impl TensorType {
    /// A tensor type.
    pub fn new(dtype: DType, shape: impl Into<Shape>) -> Self {
        TensorType { dtype, shape: shape.into() }
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The type of a value: a tensor, a sequence or an optional.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Type {
    /// A tensor.
    Tensor(TensorType),
    /// A sequence of values of one type, printed `seq<f32[n]>`.
    Sequence(Box<Type>),
    /// A value or nothing, printed `opt<f32[n]>`.
    Optional(Box<Type>),
}

impl Type {
    /// A tensor type.
    pub fn tensor(dtype: DType, shape: impl Into<Shape>) -> Self {
        Type::Tensor(TensorType::new(dtype, shape))
    }

    /// The tensor type, if it is one.
    pub fn as_tensor(&self) -> Option<&TensorType> {
        match self {
            Type::Tensor(t) => Some(t),
            _ => None,
        }
    }

    /// The same type with symbols replaced.
    pub fn substitute(&self, map: &std::collections::BTreeMap<Symbol, Dim>) -> Self {
        match self {
            Type::Tensor(t) => Type::Tensor(TensorType { dtype: t.dtype, shape: t.shape.substitute(map) }),
            Type::Sequence(t) => Type::Sequence(Box::new(t.substitute(map))),
            Type::Optional(t) => Type::Optional(Box::new(t.substitute(map))),
        }
    }

    /// Adds the symbols of all dims to `out`.
    pub fn collect_symbols(&self, out: &mut std::collections::BTreeSet<Symbol>) {
        match self {
            Type::Tensor(t) => t.shape.iter().for_each(|d| out.extend(d.symbols())),
            Type::Sequence(t) | Type::Optional(t) => t.collect_symbols(out),
        }
    }
}

impl From<TensorType> for Type {
    fn from(t: TensorType) -> Self {
        Type::Tensor(t)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tensor(t) => write!(f, "{t}"),
            Type::Sequence(t) => write!(f, "seq<{t}>"),
            Type::Optional(t) => write!(f, "opt<{t}>"),
        }
    }
}

impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
