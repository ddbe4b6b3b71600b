//! What is recognised in real models, counted. The models lie outside the repository, in `shared/models` beside it or where
//! `RLX_MODELS` says; those that are not there are skipped, and said to be. Skeletons get zeros for the weights that were taken out.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use std::path::PathBuf;

use prost::Message as _;
use rlx_compile::{CompileOptions, Phase, run_passes};
use rlx_onnx::proto::ModelProto;
use rlx_onnx::{ImportOptions, OnnxFile, OnnxType, ReadOptions};

fn models() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os("RLX_MODELS") {
        return Some(dir.into());
    }
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().map(|a| a.join("shared/models")).find(|p| p.is_dir())
}

/// How often each of these ops stands in a model's main graph after recognition.
fn count(file: &str, ops: &[&str]) -> Option<Vec<usize>> {
    let path = models()?.join(file);
    if !path.exists() {
        println!("skipped: there is no {}", path.display());
        return None;
    }
    let mut model = ModelProto::decode(&std::fs::read(path).unwrap()[..]).unwrap();
    for t in model.graph.iter_mut().flat_map(|g| &mut g.initializer) {
        let n: i64 = t.dims.iter().product();
        let stripped = t.raw_data.as_ref().is_none_or(|d| d.is_empty()) && t.float_data.is_empty();
        if stripped && t.int64_data.is_empty() && t.data_type == Some(OnnxType::Float.code()) {
            t.raw_data = Some(vec![0; 4 * n as usize].into());
        }
    }
    let file = OnnxFile::from_bytes(model.encode_to_vec(), None, &ReadOptions::default()).unwrap();
    let imported = rlx_onnx::import(&file.into_model().unwrap(), &ImportOptions::default()).unwrap();
    let (m, _) = run_passes(imported.module, None, &CompileOptions::default(), Phase::Recognise).unwrap();
    let n = |op: &str| m.main.nodes().iter().filter(|n| n.op.name() == op).count();
    Some(ops.iter().map(|op| n(op)).collect())
}

#[test]
fn transformers_end_with_whole_attention_norms_and_activations() {
    let ops = ["attention", "layer_norm", "gelu", "softmax", "erf"];
    for (file, layers) in [("minilm_l6_v2/model.onnx", 6), ("skeletons/bert_base.onnx", 12)] {
        if let Some(found) = count(file, &ops) {
            assert_eq!(found, [layers, 2 * layers + 1, layers, 0, 0], "{file}");
        }
    }
}

#[test]
fn convolutional_models_lose_their_batch_norms_and_find_their_activations() {
    let ops = ["hard_swish", "batch_norm", "conv"];
    for (file, want) in [
        ("ppocr_det/model.onnx", [24, 0, 62]),
        ("ppocr_cls/model.onnx", [18, 0, 53]),
        ("skeletons/resnet50.onnx", [0, 0, 53]),
    ] {
        if let Some(found) = count(file, &ops) {
            assert_eq!(found, want, "{file}");
        }
    }
}

#[test]
fn what_jax_writes_is_found() {
    // One of its norms runs along the middle axis, which no norm does.
    if let Some(found) = count("magika/model.onnx", &["gelu_tanh", "layer_norm", "softmax", "exp"]) {
        assert_eq!(found, [2, 1, 1, 0]);
    }
}
