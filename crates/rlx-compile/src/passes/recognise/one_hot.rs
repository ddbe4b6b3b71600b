//! A product with rows that are one-hot is a table's rows: `Σₖ [x = k] · w[k, …] = w[x, …]`, and zeros where x is no number of a
//! row. (An infinity or NaN anywhere in the table would make NaN of every sum; taken by number it stays where it is.)

use rlx_ir::element::Elements;
use rlx_ir::ops::elementwise::{Compare, Elementwise};
use rlx_ir::ops::shape::Iota;
use rlx_ir::ops::{Contraction, ShapeOp};
use rlx_ir::{DType, Dim, Op, Shape, ValueId};

use super::look::Look;
use super::{Found, Recogniser};

/// The numbers whose one-hot rows a value is: of a shape that ends in 1.
fn numbers(l: Look<'_>, v: ValueId) -> Option<ValueId> {
    let hot = match l.op(v)? {
        (Op::Elementwise(Elementwise::Convert { .. }), &[hot]) => hot,
        (Op::Elementwise(Elementwise::Select), &[hot, one, zero]) if l.is(one, 1.0) && l.number(zero) == Some(0.0) => {
            hot
        }
        _ => return None,
    };
    let (Op::Elementwise(Elementwise::Compare(Compare::Eq)), &[a, b]) = l.op(hot)? else { return None };
    let shape = l.shape(v)?;
    let n = shape.last()?;
    let fits = |x: ValueId| {
        let whole = l.shape(x).is_some_and(|s| {
            s.rank() == shape.rank()
                && s.last() == Some(&Dim::ONE)
                && s.iter().zip(shape.iter()).rev().skip(1).all(|(a, b)| a == b)
        });
        whole && l.dtype(x).is_some_and(DType::is_int)
    };
    [(a, b), (b, a)].into_iter().find(|&(x, count)| fits(x) && counts(l, count, n)).map(|(x, _)| x)
}

/// True of 0, 1, …, n − 1 along the last axis, the others being 1.
fn counts(l: Look<'_>, v: ValueId, n: &Dim) -> bool {
    let along = |s: &Shape| s.last() == Some(n) && s.numel() == *n;
    if !l.shape(v).is_some_and(along) {
        return false;
    }
    match l.op(v) {
        Some((Op::ShapeOp(ShapeOp::Iota(Iota { axis, dims, .. })), _)) => *axis + 1 == dims.len(),
        Some((Op::ShapeOp(ShapeOp::Constant(c)), _)) => match c.value.elements() {
            Elements::Int(list) => list.iter().enumerate().all(|(i, &x)| x == i as i128),
            _ => false,
        },
        Some((
            Op::ShapeOp(ShapeOp::Reshape(_) | ShapeOp::BroadcastTo(_)) | Op::Elementwise(Elementwise::Convert { .. }),
            &[x],
        )) => l.dtype(v).is_some_and(|d| d.is_int() && d.bits() >= 32) && counts(l, x, n),
        _ => false,
    }
}

/// The product of one-hot rows and a table.
pub(super) fn product(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let Some((Op::Contraction(Contraction::DotGeneral(d)), &[hot, table])) = l.op(v) else { return Ok(None) };
    let (Some(rank), Some(dtype)) = (l.shape(hot).map(Shape::rank), l.dtype(table)) else { return Ok(None) };
    let plain = d.lhs_batch.is_empty() && d.lhs_contract == [rank.saturating_sub(1)] && d.rhs_contract == [0];
    if !plain || !dtype.is_float() || l.dtype(v) != Some(dtype) {
        return Ok(None);
    }
    let (Some(x), Some(of_table)) = (numbers(l, hot), l.shape(table).cloned()) else { return Ok(None) };
    let (Some(n), Some(of_x)) = (of_table.first().and_then(Dim::as_const).filter(|&n| n > 0), l.shape(x).cloned())
    else {
        return Ok(None);
    };
    let rows: Vec<Dim> = of_x.iter().take(rank.saturating_sub(1)).cloned().collect();
    let b = &mut r.rw.b;
    let x = b.reshape(x, rows.clone())?;
    let x = b.convert(x, DType::I64)?;
    let (low, high) = (b.scalar_like(x, 0.0)?, b.scalar_like(x, (n - 1) as f64)?);
    let inside = b.clamp(x, low, high)?;
    let taken = b.gather(table, inside, 0)?;
    let is_row = b.op1(Elementwise::Compare(Compare::Eq), &[x, inside])?;
    let is_row =
        b.reshape(is_row, rows.into_iter().chain(of_table.iter().skip(1).map(|_| Dim::ONE)).collect::<Vec<_>>())?;
    let zero = b.scalar_like(taken, 0.0)?;
    b.select(is_row, taken, zero).map(Some)
}
