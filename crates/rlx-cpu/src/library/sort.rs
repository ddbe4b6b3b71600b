//! Order along an axis: `sort` and `top_k`.
//!
//! Each element of a line becomes an integer: a key that orders as the element does, with its index below it. These are
//! all different, so that any sort of them is stable and gives one result; for a descending order keys are inverted, and
//! equal elements keep the order of their indices.

use super::memory::{self, Failure};
use super::moves::{Cell, for_cell};
use super::number::{Cells, Number, for_number};
use super::walk::{Cursor, without};
use super::{Defined, Routine, agree, operands, split};
use crate::buffers::{BindError, BoundView, KernelError, RunCx, Sizes, Strides};
use rlx_ir::DType;

/// Elements in a task, about.
const TASK: usize = 1 << 12;

#[derive(Debug)]
struct Plan {
    axis: usize,
    descending: bool,
    x: BoundView,
    values: BoundView,
    indices: BoundView,
    /// The axes but for this one, and their steps in operand, values and indices.
    sizes: Sizes,
    walks: [Strides; 3],
}

/// Plans the first `k` elements of each line in order; k is the size of the results.
pub fn plan(
    axis: usize,
    descending: bool,
    inputs: &[BoundView],
    outputs: &[BoundView],
) -> Result<Box<dyn Routine>, BindError> {
    let ([x], [values, indices]) = (operands(inputs)?, operands(outputs)?);
    let fits = |v: &BoundView| {
        v.sizes.len() == x.sizes.len()
            && x.sizes.iter().zip(&v.sizes).enumerate().all(|(a, (n, k))| if a == axis { k <= n } else { k == n })
    };
    let types = values.access.dtype == x.access.dtype && indices.access.dtype == DType::I64;
    agree(axis < x.sizes.len() && fits(values) && indices.sizes == values.sizes && types, "sort", inputs, outputs)?;
    let limit = u32::MAX as usize;
    if x.sizes[axis] > limit {
        return Err(format!("axis {axis} has {} elements; lines of at most {limit} can be ordered", x.sizes[axis]));
    }
    let walks = [x, values, indices].map(|v| without(&v.access.strides, axis));
    let (x, values, indices) = (x.clone(), values.clone(), indices.clone());
    Ok(Box::new(Plan { axis, descending, sizes: without(&x.sizes, axis), walks, x, values, indices }))
}

impl Routine for Plan {
    unsafe fn run(&self, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError> {
        let (n, k) = (self.x.sizes[self.axis], self.values.sizes[self.axis]);
        if k == 0 {
            return Ok(None);
        }
        let failure = Failure::default();
        let lines = self.sizes.iter().product();
        split(run, self.x.access.dtype, lines, (TASK / n.max(1)).max(1), &|r| {
            // SAFETY: passes the caller's promise on; lines are disjoint.
            failure.note(unsafe { for_number!(self.x.access.dtype, T => self.lines::<T>(run, r)) });
        });
        failure.result().map(|()| None)
    }
}

impl Plan {
    /// # Safety
    /// Views were checked at bind; no other thread writes these lines of the results.
    unsafe fn lines<T: Number>(&self, run: &RunCx<'_>, r: std::ops::Range<usize>) -> Result<(), KernelError> {
        let n = self.x.sizes[self.axis];
        let cells = Cells::<T>::of(&self.x, run);
        let step = self.x.access.strides[self.axis];
        let mask = u64::MAX >> (64 - T::KEY_BITS);
        let key = |v: T| if self.descending { !v.key() & mask } else { v.key() };
        // SAFETY: the elements are those of a line.
        unsafe {
            if T::KEY_BITS <= 32 {
                memory::with::<u64, _>(n, |m| {
                    self.each(run, r, m, |at, i| key(cells.get(at + i as i64 * step)) << 32 | i as u64, |p| p as u32);
                })
            } else {
                memory::with::<u128, _>(n, |m| {
                    let pack = |at: i64, i: usize| u128::from(key(cells.get(at + i as i64 * step))) << 32 | i as u128;
                    self.each(run, r, m, pack, |p| p as u32);
                })
            }
        }
    }

    /// # Safety
    /// As [`Plan::lines`]; `pack` gives element i of the line at a position.
    unsafe fn each<P: Copy + Ord>(
        &self,
        run: &RunCx<'_>,
        r: std::ops::Range<usize>,
        memory: &mut [P],
        pack: impl Fn(i64, usize) -> P,
        index: impl Fn(P) -> u32,
    ) {
        let [mut x, mut v, mut i] = [(&self.x, 0), (&self.values, 1), (&self.indices, 2)]
            .map(|(view, w)| Cursor::new(&self.sizes, &self.walks[w], view.access.offset, r.start));
        let (a, b, c) = (&self.x.access, &self.values.access, &self.indices.access);
        let (xs, vs, is) = (a.strides[self.axis], b.strides[self.axis], c.strides[self.axis]);
        let (from, to) = (run.bufs.base(a.buffer).cast_const(), run.bufs.base(b.buffer));
        let places = run.bufs.base(c.buffer).cast::<i64>();
        let k = self.values.sizes[self.axis];
        for _ in r {
            for (j, m) in memory.iter_mut().enumerate() {
                *m = pack(x.at(), j);
            }
            if k < memory.len() {
                memory.select_nth_unstable(k - 1);
            }
            let first = memory.get_mut(..k).unwrap_or_default();
            first.sort_unstable();
            // SAFETY: there are k elements in each line of the results; indices are those of the operand's line.
            unsafe {
                for_cell!(a.dtype.bits(), C => {
                    for (j, &p) in (0i64..).zip(first.iter()) {
                        let source = i64::from(index(p));
                        C::copy(from, x.at() + source * xs, to, v.at() + j * vs);
                        *places.offset((i.at() + j * is) as isize) = source;
                    }
                });
            }
            x.advance();
            v.advance();
            i.advance();
        }
    }
}
