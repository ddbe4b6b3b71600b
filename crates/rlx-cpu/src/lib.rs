//! The CPU backend: kernels, the tile machine and the executor.
//!
//! Each kind of kernel has a module with two functions: `plan` makes a plan when sizes are known, `run` runs it; see
//! [`buffers`] for what they share.

pub mod attention;
pub mod buffers;
pub mod contract;
pub mod conv;
pub mod epilogue;
pub mod gemm;
pub mod library;
pub mod map;
pub mod simd;
pub mod space;
pub mod tile;
pub mod window;
