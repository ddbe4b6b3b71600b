//! Where the extreme of an axis stands.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::dtype::{Class, DType};
use crate::element::Elements;
use crate::error::{IrError, OpError};
use crate::eval::AroundAxis;
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::ops::shape::known::check_axis;
use crate::tensor::{Tensor, Value};
use crate::types::TensorType;

use super::reduce::reduced;

crate::attr_enum! {
    /// Which extreme is sought.
    pub enum ArgKind {
        /// The smallest element.
        Min = "min",
        /// The largest element.
        Max = "max",
    }
}

op! {
    /// The index along an axis of the smallest or largest element. NaN counts as the extreme; of equal elements the first (or last)
    /// is named. An empty axis has no extreme, which is an error.
    pub struct ArgReduce = "arg_reduce" {
        /// Which extreme.
        pub kind: ArgKind,
        /// The axis.
        pub axis: usize,
        /// The axis stays, with size 1.
        pub keep_dims: bool,
        /// The last of equal elements instead of the first.
        pub select_last: bool,
        /// An integer dtype for the result.
        pub dtype: DType,
    }
}

impl ArgReduce {
    fn find<T: Copy>(&self, v: &[T], around: AroundAxis, better: impl Fn(T, T) -> bool) -> Vec<i128> {
        let mut out = Vec::with_capacity(around.outer * around.inner);
        around.for_each_line(|first| {
            let mut best = 0;
            for k in 1..around.size {
                let (new, old) = (v[first + k * around.inner], v[first + best * around.inner]);
                if better(new, old) || self.select_last && !better(old, new) {
                    best = k;
                }
            }
            out.push(best as i128);
        });
        out
    }
}

impl OpRules for ArgReduce {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        let t = cx.tensor(0)?;
        check_axis(self.axis, t.shape.rank())?;
        if !matches!(t.dtype.class(), Class::Float | Class::Int | Class::UInt | Class::Bool) {
            return Err(OpError::new(format!("does not order {}", t.dtype)));
        }
        if !self.dtype.is_int() {
            return Err(OpError::new(format!("indices are integers, not {}", self.dtype)));
        }
        super::require_some(cx, &t.shape[self.axis], self.axis)?;
        cx.result(self.dtype, reduced(t.shape.dims(), &[self.axis], self.keep_dims, Dim::ONE));
        Ok(())
    }

    fn work(&self, operands: &[TensorType], _results: &[TensorType]) -> Dim {
        operands.first().map_or(Dim::ZERO, |t| t.shape.numel())
    }

    fn eval(&self, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = arg(args, 0)?;
        let around = AroundAxis::new(x.dims(), self.axis)?;
        if around.size == 0 {
            return Err(OpError::new(format!("axis {} is empty and has no extreme", self.axis)));
        }
        let max = self.kind == ArgKind::Max;
        let found = match x.elements() {
            Elements::Float(v) => self.find(&v, around, |a: f64, b: f64| {
                if a.is_nan() || b.is_nan() {
                    a.is_nan() && !b.is_nan()
                } else if max {
                    a > b
                } else {
                    a < b
                }
            }),
            Elements::Int(v) => self.find(&v, around, |a, b| if max { a > b } else { a < b }),
            _ => return Err(OpError::new(format!("does not order {}", x.dtype()))),
        };
        let dims = reduced(x.dims(), &[self.axis], self.keep_dims, 1);
        Ok(vec![Tensor::from_elements(self.dtype, &dims, &Elements::Int(found))?.into()])
    }
}

impl Builder {
    /// The index (`i64`) of the smallest or largest element along an axis, which may count from the end.
    pub fn arg_reduce(
        &mut self,
        x: ValueId,
        kind: ArgKind,
        axis: i64,
        keep_dims: bool,
        select_last: bool,
    ) -> Result<ValueId, IrError> {
        let axis = self.axis("arg_reduce", x, axis)?;
        self.op1(ArgReduce { kind, axis, keep_dims, select_last, dtype: DType::I64 }, &[x])
    }
}
