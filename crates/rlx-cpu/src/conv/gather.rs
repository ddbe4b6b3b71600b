//! Gathers what output points see into dense blocks (im2col, a block at a time).

use super::phase::{Along, Phase};
use crate::space::unravel;
use crate::tile::io;
use rlx_ir::DType;
use std::ops::Range;

/// The input of one image and group.
pub struct Source<'a> {
    /// Its phase.
    pub phase: &'a Phase,
    /// Element type.
    pub dtype: DType,
    /// The buffer.
    pub base: *const u8,
    /// Position of the group's first channel at input index 0.
    pub offset: i64,
    /// Channels of the group.
    pub channels: usize,
    /// Step from one channel to the next.
    pub channel: i64,
}

/// Axes beyond this many are not expected.
const MAX_RANK: usize = 8;

/// One tap of a run of points along the last axis.
struct Run {
    /// Position of index 0 of the last axis; `None` where the tap lies outside along another.
    at: Option<i64>,
    /// Points before the run, and of it.
    done: usize,
    n: usize,
    tap: usize,
    /// The run's points whose tap lies inside along the last axis.
    low: usize,
    high: usize,
    /// The first point's input index along the last axis, inside or not.
    index: i64,
}

impl Source<'_> {
    /// Copies `n` elements, to what the dtype has in slots.
    /// # Safety
    /// The elements lie in the buffer; `dst` has room.
    #[inline(always)]
    unsafe fn copy<T: Copy>(&self, at: i64, n: usize, step: i64, dst: *mut T) {
        // SAFETY: the caller's promise.
        unsafe {
            // Elements of that width are in memory what they are in slots.
            if self.dtype.bits() == 8 * size_of::<T>() {
                let from = self.base.cast::<T>().offset(at as isize);
                if step == 1 && n >= 8 {
                    std::ptr::copy_nonoverlapping(from, dst, n);
                } else {
                    for i in 0..n {
                        *dst.add(i) = *from.offset(i as isize * step as isize);
                    }
                }
            } else {
                io::load(self.dtype, self.base, at, io::Block { sizes: &[n], strides: &[step] }, dst.cast());
            }
        }
    }

    /// Points `points` as dense rows of taps × channels, with `outside` for taps that lie there.
    /// # Safety
    /// The input lies in the buffer; `dst` has room for the rows.
    pub unsafe fn rows<T: Copy>(&self, points: Range<usize>, outside: T, dst: *mut T) {
        let (outer, last) = self.split();
        let width = self.phase.taps() * self.channels;
        // Taps of the last axis lie side by side: what is inside is one run.
        let run = self.channel == 1 && last.per_tap * last.stride == self.channels as i64;
        let mut index = [0usize; MAX_RANK];
        let rank = outer.len() + 1;
        unravel(points.start, &self.outs(), &mut index[..rank]);
        for i in 0..points.len() {
            // SAFETY: row i lies in `dst`; positions of taps inside lie in the buffer.
            unsafe {
                let mut to = dst.add(i * width);
                let x = index[rank - 1];
                let row = last.taps * self.channels;
                self.each_outer_tap(outer, &index, |at| {
                    match at {
                        None => fill(to, outside, row),
                        Some(at) if run => {
                            let (low, high) = range(last, x);
                            let (low_len, len) = (low * self.channels, (high - low) * self.channels);
                            fill(to, outside, low_len);
                            if len > 0 {
                                let i = last.source + x as i64 * last.per_out + low as i64 * last.per_tap;
                                self.copy(at + i * last.stride, len, 1, to.add(low_len));
                            }
                            fill(to.add(low_len + len), outside, row - low_len - len);
                        }
                        Some(at) => {
                            for t in 0..last.taps {
                                let to = to.add(t * self.channels);
                                match last.at(x, t) {
                                    Some(i) => {
                                        self.copy(at + i as i64 * last.stride, self.channels, self.channel, to);
                                    }
                                    None => fill(to, outside, self.channels),
                                }
                            }
                        }
                    }
                    to = to.add(row);
                });
            }
            self.advance(&mut index, rank);
        }
    }

    /// Points `points` as dense columns: channels × taps rows of as many elements as there are points.
    /// # Safety
    /// As [`Source::rows`].
    pub unsafe fn columns(&self, points: Range<usize>, dst: *mut f32) {
        let (count, taps) = (points.len(), self.phase.taps());
        self.each_run_tap(points, |Run { at, done, n, tap, low, high, index }| {
            let last = self.split().1;
            for c in 0..self.channels {
                // SAFETY: the run's places lie in `dst`; positions of taps inside lie in the buffer.
                unsafe {
                    let to = dst.add((c * taps + tap) * count + done);
                    let Some(at) = at.filter(|_| low < high) else {
                        std::ptr::write_bytes(to, 0, n);
                        continue;
                    };
                    let from = at + c as i64 * self.channel + (index + low as i64 * last.per_out) * last.stride;
                    std::ptr::write_bytes(to, 0, low);
                    self.copy(from, high - low, last.per_out * last.stride, to.add(low));
                    std::ptr::write_bytes(to.add(high), 0, n - high);
                }
            }
        });
    }

    /// Where the channels of each tap of points `points` begin: taps behind each other, point by point. `zeros` stands
    /// for taps outside. Channels lie side by side.
    /// # Safety
    /// `dst` has room for points × taps.
    pub unsafe fn starts(&self, points: Range<usize>, zeros: *const f32, dst: *mut *const f32) {
        let (taps, last) = (self.phase.taps(), self.split().1);
        let base = self.base.cast::<f32>();
        let step = (last.per_out * last.stride) as isize;
        self.each_run_tap(points, |Run { at, done, n, tap, low, high, index }| {
            let (low, high) = if at.is_some() { (low, high) } else { (0, 0) };
            let mut from = base.wrapping_offset((at.unwrap_or(0) + index * last.stride) as isize);
            let mut to = dst.wrapping_add(done * taps + tap);
            for i in 0..n {
                // SAFETY: point and tap lie within `dst`.
                unsafe { *to = if (low..high).contains(&i) { from } else { zeros } };
                to = to.wrapping_add(taps);
                from = from.wrapping_offset(step);
            }
        });
    }

    /// Calls `f` for each tap of each run of `points` along the last axis.
    #[inline(always)]
    fn each_run_tap(&self, points: Range<usize>, mut f: impl FnMut(Run)) {
        let (outer, last) = self.split();
        let rank = outer.len() + 1;
        let mut index = [0usize; MAX_RANK];
        unravel(points.start, &self.outs(), &mut index[..rank]);
        let mut done = 0;
        while done < points.len() {
            let x = index[rank - 1];
            let n = (last.outs - x).min(points.len() - done);
            let mut tap = 0;
            self.each_outer_tap(outer, &index, |at| {
                for t in 0..last.taps {
                    let (low, high) = last.inside(t);
                    let (low, high) = (low.clamp(x, x + n) - x, high.clamp(x, x + n) - x);
                    let index = last.source + x as i64 * last.per_out + t as i64 * last.per_tap;
                    f(Run { at, done, n, tap, low, high, index });
                    tap += 1;
                }
            });
            done += n;
            index[rank - 1] += n - 1;
            self.advance(&mut index, rank);
        }
    }

    fn split(&self) -> (&[Along], Along) {
        self.phase.axes.split_last().map_or((&[], Along::POINT), |(last, outer)| (outer, *last))
    }

    fn outs(&self) -> smallvec::SmallVec<[usize; 4]> {
        if self.phase.axes.is_empty() {
            return smallvec::smallvec![1];
        }
        self.phase.axes.iter().map(|a| a.outs).collect()
    }

    fn advance(&self, index: &mut [usize; MAX_RANK], rank: usize) {
        let axes = &self.phase.axes;
        for a in (0..rank).rev() {
            index[a] += 1;
            if axes.get(a).is_some_and(|x| index[a] < x.outs) {
                return;
            }
            index[a] = 0;
        }
    }

    /// Calls `f` for the taps of all axes but the last, in order, with the position of index 0 of the last axis, or `None`
    /// where the tap lies outside.
    #[inline(always)]
    fn each_outer_tap(&self, outer: &[Along], index: &[usize; MAX_RANK], mut f: impl FnMut(Option<i64>)) {
        match outer {
            [] => f(Some(self.offset)),
            [y] => {
                for t in 0..y.taps {
                    f(y.at(index[0], t).map(|i| self.offset + i as i64 * y.stride));
                }
            }
            _ => {
                let taps: smallvec::SmallVec<[usize; 4]> = outer.iter().map(|a| a.taps).collect();
                let mut tap = [0usize; MAX_RANK];
                for t in 0..taps.iter().product() {
                    unravel(t, &taps, &mut tap[..taps.len()]);
                    let at = outer.iter().enumerate().try_fold(self.offset, |at, (a, along)| {
                        along.at(index[a], tap[a]).map(|i| at + i as i64 * along.stride)
                    });
                    f(at);
                }
            }
        }
    }
}

/// # Safety
/// `to` has room for `n` elements.
#[inline(always)]
unsafe fn fill<T: Copy>(to: *mut T, value: T, n: usize) {
    for i in 0..n {
        // SAFETY: the caller's promise.
        unsafe { to.add(i).write(value) };
    }
}

/// The taps `low..high` of output `x` that lie inside. They are adjacent.
#[inline(always)]
fn range(a: Along, x: usize) -> (usize, usize) {
    let low = (0..a.taps).position(|t| a.at(x, t).is_some());
    let Some(low) = low else { return (0, 0) };
    let high = (low..a.taps).find(|&t| a.at(x, t).is_none()).unwrap_or(a.taps);
    (low, high)
}
