//! Convolutions of one channel a group, without packing or gathering: over channels where they lie side by side, else
//! along the last spatial axis.
//!
//! Each output element is one chain of multiply-adds over the taps inside the input, in order.

use super::ConvPlan;
use super::phase::{Along, Phase, Row, interior, phases, rows};
use crate::buffers::{Ptr, RunCx};
use crate::contract::operand::{Axes, Operand, Panels, Rights, with_panels};
use crate::gemm::{Finish, Lines, Strided, apply_menu, load, panel_width};
use crate::simd::{Isa, Kernel, MAX_TILE_VECTORS, MAX_W, Simd, dispatch};
use crate::tile::code::Code;
use crate::tile::scratch;
use rlx_ir::DType;
use smallvec::{SmallVec, smallvec};

/// A convolution of one channel a group.
#[derive(Debug)]
pub struct Depthwise {
    phase: Phase,
    /// Taps by channels.
    weights: Rights,
    /// Channels lie side by side in the input; the output is then counted with channels last.
    pub last: bool,
}

impl Depthwise {
    /// The weights that runs keep in panels.
    pub fn weights(&self) -> &Rights {
        &self.weights
    }
}

/// Plans it, if the convolution is one.
pub fn plan(p: &ConvPlan, isa: Isa) -> Option<Depthwise> {
    let single = p.groups > 1 && p.in_channels == p.groups && p.out_channels == p.groups;
    if p.transposed || !single || p.input.dtype != DType::F32 || p.window.is_empty() || p.window.contains(&0) {
        return None;
    }
    let last = p.input.strides[1] == 1;
    if !last && p.input.strides.last() != Some(&1) {
        return None;
    }
    let phase = phases(p).pop()?;
    let w = &p.weight.strides;
    let weights = Operand {
        buffer: p.weight.buffer,
        dtype: p.weight.dtype,
        offset: p.weight.offset,
        slabs: Axes::new(&[], &[]),
        rows: Axes::new(&p.window, &w[2..]),
        cols: Axes::new(&[p.groups], &[w[0]]),
    };
    Some(Depthwise { phase, weights: Rights::new(isa, smallvec![weights]), last })
}

/// Multiply-adds of a task.
const TASK: usize = 1 << 16;
/// Elements of a piece of the output that is finished at a time.
const PIECE: usize = 1 << 13;

/// Runs it.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(d: &Depthwise, p: &ConvPlan, code: &Code, run: &RunCx<'_>) {
    // SAFETY: the caller's promise.
    unsafe {
        with_panels(run, &d.weights, |panels| {
            let Some((x, outer)) = d.phase.axes.split_last() else { return };
            let panels = panels[0];
            if d.last {
                over_channels(d, p, code, run, panels, outer, *x);
            } else {
                over_width(d, p, code, run, panels, outer, *x);
            }
        });
    }
}

/// # Safety
/// As [`run`].
unsafe fn over_channels(
    d: &Depthwise,
    p: &ConvPlan,
    code: &Code,
    run: &RunCx<'_>,
    panels: Panels,
    outer: &[Along],
    x: Along,
) {
    let channels = p.out_channels;
    let base = Ptr(run.bufs.base(p.input.buffer));
    let out_rows: usize = outer.iter().map(|a| a.outs).product();
    let each = (TASK / (x.outs * channels * d.phase.taps()).max(1)).max(1);
    let all = p.batch * out_rows;
    let piece = (PIECE / channels).clamp(1, x.outs);
    run.region.parallel_ranges(all, each, &|range| {
        scratch::with(piece * channels * size_of::<f32>(), |memory| {
            let memory = memory.as_mut_ptr().cast::<f32>();
            for r in range {
                let (image, row) = (r / out_rows, r % out_rows);
                let from = p.input.offset + image as i64 * p.input.strides[0];
                let rows = rows(outer, row, x.taps, from);
                for first in (0..x.outs).step_by(piece) {
                    let outs = first..x.outs.min(first + piece);
                    let n = outs.len();
                    let point = row * x.outs + first;
                    let placed = p.finish.direct().map(|d| d.at(&run.bufs, &[p.batch], image, point, 0));
                    let (out, out_row) =
                        placed.map_or((memory, channels as isize), |(c, _)| (c.data.cast_mut(), c.row));
                    let finish = placed.and_then(|(_, menu)| menu.finish_at_once());
                    let body = OverChannels {
                        input: base.get().cast::<f32>(),
                        rows: &rows,
                        panels: panels.slab(0),
                        taps: d.phase.taps(),
                        x,
                        outs,
                        channels,
                        out: Lines { data: out, row: out_row },
                        finish: finish.unwrap_or(Finish::NONE),
                    };
                    dispatch(run.isa, body);
                    match placed {
                        Some(_) if finish.is_some() => {}
                        // SAFETY: the piece is within the result, which the menu's operands cover.
                        Some((_, menu)) => unsafe { apply_menu(run.isa, &menu, out, out_row, n, channels) },
                        None => p.finish.with_runner(code, run.bufs, run.isa, |e| {
                            let row = image * out_rows * x.outs + point;
                            let step = (channels * size_of::<f32>()) as isize;
                            // SAFETY: the rows are this task's alone.
                            unsafe { e.run_rows(row..row + n, 0, channels, out.cast(), step) };
                        }),
                    }
                }
            }
        });
    });
}

/// A piece of an output row, all channels. The maker answers for the memory.
struct OverChannels<'a> {
    input: *const f32,
    rows: &'a [Row],
    panels: *const f32,
    taps: usize,
    x: Along,
    outs: std::ops::Range<usize>,
    channels: usize,
    out: Lines,
    finish: Finish,
}

/// Output points at a time: enough independent sums to hide the latency of multiply-adds.
const POINTS: usize = 4;

impl Kernel for OverChannels<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // Common windows have loops of their own: inputs and weights that points share are loaded once.
        match (self.x.taps, self.x.per_out, self.x.per_tap) {
            (3, 1, 1) => s.vectorize(Taps::<3, 1>(self)),
            (3, 2, 1) => s.vectorize(Taps::<3, 2>(self)),
            (5, 1, 1) => s.vectorize(Taps::<5, 1>(self)),
            (5, 2, 1) => s.vectorize(Taps::<5, 2>(self)),
            _ => s.vectorize(Taps::<0, 0>(self)),
        }
    }
}

/// A window of T taps and steps of STEP along the last axis; of any where T is 0.
struct Taps<'a, const T: usize, const STEP: usize>(OverChannels<'a>);

impl<const T: usize, const STEP: usize> Kernel for Taps<'_, T, STEP> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let k = &self.0;
        let nr = S::W * S::TILE_VECTORS;
        let (low, high) = interior(k.x);
        let (low, high) = (low.clamp(k.outs.start, k.outs.end), high.clamp(k.outs.start, k.outs.end));
        let mut o = k.outs.start;
        while o < k.outs.end {
            let inside = if o >= low { high.saturating_sub(o) } else { 0 };
            // All channels of some points, then the next ones: memory is read in order.
            for panel in 0..k.channels.div_ceil(nr) {
                let width = (k.channels - panel * nr).min(nr);
                match (inside, width == nr) {
                    (POINTS.., true) => self.points::<S, POINTS, true, true>(s, panel, width, o),
                    (POINTS.., false) => self.points::<S, POINTS, true, false>(s, panel, width, o),
                    (1.., true) => self.points::<S, 1, true, true>(s, panel, width, o),
                    (_, true) => self.points::<S, 1, false, true>(s, panel, width, o),
                    (_, false) => self.points::<S, 1, false, false>(s, panel, width, o),
                }
            }
            o += if inside >= POINTS { POINTS } else { 1 };
        }
    }
}

impl<const T: usize, const STEP: usize> Taps<'_, T, STEP> {
    /// P points from `o` on.
    // Plain index loops: constant bounds, unrolled whole, so that the sums stay in registers.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn points<S: Simd, const P: usize, const INSIDE: bool, const WHOLE: bool>(
        &self,
        s: S,
        panel: usize,
        width: usize,
        o: usize,
    ) {
        let k = &self.0;
        let nr = S::W * S::TILE_VECTORS;
        let vectors = S::TILE_VECTORS;
        let x = k.x;
        let lanes = |v: usize| width.saturating_sub(v * S::W).min(S::W);
        let mut sums = [[s.zero(); P]; MAX_TILE_VECTORS];
        let weights = k.panels.wrapping_add(panel * k.taps * nr);
        let channel = k.input.wrapping_add(panel * nr);
        // SAFETY: rows and taps inside lie within the input, `width` channels from the panel's first on within its
        // channels; the panel has `taps` steps; points and channels lie within the result.
        unsafe {
            for row in k.rows {
                let first = x.source + o as i64 * x.per_out;
                let w = weights.wrapping_add(row.tap * nr);
                if T > 0 && INSIDE {
                    let from = channel.wrapping_offset((row.at + first * x.stride) as isize);
                    for v in 0..vectors {
                        let mut wv = [s.zero(); T];
                        for t in 0..T {
                            wv[t] = s.load(w.wrapping_add(t * nr + v * S::W));
                        }
                        for i in 0..(P - 1) * STEP + T {
                            let at = from.wrapping_offset(i as isize * x.stride as isize).wrapping_add(v * S::W);
                            let xv = load::<S, WHOLE>(s, at, lanes(v));
                            for q in 0..P {
                                if i >= q * STEP && i < q * STEP + T {
                                    sums[v][q] = s.mul_add(wv[i - q * STEP], xv, sums[v][q]);
                                }
                            }
                        }
                    }
                    continue;
                }
                for t in 0..x.taps {
                    let i = first + t as i64 * x.per_tap;
                    if !INSIDE && !(0..x.input as i64).contains(&i) {
                        continue;
                    }
                    let from = channel.wrapping_offset((row.at + i * x.stride) as isize);
                    let w = w.wrapping_add(t * nr);
                    for v in 0..vectors {
                        let wv = s.load(w.wrapping_add(v * S::W));
                        for q in 0..P {
                            let at = from.wrapping_offset(q as isize * (x.per_out * x.stride) as isize);
                            let xv = load::<S, WHOLE>(s, at.wrapping_add(v * S::W), lanes(v));
                            sums[v][q] = s.mul_add(wv, xv, sums[v][q]);
                        }
                    }
                }
            }
            let to = k.out.data.wrapping_offset((o - k.outs.start) as isize * k.out.row);
            let to = Lines { data: to, ..k.out };
            let mut finish = k.finish;
            finish.residual = finish.residual.below(o - k.outs.start);
            for v in 0..vectors {
                if lanes(v) > 0 {
                    let j = panel * nr + v * S::W;
                    finish.store::<S, P, WHOLE>(s, sums[v], (Lines::NONE, to), j, lanes(v));
                }
            }
        }
    }
}

/// # Safety
/// As [`run`].
unsafe fn over_width(
    d: &Depthwise,
    p: &ConvPlan,
    code: &Code,
    run: &RunCx<'_>,
    panels: Panels,
    outer: &[Along],
    x: Along,
) {
    let channels = p.out_channels;
    let base = Ptr(run.bufs.base(p.input.buffer));
    let out_rows: usize = outer.iter().map(|a| a.outs).product();
    let taps = d.phase.taps();
    let each = (TASK / (x.outs * taps).max(1)).max(1);
    let nr = panel_width(run.isa);
    let inside = interior(x);
    run.region.parallel_ranges(p.batch * channels * out_rows, each, &|range| {
        let mut weights: SmallVec<[f32; 32]> = smallvec![0.0; taps];
        let mut loaded = None;
        scratch::with(x.outs * size_of::<f32>(), |memory| {
            let memory = memory.as_mut_ptr().cast::<f32>();
            for r in range {
                let (plane, row) = (r / out_rows, r % out_rows);
                let (image, c) = (plane / channels, plane % channels);
                if loaded != Some(c) {
                    loaded = Some(c);
                    let panel = panels.slab(0).wrapping_add(c / nr * taps * nr + c % nr);
                    for (t, w) in weights.iter_mut().enumerate() {
                        // SAFETY: the channel's panel has `taps` steps.
                        *w = unsafe { *panel.add(t * nr) };
                    }
                }
                let from = p.input.offset + image as i64 * p.input.strides[0] + c as i64 * p.input.strides[1];
                let rows = rows(outer, row, x.taps, from);
                let placed = p.finish.direct().map(|d| d.at(&run.bufs, &[p.batch], image, row * x.outs, c));
                let out = placed.map_or(memory, |(m, _)| m.data.cast_mut());
                let input = base.get().cast::<f32>();
                dispatch(run.isa, OverWidth { input, rows: &rows, weights: &weights, x, inside, out });
                match placed {
                    Some((m, mut menu)) => {
                        // The row of points is a row here and a column of the matrices of points by channels.
                        let turn = |m: Strided| Strided { row: m.col, col: m.row, ..m };
                        (menu.bias, menu.residual) = (menu.bias.map(turn), menu.residual.map(turn));
                        // SAFETY: the row is within the result, which the menu's operands cover.
                        unsafe { apply_menu(run.isa, &menu, out, m.col, 1, x.outs) };
                    }
                    None => p.finish.with_runner(code, run.bufs, run.isa, |e| {
                        // SAFETY: the row of points is this task's alone.
                        unsafe { e.run(plane, row * x.outs, x.outs, out.cast()) };
                    }),
                }
            }
        });
    });
}

/// One output row of one channel. The maker answers for the memory.
struct OverWidth<'a> {
    input: *const f32,
    rows: &'a [Row],
    weights: &'a [f32],
    x: Along,
    /// Outputs of which all taps lie inside.
    inside: (usize, usize),
    out: *mut f32,
}

/// Vectors of outputs at a time: enough independent sums to hide the latency of multiply-adds.
const VECTORS: usize = 4;

impl Kernel for OverWidth<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (low, high) = self.inside;
        // SAFETY: only outputs below `outs` are written, and only taps inside the input are read.
        unsafe {
            for o in (0..low).chain(high..self.x.outs) {
                self.edge(s, o);
            }
            let mut o = low;
            while o + VECTORS * S::W <= high {
                self.inner::<S, VECTORS>(s, o, S::W);
                o += VECTORS * S::W;
            }
            while o < high {
                let n = (high - o).min(S::W);
                self.inner::<S, 1>(s, o, n);
                o += n;
            }
        }
    }
}

impl OverWidth<'_> {
    /// One output of which some taps may lie outside.
    /// # Safety
    /// `o` is an output.
    #[inline(always)]
    unsafe fn edge<S: Simd>(&self, s: S, o: usize) {
        let mut sum = s.zero();
        // SAFETY: taps inside lie in the input's memory.
        unsafe {
            for row in self.rows {
                for t in 0..self.x.taps {
                    if let Some(i) = self.x.at(o, t) {
                        let from = self.input.wrapping_offset(row.at as isize).wrapping_add(i);
                        sum = s.mul_add(s.splat(self.weights[row.tap + t]), s.splat(*from), sum);
                    }
                }
            }
            let mut lanes = [0.0f32; MAX_W];
            s.store(lanes.as_mut_ptr(), sum);
            *self.out.wrapping_add(o) = lanes[0];
        }
    }

    /// `V` vectors of outputs of which all taps lie inside; where there is one, only `n` of its lanes.
    /// # Safety
    /// The outputs from `o` on are such.
    #[inline(always)]
    unsafe fn inner<S: Simd, const V: usize>(&self, s: S, o: usize, n: usize) {
        let mut sums = [s.zero(); V];
        let step = self.x.per_out as isize;
        // SAFETY: taps inside lie in the input's memory.
        unsafe {
            for row in self.rows {
                let first = self.x.source + o as i64 * self.x.per_out;
                for t in 0..self.x.taps {
                    let i = first + t as i64 * self.x.per_tap;
                    let from = self.input.wrapping_offset((row.at + i) as isize);
                    let weight = s.splat(self.weights[row.tap + t]);
                    for (v, sum) in sums.iter_mut().enumerate() {
                        let from = from.wrapping_offset((v * S::W) as isize * step);
                        let cells = if step != 1 {
                            let mut lanes = [0.0f32; MAX_W];
                            for (q, lane) in lanes.iter_mut().enumerate().take(n) {
                                *lane = *from.wrapping_offset(q as isize * step);
                            }
                            s.load(lanes.as_ptr())
                        } else if n == S::W {
                            s.load(from)
                        } else {
                            s.load_partial(from, n)
                        };
                        *sum = s.mul_add(weight, cells, *sum);
                    }
                }
            }
            for (v, &sum) in sums.iter().enumerate() {
                let to = self.out.wrapping_add(o + v * S::W);
                if n == S::W { s.store(to, sum) } else { s.store_partial(to, sum, n) }
            }
        }
    }
}
