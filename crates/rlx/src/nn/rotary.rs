//! Rotary position embedding.

use rlx_ir::{DType, Dim, IrError, Tensor, ValueId};

use super::error::NnError;
use super::net::Scope;

/// How heads are rotated by position. It has no parameters: [`tables`](Rotary::tables) computes cosines and sines once, which all layers share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotary {
    features: usize,
    theta: f64,
    interleaved: bool,
}

/// Cosines and sines of the angles of positions, `[…, seq, features / 2]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotaryTables {
    /// Cosines.
    pub cos: ValueId,
    /// Sines.
    pub sin: ValueId,
    interleaved: bool,
    features: usize,
}

impl Rotary {
    /// Rotates the first `features` (an even number) of each head, feature i with i + features / 2, at a base of 10,000.
    pub const fn new(features: usize) -> Self {
        Rotary { features, theta: 10_000.0, interleaved: false }
    }

    /// The base of the wavelengths.
    #[must_use]
    pub const fn theta(mut self, theta: f64) -> Self {
        self.theta = theta;
        self
    }

    /// Pairs are neighbours: feature 2i with 2i + 1.
    #[must_use]
    pub const fn interleaved(mut self, interleaved: bool) -> Self {
        self.interleaved = interleaved;
        self
    }

    /// Tables for the positions 0, 1, … of `seq`.
    pub fn tables(&self, scope: &mut Scope<'_>, seq: impl Into<Dim>) -> Result<RotaryTables, NnError> {
        let seq = seq.into();
        let positions = scope.build("rotary embedding", &[], |b| b.iota(DType::I64, [seq], 0))?;
        self.tables_of(scope, positions)
    }

    /// Tables for given positions, integers `[seq]` or `[batch, seq]`. Angles are computed in f32.
    pub fn tables_of(&self, scope: &mut Scope<'_>, positions: ValueId) -> Result<RotaryTables, NnError> {
        let (d, kind) = (self.features, "rotary embedding");
        if d == 0 || !d.is_multiple_of(2) {
            return Err(scope.refuse(kind, format!("rotates an even number of features, not {d}")));
        }
        let wavelength = |i: usize| (1.0 / self.theta.powf(2.0 * i as f64 / d as f64)) as f32;
        let frequencies: Vec<f32> = (0..d / 2).map(wavelength).collect();
        let dtype = scope.dtype();
        let (cos, sin) = scope.build(kind, &[positions], |b| {
            let frequencies = Tensor::from_slice(&[d / 2], &frequencies).map_err(|e| IrError::Eval(e.to_string()))?;
            let frequencies = b.constant(frequencies)?;
            let p = b.convert(positions, DType::F32)?;
            let p = b.expand_dims(p, &[-1])?;
            let angles = b.mul(p, frequencies)?;
            let (cos, sin) = (b.cos(angles)?, b.sin(angles)?);
            Ok((b.convert(cos, dtype)?, b.convert(sin, dtype)?))
        })?;
        Ok(RotaryTables { cos, sin, interleaved: self.interleaved, features: d })
    }
}

impl RotaryTables {
    /// Rotates `[batch, seq, heads, head_dim]`.
    pub(super) fn rotate(&self, scope: &mut Scope<'_>, x: ValueId, head_dim: usize) -> Result<ValueId, NnError> {
        if self.features > head_dim {
            let why = format!("rotates {} features of heads that have {head_dim}", self.features);
            return Err(scope.refuse("rotary embedding", why));
        }
        let part = (self.features < head_dim).then_some(self.features as i64);
        scope.build("rotary embedding", &[x, self.cos, self.sin], |b| {
            // The axis of heads.
            let (cos, sin) = (b.expand_dims(self.cos, &[-2])?, b.expand_dims(self.sin, &[-2])?);
            b.rotary_embedding(x, cos, sin, self.interleaved, part)
        })
    }
}
