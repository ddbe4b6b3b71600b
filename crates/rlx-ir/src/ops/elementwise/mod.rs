//! Elementwise ops: scalar functions applied to each element, operands broadcast as NumPy does (aligned at the last axis).
//!
//! A function is one line of a table in [`unary`], [`binary`] or [`compare`]: name, the dtypes it takes, and its value. LIR's scalar
//! programs are made of these same ops, so that a kernel and the evaluator mean the same thing by a name.
//!
//! Rules that hold for all: integer arithmetic wraps; floats are computed as if in infinite precision and rounded once to the dtype
//! (kernels state their error in ULP); NaN in gives NaN out, also for `min`, `max` and `clamp`.

pub mod binary;
pub mod compare;
mod infer;
pub mod unary;

use serde::{Deserialize, Serialize};

use crate::attr::{AttrReader, AttrWriter};
use crate::builder::Builder;
use crate::dim::Dim;
use crate::dtype::{Class, DType};
use crate::element::{float_to_int, round_float, wrap_int};
use crate::error::{IrError, OpError};
use crate::graph::ValueId;
use crate::op::{EvalCx, InferCx, Op, OpDef, OpFamily, OpTraits};
use crate::tensor::Value;

pub use binary::Binary;
pub use compare::Compare;
pub use unary::Unary;

/// A scalar in its widest form: what a function of this family takes and gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A float of any width.
    F(f64),
    /// An integer of any width; booleans are 0 and 1.
    I(i128),
    /// A complex number.
    C([f64; 2]),
}

/// Which dtypes a function takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Floats.
    Float,
    /// Floats and integers.
    Number,
    /// Floats, integers and complex numbers.
    Ring,
    /// Integers.
    Int,
    /// Booleans.
    Bool,
    /// Integers and booleans.
    Bits,
    /// Everything but strings.
    Any,
}

impl Domain {
    /// True if `d` is of the domain.
    pub fn has(self, d: DType) -> bool {
        let c = d.class();
        match self {
            Domain::Float => c == Class::Float,
            Domain::Number => c == Class::Float || d.is_int(),
            Domain::Ring => c == Class::Float || d.is_int() || c == Class::Complex,
            Domain::Int => d.is_int(),
            Domain::Bool => c == Class::Bool,
            Domain::Bits => d.is_int() || c == Class::Bool,
            Domain::Any => c != Class::Str,
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Domain::Float => "floats",
            Domain::Number => "floats or integers",
            Domain::Ring => "floats, integers or complex numbers",
            Domain::Int => "integers",
            Domain::Bool => "booleans",
            Domain::Bits => "integers or booleans",
            Domain::Any => "anything but strings",
        }
    }
}

/// An elementwise op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Elementwise {
    /// One operand; result of its dtype, or booleans for the predicates.
    Unary(Unary),
    /// Two operands of one dtype and result of it.
    Binary(Binary),
    /// Two operands of one dtype, result booleans.
    Compare(Compare),
    /// `select(c, a, b)`: a where c, else b.
    Select,
    /// `clamp(x, lo, hi)`: `min(max(x, lo), hi)`, so with lo > hi it is hi.
    Clamp,
    /// Conversion between any dtypes but strings. Floats round to nearest even; out-of-range rules are those of
    /// [`float_to_int`] and [`wrap_int`]; `saturate` is for the 8-bit and 4-bit floats: overflow gives the largest value instead of infinity or NaN.
    Convert {
        /// Dtype of the result.
        to: DType,
        /// Whether overflow of small floats saturates.
        saturate: bool,
    },
}

impl Elementwise {
    /// Number of operands.
    pub fn arity(&self) -> usize {
        match self {
            Elementwise::Unary(_) | Elementwise::Convert { .. } => 1,
            Elementwise::Binary(_) | Elementwise::Compare(_) => 2,
            Elementwise::Select | Elementwise::Clamp => 3,
        }
    }

    /// The dtype of the result from those of the operands.
    pub fn result_dtype(&self, args: &[DType]) -> Result<DType, OpError> {
        if args.len() != self.arity() {
            return Err(OpError::new(format!("takes {} operands, got {}", self.arity(), args.len())));
        }
        let check = |d: DType, domain: Domain| {
            if domain.has(d) {
                Ok(())
            } else {
                Err(OpError::new(format!("takes {}, got {d}", domain.describe())).hint("insert a `convert`"))
            }
        };
        let same = |a: DType, b: DType| {
            if a == b {
                Ok(())
            } else {
                Err(OpError::new(format!("operands must share a dtype, got {a} and {b}")).hint("insert a `convert`"))
            }
        };
        match (self, args) {
            (Elementwise::Unary(u), &[a]) => {
                check(a, u.domain())?;
                Ok(if u.is_predicate() { DType::Bool } else { a })
            }
            (Elementwise::Binary(op), &[a, b]) => {
                same(a, b)?;
                check(a, op.domain())?;
                Ok(a)
            }
            (Elementwise::Compare(op), &[a, b]) => {
                same(a, b)?;
                check(a, op.domain())?;
                Ok(DType::Bool)
            }
            (Elementwise::Select, &[c, a, b]) => {
                if c != DType::Bool {
                    return Err(OpError::new(format!("the condition must be bool, got {c}")).hint("insert a `convert`"));
                }
                same(a, b)?;
                Ok(a)
            }
            (Elementwise::Clamp, &[x, lo, hi]) => {
                same(x, lo)?;
                same(x, hi)?;
                check(x, Domain::Number)?;
                Ok(x)
            }
            (Elementwise::Convert { to, .. }, &[a]) => {
                check(a, Domain::Any)?;
                check(*to, Domain::Any)?;
                Ok(*to)
            }
            _ => Err(OpError::new("wrong number of operands")),
        }
    }

    /// The function's value on scalars of dtypes `args`, before rounding to the result's dtype. `None` where the table has no value
    /// for this class of scalar (which [`result_dtype`](Self::result_dtype) has excluded).
    pub fn value(&self, dtypes: &[DType], args: &[Scalar]) -> Option<Scalar> {
        match (self, args) {
            (Elementwise::Unary(u), &[a]) => u.value(dtypes.first().copied()?, a),
            (Elementwise::Binary(b), &[x, y]) => b.value(dtypes.first().copied()?, x, y),
            (Elementwise::Compare(c), &[x, y]) => c.value(x, y).map(|r| Scalar::I(i128::from(r))),
            (Elementwise::Select, &[Scalar::I(c), a, b]) => Some(if c != 0 { a } else { b }),
            (Elementwise::Clamp, &[x, lo, hi]) => {
                let d = dtypes.first().copied()?;
                Binary::Min.value(d, Binary::Max.value(d, x, lo)?, hi)
            }
            (Elementwise::Convert { to, saturate }, &[a]) => convert(dtypes.first().copied()?, *to, *saturate, a),
            _ => None,
        }
    }

    /// [`value`](Self::value) rounded to the result's dtype.
    pub fn apply(&self, dtypes: &[DType], out: DType, args: &[Scalar]) -> Option<Scalar> {
        self.value(dtypes, args).map(|v| match v {
            Scalar::F(x) if matches!(self, Elementwise::Convert { .. }) => Scalar::F(x),
            Scalar::F(x) => Scalar::F(round_float(out, x)),
            Scalar::I(x) => Scalar::I(wrap_int(out, x)),
            Scalar::C(c) if out == DType::C64 => Scalar::C(c.map(|x| f64::from(x as f32))),
            Scalar::C(c) => Scalar::C(c),
        })
    }
}

/// Conversion of one scalar; the result is rounded to `to`.
fn convert(_from: DType, to: DType, saturate: bool, a: Scalar) -> Option<Scalar> {
    let float = |x: f64| {
        if to.bits() <= 8 {
            crate::element::decode_small_float(to, crate::element::encode_small_float(to, x, saturate))
        } else {
            round_float(to, x)
        }
    };
    Some(match (a, to.class()) {
        (Scalar::F(x), Class::Float) => Scalar::F(float(x)),
        (Scalar::F(x), Class::Complex) => Scalar::C([round_float(real_part(to), x), 0.0]),
        (Scalar::F(x), _) => Scalar::I(float_to_int(to, x)),
        // An integer of up to 64 bits is rounded once: i128 to f32 directly, not through f64.
        (Scalar::I(x), Class::Float) => Scalar::F(if to == DType::F32 { f64::from(x as f32) } else { float(x as f64) }),
        (Scalar::I(x), Class::Complex) => Scalar::C([round_float(real_part(to), x as f64), 0.0]),
        (Scalar::I(x), _) => Scalar::I(wrap_int(to, x)),
        (Scalar::C(c), Class::Complex) => Scalar::C(c.map(|x| round_float(real_part(to), x))),
        (Scalar::C(c), Class::Float) => Scalar::F(float(c[0])),
        (Scalar::C(c), Class::Bool) => Scalar::I(i128::from(c != [0.0, 0.0])),
        (Scalar::C(c), _) => Scalar::I(float_to_int(to, c[0])),
    })
}

fn real_part(complex: DType) -> DType {
    if complex == DType::C64 { DType::F32 } else { DType::F64 }
}

impl OpFamily for Elementwise {
    fn docs() -> Vec<(&'static str, &'static str)> {
        let others = [Elementwise::Select, Elementwise::Clamp, Elementwise::Convert { to: DType::F32, saturate: true }];
        let all = (Unary::ALL.iter().map(|&u| Elementwise::Unary(u)))
            .chain(Binary::ALL.iter().map(|&b| Elementwise::Binary(b)))
            .chain(Compare::ALL.iter().map(|&c| Elementwise::Compare(c)))
            .chain(others);
        all.map(|e| (OpDef::name(&e), OpDef::doc(&e))).collect()
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<Result<Self, String>> {
        let find = Unary::from_name(name)
            .map(Elementwise::Unary)
            .or_else(|| Binary::from_name(name).map(Elementwise::Binary))
            .or_else(|| Compare::from_name(name).map(Elementwise::Compare));
        if let Some(op) = find {
            return Some(Ok(op));
        }
        match name {
            "select" => Some(Ok(Elementwise::Select)),
            "clamp" => Some(Ok(Elementwise::Clamp)),
            "convert" => {
                Some(attrs.take("to").and_then(|to| Ok(Elementwise::Convert { to, saturate: attrs.take("saturate")? })))
            }
            _ => None,
        }
    }
}

impl Elementwise {
    /// The op's rules.
    pub fn def(&self) -> &dyn OpDef {
        self
    }
}

impl OpDef for Elementwise {
    fn name(&self) -> &'static str {
        match self {
            Elementwise::Unary(u) => u.name(),
            Elementwise::Binary(b) => b.name(),
            Elementwise::Compare(c) => c.name(),
            Elementwise::Select => "select",
            Elementwise::Clamp => "clamp",
            Elementwise::Convert { .. } => "convert",
        }
    }

    fn doc(&self) -> &'static str {
        match self {
            Elementwise::Unary(u) => u.doc(),
            Elementwise::Binary(b) => b.doc(),
            Elementwise::Compare(c) => c.doc(),
            Elementwise::Select => "The second operand where the first is true, else the third.",
            Elementwise::Clamp => "min(max(x, lo), hi).",
            Elementwise::Convert { .. } => "Conversion to another dtype.",
        }
    }

    fn attrs(&self, out: &mut AttrWriter) {
        if let Elementwise::Convert { to, saturate } = self {
            out.put("to", to);
            out.put("saturate", saturate);
        }
    }

    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        infer::infer(self, cx)
    }

    fn eval(&self, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        crate::eval::elementwise(self, args)
    }

    fn traits(&self) -> OpTraits {
        let commutative = match self {
            Elementwise::Binary(b) => b.commutative(),
            Elementwise::Compare(c) => matches!(c, Compare::Eq | Compare::Ne),
            _ => false,
        };
        OpTraits { commutative, ..OpTraits::PURE }
    }

    fn map_dims(&self, _f: &mut dyn FnMut(&Dim) -> Dim) -> Op {
        (*self).into()
    }
}

impl From<Elementwise> for Op {
    fn from(e: Elementwise) -> Self {
        Op::Elementwise(e)
    }
}

impl From<Unary> for Op {
    fn from(e: Unary) -> Self {
        Op::Elementwise(Elementwise::Unary(e))
    }
}

impl From<Binary> for Op {
    fn from(e: Binary) -> Self {
        Op::Elementwise(Elementwise::Binary(e))
    }
}

impl From<Compare> for Op {
    fn from(e: Compare) -> Self {
        Op::Elementwise(Elementwise::Compare(e))
    }
}

impl Builder {
    /// `a` where `cond`, else `b`; all three broadcast.
    pub fn select(&mut self, cond: ValueId, a: ValueId, b: ValueId) -> Result<ValueId, IrError> {
        self.op1(Elementwise::Select, &[cond, a, b])
    }

    /// `min(max(x, lo), hi)`.
    pub fn clamp(&mut self, x: ValueId, lo: ValueId, hi: ValueId) -> Result<ValueId, IrError> {
        self.op1(Elementwise::Clamp, &[x, lo, hi])
    }

    /// Conversion to a dtype; the value itself if it has it already.
    pub fn convert(&mut self, x: ValueId, to: DType) -> Result<ValueId, IrError> {
        if self.dtype(x)? == to {
            return Ok(x);
        }
        self.op1(Elementwise::Convert { to, saturate: true }, &[x])
    }
}
