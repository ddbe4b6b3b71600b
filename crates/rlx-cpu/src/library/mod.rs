//! Kernels of single ops that are no map, row or contraction: gather, scatter, sort, cumulative, resize, recurrent cells, transforms.
//!
//! Each op's file has a function that plans: it checks that the operands' sizes fit together, which is what the
//! kernel's raw pointers rely on, makes tables that depend on sizes alone, and gives a [`Routine`]. Where a size of a
//! result depends on data the routine says so with [`Defined`].
//!
//! Invariants: indices are checked before anything is read or written at them; work is cut by its size alone, so that
//! results do not depend on the number of threads; elements narrower than a byte are written by one thread.

mod arg_reduce;
mod bitcast;
mod cumulative;
mod custom;
mod dynamic_slice;
mod fft;
mod gather;
mod gather_elements;
mod indices;
mod lines;
mod max_pool;
mod memory;
mod moves;
mod nonzero;
mod number;
mod random_bits;
mod read_dims;
mod recurrent;
mod remap;
mod resize;
mod scatter;
mod sort;
mod walk;

use crate::buffers::{BindCx, BindError, BoundView, KernelError, RunCx};
use rlx_compile::lir::LibraryKernel;
use rlx_driver::AlignedBuffer;
use rlx_ir::ops::{Custom, Indexing, Neural, Random, Reduction, ShapeOp, Signal};
use rlx_ir::{DType, Dim, Op};
use std::fmt::Debug;
use std::ops::Range;

pub use custom::{CustomKernel, KernelInput, KernelOutput, has_kernel, register_kernel};

/// A library kernel at concrete sizes.
#[derive(Debug)]
pub struct LibraryPlan(Box<dyn Routine>);

/// What runs at concrete sizes.
pub trait Routine: Debug + Send + Sync {
    /// Runs; `Some` where it defines sizes.
    /// # Safety
    /// As [`crate::map::run`].
    unsafe fn run(&self, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError>;
}

/// What a kernel whose results depend on data for their size gives.
#[derive(Debug, Default)]
pub struct Defined {
    /// Values of the symbols that it defines, in order.
    pub symbols: Vec<i64>,
    /// The results, dense and row-major: the executor copies them to their buffers once those have a size.
    pub outputs: Vec<AlignedBuffer>,
}

/// Plans a library kernel. `defines` says that sizes of its results are not known yet.
pub fn plan(k: &LibraryKernel, defines: bool, cx: &BindCx<'_>) -> Result<LibraryPlan, BindError> {
    let mut values = k.dims.iter().map(|&d| cx.value(d));
    // Dims that are not in the kernel's list stay as they are: those of results that are not known yet.
    let op = k.op.def().map_dims(&mut |dim| values.next().map_or_else(|| dim.clone(), Dim::from));
    let views = |list: &[rlx_compile::lir::View]| list.iter().map(|v| cx.view(v)).collect::<Result<Vec<_>, _>>();
    let x = views(&k.inputs)?;
    let y = if defines { Vec::new() } else { views(&k.outputs)? };
    routine(&op, &x, &y).map(LibraryPlan)
}

/// Ops that have a kernel here. `pad` of other modes than constant and `read_dims` have too, but lowering decides on them.
pub const OPS: &[&str] = &[
    "gather",
    "gather_nd",
    "gather_elements",
    "scatter_elements",
    "scatter_nd",
    "sort",
    "top_k",
    "nonzero",
    "dynamic_slice",
    "dynamic_update_slice",
    "arg_reduce",
    "cumulative",
    "max_pool_with_indices",
    "lstm",
    "gru",
    "rnn",
    "resize",
    "random_bits",
    "bitcast_convert",
    "fft",
    "custom",
];

fn routine(op: &Op, x: &[BoundView], y: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    match op {
        Op::ShapeOp(ShapeOp::ReadDims(_)) => read_dims::plan(x),
        Op::ShapeOp(ShapeOp::Pad(op)) => remap::plan_pad(op, x, y),
        Op::ShapeOp(ShapeOp::BitcastConvert(_)) => bitcast::plan(x, y),
        Op::Random(Random::RandomBits(op)) => random_bits::plan(op, x, y),
        Op::Indexing(Indexing::Gather(op)) => gather::plan(op, x, y),
        Op::Indexing(Indexing::GatherNd(op)) => gather::plan_nd(op, x, y),
        Op::Indexing(Indexing::GatherElements(op)) => gather_elements::plan(op, x, y),
        Op::Indexing(Indexing::ScatterElements(op)) => scatter::plan_elements(op, x, y),
        Op::Indexing(Indexing::ScatterNd(op)) => scatter::plan_nd(op, x, y),
        Op::Indexing(Indexing::Sort(op)) => sort::plan(op.axis, op.descending, x, y),
        Op::Indexing(Indexing::TopK(op)) => sort::plan(op.axis, op.largest, x, y),
        Op::Indexing(Indexing::NonZero(_)) => nonzero::plan(x),
        Op::Indexing(Indexing::DynamicSlice(_)) => dynamic_slice::plan(x, y),
        Op::Indexing(Indexing::DynamicUpdateSlice(_)) => dynamic_slice::plan_update(x, y),
        Op::Reduction(Reduction::ArgReduce(op)) => arg_reduce::plan(op, x, y),
        Op::Reduction(Reduction::Cumulative(op)) => cumulative::plan(op, x, y),
        Op::Reduction(Reduction::MaxPoolIndices(op)) => max_pool::plan(op, x, y),
        Op::Neural(Neural::Lstm(op)) => recurrent::plan_lstm(op, x, y),
        Op::Neural(Neural::Gru(op)) => recurrent::plan_gru(op, x, y),
        Op::Neural(Neural::Rnn(op)) => recurrent::plan_rnn(op, x, y),
        Op::Neural(Neural::Resize(op)) => resize::plan(op, x, y),
        Op::Signal(Signal::Fft(op)) => fft::plan(op, x, y),
        Op::Custom(Custom::CustomOp(op)) => custom::plan(op, x, y),
        op => Err(format!("the CPU has no kernel for `{}`", op.name())),
    }
}

/// Runs a library kernel; `Some` where it defines sizes.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(p: &LibraryPlan, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError> {
    // SAFETY: passes the caller's promise on.
    unsafe { p.0.run(run) }
}

/// Exactly `N` operands or results.
fn operands<const N: usize>(list: &[BoundView]) -> Result<[&BoundView; N], BindError> {
    let all: Vec<&BoundView> = list.iter().collect();
    <[&BoundView; N]>::try_from(all).map_err(|_| format!("it has {} operands or results instead of {N}", list.len()))
}

/// What is wrong with sizes that do not belong together.
fn misfit(op: &str, inputs: &[BoundView], outputs: &[BoundView]) -> BindError {
    let list = |v: &[BoundView]| {
        v.iter().map(|v| format!("{}{:?}", v.access.dtype, v.sizes.as_slice())).collect::<Vec<_>>().join(", ")
    };
    format!("operands {} and results {} do not fit `{op}`", list(inputs), list(outputs))
}

/// Errors unless sizes belong together.
fn agree(fits: bool, op: &str, inputs: &[BoundView], outputs: &[BoundView]) -> Result<(), BindError> {
    if fits { Ok(()) } else { Err(misfit(op, inputs, outputs)) }
}

/// Runs `f` on chunks of `0..n`: on all threads, or on this one alone where elements that are written share bytes.
fn split(run: &RunCx<'_>, written: DType, n: usize, chunk: usize, f: &(dyn Fn(Range<usize>) + Sync)) {
    if written.bits() < 8 {
        f(0..n);
    } else {
        run.region.parallel_ranges(n, chunk, f);
    }
}
