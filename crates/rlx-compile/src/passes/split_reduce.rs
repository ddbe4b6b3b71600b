//! Cuts a reduction of a whole tensor in two: over its rows, then over what they came to.
//!
//! `max(x, axes = [0, 1, 2])` is `max(max(x, axes = [2]), axes = [0, 1, 2])`: rows are many and stand in a cache, the first
//! half joins the kernel that makes them (a norm before a dynamic quantisation), and only a number a row is left for the
//! second. Only where the order of folding changes nothing: smallest, largest, any, all, and sums and products of integers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use rlx_ir::ops::Reduction;
use rlx_ir::ops::reduction::{Reduce, ReduceKind};
use rlx_ir::{Dim, Graph, IrError, Module, Op, ValueId};

use crate::pass::{Pass, PassCx, PassError, Phase};
use crate::remark::RemarkKind;
use crate::rewrite::{Rewriter, map_module};

/// The pass.
pub const PASS: Pass =
    Pass { name: "split-reduce", phase: Phase::Legalise, summary: "folds whole tensors row by row first", run };

/// Shorter rows are not worth a number each; of longer ones nothing stays in a cache.
const ROW: std::ops::RangeInclusive<i64> = 32..=4096;

fn run(m: Module, cx: &PassCx<'_>) -> Result<Module, PassError> {
    Ok(map_module(m, &mut |g| split(g, cx))?)
}

/// The operand of a reduction that is to be cut, and its kind.
fn cut(g: &Graph, op: &Op, operands: &[ValueId]) -> Option<(ValueId, ReduceKind)> {
    let (Op::Reduction(Reduction::Reduce(r)), &[x]) = (op, operands) else { return None };
    let ty = g.tensor_type(x)?;
    let last = ty.shape.rank().checked_sub(1)?;
    let exact = match r.kind {
        ReduceKind::Sum | ReduceKind::Prod => ty.dtype.is_int(),
        _ => true,
    };
    let others = Dim::product(r.axes.iter().filter(|&&a| a != last).filter_map(|&a| ty.shape.get(a).cloned()));
    let fits = ty.shape.get(last).and_then(Dim::as_const).is_some_and(|n| ROW.contains(&n));
    (exact && fits && r.axes.contains(&last) && others != Dim::ONE).then_some((x, r.kind))
}

fn split(g: Graph, cx: &PassCx<'_>) -> Result<Graph, IrError> {
    // All kinds that a value is folded with: they are emitted together, so that its rows are read once.
    let mut kinds: HashMap<ValueId, Vec<ReduceKind>> = HashMap::new();
    for node in g.nodes() {
        if let Some((x, kind)) = cut(&g, &node.op, &node.operands) {
            let of = kinds.entry(x).or_default();
            if !of.contains(&kind) {
                of.push(kind);
            }
        }
    }
    if kinds.is_empty() {
        return Ok(g);
    }
    let mut rw = Rewriter::new(&g)?;
    let mut rows: HashMap<(ValueId, ReduceKind), ValueId> = HashMap::new();
    for node in g.nodes() {
        rw.b.set_loc(node.loc.clone());
        let (Some((x, kind)), Op::Reduction(Reduction::Reduce(whole)), &[result]) =
            (cut(&g, &node.op, &node.operands), &node.op, &node.results[..])
        else {
            match node.regions.is_empty() {
                true => rw.copy(node)?,
                false => rw.copy_with_regions(node, node.regions.clone())?,
            }
            continue;
        };
        let from = rw.get(x)?;
        let last = g.tensor_type(x).map_or(0, |t| t.shape.rank().saturating_sub(1));
        for &kind in kinds.get(&x).into_iter().flatten() {
            if let Entry::Vacant(place) = rows.entry((x, kind)) {
                let by_row = Reduce { kind, axes: vec![last], keep_dims: true };
                place.insert(rw.b.op1(by_row, &[from])?);
            }
        }
        let Some(&of_rows) = rows.get(&(x, kind)) else {
            rw.copy(node)?;
            continue;
        };
        let y = rw.b.op1(whole.clone(), &[of_rows])?;
        cx.count("reduce");
        cx.remark(RemarkKind::Applied, &node.loc, "cut in two: over rows first");
        rw.set(result, y);
    }
    rw.finish()
}
