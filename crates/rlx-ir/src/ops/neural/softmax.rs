//! Softmax and its logarithm.

use super::rows::{self, operand};
use crate::builder::Builder;
use crate::error::{IrError, OpError};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, Rule, arg};
use crate::ops::reduction::ReduceKind;
use crate::tensor::Value;

op! {
    /// `exp(x − max) / Σ exp(x − max)` along an axis, or its logarithm. A row of only −∞ is NaN.
    pub struct Softmax = "softmax" {
        /// The axis that sums to 1.
        pub axis: usize,
        /// Whether to give the logarithm.
        pub log: bool,
    }
}

impl OpRules for Softmax {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        let dtype = rows::float_dtype(cx, 0..1)?;
        let shape = cx.shape(0)?;
        if self.axis >= shape.rank() {
            return Err(OpError::new(format!("axis {} is out of range for {shape}", self.axis)));
        }
        cx.result(dtype, shape.clone());
        Ok(())
    }

    fn eval(&self, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = arg(args, 0)?;
        let mut v = rows::floats(args, 0)?;
        let n = x.dims().get(self.axis).copied().unwrap_or(1);
        let inner: usize = x.dims().iter().skip(self.axis + 1).product();
        for block in v.chunks_mut((n * inner).max(1)) {
            for at in 0..inner {
                let row = || (0..n).map(|i| i * inner + at);
                let max = row().map(|i| block[i]).fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = row().map(|i| (block[i] - max).exp()).sum();
                for i in row() {
                    let x = block[i] - max;
                    block[i] = if self.log { x - sum.ln() } else { x.exp() / sum };
                }
            }
        }
        Ok(vec![rows::tensor(x.dtype(), x.dims(), v)?])
    }

    fn decompose(&self, b: &mut Builder, args: &[ValueId]) -> Rule<Vec<ValueId>> {
        Some(self.in_primitives(b, args).map(|y| vec![y]))
    }
}

impl Softmax {
    /// The same from simpler ops.
    fn in_primitives(&self, b: &mut Builder, args: &[ValueId]) -> Result<ValueId, IrError> {
        let x = operand(args, 0)?;
        let (dtype, shape) = (b.dtype(x)?, b.shape(x)?);
        let axes = [self.axis as i64];
        let wide = rows::widened(b, x)?;
        let max = b.reduce(wide, ReduceKind::Max, &axes, true)?;
        let shifted = b.sub(wide, max)?;
        let e = b.exp(shifted)?;
        let sum = b.reduce(e, ReduceKind::Sum, &axes, true)?;
        let y = if self.log {
            let l = b.log(sum)?;
            b.sub(shifted, l)?
        } else {
            b.div(e, sum)?
        };
        rows::as_promised(b, y, dtype, &shape)
    }
}

impl Builder {
    /// Softmax along an axis.
    pub fn softmax(&mut self, x: ValueId, axis: usize) -> Result<ValueId, IrError> {
        self.op1(Softmax { axis, log: false }, &[x])
    }

    /// Logarithm of softmax along an axis.
    pub fn log_softmax(&mut self, x: ValueId, axis: usize) -> Result<ValueId, IrError> {
        self.op1(Softmax { axis, log: true }, &[x])
    }
}
