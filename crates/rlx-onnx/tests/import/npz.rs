//! Arrays of an .npz file, little-endian and row-major as NumPy writes them by default.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::path::Path;

use npyz::{DType as NpyType, NpyFile, TypeChar};
use rlx_ir::{DType, Tensor};

/// All arrays by name.
pub fn read(path: &Path) -> BTreeMap<String, Tensor> {
    let file = std::fs::File::open(path).unwrap();
    let mut archive = zip::ZipArchive::new(file).unwrap();
    let mut out = BTreeMap::new();
    for i in 0..archive.len() {
        let mut entry = archive.by_index(i).unwrap();
        let name = entry.name().trim_end_matches(".npy").to_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        out.insert(name, tensor(&bytes));
    }
    out
}

fn tensor(bytes: &[u8]) -> Tensor {
    let npy = NpyFile::new(Cursor::new(bytes)).unwrap();
    let dims: Vec<usize> = npy.shape().iter().map(|&d| d as usize).collect();
    assert_eq!(npy.order(), npyz::Order::C);
    let NpyType::Plain(t) = npy.dtype() else { panic!("structured array") };
    let dtype = match (t.type_char(), t.num_bytes()) {
        (TypeChar::Bool, _) => DType::Bool,
        (TypeChar::Int, Some(4)) => DType::I32,
        (TypeChar::Int, Some(8)) => DType::I64,
        (TypeChar::Uint, Some(1)) => DType::U8,
        (TypeChar::Float, Some(4)) => DType::F32,
        (TypeChar::Float, Some(8)) => DType::F64,
        _ => panic!("arrays of {t} are not in use here"),
    };
    let size = dtype.size().unwrap() * dims.iter().product::<usize>();
    Tensor::from_bytes(dtype, &dims, &bytes[bytes.len() - size..]).unwrap()
}
