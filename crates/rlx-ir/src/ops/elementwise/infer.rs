//! The type rule of the family, and what is known of elements computed from shapes.

use super::{Binary, Compare, Elementwise, Unary};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::OpError;
use crate::op::InferCx;
use crate::types::Shape;

pub(super) fn infer(op: &Elementwise, cx: &mut InferCx<'_>) -> Result<(), OpError> {
    cx.expect_operands(op.arity())?;
    let n = op.arity();
    let dtypes = (0..n).map(|i| cx.dtype(i)).collect::<Result<Vec<_>, _>>()?;
    let dtype = op.result_dtype(&dtypes)?;
    let shapes = (0..n).map(|i| cx.shape(i)).collect::<Result<Vec<_>, _>>()?;
    let shape = cx.broadcast(&shapes)?;
    let elems = known(op, cx, &shapes, &dtypes, dtype, &shape);
    cx.result_elems(dtype, shape, elems);
    Ok(())
}

/// Elements of the result as dims, if those of all operands are known.
fn known(
    op: &Elementwise,
    cx: &InferCx<'_>,
    shapes: &[&Shape],
    dtypes: &[DType],
    out: DType,
    shape: &Shape,
) -> Option<Vec<Dim>> {
    let operands = (0..shapes.len()).map(|i| cx.elems(i)).collect::<Option<Vec<_>>>()?;
    let dims = shape.as_static()?;
    let sizes = shapes.iter().map(|s| s.as_static()).collect::<Option<Vec<_>>>()?;
    let n: usize = dims.iter().product();
    if n > crate::op::MAX_KNOWN_ELEMS {
        return None;
    }
    (0..n)
        .map(|i| {
            let args = operands
                .iter()
                .zip(&sizes)
                .map(|(e, s)| e.get(crate::eval::broadcast_index(i, &dims, s)))
                .collect::<Option<Vec<_>>>()?;
            scalar(op, &args, dtypes, out)
        })
        .collect()
}

fn scalar(op: &Elementwise, args: &[&Dim], dtypes: &[DType], out: DType) -> Option<Dim> {
    // Constants follow the op's own value exactly.
    if let Some(values) = args.iter().map(|d| d.as_const()).collect::<Option<Vec<_>>>() {
        let scalars: Vec<super::Scalar> = values.iter().map(|&v| super::Scalar::I(i128::from(v))).collect();
        return match op.apply(dtypes, out, &scalars)? {
            super::Scalar::I(v) => i64::try_from(v).ok().map(Dim::from),
            _ => None,
        };
    }
    // Symbolic sizes are exact in 64-bit arithmetic; narrower types could wrap.
    let wide = |d: &DType| matches!(d, DType::I64 | DType::I32 | DType::U64 | DType::Bool);
    if !dtypes.iter().all(wide) || !wide(&out) {
        return None;
    }
    let truth = |b: Option<bool>| b.map(|b| Dim::from(i64::from(b)));
    match (op, args) {
        (Elementwise::Unary(Unary::Neg), [a]) => Some(-(*a).clone()),
        (Elementwise::Unary(Unary::Abs | Unary::Relu), [a]) if a.lower_bound()? >= 0 => Some((*a).clone()),
        (Elementwise::Unary(Unary::Not), [a]) if out == DType::Bool => Some(Dim::from(1i64) - (*a).clone()),
        (Elementwise::Binary(b), [x, y]) => binary(*b, x, y),
        (Elementwise::Compare(c), [x, y]) => truth(match c {
            Compare::Eq => x.known_eq(y),
            Compare::Ne => x.known_eq(y).map(|b| !b),
            Compare::Le => x.known_le(y),
            Compare::Ge => y.known_le(x),
            Compare::Lt => y.known_le(x).map(|b| !b),
            Compare::Gt => x.known_le(y).map(|b| !b),
        }),
        (Elementwise::Select, [c, a, b]) => match c.as_const() {
            Some(0) => Some((*b).clone()),
            Some(_) => Some((*a).clone()),
            None if a == b => Some((*a).clone()),
            None => None,
        },
        (Elementwise::Clamp, [x, lo, hi]) => Some(Dim::min(&Dim::max(x, *lo), *hi)),
        (Elementwise::Convert { to, .. }, [a]) if to.is_int() => Some((*a).clone()),
        _ => None,
    }
}

/// The quotient towards zero by a positive divisor: of what is above zero and of what is below it.
fn truncated(x: &Dim, y: &Dim) -> Dim {
    if x.lower_bound().is_some_and(|least| least >= 0) {
        return x.floor_div(y);
    }
    x.max(Dim::ZERO).floor_div(y) - (-x).max(Dim::ZERO).floor_div(y)
}

fn binary(op: Binary, x: &Dim, y: &Dim) -> Option<Dim> {
    let non_negative = |d: &Dim| d.lower_bound().is_some_and(|b| b >= 0);
    let positive = |d: &Dim| d.lower_bound().is_some_and(|b| b >= 1);
    match op {
        Binary::Add => Some(x + y),
        Binary::Sub => Some(x - y),
        Binary::Mul => Some(x * y),
        // Truncation is flooring where nothing is negative. By zero, data gives 0.
        Binary::Div if positive(y) => Some(truncated(x, y)),
        Binary::Div if non_negative(y) => {
            let exact = x.floor_div(y);
            let quotient = if &exact * y == *x { exact } else { truncated(x, &y.max(Dim::ONE)) };
            Some(quotient * y.min(Dim::ONE))
        }
        Binary::Rem if non_negative(x) && positive(y) => Some(x.rem_floor(y)),
        Binary::Rem if positive(y) => Some(x - y * truncated(x, y)),
        Binary::Mod if positive(y) => Some(x.rem_floor(y)),
        Binary::Min => Some(x.min(y)),
        Binary::Max => Some(x.max(y)),
        _ => None,
    }
}
