//! Plain recurrent layer.

use super::layer::Layer;
use super::{CellActivation, CellFunction, RnnDirection};
use crate::attr::FloatBits;
use crate::builder::Builder;
use crate::dim::Dim;
use crate::error::{IrError, OpError};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::ops::neural::rows;
use crate::tensor::Value;
use crate::types::TensorType;

op! {
    /// Plain recurrence `h = f(w·x + r·h + bias)`. Operands: x `[t, b, i]`, w `[d, h, i]`, r `[d, h, h]`, then those that are there of bias `[d, 2h]`, lengths `[b]`, h0 `[d, b, h]`. Results: y `[t, d, b, h]` (zeros past a sequence's length), last h `[d, b, h]`.
    pub struct Rnn = "rnn" {
        /// Order of steps.
        pub direction: RnnDirection,
        /// Size h of the state.
        pub hidden: i64,
        /// Whether there is a bias.
        pub has_bias: bool,
        /// Whether there are sequence lengths.
        pub has_lengths: bool,
        /// Whether there is an initial h; else zeros.
        pub has_init_h: bool,
        /// The function for each direction; none for tanh.
        pub activations: Vec<CellActivation>,
        /// Arguments of activations are limited to this magnitude.
        pub clip: Option<FloatBits>,
    }
}

impl Rnn {
    /// A layer with defaults: forward, no optional operands.
    pub fn new(hidden: i64) -> Self {
        Rnn {
            direction: RnnDirection::Forward,
            hidden,
            has_bias: false,
            has_lengths: false,
            has_init_h: false,
            activations: Vec::new(),
            clip: None,
        }
    }

    fn with_layer<T>(&self, f: impl FnOnce(Layer<'_>) -> T) -> T {
        f(Layer {
            direction: self.direction,
            hidden: self.hidden,
            gates: 1,
            has_bias: self.has_bias,
            has_lengths: self.has_lengths,
            has_init_h: self.has_init_h,
            has_init_c: false,
            has_peephole: false,
            activations: &self.activations,
            defaults: &[CellActivation::new(CellFunction::Tanh)],
            clip: self.clip,
        })
    }
}

impl OpRules for Rnn {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        let (dtype, [t, d, b, h]) = self.with_layer(|l| l.infer(cx))?;
        cx.result(dtype, vec![t, d.clone(), b.clone(), h.clone()]);
        cx.result(dtype, vec![d, b, h]);
        Ok(())
    }

    fn work(&self, operands: &[TensorType], _results: &[TensorType]) -> Dim {
        super::layer::work(operands)
    }

    fn eval(&self, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let out = self.with_layer(|l| {
            l.run(args, |side, x, h, _| {
                let before = h.to_vec();
                for (k, h) in h.iter_mut().enumerate() {
                    *h = side.activate(0, x[k] + side.recur(k, &before));
                }
            })
        })?;
        let [t, d, b, h] = out.sizes;
        let dtype = arg(args, 0)?.dtype();
        Ok(vec![rows::tensor(dtype, &[t, d, b, h], out.y)?, rows::tensor(dtype, &[d, b, h], out.h)?])
    }
}

impl Builder {
    /// A plain recurrent layer; operands in the op's order. Results y, h.
    pub fn rnn(&mut self, op: Rnn, operands: &[ValueId]) -> Result<Vec<ValueId>, IrError> {
        self.op(op, operands)
    }
}
