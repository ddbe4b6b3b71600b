//! Batch normalisation at inference.

use super::rows::{self, operand};
use crate::attr::FloatBits;
use crate::builder::Builder;
use crate::error::{IrError, OpError};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, Rule, arg};
use crate::tensor::Value;

op! {
    /// `(x − mean) / √(variance + eps) · scale + bias` per channel (axis 1), with statistics given: operands x, scale, bias, mean, variance.
    pub struct BatchNorm = "batch_norm" {
        /// Added to the variance.
        pub eps: FloatBits,
    }
}

impl OpRules for BatchNorm {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(5)?;
        let dtype = rows::float_dtype(cx, 0..5)?;
        let shape = cx.shape(0)?;
        if shape.rank() < 2 {
            return Err(OpError::new(format!("the input must have axes [N, C, …], got {shape}")));
        }
        for (i, what) in ["scale", "bias", "mean", "variance"].into_iter().enumerate() {
            let s = cx.shape(i + 1)?;
            if s.rank() != 1 {
                return Err(OpError::new(format!("{what} must be [{}], got {s}", shape[1])));
            }
            cx.require_eq(&s[0], &shape[1], &format!("elements of {what} and channels"))?;
        }
        cx.result(dtype, shape.clone());
        Ok(())
    }

    fn eval(&self, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = arg(args, 0)?;
        let mut v = rows::floats(args, 0)?;
        let p = (1..5).map(|i| rows::floats(args, i)).collect::<Result<Vec<_>, _>>()?;
        let channels = x.dims().get(1).copied().unwrap_or(1);
        if p.iter().any(|p| p.len() != channels) {
            return Err(OpError::new(format!("parameters must have {channels} elements each")));
        }
        let cells: usize = x.dims().iter().skip(2).product();
        for (block, cells) in v.chunks_mut(cells.max(1)).enumerate() {
            let c = block % channels.max(1);
            let deviation = (p[3][c] + self.eps.get()).sqrt();
            cells.iter_mut().for_each(|x| *x = (*x - p[2][c]) / deviation * p[0][c] + p[1][c]);
        }
        Ok(vec![rows::tensor(x.dtype(), x.dims(), v)?])
    }

    fn decompose(&self, b: &mut Builder, args: &[ValueId]) -> Rule<Vec<ValueId>> {
        Some(self.in_primitives(b, args).map(|y| vec![y]))
    }
}

impl BatchNorm {
    /// The same from simpler ops.
    fn in_primitives(&self, b: &mut Builder, args: &[ValueId]) -> Result<ValueId, IrError> {
        let x = operand(args, 0)?;
        let (dtype, shape) = (b.dtype(x)?, b.shape(x)?);
        let mut p = Vec::new();
        for i in 1..5 {
            p.push(rows::per_channel(b, operand(args, i)?, &shape)?);
        }
        let wide = rows::widened(b, x)?;
        let &[scale, bias, mean, variance] = p.as_slice() else {
            return Err(b.refuse("batch_norm", args, OpError::new("takes five operands")));
        };
        let centred = b.sub(wide, mean)?;
        let eps = b.scalar_like(variance, self.eps.get())?;
        let sum = b.add(variance, eps)?;
        let deviation = b.sqrt(sum)?;
        let y = b.div(centred, deviation)?;
        let y = rows::scaled(b, y, Some(scale), Some(bias))?;
        rows::as_promised(b, y, dtype, &shape)
    }
}

impl Builder {
    /// Batch normalisation with given statistics.
    pub fn batch_norm(
        &mut self,
        x: ValueId,
        scale: ValueId,
        bias: ValueId,
        mean: ValueId,
        variance: ValueId,
        eps: f64,
    ) -> Result<ValueId, IrError> {
        self.op1(BatchNorm { eps: eps.into() }, &[x, scale, bias, mean, variance])
    }
}
