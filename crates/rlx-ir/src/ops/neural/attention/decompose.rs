//! Attention from products, softmax and selections.

use super::super::rows::{self, operand};
use super::{Attention, AttnLayout, MaskKind};
use crate::builder::Builder;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::IrError;
use crate::graph::ValueId;
use crate::ops::elementwise::Compare;
use crate::ops::reduction::ReduceKind;
use crate::tensor::Tensor;
use crate::types::Shape;

impl Attention {
    /// The same from simpler ops.
    pub(super) fn in_primitives(&self, b: &mut Builder, args: &[ValueId]) -> Result<ValueId, IrError> {
        let (q, k, v) = (operand(args, 0)?, operand(args, 1)?, operand(args, 2)?);
        let dtype = b.dtype(q)?;
        let mut promised = b.shape(q)?.into_dims();
        promised.truncate(3);
        promised.extend(b.shape(v)?.last().cloned());
        let heads_first = |b: &mut Builder, x: ValueId| match self.layout {
            AttnLayout::Bhsd => Ok(x),
            AttnLayout::Bshd => b.transpose(x, &[0, 2, 1, 3]),
        };
        let mut parts = [q, k, v];
        for x in &mut parts {
            let wide = rows::widened(b, *x)?;
            *x = heads_first(b, wide)?;
        }
        let [q, k, v] = parts;
        let (sq, sk) = (b.shape(q)?, b.shape(k)?);
        let (h, kv_heads, s, t) = (&sq[1], &sk[1], &sq[2], &sk[2]);
        let group = h.floor_div(kv_heads);
        let grouped = h != kv_heads;
        let scores = if grouped {
            let q = b.reshape(q, [&sq[0], kv_heads, &group, s, &sq[3]])?;
            let x = b.dot_general(q, k, &[0, 1], &[0, 1], &[4], &[3], None)?;
            b.reshape(x, [&sq[0], h, s, t])?
        } else {
            b.dot_general(q, k, &[0, 1], &[0, 1], &[3], &[3], None)?
        };
        let scale = b.scalar_like(scores, self.scale.get())?;
        let mut scores = b.mul(scores, scale)?;
        if let Some(cap) = self.softcap {
            let cap = b.scalar_like(scores, cap.get())?;
            let ratio = b.div(scores, cap)?;
            let limited = b.tanh(ratio)?;
            scores = b.mul(limited, cap)?;
        }
        let score_shape = b.shape(scores)?;
        let score_dtype = b.dtype(scores)?;
        let hidden = b.scalar_like(scores, f64::NEG_INFINITY)?;
        match (self.mask, args.get(3)) {
            (MaskKind::Bool, Some(&m)) => scores = b.select(m, scores, hidden)?,
            (MaskKind::Additive, Some(&m)) => {
                let m = rows::widened(b, m)?;
                scores = b.add(scores, m)?;
            }
            _ => {}
        }
        if let Some(seen) = self.reach(b, s, t)? {
            scores = b.select(seen, scores, hidden)?;
        }
        let scores = rows::as_promised(b, scores, score_dtype, &score_shape)?;
        let mut weights = b.softmax(scores, 3)?;
        if self.can_hide() {
            let max = b.reduce(scores, ReduceKind::Max, &[3], true)?;
            let none = b.op1(Compare::Eq, &[max, hidden])?;
            let zero = b.scalar_like(scores, 0.0)?;
            weights = b.select(none, zero, weights)?;
        }
        let y = if grouped {
            let w = b.reshape(weights, [&sq[0], kv_heads, &group, s, t])?;
            let y = b.dot_general(w, v, &[0, 1], &[0, 1], &[4], &[2], None)?;
            let dv = b.shape(v)?[3].clone();
            b.reshape(y, [&sq[0], h, s, &dv])?
        } else {
            b.dot_general(weights, v, &[0, 1], &[0, 1], &[3], &[2], None)?
        };
        let y = heads_first(b, y)?;
        rows::as_promised(b, y, dtype, &Shape::from(promised))
    }

    /// `[s, t]` booleans that say which keys causality and window leave in sight; `None` for all.
    fn reach(&self, b: &mut Builder, s: &Dim, t: &Dim) -> Result<Option<ValueId>, IrError> {
        if !self.causal && self.window.is_none() {
            return Ok(None);
        }
        let query = b.iota(DType::I64, [s, &Dim::ONE], 0)?;
        let offset = b.from_dim(t - s)?;
        let position = b.add(query, offset)?;
        let key = b.iota(DType::I64, [&Dim::ONE, t], 1)?;
        let mut seen = None;
        if self.causal {
            seen = Some(b.op1(Compare::Le, &[key, position])?);
        }
        if let Some(w) = self.window {
            let distance = b.sub(position, key)?;
            let distance = b.abs(distance)?;
            let w = b.constant(Tensor::scalar(w))?;
            let near = b.op1(Compare::Lt, &[distance, w])?;
            seen = Some(match seen {
                Some(c) => b.and(c, near)?,
                None => near,
            });
        }
        Ok(seen)
    }
}
