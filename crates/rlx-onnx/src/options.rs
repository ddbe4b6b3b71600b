//! What a caller may choose about reading: how bytes reach memory, and the limits that keep a
//! hostile file from using more than its share.

use rlx_driver::FileAccess;

/// How a file is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOptions {
    /// Whether files are mapped (trusted ones) or copied (those that may change underneath).
    pub access: FileAccess,
    /// What is refused.
    pub limits: Limits,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions { access: FileAccess::Map, limits: Limits::default() }
    }
}

/// Bounds on what one model may hold. The defaults admit every model that the format's own tools
/// can write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one file, external data included.
    pub max_file_bytes: u64,
    /// Nodes in all graphs and functions together.
    pub max_nodes: u64,
    /// Graphs inside graphs, the main graph counted as the first level. The wire decoder's own
    /// bound of 100 nested messages is met at 33.
    pub max_graph_depth: usize,
    /// Bytes of one tensor.
    pub max_tensor_bytes: usize,
    /// Bytes that the decoded structure may take in memory; data that stays in the file is not
    /// counted.
    pub max_decoded_bytes: u64,
    /// Structural faults that are listed; more are only counted.
    pub max_faults: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_file_bytes: 1 << 38,
            max_nodes: 1 << 18,
            max_graph_depth: 32,
            max_tensor_bytes: 1 << 37,
            max_decoded_bytes: 2 << 30,
            max_faults: 100,
        }
    }
}
