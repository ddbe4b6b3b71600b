//! Slices of one axis at indices.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::error::{IrError, OpError};
use crate::eval::{Raw, index_elements};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::ops::shape::known::{check_axis, small_sizes};
use crate::tensor::{Value, checked_numel};
use crate::types::{Shape, TensorType};

use super::index::{expect_indices, resolve};

op! {
    /// The operand's slices along an axis at indices: the axis is replaced by the axes of the indices (NumPy `take`).
    pub struct Gather = "gather" {
        /// The axis.
        pub axis: usize,
    }
}

fn spliced<T: Clone>(dims: &[T], axis: usize, indices: &[T]) -> Vec<T> {
    dims.iter().take(axis).chain(indices).chain(dims.iter().skip(axis + 1)).cloned().collect()
}

impl Gather {
    /// Constant indices must be in range of a constant axis; the known elements, if any.
    fn known(&self, cx: &InferCx<'_>, from: &Shape) -> Result<Option<Vec<Dim>>, OpError> {
        let (Some(indices), Some(size)) =
            (cx.elems(1), from[self.axis].as_const().and_then(|n| usize::try_from(n).ok()))
        else {
            return Ok(None);
        };
        let mut at = Vec::with_capacity(indices.len());
        for d in indices {
            match d.as_const() {
                Some(i) => at.push(resolve(i, size, self.axis)?),
                None => return Ok(None),
            }
        }
        let (Some(elems), Some(sizes)) = (cx.elems(0), small_sizes(from)) else { return Ok(None) };
        let outer: usize = sizes.iter().take(self.axis).product();
        let inner: usize = sizes.iter().skip(self.axis + 1).product();
        if outer * inner * at.len() > op::MAX_KNOWN_ELEMS {
            return Ok(None);
        }
        let mut out = Vec::new();
        for o in 0..outer {
            for i in &at {
                let p = (o * size + i) * inner;
                out.extend_from_slice(elems.get(p..p + inner).unwrap_or(&[]));
            }
        }
        Ok(Some(out))
    }
}

impl OpRules for Gather {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(2)?;
        let t = cx.tensor(0)?;
        expect_indices(cx, 1)?;
        check_axis(self.axis, t.shape.rank())?;
        let dims = spliced(t.shape.dims(), self.axis, cx.shape(1)?.dims());
        let elems = self.known(cx, &t.shape)?;
        cx.result_elems(t.dtype, dims, elems);
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::ZERO
    }

    fn eval(&self, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let (x, indices) = (arg(args, 0)?, arg(args, 1)?);
        check_axis(self.axis, x.rank())?;
        let size = x.dims()[self.axis];
        let at =
            index_elements(indices)?.into_iter().map(|i| resolve(i, size, self.axis)).collect::<Result<Vec<_>, _>>()?;
        let dims = spliced(x.dims(), self.axis, indices.dims());
        let (outer, inner) = (checked_numel(&x.dims()[..self.axis])?, checked_numel(&x.dims()[self.axis + 1..])?);
        let from = Raw::of(x);
        let mut out = Raw::with_capacity(x.dtype(), checked_numel(&dims)?);
        for o in 0..outer {
            for i in &at {
                out.extend(&from, (o * size + i) * inner, inner)?;
            }
        }
        Ok(vec![out.finish(&dims)?.into()])
    }
}

impl Builder {
    /// Slices of `x` along an axis (which may count from the end) at indices.
    pub fn gather(&mut self, x: ValueId, indices: ValueId, axis: i64) -> Result<ValueId, IrError> {
        let axis = self.axis("gather", x, axis)?;
        self.op1(Gather { axis }, &[x, indices])
    }
}
