//! Contractions and sums of products of any dtype, element by element: right first.

use super::ContractPlan;
use crate::buffers::{Ptr, RunCx};
use crate::space::position;
use crate::tile::code::Code;
use crate::tile::{Work, io, scratch};
use rlx_ir::DType;

/// Runs a contraction.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(p: &ContractPlan, code: &Code, run: &RunCx<'_>) {
    let count = |s: &[usize]| s.iter().product::<usize>();
    let (batch, m, n, k) = (count(&p.batch), count(&p.m), count(&p.n), count(&p.k));
    let (lhs, rhs) = (Ptr(run.bufs.base(p.lhs.buffer)), Ptr(run.bufs.base(p.rhs.buffer)));
    let work = Work::of(p.acc).unwrap_or(Work::F32);
    let (nb, nm) = (p.batch.len(), p.m.len());
    run.region.parallel_for(batch * m, &|row| {
        let (b, i) = (row / m, row % m);
        let left = position(b, &p.batch, p.lhs.offset, &p.lhs.strides[..nb]);
        let left = position(i, &p.m, left, &p.lhs.strides[nb..nb + nm]);
        let right = position(b, &p.batch, p.rhs.offset, &p.rhs.strides[..nb]);
        scratch::with(n * work.size(), |acc| {
            let acc = acc.as_mut_ptr();
            for j in 0..n {
                let right = position(j, &p.n, right, &p.rhs.strides[nb..nb + p.n.len()]);
                let at = |c: usize| {
                    let l = position(c, &p.k, left, &p.lhs.strides[nb + nm..]);
                    let r = position(c, &p.k, right, &p.rhs.strides[nb + p.n.len()..]);
                    (l, r)
                };
                if p.scaling.iter().flatten().any(Option::is_some) {
                    // SAFETY: as below.
                    unsafe { scaled(p, run, (b, i, j), k, at, acc) };
                    continue;
                }
                // SAFETY: the walks were checked to lie within their buffers at bind; acc holds n elements.
                unsafe { dot(p.acc, (p.lhs.dtype, lhs.get()), (p.rhs.dtype, rhs.get()), k, at, acc, j) };
            }
            p.finish.with_runner(code, run.bufs, run.isa, |e| {
                // SAFETY: the row is this task's alone.
                unsafe { e.run(row, 0, n, acc) }
            });
        });
    });
}

/// Element `j` of `acc`, of operands that stand for others.
/// # Safety
/// As [`dot`]; `run` has the memory.
unsafe fn scaled(
    p: &ContractPlan,
    run: &RunCx<'_>,
    (b, i, j): (usize, usize, usize),
    k: usize,
    at: impl Fn(usize) -> (i64, i64),
    acc: *mut u8,
) {
    let nb = p.batch.len();
    let sides = [(&p.lhs, &p.scaling[0], &p.m, i), (&p.rhs, &p.scaling[1], &p.n, j)];
    let (mut sum, mut integer) = (0.0f64, 0i32);
    for c in 0..k {
        let places = [at(c).0, at(c).1];
        let [x, y] = [0, 1].map(|s| {
            let (operand, [zero, scale], free, index) = sides[s];
            let number = |a: &crate::buffers::BoundAccess| {
                let from = position(b, &p.batch, a.offset, &a.strides[..nb]);
                let from = position(index, free, from, &a.strides[nb..nb + free.len()]);
                let place = position(c, &p.k, from, &a.strides[nb + free.len()..]);
                // SAFETY: the caller's promise.
                unsafe { io::read_f64(a.dtype, run.bufs.base(a.buffer), place) }
            };
            // SAFETY: as above.
            let x = unsafe { io::read_f64(operand.dtype, run.bufs.base(operand.buffer), places[s]) };
            let x = x - zero.as_ref().map_or(0.0, number);
            scale.as_ref().map_or(x, |a| f64::from((x as f32) * number(a) as f32))
        });
        sum += x * y;
        integer = integer.wrapping_add((x as i32).wrapping_mul(y as i32));
    }
    // SAFETY: the caller's promise: acc holds more than j elements of the working type.
    unsafe {
        if p.acc.is_float() {
            *acc.cast::<f32>().add(j) = sum as f32;
        } else {
            *acc.cast::<i32>().add(j) = integer;
        }
    }
}

/// Element `j` of `acc`: the sum of `k` products.
/// # Safety
/// Positions that `at` gives lie within the operands' memory; `acc` holds more than `j` elements of the accumulator's
/// working type.
pub(crate) unsafe fn dot(
    acc_dtype: DType,
    lhs: (DType, *const u8),
    rhs: (DType, *const u8),
    k: usize,
    at: impl Fn(usize) -> (i64, i64),
    acc: *mut u8,
    j: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if acc_dtype.is_complex() {
            let mut sum = [0.0f64; 2];
            for c in 0..k {
                let (l, r) = at(c);
                let (mut a, mut b) = ([0.0f64; 2], [0.0f64; 2]);
                let one = io::Block { sizes: &[], strides: &[] };
                io::load(lhs.0, lhs.1, l, one, (&raw mut a).cast());
                io::load(rhs.0, rhs.1, r, one, (&raw mut b).cast());
                sum[0] += a[0] * b[0] - a[1] * b[1];
                sum[1] += a[0] * b[1] + a[1] * b[0];
            }
            *acc.cast::<[f64; 2]>().add(j) = sum;
        } else if acc_dtype.is_float() {
            let mut sum = 0.0;
            for c in 0..k {
                let (l, r) = at(c);
                sum += io::read_f64(lhs.0, lhs.1, l) * io::read_f64(rhs.0, rhs.1, r);
            }
            match Work::of(acc_dtype) {
                Some(Work::F32) => *acc.cast::<f32>().add(j) = sum as f32,
                _ => *acc.cast::<f64>().add(j) = sum,
            }
        } else {
            let mut sum = 0i128;
            for c in 0..k {
                let (l, r) = at(c);
                let product = io::read_i128(lhs.0, lhs.1, l).wrapping_mul(io::read_i128(rhs.0, rhs.1, r));
                sum = sum.wrapping_add(product);
            }
            io::write_i128(acc_dtype, acc, j, sum);
        }
    }
}
