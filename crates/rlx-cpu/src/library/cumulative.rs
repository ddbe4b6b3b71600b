//! Running folds along an axis. Each line is folded element after element, in the working type.

use super::lines::{Group, Lines, WIDTH};
use super::number::{Cells, Number, for_number};
use super::walk::without;
use super::{Defined, Routine, agree, operands};
use crate::buffers::{BindError, BoundView, KernelError, RunCx, Strides};
use rlx_ir::ops::reduction::{CumKind, Cumulative};

/// Elements of a line that are folded at a time.
const BLOCK: usize = 512;

#[derive(Debug)]
struct Plan {
    op: Cumulative,
    x: BoundView,
    out: BoundView,
    lines: Lines,
    /// Step along the axis in the result.
    step: i64,
}

/// Plans `cumulative`.
pub fn plan(op: &Cumulative, inputs: &[BoundView], outputs: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    let ([x], [out]) = (operands(inputs)?, operands(outputs)?);
    let fits = op.axis < x.sizes.len() && x.sizes == out.sizes && x.access.dtype == out.access.dtype;
    agree(fits, "cumulative", inputs, outputs)?;
    let strides: Strides = without(&out.access.strides, op.axis);
    let lines = Lines::new(x, op.axis, out, &strides);
    let step = out.access.strides[op.axis];
    Ok(Box::new(Plan { op: op.clone(), x: x.clone(), out: out.clone(), lines, step }))
}

impl Routine for Plan {
    unsafe fn run(&self, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError> {
        // SAFETY: passes the caller's promise on.
        unsafe { for_number!(self.x.access.dtype, T => self.scan::<T>(run)) }.map(|()| None)
    }
}

impl Plan {
    /// # Safety
    /// Views were checked at bind; `T` is their working type.
    unsafe fn scan<T: Number>(&self, run: &RunCx<'_>) -> Result<(), KernelError> {
        let (x, y) = (Cells::<T>::of(&self.x, run), Cells::<T>::of(&self.out, run));
        let (dtype, kind) = (self.x.access.dtype, self.op.kind.reduction());
        let init = match dtype.int_range() {
            Some(_) => T::from_int(kind.neutral_int(dtype)),
            None => T::from_float(kind.neutral_float()),
        };
        self.lines.for_each(run, &|g| {
            // SAFETY: a group's elements lie within both views, and groups are disjoint.
            unsafe {
                match self.op.kind {
                    CumKind::Sum => self.group(x, y, g, init, T::add),
                    CumKind::Prod => self.group(x, y, g, init, T::mul),
                    CumKind::Max => self.group(x, y, g, init, T::max),
                    CumKind::Min => self.group(x, y, g, init, T::min),
                }
            }
        });
        Ok(())
    }

    /// # Safety
    /// The group's elements lie within both views.
    #[inline]
    unsafe fn group<T: Number>(&self, x: Cells<T>, y: Cells<T>, g: Group, init: T, f: impl Fn(T, T) -> T) {
        let n = self.lines.len;
        let step = |acc: &mut T, v: &mut T| {
            let next = f(*acc, *v);
            *v = if self.op.exclusive { *acc } else { next };
            *acc = next;
        };
        // Where the axis is walked from its end, its steps are negative.
        let (first, sign) = if self.op.reverse { (n.saturating_sub(1) as i64, -1) } else { (0, 1) };
        let (xs, ys) = (self.lines.step, self.step);
        let (x0, y0) = (g.x + first * xs, g.y + first * ys);
        let (xs, ys) = (sign * xs, sign * ys);
        // SAFETY: the caller's promise.
        unsafe {
            if g.width == 1 {
                let (mut acc, mut buffer) = (init, [T::default(); BLOCK]);
                for k in (0..n).step_by(BLOCK) {
                    let part = &mut buffer[..BLOCK.min(n - k)];
                    x.load(x0 + k as i64 * xs, xs, part);
                    part.iter_mut().for_each(|v| step(&mut acc, v));
                    y.store(y0 + k as i64 * ys, ys, part);
                }
                return;
            }
            let (mut acc, mut row) = ([init; WIDTH], [T::default(); WIDTH]);
            for k in 0..n as i64 {
                let row = &mut row[..g.width];
                x.load(x0 + k * xs, g.x_step, row);
                acc.iter_mut().zip(row.iter_mut()).for_each(|(a, v)| step(a, v));
                y.store(y0 + k * ys, g.y_step, row);
            }
        }
    }
}
