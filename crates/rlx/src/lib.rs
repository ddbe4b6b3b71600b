//! RLX: a machine-learning compiler and runtime in Rust.
//!
//! A model goes in (an ONNX file, or a graph made with [`Builder`]); a compiled program comes out and runs on a device at any input shape.
//!
//! ```no_run
//! use rlx::prelude::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = rlx::onnx::load("model.onnx", &rlx::onnx::ImportOptions::default())?;
//! let program = Session::new(Device::Cpu)?.compile_hir(&model.module)?;
//! let x = Tensor::from_slice(&[1, 3], &[1.0f32, 2.0, 3.0])?;
//! let outputs = program.run_tensors(&[("x", &x)])?;
//! println!("{:?}", outputs[0].as_slice::<f32>()?);
//! # Ok(()) }
//! ```
//!
//! A whole program, from sentences to their similarity, is `examples/similarity.rs`.
//!
//! # Tensors
//!
//! A [`Tensor`] is bytes with a [`DType`] and sizes, row-major, cheap to clone. [`Tensor::from_slice`] takes Rust slices,
//! [`Tensor::as_slice`] gives them back.
//!
//! ```
//! use rlx::{DType, Tensor};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let t = Tensor::from_slice(&[2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
//! assert_eq!((t.dtype(), t.dims(), t.numel()), (DType::F32, &[2, 2][..], 4));
//! assert_eq!(t.reshaped(&[4])?.as_slice::<f32>()?.to_vec(), [1.0, 2.0, 3.0, 4.0]);
//! assert_eq!(Tensor::zeros(DType::I64, &[3])?.as_slice::<i64>()?.to_vec(), [0; 3]);
//! # Ok(()) }
//! ```
//!
//! # Graphs
//!
//! [`Builder`] appends ops to a [`Graph`] and infers their types; sizes are numbers or symbols ([`Dim`]), and what cannot be is an error
//! at once, naming the op with its operands' types. A [`Module`] is a graph with the functions that it calls; it prints to and parses
//! from text.
//!
//! ```
//! use rlx::{Builder, DType, Dim, Module};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut b = Builder::new("main");
//! let x = b.input("x", DType::F32, [Dim::symbol("n"), 4.into()])?;
//! let w = b.param("w", DType::F32, [4, 2])?;
//! let y = b.matmul(x, w)?;
//! let y = b.softmax(y, 1)?;
//! b.output("y", y)?;
//! let error = b.matmul(w, w).unwrap_err().to_string();
//! assert!(error.contains("%w: f32[4, 2]"));
//! let module = Module::from_graph(b.finish());
//! assert!(module.has_dynamic_dims());
//! assert_eq!(rlx::ir::text::parse_module(&module.to_string())?.to_string(), module.to_string());
//! # Ok(()) }
//! ```
//!
//! Layers come as blocks that declare their parameters by name ([`nn`]), and a Rust closure over traced values becomes a module too
//! ([`trace()`](fn@trace)); ONNX files come in through [`onnx::load`]. A model made any way compiles to the same program.
//!
//! # Devices and sessions
//!
//! A [`Session`] compiles for one [`Device`]. All sixteen devices have names; [`availability`] says whether one can be used here, and if
//! not, what is missing. Backends of other crates join with [`register_backend`].
//!
//! ```
//! use rlx::{Device, Session, availability};
//! let device: Device = "nvidia".parse().unwrap();
//! assert_eq!(device, Device::Cuda);
//! assert!(availability(Device::Cpu).is_available());
//! assert!(Session::new(device).unwrap_err().to_string().contains("register_backend"));
//! ```
//!
//! # Options
//!
//! [`CompileOptions`] is plain data. Options of a call are laid over the session's: what was set holds, the rest is the session's. What a
//! backend cannot do as asked stands in the report, never nowhere; what cannot be done at all is an error.
//!
//! ```
//! use rlx::{Builder, CompileOptions, DType, Device, Precision, Session};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let graph = { let mut b = Builder::new("main"); let x = b.input("x", DType::F32, [2])?; let y = b.exp(x)?; b.output("y", y)?; b.finish() };
//! let session = Session::with_options(Device::Cpu, CompileOptions::new().threads(1))?;
//! let program = session.compile_with(graph, &CompileOptions::new().precision(Precision::BF16))?;
//! assert!(program.report().fallbacks.is_empty());
//! assert_eq!(program.report().count("precision", "low"), 1);
//! # Ok(()) }
//! ```
//!
//! # Running
//!
//! A [`CompiledGraph`] is a program with memory of its own. Inputs are named and shaped ([`Input`]); flat f32 slices do where their shape
//! is unique. Results are owned ([`CompiledGraph::run_tensors`]) or lie in the program's memory until its next run
//! ([`CompiledGraph::run_borrowed`] gives [`Outputs`] and copies nothing). Everything that is wrong with a call is one [`Error`].
//!
//! ```
//! use rlx::{Builder, DType, Device, Dim, Input, Session, Tensor};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut b = Builder::new("main");
//! let x = b.input("x", DType::F32, [Dim::symbol("n")])?;
//! let (double, square) = (b.add(x, x)?, b.mul(x, x)?);
//! b.output("double", double)?;
//! b.output("square", square)?;
//! let mut program = Session::new(Device::Cpu)?.compile(b.finish())?;
//!
//! assert_eq!(program.run(&[("x", &[3.0])])?, [[6.0], [9.0]]);
//! let x = Tensor::from_slice(&[2], &[1.0f32, 5.0])?;
//! // One output alone: kernels that only serve the other do not run.
//! let square = program.run_read_outputs(&[("x", Input::from(&x))], Some(&[1]))?;
//! assert_eq!(square[0].as_slice::<f32>()?.to_vec(), [1.0, 25.0]);
//! let outputs = program.run_borrowed(&[("x", Input::from(&x))])?;
//! assert_eq!(outputs.get(0).unwrap().dims, [2]);
//! let error = program.run(&[("y", &[1.0])]).unwrap_err().to_string();
//! assert!(error.contains("no input `y`") && error.contains("`x` (f32[n]) is missing"));
//! # Ok(()) }
//! ```
//!
//! Several threads may run one program at once, and a clone shares code and weights:
//!
//! ```
//! # use rlx::{Builder, DType, Device, Session};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let graph = { let mut b = Builder::new("main"); let x = b.input("x", DType::F32, [1])?; let y = b.add(x, x)?; b.output("y", y)?; b.finish() };
//! let program = Session::new(Device::Cpu)?.compile(graph)?;
//! std::thread::scope(|s| {
//!     for i in 0..4 {
//!         let program = &program;
//!         s.spawn(move || assert_eq!(program.run(&[("x", &[i as f32])]).unwrap(), [[2.0 * i as f32]]));
//!     }
//! });
//! # Ok(()) }
//! ```
//!
//! # Parameters
//!
//! Parameters may be set at any time, from slices, bytes, tensors or safetensors files; the last value wins. What depends on parameters
//! alone runs once, and again only when one of them has changed.
//!
//! ```
//! use rlx::{Builder, DType, Device, Session};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut b = Builder::new("main");
//! let x = b.input("x", DType::F32, [1])?;
//! let w = b.param("w", DType::F32, [1])?;
//! let v = b.mul(w, w)?;
//! let y = b.mul(x, v)?;
//! b.output("y", y)?;
//! let mut program = Session::new(Device::Cpu)?.compile(b.finish())?;
//! assert!(program.run(&[("x", &[1.0])]).unwrap_err().to_string().contains("parameter `w`"));
//! program.set_param("w", &[3.0])?;
//! for x in [1.0, 2.0] {
//!     assert_eq!(program.run(&[("x", &[x])])?, [[9.0 * x]]);
//! }
//! assert_eq!(program.stats().prepares, 1);
//! # Ok(()) }
//! ```
//!
//! # Shapes
//!
//! A program is compiled once. Each new shape is bound in microseconds and kept; [`CompiledGraph::prepare_for`] binds ahead,
//! [`CompiledGraph::memory_for`] says what a shape would take, and [`CompiledGraph::bind_misses`] why one was not kept.
//!
//! ```
//! use rlx::{Builder, DType, Device, Dim, DimBinding, Session};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut b = Builder::new("main");
//! let x = b.input("x", DType::F32, [Dim::symbol("n")])?;
//! let y = b.softmax(x, 0)?;
//! b.output("y", y)?;
//! let mut program = Session::new(Device::Cpu)?.compile(b.finish())?;
//! let binding: DimBinding = [("n", 1000)].into_iter().collect();
//! assert_eq!(program.memory_for(&binding)?.outputs, 4000);
//! program.prepare_for(&binding)?;
//! program.run(&[("x", &[0.0; 1000])])?;
//! assert_eq!((program.stats().binds, program.stats().bind_hits), (1, 1));
//! # Ok(()) }
//! ```
//!
//! # State and random numbers
//!
//! A state is a named value that a run reads and replaces, in place where that is possible: a counter, a cache of keys and values, an
//! optimiser's moments. The random generator is one ([`RngOptions`]: seed and position). Such programs run by the borrowed ways.
//!
//! ```
//! use rlx::{Builder, CompileOptions, DType, Device, Dim, Input, RngOptions, Session, Tensor};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut b = Builder::new("main");
//! let x = b.input("x", DType::F32, [1])?;
//! let sum = b.graph_mut().add_state("sum", rlx::ir::Type::tensor(DType::F32, vec![Dim::ONE]), None)?;
//! let next = b.add(sum, x)?;
//! b.graph_mut().set_state_next(0, next)?;
//! let key = b.rng_key()?;
//! let noise = b.random_normal(key, DType::F32, [1], (0.0, 1.0), 0)?;
//! b.output("sum", next)?;
//! b.output("noise", noise)?;
//! let options = CompileOptions::new().rng(Some(RngOptions { seed: 7, offset: 0 }));
//! let mut program = Session::new(Device::Cpu)?.compile_with(b.finish(), &options)?;
//! for _ in 0..3 {
//!     program.run_borrowed(&[("x", Input::Flat(&[2.0]))])?;
//! }
//! assert_eq!(program.state("sum")?, Tensor::from_slice(&[1], &[6.0f32])?);
//! assert_eq!(program.rng()?, Some(RngOptions { seed: 7, offset: 3 }));
//! # Ok(()) }
//! ```
//!
//! # Artefacts
//!
//! [`CompiledGraph::save`] writes a program with its parameters and packed weights; [`Session::load`] maps the file and runs it without
//! compiling ([`artefact`]). [`CompileOptions::cache_dir`] names a folder in which compiled programs are kept. The macro `include_model!`
//! (feature `macros`) embeds a model in a program, with typed inputs and outputs ([`embed`]).
//!
//! ```
//! use rlx::{Builder, DType, Device, Dim, Session, Tensor};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = std::env::temp_dir().join(format!("rlx-doc-{}.rlxa", std::process::id()));
//! let mut b = Builder::new("main");
//! let x = b.input("x", DType::F32, [Dim::symbol("n"), 2.into()])?;
//! let w = b.param_with("w", Tensor::from_slice(&[2, 1], &[3.0f32, 4.0])?)?;
//! let y = b.matmul(x, w)?;
//! b.output("y", y)?;
//! let session = Session::new(Device::Cpu)?;
//! session.compile(b.finish())?.save(&path)?;
//!
//! let program = session.load(&path)?;
//! assert_eq!(program.run(&[("x", &[1.0, 2.0])])?, [[11.0]]);
//! # std::fs::remove_file(&path)?;
//! # Ok(()) }
//! ```
//!
//! # Reports
//!
//! [`CompiledGraph::report`] says what the compiler did, as data ([`CompileReport`]) and as text: passes and their times, what was fused
//! and what was not and why, which kernel computes which source node, and what is done otherwise than asked.
//!
//! ```
//! # use rlx::{Builder, DType, Device, Session};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let graph = { let mut b = Builder::new("main"); let x = b.input("x", DType::F32, [4])?; let y = b.exp(x)?; let y = b.neg(y)?; b.output("y", y)?; b.finish() };
//! let program = Session::new(Device::Cpu)?.compile(graph)?;
//! let report = program.report();
//! assert_eq!((report.target.as_str(), report.placement.len(), report.placement[0].kind), ("cpu", 1, "map"));
//! assert_eq!((report.fusion().fused.len(), report.fusion().missed.len()), (1, 0));
//! println!("{report}");
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

pub mod custom;
pub mod embed;
pub mod nn;
pub mod trace;

pub use rlx_compile as compile;
pub use rlx_driver as driver;
pub use rlx_ir as ir;
pub use rlx_onnx as onnx;
pub use rlx_runtime as runtime;

pub use trace::trace;

#[cfg(feature = "macros")]
pub use rlx_macros::include_model;

pub use rlx_ir::{
    Builder, DType, Dim, DimBinding, Graph, GraphModule, HirModule, Module, RngOptions, Shape, Symbol, Tensor, Value,
};
pub use rlx_runtime::artefact;
pub use rlx_runtime::{
    Artefact, ArtefactError, Availability, Backend, Cache, CacheUse, CompileError, CompileOptions, CompileReport,
    CompiledGraph, CustomPolicy, Device, Error, ExecutableGraph, Fusion, Input, InputProblem, LoadOptions, LowerError,
    MatmulPrecision, OpClass, Otherwise, Outputs, Precision, PrecisionPolicy, PrecisionRule, RunError, SaveOptions,
    Saved, ScaledQuant, Selector, Session, TensorMut, TensorRef, Verify, availability, backend_for, feature_compiled,
    is_available, register_backend, registered_devices,
};

/// What most programs need.
pub mod prelude {
    pub use crate::{
        Builder, CompileOptions, CompiledGraph, DType, Device, Dim, Graph, Input, Module, Precision, Session, Tensor,
    };
}
