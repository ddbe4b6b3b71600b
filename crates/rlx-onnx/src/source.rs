//! The files that a model's bytes lie in.
//!
//! Decoding and tensors pass bytes around as [`Bytes`], which keep their file open. [`Sources`] finds the way back: a
//! runtime that has packed a weight elsewhere wants the file, to give its pages back.

use std::path::Path;
use std::sync::Arc;

use prost::bytes::Bytes;
use rlx_driver::{FileAccess, FileError, FileSlice, MappedFile};

use crate::options::ReadOptions;

/// The files of one model: the model itself and its external data.
#[derive(Debug, Clone, Default)]
pub struct Sources(Vec<Arc<MappedFile>>);

/// A file as the owner of shared bytes.
struct Owner(Arc<MappedFile>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl Sources {
    /// The files.
    pub fn files(&self) -> &[Arc<MappedFile>] {
        &self.0
    }

    /// The part of a file that these bytes are; `None` for bytes that were decoded into memory.
    pub fn locate(&self, bytes: &[u8]) -> Option<FileSlice> {
        let at = bytes.as_ptr().addr();
        self.0.iter().find_map(|file| {
            let offset = at.checked_sub(file.as_slice().as_ptr().addr())?;
            file.slice(offset as u64, bytes.len() as u64).ok()
        })
    }

    /// Opens a regular file within the limits.
    pub(crate) fn open(&mut self, path: &Path, options: &ReadOptions) -> Result<Bytes, FileError> {
        let limit = options.limits.max_file_bytes;
        let access = match options.access {
            FileAccess::Copy { max_bytes } => FileAccess::Copy { max_bytes: max_bytes.min(limit) },
            access => access,
        };
        let file = Arc::new(MappedFile::open_as(path, access)?);
        let len = file.len() as u64;
        if len > limit {
            return Err(FileError::TooLarge { path: path.to_owned(), len, limit });
        }
        if file.is_empty() {
            return Ok(Bytes::new());
        }
        self.0.push(Arc::clone(&file));
        Ok(Bytes::from_owner(Owner(file)))
    }
}
