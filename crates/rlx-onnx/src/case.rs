//! ONNX test cases: folders with `input_0.pb`, `output_0.pb` and so on, one value a file.
//!
//! A file does not say which message it holds: the declared type of the graph's input or output
//! decides, and an undeclared value is a tensor. Files are matched to values by position, which is
//! how the format's own runner does it.

use std::path::{Path, PathBuf};

use crate::error::OnnxError;
use crate::external::ExternalFiles;
use crate::file::decode;
use crate::model::{TypeDef, ValueDef};
use crate::options::{Limits, ReadOptions};
use crate::proto::{MapProto, OptionalProto, SequenceProto, TensorProto};
use crate::proto::{optional_proto, sequence_proto};
use crate::schema::Message;
use crate::source::Sources;
use crate::tensor::{RawSparseTensor, RawTensor, TensorProblem};

/// A value of a test case.
#[derive(Debug, Clone, PartialEq)]
pub enum CaseValue {
    /// A tensor.
    Tensor(RawTensor),
    /// A sparse tensor.
    Sparse(RawSparseTensor),
    /// Values in order.
    Sequence(Vec<CaseValue>),
    /// A value or none.
    Optional(Option<Box<CaseValue>>),
    /// Keys and values.
    Map {
        /// The keys.
        keys: MapKeys,
        /// As many values.
        values: Vec<CaseValue>,
    },
}

/// The keys of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapKeys {
    /// Integers.
    Ints(Vec<i64>),
    /// Strings.
    Strings(Vec<String>),
}

/// The values of a test case by name.
#[derive(Debug, Clone, PartialEq)]
pub struct TestCase {
    /// Values for the inputs.
    pub inputs: Vec<(String, CaseValue)>,
    /// Expected outputs.
    pub outputs: Vec<(String, CaseValue)>,
}

impl TestCase {
    /// Reads a folder of values for the declared inputs and outputs of a graph, each list in file
    /// order. A folder may give fewer values than there are declarations: the last are left out.
    pub fn read(
        folder: &Path,
        inputs: &[ValueDef],
        outputs: &[ValueDef],
        options: &ReadOptions,
    ) -> Result<TestCase, OnnxError> {
        Ok(TestCase {
            inputs: read_list(folder, "input", inputs, options)?,
            outputs: read_list(folder, "output", outputs, options)?,
        })
    }
}

fn read_list(
    folder: &Path,
    kind: &str,
    declared: &[ValueDef],
    options: &ReadOptions,
) -> Result<Vec<(String, CaseValue)>, OnnxError> {
    let file = |number: usize| folder.join(format!("{kind}_{number}.pb"));
    let mut values = Vec::new();
    for (number, value) in declared.iter().enumerate() {
        let path = file(number);
        if !path.exists() {
            break;
        }
        values.push((value.name.clone(), CaseValue::read(&path, value.ty.as_ref(), options)?));
    }
    let reason = if values.is_empty() && kind == "output" {
        format!("there is no {kind}_0.pb")
    } else if file(values.len()).exists() {
        format!("there are more {kind}s than the {} that the graph declares", declared.len())
    } else {
        return Ok(values);
    };
    Err(OnnxError::Case { path: folder.to_owned(), reason })
}

impl CaseValue {
    /// Reads one file as a value of a type.
    pub fn read(path: &Path, ty: Option<&TypeDef>, options: &ReadOptions) -> Result<CaseValue, OnnxError> {
        let mut sources = Sources::default();
        let bytes = sources.open(path, options)?;
        let limits = &options.limits;
        let mut reader =
            CaseReader { path: path.to_owned(), external: ExternalFiles::new(path.parent(), sources, options), limits };
        // A message without content has no bytes at all.
        match ty {
            Some(TypeDef::Optional(_)) if bytes.is_empty() => Ok(CaseValue::Optional(None)),
            Some(TypeDef::Optional(_)) => reader.optional(decode(Message::Optional, bytes, limits)?),
            Some(TypeDef::Sequence(_)) if bytes.is_empty() => Ok(CaseValue::Sequence(Vec::new())),
            Some(TypeDef::Sequence(_)) => reader.sequence(decode(Message::Sequence, bytes, limits)?),
            Some(TypeDef::Map { .. }) => reader.map(decode(Message::Map, bytes, limits)?),
            Some(TypeDef::SparseTensor { .. }) => reader.sparse(decode(Message::SparseTensor, bytes, limits)?),
            Some(TypeDef::Tensor { .. }) | None => reader.tensor(decode(Message::Tensor, bytes, limits)?),
            Some(TypeDef::Opaque { .. }) => Err(reader.error("opaque values have no file form")),
        }
    }
}

struct CaseReader<'a> {
    path: PathBuf,
    external: ExternalFiles,
    limits: &'a Limits,
}

/// Nesting is bounded by the scan.
impl CaseReader<'_> {
    fn error(&self, reason: impl Into<String>) -> OnnxError {
        OnnxError::Case { path: self.path.clone(), reason: reason.into() }
    }

    fn problem(&self, problem: TensorProblem) -> OnnxError {
        self.error(problem.to_string())
    }

    fn tensor(&mut self, proto: TensorProto) -> Result<CaseValue, OnnxError> {
        RawTensor::read(proto, &mut self.external, self.limits)
            .map(CaseValue::Tensor)
            .map_err(|problem| self.problem(problem))
    }

    fn sparse(&mut self, proto: crate::proto::SparseTensorProto) -> Result<CaseValue, OnnxError> {
        RawSparseTensor::read(proto, &mut self.external, self.limits)
            .map(CaseValue::Sparse)
            .map_err(|problem| self.problem(problem))
    }

    fn sequence(&mut self, proto: SequenceProto) -> Result<CaseValue, OnnxError> {
        use sequence_proto::DataType as T;
        let code = proto.elem_type.unwrap_or_default();
        let values: Result<Vec<CaseValue>, OnnxError> = match T::try_from(code) {
            Ok(T::Tensor) => proto.tensor_values.into_iter().map(|v| self.tensor(v)).collect(),
            Ok(T::SparseTensor) => proto.sparse_tensor_values.into_iter().map(|v| self.sparse(v)).collect(),
            Ok(T::Sequence) => proto.sequence_values.into_iter().map(|v| self.sequence(v)).collect(),
            Ok(T::Map) => proto.map_values.into_iter().map(|v| self.map(v)).collect(),
            Ok(T::Optional) => proto.optional_values.into_iter().map(|v| self.optional(v)).collect(),
            Ok(T::Undefined) => Ok(Vec::new()),
            Err(_) => Err(self.error(format!("a sequence of unknown element type {code}"))),
        };
        values.map(CaseValue::Sequence)
    }

    fn optional(&mut self, proto: OptionalProto) -> Result<CaseValue, OnnxError> {
        use optional_proto::DataType as T;
        let code = proto.elem_type.unwrap_or_default();
        let value = match T::try_from(code) {
            Ok(T::Tensor) => proto.tensor_value.map(|v| self.tensor(v)),
            Ok(T::SparseTensor) => proto.sparse_tensor_value.map(|v| self.sparse(v)),
            Ok(T::Sequence) => proto.sequence_value.map(|v| self.sequence(v)),
            Ok(T::Map) => proto.map_value.map(|v| self.map(v)),
            Ok(T::Optional) => proto.optional_value.map(|v| self.optional(*v)),
            Ok(T::Undefined) => None,
            Err(_) => {
                return Err(self.error(format!("an optional of unknown element type {code}")));
            }
        };
        Ok(CaseValue::Optional(value.transpose()?.map(Box::new)))
    }

    fn map(&mut self, proto: MapProto) -> Result<CaseValue, OnnxError> {
        let keys = if proto.string_keys.is_empty() {
            MapKeys::Ints(proto.keys)
        } else {
            let strings = proto.string_keys.into_iter().map(|k| String::from_utf8(k.into()));
            let strings = strings.collect::<Result<_, _>>();
            MapKeys::Strings(strings.map_err(|_| self.error("a map key is not UTF-8"))?)
        };
        let count = match &keys {
            MapKeys::Ints(keys) => keys.len(),
            MapKeys::Strings(keys) => keys.len(),
        };
        let values = match proto.values.map(|v| self.sequence(v)).transpose()? {
            Some(CaseValue::Sequence(values)) => values,
            _ => Vec::new(),
        };
        if values.len() != count {
            let reason = format!("a map with {count} keys and {} values", values.len());
            return Err(self.error(reason));
        }
        Ok(CaseValue::Map { keys, values })
    }
}
