//! Errors of the program, each with its exit code.

use std::path::PathBuf;

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// Arguments that do not fit together.
    #[error("{0}")]
    Usage(String),
    /// A file that cannot be read.
    #[error("{}{}", if .0.as_os_str().is_empty() { String::new() } else { format!("{}: ", .0.display()) }, .1)]
    File(PathBuf, String),
    /// A model that cannot be imported.
    #[error("{0}")]
    Model(String),
    /// Compiling failed.
    #[error("{0}")]
    Compile(String),
    /// Inputs that do not fit the model.
    #[error("{0}")]
    Inputs(String),
    /// Running failed.
    #[error("{0}")]
    Run(String),
    /// Results that cannot be written.
    #[error("{path}: {why}", path = .0.display(), why = .1)]
    Output(PathBuf, String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl CliError {
    /// The exit code; 1 is kept for mismatches.
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::Usage(_) => 2,
            CliError::File(..) => 3,
            CliError::Model(_) => 4,
            CliError::Compile(_) => 5,
            CliError::Inputs(_) => 6,
            CliError::Run(_) => 7,
            CliError::Output(..) => 8,
            CliError::Other(_) => 9,
        }
    }
}

impl From<rlx::Error> for CliError {
    fn from(e: rlx::Error) -> Self {
        match &e {
            rlx::Error::Compile(rlx::CompileError::Dump(_)) => CliError::Output("--dump-ir".into(), e.to_string()),
            rlx::Error::Compile(_) | rlx::Error::Graph(_) | rlx::Error::Unavailable(_) => {
                CliError::Compile(e.to_string())
            }
            rlx::Error::Artefact(rlx::ArtefactError::File(f)) => CliError::File(PathBuf::new(), f.to_string()),
            rlx::Error::Artefact(rlx::ArtefactError::Write { path, source }) => {
                CliError::Output(path.clone(), source.to_string())
            }
            rlx::Error::Artefact(_) => CliError::Model(e.to_string()),
            rlx::Error::Run(rlx::RunError::Inputs(_)) => CliError::Inputs(e.to_string()),
            rlx::Error::Run(_) => CliError::Run(e.to_string()),
            _ => CliError::Other(e.to_string()),
        }
    }
}
