//! Runs ONNX's node cases through the import and the evaluator and prints a table per operator.
//!
//! `cargo run -p rlx-onnx --example conformance -- FOLDER [FILTER] [--verbose]`, where FOLDER holds one folder per case, as
//! `onnx-node-*.tgz` unpacks to. A case whose operands must be known when the model is compiled is imported again with all inputs
//! but the first fixed; the table tells these apart.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rlx_ir::element::Elements;
use rlx_ir::eval::{EvalInputs, evaluate};
use rlx_ir::op::EvalOptions;
use rlx_ir::{Tensor, Value};
use rlx_onnx::{CaseValue, ImportError, ImportOptions, Model, OnnxFile, ReadOptions, TestCase, import, to_tensor};

/// How a case went.
enum Outcome {
    Passed,
    PassedFixed,
    Unsupported(String),
    Failed(String),
}

#[derive(Default)]
struct Row {
    passed: usize,
    fixed: usize,
    failed: usize,
    unsupported: usize,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let verbose = args.iter().any(|a| a == "--verbose");
    let mut plain = args.iter().filter(|a| !a.starts_with("--"));
    let Some(folder) = plain.next() else {
        eprintln!("usage: conformance FOLDER [FILTER] [--verbose]");
        return ExitCode::from(2);
    };
    let filter = plain.next().map_or("", String::as_str);
    let mut cases: Vec<PathBuf> = match std::fs::read_dir(folder) {
        Ok(d) => d.filter_map(|e| e.ok().map(|e| e.path())).filter(|p| p.join("model.onnx").exists()).collect(),
        Err(e) => {
            eprintln!("{folder}: {e}");
            return ExitCode::from(2);
        }
    };
    cases.sort();
    let mut table: BTreeMap<String, Row> = BTreeMap::new();
    for case in cases {
        let name = case.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.contains(filter) {
            continue;
        }
        let (op, outcome) = run_case(&case);
        let row = table.entry(op).or_default();
        match outcome {
            Outcome::Passed => row.passed += 1,
            Outcome::PassedFixed => row.fixed += 1,
            Outcome::Unsupported(why) => {
                row.unsupported += 1;
                if verbose {
                    println!("unsupported {name}: {why}");
                }
            }
            Outcome::Failed(why) => {
                row.failed += 1;
                println!("FAILED {name}: {why}");
            }
        }
    }
    println!("{:<32} {:>7} {:>7} {:>7} {:>12}", "operator", "passed", "fixed", "failed", "unsupported");
    let mut all = Row::default();
    for (op, r) in &table {
        println!("{op:<32} {:>7} {:>7} {:>7} {:>12}", r.passed, r.fixed, r.failed, r.unsupported);
        all.passed += r.passed;
        all.fixed += r.fixed;
        all.failed += r.failed;
        all.unsupported += r.unsupported;
    }
    println!("{:<32} {:>7} {:>7} {:>7} {:>12}", "all", all.passed, all.fixed, all.failed, all.unsupported);
    if all.failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// The operator that the case is about, by the first word of its name, and how it went.
fn run_case(case: &Path) -> (String, Outcome) {
    let model = OnnxFile::open(case.join("model.onnx"), &ReadOptions::default()).and_then(OnnxFile::into_model);
    let model = match model {
        Ok(m) => m,
        Err(e) => return ("(unreadable)".into(), Outcome::Failed(e.to_string())),
    };
    let ops: Vec<&str> = model.main.nodes.iter().map(|n| n.op_type.as_str()).collect();
    let name = case.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let op = match ops[..] {
        [one] => one.to_owned(),
        _ if name.contains("_expanded") => "(expanded functions)".to_owned(),
        _ => "(graphs)".to_owned(),
    };
    let result = std::panic::catch_unwind(|| run_sets(case, &model));
    (op, result.unwrap_or_else(|_| Outcome::Failed("panicked".into())))
}

fn run_sets(case: &Path, model: &Model) -> Outcome {
    let mut last = Outcome::Failed("no data set".into());
    for k in 0.. {
        let folder = case.join(format!("test_data_set_{k}"));
        if !folder.exists() {
            break;
        }
        last = run_set(case, &folder, model);
        if !matches!(last, Outcome::Passed | Outcome::PassedFixed) {
            break;
        }
    }
    last
}

fn tensors(values: &[(String, CaseValue)]) -> Result<Vec<(String, Tensor)>, String> {
    values
        .iter()
        .map(|(n, v)| match v {
            CaseValue::Tensor(t) => Ok((n.clone(), to_tensor(t)?)),
            _ => Err(format!("value {n} is no tensor")),
        })
        .collect()
}

fn run_set(case: &Path, folder: &Path, model: &Model) -> Outcome {
    let read = TestCase::read(folder, &model.main.inputs, &model.main.outputs, &ReadOptions::default());
    let data = match read {
        Ok(d) => d,
        Err(e) => return Outcome::Failed(e.to_string()),
    };
    let (inputs, outputs) = match (tensors(&data.inputs), tensors(&data.outputs)) {
        (Ok(i), Ok(o)) => (i, o),
        (Err(e), _) | (_, Err(e)) => return Outcome::Unsupported(e),
    };
    let (fixed, imported) = match import(model, &ImportOptions::default()) {
        Ok(i) => (false, i),
        Err(ImportError::Model { unsupported, .. }) if !unsupported.is_empty() => {
            let first = unsupported.first().map(ToString::to_string).unwrap_or_default();
            return Outcome::Unsupported(first);
        }
        Err(first) => {
            let fixed_inputs = inputs.iter().skip(1).cloned().collect();
            match import(model, &ImportOptions { fixed_inputs, ..ImportOptions::default() }) {
                Ok(i) => (true, i),
                Err(_) => {
                    // Ops of one operand that says a size.
                    let fixed_inputs = inputs.iter().cloned().collect();
                    match import(model, &ImportOptions { fixed_inputs, ..ImportOptions::default() }) {
                        Ok(i) => (true, i),
                        Err(e) => return Outcome::Failed(format!("{e}\n   (inputs free: {first})")),
                    }
                }
            }
        }
    };
    if let Err(e) = rlx_ir::verify::verify(&imported.module) {
        return Outcome::Failed(format!("verifier: {e}"));
    }
    let g = &imported.module.main;
    let mut given = EvalInputs::default();
    for &v in g.inputs() {
        let name = g.value(v).name.clone().unwrap_or_default();
        match inputs.iter().find(|(n, _)| **n == *name) {
            Some((_, t)) => given.inputs.push(Value::Tensor(t.clone())),
            None => return Outcome::Failed(format!("input {name} has no data")),
        }
    }
    let results = match evaluate(&imported.module, &given, EvalOptions::default()) {
        Ok(r) => r.outputs,
        Err(e) => return Outcome::Failed(format!("evaluation: {e}")),
    };
    let (rtol, atol) = tolerance(case);
    for ((name, want), got) in outputs.iter().zip(&results) {
        let Some(got) = got.as_tensor() else { return Outcome::Failed(format!("output {name} is no tensor")) };
        if let Some(why) = difference(want, got, rtol, atol) {
            return Outcome::Failed(format!("output {name}: {why}"));
        }
    }
    if fixed { Outcome::PassedFixed } else { Outcome::Passed }
}

fn tolerance(case: &Path) -> (f64, f64) {
    let text = std::fs::read_to_string(case.join("tolerance")).unwrap_or_default();
    let mut numbers = text.split_whitespace().filter_map(|s| s.parse().ok());
    (numbers.next().unwrap_or(1e-3), numbers.next().unwrap_or(1e-7))
}

/// What tells two tensors apart, as NumPy's `assert_allclose` sees it.
fn difference(want: &Tensor, got: &Tensor, rtol: f64, atol: f64) -> Option<String> {
    if want.dtype() != got.dtype() || want.dims() != got.dims() {
        return Some(format!("is {}{:?}, should be {}{:?}", got.dtype(), got.dims(), want.dtype(), want.dims()));
    }
    match (want.elements(), got.elements()) {
        (Elements::Float(w), Elements::Float(g)) => {
            let bad = |(w, g): (&f64, &f64)| {
                let same = w == g || (w.is_nan() && g.is_nan()) || (w - g).abs() <= atol + rtol * w.abs();
                !same
            };
            let n = w.iter().zip(&g).filter(|&(w, g)| bad((w, g))).count();
            let at = w.iter().zip(&g).position(|(w, g)| bad((w, g)))?;
            Some(format!("{n} of {} elements differ; element {at} is {}, should be {}", w.len(), g[at], w[at]))
        }
        (Elements::Int(w), Elements::Int(g)) => {
            let at = w.iter().zip(&g).position(|(w, g)| w != g)?;
            let n = w.iter().zip(&g).filter(|(w, g)| w != g).count();
            Some(format!("{n} of {} elements differ; element {at} is {}, should be {}", w.len(), g[at], w[at]))
        }
        (w, g) => (w != g).then(|| "differs".into()),
    }
}
