//! Which order activations have in memory. Walks make any order right; this chooses a fast one.
//!
//! In a graph with convolutions of more than a few channels, what lies between convolutions is stored channels-last: a window then
//! reads whole runs of channels. Inputs and outputs of the graph stay as declared.

use rlx_ir::Op;
use rlx_ir::ops::{Contraction, ShapeOp};

use super::groups::{Arg, GroupKind};
use super::planner::Planner;
use super::roots::{RootId, Source};
use super::views::Step;

/// Convolutions with fewer channels on both sides are not worth it.
const FEW_CHANNELS: i64 = 4;

/// Chooses the order of every root that is not bound to one.
pub(super) fn choose(p: &mut Planner<'_>) {
    let graph = p.graph;
    let wide = |n: &rlx_ir::Node| {
        matches!(n.op, Op::Contraction(Contraction::Conv(_) | Contraction::ConvTranspose(_)))
            && n.operands
                .get(1)
                .and_then(|&w| graph.tensor_type(w))
                .is_some_and(|w| w.shape.iter().take(2).all(|d| d.as_const().is_none_or(|c| c > FEW_CHANNELS)))
    };
    if !graph.nodes().iter().any(wide) {
        return;
    }
    let mut order: Vec<usize> = (0..p.groups.len()).filter(|&g| p.groups[g].merged.is_none()).collect();
    order.sort_by_key(|&g| (p.groups[g].last, g));
    for g in order {
        match p.groups[g].kind {
            GroupKind::Conv(_) => set_items(p, g),
            GroupKind::Map if widest_is_last(p, g) => set_items(p, g),
            GroupKind::Single(node) => {
                let node = graph.node(node);
                let first = node.operands.first().and_then(|&v| p.val(v).ok());
                let follows = match &node.op {
                    Op::ShapeOp(ShapeOp::Concat(_) | ShapeOp::Pad(_)) => true,
                    op => matches!(op.name(), "reduce_window" | "resize"),
                };
                if follows && first.is_some_and(|v| v.steps.is_empty() && is_last(p, v.root)) {
                    for &r in &node.results {
                        if let Ok(v) = p.val(r) {
                            set(p, v.root);
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

/// Channels-last for these many axes.
fn channels_last(rank: usize) -> Vec<usize> {
    std::iter::once(0).chain(2..rank).chain(std::iter::once(1)).collect()
}

fn is_last(p: &Planner<'_>, root: RootId) -> bool {
    let r = p.root(root);
    r.dims.len() >= 3 && r.order.as_deref() == Some(&channels_last(r.dims.len())[..])
}

fn set(p: &mut Planner<'_>, root: RootId) {
    let r = &mut p.roots[root.index()];
    // Readers that merge axes want them as they are.
    if r.dims.len() >= 3 && r.order.is_none() && !(r.reshaped && r.uses == 1) {
        r.order = Some(channels_last(r.dims.len()));
    }
}

fn set_items(p: &mut Planner<'_>, group: usize) {
    let rank = p.groups[group].space.len();
    for item in p.groups[group].items.clone() {
        if let Some(root) = p.items[item.index()].root
            && p.root(root).dims.len() == rank
        {
            set(p, root);
        }
    }
}

/// True if the operand with the most elements, as far as sizes tell, lies channels-last.
fn widest_is_last(p: &Planner<'_>, group: usize) -> bool {
    let g = &p.groups[group];
    // Sizes that are not known to be equal may still be: only what is broadcast for certain is left out.
    let fills = |dims: &[rlx_ir::Dim]| {
        let one = |d: &rlx_ir::Dim| d.as_const() == Some(1);
        dims.len() == g.space.len() && dims.iter().zip(&g.space).all(|(d, s)| !one(d) || one(s))
    };
    let whole = |a: &Arg| match a {
        Arg::Val(v, _) => {
            matches!(v.steps[..], [] | [Step::Broadcast { .. }])
                && fills(&p.root(v.root).dims)
                && matches!(p.root(v.root).source, Source::Item(_) | Source::Node(_))
                && is_last(p, v.root)
        }
        _ => false,
    };
    g.items.iter().any(|i| p.items[i.index()].args.iter().any(whole))
}
