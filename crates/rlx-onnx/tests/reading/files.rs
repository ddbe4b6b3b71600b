//! Files as a whole: empty, cut, foreign, too new, too deep, too large.

use prost::Message as _;
use prost::bytes::Bytes;
use rlx_onnx::proto::{ModelProto, NodeProto, TensorProto};
use rlx_onnx::{Limits, OnnxError, OnnxFile, ReadOptions};

use crate::make::*;

fn error(bytes: &[u8]) -> OnnxError {
    read_bytes(bytes.to_vec()).map(|_| ()).unwrap_err()
}

fn limited(model: &ModelProto, limits: Limits) -> OnnxError {
    let options = ReadOptions { limits, ..ReadOptions::default() };
    let result = OnnxFile::from_bytes(model.encode_to_vec(), None, &options);
    result.map(|_| ()).unwrap_err()
}

fn small() -> ModelProto {
    model(graph("x", vec![node("Relu", "x", "y")], "y"))
}

#[test]
fn a_small_model_reads() {
    let model = read(&small()).unwrap();
    assert_eq!(model.opsets.get(""), Some(&18));
    assert_eq!(model.main.nodes[0].label, "Relu_0");
    assert_eq!(model.main.nodes[0].name, "");
}

#[test]
fn empty_and_foreign_files() {
    assert!(matches!(error(b""), OnnxError::Empty));
    for (bytes, part) in [
        (&b"<!DOCTYPE html><html>"[..], "HTML"),
        (b"{\"a\": 1}", "JSON"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
        (b"PK\x03\x04abcdefgh", "ZIP"),
        (b"GGUF\x03\0\0\0", "GGUF"),
        (b"\x93NUMPY\x01\0", "NumPy"),
        (b"\0\0\0\0\0\0\0\0", "first bytes"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", ""),
        (b"hello, world", "first bytes"),
    ] {
        let error = error(bytes);
        assert!(error.to_string().contains(part), "{error}");
        assert!(matches!(error.code(), "onnx.not-onnx" | "onnx.malformed"), "{error}");
        assert!(error.hint().is_some());
    }
}

#[test]
fn garbage_is_refused() {
    let mut state = 1u32;
    for round in 0..500 {
        let bytes: Vec<u8> = (0..round + 1)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        assert!(read_bytes(bytes).is_err());
    }
}

#[test]
fn each_cut_of_a_small_file_is_an_error() {
    // The opset comes last, so that no cut leaves a whole model.
    let bytes = small().encode_to_vec();
    let head = bytes.len() - opset("", 18).encoded_len() - 2;
    let mut last = bytes[head..].to_vec();
    let mut model = small();
    model.opset_import.clear();
    let mut reordered = model.encode_to_vec();
    reordered.append(&mut last);
    for cut in 0..reordered.len() {
        let _ = error(&reordered[..cut]);
    }
}

#[test]
fn missing_parts() {
    let mut model = small();
    model.graph = None;
    assert!(matches!(read(&model), Err(OnnxError::NoGraph)));
    for found in [0, 2, 15, 1 << 40, -1] {
        let mut model = small();
        model.ir_version = Some(found);
        let error = read(&model).map(|_| ()).unwrap_err();
        assert_eq!(error.code(), "onnx.ir-version");
        assert!(error.hint().is_some());
    }
    let mut model = small();
    model.opset_import.clear();
    assert_eq!(
        fault_lines(&model),
        ["the operator set 'ai.onnx' is not imported, but 1 node(s) use it, the first is 'Relu_0' in main"]
    );
}

#[test]
fn text_must_be_utf8() {
    let mut bytes = small().encode_to_vec();
    let at = bytes.windows(4).position(|w| w == b"Relu").unwrap();
    bytes[at] = 0xff;
    let error = error(&bytes);
    assert_eq!(error.code(), "onnx.malformed");
    assert!(error.to_string().contains("UTF-8"), "{error}");
}

/// The start of a model whose messages lie in each other, written from the inside out; `fields` are
/// the numbers from the innermost to the outermost.
fn wrapped(fields: impl Iterator<Item = u8>) -> Vec<u8> {
    let mut reversed: Vec<u8> = Vec::new();
    for field in fields {
        let mut head = vec![field << 3 | 2];
        let mut len = reversed.len();
        while len >= 0x80 {
            head.push(len as u8 | 0x80);
            len >>= 7;
        }
        head.push(len as u8);
        reversed.extend(head.iter().rev());
    }
    reversed.extend([10, 1 << 3]);
    reversed.reverse();
    reversed
}

/// A model with `depth` graphs in each other: graph in attribute (6), in node (5), in graph (1).
fn nested(depth: usize) -> Vec<u8> {
    wrapped((1..depth).flat_map(|_| [6, 5, 1]).chain([7]))
}

#[test]
fn deep_nesting_is_refused_before_it_is_decoded() {
    for depth in [33, 34, 100, 10_000, 100_000] {
        let error = error(&nested(depth));
        assert!(matches!(error, OnnxError::Limit { option: "max_graph_depth", .. }), "{depth}: {error}");
    }
    // Those allowed decode, and then have faults of their own.
    assert_eq!(error(&nested(32)).code(), "onnx.invalid");
}

#[test]
fn deep_types_are_refused() {
    // Type in sequence (1), in type (4), …, in value info (2), in graph input (11), in model (7).
    let deep = |depth| wrapped((0..depth).flat_map(|_| [1, 4]).chain([2, 11, 7]));
    for depth in [49, 1000, 100_000] {
        let error = error(&deep(depth));
        assert!(error.to_string().contains("more than 100 nested messages"), "{error}");
    }
    // What the walk admits, the decoder admits: the fault is the type's own.
    let error = error(&deep(48));
    assert!(error.to_string().contains("a sequence of no type"), "{error}");
}

#[test]
fn declared_lengths_do_not_allocate() {
    // A graph of 2^60 bytes, and one of 2^64 − 1.
    for len in [
        &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10][..],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    ] {
        let file = [&[0x08, 10, 0x3a], len].concat();
        let error = error(&file);
        assert_eq!(error.code(), "onnx.truncated", "{error}");
    }
}

#[test]
fn amplification_is_bounded() {
    // Two bytes a node in the file, hundreds in memory.
    let many = graph("", vec![NodeProto::default(); 300_000], "");
    let mut bytes = vec![0x08, 10];
    prost::encoding::message::encode(7, &many, &mut bytes);
    let found = error(&bytes);
    assert!(matches!(found, OnnxError::Limit { option: "max_nodes", .. }), "{found}");
    // The same with value declarations, which no count bounds.
    let mut values = graph("", vec![], "");
    values.value_info = vec![Default::default(); 8_000_000];
    let mut bytes = vec![0x08, 10];
    prost::encoding::message::encode(7, &values, &mut bytes);
    let found = error(&bytes);
    assert!(matches!(found, OnnxError::Limit { option: "max_decoded_bytes", .. }), "{found}");
}

#[test]
fn the_most_nodes_give_a_short_list() {
    let most = Limits::default().max_nodes as usize;
    let bytes = model(graph("", vec![NodeProto::default(); most], "")).encode_to_vec();
    assert_eq!(error(&bytes).code(), "onnx.invalid");
}

#[test]
fn limits_are_options() {
    let mut two = small();
    two.graph.as_mut().unwrap().node.push(node("Relu", "y", "z"));
    let limits = Limits { max_nodes: 1, ..Limits::default() };
    assert!(limited(&two, limits).to_string().contains("number of nodes: 2 exceeds"));
    let limits = Limits { max_decoded_bytes: 100, ..Limits::default() };
    assert_eq!(limited(&two, limits).code(), "onnx.limit");
    let folder = scratch("limits");
    let path = folder.join("m.onnx");
    std::fs::write(&path, small().encode_to_vec()).unwrap();
    let limits = Limits { max_file_bytes: 10, ..Limits::default() };
    let options = ReadOptions { limits, ..ReadOptions::default() };
    assert_eq!(OnnxFile::open(&path, &options).map(|_| ()).unwrap_err().code(), "onnx.file");
}

#[test]
fn paths_that_are_no_files() {
    let folder = scratch("paths");
    for path in [folder.join("absent.onnx"), folder.clone()] {
        let error = OnnxFile::open(&path, &ReadOptions::default()).map(|_| ()).unwrap_err();
        assert_eq!(error.code(), "onnx.file");
        assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
    }
    let path = folder.join("empty.onnx");
    std::fs::write(&path, b"").unwrap();
    let error = OnnxFile::open(&path, &ReadOptions::default()).map(|_| ()).unwrap_err();
    assert!(matches!(error, OnnxError::Empty));
}

#[test]
fn raw_data_is_shared_with_the_file() {
    let mut model = small();
    let raw: Vec<u8> = (0..4096).map(|i| i as u8).collect();
    model.graph.as_mut().unwrap().initializer.push(TensorProto {
        name: Some("w".into()),
        dims: vec![4096],
        data_type: Some(2),
        raw_data: Some(raw.clone().into()),
        ..Default::default()
    });
    let bytes = Bytes::from(model.encode_to_vec());
    let file = OnnxFile::from_bytes(bytes.clone(), None, &ReadOptions::default()).unwrap();
    let model = file.into_model().unwrap();
    let rlx_onnx::model::InitialiserContent::Dense(tensor) = &model.main.initialisers[0].content else { panic!() };
    let data = tensor.packed().unwrap();
    assert_eq!(&data[..], &raw[..]);
    assert!(bytes.as_ptr_range().contains(&data.as_ptr()));
}
