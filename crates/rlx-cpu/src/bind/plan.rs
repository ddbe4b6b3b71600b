//! Binding one segment: dims, buffers, plans.

use super::arena::{Interval, pack};
use super::segments::{Segment, holds};
use crate::attention::{self, AttentionPlan};
use crate::buffers::{BindCx, Sizes};
use crate::contract::{self, ContractPlan};
use crate::control::{self, ControlPlan};
use crate::conv::{self, ConvPlan};
use crate::library::{self, LibraryPlan};
use crate::map::{self, MapPlan};
use crate::program::{KernelCode, Program};
use crate::row::{self, RowPlan};
use crate::window::{self, WindowPlan};
use rlx_compile::lir::{DimId, Kernel, Storage};
use rlx_compile::{InputProblem, RunError};
use rlx_ir::DimBinding;
use std::sync::Arc;

/// A kernel at concrete sizes.
#[derive(Debug)]
pub enum Plan {
    /// A map.
    Map(Box<MapPlan>),
    /// A row kernel.
    Row(Box<RowPlan>),
    /// A contraction.
    Contract(Box<ContractPlan>),
    /// A convolution.
    Conv(Box<ConvPlan>),
    /// Pooling.
    Window(Box<WindowPlan>),
    /// An attention.
    Attention(Box<AttentionPlan>),
    /// An op of the library.
    Library(Box<LibraryPlan>),
    /// Nested programs.
    Control(Box<ControlPlan>),
}

impl Plan {
    /// Bytes of its own part, without lists inside.
    fn bytes(&self) -> usize {
        size_of::<Plan>()
            + match self {
                Plan::Map(p) => size_of_val(&**p),
                Plan::Row(p) => size_of_val(&**p),
                Plan::Contract(p) => size_of_val(&**p),
                Plan::Conv(p) => size_of_val(&**p),
                Plan::Window(p) => size_of_val(&**p),
                Plan::Attention(p) => size_of_val(&**p),
                Plan::Library(p) => size_of_val(&**p),
                Plan::Control(p) => size_of_val(&**p),
            }
    }
}

/// A segment at concrete sizes.
#[derive(Debug, Default)]
pub struct BoundSegment {
    /// Which one.
    pub segment: usize,
    /// Values of all symbols known at its start.
    pub symbols: Vec<i64>,
    /// Values of the table's dims, as far as they are known.
    pub dims: Vec<i64>,
    /// Elements of each buffer; −1 where not known yet.
    pub numels: Vec<i64>,
    /// Offsets in this segment's arena.
    pub arena: Vec<(u32, usize)>,
    /// Bytes of this segment's arena.
    pub arena_bytes: usize,
    /// Plans of its kernels.
    pub plans: Vec<Arc<Plan>>,
}

impl BoundSegment {
    /// Sizes of a buffer, if they are known.
    pub fn shape(&self, program: &Program, buffer: usize) -> Option<Sizes> {
        if self.numels.get(buffer).copied().unwrap_or(-1) < 0 {
            return None;
        }
        self.sizes(&program.lir.buffers.get(buffer)?.shape)
    }

    /// Values of dims as sizes, if they are any.
    pub fn sizes(&self, dims: &[DimId]) -> Option<Sizes> {
        dims.iter().map(|d| self.dims.get(d.index()).and_then(|&v| usize::try_from(v).ok())).collect()
    }

    /// Bytes that it takes, about: lists inside plans are guessed to be as large as the plans.
    pub fn bytes(&self) -> usize {
        let words = self.symbols.len() + self.dims.len() + self.numels.len() + 2 * self.arena.len() + self.plans.len();
        // A plan that several kernels share counts in part for each.
        let plans: usize = self.plans.iter().map(|p| 2 * p.bytes() / Arc::strong_count(p).max(1)).sum();
        size_of::<Self>() + 8 * words + plans
    }
}

/// Binds a segment. `before` is the segment before it.
pub fn bind(
    program: &Program,
    index: usize,
    symbols: Vec<i64>,
    before: Option<&BoundSegment>,
    align: usize,
) -> Result<BoundSegment, RunError> {
    let lir = &program.lir;
    let segment = &program.segments.list[index];
    let mut values = Vec::new();
    if let Err(e) = segment.program.eval_into(&symbols, &mut values) {
        return Err(RunError::Inputs(explain(program, segment, &symbols, InputProblem::Binding(e.to_string()))));
    }
    let violated = segment.checks.iter().any(|c| {
        let get = |i: usize| values.get(i).copied().unwrap_or(0);
        !holds(&lir.constraints[c.record].constraint, get(c.left), get(c.right))
    });
    if violated {
        let unknown = InputProblem::Binding("a constraint between sizes does not hold".into());
        return Err(RunError::Inputs(explain(program, segment, &symbols, unknown)));
    }
    let (mut dims, mut numels) = match before {
        Some(b) => (b.dims.clone(), b.numels.clone()),
        None => (vec![0; lir.dims.len()], vec![-1; lir.buffers.len()]),
    };
    for (&d, &v) in segment.dims.iter().zip(&values) {
        dims[d as usize] = v;
    }
    let mut problems = Vec::new();
    size_buffers(program, index, &dims, &mut numels, &mut problems);
    let mut intervals = Vec::with_capacity(segment.arena.len());
    for &i in &segment.arena {
        let b = &lir.buffers[i as usize];
        let bytes = usize::try_from(numels[i as usize]).ok().and_then(|n| b.dtype.bytes_for(n));
        let Some(bytes) = bytes.filter(|&n| n <= isize::MAX as usize / 2) else {
            problems.push(InputProblem::Binding(format!("buffer {i} is too large to address")));
            continue;
        };
        let (first, last) = b.live.unwrap_or((0, u32::MAX));
        intervals.push(Interval { first, last, bytes });
    }
    if !problems.is_empty() {
        return Err(RunError::Inputs(problems));
    }
    let (offsets, arena_bytes) = pack(&intervals, align.max(64));
    let arena = segment.arena.iter().copied().zip(offsets).collect();
    let mut plans: Vec<Arc<Plan>> = Vec::with_capacity(segment.kernels.len());
    for k in segment.kernels.clone() {
        let defines = k + 1 == segment.kernels.end && !segment.defines.is_empty();
        // Kernels before have a plan if none had a problem.
        let first = (program.classes.first[k] as usize).checked_sub(segment.kernels.start);
        if let Some(p) = first.and_then(|f| plans.get(f)).filter(|_| problems.is_empty() && !defines) {
            plans.push(p.clone());
            continue;
        }
        let cx = BindCx {
            lir,
            dims: &dims,
            numels: &numels,
            isa: program.isa,
            matmul: program.matmul,
            slots: &program.classes.slots[k],
        };
        match plan(program, k, defines, &cx, &segment.defines) {
            Ok(p) => plans.push(Arc::new(p)),
            Err(e) => {
                let node = &lir.kernels[k];
                problems.push(InputProblem::Binding(format!("{} at {:?}: {e}", node.kernel.kind(), node.loc)));
            }
        }
    }
    if !problems.is_empty() {
        return Err(RunError::Inputs(problems));
    }
    Ok(BoundSegment { segment: index, symbols, dims, numels, arena, arena_bytes, plans })
}

/// Element counts of buffers whose sizes are known now.
fn size_buffers(program: &Program, index: usize, dims: &[i64], numels: &mut [i64], problems: &mut Vec<InputProblem>) {
    let lir = &program.lir;
    let segments = &program.segments.list;
    let here = |i: usize| {
        let later =
            |list: fn(&Segment) -> &Vec<u32>| segments.iter().skip(index + 1).any(|s| list(s).contains(&(i as u32)));
        match lir.buffers[i].storage {
            Storage::Arena => segments.len() == 1 || !later(|s| &s.arena),
            Storage::Output(_) => segments.len() == 1 || !later(|s| &s.outputs),
            _ => true,
        }
    };
    for (i, b) in lir.buffers.iter().enumerate() {
        if numels[i] >= 0 || !here(i) {
            continue;
        }
        let mut n = Some(1i64);
        for &d in &b.shape {
            let size = dims.get(d.index()).copied().unwrap_or(-1);
            if size < 0 {
                problems.push(InputProblem::Binding(format!("size `{}` would be {size}", lir.dims.get(d))));
            }
            n = n.and_then(|n| n.checked_mul(size));
        }
        if let Storage::Const(t) = &b.storage {
            n = n.filter(|&n| usize::try_from(n) == Ok(t.numel()));
        }
        let wrong = dims.get(b.numel.index()).copied();
        match n {
            Some(n) if n >= 0 && wrong == Some(n) => numels[i] = n,
            _ => problems.push(InputProblem::Binding(format!("buffer {i} has no size: its elements count {wrong:?}"))),
        }
    }
}

/// All constraints that do not hold, for an error; `otherwise` if each seems to.
fn explain(program: &Program, segment: &Segment, symbols: &[i64], otherwise: InputProblem) -> Vec<InputProblem> {
    let binding: DimBinding = program.segments.symbols.iter().cloned().zip(symbols.iter().copied()).collect();
    let mut found: Vec<InputProblem> = segment
        .checks
        .iter()
        .filter_map(|c| program.lir.constraints[c.record].check(&binding).err())
        .map(|v| InputProblem::Binding(v.to_string()))
        .collect();
    if found.is_empty() {
        found.push(otherwise);
    }
    found
}

fn plan(
    program: &Program,
    k: usize,
    defines: bool,
    cx: &BindCx<'_>,
    symbols: &[rlx_ir::Symbol],
) -> Result<Plan, String> {
    Ok(match (&program.lir.kernels[k].kernel, &program.codes[k]) {
        (Kernel::Map(m), KernelCode::Scalar(code)) => Plan::Map(Box::new(map::plan(m, code, cx)?)),
        (Kernel::Row(r), KernelCode::Row(code)) => Plan::Row(Box::new(row::plan(r, code, cx)?)),
        (Kernel::Contract(c), KernelCode::Scalar(code)) => Plan::Contract(Box::new(contract::plan(c, code, cx)?)),
        (Kernel::Conv(c), KernelCode::Scalar(code)) => Plan::Conv(Box::new(conv::plan(c, code, cx)?)),
        (Kernel::Window(w), _) => Plan::Window(Box::new(window::plan(w, cx)?)),
        (Kernel::Attention(a), _) => Plan::Attention(Box::new(attention::plan(a, cx)?)),
        (Kernel::Library(l), _) => Plan::Library(Box::new(library::plan(l, defines, cx)?)),
        (kernel, KernelCode::Nested(_)) => {
            Plan::Control(Box::new(control::plan(kernel, if defines { symbols } else { &[] }, cx)?))
        }
        (kernel, _) => return Err(format!("`{}` was compiled as something else", kernel.kind())),
    })
}
