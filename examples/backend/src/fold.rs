//! Folding of elements, as reductions want it.

use rlx::DType;
use rlx::compile::RunError;
use rlx::ir::ops::elementwise::{Binary, Scalar};
use rlx::ir::ops::reduction::ReduceKind;

use crate::array::fault;

/// Elements folded to one.
pub fn fold(kind: ReduceKind, dtype: DType, items: impl IntoIterator<Item = Scalar>) -> Result<Scalar, RunError> {
    let step = match kind {
        ReduceKind::Sum => Binary::Add,
        ReduceKind::Prod => Binary::Mul,
        ReduceKind::Min => Binary::Min,
        ReduceKind::Max => Binary::Max,
        ReduceKind::Any => Binary::Or,
        ReduceKind::All => Binary::And,
    };
    let mut acc = first(kind, dtype);
    for x in items {
        acc = step.value(dtype, acc, x).ok_or_else(|| fault("reduce", format!("{kind:?} of {dtype}")))?;
    }
    Ok(acc)
}

/// What the fold of nothing is.
fn first(kind: ReduceKind, dtype: DType) -> Scalar {
    let (low, high) = dtype.int_range().unwrap_or_default();
    let float = dtype.is_float();
    match kind {
        ReduceKind::Sum if float => Scalar::F(0.0),
        ReduceKind::Prod if float => Scalar::F(1.0),
        ReduceKind::Min if float => Scalar::F(f64::INFINITY),
        ReduceKind::Max if float => Scalar::F(f64::NEG_INFINITY),
        ReduceKind::Sum | ReduceKind::Any => Scalar::I(0),
        ReduceKind::Prod | ReduceKind::All => Scalar::I(1),
        ReduceKind::Min => Scalar::I(high),
        ReduceKind::Max => Scalar::I(low),
    }
}
