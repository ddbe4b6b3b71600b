//! Pooling of any dtype, element by element: right first.

use super::WindowPlan;
use crate::buffers::{Ptr, RunCx};
use crate::space::{position, unravel};
use crate::tile::{Work, io};
use rlx_ir::ops::reduction::WindowKind;

/// Runs a pooling kernel.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(p: &WindowPlan, run: &RunCx<'_>) {
    let (x, y) = (Ptr(run.bufs.base(p.input.buffer)), Ptr(run.bufs.base(p.output.buffer)));
    let (rank, lead) = (p.window.len(), p.outer.len());
    let (points, taps) = (p.out_spatial.iter().product::<usize>(), p.window.iter().product::<usize>());
    let dtype = p.input.dtype;
    let float = dtype.is_float();
    run.region.parallel_for(p.outer.iter().product(), &|row| {
        let from = position(row, &p.outer, p.input.offset, &p.input.strides[..lead]);
        let to = position(row, &p.outer, p.output.offset, &p.output.strides[..lead]);
        let (mut out, mut tap) = (vec![0usize; rank], vec![0usize; rank]);
        for j in 0..points {
            unravel(j, &p.out_spatial, &mut out);
            let (mut sum, mut most, mut total, mut counted) = (0.0f64, f64::NEG_INFINITY, 0i128, 0usize);
            let mut greatest = dtype.int_range().map_or(0, |r| r.0);
            for t in 0..taps {
                unravel(t, &p.window, &mut tap);
                let (mut at, mut inside, mut padded) = (from, true, true);
                for a in 0..rank {
                    let i = out[a] as i64 * p.strides[a] + tap[a] as i64 * p.dilations[a] - p.pad_low[a];
                    let n = p.in_spatial[a] as i64;
                    // Negative padding crops.
                    inside &= (0..n.min(n + p.pad_high[a])).contains(&i);
                    padded &= i < n + p.pad_high[a];
                    at += i * p.input.strides[lead + a];
                }
                counted += usize::from(if p.count_include_pad { padded } else { inside });
                if !inside {
                    continue;
                }
                // SAFETY: the index lies within the input, whose walk was checked at bind.
                unsafe {
                    if float {
                        let v = io::read_f64(dtype, x.get(), at);
                        sum += v;
                        most = if v.is_nan() || most.is_nan() { f64::NAN } else { most.max(v) };
                    } else {
                        let v = io::read_i128(dtype, x.get(), at);
                        total += v;
                        greatest = greatest.max(v);
                    }
                }
            }
            let (float_value, int_value) = match p.kind {
                WindowKind::Max => (most, greatest),
                WindowKind::Sum => (sum, total),
                WindowKind::Mean if counted == 0 => (0.0, 0),
                WindowKind::Mean => (sum / counted as f64, total.checked_div(counted as i128).unwrap_or(0)),
            };
            let mut slot = [0u64; 2];
            let s = slot.as_mut_ptr().cast::<u8>();
            let at = position(j, &p.out_spatial, to, &p.output.strides[lead..]);
            // SAFETY: the slot holds one element; the output's walk was checked at bind, and rows are disjoint.
            unsafe {
                match Work::of(dtype) {
                    Some(Work::F32) => *s.cast::<f32>() = float_value as f32,
                    Some(Work::F64) => *s.cast::<f64>() = float_value,
                    _ => io::write_i128(dtype, s, 0, int_value),
                }
                io::store(dtype, y.get(), at, io::Block { sizes: &[], strides: &[] }, s);
            }
        }
    });
}
