//! Blocks at computed places.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::error::{IrError, OpError};
use crate::eval::{Raw, index_elements, signed_strides, strided_positions, take_linear};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::ops::shape::known::{one_per_axis, rearranged, require_le};
use crate::tensor::Value;
use crate::types::{Shape, TensorType};

use super::index::expect_indices;

op! {
    /// A block of these sizes whose first element stands where the second operand says, one index per axis. The place is clamped so
    /// that the block lies inside.
    pub struct DynamicSlice = "dynamic_slice" {
        /// Sizes of the block.
        pub sizes: Vec<Dim>,
    }
}

op! {
    /// The operand with a block (the second operand) written where the third says, one index per axis. The place is clamped so that
    /// the block lies inside.
    pub struct DynamicUpdateSlice = "dynamic_update_slice" {}
}

/// Errors unless operand `i` holds one index per axis.
fn expect_starts(cx: &mut InferCx<'_>, i: usize, rank: usize) -> Result<(), OpError> {
    expect_indices(cx, i)?;
    let s = cx.shape(i)?;
    let [n] = s.dims() else {
        return Err(OpError::new(format!("starts must be a vector of {rank} indices, got {s}")));
    };
    cx.require_eq(n, &Dim::from(rank as i64), "number of starts")
}

/// Linear positions of a block.
fn block(x: &[usize], sizes: &[usize], starts: &[i64]) -> Result<Vec<usize>, OpError> {
    one_per_axis("starts", starts.len(), x.len())?;
    one_per_axis("sizes", sizes.len(), x.len())?;
    let strides = signed_strides(x);
    let mut offset = 0;
    for axis in 0..x.len() {
        let Some(room) = x[axis].checked_sub(sizes[axis]) else {
            return Err(OpError::new(format!("a block of {sizes:?} does not fit {x:?}")));
        };
        offset += starts[axis].clamp(0, room as i64) as isize * strides[axis];
    }
    strided_positions(sizes, offset, &strides)
}

impl OpRules for DynamicSlice {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(2)?;
        let t = cx.tensor(0)?;
        let rank = t.shape.rank();
        one_per_axis("sizes", self.sizes.len(), rank)?;
        expect_starts(cx, 1, rank)?;
        for (axis, d) in self.sizes.iter().enumerate() {
            require_le(cx, &Dim::ZERO, d, &format!("size of the block on axis {axis}"))?;
            require_le(cx, d, &t.shape[axis], &format!("size of the block on axis {axis}"))?;
        }
        let to = Shape::from(self.sizes.clone());
        let starts = cx.elems(1).and_then(|e| e.iter().map(Dim::as_const).collect::<Option<Vec<_>>>());
        let elems = rearranged(cx.elems(0), &t.shape, &to, |from, to| block(from, to, &starts?).ok());
        cx.result_elems(t.dtype, to, elems);
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::ZERO
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let (x, starts) = (arg(args, 0)?, index_elements(arg(args, 1)?)?);
        let dims = cx.sizes(&self.sizes)?;
        Ok(vec![take_linear(x, &dims, &block(x.dims(), &dims, &starts)?)?.into()])
    }
}

impl OpRules for DynamicUpdateSlice {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(3)?;
        let dtype = cx.same_dtype(0..2)?;
        let (x, update) = (cx.shape(0)?, cx.shape(1)?);
        one_per_axis("the update", update.rank(), x.rank())?;
        expect_starts(cx, 2, x.rank())?;
        for (axis, (d, n)) in update.iter().zip(x.iter()).enumerate() {
            require_le(cx, d, n, &format!("size of the update on axis {axis}"))?;
        }
        cx.result(dtype, x.clone());
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::ZERO
    }

    fn eval(&self, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let (x, update, starts) = (arg(args, 0)?, arg(args, 1)?, index_elements(arg(args, 2)?)?);
        let at = block(x.dims(), update.dims(), &starts)?;
        let (mut out, from) = (Raw::of(x), Raw::of(update));
        at.into_iter().enumerate().try_for_each(|(j, p)| out.set(p, &from, j))?;
        Ok(vec![out.finish(x.dims())?.into()])
    }
}

impl Builder {
    /// A block of `x` at a computed place.
    pub fn dynamic_slice(&mut self, x: ValueId, starts: ValueId, sizes: Vec<Dim>) -> Result<ValueId, IrError> {
        self.op1(DynamicSlice { sizes }, &[x, starts])
    }

    /// `x` with a block written at a computed place.
    pub fn dynamic_update_slice(&mut self, x: ValueId, update: ValueId, starts: ValueId) -> Result<ValueId, IrError> {
        self.op1(DynamicUpdateSlice {}, &[x, update, starts])
    }
}
