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
use crate::jit::Compiled;
use crate::jit::feeds::{Feeds, Line, Piece, Walks};
use crate::map::{InPlace, coded_in_place, computed_in_place};
use crate::simd::Isa;
use crate::space::{self, Space, position};
use crate::tile::code::{Code, What};
use crate::tile::io::Block;
use crate::tile::machine::{Class, Machine, Modes, scratch_len};
use crate::tile::{BLOCK, Work, scratch};
use rlx_compile::lir::Epilogue;
use rlx_ir::DType;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// An epilogue at concrete sizes.
#[derive(Debug)]
pub struct EpiloguePlan {
    rows: Space,
    columns: Space,
    reads: Vec<(Line, Class)>,
    writes: Vec<Line>,
    direct: Vec<bool>,
    /// Steps of `Index` values over rows and columns.
    indices: Vec<(u32, Strides, Strides)>,
    modes: Modes,
    /// The program as machine code.
    coded: Option<Coded>,
}

/// Machine code, and where it finds its ports in pieces of whole eights and in others.
#[derive(Debug)]
struct Coded {
    function: Arc<Compiled>,
    feeds: [Feeds; 2],
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
    let all: space::Walks<'_> = (writes.iter().chain(&reads).map(|a| a.strides.as_slice()))
        .chain(indices.iter().map(|(_, s)| s.as_slice()))
        .collect();
    let split = row_axes.min(sizes.len());
    let part = |from: usize, to: usize| {
        let walks: space::Walks<'_> = all.iter().map(|w| w.get(from..to).unwrap_or(&[])).collect();
        Space::in_order(&sizes[from..to], &walks)
    };
    let (rows, columns) = (part(0, split), part(split, sizes.len()));
    let inner = |w: usize| columns.walks[w].last().copied().unwrap_or(0);
    let line = |w: usize, a: &crate::buffers::BoundAccess| Line {
        buffer: a.buffer,
        dtype: a.dtype,
        offset: a.offset,
        outer: rows.walks[w].clone(),
        inner: columns.walks[w].clone(),
    };
    let class = |w: usize, dtype: DType| match inner(w) {
        0 => Class::Uniform,
        1 if Work::is_storage(dtype) => Class::InPlace,
        _ => Class::Gather,
    };
    let writes_n = writes.len();
    let writes: Vec<Line> = writes.iter().enumerate().map(|(i, a)| line(i, a)).collect();
    let read = |(i, a): (usize, &crate::buffers::BoundAccess)| (line(writes_n + i, a), class(writes_n + i, a.dtype));
    let reads: Vec<(Line, Class)> = reads.iter().enumerate().map(read).collect();
    let first_index = writes_n + reads.len();
    let indices: Vec<(u32, Strides, Strides)> = indices
        .iter()
        .enumerate()
        .map(|(i, (v, _))| (*v, rows.walks[first_index + i].clone(), columns.walks[first_index + i].clone()))
        .collect();
    let mut modes = Modes::new(code, cx, |what| match *what {
        What::Read(n) => reads.get(n as usize).is_some_and(|r| r.1 == Class::Uniform),
        _ => false,
    });
    modes.spread_results(&code.results);
    let in_place = |fits: InPlace| {
        let one = |(i, w): (usize, &Line)| {
            let read = reads.iter().any(|r| r.0.buffer == w.buffer);
            inner(i) == 1 && fits(code, &modes, i, w.dtype, read)
        };
        writes.iter().enumerate().map(one).collect::<Vec<bool>>()
    };
    let (direct, coded) = (in_place(computed_in_place), in_place(coded_in_place));
    let walks = Walks {
        code,
        modes: &modes,
        reads: reads.clone(),
        writes: writes.iter().cloned().zip(coded.into_iter().map(Some)).collect(),
        indices: indices.clone(),
    };
    let coded = Coded::new(&walks, sizes.iter().fold(1, |n: usize, &s| n.saturating_mul(s)));
    Ok(EpiloguePlan { rows, columns, reads, writes, direct, indices, modes, coded })
}

impl Coded {
    fn new(walks: &Walks<'_>, points: usize) -> Option<Coded> {
        let function = walks.function(points, false)?;
        let feeds = |eights| Feeds::new(&function, walks, eights);
        Some(Coded { feeds: [feeds(false)?, feeds(true)?], function })
    }
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
        let len = match &self.coded {
            Some(c) => c.feeds.iter().map(|f| f.bytes(Feeds::slot_len(BLOCK))).max().unwrap_or(0),
            None => scratch_len(code, code.slot_count, BLOCK),
        };
        scratch::with(len, |memory| {
            let way = match &self.coded {
                Some(coded) => Way::Coded(coded, memory.as_mut_ptr()),
                None => Way::Tiles(Machine::new(code, &self.modes, &code.slots, isa, BLOCK, memory)),
            };
            f(&mut Runner { plan: self, code, bufs, way })
        })
    }
}

/// What runs the program.
// It lives on the stack for a call: a box would be an allocation a task.
#[allow(clippy::large_enum_variant)]
enum Way<'a> {
    /// Machine code, with its slots.
    Coded(&'a Coded, *mut u8),
    /// The tile machine.
    Tiles(Machine<'a>),
}

/// Runs an epilogue on one thread.
pub struct Runner<'a> {
    plan: &'a EpiloguePlan,
    code: &'a Code,
    bufs: Buffers<'a>,
    way: Way<'a>,
}

impl Runner<'_> {
    /// Runs the program on columns `first..first + n` of a row, whose accumulators lie side by side at `acc`, in the
    /// working type of the kernel's accumulator dtype. They may be overwritten.
    /// # Safety
    /// Row and columns are within the output; `acc` holds `n` elements; buffers are as the plan was made for, and no
    /// other thread writes this piece.
    pub unsafe fn run(&mut self, row: usize, first: usize, n: usize, acc: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { self.run_rows(row..row + 1, first, n, acc, 0) };
    }

    /// As [`Runner::run`] on several rows, whose accumulators lie `step` bytes apart.
    /// # Safety
    /// As [`Runner::run`], for each row.
    pub unsafe fn run_rows(&mut self, rows: Range<usize>, first: usize, n: usize, acc: *mut u8, step: isize) {
        let element = self.acc_size();
        let inner = self.plan.columns.sizes.last().copied().unwrap_or(1).max(1);
        let across = self.plan.rows.sizes.last().copied().unwrap_or(1).max(1);
        let (mut column, end) = (first, first + n);
        while column < end {
            let m = (inner - column % inner).min(end - column).min(BLOCK);
            let mut row = rows.start;
            while row < rows.end {
                let acc = acc.wrapping_offset((row - rows.start) as isize * step);
                let acc = acc.wrapping_add((column - first) * element);
                let count = (across - row % across).min(rows.end - row);
                // SAFETY: the piece lies within one run of the innermost column axis, and within the caller's.
                row += unsafe {
                    match &mut self.way {
                        Way::Coded(coded, slots) => {
                            let piece = Piece {
                                outer: &self.plan.rows.sizes,
                                row,
                                inner: &self.plan.columns.sizes,
                                column,
                                block: &[m],
                                sums: (acc, step as i64),
                            };
                            coded.run(&piece, count, &self.bufs, *slots)
                        }
                        Way::Tiles(machine) => {
                            self.plan.on_tiles(machine, self.code, &self.bufs, (row, column, m), acc);
                            1
                        }
                    }
                };
            }
            column += m;
        }
    }

    fn acc_size(&self) -> usize {
        let acc = self.code.steps.iter().find(|s| matches!(s.what, What::Acc));
        acc.map_or(4, |s| s.work.size())
    }
}

impl Coded {
    /// Runs a piece of as many rows as can be had with one call, of `rows` at most, and says how many.
    /// # Safety
    /// As [`Runner::run_rows`]; the rows lie along the innermost of their axes.
    unsafe fn run(&self, piece: &Piece<'_>, rows: usize, bufs: &Buffers<'_>, slots: *mut u8) -> usize {
        const HEAD: usize = 3;
        let feeds = &self.feeds[usize::from(piece.len().is_multiple_of(8))];
        let rows = if feeds.many { rows } else { 1 };
        let mut args: SmallVec<[u64; 48]> = smallvec::smallvec![0; HEAD + 2 * feeds.len()];
        (args[0], args[1]) = (piece.len() as u64, rows as u64);
        let slot_len = Feeds::slot_len(BLOCK);
        // SAFETY: the caller's promise; slots hold a block each.
        unsafe {
            feeds.fill(&mut args[HEAD..], bufs, piece, slots, slot_len);
            self.function.call(&mut args);
            feeds.scatter(bufs, piece, slots, slot_len);
        }
        rows
    }
}

impl EpiloguePlan {
    /// Runs the program on columns `at.1..at.1 + at.2` of row `at.0`.
    /// # Safety
    /// As [`Runner::run`], within one run of the innermost column axis and at most a block.
    unsafe fn on_tiles(
        &self,
        m: &mut Machine<'_>,
        code: &Code,
        bufs: &Buffers<'_>,
        at: (usize, usize, usize),
        acc: *mut u8,
    ) {
        let (row, column, n) = at;
        let sizes = [n];
        let start = |w: &Line| {
            let row = position(row, &self.rows.sizes, w.offset, &w.outer);
            position(column, &self.columns.sizes, row, &w.inner)
        };
        let step = |strides: &Strides| [strides.last().copied().unwrap_or(0)];
        // SAFETY: the caller's promise; positions lie within buffers as checked at bind.
        unsafe {
            for (i, w) in self.writes.iter().enumerate() {
                if self.direct[i] {
                    let to = start(w) as isize * (w.dtype.bits() / 8) as isize;
                    m.place(code.results[i], bufs.base(w.buffer).wrapping_offset(to));
                }
            }
            for (v, s) in code.steps.iter().enumerate().filter(|(_, s)| s.live) {
                match s.what {
                    What::Read(k) => {
                        let (r, class) = &self.reads[k as usize];
                        let block = Block { sizes: &sizes, strides: &step(&r.inner) };
                        m.load(v, *class, bufs.base(r.buffer), start(r), block);
                    }
                    What::Index(_) => {
                        if let Some((_, r, c)) = self.indices.iter().find(|(i, ..)| *i as usize == v) {
                            let start = position(row, &self.rows.sizes, 0, r);
                            let start = position(column, &self.columns.sizes, start, c);
                            m.index(v, start, Block { sizes: &sizes, strides: &step(c) });
                        }
                    }
                    What::Acc => m.place(v as u32, acc),
                    What::Run(_) => m.compute(v, n),
                    What::Const(_) | What::Size(_) | What::Reduce(_) => {}
                }
            }
            for (i, w) in self.writes.iter().enumerate() {
                if !self.direct[i] {
                    let block = Block { sizes: &sizes, strides: &step(&w.inner) };
                    m.store(code.results[i], w.dtype, bufs.base(w.buffer), start(w), block);
                }
            }
        }
    }
}
