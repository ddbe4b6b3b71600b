//! The kernels. Each says what its accesses are walked over.

use rlx_ir::attr::FloatBits;
use rlx_ir::ops::reduction::WindowKind;
use rlx_ir::{DType, Op, Symbol};
use serde::{Deserialize, Serialize};

use super::{Access, DimId, Lir, ScalarProgram, View};

/// A kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Kernel {
    /// See [`MapKernel`].
    Map(MapKernel),
    /// See [`RowKernel`].
    Row(RowKernel),
    /// See [`ContractKernel`].
    Contract(ContractKernel),
    /// See [`ConvKernel`].
    Conv(ConvKernel),
    /// See [`WindowKernel`].
    Window(WindowKernel),
    /// See [`AttentionKernel`].
    Attention(AttentionKernel),
    /// See [`LibraryKernel`].
    Library(LibraryKernel),
    /// See [`BranchKernel`].
    Branch(BranchKernel),
    /// See [`LoopKernel`].
    Loop(LoopKernel),
    /// See [`ScanKernel`].
    Scan(ScanKernel),
    /// See [`CallKernel`].
    Call(CallKernel),
}

/// A scalar program at each point of a space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MapKernel {
    /// Sizes of the space.
    pub space: Vec<DimId>,
    /// Walks over the space that `Read(n)` reads.
    pub reads: Vec<Access>,
    /// The program.
    pub program: ScalarProgram,
    /// Walks over the space that results are written to; injective, and disjoint from each other. A write may walk the very elements
    /// that a read walks in the same order (in place).
    pub writes: Vec<Access>,
}

/// A scalar program over rows: for each outer point, the reduced axes are passed over as often as the program's chain of reductions needs.
/// Softmax, norms and plain reductions over any axes are programs for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowKernel {
    /// Sizes of the outer axes.
    pub outer: Vec<DimId>,
    /// Sizes of the reduced axes.
    pub reduced: Vec<DimId>,
    /// Walks over outer, then reduced axes.
    pub reads: Vec<Access>,
    /// The program. An instruction that depends on elements other than through `Reduce` varies along the row.
    pub program: ScalarProgram,
    /// Walks over outer, then reduced axes, for results that vary along the row; over the outer axes alone for those that do not.
    pub writes: Vec<Access>,
}

/// What is done with a finished output element before it is written.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Epilogue {
    /// Walks over the kernel's output space that `Read(n)` reads.
    pub reads: Vec<Access>,
    /// The program; `Acc` is the accumulator, of the kernel's `acc` dtype.
    pub program: ScalarProgram,
    /// Walks over the output space that results are written to.
    pub writes: Vec<Access>,
}

/// How the numbers of an operand follow from its memory: `(x − zero) · scale`, taken in the accumulator's dtype. A product that has
/// operands of 8 bits or fewer is so given them as they are, and neither numbers nor memory grow before it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// Walk like the operand's over what is subtracted: integers of the operand's dtype; nothing where there is none.
    pub zero: Option<Access>,
    /// Walk like the operand's over the factor, in f32; only where the accumulator is a float.
    pub scale: Option<Access>,
}

impl Scaling {
    /// The walks.
    pub fn accesses(&self) -> impl Iterator<Item = &Access> {
        self.zero.iter().chain(&self.scale)
    }

    fn accesses_mut(&mut self) -> impl Iterator<Item = &mut Access> {
        self.zero.iter_mut().chain(&mut self.scale)
    }
}

/// Batched matrix product: `acc[b, m, n] = Σ_k lhs[b, m, k] · rhs[b, n, k]`, each group of any number of axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContractKernel {
    /// Batch sizes.
    pub batch: Vec<DimId>,
    /// Free sizes of the left operand.
    pub m: Vec<DimId>,
    /// Free sizes of the right operand.
    pub n: Vec<DimId>,
    /// Contracted sizes.
    pub k: Vec<DimId>,
    /// Walk over batch, m, k axes.
    pub lhs: Access,
    /// Walk over batch, n, k axes.
    pub rhs: Access,
    /// What the left operand's memory stands for.
    pub lhs_scaling: Scaling,
    /// What the right operand's memory stands for.
    pub rhs_scaling: Scaling,
    /// Dtype of the accumulator (f32 for floats of up to 32 bits).
    pub acc: DType,
    /// Over batch, m, n axes.
    pub epilogue: Epilogue,
}

/// Convolution (cross-correlation), grouped; or its transpose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvKernel {
    /// True for `conv_transpose`: every input element adds its weighted window to the output.
    pub transposed: bool,
    /// Number of images.
    pub batch: DimId,
    /// Groups.
    pub groups: i64,
    /// Input channels of all groups together.
    pub in_channels: DimId,
    /// Output channels of all groups together.
    pub out_channels: DimId,
    /// Spatial sizes of the input.
    pub in_spatial: Vec<DimId>,
    /// Spatial sizes of the output.
    pub out_spatial: Vec<DimId>,
    /// Sizes of the window.
    pub window: Vec<DimId>,
    /// Steps of the window.
    pub strides: Vec<i64>,
    /// Spacing inside the window.
    pub dilations: Vec<i64>,
    /// Zeros before the first element of each spatial axis (for `transposed`: elements of the full result cut off there).
    pub pad_low: Vec<DimId>,
    /// Walk over batch, in_channels, in_spatial.
    pub input: Access,
    /// Walk over out_channels, in_channels / groups, window; for `transposed` over in_channels, out_channels / groups, window.
    pub weight: Access,
    /// Walk like the input's over what is subtracted from it (before it is padded): an integer of its dtype, the same for all elements.
    pub input_zero: Option<Access>,
    /// The same of the weight, walked like it: one for all, or one for each output channel.
    pub weight_zero: Option<Access>,
    /// Dtype of the accumulator.
    pub acc: DType,
    /// Over batch, out_channels, out_spatial.
    pub epilogue: Epilogue,
}

/// Reduction over sliding windows (pooling).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowKernel {
    /// What is done with a window.
    pub kind: WindowKind,
    /// Sizes of the leading axes.
    pub outer: Vec<DimId>,
    /// Spatial sizes of the input.
    pub in_spatial: Vec<DimId>,
    /// Spatial sizes of the output.
    pub out_spatial: Vec<DimId>,
    /// Sizes of the window.
    pub window: Vec<i64>,
    /// Steps of the window.
    pub strides: Vec<i64>,
    /// Spacing inside the window.
    pub dilations: Vec<i64>,
    /// Padding before.
    pub pad_low: Vec<DimId>,
    /// Padding after.
    pub pad_high: Vec<DimId>,
    /// Whether a mean counts padding (never the overhang of ceil mode).
    pub count_include_pad: bool,
    /// Walk over outer, in_spatial.
    pub input: Access,
    /// Walk over outer, out_spatial; dtype of the input.
    pub output: Access,
}

/// The mask of an attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionMask {
    /// True: booleans, true where a key is seen. False: floats added to the scores.
    pub boolean: bool,
    /// Walk over batch, heads, queries, keys.
    pub access: Access,
}

/// Scaled dot-product attention without a score matrix: blocked, with online softmax.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionKernel {
    /// Batch size.
    pub batch: DimId,
    /// Query heads.
    pub heads: DimId,
    /// Key and value heads; divides `heads`.
    pub kv_heads: DimId,
    /// Number of queries.
    pub queries: DimId,
    /// Number of keys.
    pub keys: DimId,
    /// Size of a query or key.
    pub head_dim: DimId,
    /// Size of a value.
    pub value_dim: DimId,
    /// Walk over batch, heads, queries, head_dim.
    pub q: Access,
    /// Walk over batch, kv_heads, keys, head_dim.
    pub k: Access,
    /// Walk over batch, kv_heads, keys, value_dim.
    pub v: Access,
    /// Walk over batch, heads, queries, value_dim.
    pub out: Access,
    /// The mask.
    pub mask: Option<AttentionMask>,
    /// Factor of the scores.
    pub scale: FloatBits,
    /// Query i sees keys up to i + keys − queries.
    pub causal: bool,
    /// Query i sees only keys nearer than this to position i + keys − queries.
    pub window: Option<i64>,
    /// Scores become `softcap · tanh(score / softcap)`.
    pub softcap: Option<FloatBits>,
}

/// An op with a kernel of its own (gather, scatter, sort, top-k, cumulative, recurrent cells, resize, …): operands and results in the op's
/// order. Dims inside the op's attributes are replaced by the values of `dims`, in the order in which `map_dims` visits them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LibraryKernel {
    /// The op.
    pub op: Op,
    /// Values of the op's dims.
    pub dims: Vec<DimId>,
    /// Operands.
    pub inputs: Vec<View>,
    /// Results. Where a size depends on data the kernel reports it.
    pub outputs: Vec<View>,
}

/// A nested program with the parent's views that become its inputs and the parent's views that its outputs are copied to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SubProgram {
    /// The program. Its dims may speak of the parent's symbols.
    pub program: Box<Lir>,
}

/// Read with a limit to its nesting, so that no file overflows the stack.
impl<'de> Deserialize<'de> for SubProgram {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        thread_local!(static DEPTH: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });
        struct Level;
        impl Drop for Level {
            fn drop(&mut self) {
                DEPTH.with(|d| d.set(d.get().saturating_sub(1)));
            }
        }
        let depth = DEPTH.with(|d| d.replace(d.get() + 1));
        let _level = Level;
        if depth >= rlx_ir::eval::MAX_DEPTH {
            let why = format!("programs are nested more than {} deep", rlx_ir::eval::MAX_DEPTH);
            return Err(serde::de::Error::custom(why));
        }
        #[derive(Deserialize)]
        struct Plain {
            program: Box<Lir>,
        }
        Plain::deserialize(d).map(|p| SubProgram { program: p.program })
    }
}

/// Runs one of two programs; both take the captures as inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BranchKernel {
    /// A boolean scalar.
    pub cond: View,
    /// Inputs of both programs.
    pub captures: Vec<View>,
    /// Runs if the condition holds.
    pub then_branch: SubProgram,
    /// Runs if it does not.
    pub else_branch: SubProgram,
    /// Where outputs go.
    pub outputs: Vec<View>,
    /// Symbols that the outputs' sizes define.
    pub defines: Vec<Symbol>,
}

/// ONNX `Loop`: the body takes iteration number, condition, carried values, captures; gives condition, carried values, scan outputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoopKernel {
    /// Largest number of iterations.
    pub trip_count: Option<View>,
    /// Condition before the first iteration.
    pub cond: Option<View>,
    /// Starting values.
    pub carried: Vec<View>,
    /// Values that the body captures.
    pub captures: Vec<View>,
    /// The body.
    pub body: SubProgram,
    /// Final carried values, then stacked scan outputs.
    pub outputs: Vec<View>,
    /// Symbols that the outputs' sizes define.
    pub defines: Vec<Symbol>,
}

/// ONNX `Scan`: the body takes carried values, one slice of each scanned input, captures; gives carried values, one slice of each scan output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScanKernel {
    /// Number of steps.
    pub steps: DimId,
    /// Starting values.
    pub carried: Vec<View>,
    /// Scanned inputs with axis and direction.
    pub scanned: Vec<(View, usize, bool)>,
    /// Values that the body captures.
    pub captures: Vec<View>,
    /// The body.
    pub body: SubProgram,
    /// Final carried values.
    pub outputs: Vec<View>,
    /// Stacked scan outputs with axis and direction.
    pub stacked: Vec<(View, usize, bool)>,
}

/// Runs a nested program once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallKernel {
    /// Inputs.
    pub inputs: Vec<View>,
    /// The program.
    pub body: SubProgram,
    /// Where outputs go.
    pub outputs: Vec<View>,
    /// Symbols that the outputs' sizes define.
    pub defines: Vec<Symbol>,
}

impl Kernel {
    /// The kind's name in reports.
    pub fn kind(&self) -> &'static str {
        match self {
            Kernel::Map(_) => "map",
            Kernel::Row(_) => "row",
            Kernel::Contract(_) => "contract",
            Kernel::Conv(k) if k.transposed => "conv_transpose",
            Kernel::Conv(_) => "conv",
            Kernel::Window(_) => "window",
            Kernel::Attention(_) => "attention",
            Kernel::Library(k) => k.op.name(),
            Kernel::Branch(_) => "branch",
            Kernel::Loop(_) => "loop",
            Kernel::Scan(_) => "scan",
            Kernel::Call(_) => "call",
        }
    }

    /// Programs inside it.
    pub fn nested(&self) -> Vec<&SubProgram> {
        match self {
            Kernel::Branch(b) => vec![&b.then_branch, &b.else_branch],
            Kernel::Loop(l) => vec![&l.body],
            Kernel::Scan(s) => vec![&s.body],
            Kernel::Call(c) => vec![&c.body],
            _ => Vec::new(),
        }
    }

    /// What it reads.
    pub fn reads(&self) -> Vec<&Access> {
        let mut out: Vec<&Access> = Vec::new();
        fn views<'a>(out: &mut Vec<&'a Access>, v: &'a [View]) {
            out.extend(v.iter().map(|v| &v.access));
        }
        match self {
            Kernel::Map(k) => out.extend(&k.reads),
            Kernel::Row(k) => out.extend(&k.reads),
            Kernel::Contract(k) => {
                out.extend([&k.lhs, &k.rhs]);
                out.extend(k.lhs_scaling.accesses().chain(k.rhs_scaling.accesses()));
                out.extend(&k.epilogue.reads);
            }
            Kernel::Conv(k) => {
                out.extend([&k.input, &k.weight]);
                out.extend(k.input_zero.iter().chain(&k.weight_zero));
                out.extend(&k.epilogue.reads);
            }
            Kernel::Window(k) => out.push(&k.input),
            Kernel::Attention(k) => {
                out.extend([&k.q, &k.k, &k.v]);
                out.extend(k.mask.iter().map(|m| &m.access));
            }
            Kernel::Library(k) => views(&mut out, &k.inputs),
            Kernel::Branch(k) => {
                out.push(&k.cond.access);
                views(&mut out, &k.captures);
            }
            Kernel::Loop(k) => {
                out.extend(k.trip_count.iter().chain(&k.cond).map(|v| &v.access));
                views(&mut out, &k.carried);
                views(&mut out, &k.captures);
            }
            Kernel::Scan(k) => {
                views(&mut out, &k.carried);
                out.extend(k.scanned.iter().map(|s| &s.0.access));
                views(&mut out, &k.captures);
            }
            Kernel::Call(k) => views(&mut out, &k.inputs),
        }
        out
    }

    /// What it writes.
    pub fn writes(&self) -> Vec<&Access> {
        match self {
            Kernel::Map(k) => k.writes.iter().collect(),
            Kernel::Row(k) => k.writes.iter().collect(),
            Kernel::Contract(k) => k.epilogue.writes.iter().collect(),
            Kernel::Conv(k) => k.epilogue.writes.iter().collect(),
            Kernel::Window(k) => vec![&k.output],
            Kernel::Attention(k) => vec![&k.out],
            Kernel::Library(k) => k.outputs.iter().map(|v| &v.access).collect(),
            Kernel::Branch(k) => k.outputs.iter().map(|v| &v.access).collect(),
            Kernel::Loop(k) => k.outputs.iter().map(|v| &v.access).collect(),
            Kernel::Scan(k) => k.outputs.iter().chain(k.stacked.iter().map(|s| &s.0)).map(|v| &v.access).collect(),
            Kernel::Call(k) => k.outputs.iter().map(|v| &v.access).collect(),
        }
    }

    /// All that it reads and writes, to be renamed.
    pub fn accesses_mut(&mut self) -> Vec<&mut Access> {
        fn views(v: &mut [View]) -> impl Iterator<Item = &mut Access> {
            v.iter_mut().map(|v| &mut v.access)
        }
        fn parts(v: &mut [(View, usize, bool)]) -> impl Iterator<Item = &mut Access> {
            v.iter_mut().map(|v| &mut v.0.access)
        }
        match self {
            Kernel::Map(k) => k.reads.iter_mut().chain(&mut k.writes).collect(),
            Kernel::Row(k) => k.reads.iter_mut().chain(&mut k.writes).collect(),
            Kernel::Contract(k) => {
                let e = &mut k.epilogue;
                let scaling = k.lhs_scaling.accesses_mut().chain(k.rhs_scaling.accesses_mut());
                let operands = [&mut k.lhs, &mut k.rhs].into_iter().chain(scaling);
                operands.chain(&mut e.reads).chain(&mut e.writes).collect()
            }
            Kernel::Conv(k) => {
                let e = &mut k.epilogue;
                let operands =
                    [&mut k.input, &mut k.weight].into_iter().chain(&mut k.input_zero).chain(&mut k.weight_zero);
                operands.chain(&mut e.reads).chain(&mut e.writes).collect()
            }
            Kernel::Window(k) => vec![&mut k.input, &mut k.output],
            Kernel::Attention(k) => {
                let mask = k.mask.iter_mut().map(|m| &mut m.access);
                [&mut k.q, &mut k.k, &mut k.v, &mut k.out].into_iter().chain(mask).collect()
            }
            Kernel::Library(k) => views(&mut k.inputs).chain(views(&mut k.outputs)).collect(),
            Kernel::Branch(k) => {
                std::iter::once(&mut k.cond.access).chain(views(&mut k.captures)).chain(views(&mut k.outputs)).collect()
            }
            Kernel::Loop(k) => (k.trip_count.iter_mut().chain(&mut k.cond).map(|v| &mut v.access))
                .chain(views(&mut k.carried))
                .chain(views(&mut k.captures))
                .chain(views(&mut k.outputs))
                .collect(),
            Kernel::Scan(k) => views(&mut k.carried)
                .chain(parts(&mut k.scanned))
                .chain(views(&mut k.captures))
                .chain(views(&mut k.outputs))
                .chain(parts(&mut k.stacked))
                .collect(),
            Kernel::Call(k) => views(&mut k.inputs).chain(views(&mut k.outputs)).collect(),
        }
    }
}
