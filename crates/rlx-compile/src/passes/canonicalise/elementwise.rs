//! Rules of elementwise ops.

use rlx_ir::ops::ShapeOp;
use rlx_ir::ops::elementwise::{Binary, Elementwise, Unary};
use rlx_ir::ops::shape::BroadcastTo;
use rlx_ir::{DType, IrError, Op, Shape, Tensor, ValueId};

use super::facts::{Number, broadcasts_within, floats, non_negative, uniform};
use super::{Canon, Found};

impl Canon<'_, '_> {
    fn shape(&self, v: ValueId) -> Option<&Shape> {
        self.g().tensor_type(v).map(|t| &t.shape)
    }

    /// True if broadcasting the other value with `x` leaves the shape of `x`.
    fn fits(&self, other: ValueId, x: ValueId) -> bool {
        matches!((self.shape(other), self.shape(x)), (Some(a), Some(b)) if broadcasts_within(a, b))
    }

    fn unary(&self, v: ValueId, u: Unary) -> Option<ValueId> {
        match self.def(v)? {
            (Op::Elementwise(Elementwise::Unary(w)), &[x]) if *w == u => Some(x),
            _ => None,
        }
    }
}

fn binary(op: &Op) -> Option<Binary> {
    if let Op::Elementwise(Elementwise::Binary(b)) = op { Some(*b) } else { None }
}

/// x·1, x/1, x−0, x+(−0), x¹, true ∧ x, …: but not x + 0, which turns −0 into +0.
pub fn no_op(c: &mut Canon<'_, '_>, op: &Op, operands: &[ValueId]) -> Found {
    let (Some(b), &[x, y]) = (binary(op), operands) else { return Ok(None) };
    let right = |n: Number| match b {
        Binary::Mul | Binary::Div | Binary::Pow => n.is_one(),
        Binary::Add => n.is_neutral_of_sum(),
        Binary::Sub => n.is_plus_zero(),
        Binary::Or | Binary::Xor => n == Number::Int(0),
        Binary::ShiftLeft | Binary::ShiftRight => n == Number::Int(0),
        _ => false,
    };
    if uniform(c.g(), y).is_some_and(right) && c.fits(y, x) {
        return Ok(Some(x));
    }
    let is_bool = c.g().tensor_type(x).is_some_and(|t| t.dtype == DType::Bool);
    if b == Binary::And && is_bool && uniform(c.g(), y) == Some(Number::Int(1)) && c.fits(y, x) {
        return Ok(Some(x));
    }
    let idempotent = matches!(b, Binary::Min | Binary::Max | Binary::And | Binary::Or);
    Ok((idempotent && x == y).then_some(x))
}

/// Literals stand right of what is computed, where the op does not care.
pub fn constants_last(c: &mut Canon<'_, '_>, op: &Op, operands: &[ValueId]) -> Found {
    let &[x, y] = operands else { return Ok(None) };
    let literal = |v: ValueId| uniform(c.g(), v).is_some() || c.g().as_constant(v).is_some();
    if !matches!(op, Op::Elementwise(_)) || !op.def().traits().commutative || !literal(x) || literal(y) {
        return Ok(None);
    }
    c.emit(op.clone(), &[y, x]).map(Some)
}

/// −(−x), ¬¬x, |−x|, ||x||, …
pub fn double_unary(c: &mut Canon<'_, '_>, op: &Op, operands: &[ValueId]) -> Found {
    let (Op::Elementwise(Elementwise::Unary(u)), &[x]) = (op, operands) else { return Ok(None) };
    let inner = |w: Unary| c.unary(x, w);
    match u {
        Unary::Neg | Unary::Not => Ok(inner(*u)),
        Unary::Abs | Unary::Relu | Unary::Ceil | Unary::Floor | Unary::RoundEven | Unary::Trunc | Unary::Sign
            if inner(*u).is_some() =>
        {
            Ok(Some(x))
        }
        Unary::Abs => match inner(Unary::Neg) {
            Some(y) => c.emit(Unary::Abs, &[y]).map(Some),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

/// a − (−b), a + (−b), (−a)·(−b), (−a)/(−b).
pub fn signs(c: &mut Canon<'_, '_>, op: &Op, operands: &[ValueId]) -> Found {
    let (Some(b), &[x, y]) = (binary(op), operands) else { return Ok(None) };
    let (nx, ny) = (c.unary(x, Unary::Neg), c.unary(y, Unary::Neg));
    match (b, nx, ny) {
        (Binary::Sub, _, Some(y)) => c.emit(Binary::Add, &[x, y]).map(Some),
        (Binary::Add, _, Some(y)) => c.emit(Binary::Sub, &[x, y]).map(Some),
        (Binary::Add, Some(x), _) => c.emit(Binary::Sub, &[y, x]).map(Some),
        (Binary::Mul | Binary::Div, Some(x), Some(y)) => c.emit(b, &[x, y]).map(Some),
        _ => Ok(None),
    }
}

/// Powers with a literal exponent that a cheaper op gives exactly.
pub fn power(c: &mut Canon<'_, '_>, op: &Op, operands: &[ValueId]) -> Found {
    let (Some(Binary::Pow), &[x, y]) = (binary(op), operands) else { return Ok(None) };
    let Some(n) = uniform(c.g(), y).filter(|_| c.fits(y, x)) else { return Ok(None) };
    // √ and the power differ at −0 and −∞.
    let root = |c: &Canon<'_, '_>| non_negative(c.g(), x, 0);
    match n {
        Number::Int(2) => c.emit(Binary::Mul, &[x, x]).map(Some),
        Number::Float(2.0) => c.emit(Binary::Mul, &[x, x]).map(Some),
        Number::Float(-1.0) => c.emit(Unary::Reciprocal, &[x]).map(Some),
        Number::Float(0.5) if root(c) => c.emit(Unary::Sqrt, &[x]).map(Some),
        Number::Float(-0.5) if root(c) => c.emit(Unary::Rsqrt, &[x]).map(Some),
        _ => Ok(None),
    }
}

/// Division by powers of two, whose reciprocals are exact.
pub fn divide(c: &mut Canon<'_, '_>, op: &Op, operands: &[ValueId]) -> Found {
    let (Some(Binary::Div), &[x, y]) = (binary(op), operands) else { return Ok(None) };
    let Some(t) = c.g().as_constant(y) else { return Ok(None) };
    let limit = match t.dtype() {
        DType::F16 => 14,
        DType::F32 | DType::BF16 => 126,
        DType::F64 => 1022,
        _ => return Ok(None),
    };
    let exact = |x: f64| {
        let exponent = ((x.to_bits() >> 52) & 0x7ff) as i64 - 1023;
        x.to_bits() & ((1 << 52) - 1) == 0 && exponent.abs() <= limit
    };
    let (dtype, dims) = (t.dtype(), t.dims().to_vec());
    let Some(values) = floats(c.g(), y).filter(|v| !v.is_empty() && v.iter().all(|&x| exact(x))) else {
        return Ok(None);
    };
    let inverse = rlx_ir::element::Elements::Float(values.iter().map(|x| 1.0 / x).collect());
    let inverse = Tensor::from_elements(dtype, &dims, &inverse).map_err(|e| IrError::Eval(e.to_string()))?;
    let inverse = c.rw.b.constant(inverse)?;
    c.emit(Binary::Mul, &[x, inverse]).map(Some)
}

/// Selection by a known condition, of twice the same, by a negated condition.
pub fn select(c: &mut Canon<'_, '_>, op: &Op, operands: &[ValueId]) -> Found {
    let (Op::Elementwise(Elementwise::Select), &[cond, a, b]) = (op, operands) else { return Ok(None) };
    let taken = match uniform(c.g(), cond) {
        Some(n) => Some(if n == Number::Int(0) { (b, a) } else { (a, b) }),
        None if a == b => Some((a, a)),
        None => None,
    };
    if let Some((taken, other)) = taken {
        if c.fits(cond, taken) && c.fits(other, taken) {
            return Ok(Some(taken));
        }
        return Ok(None);
    }
    match c.unary(cond, Unary::Not) {
        Some(cond) => c.emit(Elementwise::Select, &[cond, b, a]).map(Some),
        None => Ok(None),
    }
}

/// True if every value of one dtype is a value of the other.
fn holds(from: DType, to: DType) -> bool {
    let mantissa = |d: DType| match d {
        DType::F16 => Some((11, 15)),
        DType::BF16 => Some((8, 127)),
        DType::F32 => Some((24, 127)),
        DType::F64 => Some((53, 1023)),
        _ => None,
    };
    match (from.int_range(), to.int_range()) {
        (Some((lo, hi)), Some((to_lo, to_hi))) => to_lo <= lo && hi <= to_hi && to != DType::Bool,
        (Some((_, hi)), None) => mantissa(to).is_some_and(|(bits, _)| hi < 1 << bits.min(64)),
        (None, Some(_)) => false,
        (None, None) => matches!((mantissa(from), mantissa(to)), (Some((a, e)), Some((b, f))) if a <= b && e <= f),
    }
}

/// Conversions to the same dtype, and conversions after one that loses nothing.
pub fn convert(c: &mut Canon<'_, '_>, op: &Op, operands: &[ValueId]) -> Found {
    let (Op::Elementwise(Elementwise::Convert { to, .. }), &[x]) = (op, operands) else { return Ok(None) };
    if c.g().tensor_type(x).is_some_and(|t| t.dtype == *to) {
        return Ok(Some(x));
    }
    let Some((Op::Elementwise(Elementwise::Convert { to: middle, .. }), &[y])) = c.def(x) else { return Ok(None) };
    let Some(from) = c.g().tensor_type(y).map(|t| t.dtype) else { return Ok(None) };
    if from == DType::Bool && to.is_float() && middle.is_float() || holds(from, *middle) {
        return c.emit(op.clone(), &[y]).map(Some);
    }
    Ok(None)
}

/// min(max(x, lo), hi) is clamp; max(x, 0) is relu.
pub fn clamp(c: &mut Canon<'_, '_>, op: &Op, operands: &[ValueId]) -> Found {
    match (op, operands) {
        (Op::Elementwise(Elementwise::Binary(Binary::Max)), &[x, y]) => {
            match uniform(c.g(), y).filter(|_| c.fits(y, x)) {
                Some(n) if n.is_plus_zero() => c.emit(Unary::Relu, &[x]).map(Some),
                _ => Ok(None),
            }
        }
        (Op::Elementwise(Elementwise::Binary(Binary::Min)), &[x, hi]) => {
            let (scalar, fits) = (c.shape(hi).is_some_and(|s| s.is_empty()), uniform(c.g(), hi).is_some());
            if !(scalar && fits) {
                return Ok(None);
            }
            if let Some(y) = c.unary(x, Unary::Relu) {
                let lo = c.rw.b.scalar_like(y, 0.0)?;
                return c.emit(Elementwise::Clamp, &[y, lo, hi]).map(Some);
            }
            match c.def(x) {
                Some((Op::Elementwise(Elementwise::Binary(Binary::Max)), &[y, lo]))
                    if uniform(c.g(), lo).is_some() && c.shape(lo).is_some_and(|s| s.is_empty()) =>
                {
                    c.emit(Elementwise::Clamp, &[y, lo, hi]).map(Some)
                }
                _ => Ok(None),
            }
        }
        (Op::Elementwise(Elementwise::Clamp), &[x, lo, hi]) => {
            let above = matches!(uniform(c.g(), hi), Some(Number::Float(h)) if h == f64::INFINITY);
            let from_zero = uniform(c.g(), lo).is_some_and(Number::is_plus_zero);
            if above && from_zero && c.fits(lo, x) && c.fits(hi, x) {
                return c.emit(Unary::Relu, &[x]).map(Some);
            }
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// An elementwise op broadcasts by itself: an explicit broadcast of one operand to the shape of another says nothing.
pub fn implicit_broadcast(c: &mut Canon<'_, '_>, op: &Op, operands: &[ValueId]) -> Found {
    let Op::Elementwise(_) = op else { return Ok(None) };
    if operands.len() < 2 {
        return Ok(None);
    }
    for (i, &v) in operands.iter().enumerate() {
        let Some((Op::ShapeOp(ShapeOp::BroadcastTo(BroadcastTo { .. })), &[x])) = c.def(v) else { continue };
        let carried = operands.iter().enumerate().any(|(j, &o)| j != i && c.fits(v, o) && c.fits(x, o));
        if carried {
            let mut operands = operands.to_vec();
            operands[i] = x;
            return c.emit(op.clone(), &operands).map(Some);
        }
    }
    Ok(None)
}
