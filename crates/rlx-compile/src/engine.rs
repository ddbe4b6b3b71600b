//! The short way to write a backend: an [`Engine`] says how a program is prepared and run, [`EngineExecutable`] makes an
//! [`ExecutableGraph`] of it. Checks of a call, symbols, parameters, when to prepare, states, clones and counters are the same for every
//! such backend and stand here once. A backend that keeps results in memory of its own implements [`ExecutableGraph`] itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rlx_ir::dim::{Bounds, ConstraintRecord, Equation, solve, unsolved};
use rlx_ir::graph::State;
use rlx_ir::tensor::checked_numel;
use rlx_ir::{DType, Dim, DimBinding, Graph, Shape, Tensor, TensorType};

use crate::error::{InputProblem, RunError};
use crate::lir::{Lir, StatePort};
use crate::target::{
    BorrowedTensor, BorrowedTensors, ExecStats, ExecutableGraph, KernelProfile, PortInfo, Signature, TargetModule,
    TensorMut, TensorRef,
};

/// What one run works on. Everything was checked against the signature.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Inputs of main, in order.
    pub inputs: &'a [Tensor],
    /// Parameters of main, in order: set, default or prepared.
    pub params: &'a [Tensor],
    /// Present values of the states, in order.
    pub states: &'a [Tensor],
    /// Sizes of the symbols of inputs, parameters and states.
    pub binding: &'a DimBinding,
    /// Which outputs are wanted; others need not be computed.
    pub read: &'a [usize],
}

/// What one run gave.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// The outputs that were read, in the order of [`Call::read`].
    pub outputs: Vec<Tensor>,
    /// The states' next values, in order.
    pub states: Vec<Tensor>,
    /// How many kernels (of a graph: nodes) ran.
    pub kernels: u64,
}

/// A compiled program without a context: what it computes, and nothing else.
pub trait Engine: Send + Sync + 'static {
    /// Runs the prepare program on its parameters (in its order) and gives its outputs. Not called if there is none.
    fn prepare(&self, params: &[Tensor], binding: &DimBinding) -> Result<Vec<Tensor>, RunError>;

    /// Runs the main program.
    fn run(&self, call: Call<'_>) -> Result<Done, RunError>;
}

/// Where a parameter of main comes from.
#[derive(Clone, Copy, Debug)]
enum Origin {
    /// A parameter of the signature.
    Param(usize),
    /// An output of prepare.
    Prepared(usize),
}

/// One program's boundary, whichever stage it is at.
struct Boundary {
    signature: Signature,
    defaults: Vec<Option<Tensor>>,
    inits: Vec<Option<Tensor>>,
    constraints: Vec<ConstraintRecord>,
    bounds: Bounds,
}

struct Shared<E> {
    engine: E,
    signature: Signature,
    inits: Vec<Option<Tensor>>,
    prepare_params: Option<Vec<usize>>,
    main_params: Vec<Origin>,
    constraints: Vec<ConstraintRecord>,
    bounds: Bounds,
}

#[derive(Default)]
struct Counters {
    prepares: AtomicU64,
    kernels: AtomicU64,
    runs: AtomicU64,
}

/// An engine with its parameters and a context of its own.
pub struct EngineExecutable<E: Engine> {
    shared: Arc<Shared<E>>,
    params: Vec<Option<Tensor>>,
    /// Outputs of prepare, while they are those of the present parameters.
    prepared: Mutex<Option<Arc<Vec<Tensor>>>>,
    /// Parameters of main, while they are those of the present parameters.
    ready: Mutex<Option<Arc<Vec<Tensor>>>>,
    states: Vec<Option<Tensor>>,
    /// Results of the latest borrowed run.
    held: Vec<Tensor>,
    counters: Counters,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<E: Engine> EngineExecutable<E> {
    /// An executable of the module that the engine was made from, with its defaults.
    pub fn new(target: &TargetModule, engine: E) -> Self {
        let (prepare, main) = match target {
            TargetModule::Mir { prepare, main } => (prepare.as_ref().map(|m| of_graph(&m.main)), of_graph(&main.main)),
            TargetModule::Lir(m) => (m.prepare.as_ref().map(of_lir), of_lir(&m.main)),
        };
        let mut signature = Signature { params: Vec::new(), ..main.signature };
        let mut defaults = Vec::new();
        let mut add = |port: &PortInfo, default: &Option<Tensor>| {
            signature.params.iter().position(|q| q.name == port.name).unwrap_or_else(|| {
                signature.params.push(port.clone());
                defaults.push(default.clone());
                signature.params.len() - 1
            })
        };
        let prepare_params = prepare
            .as_ref()
            .map(|p| p.signature.params.iter().zip(&p.defaults).map(|(port, d)| add(port, d)).collect::<Vec<usize>>());
        let prepared = prepare.as_ref().map_or(&[][..], |p| &p.signature.outputs);
        let main_params = main
            .signature
            .params
            .iter()
            .zip(&main.defaults)
            .map(|(port, d)| match prepared.iter().position(|o| o.name == port.name) {
                Some(i) => Origin::Prepared(i),
                None => Origin::Param(add(port, d)),
            })
            .collect();
        let states = vec![None; main.inits.len()];
        let shared = Shared {
            engine,
            signature,
            inits: main.inits,
            prepare_params,
            main_params,
            constraints: main.constraints,
            bounds: main.bounds,
        };
        EngineExecutable {
            shared: Arc::new(shared),
            params: defaults,
            prepared: Mutex::new(None),
            ready: Mutex::new(None),
            states,
            held: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Parameters of main, prepared if need be.
    fn ready(&self) -> Result<Arc<Vec<Tensor>>, RunError> {
        let shared = &*self.shared;
        let mut slot = lock(&self.ready);
        if let Some(p) = &*slot {
            return Ok(p.clone());
        }
        let absent: Vec<InputProblem> = self
            .params
            .iter()
            .zip(&shared.signature.params)
            .filter(|(p, _)| p.is_none())
            .map(|(_, p)| missing("parameter", p))
            .collect();
        if !absent.is_empty() {
            return Err(RunError::Inputs(absent));
        }
        let prepared = self.prepared()?;
        let all: Option<Vec<Tensor>> = shared
            .main_params
            .iter()
            .map(|o| match *o {
                Origin::Param(i) => self.params.get(i).cloned().flatten(),
                Origin::Prepared(i) => prepared.get(i).cloned(),
            })
            .collect();
        let all = all.ok_or_else(|| RunError::Kernel {
            kernel: "prepare".into(),
            loc: String::new(),
            message: "the engine gave fewer outputs than its prepare program has".into(),
        })?;
        let all = Arc::new(all);
        *slot = Some(all.clone());
        Ok(all)
    }

    /// Outputs of prepare, which runs unless they are there. All parameters are.
    fn prepared(&self) -> Result<Arc<Vec<Tensor>>, RunError> {
        let shared = &*self.shared;
        let Some(indices) = &shared.prepare_params else { return Ok(Arc::default()) };
        let mut slot = lock(&self.prepared);
        if let Some(p) = &*slot {
            return Ok(p.clone());
        }
        let given: Vec<Tensor> = indices.iter().filter_map(|&i| self.params.get(i)?.clone()).collect();
        let mut equations = Vec::new();
        for (port, t) in indices.iter().filter_map(|&i| shared.signature.params.get(i)).zip(&given) {
            equate(&mut equations, "parameter", port, t.dims());
        }
        let binding = solved(&equations, &shared.bounds)?;
        self.counters.prepares.fetch_add(1, Ordering::Relaxed);
        let made = Arc::new(shared.engine.prepare(&given, &binding)?);
        *slot = Some(made.clone());
        Ok(made)
    }

    /// A state's value, if it has been set, a run has left one, or it has one from the start.
    fn held(&self, i: usize) -> Option<Tensor> {
        let set = self.states.get(i).cloned().flatten();
        set.or_else(|| self.shared.inits.get(i).cloned().flatten())
    }

    fn present(&self, i: usize) -> Result<Tensor, RunError> {
        let port = self.state_port(i)?;
        self.held(i).map_or_else(|| port.fresh(&DimBinding::new()), Ok)
    }

    fn state_port(&self, i: usize) -> Result<&PortInfo, RunError> {
        let states = &self.shared.signature.states;
        states.get(i).ok_or_else(|| no_such("state", i, states))
    }

    /// One run: its results and the states after it.
    fn call(&self, inputs: &[TensorRef<'_>], read: Option<&[usize]>) -> Result<Done, RunError> {
        let shared = &*self.shared;
        let s = &shared.signature;
        let read: Vec<usize> = match read {
            Some(r) => r.to_vec(),
            None => (0..s.outputs.len()).collect(),
        };
        let mut problems: Vec<InputProblem> =
            read.iter().filter(|&&i| i >= s.outputs.len()).map(|&i| unknown("output", i, &s.outputs)).collect();
        let mut tensors = Vec::with_capacity(inputs.len());
        for (port, given) in s.inputs.iter().zip(inputs) {
            match taken("input", port, given) {
                Ok(t) => tensors.push(t),
                Err(p) => problems.push(p),
            }
        }
        problems.extend(s.inputs.iter().skip(inputs.len()).map(|p| missing("input", p)));
        if inputs.len() > s.inputs.len() {
            problems.push(unknown("input", s.inputs.len(), &s.inputs));
        }
        // Inputs and parameters are checked together, so that one error lists what is wrong with both.
        let params = match (self.ready(), problems.is_empty()) {
            (Ok(p), true) => p,
            (Err(RunError::Inputs(more)), _) => {
                problems.extend(more);
                return Err(RunError::Inputs(problems));
            }
            (Err(e), true) => return Err(e),
            (_, false) => return Err(RunError::Inputs(problems)),
        };
        let mut equations = Vec::new();
        s.inputs.iter().zip(&tensors).for_each(|(p, t)| equate(&mut equations, "input", p, t.dims()));
        for (p, t) in s.params.iter().zip(&self.params) {
            t.iter().for_each(|t| equate(&mut equations, "parameter", p, t.dims()));
        }
        for (i, p) in s.states.iter().enumerate() {
            match self.held(i) {
                Some(t) => equate(&mut equations, "state", p, t.dims()),
                None => equations.extend(p.begins()),
            }
        }
        let binding = solved(&equations, &shared.bounds)?;
        check_constraints(&shared.constraints, &binding)?;
        let value = |(i, p): (usize, &PortInfo)| self.held(i).map_or_else(|| p.fresh(&binding), Ok);
        let states = s.states.iter().enumerate().map(value).collect::<Result<Vec<_>, _>>()?;
        let call = Call { inputs: &tensors, params: &params, states: &states, binding: &binding, read: &read };
        let done = shared.engine.run(call)?;
        if done.outputs.len() != read.len() || done.states.len() != states.len() {
            return Err(RunError::Kernel {
                kernel: "engine".into(),
                loc: String::new(),
                message: format!(
                    "it gave {} outputs and {} states, {} and {} were asked for",
                    done.outputs.len(),
                    done.states.len(),
                    read.len(),
                    states.len()
                ),
            });
        }
        self.counters.runs.fetch_add(1, Ordering::Relaxed);
        self.counters.kernels.fetch_add(done.kernels, Ordering::Relaxed);
        Ok(done)
    }

    /// A run in the executable's own context.
    fn call_own(&mut self, inputs: &[TensorRef<'_>], read: Option<&[usize]>) -> Result<Vec<Tensor>, RunError> {
        let done = self.call(inputs, read)?;
        self.states = done.states.into_iter().map(Some).collect();
        Ok(done.outputs)
    }
}

impl<E: Engine> ExecutableGraph for EngineExecutable<E> {
    fn signature(&self) -> &Signature {
        &self.shared.signature
    }

    fn set_param(&mut self, index: usize, value: Tensor) -> Result<(), RunError> {
        let params = &self.shared.signature.params;
        let port = params.get(index).ok_or_else(|| no_such("parameter", index, params))?;
        check_port("parameter", port, value.dtype(), value.dims()).map_err(|p| RunError::Inputs(vec![p]))?;
        *lock(&self.ready) = None;
        if self.shared.prepare_params.as_ref().is_some_and(|p| p.contains(&index)) {
            *lock(&self.prepared) = None;
        }
        if let Some(slot) = self.params.get_mut(index) {
            *slot = Some(value);
        }
        Ok(())
    }

    fn finalize_params(&mut self) -> Result<(), RunError> {
        self.ready().map(|_| ())
    }

    fn run(&self, inputs: &[TensorRef<'_>], read: Option<&[usize]>) -> Result<Vec<Tensor>, RunError> {
        if !self.shared.signature.states.is_empty() {
            let why = "a program with state runs in its own context: use `run_borrowed`";
            return Err(RunError::Unsupported(why.into()));
        }
        self.call(inputs, read).map(|d| d.outputs)
    }

    fn run_borrowed<'a>(
        &'a mut self,
        inputs: &[TensorRef<'_>],
        read: Option<&[usize]>,
    ) -> Result<BorrowedTensors<'a>, RunError> {
        self.held = self.call_own(inputs, read)?;
        let borrow = |t: &'a Tensor| BorrowedTensor { dtype: t.dtype(), dims: t.dims(), bytes: t.bytes() };
        Ok(self.held.iter().map(borrow).collect())
    }

    fn run_into(&mut self, inputs: &[TensorRef<'_>], outputs: &mut [TensorMut<'_>]) -> Result<(), RunError> {
        let ports = self.shared.signature.outputs.clone();
        if outputs.len() != ports.len() {
            let name = format!("{} of {}", outputs.len(), ports.len());
            let known = ports.iter().map(|p| p.name.to_string()).collect();
            return Err(RunError::Inputs(vec![InputProblem::Unknown { kind: "output", name, known }]));
        }
        let results = self.call_own(inputs, None)?;
        let mut problems = Vec::new();
        for ((port, t), out) in ports.iter().zip(&results).zip(outputs.iter()) {
            let name = port.name.to_string();
            if out.dtype != t.dtype() {
                problems.push(InputProblem::DType { kind: "output", name, expected: t.dtype(), got: out.dtype });
            } else if out.dims != t.dims() {
                let expected = format!("{}{:?}", t.dtype(), t.dims());
                let got = out.dims.to_vec();
                problems.push(InputProblem::Shape { kind: "output", name, expected, got, why: String::new() });
            } else if out.bytes.len() != t.bytes().len() {
                let (expected, got) = (t.bytes().len(), out.bytes.len());
                problems.push(InputProblem::Length { kind: "output", name, expected, got });
            }
        }
        if !problems.is_empty() {
            return Err(RunError::Inputs(problems));
        }
        results.iter().zip(outputs).for_each(|(t, out)| out.bytes.copy_from_slice(t.bytes()));
        Ok(())
    }

    /// Prepares parameters; an engine has no memory to lay out ahead.
    fn prepare_for(&mut self, binding: &DimBinding) -> Result<(), RunError> {
        let sizes = |p: &PortInfo| match p.ty.shape.eval(binding) {
            Ok(_) => None,
            Err(e) => Some(InputProblem::Binding(format!("input `{}`: {e}", p.name))),
        };
        let problems: Vec<InputProblem> = self.shared.signature.inputs.iter().filter_map(sizes).collect();
        if !problems.is_empty() {
            return Err(RunError::Inputs(problems));
        }
        check_constraints(&self.shared.constraints, binding)?;
        self.ready().map(|_| ())
    }

    fn state(&self, index: usize) -> Result<Tensor, RunError> {
        self.present(index)
    }

    fn set_state(&mut self, index: usize, value: Option<Tensor>) -> Result<(), RunError> {
        let port = self.state_port(index)?;
        if let Some(t) = &value {
            check_port("state", port, t.dtype(), t.dims()).map_err(|p| RunError::Inputs(vec![p]))?;
        }
        if let Some(slot) = self.states.get_mut(index) {
            *slot = value;
        }
        Ok(())
    }

    fn clone_box(&self) -> Box<dyn ExecutableGraph> {
        Box::new(EngineExecutable {
            shared: self.shared.clone(),
            params: self.params.clone(),
            prepared: Mutex::new(lock(&self.prepared).clone()),
            ready: Mutex::new(lock(&self.ready).clone()),
            states: self.states.clone(),
            held: Vec::new(),
            counters: Counters::default(),
        })
    }

    fn stats(&self) -> ExecStats {
        let get = |x: &AtomicU64| x.load(Ordering::Relaxed);
        let prepared: usize = lock(&self.prepared).as_ref().map_or(0, |all| all.iter().map(|t| t.bytes().len()).sum());
        // Sizes are solved anew in each run: an engine has nothing that a binding could be kept for.
        let runs = get(&self.counters.runs);
        ExecStats {
            binds: runs,
            runs,
            prepares: get(&self.counters.prepares),
            kernels: get(&self.counters.kernels),
            prepared_bytes: prepared as u64,
            ..ExecStats::default()
        }
    }

    /// One entry for the whole run: an engine does not say what its kernels take.
    fn profile(&mut self, inputs: &[TensorRef<'_>]) -> Result<Vec<KernelProfile>, RunError> {
        self.finalize_params()?;
        let start = Instant::now();
        let results = self.call_own(inputs, None)?;
        let time = start.elapsed();
        let read: usize = inputs.iter().map(|t| t.bytes.len()).sum();
        let written: usize = results.iter().map(|t| t.bytes().len()).sum();
        Ok(vec![KernelProfile {
            kind: "program".into(),
            loc: "".into(),
            start: Duration::ZERO,
            time,
            own: time,
            bytes: (read + written) as u64,
            ops: 0,
        }])
    }
}

impl PortInfo {
    /// What a state that grows says of its size before it has a value: its length on that axis is 0.
    pub fn begins(&self) -> Option<Equation> {
        let dim = self.ty.shape.get(self.grows?)?.clone();
        Some(Equation::new(dim, 0, format!("state `{}`, which is new", self.name)))
    }

    /// A state's value before it has one: zeros, of length 0 on the axis on which it grows. An error if its other sizes do not follow from
    /// the binding.
    pub fn fresh(&self, binding: &DimBinding) -> Result<Tensor, RunError> {
        let size = |(axis, d): (usize, &Dim)| match self.grows == Some(axis) {
            true => Some(0),
            false => d.eval(binding).ok().and_then(|n| usize::try_from(n).ok()),
        };
        match self.ty.shape.iter().enumerate().map(size).collect::<Option<Vec<usize>>>() {
            Some(dims) => Tensor::zeros(self.ty.dtype, &dims).map_err(|e| RunError::Memory(e.to_string())),
            None => {
                let why =
                    format!("state `{}` is {}, which has no size before the first run; set it", self.name, self.ty);
                Err(RunError::Unsupported(why))
            }
        }
    }
}

impl Signature {
    /// The boundary of a graph whose inputs and outputs are tensors.
    pub fn of_graph(g: &Graph) -> Signature {
        let port = |name: Arc<str>, v, has_default| {
            let ty = g.tensor_type(v).cloned().unwrap_or_else(|| TensorType::new(DType::Str, Shape::scalar()));
            PortInfo { name, ty, has_default, grows: None }
        };
        let state = |s: &State| PortInfo { grows: s.grows, ..port(s.name.clone(), s.value, s.init.is_some()) };
        Signature {
            inputs: g.inputs().iter().map(|&v| port(g.value(v).name.clone().unwrap_or_default(), v, false)).collect(),
            params: g.params().iter().map(|p| port(p.name.clone(), p.value, p.default.is_some())).collect(),
            outputs: g.outputs().iter().map(|o| port(o.name.clone(), o.value, false)).collect(),
            states: g.states().iter().map(state).collect(),
        }
    }

    /// The boundary of a lowered program.
    pub fn of_lir(l: &Lir) -> Signature {
        let port = |name: &Arc<str>, buffer, has_default| {
            let b = l.buffer(buffer);
            let shape: Shape = b.shape.iter().map(|&d| l.dims.get(d).clone()).collect();
            PortInfo { name: name.clone(), ty: TensorType::new(b.dtype, shape), has_default, grows: None }
        };
        // A state that grows in place has a buffer of the sizes after the run.
        let state = |s: &StatePort| {
            let shape: Shape = s.shape.iter().map(|&d| l.dims.get(d).clone()).collect();
            let ty = TensorType::new(l.buffer(s.buffer).dtype, shape);
            PortInfo { name: s.name.clone(), ty, has_default: s.init.is_some(), grows: s.grows.map(|a| a as usize) }
        };
        Signature {
            inputs: l.inputs.iter().map(|p| port(&p.name, p.buffer, false)).collect(),
            params: l.params.iter().map(|p| port(&p.name, p.buffer, p.default.is_some())).collect(),
            outputs: l.outputs.iter().map(|p| port(&p.name, p.buffer, false)).collect(),
            states: l.states.iter().map(state).collect(),
        }
    }
}

fn of_graph(g: &Graph) -> Boundary {
    Boundary {
        signature: Signature::of_graph(g),
        defaults: g.params().iter().map(|p| p.default.clone()).collect(),
        inits: g.states().iter().map(|s| s.init.clone()).collect(),
        constraints: g.constraints().to_vec(),
        bounds: g.bounds().clone(),
    }
}

fn of_lir(l: &Lir) -> Boundary {
    Boundary {
        signature: Signature::of_lir(l),
        defaults: l.params.iter().map(|p| p.default.clone()).collect(),
        inits: l.states.iter().map(|s| s.init.clone()).collect(),
        constraints: l.constraints.clone(),
        bounds: l.bounds.clone(),
    }
}

fn names(ports: &[PortInfo]) -> Vec<String> {
    ports.iter().map(|p| p.name.to_string()).collect()
}

fn unknown(kind: &'static str, index: usize, ports: &[PortInfo]) -> InputProblem {
    InputProblem::Unknown { kind, name: format!("number {index}"), known: names(ports) }
}

fn no_such(kind: &'static str, index: usize, ports: &[PortInfo]) -> RunError {
    RunError::Inputs(vec![unknown(kind, index, ports)])
}

fn missing(kind: &'static str, p: &PortInfo) -> InputProblem {
    InputProblem::Missing { kind, name: p.name.to_string(), expected: p.ty.to_string() }
}

/// What is wrong with a tensor's dtype and shape for a port, symbols left open.
fn check_port(kind: &'static str, port: &PortInfo, dtype: DType, dims: &[usize]) -> Result<(), InputProblem> {
    let name = port.name.to_string();
    if dtype != port.ty.dtype {
        return Err(InputProblem::DType { kind, name, expected: port.ty.dtype, got: dtype });
    }
    let fits = |(d, &n): (&Dim, &usize)| d.as_const().is_none_or(|c| usize::try_from(c) == Ok(n));
    if dims.len() != port.ty.shape.rank() || !port.ty.shape.iter().zip(dims).all(fits) {
        let (expected, got) = (port.ty.to_string(), dims.to_vec());
        return Err(InputProblem::Shape { kind, name, expected, got, why: String::new() });
    }
    Ok(())
}

/// A caller's tensor as our own.
fn taken(kind: &'static str, port: &PortInfo, t: &TensorRef<'_>) -> Result<Tensor, InputProblem> {
    check_port(kind, port, t.dtype, t.dims)?;
    let expected = checked_numel(t.dims).ok().and_then(|n| t.dtype.bytes_for(n)).unwrap_or(usize::MAX);
    let wrong = || InputProblem::Length { kind, name: port.name.to_string(), expected, got: t.bytes.len() };
    if expected != t.bytes.len() {
        return Err(wrong());
    }
    Tensor::from_bytes(t.dtype, t.dims, t.bytes).map_err(|_| wrong())
}

/// Says that a port's dims are these sizes.
fn equate(equations: &mut Vec<Equation>, kind: &str, port: &PortInfo, dims: &[usize]) {
    for (axis, (d, &n)) in port.ty.shape.iter().zip(dims).enumerate() {
        let n = i64::try_from(n).unwrap_or(i64::MAX);
        equations.push(Equation::new(d.clone(), n, format!("{kind} `{}` axis {axis}", port.name)));
    }
}

/// Symbols from observed sizes; all that is wrong with them at once.
fn solved(equations: &[Equation], bounds: &Bounds) -> Result<DimBinding, RunError> {
    solve(equations, &DimBinding::new(), bounds)
        .map_err(|errors| RunError::Inputs(errors.iter().map(|e| InputProblem::Binding(e.to_string())).collect()))
}

/// Checks those constraints whose symbols are all bound; data that a run computes may define the others.
fn check_constraints(records: &[ConstraintRecord], binding: &DimBinding) -> Result<(), RunError> {
    let problems: Vec<InputProblem> = records
        .iter()
        .filter(|r| {
            let (a, b) = r.constraint.dims();
            unsolved(&[a.clone(), b.clone()], binding).is_empty()
        })
        .filter_map(|r| r.check(binding).err())
        .map(|e| InputProblem::Binding(e.to_string()))
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(RunError::Inputs(problems)) }
}
