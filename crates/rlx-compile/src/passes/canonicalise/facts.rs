//! What rules ask of values.

use rlx_ir::element::Elements;
use rlx_ir::ops::elementwise::{Binary, Elementwise, Unary};
use rlx_ir::ops::reduction::ReduceKind;
use rlx_ir::ops::{Reduction, ShapeOp};
use rlx_ir::{Dim, Graph, Op, Shape, ValueId};

/// A scalar that all elements of a literal are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A float; zeros keep their sign.
    Float(f64),
    /// An integer or boolean.
    Int(i128),
}

impl Number {
    /// True for +0 or the integer 0.
    pub fn is_plus_zero(self) -> bool {
        match self {
            Number::Float(x) => x == 0.0 && x.is_sign_positive(),
            Number::Int(i) => i == 0,
        }
    }

    /// True for −0 or the integer 0: what added changes nothing.
    pub fn is_neutral_of_sum(self) -> bool {
        match self {
            Number::Float(x) => x == 0.0 && x.is_sign_negative(),
            Number::Int(i) => i == 0,
        }
    }

    /// True for 1.
    pub fn is_one(self) -> bool {
        matches!(self, Number::Int(1)) || self == Number::Float(1.0)
    }
}

/// The number that every element of a literal is, through broadcasts and reshapes.
pub fn uniform(g: &Graph, mut v: ValueId) -> Option<Number> {
    for _ in 0..8 {
        let (_, node) = g.def_node(v)?;
        match &node.op {
            Op::ShapeOp(ShapeOp::BroadcastTo(_) | ShapeOp::Reshape(_)) => v = *node.operands.first()?,
            _ => break,
        }
    }
    let t = g.as_constant(v)?;
    if t.numel() == 0 || t.numel() > 1 << 16 {
        return None;
    }
    match t.elements() {
        Elements::Float(v) => {
            let first = *v.first()?;
            v.iter().all(|x| x.to_bits() == first.to_bits()).then_some(Number::Float(first))
        }
        Elements::Int(v) => {
            let first = *v.first()?;
            v.iter().all(|&x| x == first).then_some(Number::Int(first))
        }
        _ => None,
    }
}

/// All elements of a float literal.
pub fn floats(g: &Graph, v: ValueId) -> Option<Vec<f64>> {
    match g.as_constant(v)?.elements() {
        Elements::Float(v) => Some(v),
        _ => None,
    }
}

/// True if broadcasting `small` with `to` gives `to`, whatever the symbols are.
pub fn broadcasts_within(small: &Shape, to: &Shape) -> bool {
    small.rank() <= to.rank() && small.iter().rev().zip(to.iter().rev()).all(|(a, b)| *a == Dim::ONE || a == b)
}

/// True if no element can be below zero or −0; NaN may be.
pub fn non_negative(g: &Graph, v: ValueId, depth: usize) -> bool {
    let Some((_, node)) = g.def_node(v) else { return false };
    if depth > 6 {
        return false;
    }
    let o = |i: usize| node.operands.get(i).is_some_and(|&v| non_negative(g, v, depth + 1));
    match &node.op {
        Op::ShapeOp(ShapeOp::Constant(c)) => match c.value.elements() {
            Elements::Float(v) => v.iter().all(|x| x.is_sign_positive() || x.is_nan()),
            e => e.ints().is_some_and(|v| v.iter().all(|&x| x >= 0)),
        },
        Op::ShapeOp(ShapeOp::Reshape(_) | ShapeOp::BroadcastTo(_) | ShapeOp::Transpose(_) | ShapeOp::Slice(_)) => o(0),
        Op::Elementwise(Elementwise::Unary(u)) => match u {
            Unary::Abs | Unary::Exp | Unary::Relu | Unary::Sigmoid | Unary::Softplus => true,
            Unary::Sqrt | Unary::Rsqrt | Unary::Reciprocal => o(0),
            _ => false,
        },
        Op::Elementwise(Elementwise::Binary(b)) => match b {
            Binary::Mul if node.operands.first() == node.operands.get(1) => true,
            Binary::Add | Binary::Mul | Binary::Div | Binary::Min => o(0) && o(1),
            Binary::Max => o(0) || o(1),
            _ => false,
        },
        Op::Reduction(Reduction::Reduce(r)) => {
            matches!(r.kind, ReduceKind::Sum | ReduceKind::Prod | ReduceKind::Max | ReduceKind::Min) && {
                // The neutral element of an empty maximum is −∞.
                (r.kind != ReduceKind::Max) && o(0)
            }
        }
        _ => false,
    }
}
