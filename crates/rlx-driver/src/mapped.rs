//! Read-only files in memory: mapped, or copied where the file is not trusted to stay as it is.
//!
//! Invariants: only regular files are opened (a pipe or a device would block or never end); a size is checked before
//! anything is allocated; bytes never change through this type.
//!
//! A mapped file that another process writes to changes under its reader, and one that is cut short ends the process
//! with a signal. No program can guard against that, so [`FileAccess::Map`] is for files whose owner is trusted not to
//! do so; [`FileAccess::Copy`] is for all others.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::buffer::{AlignedBuffer, BufferError};

/// How a file gets into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileAccess {
    /// Map it: pages load when read, and other processes share them. For trusted files.
    Map,
    /// Read it into private memory, if it is no larger than `max_bytes`.
    Copy {
        /// The largest size accepted.
        max_bytes: u64,
    },
}

/// The bytes of a file.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Mapped(memmap2::Mmap),
    Owned(AlignedBuffer),
}

/// Why a file could not be brought into memory, or a part of it not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A folder, pipe, socket or device.
    #[error("{} is not a regular file", path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
    },
    /// Larger than the caller accepts, or than memory can be addressed.
    #[error("{} has {len} bytes, more than the limit of {limit}; raise the limit or map the file", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        len: u64,
        /// The limit.
        limit: u64,
    },
    /// No memory for the copy.
    #[error("cannot copy {}: {source}", path.display())]
    Memory {
        /// The file.
        path: PathBuf,
        /// The failed allocation.
        source: BufferError,
    },
    /// A range reaches beyond the file's end.
    #[error(
        "bytes {offset}+{len} of {} are out of range: the file has {file_len} bytes; it may be truncated",
        path.display()
    )]
    OutOfRange {
        /// The file.
        path: PathBuf,
        /// Start of the range.
        offset: u64,
        /// Length of the range.
        len: u64,
        /// Bytes in the file.
        file_len: u64,
    },
}

impl MappedFile {
    /// Opens a file in the way asked for.
    pub fn open_as(path: impl AsRef<Path>, access: FileAccess) -> Result<Self, FileError> {
        match access {
            FileAccess::Map => Self::open(path),
            FileAccess::Copy { max_bytes } => Self::read_copy(path, max_bytes),
        }
    }

    /// Maps a trusted file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FileError> {
        let path = path.as_ref();
        let (file, len) = open_regular(path)?;
        if len == 0 {
            // Systems refuse to map nothing.
            return Self::owned(path, 0);
        }
        // SAFETY: the map is read-only and private. That nobody cuts or rewrites the file meanwhile is the condition
        // that this module states for mapping.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(io_error(path, "map"))?;
        Ok(MappedFile { path: path.to_path_buf(), bytes: Bytes::Mapped(map) })
    }

    /// Reads a file of at most `max_bytes` into private memory.
    pub fn read_copy(path: impl AsRef<Path>, max_bytes: u64) -> Result<Self, FileError> {
        let path = path.as_ref();
        let (mut file, len) = open_regular(path)?;
        let size = usize::try_from(len).ok().filter(|_| len <= max_bytes);
        let Some(size) = size else {
            return Err(FileError::TooLarge { path: path.to_path_buf(), len, limit: max_bytes.min(isize::MAX as u64) });
        };
        let mut copy = Self::owned(path, size)?;
        if let Bytes::Owned(buffer) = &mut copy.bytes {
            // A file that shrinks meanwhile is an error; what is appended meanwhile is not read.
            file.read_exact(buffer.as_mut_slice()).map_err(io_error(path, "read"))?;
        }
        Ok(copy)
    }

    fn owned(path: &Path, len: usize) -> Result<Self, FileError> {
        let buffer =
            AlignedBuffer::zeroed(len).map_err(|source| FileError::Memory { path: path.to_path_buf(), source })?;
        Ok(MappedFile { path: path.to_path_buf(), bytes: Bytes::Owned(buffer) })
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All bytes.
    pub fn as_slice(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map,
            Bytes::Owned(buffer) => buffer.as_slice(),
        }
    }

    /// A part of the file that keeps the whole open. Offsets come from files, hence their type.
    pub fn slice(self: &Arc<Self>, offset: u64, len: u64) -> Result<FileSlice, FileError> {
        let range = offset.checked_add(len).and_then(|end| {
            let range = usize::try_from(offset).ok()?..usize::try_from(end).ok()?;
            self.as_slice().get(range.clone()).map(|_| range)
        });
        match range {
            Some(range) => Ok(FileSlice { file: Arc::clone(self), range }),
            None => Err(self.out_of_range(offset, len)),
        }
    }

    /// Gives the memory of whole pages inside `range` back to the system; a later read loads them from the file again.
    ///
    /// For weights that now stand elsewhere in packed form. A copy has no file to load from again and keeps its bytes.
    pub fn advise_dont_need(&self, range: Range<usize>) -> Result<(), FileError> {
        if self.as_slice().get(range.clone()).is_none() {
            let len = range.end.saturating_sub(range.start);
            return Err(self.out_of_range(range.start as u64, len as u64));
        }
        match &self.bytes {
            Bytes::Mapped(map) => release(map, range).map_err(io_error(&self.path, "release pages of")),
            Bytes::Owned(_) => Ok(()),
        }
    }

    fn out_of_range(&self, offset: u64, len: u64) -> FileError {
        FileError::OutOfRange { path: self.path.clone(), offset, len, file_len: self.len() as u64 }
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

/// A part of a file; cheap to clone, keeps the file open.
#[derive(Clone, Debug)]
pub struct FileSlice {
    file: Arc<MappedFile>,
    /// Lies within the file.
    range: Range<usize>,
}

impl FileSlice {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.file.as_slice().get(self.range.clone()).unwrap_or(&[])
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Where it starts in the file.
    pub fn offset(&self) -> usize {
        self.range.start
    }

    /// The file it is part of.
    pub fn file(&self) -> &Arc<MappedFile> {
        &self.file
    }

    /// See [`MappedFile::advise_dont_need`].
    pub fn advise_dont_need(&self) -> Result<(), FileError> {
        self.file.advise_dont_need(self.range.clone())
    }
}

impl AsRef<[u8]> for FileSlice {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

fn io_error(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> FileError {
    move |source| FileError::Io { path: path.to_path_buf(), action, source }
}

/// Opens a file and gives its length, if it is a regular one. The check is on the open file, not on a path that could
/// meanwhile name another.
fn open_regular(path: &Path) -> Result<(File, u64), FileError> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // Opening a pipe that nobody writes to would wait for ever; regular files do not mind the flag.
        options.custom_flags(libc::O_NONBLOCK);
    }
    let file = options.open(path).map_err(io_error(path, "open"))?;
    let meta = file.metadata().map_err(io_error(path, "examine"))?;
    if !meta.is_file() {
        return Err(FileError::NotRegular { path: path.to_path_buf() });
    }
    Ok((file, meta.len()))
}

#[cfg(unix)]
fn release(map: &memmap2::Mmap, range: Range<usize>) -> io::Result<()> {
    // SAFETY: this call only reads a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page = usize::try_from(page).ok().filter(|p| *p > 0).unwrap_or(4096);
    // Whole pages only: those at the ends may hold a neighbour's bytes.
    let start = range.start.next_multiple_of(page);
    let end = range.end - range.end % page;
    if start >= end {
        return Ok(());
    }
    // SAFETY: a read-only map of a file was never written, so dropped pages come back with the same bytes.
    unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) }
}

#[cfg(not(unix))]
fn release(_: &memmap2::Mmap, _: Range<usize>) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    const BOTH: [FileAccess; 2] = [FileAccess::Map, FileAccess::Copy { max_bytes: 1 << 20 }];

    #[test]
    fn both_ways_give_the_bytes() {
        let folder = Scratch::new("both_ways");
        for len in [0, 1, 4095, 4096, 4097, 100_000] {
            let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let path = folder.file("f", &bytes);
            for access in BOTH {
                let file = MappedFile::open_as(&path, access).unwrap();
                assert_eq!(file.as_slice(), bytes);
                assert_eq!((file.len(), file.is_empty()), (len, len == 0));
                assert_eq!(file.path(), path);
            }
        }
    }

    #[test]
    fn slices_are_checked() {
        let folder = Scratch::new("slices");
        let path = folder.file("f", &(0..100).collect::<Vec<u8>>());
        for access in BOTH {
            let file = Arc::new(MappedFile::open_as(&path, access).unwrap());
            let slice = file.slice(10, 5).unwrap();
            assert_eq!(slice.as_ref(), [10, 11, 12, 13, 14]);
            assert_eq!((slice.offset(), slice.len()), (10, 5));
            assert!(file.slice(100, 0).unwrap().is_empty());
            for (offset, len) in [(0, 101), (101, 0), (99, 2), (u64::MAX, 1), (1, u64::MAX)] {
                let message = file.slice(offset, len).unwrap_err().to_string();
                assert!(message.contains("100 bytes") && message.contains("truncated"), "{message}");
            }
            drop(file);
            let other = slice.clone();
            let thread = std::thread::spawn(move || other.as_slice().to_vec());
            assert_eq!(thread.join().unwrap(), slice.as_slice());
        }
    }

    #[test]
    fn released_pages_come_back() {
        let folder = Scratch::new("released");
        let bytes: Vec<u8> = (0..50_000_u32).map(|i| (i % 241) as u8).collect();
        let path = folder.file("f", &bytes);
        for access in BOTH {
            let file = Arc::new(MappedFile::open_as(&path, access).unwrap());
            assert_eq!(file.as_slice(), bytes);
            for range in [0..50_000, 1..49_999, 5000..5001, 0..0, 4096..8192] {
                file.advise_dont_need(range).unwrap();
                assert_eq!(file.as_slice(), bytes);
            }
            file.slice(100, 20_000).unwrap().advise_dont_need().unwrap();
            assert_eq!(file.as_slice(), bytes);
            assert!(file.advise_dont_need(0..50_001).is_err());
            let (start, end) = (8, 4);
            assert!(file.advise_dont_need(start..end).is_err());
        }
    }

    #[test]
    fn sizes_are_checked_before_memory_is_taken() {
        let folder = Scratch::new("sizes");
        let path = folder.file("f", &[7; 100]);
        assert_eq!(MappedFile::read_copy(&path, 100).unwrap().len(), 100);
        let e = MappedFile::read_copy(&path, 99).unwrap_err();
        assert!(matches!(e, FileError::TooLarge { len: 100, limit: 99, .. }), "{e}");
        let huge = folder.path().join("sparse");
        File::create(&huge).unwrap().set_len(1 << 32).unwrap();
        let e = MappedFile::read_copy(&huge, 1 << 30).unwrap_err();
        assert!(matches!(e, FileError::TooLarge { .. }), "{e}");
    }

    #[test]
    fn what_is_no_regular_file_is_refused() {
        let folder = Scratch::new("irregular");
        for access in BOTH {
            let e = MappedFile::open_as(folder.path().join("missing"), access).unwrap_err();
            assert!(e.to_string().contains("missing"), "{e}");
            assert!(MappedFile::open_as(folder.path(), access).is_err());
        }
    }

    #[cfg(unix)]
    #[test]
    fn pipes_and_devices_neither_block_nor_open() {
        let folder = Scratch::new("pipes_and_devices");
        let pipe = folder.pipe("pipe");
        for access in BOTH {
            for path in [pipe.as_path(), Path::new("/dev/zero")] {
                let e = MappedFile::open_as(path, access).unwrap_err();
                assert!(matches!(e, FileError::NotRegular { .. }), "{e}");
            }
        }
    }
}
