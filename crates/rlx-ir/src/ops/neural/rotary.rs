//! Rotary position embedding.

use super::rows::{self, operand};
use crate::builder::Builder;
use crate::dim::{Constraint, Dim};
use crate::error::{IrError, OpError};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, Rule, arg};
use crate::tensor::Value;
use crate::types::Shape;

op! {
    /// Rotates pairs of features (last axis) by angles whose cosines and sines are the second and third operand: `(a·cos − b·sin, b·cos + a·sin)`. The operands cos and sin broadcast to the first with half as many features.
    pub struct RotaryEmbedding = "rotary_embedding" {
        /// Whether pairs are neighbours (2i, 2i + 1); else feature i of the first half pairs with i of the second.
        pub interleaved: bool,
        /// How many of the leading features are rotated, an even number; all if none. The rest passes through.
        pub rotary_dim: Option<i64>,
    }
}

impl RotaryEmbedding {
    /// Number of rotated features of `d`.
    fn rotated(&self, d: &Dim) -> Dim {
        self.rotary_dim.map_or_else(|| d.clone(), Dim::from)
    }
}

impl OpRules for RotaryEmbedding {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(3)?;
        let dtype = rows::float_dtype(cx, 0..1)?;
        rows::float_dtype(cx, 1..3)?;
        let shape = cx.shape(0)?;
        let Some((d, outer)) = shape.split_last() else {
            return Err(OpError::new("the first operand must have an axis of features"));
        };
        let r = self.rotated(d);
        cx.require(Constraint::Divisible(r.clone(), 2.into()), "rotated features must be even")?;
        cx.require(Constraint::Le(r.clone(), d.clone()), "rotated features")?;
        cx.require(Constraint::Le(Dim::ZERO, r.clone()), "rotated features")?;
        let half: Vec<Dim> = outer.iter().cloned().chain([r.floor_div(2)]).collect();
        rows::require_broadcasts_to(cx, 1, &half, "cos")?;
        rows::require_broadcasts_to(cx, 2, &half, "sin")?;
        cx.result(dtype, shape.clone());
        Ok(())
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = arg(args, 0)?;
        let mut v = rows::floats(args, 0)?;
        let mut dims = x.dims().to_vec();
        let d = dims.pop().unwrap_or(1);
        let half = cx.size(&self.rotated(&Dim::from(d)))? / 2;
        dims.push(half);
        let angles = |i| rows::expanded(args, Some(i), &dims).map(Option::unwrap_or_default);
        let (cos, sin) = (angles(1)?, angles(2)?);
        for (row, features) in v.chunks_mut(d.max(1)).enumerate() {
            for i in 0..half {
                let (p, q) = if self.interleaved { (2 * i, 2 * i + 1) } else { (i, half + i) };
                let (c, s) = (cos[row * half + i], sin[row * half + i]);
                let (a, b) = (features[p], features[q]);
                features[p] = a * c - b * s;
                features[q] = b * c + a * s;
            }
        }
        Ok(vec![rows::tensor(x.dtype(), x.dims(), v)?])
    }

    fn decompose(&self, b: &mut Builder, args: &[ValueId]) -> Rule<Vec<ValueId>> {
        Some(self.in_primitives(b, args).map(|y| vec![y]))
    }
}

impl RotaryEmbedding {
    /// The same from simpler ops.
    fn in_primitives(&self, b: &mut Builder, args: &[ValueId]) -> Result<ValueId, IrError> {
        let x = operand(args, 0)?;
        let (dtype, shape) = (b.dtype(x)?, b.shape(x)?);
        let Some((d, outer)) = shape.split_last() else {
            return Err(b.refuse(Self::NAME, args, OpError::new("the first operand must have an axis of features")));
        };
        let last = outer.len();
        let r = self.rotated(d);
        let half = r.floor_div(2);
        let wide = rows::widened(b, x)?;
        let (cos, sin) = (rows::widened(b, operand(args, 1)?)?, rows::widened(b, operand(args, 2)?)?);
        let (cos, sin) = (b.convert(cos, b.dtype(wide)?)?, b.convert(sin, b.dtype(wide)?)?);
        let part = |b: &mut Builder, start: Dim, limit: Dim, stride: i64| {
            let mut starts = vec![Dim::ZERO; last];
            let mut limits = outer.to_vec();
            let mut strides = vec![1; last];
            starts.push(start);
            limits.push(limit);
            strides.push(stride);
            b.slice(wide, starts, limits, strides)
        };
        let (p, q) = if self.interleaved {
            (part(b, Dim::ZERO, &half * 2, 2)?, part(b, Dim::ONE, &half * 2, 2)?)
        } else {
            (part(b, Dim::ZERO, half.clone(), 1)?, part(b, half.clone(), &half * 2, 1)?)
        };
        let (pc, qs, qc, ps) = (b.mul(p, cos)?, b.mul(q, sin)?, b.mul(q, cos)?, b.mul(p, sin)?);
        let (p, q) = (b.sub(pc, qs)?, b.add(qc, ps)?);
        let half_shape: Shape = outer.iter().cloned().chain([half.clone()]).collect();
        let wide_dtype = b.dtype(wide)?;
        let (p, q) =
            (rows::as_promised(b, p, wide_dtype, &half_shape)?, rows::as_promised(b, q, wide_dtype, &half_shape)?);
        let mut y = if self.interleaved {
            let pair: Vec<Dim> = half_shape.iter().cloned().chain([Dim::ONE]).collect();
            let (p, q) = (b.reshape(p, pair.iter())?, b.reshape(q, pair.iter())?);
            let both = b.concat(&[p, q], last as i64 + 1)?;
            b.reshape(both, outer.iter().cloned().chain([&half * 2]))?
        } else {
            b.concat(&[p, q], last as i64)?
        };
        if self.rotary_dim.is_some() && r != *d {
            let rest = part(b, r, d.clone(), 1)?;
            y = b.concat(&[y, rest], last as i64)?;
        }
        rows::as_promised(b, y, dtype, &shape)
    }
}

impl Builder {
    /// Rotary position embedding of the last axis.
    pub fn rotary_embedding(
        &mut self,
        x: ValueId,
        cos: ValueId,
        sin: ValueId,
        interleaved: bool,
        rotary_dim: Option<i64>,
    ) -> Result<ValueId, IrError> {
        self.op1(RotaryEmbedding { interleaved, rotary_dim }, &[x, cos, sin])
    }
}
