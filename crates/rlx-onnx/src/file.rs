//! An ONNX file: its bytes, decoded and within limits, before its graph is looked at.

use std::path::{Path, PathBuf};

use prost::bytes::Bytes;

use crate::error::OnnxError;
use crate::external::ExternalFiles;
use crate::model::{Model, read_model};
use crate::options::{Limits, ReadOptions};
use crate::proto::ModelProto;
use crate::scan::scan;
use crate::schema::Message;
use crate::source::Sources;

/// The oldest and the newest IR version that are read. Operator sets came with version 3.
const IR_VERSIONS: (i64, i64) = (3, 14);

/// A decoded file. Weights still share the file's memory.
#[derive(Debug)]
pub struct OnnxFile {
    proto: ModelProto,
    folder: Option<PathBuf>,
    sources: Sources,
    options: ReadOptions,
}

impl OnnxFile {
    /// Opens a file. External data is looked for in the folder that `path` names.
    pub fn open(path: impl AsRef<Path>, options: &ReadOptions) -> Result<OnnxFile, OnnxError> {
        let path = path.as_ref();
        let mut sources = Sources::default();
        let bytes = sources.open(path, options)?;
        let folder = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        OnnxFile::new(bytes, Some(folder), sources, options)
    }

    /// Reads a file's bytes, which are shared, not copied. External data is looked for in
    /// `folder`; without one, a model that has any is refused when it is read.
    pub fn from_bytes(
        bytes: impl Into<Bytes>,
        folder: Option<&Path>,
        options: &ReadOptions,
    ) -> Result<OnnxFile, OnnxError> {
        OnnxFile::new(bytes.into(), folder, Sources::default(), options)
    }

    fn new(
        bytes: Bytes,
        folder: Option<&Path>,
        sources: Sources,
        options: &ReadOptions,
    ) -> Result<OnnxFile, OnnxError> {
        let proto: ModelProto = decode(Message::Model, bytes, &options.limits)?;
        let found = proto.ir_version.unwrap_or_default();
        let (min, max) = IR_VERSIONS;
        if !(min..=max).contains(&found) {
            return Err(OnnxError::IrVersion { found, min, max });
        }
        if proto.graph.is_none() {
            return Err(OnnxError::NoGraph);
        }
        Ok(OnnxFile { proto, folder: folder.map(Path::to_owned), sources, options: options.clone() })
    }

    /// The message as decoded.
    pub fn proto(&self) -> &ModelProto {
        &self.proto
    }

    /// The model that the file describes, or the list of all that is wrong with it.
    pub fn into_model(self) -> Result<Model, OnnxError> {
        let external = ExternalFiles::new(self.folder.as_deref(), self.sources, &self.options);
        read_model(self.proto, external, &self.options.limits)
    }
}

/// Decodes a message that the scan admits.
pub(crate) fn decode<M: prost::Message + Default>(
    root: Message,
    bytes: Bytes,
    limits: &Limits,
) -> Result<M, OnnxError> {
    scan(root, &bytes, limits)?;
    M::decode(bytes).map_err(|error| OnnxError::Malformed { reason: error.to_string() })
}
