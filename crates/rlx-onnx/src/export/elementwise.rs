//! Functions of each element.

use rlx_ir::ops::elementwise::{Binary, Compare, Elementwise, Unary};
use rlx_ir::{DType, TensorType};

use super::{Failure, Writer, code, flag, int, string};

impl Writer {
    pub(super) fn elementwise(&mut self, op: &Elementwise, x: &[&str], from: &[TensorType]) -> Result<String, Failure> {
        let first = from.first().map_or(DType::F32, |t| t.dtype);
        let bools = first == DType::Bool;
        match op {
            Elementwise::Unary(f) => self.unary(*f, x, first),
            Elementwise::Binary(f) => {
                let name = match f {
                    Binary::Add => "Add",
                    Binary::Sub => "Sub",
                    Binary::Mul => "Mul",
                    Binary::Div => "Div",
                    Binary::Pow => "Pow",
                    Binary::Min => "Min",
                    Binary::Max => "Max",
                    Binary::Rem => return Ok(self.emit("Mod", x, vec![int("fmod", 1)])),
                    Binary::Mod if first.is_int() => "Mod",
                    Binary::And if bools => "And",
                    Binary::Or if bools => "Or",
                    Binary::Xor if bools => "Xor",
                    Binary::And => "BitwiseAnd",
                    Binary::Or => "BitwiseOr",
                    Binary::Xor => "BitwiseXor",
                    Binary::ShiftLeft => return Ok(self.emit("BitShift", x, vec![string("direction", "LEFT")])),
                    Binary::ShiftRight => return Ok(self.emit("BitShift", x, vec![string("direction", "RIGHT")])),
                    Binary::Mod | Binary::Atan2 => return Err(format!("`{}` has no operator", f.name())),
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
            // Written plainly they would lose what they are there for.
            Unary::Expm1 | Unary::Log1p | Unary::Popcnt => return Err("has no operator".into()),
        };
        Ok(self.emit(name, x, vec![]))
    }
}
