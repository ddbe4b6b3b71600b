//! Models as PyTorch's two exporters write them (`models/`, which `make.py` made): one compilation runs all shapes, gives what PyTorch
//! gave, the same bits on two threads as on one, and what the exporters broke up is recognised.
//!
//! The suite `pytorch-exported` of `../conformance` runs them five ways and writes them back to files. What RLX writes of these models and
//! of the shared ones is run in ONNX Runtime beside the original, where `PYTHON`, or `python3`, has that; with `CASES=text` also what it
//! writes of the cases whose label contains the text. `MODELS=text` takes models whose name contains the text; `BLESS=1` writes
//! `recognised.txt`.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

#[path = "../conformance/runner/mod.rs"]
mod runner;

use std::fmt::Write as _;
use std::path::Path;

use rlx::onnx::{CaseValue, ImportOptions, Model, OnnxFile, ReadOptions, TestCase, import, to_tensor};
use rlx::{CompileOptions, CompiledGraph, Device, Input, Session, Tensor};
use runner::{cases, compare};

/// Attention kernels that each model must have, by the name in front of the exporter's.
const ATTENTION: &[(&str, usize)] = &[
    ("bert", 2),
    ("bert_eager", 2),
    ("causal_by_hand", 1),
    ("clip", 2),
    ("convnext", 0),
    ("deberta", 2),
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

/// Names of the folders of a folder, those that contain the text.
fn folders(root: &Path, filter: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root).into_iter().flatten().filter_map(Result::ok);
    let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|n| n.contains(filter) && !n.contains(".part"));
    names.sort();
    names
}

/// Puts an original and what RLX writes of it beside each other; why not, if it is not written.
fn written(from: &Path, to: &Path) -> Result<(), String> {
    let module = rlx::onnx::load(from.join("model.onnx"), &ImportOptions::default()).map_err(|e| e.to_string())?.module;
    let bytes = rlx::onnx::export(&module).map_err(|e| e.problems.join("; "))?;
    std::fs::create_dir_all(to).unwrap();
    std::fs::write(to.join("written.onnx"), bytes).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|e| e.unwrap()) {
        let link = to.join(entry.file_name());
        if !link.exists() {
            copy(&entry.path(), &link);
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        std::fs::create_dir_all(to).unwrap();
        std::fs::read_dir(from).unwrap().map(|e| e.unwrap()).for_each(|e| copy(&e.path(), &to.join(e.file_name())));
    } else if std::fs::hard_link(from, to).is_err() {
        std::fs::copy(from, to).unwrap();
    }
}

#[test]
fn what_is_written_gives_the_same_in_onnx_runtime() {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let has = std::process::Command::new(&python).args(["-c", "import onnx, onnxruntime"]).output();
    if !has.is_ok_and(|o| o.status.success()) {
        println!("SKIPPED: {python} has no onnx and onnxruntime");
        return;
    }
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("written");
    let _ = std::fs::remove_dir_all(&root);
    let mut from: Vec<(String, std::path::PathBuf)> = Vec::new();
    let models = cases::models().unwrap();
    from.extend(
        folders(&models, &std::env::var("MODELS").unwrap_or_default()).into_iter().map(|n| (n.clone(), models.join(n))),
    );
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/models");
    if !shared.exists() {
        println!("SKIPPED: there is no ../shared/models beside the repository");
    }
    from.extend(folders(&shared, "").into_iter().map(|n| (n.clone(), shared.join(n))));
    if let Ok(filter) = std::env::var("CASES") {
        from.extend(cases::find(&filter).unwrap().0.into_iter().map(|c| (c.label().replace('/', "."), c.folder)));
    }
    let mut count = 0;
    for (name, folder) in from.iter().filter(|(_, f)| f.join("model.onnx").exists()) {
        match written(folder, &root.join(name)) {
            Ok(()) => count += 1,
            Err(why) => println!("SKIPPED {name}: {}", why.replace('\n', " | ")),
        }
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/exported/peer.py");
    let out = std::process::Command::new(&python).arg(script).arg(&root).output().unwrap();
    println!("{count} written\n{}", String::from_utf8_lossy(&out.stdout));
    let _ = std::fs::remove_dir_all(&root);
    assert!(out.status.success(), "{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
}

#[test]
fn what_pytorch_exports_runs_as_it_comes() {
    let filter = std::env::var("MODELS").unwrap_or_default();
    let root = cases::models().unwrap();
    let names = folders(&root, &filter);
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

/// Runs in a program's own context.
fn stateful(p: &mut CompiledGraph, inputs: &[(&str, &Tensor)]) -> Vec<Tensor> {
    let inputs: Vec<(&str, Input<'_>)> = inputs.iter().map(|(n, t)| (*n, Input::from(*t))).collect();
    let out = p.run_borrowed(&inputs).unwrap();
    let owned = |i| out.get(i).map(|t| Tensor::from_bytes(t.dtype, t.dims, t.bytes).unwrap());
    (0..out.len()).filter_map(owned).collect()
}

/// The decoders that take `past` and give `present`: as states, these stay where they are, and a token moves its own rows alone.
#[test]
fn caches_of_decoders_become_states() {
    let root = cases::models().unwrap();
    let names: Vec<String> = folders(&root, "_cache");
    assert_eq!(names.len(), 4, "{names:?}");
    for name in names {
        let folder = root.join(&name);
        let model = model(&folder);
        let module = import(&model, &ImportOptions::default()).unwrap().module;
        let mut pairs = Vec::new();
        for layer in 0..2 {
            for what in ["key", "value"] {
                pairs.push((format!("past_{what}_{layer}"), format!("present_{what}_{layer}")));
            }
        }
        let kept = module.carry(&pairs).unwrap_or_else(|e| panic!("{name}: {e}"));
        rlx::ir::verify(&kept).unwrap();
        let (plain, mut p) = (compiled(&module, 1).unwrap(), compiled(&kept, 2).unwrap());
        assert_eq!(p.states().len(), 4, "{name}");
        assert!(p.states().iter().all(|s| s.grows == Some(2)), "{name}");

        // As PyTorch ran it, from a cache that was there.
        let set = folder.join("test_data_set_0");
        let data = TestCase::read(&set, &model.main.inputs, &model.main.outputs, &ReadOptions::default()).unwrap();
        let (inputs, outputs) = (tensors(&data.inputs), tensors(&data.outputs));
        let is_past = |n: &str| pairs.iter().any(|(past, _)| past == n);
        for (n, t) in inputs.iter().filter(|(n, _)| is_past(n)) {
            p.set_state(n, t.clone()).unwrap();
        }
        let given: Vec<(&str, &Tensor)> =
            inputs.iter().filter(|(n, _)| !is_past(n)).map(|(n, t)| (n.as_str(), t)).collect();
        let close = |want: &Tensor, got: &Tensor, what: &str| {
            if let Some(why) = compare::difference(want, got, 2e-4, 2e-5) {
                panic!("{name}: {what}: {why}");
            }
        };
        close(&outputs[0].1, &stateful(&mut p, &given)[0], "logits");
        for (past, present) in &pairs {
            let want = &outputs.iter().find(|(n, _)| n == present).unwrap().1;
            close(want, &p.state(past).unwrap(), past);
        }

        // From nothing, token by token, beside the program that is given its own outputs.
        pairs.iter().for_each(|(past, _)| p.reset_state(past).unwrap());
        let mut held: Vec<(&str, Tensor)> = Vec::new();
        for port in plain.inputs().iter().filter(|i| is_past(&i.name)) {
            let dims: Vec<usize> = port.ty.shape.iter().map(|d| d.as_const().unwrap_or(0) as usize).collect();
            let dims = [1, dims[1], 0, dims[3]];
            held.push((&port.name, Tensor::zeros(port.ty.dtype, &dims).unwrap()));
        }
        let (mut grown, mut at) = (0, 0usize);
        for (step, n) in [4usize, 1, 1, 2, 1, 1, 1, 1, 1, 1].into_iter().enumerate() {
            let ints = |v: Vec<i64>| Tensor::from_slice(&[1, v.len()], &v).unwrap();
            let new = [
                ("ids", ints((0..n).map(|i| ((at + i) * 7 % 40) as i64).collect())),
                ("mask", ints(vec![1; at + n])),
                ("position", ints((at..at + n).map(|i| i as i64).collect())),
            ];
            let own: Vec<(&str, &Tensor)> = new.iter().map(|(n, t)| (*n, t)).collect();
            let all: Vec<(&str, &Tensor)> = own.iter().copied().chain(held.iter().map(|(n, t)| (*n, t))).collect();
            let want = plain.run_tensors(&all).unwrap_or_else(|e| panic!("{name}, step {step}: {e}"));
            let before = p.stats().bytes_moved;
            close(&want[0], &stateful(&mut p, &own)[0], &format!("logits of step {step}"));
            grown += usize::from(p.stats().bytes_moved > before);
            for (port, t) in plain.outputs().iter().zip(want).skip(1) {
                let (past, _) = pairs.iter().find(|(_, present)| **present == *port.name).unwrap();
                close(&t, &p.state(past).unwrap(), &format!("{past} after step {step}"));
                held.iter_mut().find(|(n, _)| n == past).unwrap().1 = t;
            }
            at += n;
        }
        assert!(grown <= 2, "{name}: memory was moved {grown} times for {at} tokens");
        let appended = p.report().remarks().filter(|r| r.message.contains("is written behind it")).count();
        assert_eq!(appended, 4, "{name}");
    }
}
