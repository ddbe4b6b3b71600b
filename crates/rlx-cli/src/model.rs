//! Loading a model of any kind, and compiling it.

use std::path::Path;
use std::time::{Duration, Instant};

use rlx::ir::Type;
use rlx::runtime::Precision;
use rlx::{CompileOptions, CompiledGraph, Device, Graph, LoadOptions, Module, Session, Verify};

use crate::args::ModelArgs;
use crate::error::CliError;
use crate::progress::Progress;

/// A module as it was read.
pub struct Loaded {
    /// The module.
    pub module: Module,
    /// Time to read and import it.
    pub time: Duration,
}

/// A model on its way to a program.
pub enum Model {
    /// A graph, to be compiled.
    Graph(Loaded),
    /// An artefact: its program, a module that has nothing but its inputs, and the time of loading.
    Artefact(Box<CompiledGraph>, Module, Duration),
}

impl Model {
    /// A module with the model's inputs.
    pub fn module(&self) -> &Module {
        match self {
            Model::Graph(l) => &l.module,
            Model::Artefact(_, m, _) => m,
        }
    }

    /// Time to read it.
    pub fn time(&self) -> Duration {
        match self {
            Model::Graph(l) => l.time,
            Model::Artefact(.., time) => *time,
        }
    }

    /// The graph, or that this command wants one.
    pub fn graph(&self, what: &str) -> Result<&Module, CliError> {
        match self {
            Model::Graph(l) => Ok(&l.module),
            Model::Artefact(..) => Err(CliError::Usage(format!(
                "{what} wants a graph: give the model that the artefact was compiled from"
            ))),
        }
    }

    /// The program, and the time of compiling.
    pub fn program(self, args: &ModelArgs, precision: Precision) -> Result<(CompiledGraph, Duration), CliError> {
        match self {
            Model::Graph(l) => compile(&l.module, args, precision),
            Model::Artefact(program, ..) => Ok((*program, Duration::ZERO)),
        }
    }
}

/// True for the path of an artefact.
pub fn is_artefact(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "rlxa")
}

/// How artefacts are loaded.
pub fn load_options(args: &ModelArgs) -> LoadOptions {
    LoadOptions::new().verify(if args.trust { Verify::Program } else { Verify::All })
}

/// Reads a model of any kind.
pub fn open(args: &ModelArgs, precision: Precision) -> Result<Model, CliError> {
    if !is_artefact(&args.model) {
        return load(&args.model).map(Model::Graph);
    }
    let start = Instant::now();
    let o = options(args)?;
    let o = if precision == Precision::F32 { o } else { o.precision(precision) };
    let program = Session::with_options(Device::Cpu, o)?.load_with(&args.model, &load_options(args))?;
    program.report().fallbacks.iter().for_each(|f| eprintln!("warning: {f}"));
    let again = program.made_again().len();
    if again > 0 {
        eprintln!("note: {again} weights were packed for another machine and are packed again");
    }
    let mut g = Graph::new("inputs");
    for p in program.inputs() {
        g.add_input(&p.name, Type::Tensor(p.ty.clone())).map_err(|e| CliError::Model(e.to_string()))?;
    }
    Ok(Model::Artefact(Box::new(program), Module::from_graph(g), start.elapsed()))
}

/// Where compiled programs are kept unless the environment says: below the user's folder for such things.
fn cache_dir() -> Option<std::path::PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(std::path::PathBuf::from);
    let base = folder("XDG_CACHE_HOME").filter(|p| p.is_absolute());
    base.or_else(|| folder("HOME").map(|h| h.join(".cache"))).or_else(|| folder("LOCALAPPDATA")).map(|b| b.join("rlx"))
}

/// Reads a model; warnings go to stderr.
pub fn load(path: &Path) -> Result<Loaded, CliError> {
    let progress = Progress::start("loading");
    let start = Instant::now();
    let module = if path.extension().is_some_and(|e| e == "rlx") {
        let text = std::fs::read_to_string(path).map_err(|e| CliError::File(path.to_path_buf(), e.to_string()))?;
        rlx::ir::text::parse_module(&text).map_err(|e| CliError::Model(format!("{}: {e}", path.display())))?
    } else {
        if !path.is_file() {
            let why = if path.is_dir() {
                "is a folder"
            } else if path.exists() {
                "is no regular file"
            } else {
                "no such file"
            };
            return Err(CliError::File(path.to_path_buf(), why.into()));
        }
        let imported = rlx::onnx::load(path, &rlx::onnx::ImportOptions::default())
            .map_err(|e| CliError::Model(format!("{}: {e}", path.display())))?;
        drop(progress);
        imported.warnings.iter().for_each(|w| eprintln!("warning: {w}"));
        imported.module
    };
    Ok(Loaded { module, time: start.elapsed() })
}

/// The options that the command line asks for, over those of the environment (`RLX_ISA` and others; see `rlx --help`).
pub fn options(args: &ModelArgs) -> Result<CompileOptions, CliError> {
    let environment = CompileOptions::from_env().map_err(|e| CliError::Usage(e.to_string()))?;
    let mut o = environment.over(&CompileOptions::new().verify(false));
    if args.no_cache {
        o = o.cache_dir(None);
    } else if o.cache_dir.is_none() {
        o = o.cache_dir(cache_dir());
    }
    if let Some(n) = args.threads {
        o = o.threads(n);
    }
    if let Some(n) = args.memory_limit {
        o = o.memory_limit(Some(n));
    }
    Ok(if args.no_opt { o.unoptimised() } else { o })
}

/// Compiles for the CPU.
pub fn compile(module: &Module, args: &ModelArgs, precision: Precision) -> Result<(CompiledGraph, Duration), CliError> {
    let o = options(args)?;
    compile_with(module, if precision == Precision::F32 { o } else { o.precision(precision) })
}

/// Threads that a run will have.
pub fn threads(args: &ModelArgs) -> Result<usize, CliError> {
    let n = options(args)?.threads;
    Ok(if n == 0 { rlx::driver::ThreadPool::global().threads() } else { n })
}

/// Compiles for the CPU with these options.
pub fn compile_with(module: &Module, options: CompileOptions) -> Result<(CompiledGraph, Duration), CliError> {
    let _progress = Progress::start("compiling");
    let start = Instant::now();
    let program = Session::with_options(Device::Cpu, options)?.compile_module(module)?;
    program.report().fallbacks.iter().for_each(|f| eprintln!("warning: {f}"));
    Ok((program, start.elapsed()))
}
