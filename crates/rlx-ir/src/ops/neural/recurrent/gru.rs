//! Gated recurrent unit.

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
    /// Gated recurrent unit. Operands: x `[t, b, i]`, w `[d, 3h, i]`, r `[d, 3h, h]`, then those that are there of bias `[d, 6h]`, lengths `[b]`, h0 `[d, b, h]`. Gates in order z, r, h. Results: y `[t, d, b, h]` (zeros past a sequence's length), last h `[d, b, h]`.
    pub struct Gru = "gru" {
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
        /// Functions f and g for each direction; none for sigmoid, tanh.
        pub activations: Vec<CellActivation>,
        /// Arguments of activations are limited to this magnitude.
        pub clip: Option<FloatBits>,
        /// Whether the reset gate applies after the product with the recurrent weights (and their bias), not before.
        pub linear_before_reset: bool,
    }
}

impl Gru {
    /// A layer with defaults: forward, no optional operands.
    pub fn new(hidden: i64) -> Self {
        Gru {
            direction: RnnDirection::Forward,
            hidden,
            has_bias: false,
            has_lengths: false,
            has_init_h: false,
            activations: Vec::new(),
            clip: None,
            linear_before_reset: false,
        }
    }

    fn with_layer<T>(&self, f: impl FnOnce(Layer<'_>) -> T) -> T {
        f(Layer {
            direction: self.direction,
            hidden: self.hidden,
            gates: 3,
            has_bias: self.has_bias,
            has_lengths: self.has_lengths,
            has_init_h: self.has_init_h,
            has_init_c: false,
            has_peephole: false,
            activations: &self.activations,
            defaults: &[CellActivation::new(CellFunction::Sigmoid), CellActivation::new(CellFunction::Tanh)],
            clip: self.clip,
        })
    }
}

impl OpRules for Gru {
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
                let n = h.len();
                let before = h.to_vec();
                let gate = |g: usize, k: usize| side.activate(0, x[g * n + k] + side.recur(g * n + k, &before));
                let reset: Vec<f64> = (0..n).map(|k| gate(1, k)).collect();
                let kept: Vec<f64> = before.iter().zip(&reset).map(|(h, r)| h * r).collect();
                for k in 0..n {
                    let row = 2 * n + k;
                    let state = if self.linear_before_reset {
                        reset[k] * side.recur(row, &before)
                    } else {
                        side.recur(row, &kept)
                    };
                    let candidate = side.activate(1, x[row] + state);
                    let update = gate(0, k);
                    h[k] = (1.0 - update) * candidate + update * before[k];
                }
            })
        })?;
        let [t, d, b, h] = out.sizes;
        let dtype = arg(args, 0)?.dtype();
        Ok(vec![rows::tensor(dtype, &[t, d, b, h], out.y)?, rows::tensor(dtype, &[d, b, h], out.h)?])
    }
}

impl Builder {
    /// A gated recurrent layer; operands in the op's order. Results y, h.
    pub fn gru(&mut self, op: Gru, operands: &[ValueId]) -> Result<Vec<ValueId>, IrError> {
        self.op(op, operands)
    }
}
