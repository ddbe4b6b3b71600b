//! Folding of axes to one element.

use std::borrow::Cow;

use crate::builder::Builder;
use crate::dim::Dim;
use crate::dtype::{Class, DType};
use crate::element::Elements;
use crate::error::{IrError, OpError};
use crate::eval::{for_each_row, signed_strides};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::ops::elementwise::binary;
use crate::ops::shape::known::{check_axes, settled, small_sizes};
use crate::tensor::{Tensor, Value, checked_numel};
use crate::types::{Shape, TensorType};

use super::{ReduceKind, accumulate};

impl ReduceKind {
    /// True if it folds elements of this dtype.
    pub fn takes(self, d: DType) -> bool {
        match self {
            ReduceKind::Sum | ReduceKind::Prod => d.is_float() || d.is_int() || d.is_complex(),
            ReduceKind::Min | ReduceKind::Max => {
                matches!(d.class(), Class::Float | Class::Int | Class::UInt | Class::Bool)
            }
            ReduceKind::Any | ReduceKind::All => d == DType::Bool,
        }
    }

    /// The fold of no floats.
    pub fn neutral_float(self) -> f64 {
        match self {
            ReduceKind::Sum | ReduceKind::Any => 0.0,
            ReduceKind::Prod | ReduceKind::All => 1.0,
            ReduceKind::Min => f64::INFINITY,
            ReduceKind::Max => f64::NEG_INFINITY,
        }
    }

    /// The fold of no integers of a dtype.
    pub fn neutral_int(self, d: DType) -> i128 {
        let (lo, hi) = d.int_range().unwrap_or((0, 0));
        match self {
            ReduceKind::Sum | ReduceKind::Any => 0,
            ReduceKind::Prod | ReduceKind::All => 1,
            ReduceKind::Min => hi,
            ReduceKind::Max => lo,
        }
    }
}

op! {
    /// Axes folded to one element: sum, product, smallest, largest, any or all.
    pub struct Reduce = "reduce" {
        /// What elements are folded with.
        pub kind: ReduceKind,
        /// The axes, ascending. None leaves the operand as it is.
        pub axes: Vec<usize>,
        /// Folded axes stay, with size 1.
        pub keep_dims: bool,
    }
}

/// The sizes after axes are folded: to 1, or away.
pub(crate) fn reduced<T: Clone>(dims: &[T], axes: &[usize], keep: bool, one: T) -> Vec<T> {
    let fold = |(i, d): (usize, &T)| match (axes.contains(&i), keep) {
        (false, _) => Some(d.clone()),
        (true, true) => Some(one.clone()),
        (true, false) => None,
    };
    dims.iter().enumerate().filter_map(fold).collect()
}

/// Folds values into `n` accumulators; the fold of element order is that of the operand, row-major.
fn fold<T: Copy>(
    values: &[T],
    dims: &[usize],
    axes: &[usize],
    init: T,
    f: impl Fn(T, T) -> T,
) -> Result<Vec<T>, OpError> {
    let kept = reduced(dims, axes, true, 1usize);
    let mut out = vec![init; checked_numel(&kept)?];
    let mut to = signed_strides(&kept);
    axes.iter().for_each(|&a| to[a] = 0);
    for_each_row(dims, [0, 0], [&signed_strides(dims), &to], |[from, at], len, [_, step]| {
        let Some(row) = values.get(from as usize..from as usize + len) else { return };
        if step == 0 {
            if let Some(acc) = out.get_mut(at as usize) {
                *acc = row.iter().fold(*acc, |a, &b| f(a, b));
            }
        } else if let Some(accs) = out.get_mut(at as usize..at as usize + len) {
            accs.iter_mut().zip(row).for_each(|(a, &b)| *a = f(*a, b));
        }
    });
    Ok(out)
}

impl Reduce {
    fn known(&self, cx: &InferCx<'_>, dtype: DType, shape: &Shape) -> Option<Vec<Dim>> {
        let elems = cx.elems(0)?;
        let sizes = small_sizes(shape)?;
        // Narrow integers could wrap where the dims do not.
        if !matches!(dtype, DType::I64 | DType::I32 | DType::U64 | DType::Bool) {
            return None;
        }
        let n = checked_numel(&reduced(&sizes, &self.axes, false, 1)).ok()?;
        // The extreme of nothing is no size that arithmetic should go on with.
        let init = match self.kind {
            ReduceKind::Min | ReduceKind::Max => None,
            kind => i64::try_from(kind.neutral_int(dtype)).ok().map(Dim::from),
        };
        let mut at = vec![None; elems.len()];
        let mut to = signed_strides(&reduced(&sizes, &self.axes, true, 1));
        self.axes.iter().for_each(|&a| to[a] = 0);
        let mut walk = 0;
        for_each_row(&sizes, [0], [&to], |[mut p], len, [step]| {
            for _ in 0..len {
                if let Some(slot) = at.get_mut(walk) {
                    *slot = usize::try_from(p).ok();
                }
                walk += 1;
                p += step;
            }
        });
        let mut out: Vec<Option<Dim>> = vec![None; n];
        for (d, p) in elems.iter().zip(at) {
            let acc = out.get_mut(p?)?;
            *acc = Some(match (acc.take(), self.kind) {
                (None, _) => d.clone(),
                (Some(a), ReduceKind::Sum) => a + d,
                (Some(a), ReduceKind::Prod | ReduceKind::All) => a * d,
                (Some(a), ReduceKind::Min) => Dim::min(&a, d),
                (Some(a), ReduceKind::Max | ReduceKind::Any) => Dim::max(&a, d),
            });
        }
        let out = out.into_iter().map(|d| d.or_else(|| init.clone())).collect::<Option<Vec<_>>>()?;
        settled(dtype, out)
    }
}

/// Folds axes of a tensor.
pub(crate) fn reduce(x: &Tensor, op: &Reduce, options: op::EvalOptions) -> Result<Tensor, OpError> {
    check_axes(&op.axes, x.rank())?;
    let (dims, axes, kind, dtype) = (x.dims(), &op.axes, op.kind, x.dtype());
    if !kind.takes(dtype) {
        return Err(OpError::new(format!("does not fold {dtype}")));
    }
    let narrow = accumulate::narrow(dtype, options);
    let out = reduced(dims, axes, op.keep_dims, 1);
    if narrow && dtype.is_float() && matches!(kind, ReduceKind::Sum | ReduceKind::Prod) {
        // Every float of 32 bits and fewer is an f32.
        let v: Cow<'_, [f32]> = match x.as_slice::<f32>() {
            Ok(v) => v,
            Err(_) => x.elements().to_f64().unwrap_or_default().into_iter().map(|x| x as f32).collect(),
        };
        let v = match kind {
            ReduceKind::Sum => fold(&v, dims, axes, 0.0, |a, b| a + b)?,
            _ => fold(&v, dims, axes, 1.0, |a, b| a * b)?,
        };
        return Ok(Tensor::from_elements(dtype, &out, &Elements::Float(v.into_iter().map(f64::from).collect()))?);
    }
    let elements = match x.elements() {
        Elements::Float(v) => {
            let init = kind.neutral_float();
            Elements::Float(match kind {
                ReduceKind::Min => fold(&v, dims, axes, init, binary::min)?,
                ReduceKind::Max => fold(&v, dims, axes, init, binary::max)?,
                ReduceKind::Prod => fold(&v, dims, axes, init, |a, b| a * b)?,
                _ => fold(&v, dims, axes, init, |a, b| a + b)?,
            })
        }
        Elements::Int(v) => {
            let init = kind.neutral_int(dtype);
            Elements::Int(match kind {
                ReduceKind::Sum => fold(&v, dims, axes, init, i128::wrapping_add)?,
                ReduceKind::Prod | ReduceKind::All => fold(&v, dims, axes, init, i128::wrapping_mul)?,
                ReduceKind::Min => fold(&v, dims, axes, init, i128::min)?,
                ReduceKind::Max | ReduceKind::Any => fold(&v, dims, axes, init, i128::max)?,
            })
        }
        Elements::Complex(v) => Elements::Complex(match kind {
            ReduceKind::Prod => fold(&v, dims, axes, [1.0, 0.0], accumulate::complex_mul(narrow))?,
            _ => {
                let add = accumulate::add(narrow);
                fold(&v, dims, axes, [0.0; 2], |a, b| [add(a[0], b[0]), add(a[1], b[1])])?
            }
        }),
        Elements::Str(_) => return Err(OpError::new("does not fold strings")),
    };
    Ok(Tensor::from_elements(dtype, &out, &elements)?)
}

impl OpRules for Reduce {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        let t = cx.tensor(0)?;
        if !self.kind.takes(t.dtype) {
            return Err(
                OpError::new(format!("{} does not fold {}", self.kind.name(), t.dtype)).hint("insert a `convert`")
            );
        }
        check_axes(&self.axes, t.shape.rank())?;
        let shape = Shape::from(reduced(t.shape.dims(), &self.axes, self.keep_dims, Dim::ONE));
        let elems = self.known(cx, t.dtype, &t.shape);
        cx.result_elems(t.dtype, shape, elems);
        Ok(())
    }

    fn work(&self, operands: &[TensorType], _results: &[TensorType]) -> Dim {
        operands.first().map_or(Dim::ZERO, |t| t.shape.numel())
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        Ok(vec![reduce(arg(args, 0)?, self, cx.options)?.into()])
    }
}

impl Builder {
    /// Axes (which may count from the end) folded to one element; `x` itself if there are none.
    pub fn reduce(&mut self, x: ValueId, kind: ReduceKind, axes: &[i64], keep_dims: bool) -> Result<ValueId, IrError> {
        let axes = self.axes("reduce", x, axes)?;
        if axes.is_empty() {
            return Ok(x);
        }
        self.op1(Reduce { kind, axes, keep_dims }, &[x])
    }
}
