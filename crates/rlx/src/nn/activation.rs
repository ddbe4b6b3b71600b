//! Activation functions.

use rlx_ir::{Builder, DType, IrError, ValueId};

use super::block::{Block, Layer, ParamSpec};
use super::error::NnError;
use super::net::Scope;

/// A function applied to each element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// The value itself.
    #[default]
    Identity,
    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, 0), 6)`.
    Relu6,
    /// `x Φ(x)`.
    Gelu,
    /// The same by tanh.
    GeluTanh,
    /// `x sigmoid(x)`.
    Silu,
    /// `1 / (1 + exp(−x))`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `x · clamp(x / 6 + 1/2, 0, 1)`.
    HardSwish,
}

impl Activation {
    /// Appends it.
    pub fn on(self, b: &mut Builder, x: ValueId) -> Result<ValueId, IrError> {
        match self {
            Activation::Identity => Ok(x),
            Activation::Relu => b.relu(x),
            Activation::Relu6 => {
                let (lo, hi) = (b.scalar_like(x, 0.0)?, b.scalar_like(x, 6.0)?);
                b.clamp(x, lo, hi)
            }
            Activation::Gelu => b.gelu(x),
            Activation::GeluTanh => b.gelu_tanh(x),
            Activation::Silu => b.silu(x),
            Activation::Sigmoid => b.sigmoid(x),
            Activation::Tanh => b.tanh(x),
            Activation::HardSwish => b.hard_swish(x),
        }
    }
}

impl Block for Activation {
    fn kind(&self) -> &'static str {
        "activation"
    }

    fn params(&self, _dtype: DType) -> Vec<ParamSpec> {
        Vec::new()
    }
}

impl Layer for Activation {
    fn apply(&self, scope: &mut Scope<'_>, x: ValueId) -> Result<ValueId, NnError> {
        scope.build("activation", &[x], |b| self.on(b, x))
    }
}
