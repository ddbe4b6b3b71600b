//! Elementwise evaluation: one scalar at a time, from the tables of the family.

use crate::dtype::DType;
use crate::element::Elements;
use crate::error::OpError;
use crate::op::arg;
use crate::ops::elementwise::{Elementwise, Scalar};
use crate::tensor::{Tensor, Value};

/// The row-major index in an operand of `sizes` that broadcasts to row-major index `i` of `dims`.
pub fn broadcast_index(mut i: usize, dims: &[usize], sizes: &[usize]) -> usize {
    let skip = dims.len() - sizes.len().min(dims.len());
    let (mut out, mut stride) = (0, 1);
    for axis in (0..dims.len()).rev() {
        let d = dims[axis].max(1);
        let at = i % d;
        i /= d;
        if axis >= skip {
            let s = sizes[axis - skip];
            if s != 1 {
                out += at * stride;
            }
            stride *= s;
        }
    }
    out
}

/// The shape that operands of these sizes broadcast to.
pub fn broadcast_sizes(shapes: &[&[usize]]) -> Result<Vec<usize>, OpError> {
    let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
    let mut out = vec![1usize; rank];
    for s in shapes {
        for (o, &d) in out.iter_mut().skip(rank - s.len()).zip(s.iter()) {
            match (*o, d) {
                (a, b) if a == b || b == 1 => {}
                (1, b) => *o = b,
                (a, b) => return Err(OpError::new(format!("cannot broadcast {a} with {b}"))),
            }
        }
    }
    Ok(out)
}

fn scalar(e: &Elements, i: usize) -> Option<Scalar> {
    match e {
        Elements::Float(v) => v.get(i).map(|&x| Scalar::F(x)),
        Elements::Int(v) => v.get(i).map(|&x| Scalar::I(x)),
        Elements::Complex(v) => v.get(i).map(|&x| Scalar::C(x)),
        Elements::Str(_) => None,
    }
}

/// Collects scalars of one class into elements.
pub fn collect(dtype: DType, values: impl Iterator<Item = Option<Scalar>>) -> Option<Elements> {
    Some(match dtype.class() {
        crate::dtype::Class::Float => Elements::Float(
            values.map(|s| if let Some(Scalar::F(x)) = s { Some(x) } else { None }).collect::<Option<_>>()?,
        ),
        crate::dtype::Class::Complex => Elements::Complex(
            values.map(|s| if let Some(Scalar::C(x)) = s { Some(x) } else { None }).collect::<Option<_>>()?,
        ),
        crate::dtype::Class::Str => return None,
        _ => Elements::Int(
            values.map(|s| if let Some(Scalar::I(x)) = s { Some(x) } else { None }).collect::<Option<_>>()?,
        ),
    })
}

/// Applies an elementwise op to tensors.
pub fn elementwise(op: &Elementwise, args: &[Value]) -> Result<Vec<Value>, OpError> {
    let tensors = (0..op.arity()).map(|i| arg(args, i)).collect::<Result<Vec<&Tensor>, _>>()?;
    let dtypes: Vec<DType> = tensors.iter().map(|t| t.dtype()).collect();
    let out = op.result_dtype(&dtypes)?;
    let shapes: Vec<&[usize]> = tensors.iter().map(|t| t.dims()).collect();
    let dims = broadcast_sizes(&shapes)?;
    if let (Elementwise::Select, DType::Str) = (op, out) {
        return select_strings(&tensors, &dims);
    }
    let elements: Vec<Elements> = tensors.iter().map(|t| t.elements()).collect();
    let n = crate::tensor::checked_numel(&dims)?;
    let same: Vec<bool> = shapes.iter().map(|s| **s == *dims).collect();
    let values = (0..n).map(|i| {
        let mut scalars = [Scalar::I(0); 3];
        for (k, e) in elements.iter().enumerate() {
            let at = if same[k] { i } else { broadcast_index(i, &dims, shapes[k]) };
            scalars[k] = scalar(e, at)?;
        }
        op.apply(&dtypes, out, &scalars[..elements.len()])
    });
    let elements = collect(out, values).ok_or_else(|| OpError::new(format!("has no value on {dtypes:?}")))?;
    Ok(vec![Tensor::from_elements(out, &dims, &elements)?.into()])
}

fn select_strings(tensors: &[&Tensor], dims: &[usize]) -> Result<Vec<Value>, OpError> {
    let n = crate::tensor::checked_numel(dims)?;
    let cond = tensors[0].elements();
    let cond = cond.ints().unwrap_or(&[]);
    let get = |t: &Tensor, i: usize| {
        t.strings().and_then(|s| s.get(broadcast_index(i, dims, t.dims()))).cloned().unwrap_or_default()
    };
    let out = (0..n)
        .map(|i| {
            let c = cond.get(broadcast_index(i, dims, tensors[0].dims())).is_some_and(|&c| c != 0);
            get(tensors[if c { 1 } else { 2 }], i)
        })
        .collect();
    Ok(vec![Tensor::from_strings(dims, out)?.into()])
}
