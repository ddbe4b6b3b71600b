//! Where the extreme of an axis stands.

use super::lines::{Group, Lines, WIDTH};
use super::number::{Cells, Number, for_number};
use super::walk::without;
use super::{Defined, Routine, agree, operands};
use crate::buffers::{BindError, BoundView, KernelError, Ptr, RunCx, Sizes, Strides};
use crate::tile::io;
use rlx_ir::DType;
use rlx_ir::ops::reduction::{ArgKind, ArgReduce};

/// Elements of a line that are looked at together.
const BLOCK: usize = 512;

#[derive(Debug)]
struct Plan {
    largest: bool,
    last: bool,
    x: BoundView,
    out: BoundView,
    lines: Lines,
}

/// Plans `arg_reduce`.
pub fn plan(op: &ArgReduce, inputs: &[BoundView], outputs: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    let ([x], [out]) = (operands(inputs)?, operands(outputs)?);
    let axis = op.axis;
    agree(axis < x.sizes.len(), "arg_reduce", inputs, outputs)?;
    let (sizes, strides): (Sizes, Strides) = match op.keep_dims {
        true if out.sizes.len() > axis => (without(&out.sizes, axis), without(&out.access.strides, axis)),
        _ => (out.sizes.clone(), out.access.strides.clone()),
    };
    let others: Sizes = without(&x.sizes, axis);
    agree(sizes == others && op.dtype == out.access.dtype, "arg_reduce", inputs, outputs)?;
    if x.sizes[axis] == 0 {
        return Err(format!("axis {axis} is empty and has no extreme"));
    }
    let lines = Lines::new(x, axis, out, &strides);
    Ok(Box::new(Plan { largest: op.kind == ArgKind::Max, last: op.select_last, x: x.clone(), out: out.clone(), lines }))
}

impl Routine for Plan {
    unsafe fn run(&self, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError> {
        // SAFETY: passes the caller's promise on.
        unsafe { for_number!(self.x.access.dtype, T => self.find::<T>(run)) }.map(|()| None)
    }
}

impl Plan {
    /// Whether a later element takes the place of an earlier one.
    #[inline(always)]
    fn takes<T: Number>(&self, new: T, old: T) -> bool {
        let better = |a: T, b: T| match (a.is_nan(), b.is_nan()) {
            (true, b) => !b,
            (_, true) => false,
            _ => {
                if self.largest {
                    b.below(a)
                } else {
                    a.below(b)
                }
            }
        };
        better(new, old) || self.last && !better(old, new)
    }

    /// # Safety
    /// Views were checked at bind; `T` is the operand's working type.
    unsafe fn find<T: Number>(&self, run: &RunCx<'_>) -> Result<(), KernelError> {
        let x = Cells::<T>::of(&self.x, run);
        let (dtype, base) = (self.out.access.dtype, Ptr(run.bufs.base(self.out.access.buffer)));
        self.lines.for_each(run, &|g| {
            // SAFETY: a group's elements lie within the operand, its places within the result.
            unsafe {
                if g.width == 1 {
                    put(dtype, base, g.y, self.along(run, x, g));
                    return;
                }
                let mut found = [0usize; WIDTH];
                self.across(x, g, &mut found);
                for (j, &i) in found.iter().enumerate().take(g.width) {
                    put(dtype, base, g.y + j as i64 * g.y_step, i);
                }
            }
        });
        Ok(())
    }

    /// One line.
    /// # Safety
    /// The line lies within the operand.
    unsafe fn along<T: Number>(&self, run: &RunCx<'_>, x: Cells<T>, g: Group) -> usize {
        let (n, step) = (self.lines.len, self.lines.step);
        let mut buffer = [T::default(); BLOCK];
        // SAFETY: the caller's promise.
        let mut most = unsafe { x.get(g.x) };
        let mut found = 0;
        for first in (0..n).step_by(BLOCK) {
            let (at, m) = (g.x + first as i64 * step, BLOCK.min(n - first));
            // SAFETY: the block is part of the line.
            let in_place = if step == 1 { unsafe { x.slice(at, m) } } else { None };
            let block = match in_place {
                Some(b) => b,
                None => {
                    // SAFETY: as above.
                    unsafe { x.load(at, step, &mut buffer[..m]) };
                    &buffer[..m]
                }
            };
            if T::extreme(run.isa, block, self.largest).is_some_and(|e| !self.takes(e, most)) {
                continue;
            }
            for (k, &v) in block.iter().enumerate() {
                if self.takes(v, most) {
                    (most, found) = (v, first + k);
                }
            }
        }
        found
    }

    /// Neighbouring lines side by side.
    /// # Safety
    /// The lines lie within the operand.
    unsafe fn across<T: Number>(&self, x: Cells<T>, g: Group, found: &mut [usize; WIDTH]) {
        let (mut most, mut row) = ([T::default(); WIDTH], [T::default(); WIDTH]);
        for k in 0..self.lines.len {
            let row = &mut row[..g.width];
            // SAFETY: the caller's promise.
            unsafe { x.load(g.x + k as i64 * self.lines.step, g.x_step, row) };
            for ((v, m), f) in row.iter().zip(&mut most).zip(found.iter_mut()) {
                if k == 0 || self.takes(*v, *m) {
                    (*m, *f) = (*v, k);
                }
            }
        }
    }
}

/// Writes an index.
/// # Safety
/// The element lies in memory at `base`, and no other thread touches its byte.
unsafe fn put(dtype: DType, base: Ptr, at: i64, index: usize) {
    // SAFETY: the caller's promise; the slot holds an element of any integer type.
    unsafe {
        if dtype == DType::I64 {
            *base.get().cast::<i64>().offset(at as isize) = index as i64;
            return;
        }
        let mut slot = 0u64;
        let s = (&raw mut slot).cast::<u8>();
        io::write_i128(dtype, s, 0, index as i128);
        io::store(dtype, base.get(), at, io::Block { sizes: &[], strides: &[] }, s);
    }
}
