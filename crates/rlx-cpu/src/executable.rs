//! A compiled module with its parameters, contexts and counters.

use crate::bind::{BoundSegment, StateSizes};
use crate::buffers::Ptr;
use crate::exec::{Counters, Env, Input, Outputs, Profiler, bind_first, check_inputs, run_frame};
use crate::frame::{Frame, is_output, no_memory, output_bytes};
use crate::memory::{self, Parts};
use crate::params::ParamSet;
use crate::program::{CacheBounds, Program, Target, alignment};
use crate::states::State;
use crate::store::Stored;
use rlx_compile::lir::{Lir, LirModule};
use rlx_compile::target::{
    BindMiss, BorrowedTensor, BorrowedTensors, ExecStats, ExecutableGraph, Extent, KernelProfile, MemoryReport,
    PortInfo, Signature, Snapshot, TensorMut, TensorRef,
};
use rlx_compile::{CompileError, CompileOptions, InputProblem, RunError};
use rlx_driver::{AlignedBuffer, Isa, Region, ThreadPool};
use rlx_ir::{DimBinding, Tensor, TensorType};
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What all clones of an executable share.
pub(crate) struct Shared {
    signature: Signature,
    pub(crate) prepare: Option<Program>,
    pub(crate) main: Program,
    /// For each parameter of prepare, its number in the signature.
    pub(crate) prepare_params: Vec<usize>,
    /// For each parameter of main, where it comes from.
    pub(crate) main_params: Vec<Origin>,
    threads: usize,
    /// A pool of our own where more threads are asked for than the process has.
    pool: Option<ThreadPool>,
    pub(crate) align: usize,
    poison: bool,
    /// Numbers of all outputs.
    all_outputs: Box<[usize]>,
    /// What the program may allocate for itself.
    memory_limit: Option<u64>,
    /// Contexts for [`ExecutableGraph::run`].
    frames: Mutex<Vec<Frame>>,
}

/// Parameters, the binding of the first segment, and the bytes left for the others.
type Ready = (Arc<ParamSet>, Arc<BoundSegment>, Option<u64>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A parameter of the signature.
    Param(usize),
    /// An output of prepare.
    Prepared(usize),
}

/// A compiled module.
pub struct CpuExecutable {
    pub(crate) shared: Arc<Shared>,
    /// Parameters of the signature.
    pub(crate) params: Vec<Option<Tensor>>,
    /// Outputs of prepare, while they are those of the present parameters.
    pub(crate) prepared: Mutex<Option<Arc<Vec<Tensor>>>>,
    /// Packed forms from an artefact, until the first set of parameters takes them.
    pub(crate) stored: Mutex<Option<Arc<Stored>>>,
    /// What main runs with, while it is that of the present parameters.
    set: Mutex<Option<Arc<ParamSet>>>,
    /// The latest set, for what it has packed.
    before: Option<Arc<ParamSet>>,
    frame: Frame,
    counters: Counters,
}

pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tensor_type(lir: &Lir, buffer: rlx_compile::lir::BufId) -> TensorType {
    let b = lir.buffer(buffer);
    TensorType::new(b.dtype, b.shape.iter().map(|&d| lir.dims.get(d).clone()).collect::<rlx_ir::Shape>())
}

impl CpuExecutable {
    /// Compiles a module.
    pub fn new(module: LirModule, options: &CompileOptions) -> Result<CpuExecutable, CompileError> {
        // A program from a file may name ops that nobody has brought yet.
        let missing: Vec<&str> = module.custom_ops().into_iter().filter(|n| !crate::library::has_kernel(n)).collect();
        if !missing.is_empty() {
            return Err(CompileError::Backend(format!(
                "the CPU has no kernels for the custom ops {}: register them with `rlx::custom::register_kernel`",
                missing.join(", ")
            )));
        }
        let isa = crate::simd::effective(options.isa.unwrap_or_else(Isa::best));
        let jit = options.jit && crate::jit::supported(isa);
        let target = Target { isa, jit, once: false, matmul: options.matmul_precision };
        let mut signature = Signature::default();
        let info = |lir: &Lir, name: &Arc<str>, buffer, has_default| PortInfo {
            name: name.clone(),
            ty: tensor_type(lir, buffer),
            has_default,
            grows: None,
        };
        let lir = &module.main;
        signature.inputs = lir.inputs.iter().map(|p| info(lir, &p.name, p.buffer, false)).collect();
        signature.outputs = lir.outputs.iter().map(|p| info(lir, &p.name, p.buffer, false)).collect();
        signature.states = Signature::of_lir(lir).states;
        let mut params = Vec::new();
        let mut add = |signature: &mut Signature, lir: &Lir, p: &rlx_compile::lir::ParamPort| {
            if let Some(i) = signature.params.iter().position(|q| q.name == p.name) {
                return i;
            }
            signature.params.push(info(lir, &p.name, p.buffer, p.default.is_some()));
            params.push(p.default.clone());
            signature.params.len() - 1
        };
        let prepare_params = match &module.prepare {
            Some(l) => l.params.iter().map(|p| add(&mut signature, l, p)).collect(),
            None => Vec::new(),
        };
        let prepared = module.prepare.as_ref().map_or(&[][..], |l| &l.outputs);
        let main_params = lir
            .params
            .iter()
            .map(|p| match prepared.iter().position(|o| o.name == p.name) {
                Some(i) => Origin::Prepared(i),
                None => Origin::Param(add(&mut signature, lir, p)),
            })
            .collect();
        let given = &options.dim_bindings;
        let bytes = usize::try_from(options.bind_cache_bytes).unwrap_or(usize::MAX);
        let cache = CacheBounds { entries: options.bind_cache, bytes };
        let compile = |l: Lir, once| {
            Program::compile(l, &[], given, Target { once, ..target }, cache, &[]).map_err(CompileError::Lir)
        };
        let prepare = module.prepare.map(|l| compile(l, true)).transpose()?;
        let main = compile(module.main, false)?;
        let main_outputs = main.lir.outputs.len();
        let own = options.threads > ThreadPool::global().threads();
        let frame = Frame::new(&main);
        let shared = Shared {
            signature,
            prepare,
            main,
            prepare_params,
            main_params,
            threads: if options.threads == 0 { ThreadPool::global().threads() } else { options.threads },
            pool: own.then(|| ThreadPool::new(options.threads)),
            align: options.arena_alignment.clamp(64, rlx_driver::HUGE_PAGE),
            poison: options.poison,
            all_outputs: (0..main_outputs).collect(),
            memory_limit: options.memory_limit,
            frames: Mutex::new(Vec::new()),
        };
        Ok(CpuExecutable {
            shared: Arc::new(shared),
            params,
            prepared: Mutex::new(None),
            stored: Mutex::new(None),
            set: Mutex::new(None),
            before: None,
            frame,
            counters: Counters::default(),
        })
    }
}

impl Shared {
    fn parts(&self) -> Parts<'_> {
        Parts { prepare: self.prepare.as_ref(), main: &self.main }
    }

    /// Sizes of the inputs, or everything that a binding leaves open.
    fn input_shapes(&self, binding: &DimBinding) -> Result<Vec<Vec<usize>>, RunError> {
        let mut problems = Vec::new();
        let mut shapes: Vec<Vec<usize>> = Vec::new();
        for p in &self.signature.inputs {
            match p.ty.shape.eval(binding) {
                Ok(v) if v.iter().all(|&n| n >= 0) => shapes.push(v.iter().map(|&n| n as usize).collect()),
                Ok(v) => problems.push(InputProblem::Binding(format!("input `{}` would have sizes {v:?}", p.name))),
                Err(e) => problems.push(InputProblem::Binding(format!("input `{}`: {e}", p.name))),
            }
        }
        if problems.is_empty() { Ok(shapes) } else { Err(RunError::Inputs(problems)) }
    }

    pub(crate) fn region(&self) -> Region<'_> {
        self.pool.as_ref().unwrap_or_else(|| ThreadPool::global()).enter(self.threads)
    }

    fn env<'a>(&self, region: &'a Region<'a>, counters: &'a Counters, count: bool) -> Env<'a> {
        Env { region, align: self.align, poison: self.poison, counters, count, profiler: None, left: None }
    }
}

/// Everything that is wrong with parameters of a program.
fn missing(shared: &Shared, params: &[Option<Tensor>], needed: impl Iterator<Item = usize>) -> Vec<InputProblem> {
    let absent = |&i: &usize| params.get(i).is_none_or(Option::is_none);
    needed
        .filter(absent)
        .filter_map(|i| shared.signature.params.get(i))
        .map(|p| InputProblem::Missing { kind: "parameter", name: p.name.to_string(), expected: p.ty.to_string() })
        .collect()
}

impl CpuExecutable {
    /// Runs prepare unless its outputs are there.
    fn prepared(&self, region: &Region<'_>) -> Result<Option<Arc<Vec<Tensor>>>, RunError> {
        let shared = &*self.shared;
        let Some(program) = &shared.prepare else { return Ok(None) };
        let mut slot = lock(&self.prepared);
        if let Some(p) = &*slot {
            return Ok(Some(p.clone()));
        }
        let absent = missing(shared, &self.params, shared.prepare_params.iter().copied());
        if !absent.is_empty() {
            return Err(RunError::Inputs(absent));
        }
        let tensors = shared.prepare_params.iter().filter_map(|&i| self.params[i].clone()).collect();
        let set = ParamSet::new(program, tensors, None)?;
        let env = shared.env(region, &self.counters, false);
        let mut frame = Frame::new(program);
        let first = bind_first(program, &[], Some(&set), &StateSizes::new(), &[], &env)?;
        let outputs = Outputs { exact: true, placed: &[] };
        let bound = run_frame(program, &mut frame, &[], Some(&set), Some(&set.weights), first, None, outputs, &env)?;
        let all: Vec<usize> = (0..program.lir.outputs.len()).collect();
        let tensors = Arc::new(take_outputs(program, &mut frame, &bound, &all, &AtomicU64::new(0))?);
        self.counters.prepares.fetch_add(1, Ordering::Relaxed);
        *slot = Some(tensors.clone());
        Ok(Some(tensors))
    }

    /// What main runs with.
    pub(crate) fn param_set(&self, region: &Region<'_>) -> Result<Arc<ParamSet>, RunError> {
        if let Some(set) = &*lock(&self.set) {
            return Ok(set.clone());
        }
        let shared = &*self.shared;
        let used = shared.main_params.iter().filter_map(|o| match o {
            Origin::Param(i) => Some(*i),
            Origin::Prepared(_) => None,
        });
        let absent = missing(shared, &self.params, used.chain(shared.prepare_params.iter().copied()));
        if !absent.is_empty() {
            let mut unique: Vec<InputProblem> = Vec::new();
            for p in absent {
                if !unique.contains(&p) {
                    unique.push(p);
                }
            }
            return Err(RunError::Inputs(unique));
        }
        let prepared = self.prepared(region)?;
        let tensors = shared
            .main_params
            .iter()
            .filter_map(|o| match o {
                Origin::Param(i) => self.params.get(*i).cloned().flatten(),
                Origin::Prepared(i) => prepared.as_ref().and_then(|p| p.get(*i).cloned()),
            })
            .collect();
        let set = Arc::new(ParamSet::new(&shared.main, tensors, self.before.as_deref())?);
        if let Some(stored) = lock(&self.stored).take() {
            stored.give(shared, &set.weights);
        }
        Ok(lock(&self.set).get_or_insert(set).clone())
    }

    /// What a run of these inputs works with, and the bytes that the options leave for sizes that depend on data.
    fn bind(&self, inputs: &[Input<'_>], region: &Region<'_>) -> Result<Ready, RunError> {
        let main = &self.shared.main;
        // Inputs and parameters are checked together, so that one error lists what is wrong with both.
        let checked = check_inputs(main, inputs);
        self.within_limit(None)?;
        let set = self.param_set(region);
        match (checked, set) {
            (Ok(()), Ok(set)) => {
                let shapes: smallvec::SmallVec<[&[usize]; 16]> = inputs.iter().map(|i| i.dims).collect();
                let env = self.shared.env(region, &self.counters, true);
                let held = main.segments.solver.state_sizes(&main.lir, &self.frame.states);
                let first = bind_first(main, &shapes, Some(&set), &held, &[], &env)?;
                let left = self.within_limit(Some(&first))?;
                Ok((set, first, left))
            }
            (Err(RunError::Inputs(mut a)), Err(RunError::Inputs(b))) => {
                a.extend(b);
                Err(RunError::Inputs(a))
            }
            (Err(e), _) | (_, Err(e)) => Err(e),
        }
    }

    /// Refuses what would need more memory than the options allow: without a binding, what every run needs. Gives what is left for the
    /// segments after the first, if there is a limit.
    fn within_limit(&self, bound: Option<&BoundSegment>) -> Result<Option<u64>, RunError> {
        let Some(limit) = self.shared.memory_limit else { return Ok(None) };
        let report = memory::report(&self.shared.parts(), &self.params, &self.frame.states, bound);
        match limit.checked_sub(report.own()) {
            Some(left) => {
                let later = report.segments.iter().skip(1).flat_map(|s| [s.arena, s.outputs]);
                Ok(Some(later.filter_map(Extent::exact).fold(left, u64::saturating_add)))
            }
            None => Err(RunError::Memory(format!(
                "this needs {report}; `memory_limit` is {limit} bytes: use a smaller batch or shape, or raise it"
            ))),
        }
    }

    fn selection<'a>(&self, shared: &'a Shared, read: Option<&'a [usize]>) -> Result<&'a [usize], RunError> {
        let n = self.shared.signature.outputs.len();
        let Some(read) = read else { return Ok(&shared.all_outputs) };
        let problems: Vec<InputProblem> = read
            .iter()
            .filter(|&&i| i >= n)
            .map(|i| InputProblem::Unknown {
                kind: "output",
                name: format!("number {i}"),
                known: self.shared.signature.outputs.iter().map(|o| o.name.to_string()).collect(),
            })
            .collect();
        if problems.is_empty() { Ok(read) } else { Err(RunError::Inputs(problems)) }
    }

    /// Runs main in the executable's own frame.
    fn run_own(
        &mut self,
        shared: &Arc<Shared>,
        inputs: &[TensorRef<'_>],
        read: &[usize],
        outputs: Outputs<'_>,
        profiler: Option<&RefCell<Profiler>>,
    ) -> Result<Arc<BoundSegment>, RunError> {
        let region = shared.region();
        let inputs = borrow(inputs);
        let (set, first, left) = self.bind(&inputs, &region)?;
        let needed = shared.main.needed(read);
        self.counters.runs.fetch_add(1, Ordering::Relaxed);
        let env = Env { profiler, left, ..shared.env(&region, &self.counters, true) };
        let frame = &mut self.frame;
        run_frame(&shared.main, frame, &inputs, Some(&set), Some(&set.weights), first, needed.as_deref(), outputs, &env)
    }
}

fn borrow<'a>(inputs: &[TensorRef<'a>]) -> smallvec::SmallVec<[Input<'a>; 16]> {
    inputs.iter().map(|t| Input { dtype: t.dtype, dims: t.dims, bytes: t.bytes }).collect()
}

/// Outputs as tensors: an output's own memory is handed over, anything else copied.
fn take_outputs(
    program: &Program,
    frame: &mut Frame,
    bound: &BoundSegment,
    read: &[usize],
    moved: &AtomicU64,
) -> Result<Vec<Tensor>, RunError> {
    let lir = &program.lir;
    let mut made: Vec<(usize, Tensor)> = Vec::new();
    for &o in read {
        let b = lir.outputs[o].buffer.index();
        if made.iter().any(|(n, _)| *n == b) {
            continue;
        }
        let dims = bound.shape(program, b).unwrap_or_default();
        let bytes = output_bytes(program, bound, b)?;
        let own = if is_output(program, b) { frame.outputs[b].take_if(|m| m.len() == bytes) } else { None };
        let memory = match own {
            Some(m) => m,
            None => {
                let mut m = AlignedBuffer::uninit(bytes).map_err(no_memory)?;
                // SAFETY: the buffer has memory of this size.
                unsafe { std::ptr::copy_nonoverlapping(frame.ptrs[b].get(), m.as_mut_ptr(), bytes) };
                moved.fetch_add(bytes as u64, Ordering::Relaxed);
                m
            }
        };
        let tensor = Tensor::from_source(lir.buffers[b].dtype, &dims, Arc::new(memory));
        made.push((b, tensor.map_err(|e| RunError::Memory(e.to_string()))?));
    }
    let of = |&o: &usize| made.iter().find(|(n, _)| *n == lir.outputs[o].buffer.index()).map(|(_, t)| t.clone());
    Ok(read.iter().filter_map(of).collect())
}

impl ExecutableGraph for CpuExecutable {
    fn signature(&self) -> &Signature {
        &self.shared.signature
    }

    fn set_param(&mut self, index: usize, value: Tensor) -> Result<(), RunError> {
        let shared = &self.shared;
        let Some(port) = shared.signature.params.get(index) else {
            let known = shared.signature.params.iter().map(|p| p.name.to_string()).collect();
            let name = format!("number {index}");
            return Err(RunError::Inputs(vec![InputProblem::Unknown { kind: "parameter", name, known }]));
        };
        let name = port.name.to_string();
        if value.dtype() != port.ty.dtype {
            let (expected, got) = (port.ty.dtype, value.dtype());
            return Err(RunError::Inputs(vec![InputProblem::DType { kind: "parameter", name, expected, got }]));
        }
        let fits = |(d, &n): (&rlx_ir::Dim, &usize)| d.as_const().is_none_or(|c| usize::try_from(c) == Ok(n));
        if value.dims().len() != port.ty.shape.rank() || !port.ty.shape.iter().zip(value.dims()).all(fits) {
            return Err(RunError::Inputs(vec![InputProblem::Shape {
                kind: "parameter",
                name,
                expected: port.ty.to_string(),
                got: value.dims().to_vec(),
                why: String::new(),
            }]));
        }
        let (uses, shared) = (shared.prepare_params.contains(&index), shared.clone());
        if let Some(stored) = lock(&self.stored).as_mut() {
            Arc::make_mut(stored).forget(&shared, index);
        }
        if uses && shared.prepare.is_some() {
            *lock(&self.prepared) = None;
        }
        if let Some(set) = lock(&self.set).take() {
            self.before = Some(set);
        }
        self.params[index] = Some(value);
        Ok(())
    }

    fn finalize_params(&mut self) -> Result<(), RunError> {
        let shared = self.shared.clone();
        let region = shared.region();
        self.param_set(&region)?;
        // The old set's packed forms have been taken over.
        self.before = None;
        Ok(())
    }

    fn run(&self, inputs: &[TensorRef<'_>], read: Option<&[usize]>) -> Result<Vec<Tensor>, RunError> {
        let shared = &*self.shared;
        if !shared.signature.states.is_empty() {
            return Err(RunError::Unsupported(
                "a program with state runs in its own context: use `run_borrowed`".into(),
            ));
        }
        let read = self.selection(shared, read)?;
        let region = shared.region();
        let inputs = borrow(inputs);
        let (set, first, left) = self.bind(&inputs, &region)?;
        self.counters.runs.fetch_add(1, Ordering::Relaxed);
        let pooled = lock(&shared.frames).pop();
        let mut frame = pooled.unwrap_or_else(|| Frame::new(&shared.main));
        let needed = shared.main.needed(read);
        let env = Env { left, ..shared.env(&region, &self.counters, true) };
        let outputs = Outputs { exact: true, placed: &[] };
        let bound = run_frame(
            &shared.main,
            &mut frame,
            &inputs,
            Some(&set),
            Some(&set.weights),
            first,
            needed.as_deref(),
            outputs,
            &env,
        )?;
        let tensors = take_outputs(&shared.main, &mut frame, &bound, read, &self.counters.moved)?;
        lock(&shared.frames).push(frame);
        Ok(tensors)
    }

    fn run_borrowed<'a>(
        &'a mut self,
        inputs: &[TensorRef<'_>],
        read: Option<&[usize]>,
    ) -> Result<BorrowedTensors<'a>, RunError> {
        let shared = self.shared.clone();
        let read = self.selection(&shared, read)?;
        let bound = self.run_own(&shared, inputs, read, Outputs::default(), None)?;
        let lir = &shared.main.lir;
        for &o in read {
            let b = lir.outputs[o].buffer.index();
            self.frame.lent[o] = bound.shape(&shared.main, b).unwrap_or_default();
            // An input's memory is the caller's and may be gone before the result is: it is copied.
            if lir.inputs.iter().any(|p| p.buffer.index() == b) {
                let bytes = output_bytes(&shared.main, &bound, b)?;
                let from = self.frame.ptrs[b].get();
                let slot = &mut self.frame.outputs[b];
                if slot.as_ref().is_none_or(|m| m.len() < bytes) {
                    *slot = Some(AlignedBuffer::uninit(bytes).map_err(no_memory)?);
                }
                if let Some(m) = slot
                    && m.as_ptr() != from.cast_const()
                {
                    // SAFETY: the input's bytes were checked to be this many, and the run's borrow still holds.
                    unsafe { std::ptr::copy_nonoverlapping(from, m.as_mut_ptr(), bytes) };
                    self.counters.moved.fetch_add(bytes as u64, Ordering::Relaxed);
                    self.frame.ptrs[b] = Ptr(m.as_mut_ptr());
                }
            }
        }
        let frame = &self.frame;
        let lend = |&o: &usize| -> Result<BorrowedTensor<'a>, RunError> {
            let b = lir.outputs[o].buffer.index();
            let bytes = output_bytes(&shared.main, &bound, b)?;
            // SAFETY: the buffer has memory of this size, which the frame, the parameters or the program own and which
            // the exclusive borrow of the executable keeps unchanged.
            let bytes = unsafe { std::slice::from_raw_parts(frame.ptrs[b].get().cast_const(), bytes) };
            Ok(BorrowedTensor { dtype: lir.buffers[b].dtype, dims: &frame.lent[o], bytes })
        };
        read.iter().map(lend).collect()
    }

    fn run_into(&mut self, inputs: &[TensorRef<'_>], outputs: &mut [TensorMut<'_>]) -> Result<(), RunError> {
        let n = self.shared.signature.outputs.len();
        if outputs.len() != n {
            let name = format!("{} of {n}", outputs.len());
            let known = self.shared.signature.outputs.iter().map(|o| o.name.to_string()).collect();
            return Err(RunError::Inputs(vec![InputProblem::Unknown { kind: "output", name, known }]));
        }
        let shared = self.shared.clone();
        let (main, lir) = (&shared.main, &shared.main.lir);
        // Sizes that are known before the run are checked before it, and such outputs are written in place.
        let first = {
            let region = shared.region();
            self.bind(&borrow(inputs), &region)?.1
        };
        check_outputs(&shared, &first, outputs, false)?;
        let mut placed: smallvec::SmallVec<[(u32, Ptr); 8]> = smallvec::SmallVec::new();
        for (port, out) in lir.outputs.iter().zip(outputs.iter_mut()) {
            let b = port.buffer.index();
            let aligned = (out.bytes.as_ptr() as usize).is_multiple_of(alignment(out.dtype));
            let known = first.numels.get(b).is_some_and(|&n| n >= 0);
            // Kernels write elements narrower than a byte one by one: what pads the last byte is zero.
            if out.dtype.bits() < 8
                && let Some(last) = out.bytes.last_mut()
            {
                *last = 0;
            }
            if is_output(main, b) && known && aligned && !placed.iter().any(|(n, _)| *n as usize == b) {
                placed.push((b as u32, Ptr(out.bytes.as_mut_ptr())));
            }
        }
        let outs = Outputs { exact: false, placed: &placed };
        let bound = self.run_own(&shared, inputs, &shared.all_outputs, outs, None)?;
        check_outputs(&shared, &bound, outputs, true)?;
        for (port, out) in lir.outputs.iter().zip(outputs.iter_mut()) {
            let from = self.frame.ptrs[port.buffer.index()].get().cast_const();
            if from != out.bytes.as_ptr() {
                // SAFETY: the buffer holds as many bytes as the output has, which was checked.
                unsafe { std::ptr::copy(from, out.bytes.as_mut_ptr(), out.bytes.len()) };
                self.counters.moved.fetch_add(out.bytes.len() as u64, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn prepare_for(&mut self, binding: &DimBinding) -> Result<(), RunError> {
        let shared = self.shared.clone();
        let region = shared.region();
        let shapes = shared.input_shapes(binding)?;
        self.within_limit(None)?;
        let set = self.param_set(&region)?;
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        let env = shared.env(&region, &self.counters, true);
        let (main, mut sizes) = (&shared.main, Vec::new());
        let held = main.segments.solver.bound_sizes(&main.lir, &self.frame.states, binding, &mut sizes);
        let bound = bind_first(main, &shapes, Some(&set), &held, &[], &env)?;
        drop(held);
        self.within_limit(Some(&bound))?;
        self.frame.place(&shared.main, &bound, shared.align, false, false, &[])
    }

    fn state(&self, index: usize) -> Result<Tensor, RunError> {
        let info = self.state_port(index)?;
        let port = &self.shared.main.lir.states[index];
        if let Some(t) = self.frame.states[index].value(info.ty.dtype, port.grows_in_place())? {
            return Ok(t);
        }
        port.init.clone().map_or_else(|| info.fresh(&DimBinding::new()), Ok)
    }

    fn set_state(&mut self, index: usize, value: Option<Tensor>) -> Result<(), RunError> {
        let port = self.state_port(index)?.clone();
        let Some(t) = value else {
            self.frame.states[index] = State::default();
            return Ok(());
        };
        if t.dtype() != port.ty.dtype {
            let (expected, got) = (port.ty.dtype, t.dtype());
            let name = port.name.to_string();
            return Err(RunError::Inputs(vec![InputProblem::DType { kind: "state", name, expected, got }]));
        }
        let fits = |(d, &n): (&rlx_ir::Dim, &usize)| d.as_const().is_none_or(|c| usize::try_from(c) == Ok(n));
        if t.dims().len() != port.ty.shape.rank() || !port.ty.shape.iter().zip(t.dims()).all(fits) {
            return Err(RunError::Inputs(vec![InputProblem::Shape {
                kind: "state",
                name: port.name.to_string(),
                expected: port.ty.to_string(),
                got: t.dims().to_vec(),
                why: String::new(),
            }]));
        }
        let outer = self.shared.main.lir.states[index].grows_in_place();
        self.frame.states[index] = State::of(&t, outer)?;
        Ok(())
    }

    fn clone_box(&self) -> Box<dyn ExecutableGraph> {
        let mut frame = Frame::new(&self.shared.main);
        let ports = &self.shared.signature.states;
        for ((to, from), port) in frame.states.iter_mut().zip(&self.frame.states).zip(ports) {
            // Without memory for it the clone begins anew.
            *to = from.copied(port.ty.dtype).unwrap_or_default();
        }
        Box::new(CpuExecutable {
            shared: self.shared.clone(),
            params: self.params.clone(),
            prepared: Mutex::new(lock(&self.prepared).clone()),
            stored: Mutex::new(lock(&self.stored).clone()),
            set: Mutex::new(lock(&self.set).clone()),
            before: self.before.clone(),
            frame,
            counters: Counters::default(),
        })
    }

    fn stats(&self) -> ExecStats {
        let c = &self.counters;
        let get = |x: &AtomicU64| x.load(Ordering::Relaxed);
        let prepared: usize = lock(&self.prepared).as_ref().map_or(0, |p| p.iter().map(|t| t.bytes().len()).sum());
        let (packed, stored) = lock(&self.set).as_ref().map_or((0, 0), |s| s.packed_bytes());
        let (entries, bytes) = {
            let cache = lock(&self.shared.main.cache);
            (cache.len() as u64, cache.bytes() as u64)
        };
        ExecStats {
            binds: get(&c.binds),
            bind_hits: get(&c.hits),
            bind_evictions: get(&c.evictions),
            bind_entries: entries,
            bind_bytes: bytes,
            prepares: get(&c.prepares),
            runs: get(&c.runs),
            bytes_moved: get(&c.moved),
            kernels: get(&c.kernels),
            arena_bytes: get(&c.arena),
            prepared_bytes: (prepared + packed) as u64,
            stored_bytes: stored as u64,
            last_bind: Duration::from_nanos(get(&c.bind_time)),
        }
    }

    fn profile(&mut self, inputs: &[TensorRef<'_>]) -> Result<Vec<KernelProfile>, RunError> {
        let shared = self.shared.clone();
        let profiler = RefCell::new(Profiler::start());
        self.run_own(&shared, inputs, &shared.all_outputs, Outputs::default(), Some(&profiler))?;
        Ok(profiler.into_inner().kernels)
    }

    fn misses(&self) -> Vec<BindMiss> {
        lock(&self.counters.misses).iter().cloned().collect()
    }

    fn snapshot(&mut self) -> Result<Snapshot, RunError> {
        self.store()
    }

    fn memory(&self, binding: &DimBinding) -> Result<MemoryReport, RunError> {
        let shared = &*self.shared;
        let shapes = shared.input_shapes(binding)?;
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        // Planned as a run would, but neither kept nor counted; no parameter needs to be set.
        let states = &self.frame.states;
        let first = memory::plan(&shared.parts(), &shapes, states, binding, shared.align)?;
        Ok(memory::report(&shared.parts(), &self.params, states, Some(&first)))
    }
}

impl CpuExecutable {
    /// Functions in machine code that scalar programs have become so far (see [`crate::jit`]).
    pub fn functions(&self) -> usize {
        let shared = &self.shared;
        shared.main.functions() + shared.prepare.as_ref().map_or(0, Program::functions)
    }

    fn state_port(&self, index: usize) -> Result<&PortInfo, RunError> {
        let states = &self.shared.signature.states;
        states.get(index).ok_or_else(|| {
            let known = states.iter().map(|p| p.name.to_string()).collect();
            RunError::Inputs(vec![InputProblem::Unknown { kind: "state", name: format!("number {index}"), known }])
        })
    }
}

/// Checks the caller's outputs against sizes that are known; after the run all are.
fn check_outputs(shared: &Shared, bound: &BoundSegment, outputs: &[TensorMut<'_>], all: bool) -> Result<(), RunError> {
    let lir = &shared.main.lir;
    let mut problems = Vec::new();
    for (port, out) in lir.outputs.iter().zip(outputs) {
        let (b, name) = (port.buffer.index(), || port.name.to_string());
        let dtype = lir.buffers[b].dtype;
        let Some(dims) = bound.shape(&shared.main, b) else {
            if all {
                problems.push(InputProblem::Binding(format!("output `{}` has no size", port.name)));
            }
            continue;
        };
        if out.dtype != dtype {
            problems.push(InputProblem::DType { kind: "output", name: name(), expected: dtype, got: out.dtype });
            continue;
        }
        if out.dims != dims.as_slice() {
            let (expected, got) = (format!("{dtype}{:?}", dims.as_slice()), out.dims.to_vec());
            problems.push(InputProblem::Shape { kind: "output", name: name(), expected, got, why: String::new() });
            continue;
        }
        let expected = output_bytes(&shared.main, bound, b)?;
        if out.bytes.len() != expected {
            problems.push(InputProblem::Length { kind: "output", name: name(), expected, got: out.bytes.len() });
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(RunError::Inputs(problems)) }
}
