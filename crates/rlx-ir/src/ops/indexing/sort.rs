//! Order along an axis.

use std::cmp::Ordering;

use crate::builder::Builder;
use crate::dim::{Constraint, Dim};
use crate::dtype::{Class, DType};
use crate::element::Elements;
use crate::error::{IrError, OpError};
use crate::eval::{AroundAxis, take_linear};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::ops::shape::known::check_axis;
use crate::tensor::{Tensor, Value, checked_numel};
use crate::types::Shape;

op! {
    /// Lines along an axis in order, and where each element stood (`i64`). Equal elements keep their order, whichever the direction;
    /// NaN is larger than every number, −0 equal to +0.
    pub struct Sort = "sort" {
        /// The axis.
        pub axis: usize,
        /// From the largest down.
        pub descending: bool,
    }
}

op! {
    /// The `k` largest or smallest elements along an axis, and where they stand (`i64`). In order whether asked for or not; of equal
    /// elements the one with the lower index comes first. NaN is larger than every number.
    pub struct TopK = "top_k" {
        /// How many.
        pub k: Dim,
        /// The axis.
        pub axis: usize,
        /// The largest instead of the smallest.
        pub largest: bool,
        /// The result's order matters to its users.
        pub sorted: bool,
    }
}

fn check_dtype(d: DType) -> Result<(), OpError> {
    if matches!(d.class(), Class::Float | Class::Int | Class::UInt | Class::Bool) {
        return Ok(());
    }
    Err(OpError::new(format!("does not order {d}")))
}

/// NaN above all, zeros equal.
fn order(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// The first `k` of each line in order: their indices along the axis and their linear positions, laid out `[outer, k, inner]`.
fn first_in_order(
    x: &Tensor,
    around: AroundAxis,
    k: usize,
    descending: bool,
) -> Result<(Vec<i64>, Vec<usize>), OpError> {
    let elements = x.elements();
    let compare: Box<dyn Fn(usize, usize) -> Ordering> = match &elements {
        Elements::Float(v) => Box::new(|a, b| order(v[a], v[b])),
        Elements::Int(v) => Box::new(|a, b| v[a].cmp(&v[b])),
        _ => return Err(OpError::new(format!("does not order {}", x.dtype()))),
    };
    let n = around.outer * k * around.inner;
    let (mut indices, mut positions) = (vec![0; n], vec![0; n]);
    let mut line: Vec<usize> = Vec::with_capacity(around.size);
    around.for_each_line(|first| {
        line.clear();
        line.extend(0..around.size);
        let at = |k: usize| first + k * around.inner;
        line.sort_by(|&a, &b| {
            let by = compare(at(a), at(b));
            if descending { by.reverse() } else { by }
        });
        let (o, i) = (first / (around.size * around.inner), first % around.inner);
        for (rank, &from) in line.iter().take(k).enumerate() {
            let to = (o * k + rank) * around.inner + i;
            (indices[to], positions[to]) = (from as i64, at(from));
        }
    });
    Ok((indices, positions))
}

fn ordered(x: &Tensor, axis: usize, k: usize, descending: bool) -> Result<Vec<Value>, OpError> {
    let around = AroundAxis::new(x.dims(), axis)?;
    if k > around.size {
        return Err(OpError::new(format!("k is {k}, but axis {axis} has {} elements", around.size)));
    }
    let mut dims = x.dims().to_vec();
    dims[axis] = k;
    checked_numel(&dims)?;
    let (indices, positions) = first_in_order(x, around, k, descending)?;
    Ok(vec![take_linear(x, &dims, &positions)?.into(), Tensor::from_slice(&dims, &indices)?.into()])
}

impl OpRules for Sort {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        let t = cx.tensor(0)?;
        check_axis(self.axis, t.shape.rank())?;
        check_dtype(t.dtype)?;
        cx.result(t.dtype, t.shape.clone());
        cx.result(DType::I64, t.shape.clone());
        Ok(())
    }

    fn eval(&self, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = arg(args, 0)?;
        check_axis(self.axis, x.rank())?;
        ordered(x, self.axis, x.dims()[self.axis], self.descending)
    }
}

impl OpRules for TopK {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        let t = cx.tensor(0)?;
        check_axis(self.axis, t.shape.rank())?;
        check_dtype(t.dtype)?;
        cx.require(Constraint::Le(Dim::ZERO, self.k.clone()), "k")?;
        cx.require(Constraint::Le(self.k.clone(), t.shape[self.axis].clone()), "k and the axis")?;
        let mut dims = t.shape.dims().to_vec();
        dims[self.axis] = self.k.clone();
        let shape = Shape::from(dims);
        cx.result(t.dtype, shape.clone());
        cx.result(DType::I64, shape);
        Ok(())
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        ordered(arg(args, 0)?, self.axis, cx.size(&self.k)?, self.largest)
    }
}

impl Builder {
    /// Lines along an axis in order, and where each element stood.
    pub fn sort(&mut self, x: ValueId, axis: i64, descending: bool) -> Result<(ValueId, ValueId), IrError> {
        let axis = self.axis("sort", x, axis)?;
        self.pair(Sort { axis, descending }, x)
    }

    /// The `k` largest or smallest elements along an axis, and where they stand.
    pub fn top_k(
        &mut self,
        x: ValueId,
        k: impl Into<Dim>,
        axis: i64,
        largest: bool,
        sorted: bool,
    ) -> Result<(ValueId, ValueId), IrError> {
        let axis = self.axis("top_k", x, axis)?;
        self.pair(TopK { k: k.into(), axis, largest, sorted }, x)
    }

    fn pair(&mut self, op: impl Into<crate::Op>, x: ValueId) -> Result<(ValueId, ValueId), IrError> {
        let op = op.into();
        let name = op.name();
        match self.op(op, &[x])?.as_slice() {
            &[values, indices] => Ok((values, indices)),
            _ => Err(self.refuse(name, &[x], OpError::new("must have two results"))),
        }
    }
}
