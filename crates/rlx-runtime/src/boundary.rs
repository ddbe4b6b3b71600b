//! Conversion at the boundary: f32 on the caller's side, 16-bit floats on the program's, to nearest even. Nothing else passes through f32.

use std::borrow::Cow;

use half::{bf16, f16};
use rlx_compile::error::InputProblem;
use rlx_ir::DType;

/// f32 data as packed bytes of a float dtype. The caller has checked the dtype.
pub(crate) fn from_f32(dtype: DType, x: &[f32]) -> Cow<'_, [u8]> {
    match dtype {
        DType::F16 => x.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect::<Vec<u8>>().into(),
        DType::BF16 => x.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect::<Vec<u8>>().into(),
        _ => bytemuck::cast_slice(x).into(),
    }
}

/// Packed bytes of a result as f32; an error for dtypes that f32 cannot stand for.
pub(crate) fn to_f32(name: &str, dtype: DType, bytes: &[u8]) -> Result<Vec<f32>, InputProblem> {
    Ok(match dtype {
        DType::F32 => bytemuck::pod_collect_to_vec(bytes),
        DType::F16 => bytes.chunks_exact(2).map(|c| bytemuck::pod_read_unaligned::<f16>(c).to_f32()).collect(),
        DType::BF16 => bytes.chunks_exact(2).map(|c| bytemuck::pod_read_unaligned::<bf16>(c).to_f32()).collect(),
        got => {
            return Err(InputProblem::DType { kind: "output", name: name.into(), expected: DType::F32, got });
        }
    })
}
