//! Kernels of single ops that are no map, row or contraction: gather, scatter, sort, cumulative, resize, recurrent cells.
//!
//! An op's kernel is a function on views; where a size depends on data it says so with [`Defined`].

use crate::buffers::{BindCx, BindError, BoundView, KernelError, RunCx};
use crate::space::position;
use crate::tile::io;
use rlx_compile::lir::LibraryKernel;
use rlx_driver::AlignedBuffer;
use rlx_ir::Op;
use rlx_ir::ops::ShapeOp;

/// A library kernel at concrete sizes.
#[derive(Debug)]
pub struct LibraryPlan {
    /// The op with the sizes of this binding in its attributes.
    pub op: Op,
    /// Operands.
    pub inputs: Vec<BoundView>,
    /// Results; empty where their sizes are not known before the kernel has run.
    pub outputs: Vec<BoundView>,
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
    let op = k.op.def().map_dims(&mut |dim| values.next().map_or_else(|| dim.clone(), rlx_ir::Dim::from));
    let views = |list: &[rlx_compile::lir::View]| list.iter().map(|v| cx.view(v)).collect::<Result<Vec<_>, _>>();
    Ok(LibraryPlan { op, inputs: views(&k.inputs)?, outputs: if defines { Vec::new() } else { views(&k.outputs)? } })
}

/// Ops that have a kernel here.
pub const OPS: &[&str] = &[];

/// Runs a library kernel; `Some` where it defines sizes.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(p: &LibraryPlan, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError> {
    match &p.op {
        // SAFETY: passes the caller's promise on.
        Op::ShapeOp(ShapeOp::ReadDims(_)) => unsafe { read_dims(p, run) }.map(Some),
        op => Err(format!("there is no kernel for `{}`", op.name())),
    }
}

/// Data that become sizes: the elements are the symbols, and the result is the operand.
/// # Safety
/// As [`run`].
unsafe fn read_dims(p: &LibraryPlan, run: &RunCx<'_>) -> Result<Defined, KernelError> {
    let x = p.inputs.first().ok_or("it has no operand")?;
    let a = &x.access;
    let mut symbols = Vec::with_capacity(x.numel());
    for i in 0..x.numel() {
        let at = position(i, &x.sizes, a.offset, &a.strides);
        // SAFETY: the view lies within its buffer.
        let v = unsafe { io::read_i128(a.dtype, run.bufs.base(a.buffer), at) };
        let v = i64::try_from(v).ok().filter(|&v| v >= 0);
        symbols.push(v.ok_or_else(|| format!("element {i} of a tensor of sizes is negative or too large"))?);
    }
    let bytes = a.dtype.bytes_for(x.numel()).unwrap_or(0);
    let mut copy = AlignedBuffer::uninit(bytes).map_err(|e| e.to_string())?;
    // SAFETY: the copy has room for all elements.
    unsafe { crate::control::copy_out(x, run.bufs, copy.as_mut_ptr()) };
    Ok(Defined { symbols, outputs: vec![copy] })
}
