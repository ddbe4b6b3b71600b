//! The evaluator: the slow, obvious meaning of a graph, and the oracle of everything else.
//!
//! It runs nodes in order, each by its op's own reference semantics ([`OpDef::eval`](crate::op::OpDef::eval)), and checks every
//! result against the type that inference promised. It shares no code with any kernel, and no backend may call it.

mod axis;
mod elementwise;
mod index;
mod raw;
mod strided;

use std::collections::{BTreeMap, BTreeSet};

use crate::dim::{ConstraintViolation, Dim, DimBinding, Equation};
use crate::error::{IrError, OpError};
use crate::graph::{Graph, Module, Node, ValueId};
use crate::op::{EvalCx, EvalOptions};
use crate::tensor::{Tensor, Value};
use crate::types::{Shape, Type};

pub use axis::AroundAxis;
pub use elementwise::{broadcast_index, broadcast_sizes, elementwise};
pub use index::{for_each_index, gather_elements, index_elements, row_major_strides, take_linear};
pub use raw::Raw;
pub use strided::{for_each_row, signed_strides, strided_positions, take_or_fill};

/// How deep calls and nested graphs may go.
pub const MAX_DEPTH: usize = 64;

/// What a run starts from.
#[derive(Clone, Debug, Default)]
pub struct EvalInputs {
    /// One value per graph input, in order.
    pub inputs: Vec<Value>,
    /// Parameters by name, over their defaults.
    pub params: BTreeMap<String, Tensor>,
    /// States by name, over their initial values.
    pub states: BTreeMap<String, Tensor>,
    /// Sizes of symbols that no shape binds.
    pub binding: DimBinding,
}

/// What a run gives.
#[derive(Clone, Debug, Default)]
pub struct EvalResults {
    /// One value per graph output, in order.
    pub outputs: Vec<Value>,
    /// States after the run.
    pub states: BTreeMap<String, Tensor>,
    /// Sizes of all symbols, those that depend on data included.
    pub binding: DimBinding,
}

/// Runs a module.
pub fn evaluate(module: &Module, inputs: &EvalInputs, options: EvalOptions) -> Result<EvalResults, IrError> {
    evaluate_observed(module, inputs, options, &mut |_, _| {})
}

/// Runs a module and shows every value of the main graph as it is defined.
pub fn evaluate_observed(
    module: &Module,
    inputs: &EvalInputs,
    options: EvalOptions,
    observe: &mut dyn FnMut(ValueId, &Value),
) -> Result<EvalResults, IrError> {
    let g = &module.main;
    let mut problems = Vec::new();
    if inputs.inputs.len() != g.inputs().len() {
        problems.push(format!("graph `{}` takes {} inputs, got {}", g.name(), g.inputs().len(), inputs.inputs.len()));
    }
    for (what, given, known) in [
        (
            "parameter",
            inputs.params.keys().collect::<Vec<_>>(),
            g.params().iter().map(|p| &*p.name).collect::<Vec<_>>(),
        ),
        ("state", inputs.states.keys().collect(), g.states().iter().map(|s| &*s.name).collect()),
    ] {
        for name in given {
            if !known.contains(&name.as_str()) {
                problems.push(format!("graph `{}` has no {what} `{name}`", g.name()));
            }
        }
    }
    let mut start: Vec<(ValueId, Value)> = g.inputs().iter().copied().zip(inputs.inputs.iter().cloned()).collect();
    for p in g.params() {
        match inputs.params.get(&*p.name).or(p.default.as_ref()) {
            Some(t) => start.push((p.value, t.clone().into())),
            None => problems.push(format!("parameter `{}` is not set and has no default", p.name)),
        }
    }
    // Sizes that states have bind symbols too; one that grows begins with length 0.
    let held = |s: &crate::graph::State| inputs.states.get(&*s.name).or(s.init.as_ref()).cloned();
    start.extend(g.states().iter().filter_map(|s| Some((s.value, held(s)?.into()))));
    let fresh = |s: &crate::graph::State| {
        let dim = g.tensor_type(s.value)?.shape.get(s.grows?)?.clone();
        held(s).is_none().then(|| Equation::new(dim, 0, format!("state `{}`, which is new", s.name)))
    };
    let fresh: Vec<Equation> = g.states().iter().filter_map(fresh).collect();
    let binding = bind(g, &start, fresh, &inputs.binding, &mut problems);
    let mut binding = match binding {
        Some(b) if problems.is_empty() => b,
        _ => return Err(IrError::Eval(problems.join("; "))),
    };
    for s in g.states().iter().filter(|s| held(s).is_none()) {
        let Some(ty) = g.tensor_type(s.value) else {
            return Err(IrError::Eval(format!("state `{}` is not a tensor", s.name)));
        };
        let dims = sizes(&ty.shape, &binding).map_err(|e| IrError::Eval(format!("state `{}`: {e}", s.name)))?;
        let t = Tensor::zeros(ty.dtype, &dims).map_err(|e| IrError::Eval(e.to_string()))?;
        start.push((s.value, t.into()));
    }
    let around = Around { options, functions: &module.functions, depth: MAX_DEPTH, held: 0 };
    let values = run(g, start, &mut binding, &around, observe)?;
    let take = |v: ValueId| {
        values
            .get(v.index())
            .cloned()
            .flatten()
            .ok_or_else(|| IrError::Eval(format!("{} was not computed", g.value_name(v))))
    };
    let outputs = g.outputs().iter().map(|o| take(o.value)).collect::<Result<_, _>>()?;
    let mut states = BTreeMap::new();
    for s in g.states() {
        if let Value::Tensor(t) = take(s.next.unwrap_or(s.value))? {
            states.insert(s.name.to_string(), t);
        }
    }
    Ok(EvalResults { outputs, states, binding })
}

/// Runs a nested graph or a function on its inputs.
pub fn eval_nested(g: &Graph, args: &[Value], cx: &EvalCx<'_>) -> Result<Vec<Value>, OpError> {
    let Some(depth) = cx.depth.checked_sub(1) else {
        return Err(OpError::new(format!("graphs are nested or called more than {MAX_DEPTH} deep")));
    };
    if args.len() != g.inputs().len() {
        return Err(OpError::new(format!(
            "graph `{}` takes {} inputs, got {}",
            g.name(),
            g.inputs().len(),
            args.len()
        )));
    }
    let start: Vec<(ValueId, Value)> = g.inputs().iter().copied().zip(args.iter().cloned()).collect();
    let mut problems = Vec::new();
    // Symbols of the surrounding graph stay visible, except those that the nested graph's inputs and nodes define anew.
    let mut own = g.input_symbols();
    own.extend(g.nodes().iter().flat_map(|n| n.op.def().defines()));
    let outer: DimBinding = cx.binding.iter().filter(|(s, _)| !own.contains(*s)).map(|(s, v)| (s.clone(), v)).collect();
    let mut binding = bind(g, &start, Vec::new(), &outer, &mut problems)
        .filter(|_| problems.is_empty())
        .ok_or_else(|| OpError::new(problems.join("; ")))?;
    // A size of an input that is an expression may not say what its symbol is; it is the surrounding graph's then.
    let defined: BTreeSet<_> = g.nodes().iter().flat_map(|n| n.op.def().defines()).collect();
    for (s, v) in cx.binding.iter().filter(|(s, _)| !defined.contains(*s)) {
        if binding.get(s).is_none() {
            binding.set(s.clone(), v);
        }
    }
    let around = Around { options: cx.options, functions: cx.functions, depth, held: cx.held };
    let values = run(g, start, &mut binding, &around, &mut |_, _| {})
        .map_err(|e| OpError::new(format!("in graph `{}`: {e}", g.name())))?;
    g.outputs()
        .iter()
        .map(|o| {
            values
                .get(o.value.index())
                .cloned()
                .flatten()
                .ok_or_else(|| OpError::new(format!("{} was not computed", o.value)))
        })
        .collect()
}

/// Solves the symbols of the starting values' types from their contents' shapes and what else is known.
fn bind(
    g: &Graph,
    start: &[(ValueId, Value)],
    mut equations: Vec<Equation>,
    given: &DimBinding,
    problems: &mut Vec<String>,
) -> Option<DimBinding> {
    for (v, value) in start {
        equate(g.ty(*v), value, &g.value_name(*v), &mut equations, problems);
    }
    match crate::dim::solve(&equations, given, g.bounds()) {
        Ok(b) => Some(b),
        Err(e) => {
            problems.extend(e.iter().map(ToString::to_string));
            None
        }
    }
}

/// States that a value's sizes are those of its type.
fn equate(ty: &Type, value: &Value, name: &str, equations: &mut Vec<Equation>, problems: &mut Vec<String>) {
    match (ty, value) {
        (Type::Tensor(t), Value::Tensor(x)) => {
            if t.dtype != x.dtype() || t.shape.rank() != x.rank() {
                problems.push(format!("{name} must be {t}, got {x:?}"));
                return;
            }
            for (axis, (d, &n)) in t.shape.iter().zip(x.dims()).enumerate() {
                equations.push(Equation {
                    dim: d.clone(),
                    value: n as i64,
                    origin: format!("{name} axis {axis}").into(),
                });
            }
        }
        (Type::Sequence(_), Value::Sequence(_)) | (Type::Optional(_), Value::Optional(_)) => {}
        _ => problems.push(format!("{name} must be a {ty}")),
    }
}

fn sizes(shape: &Shape, binding: &DimBinding) -> Result<Vec<usize>, OpError> {
    shape
        .iter()
        .map(|d: &Dim| {
            let v = d.eval(binding)?;
            usize::try_from(v).map_err(|_| OpError::new(format!("size {d} is {v}; sizes must be ≥ 0")))
        })
        .collect()
}

/// What a graph is run in.
struct Around<'a> {
    options: EvalOptions,
    functions: &'a BTreeMap<String, Graph>,
    depth: usize,
    /// Elements that the results of surrounding nodes hold.
    held: usize,
}

/// Elements of a value.
fn elements(v: &Value) -> usize {
    match v {
        Value::Tensor(t) => t.numel(),
        Value::Sequence(s) => s.iter().map(elements).fold(0, usize::saturating_add),
        Value::Optional(o) => o.as_deref().map_or(0, elements),
    }
}

/// Elements that a node's results will have, as far as sizes are known before it runs.
fn expected(g: &Graph, node: &Node, binding: &DimBinding) -> usize {
    let of = |t: &crate::types::TensorType| {
        let sizes = sizes(&t.shape, binding).ok()?;
        Some(crate::tensor::checked_numel(&sizes).unwrap_or(usize::MAX))
    };
    node.results.iter().filter_map(|&r| g.tensor_type(r).and_then(of)).fold(0, usize::saturating_add)
}

/// Runs the nodes in order; gives all values that were not dropped after their last use by an output.
fn run(
    g: &Graph,
    start: Vec<(ValueId, Value)>,
    binding: &mut DimBinding,
    around: &Around<'_>,
    observe: &mut dyn FnMut(ValueId, &Value),
) -> Result<Vec<Option<Value>>, IrError> {
    for c in g.constraints() {
        // A constraint over symbols that depend on data is checked when the node that defines them has run.
        if let Err(e @ ConstraintViolation::Violated { .. }) = c.check(binding) {
            return Err(IrError::Eval(e.to_string()));
        }
    }
    let mut remaining = g.use_counts();
    let mut values: Vec<Option<Value>> = vec![None; g.num_values()];
    // Inputs are the caller's; what counts is what nodes make.
    let mut held = around.held;
    let mut made = vec![false; g.num_values()];
    for (v, x) in start {
        observe(v, &x);
        if let Some(slot) = values.get_mut(v.index()) {
            *slot = Some(x);
        }
    }
    for node in g.nodes() {
        let args = node
            .operands
            .iter()
            .map(|v| {
                values
                    .get(v.index())
                    .cloned()
                    .flatten()
                    .ok_or_else(|| IrError::Eval(format!("{} is used before it is computed", g.value_name(*v))))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let fail =
            |error: OpError| IrError::Op { node: Box::new(g.describe(&node.op, &node.operands, &node.loc)), error };
        let Around { options, functions, depth, .. } = *around;
        let expected = expected(g, node, binding);
        options.check_results(expected).map_err(fail)?;
        options.check_held("all values together have", held.saturating_add(expected)).map_err(fail)?;
        let cx = EvalCx { binding, options, regions: &node.regions, functions, depth, held };
        let results = node.op.def().eval(&cx, &args).map_err(fail)?;
        check_results(g, node, &results, binding).map_err(fail)?;
        for (v, x) in node.results.iter().zip(results) {
            observe(*v, &x);
            held = held.saturating_add(elements(&x));
            if let (Some(slot), Some(made)) = (values.get_mut(v.index()), made.get_mut(v.index())) {
                (*slot, *made) = (Some(x), true);
            }
        }
        options.check_held("all values together have", held).map_err(fail)?;
        for v in &node.operands {
            if let Some(n) = remaining.get_mut(v.index()) {
                *n = n.saturating_sub(1);
                if *n == 0
                    && let Some(x) = values.get_mut(v.index()).and_then(Option::take)
                    && made[v.index()]
                {
                    held = held.saturating_sub(elements(&x));
                }
            }
        }
    }
    Ok(values)
}

/// Checks results against the inferred types, and binds the symbols that this node defines.
fn check_results(g: &Graph, node: &Node, results: &[Value], binding: &mut DimBinding) -> Result<(), OpError> {
    if results.len() != node.results.len() {
        return Err(OpError::new(format!("gave {} results, {} were inferred", results.len(), node.results.len())));
    }
    let (mut equations, mut problems) = (Vec::new(), Vec::new());
    for (v, x) in node.results.iter().zip(results) {
        equate(g.ty(*v), x, &g.value_name(*v), &mut equations, &mut problems);
        if let (Some(elems), Value::Tensor(t)) = (g.elems(*v), x)
            && let Some(ints) = t.elements().ints()
        {
            for (i, (d, &n)) in elems.iter().zip(ints).enumerate() {
                let value =
                    i64::try_from(n).map_err(|_| OpError::new(format!("element {i} is {n}, which is no size")))?;
                equations.push(Equation {
                    dim: d.clone(),
                    value,
                    origin: format!("{} element {i}", g.value_name(*v)).into(),
                });
            }
        }
    }
    match crate::dim::solve(&equations, binding, g.bounds()) {
        Ok(b) => *binding = b,
        Err(e) => problems.extend(e.iter().map(ToString::to_string)),
    }
    if problems.is_empty() { Ok(()) } else { Err(OpError::new(problems.join("; "))) }
}

#[cfg(test)]
mod tests;
