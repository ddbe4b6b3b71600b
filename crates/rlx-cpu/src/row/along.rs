//! Rows whose elements lie along a block: whole, or block after block.

use super::{Pass, RowCode, RowPlan, Way};
use crate::buffers::{Ptr, RunCx, Sizes};
use crate::space::{Blocks, position};
use crate::tile::code::{Bits, What};
use crate::tile::io::Block;
use crate::tile::loops::Args;
use crate::tile::machine::{Machine, scratch_len};
use crate::tile::reduce::{self, Total};
use crate::tile::{Work, convert, scratch};
use rlx_compile::lir::Scope;
use rlx_ir::ops::reduction::ReduceKind;
use smallvec::SmallVec;

/// Elements of a task.
const TASK: usize = 16 * 1024;
/// Blocks of a task where one row is dealt out.
const SPLIT_BLOCKS: usize = 32;

/// # Safety
/// As [`super::run`].
pub unsafe fn run(plan: &RowPlan, row: &RowCode, run: &RunCx<'_>) {
    let rows = plan.outer.points();
    let length = plan.reduced.points().max(1);
    let per_task = if plan.narrow { rows } else { TASK.div_ceil(length) };
    let tasks = rows.div_ceil(per_task);
    if let Some(code) = &plan.rows {
        // SAFETY: rows are disjoint.
        run.region.parallel_for(tasks, &|task| unsafe {
            code.run(&run.bufs, task * per_task, ((task + 1) * per_task).min(rows));
        });
        return;
    }
    // Few long rows: deal out blocks instead. The order of combining is the same either way.
    if plan.way == Way::Blocks && !plan.narrow && tasks < run.region.threads() && plan.cut.count >= 2 * SPLIT_BLOCKS {
        for r in 0..rows {
            // SAFETY: the caller's promise.
            unsafe { split_row(plan, row, run, r) };
        }
        return;
    }
    run.region.parallel_for(tasks, &|task| {
        // SAFETY: rows are disjoint.
        with_machine(plan, row, run, |m| unsafe {
            for r in task * per_task..((task + 1) * per_task).min(rows) {
                let at = Rows::new(plan, run, r);
                match plan.way {
                    Way::Whole => at.whole(m),
                    _ => at.blocks(m),
                }
                at.store_row(m);
            }
        });
    });
}

fn with_machine<R>(plan: &RowPlan, row: &RowCode, run: &RunCx<'_>, f: impl FnOnce(&mut M<'_, '_>) -> R) -> R {
    let whole = plan.way == Way::Whole;
    let (slots, count) =
        if whole { (&row.code.slots, row.code.slot_count) } else { (&row.apart, row.code.steps.len()) };
    let block = plan.cut.points().next_multiple_of(16);
    scratch::with(scratch_len(&row.code, count, block), |memory| {
        let machine = Machine::new(&row.code, &plan.modes, slots, run.isa, block, memory);
        f(&mut M { machine, row, block })
    })
}

struct M<'a, 'r> {
    machine: Machine<'a>,
    row: &'r RowCode,
    block: usize,
}

/// One row.
struct Rows<'a> {
    plan: &'a RowPlan,
    run: &'a RunCx<'a>,
    index: usize,
    /// Where each read, then each write, stands at the row's first element.
    starts: SmallVec<[i64; 12]>,
}

impl<'a> Rows<'a> {
    fn new(plan: &'a RowPlan, run: &'a RunCx<'a>, index: usize) -> Self {
        let walks = plan.reads.iter().chain(&plan.writes);
        let starts = walks.map(|w| position(index, &plan.outer.sizes, w.offset, &w.outer)).collect();
        Rows { plan, run, index, starts }
    }

    fn base(&self, buffer: u32) -> *mut u8 {
        self.run.bufs.base(buffer)
    }

    /// # Safety
    /// The row is the caller's; the machine was made for the plan.
    unsafe fn whole(&self, m: &mut M<'_, '_>) {
        let n = self.plan.reduced.points();
        let row = m.row;
        let at = Blocks::at(&self.plan.reduced.sizes, &self.plan.cut, 0);
        // SAFETY: the caller's promise.
        unsafe {
            self.place_direct(m, &at);
            for v in (0..row.code.steps.len() as u32).filter(|&v| row.code.steps[v as usize].live) {
                if let What::Reduce(kind) = row.code.steps[v as usize].what {
                    let total = self.reduce_block(m, v, kind, n);
                    finish(m, v, total, self.run.isa);
                } else {
                    self.step(m, v, &at, n);
                }
            }
            self.store_elements(m, &at);
        }
    }

    /// # Safety
    /// As [`Rows::whole`].
    unsafe fn blocks(&self, m: &mut M<'_, '_>) {
        let row = m.row;
        // SAFETY: the caller's promise.
        unsafe {
            self.row_values(m, &row.prelude);
            for pass in &row.passes {
                let mut totals = neutral(row, pass);
                let mut at = Blocks::at(&self.plan.reduced.sizes, &self.plan.cut, 0);
                for _ in 0..self.plan.cut.count {
                    self.block_of_pass(m, pass, &at, |i, kind, total| {
                        totals[i] = reduce::combine(kind, totals[i], total)
                    });
                    at.advance(&self.plan.reduced.sizes, &self.plan.cut);
                }
                for (&v, &total) in pass.reduces.iter().zip(&totals) {
                    finish(m, v, total, self.run.isa);
                }
                self.row_values(m, &pass.after);
            }
        }
    }

    /// One block of a pass; `reduced` takes the results of its reductions.
    /// # Safety
    /// As [`Rows::whole`].
    unsafe fn block_of_pass(
        &self,
        m: &mut M<'_, '_>,
        pass: &Pass,
        at: &Blocks,
        mut reduced: impl FnMut(usize, ReduceKind, Total),
    ) {
        let row = m.row;
        let n = at.count(&self.plan.reduced.sizes, &self.plan.cut) * self.plan.cut.inner;
        // SAFETY: the caller's promise.
        unsafe {
            if pass.writes {
                self.place_direct(m, at);
            }
            for &v in &pass.elements {
                if let What::Run(_) = row.code.steps[v as usize].what
                    && !pass.writes
                {
                    m.machine.unplace(v);
                }
                self.step(m, v, at, n);
            }
            for (i, &v) in pass.reduces.iter().enumerate() {
                if let What::Reduce(kind) = row.code.steps[v as usize].what {
                    reduced(i, kind, self.reduce_block(m, v, kind, n));
                }
            }
            if pass.writes {
                self.store_elements(m, at);
            }
        }
    }

    /// # Safety
    /// As [`Rows::whole`].
    unsafe fn reduce_block(&self, m: &M<'_, '_>, v: u32, kind: ReduceKind, n: usize) -> Total {
        let step = &m.row.code.steps[v as usize];
        let arg = step.args.first().copied().unwrap_or(0);
        // SAFETY: the operand has been computed for this block; a uniform one has been spread.
        unsafe { reduce::block(self.run.isa, kind, step.work, m.machine.value(arg), n) }
    }

    /// # Safety
    /// As [`Rows::whole`].
    unsafe fn row_values(&self, m: &mut M<'_, '_>, values: &[u32]) {
        let at = Blocks::at(&self.plan.reduced.sizes, &self.plan.cut, 0);
        for &v in values {
            // SAFETY: the caller's promise. Spread values fill whole blocks once a row.
            unsafe { self.step(m, v, &at, m.block) };
        }
    }

    /// # Safety
    /// As [`Rows::whole`]; operands of the step have been computed.
    unsafe fn step(&self, m: &mut M<'_, '_>, v: u32, at: &Blocks, n: usize) {
        let (plan, code) = (self.plan, &m.row.code);
        let axis = plan.cut.axis;
        let sizes = self.block_sizes(at, m.row.scopes[v as usize] == Scope::Row, m.block);
        // SAFETY: the caller's promise; positions lie within buffers as checked at bind.
        unsafe {
            match code.steps[v as usize].what {
                What::Read(k) => {
                    let r = &plan.reads[k as usize];
                    let start = at.position(self.starts[k as usize], &r.reduced);
                    let block = Block { sizes: &sizes, strides: &r.reduced[axis..] };
                    m.machine.load(v as usize, r.class, self.base(r.buffer), start, block);
                }
                What::Index(_) => {
                    if let Some((outer, reduced)) = plan.index_walk(v) {
                        let start = at.position(position(self.index, &plan.outer.sizes, 0, outer), reduced);
                        m.machine.index(v as usize, start, Block { sizes: &sizes, strides: &reduced[axis..] });
                    }
                }
                What::Run(_) => m.machine.compute(v as usize, n),
                What::Const(_) | What::Size(_) | What::Acc | What::Reduce(_) => {}
            }
        }
    }

    /// Sizes of a block; of a full one for row values, which are spread over it where they are.
    fn block_sizes(&self, at: &Blocks, row_value: bool, block: usize) -> Sizes {
        let (plan, axis) = (self.plan, self.plan.cut.axis);
        if row_value && plan.way != Way::Whole {
            let mut sizes: Sizes = smallvec::smallvec![1; plan.reduced.sizes.len() - axis];
            sizes[0] = block;
            return sizes;
        }
        let mut sizes: Sizes = plan.reduced.sizes[axis..].into();
        sizes[0] = at.count(&plan.reduced.sizes, &plan.cut);
        sizes
    }

    fn place_direct(&self, m: &mut M<'_, '_>, at: &Blocks) {
        for (i, w) in self.plan.writes.iter().enumerate().filter(|(i, _)| self.plan.direct[*i]) {
            let to = at.position(self.starts[self.plan.reads.len() + i], &w.reduced);
            let to = self.base(w.buffer).wrapping_offset(to as isize * (w.dtype.bits() / 8) as isize);
            m.machine.place(m.row.code.results[i], to);
        }
    }

    /// # Safety
    /// As [`Rows::whole`].
    unsafe fn store_elements(&self, m: &M<'_, '_>, at: &Blocks) {
        let axis = self.plan.cut.axis;
        let sizes = self.block_sizes(at, false, m.block);
        for &i in m.row.element_results.iter().filter(|&&i| !self.plan.direct[i]) {
            let w = &self.plan.writes[i];
            let start = at.position(self.starts[self.plan.reads.len() + i], &w.reduced);
            let block = Block { sizes: &sizes, strides: &w.reduced[axis..] };
            // SAFETY: the caller's promise.
            unsafe { m.machine.store(m.row.code.results[i], w.dtype, self.base(w.buffer), start, block) };
        }
    }

    /// Writes the results that the whole row has in common.
    /// # Safety
    /// As [`Rows::whole`].
    unsafe fn store_row(&self, m: &M<'_, '_>) {
        for (i, w) in self.plan.writes.iter().enumerate() {
            if !m.row.element_results.contains(&i) {
                let start = self.starts[self.plan.reads.len() + i];
                let one = Block { sizes: &[], strides: &[] };
                // SAFETY: the caller's promise.
                unsafe { m.machine.store(m.row.code.results[i], w.dtype, self.base(w.buffer), start, one) };
            }
        }
    }
}

fn neutral(row: &RowCode, pass: &Pass) -> SmallVec<[Total; 4]> {
    let of = |&v: &u32| {
        let step = &row.code.steps[v as usize];
        match step.what {
            What::Reduce(kind) => reduce::neutral(kind, step.work, step.dtype),
            _ => Total::F(0.0),
        }
    };
    pass.reduces.iter().map(of).collect()
}

/// Makes a total the value of its reduction.
/// # Safety
/// The machine has a slot for the value.
unsafe fn finish(m: &mut M<'_, '_>, v: u32, total: Total, isa: crate::simd::Isa) {
    let step = &m.row.code.steps[v as usize];
    let y = m.machine.unplace(v);
    let x = Args { isa, a: [y; 3].map(<*mut u8>::cast_const), splat: [false; 3], y, n: 1 };
    // SAFETY: the slot holds an element.
    unsafe {
        reduce::write(step.work, total, y);
        convert::round(step.round, &x);
    }
    m.machine.spread(v as usize, m.block);
}

/// One row whose blocks are dealt out to tasks, pass by pass.
/// # Safety
/// As [`super::run`].
unsafe fn split_row(plan: &RowPlan, row: &RowCode, run: &RunCx<'_>, index: usize) {
    let at = Rows::new(plan, run, index);
    let blocks = plan.cut.count;
    let most = row.passes.iter().map(|p| p.reduces.len()).max().unwrap_or(0);
    let one = size_of::<Total>();
    with_machine(plan, row, run, |m| {
        scratch::with(blocks * most * one + row.code.steps.len() * size_of::<Bits>(), |shared| {
            let totals = Ptr(shared.as_mut_ptr());
            let values = Ptr(shared.as_mut_ptr().wrapping_add(blocks * most * one));
            // SAFETY: tasks write disjoint totals and blocks, and only read the row's values between two passes.
            unsafe {
                at.row_values(m, &row.prelude);
                for pass in &row.passes {
                    share_row_values(m, values.get());
                    run.region.parallel_for(blocks.div_ceil(SPLIT_BLOCKS), &|task| {
                        with_machine(plan, row, run, |m| {
                            take_row_values(m, values.get());
                            let first = task * SPLIT_BLOCKS;
                            let mut b = Blocks::at(&plan.reduced.sizes, &plan.cut, first);
                            for block in first..(first + SPLIT_BLOCKS).min(blocks) {
                                at.block_of_pass(m, pass, &b, |i, _, total| {
                                    *totals.get().cast::<Total>().add(block * most + i) = total;
                                });
                                b.advance(&plan.reduced.sizes, &plan.cut);
                            }
                        });
                    });
                    for (i, &v) in pass.reduces.iter().enumerate() {
                        let step = &row.code.steps[v as usize];
                        let What::Reduce(kind) = step.what else { continue };
                        let start = reduce::neutral(kind, step.work, step.dtype);
                        let total = (0..blocks).fold(start, |sum, block| {
                            reduce::combine(kind, sum, *totals.get().cast::<Total>().add(block * most + i))
                        });
                        finish(m, v, total, run.isa);
                    }
                    at.row_values(m, &pass.after);
                }
                at.store_row(m);
            }
        });
    });
}

fn row_values(row: &RowCode) -> impl Iterator<Item = (usize, Work)> + '_ {
    let constant = |what: &What| matches!(what, What::Const(_) | What::Size(_));
    (row.code.steps.iter().enumerate())
        .filter(move |(i, s)| s.live && row.scopes[*i] == Scope::Row && !constant(&s.what))
        .map(|(i, s)| (i, s.work))
}

/// # Safety
/// `to` has room for every value's bits; no task reads them now.
unsafe fn share_row_values(m: &M<'_, '_>, to: *mut u8) {
    for (i, work) in row_values(m.row) {
        let from = m.machine.value(i as u32);
        // SAFETY: the value holds an element (whatever is in a slot, where it is not computed yet).
        unsafe { std::ptr::copy_nonoverlapping(from, to.add(i * size_of::<Bits>()), work.size()) };
    }
}

/// # Safety
/// `from` holds what [`share_row_values`] wrote.
unsafe fn take_row_values(m: &mut M<'_, '_>, from: *const u8) {
    for (i, work) in row_values(m.row) {
        let y = m.machine.unplace(i as u32);
        // SAFETY: the slot holds an element.
        unsafe { std::ptr::copy_nonoverlapping(from.add(i * size_of::<Bits>()), y, work.size()) };
        m.machine.spread(i, m.block);
    }
}
