//! Models of one node.

use prost::Message as _;
use rlx::onnx::proto::attribute_proto::AttributeType;
use rlx::onnx::proto::tensor_shape_proto::{Dimension, dimension};
use rlx::onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorShapeProto, TypeProto, ValueInfoProto,
    type_proto,
};
use rlx::onnx::{Model, OnnxFile, OnnxType, ReadOptions};
use rlx::{DType, Tensor};

/// An attribute's value.
#[derive(Clone, Debug)]
pub enum A {
    I(i64),
    S(&'static str),
    Is(Vec<i64>),
}

fn attribute((name, value): &(&str, A)) -> AttributeProto {
    let mut a = AttributeProto { name: Some((*name).into()), ..Default::default() };
    let kind = match value {
        A::I(i) => {
            a.i = Some(*i);
            AttributeType::Int
        }
        A::S(s) => {
            a.s = Some(s.as_bytes().to_vec().into());
            AttributeType::String
        }
        A::Is(v) => {
            a.ints = v.clone();
            AttributeType::Ints
        }
    };
    a.r#type = Some(kind as i32);
    a
}

fn code(d: DType) -> i32 {
    let name = match d {
        DType::F32 => "float",
        DType::F64 => "double",
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        DType::I8 => "int8",
        DType::I16 => "int16",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::U8 => "uint8",
        DType::Bool => "bool",
        d => panic!("no code for {d}"),
    };
    OnnxType::ALL.iter().find(|t| t.name() == name).unwrap().code()
}

fn declared(name: &str, t: &Tensor) -> ValueInfoProto {
    let dim = |&n: &usize| Dimension { value: Some(dimension::Value::DimValue(n as i64)), ..Default::default() };
    let shape = TensorShapeProto { dim: t.dims().iter().map(dim).collect() };
    let tensor = type_proto::Tensor { elem_type: Some(code(t.dtype())), shape: Some(shape) };
    let ty = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..Default::default() };
    ValueInfoProto { name: Some(name.into()), r#type: Some(ty), ..Default::default() }
}

/// A model of one node of a standard operator set; `None` is an operand left out. Inputs are `x0`, `x1`, …, outputs `y0`, `y1`, ….
pub fn node(op: &str, version: i64, inputs: &[Option<&Tensor>], outputs: usize, attributes: &[(&str, A)]) -> Model {
    let names: Vec<String> =
        inputs.iter().enumerate().map(|(i, x)| if x.is_some() { format!("x{i}") } else { String::new() }).collect();
    let results: Vec<String> = (0..outputs).map(|i| format!("y{i}")).collect();
    let node = NodeProto {
        op_type: Some(op.into()),
        input: names.clone(),
        output: results.clone(),
        attribute: attributes.iter().map(attribute).collect(),
        ..Default::default()
    };
    let given = names.iter().zip(inputs).filter_map(|(n, x)| x.map(|x| declared(n, x)));
    let output = results.iter().map(|n| ValueInfoProto { name: Some(n.clone()), ..Default::default() });
    let graph = GraphProto {
        name: Some("case".into()),
        node: vec![node],
        input: given.collect(),
        output: output.collect(),
        ..Default::default()
    };
    let set = OperatorSetIdProto { domain: Some(String::new()), version: Some(version) };
    let model = ModelProto { ir_version: Some(10), opset_import: vec![set], graph: Some(graph), ..Default::default() };
    OnnxFile::from_bytes(model.encode_to_vec(), None, &ReadOptions::default()).and_then(OnnxFile::into_model).unwrap()
}
