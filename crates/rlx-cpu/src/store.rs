//! What is kept of an executable in an artefact, and how it comes back: its programs with the present values of parameters, the results of
//! the prepare program, and packed weights.
//!
//! A packed weight is named by its place (`packed/12` is kernel 12 of main, `packed/12/0/3` kernel 3 of the first program inside it) and
//! comes back only in the layout that this machine's kernels read. Whatever does not come back is made again from its source.

use crate::bind::{BoundSegment, Plan, bind_segment};
use crate::buffers::{Buffers, Kept, Ptr, RunCx};
use crate::executable::{CpuExecutable, Origin, Shared, lock};
use crate::frame::no_memory;
use crate::params::{WeightSet, misfit};
use crate::program::{KernelCode, Program, WeightSource, alignment, weight_buffer};
use crate::{contract, conv};
use rlx_compile::lir::{Lir, LirModule, ParamPort};
use rlx_compile::target::{Made, Snapshot, TargetModule};
use rlx_compile::{CompileError, CompileOptions, RunError};
use rlx_driver::{AlignedBuffer, Region};
use rlx_ir::{DType, Tensor};
use smallvec::SmallVec;
use std::sync::Arc;

/// Name of packed weights.
const PACKED: &str = "packed";
/// Name of results of the prepare program.
const PREPARED: &str = "prepared";
/// Layout of results of the prepare program.
const DENSE: &str = "dense";

/// Sizes at which weights are packed ahead of the first run, in the order in which they are tried: a plan at one of them packs what plans at
/// usual sizes read.
const SAMPLES: [i64; 14] = [64, 32, 128, 16, 8, 224, 256, 512, 4, 2, 3, 5, 7, 1];

/// Packed weights from an artefact.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stored {
    packed: Vec<(Vec<usize>, Tensor)>,
    /// Parameters of the signature that have been set since.
    changed: Vec<usize>,
}

impl Stored {
    /// A parameter has another value now.
    pub fn forget(&mut self, shared: &Shared, param: usize) {
        self.changed.push(param);
        if shared.prepare_params.contains(&param) {
            self.changed.push(usize::MAX);
        }
    }

    /// Puts the weights whose sources have not changed where kernels look for them.
    pub fn give(&self, shared: &Shared, weights: &WeightSet) {
        let stays = |source: WeightSource| match source {
            WeightSource::Const => true,
            WeightSource::Param(n) => match shared.main_params.get(n as usize) {
                Some(Origin::Param(i)) => !self.changed.contains(i),
                Some(Origin::Prepared(_)) => !self.changed.contains(&usize::MAX),
                None => false,
            },
        };
        for (place, data) in &self.packed {
            let Some((program, set, k)) = find(&shared.main, weights, place) else { continue };
            let sources = program.weights.get(k).and_then(Option::as_ref);
            if let (Some(sources), Some(Some(weight))) = (sources, set.own.get(k))
                && sources.iter().all(|&s| stays(s))
            {
                weight.set(Kept::Stored(data.clone()));
            }
        }
    }
}

/// The program and the set that a place speaks of, and the kernel's number in it.
fn find<'a>(
    mut program: &'a Program,
    mut set: &'a WeightSet,
    place: &[usize],
) -> Option<(&'a Program, &'a WeightSet, usize)> {
    let (&kernel, around) = place.split_last()?;
    for pair in around.chunks(2) {
        let (&[k, i], KernelCode::Nested(programs)) = (pair, program.codes.get(*pair.first()?)?) else { return None };
        (program, set) = (programs.get(i)?, set.nested.get(k)?.get(i)?);
    }
    Some((program, set, kernel))
}

impl CpuExecutable {
    /// See [`rlx_compile::target::ExecutableGraph::snapshot`].
    pub(crate) fn store(&mut self) -> Result<Snapshot, RunError> {
        let shared = self.shared.clone();
        let mut made = Vec::new();
        if self.params.iter().all(Option::is_some) {
            let region = shared.region();
            let set = self.param_set(&region)?;
            let params: Vec<&[usize]> = (shared.main.segments.solver.symbolic_params.iter())
                .filter_map(|&i| set.tensors.get(i).map(Tensor::dims))
                .collect();
            pack_all(&shared.main, &set.ptrs, &params, &set.weights, &region, shared.align)?;
            for (i, t) in lock(&self.prepared).iter().flat_map(|p| p.iter().enumerate()) {
                made.push(Made { key: format!("{PREPARED}/{i}"), layout: DENSE.into(), data: t.clone() });
            }
            let layout = contract::layout(shared.main.isa);
            let mut failed = None;
            set.weights.for_each(&mut Vec::new(), &mut |place, w| {
                let Some(kept) = w.made() else { return };
                let place: Vec<String> = place.iter().map(ToString::to_string).collect();
                match tensor_of(kept) {
                    Ok(data) => {
                        made.push(Made { key: format!("{PACKED}/{}", place.join("/")), layout: layout.clone(), data });
                    }
                    Err(e) => failed = Some(e),
                }
            });
            failed.map_or(Ok(()), Err)?;
        }
        let with_values = |program: &Program, number: &dyn Fn(usize) -> Option<usize>| {
            let mut lir = program.lir.clone();
            for (i, p) in lir.params.iter_mut().enumerate() {
                if let Some(n) = number(i) {
                    p.default = self.params.get(n).cloned().flatten();
                }
            }
            lir
        };
        let main = |i: usize| match shared.main_params.get(i) {
            Some(Origin::Param(n)) => Some(*n),
            _ => None,
        };
        let prepare = |i: usize| shared.prepare_params.get(i).copied();
        let module = LirModule {
            prepare: shared.prepare.as_ref().map(|p| with_values(p, &prepare)),
            main: with_values(&shared.main, &main),
        };
        Ok(Snapshot { module: TargetModule::Lir(module), made })
    }

    /// See [`rlx_compile::target::Backend::restore`].
    pub(crate) fn restore(
        module: LirModule,
        made: Vec<Made>,
        options: &CompileOptions,
    ) -> Result<(CpuExecutable, Vec<String>), CompileError> {
        let executable = CpuExecutable::new(module, options)?;
        let shared = &executable.shared;
        let layout = contract::layout(shared.main.isa);
        let (mut again, mut stored) = (Vec::new(), Stored::default());
        let mut prepared: Vec<Option<Tensor>> =
            shared.prepare.iter().flat_map(|p| p.lir.outputs.iter().map(|_| None)).collect();
        for m in made {
            let mut parts = m.key.split('/');
            let kind = parts.next();
            let place: Option<Vec<usize>> = parts.map(|p| p.parse().ok()).collect();
            match (kind, place) {
                (Some(PACKED), Some(place)) if m.layout == layout => {
                    let data = aligned(m.data).map_err(|e| CompileError::Backend(e.to_string()))?;
                    stored.packed.push((place, data));
                }
                (Some(PREPARED), Some(place)) if m.layout == DENSE && place.len() == 1 => {
                    let slot = place.first().and_then(|&i| prepared.get_mut(i));
                    slot.map_or_else(|| again.push(m.key), |s| *s = Some(m.data));
                }
                _ => again.push(m.key),
            }
        }
        // All results of prepare come back, or none: it runs as a whole.
        let all: Option<Vec<Tensor>> = prepared.into_iter().collect();
        if let (Some(tensors), Some(program)) = (all, &shared.prepare) {
            let fits = program.lir.outputs.iter().zip(&tensors).all(|(port, t)| {
                let port = ParamPort { name: port.name.clone(), buffer: port.buffer, default: None };
                misfit(&program.lir, &port, t).is_none()
            });
            if fits {
                *lock(&executable.prepared) = Some(Arc::new(tensors));
            } else {
                again.push(PREPARED.into());
            }
        }
        *lock(&executable.stored) = Some(Arc::new(stored));
        Ok((executable, again))
    }
}

/// The bytes as a tensor that holds them.
fn tensor_of(kept: &Kept) -> Result<Tensor, RunError> {
    match kept {
        Kept::Stored(t) => Ok(t.clone()),
        Kept::Own(m) => {
            Tensor::from_source(DType::U8, &[m.len()], m.clone()).map_err(|e| RunError::Memory(e.to_string()))
        }
    }
}

/// Packed bytes where kernels can read them.
fn aligned(t: Tensor) -> Result<Tensor, RunError> {
    if t.bytes().as_ptr().addr().is_multiple_of(rlx_driver::DEFAULT_ALIGN) {
        return Ok(t);
    }
    let copy = AlignedBuffer::copy_of(t.bytes()).map_err(no_memory)?;
    Tensor::from_source(t.dtype(), t.dims(), Arc::new(copy)).map_err(|e| RunError::Memory(e.to_string()))
}

/// Packs every weight that a run would, as far as sizes can be found at which the program can be bound. What is packed already stays.
fn pack_all(
    program: &Program,
    params: &[Ptr],
    shapes: &[&[usize]],
    weights: &WeightSet,
    region: &Region<'_>,
    align: usize,
) -> Result<(), RunError> {
    let mut ptrs = vec![Ptr(std::ptr::null_mut()); program.lir.buffers.len()];
    for (port, &p) in program.lir.params.iter().zip(params) {
        if let Some(slot) = ptrs.get_mut(port.buffer.index()) {
            *slot = p;
        }
    }
    for n in SAMPLES {
        let symbols = program.segments.solver.sample(n, shapes, &[]);
        if pack(program, &mut ptrs, symbols, n, weights, region, align)? {
            break;
        }
    }
    Ok(())
}

/// Packs what a run of these sizes would, sizes that depend on data taken to be `n`. False if the sizes do not fit.
fn pack(
    program: &Program,
    ptrs: &mut [Ptr],
    symbols: Vec<i64>,
    n: i64,
    weights: &WeightSet,
    region: &Region<'_>,
    align: usize,
) -> Result<bool, RunError> {
    for &(b, p) in &program.consts {
        if let Some(slot) = ptrs.get_mut(b as usize) {
            *slot = p;
        }
    }
    let mut before: Option<BoundSegment> = None;
    for (index, segment) in program.segments.list.iter().enumerate() {
        let mut values = before.as_ref().map_or_else(|| symbols.clone(), |b| b.symbols.clone());
        values.resize(segment.known, n);
        let Ok(bound) = bind_segment(program, index, values, before.as_ref(), align) else { return Ok(index > 0) };
        for (k, plan) in segment.kernels.clone().zip(&bound.plans) {
            pack_kernel(program, ptrs, k, plan, &bound.symbols, n, weights, region, align)?;
        }
        before = Some(bound);
    }
    Ok(true)
}

#[allow(clippy::too_many_arguments)]
fn pack_kernel(
    program: &Program,
    ptrs: &[Ptr],
    k: usize,
    plan: &Plan,
    symbols: &[i64],
    n: i64,
    weights: &WeightSet,
    region: &Region<'_>,
    align: usize,
) -> Result<(), RunError> {
    let (Some(node), Some(slots)) = (program.lir.kernels.get(k), program.classes.slots.get(k)) else { return Ok(()) };
    let at = |b: u32| ptrs.get(b as usize).copied().unwrap_or(Ptr(std::ptr::null_mut()));
    let mut own: SmallVec<[Ptr; 16]> = slots.iter().map(|&b| at(b)).collect();
    if let (Plan::Control(plan), Some(KernelCode::Nested(programs))) = (plan, program.codes.get(k)) {
        let bufs = Buffers::new(&own);
        let inputs = plan.inputs();
        for (program, set) in programs.iter().zip(weights.nested.get(k).map_or(&[][..], Vec::as_slice)) {
            let mut inner = vec![Ptr(std::ptr::null_mut()); program.lir.buffers.len()];
            let shapes: Vec<&[usize]> = inputs.iter().map(|v| v.as_ref().map_or(&[][..], |v| &v.sizes)).collect();
            for (port, view) in program.lir.inputs.iter().zip(&inputs) {
                let there = view.as_ref().filter(|v| v.is_dense() && !bufs.base(v.access.buffer).is_null());
                if let (Some(v), Some(slot)) = (there, inner.get_mut(port.buffer.index())) {
                    *slot = Ptr(bufs.at(&v.access));
                }
            }
            if let Ok(inside) = program.segments.solver.solve(&shapes, &[], symbols) {
                pack(program, &mut inner, inside, n, set, region, align)?;
            }
        }
        return Ok(());
    }
    let (Some(buffer), Some(Some(weight))) = (weight_buffer(&node.kernel), weights.own.get(k)) else { return Ok(()) };
    let slot = slots.iter().position(|&s| s == buffer.0);
    let Some(place) = slot.and_then(|s| own.get_mut(s)).filter(|p| !p.get().is_null()) else { return Ok(()) };
    // A weight in a mapped file may lie at an odd address.
    let mut copy = None;
    if let Some(bytes) = weight_bytes(&program.lir, buffer).filter(|_| {
        let dtype = program.lir.buffer(buffer).dtype;
        !place.get().addr().is_multiple_of(alignment(dtype))
    }) {
        let mut m = AlignedBuffer::uninit(bytes).map_err(no_memory)?;
        // SAFETY: weights have fixed sizes, and parameters were checked to have this many bytes.
        unsafe { std::ptr::copy_nonoverlapping(place.get(), m.as_mut_ptr(), bytes) };
        *place = Ptr(m.as_mut_ptr());
        copy = Some(m);
    }
    let cx = RunCx { bufs: Buffers::new(&own), region, isa: program.isa, weight: Some(weight) };
    // SAFETY: the weight operand's memory is there, and packing reads no other.
    unsafe {
        match plan {
            Plan::Contract(p) => contract::pack(p, &cx),
            Plan::Conv(p) => conv::pack(p, &cx),
            _ => {}
        }
    }
    drop(copy);
    Ok(())
}

/// Bytes of a weight, whose sizes are fixed.
fn weight_bytes(lir: &Lir, buffer: rlx_compile::lir::BufId) -> Option<usize> {
    let b = lir.buffers.get(buffer.index())?;
    let n = lir.dims.dims().get(b.numel.index())?.as_const()?;
    b.dtype.bytes_for(usize::try_from(n).ok()?)
}
