//! Resizing by interpolation, axis by axis from the first to the last.
//!
//! A row of the first resized axis is blended from rows of the operand; then the next axis is resized within it, and so
//! on: working memory is one row per axis. f32 and narrower floats are blended in f32, all others in f64.

use super::memory::{self, Failure};
use super::number::{Cells, Number, for_number};
use super::{Defined, Routine, agree, operands, remap, split};
use crate::buffers::{BindError, BoundView, KernelError, Ptr, RunCx};
use crate::simd::{Isa, Kernel, Simd, dispatch};
use crate::space::position;
use crate::tile::io;
use rlx_driver::AlignedBuffer;
use rlx_ir::DType;
use rlx_ir::element::float_to_int;
use rlx_ir::ops::neural::{Resize, ResizeMode, Taps};
use std::ops::Range;

/// Elements of the result in a task, about.
const TASK: usize = 1 << 14;

/// Plans `resize`.
pub fn plan(op: &Resize, inputs: &[BoundView], outputs: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    let ([x], [out]) = (operands(inputs)?, operands(outputs)?);
    let same = x.sizes.len() == out.sizes.len() && x.access.dtype == out.access.dtype;
    agree(same, "resize", inputs, outputs)?;
    let mut axes = Vec::with_capacity(x.sizes.len());
    for (a, (&from, &to)) in x.sizes.iter().zip(&out.sizes).enumerate() {
        axes.push(op.taps(a, from, to).map_err(|e| e.to_string())?);
    }
    // Axes as the result's memory has them: what lies innermost is copied or blended in runs.
    let order = memory_order(&axes, out);
    let turn = |v: &BoundView| {
        let mut turned = v.clone();
        for (to, &from) in order.iter().enumerate() {
            turned.sizes[to] = v.sizes[from];
            turned.access.strides[to] = v.access.strides[from];
        }
        turned
    };
    let (inputs, outputs) = ([turn(x)], [turn(out)]);
    let (inputs, outputs) = (&inputs[..], &outputs[..]);
    let (x, out) = (&inputs[0], &outputs[0]);
    let axes: Vec<Option<Vec<Taps>>> = order.iter().map(|&a| axes[a].take()).collect();
    let inside = axes.iter().flatten().flatten().all(|t| t.extrapolated.is_none());
    if axes.iter().all(Option::is_none) || (op.mode == ResizeMode::Nearest && inside) {
        let strongest = |t: &Option<Vec<Taps>>| t.as_ref().map(|t| t.iter().map(Taps::strongest).collect());
        return remap::plan(axes.iter().map(strongest).collect(), inputs, outputs);
    }
    match x.access.dtype {
        DType::F32 | DType::F16 | DType::BF16 => Ok(Box::new(Interpolation::<f32>::new(x, out, axes))),
        _ => Ok(Box::new(Interpolation::<f64>::new(x, out, axes))),
    }
}

/// Axes by falling steps of the result, where that leaves those that are resized in their order.
fn memory_order(axes: &[Option<Vec<Taps>>], out: &BoundView) -> Vec<usize> {
    let mut order: Vec<usize> = (0..axes.len()).collect();
    order.sort_by_key(|&a| std::cmp::Reverse(out.access.strides[a].unsigned_abs()));
    let resized = order.iter().filter(|&&a| axes[a].is_some());
    if resized.is_sorted() { order } else { (0..axes.len()).collect() }
}

/// What values are blended in.
trait Real: Number + bytemuck::Pod + std::fmt::Debug {
    /// A weight.
    fn weight(w: f64) -> Self;
    /// `y = Σ w · x[at..]`, in the order of taps.
    fn blend(isa: Isa, x: &[Self], taps: &[(usize, Self)], y: &mut [Self]);
}

impl Real for f64 {
    fn weight(w: f64) -> f64 {
        w
    }
    fn blend(_: Isa, x: &[f64], taps: &[(usize, f64)], y: &mut [f64]) {
        y.fill(0.0);
        for &(at, w) in taps {
            y.iter_mut().zip(x.get(at..).unwrap_or(&[])).for_each(|(y, x)| *y += w * x);
        }
    }
}

impl Real for f32 {
    fn weight(w: f64) -> f32 {
        w as f32
    }
    fn blend(isa: Isa, x: &[f32], taps: &[(usize, f32)], y: &mut [f32]) {
        if y.len() == 1 {
            y[0] = taps.iter().map(|&(at, w)| w * x.get(at).copied().unwrap_or(0.0)).sum();
        } else if taps.iter().all(|&(at, _)| at + y.len() <= x.len()) {
            dispatch(isa, Blend { x, taps, y });
        }
    }
}

/// The body of a blend; its maker answers for `at + y.len() ≤ x.len()`.
struct Blend<'a> {
    x: &'a [f32],
    taps: &'a [(usize, f32)],
    y: &'a mut [f32],
}

impl Kernel for Blend<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.y.len();
        let (x, y) = (self.x.as_ptr(), self.y.as_mut_ptr());
        for i in (0..n).step_by(S::W) {
            let m = (n - i).min(S::W);
            let mut acc = s.zero();
            for &(at, w) in self.taps {
                // SAFETY: at + i + m ≤ at + n, which lies within x.
                let v = unsafe { if m == S::W { s.load(x.add(at + i)) } else { s.load_partial(x.add(at + i), m) } };
                acc = s.mul_add(s.splat(w), v, acc);
            }
            // SAFETY: i + m ≤ n.
            unsafe { if m == S::W { s.store(y.add(i), acc) } else { s.store_partial(y.add(i), acc, m) } };
        }
    }
}

/// One axis.
#[derive(Debug)]
struct Level<T> {
    /// For each element of the result, its taps: where a row of the operand begins, and its weight.
    taps: Vec<Vec<(usize, T)>>,
    /// What the element is instead, where it lies outside.
    fill: Vec<Option<T>>,
    /// Elements of a row of the operand.
    from: usize,
    /// Elements of a row of the result.
    to: usize,
}

#[derive(Debug)]
struct Interpolation<T> {
    x: BoundView,
    out: BoundView,
    /// The first axis that is resized.
    first: usize,
    /// That axis and those after it, up to the last that is resized.
    levels: Vec<Level<T>>,
}

impl<T: Real> Interpolation<T> {
    fn new(x: &BoundView, out: &BoundView, axes: Vec<Option<Vec<Taps>>>) -> Self {
        let first = axes.iter().position(Option::is_some).unwrap_or(0);
        let end = axes.iter().rposition(Option::is_some).map_or(0, |a| a + 1);
        let rows = |sizes: &[usize], a: usize| sizes[a + 1..].iter().product::<usize>();
        let level = |(a, taps): (usize, Option<Vec<Taps>>)| {
            let (from, to) = (rows(&x.sizes, a), rows(&out.sizes, a));
            let same = || (0..x.sizes[a]).map(|i| Taps { weights: vec![(i, 1.0)], extrapolated: None }).collect();
            let taps: Vec<Taps> = taps.unwrap_or_else(same);
            let fill = taps.iter().map(|t| t.extrapolated.map(T::weight)).collect();
            let one = |t: Taps| t.weights.into_iter().map(|(i, w)| (i * from, T::weight(w))).collect();
            Level { taps: taps.into_iter().map(one).collect(), fill, from, to }
        };
        let levels = axes.into_iter().enumerate().take(end).skip(first).map(level).collect();
        Interpolation { x: x.clone(), out: out.clone(), first, levels }
    }

    /// Rows `rows` of a level of the result, from the level's part of the operand.
    fn rows(&self, isa: Isa, level: usize, x: &[T], rows: Range<usize>, y: &mut [T], memory: &mut [T]) {
        let Some(l) = self.levels.get(level) else { return };
        let last = level + 1 == self.levels.len();
        for (j, y) in rows.zip(y.chunks_exact_mut(l.to.max(1))) {
            if last {
                match l.fill[j] {
                    Some(v) => y.fill(v),
                    None => T::blend(isa, x, &l.taps[j], y),
                }
                continue;
            }
            let (row, rest) = memory.split_at_mut(l.from.min(memory.len()));
            match l.fill[j] {
                Some(v) => row.fill(v),
                None => T::blend(isa, x, &l.taps[j], row),
            }
            let inner = self.levels[level + 1].taps.len();
            self.rows(isa, level + 1, row, 0..inner, y, rest);
        }
    }

    /// # Safety
    /// Views were checked at bind; `x` has the operand's elements, row-major.
    unsafe fn resize(&self, run: &RunCx<'_>, x: &[T]) -> Result<(), KernelError> {
        let (first, out) = (self.first, &self.out.access);
        let Some(l) = self.levels.first() else { return Ok(()) };
        let (n, plane) = (l.taps.len(), l.from * self.x.sizes[first]);
        let rows = self.out.sizes[..first].iter().product::<usize>() * n;
        if self.out.sizes.contains(&0) {
            return Ok(());
        }
        let between: usize = self.levels.iter().take(self.levels.len() - 1).map(|l| l.from).sum();
        let dense = self.out.is_dense() && T::KEY_BITS == out.dtype.bits() as u32 && out.dtype.is_float();
        let base = Ptr(run.bufs.base(out.buffer));
        let failure = Failure::default();
        split(run, out.dtype, rows, (TASK / l.to.max(1)).max(1), &|r| {
            let most = r.len().min((TASK / l.to.max(1)).max(1));
            let own = if dense { 0 } else { most * l.to };
            failure.note(memory::with::<T, _>(between + own, |m| {
                let (levels, own) = m.split_at_mut(between);
                let mut row = r.start;
                while row < r.end {
                    let (o, j) = (row / n, row % n);
                    let count = (n - j).min(r.end - row).min(most);
                    let Some(x) = x.get(o * plane..(o + 1) * plane) else { return };
                    if dense {
                        let at = out.offset as usize + row * l.to;
                        // SAFETY: the result is dense, and its elements are T; rows are disjoint.
                        let y = unsafe { std::slice::from_raw_parts_mut(base.get().cast::<T>().add(at), count * l.to) };
                        self.rows(run.isa, 0, x, j..j + count, y, levels);
                    } else {
                        let y = &mut own[..count * l.to];
                        self.rows(run.isa, 0, x, j..j + count, y, levels);
                        let at = position(o, &self.out.sizes[..first], out.offset, &out.strides[..first]);
                        for (k, y) in (0i64..).zip(y.chunks_exact(l.to)) {
                            // SAFETY: the row is one of the result.
                            unsafe { self.store(base, at + (j as i64 + k) * out.strides[first], y) };
                        }
                    }
                    row += count;
                }
            }));
        });
        failure.result()
    }

    /// Writes a row of the first resized axis.
    /// # Safety
    /// The row at `at` lies within the result.
    unsafe fn store(&self, base: Ptr, at: i64, y: &[T]) {
        let out = &self.out.access;
        let (sizes, strides) = (&self.out.sizes[self.first + 1..], &out.strides[self.first + 1..]);
        let (float, cells) = (out.dtype.is_float(), Cells::<T>::new(out.dtype, base));
        for (k, v) in y.iter().enumerate() {
            let at = position(k, sizes, at, strides);
            // SAFETY: the element lies within the row; the floats' working type is T.
            unsafe {
                if float {
                    cells.set(at, *v);
                    continue;
                }
                let mut slot = 0u64;
                let s = (&raw mut slot).cast::<u8>();
                io::write_i128(out.dtype, s, 0, float_to_int(out.dtype, v.to_f64()));
                io::store(out.dtype, base.get(), at, io::Block { sizes: &[], strides: &[] }, s);
            }
        }
    }
}

impl<T: Real> Routine for Interpolation<T> {
    unsafe fn run(&self, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError> {
        let (a, n) = (&self.x.access, self.x.numel());
        // SAFETY: the view was checked at bind; the floats' working type is T.
        unsafe {
            if a.dtype.is_float()
                && self.x.is_dense()
                && let Some(x) = Cells::<T>::of(&self.x, run).slice(a.offset, n)
            {
                return self.resize(run, x).map(|()| None);
            }
            let bytes = n.checked_mul(size_of::<T>()).ok_or("it has too many elements")?;
            let mut memory = AlignedBuffer::uninit(bytes).map_err(|e| e.to_string())?;
            let values = memory.typed_mut::<T>().map_err(|e| e.to_string())?;
            if a.dtype.is_float() {
                memory::load(&self.x, run, values);
            } else {
                for_number!(a.dtype, N => widen::<N, T>(&self.x, run, values))?;
            }
            self.resize(run, values).map(|()| None)
        }
    }
}

/// Reads numbers of any kind as floats.
/// # Safety
/// The view was checked at bind; `N` is its working type.
unsafe fn widen<N: Number, T: Real>(view: &BoundView, run: &RunCx<'_>, out: &mut [T]) -> Result<(), KernelError> {
    let (cells, a) = (Cells::<N>::of(view, run), &view.access);
    let mut at = super::walk::Cursor::new(&view.sizes, &a.strides, a.offset, 0);
    for o in out {
        // SAFETY: the point is one of the view's.
        *o = T::from_float(unsafe { cells.get(at.at()) }.to_f64());
        at.advance();
    }
    Ok(())
}
