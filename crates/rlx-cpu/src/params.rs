//! Parameters of a program, as its kernels see them.

use crate::buffers::{Ptr, Weight};
use crate::frame::no_memory;
use crate::program::{Program, alignment};
use rlx_compile::lir::{Lir, ParamPort, Storage};
use rlx_compile::{InputProblem, RunError};
use rlx_driver::AlignedBuffer;
use rlx_ir::{Dim, Tensor};
use std::sync::Arc;

/// Parameters of one program with their memory. Shared between clones; a changed parameter makes a new set.
pub struct ParamSet {
    /// The parameters, in the program's order.
    pub tensors: Vec<Tensor>,
    /// Where they lie.
    pub ptrs: Vec<Ptr>,
    /// Packed forms, by kernel.
    pub weights: Vec<Option<Arc<Weight>>>,
}

impl ParamSet {
    /// A set. What `before` has packed is kept where the parameter is still the same.
    pub fn new(program: &Program, tensors: Vec<Tensor>, before: Option<&ParamSet>) -> Result<ParamSet, RunError> {
        let problems: Vec<InputProblem> =
            program.lir.params.iter().zip(&tensors).filter_map(|(port, t)| misfit(&program.lir, port, t)).collect();
        if !problems.is_empty() || tensors.len() != program.lir.params.len() {
            return Err(RunError::Inputs(problems));
        }
        let tensors = tensors.into_iter().map(aligned).collect::<Result<Vec<_>, _>>()?;
        let ptrs: Vec<Ptr> = tensors.iter().map(|t| Ptr(t.bytes().as_ptr().cast_mut())).collect();
        let weights = program
            .weights
            .iter()
            .enumerate()
            .map(|(k, buffer)| {
                let b = (*buffer)?;
                let kept = before.and_then(|p| p.weights.get(k).cloned().flatten());
                let same = match program.lir.buffers.get(b as usize).map(|b| &b.storage) {
                    Some(Storage::Param(n)) => {
                        let n = *n as usize;
                        let at = |p: &ParamSet| p.tensors.get(n).map(|t| (t.bytes().as_ptr(), t.bytes().len()));
                        let now = tensors.get(n).map(|t| (t.bytes().as_ptr(), t.bytes().len()));
                        before.and_then(at) == now
                    }
                    _ => true,
                };
                Some(kept.filter(|_| same).unwrap_or_default())
            })
            .collect();
        Ok(ParamSet { tensors, ptrs, weights })
    }

    /// Bytes of packed forms.
    pub fn packed_bytes(&self) -> usize {
        self.weights.iter().flatten().map(|w| w.bytes()).sum()
    }
}

/// What is wrong with a parameter, as far as it does not depend on symbols: those are checked at bind.
pub fn misfit(lir: &Lir, port: &ParamPort, t: &Tensor) -> Option<InputProblem> {
    let b = lir.buffer(port.buffer);
    let (kind, name) = ("parameter", port.name.to_string());
    if t.dtype() != b.dtype {
        return Some(InputProblem::DType { kind, name, expected: b.dtype, got: t.dtype() });
    }
    let dims: Vec<&Dim> = b.shape.iter().map(|&d| lir.dims.get(d)).collect();
    let fits = |(d, &n): (&&Dim, &usize)| d.as_const().is_none_or(|c| usize::try_from(c) == Ok(n));
    if t.dims().len() == dims.len() && dims.iter().zip(t.dims()).all(fits) {
        return None;
    }
    let dims: Vec<String> = dims.iter().map(ToString::to_string).collect();
    let expected = format!("{}[{}]", b.dtype, dims.join(", "));
    Some(InputProblem::Shape { kind, name, expected, got: t.dims().to_vec(), why: String::new() })
}

/// A tensor whose memory kernels can read.
fn aligned(t: Tensor) -> Result<Tensor, RunError> {
    if (t.bytes().as_ptr() as usize).is_multiple_of(alignment(t.dtype())) {
        return Ok(t);
    }
    let copy = AlignedBuffer::copy_of(t.bytes()).map_err(no_memory)?;
    Tensor::from_source(t.dtype(), t.dims(), Arc::new(copy)).map_err(|e| RunError::Memory(e.to_string()))
}
