//! What a program takes for itself, known before it runs.

use crate::bind::{BoundSegment, Plan, bind_segment};
use crate::frame::State;
use crate::program::{KernelCode, Program};
use rlx_compile::lir::{BufId, Kernel, Lir, Storage};
use rlx_compile::target::MemoryReport;
use rlx_compile::{InputProblem, RunError};
use rlx_driver::DEFAULT_ALIGN;
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
    let held = solver.state_sizes(lir, states);
    let symbols = solver.solve(&shapes, &held, &[]).map_err(RunError::Inputs)?;
    bind_segment(program, 0, symbols, None, align)
}

/// Bytes of everything, as far as they are known; without a binding, of what every run needs.
pub fn report(parts: &Parts<'_>, params: &[Option<Tensor>], bound: Option<&BoundSegment>) -> MemoryReport {
    let params = params.iter().flatten().map(|t| t.bytes().len() as u64).sum();
    let mut r = MemoryReport { params, packed: packed(parts.main), ..MemoryReport::default() };
    if let Some(p) = parts.prepare {
        for o in &p.lir.outputs {
            match fixed_bytes(&p.lir, o.buffer) {
                Some(n) => r.prepared += n,
                None => r.partial = true,
            }
        }
    }
    let (main, lir) = (parts.main, &parts.main.lir);
    r.partial |= main.segments.list.len() > 1;
    let bytes = |b: usize| match bound {
        Some(s) => known_bytes(lir, s, b),
        None => fixed_bytes(lir, BufId(b as u32)),
    };
    r.states = lir.states.iter().filter_map(|s| bytes(s.buffer.index())).sum();
    if let Some(s) = bound {
        r.arena = s.arena_bytes as u64;
        let outputs = (0..lir.buffers.len()).filter(|&b| matches!(lir.buffers[b].storage, Storage::Output(_)));
        r.outputs = outputs.filter_map(bytes).sum();
        let nested = nested(main, s);
        r.arena = r.arena.saturating_add(nested.bytes);
        r.partial |= nested.partial;
    } else {
        r.partial |= main.codes.iter().any(|c| matches!(c, KernelCode::Nested(_)));
    }
    r
}

/// What nested programs add to an arena.
#[derive(Default)]
struct Nested {
    bytes: u64,
    /// There is more whose size is not known before the run.
    partial: bool,
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
        for (inner, inputs) in programs.iter().zip(plan.nested_inputs()) {
            let shapes: Vec<&[usize]> = inputs.iter().map(|s| s.as_slice()).collect();
            let outer = if plan.sees_symbols() { &bound.symbols[..] } else { &[] };
            let symbols = inner.segments.solver.solve(&shapes, &[], outer).ok();
            let Some(b) = symbols.and_then(|s| bind_segment(inner, 0, s, None, DEFAULT_ALIGN).ok()) else {
                // What does not fit now may never run: a branch that is not taken.
                all.partial = true;
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
            all.partial |= further.partial || !steady || inner.segments.list.len() > 1;
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
