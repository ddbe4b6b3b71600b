//! Shares what is computed twice: nodes of one op on the same operands. Operands of commutative ops compare in any order.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use rlx_ir::graph::Restriction;
use rlx_ir::op::Effect;
use rlx_ir::{Graph, IrError, Module, Node, NodeId, ValueId};

use crate::pass::{Pass, PassCx, PassError, Phase};
use crate::rewrite::map_graphs;

/// The pass.
pub const PASS: Pass = Pass { name: "cse", phase: Phase::Canonical, summary: "shares equal computations", run };

fn run(m: Module, cx: &PassCx<'_>) -> Result<Module, PassError> {
    Ok(map_graphs(m, &mut |g| share(g, cx))?)
}

fn share(g: Graph, cx: &PassCx<'_>) -> Result<Graph, IrError> {
    let nested = g.nodes().iter().any(|n| !n.regions.is_empty());
    let g = if nested {
        g.map_regions(&mut |n| {
            let regions = n.regions.iter().map(|r| share(r.clone(), cx));
            Ok((n.operands.clone(), regions.collect::<Result<_, _>>()?))
        })?
    } else {
        g
    };
    let mut reads: Vec<ValueId> = g.value_ids().collect();
    let mut keep = vec![true; g.nodes().len()];
    let mut seen: HashMap<u64, Vec<(NodeId, Vec<ValueId>)>> = HashMap::new();
    for id in g.node_ids() {
        let node = g.node(id);
        let traits = node.op.def().traits();
        // What defines a symbol defines it once; its like has another symbol.
        if traits.effect != Effect::Pure || !node.op.def().defines().is_empty() {
            continue;
        }
        let mut operands: Vec<ValueId> = node.operands.iter().map(|v| reads[v.index()]).collect();
        if traits.commutative {
            operands.sort_unstable();
        }
        let mut hasher = DefaultHasher::new();
        (&node.op, &operands).hash(&mut hasher);
        let bucket = seen.entry(hasher.finish()).or_default();
        let same = |n: &Node| n.op == node.op && n.regions == node.regions;
        match bucket.iter().find(|(n, o)| *o == operands && same(g.node(*n))) {
            Some((first, _)) => {
                cx.count("node");
                keep[id.index()] = false;
                for (r, s) in node.results.iter().zip(&g.node(*first).results) {
                    reads[r.index()] = *s;
                }
            }
            None => bucket.push((id, operands)),
        }
    }
    if keep.iter().all(|&k| k) {
        return Ok(g);
    }
    g.restrict(&Restriction {
        node: &|n| keep.get(n.index()).copied().unwrap_or(true),
        input: &|_| true,
        constraint: &|_| true,
        read: &|v| reads.get(v.index()).copied().unwrap_or(v),
    })
}
