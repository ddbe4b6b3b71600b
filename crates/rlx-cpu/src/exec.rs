//! Runs a program in a frame: binds segment after segment and runs their kernels in order.

use crate::bind::{self, BoundSegment, Plan, StateSizes};
use crate::buffers::{Buffers, Ptr, RunCx};
use crate::frame::{Frame, no_memory, output_bytes};
use crate::library::Defined;
use crate::params::{ParamSet, WeightSet};
use crate::program::{KernelCode, Program, alignment, weight_buffer};
use crate::tile::scratch;
use crate::{attention, contract, control, conv, library, map, row, states, window};
use rlx_compile::target::{BindMiss, KernelProfile};
use rlx_compile::{InputProblem, RunError};
use rlx_driver::{AlignedBuffer, Region};
use rlx_ir::DType;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Memory of a kernel's buffers, by slot.
type Memory = SmallVec<[Ptr; 64]>;

/// Counters of an executable.
#[derive(Debug, Default)]
pub struct Counters {
    /// Shapes bound anew.
    pub binds: AtomicU64,
    /// Shapes found in the cache.
    pub hits: AtomicU64,
    /// Bindings that a cache let go.
    pub evictions: AtomicU64,
    /// Runs of the prepare program.
    pub prepares: AtomicU64,
    /// Runs of the main program.
    pub runs: AtomicU64,
    /// Bytes copied besides what kernels do.
    pub moved: AtomicU64,
    /// Kernels run.
    pub kernels: AtomicU64,
    /// Arena bytes of the latest binding.
    pub arena: AtomicU64,
    /// Nanoseconds of the latest binding.
    pub bind_time: AtomicU64,
    /// The latest shapes that were not in a cache.
    pub misses: Mutex<VecDeque<BindMiss>>,
}

/// How many misses are remembered.
const MISSES: usize = 64;

impl Counters {
    fn miss(&self, miss: BindMiss) {
        let mut list = self.misses.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() >= MISSES {
            list.pop_front();
        }
        list.push_back(miss);
    }
}

/// How programs are run.
pub struct Env<'a> {
    /// Threads.
    pub region: &'a Region<'a>,
    /// Alignment of arena buffers.
    pub align: usize,
    /// Fill arenas first.
    pub poison: bool,
    /// Counters of main programs; none for prepare programs.
    pub counters: &'a Counters,
    /// Whether kernels count.
    pub count: bool,
    /// Times kernels, those of nested programs among them.
    pub profiler: Option<&'a RefCell<Profiler>>,
    /// Bytes that segments after the first may take, if there is a limit.
    pub left: Option<u64>,
}

/// An input of a run.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub dims: &'a [usize],
    /// Contents, row-major, packed.
    pub bytes: &'a [u8],
}

/// Where outputs go.
#[derive(Clone, Copy, Default)]
pub struct Outputs<'a> {
    /// Memory as long as the contents, to be handed out.
    pub exact: bool,
    /// Buffers that lie in the caller's memory.
    pub placed: &'a [(u32, Ptr)],
}

/// What a call finds at its first segment.
pub fn bind_first(
    program: &Program,
    inputs: &[&[usize]],
    params: Option<&ParamSet>,
    held: &StateSizes<'_>,
    outer: &[i64],
    env: &Env<'_>,
) -> Result<Arc<BoundSegment>, RunError> {
    let solver = &program.segments.solver;
    let symbolic = params.into_iter().flat_map(|p| solver.symbolic_params.iter().filter_map(|&i| p.tensors.get(i)));
    let shapes = inputs.iter().copied().chain(symbolic.map(|t| t.dims()));
    let mut key: SmallVec<[i64; 256]> = SmallVec::new();
    key.push(0);
    for s in shapes.clone() {
        key.push(s.len() as i64);
        key.extend(s.iter().map(|&n| i64::try_from(n).unwrap_or(i64::MAX)));
    }
    for s in held {
        // −1: the state has no size yet.
        key.push(s.as_ref().map_or(-1, |s| s.len() as i64));
        key.extend(s.iter().flat_map(|s| s.iter()).map(|&n| i64::try_from(n).unwrap_or(i64::MAX)));
    }
    key.extend_from_slice(outer);
    cached(program, &key, env, || {
        let shapes: Vec<&[usize]> = shapes.collect();
        let symbols = solver.solve(&shapes, held, outer).map_err(RunError::Inputs)?;
        bind::bind_segment(program, 0, symbols, None, env.align)
    })
}

fn bind_next(
    program: &Program,
    before: &BoundSegment,
    defined: &[i64],
    env: &Env<'_>,
) -> Result<Arc<BoundSegment>, RunError> {
    let index = before.segment + 1;
    let mut key: SmallVec<[i64; 256]> = SmallVec::new();
    key.push(index as i64);
    key.extend_from_slice(&before.symbols);
    key.extend_from_slice(defined);
    cached(program, &key, env, || {
        let symbols = before.symbols.iter().chain(defined).copied().collect();
        bind::bind_segment(program, index, symbols, Some(before), env.align)
    })
}

fn cached(
    program: &Program,
    key: &[i64],
    env: &Env<'_>,
    make: impl FnOnce() -> Result<BoundSegment, RunError>,
) -> Result<Arc<BoundSegment>, RunError> {
    let lock = || program.cache.lock().unwrap_or_else(PoisonError::into_inner);
    let found = lock().get(key);
    let reason = match found {
        Ok(b) => {
            env.counters.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(b);
        }
        Err(reason) => reason,
    };
    let start = Instant::now();
    let bound = Arc::new(make()?);
    let bytes = bound.bytes() + 2 * size_of_val(key);
    let gone = lock().insert(key, bound.clone(), bytes);
    env.counters.binds.fetch_add(1, Ordering::Relaxed);
    env.counters.evictions.fetch_add(gone, Ordering::Relaxed);
    let sizes = program.segments.symbols.iter().zip(&bound.symbols).map(|(s, &n)| (s.name().to_string(), n)).collect();
    let (program, time) = (program.lir.name.clone(), start.elapsed());
    env.counters.miss(BindMiss { program, reason, sizes, time, bytes: bytes as u64 });
    if env.count {
        env.counters.arena.store(bound.arena_bytes as u64, Ordering::Relaxed);
        env.counters.bind_time.store(time.as_nanos() as u64, Ordering::Relaxed);
    }
    Ok(bound)
}

/// Checks inputs against a program's ports; all that is wrong.
pub fn check_inputs(program: &Program, inputs: &[Input<'_>]) -> Result<(), RunError> {
    let lir = &program.lir;
    let mut problems = Vec::new();
    for (i, port) in lir.inputs.iter().enumerate() {
        let b = lir.buffer(port.buffer);
        let Some(input) = inputs.get(i) else {
            let dims: Vec<String> = b.shape.iter().map(|&d| lir.dims.get(d).to_string()).collect();
            problems.push(InputProblem::Missing {
                kind: "input",
                name: port.name.to_string(),
                expected: format!("{}[{}]", b.dtype, dims.join(", ")),
            });
            continue;
        };
        let name = || port.name.to_string();
        if input.dtype != b.dtype {
            problems.push(InputProblem::DType { kind: "input", name: name(), expected: b.dtype, got: input.dtype });
        }
        let numel = input.dims.iter().try_fold(1usize, |a, &d| a.checked_mul(d));
        let expected = numel.and_then(|n| b.dtype.bytes_for(n)).unwrap_or(usize::MAX);
        if input.dtype == b.dtype && input.bytes.len() != expected {
            problems.push(InputProblem::Length { kind: "input", name: name(), expected, got: input.bytes.len() });
        }
    }
    if inputs.len() > lir.inputs.len() {
        let known = lir.inputs.iter().map(|p| p.name.to_string()).collect();
        problems.push(InputProblem::Unknown { kind: "input", name: format!("number {}", lir.inputs.len()), known });
    }
    if problems.is_empty() { Ok(()) } else { Err(RunError::Inputs(problems)) }
}

/// Times kernels.
pub struct Profiler {
    /// When the run began.
    pub start: Instant,
    /// What was timed.
    pub kernels: Vec<KernelProfile>,
    /// Time of the kernels that ran within the present one.
    nested: Duration,
}

impl Profiler {
    /// Starts the clock.
    pub fn start() -> Profiler {
        Profiler { start: Instant::now(), kernels: Vec::new(), nested: Duration::ZERO }
    }
}

/// Runs a program whose first segment is bound; its outputs lie in the frame (or where they were placed).
#[allow(clippy::too_many_arguments)]
pub fn run_frame(
    program: &Program,
    frame: &mut Frame,
    inputs: &[Input<'_>],
    params: Option<&ParamSet>,
    weights: Option<&WeightSet>,
    first: Arc<BoundSegment>,
    needed: Option<&[bool]>,
    outputs: Outputs<'_>,
    env: &Env<'_>,
) -> Result<Arc<BoundSegment>, RunError> {
    let lir = &program.lir;
    let mut moved = 0;
    for (i, (port, input)) in lir.inputs.iter().zip(inputs).enumerate() {
        moved += frame.set_input(port.buffer.index(), i, input.bytes, alignment(input.dtype))?;
    }
    if let Some(p) = params {
        for (port, &ptr) in lir.params.iter().zip(&p.ptrs) {
            frame.ptrs[port.buffer.index()] = ptr;
        }
    }
    let (mut bound, mut left) = (first, env.left);
    moved += states::place(frame, program, &bound)?;
    // Results of a kernel whose sizes the next segment knows.
    let mut pending: Option<(usize, Defined)> = None;
    let mut count = 0;
    loop {
        frame.place(program, &bound, env.align, env.poison, outputs.exact, outputs.placed)?;
        if let Some((kernel, defined)) = pending.take() {
            deliver(program, frame, &bound, kernel, &defined)?;
        }
        let segment = &program.segments.list[bound.segment];
        for (k, plan) in segment.kernels.clone().zip(bound.plans.iter().map(|p| &**p)) {
            if needed.is_some_and(|n| !n[k]) {
                continue;
            }
            let start = env.profiler.map(|p| (Instant::now(), std::mem::take(&mut p.borrow_mut().nested)));
            let mut defined = None;
            run_kernel(program, frame, k, plan, &bound, weights, env, &mut defined).map_err(|e| *e)?;
            count += 1;
            if let (Some(p), Some((start, before))) = (env.profiler, start) {
                let p = &mut *p.borrow_mut();
                let timed = profile(program, k, &bound, p, start);
                p.nested = before + timed.time;
                p.kernels.push(timed);
            }
            if let Some(d) = defined {
                pending = Some((k, d));
            }
        }
        if segment.defines.is_empty() {
            break;
        }
        let symbols = pending.as_ref().map_or(&[][..], |(_, d)| &d.symbols);
        if symbols.len() != segment.defines.len() {
            let node = segment.kernels.end.checked_sub(1).and_then(|k| lir.kernels.get(k));
            return Err(RunError::Kernel {
                kernel: node.map_or(String::new(), |n| n.kernel.kind().to_string()),
                loc: node.map_or(String::new(), |n| n.loc.to_string()),
                message: format!("it defines {} sizes but reported {}", segment.defines.len(), symbols.len()),
            });
        }
        bound = bind_next(program, &bound, symbols, env)?;
        if let Some(left) = &mut left {
            let outputs = program.segments.list[bound.segment].outputs.iter();
            let outputs = outputs.map(|&b| output_bytes(program, &bound, b as usize)).sum::<Result<usize, _>>()?;
            let needs = (bound.arena_bytes as u64).saturating_add(outputs as u64);
            *left = left.checked_sub(needs).ok_or_else(|| {
                RunError::Memory(format!(
                    "at sizes {symbols:?}, which data gave, {needs} bytes more are needed, and `memory_limit` leaves {left}: use a smaller \
                     batch or shape, or raise it"
                ))
            })?;
        }
    }
    if env.count {
        env.counters.kernels.fetch_add(count, Ordering::Relaxed);
    }
    moved += states::replace(frame, program, &bound)?;
    if env.count && moved > 0 {
        env.counters.moved.fetch_add(moved as u64, Ordering::Relaxed);
    }
    Ok(bound)
}

/// Runs a kernel; what it defines goes to `defined`. What is handed back is small: it is moved once for each kernel.
#[allow(clippy::too_many_arguments)]
fn run_kernel(
    program: &Program,
    frame: &mut Frame,
    k: usize,
    plan: &Plan,
    bound: &BoundSegment,
    weights: Option<&WeightSet>,
    env: &Env<'_>,
    defined: &mut Option<Defined>,
) -> Result<(), Box<RunError>> {
    let Frame { ptrs: all, slots: ptrs, nested, .. } = frame;
    ptrs.clear();
    ptrs.extend(program.classes.slots[k].iter().map(|&b| all[b as usize]));
    let node = &program.lir.kernels[k];
    let failed = |message: String| RunError::Kernel {
        kernel: node.kernel.kind().to_string(),
        loc: node.loc.to_string(),
        message,
    };
    if let (Plan::Control(c), KernelCode::Nested(programs)) = (plan, &program.codes[k]) {
        let inner = weights.and_then(|w| w.nested.get(k)).map_or(&[][..], Vec::as_slice);
        let bufs = Buffers::new(ptrs);
        *defined = control::run(c, programs, &mut nested[k], inner, bufs, &bound.symbols, env, &failed)?;
        return Ok(());
    }
    let weight = weights.and_then(|w| w.own.get(k)).and_then(|w| w.as_deref());
    let alone = Region::inline();
    let region = if program.shares_bytes.get(k) == Some(&true) { &alone } else { env.region };
    // A weight in a mapped file that lies at an odd address is copied for as long as it takes to pack it.
    let odd = weight.and(weight_buffer(&node.kernel)).and_then(|b| {
        let slot = program.classes.slots[k].iter().position(|&own| own == b.0)?;
        let odd = !ptrs.get(slot)?.get().addr().is_multiple_of(alignment(program.lir.buffer(b).dtype));
        odd.then_some((slot, b))
    });
    let reads = |ptrs: &[Ptr]| {
        let cx = RunCx { bufs: Buffers::new(ptrs), region, isa: program.isa, weight };
        match plan {
            Plan::Contract(p) => contract::reads_right(p, &cx),
            Plan::Conv(p) => conv::reads_weights(p, &cx),
            _ => false,
        }
    };
    let mut run = |ptrs: &[Ptr]| -> Result<(), Box<RunError>> {
        let cx = RunCx { bufs: Buffers::new(ptrs), region, isa: program.isa, weight };
        // SAFETY: every buffer that a kernel of this segment names has memory of the size that the binding gave it: inputs
        // and parameters were checked against their ports, constants against their dtype, the rest was just placed. A
        // program's kernels run one after another, and buffers that live at the same time do not overlap.
        unsafe {
            match (plan, &program.codes[k]) {
                (Plan::Map(p), KernelCode::Scalar(code)) => map::run(p, code, &cx),
                (Plan::Row(p), KernelCode::Row(code)) => row::run(p, code, &cx),
                (Plan::Contract(p), KernelCode::Scalar(code)) => contract::run(p, code, &cx),
                (Plan::Conv(p), KernelCode::Scalar(code)) => conv::run(p, code, &cx),
                (Plan::Window(p), _) => window::run(p, &cx),
                (Plan::Attention(p), _) => attention::run(p, &cx),
                (Plan::Library(p), _) => *defined = library::run(p, &cx).map_err(failed)?,
                _ => return Err(failed("its plan and its code do not belong together".into()).into()),
            }
        }
        Ok(())
    };
    let Some((slot, buffer)) = odd.filter(|_| reads(ptrs)) else { return run(ptrs) };
    let bytes = output_bytes(program, bound, buffer.index())?;
    let mut run_on_copy = |to: &mut [u8]| {
        // SAFETY: the parameter was checked to have this many bytes, as `to` has.
        unsafe { std::ptr::copy_nonoverlapping(ptrs[slot].get(), to.as_mut_ptr(), bytes) };
        ptrs[slot] = Ptr(to.as_mut_ptr());
        run(ptrs)
    };
    // What threads keep must stay small.
    if bytes <= MOST_KEPT {
        return scratch::with(bytes, run_on_copy);
    }
    run_on_copy(AlignedBuffer::uninit(bytes).map_err(no_memory)?.as_mut_slice())
}

/// Bytes of a weight that are copied to memory that threads keep.
const MOST_KEPT: usize = 1 << 20;

/// Copies the results of a defining kernel to their buffers, which have a size now.
fn deliver(program: &Program, frame: &Frame, bound: &BoundSegment, k: usize, d: &Defined) -> Result<(), RunError> {
    let lir = &program.lir;
    let slots = &program.classes.slots[k];
    let ptrs: Memory = slots.iter().map(|&b| frame.ptrs[b as usize]).collect();
    let (isa, matmul) = (program.isa, program.matmul);
    let cx = crate::buffers::BindCx { lir, dims: &bound.dims, numels: &bound.numels, isa, matmul, slots };
    let node = &lir.kernels[k];
    let failed = |message: String| RunError::Kernel {
        kernel: node.kernel.kind().to_string(),
        loc: node.loc.to_string(),
        message,
    };
    for (view, memory) in control::output_views(&node.kernel).iter().zip(&d.outputs) {
        let to = cx.view(view).map_err(failed)?;
        let bytes = to.access.dtype.bytes_for(to.numel());
        if bytes.is_none_or(|b| b > memory.len()) {
            return Err(failed(format!("a result has {} bytes where sizes {:?} need more", memory.len(), to.sizes)));
        }
        // SAFETY: the view lies within its buffer, which has memory; the source holds as many elements.
        unsafe { control::copy_in(&to, Buffers::new(&ptrs), memory.as_ptr()) };
    }
    Ok(())
}

fn profile(program: &Program, k: usize, bound: &BoundSegment, p: &Profiler, start: Instant) -> KernelProfile {
    let node = &program.lir.kernels[k];
    let time = start.elapsed();
    let size = |a: &rlx_compile::lir::Access| {
        let n = usize::try_from(bound.numels.get(a.buffer.index()).copied().unwrap_or(0)).unwrap_or(0);
        program.lir.buffer(a.buffer).dtype.bytes_for(n).unwrap_or(0) as u64
    };
    let mut seen = std::collections::HashSet::new();
    let accesses = node.kernel.reads().into_iter().chain(node.kernel.writes());
    let bytes = accesses.filter(|a| seen.insert(a.buffer)).map(size).sum();
    KernelProfile {
        kind: node.kernel.kind().to_string(),
        loc: node.loc.clone(),
        start: start.saturating_duration_since(p.start),
        time,
        own: time.saturating_sub(p.nested),
        bytes,
        ops: crate::work::operations(&node.kernel, &bound.dims),
    }
}
