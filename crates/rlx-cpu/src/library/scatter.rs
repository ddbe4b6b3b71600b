//! Writing at indices: `scatter_elements` and `scatter_nd`.
//!
//! Updates of one place are taken in row-major order, whatever the number of threads: tasks share no place. For
//! `scatter_elements` they are cut across the axis, for `scatter_nd` across the slices.

use super::gather::Tuples;
use super::gather_elements::fits;
use super::indices::{Indices, resolve};
use super::memory;
use super::moves::{Block, Cell, copy_view, for_cell};
use super::number::{Cells, Number, for_number};
use super::walk::{Cursor, without};
use super::{Defined, Routine, agree, misfit, operands};
use crate::buffers::{BindError, BoundAccess, BoundView, KernelError, Ptr, RunCx, Sizes, Strides};
use crate::space::Space;
use crate::tile::Work;
use rlx_driver::AlignedBuffer;
use rlx_ir::ops::indexing::{Combiner, ScatterElements, ScatterNd};

/// Updates in a task, about.
const TASK: usize = 1 << 12;

fn combine<T: Number>(how: Combiner, a: T, b: T) -> T {
    match how {
        Combiner::Set => b,
        Combiner::Add => a.add(b),
        Combiner::Mul => a.mul(b),
        Combiner::Min => a.min(b),
        Combiner::Max => a.max(b),
    }
}

/// How updates go to places.
trait Updates: std::fmt::Debug + Send + Sync {
    /// The operand.
    fn x(&self) -> &BoundView;
    /// The updates.
    fn updates(&self) -> &BoundView;
    /// The result.
    fn out(&self) -> &BoundView;
    /// The combiner.
    fn how(&self) -> Combiner;
    /// Errors unless every index is in range.
    /// # Safety
    /// Views were checked at bind.
    unsafe fn check(&self, run: &RunCx<'_>) -> Result<(), KernelError>;
    /// Moves every update to its place.
    /// # Safety
    /// Every index was checked.
    unsafe fn set(&self, run: &RunCx<'_>);
    /// Calls `f(place, update)` for positions of every place and its updates, in order for each place, on several threads
    /// if `parallel`. Places are of `target`.
    /// # Safety
    /// Every index was checked.
    unsafe fn for_each(&self, run: &RunCx<'_>, parallel: bool, target: &BoundAccess, f: &(dyn Fn(i64, i64) + Sync));
}

#[derive(Debug)]
struct Scatter<U>(U);

impl<U: Updates> Routine for Scatter<U> {
    unsafe fn run(&self, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError> {
        let u = &self.0;
        let dtype = u.out().access.dtype;
        // SAFETY: views were checked at bind; indices are checked before all else.
        unsafe {
            u.check(run)?;
            if u.how() == Combiner::Set {
                copy_view(run, u.x(), u.out());
                u.set(run);
            } else if Work::is_storage(dtype) {
                copy_view(run, u.x(), u.out());
                for_number!(dtype, T => fold::<T>(u, run, Cells::of(u.out(), run), &u.out().access))?;
            } else {
                for_number!(dtype, T => widened::<T>(u, run))?;
            }
        }
        Ok(None)
    }
}

/// Folds updates into memory of elements of `T`.
/// # Safety
/// Every index was checked, and `target` reaches the memory of `places` over the result's sizes.
unsafe fn fold<T: Number>(
    u: &impl Updates,
    run: &RunCx<'_>,
    places: Cells<T>,
    target: &BoundAccess,
) -> Result<(), KernelError> {
    let (from, how) = (Cells::<T>::of(u.updates(), run), u.how());
    // SAFETY: positions are those of a place and of an update; tasks share no place.
    unsafe {
        u.for_each(run, true, target, &|p, j| places.set(p, combine(how, places.get(p), from.get(j))));
    }
    Ok(())
}

/// Folds in memory of the working type, so that each place is rounded to the dtype once.
/// # Safety
/// Every index was checked.
unsafe fn widened<T: Number>(u: &impl Updates, run: &RunCx<'_>) -> Result<(), KernelError> {
    let (out, how) = (u.out(), u.how());
    let n = out.numel();
    let bytes = n.checked_mul(size_of::<T>()).ok_or("it has too many elements")?;
    let mut memory = AlignedBuffer::uninit(bytes).map_err(|e| e.to_string())?;
    // SAFETY: the memory holds n elements, aligned for any type of number.
    let values = unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<T>(), n) };
    // SAFETY: views were checked at bind.
    unsafe { memory::load(u.x(), run, values) };
    let mut strides = Strides::new();
    let mut step = 1i64;
    for &d in out.sizes.iter().rev() {
        strides.insert(0, step);
        step *= d as i64;
    }
    let target = BoundAccess { offset: 0, strides, ..out.access.clone() };
    let from = Cells::<T>::of(u.updates(), run);
    let base = Ptr(values.as_mut_ptr().cast());
    // SAFETY: places are positions in the memory, and tasks share none.
    unsafe {
        u.for_each(run, true, &target, &|p, j| {
            let slot = base.get().cast::<T>().offset(p as isize);
            *slot = combine(how, *slot, from.get(j));
        });
        memory::store(out, run, values);
    }
    Ok(())
}

#[derive(Debug)]
struct Elements {
    axis: usize,
    how: Combiner,
    x: BoundView,
    indices: BoundView,
    updates: BoundView,
    out: BoundView,
}

/// Plans `scatter_elements`.
pub fn plan_elements(
    op: &ScatterElements,
    inputs: &[BoundView],
    outputs: &[BoundView],
) -> Result<Box<dyn Routine>, BindError> {
    let ([x, indices, updates], [out]) = (operands(inputs)?, operands(outputs)?);
    let same = x.sizes == out.sizes && x.access.dtype == out.access.dtype;
    agree(same && fits(out, indices, updates, op.axis), "scatter_elements", inputs, outputs)?;
    Ok(Box::new(Scatter(Elements {
        axis: op.axis,
        how: op.combiner,
        x: x.clone(),
        indices: indices.clone(),
        updates: updates.clone(),
        out: out.clone(),
    })))
}

impl Updates for Elements {
    fn x(&self) -> &BoundView {
        &self.x
    }
    fn updates(&self) -> &BoundView {
        &self.updates
    }
    fn out(&self) -> &BoundView {
        &self.out
    }
    fn how(&self) -> Combiner {
        self.how
    }

    unsafe fn check(&self, run: &RunCx<'_>) -> Result<(), KernelError> {
        // SAFETY: passes the caller's promise on.
        unsafe { Indices::new(&self.indices, run).check(run.region, &[self.x.sizes[self.axis]], self.axis) }
    }

    unsafe fn set(&self, run: &RunCx<'_>) {
        let (to, from) = (Ptr(run.bufs.base(self.out.access.buffer)), Ptr(run.bufs.base(self.updates.access.buffer)));
        let bits = self.out.access.dtype.bits();
        // SAFETY: the positions are those of a place and its update; elements that share bytes have one thread.
        unsafe {
            for_cell!(bits, C => self.for_each(run, bits >= 8, &self.out.access, &|p, j| {
                C::copy(from.get().cast_const(), j, to.get(), p);
            }));
        }
    }

    unsafe fn for_each(&self, run: &RunCx<'_>, parallel: bool, target: &BoundAccess, f: &(dyn Fn(i64, i64) + Sync)) {
        let (axis, size) = (self.axis, self.out.sizes[self.axis]);
        let n = self.indices.sizes[axis];
        let sizes: Sizes = without(&self.indices.sizes, axis);
        let walk = |a: &BoundAccess| -> Strides { without(&a.strides, axis) };
        let (places, from) = (walk(target), walk(&self.updates.access));
        let at = walk(&self.indices.access);
        let (ps, js, is) = (target.strides[axis], self.updates.access.strides[axis], self.indices.access.strides[axis]);
        let indices = Indices::new(&self.indices, run);
        let part = |r: std::ops::Range<usize>| {
            let mut p = Cursor::new(&sizes, &places, target.offset, r.start);
            let mut j = Cursor::new(&sizes, &from, self.updates.access.offset, r.start);
            let mut i = Cursor::new(&sizes, &at, self.indices.access.offset, r.start);
            for _ in r {
                for k in 0..n as i64 {
                    // SAFETY: the position is one of the indices.
                    let index = unsafe { indices.at(i.at() + k * is) };
                    f(p.at() + resolve(index, size) * ps, j.at() + k * js);
                }
                p.advance();
                j.advance();
                i.advance();
            }
        };
        let lines = sizes.iter().product();
        if parallel {
            run.region.parallel_ranges(lines, (TASK / n.max(1)).max(1), &part);
        } else {
            part(0..lines);
        }
    }
}

#[derive(Debug)]
struct Slices {
    how: Combiner,
    tuples: Tuples,
    x: BoundView,
    indices: BoundView,
    updates: BoundView,
    out: BoundView,
    block: Block,
}

/// Plans `scatter_nd`.
pub fn plan_nd(op: &ScatterNd, inputs: &[BoundView], outputs: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    let ([x, indices, updates], [out]) = (operands(inputs)?, operands(outputs)?);
    let same = x.sizes == out.sizes && [updates.access.dtype, out.access.dtype] == [x.access.dtype; 2];
    let tuples = Tuples::new(out, indices, updates, 0).filter(|_| same);
    let Some(tuples) = tuples else { return Err(misfit("scatter_nd", inputs, outputs)) };
    let (q, k) = (tuples.sizes.len(), tuples.len);
    let block = Block::new(x.access.dtype, &out.sizes[k..], &updates.access.strides[q..], &out.access.strides[k..]);
    Ok(Box::new(Scatter(Slices {
        how: op.combiner,
        tuples,
        x: x.clone(),
        indices: indices.clone(),
        updates: updates.clone(),
        out: out.clone(),
        block,
    })))
}

impl Updates for Slices {
    fn x(&self) -> &BoundView {
        &self.x
    }
    fn updates(&self) -> &BoundView {
        &self.updates
    }
    fn out(&self) -> &BoundView {
        &self.out
    }
    fn how(&self) -> Combiner {
        self.how
    }

    unsafe fn check(&self, run: &RunCx<'_>) -> Result<(), KernelError> {
        // SAFETY: passes the caller's promise on.
        unsafe { Indices::new(&self.indices, run).check(run.region, &self.out.sizes[..self.tuples.len], 0) }
    }

    unsafe fn set(&self, run: &RunCx<'_>) {
        let (t, u) = (&self.tuples, &self.updates.access);
        let (from, to) = (Ptr(run.bufs.base(u.buffer)), Ptr(run.bufs.base(self.out.access.buffer)));
        let mut at = Cursor::new(&t.sizes, &u.strides[..t.sizes.len()], u.offset, 0);
        // SAFETY: every index was checked; tuples are taken one after another.
        unsafe {
            t.for_each(&self.out, &Indices::new(&self.indices, run), 0..t.count, |_, place| {
                self.block.copy_parallel(run, from, at.at(), to, place);
                at.advance();
            });
        }
    }

    unsafe fn for_each(&self, run: &RunCx<'_>, parallel: bool, target: &BoundAccess, f: &(dyn Fn(i64, i64) + Sync)) {
        let (t, u) = (&self.tuples, &self.updates.access);
        let q = t.sizes.len();
        let (k, sizes) = (t.len, &self.out.sizes[t.len..]);
        let slice = Space::in_order(sizes, &[&target.strides[k..], &u.strides[q..]]);
        let [ps, us] = [0, 1].map(|w| slice.walks.get(w).cloned().unwrap_or_default());
        let places = BoundView { sizes: self.out.sizes.clone(), access: target.clone() };
        let indices = Indices::new(&self.indices, run);
        let part = |r: std::ops::Range<usize>| {
            let mut first = Cursor::new(&t.sizes, &u.strides[..q], u.offset, 0);
            // SAFETY: every index was checked.
            unsafe {
                t.for_each(&places, &indices, 0..t.count, |_, place| {
                    let mut p = Cursor::new(&slice.sizes, &ps, place, r.start);
                    let mut j = Cursor::new(&slice.sizes, &us, first.at(), r.start);
                    for _ in r.clone() {
                        f(p.at(), j.at());
                        p.advance();
                        j.advance();
                    }
                    first.advance();
                });
            }
        };
        let n = sizes.iter().product();
        if parallel {
            run.region.parallel_ranges(n, (TASK / t.count.max(1)).max(64), &part);
        } else {
            part(0..n);
        }
    }
}
