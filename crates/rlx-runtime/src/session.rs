//! Sessions: a device, and how to compile for it. Every door leads through one path.

use std::sync::Arc;

use rlx_compile::options::{CompileOptions, Precision};
use rlx_compile::target::Backend;
use rlx_driver::Device;
use rlx_ir::{Graph, Module};

use crate::compiled::CompiledGraph;
use crate::error::Result;
use crate::registry::backend_for;

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

    /// A session that keeps activations and weights in this precision.
    pub fn new_with_precision(device: Device, precision: Precision) -> Result<Self> {
        Self::with_options(device, CompileOptions::new().precision(precision))
    }

    /// A session whose compilations start from these options.
    pub fn with_options(device: Device, options: CompileOptions) -> Result<Self> {
        Ok(Session { device, backend: backend_for(device)?, options })
    }

    /// Its device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Its precision.
    pub fn precision(&self) -> Precision {
        self.options.precision
    }

    /// The options that its compilations start from.
    pub fn options(&self) -> &CompileOptions {
        &self.options
    }

    /// Compiles a graph.
    pub fn compile(&self, graph: Graph) -> Result<CompiledGraph> {
        self.build(&Module::from_graph(graph), &self.options)
    }

    /// Compiles a graph.
    #[deprecated(note = "use `compile`")]
    pub fn compile_graph(&self, graph: Graph) -> Result<CompiledGraph> {
        self.compile(graph)
    }

    /// Compiles a graph with other options; the session's precision holds where they do not set one.
    pub fn compile_with(&self, graph: Graph, options: &CompileOptions) -> Result<CompiledGraph> {
        self.build(&Module::from_graph(graph), &self.merged(options))
    }

    /// Compiles a module.
    pub fn compile_hir(&self, module: &Module) -> Result<CompiledGraph> {
        self.build(module, &self.options)
    }

    /// Compiles a module with other options.
    pub fn compile_hir_with(&self, module: &Module, options: &CompileOptions) -> Result<CompiledGraph> {
        self.build(module, &self.merged(options))
    }

    /// Compiles a module at any stage.
    pub fn compile_module(&self, module: &Module) -> Result<CompiledGraph> {
        self.build(module, &self.options)
    }

    /// Compiles a module at any stage with other options.
    pub fn compile_module_with(&self, module: &Module, options: &CompileOptions) -> Result<CompiledGraph> {
        self.build(module, &self.merged(options))
    }

    /// Explicit options are merged over the session's: what they leave at its default, the session decides.
    fn merged(&self, options: &CompileOptions) -> CompileOptions {
        let default = CompileOptions::new();
        let mut o = options.clone();
        if o.precision == default.precision {
            o.precision = self.options.precision;
        }
        if o.matmul_precision == default.matmul_precision {
            o.matmul_precision = self.options.matmul_precision;
        }
        if o.threads == default.threads {
            o.threads = self.options.threads;
        }
        if o.isa.is_none() {
            o.isa = self.options.isa;
        }
        o
    }

    /// The one path of all doors.
    fn build(&self, module: &Module, options: &CompileOptions) -> Result<CompiledGraph> {
        let claims = self.backend.claims(self.device);
        let compiled = rlx_compile::pipeline::compile_module(module, &claims, options)?;
        let start = std::time::Instant::now();
        let executable = self.backend.compile(compiled.target, self.device, options)?;
        Ok(CompiledGraph::new(executable, Arc::new(compiled.report), self.device, start.elapsed()))
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("device", &self.device).field("options", &self.options).finish_non_exhaustive()
    }
}
