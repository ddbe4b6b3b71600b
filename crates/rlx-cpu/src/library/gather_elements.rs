//! Elements at indices along an axis.

use super::indices::{BATCH, Indices, resolve};
use super::moves::{Cell, for_cell};
use super::walk::Cursor;
use super::{Defined, Routine, agree, operands, split};
use crate::buffers::{BindError, BoundView, KernelError, RunCx, Strides};
use rlx_ir::ops::indexing::GatherElements;

/// Elements in a task.
const TASK: usize = 1 << 13;

#[derive(Debug)]
struct Elements {
    axis: usize,
    x: BoundView,
    /// The operand's steps where the index itself stands; 0 along the axis.
    around: Strides,
    indices: BoundView,
    out: BoundView,
}

/// Steps without that of an axis.
pub(super) fn around(x: &BoundView, axis: usize) -> Strides {
    x.access.strides.iter().enumerate().map(|(a, &s)| if a == axis { 0 } else { s }).collect()
}

/// Whether indices along an axis, and elements of the same sizes, fit an operand.
pub(super) fn fits(x: &BoundView, indices: &BoundView, elements: &BoundView, axis: usize) -> bool {
    let within = |a: usize| a == axis || indices.sizes.get(a).is_some_and(|&n| n <= x.sizes[a]);
    axis < x.sizes.len()
        && indices.sizes.len() == x.sizes.len()
        && elements.sizes == indices.sizes
        && (0..x.sizes.len()).all(within)
        && x.access.dtype == elements.access.dtype
}

/// Plans `gather_elements`.
pub fn plan(op: &GatherElements, inputs: &[BoundView], outputs: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    let ([x, indices], [out]) = (operands(inputs)?, operands(outputs)?);
    agree(fits(x, indices, out, op.axis), "gather_elements", inputs, outputs)?;
    Ok(Box::new(Elements {
        axis: op.axis,
        around: around(x, op.axis),
        x: x.clone(),
        indices: indices.clone(),
        out: out.clone(),
    }))
}

impl Routine for Elements {
    unsafe fn run(&self, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError> {
        let indices = Indices::new(&self.indices, run);
        let size = self.x.sizes[self.axis];
        // SAFETY: views were checked at bind.
        unsafe { indices.check(run.region, &[size], self.axis)? };
        let out = &self.out.access;
        split(run, out.dtype, self.out.numel(), TASK, &|r| {
            // SAFETY: every index was checked; elements of the result are disjoint.
            unsafe { for_cell!(out.dtype.bits(), C => self.part::<C>(run, &indices, r)) }
        });
        Ok(None)
    }
}

impl Elements {
    /// # Safety
    /// Every index was checked to be one of the axis; no other thread touches elements `range` of the result.
    unsafe fn part<C: Cell>(&self, run: &RunCx<'_>, indices: &Indices<'_>, range: std::ops::Range<usize>) {
        let (x, out) = (&self.x.access, &self.out.access);
        let (from, to) = (run.bufs.base(x.buffer).cast_const(), run.bufs.base(out.buffer));
        let (size, step) = (self.x.sizes[self.axis], x.strides[self.axis]);
        let sizes = &self.out.sizes;
        let mut source = Cursor::new(sizes, &self.around, x.offset, range.start);
        let mut place = Cursor::new(sizes, &out.strides, out.offset, range.start);
        let mut buffer = [0i64; BATCH];
        let mut at = range.start;
        while at < range.end {
            let part = &mut buffer[..BATCH.min(range.end - at)];
            // SAFETY: the caller's promise; on the other axes the index's place is one of the operand, as checked at bind.
            unsafe {
                indices.load(at, part);
                for &i in part.iter() {
                    C::copy(from, source.at() + resolve(i, size) * step, to, place.at());
                    source.advance();
                    place.advance();
                }
            }
            at += part.len();
        }
    }
}
