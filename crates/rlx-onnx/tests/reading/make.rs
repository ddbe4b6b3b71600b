//! Small files made by hand.

use std::path::{Path, PathBuf};

use prost::Message as _;
use rlx_onnx::model::Model;
use rlx_onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
    TypeProto, ValueInfoProto, attribute_proto::AttributeType, type_proto,
};
use rlx_onnx::{Fault, OnnxError, OnnxFile, OnnxType, ReadOptions};

pub fn value(name: &str) -> ValueInfoProto {
    let tensor = type_proto::Tensor { elem_type: Some(OnnxType::Float.code()), shape: None };
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..Default::default() }),
        ..Default::default()
    }
}

/// Names are split at spaces; `_` is an empty name.
fn names(list: &str) -> Vec<String> {
    list.split_whitespace().map(|n| if n == "_" { String::new() } else { n.into() }).collect()
}

pub fn node(op: &str, inputs: &str, outputs: &str) -> NodeProto {
    NodeProto { op_type: Some(op.into()), input: names(inputs), output: names(outputs), ..Default::default() }
}

pub fn named(name: &str, node: NodeProto) -> NodeProto {
    NodeProto { name: Some(name.into()), ..node }
}

pub fn with(mut node: NodeProto, attribute: AttributeProto) -> NodeProto {
    node.attribute.push(attribute);
    node
}

pub fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        r#type: Some(AttributeType::Int as i32),
        i: Some(i),
        ..Default::default()
    }
}

pub fn body(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        r#type: Some(AttributeType::Graph as i32),
        g: Some(Box::new(graph)),
        ..Default::default()
    }
}

pub fn floats(name: &str, dims: &[i64], data: &[f32]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(OnnxType::Float.code()),
        float_data: data.to_vec(),
        ..Default::default()
    }
}

pub fn graph(inputs: &str, nodes: Vec<NodeProto>, outputs: &str) -> GraphProto {
    GraphProto {
        name: Some("g".into()),
        input: names(inputs).iter().map(|n| value(n)).collect(),
        output: names(outputs).iter().map(|n| value(n)).collect(),
        node: nodes,
        ..Default::default()
    }
}

pub fn opset(domain: &str, version: i64) -> OperatorSetIdProto {
    OperatorSetIdProto { domain: Some(domain.into()), version: Some(version) }
}

pub fn model(graph: GraphProto) -> ModelProto {
    ModelProto { ir_version: Some(10), opset_import: vec![opset("", 18)], graph: Some(graph), ..Default::default() }
}

pub fn entry(key: &str, value: &str) -> StringStringEntryProto {
    StringStringEntryProto { key: Some(key.into()), value: Some(value.into()) }
}

/// Writes a model and reads it back.
pub fn read(model: &ModelProto) -> Result<Model, OnnxError> {
    read_bytes(model.encode_to_vec())
}

/// Reads a file's bytes; whatever they are, an error is no longer than a person reads.
pub fn read_bytes(bytes: Vec<u8>) -> Result<Model, OnnxError> {
    let result = OnnxFile::from_bytes(bytes, None, &ReadOptions::default()).and_then(OnnxFile::into_model);
    if let Err(error) = &result {
        assert!((1..100_000).contains(&error.to_string().len()));
    }
    result
}

/// All faults of a model.
pub fn faults(model: &ModelProto) -> Vec<Fault> {
    match read(model) {
        Err(OnnxError::Invalid(faults)) => faults.list().to_vec(),
        other => panic!("{other:?}"),
    }
}

/// The faults as text, without the head line.
pub fn fault_lines(model: &ModelProto) -> Vec<String> {
    faults(model).iter().map(ToString::to_string).collect()
}

/// The folder `shared/models` above this crate, where it is there.
pub fn shared_models() -> Option<PathBuf> {
    let found = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|folder| folder.join("shared/models"))
        .find(|folder| folder.is_dir());
    if found.is_none() {
        println!("skipped: there is no shared/models");
    }
    found
}

/// A folder of one test, empty at first.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
