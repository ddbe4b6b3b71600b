//! Models as PyTorch's two exporters write them (`models/`, which `make.py` made): one compilation runs all shapes, gives what PyTorch
//! gave, the same bits on two threads as on one, and what the exporters broke up is recognised.
//!
//! The suite `pytorch-exported` of `../conformance` runs them five ways and writes them back to files. `MODELS=text` takes those whose
//! name contains the text; `BLESS=1` writes `recognised.txt`.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

#[path = "../conformance/runner/mod.rs"]
mod runner;

use std::fmt::Write as _;
use std::path::Path;

use rlx::onnx::{CaseValue, ImportOptions, Model, OnnxFile, ReadOptions, TestCase, import, to_tensor};
use rlx::{CompileOptions, CompiledGraph, Device, Session, Tensor};
use runner::{cases, compare};

/// Attention kernels that each model must have, by the name in front of the exporter's.
const ATTENTION: &[(&str, usize)] = &[
    ("bert", 2),
    ("bert_eager", 2),
    ("causal_by_hand", 1),
    ("clip", 2),
    ("convnext", 0),
    ("deberta", 0),
    ("dinov2", 2),
    ("distilbert", 2),
    ("efficientnet", 0),
    ("experts", 0),
    ("gemma2", 2),
    ("gpt2", 2),
    ("gpt2_cache", 2),
    ("gpt_neox", 2),
    ("gru_tagger", 0),
    ("llama", 2),
    ("llama_cache", 2),
    ("llama_eager", 2),
    ("lstm_tagger", 0),
    ("mamba", 0),
    ("mistral", 2),
    ("mixtral", 2),
    ("phi", 2),
    ("qwen2", 2),
    ("qwen3", 2),
    ("resnet", 0),
    ("segformer", 2),
    ("selective_loop", 0),
    ("selective_scan", 0),
    ("sparse_experts", 0),
    ("swin", 4),
    ("t5", 6),
    ("t5_encoder", 2),
    ("torch_encoder", 2),
    ("unet", 2),
    ("vit", 2),
    ("wav2vec2", 2),
    ("whisper_encoder", 2),
];

fn model(folder: &Path) -> Model {
    OnnxFile::open(folder.join("model.onnx"), &ReadOptions::default()).and_then(OnnxFile::into_model).unwrap()
}

fn tensors(values: &[(String, CaseValue)]) -> Vec<(String, Tensor)> {
    let one = |(n, v): &(String, CaseValue)| match v {
        CaseValue::Tensor(t) => (n.clone(), to_tensor(t).unwrap()),
        _ => panic!("value `{n}` is no tensor"),
    };
    values.iter().map(one).collect()
}

fn compiled(module: &rlx::Module, threads: usize) -> Result<CompiledGraph, String> {
    let options = CompileOptions::new().threads(threads).poison(true);
    let session = Session::with_options(Device::Cpu, options).map_err(|e| e.to_string())?;
    session.compile_hir(module).map_err(|e| format!("compiling: {e}"))
}

/// What became of a model: attention kernels, and a line about its recognitions and kernels.
fn check(folder: &Path) -> Result<(usize, String), String> {
    let model = model(folder);
    let module = import(&model, &ImportOptions::default()).map_err(|e| e.to_string())?.module;
    let (one, two) = (compiled(&module, 1)?, compiled(&module, 2)?);
    let sets: Vec<_> = (0..).map(|k| folder.join(format!("test_data_set_{k}"))).take_while(|f| f.exists()).collect();
    if sets.len() < 2 {
        return Err("a model needs two shapes".into());
    }
    for (k, set) in sets.iter().enumerate() {
        let data = TestCase::read(set, &model.main.inputs, &model.main.outputs, &ReadOptions::default());
        let data = data.map_err(|e| e.to_string())?;
        let (inputs, outputs) = (tensors(&data.inputs), tensors(&data.outputs));
        let given: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
        let got = one.run_tensors(&given).map_err(|e| format!("set {k}: {e}"))?;
        for ((name, want), got) in outputs.iter().zip(&got) {
            if let Some(why) = compare::difference(want, got, 2e-4, 2e-5) {
                return Err(format!("set {k}: output `{name}`: {why}"));
            }
        }
        if two.run_tensors(&given).map_err(|e| format!("set {k} on two threads: {e}"))? != got {
            return Err(format!("set {k}: two threads give other bits than one"));
        }
    }
    let report = one.report();
    let mut line = String::new();
    let recognised = report.passes.iter().filter(|p| p.name == "recognise").flat_map(|p| &p.rewrites);
    for (name, n) in recognised {
        let _ = write!(line, " {name} {n},");
    }
    let mut kernels = report.kernels.clone();
    kernels.sort();
    line = format!("{} |", line.trim_end_matches(','));
    for (kind, n) in &kernels {
        let _ = write!(line, " {kind} {n},");
    }
    let attention = kernels.iter().filter(|(k, _)| k == "attention").map(|(_, n)| n).sum();
    Ok((attention, line.trim_end_matches(',').to_owned()))
}

#[test]
fn what_pytorch_exports_runs_as_it_comes() {
    let filter = std::env::var("MODELS").unwrap_or_default();
    let root = cases::models().unwrap();
    let mut names: Vec<String> =
        std::fs::read_dir(&root).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.retain(|n| n.contains(&filter) && !n.contains(".part"));
    names.sort();
    let (mut seen, mut wrong) = (String::new(), Vec::new());
    for name in &names {
        match check(&root.join(name)) {
            Err(why) => wrong.push(format!("{name}: {why}")),
            Ok((attention, line)) => {
                let _ = writeln!(seen, "{name}:{line}");
                let base = name.split('.').next().unwrap_or_default();
                match ATTENTION.iter().find(|(n, _)| *n == base) {
                    None => wrong.push(format!("{name}: how many attention kernels it must have is not written down")),
                    Some(&(_, n)) if n != attention => {
                        wrong.push(format!("{name}: {attention} attention kernels, {n} wanted:{line}"));
                    }
                    Some(_) => {}
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} models:\n{}", wrong.len(), names.len(), wrong.join("\n"));
    if filter.is_empty() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/exported/recognised.txt");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(path, &seen).unwrap();
        }
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        let differs = seen.lines().find(|l| !kept.lines().any(|k| k == *l));
        assert!(seen == kept, "recognised.txt is out of date (BLESS=1 writes it): {differs:?}");
    }
}
