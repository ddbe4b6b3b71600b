//! Long short-term memory.

use rlx_ir::ops::neural::{Lstm as LstmOp, RnnDirection};
use rlx_ir::{DType, ValueId};

use super::block::{Block, Layer, ParamSpec};
use super::error::NnError;
use super::net::Scope;
use super::recurrent::{Stack, stack_methods};

/// Long short-term memory over `[batch, sequence, inputs]`. Parameters, named and ordered as PyTorch has them (gates i, f, g, o):
/// `weight_ih_l0` `[4·hidden, inputs]`, `weight_hh_l0` `[4·hidden, hidden]`, `bias_ih_l0`, `bias_hh_l0`, then those of the other
/// direction (`_reverse`) and of further layers (`_l1`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lstm {
    stack: Stack,
}

/// What a recurrent block gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LstmOutput {
    /// Results at every position, directions side by side.
    pub y: ValueId,
    /// The last hidden state of each layer and direction, `[layers·directions, batch, hidden]`.
    pub h: ValueId,
    /// The last cell state, of the same shape.
    pub c: ValueId,
}

impl Lstm {
    /// One layer, forward, with biases.
    pub const fn new(inputs: usize, hidden: usize) -> Self {
        Lstm { stack: Stack::new(inputs, hidden) }
    }

    stack_methods!();

    /// Runs from states `[layers·directions, batch, hidden]`, zeros where there are none.
    pub fn run(
        &self,
        scope: &mut Scope<'_>,
        x: ValueId,
        h0: Option<ValueId>,
        c0: Option<ValueId>,
    ) -> Result<LstmOutput, NnError> {
        let (s, kind) = (&self.stack, self.kind());
        s.check(scope, kind, x, &[h0, c0])?;
        let mut y = s.turned(scope, kind, x)?;
        let (mut hs, mut cs) = (Vec::new(), Vec::new());
        for layer in 0..s.layers {
            // The op's gates are i, o, f, c.
            let mut operands = s.operands(scope, kind, layer, &[0, 3, 1, 2])?;
            operands.insert(0, y);
            for state in [h0, c0].into_iter().flatten() {
                operands.push(s.part(scope, kind, state, layer)?);
            }
            let op = LstmOp {
                direction: if s.bidirectional { RnnDirection::Bidirectional } else { RnnDirection::Forward },
                has_bias: s.bias,
                has_init_h: h0.is_some(),
                has_init_c: c0.is_some(),
                ..LstmOp::new(s.hidden as i64)
            };
            let results = scope.build(kind, &operands, |b| b.lstm(op, &operands))?;
            let [all, h, c] = results[..] else { return Err(scope.refuse(kind, "the op has three results")) };
            y = s.joined(scope, kind, all)?;
            hs.push(h);
            cs.push(c);
        }
        let y = s.turned(scope, kind, y)?;
        let (h, c) = scope.build(kind, &[y], |b| Ok((b.concat(&hs, 0)?, b.concat(&cs, 0)?)))?;
        Ok(LstmOutput { y, h, c })
    }
}

impl Block for Lstm {
    fn kind(&self) -> &'static str {
        "LSTM"
    }

    fn params(&self, dtype: DType) -> Vec<ParamSpec> {
        self.stack.params(4, dtype)
    }
}

/// From zero states to the results at every position.
impl Layer for Lstm {
    fn apply(&self, scope: &mut Scope<'_>, x: ValueId) -> Result<ValueId, NnError> {
        self.run(scope, x, None, None).map(|o| o.y)
    }
}
