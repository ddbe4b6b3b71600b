//! Reading safetensors files: a length, a JSON header that says where each tensor lies, and the data. The file is mapped, and tensors are
//! parts of the map.
//!
//! Every number in the header is checked before it is used: lengths against the file, ranges against shapes and dtypes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rlx_driver::{FileError, MappedFile};
use rlx_ir::{DType, Tensor};

/// Headers larger than this are refused.
const MAX_HEADER: u64 = 100 << 20;

/// What became of the tensors of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedParams {
    /// Parameters that were set.
    pub set: Vec<String>,
    /// Tensors that are no parameter of the program.
    pub unused: Vec<String>,
    /// Parameters that the file does not have and that have no default.
    pub missing: Vec<String>,
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SafetensorsError {
    /// It could not be mapped.
    #[error("[safetensors-file] {0}")]
    File(#[from] FileError),
    /// It is not what it says.
    #[error("[safetensors-format] {}: {}", .path.display(), .faults.join("; "))]
    Format {
        /// The file.
        path: PathBuf,
        /// Everything that is wrong.
        faults: Vec<String>,
    },
}

/// The tensors of a file in the order of their names, mapped and not copied. The file must not change while they live.
pub fn read(path: impl AsRef<Path>) -> Result<Vec<(String, Tensor)>, SafetensorsError> {
    let file = Arc::new(MappedFile::open(path)?);
    tensors(&file).map_err(|faults| SafetensorsError::Format { path: file.path().to_path_buf(), faults })
}

fn tensors(file: &Arc<MappedFile>) -> Result<Vec<(String, Tensor)>, Vec<String>> {
    let one = |s: String| vec![s];
    let bytes = file.as_slice();
    let (head, rest) = bytes.split_first_chunk::<8>().ok_or_else(|| one("it has no header".into()))?;
    let length = u64::from_le_bytes(*head);
    if length > MAX_HEADER {
        return Err(one(format!("its header would have {length} bytes, more than the limit of {MAX_HEADER}")));
    }
    let header = usize::try_from(length).ok().and_then(|n| rest.get(..n));
    let header = header.ok_or_else(|| one(format!("its header of {length} bytes reaches beyond its end")))?;
    let json: serde_json::Value = serde_json::from_slice(header).map_err(|e| one(format!("its header: {e}")))?;
    let entries = json.as_object().ok_or_else(|| one("its header is no JSON object".into()))?;
    let start = 8 + length;
    let (mut out, mut faults) = (Vec::new(), Vec::new());
    for (name, entry) in entries.iter().filter(|(n, _)| *n != "__metadata__") {
        match tensor(file, start, entry) {
            Ok(t) => out.push((name.clone(), t)),
            Err(why) => faults.push(format!("tensor `{name}`: {why}")),
        }
    }
    if faults.is_empty() { Ok(out) } else { Err(faults) }
}

fn tensor(file: &Arc<MappedFile>, start: u64, entry: &serde_json::Value) -> Result<Tensor, String> {
    let text = entry.get("dtype").and_then(|d| d.as_str()).ok_or("it has no dtype")?;
    let dtype = dtype(text).ok_or_else(|| format!("dtype `{text}` is not known"))?;
    let numbers = |key: &str| -> Result<Vec<u64>, String> {
        let list = entry.get(key).and_then(|v| v.as_array()).ok_or_else(|| format!("it has no {key}"))?;
        list.iter().map(|n| n.as_u64().ok_or_else(|| format!("{key} has {n}"))).collect()
    };
    let dims: Vec<usize> = numbers("shape")?
        .into_iter()
        .map(|d| usize::try_from(d).map_err(|_| format!("size {d} is too large")))
        .collect::<Result<_, _>>()?;
    let [from, to] = numbers("data_offsets")?[..] else { return Err("data_offsets are not two numbers".into()) };
    let len = to.checked_sub(from).ok_or_else(|| format!("data_offsets {from} to {to} run backwards"))?;
    let at = start.checked_add(from).ok_or("its offset is too large")?;
    let part = file.slice(at, len).map_err(|e| e.to_string())?;
    Tensor::from_source(dtype, &dims, Arc::new(part)).map_err(|e| e.to_string())
}

fn dtype(text: &str) -> Option<DType> {
    Some(match text {
        "BOOL" => DType::Bool,
        "U8" => DType::U8,
        "I8" => DType::I8,
        "U16" => DType::U16,
        "I16" => DType::I16,
        "U32" => DType::U32,
        "I32" => DType::I32,
        "U64" => DType::U64,
        "I64" => DType::I64,
        "F16" => DType::F16,
        "BF16" => DType::BF16,
        "F32" => DType::F32,
        "F64" => DType::F64,
        "F8_E4M3" => DType::F8E4M3FN,
        "F8_E5M2" => DType::F8E5M2,
        "C64" => DType::C64,
        _ => return None,
    })
}
