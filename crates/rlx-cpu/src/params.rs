//! Parameters of a program, as its kernels see them.

use crate::buffers::{Kept, Ptr, Weight};
use crate::frame::no_memory;
use crate::program::{KernelCode, Program, WeightSource, alignment};
use rlx_compile::lir::{Lir, ParamPort};
use rlx_compile::{InputProblem, RunError};
use rlx_driver::Slab;
use rlx_ir::{Dim, Tensor};
use std::sync::Arc;

/// Parameters of one program with their memory. Shared between clones; a changed parameter makes a new set.
pub struct ParamSet {
    /// The parameters, in the program's order.
    pub tensors: Vec<Tensor>,
    /// Where they lie.
    pub ptrs: Vec<Ptr>,
    /// Packed forms.
    pub weights: WeightSet,
}

/// Packed forms of a program's weights, and of those of its nested programs.
#[derive(Default)]
pub struct WeightSet {
    /// By kernel.
    pub own: Vec<Option<Arc<Weight>>>,
    /// By kernel and nested program.
    pub nested: Vec<Vec<WeightSet>>,
}

impl WeightSet {
    /// A set for a program. What `before` has packed is kept where the source `stays` the same.
    fn new(
        program: &Program,
        before: Option<&WeightSet>,
        stays: &impl Fn(WeightSource) -> bool,
        slab: &Arc<Slab>,
    ) -> WeightSet {
        let own = program.weights.iter().enumerate().map(|(k, source)| {
            let sources = source.as_ref()?;
            let kept = before.and_then(|b| b.own.get(k).cloned().flatten());
            Some(
                kept.filter(|_| sources.iter().all(|&s| stays(s)))
                    .unwrap_or_else(|| Arc::new(Weight::within(slab.clone()))),
            )
        });
        let nested = program.codes.iter().enumerate().map(|(k, code)| match code {
            KernelCode::Nested(programs) => {
                let before = before.and_then(|b| b.nested.get(k));
                let one = |(i, p)| WeightSet::new(p, before.and_then(|b| b.get(i)), stays, slab);
                programs.iter().enumerate().map(one).collect()
            }
            _ => Vec::new(),
        });
        WeightSet { own: own.collect(), nested: nested.collect() }
    }

    /// Calls `f` on every form with its place: a kernel's number, and for nested programs the numbers of the kernels and programs around it.
    pub fn for_each(&self, place: &mut Vec<usize>, f: &mut impl FnMut(&[usize], &Weight)) {
        for (k, w) in self.own.iter().enumerate().filter_map(|(k, w)| Some((k, w.as_deref()?))) {
            place.push(k);
            f(place, w);
            place.pop();
        }
        for (k, programs) in self.nested.iter().enumerate() {
            for (i, set) in programs.iter().enumerate() {
                place.extend([k, i]);
                set.for_each(place, f);
                place.truncate(place.len() - 2);
            }
        }
    }

    /// Bytes held, and those of them that were made before.
    fn bytes(&self) -> (usize, usize) {
        let (mut all, mut stored) = (0, 0);
        self.for_each(&mut Vec::new(), &mut |_, w| {
            all += w.bytes();
            stored += if matches!(w.made(), Some(Kept::Stored(_))) { w.bytes() } else { 0 };
        });
        (all, stored)
    }
}

impl ParamSet {
    /// A set. What `before` has packed is kept where the parameter is still the same.
    pub fn new(program: &Program, tensors: Vec<Tensor>, before: Option<&ParamSet>) -> Result<ParamSet, RunError> {
        let problems: Vec<InputProblem> =
            program.lir.params.iter().zip(&tensors).filter_map(|(port, t)| misfit(&program.lir, port, t)).collect();
        if !problems.is_empty() || tensors.len() != program.lir.params.len() {
            return Err(RunError::Inputs(problems));
        }
        let any = |i: usize| program.any_alignment.get(i) == Some(&true);
        let slab = Arc::new(Slab::for_bytes(tensors.iter().fold(0, |n: usize, t| n.saturating_add(t.bytes().len()))));
        let tensors = tensors.into_iter().enumerate().map(|(i, t)| if any(i) { Ok(t) } else { aligned(t, &slab) });
        let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
        let ptrs: Vec<Ptr> = tensors.iter().map(|t| Ptr(t.bytes().as_ptr().cast_mut())).collect();
        let place = |list: &[Tensor], n: u32| list.get(n as usize).map(|t| (t.bytes().as_ptr(), t.bytes().len()));
        let stays = |source| match source {
            WeightSource::Const => true,
            WeightSource::Param(n) => before.and_then(|b| place(&b.tensors, n)) == place(&tensors, n),
        };
        let weights = WeightSet::new(program, before.map(|b| &b.weights), &stays, &slab);
        Ok(ParamSet { tensors, ptrs, weights })
    }

    /// Bytes of packed forms, and those of them that were made before.
    pub fn packed_bytes(&self) -> (usize, usize) {
        self.weights.bytes()
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
fn aligned(t: Tensor, slab: &Slab) -> Result<Tensor, RunError> {
    if (t.bytes().as_ptr() as usize).is_multiple_of(alignment(t.dtype())) {
        return Ok(t);
    }
    let copy = slab.copy_of(t.bytes()).map_err(no_memory)?;
    Tensor::from_source(t.dtype(), t.dims(), Arc::new(copy)).map_err(|e| RunError::Memory(e.to_string()))
}
