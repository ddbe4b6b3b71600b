//! What an executable tells of itself: counters, bindings that were not found, memory, times.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Counters of an executable, for tests and reports. A clone starts at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecStats {
    /// Shapes bound anew, those of nested and prepare programs included.
    pub binds: u64,
    /// Shapes found in the cache.
    pub bind_hits: u64,
    /// Bindings that the cache let go.
    pub bind_evictions: u64,
    /// Bindings of the main program that the cache holds now.
    pub bind_entries: u64,
    /// Bytes that these take, about.
    pub bind_bytes: u64,
    /// Runs of the prepare program.
    pub prepares: u64,
    /// Runs of the main program.
    pub runs: u64,
    /// Kernels run in main programs.
    pub kernels: u64,
    /// Bytes copied besides what kernels do: inputs whose memory is not aligned, states that are not written in place, outputs that lie
    /// elsewhere than asked.
    pub bytes_moved: u64,
    /// Arena bytes of the latest binding.
    pub arena_bytes: u64,
    /// Bytes of packed and prepared parameters.
    pub prepared_bytes: u64,
    /// Those of them that were made before and lie in an artefact.
    pub stored_bytes: u64,
    /// Time of the latest binding.
    pub last_bind: Duration,
}

/// Why a shape was not found in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MissReason {
    /// The program was never bound before.
    First,
    /// These sizes were never asked for, as far as is remembered.
    NewSizes,
    /// These sizes were bound and let go, since the cache holds no more bindings.
    EvictedByCount,
    /// These sizes were bound and let go, since the cache holds no more bytes.
    EvictedByBytes,
}

impl fmt::Display for MissReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MissReason::First => "first binding",
            MissReason::NewSizes => "new sizes",
            MissReason::EvictedByCount => "let go for the number of bindings",
            MissReason::EvictedByBytes => "let go for the bytes of bindings",
        })
    }
}

/// A shape that had to be bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindMiss {
    /// Name of the program.
    pub program: String,
    /// Why it was not found.
    pub reason: MissReason,
    /// The sizes.
    pub sizes: BTreeMap<String, i64>,
    /// Time that binding took.
    pub time: Duration,
    /// Bytes that the binding takes in the cache, about.
    pub bytes: u64,
}

/// One kernel's time in a profiled run.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelProfile {
    /// Kind of the kernel.
    pub kind: String,
    /// Source nodes.
    pub loc: Arc<str>,
    /// Start, since the run began.
    pub start: Duration,
    /// Time it took.
    pub time: Duration,
    /// Time it took without the kernels of nested programs, which have entries of their own before it.
    pub own: Duration,
    /// Bytes read and written, each once.
    pub bytes: u64,
    /// Arithmetic operations.
    pub ops: u64,
}
