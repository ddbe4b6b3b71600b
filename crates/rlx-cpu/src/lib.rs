//! The CPU backend: kernels, the tile machine and the executor.

pub mod gemm;
pub mod simd;
