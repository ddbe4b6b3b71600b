//! Where elements are not zero.

use crate::builder::Builder;
use crate::dim::{Dim, Symbol};
use crate::dtype::DType;
use crate::element::Elements;
use crate::error::{IrError, OpError};
use crate::eval::for_each_index;
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::tensor::{Tensor, Value};

op! {
    /// Indices of the elements that are not zero, as `i64[rank, count]`: a row per axis, in row-major order. NaN is not zero.
    pub struct NonZero = "nonzero" {
        /// The symbol that this node defines: how many there are.
        pub count: Symbol,
    }
}

impl OpRules for NonZero {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        let t = cx.tensor(0)?;
        if t.dtype == DType::Str {
            return Err(OpError::new("strings are neither zero nor not"));
        }
        cx.result(DType::I64, vec![Dim::from(t.shape.rank() as i64), Dim::symbol(&self.count)]);
        Ok(())
    }

    fn eval(&self, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = arg(args, 0)?;
        let hit: Vec<bool> = match x.elements() {
            Elements::Float(v) => v.iter().map(|&e| e != 0.0).collect(),
            Elements::Int(v) => v.iter().map(|&e| e != 0).collect(),
            Elements::Complex(v) => v.iter().map(|e| *e != [0.0, 0.0]).collect(),
            Elements::Str(_) => return Err(OpError::new("strings are neither zero nor not")),
        };
        let count = hit.iter().filter(|h| **h).count();
        let mut out = vec![0i64; x.rank() * count];
        let (mut walk, mut column) = (hit.iter(), 0);
        for_each_index(x.dims(), |index| {
            if walk.next() == Some(&true) {
                index.iter().enumerate().for_each(|(axis, &i)| out[axis * count + column] = i as i64);
                column += 1;
            }
        });
        Ok(vec![Tensor::from_slice(&[x.rank(), count], &out)?.into()])
    }
}

impl Builder {
    /// Indices of the elements that are not zero; `count` names how many there are.
    pub fn nonzero(&mut self, x: ValueId, count: impl Into<Symbol>) -> Result<ValueId, IrError> {
        self.op1(NonZero { count: count.into() }, &[x])
    }
}
