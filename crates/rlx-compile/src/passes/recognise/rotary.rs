//! Rotary embedding: `x·cos + rotate_half(x)·sin` with `rotate_half(x) = concat(−x₂, x₁)`.

use rlx_ir::ops::ShapeOp;
use rlx_ir::ops::elementwise::{Binary, Elementwise};
use rlx_ir::ops::neural::RotaryEmbedding;
use rlx_ir::ops::shape::{Concat, Slice};
use rlx_ir::{Dim, IrError, Op, ValueId};

use super::look::Look;
use super::{Found, Recogniser};

/// A range of the last axis of a value: first element and length.
type Part = (ValueId, i64, i64);

/// The x of `rotate_half(x)`, which may be a range of a larger value: its halves are then ranges of that value too.
fn half_rotated(l: Look<'_>, v: ValueId) -> Option<Part> {
    let (Op::ShapeOp(ShapeOp::Concat(Concat { axis })), &[a, b]) = l.op(v)? else { return None };
    let shape = l.shape(v)?;
    let d = shape.last()?.as_const().filter(|d| d % 2 == 0 && axis + 1 == shape.rank())?;
    let second = l.scaled(a).filter(|(_, c)| *c == -1.0)?.0;
    let ((x, from, n), (y, start, m)) = (range(l, second)?, range(l, b)?);
    (x == y && from == start + d / 2 && n == d / 2 && m == d / 2).then_some((x, start, d))
}

/// A slice of the last axis alone.
fn range(l: Look<'_>, v: ValueId) -> Option<Part> {
    let (Op::ShapeOp(ShapeOp::Slice(Slice { starts, limits, strides })), &[x]) = l.op(v)? else { return None };
    let (start, starts) = starts.split_last()?;
    let (limit, limits) = limits.split_last()?;
    let whole = starts.iter().all(|d| *d == Dim::ZERO) && limits.iter().eq(l.shape(x)?.iter().take(limits.len()));
    let (start, limit) = (start.as_const()?, limit.as_const()?);
    (whole && strides.iter().all(|&s| s == 1)).then_some((x, start, limit - start))
}

/// True if a value is such a part.
fn is_part(l: Look<'_>, v: ValueId, part: Part) -> bool {
    let whole = l.shape(v).and_then(|s| s.last()?.as_const()).map(|d| (v, 0, d));
    whole == Some(part) || range(l, v) == Some(part)
}

/// True if both halves of the last axis are equal.
fn doubled(l: Look<'_>, v: ValueId, depth: usize) -> bool {
    let (Some((op, operands)), Some(shape)) = (l.op(v).filter(|_| depth < 12), l.shape(v)) else { return false };
    let Some(d) = shape.last() else { return false };
    // An operand that has but one element there is the same for both halves.
    let fine = |x: ValueId| {
        l.shape(x).is_some_and(|s| {
            s.last().is_none_or(|e| *e == Dim::ONE) || (s.last() == Some(d) && doubled(l, x, depth + 1))
        })
    };
    match op {
        Op::ShapeOp(ShapeOp::Concat(Concat { axis })) if axis + 1 == shape.rank() => {
            matches!(operands, [a, b] if a == b)
        }
        Op::ShapeOp(ShapeOp::Reshape(_)) => {
            operands.iter().all(|&x| l.shape(x).is_some_and(|s| s.last() == Some(d)) && fine(x))
        }
        Op::ShapeOp(ShapeOp::BroadcastTo(_)) => operands.iter().all(|&x| fine(x)),
        Op::ShapeOp(ShapeOp::Constant(c)) => {
            let Some(n) = d.as_const().and_then(|d| usize::try_from(d).ok()).filter(|d| *d > 0 && d % 2 == 0) else {
                return false;
            };
            let size = c.value.dtype().size().map(|s| s * n);
            size.is_some_and(|size| {
                c.value.bytes().chunks(size).all(|row| row[..row.len() / 2] == row[row.len() / 2..])
            })
        }
        Op::Elementwise(Elementwise::Unary(_) | Elementwise::Binary(_) | Elementwise::Convert { .. }) => {
            operands.iter().all(|&x| fine(x))
        }
        _ => false,
    }
}

pub fn rotary(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let (mut found, mut turns) = (None, false);
    for (a, b) in l.either(v, Binary::Add) {
        for (turned, sin) in l.either(b, Binary::Mul) {
            let Some(part) = half_rotated(l, turned) else { continue };
            turns = true;
            let same = |v: ValueId| is_part(l, v, part) && l.shape(v) == l.shape(turned);
            let cos = l.either(a, Binary::Mul).find(|(x, _)| same(*x));
            found = found.or(cos.map(|(x, cos)| (x, cos, sin)));
        }
    }
    let Some((x, cos, sin)) = found else {
        return if turns {
            r.nearly("what is added to the turned halves is not a multiple of what was turned")
        } else {
            Ok(None)
        };
    };
    if ![cos, sin]
        .iter()
        .all(|&c| l.fits(c, x) && l.shape(c).map(|s| s.last()) == l.shape(x).map(|s| s.last()) && doubled(l, c, 0))
    {
        return r.nearly("its tables are not the same for both halves");
    }
    let (cos, sin) = (first_half(r, cos)?, first_half(r, sin)?);
    r.rw.b.op1(RotaryEmbedding { interleaved: false, rotary_dim: None }, &[x, cos, sin]).map(Some)
}

/// The first half of the last axis.
fn first_half(r: &mut Recogniser<'_>, v: ValueId) -> Result<ValueId, IrError> {
    let mut limits = r.rw.b.shape(v)?.into_dims();
    if let Some(d) = limits.last_mut() {
        *d = d.floor_div(2);
    }
    let rank = limits.len();
    r.rw.b.slice(v, vec![Dim::ZERO; rank], limits, vec![1; rank])
}
