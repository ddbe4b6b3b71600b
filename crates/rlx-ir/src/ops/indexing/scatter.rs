//! Writing at indices.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::dtype::{Class, DType};
use crate::element::Elements;
use crate::error::{IrError, OpError};
use crate::eval::{Raw, index_elements};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::ops::elementwise::binary;
use crate::ops::reduction::accumulate;
use crate::ops::shape::known::small_sizes;
use crate::tensor::{Tensor, Value};
use crate::types::{Shape, TensorType};

use super::gather_elements;
use super::index::{Tuples, expect_indices, tuple_len};

crate::attr_enum! {
    /// What a written element does with the one that is there.
    pub enum Combiner {
        /// Replaces it; of several written to one place the last, in row-major order of the updates, stays.
        Set = "set",
        /// Is added to it.
        Add = "add",
        /// Is multiplied with it.
        Mul = "mul",
        /// The smaller stays.
        Min = "min",
        /// The larger stays.
        Max = "max",
    }
}

op! {
    /// The operand with updates written, each where its index says along an axis and where it stands itself along the others.
    pub struct ScatterElements = "scatter_elements" {
        /// The axis.
        pub axis: usize,
        /// What an update does with the element that is there.
        pub combiner: Combiner,
    }
}

op! {
    /// The operand with slices of updates written at the index tuples along the last axis of the indices.
    pub struct ScatterNd = "scatter_nd" {
        /// What an update does with the element that is there.
        pub combiner: Combiner,
    }
}

impl Combiner {
    fn takes(self, d: DType) -> bool {
        match self {
            Combiner::Set => true,
            Combiner::Add | Combiner::Mul => d.is_float() || d.is_int() || d.is_complex(),
            Combiner::Min | Combiner::Max => matches!(d.class(), Class::Float | Class::Int | Class::UInt | Class::Bool),
        }
    }

    fn check(self, d: DType) -> Result<(), OpError> {
        if self.takes(d) { Ok(()) } else { Err(OpError::new(format!("{} does not combine {d}", self.name()))) }
    }

    /// Writes update `j` at `at[j]`, for all j in order. Floats of 32 bits and fewer accumulate in f32 (f64 on request) and are
    /// rounded once.
    fn write(self, x: &Tensor, updates: &Tensor, at: &[usize], options: op::EvalOptions) -> Result<Tensor, OpError> {
        if x.dtype() != updates.dtype() || at.len() != updates.numel() {
            return Err(OpError::new(format!("updates {updates:?} do not fit {} places in {x:?}", at.len())));
        }
        self.check(x.dtype())?;
        if self == Combiner::Set {
            let (mut out, from) = (Raw::of(x), Raw::of(updates));
            at.iter().enumerate().try_for_each(|(j, &p)| out.set(p, &from, j))?;
            return out.finish(x.dims());
        }
        let narrow = accumulate::narrow(x.dtype(), options);
        let (add, mul) = (accumulate::add(narrow), accumulate::mul(narrow));
        let elements = match (x.elements(), updates.elements()) {
            (Elements::Float(a), Elements::Float(b)) => Elements::Float(match self {
                Combiner::Add => fold(a, &b, at, add)?,
                Combiner::Mul => fold(a, &b, at, mul)?,
                Combiner::Min => fold(a, &b, at, binary::min)?,
                _ => fold(a, &b, at, binary::max)?,
            }),
            (Elements::Int(a), Elements::Int(b)) => Elements::Int(match self {
                Combiner::Add => fold(a, &b, at, i128::wrapping_add)?,
                Combiner::Mul => fold(a, &b, at, i128::wrapping_mul)?,
                Combiner::Min => fold(a, &b, at, i128::min)?,
                _ => fold(a, &b, at, i128::max)?,
            }),
            (Elements::Complex(a), Elements::Complex(b)) => Elements::Complex(match self {
                Combiner::Mul => fold(a, &b, at, accumulate::complex_mul(narrow))?,
                _ => fold(a, &b, at, |a, b| [add(a[0], b[0]), add(a[1], b[1])])?,
            }),
            _ => return Err(OpError::new(format!("{} does not combine {}", self.name(), x.dtype()))),
        };
        Ok(Tensor::from_elements(x.dtype(), x.dims(), &elements)?)
    }

    /// Known elements after known updates; combining is left to run time.
    fn known(self, cx: &InferCx<'_>, at: impl FnOnce(&[i64]) -> Option<Vec<usize>>) -> Option<Vec<Dim>> {
        if self != Combiner::Set {
            return None;
        }
        let mut out = cx.elems(0)?.to_vec();
        let indices = cx.elems(1)?.iter().map(Dim::as_const).collect::<Option<Vec<_>>>()?;
        let updates = cx.elems(2)?;
        for (p, u) in at(&indices)?.into_iter().zip(updates) {
            *out.get_mut(p)? = u.clone();
        }
        Some(out)
    }
}

fn fold<T: Copy>(mut a: Vec<T>, b: &[T], at: &[usize], f: impl Fn(T, T) -> T) -> Result<Vec<T>, OpError> {
    for (&p, &u) in at.iter().zip(b) {
        let slot = a.get_mut(p).ok_or_else(|| OpError::new(format!("place {p} is outside the operand")))?;
        *slot = f(*slot, u);
    }
    Ok(a)
}

impl OpRules for ScatterElements {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(3)?;
        let (t, indices, updates) = (cx.tensor(0)?, cx.shape(1)?, cx.tensor(2)?);
        expect_indices(cx, 1)?;
        same_dtype(t.dtype, updates.dtype)?;
        self.combiner.check(t.dtype)?;
        gather_elements::fit(cx, self.axis, &t.shape, indices)?;
        cx.require_same_shape(indices, &updates.shape, "indices and updates")?;
        let elems = self.combiner.known(cx, |i| {
            gather_elements::positions(self.axis, &small_sizes(&t.shape)?, &small_sizes(indices)?, i).ok()
        });
        cx.result_elems(t.dtype, t.shape.clone(), elems);
        Ok(())
    }

    fn work(&self, operands: &[TensorType], _results: &[TensorType]) -> Dim {
        operands.get(2).map_or(Dim::ZERO, |t| t.shape.numel())
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let (x, indices, updates) = (arg(args, 0)?, arg(args, 1)?, arg(args, 2)?);
        let at = gather_elements::positions(self.axis, x.dims(), indices.dims(), &index_elements(indices)?)?;
        Ok(vec![self.combiner.write(x, updates, &at, cx.options)?.into()])
    }
}

/// Positions of all elements of the tuples' slices.
fn slices(x: &[usize], dims: &[usize], indices: &[i64]) -> Result<Vec<usize>, OpError> {
    let tuples = Tuples::new(x, dims, 0)?;
    Ok(tuples.positions(indices)?.into_iter().flat_map(|p| p..p + tuples.slice).collect())
}

impl OpRules for ScatterNd {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(3)?;
        let (t, indices, updates) = (cx.tensor(0)?, cx.shape(1)?, cx.tensor(2)?);
        expect_indices(cx, 1)?;
        same_dtype(t.dtype, updates.dtype)?;
        self.combiner.check(t.dtype)?;
        let k = tuple_len(&t.shape, indices, 0)?;
        let want: Shape = indices.iter().take(indices.rank() - 1).chain(t.shape.iter().skip(k)).cloned().collect();
        cx.require_same_shape(&want, &updates.shape, "updates")?;
        let elems = self.combiner.known(cx, |i| slices(&small_sizes(&t.shape)?, &small_sizes(indices)?, i).ok());
        cx.result_elems(t.dtype, t.shape.clone(), elems);
        Ok(())
    }

    fn work(&self, operands: &[TensorType], _results: &[TensorType]) -> Dim {
        operands.get(2).map_or(Dim::ZERO, |t| t.shape.numel())
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let (x, indices, updates) = (arg(args, 0)?, arg(args, 1)?, arg(args, 2)?);
        let at = slices(x.dims(), indices.dims(), &index_elements(indices)?)?;
        Ok(vec![self.combiner.write(x, updates, &at, cx.options)?.into()])
    }
}

fn same_dtype(x: DType, updates: DType) -> Result<(), OpError> {
    if x == updates {
        return Ok(());
    }
    Err(OpError::new(format!("updates must have the operand's dtype {x}, got {updates}")).hint("insert a `convert`"))
}

impl Builder {
    /// `x` with updates written at indices along an axis, which may count from the end.
    pub fn scatter_elements(
        &mut self,
        x: ValueId,
        indices: ValueId,
        updates: ValueId,
        axis: i64,
        combiner: Combiner,
    ) -> Result<ValueId, IrError> {
        let axis = self.axis("scatter_elements", x, axis)?;
        self.op1(ScatterElements { axis, combiner }, &[x, indices, updates])
    }

    /// `x` with slices of updates written at index tuples.
    pub fn scatter_nd(
        &mut self,
        x: ValueId,
        indices: ValueId,
        updates: ValueId,
        combiner: Combiner,
    ) -> Result<ValueId, IrError> {
        self.op1(ScatterNd { combiner }, &[x, indices, updates])
    }
}
