//! Gated recurrent units.

use rlx_ir::ops::neural::{Gru as GruOp, RnnDirection};
use rlx_ir::{DType, ValueId};

use super::block::{Block, Layer, ParamSpec};
use super::error::NnError;
use super::net::Scope;
use super::recurrent::{Stack, stack_methods};

/// Gated recurrent units over `[batch, sequence, inputs]`. Parameters, named and ordered as PyTorch has them (gates r, z, n):
/// `weight_ih_l0` `[3·hidden, inputs]`, `weight_hh_l0` `[3·hidden, hidden]`, `bias_ih_l0`, `bias_hh_l0`, then those of the other
/// direction (`_reverse`) and of further layers (`_l1`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gru {
    stack: Stack,
}

impl Gru {
    /// One layer, forward, with biases.
    pub const fn new(inputs: usize, hidden: usize) -> Self {
        Gru { stack: Stack::new(inputs, hidden) }
    }

    stack_methods!();

    /// Runs from a state `[layers·directions, batch, hidden]`, zeros if there is none. Gives the results at every position and the last
    /// state of each layer and direction.
    pub fn run(&self, scope: &mut Scope<'_>, x: ValueId, h0: Option<ValueId>) -> Result<(ValueId, ValueId), NnError> {
        let (s, kind) = (&self.stack, self.kind());
        s.check(scope, kind, x, &[h0])?;
        let mut y = s.turned(scope, kind, x)?;
        let mut hs = Vec::new();
        for layer in 0..s.layers {
            // The op's gates are z, r, h.
            let mut operands = s.operands(scope, kind, layer, &[1, 0, 2])?;
            operands.insert(0, y);
            if let Some(h0) = h0 {
                operands.push(s.part(scope, kind, h0, layer)?);
            }
            let op = GruOp {
                direction: if s.bidirectional { RnnDirection::Bidirectional } else { RnnDirection::Forward },
                has_bias: s.bias,
                has_init_h: h0.is_some(),
                linear_before_reset: true,
                ..GruOp::new(s.hidden as i64)
            };
            let results = scope.build(kind, &operands, |b| b.gru(op, &operands))?;
            let [all, h] = results[..] else { return Err(scope.refuse(kind, "the op has two results")) };
            y = s.joined(scope, kind, all)?;
            hs.push(h);
        }
        let y = s.turned(scope, kind, y)?;
        let h = scope.build(kind, &[y], |b| b.concat(&hs, 0))?;
        Ok((y, h))
    }
}

impl Block for Gru {
    fn kind(&self) -> &'static str {
        "GRU"
    }

    fn params(&self, dtype: DType) -> Vec<ParamSpec> {
        self.stack.params(3, dtype)
    }
}

/// From a zero state to the results at every position.
impl Layer for Gru {
    fn apply(&self, scope: &mut Scope<'_>, x: ValueId) -> Result<ValueId, NnError> {
        self.run(scope, x, None).map(|(y, _)| y)
    }
}
