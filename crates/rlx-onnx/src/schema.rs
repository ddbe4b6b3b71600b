//! The ONNX schema as far as memory and nesting depend on it: which fields hold messages, text or many numbers.
//!
//! It stands beside the generated messages because these have no description of themselves at run time.

use std::mem::size_of;

use crate::proto;

/// A message type that has parts to visit; all others are [`Message::Flat`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    SparseTensor,
    ValueInfo,
    Type,
    TypeWithElem,
    TypeMap,
    TypeTensor,
    Shape,
    Function,
    Training,
    Annotation,
    Sequence,
    Map,
    Optional,
    Device,
    Sharding,
    /// Only scalars and text inside.
    Flat,
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Field {
    /// A message, and the size of its structure in memory.
    Message(Message, usize),
    /// Text, which is copied.
    Text,
    /// Bytes, which are shared.
    Bytes,
    /// Repeated numbers: bytes in memory for each byte on the wire, at most.
    Numbers(u64),
    /// A field of a message that is not looked into: a number, text, or many numbers.
    Mixed,
    /// One number.
    Scalar,
    /// Not in the schema.
    Unknown,
}

fn message<T>(m: Message) -> Field {
    Field::Message(m, size_of::<T>())
}

/// The schema, as far as memory and nesting depend on it.
pub(crate) fn field(parent: Message, number: u64) -> Field {
    use Message as M;
    let entry = message::<proto::StringStringEntryProto>(M::Flat);
    match (parent, number) {
        (M::Model, 7) => message::<proto::GraphProto>(M::Graph),
        (M::Model, 8) => message::<proto::OperatorSetIdProto>(M::Flat),
        (M::Model, 14) => entry,
        (M::Model, 20) => message::<proto::TrainingInfoProto>(M::Training),
        (M::Model, 25) => message::<proto::FunctionProto>(M::Function),
        (M::Model, 26) => message::<proto::DeviceConfigurationProto>(M::Flat),
        (M::Model, 1 | 5) => Field::Scalar,
        (M::Model, 2..=4 | 6) => Field::Text,
        (M::Graph, 1) => message::<proto::NodeProto>(M::Node),
        (M::Graph, 5) => message::<proto::TensorProto>(M::Tensor),
        (M::Graph, 15) => message::<proto::SparseTensorProto>(M::SparseTensor),
        (M::Graph, 11..=13) => message::<proto::ValueInfoProto>(M::ValueInfo),
        (M::Graph, 14) => message::<proto::TensorAnnotation>(M::Annotation),
        (M::Graph, 16) => entry,
        (M::Graph, 2 | 10) => Field::Text,
        (M::Node, 5) => message::<proto::AttributeProto>(M::Attribute),
        (M::Node, 9) => entry,
        (M::Node, 10) => message::<proto::NodeDeviceConfigurationProto>(M::Device),
        (M::Node, 1..=4 | 6..=8) => Field::Text,
        (M::Attribute, 5 | 10) => message::<proto::TensorProto>(M::Tensor),
        (M::Attribute, 6 | 11) => message::<proto::GraphProto>(M::Graph),
        (M::Attribute, 22 | 23) => message::<proto::SparseTensorProto>(M::SparseTensor),
        (M::Attribute, 14 | 15) => message::<proto::TypeProto>(M::Type),
        (M::Attribute, 1 | 13 | 21) => Field::Text,
        (M::Attribute, 4 | 9) => Field::Bytes,
        (M::Attribute, 7) => Field::Numbers(1),
        (M::Attribute, 8) => Field::Numbers(8),
        (M::Attribute, 2 | 3 | 20) => Field::Scalar,
        (M::Tensor, 3) => message::<proto::tensor_proto::Segment>(M::Flat),
        (M::Tensor, 13 | 16) => entry,
        (M::Tensor, 8 | 12) => Field::Text,
        (M::Tensor, 6 | 9) => Field::Bytes,
        (M::Tensor, 1 | 7 | 11) => Field::Numbers(8),
        (M::Tensor, 5) => Field::Numbers(4),
        (M::Tensor, 4 | 10) => Field::Numbers(1),
        (M::Tensor, 2 | 14) => Field::Scalar,
        (M::SparseTensor, 1 | 2) => message::<proto::TensorProto>(M::Tensor),
        (M::SparseTensor, 3) => Field::Numbers(8),
        (M::ValueInfo, 2) => message::<proto::TypeProto>(M::Type),
        (M::ValueInfo, 4) => entry,
        (M::ValueInfo, 1 | 3) => Field::Text,
        (M::Type, 1 | 8) => message::<proto::type_proto::Tensor>(M::TypeTensor),
        (M::Type, 4 | 9) => message::<proto::type_proto::Sequence>(M::TypeWithElem),
        (M::Type, 5) => message::<proto::type_proto::Map>(M::TypeMap),
        (M::Type, 7) => message::<proto::type_proto::Opaque>(M::Flat),
        (M::Type, 6) => Field::Text,
        (M::TypeWithElem, 1) | (M::TypeMap, 2) => message::<proto::TypeProto>(M::Type),
        (M::TypeTensor, 2) => message::<proto::TensorShapeProto>(M::Shape),
        (M::TypeTensor | M::TypeMap, 1) => Field::Scalar,
        (M::Shape, 1) => message::<proto::tensor_shape_proto::Dimension>(M::Flat),
        (M::Function, 7) => message::<proto::NodeProto>(M::Node),
        (M::Function, 11) => message::<proto::AttributeProto>(M::Attribute),
        (M::Function, 9) => message::<proto::OperatorSetIdProto>(M::Flat),
        (M::Function, 12) => message::<proto::ValueInfoProto>(M::ValueInfo),
        (M::Function, 14) => entry,
        (M::Function, 1 | 4..=6 | 8 | 10 | 13) => Field::Text,
        (M::Training, 1 | 2) => message::<proto::GraphProto>(M::Graph),
        (M::Training, 3 | 4) => entry,
        (M::Annotation, 2) => entry,
        (M::Annotation, 1) => Field::Text,
        (M::Sequence, 3) | (M::Optional, 3) => message::<proto::TensorProto>(M::Tensor),
        (M::Sequence, 4) | (M::Optional, 4) => message::<proto::SparseTensorProto>(M::SparseTensor),
        (M::Sequence | M::Optional, 5) | (M::Map, 5) => message::<proto::SequenceProto>(M::Sequence),
        (M::Sequence | M::Optional, 6) => message::<proto::MapProto>(M::Map),
        (M::Sequence | M::Optional, 7) => message::<proto::OptionalProto>(M::Optional),
        (M::Sequence | M::Optional | M::Map, 1) => Field::Text,
        (M::Sequence | M::Optional | M::Map, 2) => Field::Scalar,
        (M::Map, 3) => Field::Numbers(8),
        (M::Map, 4) => Field::Bytes,
        (M::Device, 2) => message::<proto::ShardingSpecProto>(M::Sharding),
        (M::Device, 1) => Field::Text,
        (M::Sharding, 3) => message::<proto::IntIntListEntryProto>(M::Sharding),
        (M::Sharding, 4) => message::<proto::ShardedDimProto>(M::Sharding),
        (M::Sharding, 2) => Field::Numbers(24),
        (M::Sharding | M::Flat, _) => Field::Mixed,
        _ => Field::Unknown,
    }
}
