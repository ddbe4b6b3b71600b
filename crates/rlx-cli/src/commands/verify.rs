//! `rlx verify`: outputs against stored ones, or against the reference evaluator.

use std::path::{Path, PathBuf};

use rlx::ir::eval::{EvalInputs, evaluate};
use rlx::ir::op::EvalOptions;
use rlx::onnx::{CaseValue, OnnxFile, ReadOptions, TestCase, to_tensor};
use rlx::runtime::Precision;
use rlx::{CompiledGraph, Module, Tensor, Value};
use serde::Serialize;

use super::{Outcome, bisect};
use crate::args::VerifyArgs;
use crate::error::CliError;
use crate::progress::Progress;
use crate::stats::{Difference, difference, summary};
use crate::{fill, json, model, npz, table};

/// Inputs and expected outputs.
struct Case {
    name: String,
    inputs: Vec<(String, Tensor)>,
    outputs: Vec<(String, Tensor)>,
}

#[derive(Serialize)]
struct Row {
    case: String,
    output: String,
    max_abs: Option<f64>,
    max_rel: Option<f64>,
    norm: Option<f64>,
    outside: usize,
    elements: usize,
    ok: bool,
    note: String,
}

/// Runs the command.
pub fn verify(args: &VerifyArgs) -> Result<Outcome, CliError> {
    if [args.rtol, args.atol].iter().any(|t| !t.is_finite() || *t < 0.0) {
        return Err(CliError::Usage("--rtol and --atol want finite numbers of 0 or more".into()));
    }
    let model = model::open(&args.model, Precision::F32)?;
    if args.bisect && !args.cases.is_empty() {
        return Err(CliError::Usage("--bisect compares with the evaluator; leave out --case".into()));
    }
    if args.bisect {
        let module = model.graph("--bisect")?;
        let inputs = fill::inputs(module, &args.inputs)?;
        return bisect::bisect(module, &inputs, args);
    }
    let cases = if args.cases.is_empty() {
        vec![evaluator_case(model.graph("a comparison with the evaluator")?, args)?]
    } else {
        let mut all = Vec::new();
        for path in &args.cases {
            all.extend(read_case(path, &args.model.model)?);
        }
        all
    };
    let (program, _) = model.program(&args.model, Precision::F32)?;
    let mut rows = Vec::new();
    for case in &cases {
        rows.extend(compare(&program, case, args)?);
    }
    let success = !rows.is_empty() && rows.iter().all(|r| r.ok);
    let text = if args.model.json {
        json::line(&serde_json::json!({ "ok": success, "rtol": args.rtol, "atol": args.atol, "results": rows }))?
    } else {
        as_table(&rows, success, args)
    };
    Ok(Outcome { text, success })
}

fn as_table(rows: &[Row], success: bool, args: &VerifyArgs) -> String {
    let number = |x: Option<f64>| x.map_or_else(|| "-".into(), |x| format!("{x:.3e}"));
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|r| {
            let verdict = if r.ok { "ok".into() } else { format!("MISMATCH {}", r.note) };
            vec![
                r.case.clone(),
                r.output.clone(),
                number(r.max_abs),
                number(r.max_rel),
                number(r.norm),
                format!("{}/{}", r.outside, r.elements),
                verdict,
            ]
        })
        .collect();
    let mut text =
        table::table(&["case", "output", "max |err|", "max rel err", "‖err‖/‖ref‖", "outside", "verdict"], &cells);
    let verdict = if success { "all outputs agree" } else { "outputs differ" };
    text.push_str(&format!("{verdict} (rtol {}, atol {})\n", args.rtol, args.atol));
    text
}

fn compare(program: &CompiledGraph, case: &Case, args: &VerifyArgs) -> Result<Vec<Row>, CliError> {
    let refs: Vec<(&str, &Tensor)> = case.inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let outputs = program.run_tensors(&refs)?;
    let names: Vec<&str> = program.outputs().iter().map(|p| &*p.name).collect();
    case.outputs
        .iter()
        .map(|(name, reference)| {
            let at = names.iter().position(|n| n == name).ok_or_else(|| {
                CliError::Inputs(format!(
                    "case {}: the model has no output `{name}`; its outputs are: {}",
                    case.name,
                    names.join(", ")
                ))
            })?;
            let largest = summary(reference);
            if reference.numel() > 0 && largest.min.abs().max(largest.max.abs()) <= args.atol {
                eprintln!(
                    "warning: case {}: the reference of `{name}` lies within --atol {:e} of zero everywhere; a smaller \
                     one would tell more",
                    case.name, args.atol
                );
            }
            let out = outputs.get(at).ok_or_else(|| CliError::Other(format!("output `{name}` is missing")))?;
            Ok(row(&case.name, name, out, reference, args))
        })
        .collect()
}

fn row(case: &str, name: &str, out: &Tensor, reference: &Tensor, args: &VerifyArgs) -> Row {
    let d: Difference = difference(out, reference, args.rtol, args.atol);
    let ok = d.mismatch.is_none() && d.outside == 0;
    let note = match (&d.mismatch, d.first_outside) {
        (Some(m), _) => m.clone(),
        (None, Some(i)) => format!("first at element {i}"),
        _ => String::new(),
    };
    Row {
        case: case.into(),
        output: name.into(),
        max_abs: json::number(d.max_abs),
        max_rel: json::number(d.max_rel),
        norm: json::number(d.norm),
        outside: d.outside,
        elements: reference.numel(),
        ok,
        note,
    }
}

/// Random inputs and what the evaluator makes of them.
fn evaluator_case(module: &Module, args: &VerifyArgs) -> Result<Case, CliError> {
    let inputs = fill::inputs(module, &args.inputs)?;
    let _progress = Progress::start("evaluating the reference");
    let values: Vec<Value> = inputs.iter().map(|(_, t)| t.clone().into()).collect();
    let results = evaluate(module, &EvalInputs { inputs: values, ..EvalInputs::default() }, EvalOptions::accurate())
        .map_err(|e| CliError::Run(e.to_string()))?;
    let outputs = module
        .main
        .outputs()
        .iter()
        .zip(results.outputs)
        .filter_map(|(o, v)| match v {
            Value::Tensor(t) => Some((o.name.to_string(), t)),
            _ => None,
        })
        .collect();
    Ok(Case { name: "evaluator".into(), inputs, outputs })
}

fn read_case(path: &Path, model: &Path) -> Result<Vec<Case>, CliError> {
    if !path.exists() {
        return Err(CliError::File(path.to_path_buf(), "no such file or folder".into()));
    }
    if !path.is_dir() {
        return npz_case(path).map(|c| vec![c]);
    }
    let mut folders: Vec<PathBuf> = std::fs::read_dir(path)
        .map_err(|e| CliError::File(path.to_path_buf(), e.to_string()))?
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.is_dir() && p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("test_data_set_")))
        .collect();
    folders.sort();
    if folders.is_empty() {
        folders.push(path.to_path_buf());
    }
    folders.iter().map(|f| onnx_case(f, model)).collect()
}

fn case_name(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn npz_case(path: &Path) -> Result<Case, CliError> {
    let mut case = Case { name: case_name(path), inputs: Vec::new(), outputs: Vec::new() };
    for (name, t) in npz::read_npz(path)? {
        if let Some(n) = name.strip_prefix("in.") {
            case.inputs.push((n.into(), t));
        } else if let Some(n) = name.strip_prefix("out.") {
            case.outputs.push((n.into(), t));
        }
    }
    if case.outputs.is_empty() {
        return Err(CliError::File(
            path.to_path_buf(),
            "holds no array named `out.<output>`; a case holds `in.<input>` and `out.<output>`".into(),
        ));
    }
    Ok(case)
}

/// A folder of an ONNX case: `input_0.pb`, `output_0.pb`, … in the order of the model's lists.
fn onnx_case(folder: &Path, model: &Path) -> Result<Case, CliError> {
    let fail = |why: String| CliError::File(folder.to_path_buf(), why);
    let options = ReadOptions::default();
    let model =
        OnnxFile::open(model, &options).and_then(OnnxFile::into_model).map_err(|e| CliError::Model(e.to_string()))?;
    let case =
        TestCase::read(folder, &model.main.inputs, &model.main.outputs, &options).map_err(|e| fail(e.to_string()))?;
    let tensors = |values: Vec<(String, CaseValue)>| -> Result<Vec<(String, Tensor)>, CliError> {
        values
            .into_iter()
            .map(|(name, v)| match v {
                CaseValue::Tensor(raw) => {
                    Ok((name.clone(), to_tensor(&raw).map_err(|e| fail(format!("`{name}`: {e}")))?))
                }
                _ => Err(fail(format!("`{name}` is not a tensor"))),
            })
            .collect()
    };
    Ok(Case { name: case_name(folder), inputs: tensors(case.inputs)?, outputs: tensors(case.outputs)? })
}
