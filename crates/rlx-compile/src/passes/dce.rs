//! Drops what nothing reads: nodes, captures of nested graphs, and constraints on symbols that no node defines any more.
//!
//! A node that defines a symbol (a size that depends on data) is read by every type and attribute that speaks of the symbol.

use std::collections::BTreeSet;

use rlx_ir::graph::Restriction;
use rlx_ir::{Graph, IrError, Module, Node, Symbol, ValueId};

use super::regions;
use crate::pass::{Pass, PassCx, PassError, Phase};
use crate::rewrite::map_graphs;

/// The pass.
pub const PASS: Pass =
    Pass { name: "dce", phase: Phase::Canonical, summary: "drops what no output, state or size needs", run };

fn run(m: Module, cx: &PassCx<'_>) -> Result<Module, PassError> {
    Ok(map_graphs(m, &mut |g| {
        let nodes = g.nodes().len();
        let new = eliminate(g)?;
        (new.nodes().len()..nodes).for_each(|_| cx.count("node"));
        Ok(new)
    })?)
}

/// The graph without dead nodes, nested graphs included.
pub fn eliminate(g: Graph) -> Result<Graph, IrError> {
    let nested = g.nodes().iter().any(|n| !n.regions.is_empty());
    let g = if nested { g.map_regions(&mut prune)? } else { g };
    let live = Liveness::of(&g);
    if live.nodes.iter().all(|&live| live) {
        return Ok(g);
    }
    let keep = Restriction {
        node: &|n| live.nodes.get(n.index()).copied().unwrap_or(true),
        input: &|_| true,
        constraint: &|c| {
            let (a, b) = c.constraint.dims();
            live.gone.is_empty() || a.symbols().union(&b.symbols()).all(|s| !live.gone.contains(s))
        },
        read: &|v| v,
    };
    g.restrict(&keep)
}

/// Regions without dead nodes, and without captures that no region reads.
fn prune(node: &Node) -> Result<(Vec<ValueId>, Vec<Graph>), IrError> {
    let regions = node.regions.iter().cloned().map(eliminate).collect::<Result<Vec<_>, _>>()?;
    let captures = regions::captures(node);
    let counts: Vec<Vec<usize>> = regions.iter().map(Graph::use_counts).collect();
    let first = node.operands.len() - captures;
    let read = |capture: usize| {
        regions.iter().zip(&counts).any(|(r, counts)| {
            let at = r.inputs().len() - captures + capture;
            r.inputs().get(at).is_none_or(|v| counts.get(v.index()).is_none_or(|&n| n > 0))
        })
    };
    let used: Vec<bool> = (0..captures).map(read).collect();
    if used.iter().all(|&u| u) {
        return Ok((node.operands.clone(), regions));
    }
    let keep = |i: usize, all: usize| i < all - captures || used.get(i + captures - all).copied().unwrap_or(true);
    let operands = node.operands.iter().enumerate().filter(|(i, _)| keep(*i, first + captures)).map(|(_, &v)| v);
    let regions = regions.into_iter().map(|r| {
        let all = r.inputs().len();
        let input = |i: usize| keep(i, all);
        r.restrict(&Restriction { node: &|_| true, input: &input, constraint: &|_| true, read: &|v| v })
    });
    Ok((operands.collect(), regions.collect::<Result<_, _>>()?))
}

/// For each node, whether an output, a state or a size depends on it.
pub(super) fn live(g: &Graph) -> Vec<bool> {
    Liveness::of(g).nodes
}

struct Liveness {
    nodes: Vec<bool>,
    /// Symbols that only dead nodes define.
    gone: BTreeSet<Symbol>,
}

impl Liveness {
    fn of(g: &Graph) -> Self {
        let defines: Vec<Vec<Symbol>> = g.nodes().iter().map(|n| n.op.def().defines()).collect();
        let track = defines.iter().any(|d| !d.is_empty());
        let mut values = vec![false; g.num_values()];
        let mut symbols = BTreeSet::new();
        let roots = g.outputs().iter().map(|o| o.value).chain(g.states().iter().filter_map(|s| s.next));
        for v in roots {
            values[v.index()] = true;
        }
        if track {
            g.outputs().iter().for_each(|o| g.ty(o.value).collect_symbols(&mut symbols));
        }
        let mut nodes = vec![false; g.nodes().len()];
        for id in g.node_ids().rev() {
            let node = g.node(id);
            let own = &defines[id.index()];
            if !node.results.iter().any(|r| values[r.index()]) && !own.iter().any(|s| symbols.contains(s)) {
                continue;
            }
            nodes[id.index()] = true;
            node.operands.iter().for_each(|v| values[v.index()] = true);
            if track {
                regions::collect_symbols(g, node, &mut symbols);
            }
        }
        let mut gone: BTreeSet<Symbol> = BTreeSet::new();
        for dead in [true, false] {
            for (own, _) in defines.iter().zip(&nodes).filter(|(_, live)| **live != dead) {
                own.iter().for_each(|s| {
                    if dead {
                        gone.insert(s.clone());
                    } else {
                        gone.remove(s);
                    }
                });
            }
        }
        Liveness { nodes, gone }
    }
}
