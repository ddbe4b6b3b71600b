//! Real models, where they are at hand.

use prost::bytes::Bytes;
use rlx_onnx::model::{Attr, DimDef, InitialiserContent, TypeDef};
use rlx_onnx::{FileAccess, OnnxError, OnnxFile, OnnxType, ReadOptions};

use crate::make::{read_bytes, shared_models};

/// Counts as the onnx package gives them: nodes of the main graph, with those of nested graphs,
/// initialisers, required inputs.
const MODELS: [(&str, usize, usize, usize, usize); 8] = [
    ("magika/model.onnx", 95, 95, 36, 1),
    ("minilm_l6_v2/model.onnx", 221, 221, 113, 3),
    ("ppocr_cls/model.onnx", 566, 566, 0, 1),
    ("ppocr_det/model.onnx", 672, 672, 0, 1),
    ("silero_vad/model.onnx", 5, 689, 0, 3),
    ("skeletons/bert_base.onnx", 425, 425, 101, 3),
    ("skeletons/mobilenet_v2.onnx", 100, 100, 109, 1),
    ("skeletons/resnet50.onnx", 122, 122, 110, 1),
];

#[test]
fn real_models_read() {
    let Some(folder) = shared_models() else {
        return;
    };
    let copy = FileAccess::Copy { max_bytes: 1 << 30 };
    for (name, nodes, all_nodes, initialisers, inputs) in MODELS {
        for access in [FileAccess::Map, copy] {
            let options = ReadOptions { access, ..ReadOptions::default() };
            let file = OnnxFile::open(folder.join(name), &options).unwrap();
            let model = match file.into_model() {
                Ok(model) => model,
                // Skeletons were stripped of their weights.
                Err(OnnxError::Invalid(faults)) if name.starts_with("skeletons") => {
                    assert!(faults.list().iter().all(|f| f.code() == "onnx.tensor"), "{faults}");
                    continue;
                }
                Err(error) => panic!("{name}: {error}"),
            };
            assert_eq!(model.main.nodes.len(), nodes, "{name}");
            assert_eq!(model.main.count_nodes(), all_nodes, "{name}");
            assert_eq!(model.main.initialisers.len(), initialisers, "{name}");
            assert_eq!(model.main.inputs.len(), inputs, "{name}");
            assert!(model.main.captures.is_empty());
            // A sorted file keeps its order.
            assert!(model.main.nodes.iter().enumerate().all(|(i, n)| n.index == i), "{name}");
        }
    }
}

#[test]
fn weights_stay_in_the_mapped_file() {
    let Some(folder) = shared_models() else {
        return;
    };
    let path = folder.join("minilm_l6_v2/model.onnx");
    let model = OnnxFile::open(&path, &ReadOptions::default()).unwrap().into_model().unwrap();
    let whole = std::fs::read(&path).unwrap();
    assert_eq!(model.sources.files().len(), 1);
    let mut located = 0;
    for initialiser in &model.main.initialisers {
        let InitialiserContent::Dense(tensor) = &initialiser.content else { panic!() };
        let bytes = tensor.packed().unwrap();
        let Some(slice) = model.sources.locate(bytes) else {
            continue;
        };
        assert_eq!(&whole[slice.offset()..][..slice.len()], &bytes[..], "{}", tensor.name);
        located += bytes.len();
    }
    assert!(located * 100 > whole.len() * 99, "{located} of {}", whole.len());
}

#[test]
fn nested_graphs_see_outer_values() {
    let Some(folder) = shared_models() else {
        return;
    };
    let path = folder.join("silero_vad/model.onnx");
    let model = OnnxFile::open(path, &ReadOptions::default()).unwrap().into_model().unwrap();
    let ifs: Vec<_> = model.main.nodes.iter().filter(|n| n.op_type == "If").collect();
    assert!(!ifs.is_empty());
    for node in ifs {
        let Some(Attr::Graph(branch)) = node.attr("then_branch") else { panic!("{node:?}") };
        assert!(!branch.captures.is_empty());
        assert!(branch.nodes.len() > 1);
    }
}

#[test]
fn dims_that_say_nothing_are_unknown() {
    let Some(folder) = shared_models() else {
        return;
    };
    let path = folder.join("ppocr_det/model.onnx");
    let model = OnnxFile::open(path, &ReadOptions::default()).unwrap().into_model().unwrap();
    let Some(TypeDef::Tensor { dtype, shape: Some(shape) }) = &model.main.inputs[0].ty else { panic!() };
    assert_eq!(*dtype, Some(OnnxType::Float));
    assert_eq!(shape.len(), 4);
    assert_eq!(shape[1], DimDef::Fixed(3));
    assert!(!matches!(shape[2], DimDef::Fixed(_)));
}

#[test]
fn every_truncation_is_an_error() {
    let Some(folder) = shared_models() else {
        return;
    };
    let whole = Bytes::from(std::fs::read(folder.join("magika/model.onnx")).unwrap());
    let read = |bytes: Bytes| OnnxFile::from_bytes(bytes, None, &ReadOptions::default()).and_then(OnnxFile::into_model);
    assert!(read(whole.clone()).is_ok());
    for at in (0..whole.len()).step_by(97) {
        let error = read(whole.slice(..at)).map(|_| ()).unwrap_err();
        let expected = match at {
            0 => error.code() == "onnx.empty",
            _ => matches!(error.code(), "onnx.truncated" | "onnx.no-graph" | "onnx.invalid"),
        };
        assert!(expected, "cut at {at}: {error}");
    }
}

#[test]
fn flipped_bytes_never_panic() {
    let Some(folder) = shared_models() else {
        return;
    };
    let whole = std::fs::read(folder.join("silero_vad/model.onnx")).unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut refused = 0;
    for _ in 0..60 {
        let mut bytes = whole.clone();
        for _ in 0..1 + next(8) {
            let at = next(bytes.len().min(20_000));
            bytes[at] ^= 1 << next(8);
        }
        refused += usize::from(read_bytes(bytes).is_err());
    }
    assert!(refused > 0);
}
