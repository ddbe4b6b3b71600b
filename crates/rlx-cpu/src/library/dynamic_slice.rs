//! Blocks at computed places.

use super::indices::Indices;
use super::moves::{Block, copy_view};
use super::{Defined, Routine, agree, operands};
use crate::buffers::{BindError, BoundView, KernelError, Ptr, RunCx};
use crate::space::position;

#[derive(Debug)]
struct DynamicSlice {
    x: BoundView,
    starts: BoundView,
    out: BoundView,
    block: Block,
}

/// Whether a block of these sizes fits an operand, at starts of one per axis.
fn fits(x: &BoundView, block: &BoundView, starts: &BoundView) -> bool {
    starts.sizes.as_slice() == [x.sizes.len()]
        && block.sizes.len() == x.sizes.len()
        && block.sizes.iter().zip(&x.sizes).all(|(b, n)| b <= n)
        && block.access.dtype == x.access.dtype
}

/// Where a block's first element lies in a view, its starts clamped so that it lies inside.
/// # Safety
/// Views were checked at bind and [`fits`] holds.
unsafe fn place(x: &BoundView, block: &BoundView, starts: &BoundView, run: &RunCx<'_>) -> i64 {
    let indices = Indices::new(starts, run);
    let s = &starts.access;
    (0..x.sizes.len()).fold(x.access.offset, |at, axis| {
        let room = x.sizes[axis] - block.sizes[axis];
        // SAFETY: there is a start for each axis.
        let start = unsafe { indices.at(position(axis, &starts.sizes, s.offset, &s.strides)) };
        at + start.clamp(0, room as i64) * x.access.strides[axis]
    })
}

/// Plans `dynamic_slice`.
pub fn plan(inputs: &[BoundView], outputs: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    let ([x, starts], [out]) = (operands(inputs)?, operands(outputs)?);
    agree(fits(x, out, starts), "dynamic_slice", inputs, outputs)?;
    let block = Block::new(x.access.dtype, &out.sizes, &x.access.strides, &out.access.strides);
    Ok(Box::new(DynamicSlice { x: x.clone(), starts: starts.clone(), out: out.clone(), block }))
}

impl Routine for DynamicSlice {
    unsafe fn run(&self, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError> {
        let (x, out) = (&self.x.access, &self.out.access);
        let (from, to) = (Ptr(run.bufs.base(x.buffer)), Ptr(run.bufs.base(out.buffer)));
        // SAFETY: the clamped block lies within the operand.
        unsafe {
            let at = place(&self.x, &self.out, &self.starts, run);
            self.block.copy_parallel(run, from, at, to, out.offset);
        }
        Ok(None)
    }
}

#[derive(Debug)]
struct Update {
    x: BoundView,
    update: BoundView,
    starts: BoundView,
    out: BoundView,
    block: Block,
}

/// Plans `dynamic_update_slice`.
pub fn plan_update(inputs: &[BoundView], outputs: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    let ([x, update, starts], [out]) = (operands(inputs)?, operands(outputs)?);
    let same = x.sizes == out.sizes && x.access.dtype == out.access.dtype;
    agree(same && fits(out, update, starts), "dynamic_update_slice", inputs, outputs)?;
    let block = Block::new(x.access.dtype, &update.sizes, &update.access.strides, &out.access.strides);
    Ok(Box::new(Update { x: x.clone(), update: update.clone(), starts: starts.clone(), out: out.clone(), block }))
}

impl Routine for Update {
    unsafe fn run(&self, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError> {
        let (u, out) = (&self.update.access, &self.out.access);
        let (from, to) = (Ptr(run.bufs.base(u.buffer)), Ptr(run.bufs.base(out.buffer)));
        // SAFETY: views were checked at bind; the clamped block lies within the result.
        unsafe {
            let at = place(&self.out, &self.update, &self.starts, run);
            copy_view(run, &self.x, &self.out);
            self.block.copy_parallel(run, from, u.offset, to, at);
        }
        Ok(None)
    }
}
