//! Errors of sessions.

use rlx_compile::error::{CompileError, RunError};
use rlx_driver::Availability;
use rlx_ir::IrError;

/// Whatever stands between a graph and its results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device cannot be used, and why.
    #[error("[session-device] {0}")]
    Unavailable(Availability),
    /// The graph is not well formed.
    #[error(transparent)]
    Graph(#[from] IrError),
    /// It could not be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A file of parameters could not be read.
    #[error(transparent)]
    Params(#[from] crate::safetensors::SafetensorsError),
    /// An artefact could not be saved or loaded.
    #[error(transparent)]
    Artefact(#[from] crate::artefact::ArtefactError),
    /// It could not be run.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// The result of a session's functions.
pub type Result<T> = std::result::Result<T, Error>;
