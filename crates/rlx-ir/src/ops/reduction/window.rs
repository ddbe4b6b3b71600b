//! Where windows stand and which cells they see.

use crate::dim::{Constraint, Dim};
use crate::error::OpError;
use crate::eval::row_major_strides;
use crate::op::{EvalCx, InferCx};
use crate::tensor::checked_numel;
use crate::types::{Shape, TensorType};

/// The geometry that windowed ops share, borrowed from their attributes.
pub(super) struct Windows<'a> {
    pub window: &'a [i64],
    pub strides: &'a [i64],
    pub dilations: &'a [i64],
    pub pad_low: &'a [Dim],
    pub pad_high: &'a [Dim],
    pub ceil: bool,
}

/// What the windows along one axis see: for each window the linear offsets of its cells, and how many of its taps lie in the padded
/// axis.
pub(super) struct AxisWindows {
    pub cells: Vec<Vec<usize>>,
    pub padded: Vec<usize>,
}

/// Windows over concrete sizes.
pub(super) struct Placed {
    /// Number of planes: elements of the leading axes.
    pub planes: usize,
    /// Elements of a plane.
    pub plane: usize,
    /// Sizes of the result, leading axes included.
    pub dims: Vec<usize>,
    /// Per window axis.
    pub axes: Vec<AxisWindows>,
}

/// How many taps a window may have: all are visited for each result.
const MAX_TAPS: i64 = 1 << 28;

impl Windows<'_> {
    /// Index of the first window axis.
    fn lead(&self, rank: usize) -> Result<usize, OpError> {
        rank.checked_sub(self.window.len())
            .ok_or_else(|| OpError::new(format!("a window of {} axes does not fit rank {rank}", self.window.len())))
    }

    fn check(&self) -> Result<(), OpError> {
        let n = self.window.len();
        for (what, got) in [
            ("strides", self.strides.len()),
            ("dilations", self.dilations.len()),
            ("pad_low", self.pad_low.len()),
            ("pad_high", self.pad_high.len()),
        ] {
            if got != n {
                return Err(OpError::new(format!("{what} has {got} entries for {n} window axes; give one per axis")));
            }
        }
        for (what, v) in [("window", self.window), ("strides", self.strides), ("dilations", self.dilations)] {
            if let Some(x) = v.iter().find(|&&x| x < 1) {
                return Err(OpError::new(format!("{what} must be ≥ 1, got {x}")));
            }
        }
        if self.window.iter().try_fold(1i64, |n, &w| n.checked_mul(w)).is_none_or(|n| n > MAX_TAPS) {
            return Err(OpError::new(format!("a window of {:?} has more than {MAX_TAPS} taps", self.window)));
        }
        Ok(())
    }

    /// Distance from the first to the last tap, plus one.
    fn extent(&self, i: usize) -> Result<i64, OpError> {
        let e = (self.window[i] - 1).checked_mul(self.dilations[i]).and_then(|e| e.checked_add(1));
        e.ok_or_else(|| OpError::new(format!("window {} dilated by {} overflows", self.window[i], self.dilations[i])))
    }

    /// Sizes of the result. With `ceil`, windows may hang over the padded end, but one that starts beyond the input and its low
    /// padding is dropped.
    pub fn infer(&self, cx: &mut InferCx<'_>, shape: &Shape) -> Result<Vec<Dim>, OpError> {
        self.check()?;
        let lead = self.lead(shape.rank())?;
        let mut dims = shape.dims().to_vec();
        for (i, d) in dims.iter_mut().skip(lead).enumerate() {
            let begin = &*d + &self.pad_low[i];
            let padded = &begin + &self.pad_high[i];
            let (extent, stride) = (Dim::from(self.extent(i)?), self.strides[i]);
            // With `ceil` one window may hang over the end by less than a step.
            let least = if self.ceil { &extent - stride + 1 } else { extent.clone() };
            cx.require(Constraint::Le(least.max(Dim::ZERO), padded.clone()), "the window must fit the padded input")?;
            let span = padded - extent;
            *d = if self.ceil {
                // One less where the last window starts at `begin` or later: (count − 1) · stride ≥ begin.
                let before_last = span.ceil_div(stride);
                (&before_last + 1).min(before_last.max(begin.ceil_div(stride)))
            } else {
                span.floor_div(stride) + 1
            };
        }
        Ok(dims)
    }

    /// Taps of all windows.
    pub fn work(&self, results: &[TensorType]) -> Dim {
        results.first().map_or(Dim::ZERO, |t| t.shape.numel()) * Dim::product(self.window.iter().copied())
    }

    /// Places the windows over an input of these sizes.
    pub fn place(&self, cx: &EvalCx<'_>, sizes: &[usize]) -> Result<Placed, OpError> {
        self.check()?;
        let lead = self.lead(sizes.len())?;
        let (outer, inner) = sizes.split_at(lead);
        let steps = row_major_strides(inner);
        let mut dims = outer.to_vec();
        let mut axes = Vec::with_capacity(inner.len());
        for (i, &n) in inner.iter().enumerate() {
            let (low, high) = (i128::from(cx.int(&self.pad_low[i])?), i128::from(cx.int(&self.pad_high[i])?));
            let (stride, dilation) = (i128::from(self.strides[i]), i128::from(self.dilations[i]));
            let (begin, extent) = (n as i128 + low, i128::from(self.extent(i)?));
            let padded = begin + high;
            if extent > padded + if self.ceil { stride - 1 } else { 0 } {
                return Err(OpError::new(format!("a window of {extent} cells does not fit {padded} padded cells")));
            }
            let span = padded - extent;
            let mut count = if self.ceil { (span + stride - 1) / stride } else { span / stride } + 1;
            if self.ceil && (count - 1) * stride >= begin {
                count -= 1;
            }
            let count = usize::try_from(count).map_err(|_| OpError::new("too many windows"))?;
            cx.scratch(&[count])?;
            let mut axis = AxisWindows { cells: Vec::new(), padded: Vec::new() };
            for o in 0..count as i128 {
                // Tap k is at o·stride + k·dilation of the padded input; taps between `first` and `end` are on cells, which keeps this
                // short however wide the window is.
                let start = o * stride;
                let taps_before =
                    |p: i128| ((p - start + dilation - 1).max(0) / dilation).min(i128::from(self.window[i]));
                let (first, end) = (taps_before(low), taps_before(begin));
                let cells = (first..end).map(|k| (start + k * dilation - low) as usize * steps[i]).collect();
                axis.cells.push(cells);
                axis.padded.push(usize::try_from(taps_before(padded)).map_err(|_| OpError::new("too many taps"))?);
            }
            dims.push(count);
            axes.push(axis);
        }
        checked_numel(&dims)?;
        Ok(Placed { planes: checked_numel(outer)?, plane: checked_numel(inner)?, dims, axes })
    }
}

impl Placed {
    /// Calls `f` for every window of a plane, in row-major order, with the window's lists of cell offsets per axis and the number of its
    /// taps inside the padded input.
    pub fn for_each(&self, mut f: impl FnMut(&[&[usize]], usize)) {
        let counts: Vec<usize> = self.axes.iter().map(|a| a.cells.len()).collect();
        let mut cells: Vec<&[usize]> = vec![&[]; counts.len()];
        crate::eval::for_each_index(&counts, |index| {
            let mut padded = 1;
            for ((slot, axis), &o) in cells.iter_mut().zip(&self.axes).zip(index) {
                *slot = &axis.cells[o];
                padded = axis.padded[o].saturating_mul(padded);
            }
            f(&cells, padded);
        });
    }
}

/// Calls `f` with the linear position of every cell of a window.
pub(super) fn for_each_cell(cells: &[&[usize]], base: usize, f: &mut impl FnMut(usize)) {
    match cells {
        [] => f(base),
        [last] => last.iter().for_each(|c| f(base + c)),
        [first, rest @ ..] => first.iter().for_each(|c| for_each_cell(rest, base + c, f)),
    }
}
