//! All steps of a layer.

use super::super::indices::Indices;
use super::super::memory;
use super::super::{Defined, Routine};
use super::cell::Functions;
use super::dense::{self, Dense, Owned};
use super::product::{Real, Rows, Weights};
use super::{Cell, Layer, is_narrow};
use crate::buffers::{KernelError, Ptr, RunCx};
use crate::library::memory::Failure;
use rlx_ir::ops::neural::RnnDirection;
use smallvec::SmallVec;

/// Elements of gates that are computed ahead.
const AHEAD: usize = 1 << 20;
/// Elements of a state in a task.
const TASK: usize = 1 << 12;

/// Operands and states of all directions.
struct Operands<'a, T> {
    x: Dense<'a, T>,
    w: Dense<'a, T>,
    r: Dense<'a, T>,
    /// `[d, 2 · rows]`, or empty.
    bias: Owned<T>,
    peephole: Owned<T>,
    lengths: SmallVec<[usize; 32]>,
    /// `[t, d, b, h]`.
    y: Ptr,
    h: Ptr,
    c: Ptr,
}

impl Routine for Layer {
    unsafe fn run(&self, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError> {
        // SAFETY: passes the caller's promise on; the type is the dtype's working type.
        unsafe {
            if is_narrow(self.x.access.dtype) { self.layer::<f32>(run) } else { self.layer::<f64>(run) }.map(|()| None)
        }
    }
}

impl Layer {
    /// # Safety
    /// Views were checked at bind.
    unsafe fn lengths(&self, run: &RunCx<'_>) -> Result<SmallVec<[usize; 32]>, KernelError> {
        let Some(view) = &self.lengths else { return Ok(smallvec::smallvec![self.t; self.b]) };
        let mut list: SmallVec<[i64; 32]> = smallvec::smallvec![0; self.b];
        // SAFETY: there is a length for each sequence.
        unsafe { Indices::new(view, run).load(0, &mut list) };
        let length = |(s, l): (usize, &i64)| {
            let fits = usize::try_from(*l).ok().filter(|&l| l <= self.t);
            fits.ok_or_else(|| format!("length {l} of sequence {s} is not in 0..={}, the number of steps", self.t))
        };
        list.iter().enumerate().map(length).collect()
    }

    /// # Safety
    /// Views were checked at bind; `T` is the operands' working type.
    unsafe fn layer<T: Real>(&self, run: &RunCx<'_>) -> Result<(), KernelError> {
        let (states, rows) = (self.d * self.b * self.h, self.cell.gates() * self.h);
        let optional = |v: &Option<crate::buffers::BoundView>, n: usize| if v.is_some() { n } else { 0 };
        // SAFETY: views were checked at bind, and no operand is written while the kernel runs.
        unsafe {
            let lengths = self.lengths(run)?;
            let mut h = dense::copy::<T>(self.h0.as_ref(), states, run)?;
            let mut c = dense::copy::<T>(self.c0.as_ref(), states, run)?;
            // The sequence of results where it lies, if it can be written as it is.
            let plain = self.y.is_dense() && size_of::<T>() * 8 == self.y.access.dtype.bits();
            let mut own = Owned::<T>::zeroed(if plain { 0 } else { self.y.numel() })?;
            let y = if plain { run.bufs.at(&self.y.access) } else { own.as_mut_ptr().cast() };
            let operands = Operands {
                x: dense::read::<T>(&self.x, run)?,
                w: dense::read(&self.w, run)?,
                r: dense::read(&self.r, run)?,
                bias: dense::copy(self.bias.as_ref(), optional(&self.bias, self.d * 2 * rows), run)?,
                peephole: dense::copy(self.peephole.as_ref(), optional(&self.peephole, self.d * 3 * self.h), run)?,
                lengths,
                y: Ptr(y),
                h: Ptr(h.as_mut_ptr().cast()),
                c: Ptr(c.as_mut_ptr().cast()),
            };
            let failure = Failure::default();
            run.region.parallel_for(self.d, &|side| failure.note(self.side(run, &operands, side)));
            failure.result()?;
            if !plain {
                memory::store(&self.y, run, &own);
            }
            memory::store(&self.last_h, run, &h);
            if let Some(last) = &self.last_c {
                memory::store(last, run, &c);
            }
        }
        Ok(())
    }

    /// All steps of one direction.
    /// # Safety
    /// As [`Layer::layer`]; each direction has its own parts of the results.
    unsafe fn side<T: Real>(&self, run: &RunCx<'_>, o: &Operands<'_, T>, side: usize) -> Result<(), KernelError> {
        let (t, b, i, h) = (self.t, self.b, self.i, self.h);
        let rows = self.cell.gates() * h;
        let n = self.functions.len() / self.d;
        let part = |n: usize| side * n..(side + 1) * n;
        let both = o.bias.get(part(2 * rows)).unwrap_or(&[]);
        let peephole = o.peephole.get(part(3 * h)).unwrap_or(&[]);
        let (x_bias, r_bias) = both.split_at(rows.min(both.len()));
        let mut bias = Owned::<T>::zeroed(rows)?;
        bias.iter_mut().zip(x_bias).for_each(|(b, &x)| *b = x);
        // The bias of the state's part joins that of the input's part, unless the reset gate comes between.
        let joined = if self.cell == (Cell::Gru { linear_before_reset: true }) { 2 * h } else { rows };
        bias.iter_mut().zip(r_bias).take(joined).for_each(|(b, &r)| *b = b.add(r));
        let step = Step {
            layer: self,
            side,
            cell: Functions {
                functions: self.functions.get(side * n..(side + 1) * n).unwrap_or(&[]),
                clip: self.clip.map(T::from_float),
                peephole,
            },
            candidate_bias: r_bias.get(2 * h..).unwrap_or(&[]),
            r: self.recurrent(run, &o.r, side)?,
        };
        let w = T::weights(run, o.w.get(side * rows * i..(side + 1) * rows * i).unwrap_or(&[]), i, false)?;
        let w = if i == 0 { None } else { Some(w) };
        let backwards = self.direction == RnnDirection::Reverse || side == 1;
        let ahead = (AHEAD / (b * rows).max(1)).clamp(1, t.max(1));
        let candidates = if matches!(self.cell, Cell::Gru { .. }) { b * h } else { 0 };
        let chunks = t.div_ceil(ahead);
        memory::with::<T, _>(ahead * b * rows + candidates, |m| {
            let (gates, spare) = m.split_at_mut(ahead * b * rows);
            for chunk in 0..chunks {
                let chunk = if backwards { chunks - 1 - chunk } else { chunk };
                let first = chunk * ahead;
                let count = ahead.min(t - first);
                let c = Rows { data: gates.as_mut_ptr(), step: rows };
                match &w {
                    // SAFETY: there are count · b rows of i features and of gates.
                    Some(w) => unsafe {
                        let a = Rows { data: o.x.as_ptr().add(first * b * i), step: i };
                        T::product(run, count * b, a, w, c, Some(&bias))?;
                    },
                    None => gates.chunks_exact_mut(rows).for_each(|g| g.copy_from_slice(&bias)),
                }
                for k in 0..count {
                    let k = if backwards { count - 1 - k } else { k };
                    let gates = &mut gates[k * b * rows..(k + 1) * b * rows];
                    // SAFETY: passes the caller's promise on.
                    unsafe { step.take(run, o, first + k, gates, spare)? };
                }
            }
            Ok(())
        })?
    }

    /// The state's weights of a direction: those of all gates at once, for a gated recurrent unit the candidate's apart.
    fn recurrent<'a, T: Real>(
        &self,
        run: &RunCx<'_>,
        r: &'a [T],
        side: usize,
    ) -> Result<SmallVec<[Weights<'a, T>; 2]>, KernelError> {
        let (h, rows) = (self.h, self.cell.gates() * self.h);
        let r = r.get(side * rows * h..(side + 1) * rows * h).unwrap_or(&[]);
        let cut = if matches!(self.cell, Cell::Gru { .. }) { 2 * h * h } else { r.len() };
        let (first, rest) = r.split_at(cut.min(r.len()));
        let parts = [first, rest].into_iter().filter(|p| !p.is_empty());
        parts.map(|p| T::weights(run, p, h, self.t > 1)).collect()
    }
}

/// One step of one direction.
struct Step<'a, T> {
    layer: &'a Layer,
    side: usize,
    cell: Functions<'a, T>,
    /// Bias of the candidate's part that comes from the state; empty where it is in the gates already.
    candidate_bias: &'a [T],
    r: SmallVec<[Weights<'a, T>; 2]>,
}

impl<T: Real> Step<'_, T> {
    /// Takes a step of all sequences that have it. `gates` hold the inputs' part of each sequence.
    /// # Safety
    /// As [`Layer::side`].
    unsafe fn take(
        &self,
        run: &RunCx<'_>,
        o: &Operands<'_, T>,
        at: usize,
        gates: &mut [T],
        spare: &mut [T],
    ) -> Result<(), KernelError> {
        let l = self.layer;
        let (b, h, rows) = (l.b, l.h, l.cell.gates() * l.h);
        // SAFETY: each direction has a part of the states of its own.
        let state = |p: Ptr| unsafe { p.get().cast::<T>().add(self.side * b * h) };
        let (hs, cs) = (state(o.h), state(o.c));
        let before = Rows { data: hs.cast_const(), step: h };
        let (states, cells) = (Ptr(hs.cast()), Ptr(cs.cast()));
        let (gate, more) = (Ptr(gates.as_mut_ptr().cast()), Ptr(spare.as_mut_ptr().cast()));
        let c = Rows { data: gate.get().cast::<T>(), step: rows };
        // SAFETY: sequence s has row s of gates, states, cells and spare memory, and tasks share none.
        let row =
            |p: Ptr, n: usize, s: usize| unsafe { std::slice::from_raw_parts_mut(p.get().cast::<T>().add(s * n), n) };
        let each = |f: &(dyn Fn(usize) + Sync)| {
            run.region.parallel_ranges(b, (TASK / rows).max(1), &|r| {
                r.filter(|&s| at < o.lengths[s]).for_each(f);
            });
        };
        let weights = |k: usize| self.r.get(k).ok_or("it has no recurrent weights");
        // SAFETY: there are b rows on all sides.
        unsafe { T::product(run, b, before, weights(0)?, c, None)? };
        match l.cell {
            Cell::Rnn => each(&|s| {
                let g = row(gate, rows, s);
                self.cell.activate(run, 0, g);
                row(states, h, s).copy_from_slice(g);
            }),
            Cell::Lstm { input_forget } => each(&|s| {
                self.cell.lstm(run, input_forget, row(gate, rows, s), row(states, h, s), row(cells, h, s));
            }),
            Cell::Gru { linear_before_reset: true } => {
                (0..b).for_each(|s| match self.candidate_bias {
                    [] => row(more, h, s).fill(T::default()),
                    bias => row(more, h, s).copy_from_slice(bias),
                });
                let to = Rows { data: more.get().cast::<T>(), step: h };
                // SAFETY: as above.
                unsafe { T::product(run, b, before, weights(1)?, to, None)? };
                each(&|s| {
                    let (zr, n) = row(gate, rows, s).split_at_mut(2 * h);
                    self.cell.activate(run, 0, zr);
                    let reset = zr[h..].iter().zip(row(more, h, s).iter());
                    n.iter_mut().zip(reset).for_each(|(n, (&r, &x))| *n = n.add(r.mul(x)));
                    self.cell.activate(run, 1, n);
                    self.cell.gru(&zr[..h], n, row(states, h, s));
                });
            }
            Cell::Gru { linear_before_reset: false } => {
                (0..b).for_each(|s| row(more, h, s).fill(T::default()));
                each(&|s| {
                    let zr = &mut row(gate, rows, s)[..2 * h];
                    self.cell.activate(run, 0, zr);
                    let kept = zr[h..].iter().zip(row(states, h, s).iter());
                    row(more, h, s).iter_mut().zip(kept).for_each(|(k, (&r, &x))| *k = r.mul(x));
                });
                let from = Rows { data: more.get().cast::<T>().cast_const(), step: h };
                let to = Rows { data: c.data.wrapping_add(2 * h), step: rows };
                // SAFETY: as above; the candidate's columns are the last of each row.
                unsafe { T::product(run, b, from, weights(1)?, to, None)? };
                each(&|s| {
                    let (zr, n) = row(gate, rows, s).split_at_mut(2 * h);
                    self.cell.activate(run, 1, n);
                    self.cell.gru(&zr[..h], n, row(states, h, s));
                });
            }
        }
        for (s, &length) in o.lengths.iter().enumerate() {
            // SAFETY: [at, side, s] is one row of the results, which only this direction writes.
            let y = unsafe {
                let first = ((at * l.d + self.side) * b + s) * h;
                std::slice::from_raw_parts_mut(o.y.get().cast::<T>().add(first), h)
            };
            if at < length { y.copy_from_slice(row(states, h, s)) } else { y.fill(T::default()) }
        }
        Ok(())
    }
}
