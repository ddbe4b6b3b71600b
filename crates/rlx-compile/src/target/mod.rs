//! What a device backend is to the compiler: what it claims, and how it compiles and runs.

mod borrowed;
mod memory;
mod stats;

use std::collections::BTreeSet;
use std::sync::Arc;

use rlx_driver::Device;
use rlx_ir::error::NodeRef;
use rlx_ir::ops::random::{RNG_STATE, RngOptions};
use rlx_ir::{DType, DimBinding, Module, Node, Tensor, TensorType};

use crate::error::{CompileError, RunError};
use crate::lir::LirModule;
use crate::options::{CompileOptions, MatmulPrecision, Precision, PrecisionPolicy};
use crate::report::Fallback;

pub use borrowed::{BorrowedTensor, BorrowedTensors};
pub use memory::{Extent, MemoryReport, SegmentMemory};
pub use stats::{BindMiss, ExecStats, KernelProfile, MissReason};

/// The stage that a backend takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InputStage {
    /// Graphs of claimed ops: for backends with an engine of their own.
    Mir,
    /// Kernels over buffers.
    Lir,
}

/// What a backend says of one node whose op it claims by name.
pub type NodeFilter = fn(&Node, &[&TensorType]) -> Result<(), String>;

/// What a backend takes. A backend that claims nothing supports nothing.
#[derive(Clone, Debug)]
pub struct Claims {
    /// Name of the target, for messages and the module's header.
    pub target: String,
    /// The stage it takes.
    pub stage: InputStage,
    /// Mnemonics of the ops it runs as they are.
    pub ops: BTreeSet<String>,
    /// Dtypes that it computes in.
    pub dtypes: BTreeSet<DType>,
    /// Further limits: why a node of a claimed op is not taken.
    pub filter: Option<NodeFilter>,
    /// True if one program serves all shapes. If false, sessions compile anew for each binding of the symbols, through the same passes,
    /// and the backend sees numbers only.
    pub symbolic_shapes: bool,
    /// True if a map may write where it reads.
    pub in_place: bool,
    /// True if a state that grows may be given kernels that write what is appended behind what is there
    /// ([`StatePort::grows_in_place`](crate::lir::StatePort::grows_in_place)). If false, each run makes the whole successor.
    pub growing_states: bool,
    /// True if contractions take operands that stand for others ([`Scaling`](crate::lir::Scaling)). If false, they are made what they stand
    /// for before.
    pub scaled_operands: bool,
    /// True if a product makes its left operand anew at a cost felt beside the product itself (as matrix units do, which split or narrow
    /// it), so that products of one left operand are worth joining. Joining copies weights when they are prepared.
    pub joined_products: bool,
}

impl Claims {
    /// A target that runs no op in any dtype yet, and has none of the abilities: a backend says what it adds with
    /// `Claims { ops, dtypes, ..Claims::new("name", stage) }`.
    pub fn new(target: impl Into<String>, stage: InputStage) -> Self {
        Claims {
            target: target.into(),
            stage,
            ops: BTreeSet::new(),
            dtypes: BTreeSet::new(),
            filter: None,
            symbolic_shapes: false,
            in_place: false,
            growing_states: false,
            scaled_operands: false,
            joined_products: false,
        }
    }

    /// Why a node is not taken; `Ok` if it is.
    pub fn accepts(&self, node: &Node, operands: &[&TensorType], results: &[&TensorType]) -> Result<(), String> {
        if !self.ops.contains(node.op.name()) {
            return Err(format!("op `{}` is not claimed", node.op.name()));
        }
        if let Some(t) = operands.iter().chain(results).find(|t| !self.dtypes.contains(&t.dtype)) {
            return Err(format!("dtype {} is not claimed", t.dtype));
        }
        self.filter.map_or(Ok(()), |f| f(node, operands))
    }
}

/// A module at the stage that its backend takes.
#[derive(Clone, Debug)]
pub enum TargetModule {
    /// Of claimed ops. `prepare` runs when parameters change; its outputs are main's parameters of the same names.
    Mir {
        /// Runs once per set of parameters.
        prepare: Option<Module>,
        /// Runs on every call.
        main: Module,
    },
    /// Kernels.
    Lir(LirModule),
}

/// Something that a backend has made of a program and its parameters: packed weights, results of the prepare program. Stored and given back
/// by [`Backend::restore`]; no one but the backend that made it knows what it means.
#[derive(Clone, Debug)]
pub struct Made {
    /// What it is of.
    pub key: String,
    /// How its bytes are laid out, the version of the layout and widths that depend on the machine among it.
    pub layout: String,
    /// The bytes, and a shape where it has one.
    pub data: Tensor,
}

/// Everything that an executable is made of, so that it can be made again without compiling.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The program. Parameters have as defaults the values that they have now.
    pub module: TargetModule,
    /// What was made of it.
    pub made: Vec<Made>,
}

/// What a device can do at most, as measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// f32 operations a second; a multiply-add counts as two.
    pub ops: f64,
    /// Bytes a second read from memory that no cache holds.
    pub bytes: f64,
}

/// What a backend does otherwise than options ask if it multiplies in the dtypes of operands, and compiles no scalar program to machine
/// code. Numbers of a policy that it does not claim stay f32.
pub fn common_fallbacks(options: &CompileOptions, claims: &Claims) -> Vec<Fallback> {
    let why = |what: &str| format!("this backend has no {what}");
    let mut out = Vec::new();
    let policy = options.effective_policy();
    let by_precision = policy == PrecisionPolicy::AlwaysLow(options.precision) && options.policy != policy;
    match policy.low().filter(|p| !claims.dtypes.contains(&p.dtype())) {
        Some(_) if by_precision => {
            out.push(Fallback::new("precision", options.precision, Precision::F32, why("kernels of lower precision")));
        }
        Some(_) => {
            let got = PrecisionPolicy::AlwaysF32;
            out.push(Fallback::new("policy", &policy, got, why("kernels of lower precision")));
        }
        None => {}
    }
    if options.precision != Precision::F32 && !by_precision && policy.low() != Some(options.precision) {
        let got = policy.low().unwrap_or_default();
        out.push(Fallback::new(
            "precision",
            options.precision,
            got,
            "the policy that was set decides which numbers are kept",
        ));
    }
    let (asked, highest) = (options.matmul_precision, MatmulPrecision::Highest);
    match asked {
        MatmulPrecision::High => {
            let why =
                "f32 multiply-adds are at least as exact as three bf16 products, and this backend has no faster ones";
            out.push(Fallback::new("matmul_precision", asked, highest, why));
        }
        MatmulPrecision::Medium if !claims.dtypes.contains(&DType::BF16) => {
            out.push(Fallback::new("matmul_precision", asked, highest, why("products of bf16")));
        }
        MatmulPrecision::Medium | MatmulPrecision::Highest => {}
    }
    if let Some(format) = options.scaled_quant.filter(|f| !claims.dtypes.contains(&f.dtype())) {
        out.push(Fallback::new("scaled_quant", format, "f32", why("products of that format")));
    }
    if options.scaled_quant.is_none() && options.scaled_quant_attention {
        let why = "`scaled_quant` names no format";
        out.push(Fallback::new("scaled_quant_attention", "on", "off", why));
    }
    // It is on by default, where there is an emitter.
    if options.jit && options.explicit().contains(&"jit") {
        out.push(Fallback::new("jit", "on", "off", why("emitter of machine code")));
    }
    out
}

/// A device backend. Stateless: one serves several devices and threads.
pub trait Backend: Send + Sync {
    /// What it takes on a device.
    fn claims(&self, device: Device) -> Claims;

    /// Compiles a legal module.
    fn compile(
        &self,
        input: TargetModule,
        device: Device,
        options: &CompileOptions,
    ) -> Result<Box<dyn ExecutableGraph>, CompileError>;

    /// What besides program and options decides what is [`Made`], as text: part of the keys under which artefacts are kept. Two equal texts
    /// mean that what one made the other takes.
    fn layouts(&self, _device: Device, _options: &CompileOptions) -> String {
        String::new()
    }

    /// Compiles a module that [`ExecutableGraph::snapshot`] gave, with what was made of it then. What no longer fits (made for another
    /// machine, or in a layout of another version) is made again, and each such thing is named in the list. The bytes may come from a file
    /// that anyone wrote: they may make results wrong, but no more. Unless a backend says otherwise, everything is made again.
    fn restore(
        &self,
        input: TargetModule,
        made: Vec<Made>,
        device: Device,
        options: &CompileOptions,
    ) -> Result<(Box<dyn ExecutableGraph>, Vec<String>), CompileError> {
        let again = made.into_iter().map(|m| m.key).collect();
        Ok((self.compile(input, device, options)?, again))
    }

    /// What it will do otherwise than these options ask; it stands in the report: see [`common_fallbacks`].
    fn fallbacks(&self, device: Device, options: &CompileOptions) -> Vec<Fallback> {
        common_fallbacks(options, &self.claims(device))
    }

    /// Measures what the device can do with this many threads (all that the process may use if 0); `None` if the
    /// backend does not know.
    fn peak(&self, _device: Device, _threads: usize) -> Option<Peak> {
        None
    }
}

/// Borrowed contents of a tensor, row-major, packed.
#[derive(Clone, Copy, Debug)]
pub struct TensorRef<'a> {
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub dims: &'a [usize],
    /// Contents; checked against dtype and dims by the callee.
    pub bytes: &'a [u8],
}

impl<'a> From<&'a Tensor> for TensorRef<'a> {
    fn from(t: &'a Tensor) -> Self {
        TensorRef { dtype: t.dtype(), dims: t.dims(), bytes: t.bytes() }
    }
}

/// Borrowed memory for a result, row-major, packed.
#[derive(Debug)]
pub struct TensorMut<'a> {
    /// Element type.
    pub dtype: DType,
    /// Sizes; must be those that the result has.
    pub dims: &'a [usize],
    /// Memory of exactly the right length.
    pub bytes: &'a mut [u8],
}

/// A name and a symbolic type at the boundary of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct PortInfo {
    /// Its name.
    pub name: Arc<str>,
    /// Its type.
    pub ty: TensorType,
    /// For parameters: true if it has a value without being set.
    pub has_default: bool,
    /// For states: the axis on which runs may change its length.
    pub grows: Option<usize>,
}

/// The boundary of a program.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Signature {
    /// Inputs in order.
    pub inputs: Vec<PortInfo>,
    /// Parameters in order: those of the module, whether prepare or main reads them.
    pub params: Vec<PortInfo>,
    /// Outputs in order.
    pub outputs: Vec<PortInfo>,
    /// States in order.
    pub states: Vec<PortInfo>,
}

/// A compiled program with a context of its own. Indices are positions in its [`Signature`].
pub trait ExecutableGraph: Send + Sync {
    /// The boundary.
    fn signature(&self) -> &Signature;

    /// Sets a parameter; what depends on it is prepared again before the next run.
    fn set_param(&mut self, index: usize, value: Tensor) -> Result<(), RunError>;

    /// Runs the prepare program now, if it has to run.
    fn finalize_params(&mut self) -> Result<(), RunError>;

    /// Runs with a pooled context and gives owned results: those of `read`, in its order, or all. Kernels that serve only results that
    /// are not read do not run. An error on a program with state.
    fn run(&self, inputs: &[TensorRef<'_>], read: Option<&[usize]>) -> Result<Vec<Tensor>, RunError>;

    /// Runs in the program's own context (and on its state); the results stay in it until the next run.
    fn run_borrowed<'a>(
        &'a mut self,
        inputs: &[TensorRef<'_>],
        read: Option<&[usize]>,
    ) -> Result<BorrowedTensors<'a>, RunError>;

    /// Runs and writes the results to the caller's memory, one for each output.
    fn run_into(&mut self, inputs: &[TensorRef<'_>], outputs: &mut [TensorMut<'_>]) -> Result<(), RunError>;

    /// Sizes and memory for a binding ahead of a run.
    fn prepare_for(&mut self, binding: &DimBinding) -> Result<(), RunError>;

    /// A state's present value.
    fn state(&self, index: usize) -> Result<Tensor, RunError>;

    /// Replaces a state's value; `None` resets it.
    fn set_state(&mut self, index: usize, value: Option<Tensor>) -> Result<(), RunError>;

    /// Puts the random generator at a place; an error on a program that draws no numbers. It is the state
    /// [`RNG_STATE`](rlx_ir::ops::random::RNG_STATE), which each run leaves one position further.
    fn set_rng(&mut self, rng: RngOptions) -> Result<(), RunError> {
        match self.signature().states.iter().position(|s| &*s.name == RNG_STATE) {
            Some(i) => self.set_state(i, Some(rng.to_tensor())),
            None => Err(RunError::Unsupported("the program draws no random numbers".into())),
        }
    }

    /// Where the random generator stands; `None` on a program that draws no numbers.
    fn rng(&self) -> Result<Option<RngOptions>, RunError> {
        match self.signature().states.iter().position(|s| &*s.name == RNG_STATE) {
            Some(i) => Ok(RngOptions::from_tensor(&self.state(i)?)),
            None => Ok(None),
        }
    }

    /// A program that shares code and parameters, with its own context and a copy of the state.
    fn clone_box(&self) -> Box<dyn ExecutableGraph>;

    /// Counters.
    fn stats(&self) -> ExecStats;

    /// Runs once and times every kernel.
    fn profile(&mut self, inputs: &[TensorRef<'_>]) -> Result<Vec<KernelProfile>, RunError>;

    /// The latest shapes that were not in the cache, oldest first; empty where a program has no cache.
    fn misses(&self) -> Vec<BindMiss> {
        Vec::new()
    }

    /// What it is made of, for an artefact. Prepares and packs first what a run would. An error where the backend keeps no program that
    /// could be stored: the graph is stored then.
    fn snapshot(&mut self) -> Result<Snapshot, RunError> {
        Err(RunError::Unsupported("this backend stores no programs".into()))
    }

    /// Bytes that a run of these sizes takes, without running; an error where the backend cannot say.
    fn memory(&self, _binding: &DimBinding) -> Result<MemoryReport, RunError> {
        Err(RunError::Unsupported("this backend does not plan memory before it runs".into()))
    }
}

/// A node that no rule makes legal, with why.
pub type Offender = (NodeRef, String);
