//! Data that become sizes.

use super::{Defined, Routine, operands};
use crate::buffers::{BindError, BoundView, KernelError, RunCx};
use crate::space::position;
use crate::tile::io;
use rlx_driver::AlignedBuffer;

#[derive(Debug)]
struct ReadDims(BoundView);

/// Plans `read_dims`: the elements are the symbols, and the result is the operand.
pub fn plan(inputs: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    let [x] = operands(inputs)?;
    Ok(Box::new(ReadDims(x.clone())))
}

impl Routine for ReadDims {
    unsafe fn run(&self, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError> {
        let (x, a) = (&self.0, &self.0.access);
        let mut symbols = Vec::with_capacity(x.numel());
        for i in 0..x.numel() {
            let at = position(i, &x.sizes, a.offset, &a.strides);
            // SAFETY: the view lies within its buffer.
            let v = unsafe { io::read_i128(a.dtype, run.bufs.base(a.buffer), at) };
            let size = i64::try_from(v).ok().filter(|&v| v >= 0);
            symbols.push(
                size.ok_or_else(|| {
                    format!("element {i} of a tensor of sizes is {v}; sizes are from 0 to {}", i64::MAX)
                })?,
            );
        }
        let bytes = a.dtype.bytes_for(x.numel()).unwrap_or(0);
        let mut copy = AlignedBuffer::uninit(bytes).map_err(|e| e.to_string())?;
        // SAFETY: the copy has room for all elements.
        unsafe { crate::control::copy_out(x, run.bufs, copy.as_mut_ptr()) };
        Ok(Some(Defined { symbols, outputs: vec![copy] }))
    }
}
