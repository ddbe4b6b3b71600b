//! Invariant 12: calls fit their functions, and none recurses.

use std::collections::{BTreeMap, BTreeSet};

use super::{Verifier, node_text};
use crate::attr::{AttrValue, AttrWriter};
use crate::graph::{Graph, Module, Node};
use crate::op::Op;
use crate::types::Type;

/// The function that an op calls.
fn callee(op: &Op) -> Option<String> {
    if op.name() != "call" {
        return None;
    }
    let mut attrs = AttrWriter::default();
    op.def().attrs(&mut attrs);
    let (_, text) = attrs.entries().iter().find(|(name, _)| *name == "callee")?;
    String::parse(text).ok()
}

/// Calls `f` with every node of a graph and of the graphs nested in it.
fn every_node<'g>(g: &'g Graph, f: &mut dyn FnMut(&'g Graph, usize, &'g Node)) {
    let mut stack = vec![g];
    while let Some(g) = stack.pop() {
        for (i, n) in g.nodes().iter().enumerate() {
            f(g, i, n);
            stack.extend(&n.regions);
        }
    }
}

pub(super) fn check(v: &mut Verifier<'_>, module: &Module) {
    let mut calls: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let graphs = module.functions.iter().map(|(name, g)| (Some(name.as_str()), g));
    for (name, graph) in std::iter::once((None, &module.main)).chain(graphs) {
        every_node(graph, &mut |g, i, n| {
            let Some(to) = callee(&n.op) else { return };
            match module.functions.get(&to) {
                None => v.fail(12, g, format!("{} calls `{to}`, which the module does not have", node_text(i, n))),
                Some(f) => {
                    if let Some(problem) = mismatch(g, n, f) {
                        v.fail(12, g, format!("{}: {problem}", node_text(i, n)));
                    }
                    if let Some(name) = name {
                        calls.entry(name).or_default().insert(to);
                    }
                }
            }
        });
    }
    // What calls nothing any more, or is called by nothing any more, is in no cycle.
    loop {
        let called: BTreeSet<String> = calls.values().flatten().cloned().collect();
        let callers: BTreeSet<String> = calls.keys().map(ToString::to_string).collect();
        let before = calls.len();
        calls.retain(|name, to| called.contains(*name) && to.iter().any(|t| callers.contains(t)));
        if calls.len() == before {
            break;
        }
    }
    if !calls.is_empty() {
        let names: Vec<&str> = calls.keys().copied().collect();
        v.fail(
            12,
            &module.main,
            format!("functions call themselves, directly or through others: {}", names.join(", ")),
        );
    }
}

/// Why a call does not fit its function.
fn mismatch(g: &Graph, n: &Node, f: &Graph) -> Option<String> {
    let lists = [
        ("operands", "inputs", &n.operands, f.inputs().to_vec()),
        ("results", "outputs", &n.results, f.outputs().iter().map(|o| o.value).collect()),
    ];
    for (ours, theirs, here, there) in lists {
        if here.len() != there.len() {
            return Some(format!("it has {} {ours}, `{}` has {} {theirs}", here.len(), f.name(), there.len()));
        }
        for (i, (&a, &b)) in here.iter().zip(&there).enumerate() {
            let (a, b) = (&g.get_value(a)?.ty, &f.get_value(b)?.ty);
            if !alike(a, b) {
                return Some(format!("{ours} {i} is {a}, of `{}`'s {theirs} it is {b}", f.name()));
            }
        }
    }
    None
}

/// Equal but for sizes.
fn alike(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Tensor(a), Type::Tensor(b)) => a.dtype == b.dtype && a.shape.rank() == b.shape.rank(),
        (Type::Sequence(a), Type::Sequence(b)) | (Type::Optional(a), Type::Optional(b)) => alike(a, b),
        _ => false,
    }
}
