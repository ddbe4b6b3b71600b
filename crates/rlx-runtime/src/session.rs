//! Sessions: a device, and how to compile for it. Every door leads through one path.

use std::sync::Arc;

use rlx_compile::lir::LirModule;
use rlx_compile::options::{CompileOptions, Precision, PrecisionPolicy};
use rlx_compile::target::{Backend, ExecutableGraph, InputStage};
use rlx_compile::{CompileError, CompileReport, Fallback};
use rlx_driver::Device;
use rlx_ir::tensor::ByteSource;
use rlx_ir::{Graph, Module};

use crate::artefact::{Artefact, ArtefactError, LoadOptions, Ready};
use crate::cache::{self, Cache, CacheUse};
use crate::compiled::{CompiledGraph, MadeWith};
use crate::error::Result;
use crate::registry::backend_for;
use crate::specialise::Specialised;

/// What a session is told besides its device.
pub type SessionOptions = CompileOptions;

/// Compiles graphs for one device.
///
/// ```
/// use rlx_ir::{Builder, DType, Dim};
/// use rlx_runtime::{Device, Session};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut b = Builder::new("double");
/// let x = b.input("x", DType::F32, [Dim::symbol("n")])?;
/// let y = b.add(x, x)?;
/// b.output("y", y)?;
/// let program = Session::new(Device::Cpu)?.compile(b.finish())?;
/// assert_eq!(program.run(&[("x", &[1.0, 2.5])])?, [[2.0, 5.0]]);
/// assert_eq!(program.run(&[("x", &[4.0])])?, [[8.0]]);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Session {
    device: Device,
    backend: Arc<dyn Backend>,
    options: CompileOptions,
}

impl Session {
    /// A session in f32.
    pub fn new(device: Device) -> Result<Self> {
        Self::with_options(device, CompileOptions::new())
    }

    /// A session that keeps activations and weights in this precision. A backend without it keeps f32, and the report of each compilation
    /// says so ([`CompileReport::fallbacks`](rlx_compile::CompileReport::fallbacks)).
    pub fn new_with_precision(device: Device, precision: Precision) -> Result<Self> {
        Self::with_options(device, CompileOptions::new().precision(precision))
    }

    /// A session whose ops compute in the precision that a policy gives each. A backend without it computes in f32, and the report says so.
    pub fn with_policy(device: Device, policy: PrecisionPolicy) -> Result<Self> {
        Self::with_options(device, CompileOptions::new().policy(policy))
    }

    /// A session whose compilations start from these options.
    pub fn with_options(device: Device, options: CompileOptions) -> Result<Self> {
        Ok(Session { device, backend: backend_for(device)?, options })
    }

    /// Its device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The precision that it was made with.
    pub fn precision(&self) -> Precision {
        self.options.precision
    }

    /// The policy that it was made with.
    pub fn policy(&self) -> &PrecisionPolicy {
        &self.options.policy
    }

    /// The options that its compilations start from.
    pub fn options(&self) -> &CompileOptions {
        &self.options
    }

    /// Compiles a graph.
    pub fn compile(&self, graph: Graph) -> Result<CompiledGraph> {
        self.build((&Module::from_graph(graph)).into(), &self.options)
    }

    /// Compiles a graph.
    #[deprecated(note = "use `compile`")]
    pub fn compile_graph(&self, graph: Graph) -> Result<CompiledGraph> {
        self.compile(graph)
    }

    /// Compiles a graph with these options over the session's: what they set holds, all else is as the session has it.
    pub fn compile_with(&self, graph: Graph, options: &CompileOptions) -> Result<CompiledGraph> {
        self.build((&Module::from_graph(graph)).into(), &options.over(&self.options))
    }

    /// Compiles a module.
    pub fn compile_hir(&self, module: &Module) -> Result<CompiledGraph> {
        self.build(module.into(), &self.options)
    }

    /// Compiles a module with these options over the session's.
    pub fn compile_hir_with(&self, module: &Module, options: &CompileOptions) -> Result<CompiledGraph> {
        self.build(module.into(), &options.over(&self.options))
    }

    /// Compiles a module at any stage: graphs (`&Module`) run through all passes, which change nothing where their work is done; a program
    /// of kernels (`&LirModule`) is checked and handed on, and an option that speaks of graphs is the error
    /// [`NoEffectAtStage`](rlx_compile::CompileError::NoEffectAtStage).
    pub fn compile_module<'a>(&self, module: impl Into<AnyModule<'a>>) -> Result<CompiledGraph> {
        self.build(module.into(), &self.options)
    }

    /// Compiles a module at any stage with these options over the session's.
    pub fn compile_module_with<'a>(
        &self,
        module: impl Into<AnyModule<'a>>,
        options: &CompileOptions,
    ) -> Result<CompiledGraph> {
        self.build(module.into(), &options.over(&self.options))
    }

    /// The same with these options alone.
    pub(crate) fn with(&self, options: CompileOptions) -> Session {
        Session { options, ..self.clone() }
    }

    /// Loads an artefact that [`CompiledGraph::save`] wrote, without compiling. The session's options of kernels (threads, instruction set, …)
    /// hold over those that its maker set; an option of graphs that asks for something else than it was compiled with is
    /// [`NoEffectAtStage`](rlx_compile::CompileError::NoEffectAtStage). The file must not change while the program lives.
    pub fn load(&self, path: impl AsRef<std::path::Path>) -> Result<CompiledGraph> {
        self.load_with(path, &LoadOptions::default())
    }

    /// As [`load`](Self::load), with a choice of what is checked, how the file is read, and values that it leaves out.
    pub fn load_with(&self, path: impl AsRef<std::path::Path>, how: &LoadOptions) -> Result<CompiledGraph> {
        self.revive(Artefact::open(path, how)?, how, CacheUse::Off)
    }

    /// Loads an artefact from memory. Nothing is copied where the bytes are aligned to 64.
    pub fn load_bytes(&self, bytes: Arc<dyn ByteSource>, how: &LoadOptions) -> Result<CompiledGraph> {
        self.revive(Artefact::from_source(bytes)?, how, CacheUse::Off)
    }

    /// A program of an opened artefact.
    pub(crate) fn revive(&self, artefact: Artefact, how: &LoadOptions, cache: CacheUse) -> Result<CompiledGraph> {
        let claims = self.backend.claims(self.device);
        if let Some(found) = artefact.target().filter(|t| *t != claims.target) {
            let (found, device, target) = (found.into(), self.device.to_string(), claims.target);
            return Err(ArtefactError::Target { found, device, target }.into());
        }
        if let Some(option) = artefact.disagrees(&self.options) {
            return Err(CompileError::NoEffectAtStage(option).into());
        }
        // What is kept in a folder runs as the present call asks, not as the one that made it.
        let options = match cache {
            CacheUse::Off => self.options.over(&artefact.options()),
            _ => self.options.clone(),
        };
        let fallbacks = artefact.fallbacks();
        match artefact.into_ready(how)? {
            Ready::Graph(module) => self.build((&*module).into(), &options),
            Ready::Kernels(lir, made) => {
                let compiled = rlx_compile::load_lir(*lir, &claims, &options)?;
                let mut report = compiled.report;
                report.fallbacks = self.backend.fallbacks(self.device, &options);
                let more: Vec<Fallback> =
                    fallbacks.into_iter().filter(|f| !report.fallbacks.iter().any(|g| g.option == f.option)).collect();
                report.fallbacks.extend(more);
                let start = std::time::Instant::now();
                let (executable, again) = self.backend.restore(compiled.target, made, self.device, &options)?;
                let with = MadeWith { options, target: claims.target, graph: None, cache, again };
                self.finish(executable, report, start, with)
            }
        }
    }

    /// The one path of all doors.
    fn build(&self, module: AnyModule<'_>, options: &CompileOptions) -> Result<CompiledGraph> {
        let claims = self.backend.claims(self.device);
        // The folder of programs is for those that are expensive to make: of kernels. What a custom op is made of does not show in the graph.
        let kept = |m: &Module| {
            claims.stage == InputStage::Lir && options.dump.is_none() && crate::artefact::custom_ops(m).is_empty()
        };
        let cache = match (module, &options.cache_dir) {
            (AnyModule::Graphs(m), Some(dir)) if kept(m) => Some((
                Cache::new(dir, options.cache_bytes),
                cache::key(m, self.device, &claims, &*self.backend, options),
            )),
            _ => None,
        };
        if let (Some((cache, key)), AnyModule::Graphs(m)) = (&cache, module)
            && let Some(program) = cache.find(key, m, self, options)
        {
            return Ok(program);
        }
        let compiled = match module {
            AnyModule::Graphs(m) => rlx_compile::compile_module(m, &claims, options)?,
            AnyModule::Kernels(l) => rlx_compile::compile_lir(l, &claims, options)?,
        };
        let mut report = compiled.report;
        report.fallbacks = self.backend.fallbacks(self.device, options);
        if options.cache_dir.is_some() && cache.is_none() {
            let why = "only programs of kernels are kept, none of custom ops, and none while passes are dumped";
            report.fallbacks.push(Fallback::new("cache_dir", "programs kept", "none", why));
        }
        let start = std::time::Instant::now();
        let (target, stage) = (claims.target.clone(), claims.stage);
        let mut kept = None;
        let executable: Box<dyn ExecutableGraph> = match module {
            // What was compiled shows that the graph is well formed and every op is had; programs follow when sizes are known.
            AnyModule::Graphs(m) if !claims.symbolic_shapes && open(m, options) => {
                let backend = self.backend.clone();
                kept = Some(m.clone());
                Box::new(Specialised::new(backend, self.device, claims, m.clone(), options.clone())?)
            }
            AnyModule::Graphs(m) if stage == InputStage::Mir => {
                kept = Some(m.clone());
                self.backend.compile(compiled.target, self.device, options)?
            }
            _ => self.backend.compile(compiled.target, self.device, options)?,
        };
        let mode = if cache.is_some() { CacheUse::Kept } else { CacheUse::Off };
        let with = MadeWith { options: options.clone(), target, graph: kept, cache: mode, again: Vec::new() };
        let mut program = self.finish(executable, report, start, with)?;
        if let (Some((cache, key)), AnyModule::Graphs(_)) = (&cache, module) {
            cache.keep(key, &mut program);
        }
        Ok(program)
    }

    fn finish(
        &self,
        mut executable: Box<dyn ExecutableGraph>,
        mut report: CompileReport,
        start: std::time::Instant,
        with: MadeWith,
    ) -> Result<CompiledGraph> {
        if let Some(rng) = with.options.rng
            && let Err(e) = executable.set_rng(rng)
        {
            report.fallbacks.push(Fallback::new("rng", format!("{rng:?}"), "no generator", e.to_string()));
        }
        Ok(CompiledGraph::new(executable, Arc::new(report), self.device, start.elapsed(), Arc::new(with)))
    }
}

/// True if some size that calls decide is not fixed by the options.
fn open(m: &Module, options: &CompileOptions) -> bool {
    m.main.input_symbols().iter().any(|s| options.dim_bindings.get(s).is_none())
}

/// A module at any stage.
#[derive(Clone, Copy, Debug)]
pub enum AnyModule<'a> {
    /// Graphs: HIR or MIR.
    Graphs(&'a Module),
    /// Kernels over buffers: LIR.
    Kernels(&'a LirModule),
}

impl<'a> From<&'a Module> for AnyModule<'a> {
    fn from(m: &'a Module) -> Self {
        AnyModule::Graphs(m)
    }
}

impl<'a> From<&'a LirModule> for AnyModule<'a> {
    fn from(m: &'a LirModule) -> Self {
        AnyModule::Kernels(m)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("device", &self.device).field("options", &self.options).finish_non_exhaustive()
    }
}
