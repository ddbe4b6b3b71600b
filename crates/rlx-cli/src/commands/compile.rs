//! `rlx compile`: what the compiler makes of a model.

use super::Outcome;
use crate::args::CompileArgs;
use crate::error::CliError;
use crate::{json, model, table};

/// Runs the command.
pub fn compile(args: &CompileArgs) -> Result<Outcome, CliError> {
    let loaded = model::load(&args.model.model)?;
    let mut options = model::options(&args.model)?;
    if let Some(dir) = &args.dump_ir {
        options = options.dump(Some(dir.clone()));
    }
    let (program, time) = model::compile_with(&loaded.module, options)?;
    let report = program.report();
    if args.model.json {
        let passes: Vec<serde_json::Value> = report
            .passes
            .iter()
            .map(|p| {
                let remarks: Vec<String> = p.remarks.iter().map(ToString::to_string).collect();
                serde_json::json!({
                    "pass": p.name, "ms": p.time.as_secs_f64() * 1e3, "nodes_before": p.nodes_before, "nodes_after": p.nodes_after,
                    "remarks": if args.remarks { remarks } else { Vec::new() },
                })
            })
            .collect();
        let fallbacks: Vec<String> = report.fallbacks.iter().map(ToString::to_string).collect();
        let value = serde_json::json!({
            "compile_ms": time.as_secs_f64() * 1e3, "passes": passes, "fallbacks": fallbacks,
            "fused": report.fusion().fused.len(), "not_fused": report.fusion().missed.len(),
        });
        return Ok(Outcome::ok(json::line(&value)?));
    }
    let mut text = format!("compiled in {:.1} ms\n", time.as_secs_f64() * 1e3);
    if let Some(dir) = &args.dump_ir {
        text.push_str(&format!("the module after every pass is in {}\n", dir.display()));
    }
    if args.time_passes {
        let rows: Vec<Vec<String>> = report
            .passes
            .iter()
            .map(|p| {
                vec![
                    p.name.to_string(),
                    format!("{:.3}", p.time.as_secs_f64() * 1e3),
                    p.nodes_before.to_string(),
                    p.nodes_after.to_string(),
                ]
            })
            .collect();
        text.push_str(&table::table(&["pass", "ms", "nodes before", "after"], &rows));
    }
    if args.remarks {
        report.remarks().for_each(|r| text.push_str(&format!("{r}\n")));
    }
    Ok(Outcome::ok(text))
}
