//! A copy of the lines of the input that a block of output points sees, channels last, zeros around: the taps of a point
//! along the last axis are then one run, however few channels there are.

use super::gather::Source;
use super::phase::{Along, Phase};
use crate::tile::io;
use rlx_ir::DType;
use std::ops::Range;

/// The lines that a block of points sees.
pub struct Image {
    /// Elements that one line of taps of a point sees.
    pub width: usize,
    /// Lines of taps of a point.
    pub lines: usize,
    channels: usize,
    /// The first input index along the last axis, and how many there are.
    low: i64,
    across: usize,
    /// The first line that lies inside, and how many there are.
    first: i64,
    rows: usize,
    /// The first output of the last axis.
    start: usize,
}

impl Image {
    /// True for phases of one or two axes without dilation along the last, whose points leave no gaps there: all of a
    /// line is then seen, and the copy is no larger than what gathering would write, however far apart points lie.
    pub fn serves(phase: &Phase) -> bool {
        let close = |x: &Along| x.per_tap == 1 && (1..=x.taps as i64).contains(&x.per_out);
        matches!(&phase.axes[..], [x] | [_, x] if close(x))
    }

    /// What `points` see: parts of one line, or whole lines.
    pub fn of(phase: &Phase, channels: usize, points: Range<usize>) -> Image {
        let (x, y) = axes(phase);
        let (from, to) = (points.start / x.outs.max(1), points.end.saturating_sub(1) / x.outs.max(1));
        let start = if from == to { points.start % x.outs.max(1) } else { 0 };
        let outs = if from == to { points.len() } else { x.outs };
        let span = |a: Along, from: usize, to: usize| {
            let last = a.taps.saturating_sub(1) as i64 * a.per_tap;
            let (low, high) = (a.source + from as i64 * a.per_out, a.source + to as i64 * a.per_out);
            (low + last.min(0), high + last.max(0))
        };
        let (low, high) = span(x, start, start + outs.saturating_sub(1));
        let (top, bottom) = span(y, from, to);
        let (top, bottom) = (top.max(0), bottom.min(y.input as i64 - 1));
        Image {
            width: x.taps * channels,
            lines: y.taps,
            channels,
            low,
            across: (high - low + 1) as usize,
            first: top,
            rows: usize::try_from(bottom - top + 1).unwrap_or(0),
            start,
        }
    }

    /// Elements of a line of the copy.
    fn line(&self) -> usize {
        self.across * self.channels
    }

    /// Elements of the copy: a line of zeros behind the others.
    pub fn len(&self) -> usize {
        (self.rows + 1) * self.line()
    }

    /// Copies the lines.
    /// # Safety
    /// The input lies in the source's buffer; `dst` has room for [`Self::len`] elements.
    pub unsafe fn fill(&self, source: &Source<'_>, dst: *mut f32) {
        let (x, y) = axes(source.phase);
        let c = self.channels;
        let low = (-self.low).clamp(0, self.across as i64) as usize;
        let high = (x.input as i64 - self.low).clamp(low as i64, self.across as i64) as usize;
        for row in 0..self.rows {
            let at = source.offset + (self.first + row as i64) * y.stride + (self.low + low as i64) * x.stride;
            let to = dst.wrapping_add(row * self.line());
            // SAFETY: indices from `low` to `high` lie inside; the row lies in `dst`.
            unsafe {
                to.write_bytes(0, low * c);
                to.add(high * c).write_bytes(0, (self.across - high) * c);
                if source.dtype != DType::F32 {
                    let block = io::Block { sizes: &[high - low, c], strides: &[x.stride, source.channel] };
                    io::load(source.dtype, source.base, at, block, to.add(low * c).cast());
                    continue;
                }
                let from = source.base.cast::<f32>().offset(at as isize);
                if c == 1 && x.stride == 1 {
                    from.copy_to_nonoverlapping(to.add(low), high - low);
                    continue;
                }
                for channel in 0..c {
                    let from = from.wrapping_offset(channel as isize * source.channel as isize);
                    for i in 0..high - low {
                        *to.add((low + i) * c + channel) = *from.wrapping_offset(i as isize * x.stride as isize);
                    }
                }
            }
        }
        // SAFETY: the line of zeros lies behind the rows.
        unsafe { dst.add(self.rows * self.line()).write_bytes(0, self.line()) };
    }

    /// Where the lines of taps of `points` begin in the copy, point by point.
    /// # Safety
    /// `dst` has room for points × lines.
    pub unsafe fn starts(&self, phase: &Phase, points: Range<usize>, copy: *const f32, dst: *mut *const f32) {
        let (x, y) = axes(phase);
        let mut to = dst;
        for point in points {
            let (row, column) = (point / x.outs.max(1), point % x.outs.max(1));
            let across = (column - self.start) * x.per_out as usize * self.channels;
            for t in 0..self.lines {
                let line = match y.at(row, t) {
                    Some(i) => (i as i64 - self.first) as usize * self.line() + across,
                    None => self.rows * self.line(),
                };
                // SAFETY: the caller's promise.
                unsafe { *to = copy.wrapping_add(line) };
                to = to.wrapping_add(1);
            }
        }
    }
}

/// The last axis and the one before it.
fn axes(phase: &Phase) -> (Along, Along) {
    match phase.axes[..] {
        [.., y, x] => (x, y),
        [x] => (x, Along::POINT),
        [] => (Along::POINT, Along::POINT),
    }
}
