//! Results whose every axis takes elements of the operand's axis by a table: borders of other kinds than constant,
//! nearest resizing.

use super::gather::rows_per_task;
use super::moves::{Block, Cell, for_cell};
use super::{Defined, Routine, agree, operands, split};
use crate::buffers::{BindError, BoundView, KernelError, Ptr, RunCx};
use crate::space::position;
use rlx_ir::ops::shape::{Pad, PadMode, pad_sources};

#[derive(Debug)]
struct Remap {
    x: BoundView,
    out: BoundView,
    /// For each axis up to the last that is not taken as it is: where its elements lie, in steps of the operand.
    tables: Vec<Vec<i64>>,
    /// The axes after those.
    block: Block,
}

/// Plans a remapping. An axis without sources is taken as it is.
pub fn plan(
    sources: Vec<Option<Vec<usize>>>,
    inputs: &[BoundView],
    outputs: &[BoundView],
) -> Result<Box<dyn Routine>, BindError> {
    let (Some(x), [out]) = (inputs.first(), operands(outputs)?) else {
        return Err("it has no operand".into());
    };
    let rank = x.sizes.len();
    let axis_fits = |a: usize| match &sources[a] {
        None => x.sizes[a] == out.sizes[a],
        Some(s) => s.len() == out.sizes[a] && s.iter().all(|&i| i < x.sizes[a]),
    };
    let fits = sources.len() == rank && out.sizes.len() == rank && x.access.dtype == out.access.dtype;
    agree(fits && (0..rank).all(axis_fits), "remap", inputs, outputs)?;
    let lead = sources.iter().rposition(Option::is_some).map_or(0, |a| a + 1);
    let (xs, os) = (&x.access.strides, &out.access.strides);
    let table = |(a, s): (usize, Option<Vec<usize>>)| match s {
        Some(s) => s.iter().map(|&i| i as i64 * xs[a]).collect(),
        None => (0..x.sizes[a]).map(|i| i as i64 * xs[a]).collect(),
    };
    let tables = sources.into_iter().take(lead).enumerate().map(table).collect();
    let block = Block::new(x.access.dtype, &x.sizes[lead..], &xs[lead..], &os[lead..]);
    Ok(Box::new(Remap { x: x.clone(), out: out.clone(), tables, block }))
}

/// Plans `pad`.
pub fn plan_pad(op: &Pad, inputs: &[BoundView], outputs: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    let ([x], true) = (operands(inputs)?, op.mode != PadMode::Constant) else {
        return Err("constant padding is lowered to maps".into());
    };
    let mut sources = Vec::with_capacity(x.sizes.len());
    for (a, (low, high)) in op.low.iter().zip(&op.high).enumerate() {
        let size = |d: &rlx_ir::Dim| d.as_const().ok_or_else(|| format!("padding {d} is not known"));
        let (low, high, n) = (size(low)?, size(high)?, x.sizes.get(a).copied().unwrap_or(0));
        if (low, high) == (0, 0) {
            sources.push(None);
            continue;
        }
        let list = pad_sources(n, low, high, op.mode).map_err(|e| format!("axis {a}: {e}"))?;
        sources.push(list.into_iter().collect());
    }
    plan(sources, inputs, outputs)
}

impl Routine for Remap {
    unsafe fn run(&self, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError> {
        let (x, out) = (&self.x.access, &self.out.access);
        let (from, to) = (Ptr(run.bufs.base(x.buffer)), Ptr(run.bufs.base(out.buffer)));
        let Some((last, outer)) = self.tables.split_last() else {
            // SAFETY: views of the same sizes.
            unsafe { self.block.copy_parallel(run, from, x.offset, to, out.offset) };
            return Ok(None);
        };
        if self.block.bits() == 0 || last.is_empty() {
            return Ok(None);
        }
        let (q, n) = (outer.len(), last.len());
        let points = outer.iter().map(Vec::len).product::<usize>() * n;
        let single = self.block.bits() == x.dtype.bits();
        split(run, out.dtype, points, rows_per_task(&self.block), &|r| {
            let mut point = r.start;
            while point < r.end {
                let (mut o, i) = (point / n, point % n);
                let t = position(o, &self.out.sizes[..q], out.offset, &out.strides[..q]);
                let mut f = x.offset;
                for table in outer.iter().rev() {
                    f += table[o % table.len()];
                    o /= table.len();
                }
                let part = &last[i..n.min(i + r.end - point)];
                let step = out.strides[q];
                let first = t + i as i64 * step;
                // SAFETY: tables name elements of the operand, as checked at bind; points of the result are disjoint.
                unsafe {
                    if single {
                        for_cell!(x.dtype.bits(), C => {
                            for (j, &s) in (0i64..).zip(part) {
                                C::copy(from.get().cast_const(), f + s, to.get(), first + j * step);
                            }
                        });
                    } else {
                        for (j, &s) in (0i64..).zip(part) {
                            self.block.copy(from, f + s, to, first + j * step);
                        }
                    }
                }
                point += part.len();
            }
        });
        Ok(None)
    }
}
