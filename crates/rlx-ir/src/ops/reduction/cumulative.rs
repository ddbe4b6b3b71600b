//! Running folds along an axis.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::element::Elements;
use crate::error::{IrError, OpError};
use crate::eval::AroundAxis;
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::ops::elementwise::binary;
use crate::ops::shape::known::{check_axis, settled, small_sizes};
use crate::tensor::{Tensor, Value};
use crate::types::Shape;

use super::{CumKind, ReduceKind, accumulate};

op! {
    /// Each element is the fold of those before it along an axis and of itself.
    pub struct Cumulative = "cumulative" {
        /// What elements are folded with.
        pub kind: CumKind,
        /// The axis.
        pub axis: usize,
        /// Without the element itself: the first is the fold of nothing.
        pub exclusive: bool,
        /// From the end of the axis instead of its start.
        pub reverse: bool,
    }
}

impl CumKind {
    /// The reduction with the same fold.
    pub fn reduction(self) -> ReduceKind {
        match self {
            CumKind::Sum => ReduceKind::Sum,
            CumKind::Prod => ReduceKind::Prod,
            CumKind::Max => ReduceKind::Max,
            CumKind::Min => ReduceKind::Min,
        }
    }
}

impl Cumulative {
    fn scan<T: Clone>(&self, v: &[T], around: AroundAxis, init: T, f: impl Fn(&T, &T) -> T) -> Vec<T> {
        let mut out = v.to_vec();
        around.for_each_line(|first| {
            let mut acc = init.clone();
            for k in 0..around.size {
                let k = if self.reverse { around.size - 1 - k } else { k };
                let at = first + k * around.inner;
                let next = f(&acc, &v[at]);
                let before = std::mem::replace(&mut acc, next);
                out[at] = if self.exclusive { before } else { acc.clone() };
            }
        });
        out
    }

    fn known(&self, cx: &InferCx<'_>, shape: &Shape, init: Option<Dim>) -> Option<Vec<Dim>> {
        let elems = cx.elems(0)?;
        let around = AroundAxis::new(&small_sizes(shape)?, self.axis).ok()?;
        let dtype = cx.dtype(0).ok()?;
        let wide = matches!(dtype, crate::DType::I64 | crate::DType::I32 | crate::DType::U64);
        if !wide {
            return None;
        }
        // The extreme of nothing is no size that arithmetic should go on with.
        if self.exclusive && matches!(self.kind, CumKind::Max | CumKind::Min) {
            return None;
        }
        let out = self.scan(elems, around, init?, |a, b| match self.kind {
            CumKind::Sum => a + b,
            CumKind::Prod => a * b,
            CumKind::Max => a.max(b),
            CumKind::Min => a.min(b),
        });
        settled(dtype, out)
    }
}

impl OpRules for Cumulative {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        let t = cx.tensor(0)?;
        check_axis(self.axis, t.shape.rank())?;
        let fold = self.kind.reduction();
        if !fold.takes(t.dtype) {
            return Err(
                OpError::new(format!("{} does not fold {}", self.kind.name(), t.dtype)).hint("insert a `convert`")
            );
        }
        let init = i64::try_from(fold.neutral_int(t.dtype)).ok().map(Dim::from);
        let elems = self.known(cx, &t.shape, init);
        cx.result_elems(t.dtype, t.shape.clone(), elems);
        Ok(())
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = arg(args, 0)?;
        let around = AroundAxis::new(x.dims(), self.axis)?;
        let (fold, narrow) = (self.kind.reduction(), accumulate::narrow(x.dtype(), cx.options));
        let elements = match x.elements() {
            Elements::Float(v) => {
                let (init, add, mul) = (fold.neutral_float(), accumulate::add(narrow), accumulate::mul(narrow));
                Elements::Float(match self.kind {
                    CumKind::Sum => self.scan(&v, around, init, |&a, &b| add(a, b)),
                    CumKind::Prod => self.scan(&v, around, init, |&a, &b| mul(a, b)),
                    CumKind::Max => self.scan(&v, around, init, |&a, &b| binary::max(a, b)),
                    CumKind::Min => self.scan(&v, around, init, |&a, &b| binary::min(a, b)),
                })
            }
            Elements::Int(v) => {
                let init = fold.neutral_int(x.dtype());
                Elements::Int(match self.kind {
                    CumKind::Sum => self.scan(&v, around, init, |&a, &b| a.wrapping_add(b)),
                    CumKind::Prod => self.scan(&v, around, init, |&a, &b| a.wrapping_mul(b)),
                    CumKind::Max => self.scan(&v, around, init, |&a, &b| a.max(b)),
                    CumKind::Min => self.scan(&v, around, init, |&a, &b| a.min(b)),
                })
            }
            Elements::Complex(v) => {
                let (add, mul) = (accumulate::add(narrow), accumulate::complex_mul(narrow));
                Elements::Complex(match self.kind {
                    CumKind::Prod => self.scan(&v, around, [1.0, 0.0], |&a, &b| mul(a, b)),
                    _ => self.scan(&v, around, [0.0; 2], |&a, &b| [add(a[0], b[0]), add(a[1], b[1])]),
                })
            }
            Elements::Str(_) => return Err(OpError::new("does not fold strings")),
        };
        Ok(vec![Tensor::from_elements(x.dtype(), x.dims(), &elements)?.into()])
    }
}

impl Builder {
    /// Running folds along an axis, which may count from the end.
    pub fn cumulative(
        &mut self,
        x: ValueId,
        kind: CumKind,
        axis: i64,
        exclusive: bool,
        reverse: bool,
    ) -> Result<ValueId, IrError> {
        let axis = self.axis("cumulative", x, axis)?;
        self.op1(Cumulative { kind, axis, exclusive, reverse }, &[x])
    }
}
