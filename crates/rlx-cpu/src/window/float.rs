//! Pooling of f32 in vectors: over channels where they lie side by side, else along the last spatial axis.
//!
//! Each output element is folded over the cells of its window in order.

use super::WindowPlan;
use crate::buffers::{Ptr, RunCx};
use crate::conv::phase::{Along, Row, interior, rows};
use crate::simd::{Kernel, MAX_W, Simd, dispatch};
use crate::space::{position, unravel};
use rlx_ir::DType;
use rlx_ir::ops::reduction::WindowKind;
use smallvec::SmallVec;

/// Windows over f32.
#[derive(Debug)]
pub struct Pooling {
    axes: SmallVec<[Along; 3]>,
    /// The last leading axis, over which elements lie side by side, is the axis of vectors.
    channels: bool,
}

/// Plans it, if the operand's layout allows it.
pub fn plan(p: &WindowPlan) -> Option<Pooling> {
    let (lead, rank) = (p.outer.len(), p.window.len());
    if p.input.dtype != DType::F32 || p.output.dtype != DType::F32 || rank == 0 || p.window.contains(&0) {
        return None;
    }
    let unit = |a: usize| p.input.strides[a] == 1 && p.output.strides[a] == 1;
    let channels = lead > 0 && unit(lead - 1) && p.outer[lead - 1] > 1;
    if !channels && !unit(lead + rank - 1) {
        return None;
    }
    let along = |a: usize| {
        let n = p.in_spatial[a] as i64;
        Along {
            outs: p.out_spatial[a],
            first: 0,
            step: 1,
            taps: p.window[a],
            first_tap: 0,
            tap_step: 1,
            source: -p.pad_low[a],
            per_out: p.strides[a],
            per_tap: p.dilations[a],
            // Negative padding crops.
            input: usize::try_from(n.min(n + p.pad_high[a])).unwrap_or(0),
            stride: p.input.strides[lead + a],
        }
    };
    Some(Pooling { axes: (0..rank).map(along).collect(), channels })
}

/// Cells of a task.
const TASK: usize = 1 << 15;

/// Runs it.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(f: &Pooling, p: &WindowPlan, run: &RunCx<'_>) {
    let Some((&x, outer)) = f.axes.split_last() else { return };
    let lead = p.outer.len();
    // Axes that are looped over one by one, and the length of the vectors' axis where that is channels.
    let (loops, channels) = if f.channels { (&p.outer[..lead - 1], p.outer[lead - 1]) } else { (&p.outer[..], 1) };
    let (input, output) = (Ptr(run.bufs.base(p.input.buffer)), Ptr(run.bufs.base(p.output.buffer)));
    let outs: SmallVec<[usize; 4]> = outer.iter().map(|a| a.outs).collect();
    let out_rows: usize = outs.iter().product();
    let cells = x.outs * channels * p.window.iter().product::<usize>();
    let each = (TASK / cells.max(1)).max(1);
    // Taps of an axis that a mean counts for an output.
    let counted = |axis: usize, o: usize| {
        let a = f.axes[axis];
        if !p.count_include_pad {
            return (0..a.taps).filter(|&t| a.at(o, t).is_some()).count();
        }
        let end = p.in_spatial[axis] as i64 + p.pad_high[axis];
        (0..a.taps).filter(|&t| a.source + o as i64 * a.per_out + (t as i64) * a.per_tap < end).count()
    };
    run.region.parallel_ranges(loops.iter().product::<usize>() * out_rows, each, &|range| {
        let mut index: SmallVec<[usize; 4]> = smallvec::smallvec![0; outer.len()];
        for r in range {
            let (plane, row) = (r / out_rows, r % out_rows);
            let from = position(plane, loops, p.input.offset, &p.input.strides[..loops.len()]);
            let to = position(plane, loops, p.output.offset, &p.output.strides[..loops.len()]);
            let to = position(row, &outs, to, &p.output.strides[lead..lead + outer.len()]);
            unravel(row, &outs, &mut index);
            let around: usize = index.iter().enumerate().map(|(a, &o)| counted(a, o)).product();
            let rows = rows(outer, row, x.taps, from);
            let by = |o: usize| match p.kind {
                WindowKind::Mean => (around * counted(outer.len(), o)) as f32,
                _ => 1.0,
            };
            let body = OutputRow {
                kind: p.kind,
                channels: f.channels.then_some(channels),
                input: input.get().cast::<f32>(),
                rows: &rows,
                x,
                out: output.get().cast::<f32>().wrapping_offset(to as isize),
                out_step: p.output.strides[lead + outer.len()],
                by: &by,
            };
            dispatch(run.isa, body);
        }
    });
}

/// One row of the output. The maker answers for the memory.
struct OutputRow<'a> {
    kind: WindowKind,
    /// How many channels lie side by side; `None`: vectors run along the row.
    channels: Option<usize>,
    input: *const f32,
    rows: &'a [Row],
    x: Along,
    out: *mut f32,
    out_step: i64,
    /// What a mean divides by.
    by: &'a dyn Fn(usize) -> f32,
}

impl Kernel for OutputRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match (self.kind, self.channels) {
            (WindowKind::Max, Some(n)) => self.over_channels::<S, true>(s, n),
            (_, Some(n)) => self.over_channels::<S, false>(s, n),
            (WindowKind::Max, None) => self.over_width::<S, true>(s),
            (_, None) => self.over_width::<S, false>(s),
        }
    }
}

impl OutputRow<'_> {
    #[inline(always)]
    fn start<S: Simd, const MAX: bool>(&self, s: S) -> S::F {
        s.splat(if MAX { f32::NEG_INFINITY } else { 0.0 })
    }

    #[inline(always)]
    fn join<S: Simd, const MAX: bool>(&self, s: S, a: S::F, b: S::F) -> S::F {
        if MAX { s.max(a, b) } else { s.add(a, b) }
    }

    /// A fold as the result of `count` cells.
    #[inline(always)]
    fn finish<S: Simd>(&self, s: S, v: S::F, count: f32) -> S::F {
        match self.kind {
            WindowKind::Mean if count == 0.0 => s.zero(),
            WindowKind::Mean => s.div(v, s.splat(count)),
            _ => v,
        }
    }

    #[inline(always)]
    fn over_channels<S: Simd, const MAX: bool>(&self, s: S, channels: usize) {
        let x = self.x;
        for o in 0..x.outs {
            let count = (self.by)(o);
            let to = self.out.wrapping_offset((o as i64 * self.out_step) as isize);
            let mut c = 0;
            while c < channels {
                // Several vectors at a time: independent folds.
                let mut folds = [self.start::<S, MAX>(s); 4];
                let lanes = |v: usize| (channels - c).saturating_sub(v * S::W).min(S::W);
                for row in self.rows {
                    for t in 0..x.taps {
                        let Some(i) = x.at(o, t) else { continue };
                        let from = self.input.wrapping_offset((row.at + i as i64 * x.stride) as isize);
                        for (v, fold) in folds.iter_mut().enumerate() {
                            // SAFETY: the cell lies inside, with `channels` elements.
                            let cell = unsafe {
                                let at = from.wrapping_add(c + v * S::W);
                                if lanes(v) == S::W { s.load(at) } else { s.load_partial(at, lanes(v)) }
                            };
                            *fold = self.join::<S, MAX>(s, *fold, cell);
                        }
                    }
                }
                for (v, &fold) in folds.iter().enumerate() {
                    // SAFETY: the output has `channels` elements.
                    unsafe {
                        let (to, value) = (to.wrapping_add(c + v * S::W), self.finish(s, fold, count));
                        // Partial stores are slow on some machines.
                        if lanes(v) == S::W { s.store(to, value) } else { s.store_partial(to, value, lanes(v)) }
                    }
                }
                c += 4 * S::W;
            }
        }
    }

    #[inline(always)]
    fn over_width<S: Simd, const MAX: bool>(&self, s: S) {
        let x = self.x;
        let (low, high) = interior(x);
        for o in (0..low).chain(high..x.outs) {
            let mut fold = self.start::<S, MAX>(s);
            for row in self.rows {
                for t in 0..x.taps {
                    let Some(i) = x.at(o, t) else { continue };
                    // SAFETY: the cell lies inside.
                    let cell =
                        unsafe { s.load_partial(self.input.wrapping_offset(row.at as isize).wrapping_add(i), 1) };
                    fold = self.join::<S, MAX>(s, fold, cell);
                }
            }
            // SAFETY: `o` is an output.
            unsafe {
                let mut lanes = [0.0f32; MAX_W];
                s.store(lanes.as_mut_ptr(), self.finish(s, fold, (self.by)(o)));
                *self.out.wrapping_add(o) = lanes[0];
            }
        }
        // Windows wholly inside count the same.
        let count = if low < high { (self.by)(low) } else { 1.0 };
        let mut o = low;
        while o < high {
            let n = (high - o).min(S::W);
            let mut fold = self.start::<S, MAX>(s);
            for row in self.rows {
                for t in 0..x.taps {
                    let i = x.source + o as i64 * x.per_out + t as i64 * x.per_tap;
                    let from = self.input.wrapping_offset((row.at + i) as isize);
                    // SAFETY: the cells of `n` windows lie inside.
                    let cell = unsafe {
                        if x.per_out == 1 {
                            if n == S::W { s.load(from) } else { s.load_partial(from, n) }
                        } else {
                            let mut lanes = [0.0f32; MAX_W];
                            for (q, lane) in lanes.iter_mut().enumerate().take(n) {
                                *lane = *from.wrapping_offset(q as isize * x.per_out as isize);
                            }
                            s.load(lanes.as_ptr())
                        }
                    };
                    fold = self.join::<S, MAX>(s, fold, cell);
                }
            }
            // SAFETY: `o..o + n` are outputs.
            unsafe {
                let (to, value) = (self.out.wrapping_add(o), self.finish(s, fold, count));
                if n == S::W { s.store(to, value) } else { s.store_partial(to, value, n) }
            }
            o += n;
        }
    }
}
