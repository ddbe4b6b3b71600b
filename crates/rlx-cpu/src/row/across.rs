//! Rows that lie across a block: a block holds one element of many rows, and the row's index runs outside.

use super::{Pass, RowCode, RowPlan};
use crate::buffers::{RunCx, Sizes};
use crate::simd::{Kernel, Simd, dispatch};
use crate::space::{Blocks, position};
use crate::tile::code::What;
use crate::tile::io::Block;
use crate::tile::loops::{Args, OpFn};
use crate::tile::machine::{Class, Machine, scratch_len};
use crate::tile::reduce;
use crate::tile::resolve::lanes;
use crate::tile::{BLOCK, Work, convert, scratch};
use rlx_ir::DType;
use rlx_ir::ops::reduction::ReduceKind;
use smallvec::SmallVec;

/// Elements of a task.
const TASK: usize = 16 * 1024;
/// Elements that are added in f32 before the sum goes to f64.
const PARTIAL: usize = 64;

/// # Safety
/// As [`super::run`].
pub unsafe fn run(plan: &RowPlan, row: &RowCode, run: &RunCx<'_>) {
    let elements = plan.cut.points() * plan.reduced.points().max(1);
    let per_task = if plan.narrow { plan.cut.count } else { TASK.div_ceil(elements) };
    run.region.parallel_for(plan.cut.count.div_ceil(per_task), &|task| {
        let first = task * per_task;
        let last = (first + per_task).min(plan.cut.count);
        let code = &row.code;
        let slots = scratch_len(code, code.steps.len(), BLOCK);
        // An f64 total for each lane of each reduction.
        scratch::with(slots + code.steps.len() * BLOCK * 8, |memory| {
            let (memory, totals) = memory.split_at_mut(slots);
            let machine = Machine::new(code, &plan.modes, &row.apart, run.isa, BLOCK, memory);
            let mut lanes = Lanes { plan, row, run, machine, totals: totals.as_mut_ptr().cast() };
            let mut at = Blocks::at(&plan.outer.sizes, &plan.cut, first);
            for _ in first..last {
                // SAFETY: blocks of rows are disjoint.
                unsafe { lanes.block(&at) };
                at.advance(&plan.outer.sizes, &plan.cut);
            }
        });
    });
}

/// `y = Σ rows`, lane by lane, in order. The maker answers for `n` elements of each.
struct AddUp<'a> {
    rows: &'a [*const f32],
    n: usize,
    y: *mut f32,
}

impl Kernel for AddUp<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut i = 0;
        // SAFETY: i plus the lanes taken stays within n.
        unsafe {
            // Vectors that are added up at the same time, so that one does not wait for the other.
            while i + 4 * S::W <= self.n {
                let mut sums = [s.zero(); 4];
                for row in self.rows {
                    for (v, sum) in sums.iter_mut().enumerate() {
                        *sum = s.add(*sum, s.load(row.add(i + v * S::W)));
                    }
                }
                for (v, &sum) in sums.iter().enumerate() {
                    s.store(self.y.add(i + v * S::W), sum);
                }
                i += 4 * S::W;
            }
            while i < self.n {
                let lanes = (self.n - i).min(S::W);
                let mut sum = s.zero();
                for row in self.rows {
                    let at = row.add(i);
                    sum = s.add(sum, if lanes == S::W { s.load(at) } else { s.load_partial(at, lanes) });
                }
                s.store_partial(self.y.add(i), sum, lanes);
                i += lanes;
            }
        }
    }
}

struct Lanes<'a> {
    plan: &'a RowPlan,
    row: &'a RowCode,
    run: &'a RunCx<'a>,
    machine: Machine<'a>,
    totals: *mut f64,
}

impl Lanes<'_> {
    /// # Safety
    /// The block's rows are the caller's.
    unsafe fn block(&mut self, at: &Blocks) {
        let (plan, row) = (self.plan, self.row);
        let count = at.count(&plan.outer.sizes, &plan.cut);
        let n = count * plan.cut.inner;
        let mut sizes: Sizes = plan.outer.sizes[plan.cut.axis..].into();
        sizes[0] = count;
        // SAFETY: the caller's promise.
        unsafe {
            for &v in &row.prelude {
                self.step(v, at, 0, &sizes, n);
            }
            for pass in &row.passes {
                if let Some((v, read)) = self.plain_sum(pass) {
                    self.add_up(v, read, at, n);
                    for &v in &pass.after {
                        self.step(v, at, 0, &sizes, n);
                    }
                    continue;
                }
                let sums: SmallVec<[(u32, ReduceKind, OpFn); 4]> = pass
                    .reduces
                    .iter()
                    .filter_map(|&v| match row.code.steps[v as usize].what {
                        What::Reduce(kind) => Some((v, kind, lanes(kind, row.code.steps[v as usize].work)?)),
                        _ => None,
                    })
                    .collect();
                for &(v, kind, _) in &sums {
                    self.start(v, kind, n);
                }
                for k in 0..plan.reduced.points() {
                    for &v in &pass.elements {
                        self.step(v, at, k, &sizes, n);
                    }
                    for &(v, kind, add) in &sums {
                        self.accumulate(v, kind, add, n);
                        if (k + 1) % PARTIAL == 0 {
                            self.flush(v, kind, n);
                        }
                    }
                    if pass.writes {
                        for &i in &row.element_results {
                            self.store(i, at, k, &sizes);
                        }
                    }
                }
                for &(v, kind, _) in &sums {
                    self.finish(v, kind, n);
                }
                for &v in &pass.after {
                    self.step(v, at, 0, &sizes, n);
                }
            }
            for i in (0..plan.writes.len()).filter(|i| !row.element_results.contains(i)) {
                self.store(i, at, 0, &sizes);
            }
        }
    }

    /// The reduction and the read of a pass that only adds up what it reads.
    fn plain_sum(&self, pass: &Pass) -> Option<(u32, usize)> {
        let ([element], [v], false) = (&pass.elements[..], &pass.reduces[..], pass.writes) else { return None };
        let (from, sum) = (&self.row.code.steps[*element as usize], &self.row.code.steps[*v as usize]);
        match (from.what, sum.what) {
            (What::Read(r), What::Reduce(ReduceKind::Sum)) if sum.args[..] == [*element] => {
                let read = &self.plan.reads[r as usize];
                let plain =
                    read.class == Class::InPlace && read.dtype == DType::F32 && self.in_f64(*v, ReduceKind::Sum);
                plain.then_some((*v, r as usize))
            }
            _ => None,
        }
    }

    /// Such a pass, to the same bits as step by step: sums of [`PARTIAL`] elements stay in registers.
    /// # Safety
    /// As [`Lanes::block`].
    unsafe fn add_up(&mut self, v: u32, read: usize, at: &Blocks, n: usize) {
        let (plan, w) = (self.plan, &self.plan.reads[read]);
        let start = at.position(w.offset, &w.outer);
        let x = self.run.bufs.base(w.buffer).cast::<f32>().cast_const();
        let points = plan.reduced.points();
        // SAFETY: slot and totals hold a block; positions lie within the buffer as checked at bind.
        unsafe {
            self.start(v, ReduceKind::Sum, n);
            let y = self.machine.value(v).cast::<f32>();
            for first in (0..points).step_by(PARTIAL) {
                let count = (points - first).min(PARTIAL);
                let mut rows = [x; PARTIAL];
                for (k, row) in rows.iter_mut().enumerate().take(count) {
                    let at = position(first + k, &plan.reduced.sizes, start, &w.reduced);
                    *row = x.wrapping_offset(at as isize);
                }
                dispatch(self.run.isa, AddUp { rows: &rows[..count], n, y });
                self.flush(v, ReduceKind::Sum, n);
            }
            self.finish(v, ReduceKind::Sum, n);
        }
    }

    fn in_f64(&self, v: u32, kind: ReduceKind) -> bool {
        self.row.code.steps[v as usize].work == Work::F32 && kind == ReduceKind::Sum
    }

    fn total(&self, v: u32) -> *mut f64 {
        self.totals.wrapping_add(v as usize * BLOCK)
    }

    /// # Safety
    /// `n` is at most a block (all of these).
    unsafe fn start(&mut self, v: u32, kind: ReduceKind, n: usize) {
        let step = &self.row.code.steps[v as usize];
        let (work, neutral) = (step.work, reduce::neutral(kind, step.work, step.dtype));
        let y = self.machine.unplace(v);
        for i in 0..n {
            // SAFETY: the slot and the totals hold a block.
            unsafe {
                reduce::write(work, neutral, y.add(i * work.size()));
                *self.total(v).add(i) = 0.0;
            }
        }
    }

    unsafe fn accumulate(&mut self, v: u32, _kind: ReduceKind, add: OpFn, n: usize) {
        let arg = self.row.code.steps[v as usize].args.first().copied().unwrap_or(0);
        let y = self.machine.value(v);
        let a = [y.cast_const(), self.machine.value(arg).cast_const(), std::ptr::null()];
        // SAFETY: both hold n elements; a uniform operand has been spread.
        unsafe { add(&Args { isa: self.run.isa, a, splat: [false; 3], y, n }) }
    }

    /// Moves a partial f32 sum to the totals.
    unsafe fn flush(&mut self, v: u32, kind: ReduceKind, n: usize) {
        if !self.in_f64(v, kind) {
            return;
        }
        let (y, total) = (self.machine.value(v).cast::<f32>(), self.total(v));
        for i in 0..n {
            // SAFETY: both hold n elements.
            unsafe {
                *total.add(i) += f64::from(*y.add(i));
                *y.add(i) = 0.0;
            }
        }
    }

    unsafe fn finish(&mut self, v: u32, kind: ReduceKind, n: usize) {
        // SAFETY: slot and totals hold n elements.
        unsafe {
            self.flush(v, kind, n);
            let y = self.machine.value(v);
            if self.in_f64(v, kind) {
                for i in 0..n {
                    *y.cast::<f32>().add(i) = *self.total(v).add(i) as f32;
                }
            }
            let x = Args { isa: self.run.isa, a: [y.cast_const(); 3], splat: [false; 3], y, n };
            convert::round(self.row.code.steps[v as usize].round, &x);
        }
    }

    /// # Safety
    /// Operands of the step have been computed.
    unsafe fn step(&mut self, v: u32, at: &Blocks, k: usize, sizes: &[usize], n: usize) {
        let (plan, axis) = (self.plan, self.plan.cut.axis);
        // SAFETY: the caller's promise; positions lie within buffers as checked at bind.
        unsafe {
            match self.row.code.steps[v as usize].what {
                What::Read(r) => {
                    let w = &plan.reads[r as usize];
                    let start = position(k, &plan.reduced.sizes, at.position(w.offset, &w.outer), &w.reduced);
                    let block = Block { sizes, strides: &w.outer[axis..] };
                    self.machine.load(v as usize, w.class, self.run.bufs.base(w.buffer), start, block);
                }
                What::Index(_) => {
                    if let Some((outer, reduced)) = plan.index_walk(v) {
                        let start = position(k, &plan.reduced.sizes, at.position(0, outer), reduced);
                        self.machine.index(v as usize, start, Block { sizes, strides: &outer[axis..] });
                    }
                }
                What::Run(_) => self.machine.compute(v as usize, n),
                What::Const(_) | What::Size(_) | What::Acc | What::Reduce(_) => {}
            }
        }
    }

    /// # Safety
    /// The result has been computed; the block's rows are the caller's.
    unsafe fn store(&self, i: usize, at: &Blocks, k: usize, sizes: &[usize]) {
        let (plan, axis) = (self.plan, self.plan.cut.axis);
        let w = &plan.writes[i];
        let start = position(k, &plan.reduced.sizes, at.position(w.offset, &w.outer), &w.reduced);
        let block = Block { sizes, strides: &w.outer[axis..] };
        // SAFETY: the caller's promise.
        unsafe { self.machine.store(self.row.code.results[i], w.dtype, self.run.bufs.base(w.buffer), start, block) };
    }
}
