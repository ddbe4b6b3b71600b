//! The command line.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

/// Runs, verifies, inspects and measures machine-learning models.
///
/// Models are ONNX files (.onnx), graphs in RLX's text form (.rlx) or compiled artefacts (.rlxa). Results go to stdout, messages to stderr.
#[derive(Parser, Debug)]
#[command(name = "rlx", version, about, propagate_version = true, after_help = environment())]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The variables that set options, for `--help`.
fn environment() -> String {
    let list = rlx::compile::options::VARIABLES.iter();
    let lines: Vec<String> = list.map(|(name, takes, sets)| format!("  {name}={takes}\n      sets {sets}")).collect();
    format!(
        "Environment (what the command line says comes first):\n{}\n\nWithout RLX_CACHE_DIR programs are kept in rlx/ below XDG_CACHE_HOME, or below ~/.cache.",
        lines.join("\n")
    )
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a model once and show its outputs.
    Run(RunArgs),
    /// Compare a model's outputs with stored ones, or with the reference evaluator.
    Verify(VerifyArgs),
    /// Show a model's inputs, outputs, parameters, operators, work and memory.
    Inspect(InspectArgs),
    /// Measure how long a model takes.
    Bench(BenchArgs),
    /// Show where a model's time goes, kernel by kernel.
    Profile(ProfileArgs),
    /// Compile a model and show what the compiler did.
    Compile(CompileArgs),
    /// Write a model as an ONNX file.
    Export(ExportArgs),
    /// Quantise an ONNX file to int8 with scales found from inputs, and say what it costs.
    Quantize(QuantizeArgs),
    /// Run compiler passes on a graph in text form.
    Opt(OptArgs),
}

/// How ranges of activations are found.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Calibrator {
    /// The least and the greatest number seen.
    #[default]
    Minmax,
    /// The range that holds all but a ten-thousandth of the numbers at each end.
    Percentile,
    /// The range whose rounding has the least mean square error.
    Mse,
    /// The range that keeps most of the numbers' distribution: the least Kullback-Leibler divergence after rounding. With
    /// fewer than some thousand numbers the whole range.
    Entropy,
}

/// What to quantise, and with what.
#[derive(ClapArgs, Debug, Clone)]
pub struct QuantizeArgs {
    /// The model: an .onnx file. One of an operator set before 13, or whose weights are not initialisers of its own, is written anew first.
    pub model: PathBuf,
    /// Inputs that stand for what the model will see: arrays named like inputs, or `in.<input>`. May be given several times.
    #[arg(long, value_name = "FILE.npz", required = true)]
    pub calibrate: Vec<PathBuf>,
    /// The file to write.
    #[arg(short, long, value_name = "FILE.onnx")]
    pub output: PathBuf,
    /// How ranges of activations are found.
    #[arg(long, value_enum, default_value_t = Calibrator::Minmax)]
    pub method: Calibrator,
    /// Weights of seven bits: for machines without VNNI, on which other runtimes add pairs of products in 16 bits, which would saturate.
    #[arg(long)]
    pub reduce_range: bool,
    /// A node to leave as it is: its name, in which `*` stands for any characters. May be given several times.
    #[arg(long, value_name = "NAME")]
    pub exclude: Vec<String>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// What to write, and where.
#[derive(ClapArgs, Debug, Clone)]
pub struct ExportArgs {
    /// The model: an .onnx file, or a graph in text form (.rlx).
    pub model: PathBuf,
    /// The file to write.
    #[arg(short, long, value_name = "FILE.onnx")]
    pub output: PathBuf,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Which model, and how to compile it.
#[derive(ClapArgs, Debug, Clone)]
pub struct ModelArgs {
    /// The model: an .onnx file, a graph in text form (.rlx), or an artefact that `rlx compile` wrote (.rlxa).
    pub model: PathBuf,
    /// Threads to run on; all that the process may use if 0, the default.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Refuse to run where the program would allocate more than this.
    #[arg(long, value_name = "BYTES")]
    pub memory_limit: Option<u64>,
    /// Compile without optimisation.
    #[arg(long)]
    pub no_opt: bool,
    /// Neither take compiled programs from the cache nor keep them there (see RLX_CACHE_DIR).
    #[arg(long)]
    pub no_cache: bool,
    /// Of an artefact, check header and program alone, and not its weights against their hashes.
    #[arg(long)]
    pub trust: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Where inputs come from.
#[derive(ClapArgs, Debug, Clone, Default)]
pub struct InputArgs {
    /// One input: from a .npy file, or a number that fills it.
    #[arg(long = "input", value_name = "NAME=FILE.npy|NUMBER")]
    pub inputs: Vec<String>,
    /// Inputs from a .npz file: arrays named like inputs, or `in.<input>`.
    #[arg(long = "inputs", value_name = "FILE.npz")]
    pub archive: Option<PathBuf>,
    /// Shape of an input that is filled, for instance `x=1x3x224x224`.
    #[arg(long = "shape", value_name = "NAME=DIMS")]
    pub shapes: Vec<String>,
    /// Size of a symbol, for instance `batch=1`.
    #[arg(long = "dim", value_name = "SYMBOL=SIZE")]
    pub dims: Vec<String>,
    /// What inputs without a file are filled with.
    #[arg(long, value_enum, default_value_t = Fill::Random)]
    pub fill: Fill,
    /// Seed of random inputs.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

/// What inputs are filled with.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fill {
    /// Floats uniform in −1..1, integers and booleans 0 or 1.
    #[default]
    Random,
    /// Zeros.
    Zeros,
    /// Ones.
    Ones,
}

/// Arguments of `run`.
#[derive(ClapArgs, Debug)]
pub struct RunArgs {
    /// The model.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Inputs.
    #[command(flatten)]
    pub inputs: InputArgs,
    /// Write all outputs to this file.
    #[arg(long, value_name = "FILE.npz")]
    pub output: Option<PathBuf>,
}

/// Arguments of `verify`.
#[derive(ClapArgs, Debug)]
pub struct VerifyArgs {
    /// The model.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Inputs, when there is no case.
    #[command(flatten)]
    pub inputs: InputArgs,
    /// Stored inputs and outputs: a .npz file with `in.<name>` and `out.<name>`, or an ONNX case folder (`input_0.pb`, …; or one that holds
    /// `test_data_set_0`, …). May be given several times.
    #[arg(long = "case", value_name = "FILE.npz|DIR")]
    pub cases: Vec<PathBuf>,
    /// Relative tolerance: |out − ref| ≤ atol + rtol · |ref|.
    #[arg(long, default_value_t = 1e-3)]
    pub rtol: f64,
    /// Absolute tolerance.
    #[arg(long, default_value_t = 1e-4)]
    pub atol: f64,
    /// Without a case: name the first node whose result differs from the evaluator's.
    #[arg(long)]
    pub bisect: bool,
}

/// Arguments of `inspect`.
#[derive(ClapArgs, Debug)]
pub struct InspectArgs {
    /// The model.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Shape of an input, to show work and memory in numbers.
    #[arg(long = "shape", value_name = "NAME=DIMS")]
    pub shapes: Vec<String>,
    /// Size of a symbol.
    #[arg(long = "dim", value_name = "SYMBOL=SIZE")]
    pub dims: Vec<String>,
}

/// Numbers kept.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrecisionArg {
    /// 32-bit floats.
    #[default]
    F32,
    /// Half precision.
    F16,
    /// bfloat16.
    Bf16,
}

/// Arguments of `bench`.
#[derive(ClapArgs, Debug)]
pub struct BenchArgs {
    /// The model.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Inputs.
    #[command(flatten)]
    pub inputs: InputArgs,
    /// Numbers that activations and weights are kept in.
    #[arg(long, value_enum, default_value_t = PrecisionArg::F32)]
    pub precision: PrecisionArg,
    /// How long to measure.
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
}

/// Arguments of `profile`.
#[derive(ClapArgs, Debug)]
pub struct ProfileArgs {
    /// The model.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Inputs.
    #[command(flatten)]
    pub inputs: InputArgs,
    /// How long to measure.
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Kernels in the table; all if 0. JSON has them all.
    #[arg(long, default_value_t = 30, value_name = "N")]
    pub top: usize,
    /// Write one run as a trace that Chrome (chrome://tracing) and Perfetto open.
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
}

/// Arguments of `compile`.
#[derive(ClapArgs, Debug)]
pub struct CompileArgs {
    /// The model.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Write the module after every pass to this folder.
    #[arg(long, value_name = "DIR")]
    pub dump_ir: Option<PathBuf>,
    /// Show what passes did and gave up.
    #[arg(long)]
    pub remarks: bool,
    /// Show the time of every pass.
    #[arg(long)]
    pub time_passes: bool,
    /// Write the compiled program with its weights as an artefact, which runs without being compiled.
    #[arg(short, long, value_name = "FILE.rlxa")]
    pub output: Option<PathBuf>,
}

/// Arguments of `opt`.
#[derive(ClapArgs, Debug)]
pub struct OptArgs {
    /// A graph in text form.
    #[arg(required_unless_present = "list")]
    pub file: Option<PathBuf>,
    /// A pass to run; may be given several times, in order.
    #[arg(long = "pass", value_name = "NAME")]
    pub passes: Vec<String>,
    /// List the passes.
    #[arg(long)]
    pub list: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}
