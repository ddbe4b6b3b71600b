//! Pooling.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::element::Elements;
use crate::error::{IrError, OpError};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::ops::elementwise::binary;
use crate::tensor::{Tensor, Value, checked_numel};
use crate::types::TensorType;

use super::window::{Placed, Windows, for_each_cell};
use super::{ReduceKind, WindowKind, accumulate};

op! {
    /// Windows over the last axes folded to one element each (pooling). Padding is neutral; a mean counts it if asked to, but never
    /// the part of a window that hangs over the padding's end. A mean of no cell is 0.
    pub struct ReduceWindow = "reduce_window" {
        /// What a window is folded with.
        pub kind: WindowKind,
        /// Taps per window axis.
        pub window: Vec<i64>,
        /// Steps between windows.
        pub strides: Vec<i64>,
        /// Steps between the taps of a window.
        pub dilations: Vec<i64>,
        /// Padding before each axis; negative crops.
        pub pad_low: Vec<Dim>,
        /// Padding after each axis; negative crops.
        pub pad_high: Vec<Dim>,
        /// A mean divides by the taps inside input and padding instead of those inside the input.
        pub count_include_pad: bool,
        /// A last window may hang over the end, unless it would start beyond the input.
        pub ceil: bool,
    }
}

op! {
    /// The largest element of each window over the last axes, and where it stands (`i64`, flat over the whole operand; −1 for a window
    /// of nothing but padding). NaN is the largest; of equal elements the first is named.
    pub struct MaxPoolIndices = "max_pool_with_indices" {
        /// Taps per window axis.
        pub window: Vec<i64>,
        /// Steps between windows.
        pub strides: Vec<i64>,
        /// Steps between the taps of a window.
        pub dilations: Vec<i64>,
        /// Padding before each axis; negative crops.
        pub pad_low: Vec<Dim>,
        /// Padding after each axis; negative crops.
        pub pad_high: Vec<Dim>,
        /// A last window may hang over the end, unless it would start beyond the input.
        pub ceil: bool,
        /// Positions inside a plane of window axes are counted with the first axis fastest.
        pub column_major: bool,
    }
}

impl ReduceWindow {
    /// Windows side by side in steps of 1, without padding.
    pub fn new(kind: WindowKind, window: &[i64]) -> Self {
        let n = window.len();
        ReduceWindow {
            kind,
            window: window.to_vec(),
            strides: vec![1; n],
            dilations: vec![1; n],
            pad_low: vec![Dim::ZERO; n],
            pad_high: vec![Dim::ZERO; n],
            count_include_pad: false,
            ceil: false,
        }
    }

    fn windows(&self) -> Windows<'_> {
        Windows {
            window: &self.window,
            strides: &self.strides,
            dilations: &self.dilations,
            pad_low: &self.pad_low,
            pad_high: &self.pad_high,
            ceil: self.ceil,
        }
    }
}

impl MaxPoolIndices {
    /// The same windows as those of a reduction.
    pub fn new(of: ReduceWindow, column_major: bool) -> Self {
        let ReduceWindow { window, strides, dilations, pad_low, pad_high, ceil, .. } = of;
        MaxPoolIndices { window, strides, dilations, pad_low, pad_high, ceil, column_major }
    }

    fn windows(&self) -> Windows<'_> {
        Windows {
            window: &self.window,
            strides: &self.strides,
            dilations: &self.dilations,
            pad_low: &self.pad_low,
            pad_high: &self.pad_high,
            ceil: self.ceil,
        }
    }
}

fn check_dtype(kind: WindowKind, d: DType) -> Result<(), OpError> {
    let takes = match kind {
        WindowKind::Mean => d.is_float(),
        WindowKind::Sum | WindowKind::Max => d.is_float() || d.is_int(),
    };
    if takes {
        return Ok(());
    }
    Err(OpError::new(format!("{} does not fold windows of {d}", kind.name())).hint("insert a `convert`"))
}

/// Folds every window; `end` gets the fold, the number of cells and the number of taps inside the padded input.
fn fold<T: Copy>(
    v: &[T],
    at: &Placed,
    init: T,
    f: impl Fn(T, T) -> T,
    end: impl Fn(T, usize, usize) -> T,
) -> Result<Vec<T>, OpError> {
    let mut out = Vec::with_capacity(checked_numel(&at.dims)?);
    for p in 0..at.planes {
        at.for_each(|cells, padded| {
            let mut acc = init;
            for_each_cell(cells, p * at.plane, &mut |c| acc = f(acc, v[c]));
            out.push(end(acc, cells.iter().map(|c| c.len()).product(), padded));
        });
    }
    Ok(out)
}

impl OpRules for ReduceWindow {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        let t = cx.tensor(0)?;
        check_dtype(self.kind, t.dtype)?;
        let dims = self.windows().infer(cx, &t.shape)?;
        cx.result(t.dtype, dims);
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], results: &[TensorType]) -> Dim {
        self.windows().work(results)
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = arg(args, 0)?;
        check_dtype(self.kind, x.dtype())?;
        let at = self.windows().place(cx, x.dims())?;
        let narrow = accumulate::narrow(x.dtype(), cx.options);
        let add = accumulate::add(narrow);
        let elements = match x.elements() {
            Elements::Float(v) => Elements::Float(match self.kind {
                WindowKind::Max => fold(&v, &at, f64::NEG_INFINITY, binary::max, |a, _, _| a)?,
                WindowKind::Sum => fold(&v, &at, 0.0, add, |a, _, _| a)?,
                WindowKind::Mean => fold(&v, &at, 0.0, add, |a, cells, padded| {
                    let n = if self.count_include_pad { padded } else { cells };
                    if n == 0 { 0.0 } else { a / n as f64 }
                })?,
            }),
            Elements::Int(v) => Elements::Int(match self.kind {
                WindowKind::Max => fold(&v, &at, ReduceKind::Max.neutral_int(x.dtype()), i128::max, |a, _, _| a)?,
                _ => fold(&v, &at, 0, i128::wrapping_add, |a, _, _| a)?,
            }),
            _ => return Err(OpError::new(format!("does not fold windows of {}", x.dtype()))),
        };
        Ok(vec![Tensor::from_elements(x.dtype(), &at.dims, &elements)?.into()])
    }
}

impl OpRules for MaxPoolIndices {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        let t = cx.tensor(0)?;
        check_dtype(WindowKind::Max, t.dtype)?;
        let dims = self.windows().infer(cx, &t.shape)?;
        cx.result(t.dtype, dims.clone());
        cx.result(DType::I64, dims);
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], results: &[TensorType]) -> Dim {
        self.windows().work(results)
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = arg(args, 0)?;
        check_dtype(WindowKind::Max, x.dtype())?;
        let at = self.windows().place(cx, x.dims())?;
        let (values, indices) = match x.elements() {
            Elements::Float(v) => {
                let better = |a: f64, b: f64| a > b || a.is_nan() && !b.is_nan();
                let (values, indices) = largest(&v, &at, f64::NEG_INFINITY, better);
                (Elements::Float(values), indices)
            }
            Elements::Int(v) => {
                let (values, indices) = largest(&v, &at, ReduceKind::Max.neutral_int(x.dtype()), |a, b| a > b);
                (Elements::Int(values), indices)
            }
            _ => return Err(OpError::new(format!("does not order {}", x.dtype()))),
        };
        let plane_dims = &x.dims()[x.rank() - self.window.len().min(x.rank())..];
        let indices = if self.column_major {
            indices.into_iter().map(|i| if i < 0 { i } else { column_major(i, at.plane, plane_dims) }).collect()
        } else {
            indices
        };
        Ok(vec![
            Tensor::from_elements(x.dtype(), &at.dims, &values)?.into(),
            Tensor::from_elements(DType::I64, &at.dims, &Elements::Int(indices))?.into(),
        ])
    }
}

/// Largest element and its position, per window.
fn largest<T: Copy>(v: &[T], at: &Placed, none: T, better: impl Fn(T, T) -> bool) -> (Vec<T>, Vec<i128>) {
    let (mut values, mut indices) = (Vec::new(), Vec::new());
    for p in 0..at.planes {
        at.for_each(|cells, _| {
            let mut best: Option<usize> = None;
            for_each_cell(cells, p * at.plane, &mut |c| {
                if best.is_none_or(|b| better(v[c], v[b])) {
                    best = Some(c);
                }
            });
            values.push(best.map_or(none, |b| v[b]));
            indices.push(best.map_or(-1, |b| b as i128));
        });
    }
    (values, indices)
}

/// A row-major position counted with the first axis of its plane fastest.
fn column_major(i: i128, plane: usize, dims: &[usize]) -> i128 {
    let plane = plane.max(1) as i128;
    let (base, mut rest) = (i - i % plane, i % plane);
    // The weight of an axis is the product of the sizes before it; digits come off from the last axis.
    let mut out = 0;
    for axis in (0..dims.len()).rev() {
        let d = dims[axis].max(1) as i128;
        let weight: i128 = dims[..axis].iter().map(|&d| d as i128).product();
        out += (rest % d) * weight;
        rest /= d;
    }
    base + out
}

impl Builder {
    /// Windows over the last axes folded to one element each; `op` says how.
    pub fn reduce_window(&mut self, x: ValueId, op: ReduceWindow) -> Result<ValueId, IrError> {
        self.op1(op, &[x])
    }

    /// The largest element of each window, and where it stands.
    pub fn max_pool_with_indices(&mut self, x: ValueId, op: MaxPoolIndices) -> Result<(ValueId, ValueId), IrError> {
        match self.op(op, &[x])?.as_slice() {
            &[values, indices] => Ok((values, indices)),
            _ => Err(self.refuse("max_pool_with_indices", &[x], OpError::new("must have two results"))),
        }
    }
}
