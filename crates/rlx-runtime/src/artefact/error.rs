//! Why an artefact could not be saved or loaded.

use std::path::PathBuf;

use rlx_driver::FileError;

/// Why an artefact could not be saved or loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArtefactError {
    /// The file could not be read.
    #[error("[artefact-file] {0}")]
    File(#[from] FileError),
    /// The file could not be written.
    #[error("[artefact-write] cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is no artefact.
    #[error("[artefact-magic] this is no artefact (.rlxa): it does not begin like one")]
    NotOne,
    /// Its container has another format.
    #[error("[artefact-format] the file has format {found}, this version reads format {ours}; compile the model again")]
    Format {
        /// The file's.
        found: u32,
        /// Ours.
        ours: u32,
    },
    /// Its program was made by another version.
    #[error("[artefact-version] the program was made by rlx {found}, this is rlx {ours}; compile the model again")]
    Version {
        /// The file's.
        found: String,
        /// Ours.
        ours: String,
    },
    /// Its program was made for another target.
    #[error(
        "[artefact-target] the program was made for the target `{found}`, the session's device is `{device}` (target `{target}`)"
    )]
    Target {
        /// The file's.
        found: String,
        /// The session's device.
        device: String,
        /// Its target.
        target: String,
    },
    /// Bytes are not those that were written: everything that is damaged.
    #[error("[artefact-damaged] the file is damaged: {}", .0.join("; "))]
    Damaged(Vec<String>),
    /// The program is not well formed.
    #[error("[artefact-program] the program is malformed: {0}")]
    Malformed(String),
    /// Values were left out when it was saved and were not given, or are others: all such parameters.
    #[error("[artefact-sources] parameters that are not in the file: {}; give them with `LoadOptions::source`", .0.join("; "))]
    Sources(Vec<String>),
    /// It has custom ops whose rules are not registered: all of them.
    #[error(
        "[artefact-custom] the program has custom ops that are not registered: {}; register their rules with `rlx::custom::register` (and kernels with `rlx::custom::register_kernel`) before it is loaded",
        .0.join(", ")
    )]
    CustomOps(Vec<String>),
    /// The program cannot be stored.
    #[error("[artefact-unsupported] {0}")]
    Unsupported(String),
}
