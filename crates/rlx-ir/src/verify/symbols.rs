//! Invariant 7: symbols are in scope.

use std::collections::BTreeSet;

use super::{Verifier, node_text};
use crate::dim::{Dim, Symbol};
use crate::graph::{Graph, Node};

/// Checks a graph's symbols, and gives for each node those that its nested graphs see.
pub(super) fn check(v: &mut Verifier<'_>, g: &Graph, outer: Option<&BTreeSet<Symbol>>) -> Vec<BTreeSet<Symbol>> {
    let inputs = g.input_symbols();
    let defined: BTreeSet<Symbol> = g.nodes().iter().flat_map(|n| n.op.def().defines()).collect();
    let mut own = inputs.clone();
    // A nested graph may define anew a symbol of the graph around it, which is then hidden.
    let mut scope: BTreeSet<Symbol> = outer.into_iter().flatten().filter(|s| !defined.contains(*s)).cloned().collect();
    scope.extend(inputs);
    scope.extend(g.bounds().iter().map(|(s, _)| s.clone()).filter(|s| !defined.contains(s)));
    for &i in g.inputs() {
        for s in missing(g.elems(i).unwrap_or(&[]), &scope) {
            v.fail(7, g, format!("known elements of {} use `{s}`, which is not in scope", g.value_name(i)));
        }
    }
    let mut scopes = Vec::with_capacity(g.nodes().len());
    for (i, n) in g.nodes().iter().enumerate() {
        for s in missing(&attribute_dims(n), &scope) {
            v.fail(7, g, format!("{} uses `{s}` in an attribute, which is not in scope", node_text(i, n)));
        }
        let fresh = n.op.def().defines();
        // Kept small: only nodes with nested graphs need a copy.
        scopes.push(if n.regions.is_empty() { BTreeSet::new() } else { scope.clone() });
        for s in fresh {
            if !own.insert(s.clone()) {
                v.fail(7, g, format!("{} defines `{s}`, which is in scope already", node_text(i, n)));
            }
            scope.insert(s);
        }
        for &r in &n.results {
            let mut used = BTreeSet::new();
            g.ty(r).collect_symbols(&mut used);
            g.elems(r).unwrap_or(&[]).iter().for_each(|d| used.extend(d.symbols()));
            for s in used.iter().filter(|s| !scope.contains(*s)) {
                let message = format!("{}: {} uses `{s}`, which is not in scope", node_text(i, n), g.value_name(r));
                v.fail(7, g, message);
            }
        }
    }
    scopes
}

fn missing(dims: &[Dim], scope: &BTreeSet<Symbol>) -> BTreeSet<Symbol> {
    dims.iter().flat_map(Dim::symbols).filter(|s| !scope.contains(s)).collect()
}

/// All dims in the attributes of a node's op.
fn attribute_dims(n: &Node) -> Vec<Dim> {
    let mut dims = Vec::new();
    n.op.def().map_dims(&mut |d| {
        dims.push(d.clone());
        d.clone()
    });
    dims
}
