//! Repetition along axes of size 1.

use crate::builder::Builder;
use crate::dim::{Atom, Constraint, Dim};
use crate::error::{IrError, OpError};
use crate::eval::{signed_strides, strided_positions, take_linear};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::tensor::Value;
use crate::types::{Shape, TensorType};

use super::known::rearranged;

op! {
    /// The operand repeated along new leading axes and along axes of size 1, to exactly these sizes (NumPy `broadcast_to`).
    pub struct BroadcastTo = "broadcast_to" {
        /// Sizes of the result.
        pub dims: Vec<Dim>,
    }
}

fn refused(from: &[impl std::fmt::Display], to: &[impl std::fmt::Display]) -> OpError {
    let list = |d: &[String]| d.join(", ");
    let (from, to): (Vec<String>, Vec<String>) =
        (from.iter().map(ToString::to_string).collect(), to.iter().map(ToString::to_string).collect());
    OpError::new(format!("[{}] does not broadcast to [{}]", list(&from), list(&to)))
        .hint("aligned at the last axis, sizes must be equal or the operand's 1")
}

/// Strides of the operand seen from the result: 0 where it repeats.
fn strides(from: &[usize], to: &[usize]) -> Option<Vec<isize>> {
    let skip = to.len().checked_sub(from.len())?;
    let mut out = vec![0isize; skip];
    for ((&f, &t), s) in from.iter().zip(&to[skip..]).zip(signed_strides(from)) {
        match (f, t) {
            (f, t) if f == t => out.push(s),
            (1, _) => out.push(0),
            _ => return None,
        }
    }
    Some(out)
}

impl OpRules for BroadcastTo {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        let t = cx.tensor(0)?;
        let to = Shape::from(self.dims.clone());
        if let Some(d) = to.iter().find(|d| d.as_const().is_some_and(|c| c < 0)) {
            return Err(OpError::new(format!("size {d} is negative")));
        }
        let Some(skip) = to.rank().checked_sub(t.shape.rank()) else {
            return Err(refused(&t.shape, &to));
        };
        for (a, d) in t.shape.iter().zip(to.iter().skip(skip)) {
            if a.as_const() == Some(1) || a.known_eq(d) == Some(true) {
                continue;
            }
            if a.known_eq(d) == Some(false) && a.known_eq(&Dim::ONE) == Some(false) {
                return Err(refused(&t.shape, &to));
            }
            // The axis is repeated from 1 or kept: `a` fits what the target is made of, and the target is not 1 where `a` is not.
            match d.as_atom() {
                Some(Atom::Bcast(parts)) if parts.contains(a) => {
                    for p in parts.iter().filter(|p| *p != a) {
                        cx.require(Constraint::Broadcastable(a.clone(), p.clone()), "broadcast")?;
                    }
                }
                _ => {
                    let both = a.bcast(d);
                    if both != *d {
                        cx.require(Constraint::Eq(both, d.clone()), "broadcast")?;
                    }
                    cx.require(Constraint::Broadcastable(a.clone(), d.clone()), "broadcast")?;
                }
            }
        }
        let elems =
            rearranged(cx.elems(0), &t.shape, &to, |from, to| strided_positions(to, 0, &strides(from, to)?).ok());
        cx.result_elems(t.dtype, to, elems);
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::from(0)
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = arg(args, 0)?;
        let dims = cx.sizes(&self.dims)?;
        let strides = strides(x.dims(), &dims).ok_or_else(|| refused(x.dims(), &dims))?;
        Ok(vec![take_linear(x, &dims, &strided_positions(&dims, 0, &strides)?)?.into()])
    }
}

impl Builder {
    /// `x` repeated to exactly these sizes; `x` itself if it has them.
    pub fn broadcast_to(
        &mut self,
        x: ValueId,
        dims: impl IntoIterator<Item = impl Into<Dim>>,
    ) -> Result<ValueId, IrError> {
        let dims: Vec<Dim> = dims.into_iter().map(Into::into).collect();
        if self.tensor_type(x)?.shape.dims() == dims {
            return Ok(x);
        }
        self.op1(BroadcastTo { dims }, &[x])
    }
}
