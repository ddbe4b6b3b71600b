//! Computes what is constant, by the evaluator: nodes all of whose operands are literals and whose results are small. Never what draws
//! random numbers, and never parameters: what depends on those is the work of *prepare*.

use std::collections::BTreeMap;

use rlx_ir::error::OpError;
use rlx_ir::op::{Effect, EvalCx, EvalOptions};
use rlx_ir::ops::ShapeOp;
use rlx_ir::ops::elementwise::{Binary, Elementwise};
use rlx_ir::{DimBinding, Graph, IrError, Module, Node, Op, Tensor, Type, Value, ValueId};

use crate::pass::{Pass, PassCx, PassError, Phase};
use crate::remark::RemarkKind;
use crate::rewrite::{Rewriter, rebuild_graphs};

/// The pass.
pub const PASS: Pass = Pass { name: "fold", phase: Phase::Canonical, summary: "computes what is constant", run };

/// Results larger than this are not folded.
const LIMIT_BYTES: usize = 64 << 10;
/// Nodes that read more than this are not folded.
const LIMIT_READ: usize = 1 << 20;

fn run(m: Module, cx: &PassCx<'_>) -> Result<Module, PassError> {
    // The first node that is folded has operands that were literals before.
    let first = |g: &Graph, n: &Node| may_fold(g, n) && n.operands.iter().all(|&v| may_be_literal(g, v));
    let as_is = |g: &Graph| !g.nodes().iter().any(|n| !n.regions.is_empty() || first(g, n));
    if as_is(&m.main) && m.functions.values().all(as_is) {
        return Ok(m);
    }
    Ok(rebuild_graphs(&m, &mut |g| fold(g, &m.functions, cx))?)
}

fn fold(g: &Graph, functions: &BTreeMap<String, Graph>, cx: &PassCx<'_>) -> Result<Graph, IrError> {
    let mut rw = Rewriter::new(g)?;
    for node in g.nodes() {
        rw.b.set_loc(node.loc.clone());
        if let Some(values) = folded(&rw, node, functions, cx)? {
            cx.count("node");
            let results = values.into_iter().map(|t| rw.b.constant(t)).collect::<Result<Vec<_>, _>>()?;
            rw.replace(node, &results)?;
        } else if node.regions.is_empty() {
            rw.copy(node)?;
        } else {
            let fold_region = |r: &Graph| {
                let new = fold(r, functions, cx)?;
                Ok(if new.same_boundary(r) { new } else { r.clone() })
            };
            let regions = node.regions.iter().map(fold_region).collect::<Result<Vec<_>, IrError>>()?;
            rw.copy_with_regions(node, regions)?;
        }
    }
    rw.finish()
}

/// The results of a node, if it is to be folded.
fn folded(
    rw: &Rewriter<'_>,
    node: &Node,
    functions: &BTreeMap<String, Graph>,
    cx: &PassCx<'_>,
) -> Result<Option<Vec<Tensor>>, IrError> {
    let operands = rw.operands(node)?;
    let is_literal = |&v: &ValueId| may_be_literal(rw.b.graph(), v);
    if !may_fold(rw.old(), node) || !operands.iter().all(is_literal) {
        return Ok(None);
    }
    let (mut args, mut read) = (Vec::with_capacity(operands.len()), 0usize);
    for v in operands {
        let Some(t) = literal(rw.b.graph(), v, 0) else { return Ok(None) };
        read = read.saturating_add(t.numel());
        args.push(Value::from(t));
    }
    if read > LIMIT_READ {
        return Ok(None);
    }
    match evaluate(&node.op, &args, functions) {
        Ok(values) => Ok(values.into_iter().map(|v| v.as_tensor().cloned()).collect()),
        Err(e) => {
            cx.remark(RemarkKind::Missed, &node.loc, format!("not folded: `{}`: {e}", node.op.name()));
            Ok(None)
        }
    }
}

/// Whether a node of a graph would be computed, were its operands literals.
fn may_fold(g: &Graph, node: &Node) -> bool {
    // Loops may run long; a literal without operands is as small as it gets.
    if node.operands.is_empty() || !node.regions.is_empty() || node.op.def().traits().effect != Effect::Pure {
        return false;
    }
    if node.results.iter().any(|&r| is_widened_weight(g, r, 0)) {
        return false;
    }
    let small = |ty: &Type| ty.as_tensor().and_then(size).is_some_and(|n| n <= LIMIT_BYTES);
    node.op.def().defines().is_empty() && !expands(g, node) && node.results.iter().all(|&r| small(g.ty(r)))
}

/// True for a value of one of the ops that [`literal`] reads.
fn may_be_literal(g: &Graph, v: ValueId) -> bool {
    let op = g.def_node(v).map(|(_, n)| &n.op);
    matches!(
        op,
        Some(Op::ShapeOp(ShapeOp::Constant(_) | ShapeOp::FromDims(_) | ShapeOp::Iota(_) | ShapeOp::BroadcastTo(_)))
    )
}

/// True for a broadcast that makes more of its operand: it is cheaper as an index map than as data.
fn expands(g: &Graph, node: &Node) -> bool {
    let is_broadcast = matches!(node.op, Op::ShapeOp(ShapeOp::BroadcastTo(_)));
    is_broadcast && node.results.first().map(|&r| g.ty(r)) != node.operands.first().map(|&v| g.ty(v))
}

/// How far back a weight is looked for.
const DEEPEST: usize = 8;

/// True for integers of 8 bits or fewer, in a matrix or more, that were made wider, and perhaps had a zero point taken away: products and
/// convolutions read them as they are, and a wider literal would hide what they were. (The same holds of what is prepared.)
fn is_widened_weight(g: &Graph, v: ValueId, depth: usize) -> bool {
    let Some((_, node)) = g.def_node(v).filter(|_| depth < DEEPEST) else { return false };
    match (&node.op, &node.operands[..]) {
        (Op::Elementwise(Elementwise::Convert { to, .. }), &[x]) => {
            // Scales and zero points of channels have one axis of more than one element.
            let is_matrix = |t: &rlx_ir::TensorType| t.shape.iter().filter(|d| **d != rlx_ir::Dim::ONE).count() > 1;
            let is_narrow = |t: &rlx_ir::TensorType| t.dtype.is_int() && t.dtype.bits() <= 8;
            to.bits() > 8 && g.tensor_type(x).is_some_and(|t| is_narrow(t) && is_matrix(t))
                || is_widened_weight(g, x, depth + 1)
        }
        (Op::Elementwise(Elementwise::Binary(Binary::Sub)), &[x, _])
        | (Op::ShapeOp(ShapeOp::Transpose(_) | ShapeOp::Reshape(_)), &[x]) => is_widened_weight(g, x, depth + 1),
        _ => false,
    }
}

fn size(t: &rlx_ir::TensorType) -> Option<usize> {
    let numel = t.shape.as_static()?.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
    if t.dtype == rlx_ir::DType::Str { numel.checked_mul(8) } else { t.dtype.bytes_for(numel) }
}

fn evaluate(op: &Op, args: &[Value], functions: &BTreeMap<String, Graph>) -> Result<Vec<Value>, OpError> {
    let binding = DimBinding::new();
    let depth = rlx_ir::eval::MAX_DEPTH;
    op.def().eval(
        &EvalCx { binding: &binding, options: EvalOptions::default(), regions: &[], functions, depth, held: 0 },
        args,
    )
}

/// The contents of a literal, also one that is kept as a rule: a range, sizes, a broadcast.
pub fn literal(g: &Graph, v: ValueId, depth: usize) -> Option<Tensor> {
    let (_, node) = g.def_node(v)?;
    match &node.op {
        Op::ShapeOp(ShapeOp::Constant(c)) => Some(c.value.clone()),
        Op::ShapeOp(ShapeOp::FromDims(_) | ShapeOp::Iota(_) | ShapeOp::BroadcastTo(_)) if depth < 8 => {
            if g.tensor_type(v).and_then(size)? > LIMIT_BYTES {
                return None;
            }
            let args = node.operands.iter().map(|&o| literal(g, o, depth + 1).map(Value::from));
            let args = args.collect::<Option<Vec<_>>>()?;
            evaluate(&node.op, &args, &BTreeMap::new()).ok()?.first()?.as_tensor().cloned()
        }
        _ => None,
    }
}
