//! Literals.

use crate::attr::AttrValue;
use crate::builder::Builder;
use crate::dim::Dim;
use crate::error::{IrError, OpError};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules};
use crate::tensor::{Tensor, Value};
use crate::types::{Shape, TensorType};

op! {
    /// A literal tensor. Large data belongs in parameters.
    pub struct Constant = "constant" {
        /// The literal.
        pub value: Tensor,
    }
}

impl OpRules for Constant {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(0)?;
        // Sizes are never of 8 bits or fewer: several such integers are weights, which no pass should make wider literals of.
        let (n, dtype) = (self.value.numel(), self.value.dtype());
        let small = n <= op::MAX_KNOWN_ELEMS && !(n > 1 && dtype.is_int() && dtype.bits() <= 8);
        let elems = if small {
            self.value.elements().ints().and_then(|v| v.iter().map(|&i| i64::try_from(i).ok().map(Dim::from)).collect())
        } else {
            None
        };
        cx.result_elems(self.value.dtype(), Shape::new(self.value.dims().iter().copied()), elems);
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::from(0)
    }

    fn eval(&self, _cx: &EvalCx<'_>, _args: &[Value]) -> Result<Vec<Value>, OpError> {
        Ok(vec![self.value.clone().into()])
    }
}

/// Elements up to this many are printed one by one, more as hexadecimal bytes.
const PRINT_LIMIT: usize = 16;

impl AttrValue for Tensor {
    fn print(&self) -> String {
        let dims: Vec<String> = self.dims().iter().map(ToString::to_string).collect();
        let mut s = format!("{}[{}]", self.dtype(), dims.join(", "));
        if let Some(strings) = self.strings() {
            let items: Vec<String> = strings.iter().map(|x| crate::attr::quote(x)).collect();
            return format!("{s}({})", items.join(", "));
        }
        if self.numel() > PRINT_LIMIT || self.dtype().is_complex() {
            s.push_str("(0x");
            self.bytes().iter().for_each(|b| s.push_str(&format!("{b:02x}")));
            s.push(')');
            return s;
        }
        let items: Vec<String> = match self.elements() {
            // NaNs keep their bits only in the packed form.
            crate::element::Elements::Float(v) if v.iter().any(|x| x.is_nan()) => {
                s.push_str("(0x");
                self.bytes().iter().for_each(|b| s.push_str(&format!("{b:02x}")));
                s.push(')');
                return s;
            }
            crate::element::Elements::Float(v) => v.iter().map(|&x| crate::attr::print_float(x)).collect(),
            e => e.ints().unwrap_or(&[]).iter().map(ToString::to_string).collect(),
        };
        format!("{s}({})", items.join(", "))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let bad = || {
            format!("expected a tensor like f32[2](1.0, 2.0), found `{}`", text.chars().take(60).collect::<String>())
        };
        let (head, body) = text.split_once('(').ok_or_else(bad)?;
        let body = body.strip_suffix(')').ok_or_else(bad)?.trim();
        let (dtype, dims) = head.trim().strip_suffix(']').and_then(|h| h.split_once('[')).ok_or_else(bad)?;
        let dtype: crate::DType = dtype.trim().parse().map_err(|e: crate::dtype::UnknownDType| e.to_string())?;
        let dims = crate::attr::split_list(dims)?
            .iter()
            .map(|d| d.parse::<usize>().map_err(|_| bad()))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(hex) = body.strip_prefix("0x") {
            if hex.len() % 2 != 0 || !hex.is_ascii() {
                return Err(bad());
            }
            let bytes = (0..hex.len() / 2)
                .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).map_err(|_| bad()))
                .collect::<Result<Vec<_>, _>>()?;
            return Tensor::from_bytes(dtype, &dims, &bytes).map_err(|e| e.to_string());
        }
        let items = crate::attr::split_list(body)?;
        let elements = match dtype.class() {
            crate::dtype::Class::Str => {
                let strings = items.into_iter().map(crate::attr::unquote).collect::<Result<Vec<_>, _>>()?;
                return Tensor::from_strings(&dims, strings).map_err(|e| e.to_string());
            }
            crate::dtype::Class::Float => crate::element::Elements::Float(
                items.into_iter().map(crate::attr::parse_float).collect::<Result<_, _>>()?,
            ),
            crate::dtype::Class::Complex => return Err("complex literals are written as bytes: c64[1](0x…)".into()),
            _ => crate::element::Elements::Int(
                items
                    .into_iter()
                    .map(|s| s.parse::<i128>().map_err(|_| format!("expected an integer, found `{s}`")))
                    .collect::<Result<_, _>>()?,
            ),
        };
        Tensor::from_elements(dtype, &dims, &elements).map_err(|e| e.to_string())
    }
}

impl Builder {
    /// A literal.
    pub fn constant(&mut self, value: Tensor) -> Result<ValueId, IrError> {
        self.op1(Constant { value }, &[])
    }

    /// A rank-0 literal of any numeric dtype.
    pub fn scalar(&mut self, dtype: crate::DType, value: f64) -> Result<ValueId, IrError> {
        let t = Tensor::full(dtype, &[], value).map_err(|e| IrError::Eval(e.to_string()))?;
        self.constant(t)
    }

    /// A rank-0 literal of the dtype of `like`.
    pub fn scalar_like(&mut self, like: ValueId, value: f64) -> Result<ValueId, IrError> {
        let d = self.dtype(like)?;
        self.scalar(d, value)
    }
}
