//! Ranges with steps along axes.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::error::{IrError, OpError};
use crate::eval::{signed_strides, strided_positions, take_linear};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::tensor::Value;
use crate::types::{Shape, TensorType};

use super::known::{one_per_axis, rearranged, require_le};

op! {
    /// Every `stride`-th element from `start` up to, not including, `limit`, on each axis.
    /// A negative stride goes down, from `start` to above `limit`, which may be −1.
    /// Bounds are those of the axis: whoever makes the op clamps them.
    pub struct Slice = "slice" {
        /// First index, per axis.
        pub starts: Vec<Dim>,
        /// Index not reached any more, per axis.
        pub limits: Vec<Dim>,
        /// Steps, not 0, per axis.
        pub strides: Vec<i64>,
    }
}

/// Steps longer than any axis are alike; this bound keeps dims made of them inside 64 bits.
const LONGEST_STEP: u64 = 1 << 60;

/// Number of elements of a range.
pub(crate) fn range_len(start: &Dim, limit: &Dim, stride: i64) -> Dim {
    let span = if stride < 0 { start - limit } else { limit - start };
    let step = Dim::from(stride.unsigned_abs().min(LONGEST_STEP) as i64);
    span.ceil_div(step).max(Dim::ZERO)
}

/// Linear positions of the elements, from bounds that are numbers.
fn positions(from: &[usize], to: &[usize], starts: &[i64], strides: &[i64]) -> Result<Vec<usize>, OpError> {
    for (axis, &n) in to.iter().enumerate().filter(|(_, n)| **n > 0) {
        let (first, size) = (i128::from(starts[axis]), from[axis] as i128);
        let last = first + i128::from(strides[axis]) * (n as i128 - 1);
        if !((0..size).contains(&first) && (0..size).contains(&last)) {
            return Err(OpError::new(format!("axis {axis}: {first} to {last} leave the {size} elements")));
        }
    }
    // Strides of an empty tensor with other huge sizes do not fit a machine word.
    if to.contains(&0) {
        return Ok(Vec::new());
    }
    let unit = signed_strides(from);
    let offset = unit.iter().zip(starts).map(|(s, &first)| first as isize * s).sum();
    // With one element the step is never taken, and it may be as long as it likes.
    let step = |axis: usize| if to[axis] > 1 { strides[axis] as isize * unit[axis] } else { 0 };
    let steps: Vec<isize> = (0..to.len()).map(step).collect();
    strided_positions(to, offset, &steps)
}

impl OpRules for Slice {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        let t = cx.tensor(0)?;
        let rank = t.shape.rank();
        one_per_axis("starts", self.starts.len(), rank)?;
        one_per_axis("limits", self.limits.len(), rank)?;
        one_per_axis("strides", self.strides.len(), rank)?;
        let mut dims = Vec::with_capacity(rank);
        for axis in 0..rank {
            let (start, limit, stride) = (&self.starts[axis], &self.limits[axis], self.strides[axis]);
            let size = &t.shape[axis];
            let why = format!("bounds on axis {axis}");
            match stride {
                0 => return Err(OpError::new(format!("stride on axis {axis} is 0; give a step other than 0"))),
                1.. => {
                    require_le(cx, &Dim::ZERO, start, &why)?;
                    require_le(cx, limit, size, &why)?;
                }
                _ => {
                    require_le(cx, start, &(size - 1), &why)?;
                    require_le(cx, &Dim::from(-1), limit, &why)?;
                }
            }
            dims.push(range_len(start, limit, stride));
        }
        let to = Shape::from(dims);
        let elems = rearranged(cx.elems(0), &t.shape, &to, |from, to| {
            let starts = self.starts.iter().map(Dim::as_const).collect::<Option<Vec<_>>>()?;
            positions(from, to, &starts, &self.strides).ok()
        });
        cx.result_elems(t.dtype, to, elems);
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::from(0)
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = arg(args, 0)?;
        let starts = self.starts.iter().map(|d| cx.int(d)).collect::<Result<Vec<_>, _>>()?;
        let mut dims = Vec::with_capacity(starts.len());
        for (axis, &start) in starts.iter().enumerate() {
            let (limit, step) = (i128::from(cx.int(&self.limits[axis])?), i128::from(self.strides[axis]));
            let span = (limit - i128::from(start)) * step.signum();
            let n = if span <= 0 { 0 } else { (span + step.abs() - 1) / step.abs() };
            dims.push(usize::try_from(n).map_err(|_| OpError::new(format!("axis {axis} has {n} elements")))?);
        }
        Ok(vec![take_linear(x, &dims, &positions(x.dims(), &dims, &starts, &self.strides)?)?.into()])
    }
}

impl Builder {
    /// Ranges with steps on every axis; bounds are already clamped to the sizes. See `slice_axis` for Python's rules.
    pub fn slice(
        &mut self,
        x: ValueId,
        starts: Vec<Dim>,
        limits: Vec<Dim>,
        strides: Vec<i64>,
    ) -> Result<ValueId, IrError> {
        let whole = {
            let shape = &self.tensor_type(x)?.shape;
            starts.iter().all(|s| s.as_const() == Some(0)) && limits == shape.dims() && strides.iter().all(|&s| s == 1)
        };
        if whole && starts.len() == limits.len() && strides.len() == limits.len() {
            return Ok(x);
        }
        self.op1(Slice { starts, limits, strides }, &[x])
    }
}
