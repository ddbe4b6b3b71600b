//! Elements read as another dtype.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{IrError, OpError};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::tensor::{Tensor, Value};
use crate::types::TensorType;

op! {
    /// The bits of each element read as another dtype of the same width. Booleans count as 8 bits wide: any byte but 0 reads as true.
    pub struct BitcastConvert = "bitcast_convert" {
        /// Dtype of the result.
        pub to: DType,
    }
}

impl OpRules for BitcastConvert {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        let t = cx.tensor(0)?;
        if t.dtype == DType::Str || self.to == DType::Str || t.dtype.bits() != self.to.bits() {
            return Err(OpError::new(format!("{} and {} are not of one width", t.dtype, self.to)));
        }
        cx.result(self.to, t.shape.clone());
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::ZERO
    }

    fn eval(&self, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = arg(args, 0)?;
        let mut bytes = x.bytes().to_vec();
        if self.to == DType::Bool {
            bytes.iter_mut().for_each(|b| *b = u8::from(*b != 0));
        }
        Ok(vec![Tensor::from_bytes(self.to, x.dims(), &bytes)?.into()])
    }
}

impl Builder {
    /// The bits of each element read as another dtype of the same width.
    pub fn bitcast_convert(&mut self, x: ValueId, to: DType) -> Result<ValueId, IrError> {
        if self.dtype(x)? == to { Ok(x) } else { self.op1(BitcastConvert { to }, &[x]) }
    }
}
