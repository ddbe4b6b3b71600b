//! Contents, types and inputs of the file in the IR's terms.

use std::rc::Rc;
use std::sync::Arc;

use rlx_ir::{DType, Dim, Shape, Symbol, Tensor, Type};

use super::scope::{Content, Entry, Importer};
use crate::dtype::OnnxType;
use crate::model::{DimDef, GraphDef, Initialiser, InitialiserContent, TypeDef, ValueDef};
use crate::tensor::{RawSparseTensor, RawTensor, TensorData};

/// The dtype of the IR; `None` for the 6-bit floats, which it has not.
pub(crate) fn dtype(t: OnnxType) -> Option<DType> {
    Some(match t {
        OnnxType::Float => DType::F32,
        OnnxType::Uint8 => DType::U8,
        OnnxType::Int8 => DType::I8,
        OnnxType::Uint16 => DType::U16,
        OnnxType::Int16 => DType::I16,
        OnnxType::Int32 => DType::I32,
        OnnxType::Int64 => DType::I64,
        OnnxType::String => DType::Str,
        OnnxType::Bool => DType::Bool,
        OnnxType::Float16 => DType::F16,
        OnnxType::Double => DType::F64,
        OnnxType::Uint32 => DType::U32,
        OnnxType::Uint64 => DType::U64,
        OnnxType::Complex64 => DType::C64,
        OnnxType::Complex128 => DType::C128,
        OnnxType::Bfloat16 => DType::BF16,
        OnnxType::Float8E4M3FN => DType::F8E4M3FN,
        OnnxType::Float8E4M3FNUZ => DType::F8E4M3FNUZ,
        OnnxType::Float8E5M2 => DType::F8E5M2,
        OnnxType::Float8E5M2FNUZ => DType::F8E5M2FNUZ,
        OnnxType::Uint4 => DType::U4,
        OnnxType::Int4 => DType::I4,
        OnnxType::Float4E2M1 => DType::F4E2M1,
        OnnxType::Float8E8M0 => DType::F8E8M0,
        OnnxType::Uint2 => DType::U2,
        OnnxType::Int2 => DType::I2,
        OnnxType::Float6E2M3 | OnnxType::Float6E3M2 => return None,
    })
}

/// A dtype by its code in an attribute.
pub(crate) fn dtype_of_code(code: i64) -> Result<DType, String> {
    let known = i32::try_from(code).ok().and_then(OnnxType::from_code);
    let t = known.ok_or_else(|| format!("data type {code} is unknown"))?;
    dtype(t).ok_or_else(|| format!("data type {t} is not supported"))
}

/// A tensor that shares the file's memory.
pub fn to_tensor(raw: &RawTensor) -> Result<Tensor, String> {
    let d = dtype(raw.dtype).ok_or_else(|| format!("data type {} is not supported", raw.dtype))?;
    let made = match &raw.data {
        TensorData::Packed(bytes) => Tensor::from_source(d, &raw.dims, Arc::new(bytes.clone())),
        TensorData::Strings(s) => Tensor::from_strings(&raw.dims, s.clone()),
    };
    made.map_err(|e| e.to_string())
}

/// A sparse tensor with its zeros written out.
pub(crate) fn to_dense(raw: &RawSparseTensor) -> Result<Tensor, String> {
    let values = to_tensor(&raw.values)?;
    let indices = to_tensor(&raw.indices)?;
    let indices = indices.as_slice::<i64>().map_err(|e| e.to_string())?;
    let zeros = Tensor::zeros(values.dtype(), &raw.dims).map_err(|e| e.to_string())?;
    let size =
        values.dtype().size().ok_or_else(|| format!("sparse tensors of {} are not supported", values.dtype()))?;
    let mut bytes = zeros.bytes().to_vec();
    let linear = raw.indices.dims.len() <= 1;
    let row = if linear { 1 } else { raw.dims.len() };
    for (i, value) in values.bytes().chunks_exact(size).enumerate() {
        let at = indices.get(i * row..(i + 1) * row).unwrap_or(&[]);
        let at = if linear {
            at.first().copied().and_then(|i| usize::try_from(i).ok())
        } else {
            at.iter().zip(&raw.dims).try_fold(0usize, |a, (&i, &n)| Some(a * n + usize::try_from(i).ok()?))
        };
        let slot = at.and_then(|at| bytes.get_mut(at * size..(at + 1) * size));
        slot.ok_or("an index of a sparse tensor is out of range")?.copy_from_slice(value);
    }
    Tensor::from_bytes(values.dtype(), &raw.dims, &bytes).map_err(|e| e.to_string())
}

/// True for names of dims that exporters count up: they say nothing.
fn is_generated(name: &str) -> bool {
    const MARKS: [&str; 6] = ["unk__", "p2o.DynamicDimension", "DynamicDimension", "dynamic_axes_", "unknown_", "None"];
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit() || b == b'_' || b == b'.');
    MARKS.iter().any(|m| name.strip_prefix(m).is_some_and(digits)) || digits(name)
}

impl<'m> Importer<'m> {
    /// The size that a name like `past + seq` means, where its parts are names of sizes themselves: exporters write such.
    fn expression(&self, name: &str) -> Option<Dim> {
        if !name.contains(['+', '-', '*']) {
            return None;
        }
        let dim = Dim::parse(name).ok()?;
        let known = dim.symbols().iter().all(|s| self.is_symbol(s.name()));
        (known && !dim.is_const() && dim.as_symbol().is_none() && dim.as_invalid().is_none()).then_some(dim)
    }

    /// The shape that a declaration says, with symbols for what it leaves open; `None` if it does not even say the rank.
    fn declared_shape(&mut self, name: &str, dims: &[DimDef]) -> Shape {
        let dims = dims.iter().enumerate().map(|(axis, d)| match d {
            DimDef::Fixed(n) => Dim::from(*n),
            DimDef::Named(s) if self.expression(s).is_some() => self.expression(s).unwrap_or(Dim::ZERO),
            DimDef::Named(s) if !is_generated(s) => {
                self.claim_symbol(s);
                Dim::symbol(Symbol::new(s))
            }
            // A generated name is kept where it is met first, so that people recognise it. Elsewhere it links nothing.
            DimDef::Named(s) if self.claim_symbol(s) => Dim::symbol(Symbol::new(s)),
            DimDef::Named(_) | DimDef::Unknown => {
                let own = format!("{name}.{axis}");
                let s = if self.claim_symbol(&own) { Symbol::new(own) } else { self.fresh_symbol(&own) };
                Dim::symbol(s)
            }
        });
        dims.collect()
    }

    /// A declared type, which must say dtype and rank.
    pub fn declared_type(&mut self, value: &ValueDef) -> Result<Type, String> {
        let given = self.options.input_shapes.get(&value.name).cloned();
        match &value.ty {
            Some(TypeDef::Tensor { dtype: Some(t), shape }) => {
                let d = dtype(*t).ok_or_else(|| format!("data type {t} is not supported"))?;
                let shape = match (given, shape) {
                    (Some(dims), _) => {
                        for s in dims.iter().flat_map(Dim::symbols) {
                            self.claim_symbol(s.name());
                        }
                        Shape::from(dims)
                    }
                    (None, Some(dims)) => self.declared_shape(&value.name, dims),
                    (None, None) => {
                        return Err("the file does not say how many axes this input has; give its shape".into());
                    }
                };
                Ok(Type::tensor(d, shape))
            }
            Some(TypeDef::Tensor { dtype: None, .. }) | None => {
                Err("the file does not say this input's data type".into())
            }
            Some(TypeDef::SparseTensor { .. }) => Err("sparse inputs are not supported".into()),
            Some(TypeDef::Sequence(_)) => Err("inputs that are sequences are not supported".into()),
            Some(TypeDef::Optional(_)) => Err("inputs that are optional are not supported".into()),
            Some(TypeDef::Map { .. }) => Err("inputs that are maps are not supported".into()),
            Some(TypeDef::Opaque { .. }) => Err("inputs of opaque types are not supported".into()),
        }
    }

    /// Declares the inputs of the main graph.
    pub fn declare_inputs(&mut self, graph: &'m GraphDef) {
        // Real names first: a generated name must not take one of theirs.
        for v in &graph.inputs {
            if let Some(TypeDef::Tensor { shape: Some(dims), .. }) = &v.ty {
                for d in dims {
                    if let DimDef::Named(s) = d
                        && !is_generated(s)
                    {
                        self.claim_symbol(s);
                    }
                }
            }
        }
        for v in &graph.inputs {
            if let Some(t) = self.options.fixed_inputs.get(&v.name) {
                let content =
                    Content { name: v.name.clone(), prefix: "".into(), tensor: t.clone(), overridable: false };
                self.define(&v.name, Entry::Content(Rc::new(content)));
                continue;
            }
            let added = self.declared_type(v).and_then(|ty| {
                let g = self.b().graph_mut();
                g.add_input(&v.name, ty).map_err(|e| e.to_string())
            });
            match added {
                Ok(id) => self.define_value(&v.name, id),
                Err(message) => {
                    self.value_fault(&v.name, message);
                    self.define(&v.name, Entry::Missing);
                }
            }
        }
        for name in self.options.fixed_inputs.keys().chain(self.options.input_shapes.keys()) {
            if !graph.inputs.iter().any(|v| v.name == *name) {
                self.value_fault(name, "the options speak of this input, but the model has none of the name");
            }
        }
    }

    /// Gives the initialisers of a graph their names.
    pub fn declare_initialisers(&mut self, graph: &'m GraphDef) {
        for i in &graph.initialisers {
            match dense(i) {
                Ok(tensor) => {
                    let prefix = self.scope().prefix.clone();
                    let content = Content { name: i.name.clone(), prefix, tensor, overridable: i.overridable };
                    self.define(&i.name, Entry::Content(Rc::new(content)));
                }
                Err(message) => {
                    self.value_fault(&i.name, message);
                    self.define(&i.name, Entry::Missing);
                }
            }
        }
    }
}

fn dense(i: &Initialiser) -> Result<Tensor, String> {
    match &i.content {
        InitialiserContent::Dense(t) => to_tensor(t),
        InitialiserContent::Sparse(t) => to_dense(t),
    }
}
