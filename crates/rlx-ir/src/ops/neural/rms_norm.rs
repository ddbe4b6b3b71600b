//! Root-mean-square normalisation.

use super::layer_norm::check_trailing;
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
    /// `x / √(mean of squares + eps)` over trailing axes, times scale.
    pub struct RmsNorm = "rms_norm" {
        /// The axes normalised over: the trailing ones, ascending.
        pub axes: Vec<usize>,
        /// Added to the mean of squares.
        pub eps: FloatBits,
        /// Whether there is a scale operand, which broadcasts to the normalised axes.
        pub has_scale: bool,
    }
}

impl OpRules for RmsNorm {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        let n = 1 + usize::from(self.has_scale);
        cx.expect_operands(n)?;
        let dtype = rows::float_dtype(cx, 0..n)?;
        check_trailing(cx, &self.axes)?;
        let shape = cx.shape(0)?;
        if self.has_scale {
            let dims: Vec<Dim> = self.axes.iter().map(|&a| shape[a].clone()).collect();
            rows::require_broadcasts_to(cx, 1, &dims, "scale")?;
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
        for row in v.chunks_mut(n.max(1)) {
            let squares = row.iter().map(|x| x * x).sum::<f64>() / n as f64;
            let deviation = (squares + self.eps.get()).sqrt();
            for (i, x) in row.iter_mut().enumerate() {
                *x = *x / deviation * scale.as_ref().map_or(1.0, |s| s[i]);
            }
        }
        Ok(vec![rows::tensor(x.dtype(), x.dims(), v)?])
    }

    fn decompose(&self, b: &mut Builder, args: &[ValueId]) -> Rule<Vec<ValueId>> {
        Some(self.in_primitives(b, args).map(|y| vec![y]))
    }
}

impl RmsNorm {
    /// The same from simpler ops.
    fn in_primitives(&self, b: &mut Builder, args: &[ValueId]) -> Result<ValueId, IrError> {
        let x = operand(args, 0)?;
        let (dtype, shape) = (b.dtype(x)?, b.shape(x)?);
        let axes: Vec<i64> = self.axes.iter().map(|&a| a as i64).collect();
        let wide = rows::widened(b, x)?;
        let y = rows::over_deviation(b, wide, &axes, self.eps.get())?;
        let (scale, _) = rows::scale_and_bias(args, self.has_scale, false);
        let y = rows::scaled(b, y, scale, None)?;
        rows::as_promised(b, y, dtype, &shape)
    }
}

impl Builder {
    /// Root-mean-square normalisation over trailing axes.
    pub fn rms_norm(
        &mut self,
        x: ValueId,
        scale: Option<ValueId>,
        axes: &[usize],
        eps: f64,
    ) -> Result<ValueId, IrError> {
        let op = RmsNorm { axes: axes.to_vec(), eps: eps.into(), has_scale: scale.is_some() };
        let operands: Vec<ValueId> = [x].into_iter().chain(scale).collect();
        self.op1(op, &operands)
    }
}
