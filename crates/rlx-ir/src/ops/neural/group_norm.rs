//! Group normalisation; instance normalisation is that with a group for each channel.

use super::rows::{self, operand};
use crate::attr::FloatBits;
use crate::builder::Builder;
use crate::dim::{Constraint, Dim};
use crate::error::{IrError, OpError};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, Rule, arg};
use crate::tensor::Value;

op! {
    /// `(x − mean) / √(variance + eps)` over each group of channels (axis 1) and all further axes, times scale, plus bias, both per channel.
    pub struct GroupNorm = "group_norm" {
        /// Number of groups, which divides the channels.
        pub groups: Dim,
        /// Added to the variance.
        pub eps: FloatBits,
        /// Whether there is a scale operand `[C]`.
        pub has_scale: bool,
        /// Whether there is a bias operand `[C]` after it.
        pub has_bias: bool,
    }
}

impl OpRules for GroupNorm {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        let n = 1 + usize::from(self.has_scale) + usize::from(self.has_bias);
        cx.expect_operands(n)?;
        let dtype = rows::float_dtype(cx, 0..n)?;
        let shape = cx.shape(0)?;
        if shape.rank() < 2 {
            return Err(OpError::new(format!("the input must have axes [N, C, …], got {shape}")));
        }
        if self.groups != shape[1] {
            cx.require(Constraint::Divisible(shape[1].clone(), self.groups.clone()), "channels by groups")?;
        }
        for i in 1..n {
            let s = cx.shape(i)?;
            if s.rank() != 1 {
                return Err(OpError::new(format!("scale and bias must be [{}], got {s}", shape[1])));
            }
            cx.require_eq(&s[0], &shape[1], "elements of scale or bias and channels")?;
        }
        cx.result(dtype, shape.clone());
        Ok(())
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = arg(args, 0)?;
        let mut v = rows::floats(args, 0)?;
        let channels = x.dims().get(1).copied().unwrap_or(1);
        let groups = cx.size(&self.groups)?;
        if channels % groups.max(1) != 0 {
            return Err(OpError::new(format!("{channels} channels do not split into {groups} groups")));
        }
        let cells: usize = x.dims().iter().skip(2).product();
        let scale = rows::expanded(args, self.has_scale.then_some(1), &[channels])?;
        let bias = rows::expanded(args, self.has_bias.then_some(1 + usize::from(self.has_scale)), &[channels])?;
        let per_group = channels / groups.max(1);
        let n = per_group * cells;
        for (block, row) in v.chunks_mut(n.max(1)).enumerate() {
            let first = block % groups.max(1) * per_group;
            let mean = row.iter().sum::<f64>() / n as f64;
            let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n as f64;
            let deviation = (variance + self.eps.get()).sqrt();
            for (i, x) in row.iter_mut().enumerate() {
                let c = first + i / cells.max(1);
                *x = (*x - mean) / deviation * scale.as_ref().map_or(1.0, |s| s[c])
                    + bias.as_ref().map_or(0.0, |b| b[c]);
            }
        }
        Ok(vec![rows::tensor(x.dtype(), x.dims(), v)?])
    }

    fn decompose(&self, b: &mut Builder, args: &[ValueId]) -> Rule<Vec<ValueId>> {
        Some(self.in_primitives(b, args).map(|y| vec![y]))
    }
}

impl GroupNorm {
    /// The same from simpler ops.
    fn in_primitives(&self, b: &mut Builder, args: &[ValueId]) -> Result<ValueId, IrError> {
        let x = operand(args, 0)?;
        let (dtype, shape) = (b.dtype(x)?, b.shape(x)?);
        let (n, channels) = (shape[0].clone(), shape[1].clone());
        let per_group = channels.floor_div(&self.groups) * Dim::product(shape[2..].iter().cloned());
        let wide = rows::widened(b, x)?;
        let grouped = b.reshape(wide, [n, self.groups.clone(), per_group])?;
        let mean = rows::mean(b, grouped, &[2])?;
        let centred = b.sub(grouped, mean)?;
        let y = rows::over_deviation(b, centred, &[2], self.eps.get())?;
        let y = b.reshape(y, shape.iter().cloned())?;
        let (scale, bias) = rows::scale_and_bias(args, self.has_scale, self.has_bias);
        let scale = scale.map(|s| rows::per_channel(b, s, &shape)).transpose()?;
        let bias = bias.map(|s| rows::per_channel(b, s, &shape)).transpose()?;
        let y = rows::scaled(b, y, scale, bias)?;
        rows::as_promised(b, y, dtype, &shape)
    }
}

impl Builder {
    /// Group normalisation.
    pub fn group_norm(
        &mut self,
        x: ValueId,
        scale: Option<ValueId>,
        bias: Option<ValueId>,
        groups: impl Into<Dim>,
        eps: f64,
    ) -> Result<ValueId, IrError> {
        let op =
            GroupNorm { groups: groups.into(), eps: eps.into(), has_scale: scale.is_some(), has_bias: bias.is_some() };
        let operands: Vec<ValueId> = [x].into_iter().chain(scale).chain(bias).collect();
        self.op1(op, &operands)
    }

    /// Instance normalisation: each channel of each batch element by itself.
    pub fn instance_norm(
        &mut self,
        x: ValueId,
        scale: Option<ValueId>,
        bias: Option<ValueId>,
        eps: f64,
    ) -> Result<ValueId, IrError> {
        let shape = self.shape(x)?;
        let channels = shape.get(1).cloned().unwrap_or(Dim::ONE);
        self.group_norm(x, scale, bias, channels, eps)
    }
}
