//! Tensors with contents: bytes with a dtype and concrete sizes.
//!
//! Contents are immutable and shared. They may lie in memory of our own or in a mapped file; the bytes are little-endian.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytemuck::{AnyBitPattern, NoUninit};
use serde::{Deserialize, Serialize};

use crate::dtype::{Class, DType};
use crate::element::{Elements, decode, encode};

/// What holds a tensor's bytes: our memory, a mapped file, …
pub trait ByteSource: AsRef<[u8]> + Send + Sync {}
impl<T: AsRef<[u8]> + Send + Sync> ByteSource for T {}

/// Our own memory, aligned for every dtype.
struct Owned {
    words: Vec<u64>,
    len: usize,
}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice::<u64, u8>(&self.words).get(..self.len).unwrap_or(&[])
    }
}

#[derive(Clone)]
enum Data {
    Bytes(Arc<dyn ByteSource>),
    Strings(Arc<[String]>),
}

/// A tensor with contents. Cheap to clone.
#[derive(Clone)]
pub struct Tensor {
    dtype: DType,
    dims: Arc<[usize]>,
    data: Data,
}

/// Why bytes and a shape do not make a tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// The product of the dims overflows.
    #[error("a tensor of shape {0:?} has more elements than can be addressed")]
    TooLarge(Vec<usize>),
    /// Contents and shape disagree.
    #[error("{dtype}{dims:?} needs {expected} bytes, got {got}")]
    Length {
        /// Element type.
        dtype: DType,
        /// Shape asked for.
        dims: Vec<usize>,
        /// Bytes that the shape needs.
        expected: usize,
        /// Bytes given.
        got: usize,
    },
    /// The number of elements and the shape disagree.
    #[error("{dtype}{dims:?} needs {expected} elements, got {got}")]
    Count {
        /// Element type.
        dtype: DType,
        /// Shape asked for.
        dims: Vec<usize>,
        /// Elements that the shape has.
        expected: usize,
        /// Elements given.
        got: usize,
    },
    /// A typed view was asked for that the dtype has not.
    #[error("a tensor of {0} has no such typed view")]
    View(DType),
}

/// Number of elements of a shape, or an error on overflow.
pub fn checked_numel(dims: &[usize]) -> Result<usize, TensorError> {
    // A zero makes the tensor empty whatever the other sizes are.
    if dims.contains(&0) {
        return Ok(0);
    }
    dims.iter()
        .try_fold(1usize, |a, &d| a.checked_mul(d))
        .filter(|&n| n <= isize::MAX as usize / 16)
        .ok_or_else(|| TensorError::TooLarge(dims.to_vec()))
}

/// A Rust type whose slices are views of a tensor.
pub trait Element: AnyBitPattern + NoUninit {
    /// The dtype whose bytes it reads.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($t:ty => $d:ident),* $(,)?) => { $(impl Element for $t { const DTYPE: DType = DType::$d; })* };
}
elements!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    half::f16 => F16, half::bf16 => BF16, f32 => F32, f64 => F64);

impl Tensor {
    /// A tensor over bytes that another owner holds (a mapped file, a shared buffer).
    pub fn from_source(dtype: DType, dims: &[usize], source: Arc<dyn ByteSource>) -> Result<Self, TensorError> {
        let n = checked_numel(dims)?;
        let expected = dtype.bytes_for(n).ok_or_else(|| TensorError::TooLarge(dims.to_vec()))?;
        let got = (*source).as_ref().len();
        if dtype == DType::Str {
            return Err(TensorError::View(dtype));
        }
        if got != expected {
            return Err(TensorError::Length { dtype, dims: dims.to_vec(), expected, got });
        }
        Ok(Tensor { dtype, dims: dims.into(), data: Data::Bytes(source) })
    }

    /// A tensor with a copy of little-endian, packed bytes.
    pub fn from_bytes(dtype: DType, dims: &[usize], bytes: &[u8]) -> Result<Self, TensorError> {
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        if let Some(dst) = bytemuck::cast_slice_mut::<u64, u8>(&mut words).get_mut(..bytes.len()) {
            dst.copy_from_slice(bytes);
        }
        Self::from_source(dtype, dims, Arc::new(Owned { words, len: bytes.len() }))
    }

    /// A tensor from typed contents, row-major.
    pub fn from_slice<T: Element>(dims: &[usize], values: &[T]) -> Result<Self, TensorError> {
        Self::from_bytes(T::DTYPE, dims, bytemuck::cast_slice(values))
    }

    /// A rank-0 tensor.
    pub fn scalar<T: Element>(value: T) -> Self {
        let mut words = vec![0u64];
        let bytes = bytemuck::bytes_of(&value);
        bytemuck::cast_slice_mut::<u64, u8>(&mut words).iter_mut().zip(bytes).for_each(|(d, s)| *d = *s);
        Tensor {
            dtype: T::DTYPE,
            dims: Arc::from([]),
            data: Data::Bytes(Arc::new(Owned { words, len: size_of::<T>() })),
        }
    }

    /// A tensor of booleans.
    pub fn from_bools(dims: &[usize], values: &[bool]) -> Result<Self, TensorError> {
        let bytes: Vec<u8> = values.iter().map(|&b| u8::from(b)).collect();
        Self::from_bytes(DType::Bool, dims, &bytes)
    }

    /// A tensor of strings.
    pub fn from_strings(dims: &[usize], values: Vec<String>) -> Result<Self, TensorError> {
        let n = checked_numel(dims)?;
        if n != values.len() {
            return Err(TensorError::Count { dtype: DType::Str, dims: dims.to_vec(), expected: n, got: values.len() });
        }
        Ok(Tensor { dtype: DType::Str, dims: dims.into(), data: Data::Strings(values.into()) })
    }

    /// A tensor of zeros (`false`, empty strings).
    pub fn zeros(dtype: DType, dims: &[usize]) -> Result<Self, TensorError> {
        let n = checked_numel(dims)?;
        if dtype == DType::Str {
            return Self::from_strings(dims, vec![String::new(); n]);
        }
        let len = dtype.bytes_for(n).ok_or_else(|| TensorError::TooLarge(dims.to_vec()))?;
        Self::from_source(dtype, dims, Arc::new(Owned { words: vec![0; len.div_ceil(8)], len }))
    }

    /// A tensor whose elements are rounded from wide values (to nearest even for floats, wrapped for integers).
    pub fn from_elements(dtype: DType, dims: &[usize], elements: &Elements) -> Result<Self, TensorError> {
        let n = checked_numel(dims)?;
        if elements.len() != n {
            return Err(TensorError::Count { dtype, dims: dims.to_vec(), expected: n, got: elements.len() });
        }
        if let Elements::Str(v) = elements {
            return Self::from_strings(dims, v.clone());
        }
        Self::from_bytes(dtype, dims, &encode(dtype, elements))
    }

    /// A rank-0 or rank-n tensor filled with one wide float, rounded to `dtype` (integers take its value truncated).
    pub fn full(dtype: DType, dims: &[usize], value: f64) -> Result<Self, TensorError> {
        let n = checked_numel(dims)?;
        let e = match dtype.class() {
            Class::Float => Elements::Float(vec![value; n]),
            Class::Complex => Elements::Complex(vec![[value, 0.0]; n]),
            Class::Str => return Err(TensorError::View(dtype)),
            _ => Elements::Int(vec![value as i128; n]),
        };
        Self::from_elements(dtype, dims, &e)
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Sizes of the axes.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        if self.dims.contains(&0) { 0 } else { self.dims.iter().product() }
    }

    /// The packed little-endian bytes; empty for strings.
    pub fn bytes(&self) -> &[u8] {
        match &self.data {
            Data::Bytes(b) => (**b).as_ref(),
            Data::Strings(_) => &[],
        }
    }

    /// The owner of the bytes, to be held without a copy; `None` for strings.
    pub fn source(&self) -> Option<Arc<dyn ByteSource>> {
        match &self.data {
            Data::Bytes(b) => Some(b.clone()),
            Data::Strings(_) => None,
        }
    }

    /// The strings, if it is a tensor of strings.
    pub fn strings(&self) -> Option<&[String]> {
        match &self.data {
            Data::Strings(s) => Some(s),
            Data::Bytes(_) => None,
        }
    }

    /// A typed view; copied only if a mapped file left the bytes unaligned.
    pub fn as_slice<T: Element>(&self) -> Result<Cow<'_, [T]>, TensorError> {
        if self.dtype != T::DTYPE {
            return Err(TensorError::View(self.dtype));
        }
        let bytes = self.bytes();
        Ok(match bytemuck::try_cast_slice(bytes) {
            Ok(s) => Cow::Borrowed(s),
            Err(_) => Cow::Owned(bytemuck::pod_collect_to_vec(bytes)),
        })
    }

    /// All elements, widened exactly.
    pub fn elements(&self) -> Elements {
        match &self.data {
            Data::Strings(s) => Elements::Str(s.to_vec()),
            Data::Bytes(_) => decode(self.dtype, self.bytes(), self.numel()),
        }
    }

    /// The same contents under another shape of as many elements.
    pub fn reshaped(&self, dims: &[usize]) -> Result<Self, TensorError> {
        if checked_numel(dims)? != self.numel() {
            return Err(TensorError::Length {
                dtype: self.dtype,
                dims: dims.to_vec(),
                expected: checked_numel(dims)?,
                got: self.numel(),
            });
        }
        Ok(Tensor { dtype: self.dtype, dims: dims.into(), data: self.data.clone() })
    }
}

/// Equal dtype, shape and bits: NaNs with the same bits are equal, zeros of different sign are not.
impl PartialEq for Tensor {
    fn eq(&self, other: &Self) -> bool {
        self.dtype == other.dtype
            && self.dims == other.dims
            && match (&self.data, &other.data) {
                (Data::Strings(a), Data::Strings(b)) => a == b,
                _ => self.bytes() == other.bytes(),
            }
    }
}

impl Eq for Tensor {}

impl Hash for Tensor {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.dtype.hash(state);
        self.dims.hash(state);
        match &self.data {
            Data::Strings(s) => s.hash(state),
            Data::Bytes(b) => (**b).as_ref().hash(state),
        }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.dims)
    }
}

#[derive(Serialize, Deserialize)]
struct Repr {
    dtype: DType,
    dims: Vec<usize>,
    bytes: Vec<u8>,
    strings: Option<Vec<String>>,
}

impl Serialize for Tensor {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        Repr {
            dtype: self.dtype,
            dims: self.dims.to_vec(),
            bytes: self.bytes().to_vec(),
            strings: self.strings().map(<[String]>::to_vec),
        }
        .serialize(s)
    }
}

impl<'de> Deserialize<'de> for Tensor {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let r = Repr::deserialize(d)?;
        match r.strings {
            Some(s) => Tensor::from_strings(&r.dims, s),
            None => Tensor::from_bytes(r.dtype, &r.dims, &r.bytes),
        }
        .map_err(serde::de::Error::custom)
    }
}

/// A value with contents.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A tensor.
    Tensor(Tensor),
    /// A sequence of values.
    Sequence(Vec<Value>),
    /// A value or nothing.
    Optional(Option<Box<Value>>),
}

impl Value {
    /// The tensor, if it is one.
    pub fn as_tensor(&self) -> Option<&Tensor> {
        match self {
            Value::Tensor(t) => Some(t),
            _ => None,
        }
    }
}

impl From<Tensor> for Value {
    fn from(t: Tensor) -> Self {
        Value::Tensor(t)
    }
}
