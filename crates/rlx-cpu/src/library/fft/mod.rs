//! The discrete Fourier transform, line by line in f64.
//!
//! A real line of even length is transformed as a complex one of half its length, and put right afterwards. A NaN spreads over its
//! line and no further; where there are infinities, which elements are infinite and which NaN is not that of the sum written out.

mod complex;

use super::memory::{self, Failure};
use super::number::{Cells, Number, for_number};
use super::walk::Cursor;
use super::{Defined, Routine, agree, operands, split};
use crate::buffers::{BindError, BoundView, KernelError, RunCx, Sizes, Strides};
use complex::{Transform, turn};
use rlx_ir::ops::signal::Fft;

/// Points in a task, about.
const TASK: usize = 1 << 13;

/// Elements that are read or written at a time.
const BLOCK: usize = 256;

#[derive(Debug)]
struct Plan {
    inverse: bool,
    /// Points of the transform.
    length: usize,
    /// Elements that are read of a line, and that a line has in the result.
    taken: usize,
    bins: usize,
    kind: Kind,
    x: BoundView,
    out: BoundView,
    /// Sizes of the axes but for the transform's and the parts', and their steps in operand and result.
    sizes: Sizes,
    walks: [Strides; 2],
    axis: usize,
}

#[derive(Debug)]
enum Kind {
    /// Complex lines.
    Full(Transform),
    /// Real lines of even length: a transform of half the length, and `e^(−2πi·k/length)` for k up to a quarter.
    RealToHalf(Transform, Vec<(f64, f64)>),
    HalfToReal(Transform, Vec<(f64, f64)>),
}

/// Plans `fft`.
pub fn plan(op: &Fft, inputs: &[BoundView], outputs: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    let ([x], [out]) = (operands(inputs)?, operands(outputs)?);
    let rank = x.sizes.len();
    let length = op.length.as_const().and_then(|n| usize::try_from(n).ok()).filter(|&n| n >= 1);
    let Some(length) = length else { return Err(format!("a transform of {} points is none", op.length)) };
    let half = length / 2 + 1;
    let parts = |v: &BoundView| v.sizes.last().copied().unwrap_or(0);
    let bins = if op.onesided && !op.inverse { half } else { length };
    let others = |v: &BoundView| -> Sizes {
        v.sizes.iter().enumerate().filter(|(a, _)| *a != op.axis && a + 1 != rank).map(|(_, &n)| n).collect()
    };
    let fits = op.axis + 1 < rank
        && out.sizes.len() == rank
        && others(x) == others(out)
        && out.sizes[op.axis] == bins
        && matches!(parts(x), 1 | 2)
        && parts(out) == if op.gives_real() { 1 } else { 2 }
        && x.access.dtype == out.access.dtype;
    agree(fits, "fft", inputs, outputs)?;
    let most = if op.gives_real() { half } else { length };
    let even = length.is_multiple_of(2);
    let quarter = || (0..=length / 4).map(|k| turn(k as u128, length)).collect();
    let kind = match (op.inverse, op.onesided) {
        (false, _) if even && parts(x) == 1 => Kind::RealToHalf(Transform::new(length / 2), quarter()),
        (true, true) if even => Kind::HalfToReal(Transform::new(length / 2), quarter()),
        _ => Kind::Full(Transform::new(length)),
    };
    let walk = |v: &BoundView| -> Strides {
        v.access.strides.iter().enumerate().filter(|(a, _)| *a != op.axis && a + 1 != rank).map(|(_, &s)| s).collect()
    };
    Ok(Box::new(Plan {
        inverse: op.inverse,
        length,
        taken: most.min(x.sizes[op.axis]),
        bins,
        kind,
        sizes: others(x),
        walks: [walk(x), walk(out)],
        axis: op.axis,
        x: x.clone(),
        out: out.clone(),
    }))
}

impl Routine for Plan {
    unsafe fn run(&self, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError> {
        let lines = self.sizes.iter().product();
        let failure = Failure::default();
        split(run, self.out.access.dtype, lines, (TASK / self.length).max(1), &|r| {
            // SAFETY: passes the caller's promise on; lines are disjoint.
            failure.note(unsafe { for_number!(self.x.access.dtype, T => self.lines::<T>(run, r)) });
        });
        failure.result().map(|()| None)
    }
}

/// `a + b·i` times `c + d·i`.
fn product((a, b): (f64, f64), (c, d): (f64, f64)) -> (f64, f64) {
    (a * c - b * d, a * d + b * c)
}

impl Plan {
    fn transform(&self) -> &Transform {
        match &self.kind {
            Kind::Full(t) | Kind::RealToHalf(t, _) | Kind::HalfToReal(t, _) => t,
        }
    }

    /// # Safety
    /// Views were checked at bind; no other thread writes these lines of the result; `T` is the operand's working type.
    unsafe fn lines<T: Number>(&self, run: &RunCx<'_>, r: std::ops::Range<usize>) -> Result<(), KernelError> {
        let (from, to) = (Cells::<T>::of(&self.x, run), Cells::<T>::of(&self.out, run));
        let t = self.transform();
        let mut x = Cursor::new(&self.sizes, &self.walks[0], self.x.access.offset, r.start);
        let mut y = Cursor::new(&self.sizes, &self.walks[1], self.out.access.offset, r.start);
        // A line of the operand and of the result may be longer than the transform in between.
        let room = self.length + 1;
        memory::with::<f64, _>(2 * room + t.scratch(), |m| {
            let (re, rest) = m.split_at_mut(room);
            let (im, scratch) = rest.split_at_mut(room);
            for _ in r {
                // SAFETY: the elements are those of the cursors' lines.
                unsafe {
                    self.read(from, x.at(), re, im);
                    self.transform_line(run, re, im, scratch);
                    self.write(to, y.at(), re, im);
                }
                x.advance();
                y.advance();
            }
        })
    }

    /// One line, as parts, zeros behind its end.
    /// # Safety
    /// It lies at `at` in the operand.
    unsafe fn read<T: Number>(&self, cells: Cells<T>, at: i64, re: &mut [f64], im: &mut [f64]) {
        let (step, apart) = (self.x.access.strides[self.axis], self.x.access.strides.last().copied().unwrap_or(0));
        let complex = self.x.sizes.last() == Some(&2);
        let mut block = [T::default(); BLOCK];
        for (line, first, there) in [(re, at, true), (im, at + apart, complex)] {
            line.fill(0.0);
            if !there {
                continue;
            }
            for k in (0..self.taken).step_by(BLOCK) {
                let n = BLOCK.min(self.taken - k);
                // SAFETY: the caller's promise.
                unsafe { cells.load(first + k as i64 * step, step, &mut block[..n]) };
                line[k..k + n].iter_mut().zip(&block).for_each(|(to, v)| *to = v.to_f64());
            }
        }
    }

    /// # Safety
    /// As [`Plan::read`], of the result.
    unsafe fn write<T: Number>(&self, cells: Cells<T>, at: i64, re: &[f64], im: &[f64]) {
        let (step, apart) = (self.out.access.strides[self.axis], self.out.access.strides.last().copied().unwrap_or(0));
        let complex = self.out.sizes.last() == Some(&2);
        let mut block = [T::default(); BLOCK];
        for (line, first, there) in [(re, at, true), (im, at + apart, complex)] {
            for k in (0..if there { self.bins } else { 0 }).step_by(BLOCK) {
                let n = BLOCK.min(self.bins - k);
                block.iter_mut().zip(&line[k..k + n]).for_each(|(to, &v)| *to = T::from_float(v));
                // SAFETY: the caller's promise.
                unsafe { cells.store(first + k as i64 * step, step, &block[..n]) };
            }
        }
    }

    /// Transforms a line in place.
    fn transform_line(&self, run: &RunCx<'_>, re: &mut [f64], im: &mut [f64], scratch: &mut [f64]) {
        let n = self.length;
        match &self.kind {
            Kind::Full(t) => {
                let (re, im) = (&mut re[..n], &mut im[..n]);
                if self.inverse && self.out.sizes.last() == Some(&1) {
                    mirror(re, im);
                }
                if self.inverse {
                    t.run(run.isa, im, re, scratch);
                    re.iter_mut().chain(im).for_each(|v| *v /= n as f64);
                } else {
                    t.run(run.isa, re, im, scratch);
                }
            }
            Kind::RealToHalf(t, turns) => {
                let h = n / 2;
                for j in 0..h {
                    (re[j], im[j]) = (re[2 * j], re[2 * j + 1]);
                }
                t.run(run.isa, &mut re[..h], &mut im[..h], scratch);
                // Even and odd elements' transforms apart; of bins k and h − k at once.
                let (a, b) = (re[0], im[0]);
                (re[0], im[0], re[h], im[h]) = (a + b, 0.0, a - b, 0.0);
                for (k, &w) in turns.iter().enumerate().skip(1) {
                    let (p, q) = ((re[k], im[k]), (re[h - k], im[h - k]));
                    let even = ((p.0 + q.0) / 2.0, (p.1 - q.1) / 2.0);
                    let odd = product(((p.1 + q.1) / 2.0, (q.0 - p.0) / 2.0), w);
                    (re[k], im[k]) = (even.0 + odd.0, even.1 + odd.1);
                    (re[h - k], im[h - k]) = (even.0 - odd.0, odd.1 - even.1);
                }
                for k in h + 1..self.bins {
                    (re[k], im[k]) = (re[n - k], -im[n - k]);
                }
            }
            Kind::HalfToReal(t, turns) => {
                let h = n / 2;
                (re[0], im[0]) = (re[0] + re[h], re[0] - re[h]);
                for (k, &w) in turns.iter().enumerate().skip(1) {
                    let (p, q) = ((re[k], im[k]), (re[h - k], im[h - k]));
                    let even = (p.0 + q.0, p.1 - q.1);
                    let odd = product((p.0 - q.0, p.1 + q.1), (w.0, -w.1));
                    // Z = even + i·odd.
                    (re[k], im[k]) = (even.0 - odd.1, even.1 + odd.0);
                    (re[h - k], im[h - k]) = (even.0 + odd.1, odd.0 - even.1);
                }
                t.run(run.isa, &mut im[..h], &mut re[..h], scratch);
                for j in (0..h).rev() {
                    let (a, b) = (re[j] / n as f64, im[j] / n as f64);
                    (re[2 * j], re[2 * j + 1]) = (a, b);
                }
            }
        }
    }
}

/// The second half of a spectrum whose signal is real.
fn mirror(re: &mut [f64], im: &mut [f64]) {
    let n = re.len();
    // What these bins have of imaginary parts adds nothing to a real signal.
    im[0] = 0.0;
    if n.is_multiple_of(2) {
        im[n / 2] = 0.0;
    }
    for k in n / 2 + 1..n {
        (re[k], im[k]) = (re[n - k], -im[n - k]);
    }
}
