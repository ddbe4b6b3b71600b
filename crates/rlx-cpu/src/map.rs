//! Map kernels: a scalar program at each point of a space.
//!
//! Axes are merged and ordered when sizes are known, the space is cut into blocks of at most [`BLOCK`] points, and the
//! blocks are dealt out to tasks by the size of the space alone.

use crate::buffers::{BindCx, BindError, BoundAccess, Ptr, RunCx, Sizes, Strides};
use crate::jit::feeds::{self, Line};
use crate::jit::run::{Rows, Site};
use crate::jit::small_floats::is_byte_float;
use crate::space::{Blocks, Cut, Space, Walks};
use crate::tile::code::{Code, What};
use crate::tile::io::Block;
use crate::tile::machine::{Class, Machine, Modes, scratch_len};
use crate::tile::{BLOCK, Work, scratch};
use rlx_compile::lir::MapKernel;
use rlx_ir::DType;

/// Points of a task: enough that dealing it out costs little.
const TASK: usize = 16 * 1024;

/// A walk of the kernel with its steps on the merged axes.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    pub access: BoundAccess,
    pub class: Class,
}

/// A map kernel at concrete sizes.
#[derive(Debug)]
pub struct MapPlan {
    space: Space,
    cut: Cut,
    reads: Vec<Walk>,
    writes: Vec<BoundAccess>,
    /// Results that are computed where they are written.
    direct: Vec<bool>,
    /// Steps of `Index` values, by value.
    indices: Vec<(u32, Strides)>,
    modes: Modes,
    blocks_per_task: usize,
    /// Machine code on rows of the space, a block each.
    rows: Option<Rows>,
}

/// Plans a map kernel.
pub fn plan(k: &MapKernel, code: &Code, cx: &BindCx<'_>) -> Result<MapPlan, BindError> {
    let sizes = cx.sizes(&k.space)?;
    let mut reads = k.reads.iter().map(|a| cx.access(a, &sizes)).collect::<Result<Vec<_>, _>>()?;
    let mut writes = k.writes.iter().map(|a| cx.access(a, &sizes)).collect::<Result<Vec<_>, _>>()?;
    let mut indices = Vec::new();
    for (i, step) in code.steps.iter().enumerate().filter(|(_, s)| s.live) {
        if let What::Index(axis) = step.what {
            let strides = (0..sizes.len()).map(|a| i64::from(a == axis as usize)).collect();
            indices.push((i as u32, strides));
        }
    }
    let walks: Walks<'_> = (writes.iter().chain(&reads).map(|a| a.strides.as_slice()))
        .chain(indices.iter().map(|(_, s): &(u32, Strides)| s.as_slice()))
        .collect();
    let space = Space::simplified(&sizes, &walks, 0);
    drop(walks);
    let mut merged = space.walks.iter().cloned();
    for access in writes.iter_mut().chain(&mut reads) {
        access.strides = merged.next().unwrap_or_default();
    }
    for (_, strides) in &mut indices {
        *strides = merged.next().unwrap_or_default();
    }
    let parts = Parts { code, cx, sizes: &sizes, space: &space, reads: &reads, writes: &writes, indices: &indices };
    let dense = |cut: &Cut| {
        let fits = |a: &BoundAccess| cut.is_uniform(&space.sizes, &a.strides) || cut.is_dense(&space.sizes, &a.strides);
        reads.iter().all(fits) && writes.iter().all(|w| cut.is_dense(&space.sizes, &w.strides))
    };
    // Machine code takes longer rows, if nothing has to be gathered then.
    let long = code.jit.is_some().then(|| [Cut::new(&space.sizes, TASK), Cut::row(&space.sizes, TASK)]);
    let long =
        long.into_iter().flatten().filter(dense).find_map(|cut| parts.plan(cut, true).filter(|p| p.rows.is_some()));
    let plan = long.or_else(|| parts.plan(Cut::new(&space.sizes, BLOCK), false));
    plan.ok_or_else(|| "a map has no plan".into())
}

/// What a plan is made of once axes are merged.
struct Parts<'a> {
    code: &'a Code,
    cx: &'a BindCx<'a>,
    sizes: &'a [usize],
    space: &'a Space,
    reads: &'a [BoundAccess],
    writes: &'a [BoundAccess],
    indices: &'a [(u32, Strides)],
}

impl Parts<'_> {
    /// The plan with a cut; `None` only if it is to be `long` and machine code cannot be had.
    fn plan(&self, cut: Cut, long: bool) -> Option<MapPlan> {
        let &Parts { code, cx, sizes, space, reads, writes, indices } = self;
        let reads: Vec<Walk> = reads
            .iter()
            .map(|access| Walk { class: classify(&cut, &space.sizes, access), access: access.clone() })
            .collect();
        let mut modes = Modes::new(code, cx, |what| match *what {
            What::Read(n) => reads.get(n as usize).is_some_and(|r| r.class == Class::Uniform),
            What::Index(axis) => sizes.get(axis as usize) == Some(&1),
            _ => false,
        });
        modes.spread_results(&code.results);
        let in_place = |fits: InPlace| {
            let one = |(i, w): (usize, &BoundAccess)| {
                let read = reads.iter().any(|r| r.access.buffer == w.buffer);
                cut.is_dense(&space.sizes, &w.strides) && fits(code, &modes, i, w.dtype, read)
            };
            writes.iter().enumerate().map(one).collect::<Vec<bool>>()
        };
        let (direct, coded) = (in_place(computed_in_place), in_place(coded_in_place));
        let narrow = writes.iter().any(|w| w.dtype.bits() < 8);
        let blocks_per_task = if narrow { cut.count.max(1) } else { TASK.div_ceil(cut.points().max(1)).max(1) };
        let rows = if code.jit.is_some() { self.rows(&cut, &modes, &reads, &coded) } else { None };
        if long && rows.is_none() {
            return None;
        }
        let (space, writes, indices) = (space.clone(), writes.to_vec(), indices.to_vec());
        Some(MapPlan { space, cut, reads, writes, direct, indices, modes, blocks_per_task, rows })
    }

    /// Machine code on the cut's blocks.
    fn rows(&self, cut: &Cut, modes: &Modes, reads: &[Walk], direct: &[bool]) -> Option<Rows> {
        let sizes = &self.space.sizes;
        if cut.count == 0 {
            return None;
        }
        // Blocks along the cut axis are one more axis of rows, whose last one may be shorter.
        let over = |strides: &[i64]| -> Strides {
            let along = strides.get(cut.axis).copied().unwrap_or(0).saturating_mul(cut.step as i64);
            strides.iter().take(cut.axis).copied().chain([along]).collect()
        };
        let line = |a: &BoundAccess| Line {
            buffer: a.buffer,
            dtype: a.dtype,
            offset: a.offset,
            outer: over(&a.strides),
            inner: a.strides.iter().skip(cut.axis).copied().collect(),
        };
        let mut outer: Sizes = sizes.iter().take(cut.axis).copied().chain([cut.along]).collect();
        let mut inner: Sizes = sizes.iter().skip(cut.axis).copied().collect();
        inner[0] = cut.step;
        let last = (sizes[cut.axis] - (cut.along - 1) * cut.step) * cut.inner;
        let (mut reads, mut writes): (Vec<_>, Vec<_>) = (
            reads.iter().map(|r| (line(&r.access), r.class)).collect(),
            self.writes.iter().zip(direct).map(|(w, &d)| (line(w), Some(d))).collect(),
        );
        let mut indices: Vec<_> = self
            .indices
            .iter()
            .map(|(v, s)| (*v, over(s), s.iter().skip(cut.axis).copied().collect::<Strides>()))
            .collect();
        if cut.along == 1 {
            // Then rows run along the axis before it.
            outer.pop();
            let lines = reads.iter_mut().map(|r| &mut r.0.outer).chain(writes.iter_mut().map(|w| &mut w.0.outer));
            lines.chain(indices.iter_mut().map(|i| &mut i.1)).for_each(|s| _ = s.pop());
        }
        let walks = feeds::Walks { code: self.code, modes, reads, writes, indices };
        Rows::new(Site { walks, outer, inner, last })
    }
}

/// Whether a result may be computed where it is written: [`computed_in_place`] or [`coded_in_place`].
pub(crate) type InPlace = fn(&Code, &Modes, usize, DType, bool) -> bool;

/// How a block of a read becomes a value.
pub(crate) fn classify(cut: &Cut, sizes: &[usize], access: &BoundAccess) -> Class {
    if cut.is_uniform(sizes, &access.strides) {
        Class::Uniform
    } else if Work::is_storage(access.dtype) && cut.is_dense(sizes, &access.strides) {
        Class::InPlace
    } else {
        Class::Gather
    }
}

/// Whether result number `i` may be computed straight into a dense write. Where the kernel also reads that buffer,
/// only the last instruction may write it: all reads of the block are over by then.
pub(crate) fn computed_in_place(code: &Code, modes: &Modes, i: usize, dtype: DType, buffer_is_read: bool) -> bool {
    (Work::is_storage(dtype) || dtype == DType::Bool) && may_be_in_place(code, modes, i, buffer_is_read)
}

/// The same of machine code, which writes the bytes of small floats itself.
pub(crate) fn coded_in_place(code: &Code, modes: &Modes, i: usize, dtype: DType, buffer_is_read: bool) -> bool {
    let written = Work::is_storage(dtype) || dtype == DType::Bool || is_byte_float(dtype);
    written && may_be_in_place(code, modes, i, buffer_is_read)
}

fn may_be_in_place(code: &Code, modes: &Modes, i: usize, buffer_is_read: bool) -> bool {
    let Some(&value) = code.results.get(i) else { return false };
    let first = code.results.iter().position(|&r| r == value) == Some(i);
    let v = value as usize;
    let last = code.steps.iter().rposition(|s| s.live) == Some(v);
    first
        && (!buffer_is_read || (last && code.results.len() == 1))
        && !modes.uniform[v]
        && matches!(code.steps[v].what, What::Run(_))
}

/// Runs a map kernel.
/// # Safety
/// `run.bufs` holds memory of the sizes that the plan was made for, and nothing else uses what the kernel writes.
pub unsafe fn run(plan: &MapPlan, code: &Code, run: &RunCx<'_>) {
    let bases: smallvec::SmallVec<[Ptr; 12]> =
        plan.reads.iter().map(|r| &r.access).chain(&plan.writes).map(|a| Ptr(run.bufs.base(a.buffer))).collect();
    let tasks = plan.cut.count.div_ceil(plan.blocks_per_task);
    run.region.parallel_for(tasks, &|task| {
        let first = task * plan.blocks_per_task;
        let last = (first + plan.blocks_per_task).min(plan.cut.count);
        if let Some(rows) = &plan.rows {
            // SAFETY: as below.
            unsafe { rows.run(&run.bufs, first, last) };
            return;
        }
        // SAFETY: the caller's promise; blocks are disjoint, since writes are injective and disjoint from each other.
        unsafe { run_blocks(plan, code, run, &bases, first, last) };
    });
}

/// # Safety
/// As [`run`], for blocks `first..last`.
unsafe fn run_blocks(plan: &MapPlan, code: &Code, run: &RunCx<'_>, bases: &[Ptr], first: usize, last: usize) {
    let sizes = &plan.space.sizes;
    let (read_bases, write_bases) = bases.split_at(plan.reads.len());
    scratch::with(scratch_len(code, code.slot_count, BLOCK), |memory| {
        let mut m = Machine::new(code, &plan.modes, &code.slots, run.isa, BLOCK, memory);
        let mut at = Blocks::at(sizes, &plan.cut, first);
        let mut block_sizes: Sizes = sizes[plan.cut.axis..].into();
        for _ in first..last {
            let count = at.count(sizes, &plan.cut);
            block_sizes[0] = count;
            let n = count * plan.cut.inner;
            let axis = plan.cut.axis;
            // SAFETY: the steps of the plan outlive the loop; positions lie within buffers as checked at bind.
            unsafe {
                for (i, (w, base)) in plan.writes.iter().zip(write_bases).enumerate() {
                    if plan.direct[i] {
                        let to = at.position(w.offset, &w.strides) as isize * (w.dtype.bits() / 8) as isize;
                        m.place(code.results[i], base.get().wrapping_offset(to));
                    }
                }
                for (v, step) in code.steps.iter().enumerate().filter(|(_, s)| s.live) {
                    match step.what {
                        What::Read(k) => {
                            let r = &plan.reads[k as usize];
                            let b = Block { sizes: &block_sizes, strides: &r.access.strides[axis..] };
                            let start = at.position(r.access.offset, &r.access.strides);
                            m.load(v, r.class, read_bases[k as usize].get(), start, b);
                        }
                        What::Index(_) => {
                            if let Some((_, strides)) = plan.indices.iter().find(|(i, _)| *i as usize == v) {
                                let b = Block { sizes: &block_sizes, strides: &strides[axis..] };
                                m.index(v, at.position(0, strides), b);
                            }
                        }
                        What::Run(_) => m.compute(v, n),
                        What::Const(_) | What::Size(_) | What::Acc | What::Reduce(_) => {}
                    }
                }
                for (i, (w, base)) in plan.writes.iter().zip(write_bases).enumerate() {
                    if !plan.direct[i] {
                        let b = Block { sizes: &block_sizes, strides: &w.strides[axis..] };
                        let start = at.position(w.offset, &w.strides);
                        m.store(code.results[i], w.dtype, base.get(), start, b);
                    }
                }
            }
            at.advance(sizes, &plan.cut);
        }
    });
}
