//! Moves out of nested graphs what is the same whenever they run: out of branches what depends on parameters only (so
//! that it can be prepared once), out of the bodies of loops and scans also what depends on captures only.
//!
//! The values become captures. What may fail on data stays where it is, since a branch or body may not run at all; so do
//! mere views and results that are larger than what they are made of.

use rlx_ir::graph::Def;
use rlx_ir::ops::Control;
use rlx_ir::{Graph, IrError, Module, Node, Op, ValueId};

use super::regions;
use super::split::{Plan, invariants};
use crate::pass::{Pass, PassCx, PassError, Phase};
use crate::rewrite::{Rewriter, map_graphs};

/// The pass.
pub const PASS: Pass =
    Pass { name: "hoist", phase: Phase::Legalise, summary: "moves invariant values out of nested graphs", run };

fn run(m: Module, cx: &PassCx<'_>) -> Result<Module, PassError> {
    Ok(map_graphs(m, &mut |g| hoist(g, &[], cx))?)
}

/// True for nodes that never fail, whatever their operands hold.
fn cannot_fail(node: &Node) -> bool {
    !matches!(node.op, Op::Indexing(_))
}

/// Rebuilds a graph; `given` are its inputs that depend on parameters only.
fn hoist(g: Graph, given: &[bool], cx: &PassCx<'_>) -> Result<Graph, IrError> {
    if g.nodes().iter().all(|n| n.regions.is_empty()) {
        return Ok(g);
    }
    let fixed_nodes = invariants(&g, given, &|_| true);
    let fixed = |v: ValueId| match g.value(v).def {
        Def::Param(_) => true,
        Def::Input(i) => given.get(i as usize).copied().unwrap_or(false),
        Def::Result(n, _) => fixed_nodes.get(n.index()).copied().unwrap_or(false),
        Def::State(_) => false,
    };
    let mut rw = Rewriter::new(&g)?;
    for node in g.nodes() {
        if node.regions.is_empty() {
            rw.copy(node)?;
            continue;
        }
        let captures = regions::captures(node);
        let first = node.operands.len() - captures;
        let repeats = matches!(node.op, Op::Control(Control::Loop(_) | Control::Scan(_)));
        let mut operands = rw.operands(node)?;
        let mut new_regions = Vec::with_capacity(node.regions.len());
        let mut lifted: Vec<ValueId> = Vec::new();
        for region in &node.regions {
            let arguments = region.inputs().len().saturating_sub(captures);
            // Flags of the region's inputs: arguments change from run to run.
            let flags = |all: bool| -> Vec<bool> {
                let of = |&v: &ValueId| all || fixed(v);
                std::iter::repeat_n(false, arguments).chain(node.operands[first..].iter().map(of)).collect()
            };
            let region = hoist(region.clone(), &flags(false), cx)?;
            let plan = Plan::of(&region, &invariants(&region, &flags(repeats), &cannot_fail), cx);
            if !plan.prepared.is_empty() && captures > 0 {
                lifted.extend(lift(&region, &plan, arguments, &operands[first..], &mut rw)?);
            }
            new_regions.push((region, plan));
        }
        if lifted.is_empty() {
            rw.copy_with_regions(node, new_regions.into_iter().map(|(r, _)| r).collect())?;
            continue;
        }
        lifted.iter().for_each(|_| cx.count("hoisted value"));
        operands.extend(&lifted);
        let mut from = 0;
        let mut rebuilt = Vec::with_capacity(new_regions.len());
        for (region, plan) in &new_regions {
            let own = from..from + plan.prepared.len();
            from = own.end;
            rebuilt.push(without(region, plan, &lifted, own, &rw)?);
        }
        rw.b.set_loc(node.loc.clone());
        let results = rw.b.op_with_regions(node.op.clone(), &operands, rebuilt)?;
        rw.replace(node, &results)?;
    }
    rw.finish()
}

/// Adds the nodes that a plan takes out of a region to the surrounding graph; gives the values that the region needs.
fn lift(
    region: &Graph,
    plan: &Plan,
    arguments: usize,
    captures: &[ValueId],
    rw: &mut Rewriter<'_>,
) -> Result<Vec<ValueId>, IrError> {
    let mut map: Vec<Option<ValueId>> = vec![None; region.num_values()];
    for (&input, &outer) in region.inputs().iter().skip(arguments).zip(captures) {
        map[input.index()] = Some(outer);
    }
    for id in region.node_ids().filter(|id| plan.in_prepare[id.index()]) {
        let node = region.node(id);
        let operands: Option<Vec<ValueId>> = node.operands.iter().map(|v| map[v.index()]).collect();
        let operands = operands.ok_or_else(|| IrError::Eval(format!("`{}` reads what stays inside", node.op)))?;
        rw.b.set_loc(node.loc.clone());
        let results = rw.b.op(node.op.clone(), &operands)?;
        node.results.iter().zip(results).for_each(|(old, new)| map[old.index()] = Some(new));
    }
    Ok(plan.prepared.iter().filter_map(|v| map[v.index()]).collect())
}

/// The region without what was taken out of it; it captures all `lifted` values, of which `own` are its.
fn without(
    region: &Graph,
    plan: &Plan,
    lifted: &[ValueId],
    own: std::ops::Range<usize>,
    outer: &Rewriter<'_>,
) -> Result<Graph, IrError> {
    let mut rw = Rewriter::new(region)?;
    let taken = |n: &str| region.inputs().iter().any(|&i| region.value(i).name.as_deref() == Some(n));
    let mut names = (0..).map(|i| format!("hoisted:{i}")).filter(|n| !taken(n));
    let mut mine = plan.prepared.iter();
    for (i, &v) in lifted.iter().enumerate() {
        let g = outer.b.graph();
        let name = names.next().unwrap_or_default();
        let new = rw.b.graph_mut().add_input(&name, g.ty(v).clone())?;
        rw.b.graph_mut().set_input_elems(new, g.value(v).elems.as_deref().map(<[_]>::to_vec));
        if own.contains(&i)
            && let Some(&old) = mine.next()
        {
            rw.set(old, new);
        }
    }
    for id in region.node_ids().filter(|id| plan.in_main[id.index()]) {
        rw.copy(region.node(id))?;
    }
    rw.finish()
}
