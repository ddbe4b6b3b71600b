//! Group normalisation.

use rlx_ir::{DType, ValueId};

use super::block::{Block, Layer, ParamSpec};
use super::error::NnError;
use super::net::Scope;

/// Group normalisation of `[n, channels, …]`. Parameters: `weight` and `bias`, both `[channels]`. As many groups as channels make it
/// instance normalisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupNorm {
    groups: usize,
    channels: usize,
    eps: f64,
    affine: bool,
}

impl GroupNorm {
    /// With weight and bias and an epsilon of 1e-5.
    pub const fn new(groups: usize, channels: usize) -> Self {
        GroupNorm { groups, channels, eps: 1e-5, affine: true }
    }

    /// What is added to the variance.
    #[must_use]
    pub const fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// With weight and bias or without both.
    #[must_use]
    pub const fn affine(mut self, affine: bool) -> Self {
        self.affine = affine;
        self
    }
}

impl Block for GroupNorm {
    fn kind(&self) -> &'static str {
        "group norm"
    }

    fn params(&self, dtype: DType) -> Vec<ParamSpec> {
        let names: &[&str] = if self.affine { &["weight", "bias"] } else { &[] };
        names.iter().map(|n| ParamSpec::new(*n, dtype, [self.channels])).collect()
    }
}

impl Layer for GroupNorm {
    fn apply(&self, scope: &mut Scope<'_>, x: ValueId) -> Result<ValueId, NnError> {
        if self.groups == 0 || !self.channels.is_multiple_of(self.groups) {
            let why = format!("{} channels do not split into {} groups", self.channels, self.groups);
            return Err(scope.refuse(self.kind(), why));
        }
        let params = scope.declare(self)?;
        let (weight, bias) = (params.first().copied(), params.get(1).copied());
        scope.build(self.kind(), &[x], |b| b.group_norm(x, weight, bias, self.groups, self.eps))
    }
}
