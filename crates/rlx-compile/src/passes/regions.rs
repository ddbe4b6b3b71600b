//! What passes need to know of nodes with nested graphs.

use std::collections::BTreeSet;

use rlx_ir::ops::Control;
use rlx_ir::{Graph, Node, Op, Symbol};

/// How many of a node's last operands are captures: the last inputs of each of its regions. 0 where that is not known.
pub fn captures(node: &Node) -> usize {
    let arguments = match &node.op {
        Op::Control(Control::If(_)) => 0,
        Op::Control(Control::Loop(l)) => l.carried.saturating_add(2),
        Op::Control(Control::Scan(s)) => s.carried.saturating_add(s.num_scan_inputs),
        _ => return 0,
    };
    let inputs = node.regions.iter().map(|r| r.inputs().len()).min().unwrap_or(0);
    inputs.saturating_sub(arguments).min(node.operands.len())
}

/// Adds the symbols that a node's attributes, results and regions speak of.
pub fn collect_symbols(g: &Graph, node: &Node, out: &mut BTreeSet<Symbol>) {
    node.op.def().map_dims(&mut |d| {
        out.extend(d.symbols());
        d.clone()
    });
    for &r in &node.results {
        g.ty(r).collect_symbols(out);
        g.elems(r).iter().flat_map(|e| e.iter()).for_each(|d| out.extend(d.symbols()));
    }
    for region in &node.regions {
        out.extend(region.symbols());
        region.nodes().iter().for_each(|n| collect_symbols(region, n, out));
    }
}
