//! `rlx opt`: single passes on graphs in text form.

use super::Outcome;
use crate::args::OptArgs;
use crate::error::CliError;
use crate::json;

/// Runs the command.
pub fn opt(args: &OptArgs) -> Result<Outcome, CliError> {
    if args.list {
        let names = rlx::compile::pipeline::pass_names();
        let text =
            if args.json { json::line(&serde_json::json!({ "passes": names }))? } else { names.join("\n") + "\n" };
        return Ok(Outcome::ok(text));
    }
    let Some(file) = &args.file else {
        return Err(CliError::Usage("a file is needed, or --list".into()));
    };
    let text = std::fs::read_to_string(file).map_err(|e| CliError::File(file.clone(), e.to_string()))?;
    let mut module =
        rlx::ir::text::parse_module(&text).map_err(|e| CliError::Model(format!("{}: {e}", file.display())))?;
    let options = rlx::CompileOptions::new();
    let mut remarks = Vec::new();
    for name in &args.passes {
        let (next, report) = rlx::compile::pipeline::run_pass(name, &module, None, &options).map_err(|e| match e {
            rlx::CompileError::UnknownName { .. } => CliError::Usage(e.to_string()),
            e => CliError::Compile(e.to_string()),
        })?;
        module = next;
        remarks.extend(report.remarks.iter().map(ToString::to_string));
    }
    let printed = module.to_string();
    let text = if args.json {
        json::line(&serde_json::json!({ "module": printed, "remarks": remarks }))?
    } else {
        remarks.iter().for_each(|r| eprintln!("remark: {r}"));
        printed
    };
    Ok(Outcome::ok(text))
}
