//! Elements read as another dtype of their width.

use super::moves::copy_view;
use super::{Defined, Routine, agree, operands, split};
use crate::buffers::{BindError, BoundView, KernelError, Ptr, RunCx};
use crate::space::position;
use rlx_ir::DType;

/// Elements of a task where each is looked at.
const CHUNK: usize = 1 << 14;

#[derive(Debug)]
struct Plan {
    x: BoundView,
    out: BoundView,
}

/// Plans `bitcast_convert`.
pub fn plan(inputs: &[BoundView], outputs: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    let ([x], [out]) = (operands(inputs)?, operands(outputs)?);
    let fits = x.sizes == out.sizes && x.access.dtype.bits() == out.access.dtype.bits();
    agree(fits, "bitcast_convert", inputs, outputs)?;
    Ok(Box::new(Plan { x: x.clone(), out: out.clone() }))
}

impl Routine for Plan {
    unsafe fn run(&self, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError> {
        let (a, b) = (&self.x.access, &self.out.access);
        if b.dtype != DType::Bool || a.dtype == DType::Bool {
            // SAFETY: views of the same sizes and widths, checked at bind.
            unsafe { copy_view(run, &self.x, &self.out) };
            return Ok(None);
        }
        let (from, to) = (Ptr(run.bufs.base(a.buffer)), Ptr(run.bufs.base(b.buffer)));
        split(run, b.dtype, self.x.numel(), CHUNK, &|range| {
            for i in range {
                let f = position(i, &self.x.sizes, a.offset, &a.strides);
                let t = position(i, &self.out.sizes, b.offset, &b.strides);
                // SAFETY: both elements are bytes of their views. A boolean is 0 or 1.
                unsafe { *to.get().offset(t as isize) = u8::from(*from.get().offset(f as isize) != 0) };
            }
        });
        Ok(None)
    }
}
