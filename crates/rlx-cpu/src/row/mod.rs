//! Row kernels: scalar programs with reductions.
//!
//! Three ways, chosen by sizes and strides alone:
//! - *along*, whole: a row of up to [`ROW_BLOCK`](crate::tile::ROW_BLOCK) elements stays in slots, and the program runs
//!   over it once, instruction by instruction;
//! - *along*, in blocks: longer rows are passed over once for each link in the chain of reductions, and what depends on
//!   elements is computed again in each pass;
//! - *across*: where rows are not contiguous but the outer axes are, or rows are short, a block holds one element of
//!   many rows, and the reduction goes on lane by lane.
//!
//! A row's result never depends on threads, nor on its place among the rows.

mod across;
mod along;

use crate::buffers::{BindCx, BindError, BoundAccess, RunCx, Sizes, Strides};
use crate::jit::feeds::{self, Line};
use crate::jit::run::{Rows, Site};
use crate::map::{InPlace, coded_in_place, computed_in_place};
use crate::space::{Cut, Space, Walks};
use crate::tile::code::{Code, Scope as Names, What};
use crate::tile::machine::{Class, Modes};
use crate::tile::{BLOCK, ROW_BLOCK, Work};
use rlx_compile::lir::{Lir, RowKernel, Scope};
use rlx_ir::DType;
use smallvec::SmallVec;

/// Elements of a block of a row that is passed over in blocks.
const STREAM_BLOCK: usize = 1024;
/// Rows shorter than this are taken across where there are many.
const SHORT: usize = 16;

/// A compiled row kernel.
pub struct RowCode {
    /// The program.
    pub code: Code,
    /// How each value varies.
    scopes: Vec<Scope>,
    /// Row values that need no reduction, in order.
    prelude: Vec<u32>,
    /// Passes over the row.
    passes: Vec<Pass>,
    /// Results that vary along the row.
    element_results: Vec<usize>,
    /// A slot for each value.
    apart: Vec<u32>,
}

/// One pass over a row.
#[derive(Default)]
struct Pass {
    /// Values to compute for each block, in order.
    elements: Vec<u32>,
    /// Reductions that it completes.
    reduces: Vec<u32>,
    /// Row values to compute after it, in order.
    after: Vec<u32>,
    /// Whether element results are written in it.
    writes: bool,
}

/// Compiles a row kernel.
pub fn compile(k: &RowKernel, lir: &Lir) -> Result<RowCode, String> {
    let dtype = |a: &rlx_compile::lir::Access| lir.buffers.get(a.buffer.index()).map_or(DType::U8, |b| b.dtype);
    let reads: Vec<DType> = k.reads.iter().map(dtype).collect();
    let writes: Vec<DType> = k.writes.iter().map(dtype).collect();
    let rank = k.outer.len() + k.reduced.len();
    let code = Code::compile(&k.program, &Names { reads: &reads, writes: &writes, acc: None, rank, row: true })?;
    let stays = |a: &rlx_compile::lir::Access| {
        let along = a.strides.get(k.outer.len()..).unwrap_or(&[]);
        !along.is_empty() && along.iter().all(|&s| lir.dims.dims().get(s.index()).and_then(|d| d.as_const()) == Some(0))
    };
    let row_reads: Vec<bool> = k.reads.iter().map(stays).collect();
    let scopes = k.program.scopes(&row_reads, k.outer.len());
    let n = code.steps.len();
    // The number of passes that a value has to wait for.
    let mut stage = vec![0usize; n];
    for (i, step) in code.steps.iter().enumerate() {
        let args = step.args.iter().map(|&a| stage[a as usize]).max().unwrap_or(0);
        stage[i] = args + usize::from(matches!(step.what, What::Reduce(_)));
    }
    let live = |i: usize| code.steps[i].live;
    let last = (0..n).filter(|&i| live(i)).map(|i| stage[i]).max().unwrap_or(0);
    // The walk of a write says whether it goes along the row. Where a size is 0 for good the scopes do not: all strides are 0 then.
    let along = |r: &usize| k.writes.get(*r).is_some_and(|w| w.strides.len() > k.outer.len());
    let element_results: Vec<usize> = (0..code.results.len()).filter(along).collect();
    let row_value = |i: usize| scopes[i] == Scope::Row && !matches!(code.steps[i].what, What::Reduce(_));
    let at_stage = |s: usize| (0..n).filter(|&i| live(i) && row_value(i) && stage[i] == s).map(|i| i as u32).collect();
    let mut passes = Vec::new();
    for s in 0..last {
        let reduces: Vec<u32> = (0..n)
            .filter(|&i| live(i) && matches!(code.steps[i].what, What::Reduce(_)) && stage[i] == s + 1)
            .map(|i| i as u32)
            .collect();
        let wanted = reduces.iter().flat_map(|&r| code.steps[r as usize].args.iter().copied());
        let elements = needed(&code, &scopes, wanted);
        passes.push(Pass { elements, reduces, after: at_stage(s + 1), writes: false });
    }
    if !element_results.is_empty() {
        let elements = needed(&code, &scopes, element_results.iter().map(|&r| code.results[r]));
        passes.push(Pass { elements, writes: true, ..Pass::default() });
    }
    let prelude = at_stage(0);
    let apart = (0..n as u32).collect();
    Ok(RowCode { scopes, prelude, passes, element_results, apart, code })
}

/// The element values that the wanted ones are computed from, in order.
fn needed(code: &Code, scopes: &[Scope], wanted: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut need = vec![false; code.steps.len()];
    wanted.for_each(|w| need[w as usize] = true);
    for i in (0..need.len()).rev() {
        if need[i] && scopes[i] == Scope::Element {
            code.steps[i].args.iter().for_each(|&a| need[a as usize] = true);
        }
    }
    (0..need.len()).filter(|&i| need[i] && scopes[i] == Scope::Element).map(|i| i as u32).collect()
}

/// A walk over outer and reduced axes.
#[derive(Debug)]
struct Walk {
    buffer: u32,
    dtype: DType,
    offset: i64,
    outer: Strides,
    reduced: Strides,
    class: Class,
}

/// Which way a kernel goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Whole,
    Blocks,
    Across,
}

/// A row kernel at concrete sizes.
#[derive(Debug)]
pub struct RowPlan {
    way: Way,
    outer: Space,
    reduced: Space,
    /// Blocks of a row (along), or of the outer space (across).
    cut: Cut,
    reads: Vec<Walk>,
    writes: Vec<Walk>,
    direct: Vec<bool>,
    /// Steps of `Index` values on outer and reduced axes.
    indices: Vec<(u32, Strides, Strides)>,
    modes: Modes,
    /// Writes share bytes: one task only.
    narrow: bool,
    /// Machine code on whole rows.
    rows: Option<Rows>,
}

/// Plans a row kernel.
pub fn plan(k: &RowKernel, row: &RowCode, cx: &BindCx<'_>) -> Result<RowPlan, BindError> {
    let code = &row.code;
    let (outer, reduced) = (cx.sizes(&k.outer)?, cx.sizes(&k.reduced)?);
    let rank = outer.len();
    let space: Sizes = outer.iter().chain(&reduced).copied().collect();
    let reads = k.reads.iter().map(|a| cx.access(a, &space)).collect::<Result<SmallVec<[_; 4]>, _>>()?;
    let mut writes: SmallVec<[BoundAccess; 4]> = SmallVec::new();
    for (i, a) in k.writes.iter().enumerate() {
        let along = row.element_results.contains(&i);
        writes.push(cx.access(a, if along { &space } else { &outer })?);
    }
    let mut indices: Vec<(u32, Strides)> = Vec::new();
    for (i, step) in code.steps.iter().enumerate().filter(|(_, s)| s.live) {
        if let What::Index(axis) = step.what {
            indices.push((i as u32, (0..space.len()).map(|a| i64::from(a == axis as usize)).collect()));
        }
    }
    let all: Walks<'_> = (reads.iter().chain(&writes).map(|a| a.strides.as_slice()))
        .chain(indices.iter().map(|(_, s)| s.as_slice()))
        .collect();
    let zeros: Strides = smallvec::smallvec![0; space.len()];
    let heads: Walks<'_> = all.iter().map(|w| w.get(..rank).unwrap_or(w)).collect();
    let tails: Walks<'_> =
        all.iter().map(|w| w.get(rank..).filter(|t| t.len() == reduced.len()).unwrap_or(&zeros[rank..])).collect();
    // The read that varies along the row leads; it is the largest operand.
    let lead = reads.iter().position(|a| a.strides[rank..].iter().any(|&s| s != 0)).unwrap_or(0);
    let reduced_space = Space::simplified(&reduced, &tails, lead);
    let outer_space = Space::in_order(&outer, &heads);
    let (rows, length) = (outer_space.points(), reduced_space.points());
    let unit = |space: &Space, i: usize| space.walks.get(i).and_then(|w| w.last()).is_some_and(|&s| s == 0 || s == 1);
    let along_ok = (0..reads.len()).all(|i| unit(&reduced_space, i));
    let across_ok = (0..reads.len()).all(|i| unit(&outer_space, i));
    let lanes = outer_space.sizes.last().copied().unwrap_or(1);
    let way = if (!along_ok && across_ok && lanes >= 8) || (length < SHORT && rows >= 64) {
        Way::Across
    } else if length <= ROW_BLOCK && length > 0 {
        Way::Whole
    } else {
        Way::Blocks
    };
    let cut = match way {
        Way::Whole => {
            Cut { axis: 0, step: reduced_space.sizes[0], inner: length / reduced_space.sizes[0], along: 1, count: 1 }
        }
        Way::Blocks => Cut::new(&reduced_space.sizes, STREAM_BLOCK),
        Way::Across => Cut::new(&outer_space.sizes, BLOCK),
    };
    let walk = |i: usize, a: &BoundAccess| {
        let (outer, reduced) = (outer_space.walks[i].clone(), reduced_space.walks[i].clone());
        let (sizes, strides) = match way {
            Way::Across => (&outer_space.sizes, &outer),
            _ => (&reduced_space.sizes, &reduced),
        };
        let class = if cut.is_uniform(sizes, strides) {
            Class::Uniform
        } else if Work::is_storage(a.dtype) && cut.is_dense(sizes, strides) {
            Class::InPlace
        } else {
            Class::Gather
        };
        Walk { buffer: a.buffer, dtype: a.dtype, offset: a.offset, outer, reduced, class }
    };
    let read_count = reads.len();
    let read_walks: Vec<Walk> = reads.iter().enumerate().map(|(i, a)| walk(i, a)).collect();
    let write_walks: Vec<Walk> = writes.iter().enumerate().map(|(i, a)| walk(read_count + i, a)).collect();
    let first = read_count + write_walks.len();
    let indices: Vec<(u32, Strides, Strides)> = indices
        .iter()
        .enumerate()
        .map(|(i, (v, _))| (*v, outer_space.walks[first + i].clone(), reduced_space.walks[first + i].clone()))
        .collect();
    let across = way == Way::Across;
    let mut modes = Modes::new(code, cx, |what| match *what {
        What::Read(n) => read_walks.get(n as usize).is_some_and(|r| r.class == Class::Uniform),
        What::Index(axis) => ((axis as usize) < rank) != across,
        What::Reduce(_) => !across,
        _ => false,
    });
    if across {
        modes.spread_results(&code.results);
    } else {
        let along: Vec<u32> = row.element_results.iter().map(|&r| code.results[r]).collect();
        modes.spread_results(&along);
    }
    let in_place = |fits: InPlace| {
        let one = |(i, w): (usize, &Walk)| {
            let read = read_walks.iter().any(|r| r.buffer == w.buffer);
            !across
                && row.element_results.contains(&i)
                && cut.is_dense(&reduced_space.sizes, &w.reduced)
                && fits(code, &modes, i, w.dtype, read)
        };
        write_walks.iter().enumerate().map(one).collect::<Vec<bool>>()
    };
    let (direct, coded) = (in_place(computed_in_place), in_place(coded_in_place));
    let narrow = write_walks.iter().any(|w| w.dtype.bits() < 8);
    let line = |w: &Walk| {
        let (outer, inner) = (w.outer.clone(), w.reduced.clone());
        Line { buffer: w.buffer, dtype: w.dtype, offset: w.offset, outer, inner }
    };
    let writes_of = |(i, w): (usize, &Walk)| (line(w), row.element_results.contains(&i).then_some(coded[i]));
    let rows = if way == Way::Whole && code.jit.is_some() {
        let walks = feeds::Walks {
            code,
            modes: &modes,
            reads: read_walks.iter().map(|w| (line(w), w.class)).collect(),
            writes: write_walks.iter().enumerate().map(writes_of).collect(),
            indices: indices.clone(),
        };
        let (outer, inner) = (outer_space.sizes.clone(), reduced_space.sizes.clone());
        Rows::new(Site { walks, outer, inner, last: length })
    } else {
        None
    };
    Ok(RowPlan {
        rows,
        way,
        outer: outer_space,
        reduced: reduced_space,
        cut,
        reads: read_walks,
        writes: write_walks,
        direct,
        indices,
        modes,
        narrow,
    })
}

/// Runs a row kernel.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(plan: &RowPlan, row: &RowCode, run: &RunCx<'_>) {
    if plan.outer.points() == 0 {
        return;
    }
    // SAFETY: passes the caller's promise on.
    unsafe {
        match plan.way {
            Way::Whole | Way::Blocks => along::run(plan, row, run),
            Way::Across => across::run(plan, row, run),
        }
    }
}

impl RowPlan {
    fn index_walk(&self, value: u32) -> Option<(&Strides, &Strides)> {
        self.indices.iter().find(|(v, ..)| *v == value).map(|(_, o, r)| (o, r))
    }
}
