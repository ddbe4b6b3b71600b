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

/// Output positions `at..at + count` that meet cells `cell, cell + step, …` of the input.
#[derive(Clone, Copy)]
struct Run {
    at: usize,
    count: usize,
    cell: usize,
    step: usize,
}

impl Axis {
    /// The input cell under tap `k` of position `o`; `None` in padding and gaps. Wide, since nothing limits strides and padding.
    fn cell(&self, o: usize, k: usize) -> Option<usize> {
        let at = o as i128 * i128::from(self.stride) + k as i128 * i128::from(self.dilation) - i128::from(self.low);
        let spread = i128::from(self.spread);
        if at < 0 || at % spread != 0 {
            return None;
        }
        usize::try_from(at / spread).ok().filter(|&i| i < self.input)
    }

    /// The positions at which tap `k` meets a cell.
    fn runs(&self, k: usize) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for o in 0..self.output {
            let Some(cell) = self.cell(o, k) else { continue };
            match runs.last_mut() {
                Some(r)
                    if r.at + r.count == o && (r.count == 1 || r.cell + r.count * r.step == cell) && cell > r.cell =>
                {
                    if r.count == 1 {
                        r.step = cell - r.cell;
                    }
                    r.count += 1;
                }
                _ => runs.push(Run { at: o, count: 1, cell, step: 1 }),
            }
        }
        runs
    }
}

/// For each tap of a kernel in row-major order, where it meets the input.
pub(super) struct Taps {
    /// Sizes of the output, and of the input.
    sizes: Vec<(usize, usize)>,
    /// By axis and index of the tap.
    runs: Vec<Vec<Vec<Run>>>,
}

impl Taps {
    pub fn new(axes: &[Axis]) -> Taps {
        Taps {
            sizes: axes.iter().map(|a| (a.output, a.input)).collect(),
            runs: axes.iter().map(|a| (0..a.kernel).map(|k| a.runs(k)).collect()).collect(),
        }
    }

    /// For one tap, calls `f(output position, input cell, count, step)`, linear positions, for each run of neighbouring output positions
    /// that meet cells `step` apart.
    pub fn for_each_run(&self, tap: &[usize], f: &mut impl FnMut(usize, usize, usize, usize)) {
        let per_axis: Vec<&[Run]> = tap.iter().zip(&self.runs).map(|(&k, runs)| runs[k].as_slice()).collect();
        self.visit(&per_axis, 0, 0, f);
    }

    fn visit(&self, runs: &[&[Run]], out: usize, cell: usize, f: &mut impl FnMut(usize, usize, usize, usize)) {
        let depth = self.sizes.len() - runs.len();
        let (Some((first, rest)), Some(&(outputs, inputs))) = (runs.split_first(), self.sizes.get(depth)) else {
            return f(out, cell, 1, 1);
        };
        for r in *first {
            let (out, cell) = (out * outputs + r.at, cell * inputs + r.cell);
            if rest.is_empty() {
                f(out, cell, r.count, r.step);
            } else {
                (0..r.count).for_each(|i| self.visit(rest, out + i, cell + i * r.step, f));
            }
        }
    }
}

/// Padding amounts, of any sign.
pub(super) fn pads(cx: &EvalCx<'_>, dims: &[Dim]) -> Result<Vec<i64>, OpError> {
    dims.iter().map(|d| cx.int(d)).collect()
}
