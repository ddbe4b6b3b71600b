//! What can be wrong with a file as a whole.
//!
//! Each error has a stable code and, where one exists, a hint that says what to do. Faults inside
//! a well-formed file are not errors one by one: [`OnnxError::Invalid`] lists them all.

use std::path::PathBuf;

use crate::fault::Faults;

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// The file cannot be had.
    #[error(transparent)]
    File(#[from] rlx_driver::FileError),
    /// The file has no bytes.
    #[error("the file is empty")]
    Empty,
    /// The first bytes are not those of the expected message.
    #[error("this is not an ONNX file: {found}")]
    NotOnnx {
        /// What the bytes look like.
        found: String,
    },
    /// The file ends inside a field.
    #[error("the file is truncated: the field at byte {offset} needs {needed} bytes, {available} are left")]
    Truncated {
        /// Where the field's content starts.
        offset: usize,
        /// Bytes that the field declares.
        needed: u64,
        /// Bytes that remain.
        available: usize,
    },
    /// The bytes break the rules of protobuf or of the ONNX schema.
    #[error("the file is damaged: {reason}")]
    Malformed {
        /// What is wrong, with the byte offset where it is known.
        reason: String,
    },
    /// A bound of [`crate::Limits`] is exceeded.
    #[error("{what}: {found} exceeds the limit of {limit}")]
    Limit {
        /// What is bounded.
        what: &'static str,
        /// What the file has (a lower bound: reading stops there).
        found: u64,
        /// What is allowed.
        limit: u64,
        /// The field of [`crate::Limits`] that says so.
        option: &'static str,
    },
    /// The model has no graph.
    #[error("the model has no graph")]
    NoGraph,
    /// The format's version is missing, too old or too new.
    #[error("ONNX IR version {found} is not supported (supported: {min} to {max})")]
    IrVersion {
        /// What the file says; 0 when it says nothing.
        found: i64,
        /// The oldest version that is read.
        min: i64,
        /// The newest version that is read.
        max: i64,
    },
    /// The file is well formed, but what it describes is no valid model.
    #[error("{0}")]
    Invalid(Faults),
    /// A file of a test case has a name or content that the case layout does not know.
    #[error("test case {}: {reason}", path.display())]
    Case {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl OnnxError {
    /// A name for the kind of error that stays the same between versions.
    pub fn code(&self) -> &'static str {
        match self {
            OnnxError::File(_) => "onnx.file",
            OnnxError::Empty => "onnx.empty",
            OnnxError::NotOnnx { .. } => "onnx.not-onnx",
            OnnxError::Truncated { .. } => "onnx.truncated",
            OnnxError::Malformed { .. } => "onnx.malformed",
            OnnxError::Limit { .. } => "onnx.limit",
            OnnxError::NoGraph => "onnx.no-graph",
            OnnxError::IrVersion { .. } => "onnx.ir-version",
            OnnxError::Invalid(_) => "onnx.invalid",
            OnnxError::Case { .. } => "onnx.case",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            OnnxError::File(_) => return None,
            OnnxError::Empty => "the export or the download stopped before it wrote anything".into(),
            OnnxError::NotOnnx { .. } => "pass the .onnx file itself, as written by an exporter".into(),
            OnnxError::Truncated { .. } => {
                "copy or download the file again and compare its size with the original".into()
            }
            OnnxError::Malformed { .. } => {
                "check the file with `onnx.checker.check_model`; if that passes, report this".into()
            }
            OnnxError::Limit { option, .. } => {
                format!("if the file is trusted, raise `Limits::{option}`")
            }
            OnnxError::NoGraph => "the file may be truncated at a message boundary, or hold only functions".into(),
            OnnxError::IrVersion { found, max, .. } if found > max => format!(
                "write the model again with an IR version of at most {max} (`onnx.version_converter` \
                 or the exporter's opset option)"
            ),
            OnnxError::IrVersion { .. } => "convert the model with `onnx.version_converter`, or export it again".into(),
            OnnxError::Invalid(faults) => return faults.hint(),
            OnnxError::Case { .. } => "a case folder holds input_0.pb, input_1.pb, … and output_0.pb, …".into(),
        })
    }
}
