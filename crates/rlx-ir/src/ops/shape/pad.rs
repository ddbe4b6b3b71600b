//! Borders around a tensor.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::error::{IrError, OpError};
use crate::eval::{for_each_index, row_major_strides, take_or_fill};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::tensor::{Value, checked_numel};
use crate::types::{Shape, TensorType};

use super::known::{one_per_axis, require_le, small_sizes};

crate::attr_enum! {
    /// What a border is filled with.
    pub enum PadMode {
        /// One value, the second operand.
        Constant = "constant",
        /// The nearest element.
        Edge = "edge",
        /// The elements mirrored at the outermost one, which is not repeated.
        Reflect = "reflect",
        /// The elements again from the other end.
        Wrap = "wrap",
    }
}

op! {
    /// The operand with `low` elements before and `high` after it on each axis. Negative counts crop, before anything is added.
    pub struct Pad = "pad" {
        /// Elements added before, per axis.
        pub low: Vec<Dim>,
        /// Elements added after, per axis.
        pub high: Vec<Dim>,
        /// What they are; with `constant`, the second operand is their value.
        pub mode: PadMode,
    }
}

/// How long an axis may become where each of its elements is looked up in a table.
pub const MAX_AXIS_TABLE: usize = 1 << 27;

/// The source index of each index along one axis of `n` elements padded by `low` and `high`; `None` is the fill.
pub fn pad_sources(n: usize, low: i64, high: i64, mode: PadMode) -> Result<Vec<Option<usize>>, OpError> {
    let (n, low, high) = (n as i128, i128::from(low), i128::from(high));
    let out = n + low + high;
    if out < 0 {
        return Err(OpError::new(format!("cropping {low} and {high} from {n} elements leaves less than none")));
    }
    let (first, end) = ((-low).max(0).min(n), n - (-high).max(0).min(n));
    let kept = (end - first).max(0);
    let total = usize::try_from(out).ok().filter(|&t| t <= MAX_AXIS_TABLE);
    let total = total.ok_or_else(|| {
        OpError::new(format!("padding {n} elements by {low} and {high} gives more than {MAX_AXIS_TABLE}"))
    })?;
    (0..total as i128)
        .map(|i| {
            // Index relative to what is left after cropping.
            let k = i - low.max(0);
            let at = match mode {
                _ if (0..kept).contains(&k) => k,
                PadMode::Constant => return Ok(None),
                _ if kept == 0 => return Err(OpError::new(format!("mode {} has no element to repeat", mode.name()))),
                PadMode::Edge => k.clamp(0, kept - 1),
                PadMode::Wrap => k.rem_euclid(kept),
                PadMode::Reflect if kept == 1 => 0,
                PadMode::Reflect => {
                    let m = k.rem_euclid(2 * (kept - 1));
                    m.min(2 * (kept - 1) - m)
                }
            };
            Ok(Some((first + at) as usize))
        })
        .collect()
}

/// Sizes of the result and the source position of each element.
fn positions(
    from: &[usize],
    low: &[i64],
    high: &[i64],
    mode: PadMode,
) -> Result<(Vec<usize>, Vec<Option<usize>>), OpError> {
    let maps = (0..from.len())
        .map(|a| pad_sources(from[a], low[a], high[a], mode).map_err(|e| OpError::new(format!("axis {a}: {e}"))))
        .collect::<Result<Vec<_>, _>>()?;
    let dims: Vec<usize> = maps.iter().map(Vec::len).collect();
    let strides = row_major_strides(from);
    let mut out = Vec::with_capacity(checked_numel(&dims)?);
    for_each_index(&dims, |index| {
        out.push(index.iter().enumerate().try_fold(0, |p, (a, &i)| maps[a][i].map(|s| p + s * strides[a])));
    });
    Ok((dims, out))
}

impl Pad {
    fn known(&self, cx: &InferCx<'_>, from: &Shape, to: &Shape) -> Option<Vec<Dim>> {
        let elems = cx.elems(0)?;
        let fill = cx.elems(1).and_then(<[Dim]>::first);
        let consts = |d: &[Dim]| d.iter().map(Dim::as_const).collect::<Option<Vec<_>>>();
        small_sizes(to)?;
        let (_, at) = positions(&small_sizes(from)?, &consts(&self.low)?, &consts(&self.high)?, self.mode).ok()?;
        at.into_iter().map(|p| p.map_or(fill, |p| elems.get(p)).cloned()).collect()
    }
}

impl OpRules for Pad {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        let fill = self.mode == PadMode::Constant;
        cx.expect_operands(if fill { 2 } else { 1 })?;
        let t = cx.tensor(0)?;
        let rank = t.shape.rank();
        one_per_axis("low", self.low.len(), rank)?;
        one_per_axis("high", self.high.len(), rank)?;
        if fill {
            cx.same_dtype(0..2)?;
            if cx.shape(1)?.rank() != 0 {
                return Err(OpError::new(format!("the fill must be a scalar, got {}", cx.tensor(1)?)));
            }
        }
        let mut dims = Vec::with_capacity(rank);
        for axis in 0..rank {
            let d = &(&t.shape[axis] + &self.low[axis]) + &self.high[axis];
            require_le(cx, &Dim::ZERO, &d, &format!("size of axis {axis} after cropping"))?;
            dims.push(d);
        }
        let to = Shape::from(dims);
        let elems = self.known(cx, &t.shape, &to);
        cx.result_elems(t.dtype, to, elems);
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::from(0)
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = arg(args, 0)?;
        let ints = |d: &[Dim]| d.iter().map(|d| cx.int(d)).collect::<Result<Vec<_>, _>>();
        let (dims, at) = positions(x.dims(), &ints(&self.low)?, &ints(&self.high)?, self.mode)?;
        let fill = if self.mode == PadMode::Constant { Some(arg(args, 1)?) } else { None };
        Ok(vec![take_or_fill(x, fill, &dims, &at)?.into()])
    }
}

impl Builder {
    /// Borders around `x`; `value` is the fill of `PadMode::Constant` (zero, false or "" if `None`) and unused otherwise.
    pub fn pad(
        &mut self,
        x: ValueId,
        value: Option<ValueId>,
        low: Vec<Dim>,
        high: Vec<Dim>,
        mode: PadMode,
    ) -> Result<ValueId, IrError> {
        let dtype = self.dtype(x)?;
        if low.iter().chain(&high).all(|d| d.as_const() == Some(0)) && low.len() == high.len() {
            return Ok(x);
        }
        let mut operands = vec![x];
        if mode == PadMode::Constant {
            operands.push(match value {
                Some(v) => v,
                None => {
                    let zero = crate::Tensor::zeros(dtype, &[]).map_err(|e| self.refuse("pad", &[x], e))?;
                    self.constant(zero)?
                }
            });
        }
        self.op1(Pad { low, high, mode }, &operands)
    }
}
