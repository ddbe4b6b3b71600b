//! Leaves only what the target claims: a claimed node stays, any other is replaced by its decomposition, again and again. What neither
//! runs nor decomposes is reported at once. Legalising a legal graph changes nothing.

use std::collections::BTreeMap;

use rlx_ir::{Graph, IrError, Module, Node, Stage, TensorType};

use crate::pass::{Pass, PassCx, PassError, Phase};
use crate::rewrite::{Rewriter, map_module};
use crate::target::{Claims, Offender};

/// The pass.
pub const PASS: Pass =
    Pass { name: "legalise", phase: Phase::Legalise, summary: "decomposes what the target does not claim", run };

/// Decompositions nest at most this deep.
const MAX_ROUNDS: usize = 16;

fn run(mut m: Module, cx: &PassCx<'_>) -> Result<Module, PassError> {
    let Some(claims) = cx.claims else { return Ok(m) };
    let mut offenders = Vec::new();
    for round in 0.. {
        let (mut changed, last) = (false, round >= MAX_ROUNDS);
        offenders.clear();
        m = map_module(m, &mut |g| decompose(g, claims, last, &mut changed, &mut offenders, cx))?;
        if !changed {
            break;
        }
    }
    if !offenders.is_empty() {
        return Err(PassError::Unsupported { target: claims.target.clone(), ops: offenders });
    }
    m.stage = Stage::Mir { target: claims.target.clone(), claims: claims.ops.clone() };
    Ok(m)
}

/// Why the target does not take a node of a graph.
pub fn refusal(g: &Graph, node: &Node, claims: &Claims) -> Option<String> {
    let types =
        |values: &[rlx_ir::ValueId]| values.iter().filter_map(|&v| g.tensor_type(v)).collect::<Vec<&TensorType>>();
    claims.accepts(node, &types(&node.operands), &types(&node.results)).err()
}

/// One round: decomposes each node that is not taken. What decompositions bring is judged in the next round.
fn decompose(
    g: Graph,
    claims: &Claims,
    last: bool,
    changed: &mut bool,
    offenders: &mut Vec<Offender>,
    cx: &PassCx<'_>,
) -> Result<Graph, IrError> {
    let refused: BTreeMap<usize, String> =
        g.nodes().iter().enumerate().filter_map(|(i, n)| Some((i, refusal(&g, n, claims)?))).collect();
    if refused.is_empty() {
        return Ok(g);
    }
    let mut rw = Rewriter::new(&g)?;
    for (i, node) in g.nodes().iter().enumerate() {
        rw.b.set_loc(node.loc.clone());
        let Some(why) = refused.get(&i) else {
            rw.copy(node)?;
            continue;
        };
        let operands = rw.operands(node)?;
        let rule = if last { None } else { node.op.def().decompose(&mut rw.b, &operands) };
        match rule {
            Some(Ok(results)) => {
                *changed = true;
                cx.count(node.op.name());
                rw.replace(node, &results)?;
            }
            failed => {
                let why = match failed {
                    Some(Err(e)) => format!("{why}; its decomposition fails: {e}"),
                    _ => why.clone(),
                };
                offenders.push((g.describe(&node.op, &node.operands, &node.loc), why));
                rw.copy(node)?;
            }
        }
    }
    rw.finish()
}
