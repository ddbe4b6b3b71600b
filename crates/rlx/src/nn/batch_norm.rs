//! Batch normalisation at inference.

use rlx_ir::{DType, ValueId};

use super::block::{Block, Layer, ParamSpec};
use super::error::NnError;
use super::net::Scope;

/// Batch normalisation of `[n, channels, …]` with given statistics. Parameters, all `[channels]`: `weight`, `bias`, `running_mean`,
/// `running_var`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNorm {
    channels: usize,
    eps: f64,
}

impl BatchNorm {
    /// With an epsilon of 1e-5.
    pub const fn new(channels: usize) -> Self {
        BatchNorm { channels, eps: 1e-5 }
    }

    /// What is added to the variance.
    #[must_use]
    pub const fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }
}

impl Block for BatchNorm {
    fn kind(&self) -> &'static str {
        "batch norm"
    }

    fn params(&self, dtype: DType) -> Vec<ParamSpec> {
        ["weight", "bias", "running_mean", "running_var"]
            .iter()
            .map(|n| ParamSpec::new(*n, dtype, [self.channels]))
            .collect()
    }
}

impl Layer for BatchNorm {
    fn apply(&self, scope: &mut Scope<'_>, x: ValueId) -> Result<ValueId, NnError> {
        let params = scope.declare(self)?;
        scope.build(self.kind(), &[x], |b| {
            let op = rlx_ir::ops::neural::BatchNorm { eps: self.eps.into() };
            b.op1(op, &[&[x], &params[..]].concat())
        })
    }
}
