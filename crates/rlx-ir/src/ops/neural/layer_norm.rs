//! Layer normalisation.

use super::rows::{self, operand};
use crate::attr::FloatBits;
use crate::builder::Builder;
use crate::dim::Dim;
use crate::error::{IrError, OpError};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, Rule, arg};
use crate::tensor::Value;

op! {
    /// `(x − mean) / √(variance + eps)` over trailing axes, times scale, plus bias. The variance is the mean of squared deviations from the mean already rounded: never a difference of two large numbers.
    pub struct LayerNorm = "layer_norm" {
        /// The axes normalised over: the trailing ones, ascending.
        pub axes: Vec<usize>,
        /// Added to the variance.
        pub eps: FloatBits,
        /// Whether there is a scale operand, which broadcasts to the normalised axes.
        pub has_scale: bool,
        /// Whether there is a bias operand after it.
        pub has_bias: bool,
    }
}

/// Checks that `axes` are the trailing axes of the operand.
pub(super) fn check_trailing(cx: &InferCx<'_>, axes: &[usize]) -> Result<(), OpError> {
    let shape = cx.shape(0)?;
    let first = shape.rank().checked_sub(axes.len());
    match first {
        Some(f) if !axes.is_empty() && axes.iter().copied().eq(f..shape.rank()) => Ok(()),
        _ => Err(OpError::new(format!("axes {axes:?} must be the trailing axes of {shape}, ascending"))
            .hint("transpose the operand")),
    }
}

impl OpRules for LayerNorm {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        let n = 1 + usize::from(self.has_scale) + usize::from(self.has_bias);
        cx.expect_operands(n)?;
        let dtype = rows::float_dtype(cx, 0..n)?;
        check_trailing(cx, &self.axes)?;
        let shape = cx.shape(0)?;
        let dims: Vec<Dim> = self.axes.iter().map(|&a| shape[a].clone()).collect();
        for i in 1..n {
            rows::require_broadcasts_to(cx, i, &dims, if i == 1 && self.has_scale { "scale" } else { "bias" })?;
        }
        cx.result(dtype, shape.clone());
        Ok(())
    }

    fn eval(&self, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = arg(args, 0)?;
        let mut v = rows::floats(args, 0)?;
        let dims: Vec<usize> = self.axes.iter().filter_map(|&a| x.dims().get(a).copied()).collect();
        let n: usize = dims.iter().product();
        let scale = rows::expanded(args, self.has_scale.then_some(1), &dims)?;
        let bias = rows::expanded(args, self.has_bias.then_some(1 + usize::from(self.has_scale)), &dims)?;
        for row in v.chunks_mut(n.max(1)) {
            let mean = row.iter().sum::<f64>() / n as f64;
            let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n as f64;
            let deviation = (variance + self.eps.get()).sqrt();
            for (i, x) in row.iter_mut().enumerate() {
                *x = (*x - mean) / deviation;
                *x = *x * scale.as_ref().map_or(1.0, |s| s[i]) + bias.as_ref().map_or(0.0, |b| b[i]);
            }
        }
        Ok(vec![rows::tensor(x.dtype(), x.dims(), v)?])
    }

    fn decompose(&self, b: &mut Builder, args: &[ValueId]) -> Rule<Vec<ValueId>> {
        Some(self.in_primitives(b, args).map(|y| vec![y]))
    }
}

impl LayerNorm {
    /// The same from simpler ops.
    fn in_primitives(&self, b: &mut Builder, args: &[ValueId]) -> Result<ValueId, IrError> {
        let x = operand(args, 0)?;
        let (dtype, shape) = (b.dtype(x)?, b.shape(x)?);
        let axes: Vec<i64> = self.axes.iter().map(|&a| a as i64).collect();
        let wide = rows::widened(b, x)?;
        let mean = rows::mean(b, wide, &axes)?;
        let centred = b.sub(wide, mean)?;
        let y = rows::over_deviation(b, centred, &axes, self.eps.get())?;
        let (scale, bias) = rows::scale_and_bias(args, self.has_scale, self.has_bias);
        let y = rows::scaled(b, y, scale, bias)?;
        rows::as_promised(b, y, dtype, &shape)
    }
}

impl Builder {
    /// Layer normalisation over trailing axes.
    pub fn layer_norm(
        &mut self,
        x: ValueId,
        scale: Option<ValueId>,
        bias: Option<ValueId>,
        axes: &[usize],
        eps: f64,
    ) -> Result<ValueId, IrError> {
        let op =
            LayerNorm { axes: axes.to_vec(), eps: eps.into(), has_scale: scale.is_some(), has_bias: bias.is_some() };
        let operands: Vec<ValueId> = [x].into_iter().chain(scale).chain(bias).collect();
        self.op1(op, &operands)
    }
}
