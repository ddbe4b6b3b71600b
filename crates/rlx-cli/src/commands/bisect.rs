//! `rlx verify --bisect`: the first node whose compiled result differs from the evaluator's.
//!
//! The compiled program is asked for one more output, a value in the middle of the graph, so that what is compiled stays nearly the
//! program under test; the value is searched for by halving.

use std::collections::BTreeMap;

use rlx::ir::eval::{EvalInputs, evaluate_observed};
use rlx::ir::op::EvalOptions;
use rlx::ir::{NodeId, ValueId};
use rlx::{Module, Tensor, Value};

use super::Outcome;
use crate::args::VerifyArgs;
use crate::error::CliError;
use crate::progress::Progress;
use crate::stats::{Difference, difference};
use crate::{json, model};

/// Name of the extra output.
const PROBE: &str = "rlx.bisect";

/// Runs the search.
pub fn bisect(module: &Module, inputs: &[(String, Tensor)], args: &VerifyArgs) -> Result<Outcome, CliError> {
    let progress = Progress::start("evaluating the reference");
    let mut reference: BTreeMap<ValueId, Tensor> = BTreeMap::new();
    let values: Vec<Value> = inputs.iter().map(|(_, t)| t.clone().into()).collect();
    let start = EvalInputs { inputs: values, ..EvalInputs::default() };
    evaluate_observed(module, &start, EvalOptions::accurate(), &mut |v, x| {
        if let Value::Tensor(t) = x {
            reference.insert(v, t.clone());
        }
    })
    .map_err(|e| CliError::Run(e.to_string()))?;
    let g = &module.main;
    let candidates: Vec<(NodeId, ValueId)> = g
        .node_ids()
        .flat_map(|n| g.node(n).results.iter().map(move |&v| (n, v)))
        .filter(|(_, v)| reference.contains_key(v) && g.as_constant(*v).is_none())
        .collect();
    let differs = |i: usize| -> Result<Option<Difference>, CliError> {
        let Some((_, v)) = candidates.get(i) else { return Ok(None) };
        let Some(want) = reference.get(v) else { return Ok(None) };
        let d = probe(module, *v, inputs, want, args)?;
        Ok((d.mismatch.is_some() || d.outside > 0).then_some(d))
    };
    // Outputs first: if none of them differs there is nothing to search for.
    let positions: Vec<usize> =
        g.outputs().iter().filter_map(|o| candidates.iter().position(|(_, v)| *v == o.value)).collect();
    let mut bad = None;
    for &i in &positions {
        if differs(i)?.is_some() && bad.is_none_or(|b| i < b) {
            bad = Some(i);
        }
    }
    let Some(mut hi) = bad else {
        let text = if args.model.json {
            json::line(&serde_json::json!({ "ok": true }))?
        } else {
            "all outputs agree with the evaluator\n".into()
        };
        return Ok(Outcome::ok(text));
    };
    let mut lo = 0;
    while lo < hi {
        let mid = (lo + hi) / 2;
        progress.say(&format!("comparing node {mid} of {}", candidates.len()));
        if differs(mid)?.is_some() { hi = mid } else { lo = mid + 1 }
    }
    let d = differs(hi)?.unwrap_or_default();
    let Some((n, v)) = candidates.get(hi) else {
        return Err(CliError::Other("no node was found".into()));
    };
    let node = g.node(*n);
    let described = g.describe(&node.op, &node.operands, &node.loc).to_string();
    let text = if args.model.json {
        json::line(&serde_json::json!({
            "ok": false, "node": node.loc.name(), "value": g.value_name(*v), "op": described,
            "max_abs": json::number(d.max_abs), "norm": json::number(d.norm), "note": d.mismatch,
        }))?
    } else {
        format!(
            "first node that differs: {described}\n  result {}: max |err| {:.3e}, ‖err‖/‖ref‖ {:.3e}{}\n",
            g.value_name(*v),
            d.max_abs,
            d.norm,
            d.mismatch.map(|m| format!(", {m}")).unwrap_or_default()
        )
    };
    Ok(Outcome { text, success: false })
}

/// Compiles the module with one more output and compares that.
fn probe(
    module: &Module,
    v: ValueId,
    inputs: &[(String, Tensor)],
    want: &Tensor,
    args: &VerifyArgs,
) -> Result<Difference, CliError> {
    let mut m = module.clone();
    m.main.add_output(PROBE, v).map_err(|e| CliError::Other(e.to_string()))?;
    let (program, _) = model::compile_with(&m, model::options(&args.model)?)?;
    let at = program.outputs().len() - 1;
    let refs: Vec<(&str, rlx::Input<'_>)> = inputs.iter().map(|(n, t)| (n.as_str(), rlx::Input::from(t))).collect();
    let out = program.run_read_outputs(&refs, Some(&[at]))?;
    let out = out.first().ok_or_else(|| CliError::Other("the probe gave no result".into()))?;
    Ok(difference(out, want, args.rtol, args.atol))
}
