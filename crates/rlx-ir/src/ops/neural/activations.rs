//! Activations with parameters, made of elementwise ops.

use crate::builder::Builder;
use crate::error::IrError;
use crate::graph::ValueId;
use crate::ops::elementwise::Compare;

impl Builder {
    /// `x` where it is not negative (or NaN), else `other`.
    fn where_negative(&mut self, x: ValueId, other: ValueId) -> Result<ValueId, IrError> {
        let zero = self.scalar_like(x, 0.0)?;
        let negative = self.op1(Compare::Lt, &[x, zero])?;
        self.select(negative, other, x)
    }

    /// `x` where x ≥ 0, else `alpha·x`.
    pub fn leaky_relu(&mut self, x: ValueId, alpha: f64) -> Result<ValueId, IrError> {
        let alpha = self.scalar_like(x, alpha)?;
        self.prelu(x, alpha)
    }

    /// `x` where x ≥ 0, else `slope·x`; the slope broadcasts.
    pub fn prelu(&mut self, x: ValueId, slope: ValueId) -> Result<ValueId, IrError> {
        let scaled = self.mul(x, slope)?;
        self.where_negative(x, scaled)
    }

    /// `x` where x ≥ 0, else `alpha·(exp(x) − 1)`.
    pub fn elu(&mut self, x: ValueId, alpha: f64) -> Result<ValueId, IrError> {
        let e = self.expm1(x)?;
        let alpha = self.scalar_like(x, alpha)?;
        let scaled = self.mul(e, alpha)?;
        self.where_negative(x, scaled)
    }

    /// `gamma·x` where x > 0, else `gamma·alpha·(exp(x) − 1)`.
    pub fn selu(&mut self, x: ValueId, alpha: f64, gamma: f64) -> Result<ValueId, IrError> {
        let y = self.elu(x, alpha)?;
        let gamma = self.scalar_like(x, gamma)?;
        self.mul(y, gamma)
    }

    /// `max(0, x) + min(0, alpha·(exp(x / alpha) − 1))`.
    pub fn celu(&mut self, x: ValueId, alpha: f64) -> Result<ValueId, IrError> {
        let a = self.scalar_like(x, alpha)?;
        let scaled = self.div(x, a)?;
        let e = self.expm1(scaled)?;
        let negative = self.mul(e, a)?;
        let zero = self.scalar_like(x, 0.0)?;
        let (low, high) = (self.minimum(negative, zero)?, self.maximum(x, zero)?);
        self.add(high, low)
    }

    /// `alpha·x + beta` limited to 0 … 1.
    pub fn hard_sigmoid(&mut self, x: ValueId, alpha: f64, beta: f64) -> Result<ValueId, IrError> {
        let (alpha, beta) = (self.scalar_like(x, alpha)?, self.scalar_like(x, beta)?);
        let scaled = self.mul(x, alpha)?;
        let y = self.add(scaled, beta)?;
        let (zero, one) = (self.scalar_like(x, 0.0)?, self.scalar_like(x, 1.0)?);
        self.clamp(y, zero, one)
    }

    /// `x` where x > alpha, else 0.
    pub fn thresholded_relu(&mut self, x: ValueId, alpha: f64) -> Result<ValueId, IrError> {
        let (alpha, zero) = (self.scalar_like(x, alpha)?, self.scalar_like(x, 0.0)?);
        let small = self.op1(Compare::Le, &[x, alpha])?;
        self.select(small, zero, x)
    }

    /// `x − lambda`-shrinkage of ONNX: `x − bias` above lambda, `x + bias` below −lambda, 0 between.
    pub fn shrink(&mut self, x: ValueId, lambda: f64, bias: f64) -> Result<ValueId, IrError> {
        let (high, low) = (self.scalar_like(x, lambda)?, self.scalar_like(x, -lambda)?);
        let (bias, zero) = (self.scalar_like(x, bias)?, self.scalar_like(x, 0.0)?);
        let (above, below) = (self.op1(Compare::Gt, &[x, high])?, self.op1(Compare::Lt, &[x, low])?);
        let (less, more) = (self.sub(x, bias)?, self.add(x, bias)?);
        let rest = self.select(below, more, zero)?;
        self.select(above, less, rest)
    }
}
