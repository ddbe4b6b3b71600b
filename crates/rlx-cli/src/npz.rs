//! Reading and writing .npy and .npz files as tensors.

use std::fs::File;
use std::io::{Cursor, Read, Write as _};
use std::path::Path;

use npyz::{DType as NpyType, NpyFile, TypeChar};
use rlx::{DType, Tensor};

use crate::error::CliError;

/// Arrays larger than this are refused before anything is allocated.
const MAX_BYTES: u64 = 16 << 30;

fn file_error(path: &Path) -> impl Fn(String) -> CliError + '_ {
    move |why| CliError::File(path.to_path_buf(), why)
}

/// Reads a .npy file.
pub fn read_npy(path: &Path) -> Result<Tensor, CliError> {
    let fail = file_error(path);
    let bytes = std::fs::read(path).map_err(|e| fail(e.to_string()))?;
    parse_npy(&bytes).map_err(fail)
}

/// Reads all arrays of a .npz file, in order of name.
pub fn read_npz(path: &Path) -> Result<Vec<(String, Tensor)>, CliError> {
    let fail = file_error(path);
    let file = File::open(path).map_err(|e| fail(e.to_string()))?;
    let mut archive = zip::ZipArchive::new(file).map_err(|e| fail(format!("not an .npz archive: {e}")))?;
    let mut out = Vec::new();
    for i in 0..archive.len() {
        let entry = archive.by_index(i).map_err(|e| fail(e.to_string()))?;
        let name = entry.name().to_string();
        let Some(name) = name.strip_suffix(".npy").map(str::to_string) else { continue };
        if entry.size() > MAX_BYTES {
            return Err(fail(format!("array `{name}` claims {} bytes", entry.size())));
        }
        let mut bytes = Vec::new();
        entry.take(MAX_BYTES).read_to_end(&mut bytes).map_err(|e| fail(format!("array `{name}`: {e}")))?;
        out.push((name.clone(), parse_npy(&bytes).map_err(|e| fail(format!("array `{name}`: {e}")))?));
    }
    out.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(out)
}

/// Refuses sizes whose product does not fit a machine word: the header's reader multiplies them unchecked.
fn check_sizes(bytes: &[u8]) -> Result<(), String> {
    let header = data_start(bytes).and_then(|end| bytes.get(..end)).unwrap_or_default();
    let header = String::from_utf8_lossy(header);
    let Some((_, shape)) = header.split_once("shape") else { return Ok(()) };
    let shape = shape.split(')').next().unwrap_or_default();
    let numbers = shape.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty());
    let mut product = 1u64;
    for n in numbers {
        // Zeros come into the product last: what stands beside them must fit too, as it is multiplied before or after.
        let n: u64 = n.parse().map_err(|_| format!("size {n} is too large"))?;
        product = product.checked_mul(n.max(1)).ok_or("its sizes are too large")?;
    }
    Ok(())
}

fn parse_npy(bytes: &[u8]) -> Result<Tensor, String> {
    check_sizes(bytes)?;
    let npy = NpyFile::new(Cursor::new(bytes)).map_err(|e| format!("not a .npy file: {e}"))?;
    let dims = npy
        .shape()
        .iter()
        .map(|&d| usize::try_from(d))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| "a size is too large".to_string())?;
    let fortran = npy.order() == npyz::Order::Fortran;
    let NpyType::Plain(t) = npy.dtype() else { return Err("structured arrays are not supported".into()) };
    let big = t.endianness() == npyz::Endianness::Big;
    let dtype = match (t.type_char(), t.num_bytes()) {
        (TypeChar::Bool, _) => DType::Bool,
        (TypeChar::Int, Some(1)) => DType::I8,
        (TypeChar::Int, Some(2)) => DType::I16,
        (TypeChar::Int, Some(4)) => DType::I32,
        (TypeChar::Int, Some(8)) => DType::I64,
        (TypeChar::Uint, Some(1)) => DType::U8,
        (TypeChar::Uint, Some(2)) => DType::U16,
        (TypeChar::Uint, Some(4)) => DType::U32,
        (TypeChar::Uint, Some(8)) => DType::U64,
        (TypeChar::Float, Some(2)) => DType::F16,
        (TypeChar::Float, Some(4)) => DType::F32,
        (TypeChar::Float, Some(8)) => DType::F64,
        (TypeChar::Complex, Some(8)) => DType::C64,
        (TypeChar::Complex, Some(16)) => DType::C128,
        _ => return Err(format!("arrays of `{t}` are not supported")),
    };
    let size = dtype.size().unwrap_or(1);
    let n = rlx::ir::tensor::checked_numel(&dims).map_err(|e| e.to_string())?;
    let start = data_start(bytes).ok_or("not a .npy file: the header is cut off")?;
    let found = bytes.len().saturating_sub(start);
    if found < n * size {
        return Err(format!("needs {} bytes of data, the file has {found}", n * size));
    }
    let mut data = bytes.get(start..start + n * size).unwrap_or(&[]).to_vec();
    if big {
        let unit = if dtype.is_complex() { size / 2 } else { size };
        data.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
    }
    if fortran && dims.len() > 1 {
        let reversed: Vec<usize> = dims.iter().rev().copied().collect();
        let t = Tensor::from_bytes(dtype, &reversed, &data).map_err(|e| e.to_string())?;
        let strides = rlx::ir::eval::row_major_strides(&reversed);
        let strides: Vec<usize> = strides.into_iter().rev().collect();
        return rlx::ir::eval::gather_elements(&t, &dims, |i| i.iter().zip(&strides).map(|(i, s)| i * s).sum())
            .map_err(|e| e.to_string());
    }
    Tensor::from_bytes(dtype, &dims, &data).map_err(|e| e.to_string())
}

/// Where the data begins: after magic, version, and a header whose length stands in 2 bytes (version 1) or 4.
fn data_start(bytes: &[u8]) -> Option<usize> {
    let length = |n: usize| bytes.get(8..8 + n).map(|b| b.iter().rev().fold(0usize, |a, &x| a << 8 | usize::from(x)));
    match bytes.get(6)? {
        1 => length(2)?.checked_add(10),
        _ => length(4)?.checked_add(12),
    }
}

/// Bytes of a .npy file. Dtypes that NumPy lacks are widened to f32.
fn npy_bytes(t: &Tensor) -> Result<Vec<u8>, String> {
    let code = match t.dtype() {
        DType::Bool => "|b1",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U8 => "|u1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::C64 => "<c8",
        DType::C128 => "<c16",
        _ => {
            let wide = match t.elements() {
                rlx::ir::element::Elements::Str(_) => return Err("strings cannot be written to .npz".into()),
                e => Tensor::from_elements(if t.dtype().is_int() { DType::I64 } else { DType::F32 }, t.dims(), &e),
            };
            return npy_bytes(&wide.map_err(|e| e.to_string())?);
        }
    };
    let shape: Vec<u64> = t.dims().iter().map(|&d| d as u64).collect();
    let mut out = Vec::new();
    out.extend_from_slice(&npy_header(code, &shape));
    out.extend_from_slice(t.bytes());
    Ok(out)
}

/// The header of format version 1.0.
fn npy_header(code: &str, shape: &[u64]) -> Vec<u8> {
    let dims: String = shape.iter().map(|d| format!("{d}, ")).collect();
    let mut text = format!("{{'descr': '{code}', 'fortran_order': False, 'shape': ({}), }}", dims.trim_end());
    let total = (10 + text.len() + 1).next_multiple_of(64);
    while 10 + text.len() + 1 < total {
        text.push(' ');
    }
    text.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out
}

/// Writes arrays to a .npz file.
pub fn write_npz(path: &Path, arrays: &[(String, &Tensor)]) -> Result<(), CliError> {
    let fail = |why: String| CliError::Output(path.to_path_buf(), why);
    let file = File::create(path).map_err(|e| fail(e.to_string()))?;
    let mut archive = zip::ZipWriter::new(file);
    let options =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored).large_file(true);
    for (name, t) in arrays {
        archive.start_file(format!("{name}.npy"), options).map_err(|e| fail(e.to_string()))?;
        let bytes = npy_bytes(t).map_err(|e| fail(format!("array `{name}`: {e}")))?;
        archive.write_all(&bytes).map_err(|e| fail(e.to_string()))?;
    }
    archive.finish().map_err(|e| fail(e.to_string()))?;
    Ok(())
}

#[cfg(test)]
mod tests;
