//! Feed-forward blocks.

use rlx_ir::{DType, ValueId};

use super::activation::Activation;
use super::block::{Block, Layer, ParamSpec};
use super::error::NnError;
use super::linear::Linear;
use super::net::Scope;

/// `down(activation(up(x)))`. Parameters: those of its linear layers `up` and `down`.
#[derive(Clone, Debug, PartialEq)]
pub struct Mlp {
    up: Linear,
    down: Linear,
    activation: Activation,
    names: [String; 2],
}

impl Mlp {
    /// From `width` over `hidden` features back, with biases.
    pub fn new(width: usize, hidden: usize, activation: Activation) -> Self {
        Mlp {
            up: Linear::new(width, hidden),
            down: Linear::new(hidden, width),
            activation,
            names: ["up", "down"].map(Into::into),
        }
    }

    /// With or without biases.
    #[must_use]
    pub fn bias(self, bias: bool) -> Self {
        Mlp { up: self.up.bias(bias), down: self.down.bias(bias), ..self }
    }

    /// The weights are stored as `[from, to]`.
    #[must_use]
    pub fn transposed(self, transposed: bool) -> Self {
        Mlp { up: self.up.transposed(transposed), down: self.down.transposed(transposed), ..self }
    }

    /// What the layers are called, `up` first.
    #[must_use]
    pub fn names(self, names: [&str; 2]) -> Self {
        Mlp { names: names.map(Into::into), ..self }
    }
}

impl Block for Mlp {
    fn kind(&self) -> &'static str {
        "MLP"
    }

    fn params(&self, dtype: DType) -> Vec<ParamSpec> {
        let [up, down] = &self.names;
        ParamSpec::under(up, self.up.params(dtype)).chain(ParamSpec::under(down, self.down.params(dtype))).collect()
    }
}

impl Layer for Mlp {
    fn apply(&self, scope: &mut Scope<'_>, x: ValueId) -> Result<ValueId, NnError> {
        let [up, down] = &self.names;
        let h = self.up.apply(&mut scope.at(up), x)?;
        let h = self.activation.apply(scope, h)?;
        self.down.apply(&mut scope.at(down), h)
    }
}

/// `down(activation(gate(x)) · up(x))`, as LLaMA has it. Parameters: those of its linear layers `gate_proj`, `up_proj`, `down_proj`,
/// without biases unless asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct GatedMlp {
    gate: Linear,
    up: Linear,
    down: Linear,
    activation: Activation,
    names: [String; 3],
}

impl GatedMlp {
    /// From `width` over `hidden` features back.
    pub fn new(width: usize, hidden: usize, activation: Activation) -> Self {
        let wide = Linear::new(width, hidden).bias(false);
        GatedMlp {
            gate: wide,
            up: wide,
            down: Linear::new(hidden, width).bias(false),
            activation,
            names: ["gate_proj", "up_proj", "down_proj"].map(Into::into),
        }
    }

    /// With or without biases.
    #[must_use]
    pub fn bias(self, bias: bool) -> Self {
        GatedMlp { gate: self.gate.bias(bias), up: self.up.bias(bias), down: self.down.bias(bias), ..self }
    }

    /// What the layers are called: gate, up, down.
    #[must_use]
    pub fn names(self, names: [&str; 3]) -> Self {
        GatedMlp { names: names.map(Into::into), ..self }
    }
}

impl Block for GatedMlp {
    fn kind(&self) -> &'static str {
        "gated MLP"
    }

    fn params(&self, dtype: DType) -> Vec<ParamSpec> {
        let parts = [self.gate, self.up, self.down];
        self.names.iter().zip(parts).flat_map(|(n, l)| ParamSpec::under(n, l.params(dtype))).collect()
    }
}

impl Layer for GatedMlp {
    fn apply(&self, scope: &mut Scope<'_>, x: ValueId) -> Result<ValueId, NnError> {
        let [gate, up, down] = &self.names;
        let g = self.gate.apply(&mut scope.at(gate), x)?;
        let g = self.activation.apply(scope, g)?;
        let h = self.up.apply(&mut scope.at(up), x)?;
        let h = scope.build(self.kind(), &[g, h], |b| b.mul(g, h))?;
        self.down.apply(&mut scope.at(down), h)
    }
}
