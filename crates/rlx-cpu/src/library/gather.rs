//! Slices of an operand at indices: `gather` and `gather_nd`.

use super::indices::{BATCH, Indices, resolve};
use super::moves::{Block, TASK_BYTES};
use super::walk::Cursor;
use super::{Routine, agree, operands, split};
use crate::buffers::{BindError, BoundView, KernelError, Ptr, RunCx, Sizes, Strides};
use crate::library::Defined;
use crate::space::{Space, position};
use rlx_ir::ops::indexing::{Gather, GatherNd};

/// Rows that make a task.
pub(super) fn rows_per_task(block: &Block) -> usize {
    (TASK_BYTES * 8 / block.bits().max(1)).max(1)
}

#[derive(Debug)]
struct Slices {
    axis: usize,
    x: BoundView,
    indices: BoundView,
    out: BoundView,
    /// The axes of the indices in the result, merged.
    at_sizes: Sizes,
    at_strides: Strides,
    /// A slice.
    block: Block,
}

/// Plans `gather`.
pub fn plan(op: &Gather, inputs: &[BoundView], outputs: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    let ([x, indices], [out]) = (operands(inputs)?, operands(outputs)?);
    let (axis, q) = (op.axis, indices.sizes.len());
    agree(axis < x.sizes.len() && x.access.dtype == out.access.dtype, "gather", inputs, outputs)?;
    let dims: Sizes = x.sizes[..axis].iter().chain(&indices.sizes).chain(&x.sizes[axis + 1..]).copied().collect();
    agree(dims == out.sizes, "gather", inputs, outputs)?;
    let (xs, os) = (&x.access.strides, &out.access.strides);
    let at = Space::in_order(&indices.sizes, &[&os[axis..axis + q]]);
    Ok(Box::new(Slices {
        axis,
        block: Block::new(x.access.dtype, &x.sizes[axis + 1..], &xs[axis + 1..], &os[axis + q..]),
        at_strides: at.walks.into_iter().next().unwrap_or_default(),
        at_sizes: at.sizes,
        x: x.clone(),
        indices: indices.clone(),
        out: out.clone(),
    }))
}

impl Routine for Slices {
    unsafe fn run(&self, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError> {
        let (axis, x, out) = (self.axis, &self.x.access, &self.out.access);
        let (size, step) = (self.x.sizes[axis], x.strides[axis]);
        let indices = Indices::new(&self.indices, run);
        // SAFETY: views were checked at bind.
        unsafe { indices.check(run.region, &[size], axis)? };
        let (outer, count) = (&self.x.sizes[..axis], self.indices.numel());
        let (from, to) = (Ptr(run.bufs.base(x.buffer)), Ptr(run.bufs.base(out.buffer)));
        let rows = outer.iter().product::<usize>() * count;
        if self.block.bits() == 0 {
            return Ok(None);
        }
        split(run, x.dtype, rows, rows_per_task(&self.block), &|r| {
            let mut buffer = [0i64; BATCH];
            let mut row = r.start;
            while row < r.end {
                let (o, i) = (row / count, row % count);
                let part = &mut buffer[..BATCH.min(count - i).min(r.end - row)];
                let f = position(o, outer, x.offset, &x.strides[..axis]);
                let t = position(o, outer, out.offset, &out.strides[..axis]);
                let mut at = Cursor::new(&self.at_sizes, &self.at_strides, t, i);
                // SAFETY: every index was checked to be one of the axis, hence the slice is one of the operand; the
                // result's walk was checked at bind, and rows are disjoint.
                unsafe {
                    indices.load(i, part);
                    for &j in part.iter() {
                        self.block.copy(from, f + resolve(j, size) * step, to, at.at());
                        at.advance();
                    }
                }
                row += part.len();
            }
        });
        Ok(None)
    }
}

/// Index tuples into a tensor: what `gather_nd` and `scatter_nd` share.
#[derive(Debug)]
pub(super) struct Tuples {
    /// Indices in a tuple.
    pub len: usize,
    /// Axes walked side by side.
    pub batch: usize,
    /// Sizes of the indices without the last axis.
    pub sizes: Sizes,
    /// Number of tuples.
    pub count: usize,
}

impl Tuples {
    /// The tuples of `indices` into `x`; `rows` has the sizes of the indices but the last, then those of a slice.
    pub fn new(x: &BoundView, indices: &BoundView, rows: &BoundView, batch: usize) -> Option<Tuples> {
        let (&len, sizes) = indices.sizes.split_last()?;
        let rest = x.sizes.get(batch.checked_add(len)?..)?;
        let dims: Sizes = sizes.iter().chain(rest).copied().collect();
        let fits = len <= BATCH && sizes.get(..batch)? == &x.sizes[..batch] && dims == rows.sizes;
        fits.then(|| Tuples { len, batch, count: sizes.iter().product(), sizes: sizes.into() })
    }

    /// Calls `f(tuple number, position of its slice in x)` for tuples `range`.
    /// # Safety
    /// Every index was checked.
    pub unsafe fn for_each(
        &self,
        x: &BoundView,
        indices: &Indices<'_>,
        range: std::ops::Range<usize>,
        mut f: impl FnMut(usize, i64),
    ) {
        let (b, k) = (self.batch, self.len);
        let per_batch = self.sizes[b..].iter().product::<usize>().max(1);
        let mut buffer = [0i64; BATCH];
        let step = BATCH / k.max(1);
        let mut at = range.start;
        while at < range.end {
            let n = step.min(range.end - at);
            let part = &mut buffer[..n * k];
            // SAFETY: the tuples are among those of the view.
            unsafe { indices.load(at * k, part) };
            for i in 0..n {
                let first = match b {
                    0 => x.access.offset,
                    _ => position((at + i) / per_batch, &x.sizes[..b], x.access.offset, &x.access.strides[..b]),
                };
                let axes = x.sizes[b..].iter().zip(&x.access.strides[b..]);
                let place =
                    part[i * k..(i + 1) * k].iter().zip(axes).fold(first, |p, (&j, (&n, &s))| p + resolve(j, n) * s);
                f(at + i, place);
            }
            at += n;
        }
    }
}

#[derive(Debug)]
struct NdSlices {
    tuples: Tuples,
    x: BoundView,
    indices: BoundView,
    out: BoundView,
    block: Block,
}

/// Plans `gather_nd`.
pub fn plan_nd(op: &GatherNd, inputs: &[BoundView], outputs: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    let ([x, indices], [out]) = (operands(inputs)?, operands(outputs)?);
    let tuples = Tuples::new(x, indices, out, op.batch_dims);
    let tuples = tuples.filter(|_| x.access.dtype == out.access.dtype);
    let Some(tuples) = tuples else { return Err(super::misfit("gather_nd", inputs, outputs)) };
    let (from, q) = (tuples.batch + tuples.len, tuples.sizes.len());
    let block = Block::new(x.access.dtype, &x.sizes[from..], &x.access.strides[from..], &out.access.strides[q..]);
    Ok(Box::new(NdSlices { tuples, x: x.clone(), indices: indices.clone(), out: out.clone(), block }))
}

impl Routine for NdSlices {
    unsafe fn run(&self, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError> {
        let (t, x, out) = (&self.tuples, &self.x, &self.out.access);
        let indices = Indices::new(&self.indices, run);
        // SAFETY: views were checked at bind.
        unsafe { indices.check(run.region, &x.sizes[t.batch..t.batch + t.len], t.batch)? };
        if self.block.bits() == 0 {
            return Ok(None);
        }
        let (from, to) = (Ptr(run.bufs.base(x.access.buffer)), Ptr(run.bufs.base(out.buffer)));
        split(run, out.dtype, t.count, rows_per_task(&self.block), &|r| {
            let mut at = Cursor::new(&t.sizes, &out.strides[..t.sizes.len()], out.offset, r.start);
            // SAFETY: every index was checked to be one of its axis; the result's walk was checked at bind, and rows
            // are disjoint.
            unsafe {
                t.for_each(x, &indices, r, |_, place| {
                    self.block.copy(from, place, to, at.at());
                    at.advance();
                });
            }
        });
        Ok(None)
    }
}
