//! Functions of each element.

use rlx_ir::ops::elementwise::{Binary, Compare, Elementwise, Unary};
use rlx_ir::{DType, TensorType};

use super::{Failure, Writer, code, flag, int, string};
use crate::proto::onnx::AttributeProto;

impl Writer {
    pub(super) fn elementwise(&mut self, op: &Elementwise, x: &[&str], from: &[TensorType]) -> Result<String, Failure> {
        let first = from.first().map_or(DType::F32, |t| t.dtype);
        let bools = first == DType::Bool;
        match op {
            Elementwise::Unary(f) => self.unary(*f, x, first),
            Elementwise::Binary(f) => {
                let name = match f {
                    Binary::Div if first.is_int() => return self.divided("Div", x, vec![], first),
                    Binary::Mod if first.is_int() => return self.divided("Mod", x, vec![], first),
                    Binary::Add => "Add",
                    Binary::Sub => "Sub",
                    Binary::Mul => "Mul",
                    Binary::Div => "Div",
                    Binary::Pow => "Pow",
                    Binary::Min => "Min",
                    Binary::Max => "Max",
                    Binary::Rem if first.is_int() => return self.divided("Mod", x, vec![int("fmod", 1)], first),
                    Binary::Rem => return Ok(self.emit("Mod", x, vec![int("fmod", 1)])),
                    Binary::And if bools => "And",
                    Binary::Or if bools => "Or",
                    Binary::Xor if bools => "Xor",
                    Binary::And => "BitwiseAnd",
                    Binary::Or => "BitwiseOr",
                    Binary::Xor => "BitwiseXor",
                    Binary::ShiftLeft => return Ok(self.emit("BitShift", x, vec![string("direction", "LEFT")])),
                    Binary::ShiftRight => return Ok(self.emit("BitShift", x, vec![string("direction", "RIGHT")])),
                    Binary::Mod => return self.float_mod(x, first),
                    Binary::Atan2 => return Err("`atan2` has no operator".into()),
                };
                Ok(self.emit(name, x, vec![]))
            }
            Elementwise::Compare(f) => {
                let name = match f {
                    Compare::Eq => "Equal",
                    Compare::Lt => "Less",
                    Compare::Le => "LessOrEqual",
                    Compare::Gt => "Greater",
                    Compare::Ge => "GreaterOrEqual",
                    Compare::Ne => {
                        let equal = self.emit("Equal", x, vec![]);
                        return Ok(self.emit("Not", &[&equal], vec![]));
                    }
                };
                Ok(self.emit(name, x, vec![]))
            }
            // ONNX Runtime selects no booleans.
            Elementwise::Select if from.get(1).is_some_and(|t| t.dtype == DType::Bool) => {
                let &[cond, a, b] = x else { return Err("takes three operands".into()) };
                let other = self.emit("Not", &[cond], vec![]);
                let (a, b) = (self.emit("And", &[cond, a], vec![]), self.emit("And", &[&other, b], vec![]));
                Ok(self.emit("Or", &[&a, &b], vec![]))
            }
            Elementwise::Select => Ok(self.emit("Where", x, vec![])),
            Elementwise::Clamp => {
                let &[v, lo, hi] = x else { return Err("takes three operands".into()) };
                let above = self.emit("Max", &[v, lo], vec![]);
                Ok(self.emit("Min", &[&above, hi], vec![]))
            }
            Elementwise::Convert { to, saturate } => {
                let mut attributes = vec![int("to", i64::from(code(*to)?))];
                if to.is_float() && to.bits() <= 8 {
                    attributes.push(flag("saturate", *saturate));
                }
                Ok(self.emit("Cast", x, attributes))
            }
        }
    }

    /// A division of integers, which by zero gives 0: the format says nothing of that, and ONNX Runtime dies of it.
    fn divided(&mut self, op: &str, x: &[&str], how: Vec<AttributeProto>, d: DType) -> Result<String, Failure> {
        let &[a, b] = x else { return Err("takes two operands".into()) };
        if self.without_zeros.contains(b) {
            return Ok(self.emit(op, x, how));
        }
        let zero = self.scalar(d, 0.0)?;
        let none = self.emit("Equal", &[b, &zero], vec![]);
        let some = self.emit("Not", &[&none], vec![]);
        let (none, some) = (self.cast(&none, d)?, self.cast(&some, d)?);
        let safe = self.emit("Add", &[b, &none], vec![]);
        let y = self.emit(op, &[a, &safe], how);
        Ok(self.emit("Mul", &[&y, &some], vec![]))
    }

    /// `log(1 + x)`: where `u = 1 + x` was rounded, the quotient `log(u) / (u − 1)` still is that of a number near x.
    fn log1p(&mut self, x: &str, d: DType) -> Result<String, Failure> {
        let (one, inf) = (self.scalar(d, 1.0)?, self.scalar(d, f64::INFINITY)?);
        let u = self.emit("Add", &[x, &one], vec![]);
        let (log, rest) = (self.emit("Log", &[&u], vec![]), self.emit("Sub", &[&u, &one], vec![]));
        let quotient = self.emit("Div", &[x, &rest], vec![]);
        let y = self.emit("Mul", &[&log, &quotient], vec![]);
        let lost = self.emit("Equal", &[&u, &one], vec![]);
        let y = self.emit("Where", &[&lost, x, &y], vec![]);
        let endless = self.emit("Equal", &[&u, &inf], vec![]);
        Ok(self.emit("Where", &[&endless, &u, &y], vec![]))
    }

    /// `exp(x) − 1`, likewise: `(u − 1) / log(u)` of the rounded `u = exp(x)`.
    fn expm1(&mut self, x: &str, d: DType) -> Result<String, Failure> {
        let (one, zero) = (self.scalar(d, 1.0)?, self.scalar(d, 0.0)?);
        let inf = self.scalar(d, f64::INFINITY)?;
        let u = self.emit("Exp", &[x], vec![]);
        let (log, rest) = (self.emit("Log", &[&u], vec![]), self.emit("Sub", &[&u, &one], vec![]));
        let quotient = self.emit("Div", &[x, &log], vec![]);
        let y = self.emit("Mul", &[&rest, &quotient], vec![]);
        let lost = self.emit("Equal", &[&u, &one], vec![]);
        let y = self.emit("Where", &[&lost, x, &y], vec![]);
        // Where exp(x) is 0 or infinite, so is nothing but the difference.
        let (none, endless) = (self.emit("Equal", &[&u, &zero], vec![]), self.emit("Equal", &[&u, &inf], vec![]));
        let end = self.emit("Or", &[&none, &endless], vec![]);
        Ok(self.emit("Where", &[&end, &rest, &y], vec![]))
    }

    /// The rest with the divisor's sign: the operator's own is for integers.
    fn float_mod(&mut self, x: &[&str], d: DType) -> Result<String, Failure> {
        let &[_, y] = x else { return Err("takes two operands".into()) };
        let zero = self.scalar(d, 0.0)?;
        let rest = self.emit("Mod", x, vec![int("fmod", 1)]);
        let (a, b) = (self.emit("Less", &[&rest, &zero], vec![]), self.emit("Less", &[y, &zero], vec![]));
        let (other, none) = (self.emit("Xor", &[&a, &b], vec![]), self.emit("Equal", &[&rest, &zero], vec![]));
        let some = self.emit("Not", &[&none], vec![]);
        let wrong = self.emit("And", &[&other, &some], vec![]);
        let moved = self.emit("Add", &[&rest, y], vec![]);
        Ok(self.emit("Where", &[&wrong, &moved, &rest], vec![]))
    }

    fn unary(&mut self, f: Unary, x: &[&str], dtype: DType) -> Result<String, Failure> {
        let &[v] = x else { return Err("takes one operand".into()) };
        let name = match f {
            Unary::Neg => "Neg",
            Unary::Abs => "Abs",
            Unary::Sign => "Sign",
            Unary::Ceil => "Ceil",
            Unary::Floor => "Floor",
            Unary::RoundEven => "Round",
            Unary::Sqrt => "Sqrt",
            Unary::Reciprocal => "Reciprocal",
            Unary::Exp => "Exp",
            Unary::Log => "Log",
            Unary::Sin => "Sin",
            Unary::Cos => "Cos",
            Unary::Tan => "Tan",
            Unary::Asin => "Asin",
            Unary::Acos => "Acos",
            Unary::Atan => "Atan",
            Unary::Sinh => "Sinh",
            Unary::Cosh => "Cosh",
            Unary::Tanh => "Tanh",
            Unary::Asinh => "Asinh",
            Unary::Acosh => "Acosh",
            Unary::Atanh => "Atanh",
            Unary::Erf => "Erf",
            Unary::Sigmoid => "Sigmoid",
            Unary::Relu => "Relu",
            Unary::Gelu => "Gelu",
            Unary::HardSwish => "HardSwish",
            Unary::Mish => "Mish",
            Unary::Softplus => "Softplus",
            Unary::Softsign => "Softsign",
            Unary::IsNan => "IsNaN",
            Unary::IsInf => "IsInf",
            Unary::Not if dtype == DType::Bool => "Not",
            Unary::Not => "BitwiseNot",
            Unary::GeluTanh => return Ok(self.emit("Gelu", x, vec![string("approximate", "tanh")])),
            Unary::Silu => {
                let s = self.emit("Sigmoid", x, vec![]);
                return Ok(self.emit("Mul", &[v, &s], vec![]));
            }
            Unary::Rsqrt => {
                let root = self.emit("Sqrt", x, vec![]);
                return Ok(self.emit("Reciprocal", &[&root], vec![]));
            }
            Unary::Trunc => {
                let (size, sign) = (self.emit("Abs", x, vec![]), self.emit("Sign", x, vec![]));
                let whole = self.emit("Floor", &[&size], vec![]);
                return Ok(self.emit("Mul", &[&whole, &sign], vec![]));
            }
            Unary::IsFinite => {
                let (nan, inf) = (self.emit("IsNaN", x, vec![]), self.emit("IsInf", x, vec![]));
                let either = self.emit("Or", &[&nan, &inf], vec![]);
                return Ok(self.emit("Not", &[&either], vec![]));
            }
            Unary::Expm1 | Unary::Log1p => {
                // In steps of 16 bits too much would be lost.
                let wide = if dtype.bits() < 32 { DType::F32 } else { dtype };
                let x = if wide == dtype { v.to_owned() } else { self.cast(v, wide)? };
                let y = if f == Unary::Expm1 { self.expm1(&x, wide)? } else { self.log1p(&x, wide)? };
                return if wide == dtype { Ok(y) } else { self.cast(&y, dtype) };
            }
            Unary::Popcnt => return Err("has no operator".into()),
        };
        Ok(self.emit(name, x, vec![]))
    }
}
