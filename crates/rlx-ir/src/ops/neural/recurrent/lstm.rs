//! Long short-term memory.

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
    /// Long short-term memory. Operands: x `[t, b, i]`, w `[d, 4h, i]`, r `[d, 4h, h]`, then those that are there of bias `[d, 8h]`, lengths `[b]`, h0 and c0 `[d, b, h]`, peephole `[d, 3h]`. Gates in order i, o, f, c. Results: y `[t, d, b, h]` (zeros past a sequence's length), last h and c `[d, b, h]`.
    pub struct Lstm = "lstm" {
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
        /// Whether there is an initial c; else zeros.
        pub has_init_c: bool,
        /// Whether there are peephole weights, in order i, o, f.
        pub has_peephole: bool,
        /// Functions f, g, h for each direction; none for sigmoid, tanh, tanh.
        pub activations: Vec<CellActivation>,
        /// Arguments of activations are limited to this magnitude.
        pub clip: Option<FloatBits>,
        /// Whether the forget gate is one minus the input gate.
        pub input_forget: bool,
    }
}

impl Lstm {
    /// A layer with defaults: forward, no optional operands.
    pub fn new(hidden: i64) -> Self {
        Lstm {
            direction: RnnDirection::Forward,
            hidden,
            has_bias: false,
            has_lengths: false,
            has_init_h: false,
            has_init_c: false,
            has_peephole: false,
            activations: Vec::new(),
            clip: None,
            input_forget: false,
        }
    }

    fn with_layer<T>(&self, f: impl FnOnce(Layer<'_>) -> T) -> T {
        let tanh = CellActivation::new(CellFunction::Tanh);
        f(Layer {
            direction: self.direction,
            hidden: self.hidden,
            gates: 4,
            has_bias: self.has_bias,
            has_lengths: self.has_lengths,
            has_init_h: self.has_init_h,
            has_init_c: self.has_init_c,
            has_peephole: self.has_peephole,
            activations: &self.activations,
            defaults: &[CellActivation::new(CellFunction::Sigmoid), tanh, tanh],
            clip: self.clip,
        })
    }
}

impl OpRules for Lstm {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        let (dtype, [t, d, b, h]) = self.with_layer(|l| l.infer(cx))?;
        cx.result(dtype, vec![t, d.clone(), b.clone(), h.clone()]);
        cx.result(dtype, vec![d.clone(), b.clone(), h.clone()]);
        cx.result(dtype, vec![d, b, h]);
        Ok(())
    }

    fn work(&self, operands: &[TensorType], _results: &[TensorType]) -> Dim {
        super::layer::work(operands)
    }

    fn eval(&self, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let out = self.with_layer(|l| {
            l.run(args, |side, x, h, c| {
                let n = h.len();
                let peep = |gate: usize, k: usize, c: f64| side.peephole.get(gate * n + k).map_or(0.0, |p| p * c);
                let before = h.to_vec();
                for k in 0..n {
                    let gate = |g: usize| x[g * n + k] + side.recur(g * n + k, &before);
                    let input = side.activate(0, gate(0) + peep(0, k, c[k]));
                    let forget =
                        if self.input_forget { 1.0 - input } else { side.activate(0, gate(2) + peep(2, k, c[k])) };
                    c[k] = forget * c[k] + input * side.activate(1, gate(3));
                    let output = side.activate(0, gate(1) + peep(1, k, c[k]));
                    h[k] = output * side.activations[2].apply(c[k]);
                }
            })
        })?;
        let [t, d, b, h] = out.sizes;
        let dtype = arg(args, 0)?.dtype();
        Ok(vec![
            rows::tensor(dtype, &[t, d, b, h], out.y)?,
            rows::tensor(dtype, &[d, b, h], out.h)?,
            rows::tensor(dtype, &[d, b, h], out.c)?,
        ])
    }
}

impl Builder {
    /// A long short-term memory layer; operands in the op's order. Results y, h, c.
    pub fn lstm(&mut self, op: Lstm, operands: &[ValueId]) -> Result<Vec<ValueId>, IrError> {
        self.op(op, operands)
    }
}
