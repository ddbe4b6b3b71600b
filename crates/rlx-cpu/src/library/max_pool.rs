//! The largest element of each window, and where it stands.

use super::number::{Cells, Number, for_number};
use super::walk::Cursor;
use super::{Defined, Routine, agree, operands};
use crate::buffers::{BindError, BoundView, KernelError, RunCx, Sizes, Strides};
use rlx_ir::DType;
use rlx_ir::ops::reduction::{MaxPoolIndices, ReduceKind};

/// Windows in a task.
const TASK: usize = 1 << 10;

/// The taps of a window on one axis that lie in the operand: index of the first, and how many.
type Taps = (usize, usize);

#[derive(Debug)]
struct Plan {
    x: BoundView,
    values: BoundView,
    indices: BoundView,
    dilations: Sizes,
    /// For each window axis, the taps of each window.
    taps: Vec<Vec<Taps>>,
    /// Weight of each window axis in an index.
    weights: Vec<i64>,
}

/// Plans `max_pool_with_indices`.
pub fn plan(op: &MaxPoolIndices, inputs: &[BoundView], outputs: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    let ([x], [values, indices]) = (operands(inputs)?, operands(outputs)?);
    let rank = op.window.len();
    let lead = x.sizes.len().checked_sub(rank);
    let parts = [op.strides.len(), op.dilations.len(), op.pad_low.len(), op.pad_high.len()];
    let Some(lead) = lead.filter(|_| parts == [rank; 4]) else {
        return Err(super::misfit("max_pool_with_indices", inputs, outputs));
    };
    let fits = values.sizes == indices.sizes
        && values.sizes.len() == x.sizes.len()
        && values.sizes[..lead] == x.sizes[..lead]
        && values.access.dtype == x.access.dtype
        && indices.access.dtype == DType::I64;
    agree(fits, "max_pool_with_indices", inputs, outputs)?;
    let plane = &x.sizes[lead..];
    let mut taps = Vec::with_capacity(rank);
    for (a, &cells) in plane.iter().enumerate() {
        let size = |d: &rlx_ir::Dim| d.as_const().ok_or_else(|| format!("padding {d} is not known"));
        let (low, high) = (size(&op.pad_low[a])?, size(&op.pad_high[a])?);
        // Cropped elements are not seen.
        let end = (cells as i64).saturating_add(Ord::min(high, 0));
        let (window, stride, dilation) = (op.window[a], op.strides[a], op.dilations[a]);
        if window < 1 || stride < 1 || dilation < 1 {
            return Err("windows, strides and dilations are at least 1".into());
        }
        let of = |o: usize| {
            let start = i64::try_from(o).ok()?.checked_mul(stride)?.checked_sub(low)?;
            let first = if start < 0 { (start.checked_neg()? - 1).div_euclid(dilation) + 1 } else { 0 };
            let last = Ord::min((end.saturating_sub(start) - 1).div_euclid(dilation), window - 1);
            let n = usize::try_from(last - first + 1).unwrap_or(0);
            let at = start.checked_add(first.checked_mul(dilation)?)?;
            Some(if n == 0 { (0, 0) } else { (usize::try_from(at).ok()?, n) })
        };
        let list = (0..values.sizes[lead + a]).map(of).collect::<Option<Vec<_>>>();
        taps.push(list.ok_or_else(|| format!("windows of axis {} leave the range of 64 bits", lead + a))?);
    }
    // Digits of an index: the last axis counts fastest, or the first.
    let mut weights = vec![0i64; rank];
    let mut weight = 1i64;
    for i in 0..rank {
        let a = if op.column_major { i } else { rank - 1 - i };
        weights[a] = weight;
        weight *= plane[a] as i64;
    }
    let dilations = op.dilations.iter().map(|&d| usize::try_from(d).unwrap_or(1)).collect();
    let (x, values, indices) = (x.clone(), values.clone(), indices.clone());
    Ok(Box::new(Plan { x, values, indices, dilations, taps, weights }))
}

impl Routine for Plan {
    unsafe fn run(&self, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError> {
        // SAFETY: passes the caller's promise on.
        unsafe { for_number!(self.x.access.dtype, T => self.pool::<T>(run)) }.map(|()| None)
    }
}

impl Plan {
    /// # Safety
    /// Views were checked at bind; `T` is the operand's working type.
    unsafe fn pool<T: Number>(&self, run: &RunCx<'_>) -> Result<(), KernelError> {
        let dtype = self.x.access.dtype;
        let none = match dtype.int_range() {
            Some(_) => T::from_int(ReduceKind::Max.neutral_int(dtype)),
            None => T::from_float(f64::NEG_INFINITY),
        };
        let (x, y, z) =
            (Cells::<T>::of(&self.x, run), Cells::<T>::of(&self.values, run), Cells::<i64>::of(&self.indices, run));
        let (a, b) = (&self.values.access, &self.indices.access);
        super::split(run, dtype, self.values.numel(), TASK, &|r| {
            let mut v = Cursor::new(&self.values.sizes, &a.strides, a.offset, r.start);
            let mut i = Cursor::new(&self.values.sizes, &b.strides, b.offset, r.start);
            for _ in r {
                // SAFETY: positions are those of elements of the results; taps lie within the operand.
                unsafe {
                    let (value, index) = self.window(x, v.index()).unwrap_or((none, -1));
                    y.set(v.at(), value);
                    z.set(i.at(), index);
                }
                v.advance();
                i.advance();
            }
        });
        Ok(())
    }

    /// The largest element of the window of an element of the result, with its index; none where it sees nothing.
    /// # Safety
    /// Views were checked at bind.
    unsafe fn window<T: Number>(&self, x: Cells<T>, index: &[usize]) -> Option<(T, i64)> {
        let lead = index.len() - self.taps.len();
        let strides = &self.x.access.strides;
        let plane: i64 = self.x.sizes[lead..].iter().map(|&n| n as i64).product();
        let (mut at, mut place) = (self.x.access.offset, 0i64);
        for (a, &i) in index.iter().enumerate().take(lead) {
            at += i as i64 * strides[a];
            place = place * self.x.sizes[a] as i64 + i as i64;
        }
        place *= plane;
        let (mut counts, mut steps, mut digits) = (Sizes::new(), Strides::new(), Strides::new());
        for (a, taps) in self.taps.iter().enumerate() {
            let (first, n) = taps[index[lead + a]];
            if n == 0 {
                return None;
            }
            at += first as i64 * strides[lead + a];
            place += first as i64 * self.weights[a];
            counts.push(n);
            steps.push(self.dilations[a] as i64 * strides[lead + a]);
            digits.push(self.dilations[a] as i64 * self.weights[a]);
        }
        let (mut p, mut d) = (Cursor::new(&counts, &steps, at, 0), Cursor::new(&counts, &digits, place, 0));
        // SAFETY: taps that lie outside the operand were left out at bind.
        let mut best = (unsafe { x.get(p.at()) }, d.at());
        for _ in 1..counts.iter().product::<usize>() {
            p.advance();
            d.advance();
            // SAFETY: as above.
            let v = unsafe { x.get(p.at()) };
            if best.0.below(v) || v.is_nan() && !best.0.is_nan() {
                best = (v, d.at());
            }
        }
        Some(best)
    }
}
