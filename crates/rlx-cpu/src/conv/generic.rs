//! Convolutions of any dtype, element by element: right first.

use super::ConvPlan;
use crate::buffers::{Ptr, RunCx};
use crate::contract::dot;
use crate::space::{position, unravel};
use crate::tile::code::Code;
use crate::tile::{Work, scratch};

impl ConvPlan {
    /// The input index that window element `w` of output index `o` meets on an axis, if there is one.
    fn source(&self, axis: usize, o: usize, w: usize) -> Option<usize> {
        let (o, w) = (o as i64, w as i64);
        let at = if self.transposed {
            let full = o + self.pad_low[axis] - w * self.dilations[axis];
            let stride = self.strides[axis].max(1);
            if full % stride != 0 {
                return None;
            }
            full / stride
        } else {
            o * self.strides[axis] + w * self.dilations[axis] - self.pad_low[axis]
        };
        usize::try_from(at).ok().filter(|&i| i < self.in_spatial[axis])
    }
}

/// Runs a convolution.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(p: &ConvPlan, code: &Code, run: &RunCx<'_>) {
    let (points, taps) = (p.out_spatial.iter().product::<usize>(), p.window.iter().product::<usize>());
    let (in_group, out_group) = (p.in_channels / p.groups, p.out_channels / p.groups);
    let (input, weight) = (Ptr(run.bufs.base(p.input.buffer)), Ptr(run.bufs.base(p.weight.buffer)));
    let work = Work::of(p.acc).unwrap_or(Work::F32);
    let rank = p.window.len();
    run.region.parallel_for(p.batch * p.out_channels, &|row| {
        let (b, oc) = (row / p.out_channels, row % p.out_channels);
        let group = oc / out_group.max(1);
        scratch::with(points * work.size(), |acc| {
            let acc = acc.as_mut_ptr();
            let mut pairs: Vec<(i64, i64)> = Vec::with_capacity(taps * in_group);
            let (mut out, mut tap) = (vec![0usize; rank], vec![0usize; rank]);
            for j in 0..points {
                unravel(j, &p.out_spatial, &mut out);
                pairs.clear();
                for t in 0..taps {
                    unravel(t, &p.window, &mut tap);
                    let mut x = p.input.offset + b as i64 * p.input.strides[0];
                    let inside = (0..rank).all(|a| match p.source(a, out[a], tap[a]) {
                        Some(i) => {
                            x += i as i64 * p.input.strides[2 + a];
                            true
                        }
                        None => false,
                    });
                    if !inside {
                        continue;
                    }
                    let w = position(t, &p.window, p.weight.offset, &p.weight.strides[2..]);
                    for c in 0..in_group {
                        let channel = group * in_group + c;
                        let (first, second) = if p.transposed { (channel, oc % out_group) } else { (oc, c) };
                        let w = w + first as i64 * p.weight.strides[0] + second as i64 * p.weight.strides[1];
                        pairs.push((x + channel as i64 * p.input.strides[1], w));
                    }
                }
                // SAFETY: the walks were checked to lie within their buffers at bind; acc holds `points` elements.
                unsafe {
                    let (x, w) =
                        ((p.input.dtype, input.get().cast_const()), (p.weight.dtype, weight.get().cast_const()));
                    dot(p.acc, x, w, pairs.len(), |c| pairs[c], acc, j);
                }
            }
            p.finish.with_runner(code, run.bufs, run.isa, |e| {
                // SAFETY: the row is this task's alone.
                unsafe { e.run(row, 0, points, acc) }
            });
        });
    });
}
