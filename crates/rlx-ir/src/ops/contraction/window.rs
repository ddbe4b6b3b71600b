//! Geometry of sliding windows over spatial axes, shared by convolution and its transpose.

use crate::dim::{Constraint, Dim};
use crate::error::OpError;
use crate::op::{EvalCx, InferCx};

/// Checks that per-axis attributes have one entry for each of `n` spatial axes and are in range.
pub(super) fn check_attributes(
    n: usize,
    positive: &[(&str, &[i64])],
    pads: &[(&str, &[Dim])],
    groups: i64,
) -> Result<(), OpError> {
    for (name, v) in positive {
        if v.len() != n {
            return Err(OpError::new(format!("{name} {v:?} needs one entry for each of the {n} spatial axes")));
        }
        if let Some(x) = v.iter().find(|&&x| x < 1) {
            return Err(OpError::new(format!("{name} must be ≥ 1, got {x}")));
        }
    }
    for (name, v) in pads {
        if v.len() != n {
            return Err(OpError::new(format!(
                "{name} needs one entry for each of the {n} spatial axes, has {}",
                v.len()
            )));
        }
    }
    if groups < 1 {
        return Err(OpError::new(format!("groups must be ≥ 1, got {groups}")));
    }
    Ok(())
}

/// Extent of a kernel of `k` taps spread by `dilation`.
pub(super) fn extent(k: &Dim, dilation: i64) -> Dim {
    (k - 1) * dilation + 1
}

/// Number of positions of a window of `window` cells at `stride` in `padded` cells; requires at least one.
pub(super) fn positions(cx: &mut InferCx<'_>, padded: Dim, window: Dim, stride: i64) -> Result<Dim, OpError> {
    let count = (&padded - &window).floor_div(stride) + 1;
    cx.require(Constraint::Le(window, padded), "the kernel must fit into the padded input")?;
    Ok(count)
}

/// A window's geometry along one axis with sizes known: output position `o` and tap `k` meet at cell `o·stride + k·dilation − low` of
/// the input spread by `spread`.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    /// Cells of the input.
    pub input: usize,
    /// Taps of the kernel.
    pub kernel: usize,
    /// Positions of the output.
    pub output: usize,
    /// Step between output positions.
    pub stride: i64,
    /// Step between taps.
    pub dilation: i64,
    /// Padding before the first cell.
    pub low: i64,
    /// Distance of input cells, the gaps being zero.
    pub spread: i64,
}

impl Axis {
    /// The input cell under tap `k` of position `o`; `None` in padding and gaps.
    pub fn cell(&self, o: usize, k: usize) -> Option<usize> {
        let at = (o as i64).checked_mul(self.stride)?.checked_add((k as i64).checked_mul(self.dilation)?)? - self.low;
        if at < 0 || at % self.spread != 0 {
            return None;
        }
        usize::try_from(at / self.spread).ok().filter(|&i| i < self.input)
    }
}

/// For one tap (an index into the kernel), calls `f(output position, input cell)`, both linear, wherever the tap meets a cell.
pub(super) fn for_each_cell(axes: &[Axis], tap: &[usize], f: &mut impl FnMut(usize, usize)) {
    fn go(axes: &[Axis], tap: &[usize], out: usize, cell: usize, f: &mut impl FnMut(usize, usize)) {
        let (Some((axis, axes)), Some((&k, tap))) = (axes.split_first(), tap.split_first()) else {
            return f(out, cell);
        };
        for o in 0..axis.output {
            if let Some(i) = axis.cell(o, k) {
                let (out, cell) = (out * axis.output + o, cell * axis.input + i);
                if axes.is_empty() { f(out, cell) } else { go(axes, tap, out, cell, f) }
            }
        }
    }
    go(axes, tap, 0, 0, f);
}

/// Padding amounts, of any sign.
pub(super) fn pads(cx: &EvalCx<'_>, dims: &[Dim]) -> Result<Vec<i64>, OpError> {
    dims.iter().map(|d| cx.int(d)).collect()
}
