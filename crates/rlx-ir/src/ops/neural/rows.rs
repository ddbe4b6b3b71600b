//! What the composites' rules share: float operands, optional per-element parameters, and rows of a tensor along an axis.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::element::Elements;
use crate::error::{IrError, OpError};
use crate::eval::broadcast_index;
use crate::graph::ValueId;
use crate::op::{InferCx, arg};
use crate::ops::reduction::ReduceKind;
use crate::tensor::{Tensor, Value};
use crate::types::Shape;

/// The float dtype that all operands share.
pub(super) fn float_dtype(cx: &InferCx<'_>, operands: std::ops::Range<usize>) -> Result<DType, OpError> {
    let d = cx.same_dtype(operands)?;
    if d.is_float() { Ok(d) } else { Err(OpError::new(format!("takes floats, got {d}")).hint("insert a `convert`")) }
}

/// Requires that operand `i` broadcasts to exactly these dims.
pub(super) fn require_broadcasts_to(cx: &mut InferCx<'_>, i: usize, dims: &[Dim], what: &str) -> Result<(), OpError> {
    let s = cx.shape(i)?;
    let skip = dims
        .len()
        .checked_sub(s.rank())
        .ok_or_else(|| OpError::new(format!("{what} {s} must broadcast to {}", Shape::from(dims.to_vec()))))?;
    for (d, to) in s.iter().zip(dims.iter().skip(skip)) {
        if d.as_const() != Some(1) {
            let known_not_one = d.known_eq(&Dim::ONE) == Some(false);
            if known_not_one || d.is_const() {
                cx.require_eq(d, to, &format!("{what} {s} and the axes it applies to"))?;
            } else if d != to {
                cx.require(crate::dim::Constraint::Broadcastable(d.clone(), to.clone()), what)?;
            }
        }
    }
    Ok(())
}

/// Elements of a float operand.
pub(super) fn floats(args: &[Value], i: usize) -> Result<Vec<f64>, OpError> {
    let t = arg(args, i)?;
    match t.elements() {
        Elements::Float(v) => Ok(v),
        _ => Err(OpError::new(format!("operand {i} must be floats, got {}", t.dtype()))),
    }
}

/// Elements of operand `i` broadcast to `dims`, if it is there.
pub(super) fn expanded(args: &[Value], i: Option<usize>, dims: &[usize]) -> Result<Option<Vec<f64>>, OpError> {
    let Some(i) = i else { return Ok(None) };
    let values = floats(args, i)?;
    let sizes = arg(args, i)?.dims();
    if sizes.len() > dims.len() {
        return Err(OpError::new(format!("operand {i} of shape {sizes:?} does not broadcast to {dims:?}")));
    }
    if sizes == dims {
        return Ok(Some(values));
    }
    let n = crate::tensor::checked_numel(dims)?;
    (0..n)
        .map(|at| values.get(broadcast_index(at, dims, sizes)).copied())
        .collect::<Option<Vec<f64>>>()
        .map(Some)
        .ok_or_else(|| OpError::new(format!("operand {i} of shape {sizes:?} does not broadcast to {dims:?}")))
}

/// A tensor of rounded floats.
pub(super) fn tensor(dtype: DType, dims: &[usize], values: Vec<f64>) -> Result<Value, OpError> {
    Ok(Tensor::from_elements(dtype, dims, &Elements::Float(values))?.into())
}

/// In a decomposition: 16-bit and smaller floats computed in f32, as the composite's kernels do.
pub(super) fn widened(b: &mut Builder, x: ValueId) -> Result<ValueId, IrError> {
    match b.dtype(x)? {
        d if d.is_float() && d.bits() < 32 => b.convert(x, DType::F32),
        _ => Ok(x),
    }
}

/// In a decomposition: the value in the dtype and shape that the composite promises.
///
/// Broadcasting of operands whose sizes are not known to be equal leaves more general sizes, which the composite's type rule has
/// already bound to these.
pub(super) fn as_promised(b: &mut Builder, y: ValueId, dtype: DType, shape: &Shape) -> Result<ValueId, IrError> {
    let y = b.convert(y, dtype)?;
    if b.shape(y)? == *shape { Ok(y) } else { b.broadcast_to(y, shape.iter().cloned()) }
}

/// In a decomposition: the mean over axes, which stay with size 1.
pub(super) fn mean(b: &mut Builder, x: ValueId, axes: &[i64]) -> Result<ValueId, IrError> {
    let (shape, dtype) = (b.shape(x)?, b.dtype(x)?);
    let count = Dim::product(axes.iter().filter_map(|&a| shape.axis(a)).map(|a| shape[a].clone()));
    let sum = b.reduce(x, ReduceKind::Sum, axes, true)?;
    let count = match count.as_const() {
        Some(n) => b.scalar(dtype, n as f64)?,
        None => {
            let n = b.from_dim(count)?;
            b.convert(n, dtype)?
        }
    };
    b.div(sum, count)
}

/// In a decomposition: `x / √(mean of squares + eps)` over axes.
pub(super) fn over_deviation(b: &mut Builder, x: ValueId, axes: &[i64], eps: f64) -> Result<ValueId, IrError> {
    let squares = b.mul(x, x)?;
    let variance = mean(b, squares, axes)?;
    let eps = b.scalar_like(x, eps)?;
    let sum = b.add(variance, eps)?;
    let deviation = b.sqrt(sum)?;
    b.div(x, deviation)
}

/// In a decomposition: multiplied by a scale and increased by a bias, as far as there are.
pub(super) fn scaled(
    b: &mut Builder,
    y: ValueId,
    scale: Option<ValueId>,
    bias: Option<ValueId>,
) -> Result<ValueId, IrError> {
    let y = match scale {
        Some(s) => {
            let s = widened(b, s)?;
            b.mul(y, s)?
        }
        None => y,
    };
    match bias {
        Some(v) => {
            let v = widened(b, v)?;
            b.add(y, v)
        }
        None => Ok(y),
    }
}

/// In a decomposition: operand `i`.
pub(super) fn operand(args: &[ValueId], i: usize) -> Result<ValueId, IrError> {
    args.get(i).copied().ok_or_else(|| IrError::Eval(format!("operand {i} is missing ({} given)", args.len())))
}

/// The optional scale and bias that follow the first operand.
pub(super) fn scale_and_bias(args: &[ValueId], has_scale: bool, has_bias: bool) -> (Option<ValueId>, Option<ValueId>) {
    let mut rest = args.iter().skip(1).copied();
    let scale = if has_scale { rest.next() } else { None };
    (scale, if has_bias { rest.next() } else { None })
}

/// In a decomposition: a vector over channels, wide, shaped to meet axis 1 of `shape`.
pub(super) fn per_channel(b: &mut Builder, v: ValueId, shape: &Shape) -> Result<ValueId, IrError> {
    let wide = widened(b, v)?;
    let channels = shape.get(1).cloned().unwrap_or(Dim::ONE);
    let ones = vec![Dim::ONE; shape.rank().saturating_sub(2)];
    b.reshape(wide, [channels].into_iter().chain(ones))
}
