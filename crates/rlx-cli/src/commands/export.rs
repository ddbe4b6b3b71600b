//! `rlx export`: a graph as an ONNX file.

use super::Outcome;
use crate::args::ExportArgs;
use crate::error::CliError;
use crate::{json, model};

/// Runs the command.
pub fn export(args: &ExportArgs) -> Result<Outcome, CliError> {
    let loaded = model::load(&args.model)?;
    let bytes = rlx::onnx::export(&loaded.module).map_err(|e| CliError::Compile(e.to_string()))?;
    std::fs::write(&args.output, &bytes).map_err(|e| CliError::Output(args.output.clone(), e.to_string()))?;
    if args.json {
        let file = args.output.display().to_string();
        let value =
            serde_json::json!({ "file": file, "bytes": bytes.len(), "nodes": loaded.module.main.nodes().len() });
        return Ok(Outcome::ok(json::line(&value)?));
    }
    Ok(Outcome::ok(format!("{}: {} bytes\n", args.output.display(), bytes.len())))
}
