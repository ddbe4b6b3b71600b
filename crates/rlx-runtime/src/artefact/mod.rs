//! Artefacts: programs on disk (`.rlxa`) that map into memory and run without being compiled again.
//!
//! ```text
//! header    128 bytes: magic, format, lengths, hash of the program, hash of the header       (container)
//! program   identity, kernels or graph, options, where each tensor lies and its hash           (payload)
//! weights   the bytes of tensors, each from a multiple of 64 (of 4096 where it is that long)
//! ```
//!
//! A program of kernels holds LIR with its prepare program, the values of parameters as they were (the *sources*), and what the backend made
//! of them: results of prepare and packed weights, each with its layout. It is taken by the same version and target alone; what was made for
//! another machine, or in another layout, is made again from the sources. A *graph* (of a backend that keeps no program, or embedded by a
//! macro) is kept in text form and compiled when it is loaded, on any device.
//!
//! **A file is hostile.** Header and program are always checked: hashes, bounds of everything before it is allocated or used, and the
//! structure of the program ([`sound`](rlx_compile::lower::check::sound)); backends check at bind that walks stay within buffers. Weights
//! are checked against their hashes unless the caller trusts the file ([`Verify`]). The hashes (XXH3) show damage, not forgery: a file made
//! to deceive can give wrong results, as any model can, but no more than that.

mod container;
mod error;
mod load;
mod options;
mod payload;
mod save;

use std::collections::BTreeMap;

use rlx_driver::FileAccess;
use rlx_ir::Tensor;

pub use container::reseal;
pub use error::ArtefactError;
pub use load::{Artefact, TensorInfo};
pub use save::{Saved, graph_bytes, write_graph};

pub(crate) use container::hash_all;
pub(crate) use load::Ready;
pub(crate) use save::{custom_ops, write_kernels};

/// How much of an artefact is checked against its hashes. Header and program always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verify {
    /// All.
    #[default]
    All,
    /// Header and program alone: for files that nobody else writes. Weights are then read when they are used.
    Program,
}

/// How an artefact is loaded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoadOptions {
    /// What is checked.
    pub verify: Verify,
    /// How the file gets into memory.
    pub access: FileAccess,
    /// Values of parameters that were left out when it was saved, by name.
    pub sources: BTreeMap<String, Tensor>,
    /// The sources are known to be those that were left out: their contents are not looked at.
    pub(crate) trusted_sources: bool,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions { verify: Verify::All, access: FileAccess::Map, sources: BTreeMap::new(), trusted_sources: false }
    }
}

impl LoadOptions {
    /// Checks everything, maps the file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what is checked.
    #[must_use]
    pub fn verify(mut self, verify: Verify) -> Self {
        self.verify = verify;
        self
    }

    /// Sets how the file gets into memory: mapped, or copied where others may change it meanwhile.
    #[must_use]
    pub fn access(mut self, access: FileAccess) -> Self {
        self.access = access;
        self
    }

    /// The sources are those that were left out, and their contents need not be looked at: for what stands in the same program.
    #[must_use]
    pub fn trust_sources(mut self) -> Self {
        self.trusted_sources = true;
        self
    }

    /// Gives the value of a parameter that was left out.
    #[must_use]
    pub fn source(mut self, name: impl Into<String>, value: Tensor) -> Self {
        self.sources.insert(name.into(), value);
        self
    }
}

/// What goes into an artefact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SaveOptions {
    /// Whether the values of parameters go into the file, from which it can be rebuilt on another machine. If not, they are named with their
    /// hashes, and whoever loads it gives them ([`LoadOptions::source`]).
    pub sources: bool,
}

impl Default for SaveOptions {
    fn default() -> Self {
        SaveOptions { sources: true }
    }
}

impl SaveOptions {
    /// Everything goes in.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether the values of parameters go in.
    #[must_use]
    pub fn sources(mut self, sources: bool) -> Self {
        self.sources = sources;
        self
    }
}
