//! LIR: kernels over buffers, sizes still symbolic; plain data without machine facts.
//!
//! A program is a list of few, general kernels. What varies is data: an iteration space, how each operand is walked over it
//! ([`Access`]), and a scalar program ([`ScalarProgram`]) for what is computed on the way. Transposes, slices, broadcasts and
//! reversals are only strides and offsets. No tile size, cache size or arena offset stands here.
//!
//! Sizes, offsets and strides are dims of the program's table ([`DimTable`]), evaluated when the shapes of a call are known.

mod customs;
mod dims;
mod kernel;
mod print;
mod scalar;
mod tensors;

use std::ops::Range;
use std::sync::Arc;

use rlx_ir::dim::{Bounds, ConstraintRecord};
use rlx_ir::{DType, Symbol, Tensor};
use serde::{Deserialize, Serialize};

pub use dims::{DimId, DimTable};
pub use kernel::{
    AttentionKernel, AttentionMask, BranchKernel, CallKernel, ContractKernel, ConvKernel, Epilogue, Kernel,
    LibraryKernel, LoopKernel, MapKernel, RowKernel, Scaling, ScanKernel, SubProgram, WindowKernel,
};
pub use scalar::{Inst, Literal, ScalarOp, ScalarProgram, Scope};

/// A buffer of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BufId(pub u32);

impl BufId {
    /// Position in the program's list of buffers.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a buffer's memory comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Storage {
    /// The caller's input number n; read only.
    Input(u32),
    /// Parameter number n of the program; read only.
    Param(u32),
    /// A literal; read only.
    Const(Tensor),
    /// State number n: kept in the context from run to run.
    State(u32),
    /// The caller's output number n, or memory of the context handed out as such.
    Output(u32),
    /// The arena, planned when sizes are known.
    Arena,
}

/// Dense memory for `numel` elements. `shape` is the logical shape; element order in memory is given by `order`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Buffer {
    /// Element type.
    pub dtype: DType,
    /// Logical sizes.
    pub shape: Vec<DimId>,
    /// Logical axes from outermost to innermost in memory: the identity is row-major, `[0, 2, 3, 1]` is channels-last.
    pub order: Vec<usize>,
    /// Number of elements.
    pub numel: DimId,
    /// Where its memory comes from.
    pub storage: Storage,
    /// First and last kernel (positions in [`Lir::kernels`]) that touch it, for arena buffers.
    pub live: Option<(u32, u32)>,
    /// The source's name of the value it holds, for reports.
    pub name: Option<Arc<str>>,
}

/// A walk over a buffer: element (i0, i1, …) of the space lies at `offset + Σ strides[a]·i_a`, in elements. Strides may be
/// negative, or 0 where the buffer is broadcast.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Access {
    /// The buffer.
    pub buffer: BufId,
    /// Position of index 0.
    pub offset: DimId,
    /// Step of each axis of the space.
    pub strides: Vec<DimId>,
}

/// A tensor as a walk over a buffer: an [`Access`] with its own sizes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct View {
    /// Sizes.
    pub sizes: Vec<DimId>,
    /// The walk over them.
    pub access: Access,
}

/// A kernel in its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelNode {
    /// What runs.
    pub kernel: Kernel,
    /// The source nodes it comes from, for reports and errors.
    pub loc: Arc<str>,
}

/// Kernels that can run once the symbols known at their start are bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Positions in [`Lir::kernels`].
    pub kernels: Range<u32>,
    /// Symbols whose values the last kernel of the segment reports.
    pub defines: Vec<Symbol>,
}

/// A named buffer of the program's boundary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Its name.
    pub name: Arc<str>,
    /// The buffer.
    pub buffer: BufId,
}

/// A parameter of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParamPort {
    /// Its name.
    pub name: Arc<str>,
    /// The buffer.
    pub buffer: BufId,
    /// What it is until set.
    pub default: Option<Tensor>,
}

/// A state of a program: read from one buffer, replaced by another after the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatePort {
    /// Its name.
    pub name: Arc<str>,
    /// What the run reads.
    pub buffer: BufId,
    /// Sizes when a run starts: those of the buffer, unless the state grows in place.
    pub shape: Vec<DimId>,
    /// What it is before the first run; zeros if `None`, and of length 0 on the axis on which it grows.
    pub init: Option<Tensor>,
    /// The axis on which runs change its length.
    pub grows: Option<u32>,
    /// What it becomes after the run. For a state that grows this may be its own buffer: then that has the sizes after the run, its
    /// outermost axis in memory is the one on which the state grows, the old value is its first part, and kernels write the rest.
    pub next: Option<BufId>,
}

impl StatePort {
    /// The axis on which the state grows within its own memory, if it does.
    pub fn grows_in_place(&self) -> Option<usize> {
        self.grows.filter(|_| self.next == Some(self.buffer)).map(|axis| axis as usize)
    }
}

/// One program.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Lir {
    /// Name, for reports.
    pub name: String,
    /// All sizes, offsets and strides.
    pub dims: DimTable,
    /// All buffers.
    pub buffers: Vec<Buffer>,
    /// Kernels in order of execution.
    pub kernels: Vec<KernelNode>,
    /// The kernels, cut where sizes depend on data.
    pub segments: Vec<Segment>,
    /// Inputs in order.
    pub inputs: Vec<Port>,
    /// Parameters in order.
    pub params: Vec<ParamPort>,
    /// States in order.
    pub states: Vec<StatePort>,
    /// Outputs in order. One buffer may be several outputs, and an input, parameter or constant may be an output.
    pub outputs: Vec<Port>,
    /// Checked when the symbols that they speak of are bound.
    pub constraints: Vec<ConstraintRecord>,
    /// Bounds of symbols.
    pub bounds: Bounds,
}

impl Lir {
    /// A buffer of this program.
    pub fn buffer(&self, id: BufId) -> &Buffer {
        &self.buffers[id.index()]
    }

    /// Adds the number of kernels of each kind, those of nested programs included.
    pub fn count_kernels(&self, counts: &mut Vec<(String, usize)>) {
        for k in &self.kernels {
            let kind = k.kernel.kind();
            match counts.iter_mut().find(|(name, _)| name == kind) {
                Some((_, n)) => *n += 1,
                None => counts.push((kind.into(), 1)),
            }
            for sub in k.kernel.nested() {
                sub.program.count_kernels(counts);
            }
        }
    }
}

/// A module at LIR: the main program, and what runs once per set of parameters.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct LirModule {
    /// Runs when parameters change: its parameters are those of the module that it uses, its outputs are main's parameters of the same
    /// names. `None` if there is nothing to prepare.
    pub prepare: Option<Lir>,
    /// Runs on every call. Its parameters are parameters of the module or outputs of `prepare`.
    pub main: Lir,
}
