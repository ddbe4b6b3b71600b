//! What the composites' rules share: float operands, optional per-element parameters, and rows of a tensor along an axis.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::element::Elements;
use crate::error::{IrError, OpError};
use crate::eval::broadcast_index;
use crate::graph::ValueId;
use crate::op::{InferCx, arg};
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
