//! Root-mean-square normalisation.

use rlx_ir::{DType, ValueId};

use super::block::{Block, Layer, ParamSpec};
use super::error::NnError;
use super::net::Scope;

/// Root-mean-square normalisation over the last axis. Parameter: `weight` `[features]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNorm {
    features: usize,
    eps: f64,
    weight: bool,
}

impl RmsNorm {
    /// With a weight and an epsilon of 1e-6.
    pub const fn new(features: usize) -> Self {
        RmsNorm { features, eps: 1e-6, weight: true }
    }

    /// What is added to the mean square.
    #[must_use]
    pub const fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// With or without a weight.
    #[must_use]
    pub const fn weight(mut self, weight: bool) -> Self {
        self.weight = weight;
        self
    }
}

impl Block for RmsNorm {
    fn kind(&self) -> &'static str {
        "RMS norm"
    }

    fn params(&self, dtype: DType) -> Vec<ParamSpec> {
        self.weight.then(|| ParamSpec::new("weight", dtype, [self.features])).into_iter().collect()
    }
}

impl Layer for RmsNorm {
    /// `[…, features]` to the same.
    fn apply(&self, scope: &mut Scope<'_>, x: ValueId) -> Result<ValueId, NnError> {
        scope.expect_features(self.kind(), x, self.features)?;
        let weight = scope.declare(self)?.first().copied();
        let last = scope.shape(x)?.rank() - 1;
        scope.build(self.kind(), &[x], |b| b.rms_norm(x, weight, &[last], self.eps))
    }
}
