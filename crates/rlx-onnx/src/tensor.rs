//! A tensor of a file, checked: type, dims and data in packed little-endian form.
//!
//! Invariants of a [`RawTensor`]: the number of elements fits in `isize` even without its zero
//! dims; packed data has exactly the length that type and dims give; booleans are 0 or 1; strings
//! are UTF-8. Data that stood in the file as bytes still shares the file's memory, at whatever
//! alignment it has there.

use prost::bytes::Bytes;

use crate::dtype::OnnxType;
use crate::external::{ExternalFiles, ExternalProblem};
use crate::options::Limits;
use crate::proto::{SparseTensorProto, TensorProto, tensor_proto::DataLocation};
use crate::typed::{Typed, typed_data};

/// More dims than any array library has.
const MAX_RANK: usize = 64;

/// The elements of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum TensorData {
    /// Row-major, little-endian, sub-byte types packed from the low bits up.
    Packed(Bytes),
    /// Strings.
    Strings(Vec<String>),
}

/// A tensor as a file holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct RawTensor {
    /// Its name; may be empty.
    pub name: String,
    /// The element type.
    pub dtype: OnnxType,
    /// The dims; none for a scalar.
    pub dims: Vec<usize>,
    /// The elements.
    pub data: TensorData,
}

/// A sparse tensor as a file holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct RawSparseTensor {
    /// The values, one for each row of `indices`.
    pub values: RawTensor,
    /// Positions: `[n]` linear, or `[n, rank]`, as int64. Their range is checked.
    pub indices: RawTensor,
    /// The dims of the dense tensor.
    pub dims: Vec<usize>,
}

/// Why a tensor cannot be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorProblem {
    /// A data type code that ONNX does not define.
    #[error("data type {code} is unknown")]
    UnknownType {
        /// The code.
        code: i32,
    },
    /// A negative dim.
    #[error("dim {axis} is {dim}; dims of data are never negative")]
    NegativeDim {
        /// Which one.
        axis: usize,
        /// Its value.
        dim: i64,
    },
    /// Too many dims.
    #[error("it has {rank} dims; at most {MAX_RANK} are supported")]
    Rank {
        /// How many.
        rank: usize,
    },
    /// More bytes than the limits or the machine allow.
    #[error("dims {dims:?} of {dtype} exceed the limit of {limit} bytes")]
    TooLarge {
        /// The dims.
        dims: Vec<i64>,
        /// The element type.
        dtype: OnnxType,
        /// [`Limits::max_tensor_bytes`].
        limit: usize,
    },
    /// Data of another size than type and dims need.
    #[error("dims {dims:?} of {dtype} need {needed} {unit} of data, the file has {found}")]
    Length {
        /// The dims.
        dims: Vec<usize>,
        /// The element type.
        dtype: OnnxType,
        /// What is needed.
        needed: usize,
        /// What is there.
        found: usize,
        /// Bytes, or entries of a typed field.
        unit: &'static str,
    },
    /// More than one field holds data.
    #[error("its data is given more than once: {}", fields.join(", "))]
    TwoData {
        /// The fields.
        fields: Vec<&'static str>,
    },
    /// Data in a field that is not for this type.
    #[error("data of type {dtype} cannot stand in {field}")]
    WrongField {
        /// The element type.
        dtype: OnnxType,
        /// The field.
        field: &'static str,
    },
    /// A number that the type cannot hold.
    #[error("element {index} is {value}, which {dtype} cannot hold")]
    OutOfRange {
        /// Which entry.
        index: usize,
        /// Its value.
        value: i128,
        /// The element type.
        dtype: OnnxType,
    },
    /// A string that is not UTF-8.
    #[error("string {index} is not UTF-8")]
    NotUtf8 {
        /// Which one.
        index: usize,
    },
    /// The tensor is one piece of a larger one.
    #[error("it is a segment of a larger tensor, which is not supported")]
    Segment,
    /// The data location is none that ONNX defines.
    #[error("data location {code} is unknown")]
    UnknownLocation {
        /// The code.
        code: i32,
    },
    /// Its data lies in another file and cannot be had.
    #[error("{0}")]
    External(ExternalProblem),
    /// A sparse tensor whose parts do not fit together.
    #[error("sparse: {reason}")]
    Sparse {
        /// What is wrong.
        reason: String,
    },
}

impl TensorProblem {
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            TensorProblem::External(problem) => problem.hint(),
            TensorProblem::TooLarge { .. } => Some("if the file is trusted, raise `Limits::max_tensor_bytes`"),
            _ => None,
        }
    }
}

impl RawTensor {
    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// The packed bytes; `None` for strings.
    pub fn packed(&self) -> Option<&Bytes> {
        match &self.data {
            TensorData::Packed(bytes) => Some(bytes),
            TensorData::Strings(_) => None,
        }
    }

    /// Reads a tensor; bytes are shared with `proto`, typed fields are taken over.
    pub(crate) fn read(
        mut proto: TensorProto,
        external: &mut ExternalFiles,
        limits: &Limits,
    ) -> Result<RawTensor, TensorProblem> {
        if proto.segment.is_some() {
            return Err(TensorProblem::Segment);
        }
        let code = proto.data_type.unwrap_or_default();
        let dtype = OnnxType::from_code(code).ok_or(TensorProblem::UnknownType { code })?;
        let shape = Shape::check(&proto.dims, dtype, limits)?;
        let location = proto.data_location.unwrap_or_default();
        let is_external = match DataLocation::try_from(location) {
            Ok(DataLocation::Default) => false,
            Ok(DataLocation::External) => true,
            Err(_) => return Err(TensorProblem::UnknownLocation { code: location }),
        };
        one_source(&proto, is_external)?;
        let name = proto.name.take().unwrap_or_default();
        let raw = proto.raw_data.take().filter(|raw| !raw.is_empty());
        let data = if is_external || raw.is_some() {
            let field = if is_external { "external data" } else { "raw_data" };
            if dtype == OnnxType::String {
                return Err(TensorProblem::WrongField { dtype, field });
            }
            let bytes = match raw {
                Some(raw) => raw,
                None => external.slice(&proto.external_data, shape.bytes).map_err(TensorProblem::External)?,
            };
            if bytes.len() != shape.bytes {
                return Err(shape.mismatch(dtype, shape.bytes, bytes.len(), "bytes"));
            }
            TensorData::Packed(bytes)
        } else {
            match typed_data(&mut proto, dtype, shape.elements)? {
                Typed::Data(data) => data,
                Typed::Count { needed, found } => {
                    return Err(shape.mismatch(dtype, needed, found, "entries"));
                }
            }
        };
        let data = if dtype == OnnxType::Bool { clean_booleans(data) } else { data };
        Ok(RawTensor { name, dtype, dims: shape.dims, data })
    }
}

/// Dims that passed, and what follows from them.
struct Shape {
    dims: Vec<usize>,
    elements: usize,
    bytes: usize,
}

impl Shape {
    fn check(dims: &[i64], dtype: OnnxType, limits: &Limits) -> Result<Shape, TensorProblem> {
        if dims.len() > MAX_RANK {
            return Err(TensorProblem::Rank { rank: dims.len() });
        }
        let limit = limits.max_tensor_bytes;
        let too_large = || TensorProblem::TooLarge { dims: dims.to_vec(), dtype, limit };
        let mut out = Vec::with_capacity(dims.len());
        // Without the zeros, because strides are computed from what is left of them.
        let mut product = 1usize;
        for (axis, &dim) in dims.iter().enumerate() {
            if dim < 0 {
                return Err(TensorProblem::NegativeDim { axis, dim });
            }
            let dim = usize::try_from(dim).map_err(|_| too_large())?;
            product = product.checked_mul(dim.max(1)).filter(|p| isize::try_from(*p).is_ok()).ok_or_else(too_large)?;
            out.push(dim);
        }
        let elements = if out.contains(&0) { 0 } else { product };
        let bytes = dtype.packed_len(elements).filter(|b| *b <= limit).ok_or_else(too_large)?;
        Ok(Shape { dims: out, elements, bytes })
    }

    fn mismatch(&self, dtype: OnnxType, needed: usize, found: usize, unit: &'static str) -> TensorProblem {
        TensorProblem::Length { dims: self.dims.clone(), dtype, needed, found, unit }
    }
}

/// Only one field may hold data.
fn one_source(proto: &TensorProto, is_external: bool) -> Result<(), TensorProblem> {
    let present = [
        ("external_data", is_external),
        ("raw_data", proto.raw_data.as_ref().is_some_and(|raw| !raw.is_empty())),
        ("float_data", !proto.float_data.is_empty()),
        ("int32_data", !proto.int32_data.is_empty()),
        ("string_data", !proto.string_data.is_empty()),
        ("int64_data", !proto.int64_data.is_empty()),
        ("double_data", !proto.double_data.is_empty()),
        ("uint64_data", !proto.uint64_data.is_empty()),
    ];
    let fields: Vec<&'static str> = present.iter().filter(|(_, there)| *there).map(|(field, _)| *field).collect();
    if fields.len() > 1 { Err(TensorProblem::TwoData { fields }) } else { Ok(()) }
}

/// Booleans other than 0 and 1 become 1; the usual file is shared as it is.
fn clean_booleans(data: TensorData) -> TensorData {
    match data {
        TensorData::Packed(bytes) if bytes.iter().any(|&b| b > 1) => {
            TensorData::Packed(bytes.iter().map(|&b| u8::from(b != 0)).collect())
        }
        other => other,
    }
}

impl RawSparseTensor {
    /// Reads a sparse tensor and checks that its parts fit together.
    pub(crate) fn read(
        proto: SparseTensorProto,
        external: &mut ExternalFiles,
        limits: &Limits,
    ) -> Result<RawSparseTensor, TensorProblem> {
        let sparse = |reason: String| TensorProblem::Sparse { reason };
        let values = proto.values.ok_or_else(|| sparse("it has no values".into()))?;
        let indices = proto.indices.ok_or_else(|| sparse("it has no indices".into()))?;
        let values = RawTensor::read(values, external, limits)?;
        let indices = RawTensor::read(indices, external, limits)?;
        let shape = Shape::check(&proto.dims, values.dtype, limits)?;
        let (&[count], OnnxType::Int64) = (values.dims.as_slice(), indices.dtype) else {
            return Err(sparse(format!(
                "values of dims {:?} with indices of type {}; one axis and int64 are needed",
                values.dims, indices.dtype
            )));
        };
        let rank = shape.dims.len();
        let linear = indices.dims == [count];
        if !linear && indices.dims != [count, rank] {
            return Err(sparse(format!(
                "indices of dims {:?} for {count} values of a tensor of rank {rank}",
                indices.dims
            )));
        }
        let bounds = if linear { vec![shape.elements] } else { shape.dims.clone() };
        let words = indices.packed().map(|b| b.as_chunks::<8>().0).unwrap_or_default();
        for (word, &bound) in words.iter().zip(bounds.iter().cycle()) {
            let index = i64::from_le_bytes(*word);
            if usize::try_from(index).is_ok_and(|i| i < bound) {
                continue;
            }
            return Err(sparse(format!("index {index} is outside of 0..{bound}")));
        }
        Ok(RawSparseTensor { values, indices, dims: shape.dims })
    }
}
