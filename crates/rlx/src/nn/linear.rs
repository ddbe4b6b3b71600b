//! Linear layers.

use rlx_ir::{DType, ValueId};

use super::block::{Block, Layer, ParamSpec};
use super::error::NnError;
use super::net::Scope;

/// `x · weightᵀ + bias` over the last axis. Parameters: `weight` `[to, from]` and, unless switched off, `bias` `[to]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    from: usize,
    to: usize,
    bias: bool,
    transposed: bool,
}

impl Linear {
    /// A layer with a bias.
    pub const fn new(from: usize, to: usize) -> Self {
        Linear { from, to, bias: true, transposed: false }
    }

    /// With or without a bias.
    #[must_use]
    pub const fn bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// The weight is stored as `[from, to]` (ONNX `MatMul`, GPT-2's `Conv1D`) instead of `[to, from]`.
    #[must_use]
    pub const fn transposed(mut self, transposed: bool) -> Self {
        self.transposed = transposed;
        self
    }

    /// Features taken.
    pub const fn features(&self) -> usize {
        self.from
    }

    /// Features given.
    pub const fn outputs(&self) -> usize {
        self.to
    }
}

impl Block for Linear {
    fn kind(&self) -> &'static str {
        "linear"
    }

    fn params(&self, dtype: DType) -> Vec<ParamSpec> {
        let weight = if self.transposed { [self.from, self.to] } else { [self.to, self.from] };
        let bias = self.bias.then(|| ParamSpec::new("bias", dtype, [self.to]));
        [ParamSpec::new("weight", dtype, weight)].into_iter().chain(bias).collect()
    }
}

impl Layer for Linear {
    /// `[…, from]` to `[…, to]`.
    fn apply(&self, scope: &mut Scope<'_>, x: ValueId) -> Result<ValueId, NnError> {
        scope.expect_features(self.kind(), x, self.from)?;
        let params = scope.declare(self)?;
        let rank = scope.shape(x)?.rank();
        let summed = usize::from(!self.transposed);
        scope.build(self.kind(), &[x], |b| {
            let mut y = x;
            for (i, &p) in params.iter().enumerate() {
                y = match i {
                    0 => b.dot_general(y, p, &[], &[], &[rank - 1], &[summed], None)?,
                    _ => b.add(y, p)?,
                };
            }
            Ok(y)
        })
    }
}
