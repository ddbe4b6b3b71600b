//! `rlx run`: one run, and a table of outputs.

use rlx::compile::target::BorrowedTensor;
use rlx::runtime::Precision;
use rlx::{CompiledGraph, Input, Tensor};
use serde::Serialize;

use super::Outcome;
use crate::args::RunArgs;
use crate::error::CliError;
use crate::{fill, json, model, npz, stats, table};

#[derive(Serialize)]
struct OutputRow<'a> {
    name: &'a str,
    dtype: &'a str,
    shape: &'a [usize],
    min: Option<f64>,
    mean: Option<f64>,
    max: Option<f64>,
    not_finite: usize,
    first: Vec<String>,
}

/// Runs the command.
pub fn run(args: &RunArgs) -> Result<Outcome, CliError> {
    let model = model::open(&args.model, Precision::F32)?;
    let inputs = fill::inputs(model.module(), &args.inputs)?;
    let (mut program, _) = model.program(&args.model, Precision::F32)?;
    let outputs = run_once(&mut program, &inputs)?;
    let names: Vec<String> = program.outputs().iter().map(|p| p.name.to_string()).collect();
    if let Some(path) = &args.output {
        let arrays: Vec<(String, &Tensor)> = names.iter().cloned().zip(&outputs).collect();
        npz::write_npz(path, &arrays)?;
    }
    let text = if args.model.json { as_json(&names, &outputs)? } else { as_table(&names, &outputs) };
    Ok(Outcome::ok(text))
}

/// One run from the initial states.
fn run_once(program: &mut CompiledGraph, inputs: &[(String, Tensor)]) -> Result<Vec<Tensor>, CliError> {
    if program.states().is_empty() {
        let refs: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
        return Ok(program.run_tensors(&refs)?);
    }
    let refs: Vec<(&str, Input<'_>)> = inputs.iter().map(|(n, t)| (n.as_str(), Input::from(t))).collect();
    let outputs = program.run_borrowed(&refs)?;
    let own = |t: &BorrowedTensor<'_>| Tensor::from_bytes(t.dtype, t.dims, t.bytes);
    outputs.iter().map(own).collect::<Result<_, _>>().map_err(|e| CliError::Run(e.to_string()))
}

fn as_json(names: &[String], outputs: &[Tensor]) -> Result<String, CliError> {
    let rows: Vec<OutputRow<'_>> = names
        .iter()
        .zip(outputs)
        .map(|(name, t)| {
            let s = stats::summary(t);
            OutputRow {
                name,
                dtype: t.dtype().name(),
                shape: t.dims(),
                min: json::number(s.min),
                mean: json::number(s.mean),
                max: json::number(s.max),
                not_finite: s.not_finite,
                first: s.first,
            }
        })
        .collect();
    json::line(&serde_json::json!({ "outputs": rows }))
}

fn as_table(names: &[String], outputs: &[Tensor]) -> String {
    let number = |x: f64| if x.is_nan() { "-".to_string() } else { format!("{x:.6}") };
    let rows: Vec<Vec<String>> = names
        .iter()
        .zip(outputs)
        .map(|(name, t)| {
            let s = stats::summary(t);
            let mut first = s.first.join(" ");
            if t.numel() > s.first.len() {
                first.push_str(" …");
            }
            if s.not_finite > 0 {
                first.push_str(&format!("  ({} not finite)", s.not_finite));
            }
            vec![
                name.clone(),
                t.dtype().to_string(),
                format!("{:?}", t.dims()),
                number(s.min),
                number(s.mean),
                number(s.max),
                first,
            ]
        })
        .collect();
    table::table(&["output", "dtype", "shape", "min", "mean", "max", "first values"], &rows)
}
