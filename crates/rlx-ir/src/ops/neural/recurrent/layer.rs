//! What all recurrent layers share: operands and their types, directions, lengths, steps.

use super::super::rows;
use super::{CellActivation, RnnDirection};
use crate::attr::FloatBits;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::OpError;
use crate::eval::index_elements;
use crate::op::{InferCx, arg};
use crate::tensor::Value;
use crate::types::TensorType;

/// The attributes that all layers share, and what a cell of the layer needs.
pub(super) struct Layer<'a> {
    pub direction: RnnDirection,
    pub hidden: i64,
    /// Number of gates.
    pub gates: usize,
    pub has_bias: bool,
    pub has_lengths: bool,
    pub has_init_h: bool,
    pub has_init_c: bool,
    pub has_peephole: bool,
    /// Given for each direction, or none for the defaults.
    pub activations: &'a [CellActivation],
    /// For one direction, if none are given.
    pub defaults: &'a [CellActivation],
    pub clip: Option<FloatBits>,
}

/// One direction's weights, `[gates·h, …]` row by row.
pub(super) struct Side<'a> {
    /// Weights of the state.
    pub r: &'a [f64],
    /// Bias that belongs to the state; empty for none.
    pub r_bias: &'a [f64],
    /// Peephole weights; empty for none.
    pub peephole: &'a [f64],
    /// Functions of this direction.
    pub activations: &'a [CellActivation],
    clip: Option<f64>,
}

impl Side<'_> {
    /// Activation `k` of a clipped value.
    pub fn activate(&self, k: usize, x: f64) -> f64 {
        let x = self.clip.map_or(x, |c| x.clamp(-c, c));
        self.activations[k].apply(x)
    }

    /// Row `row` of the state's weights times a state, plus that bias.
    pub fn recur(&self, row: usize, h: &[f64]) -> f64 {
        self.recur_no_bias(row, h) + self.r_bias.get(row).copied().unwrap_or(0.0)
    }

    /// Row `row` of the state's weights times a state.
    pub fn recur_no_bias(&self, row: usize, h: &[f64]) -> f64 {
        dot(&self.r[row * h.len()..][..h.len()], h)
    }
}

/// What a run gives, row-major.
pub(super) struct Outputs {
    /// `[t, d, b, h]`.
    pub y: Vec<f64>,
    /// `[d, b, h]`.
    pub h: Vec<f64>,
    /// `[d, b, h]`.
    pub c: Vec<f64>,
    /// Sizes t, d, b, h.
    pub sizes: [usize; 4],
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

impl Layer<'_> {
    /// Positions of the optional operands: bias, lengths, initial h, initial c, peephole.
    fn optional(&self) -> [Option<usize>; 5] {
        let mut next = 3;
        [self.has_bias, self.has_lengths, self.has_init_h, self.has_init_c, self.has_peephole].map(|has| {
            has.then(|| {
                next += 1;
                next - 1
            })
        })
    }

    /// Checks operands; gives dtype and the dims t, d, b, h.
    pub fn infer(&self, cx: &mut InferCx<'_>) -> Result<(DType, [Dim; 4]), OpError> {
        let optional = self.optional();
        let n = 3 + optional.iter().flatten().count();
        cx.expect_operands(n)?;
        let dtype = rows::float_dtype(cx, 0..3)?;
        if self.hidden < 1 {
            return Err(OpError::new(format!("hidden must be ≥ 1, got {}", self.hidden)));
        }
        let per_direction = self.defaults.len();
        if !self.activations.is_empty() && self.activations.len() != per_direction * self.direction.count() {
            return Err(OpError::new(format!(
                "activations must be {per_direction} for each of {} directions, or none; got {}",
                self.direction.count(),
                self.activations.len()
            )));
        }
        if self.clip.is_some_and(|c| c.get().is_nan() || c.get() < 0.0) {
            return Err(OpError::new("clip must be ≥ 0"));
        }
        let x = cx.shape(0)?;
        if x.rank() != 3 {
            return Err(OpError::new(format!("the input must have axes [sequence, batch, features], got {x}")));
        }
        let (d, h) = (Dim::from(self.direction.count()), Dim::from(self.hidden));
        let rows = &h * (self.gates as i64);
        let state = vec![d.clone(), x[1].clone(), h.clone()];
        let [bias, lengths, h0, c0, peephole] = optional;
        let expect = [
            (Some(1), "weights", vec![d.clone(), rows.clone(), x[2].clone()]),
            (Some(2), "recurrent weights", vec![d.clone(), rows.clone(), h.clone()]),
            (bias, "bias", vec![d.clone(), &rows * 2]),
            (lengths, "sequence lengths", vec![x[1].clone()]),
            (h0, "initial state", state.clone()),
            (c0, "initial cell state", state),
            (peephole, "peephole weights", vec![d.clone(), &h * 3]),
        ];
        for (i, what, dims) in expect {
            let Some(i) = i else { continue };
            let t = cx.tensor(i)?;
            let fits = if Some(i) == lengths { t.dtype.is_int() } else { t.dtype == dtype };
            if !fits {
                return Err(OpError::new(format!("{what} cannot be {}", t.dtype)).hint("insert a `convert`"));
            }
            cx.require_same_shape(&t.shape, &dims.into(), what)?;
        }
        Ok((dtype, [x[0].clone(), d, x[1].clone(), h]))
    }

    /// Takes all steps. `step` gets a side, the gates' part that comes from the input (bias included), and the states to change.
    pub fn run(
        &self,
        args: &[Value],
        step: impl Fn(&Side<'_>, &[f64], &mut [f64], &mut [f64]),
    ) -> Result<Outputs, OpError> {
        let &[t, b, i] = arg(args, 0)?.dims() else {
            return Err(OpError::new("the input must have three axes"));
        };
        let (d, h) = (self.direction.count(), usize::try_from(self.hidden).unwrap_or(1));
        let rows = self.gates * h;
        let [bias, lengths, h0, c0, peephole] = self.optional();
        let read = |i: Option<usize>| i.map_or(Ok(Vec::new()), |i| rows::floats(args, i));
        let (x, w, r) = (read(Some(0))?, read(Some(1))?, read(Some(2))?);
        let (bias, peephole) = (read(bias)?, read(peephole)?);
        let lengths = match lengths {
            Some(i) => index_elements(arg(args, i)?)?,
            None => vec![t as i64; b],
        };
        if let Some(l) = lengths.iter().find(|l| !(0..=t as i64).contains(*l)) {
            return Err(OpError::new(format!("sequence length {l} is not in 0..={t}")));
        }
        let start = |v: Vec<f64>| if v.is_empty() { vec![0.0; d * b * h] } else { v };
        let (mut hs, mut cs) = (start(read(h0)?), start(read(c0)?));
        let mut y = vec![0.0; t * d * b * h];
        for side in 0..d {
            let part = |v: &[f64], n: usize| if v.is_empty() { 0..0 } else { side * n..(side + 1) * n };
            let w = &w[part(&w, rows * i)];
            let bias = &bias[part(&bias, 2 * rows)];
            let (w_bias, r_bias) = bias.split_at(bias.len() / 2);
            let n = self.defaults.len();
            let weights = Side {
                r: &r[part(&r, rows * h)],
                r_bias,
                peephole: &peephole[part(&peephole, 3 * h)],
                activations: self.activations.get(side * n..(side + 1) * n).unwrap_or(self.defaults),
                clip: self.clip.map(FloatBits::get),
            };
            let backwards = self.direction == RnnDirection::Reverse || side == 1;
            for (batch, &length) in lengths.iter().enumerate() {
                let state = (side * b + batch) * h;
                for s in 0..length as usize {
                    let at = if backwards { length as usize - 1 - s } else { s };
                    let input = &x[(at * b + batch) * i..][..i];
                    let gates: Vec<f64> = (0..rows)
                        .map(|k| dot(&w[k * i..][..i], input) + w_bias.get(k).copied().unwrap_or(0.0))
                        .collect();
                    step(&weights, &gates, &mut hs[state..state + h], &mut cs[state..state + h]);
                    y[((at * d + side) * b + batch) * h..][..h].copy_from_slice(&hs[state..state + h]);
                }
            }
        }
        Ok(Outputs { y, h: hs, c: cs, sizes: [t, d, b, h] })
    }
}

/// Multiply-adds of both products of every step, twice: each row of `x` meets the weights of all gates and directions, and so does each
/// hidden state.
pub fn work(operands: &[TensorType]) -> Dim {
    let [x, w, r, ..] = operands else { return Dim::ZERO };
    let steps = Dim::product(x.shape.iter().take(2).cloned());
    steps * (w.shape.numel() + r.shape.numel()) * 2
}
