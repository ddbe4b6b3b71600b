//! Layer normalisation.

use rlx_ir::{DType, ValueId};

use super::block::{Block, Layer, ParamSpec};
use super::error::NnError;
use super::net::Scope;

/// Layer normalisation over the last axis. Parameters: `weight` and `bias`, both `[features]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm {
    features: usize,
    eps: f64,
    weight: bool,
    bias: bool,
}

impl LayerNorm {
    /// With weight and bias and an epsilon of 1e-5.
    pub const fn new(features: usize) -> Self {
        LayerNorm { features, eps: 1e-5, weight: true, bias: true }
    }

    /// What is added to the variance.
    #[must_use]
    pub const fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// With or without a bias.
    #[must_use]
    pub const fn bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// With weight and bias or without both.
    #[must_use]
    pub const fn affine(mut self, affine: bool) -> Self {
        self.weight = affine;
        self.bias = affine;
        self
    }
}

impl Block for LayerNorm {
    fn kind(&self) -> &'static str {
        "layer norm"
    }

    fn params(&self, dtype: DType) -> Vec<ParamSpec> {
        let one = |wanted: bool, name: &str| wanted.then(|| ParamSpec::new(name, dtype, [self.features]));
        one(self.weight, "weight").into_iter().chain(one(self.bias, "bias")).collect()
    }
}

impl Layer for LayerNorm {
    /// `[…, features]` to the same.
    fn apply(&self, scope: &mut Scope<'_>, x: ValueId) -> Result<ValueId, NnError> {
        scope.expect_features(self.kind(), x, self.features)?;
        let mut params = scope.declare(self)?.into_iter();
        let (weight, bias) = (self.weight.then(|| params.next()).flatten(), self.bias.then(|| params.next()).flatten());
        let last = scope.shape(x)?.rank() - 1;
        scope.build(self.kind(), &[x], |b| b.layer_norm(x, weight, bias, &[last], self.eps))
    }
}
