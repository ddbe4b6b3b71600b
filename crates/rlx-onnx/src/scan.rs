//! A walk over the wire format before anything is decoded.
//!
//! Protobuf decoding allocates as it goes: an empty submessage takes two bytes in the file and
//! hundreds in memory, and nesting costs stack. The walk knows the schema, keeps its own stack,
//! allocates nothing that depends on the file's declared sizes, and refuses what exceeds
//! [`Limits`] with an exact reason. It also tells a truncated file from one that was never ONNX.
//!
//! Invariant: a buffer that passes decodes with at most `max_decoded_bytes` of structure and at
//! most [`MAX_MESSAGE_DEPTH`] nested messages; what else can fail then is a string that is not
//! UTF-8.

use std::mem::size_of;

use crate::error::OnnxError;
use crate::options::Limits;
use crate::proto;

/// The bound on nested messages of protobuf's own decoders.
const MAX_MESSAGE_DEPTH: usize = 100;

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
#[derive(Clone, Copy)]
enum Field {
    Message(Message, usize),
    /// Text or bytes: copied text is charged by length, shared bytes are not.
    Text,
    Bytes,
    /// Repeated numbers: bytes in memory for each byte on the wire, at most.
    Numbers(u64),
    Scalar,
    Unknown,
}

fn message<T>(m: Message) -> Field {
    Field::Message(m, size_of::<T>())
}

/// The schema, as far as memory and nesting depend on it.
fn field(parent: Message, number: u64) -> Field {
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
        (M::Sequence | M::Optional, 5) | (M::Map, 5) => {
            message::<proto::SequenceProto>(M::Sequence)
        }
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
        (M::Sharding | M::Flat, _) => Field::Text,
        _ => Field::Unknown,
    }
}

/// A message being walked: its type and where it ends.
struct Frame {
    message: Message,
    end: usize,
    graphs: usize,
}

/// Checks `bytes` as one message of type `root`.
pub(crate) fn scan(root: Message, bytes: &[u8], limits: &Limits) -> Result<(), OnnxError> {
    if bytes.is_empty() {
        return Err(OnnxError::Empty);
    }
    let mut at = 0;
    let mut nodes = 0u64;
    let mut decoded = 0u64;
    let mut stack = vec![Frame {
        message: root,
        end: bytes.len(),
        graphs: 0,
    }];
    while let Some(frame) = stack.last() {
        let (parent, end, graphs) = (frame.message, frame.end, frame.graphs);
        if at >= end {
            stack.pop();
            continue;
        }
        let start = at;
        let tag = varint(bytes, &mut at, end)?;
        let (number, wire) = (tag >> 3, tag & 7);
        let kind = field(parent, number);
        if start == 0 && !plausible_start(root, kind, number, wire) {
            return Err(OnnxError::NotOnnx {
                found: looks_like(bytes),
            });
        }
        if number == 0 {
            return Err(malformed(start, "field number 0"));
        }
        match wire {
            0 => drop(varint(bytes, &mut at, end)?),
            1 => skip(&mut at, 8, end, bytes.len())?,
            5 => skip(&mut at, 4, end, bytes.len())?,
            2 => {
                let len = varint(bytes, &mut at, end)?;
                let content = at;
                skip(&mut at, len, end, bytes.len())?;
                match kind {
                    Field::Message(child, size) => {
                        let graphs = graphs + usize::from(child == Message::Graph);
                        if graphs > limits.max_graph_depth {
                            return Err(OnnxError::Limit {
                                what: "nesting of graphs",
                                found: graphs as u64,
                                limit: limits.max_graph_depth as u64,
                                option: "max_graph_depth",
                            });
                        }
                        if stack.len() > MAX_MESSAGE_DEPTH {
                            let what = format!("more than {MAX_MESSAGE_DEPTH} nested messages");
                            return Err(malformed(start, &what));
                        }
                        nodes += u64::from(child == Message::Node);
                        // Growing vectors hold up to twice what they need.
                        decoded = decoded.saturating_add(2 * size as u64);
                        if at > content {
                            stack.push(Frame {
                                message: child,
                                end: at,
                                graphs,
                            });
                            at = content;
                        }
                    }
                    Field::Text => decoded = decoded.saturating_add(48).saturating_add(len),
                    Field::Bytes => decoded = decoded.saturating_add(64),
                    Field::Numbers(factor) => {
                        decoded = decoded.saturating_add(len.saturating_mul(factor));
                    }
                    Field::Scalar | Field::Unknown => {}
                }
            }
            _ => return Err(malformed(start, &format!("wire type {wire}"))),
        }
        if wire != 2 {
            match kind {
                Field::Message(..) | Field::Text | Field::Bytes if parent != Message::Flat => {
                    if parent != Message::Sharding {
                        let what = format!("field {number} of {parent:?} has wire type {wire}");
                        return Err(malformed(start, &what));
                    }
                }
                Field::Numbers(_) => decoded = decoded.saturating_add(16),
                _ => {}
            }
        }
        check_limit(nodes, limits.max_nodes, "number of nodes", "max_nodes")?;
        check_limit(
            decoded,
            limits.max_decoded_bytes,
            "memory for the decoded file, in bytes",
            "max_decoded_bytes",
        )?;
    }
    Ok(())
}

fn check_limit(
    found: u64,
    limit: u64,
    what: &'static str,
    option: &'static str,
) -> Result<(), OnnxError> {
    if found > limit {
        Err(OnnxError::Limit {
            what,
            found,
            limit,
            option,
        })
    } else {
        Ok(())
    }
}

fn malformed(offset: usize, what: &str) -> OnnxError {
    OnnxError::Malformed {
        reason: format!("{what} at byte {offset}"),
    }
}

/// Writers put known fields first, whatever else they add.
fn plausible_start(root: Message, kind: Field, number: u64, wire: u64) -> bool {
    let expects_len = match kind {
        Field::Unknown => return false,
        Field::Scalar => false,
        Field::Message(..) | Field::Text | Field::Bytes => true,
        Field::Numbers(_) => wire == 2,
    };
    let fixed = root == Message::Tensor && matches!(number, 4 | 10) && matches!(wire, 1 | 5);
    fixed || if expects_len { wire == 2 } else { wire == 0 }
}

/// Moves past `len` bytes of content.
fn skip(at: &mut usize, len: u64, end: usize, file: usize) -> Result<(), OnnxError> {
    let left = end.saturating_sub(*at);
    match usize::try_from(len) {
        Ok(n) if n <= left => {
            *at += n;
            Ok(())
        }
        _ if end == file => Err(OnnxError::Truncated {
            offset: *at,
            needed: len,
            available: left,
        }),
        _ => Err(malformed(
            *at,
            &format!("a length of {len} inside a message with {left} left"),
        )),
    }
}

fn varint(bytes: &[u8], at: &mut usize, end: usize) -> Result<u64, OnnxError> {
    let start = *at;
    let mut value = 0u64;
    for shift in 0..10 {
        let Some(&byte) = bytes.get(*at).filter(|_| *at < end) else {
            return Err(if end == bytes.len() {
                OnnxError::Truncated {
                    offset: start,
                    needed: shift + 1,
                    available: end - start,
                }
            } else {
                malformed(start, "an unfinished number")
            });
        };
        *at += 1;
        if shift == 9 && byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7f) << (7 * shift);
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(malformed(start, "a number of more than 64 bits"))
}

/// A guess at what a file is instead, for the message.
fn looks_like(bytes: &[u8]) -> String {
    let known: [(&[u8], &str); 10] = [
        (
            b"version https://git-lfs",
            "a Git LFS pointer; fetch the file itself (`git lfs pull`)",
        ),
        (
            b"PK\x03\x04",
            "a ZIP archive (a PyTorch checkpoint or an .npz file?)",
        ),
        (b"GGUF", "a GGUF file"),
        (b"\x93NUMPY", "a NumPy array"),
        (b"\x89HDF", "an HDF5 file"),
        (b"\x80\x02", "a Python pickle"),
        (b"\x1f\x8b", "gzip-compressed data; unpack it first"),
        (b"ORTM", "an ONNX Runtime .ort file"),
        (b"<", "HTML or XML (a download page?)"),
        (b"{", "JSON"),
    ];
    let ort = bytes.get(4..8) == Some(b"ORTM");
    match known.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        Some((_, what)) => format!("it looks like {what}"),
        None if ort => "it looks like an ONNX Runtime .ort file".into(),
        None => "its first bytes are not those of an ONNX protobuf".into(),
    }
}
