//! The five ways of running a case.

use std::collections::BTreeMap;

use rlx::ir::eval::{EvalInputs, evaluate};
use rlx::ir::op::EvalOptions;
use rlx::onnx::{CaseValue, ImportOptions, Imported, Model, OnnxFile, ReadOptions, TestCase, import, to_tensor};
use rlx::{CompileOptions, CompiledGraph, Device, Input, Module, Session, Tensor, Value};
use rlx_ir::testing::RandomGraph;

use super::cases::Case;
use super::compare::{Random, difference, implausible};
use super::{Made, Outcome, Report};

/// Names of the ways: the evaluator; compiled; compiled without optimisation; all inputs constants, so that the folder computes what
/// it may; all inputs parameters, so that all is prepared.
pub const WAYS: [&str; 5] = ["evaluator", "compiled", "unoptimised", "constants", "parameters"];

/// A case of which nothing ran.
pub fn all_failed(case: &Case, operator: &str, why: String) -> Report {
    let ways = vec![Outcome::Failed(why); WAYS.len()];
    Report { case: case.clone(), operator: operator.into(), fixed: None, ways, made: None }
}

/// Runs a case.
pub fn run(case: &Case) -> Report {
    let opened = OnnxFile::open(case.folder.join("model.onnx"), &ReadOptions::default());
    let model = match opened.and_then(OnnxFile::into_model) {
        Ok(m) => m,
        Err(e) => return all_failed(case, "(unreadable)", e.to_string()),
    };
    let operator = operator(case, &model);
    let mut report = Report {
        case: case.clone(),
        operator: operator.clone(),
        fixed: None,
        ways: vec![Outcome::Passed; WAYS.len()],
        made: None,
    };
    let sets = (0..).map(|k| case.folder.join(format!("test_data_set_{k}"))).take_while(|f| f.exists());
    let mut all = Vec::new();
    for folder in sets {
        let set = match Set::read(case, &folder, &model) {
            Ok(s) => s,
            Err(e) => return all_failed(case, &operator, e),
        };
        let Ran { fixed, ways, made } = match set.run(&model) {
            Ok(r) => r,
            Err(e) => return all_failed(case, &operator, e),
        };
        report.made = made;
        report.fixed = report.fixed.or(fixed);
        for (have, new) in report.ways.iter_mut().zip(ways) {
            if have.is_good() {
                *have = new;
            }
        }
        all.push(set);
    }
    // What is free in the model is free in the program: one serves all data sets.
    if all.len() > 1 && report.is_good() && report.fixed.is_none() && all.iter().all(|s| s.random.is_none()) {
        report.ways[1] = one_program(&model, &all);
    }
    if all.is_empty() { all_failed(case, &operator, "no data set".into()) } else { report }
}

/// All data sets run by one compiled program.
fn one_program(model: &Model, sets: &[Set]) -> Outcome {
    let run = || -> Result<(), String> {
        let module = import(model, &ImportOptions::default()).map_err(|e| e.to_string())?.module;
        let mut program = compile(&module, &CompileOptions::new().threads(1).poison(true))?;
        for (i, set) in sets.iter().enumerate() {
            let got = set.given(&module).and_then(|inputs| outputs(&mut program, &inputs));
            if let Outcome::Failed(why) = set.judge(got) {
                return Err(format!("data set {i}: {why}"));
            }
        }
        Ok(())
    };
    run().map_or_else(|e| Outcome::Failed(format!("one program for all data sets: {e}")), |()| Outcome::Passed)
}

/// A case written back to a file, read again, and run by the evaluator. What is wrong is the inner error; the outer one says why it is not
/// written.
pub fn exported(case: &Case) -> Result<Result<(), String>, String> {
    let opened = OnnxFile::open(case.folder.join("model.onnx"), &ReadOptions::default());
    let model = opened.and_then(OnnxFile::into_model).map_err(|e| e.to_string())?;
    let set = Set::read(case, &case.folder.join("test_data_set_0"), &model)?;
    let (_, imported) = set.import(&model)?;
    let bytes = rlx::onnx::export(&imported.module).map_err(|e| e.problems.join("; "))?;
    let again = || -> Result<(), String> {
        let file = OnnxFile::from_bytes(bytes, None, &ReadOptions::default()).and_then(OnnxFile::into_model);
        let module =
            import(&file.map_err(|e| e.to_string())?, &ImportOptions::default()).map_err(|e| e.to_string())?.module;
        rlx::ir::verify(&module).map_err(|e| e.to_string())?;
        let inputs = set.given(&module)?;
        match set.judge(evaluated(&module, &inputs)) {
            Outcome::Failed(why) => Err(why),
            _ => Ok(()),
        }
    };
    Ok(again())
}

/// The operator that the case is about.
fn operator(case: &Case, model: &Model) -> String {
    let ops: Vec<&str> = model.main.nodes.iter().map(|n| n.op_type.as_str()).collect();
    match ops[..] {
        [one] => one.to_owned(),
        _ if case.name.contains("_expanded") => "(expanded functions)".to_owned(),
        _ => format!("({})", case.suite),
    }
}

/// Which cases draw random numbers.
fn random(model: &Model) -> Option<Random> {
    let has = |op: &str| model.main.nodes.iter().any(|n| n.op_type == op);
    let training = model.main.inputs.len() > 2 || model.main.inputs.iter().any(|i| i.name == "t");
    match () {
        () if has("Bernoulli") || has("RandomUniformLike") => Some(Random::Bernoulli),
        () if has("Dropout") && training => Some(Random::Dropout),
        () => None,
    }
}

/// What came of a data set.
struct Ran {
    /// Why inputs had to be fixed.
    fixed: Option<String>,
    ways: Vec<Outcome>,
    /// What became of a single node.
    made: Option<Made>,
}

/// One data set of a case.
struct Set {
    inputs: Vec<(String, Tensor)>,
    outputs: Vec<(String, Tensor)>,
    rtol: f64,
    atol: f64,
    random: Option<Random>,
}

fn tensors(values: &[(String, CaseValue)]) -> Result<Vec<(String, Tensor)>, String> {
    values
        .iter()
        .map(|(n, v)| match v {
            CaseValue::Tensor(t) => Ok((n.clone(), to_tensor(t)?)),
            _ => Err(format!("value `{n}` is no tensor")),
        })
        .collect()
}

impl Set {
    fn read(case: &Case, folder: &std::path::Path, model: &Model) -> Result<Set, String> {
        let data = TestCase::read(folder, &model.main.inputs, &model.main.outputs, &ReadOptions::default());
        let data = data.map_err(|e| e.to_string())?;
        let text = std::fs::read_to_string(case.folder.join("tolerance")).unwrap_or_default();
        let mut numbers = text.split_whitespace().filter_map(|s| s.parse().ok());
        let (rtol, atol) = (numbers.next().unwrap_or(1e-3), numbers.next().unwrap_or(1e-7));
        let random = random(model);
        Ok(Set { inputs: tensors(&data.inputs)?, outputs: tensors(&data.outputs)?, rtol, atol, random })
    }

    /// Runs all ways.
    fn run(&self, model: &Model) -> Result<Ran, String> {
        let (fixed, imported) = self.import(model)?;
        let module = &imported.module;
        rlx::ir::verify(module).map_err(|e| format!("verifier: {e}"))?;
        let inputs = self.given(module)?;
        // One thread: the cases are small. Arenas are poisoned: no kernel may read what none has written.
        let options = CompileOptions::new().threads(1).poison(true);
        let all = self.inputs.iter().cloned().collect();
        let constants = import(model, &ImportOptions { fixed_inputs: all, ..ImportOptions::default() });
        let graph = RandomGraph { module: module.clone(), inputs: inputs.clone(), seed: 0 };
        let mut kernels = 0;
        let optimised = compiled(module, &inputs, &options).map(|(outputs, n)| {
            kernels = n;
            outputs
        });
        let only = |r: Result<(Vec<Tensor>, usize), String>| r.map(|(outputs, _)| outputs);
        let outcomes = vec![
            self.judge(evaluated(module, &inputs)),
            self.judge(optimised),
            self.judge(only(compiled(module, &inputs, &options.clone().unoptimised()))),
            self.judge(constants.map_err(|e| e.to_string()).and_then(|i| {
                rlx::ir::verify(&i.module).map_err(|e| format!("verifier: {e}"))?;
                only(compiled(&i.module, &EvalInputs::default(), &options))
            })),
            self.judge(
                graph
                    .inputs_as_params()
                    .map_err(|e| e.to_string())
                    .and_then(|g| only(compiled(&g.module, &g.inputs, &options))),
            ),
        ];
        Ok(Ran { fixed, ways: outcomes, made: self.made(model, module, kernels, &options) })
    }

    /// What becomes of a single node. Where sizes depend on data, it is asked of the node whose operands but the first are known: that is how
    /// models have most of them.
    fn made(&self, model: &Model, module: &Module, kernels: usize, options: &CompileOptions) -> Option<Made> {
        let [node] = &model.main.nodes[..] else { return None };
        let reads = |m: &Module| m.main.nodes().iter().any(|n| n.op.name() == "read_dims");
        let rest = self.inputs.iter().skip(1).cloned().collect();
        let known = reads(module)
            .then(|| import(model, &ImportOptions { fixed_inputs: rest, ..ImportOptions::default() }).ok())
            .flatten()
            .map(|i| i.module);
        let (module, kernels) = match &known {
            Some(m) => (m, compile(m, options).ok()?.report().kernels.iter().map(|(_, n)| n).sum()),
            None => (module, kernels),
        };
        let known = |name: &str| matches!(name, "constant" | "from_dims");
        let ops = module.main.nodes().iter().filter(|n| !known(n.op.name())).count();
        let first = node.inputs.first().and_then(|name| self.inputs.iter().find(|(n, _)| n == name));
        Some(Made { domain: node.domain.clone(), dtype: first.map(|(_, t)| t.dtype().to_string()), ops, kernels })
    }

    /// The model with its inputs free, or if it asks for operands that are known when it is compiled, with as few as possible of its
    /// last inputs fixed.
    fn import(&self, model: &Model) -> Result<(Option<String>, Imported), String> {
        let first = match import(model, &ImportOptions::default()) {
            Ok(i) => return Ok((None, i)),
            Err(e) => e,
        };
        for n in (0..self.inputs.len()).rev() {
            let fixed_inputs: BTreeMap<String, Tensor> = self.inputs.iter().skip(n).cloned().collect();
            if let Ok(i) = import(model, &ImportOptions { fixed_inputs, ..ImportOptions::default() }) {
                return Ok((Some(first.to_string()), i));
            }
        }
        Err(first.to_string())
    }

    /// Values of the module's inputs.
    fn given(&self, module: &Module) -> Result<EvalInputs, String> {
        let g = &module.main;
        let mut given = EvalInputs::default();
        for &v in g.inputs() {
            let name = g.value(v).name.clone().unwrap_or_default();
            let data = self.inputs.iter().find(|(n, _)| **n == *name);
            let (_, t) = data.ok_or_else(|| format!("input `{name}` has no data"))?;
            given.inputs.push(Value::Tensor(t.clone()));
        }
        Ok(given)
    }

    fn judge(&self, got: Result<Vec<Tensor>, String>) -> Outcome {
        let got = match got {
            Ok(g) => g,
            Err(e) => return Outcome::Failed(e),
        };
        if got.len() < self.outputs.len() {
            return Outcome::Failed(format!("{} outputs, not {}", got.len(), self.outputs.len()));
        }
        if let Some(kind) = self.random {
            let inputs: Vec<Tensor> = self.inputs.iter().map(|(_, t)| t.clone()).collect();
            let want: Vec<Tensor> = self.outputs.iter().map(|(_, t)| t.clone()).collect();
            // Without chance (a ratio of 0, no training) the values are compared.
            if self.outputs.iter().zip(&got).all(|((_, w), g)| difference(w, g, self.rtol, self.atol).is_none()) {
                return Outcome::Passed;
            }
            return implausible(kind, &inputs, &want, &got).map_or(Outcome::Random, Outcome::Failed);
        }
        for ((name, want), got) in self.outputs.iter().zip(&got) {
            if let Some(why) = difference(want, got, self.rtol, self.atol) {
                return Outcome::Failed(format!("output `{name}`: {why}"));
            }
        }
        Outcome::Passed
    }
}

fn evaluated(module: &Module, inputs: &EvalInputs) -> Result<Vec<Tensor>, String> {
    let results = evaluate(module, inputs, EvalOptions::default()).map_err(|e| e.to_string())?;
    let tensor = |v: &Value| v.as_tensor().cloned().ok_or_else(|| "an output is no tensor".to_owned());
    results.outputs.iter().map(tensor).collect()
}

/// Outputs, and the number of kernels.
fn compiled(module: &Module, inputs: &EvalInputs, options: &CompileOptions) -> Result<(Vec<Tensor>, usize), String> {
    let mut program = compile(module, options)?;
    let kernels = program.report().kernels.iter().map(|(_, n)| n).sum();
    Ok((outputs(&mut program, inputs)?, kernels))
}

fn compile(module: &Module, options: &CompileOptions) -> Result<CompiledGraph, String> {
    let session = Session::with_options(Device::Cpu, options.clone()).map_err(|e| e.to_string())?;
    session.compile_hir(module).map_err(|e| format!("compiling: {e}"))
}

fn outputs(program: &mut CompiledGraph, inputs: &EvalInputs) -> Result<Vec<Tensor>, String> {
    let names: Vec<String> = program.inputs().iter().map(|p| p.name.to_string()).collect();
    let tensors = inputs.inputs.iter().filter_map(Value::as_tensor);
    let given: Vec<(&str, &Tensor)> = names.iter().map(String::as_str).zip(tensors).collect();
    if program.states().is_empty() {
        return program.run_tensors(&given).map_err(|e| format!("running: {e}"));
    }
    let given: Vec<(&str, Input<'_>)> = given.iter().map(|&(n, t)| (n, Input::from(t))).collect();
    let outputs = program.run_borrowed(&given).map_err(|e| format!("running: {e}"))?;
    let tensor = |o: &rlx::compile::target::BorrowedTensor<'_>| Tensor::from_bytes(o.dtype, o.dims, o.bytes);
    let outputs: Result<Vec<Tensor>, _> = outputs.iter().map(tensor).collect();
    outputs.map_err(|e| e.to_string())
}
