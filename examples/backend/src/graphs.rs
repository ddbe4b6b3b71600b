//! A backend that takes graphs: it walks the nodes in order and computes each.

mod ops;

use std::collections::BTreeSet;

use rlx::compile::engine::{Call, Done, Engine, EngineExecutable};
use rlx::compile::target::{Claims, ExecutableGraph, InputStage};
use rlx::compile::{CompileError, RunError, TargetModule};
use rlx::{Backend, CompileOptions, DType, Device, DimBinding, Graph, Tensor};

use crate::array::{Array, fault};

/// The ops that it computes; all others must decompose into these. `layer_norm` stands for what a device has a unit for.
pub const CLAIMED: [&str; 18] = [
    "constant",
    "reshape",
    "transpose",
    "broadcast_to",
    "gather",
    "dot_general",
    "reduce",
    "layer_norm",
    "add",
    "sub",
    "mul",
    "div",
    "sqrt",
    "exp",
    "gelu",
    "select",
    "eq",
    "convert",
];

/// Takes graphs of a handful of ops, of fixed sizes.
#[derive(Clone, Copy, Debug, Default)]
pub struct GraphBackend;

impl Backend for GraphBackend {
    fn claims(&self, _device: Device) -> Claims {
        Claims {
            ops: CLAIMED.iter().map(|s| s.to_string()).collect(),
            dtypes: BTreeSet::from([DType::F32, DType::I64, DType::Bool]),
            ..Claims::new("example-graphs", InputStage::Mir)
        }
    }

    fn compile(
        &self,
        input: TargetModule,
        _device: Device,
        _options: &CompileOptions,
    ) -> Result<Box<dyn ExecutableGraph>, CompileError> {
        let TargetModule::Mir { prepare, main } = &input else {
            return Err(CompileError::Backend("graphs are taken, not kernels".into()));
        };
        let engine = Graphs { prepare: prepare.as_ref().map(|m| m.main.clone()), main: main.main.clone() };
        Ok(Box::new(EngineExecutable::new(&input, engine)))
    }
}

/// A compiled module: the graphs as they are.
struct Graphs {
    prepare: Option<Graph>,
    main: Graph,
}

impl Engine for Graphs {
    fn prepare(&self, params: &[Tensor], _binding: &DimBinding) -> Result<Vec<Tensor>, RunError> {
        let Some(g) = &self.prepare else { return Ok(Vec::new()) };
        let read: Vec<usize> = (0..g.outputs().len()).collect();
        Ok(walk(g, &[], params, &[], &read)?.outputs)
    }

    fn run(&self, call: Call<'_>) -> Result<Done, RunError> {
        walk(&self.main, call.inputs, call.params, call.states, call.read)
    }
}

/// Computes the nodes that the outputs wanted and the states' next values depend on.
fn walk(g: &Graph, inputs: &[Tensor], params: &[Tensor], states: &[Tensor], read: &[usize]) -> Result<Done, RunError> {
    let mut values: Vec<Option<Array>> = vec![None; g.num_values()];
    let given = (g.inputs().iter().copied().zip(inputs))
        .chain(g.params().iter().map(|p| p.value).zip(params))
        .chain(g.states().iter().map(|s| s.value).zip(states));
    for (v, t) in given {
        values[v.index()] = Some(Array::of(t)?);
    }
    let wanted: Vec<_> = read.iter().filter_map(|&i| g.outputs().get(i)).map(|o| o.value).collect();
    let next: Vec<_> = g.states().iter().map(|s| s.next.unwrap_or(s.value)).collect();
    let mut needed = vec![false; g.num_values()];
    wanted.iter().chain(&next).for_each(|v| needed[v.index()] = true);
    for node in g.nodes().iter().rev() {
        if node.results.iter().any(|r| needed[r.index()]) {
            node.operands.iter().for_each(|v| needed[v.index()] = true);
        }
    }
    let mut kernels = 0;
    for node in g.nodes().iter().filter(|n| n.results.iter().any(|r| needed[r.index()])) {
        let operands: Option<Vec<&Array>> = node.operands.iter().map(|v| values[v.index()].as_ref()).collect();
        let operands = operands.ok_or_else(|| fault(node.op.name(), "an operand was not computed"))?;
        let [result] = node.results[..] else { return Err(fault(node.op.name(), "one result is expected")) };
        let ty = g.tensor_type(result).ok_or_else(|| fault(node.op.name(), "the result is no tensor"))?;
        let dims = ty.shape.as_static().ok_or_else(|| fault(node.op.name(), format!("{ty} is not of fixed size")))?;
        let data = ops::compute(&node.op, &operands, ty.dtype, &dims).map_err(|e| at(e, node.loc.name()))?;
        values[result.index()] = Some(Array { dtype: ty.dtype, dims, data });
        kernels += 1;
    }
    let tensors = |ids: &[rlx::ir::ValueId]| {
        let of = |v: &rlx::ir::ValueId| match &values[v.index()] {
            Some(a) => a.tensor(),
            None => Err(fault("output", "it was not computed")),
        };
        ids.iter().map(of).collect::<Result<Vec<_>, _>>()
    };
    Ok(Done { outputs: tensors(&wanted)?, states: tensors(&next)?, kernels })
}

/// An error with the place of its node.
fn at(e: RunError, name: Option<&str>) -> RunError {
    match e {
        RunError::Kernel { kernel, message, .. } => {
            RunError::Kernel { kernel, loc: name.unwrap_or_default().into(), message }
        }
        e => e,
    }
}
