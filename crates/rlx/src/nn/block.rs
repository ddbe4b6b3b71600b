//! What a block is.

use rlx_ir::{DType, Dim, Shape, TensorType, ValueId};

use super::error::NnError;
use super::net::Scope;

/// A parameter that a block declares, under the block's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamSpec {
    /// Its name relative to the block: `weight`, `query.bias`.
    pub name: String,
    /// Its dtype and shape.
    pub ty: TensorType,
}

impl ParamSpec {
    /// A parameter of these sizes.
    pub fn new(name: impl Into<String>, dtype: DType, dims: impl IntoIterator<Item = impl Into<Dim>>) -> Self {
        ParamSpec { name: name.into(), ty: TensorType::new(dtype, Shape::new(dims)) }
    }

    /// The parameters of a block that is part of another, under its name there.
    pub fn under(part: &str, params: Vec<ParamSpec>) -> impl Iterator<Item = ParamSpec> + use<> {
        let part = part.to_string();
        params.into_iter().map(move |p| ParamSpec { name: join(&part, &p.name), ..p })
    }
}

/// Two parts of a path.
pub(super) fn join(path: &str, name: &str) -> String {
    match (path, name) {
        ("", n) => n.into(),
        (p, "") => p.into(),
        (p, n) => format!("{p}.{n}"),
    }
}

/// A layer as plain data: it knows its parameters, whatever it is applied to.
pub trait Block {
    /// What it is, in errors.
    fn kind(&self) -> &'static str;

    /// The parameters that applying it declares, in order, with floats of this dtype.
    fn params(&self, dtype: DType) -> Vec<ParamSpec>;
}

/// A block from one value to one value.
pub trait Layer: Block {
    /// Appends it to the graph at the scope's path.
    fn apply(&self, scope: &mut Scope<'_>, x: ValueId) -> Result<ValueId, NnError>;
}

/// Layers one after the other, each under its name or else its number.
#[derive(Default)]
pub struct Sequential {
    layers: Vec<(String, Box<dyn Layer>)>,
}

impl Sequential {
    /// No layers.
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more layer, named after its position.
    #[must_use]
    pub fn then(self, layer: impl Layer + 'static) -> Self {
        let name = self.layers.len().to_string();
        self.then_named(name, layer)
    }

    /// With one more layer of a name.
    #[must_use]
    pub fn then_named(mut self, name: impl Into<String>, layer: impl Layer + 'static) -> Self {
        self.layers.push((name.into(), Box::new(layer)));
        self
    }
}

impl Block for Sequential {
    fn kind(&self) -> &'static str {
        "sequential"
    }

    fn params(&self, dtype: DType) -> Vec<ParamSpec> {
        self.layers.iter().flat_map(|(name, l)| ParamSpec::under(name, l.params(dtype))).collect()
    }
}

impl Layer for Sequential {
    fn apply(&self, scope: &mut Scope<'_>, x: ValueId) -> Result<ValueId, NnError> {
        self.layers.iter().try_fold(x, |x, (name, layer)| layer.apply(&mut scope.at(name), x))
    }
}
