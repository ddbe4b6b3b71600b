//! Slices at index tuples.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::error::{IrError, OpError};
use crate::eval::{Raw, index_elements};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::ops::shape::known::small_sizes;
use crate::tensor::{Value, checked_numel};
use crate::types::{Shape, TensorType};

use super::index::{Tuples, expect_indices};

op! {
    /// For each tuple along the last axis of the indices, the operand's slice there; leading batch axes are walked side by side.
    pub struct GatherNd = "gather_nd" {
        /// Number of leading axes that operand and indices share.
        pub batch_dims: usize,
    }
}

/// Sizes of the result: those of the indices but for the last, then those of a slice.
fn result<T: Clone>(x: &[T], indices: &[T], from: usize) -> Vec<T> {
    indices.iter().take(indices.len().saturating_sub(1)).chain(x.iter().skip(from)).cloned().collect()
}

impl GatherNd {
    fn known(&self, cx: &InferCx<'_>, x: &Shape, indices: &Shape) -> Option<Vec<Dim>> {
        let (elems, at) = (cx.elems(0)?, cx.elems(1)?);
        let at = at.iter().map(Dim::as_const).collect::<Option<Vec<_>>>()?;
        let sizes = small_sizes(x)?;
        let tuples = Tuples::new(&sizes, &small_sizes(indices)?, self.batch_dims).ok()?;
        let mut out = Vec::new();
        for p in tuples.positions(&at).ok()? {
            out.extend_from_slice(elems.get(p..p + tuples.slice)?);
            if out.len() > op::MAX_KNOWN_ELEMS {
                return None;
            }
        }
        Some(out)
    }
}

impl OpRules for GatherNd {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(2)?;
        let (t, indices) = (cx.tensor(0)?, cx.shape(1)?);
        expect_indices(cx, 1)?;
        let b = self.batch_dims;
        let k = super::index::tuple_len(&t.shape, indices, b)?;
        for (axis, (x, i)) in t.shape.iter().zip(indices.iter()).take(b).enumerate() {
            cx.require_eq(x, i, &format!("batch axis {axis}"))?;
        }
        let elems = self.known(cx, &t.shape, indices);
        cx.result_elems(t.dtype, result(&t.shape, indices, b + k), elems);
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::ZERO
    }

    fn eval(&self, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let (x, indices) = (arg(args, 0)?, arg(args, 1)?);
        let tuples = Tuples::new(x.dims(), indices.dims(), self.batch_dims)?;
        let dims = result(x.dims(), indices.dims(), self.batch_dims + tuples.len);
        let from = Raw::of(x);
        let mut out = Raw::with_capacity(x.dtype(), checked_numel(&dims)?);
        for p in tuples.positions(&index_elements(indices)?)? {
            out.extend(&from, p, tuples.slice)?;
        }
        Ok(vec![out.finish(&dims)?.into()])
    }
}

impl Builder {
    /// Slices of `x` at index tuples.
    pub fn gather_nd(&mut self, x: ValueId, indices: ValueId, batch_dims: usize) -> Result<ValueId, IrError> {
        self.op1(GatherNd { batch_dims }, &[x, indices])
    }
}
