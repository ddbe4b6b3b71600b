//! Bytes of a file as one shared buffer, and paths that stay inside a folder.

use std::io;
use std::path::{Component, Path, PathBuf};

use prost::bytes::Bytes;

/// How the bytes of a file reach memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileAccess {
    /// Mapped.
    #[default]
    Map,
    /// Copied.
    Copy,
}

/// The content of a regular file of at most `limit` bytes.
pub(crate) fn load(path: &Path, _access: FileAccess, limit: u64) -> io::Result<Bytes> {
    let size = std::fs::metadata(path)?.len();
    if size > limit {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "the file is too large",
        ));
    }
    std::fs::read(path).map(Bytes::from)
}

/// `relative` under `folder`, or an error when it leaves the folder.
pub(crate) fn resolve_beneath(folder: &Path, relative: &Path) -> io::Result<PathBuf> {
    let refuse = || io::Error::new(io::ErrorKind::PermissionDenied, "outside the folder");
    if !relative
        .components()
        .all(|c| matches!(c, Component::Normal(_) | Component::CurDir))
    {
        return Err(refuse());
    }
    let folder = folder.canonicalize()?;
    let path = folder.join(relative).canonicalize()?;
    if path.starts_with(&folder) {
        Ok(path)
    } else {
        Err(refuse())
    }
}
