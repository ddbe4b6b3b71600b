//! Lines along an axis, in groups of neighbours that are walked side by side.

use super::walk::without;
use crate::buffers::{BoundView, RunCx, Sizes, Strides};
use crate::space::{Space, position};

/// Lines of a group at most.
pub const WIDTH: usize = 64;
/// Elements in a task, about.
const TASK: usize = 1 << 14;

/// The lines of a view along an axis, with where each has its place in another view.
#[derive(Debug)]
pub struct Lines {
    sizes: Sizes,
    x: Strides,
    y: Strides,
    x_offset: i64,
    y_offset: i64,
    /// Elements of a line.
    pub len: usize,
    /// Step from element to element.
    pub step: i64,
    /// Lines in a group.
    width: usize,
    written_bits: usize,
}

/// Neighbouring lines.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Lines.
    pub width: usize,
    /// First element of the first line.
    pub x: i64,
    /// Step to the next line.
    pub x_step: i64,
    /// Place of the first line in the other view.
    pub y: i64,
    /// Step to the next line's place.
    pub y_step: i64,
}

impl Lines {
    /// Lines of `x` along `axis`; `y_strides` are the steps in `y` of the other axes.
    pub fn new(x: &BoundView, axis: usize, y: &BoundView, y_strides: &[i64]) -> Lines {
        let sizes: Sizes = without(&x.sizes, axis);
        let strides: Strides = without(&x.access.strides, axis);
        let s = Space::in_order(&sizes, &[&strides, y_strides]);
        let walk = |w: usize| s.walks.get(w).cloned().unwrap_or_default();
        let (xs, step) = (walk(0), x.access.strides.get(axis).copied().unwrap_or(0));
        let across = xs.last().is_some_and(|s| s.unsigned_abs() < step.unsigned_abs());
        Lines {
            y: walk(1),
            x: xs,
            sizes: s.sizes,
            x_offset: x.access.offset,
            y_offset: y.access.offset,
            len: x.sizes.get(axis).copied().unwrap_or(0),
            step,
            width: if across { WIDTH } else { 1 },
            written_bits: y.access.dtype.bits(),
        }
    }

    /// Calls `f` for all groups, on several threads.
    pub fn for_each(&self, run: &RunCx<'_>, f: &(dyn Fn(Group) + Sync)) {
        let Some((&m, outer)) = self.sizes.split_last() else { return };
        let q = outer.len();
        let per = m.div_ceil(self.width);
        let groups = outer.iter().product::<usize>() * per;
        let chunk = (TASK / (self.len * self.width).max(1)).max(1);
        let part = |r: std::ops::Range<usize>| {
            for g in r {
                let (o, c) = (g / per, g % per * self.width);
                f(Group {
                    width: self.width.min(m - c),
                    x: position(o, outer, self.x_offset, &self.x[..q]) + c as i64 * self.x[q],
                    x_step: self.x[q],
                    y: position(o, outer, self.y_offset, &self.y[..q]) + c as i64 * self.y[q],
                    y_step: self.y[q],
                });
            }
        };
        if self.written_bits < 8 {
            part(0..groups);
        } else {
            run.region.parallel_ranges(groups, chunk, &part);
        }
    }
}
