//! Epilogues: the scalar program of a contraction or convolution on its finished output elements.
//!
//! The output space is rows × columns: the kernel hands over pieces of a row (any columns of one row) that lie side by
//! side in memory, in its accumulator dtype. f32 products use what [`menu`] recognises instead, or hand finished blocks
//! over through [`tile`].

pub mod direct;
pub mod halves;
pub mod menu;
pub mod tile;

use self::direct::Direct;
use crate::buffers::{BindCx, BindError, Buffers, Sizes, Strides};
use crate::map::computed_in_place;
use crate::simd::Isa;
use crate::space::{Space, Walks, position};
use crate::tile::code::{Code, What};
use crate::tile::io::Block;
use crate::tile::machine::{Class, Machine, Modes, scratch_len};
use crate::tile::{BLOCK, Work, scratch};
use rlx_compile::lir::Epilogue;
use rlx_ir::DType;

/// One walk: over the rows, then over the columns.
#[derive(Debug)]
struct Walk {
    buffer: u32,
    dtype: DType,
    offset: i64,
    rows: Strides,
    columns: Strides,
    class: Class,
}

/// An epilogue at concrete sizes.
#[derive(Debug)]
pub struct EpiloguePlan {
    rows: Space,
    columns: Space,
    reads: Vec<Walk>,
    writes: Vec<Walk>,
    direct: Vec<bool>,
    /// Steps of `Index` values over rows and columns.
    indices: Vec<(u32, Strides, Strides)>,
    modes: Modes,
}

/// How a kernel's finished elements become results.
#[derive(Debug)]
pub enum Finish {
    /// There are none.
    Nothing,
    /// The kernel writes them itself, with steps of the menu.
    Direct(Box<Direct>),
    /// The kernel's blocks are written as 16-bit floats, after steps of the menu.
    Halves(Box<halves::Halves>),
    /// The tile machine runs the program.
    Program(Box<EpiloguePlan>),
}

impl Finish {
    /// What the kernel writes itself.
    pub fn direct(&self) -> Option<&Direct> {
        if let Finish::Direct(d) = self { Some(d) } else { None }
    }

    /// What is written as 16-bit floats.
    pub fn halves(&self) -> Option<&halves::Halves> {
        if let Finish::Halves(h) = self { Some(h) } else { None }
    }

    /// What the tile machine runs.
    pub fn program(&self) -> Option<&EpiloguePlan> {
        if let Finish::Program(p) = self { Some(p) } else { None }
    }

    /// Runs `f` with a runner of the program on this thread, if there is a program.
    pub fn with_runner(&self, code: &Code, bufs: Buffers<'_>, isa: Isa, f: impl FnOnce(&mut Runner<'_>)) {
        if let Some(p) = self.program() {
            p.with_runner(code, bufs, isa, f);
        }
    }
}

/// Plans an epilogue over output axes of these sizes. `order` lists the axes from outermost to innermost as the kernel
/// counts its output; the first `row_axes` of them are rows.
pub fn plan(
    e: &Epilogue,
    code: &Code,
    sizes: &[usize],
    order: &[usize],
    row_axes: usize,
    cx: &BindCx<'_>,
) -> Result<EpiloguePlan, BindError> {
    let ordered = |a: &rlx_compile::lir::Access| {
        let mut access = cx.access(a, sizes)?;
        access.strides = order.iter().map(|&a| access.strides.get(a).copied().unwrap_or(0)).collect();
        Ok::<_, BindError>(access)
    };
    let reads = e.reads.iter().map(ordered).collect::<Result<Vec<_>, _>>()?;
    let writes = e.writes.iter().map(ordered).collect::<Result<Vec<_>, _>>()?;
    let sizes: &Sizes = &order.iter().map(|&a| sizes.get(a).copied().unwrap_or(1)).collect();
    let mut indices: Vec<(u32, Strides)> = Vec::new();
    for (i, step) in code.steps.iter().enumerate().filter(|(_, s)| s.live) {
        if let What::Index(axis) = step.what {
            indices.push((i as u32, order.iter().map(|&a| i64::from(a == axis as usize)).collect()));
        }
    }
    let all: Walks<'_> = (writes.iter().chain(&reads).map(|a| a.strides.as_slice()))
        .chain(indices.iter().map(|(_, s)| s.as_slice()))
        .collect();
    let split = row_axes.min(sizes.len());
    let part = |from: usize, to: usize| {
        let walks: Walks<'_> = all.iter().map(|w| w.get(from..to).unwrap_or(&[])).collect();
        Space::in_order(&sizes[from..to], &walks)
    };
    let (rows, columns) = (part(0, split), part(split, sizes.len()));
    let inner = |w: usize| columns.walks[w].last().copied().unwrap_or(0);
    let walk = |w: usize, a: &crate::buffers::BoundAccess| Walk {
        buffer: a.buffer,
        dtype: a.dtype,
        offset: a.offset,
        rows: rows.walks[w].clone(),
        columns: columns.walks[w].clone(),
        class: match inner(w) {
            0 => Class::Uniform,
            1 if Work::is_storage(a.dtype) => Class::InPlace,
            _ => Class::Gather,
        },
    };
    let writes_n = writes.len();
    let writes: Vec<Walk> = writes.iter().enumerate().map(|(i, a)| walk(i, a)).collect();
    let reads: Vec<Walk> = reads.iter().enumerate().map(|(i, a)| walk(writes_n + i, a)).collect();
    let first_index = writes_n + reads.len();
    let indices: Vec<(u32, Strides, Strides)> = indices
        .iter()
        .enumerate()
        .map(|(i, (v, _))| (*v, rows.walks[first_index + i].clone(), columns.walks[first_index + i].clone()))
        .collect();
    let mut modes = Modes::new(code, cx, |what| match *what {
        What::Read(n) => reads.get(n as usize).is_some_and(|r| r.class == Class::Uniform),
        _ => false,
    });
    modes.spread_results(&code.results);
    let direct = writes
        .iter()
        .enumerate()
        .map(|(i, w)| {
            let read = reads.iter().any(|r| r.buffer == w.buffer);
            inner(i) == 1 && computed_in_place(code, &modes, i, w.dtype, read)
        })
        .collect();
    Ok(EpiloguePlan { rows, columns, reads, writes, direct, indices, modes })
}

impl EpiloguePlan {
    /// Number of rows.
    pub fn row_count(&self) -> usize {
        self.rows.points()
    }

    /// Number of columns.
    pub fn column_count(&self) -> usize {
        self.columns.points()
    }

    /// Runs `f` with an epilogue runner of this thread.
    pub fn with_runner<R>(&self, code: &Code, bufs: Buffers<'_>, isa: Isa, f: impl FnOnce(&mut Runner<'_>) -> R) -> R {
        scratch::with(scratch_len(code, code.slot_count, BLOCK), |memory| {
            let machine = Machine::new(code, &self.modes, &code.slots, isa, BLOCK, memory);
            f(&mut Runner { plan: self, code, bufs, machine })
        })
    }
}

/// Runs an epilogue on one thread.
pub struct Runner<'a> {
    plan: &'a EpiloguePlan,
    code: &'a Code,
    bufs: Buffers<'a>,
    machine: Machine<'a>,
}

impl Runner<'_> {
    /// Runs the program on columns `first..first + n` of a row, whose accumulators lie side by side at `acc`, in the
    /// working type of the kernel's accumulator dtype. They may be overwritten.
    /// # Safety
    /// Row and columns are within the output; `acc` holds `n` elements; buffers are as the plan was made for, and no
    /// other thread writes this piece.
    pub unsafe fn run(&mut self, row: usize, first: usize, n: usize, acc: *mut u8) {
        let plan = self.plan;
        let element = self.acc_size();
        let inner = plan.columns.sizes.last().copied().unwrap_or(1).max(1);
        let row_at = |w: &Walk| position(row, &plan.rows.sizes, w.offset, &w.rows);
        let read_rows: Strides = plan.reads.iter().map(row_at).collect();
        let write_rows: Strides = plan.writes.iter().map(row_at).collect();
        let (mut column, end) = (first, first + n);
        while column < end {
            let m = (inner - column % inner).min(end - column).min(BLOCK);
            // SAFETY: the piece lies within one run of the innermost column axis, and within the caller's.
            unsafe { self.piece(row, column, m, acc.add((column - first) * element), &read_rows, &write_rows) };
            column += m;
        }
    }

    fn acc_size(&self) -> usize {
        let acc = self.code.steps.iter().find(|s| matches!(s.what, What::Acc));
        acc.map_or(4, |s| s.work.size())
    }

    /// # Safety
    /// As [`Runner::run`], within one run of the innermost column axis and at most a block.
    unsafe fn piece(&mut self, row: usize, column: usize, n: usize, acc: *mut u8, reads: &[i64], writes: &[i64]) {
        let (plan, code, m) = (self.plan, self.code, &mut self.machine);
        let sizes: Sizes = smallvec::smallvec![n];
        let at = |w: &Walk, row: i64| position(column, &plan.columns.sizes, row, &w.columns);
        let step = |strides: &Strides| [strides.last().copied().unwrap_or(0)];
        // SAFETY: the caller's promise; positions lie within buffers as checked at bind.
        unsafe {
            for (i, w) in plan.writes.iter().enumerate() {
                if plan.direct[i] {
                    let to = at(w, writes[i]) as isize * (w.dtype.bits() / 8) as isize;
                    m.place(code.results[i], self.bufs.base(w.buffer).wrapping_offset(to));
                }
            }
            for (v, s) in code.steps.iter().enumerate().filter(|(_, s)| s.live) {
                match s.what {
                    What::Read(k) => {
                        let r = &plan.reads[k as usize];
                        let block = Block { sizes: &sizes, strides: &step(&r.columns) };
                        m.load(v, r.class, self.bufs.base(r.buffer), at(r, reads[k as usize]), block);
                    }
                    What::Index(_) => {
                        if let Some((_, r, c)) = plan.indices.iter().find(|(i, ..)| *i as usize == v) {
                            let start = position(row, &plan.rows.sizes, 0, r);
                            let start = position(column, &plan.columns.sizes, start, c);
                            m.index(v, start, Block { sizes: &sizes, strides: &step(c) });
                        }
                    }
                    What::Acc => m.place(v as u32, acc),
                    What::Run(_) => m.compute(v, n),
                    What::Const(_) | What::Size(_) | What::Reduce(_) => {}
                }
            }
            for (i, w) in plan.writes.iter().enumerate() {
                if !plan.direct[i] {
                    let block = Block { sizes: &sizes, strides: &step(&w.columns) };
                    m.store(code.results[i], w.dtype, self.bufs.base(w.buffer), at(w, writes[i]), block);
                }
            }
        }
    }
}
