//! Dynamic shapes on backends that take static ones: a program per binding, compiled through the same pipeline when a call first has its
//! sizes, kept in a bounded cache. Parameters are held once; states go from program to program.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rlx_compile::CompileOptions;
use rlx_compile::error::{InputProblem, RunError};
use rlx_compile::target::{
    Backend, BindMiss, BorrowedTensors, Claims, ExecStats, ExecutableGraph, KernelProfile, MemoryReport, MissReason,
    PortInfo, Signature, TensorMut, TensorRef,
};
use rlx_driver::Device;
use rlx_ir::dim::{Equation, solve, unsolved};
use rlx_ir::{Dim, DimBinding, Graph, IrError, Module, Symbol, Tensor};

/// How many misses, and how many bindings that went, are remembered.
const REMEMBERED: usize = 64;

/// What all clones share.
struct Shared {
    backend: Arc<dyn Backend>,
    device: Device,
    claims: Claims,
    module: Module,
    options: CompileOptions,
    signature: Signature,
    symbols: Vec<Symbol>,
}

/// One program of fixed sizes.
struct Entry {
    key: Vec<i64>,
    exec: Arc<dyn ExecutableGraph>,
}

#[derive(Default)]
struct Cache {
    /// The latest used last.
    entries: Vec<Entry>,
    gone: VecDeque<(Vec<i64>, MissReason)>,
    misses: VecDeque<BindMiss>,
    stats: ExecStats,
}

/// Programs of one module, by binding.
pub(crate) struct Specialised {
    shared: Arc<Shared>,
    params: Vec<Option<Tensor>>,
    /// States as they were set or last seen; `None` where they are still as declared.
    states: Vec<Option<Tensor>>,
    /// The program that has the present states.
    current: Option<Vec<i64>>,
    cache: Mutex<Cache>,
}

/// The boundary of a graph, less the parameters that options fix.
fn signature(g: &Graph, options: &CompileOptions) -> Result<Signature, IrError> {
    let params = g.params().iter().map(|p| p.value);
    let ends = g.outputs().iter().map(|o| o.value).chain(g.states().iter().map(|s| s.value));
    if let Some(v) = g.inputs().iter().copied().chain(params).chain(ends).find(|&v| g.tensor_type(v).is_none()) {
        let name = g.value(v).name.clone().unwrap_or_default();
        return Err(IrError::Eval(format!("`{name}` is no tensor")));
    }
    let mut signature = Signature::of_graph(g);
    signature.params.retain(|p| !options.param_bindings.contains_key(&*p.name));
    Ok(signature)
}

impl Specialised {
    pub fn new(
        backend: Arc<dyn Backend>,
        device: Device,
        claims: Claims,
        module: Module,
        options: CompileOptions,
    ) -> Result<Self, IrError> {
        let signature = signature(&module.main, &options)?;
        let symbols = module.main.input_symbols().into_iter().collect();
        let (params, states) = (signature.params.iter().map(|_| None).collect(), vec![None; signature.states.len()]);
        let shared = Shared { backend, device, claims, module, options, signature, symbols };
        Ok(Specialised { shared: Arc::new(shared), params, states, current: None, cache: Mutex::default() })
    }

    /// Values of all symbols from the sizes of inputs, and of those parameters and states that are set.
    fn solve(&self, inputs: &[TensorRef<'_>]) -> Result<Vec<i64>, RunError> {
        let sig = &self.shared.signature;
        let mut problems = Vec::new();
        let mut equations = Vec::new();
        let mut port = |kind: &'static str, p: &PortInfo, dims: &[usize]| {
            if p.ty.shape.rank() != dims.len() {
                let (name, expected) = (p.name.to_string(), p.ty.to_string());
                let why = format!("it must have {} axes", p.ty.shape.rank());
                problems.push(InputProblem::Shape { kind, name, expected, got: dims.to_vec(), why });
                return;
            }
            for (axis, (d, &n)) in p.ty.shape.iter().zip(dims).enumerate() {
                let n = i64::try_from(n).unwrap_or(i64::MAX);
                equations.push(Equation::new(d.clone(), n, format!("{kind} `{}` axis {axis}", p.name)));
            }
        };
        sig.inputs.iter().zip(inputs).for_each(|(p, t)| port("input", p, t.dims));
        let set = |list: &[Option<Tensor>], i: usize| list.get(i).cloned().flatten();
        for (i, p) in sig.params.iter().enumerate() {
            let default = || self.shared.module.main.params().iter().find(|q| q.name == p.name)?.default.clone();
            if let Some(t) = set(&self.params, i).or_else(default) {
                port("parameter", p, t.dims());
            }
        }
        let mut fresh = Vec::new();
        for (i, p) in sig.states.iter().enumerate() {
            // One of fixed sizes is asked for only where a caller has set it.
            let held = if p.ty.shape.has_dynamic_dims() { self.held(i)? } else { set(&self.states, i) };
            match held {
                Some(t) => port("state", p, t.dims()),
                None => fresh.extend(p.begins()),
            }
        }
        equations.extend(fresh);
        self.close(&equations, self.shared.options.dim_bindings.clone(), problems)
    }

    /// A state's value, if a run has left one, it has been set, or it has one from the start.
    fn held(&self, index: usize) -> Result<Option<Tensor>, RunError> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(e) = self.current.as_ref().and_then(|k| cache.entries.iter().find(|e| e.key == *k)) {
            return e.exec.state(index).map(Some);
        }
        let set = self.states.get(index).cloned().flatten();
        Ok(set.or_else(|| self.shared.module.main.states().get(index)?.init.clone()))
    }

    /// Values of all symbols from equations and a binding.
    fn close(
        &self,
        equations: &[Equation],
        given: DimBinding,
        mut problems: Vec<InputProblem>,
    ) -> Result<Vec<i64>, RunError> {
        let binding = match solve(equations, &given, self.shared.module.main.bounds()) {
            Ok(b) => b,
            Err(errors) => {
                problems.extend(errors.iter().map(|e| InputProblem::Binding(e.to_string())));
                return Err(RunError::Inputs(problems));
            }
        };
        let dims: Vec<Dim> = self.shared.symbols.iter().map(|s| Dim::symbol(s.clone())).collect();
        for s in unsolved(&dims, &binding) {
            let why = format!("no input's shape determines symbol `{s}`; bind it explicitly when compiling");
            problems.push(InputProblem::Binding(why));
        }
        if problems.is_empty() {
            Ok(self.shared.symbols.iter().map(|s| binding.get(s).unwrap_or(0)).collect())
        } else {
            Err(RunError::Inputs(problems))
        }
    }

    fn check_count(&self, inputs: &[TensorRef<'_>]) -> Result<(), RunError> {
        let ports = &self.shared.signature.inputs;
        let missing = ports.iter().skip(inputs.len()).map(|p| InputProblem::Missing {
            kind: "input",
            name: p.name.to_string(),
            expected: p.ty.to_string(),
        });
        let mut problems: Vec<InputProblem> = missing.collect();
        if inputs.len() > ports.len() {
            let known = ports.iter().map(|p| p.name.to_string()).collect();
            problems.push(InputProblem::Unknown { kind: "input", name: format!("number {}", ports.len()), known });
        }
        if problems.is_empty() { Ok(()) } else { Err(RunError::Inputs(problems)) }
    }

    /// Compiles for one binding and sets what is set.
    fn compile(&self, key: &[i64]) -> Result<Arc<dyn ExecutableGraph>, RunError> {
        let s = &*self.shared;
        let failed = |e: rlx_compile::CompileError| RunError::Unsupported(format!("compiling for these sizes: {e}"));
        let options =
            s.symbols.iter().zip(key).fold(s.options.clone(), |o, (symbol, &n)| o.bind_dim(symbol.clone(), n));
        let compiled = rlx_compile::compile_module(&s.module, &s.claims, &options).map_err(failed)?;
        let mut exec = s.backend.compile(compiled.target, s.device, &options).map_err(failed)?;
        for (p, value) in s.signature.params.iter().zip(&self.params) {
            if let Some(value) = value {
                set_by_name(&mut *exec, &p.name, value)?;
            }
        }
        Ok(exec.into())
    }

    /// The program of a binding, compiled if it has to be.
    fn program(&self, key: &[i64]) -> Result<Arc<dyn ExecutableGraph>, RunError> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(exec) = cache.find(key) {
            cache.stats.bind_hits += 1;
            return Ok(exec);
        }
        let start = Instant::now();
        let exec = self.compile(key)?;
        let reason = cache.reason(key);
        let (limit, bytes) = (self.shared.options.bind_cache.max(1), self.shared.options.bind_cache_bytes);
        while !cache.entries.is_empty() {
            let reason = match (cache.entries.len() >= limit, cache.bytes() > bytes) {
                (true, _) => MissReason::EvictedByCount,
                (_, true) => MissReason::EvictedByBytes,
                _ => break,
            };
            // The program that holds the states is kept as long as it holds them.
            let held = |e: &Entry| Some(&e.key) == self.current.as_ref() && !self.states.is_empty();
            let Some(at) = cache.entries.iter().position(|e| !held(e)) else { break };
            let old = cache.entries.remove(at);
            cache.gone.push_back((old.key, reason));
            cache.stats.bind_evictions += 1;
            if cache.gone.len() > REMEMBERED {
                cache.gone.pop_front();
            }
        }
        cache.gone.retain(|(k, _)| k != key);
        cache.entries.push(Entry { key: key.to_vec(), exec: exec.clone() });
        let (time, stats) = (start.elapsed(), exec.stats());
        cache.stats.binds += 1;
        cache.stats.last_bind = time;
        let sizes: BTreeMap<String, i64> =
            self.shared.symbols.iter().zip(key).map(|(s, &n)| (s.name().to_string(), n)).collect();
        let program = self.shared.module.main.name().to_string();
        let bytes = stats.prepared_bytes + stats.arena_bytes;
        cache.misses.push_back(BindMiss { program, reason, sizes, time, bytes });
        if cache.misses.len() > REMEMBERED {
            cache.misses.pop_front();
        }
        Ok(exec)
    }

    /// The program of a binding, with the present states.
    fn own(&mut self, key: Vec<i64>) -> Result<&mut dyn ExecutableGraph, RunError> {
        drop(self.program(&key)?);
        if self.current.as_ref() != Some(&key) {
            self.keep_states()?;
        }
        let (states, fresh) = (&self.states, self.current.as_ref() != Some(&key));
        let cache = self.cache.get_mut().unwrap_or_else(PoisonError::into_inner);
        let entry = cache.entries.iter_mut().find(|e| e.key == key);
        let exec = entry.and_then(|e| Arc::get_mut(&mut e.exec)).ok_or_else(busy)?;
        if fresh {
            for (i, value) in states.iter().enumerate() {
                exec.set_state(i, value.clone())?;
            }
        }
        self.current = Some(key);
        Ok(exec)
    }

    /// Takes the states from the program that has them.
    fn keep_states(&mut self) -> Result<(), RunError> {
        let Some(key) = &self.current else { return Ok(()) };
        let cache = self.cache.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(e) = cache.entries.iter().find(|e| e.key == *key) {
            for (i, slot) in self.states.iter_mut().enumerate() {
                *slot = Some(e.exec.state(i)?);
            }
        }
        self.current = None;
        Ok(())
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Arc<dyn ExecutableGraph>> {
        let cache = self.cache.get_mut().unwrap_or_else(PoisonError::into_inner);
        cache.entries.iter_mut().map(|e| &mut e.exec)
    }
}

fn busy() -> RunError {
    RunError::Unsupported("a program is in use elsewhere".into())
}

fn set_by_name(exec: &mut dyn ExecutableGraph, name: &str, value: &Tensor) -> Result<(), RunError> {
    match exec.signature().params.iter().position(|p| &*p.name == name) {
        Some(i) => exec.set_param(i, value.clone()),
        // Nothing in the program of these sizes reads it.
        None => Ok(()),
    }
}

impl Cache {
    fn find(&mut self, key: &[i64]) -> Option<Arc<dyn ExecutableGraph>> {
        let at = self.entries.iter().position(|e| e.key == key)?;
        let entry = self.entries.remove(at);
        let exec = entry.exec.clone();
        self.entries.push(entry);
        Some(exec)
    }

    fn reason(&self, key: &[i64]) -> MissReason {
        match self.gone.iter().find(|(k, _)| k == key) {
            Some((_, r)) => *r,
            None if self.stats.binds == 0 => MissReason::First,
            None => MissReason::NewSizes,
        }
    }

    fn bytes(&self) -> u64 {
        self.entries.iter().map(|e| e.exec.stats()).map(|s| s.prepared_bytes + s.arena_bytes).sum()
    }
}

impl ExecutableGraph for Specialised {
    fn signature(&self) -> &Signature {
        &self.shared.signature
    }

    fn set_param(&mut self, index: usize, value: Tensor) -> Result<(), RunError> {
        let shared = self.shared.clone();
        let Some(p) = shared.signature.params.get(index) else {
            let known = shared.signature.params.iter().map(|p| p.name.to_string()).collect();
            let name = format!("number {index}");
            return Err(RunError::Inputs(vec![InputProblem::Unknown { kind: "parameter", name, known }]));
        };
        let (kind, name) = ("parameter", p.name.to_string());
        if value.dtype() != p.ty.dtype {
            let (expected, got) = (p.ty.dtype, value.dtype());
            return Err(RunError::Inputs(vec![InputProblem::DType { kind, name, expected, got }]));
        }
        let fits = |(d, &n): (&Dim, &usize)| d.as_const().is_none_or(|c| usize::try_from(c) == Ok(n));
        if value.rank() != p.ty.shape.rank() || !p.ty.shape.iter().zip(value.dims()).all(fits) {
            let (expected, got, why) = (p.ty.to_string(), value.dims().to_vec(), String::new());
            return Err(RunError::Inputs(vec![InputProblem::Shape { kind, name, expected, got, why }]));
        }
        if p.ty.shape.has_dynamic_dims() {
            // Programs of other sizes do not fit it.
            self.keep_states()?;
            self.cache.get_mut().unwrap_or_else(PoisonError::into_inner).entries.clear();
        }
        for exec in self.all() {
            set_by_name(Arc::get_mut(exec).ok_or_else(busy)?, &p.name, &value)?;
        }
        if let Some(slot) = self.params.get_mut(index) {
            *slot = Some(value);
        }
        Ok(())
    }

    fn finalize_params(&mut self) -> Result<(), RunError> {
        for exec in self.all() {
            Arc::get_mut(exec).ok_or_else(busy)?.finalize_params()?;
        }
        Ok(())
    }

    fn run(&self, inputs: &[TensorRef<'_>], read: Option<&[usize]>) -> Result<Vec<Tensor>, RunError> {
        if !self.states.is_empty() {
            let why = "a program with state runs in its own context: use `run_borrowed`";
            return Err(RunError::Unsupported(why.into()));
        }
        self.check_count(inputs)?;
        self.program(&self.solve(inputs)?)?.run(inputs, read)
    }

    fn run_borrowed<'a>(
        &'a mut self,
        inputs: &[TensorRef<'_>],
        read: Option<&[usize]>,
    ) -> Result<BorrowedTensors<'a>, RunError> {
        self.check_count(inputs)?;
        let key = self.solve(inputs)?;
        self.own(key)?.run_borrowed(inputs, read)
    }

    fn run_into(&mut self, inputs: &[TensorRef<'_>], outputs: &mut [TensorMut<'_>]) -> Result<(), RunError> {
        self.check_count(inputs)?;
        let key = self.solve(inputs)?;
        self.own(key)?.run_into(inputs, outputs)
    }

    fn prepare_for(&mut self, binding: &DimBinding) -> Result<(), RunError> {
        let mut given = self.shared.options.dim_bindings.clone();
        for (s, n) in binding.iter() {
            given.set(s.clone(), n);
        }
        let key = self.close(&[], given, Vec::new())?;
        self.own(key)?.prepare_for(binding)
    }

    fn state(&self, index: usize) -> Result<Tensor, RunError> {
        if let Some(t) = self.held(index)? {
            return Ok(t);
        }
        match self.shared.signature.states.get(index) {
            Some(p) => p.fresh(&DimBinding::new()),
            None => Err(RunError::Unsupported(format!("there is no state number {index}"))),
        }
    }

    fn set_state(&mut self, index: usize, value: Option<Tensor>) -> Result<(), RunError> {
        self.keep_states()?;
        match self.states.get_mut(index) {
            Some(slot) => {
                *slot = value;
                Ok(())
            }
            None => {
                let known = self.shared.signature.states.iter().map(|p| p.name.to_string()).collect();
                let name = format!("number {index}");
                Err(RunError::Inputs(vec![InputProblem::Unknown { kind: "state", name, known }]))
            }
        }
    }

    fn clone_box(&self) -> Box<dyn ExecutableGraph> {
        let states = (0..self.states.len()).map(|i| self.state(i).ok()).collect();
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let entries =
            cache.entries.iter().map(|e| Entry { key: e.key.clone(), exec: e.exec.clone_box().into() }).collect();
        Box::new(Specialised {
            shared: self.shared.clone(),
            params: self.params.clone(),
            states,
            current: None,
            cache: Mutex::new(Cache { entries, ..Cache::default() }),
        })
    }

    fn stats(&self) -> ExecStats {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = ExecStats { bind_entries: cache.entries.len() as u64, ..cache.stats };
        for s in cache.entries.iter().map(|e| e.exec.stats()) {
            all.prepares += s.prepares;
            all.runs += s.runs;
            all.kernels += s.kernels;
            all.bytes_moved += s.bytes_moved;
            all.prepared_bytes += s.prepared_bytes;
            all.bind_bytes += s.prepared_bytes + s.arena_bytes;
            all.arena_bytes = s.arena_bytes;
        }
        all
    }

    fn profile(&mut self, inputs: &[TensorRef<'_>]) -> Result<Vec<KernelProfile>, RunError> {
        self.check_count(inputs)?;
        let key = self.solve(inputs)?;
        self.own(key)?.profile(inputs)
    }

    fn misses(&self) -> Vec<BindMiss> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).misses.iter().cloned().collect()
    }

    fn memory(&self, binding: &DimBinding) -> Result<MemoryReport, RunError> {
        let mut given = self.shared.options.dim_bindings.clone();
        for (s, n) in binding.iter() {
            given.set(s.clone(), n);
        }
        let key = self.close(&[], given, Vec::new())?;
        self.program(&key)?.memory(binding)
    }
}
