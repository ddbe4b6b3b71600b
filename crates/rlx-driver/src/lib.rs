//! What RLX knows of the machine below it: devices, host facts, aligned memory, files and threads.
//!
//! A leaf of the workspace: it knows no other crate of ours. All that touches the operating system from outside a
//! kernel is here, and nothing here reads the environment.
//!
//! - [`Device`], [`Availability`]: what a program can be compiled for, and why not.
//! - [`HostFacts`], [`Isa`]: cores, caches, instruction sets.
//! - [`AlignedBuffer`], [`Slab`]: heap memory for arenas and weights.
//! - [`CodePages`]: machine code made at run time.
//! - [`MappedFile`], [`FileSlice`], [`resolve_beneath`]: files, and finding them safely.
//! - [`ThreadPool`], [`Region`]: fork and join.

mod beneath;
mod buffer;
mod code;
mod device;
mod host;
mod mapped;
mod pool;
#[cfg(test)]
mod scratch;

pub use beneath::{PathError, resolve_beneath};
pub use buffer::{AlignedBuffer, BufferError, DEFAULT_ALIGN, HUGE_PAGE, Slab};
pub use code::CodePages;
pub use device::{Availability, Device, ParseDeviceError, feature_compiled, host_availability};
pub use host::{Caches, Cores, HostFacts, Isa, ParseIsaError};
pub use mapped::{FileAccess, FileError, FileSlice, MappedFile};
pub use pool::{Region, ThreadPool};
