//! The CPU backend: kernels, the tile machine and the executor.
//!
//! - [`CpuBackend`] compiles a LIR module to a [`CpuExecutable`]: [`program`] holds what is immutable, [`bind`] makes
//!   sizes, offsets and plans from the shapes of a call, [`exec`] runs kernels in a [`frame`].
//! - Each kind of kernel has a module with two functions: `plan` makes a plan when sizes are known, `run` runs it; see
//!   [`buffers`] for what they share, and [`classes`] for kernels that share a plan.
//! - [`tile`] runs scalar programs, [`jit`] makes machine code of them, [`gemm`] multiplies matrices, [`simd`] is what both are made of.

pub mod attention;
mod backend;
pub mod bind;
pub mod buffers;
pub mod classes;
pub mod contract;
pub mod control;
pub mod conv;
pub mod epilogue;
pub mod exec;
mod executable;
pub mod frame;
pub mod gemm;
pub mod jit;
pub mod library;
pub mod map;
mod memory;
pub mod params;
mod peak;
pub mod program;
pub mod row;
pub mod simd;
pub mod space;
pub mod states;
mod store;
pub mod tile;
pub mod window;
mod work;

pub use backend::CpuBackend;
pub use executable::CpuExecutable;
pub use library::{CustomKernel, KernelInput, KernelOutput, register_kernel};

#[cfg(test)]
mod rig;
#[cfg(test)]
mod testing;
