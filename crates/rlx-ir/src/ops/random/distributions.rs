//! Distributions made of random bits.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{IrError, OpError};
use crate::graph::ValueId;
use crate::ops::reduction::{CumKind, ReduceKind};
use crate::types::Type;

use super::{RNG_STATE, RngOptions};

impl Builder {
    /// The graph's generator: its state [`RNG_STATE`] of seed and position, which every run leaves one position further. Declared
    /// with seed 0 when first asked for.
    pub fn rng_key(&mut self) -> Result<ValueId, IrError> {
        if let Some(s) = self.graph().states().iter().find(|s| &*s.name == RNG_STATE) {
            return Ok(s.value);
        }
        let at = self.graph().states().len();
        let ty = Type::tensor(DType::U64, vec![Dim::from(2)]);
        let key = self.graph_mut().add_state(RNG_STATE, ty, Some(RngOptions::default().to_tensor()))?;
        let step = self.from_dims(vec![Dim::ZERO, Dim::ONE])?;
        let step = self.convert(step, DType::U64)?;
        let next = self.add(key, step)?;
        self.graph_mut().set_state_next(at, next)?;
        Ok(key)
    }

    /// Uniform floats of `[0, 1)`: every multiple of 2^-p alike, `p` being the bits of the dtype's significand.
    pub fn random_unit(
        &mut self,
        key: ValueId,
        dtype: DType,
        dims: impl IntoIterator<Item = impl Into<Dim>>,
        stream: u32,
    ) -> Result<ValueId, IrError> {
        let (from, bits) = match dtype {
            DType::F64 => (DType::U64, 53),
            DType::F32 => (DType::U32, 24),
            DType::F16 => (DType::U32, 11),
            DType::BF16 => (DType::U32, 8),
            d => return Err(self.refuse("random_unit", &[], OpError::new(format!("there are no random {d}")))),
        };
        let raw = self.random_bits(key, from, dims, stream)?;
        let shift = self.scalar(from, (from.bits() - bits) as f64)?;
        let top = self.op1(crate::ops::elementwise::Binary::ShiftRight, &[raw, shift])?;
        let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let top = self.convert(top, wide)?;
        let unit = self.scalar(wide, (-(bits as f64)).exp2())?;
        let x = self.mul(top, unit)?;
        self.convert(x, dtype)
    }

    /// Uniform floats of `[low, high)`. Rounding may give `high` itself.
    pub fn random_uniform(
        &mut self,
        key: ValueId,
        dtype: DType,
        dims: impl IntoIterator<Item = impl Into<Dim>>,
        (low, high): (f64, f64),
        stream: u32,
    ) -> Result<ValueId, IrError> {
        let x = self.random_unit(key, dtype, dims, stream)?;
        let (span, low) = (self.scalar_like(x, high - low)?, self.scalar_like(x, low)?);
        let x = self.mul(x, span)?;
        self.add(x, low)
    }

    /// Normally distributed floats: the polar pair of two uniform numbers (Box and Muller), computed in f32 or wider.
    pub fn random_normal(
        &mut self,
        key: ValueId,
        dtype: DType,
        dims: impl IntoIterator<Item = impl Into<Dim>>,
        (mean, deviation): (f64, f64),
        stream: u32,
    ) -> Result<ValueId, IrError> {
        let dims: Vec<Dim> = dims.into_iter().map(Into::into).collect();
        let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let mut both = vec![Dim::from(2)];
        both.extend(dims.iter().cloned());
        let u = self.random_unit(key, wide, both, stream)?;
        let halves = self.split_even(u, 0, 2)?;
        let [u, angle] = halves[..] else { return Err(self.refuse("random_normal", &[], OpError::new("no halves"))) };
        let (u, angle) = (self.squeeze(u, &[0])?, self.squeeze(angle, &[0])?);
        let (one, two, turn) =
            (self.scalar_like(u, 1.0)?, self.scalar_like(u, -2.0)?, self.scalar_like(u, std::f64::consts::TAU)?);
        // 1 − u is of (0, 1]: its logarithm is finite.
        let u = self.sub(one, u)?;
        let log = self.log(u)?;
        let square = self.mul(log, two)?;
        let radius = self.sqrt(square)?;
        let angle = self.mul(angle, turn)?;
        let cos = self.cos(angle)?;
        let x = self.mul(radius, cos)?;
        let (deviation, mean) = (self.scalar_like(x, deviation)?, self.scalar_like(x, mean)?);
        let x = self.mul(x, deviation)?;
        let x = self.add(x, mean)?;
        self.convert(x, dtype)
    }

    /// True with the probability that `p` says.
    pub fn random_bernoulli(&mut self, key: ValueId, p: ValueId, stream: u32) -> Result<ValueId, IrError> {
        let ty = self.tensor_type(p)?.clone();
        let wide = if ty.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let u = self.random_unit(key, wide, ty.shape.into_dims(), stream)?;
        let p = self.convert(p, wide)?;
        self.lt(u, p)
    }

    /// `n` categories (`i64[batch, n]`) for each row of unnormalised log-probabilities `[batch, categories]`, drawn with replacement:
    /// where the running sum of probabilities passes a uniform number.
    pub fn random_multinomial(
        &mut self,
        key: ValueId,
        logits: ValueId,
        n: impl Into<Dim>,
        stream: u32,
    ) -> Result<ValueId, IrError> {
        let ty = self.tensor_type(logits)?.clone();
        let [batch, categories] = ty.shape.dims() else {
            return Err(self.refuse("random_multinomial", &[logits], OpError::new("takes [batch, categories]")));
        };
        let wide = if ty.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let x = self.convert(logits, wide)?;
        let p = self.softmax(x, 1)?;
        let sums = self.cumulative(p, CumKind::Sum, 1, false, false)?;
        let total = self.reduce(sums, ReduceKind::Max, &[1], true)?;
        let u = self.random_unit(key, wide, [batch.clone(), n.into()], stream)?;
        let u = self.mul(u, total)?;
        let (u, sums) = (self.expand_dims(u, &[2])?, self.expand_dims(sums, &[1])?);
        let passed = self.le(sums, u)?;
        let passed = self.convert(passed, DType::I64)?;
        let at = self.reduce(passed, ReduceKind::Sum, &[2], false)?;
        // A product that was rounded up could reach the total.
        let last = self.from_dim(categories - 1)?;
        self.minimum(at, last)
    }
}
