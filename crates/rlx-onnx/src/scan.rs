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

use crate::error::OnnxError;
use crate::options::Limits;
use crate::schema::{Field, Message, field};

/// The bound on nested messages of protobuf's own decoders.
const MAX_MESSAGE_DEPTH: usize = 100;

/// A message being walked: its type, where it ends, and how many graphs it lies in.
#[derive(Clone, Copy)]
struct Frame {
    message: Message,
    end: usize,
    graphs: usize,
}

/// What a file has used up so far.
struct Budget<'a> {
    limits: &'a Limits,
    nodes: u64,
    decoded: u64,
}

/// Checks `bytes` as one message of type `root`.
pub(crate) fn scan(root: Message, bytes: &[u8], limits: &Limits) -> Result<(), OnnxError> {
    if bytes.is_empty() {
        return Err(OnnxError::Empty);
    }
    let mut at = 0;
    let mut budget = Budget { limits, nodes: 0, decoded: 0 };
    let mut stack = vec![Frame { message: root, end: bytes.len(), graphs: 0 }];
    while let Some(&Frame { message: parent, end, graphs }) = stack.last() {
        if at >= end {
            stack.pop();
            continue;
        }
        let start = at;
        let tag = varint(bytes, &mut at, end)?;
        let (number, wire) = (tag >> 3, tag & 7);
        let kind = field(parent, number);
        if start == 0 && !plausible_start(root, kind, number, wire) {
            return Err(OnnxError::NotOnnx { found: looks_like(bytes) });
        }
        if number == 0 {
            return Err(malformed(start, "field number 0"));
        }
        let content = match wire {
            0 => {
                varint(bytes, &mut at, end)?;
                None
            }
            1 | 5 => {
                skip(&mut at, if wire == 1 { 8 } else { 4 }, end, bytes.len())?;
                None
            }
            2 => {
                let len = varint(bytes, &mut at, end)?;
                let content = at;
                skip(&mut at, len, end, bytes.len())?;
                Some((content, len))
            }
            _ => return Err(malformed(start, &format!("wire type {wire}"))),
        };
        budget.charge(kind, content.map(|(_, len)| len))?;
        match (kind, content) {
            (Field::Message(child, _), Some((content, _))) => {
                let graphs = graphs + usize::from(child == Message::Graph);
                budget.check_graphs(graphs)?;
                if stack.len() > MAX_MESSAGE_DEPTH {
                    let what = format!("more than {MAX_MESSAGE_DEPTH} nested messages");
                    return Err(malformed(start, &what));
                }
                stack.push(Frame { message: child, end: at, graphs });
                at = content;
            }
            (Field::Message(..) | Field::Text | Field::Bytes, None) => {
                let what = format!("field {number} of {parent:?} has wire type {wire}");
                return Err(malformed(start, &what));
            }
            _ => {}
        }
    }
    Ok(())
}

impl Budget<'_> {
    /// Counts one field; `len` is its length where it has one.
    fn charge(&mut self, kind: Field, len: Option<u64>) -> Result<(), OnnxError> {
        let len = len.unwrap_or_default();
        let bytes = match kind {
            // Growing vectors hold up to twice what they need.
            Field::Message(_, size) => 2 * size as u64,
            Field::Text => len.saturating_add(48),
            Field::Mixed => len.saturating_mul(8).saturating_add(48),
            Field::Bytes => 64,
            Field::Numbers(factor) => len.saturating_mul(factor).saturating_add(16),
            Field::Scalar | Field::Unknown => 0,
        };
        self.decoded = self.decoded.saturating_add(bytes);
        self.nodes += u64::from(matches!(kind, Field::Message(Message::Node, _)));
        let Limits { max_nodes, max_decoded_bytes, .. } = *self.limits;
        check_limit(self.nodes, max_nodes, "number of nodes", "max_nodes")?;
        let what = "memory for the decoded file, in bytes";
        check_limit(self.decoded, max_decoded_bytes, what, "max_decoded_bytes")
    }

    fn check_graphs(&self, depth: usize) -> Result<(), OnnxError> {
        let limit = self.limits.max_graph_depth as u64;
        check_limit(depth as u64, limit, "nesting of graphs", "max_graph_depth")
    }
}

fn check_limit(found: u64, limit: u64, what: &'static str, option: &'static str) -> Result<(), OnnxError> {
    if found > limit { Err(OnnxError::Limit { what, found, limit, option }) } else { Ok(()) }
}

fn malformed(offset: usize, what: &str) -> OnnxError {
    OnnxError::Malformed { reason: format!("{what} at byte {offset}") }
}

/// Writers put known fields first, whatever else they add.
fn plausible_start(root: Message, kind: Field, number: u64, wire: u64) -> bool {
    let expects_len = match kind {
        Field::Unknown => return false,
        Field::Scalar | Field::Mixed => false,
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
        _ if end == file => Err(OnnxError::Truncated { offset: *at, needed: len, available: left }),
        _ => Err(malformed(*at, &format!("a length of {len} inside a message with {left} left"))),
    }
}

fn varint(bytes: &[u8], at: &mut usize, end: usize) -> Result<u64, OnnxError> {
    let start = *at;
    let mut value = 0u64;
    for shift in 0..10 {
        let Some(&byte) = bytes.get(*at).filter(|_| *at < end) else {
            return Err(if end == bytes.len() {
                OnnxError::Truncated { offset: start, needed: shift + 1, available: end - start }
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
        (b"version https://git-lfs", "a Git LFS pointer; fetch the file itself (`git lfs pull`)"),
        (b"PK\x03\x04", "a ZIP archive (a PyTorch checkpoint or an .npz file?)"),
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
