//! What LSTM and GRU share: PyTorch's names and order of gates, turned into the order of the IR's ops. Reordering depends on parameters
//! alone, so that compiling moves it out of the run.

use rlx_ir::{DType, Dim, IrError, ValueId};

use super::block::ParamSpec;
use super::error::NnError;
use super::net::Scope;

/// Sizes of a stack of recurrent layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stack {
    pub inputs: usize,
    pub hidden: usize,
    pub layers: usize,
    pub bidirectional: bool,
    pub bias: bool,
    pub batch_first: bool,
}

impl Stack {
    pub const fn new(inputs: usize, hidden: usize) -> Self {
        Stack { inputs, hidden, layers: 1, bidirectional: false, bias: true, batch_first: true }
    }

    pub const fn directions(&self) -> usize {
        if self.bidirectional { 2 } else { 1 }
    }

    /// Parameters of one layer: for each direction those of input weights, recurrent weights and, if there are any, both biases.
    fn layer_params(&self, layer: usize, gates: usize, dtype: DType) -> Vec<ParamSpec> {
        let (rows, h) = (gates * self.hidden, self.hidden);
        let inputs = if layer == 0 { self.inputs } else { h * self.directions() };
        let mut out = Vec::new();
        for side in ["", "_reverse"].iter().take(self.directions()) {
            out.push(ParamSpec::new(format!("weight_ih_l{layer}{side}"), dtype, [rows, inputs]));
            out.push(ParamSpec::new(format!("weight_hh_l{layer}{side}"), dtype, [rows, h]));
            if self.bias {
                out.push(ParamSpec::new(format!("bias_ih_l{layer}{side}"), dtype, [rows]));
                out.push(ParamSpec::new(format!("bias_hh_l{layer}{side}"), dtype, [rows]));
            }
        }
        out
    }

    pub fn params(&self, gates: usize, dtype: DType) -> Vec<ParamSpec> {
        (0..self.layers).flat_map(|l| self.layer_params(l, gates, dtype)).collect()
    }

    /// The operands w, r and bias of a layer in the op's order of gates: `order[i]` is the place of the op's gate i in the weights.
    pub fn operands(
        &self,
        scope: &mut Scope<'_>,
        kind: &'static str,
        layer: usize,
        order: &[usize],
    ) -> Result<Vec<ValueId>, NnError> {
        let dtype = scope.dtype();
        let params = self
            .layer_params(layer, order.len(), dtype)
            .iter()
            .map(|p| scope.param(p))
            .collect::<Result<Vec<_>, _>>()?;
        let per_side = if self.bias { 4 } else { 2 };
        scope.build(kind, &params, |b| {
            let ordered = |b: &mut rlx_ir::Builder, p: ValueId| {
                let parts = b.split(p, 0, &vec![Dim::from(self.hidden); order.len()])?;
                let parts: Vec<ValueId> = order.iter().filter_map(|&i| parts.get(i).copied()).collect();
                b.concat(&parts, 0)
            };
            let mut sides: Vec<Vec<ValueId>> = vec![Vec::new(); if self.bias { 3 } else { 2 }];
            for side in params.chunks(per_side) {
                let side = side.iter().map(|&p| ordered(b, p)).collect::<Result<Vec<_>, IrError>>()?;
                for (i, group) in sides.iter_mut().enumerate() {
                    match (i, side.get(i), side.get(3)) {
                        (2, Some(&x), Some(&h)) => group.push(b.concat(&[x, h], 0)?),
                        (_, Some(&x), _) => group.push(x),
                        _ => {}
                    }
                }
            }
            sides.iter().map(|s| b.stack(s, 0)).collect()
        })
    }

    /// The sequence axis first, which is how the op has it, or back.
    pub fn turned(&self, scope: &mut Scope<'_>, kind: &'static str, x: ValueId) -> Result<ValueId, NnError> {
        if !self.batch_first {
            return Ok(x);
        }
        scope.build(kind, &[x], |b| b.transpose(x, &[1, 0, 2]))
    }

    /// The op's results `[t, d, b, h]` as `[t, b, d·h]`.
    pub fn joined(&self, scope: &mut Scope<'_>, kind: &'static str, y: ValueId) -> Result<ValueId, NnError> {
        let features = Dim::from(self.directions() * self.hidden);
        scope.build(kind, &[y], |b| {
            let y = b.transpose(y, &[0, 2, 1, 3])?;
            let dims: Vec<Dim> = b.shape(y)?.iter().take(2).cloned().chain([features]).collect();
            b.reshape(y, dims)
        })
    }

    /// One layer's part of a stack of states `[layers·d, b, h]`.
    pub fn part(
        &self,
        scope: &mut Scope<'_>,
        kind: &'static str,
        state: ValueId,
        layer: usize,
    ) -> Result<ValueId, NnError> {
        let d = self.directions();
        let (from, to) = (layer * d, (layer + 1) * d);
        scope.build(kind, &[state], |b| b.slice_axis(state, 0, from, to, 1))
    }

    /// Checks a sequence and the states that are given.
    pub fn check(
        &self,
        scope: &Scope<'_>,
        kind: &'static str,
        x: ValueId,
        states: &[Option<ValueId>],
    ) -> Result<(), NnError> {
        if self.layers == 0 || self.hidden == 0 {
            let why = format!("{} layers of {} features; both must be positive", self.layers, self.hidden);
            return Err(scope.refuse(kind, why));
        }
        let shape = scope.shape(x)?;
        if shape.rank() != 3 {
            let axes = if self.batch_first { "[batch, sequence, features]" } else { "[sequence, batch, features]" };
            return Err(scope.refuse(kind, format!("takes {axes}, got {shape}")));
        }
        scope.expect_features(kind, x, self.inputs)?;
        for s in states.iter().flatten() {
            let shape = scope.shape(*s)?;
            let n = self.layers * self.directions();
            if shape.rank() != 3 || shape[0].known_eq(&Dim::from(n)) == Some(false) {
                return Err(scope.refuse(kind, format!("states are [{n}, batch, {}], got {shape}", self.hidden)));
            }
        }
        Ok(())
    }
}

/// Builder methods that every recurrent block has.
macro_rules! stack_methods {
    () => {
        /// So many layers, each over the results of the one before.
        #[must_use]
        pub const fn layers(mut self, layers: usize) -> Self {
            self.stack.layers = layers;
            self
        }

        /// In both directions, whose results stand side by side.
        #[must_use]
        pub const fn bidirectional(mut self, both: bool) -> Self {
            self.stack.bidirectional = both;
            self
        }

        /// With or without biases.
        #[must_use]
        pub const fn bias(mut self, bias: bool) -> Self {
            self.stack.bias = bias;
            self
        }

        /// Whether the batch axis comes before the sequence axis (as it does unless switched off).
        #[must_use]
        pub const fn batch_first(mut self, batch_first: bool) -> Self {
            self.stack.batch_first = batch_first;
            self
        }
    };
}
pub(super) use stack_methods;
