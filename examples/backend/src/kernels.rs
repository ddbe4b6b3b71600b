//! A backend that takes kernels: it gives every buffer memory and runs the kernels in order.

mod machine;

use std::collections::BTreeSet;

use rlx::compile::engine::{Call, Done, Engine, EngineExecutable};
use rlx::compile::lir::{Kernel, Lir, Storage};
use rlx::compile::target::{Claims, ExecutableGraph, InputStage};
use rlx::compile::{CompileError, RunError, TargetModule};
use rlx::ir::Op;
use rlx::ir::ops::indexing::Indexing;
use rlx::{Backend, CompileOptions, DType, Device, DimBinding, Tensor};

use crate::array::{fault, scalars};
use machine::Machine;

/// Takes kernels: maps, rows, contractions, gathers.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelBackend;

impl Backend for KernelBackend {
    fn claims(&self, _device: Device) -> Claims {
        // What the kernels here can be made of, and an op that is a kernel of its own.
        let mut ops = rlx::compile::lower::ops_of(&["map", "row", "contract"]);
        ops.insert("gather".into());
        Claims {
            ops,
            dtypes: BTreeSet::from([DType::F32, DType::I64, DType::I32, DType::Bool]),
            symbolic_shapes: true,
            in_place: true,
            ..Claims::new("example-kernels", InputStage::Lir)
        }
    }

    fn compile(
        &self,
        input: TargetModule,
        _device: Device,
        _options: &CompileOptions,
    ) -> Result<Box<dyn ExecutableGraph>, CompileError> {
        let TargetModule::Lir(module) = &input else {
            return Err(CompileError::Backend("kernels are taken, not graphs".into()));
        };
        // Nothing but what is claimed arrives; a program that says otherwise is refused before it runs.
        for program in module.prepare.iter().chain([&module.main]) {
            let foreign: Vec<&str> =
                program.kernels.iter().map(|k| &k.kernel).filter(|k| !runs(k)).map(Kernel::kind).collect();
            if !foreign.is_empty() || program.segments.iter().any(|s| !s.defines.is_empty()) {
                return Err(CompileError::Backend(format!("kernels that are not run here: {}", foreign.join(", "))));
            }
        }
        let engine = Kernels { prepare: module.prepare.clone(), main: module.main.clone() };
        Ok(Box::new(EngineExecutable::new(&input, engine)))
    }
}

fn runs(k: &Kernel) -> bool {
    match k {
        Kernel::Map(_) | Kernel::Row(_) | Kernel::Contract(_) => true,
        Kernel::Library(l) => matches!(l.op, Op::Indexing(Indexing::Gather(_))),
        _ => false,
    }
}

/// A compiled module: the programs as they are.
struct Kernels {
    prepare: Option<Lir>,
    main: Lir,
}

impl Engine for Kernels {
    fn prepare(&self, params: &[Tensor], binding: &DimBinding) -> Result<Vec<Tensor>, RunError> {
        let Some(lir) = &self.prepare else { return Ok(Vec::new()) };
        let read: Vec<usize> = (0..lir.outputs.len()).collect();
        let call = Call { inputs: &[], params, states: &[], binding, read: &read };
        Ok(execute(lir, call)?.outputs)
    }

    fn run(&self, call: Call<'_>) -> Result<Done, RunError> {
        execute(&self.main, call)
    }
}

/// Runs all kernels of a program.
fn execute(lir: &Lir, call: Call<'_>) -> Result<Done, RunError> {
    let sizes = lir.dims.dims().iter().map(|d| d.eval(call.binding)).collect::<Result<Vec<i64>, _>>();
    let sizes = sizes.map_err(|e| fault("sizes", e.to_string()))?;
    let mut memory = Vec::with_capacity(lir.buffers.len());
    for b in &lir.buffers {
        let contents = |t: Option<&Tensor>| t.map_or_else(|| Err(fault("memory", "a tensor is missing")), scalars);
        memory.push(match &b.storage {
            Storage::Input(n) => contents(call.inputs.get(*n as usize))?,
            Storage::Param(n) => contents(call.params.get(*n as usize))?,
            Storage::State(n) => contents(call.states.get(*n as usize))?,
            Storage::Const(t) => scalars(t)?,
            Storage::Output(_) | Storage::Arena => {
                let n = usize::try_from(sizes[b.numel.index()]).map_err(|_| fault("memory", "a size is negative"))?;
                vec![machine::zero(b.dtype); n]
            }
        });
    }
    let mut machine = Machine { lir, sizes, memory };
    for k in &lir.kernels {
        machine.run(&k.kernel).map_err(|e| match e {
            RunError::Kernel { kernel, message, .. } => RunError::Kernel { kernel, loc: k.loc.to_string(), message },
            e => e,
        })?;
    }
    let outputs = call.read.iter().filter_map(|&i| lir.outputs.get(i)).map(|o| machine.tensor(o.buffer));
    let states = lir.states.iter().map(|s| machine.tensor(s.next.unwrap_or(s.buffer)));
    Ok(Done {
        outputs: outputs.collect::<Result<_, _>>()?,
        states: states.collect::<Result<_, _>>()?,
        kernels: lir.kernels.len() as u64,
    })
}
