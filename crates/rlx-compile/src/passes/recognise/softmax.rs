//! Softmax and its logarithm.

use rlx_ir::Op;
use rlx_ir::ValueId;
use rlx_ir::ops::elementwise::{Binary, Unary};
use rlx_ir::ops::reduction::ReduceKind;
use rlx_ir::ops::{Neural, neural::Softmax};

use super::look::Look;
use super::{Found, Recogniser};

/// What `exp(x − max x)` along an axis is made of: x. An exponential without the maximum is itself.
fn shifted(l: Look<'_>, v: ValueId, axis: usize) -> ValueId {
    let with_max = l.binary(v, Binary::Sub).and_then(|(x, m)| {
        let max = l.reduced(m, ReduceKind::Max)?;
        (max.x == x && max.axes == [axis]).then_some(x)
    });
    with_max.unwrap_or(v)
}

/// `Σ exp(u)` along one axis of u: u and the axis.
fn sum_of_exp(l: Look<'_>, v: ValueId) -> Option<(ValueId, ValueId, usize)> {
    let sum = l.reduced(v, ReduceKind::Sum)?;
    let &[axis] = &sum.axes[..] else { return None };
    l.unary(sum.x, Unary::Exp).map(|u| (sum.x, u, axis))
}

/// `e/Σe` with `e = exp(x − max x)`.
pub fn softmax(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let quotient = match l.binary(v, Binary::Div) {
        Some((e, s)) => sum_of_exp(l, s).filter(|(x, _, _)| *x == e),
        None => l.either(v, Binary::Mul).find_map(|(e, inverse)| {
            let s = l.unary(inverse, Unary::Reciprocal)?;
            sum_of_exp(l, s).filter(|(x, _, _)| *x == e)
        }),
    };
    match quotient {
        Some((_, u, axis)) => {
            let x = shifted(l, u, axis);
            r.rw.b.softmax(x, axis).map(Some)
        }
        None if l.binary(v, Binary::Div).is_some_and(|(e, s)| is_sum_of_exp(l, e, s)) => {
            r.nearly("it sums over several axes")
        }
        None => Ok(None),
    }
}

/// Whether a value is the sum of another, which is an exponential, whatever the axes.
fn is_sum_of_exp(l: Look<'_>, e: ValueId, s: ValueId) -> bool {
    l.unary(e, Unary::Exp).is_some() && l.reduced(s, ReduceKind::Sum).is_some_and(|f| f.x == e)
}

/// `log(softmax(x))`, `u − log(Σ exp(u))` with `u = x − max x`.
pub fn log_softmax(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let found = match l.unary(v, Unary::Log) {
        Some(s) => match l.op(s) {
            Some((Op::Neural(Neural::Softmax(Softmax { axis, log: false })), &[x])) => Some((x, *axis)),
            _ => None,
        },
        None => l.binary(v, Binary::Sub).and_then(|(u, s)| {
            let (_, w, axis) = sum_of_exp(l, l.unary(s, Unary::Log)?)?;
            (w == u).then(|| (shifted(l, u, axis), axis))
        }),
    };
    match found {
        Some((x, axis)) => r.rw.b.log_softmax(x, axis).map(Some),
        None => Ok(None),
    }
}
