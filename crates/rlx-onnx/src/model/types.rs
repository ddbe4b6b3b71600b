//! Declared types of values.

use crate::dtype::OnnxType;
use crate::proto::type_proto::Value;
use crate::proto::{TensorShapeProto, TypeProto, ValueInfoProto, tensor_shape_proto::dimension};

/// A value with its declared type.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ValueDef {
    /// The name.
    pub name: String,
    /// The type, where the file says one.
    pub ty: Option<TypeDef>,
}

/// A declared type. Shapes are hints: `None` is an unknown rank.
#[derive(Debug, Clone, PartialEq)]
pub enum TypeDef {
    /// A tensor.
    Tensor {
        /// The element type, where the file says one.
        dtype: Option<OnnxType>,
        /// The dims.
        shape: Option<Vec<DimDef>>,
    },
    /// A sparse tensor.
    SparseTensor {
        /// The element type, where the file says one.
        dtype: Option<OnnxType>,
        /// The dims.
        shape: Option<Vec<DimDef>>,
    },
    /// A sequence of values of one type.
    Sequence(Box<TypeDef>),
    /// A value or none.
    Optional(Box<TypeDef>),
    /// A map.
    Map {
        /// Type of the keys.
        key: OnnxType,
        /// Type of the values.
        value: Box<TypeDef>,
    },
    /// A type that only its domain knows.
    Opaque {
        /// The domain.
        domain: String,
        /// The name there.
        name: String,
    },
}

/// A declared dim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DimDef {
    /// A number, at least 1.
    Fixed(i64),
    /// A name.
    Named(String),
    /// Not said. Exporters also write this as an empty name, `?`, zero or a negative number.
    Unknown,
}

impl ValueDef {
    /// Reads a declaration; the error says what is wrong with the type.
    pub(crate) fn read(proto: ValueInfoProto) -> (ValueDef, Result<(), String>) {
        let name = proto.name.unwrap_or_default();
        match proto.r#type.map(TypeDef::read).transpose() {
            Ok(ty) => (ValueDef { name, ty: ty.flatten() }, Ok(())),
            Err(reason) => (ValueDef { name, ty: None }, Err(reason)),
        }
    }
}

impl TypeDef {
    /// Reads a type; `None` when the message is empty.
    pub(crate) fn read(proto: TypeProto) -> Result<Option<TypeDef>, String> {
        let Some(value) = proto.value else {
            return Ok(None);
        };
        let inner = |elem: Option<Box<TypeProto>>, of: &str| match elem.map(|e| TypeDef::read(*e)) {
            Some(Ok(Some(ty))) => Ok(Box::new(ty)),
            Some(Err(reason)) => Err(reason),
            Some(Ok(None)) | None => Err(format!("{of} of no type")),
        };
        Ok(Some(match value {
            Value::TensorType(t) => TypeDef::Tensor { dtype: dtype(t.elem_type)?, shape: t.shape.map(shape) },
            Value::SparseTensorType(t) => {
                TypeDef::SparseTensor { dtype: dtype(t.elem_type)?, shape: t.shape.map(shape) }
            }
            Value::SequenceType(t) => TypeDef::Sequence(inner(t.elem_type, "a sequence")?),
            Value::OptionalType(t) => TypeDef::Optional(inner(t.elem_type, "an optional")?),
            Value::MapType(t) => TypeDef::Map {
                key: dtype(t.key_type)?.ok_or("a map without key type")?,
                value: inner(t.value_type, "a map")?,
            },
            Value::OpaqueType(t) => {
                TypeDef::Opaque { domain: t.domain.unwrap_or_default(), name: t.name.unwrap_or_default() }
            }
        }))
    }
}

fn dtype(code: Option<i32>) -> Result<Option<OnnxType>, String> {
    match code.unwrap_or_default() {
        0 => Ok(None),
        code => match OnnxType::from_code(code) {
            Some(dtype) => Ok(Some(dtype)),
            None => Err(format!("data type {code} is unknown")),
        },
    }
}

fn shape(proto: TensorShapeProto) -> Vec<DimDef> {
    proto
        .dim
        .into_iter()
        .map(|dim| match dim.value {
            Some(dimension::Value::DimValue(n)) if n > 0 => DimDef::Fixed(n),
            Some(dimension::Value::DimParam(name)) if !matches!(name.trim(), "" | "?") => DimDef::Named(name),
            _ => DimDef::Unknown,
        })
        .collect()
}
