//! The typed data fields of a tensor: `float_data`, `int32_data` and their like.
//!
//! Numbers that stand in memory as the packed form wants them are taken over, not copied; small
//! types are narrowed with a check, because a field of wide numbers can say what its type cannot.

use prost::bytes::Bytes;

use crate::dtype::OnnxType;
use crate::proto::TensorProto;
use crate::tensor::{TensorData, TensorProblem};

/// The outcome: data, or a wrong number of entries.
pub(crate) enum Typed {
    Data(TensorData),
    Count { needed: usize, found: usize },
}

/// The numbers of one field.
enum Numbers {
    Float(Vec<f32>),
    Double(Vec<f64>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Uint64(Vec<u64>),
    Strings(Vec<Bytes>),
}

impl Numbers {
    fn len(&self) -> usize {
        match self {
            Numbers::Float(v) => v.len(),
            Numbers::Double(v) => v.len(),
            Numbers::Int32(v) => v.len(),
            Numbers::Int64(v) => v.len(),
            Numbers::Uint64(v) => v.len(),
            Numbers::Strings(v) => v.len(),
        }
    }

    fn field(&self) -> &'static str {
        match self {
            Numbers::Float(_) => "float_data",
            Numbers::Double(_) => "double_data",
            Numbers::Int32(_) => "int32_data",
            Numbers::Int64(_) => "int64_data",
            Numbers::Uint64(_) => "uint64_data",
            Numbers::Strings(_) => "string_data",
        }
    }
}

/// Takes the data of `elements` elements out of the field that holds it.
pub(crate) fn typed_data(proto: &mut TensorProto, dtype: OnnxType, elements: usize) -> Result<Typed, TensorProblem> {
    use std::mem::take;
    let fields = [
        Numbers::Float(take(&mut proto.float_data)),
        Numbers::Double(take(&mut proto.double_data)),
        Numbers::Int32(take(&mut proto.int32_data)),
        Numbers::Int64(take(&mut proto.int64_data)),
        Numbers::Uint64(take(&mut proto.uint64_data)),
        Numbers::Strings(take(&mut proto.string_data)),
    ];
    let needed = entries(dtype, elements);
    let Some(numbers) = fields.into_iter().find(|f| f.len() > 0) else {
        if elements > 0 {
            return Ok(Typed::Count { needed, found: 0 });
        }
        return Ok(Typed::Data(match dtype {
            OnnxType::String => TensorData::Strings(Vec::new()),
            _ => TensorData::Packed(Bytes::new()),
        }));
    };
    if numbers.field() != field_for(dtype) {
        return Err(TensorProblem::WrongField { dtype, field: numbers.field() });
    }
    if numbers.len() != needed {
        return Ok(Typed::Count { needed, found: numbers.len() });
    }
    use OnnxType as T;
    let bytes = match (dtype, numbers) {
        (T::Float | T::Complex64, Numbers::Float(v)) => little_endian(v, f32::to_le_bytes),
        (T::Double | T::Complex128, Numbers::Double(v)) => little_endian(v, f64::to_le_bytes),
        (T::Int32, Numbers::Int32(v)) => little_endian(v, i32::to_le_bytes),
        (T::Int64, Numbers::Int64(v)) => little_endian(v, i64::to_le_bytes),
        (T::Uint64, Numbers::Uint64(v)) => little_endian(v, u64::to_le_bytes),
        (T::Uint32, Numbers::Uint64(v)) => {
            let narrow = |(index, value): (usize, u64)| {
                u32::try_from(value).map_err(|_| TensorProblem::OutOfRange { index, value: value.into(), dtype })
            };
            let v: Vec<u32> = v.into_iter().enumerate().map(narrow).collect::<Result<_, _>>()?;
            little_endian(v, u32::to_le_bytes)
        }
        (T::Float6E2M3 | T::Float6E3M2, Numbers::Int32(v)) => {
            let v = narrow(v, dtype, 6)?;
            pack_six(&v)
        }
        (dtype, Numbers::Int32(v)) if dtype.bits() == 16 => {
            let v = narrow(v, dtype, 16)?;
            little_endian(v, u16::to_le_bytes)
        }
        // Types of 2 and 4 bits come with several elements in each entry already.
        (dtype, Numbers::Int32(v)) if (1..=8).contains(&dtype.bits()) => {
            narrow(v, dtype, 8)?.into_iter().map(|v| v as u8).collect()
        }
        (T::String, Numbers::Strings(v)) => {
            let utf8 = |(index, bytes): (usize, Bytes)| {
                String::from_utf8(bytes.into()).map_err(|_| TensorProblem::NotUtf8 { index })
            };
            let v = v.into_iter().enumerate().map(utf8).collect::<Result<_, _>>()?;
            return Ok(Typed::Data(TensorData::Strings(v)));
        }
        (dtype, numbers) => {
            return Err(TensorProblem::WrongField { dtype, field: numbers.field() });
        }
    };
    Ok(Typed::Data(TensorData::Packed(bytes)))
}

/// The field that holds a type's data.
fn field_for(dtype: OnnxType) -> &'static str {
    use OnnxType as T;
    match dtype {
        T::Float | T::Complex64 => "float_data",
        T::Double | T::Complex128 => "double_data",
        T::Int64 => "int64_data",
        T::Uint32 | T::Uint64 => "uint64_data",
        T::String => "string_data",
        _ => "int32_data",
    }
}

/// Entries of its typed field that a tensor needs.
fn entries(dtype: OnnxType, elements: usize) -> usize {
    match dtype {
        OnnxType::Complex64 | OnnxType::Complex128 => elements.saturating_mul(2),
        _ => match dtype.bits() {
            2 => elements.div_ceil(4),
            4 => elements.div_ceil(2),
            _ => elements,
        },
    }
}

/// The low `bits` of each number. Both readings of the bits are admitted, signed and unsigned:
/// writers differ, and the bits are the same.
fn narrow(values: Vec<i32>, dtype: OnnxType, bits: u32) -> Result<Vec<u16>, TensorProblem> {
    let (low, high) = (-(1i32 << (bits - 1)), (1i32 << bits) - 1);
    let mask = (1u32 << bits) - 1;
    let each = |(index, value): (usize, i32)| {
        if (low..=high).contains(&value) {
            Ok((value as u32 & mask) as u16)
        } else {
            Err(TensorProblem::OutOfRange { index, value: value.into(), dtype })
        }
    };
    values.into_iter().enumerate().map(each).collect()
}

/// Six-bit numbers as one stream of bits, the first in the low bits.
fn pack_six(values: &[u16]) -> Bytes {
    let mut out = Vec::with_capacity(values.len().div_ceil(4) * 3);
    let (mut bits, mut held) = (0u32, 0);
    for &value in values {
        bits |= u32::from(value) << held;
        held += 6;
        while held >= 8 {
            out.push(bits as u8);
            bits >>= 8;
            held -= 8;
        }
    }
    if held > 0 {
        out.push(bits as u8);
    }
    out.into()
}

/// A vector of numbers seen as bytes.
struct AsBytes<T>(Vec<T>);

impl<T: bytemuck::NoUninit> AsRef<[u8]> for AsBytes<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// The numbers as little-endian bytes; where memory is so already, without a copy.
fn little_endian<T, const N: usize>(values: Vec<T>, to_le: fn(T) -> [u8; N]) -> Bytes
where
    T: bytemuck::NoUninit + Send + 'static,
{
    if cfg!(target_endian = "little") {
        Bytes::from_owner(AsBytes(values))
    } else {
        values.into_iter().flat_map(to_le).collect()
    }
}
