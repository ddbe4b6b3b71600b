//! Joining along an axis.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::error::{IrError, OpError};
use crate::eval::Raw;
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::tensor::{Value, checked_numel};
use crate::types::{Shape, TensorType};

use super::known::{check_axis, small_sizes};

op! {
    /// The operands one after another along an axis; their other sizes are equal.
    pub struct Concat = "concat" {
        /// The axis.
        pub axis: usize,
    }
}

impl Concat {
    fn known(&self, cx: &InferCx<'_>, to: &Shape) -> Option<Vec<Dim>> {
        let sizes = small_sizes(to)?;
        let outer: usize = sizes.iter().take(self.axis).product();
        let parts = (0..cx.operands().len()).map(|i| cx.elems(i)).collect::<Option<Vec<_>>>()?;
        let mut out = Vec::with_capacity(sizes.iter().product());
        for o in 0..outer {
            for p in &parts {
                let chunk = p.len() / outer;
                out.extend_from_slice(p.get(o * chunk..(o + 1) * chunk)?);
            }
        }
        Some(out)
    }
}

impl OpRules for Concat {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        let n = cx.operands().len();
        if n == 0 {
            return Err(OpError::new("takes one or more operands, got 0"));
        }
        let dtype = cx.same_dtype(0..n)?;
        let first = cx.shape(0)?;
        check_axis(self.axis, first.rank())?;
        let mut dims = first.dims().to_vec();
        for i in 1..n {
            let s = cx.shape(i)?;
            if s.rank() != first.rank() {
                return Err(OpError::new(format!("operands 0 and {i} have ranks {} and {}", first.rank(), s.rank())));
            }
            for (axis, d) in dims.iter_mut().enumerate() {
                let e = &s[axis];
                if axis == self.axis {
                    *d = &*d + e;
                } else {
                    cx.require_eq(d, e, &format!("axis {axis} of operands 0 and {i}"))?;
                    // A constant says more than a symbol that must equal it.
                    if e.is_const() {
                        *d = e.clone();
                    }
                }
            }
        }
        let to = Shape::from(dims);
        let elems = self.known(cx, &to);
        cx.result_elems(dtype, to, elems);
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::from(0)
    }

    fn eval(&self, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let tensors = (0..args.len()).map(|i| arg(args, i)).collect::<Result<Vec<_>, _>>()?;
        let first = arg(args, 0)?;
        let mut dims = first.dims().to_vec();
        check_axis(self.axis, dims.len())?;
        dims[self.axis] = 0;
        for t in &tensors {
            let same = t.rank() == dims.len()
                && t.dtype() == first.dtype()
                && (0..dims.len()).all(|a| a == self.axis || t.dims()[a] == first.dims()[a]);
            if !same {
                return Err(OpError::new(format!("cannot join {first:?} and {t:?} along axis {}", self.axis)));
            }
            dims[self.axis] = dims[self.axis].saturating_add(t.dims()[self.axis]);
        }
        let n = checked_numel(&dims)?;
        let outer = checked_numel(&dims[..self.axis])?;
        let raws: Vec<Raw<'_>> = tensors.iter().map(|t| Raw::of(t)).collect();
        let mut out = Raw::with_capacity(first.dtype(), n);
        for o in 0..outer {
            for r in &raws {
                let chunk = r.len() / outer;
                out.extend(r, o * chunk, chunk)?;
            }
        }
        Ok(vec![out.finish(&dims)?.into()])
    }
}

impl Builder {
    /// The operands one after another along an axis, which may count from the end; a single operand is itself.
    pub fn concat(&mut self, xs: &[ValueId], axis: i64) -> Result<ValueId, IrError> {
        let first =
            *xs.first().ok_or_else(|| self.refuse("concat", xs, OpError::new("takes one or more operands, got 0")))?;
        let axis = self.axis("concat", first, axis)?;
        if xs.len() == 1 {
            return Ok(first);
        }
        self.op1(Concat { axis }, xs)
    }
}
