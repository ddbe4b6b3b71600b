//! What the program's bytes hold, as plain data in postcard's encoding.
//!
//! The identity comes first, so that a file of another version is refused before anything else of it is read.

use rlx_compile::lir::LirModule;
use rlx_ir::DType;
use serde::{Deserialize, Serialize};

use super::options::Stored;

/// Tensors of at most this many bytes stand within the program.
pub const INLINE: usize = 256;

/// Whose program it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The version of programs of kernels ([`rlx_compile::version`]), or of the crate for a graph.
    pub version: String,
    /// The target's name; empty for a graph.
    pub target: String,
    /// The instruction set of the machine that made it.
    pub host: String,
    /// Whether it is a program of kernels.
    pub kernels: bool,
}

/// Everything else.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Body {
    /// The program, with empty tensors in place of its own.
    pub program: Program,
    /// The tensors.
    pub tensors: Vec<Entry>,
    /// What the backend made of it.
    pub made: Vec<MadeEntry>,
    /// Options.
    pub options: Stored,
    /// Names of the custom ops that it has.
    pub customs: Vec<String>,
    /// What is done otherwise than options asked: option, asked, got, why.
    pub fallbacks: Vec<[String; 4]>,
}

/// The program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Program {
    /// Kernels. The numbers are those of its tensors in the order of [`LirModule::for_each_tensor`].
    Kernels(Box<LirModule>, Vec<u32>),
    /// A graph's text, and its large tensors by name: parameters, then states.
    Graph {
        /// The text form.
        text: String,
        /// Default values.
        params: Vec<(String, u32)>,
        /// First values.
        states: Vec<(String, u32)>,
    },
}

/// A tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub dims: Vec<usize>,
    /// Contents.
    pub place: Place,
}

/// Where contents lie.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Place {
    /// Here.
    Inline(Vec<u8>),
    /// Here, as strings.
    Strings(Vec<String>),
    /// In a section: offset from the first one, length, hash.
    Section(u64, u64, u128),
    /// With whoever loads the file, under the name of a parameter: name, length, hash.
    Given(String, u64, u128),
}

/// What a backend made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeEntry {
    /// What it is of.
    pub key: String,
    /// Its layout.
    pub layout: String,
    /// The number of its tensor.
    pub tensor: u32,
}
