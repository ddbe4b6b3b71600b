//! Reductions that are made of simpler ops. Floats under 32 bits are computed in f32 throughout and rounded once.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::IrError;
use crate::graph::ValueId;

use super::ReduceKind;

impl Builder {
    /// `f` of `x` in f32 if `x` is a narrower float, converted back.
    fn in_f32(
        &mut self,
        x: ValueId,
        f: impl FnOnce(&mut Builder, ValueId) -> Result<ValueId, IrError>,
    ) -> Result<ValueId, IrError> {
        let dtype = self.dtype(x)?;
        if !dtype.is_float() || dtype.bits() >= 32 {
            return f(self, x);
        }
        let wide = self.convert(x, DType::F32)?;
        let y = f(self, wide)?;
        self.convert(y, dtype)
    }

    /// Number of elements folded, as a scalar of the dtype of `x`.
    fn folded_count(&mut self, x: ValueId, axes: &[usize]) -> Result<ValueId, IrError> {
        let shape = self.shape(x)?;
        let n = Dim::product(axes.iter().map(|&a| shape[a].clone()));
        let dtype = self.dtype(x)?;
        match n.as_const() {
            Some(n) => self.scalar(dtype, n as f64),
            None => {
                let n = self.from_dim(n)?;
                self.convert(n, dtype)
            }
        }
    }

    /// Mean over axes, which may count from the end. Of integers, truncated toward zero; of nothing, NaN (0 for integers).
    pub fn reduce_mean(&mut self, x: ValueId, axes: &[i64], keep_dims: bool) -> Result<ValueId, IrError> {
        let at = self.axes("reduce_mean", x, axes)?;
        if at.is_empty() {
            return Ok(x);
        }
        self.in_f32(x, |b, x| {
            let sum = b.reduce(x, ReduceKind::Sum, axes, keep_dims)?;
            let n = b.folded_count(x, &at)?;
            b.div(sum, n)
        })
    }

    /// Sum of absolute values over axes.
    pub fn reduce_l1(&mut self, x: ValueId, axes: &[i64], keep_dims: bool) -> Result<ValueId, IrError> {
        self.in_f32(x, |b, x| {
            let a = b.abs(x)?;
            b.reduce(a, ReduceKind::Sum, axes, keep_dims)
        })
    }

    /// Sum of squares over axes.
    pub fn reduce_sum_square(&mut self, x: ValueId, axes: &[i64], keep_dims: bool) -> Result<ValueId, IrError> {
        self.in_f32(x, |b, x| {
            let s = b.mul(x, x)?;
            b.reduce(s, ReduceKind::Sum, axes, keep_dims)
        })
    }

    /// Square root of the sum of squares over axes. Of integers, computed in f64 and truncated.
    pub fn reduce_l2(&mut self, x: ValueId, axes: &[i64], keep_dims: bool) -> Result<ValueId, IrError> {
        self.through_float(x, |b, x| {
            let s = b.reduce_sum_square(x, axes, keep_dims)?;
            b.sqrt(s)
        })
    }

    /// Logarithm of the sum over axes. Of integers, computed in f64 and truncated.
    pub fn reduce_log_sum(&mut self, x: ValueId, axes: &[i64], keep_dims: bool) -> Result<ValueId, IrError> {
        self.through_float(x, |b, x| {
            let s = b.reduce(x, ReduceKind::Sum, axes, keep_dims)?;
            b.log(s)
        })
    }

    /// Logarithm of the sum of exponentials over axes, shifted by the largest element so that nothing overflows. Of integers,
    /// computed in f64 and truncated.
    pub fn reduce_log_sum_exp(&mut self, x: ValueId, axes: &[i64], keep_dims: bool) -> Result<ValueId, IrError> {
        let at = self.axes("reduce_log_sum_exp", x, axes)?;
        self.through_float(x, |b, x| {
            let max = b.reduce(x, ReduceKind::Max, axes, true)?;
            // An infinite maximum (or none) cannot be subtracted: ∞ − ∞ is NaN.
            let finite = b.is_finite(max)?;
            let zero = b.scalar_like(x, 0.0)?;
            let shift = b.select(finite, max, zero)?;
            let y = b.sub(x, shift)?;
            let y = b.exp(y)?;
            let y = b.reduce(y, ReduceKind::Sum, axes, true)?;
            let y = b.log(y)?;
            let y = b.add(y, shift)?;
            if keep_dims || at.is_empty() {
                return Ok(y);
            }
            let dims = super::reduce::reduced(b.shape(x)?.dims(), &at, false, Dim::ONE);
            b.reshape(y, dims)
        })
    }

    /// `f` of `x` in f64 if `x` is an integer and in f32 if it is a narrower float, converted back.
    fn through_float(
        &mut self,
        x: ValueId,
        f: impl FnOnce(&mut Builder, ValueId) -> Result<ValueId, IrError>,
    ) -> Result<ValueId, IrError> {
        let dtype = self.dtype(x)?;
        if !dtype.is_int() {
            return self.in_f32(x, f);
        }
        let wide = self.convert(x, DType::F64)?;
        let y = f(self, wide)?;
        self.convert(y, dtype)
    }
}
