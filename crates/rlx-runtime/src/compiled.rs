//! Compiled graphs: programs that take inputs of any shape that fits.

use std::sync::Arc;
use std::time::Duration;

use rlx_compile::error::{InputProblem, RunError};
use rlx_compile::target::{
    BindMiss, BorrowedTensor, BorrowedTensors, ExecStats, ExecutableGraph, KernelProfile, MemoryReport, PortInfo,
    TensorMut, TensorRef,
};
use rlx_compile::{CompileOptions, CompileReport};
use rlx_driver::Device;
use rlx_ir::ops::random::{RNG_STATE, RngOptions};
use rlx_ir::{DType, DimBinding, Module, Tensor};

use crate::artefact::{self, SaveOptions, Saved};
use crate::boundary::{from_f32, to_f32};
use crate::cache::CacheUse;
use crate::error::Result;
use crate::inputs::{Input, List, arrange};
use crate::safetensors::{self, LoadedParams};

/// A compiled program with a context of its own. See [`Session`](crate::Session).
///
/// Running takes `&self` where results are owned: several threads may share one program. A clone shares code and weights, and has its own
/// context and state.
pub struct CompiledGraph {
    inner: Box<dyn ExecutableGraph>,
    report: Arc<CompileReport>,
    device: Device,
    backend_time: Duration,
    /// What it was compiled with, and what for.
    made_with: Arc<MadeWith>,
}

/// What a program was compiled with, and what for: for saving it.
#[derive(Debug)]
pub(crate) struct MadeWith {
    /// Options of the compilation.
    pub options: CompileOptions,
    /// Name of the target.
    pub target: String,
    /// The graph, of a backend that keeps no program that could be stored.
    pub graph: Option<Module>,
    /// What became of the store of programs.
    pub cache: CacheUse,
    /// What an artefact had and had to be made again.
    pub again: Vec<String>,
}

/// Results that lie in their program's context, to be read before the next run.
#[derive(Debug)]
///
/// They cannot outlive the program, nor be read while it runs again:
/// ```compile_fail,E0499
/// # use rlx_runtime::{CompiledGraph, TensorRef};
/// fn twice(program: &mut CompiledGraph, x: TensorRef<'_>) -> rlx_runtime::Result<()> {
///     let first = program.run_raw(&[x])?;
///     let second = program.run_raw(&[x])?; // overwrites `first`
///     assert_eq!(first.len(), second.len());
///     Ok(())
/// }
/// ```
/// ```compile_fail,E0505
/// # use rlx_runtime::{CompiledGraph, TensorRef};
/// fn dangling(mut program: CompiledGraph, x: TensorRef<'_>) -> usize {
///     let first = program.run_raw(&[x]).unwrap();
///     drop(program);
///     first.len()
/// }
/// ```
pub struct Outputs<'a>(BorrowedTensors<'a>);

impl<'a> Outputs<'a> {
    /// The results in order.
    pub fn iter(&self) -> impl Iterator<Item = &BorrowedTensor<'a>> {
        self.0.iter()
    }

    /// Result number n.
    pub fn get(&self, n: usize) -> Option<&BorrowedTensor<'a>> {
        self.0.get(n)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl CompiledGraph {
    pub(crate) fn new(
        inner: Box<dyn ExecutableGraph>,
        report: Arc<CompileReport>,
        device: Device,
        backend_time: Duration,
        made_with: Arc<MadeWith>,
    ) -> Self {
        CompiledGraph { inner, report, device, backend_time, made_with }
    }

    /// Writes the program as an artefact that [`Session::load`](crate::Session::load) runs without compiling: kernels, values of parameters
    /// as they are now, and what a first run would make of them (the prepare program's results, packed weights), made now if no run has.
    ///
    /// The states' present values and bindings of shapes are not in it. Of a backend that takes graphs, the graph is written with the values
    /// of parameters that it had when it was compiled; loading compiles it. The file appears when it is whole.
    pub fn save(&mut self, path: impl AsRef<std::path::Path>) -> Result<Saved> {
        self.save_with(path, &SaveOptions::default())
    }

    /// As [`save`](Self::save), with a choice of what goes in.
    pub fn save_with(&mut self, path: impl AsRef<std::path::Path>, options: &SaveOptions) -> Result<Saved> {
        let with = self.made_with.clone();
        let path = path.as_ref();
        if let Some(graph) = &with.graph {
            return Ok(artefact::write_graph(path, graph, &with.options)?);
        }
        let snapshot = self.inner.snapshot()?;
        let fallbacks = &self.report.fallbacks;
        Ok(artefact::write_kernels(path, &with.target, snapshot, &with.options, fallbacks, options)?)
    }

    /// What an artefact held and had to be made again, since it was made for another machine: empty where everything could be taken.
    pub fn made_again(&self) -> &[String] {
        &self.made_with.again
    }

    /// Whether the program was found in the folder of compiled programs ([`CompileOptions::cache_dir`]).
    pub fn cache_use(&self) -> CacheUse {
        self.made_with.cache
    }

    /// The device it runs on.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Names, dtypes and symbolic shapes of the inputs.
    pub fn inputs(&self) -> &[PortInfo] {
        &self.inner.signature().inputs
    }

    /// Names, dtypes and symbolic shapes of the parameters.
    pub fn params(&self) -> &[PortInfo] {
        &self.inner.signature().params
    }

    /// Names, dtypes and symbolic shapes of the outputs.
    pub fn outputs(&self) -> &[PortInfo] {
        &self.inner.signature().outputs
    }

    /// Names, dtypes and symbolic shapes of the states.
    pub fn states(&self) -> &[PortInfo] {
        &self.inner.signature().states
    }

    /// What compiling did.
    pub fn report(&self) -> &CompileReport {
        &self.report
    }

    /// Time that the backend took after the passes.
    pub fn backend_time(&self) -> Duration {
        self.backend_time
    }

    /// Counters of running.
    pub fn stats(&self) -> ExecStats {
        self.inner.stats()
    }

    /// Runs on flat f32 data and gives all outputs as f32. 16-bit float inputs and outputs are converted; others are errors.
    pub fn run(&self, inputs: &[(&str, &[f32])]) -> Result<Vec<Vec<f32>>> {
        let inputs: Vec<(&str, Input<'_>)> = inputs.iter().map(|(n, x)| (*n, Input::Flat(x))).collect();
        let results = self.run_read_outputs(&inputs, None)?;
        let mut problems = Vec::new();
        let mut out = Vec::with_capacity(results.len());
        for (p, t) in self.outputs().iter().zip(&results) {
            match to_f32(&p.name, t.dtype(), t.bytes()) {
                Ok(v) => out.push(v),
                Err(e) => problems.push(e),
            }
        }
        if problems.is_empty() { Ok(out) } else { Err(RunError::Inputs(problems).into()) }
    }

    /// Runs on shaped tensors and gives all outputs.
    pub fn run_tensors(&self, inputs: &[(&str, &Tensor)]) -> Result<Vec<Tensor>> {
        let inputs: Vec<(&str, Input<'_>)> = inputs.iter().map(|(n, t)| (*n, Input::from(*t))).collect();
        self.run_read_outputs(&inputs, None)
    }

    /// Runs on packed bytes with their dtypes and gives all outputs.
    pub fn run_typed(&self, inputs: &[(&str, DType, &[u8])]) -> Result<Vec<Tensor>> {
        let inputs: Vec<(&str, Input<'_>)> = inputs.iter().map(|(n, d, b)| (*n, Input::Bytes(*d, b))).collect();
        self.run_read_outputs(&inputs, None)
    }

    /// Runs and gives the outputs of these numbers, in this order (repeats allowed), or all. Kernels that serve only others do not run.
    pub fn run_read_outputs(&self, inputs: &[(&str, Input<'_>)], read: Option<&[usize]>) -> Result<Vec<Tensor>> {
        self.check_read(read)?;
        let shaped = arrange(self.inputs(), inputs)?;
        let refs: List<TensorRef<'_>> = shaped.iter().map(|s| s.as_ref()).collect();
        Ok(self.inner.run(&refs, read)?)
    }

    /// Runs in the program's own context, on its state, and leaves the results there. Copies nothing.
    ///
    /// A run that fails in a kernel may leave states that are written in place changed.
    pub fn run_borrowed(&mut self, inputs: &[(&str, Input<'_>)]) -> Result<Outputs<'_>> {
        let shaped = arrange(self.inputs(), inputs)?;
        let refs: List<TensorRef<'_>> = shaped.iter().map(|s| s.as_ref()).collect();
        Ok(Outputs(self.inner.run_borrowed(&refs, None)?))
    }

    /// Runs on inputs in the program's order and leaves the results in its context. The fastest way: nothing is looked up or copied.
    pub fn run_raw(&mut self, inputs: &[TensorRef<'_>]) -> Result<Outputs<'_>> {
        Ok(Outputs(self.inner.run_borrowed(inputs, None)?))
    }

    /// Runs on inputs in the program's order and writes each output to the caller's memory.
    pub fn run_into(&mut self, inputs: &[TensorRef<'_>], outputs: &mut [TensorMut<'_>]) -> Result<()> {
        Ok(self.inner.run_into(inputs, outputs)?)
    }

    fn check_read(&self, read: Option<&[usize]>) -> Result<()> {
        let n = self.outputs().len();
        let known: Vec<String> = self.outputs().iter().map(|p| p.name.to_string()).collect();
        let problems: Vec<InputProblem> = read
            .unwrap_or(&[])
            .iter()
            .filter(|&&i| i >= n)
            .map(|i| InputProblem::Unknown { kind: "output", name: format!("number {i}"), known: known.clone() })
            .collect();
        if problems.is_empty() { Ok(()) } else { Err(RunError::Inputs(problems).into()) }
    }

    fn param_index(&self, name: &str) -> Result<usize> {
        self.params().iter().position(|p| &*p.name == name).ok_or_else(|| {
            let known = self.params().iter().map(|p| p.name.to_string()).collect();
            RunError::Inputs(vec![InputProblem::Unknown { kind: "parameter", name: name.into(), known }]).into()
        })
    }

    /// Sets a parameter from flat f32 data; its shape must be static. 16-bit float parameters are converted.
    pub fn set_param(&mut self, name: &str, values: &[f32]) -> Result<()> {
        let i = self.param_index(name)?;
        let dtype = self.params().get(i).map_or(DType::F32, |p| p.ty.dtype);
        if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(self.param_dtype(name, dtype, DType::F32));
        }
        let bytes = from_f32(dtype, values).into_owned();
        self.set_param_bytes(i, &bytes)
    }

    /// Sets a parameter from packed bytes; its shape must be static.
    pub fn set_param_typed(&mut self, name: &str, dtype: DType, bytes: &[u8]) -> Result<()> {
        let i = self.param_index(name)?;
        let want = self.params().get(i).map_or(dtype, |p| p.ty.dtype);
        if want != dtype {
            return Err(self.param_dtype(name, want, dtype));
        }
        self.set_param_bytes(i, bytes)
    }

    /// Sets a parameter from a tensor, which may lie in a mapped file: it is not copied.
    pub fn set_param_shaped(&mut self, name: &str, value: Tensor) -> Result<()> {
        let i = self.param_index(name)?;
        Ok(self.inner.set_param(i, value)?)
    }

    fn param_dtype(&self, name: &str, expected: DType, got: DType) -> crate::Error {
        RunError::Inputs(vec![InputProblem::DType { kind: "parameter", name: name.into(), expected, got }]).into()
    }

    fn set_param_bytes(&mut self, index: usize, bytes: &[u8]) -> Result<()> {
        let Some(p) = self.params().get(index) else { return Ok(()) };
        let Some(dims) = p.ty.shape.as_static() else {
            let why = format!("parameter `{}` is {}; set it from a tensor with a shape", p.name, p.ty);
            return Err(RunError::Inputs(vec![InputProblem::Binding(why)]).into());
        };
        let expected =
            rlx_ir::tensor::checked_numel(&dims).ok().and_then(|n| p.ty.dtype.bytes_for(n)).unwrap_or(usize::MAX);
        if expected != bytes.len() {
            let problem =
                InputProblem::Length { kind: "parameter", name: p.name.to_string(), expected, got: bytes.len() };
            return Err(RunError::Inputs(vec![problem]).into());
        }
        let value = Tensor::from_bytes(p.ty.dtype, &dims, bytes)
            .map_err(|e| RunError::Inputs(vec![InputProblem::Binding(e.to_string())]))?;
        Ok(self.inner.set_param(index, value)?)
    }

    /// Sets every parameter that a safetensors file has a tensor for; the data stay in the mapped file and are not copied.
    ///
    /// A tensor of another dtype or shape than its parameter is an error that lists all such, and nothing is set. Tensors that are no
    /// parameter are named in the result, as are parameters without a value. The file must not change while the program lives.
    pub fn load_safetensors(&mut self, path: impl AsRef<std::path::Path>) -> Result<LoadedParams> {
        let tensors = safetensors::read(path)?;
        let mut problems = Vec::new();
        let mut loaded = LoadedParams::default();
        let mut set = Vec::new();
        for (name, tensor) in tensors {
            let Some(i) = self.params().iter().position(|p| *p.name == name) else {
                loaded.unused.push(name);
                continue;
            };
            let Some(p) = self.params().get(i) else { continue };
            let fits = |(d, &n): (&rlx_ir::Dim, &usize)| d.as_const().is_none_or(|c| usize::try_from(c) == Ok(n));
            if tensor.dtype() != p.ty.dtype {
                let (expected, got) = (p.ty.dtype, tensor.dtype());
                problems.push(InputProblem::DType { kind: "parameter", name, expected, got });
            } else if tensor.rank() != p.ty.shape.rank() || !p.ty.shape.iter().zip(tensor.dims()).all(fits) {
                let (expected, got, why) = (p.ty.to_string(), tensor.dims().to_vec(), String::new());
                problems.push(InputProblem::Shape { kind: "parameter", name, expected, got, why });
            } else {
                loaded.set.push(name);
                set.push((i, tensor));
            }
        }
        if !problems.is_empty() {
            return Err(RunError::Inputs(problems).into());
        }
        for (i, tensor) in set {
            self.inner.set_param(i, tensor)?;
        }
        let given = |p: &&PortInfo| !p.has_default && !loaded.set.iter().any(|n| **n == *p.name);
        loaded.missing = self.params().iter().filter(given).map(|p| p.name.to_string()).collect();
        Ok(loaded)
    }

    /// Runs what depends on parameters only, now instead of at the first run.
    pub fn finalize_params(&mut self) -> Result<()> {
        Ok(self.inner.finalize_params()?)
    }

    /// Makes sizes and memory ready for a binding ahead of the first run with it.
    pub fn prepare_for(&mut self, binding: &DimBinding) -> Result<()> {
        Ok(self.inner.prepare_for(binding)?)
    }

    /// Bytes that a run of these sizes takes, without running.
    pub fn memory_for(&self, binding: &DimBinding) -> Result<MemoryReport> {
        Ok(self.inner.memory(binding)?)
    }

    /// The latest shapes that had to be bound, oldest first, each with the reason.
    pub fn bind_misses(&self) -> Vec<BindMiss> {
        self.inner.misses()
    }

    /// A state's present value.
    pub fn state(&self, name: &str) -> Result<Tensor> {
        Ok(self.inner.state(self.state_index(name)?)?)
    }

    /// Replaces a state's value.
    pub fn set_state(&mut self, name: &str, value: Tensor) -> Result<()> {
        let i = self.state_index(name)?;
        Ok(self.inner.set_state(i, Some(value))?)
    }

    /// Puts a state back to its initial value; the generator to where the options started it.
    pub fn reset_state(&mut self, name: &str) -> Result<()> {
        let i = self.state_index(name)?;
        if let Some(rng) = self.made_with.options.rng.filter(|_| name == RNG_STATE) {
            return Ok(self.inner.set_rng(rng)?);
        }
        Ok(self.inner.set_state(i, None)?)
    }

    /// Puts the random generator at a place: what [`rng`](Self::rng) gave before, or a new seed. An error on a program that draws no
    /// random numbers.
    pub fn set_rng(&mut self, rng: RngOptions) -> Result<()> {
        Ok(self.inner.set_rng(rng)?)
    }

    /// Where the random generator stands: each run moves it on by one, whatever the shapes and the number of threads. `None` on a program
    /// that draws no random numbers.
    pub fn rng(&self) -> Result<Option<RngOptions>> {
        Ok(self.inner.rng()?)
    }

    fn state_index(&self, name: &str) -> Result<usize> {
        self.states().iter().position(|p| &*p.name == name).ok_or_else(|| {
            let known = self.states().iter().map(|p| p.name.to_string()).collect();
            RunError::Inputs(vec![InputProblem::Unknown { kind: "state", name: name.into(), known }]).into()
        })
    }

    /// Runs once and times every kernel.
    pub fn profile(&mut self, inputs: &[TensorRef<'_>]) -> Result<Vec<KernelProfile>> {
        Ok(self.inner.profile(inputs)?)
    }
}

impl Clone for CompiledGraph {
    fn clone(&self) -> Self {
        CompiledGraph {
            inner: self.inner.clone_box(),
            report: self.report.clone(),
            device: self.device,
            backend_time: self.backend_time,
            made_with: self.made_with.clone(),
        }
    }
}

impl std::fmt::Debug for CompiledGraph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompiledGraph")
            .field("device", &self.device)
            .field("signature", self.inner.signature())
            .finish_non_exhaustive()
    }
}
