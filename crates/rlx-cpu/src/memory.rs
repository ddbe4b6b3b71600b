//! What a program takes for itself, known before it runs.

use crate::bind::{BoundSegment, Interval, Plan, Segment, bind_segment, pack};
use crate::control::output_views;
use crate::program::{KernelCode, Program};
use crate::states::State;
use rlx_compile::lir::{BufId, Kernel, Lir, StatePort, Storage};
use rlx_compile::target::{Extent, MemoryReport, SegmentMemory};
use rlx_compile::{InputProblem, RunError};
use rlx_driver::DEFAULT_ALIGN;
use rlx_ir::dim::{Bounds, Symbol};
use rlx_ir::ops::{Indexing, Op};
use rlx_ir::{DimBinding, Tensor};

/// The programs of an executable.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    /// Runs once per set of parameters.
    pub prepare: Option<&'a Program>,
    /// Runs on every call.
    pub main: &'a Program,
}

/// The binding of the first segment at these sizes of inputs, as a run would make it.
pub fn plan(
    parts: &Parts<'_>,
    inputs: &[&[usize]],
    states: &[State],
    binding: &DimBinding,
    align: usize,
) -> Result<BoundSegment, RunError> {
    let (program, lir) = (parts.main, &parts.main.lir);
    let solver = &program.segments.solver;
    let mut problems = Vec::new();
    let mut params: Vec<Vec<usize>> = Vec::new();
    for port in solver.symbolic_params.iter().filter_map(|&i| lir.params.get(i)) {
        let dims: Result<Vec<i64>, _> =
            lir.buffer(port.buffer).shape.iter().map(|&d| lir.dims.get(d).eval(binding)).collect();
        match dims {
            Ok(v) => params.push(v.iter().map(|&n| usize::try_from(n).unwrap_or(0)).collect()),
            Err(e) => problems.push(InputProblem::Binding(format!("parameter `{}`: {e}", port.name))),
        }
    }
    if !problems.is_empty() {
        return Err(RunError::Inputs(problems));
    }
    let shapes: Vec<&[usize]> = inputs.iter().copied().chain(params.iter().map(Vec::as_slice)).collect();
    let mut sizes = Vec::new();
    let held = solver.bound_sizes(lir, states, binding, &mut sizes);
    let symbols = solver.solve(&shapes, &held, &[]).map_err(RunError::Inputs)?;
    bind_segment(program, 0, symbols, None, align)
}

/// Bytes of everything, as far as they are known; without a binding, of what every run needs.
pub fn report(
    parts: &Parts<'_>,
    params: &[Option<Tensor>],
    states: &[State],
    bound: Option<&BoundSegment>,
) -> MemoryReport {
    let params = params.iter().flatten().map(|t| t.bytes().len() as u64).sum();
    let mut r = MemoryReport { params, packed: packed(parts.main), ..MemoryReport::default() };
    if let Some(p) = parts.prepare {
        for o in &p.lir.outputs {
            match fixed_bytes(&p.lir, o.buffer) {
                Some(n) => r.prepared += n,
                None => r.open.push(format!("`{}`, which is prepared, has the sizes of parameters", o.name)),
            }
        }
    }
    let (main, lir) = (parts.main, &parts.main.lir);
    let bytes = |b: usize| match bound {
        Some(s) => known_bytes(lir, s, b),
        None => fixed_bytes(lir, BufId(b as u32)),
    };
    // What grows has more room than it needs.
    let room = |(port, state): (&StatePort, &State)| {
        let needed = bytes(port.buffer.index());
        match port.grows_in_place().is_some() {
            true => Some(state.room(usize::try_from(needed.unwrap_or(0)).ok()?) as u64),
            false => needed,
        }
    };
    r.states = lir.states.iter().zip(states).filter_map(room).sum();
    match bound {
        Some(s) => {
            r.segments = segments(main, s);
            let exact = |of: fn(&SegmentMemory) -> Extent| r.segments.iter().filter_map(|s| of(s).exact()).sum();
            (r.arena, r.outputs) = (exact(|s| s.arena), exact(|s| s.outputs));
            // Of what is open in part something is known all the same.
            if let Some(Extent::Open) = r.segments.first().map(|s| s.arena) {
                r.arena += s.arena_bytes as u64 + nested(main, s).bytes;
            }
        }
        None if main.segments.list.len() > 1 || main.codes.iter().any(|c| matches!(c, KernelCode::Nested(_))) => {
            r.open.push("the sizes of this call are not known yet".into());
        }
        None => {}
    }
    let open = |s: &SegmentMemory| [s.arena, s.outputs, s.handed].iter().any(|e| e.exact().is_none());
    r.partial = !r.open.is_empty() || r.segments.iter().any(open);
    r
}

/// Memory of all segments, the first of which is bound.
fn segments(program: &Program, first: &BoundSegment) -> Vec<SegmentMemory> {
    let lir = &program.lir;
    let mut bounds = lir.bounds.clone();
    for (s, &n) in program.segments.symbols.iter().zip(&first.symbols) {
        bounds.set(s.clone(), n, Some(n));
    }
    let mut before: Option<&Segment> = None;
    let mut all = Vec::with_capacity(program.segments.list.len());
    for segment in &program.segments.list {
        let (mut open, mut handed) = (Vec::new(), Extent::Exact(0));
        let definer = before.and_then(|b| lir.kernels.get(b.kernels.end.checked_sub(1)?));
        if let (Some(b), Some(k)) = (before, definer) {
            for s in &b.defines {
                match largest(&k.kernel, s, lir, &bounds) {
                    Some(n) => bounds.set(s.clone(), bounds.get(s).0.min(n), Some(n)),
                    None => open.push(format!("nothing bounds `{s}`, which {} at {:?} gives", k.kernel.kind(), k.loc)),
                }
            }
            for v in output_views(&k.kernel) {
                let sizes = v.sizes.iter().map(|&d| lir.dims.get(d).clone());
                handed = handed.plus(extent(&rlx_ir::Dim::product(sizes), lir.buffer(v.access.buffer).dtype, &bounds));
            }
        }
        let arena = match before {
            None => {
                let nested = nested(program, first);
                open.extend(nested.open);
                let bytes = (first.arena_bytes as u64).saturating_add(nested.bytes);
                if open.is_empty() { Extent::Exact(bytes) } else { Extent::Open }
            }
            Some(_) => arena(lir, segment, &bounds, &mut open),
        };
        let bytes =
            |&b: &u32| extent(lir.dims.get(lir.buffers[b as usize].numel), lir.buffers[b as usize].dtype, &bounds);
        let outputs = segment.outputs.iter().map(bytes).fold(Extent::Exact(0), Extent::plus);
        all.push(SegmentMemory {
            kernels: segment.kernels.start as u32..segment.kernels.end as u32,
            symbols: before.map_or(Vec::new(), |b| b.defines.iter().map(|s| s.name().to_string()).collect()),
            arena,
            outputs,
            handed,
            open,
        });
        before = Some(segment);
    }
    all
}

/// The arena of a segment that is not bound, packed as it would be at its largest sizes.
fn arena(lir: &Lir, segment: &Segment, bounds: &Bounds, open: &mut Vec<String>) -> Extent {
    let mut intervals = Vec::with_capacity(segment.arena.len());
    let mut exact = true;
    for b in segment.arena.iter().filter_map(|&b| lir.buffers.get(b as usize)) {
        let bytes = extent(lir.dims.get(b.numel), b.dtype, bounds);
        exact &= bytes.exact().is_some();
        let Some(bytes) = bytes.most().and_then(|n| usize::try_from(n).ok()) else { return Extent::Open };
        let (first, last) = b.live.unwrap_or((0, u32::MAX));
        intervals.push(Interval { first, last, bytes });
    }
    let nested = |k: &usize| lir.kernels.get(*k).filter(|k| !k.kernel.nested().is_empty());
    let before = open.len();
    for k in segment.kernels.clone().filter_map(|k| nested(&k)) {
        open.push(format!("what {} at {:?} runs has its sizes when it runs", k.kernel.kind(), k.loc));
    }
    if open.len() > before {
        return Extent::Open;
    }
    let bytes = pack(&intervals, DEFAULT_ALIGN).1 as u64;
    if exact { Extent::Exact(bytes) } else { Extent::AtMost(bytes) }
}

/// Bytes of so many elements under bounds of symbols.
fn extent(numel: &rlx_ir::Dim, dtype: rlx_ir::DType, bounds: &Bounds) -> Extent {
    let bytes = |n: i64| usize::try_from(n).ok().and_then(|n| dtype.bytes_for(n)).map(|n| n as u64);
    match (numel.lower_bound_with(bounds), numel.upper_bound_with(bounds).and_then(bytes)) {
        (Some(low), Some(high)) if bytes(low) == Some(high) => Extent::Exact(high),
        (_, Some(high)) => Extent::AtMost(high),
        _ => Extent::Open,
    }
}

/// The largest value of a symbol that a kernel defines.
fn largest(kernel: &Kernel, symbol: &Symbol, lir: &Lir, bounds: &Bounds) -> Option<i64> {
    let declared = bounds.get(symbol).1;
    let found = match kernel {
        // No more elements are not zero than there are.
        Kernel::Library(l) if matches!(l.op, Op::Indexing(Indexing::NonZero(_))) => {
            let sizes = l.inputs.first()?.sizes.iter().map(|&d| lir.dims.get(d).clone());
            rlx_ir::Dim::product(sizes).upper_bound_with(bounds)
        }
        // A loop stacks one value an iteration.
        Kernel::Loop(l) => l.trip_count.as_ref().and_then(|v| match &lir.buffer(v.access.buffer).storage {
            Storage::Const(t) if t.numel() == 1 => t.elements().ints().and_then(|i| i64::try_from(*i.first()?).ok()),
            _ => None,
        }),
        _ => None,
    };
    match (declared, found.map(|n| n.max(0))) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// What nested programs add to an arena.
#[derive(Default)]
struct Nested {
    bytes: u64,
    /// Why there is more whose size is not known before the run.
    open: Vec<String>,
}

/// Arenas and outputs of the programs that a segment's kernels run, and the values that loops carry; all of them are kept from run to run.
fn nested(program: &Program, bound: &BoundSegment) -> Nested {
    let mut all = Nested::default();
    let Some(segment) = program.segments.list.get(bound.segment) else { return all };
    for (k, plan) in segment.kernels.clone().zip(&bound.plans) {
        let (Plan::Control(plan), Some(KernelCode::Nested(programs))) = (&**plan, program.codes.get(k)) else {
            continue;
        };
        all.bytes = all.bytes.saturating_add(plan.stacked_bytes());
        let node = &program.lir.kernels[k];
        let place = format!("{} at {:?}", node.kernel.kind(), node.loc);
        for (inner, inputs) in programs.iter().zip(plan.nested_inputs()) {
            let shapes: Vec<&[usize]> = inputs.iter().map(|s| s.as_slice()).collect();
            let outer = if plan.sees_symbols() { &bound.symbols[..] } else { &[] };
            let symbols = inner.segments.solver.solve(&shapes, &[], outer).ok();
            let Some(b) = symbols.and_then(|s| bind_segment(inner, 0, s, None, DEFAULT_ALIGN).ok()) else {
                // What does not fit now may never run: a branch that is not taken.
                all.open.push(format!("a program that {place} runs does not fit these sizes"));
                continue;
            };
            let of = |port: &rlx_compile::lir::Port| known_bytes(&inner.lir, &b, port.buffer.index());
            let outputs: u64 = inner.lir.outputs.iter().filter_map(of).sum();
            // Loops copy what an iteration gives, and hold what the one before gave.
            let copies = if plan.carried().is_some() { 3 } else { 1 };
            let further = nested(inner, &b);
            let steady = plan.carried().is_none_or(|(first, sizes)| {
                let ports = inner.lir.outputs.iter().skip(first);
                sizes.iter().zip(ports).all(|(s, p)| b.shape(inner, p.buffer.index()).as_ref() == Some(s))
            });
            all.open.extend(further.open);
            if !steady {
                all.open.push(format!("what {place} carries may change its size from iteration to iteration"));
            }
            if inner.segments.list.len() > 1 {
                all.open.push(format!("sizes in a program that {place} runs depend on data"));
            }
            all.bytes = [b.arena_bytes as u64, outputs.saturating_mul(copies), further.bytes]
                .into_iter()
                .fold(all.bytes, u64::saturating_add);
        }
    }
    all
}

fn known_bytes(lir: &Lir, s: &BoundSegment, b: usize) -> Option<u64> {
    let n = usize::try_from(*s.numels.get(b)?).ok()?;
    lir.buffers.get(b)?.dtype.bytes_for(n).map(|n| n as u64)
}

/// Bytes of a buffer whose sizes no symbol enters.
fn fixed_bytes(lir: &Lir, buffer: BufId) -> Option<u64> {
    let b = lir.buffers.get(buffer.index())?;
    let n = usize::try_from(lir.dims.dims().get(b.numel.index())?.as_const()?).ok()?;
    b.dtype.bytes_for(n).map(|n| n as u64)
}

/// Bytes of packed weights, each as large as the weight itself.
fn packed(program: &Program) -> u64 {
    let lir = &program.lir;
    let own = program.weights.iter().zip(&lir.kernels).filter(|(w, _)| w.is_some()).filter_map(|(_, k)| {
        let buffer = match &k.kernel {
            Kernel::Contract(c) => c.rhs.buffer,
            Kernel::Conv(c) => c.weight.buffer,
            _ => return None,
        };
        fixed_bytes(lir, buffer)
    });
    let nested = program.codes.iter().map(|c| match c {
        KernelCode::Nested(programs) => programs.iter().map(packed).sum(),
        _ => 0,
    });
    own.sum::<u64>() + nested.sum::<u64>()
}
