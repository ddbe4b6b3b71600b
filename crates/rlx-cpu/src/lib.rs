//! The CPU backend: kernels, the tile machine and the executor.

pub mod simd;
