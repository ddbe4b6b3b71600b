//! `rlx compile`: what the compiler makes of a model.

use super::Outcome;
use crate::args::CompileArgs;
use crate::error::CliError;
use crate::{json, model, table};

/// Runs the command.
pub fn compile(args: &CompileArgs) -> Result<Outcome, CliError> {
    if model::is_artefact(&args.model.model) {
        return Err(CliError::Usage("an artefact is compiled already; give the model that it was made from".into()));
    }
    let loaded = model::load(&args.model.model)?;
    // What passes do is to be seen, and what is written is whole: they run.
    let mut options = model::options(&args.model)?.cache_dir(None);
    if let Some(dir) = &args.dump_ir {
        options = options.dump(Some(dir.clone()));
    }
    let (mut program, time) = model::compile_with(&loaded.module, options)?;
    let written = args.output.as_ref().map(|path| program.save(path).map(|s| (path, s))).transpose()?;
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
            "artefact": written.map(|(path, s)| serde_json::json!({
                "file": path, "bytes": s.bytes, "program": s.program, "sources": s.sources, "made": s.made,
            })),
            "fused": report.fusion().fused.len(), "not_fused": report.fusion().missed.len(),
        });
        return Ok(Outcome::ok(json::line(&value)?));
    }
    let mut text = format!("compiled in {:.1} ms\n", time.as_secs_f64() * 1e3);
    if let Some((path, s)) = written {
        let b = |n: u64| table::bytes(n as f64);
        text.push_str(&format!(
            "{} is in {}: program {}, parameters {}, packed and prepared weights {}\n",
            b(s.bytes),
            path.display(),
            b(s.program),
            b(s.sources),
            b(s.made)
        ));
    }
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
