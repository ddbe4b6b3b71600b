//! Real models: all import without an unsupported op, and the evaluator gives what ONNX Runtime gave.
//!
//! The models lie beside the repository, in `shared/models`; without them a test says so and checks nothing else.

use std::path::PathBuf;

use prost::Message as _;
use rlx_ir::Value;
use rlx_ir::eval::{EvalInputs, evaluate};
use rlx_ir::op::EvalOptions;
use rlx_onnx::proto::ModelProto;
use rlx_onnx::{ImportOptions, Imported, OnnxFile, OnnxType, ReadOptions, load};

use crate::make::shared_models;
use crate::npz;

/// A model's folder; `None`, with a printed line, where it is absent.
fn folder(name: &str) -> Option<PathBuf> {
    shared_models().map(|m| m.join(name))
}

fn verified(i: Imported) -> Imported {
    rlx_ir::verify::verify(&i.module).unwrap_or_else(|e| panic!("{e}"));
    i
}

/// Imports a model whose weights were taken out, with zeros in their place.
fn import_skeleton(path: PathBuf) -> Imported {
    let mut model = ModelProto::decode(&std::fs::read(&path).unwrap()[..]).unwrap();
    for t in model.graph.iter_mut().flat_map(|g| &mut g.initializer) {
        let n = t.dims.iter().product::<i64>() as usize;
        let given =
            t.raw_data.as_ref().is_some_and(|d| !d.is_empty()) || !t.float_data.is_empty() || !t.int64_data.is_empty();
        if !given && n > 0 {
            assert_eq!(t.data_type, Some(OnnxType::Float.code()));
            t.raw_data = Some(vec![0; 4 * n].into());
        }
    }
    let file = OnnxFile::from_bytes(model.encode_to_vec(), None, &ReadOptions::default()).unwrap();
    let model = file.into_model().unwrap();
    verified(rlx_onnx::import(&model, &ImportOptions::default()).unwrap_or_else(|e| panic!("{e}")))
}

fn import(path: PathBuf) -> Imported {
    match load(&path, &ImportOptions::default()) {
        Ok(i) => verified(i),
        Err(e) => panic!("{}: {e}", path.display()),
    }
}

/// Runs a model on the inputs of a case and compares all outputs that the case holds.
fn check(model: &str, case: &str) {
    let Some(folder) = folder(model) else { return };
    let imported = import(folder.join("model.onnx"));
    let arrays = npz::read(&folder.join(case));
    let g = &imported.module.main;
    let given = |v: &rlx_ir::ValueId| {
        let name = g.value(*v).name.clone().unwrap();
        Value::Tensor(arrays.get(&format!("in.{name}")).unwrap_or_else(|| panic!("no data for {name}")).clone())
    };
    let inputs = EvalInputs { inputs: g.inputs().iter().map(given).collect(), ..EvalInputs::default() };
    let results = evaluate(&imported.module, &inputs, EvalOptions::default()).unwrap();
    let mut compared = 0;
    for (o, got) in g.outputs().iter().zip(&results.outputs) {
        let Some(want) = arrays.get(&format!("out.{}", o.name)) else { continue };
        let got = got.as_tensor().unwrap();
        assert_eq!(got.dims(), want.dims(), "{}", o.name);
        let (w, g) = (want.elements().to_f64().unwrap(), got.elements().to_f64().unwrap());
        for (i, (w, g)) in w.iter().zip(&g).enumerate() {
            assert!((w - g).abs() <= 1e-4 + 1e-4 * w.abs(), "{}: element {i} is {g}, should be {w}", o.name);
        }
        compared += 1;
    }
    assert!(compared > 0, "the case has none of the outputs");
}

#[test]
fn every_model_imports() {
    for name in ["silero_vad", "magika", "ppocr_cls", "ppocr_det", "minilm_l6_v2"] {
        if let Some(folder) = folder(name) {
            import(folder.join("model.onnx"));
        }
    }
    if let Some(folder) = folder("skeletons") {
        for name in ["mobilenet_v2", "resnet50", "bert_base"] {
            import_skeleton(folder.join(format!("{name}.onnx")));
        }
    }
}

#[test]
fn silero_vad_at_both_rates() {
    check("silero_vad", "case_16k_b1.npz");
    check("silero_vad", "case_8k_b2.npz");
}

#[test]
fn magika() {
    check("magika", "case_n1.npz");
}

#[test]
fn ppocr_cls() {
    check("ppocr_cls", "case_b1.npz");
}

#[test]
fn minilm() {
    check("minilm_l6_v2", "case_1x16.npz");
}

/// Sizes of the batch and the sequence stay symbols from input to output.
#[test]
fn minilm_keeps_its_symbols() {
    let Some(folder) = folder("minilm_l6_v2") else { return };
    let imported = import(folder.join("model.onnx"));
    let g = &imported.module.main;
    let inputs: Vec<String> = g.inputs().iter().map(|&v| g.ty(v).to_string()).collect();
    let outputs: Vec<String> = g.outputs().iter().map(|o| g.ty(o.value).to_string()).collect();
    let dims = inputs[0].trim_start_matches("i64[").trim_end_matches(']').to_owned();
    assert_eq!(outputs[0], format!("f32[{dims}, 384]"));
    assert!(imported.warnings.is_empty(), "{:?}", imported.warnings);
}
