//! Loading a model of either kind, and compiling it.

use std::path::Path;
use std::time::{Duration, Instant};

use rlx::runtime::Precision;
use rlx::{CompileOptions, CompiledGraph, Device, Module, Session};

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
