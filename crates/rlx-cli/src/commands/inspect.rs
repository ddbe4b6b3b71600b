//! `rlx inspect`: what a model is made of.

use std::collections::BTreeMap;

use rlx::ir::{DimBinding, Graph, TensorType};
use rlx::runtime::Precision;

use super::Outcome;
use crate::args::InspectArgs;
use crate::error::CliError;
use crate::{json, model, table};

/// Runs the command.
pub fn inspect(args: &InspectArgs) -> Result<Outcome, CliError> {
    let loaded = model::load(&args.model.model)?;
    let mut shapes = BTreeMap::new();
    for text in &args.shapes {
        let parsed = crate::fill::parse_shape(text)?;
        shapes.insert(parsed.0, parsed.1);
    }
    let binding = crate::fill::binding(&loaded.module, &BTreeMap::new(), &shapes, &args.dims)?;
    let (mut program, time) = model::compile(&loaded.module, &args.model, Precision::F32)?;
    let g = &loaded.module.main;
    let mut ops: BTreeMap<String, usize> = BTreeMap::new();
    count_ops(g, &mut ops);
    let work = work(&program, &binding);
    // With all sizes known, memory is planned as a run would.
    let arena = program.prepare_for(&binding).ok().map(|()| program.stats().arena_bytes);
    let report = Inspection { program: &program, ops, work, arena, binding: &binding, compile_ms: time.as_secs_f64() * 1e3, graph: g };
    let text = if args.model.json { report.json()? } else { report.text() };
    Ok(Outcome::ok(text))
}

fn count_ops(g: &Graph, ops: &mut BTreeMap<String, usize>) {
    for n in g.nodes() {
        *ops.entry(n.op.name().to_string()).or_default() += 1;
        n.regions.iter().for_each(|r| count_ops(r, ops));
    }
}
