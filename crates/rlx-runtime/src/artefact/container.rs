//! The container: a header, the program's bytes, and sections. Knows nothing of what they mean.

use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rlx_driver::ThreadPool;
use twox_hash::XxHash3_128;

use super::error::ArtefactError;

/// First bytes of a file. The first is no text, and line ends show what a transfer as text does to them.
const MAGIC: [u8; 8] = *b"\x93RLXA\r\n\x1a";
/// The format of header and sections.
pub const FORMAT: u32 = 2;
/// Bytes of the header.
pub const HEADER: usize = 128;
/// Alignment of sections; of large ones a page.
const ALIGN: u64 = 64;
const PAGE: u64 = 4096;
/// Most bytes of a program.
const MAX_PROGRAM: u64 = 1 << 28;
/// Bytes that are hashed at a time: what threads share, and what stays in a near cache while a file is read.
const BLOCK: usize = 1 << 18;

/// The hash of a section: of the hashes of its blocks.
pub fn hash(bytes: &[u8]) -> u128 {
    let mut blocks: Vec<u8> = Vec::with_capacity(16 * bytes.len().div_ceil(BLOCK));
    bytes.chunks(BLOCK).for_each(|b| blocks.extend(XxHash3_128::oneshot(b).to_le_bytes()));
    XxHash3_128::oneshot(&blocks)
}

/// Hashes many byte strings of these lengths, on all threads that the process may use. `block` gives the hash of the bytes `range` of string
/// `i`, which are one block.
fn hash_blocks(lengths: &[usize], block: &(dyn Fn(usize, Range<usize>) -> u128 + Sync)) -> Vec<u128> {
    let cut =
        |(i, &len): (usize, &usize)| (0..len.div_ceil(BLOCK)).map(move |b| (i, b * BLOCK..len.min((b + 1) * BLOCK)));
    let blocks: Vec<(usize, Range<usize>)> = lengths.iter().enumerate().flat_map(cut).collect();
    let done: Vec<[AtomicU64; 2]> = blocks.iter().map(|_| Default::default()).collect();
    let pool = ThreadPool::global();
    pool.enter(pool.threads()).parallel_for(blocks.len(), &|b| {
        if let (Some((i, range)), Some([low, high])) = (blocks.get(b), done.get(b)) {
            let h = block(*i, range.clone());
            low.store(h as u64, Ordering::Relaxed);
            high.store((h >> 64) as u64, Ordering::Relaxed);
        }
    });
    let mut found = done.iter().flat_map(|[low, high]| [low, high]).map(|h| h.load(Ordering::Relaxed).to_le_bytes());
    let one = |len: &usize| {
        let own: Vec<u8> = found.by_ref().take(2 * len.div_ceil(BLOCK)).flatten().collect();
        XxHash3_128::oneshot(&own)
    };
    lengths.iter().map(one).collect()
}

/// Hashes many byte strings.
pub fn hash_all(list: &[&[u8]]) -> Vec<u128> {
    let lengths: Vec<usize> = list.iter().map(|b| b.len()).collect();
    hash_blocks(&lengths, &|i, range| XxHash3_128::oneshot(list.get(i).and_then(|b| b.get(range)).unwrap_or(&[])))
}

/// Hashes parts of a file by reading them: a map of it would have all its pages in memory for that.
#[cfg(unix)]
pub fn hash_file(file: &File, parts: &[(u64, u64)]) -> Option<Vec<u128>> {
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::AtomicBool;
    thread_local!(static BUFFER: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) });
    let lengths: Vec<usize> = parts.iter().map(|(_, n)| usize::try_from(*n).ok()).collect::<Option<_>>()?;
    let failed = AtomicBool::new(false);
    let hashes = hash_blocks(&lengths, &|i, range| {
        BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(BLOCK, 0);
            let (Some(to), Some((at, _))) = (buffer.get_mut(..range.len()), parts.get(i)) else { return 0 };
            if file.read_exact_at(to, at + range.start as u64).is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            XxHash3_128::oneshot(to)
        })
    });
    (!failed.into_inner()).then_some(hashes)
}

/// Files are read where they are mapped.
#[cfg(not(unix))]
pub fn hash_file(_: &File, _: &[(u64, u64)]) -> Option<Vec<u128>> {
    None
}

/// A header's bytes.
fn header(file: u64, program: u64, program_hash: u128) -> [u8; HEADER] {
    let mut h = [0u8; HEADER];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(to) = h.get_mut(at..at + bytes.len()) {
            to.copy_from_slice(bytes);
        }
    };
    put(0, &MAGIC);
    put(8, &FORMAT.to_le_bytes());
    put(16, &file.to_le_bytes());
    put(24, &program.to_le_bytes());
    put(32, &program_hash.to_le_bytes());
    let own = XxHash3_128::oneshot(&h[..HEADER - 16]);
    h[HEADER - 16..].copy_from_slice(&own.to_le_bytes());
    h
}

/// The program's bytes of a file, checked.
pub fn open(bytes: &[u8]) -> Result<&[u8], ArtefactError> {
    if !bytes.starts_with(&MAGIC) {
        return Err(ArtefactError::NotOne);
    }
    let damaged = |what: String| ArtefactError::Damaged(vec![what]);
    let short = || damaged(format!("it ends after {} bytes", bytes.len()));
    let found = bytes.get(..HEADER).ok_or_else(short)?;
    let word = |at: usize| found.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b));
    let long = |at: usize| found.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u128::from_le_bytes(*b));
    if XxHash3_128::oneshot(&found[..HEADER - 16]) != long(HEADER - 16) {
        return Err(damaged("its header".into()));
    }
    let format = word(8) as u32;
    if format != FORMAT {
        return Err(ArtefactError::Format { found: format, ours: FORMAT });
    }
    let (file, length) = (word(16), word(24));
    if file != bytes.len() as u64 {
        return Err(damaged(format!("it has {} bytes and had {file}", bytes.len())));
    }
    if length > MAX_PROGRAM {
        return Err(ArtefactError::Malformed(format!("it has {length} bytes, more than the limit of {MAX_PROGRAM}")));
    }
    let program = usize::try_from(length).ok().and_then(|n| bytes.get(HEADER..)?.get(..n)).ok_or_else(short)?;
    if hash(program) != long(32) {
        return Err(damaged("its program".into()));
    }
    Ok(program)
}

/// Makes the hashes of header and program fit what stands there, as a forger would: for tests of what a reader does with a program that
/// nobody wrote. Does nothing to what is too short to be an artefact.
pub fn reseal(bytes: &mut [u8]) {
    let len = bytes.len();
    let Some(word) = bytes.get(24..).and_then(|b| b.first_chunk()) else { return };
    let program = usize::try_from(u64::from_le_bytes(*word)).unwrap_or(usize::MAX).min(len.saturating_sub(HEADER));
    let Some(sum) = bytes.get(HEADER..HEADER + program).map(hash) else { return };
    bytes[..HEADER].copy_from_slice(&header(len as u64, program as u64, sum));
}

/// Where sections will lie.
#[derive(Debug, Default)]
pub struct Layout {
    end: u64,
    starts: Vec<u64>,
}

impl Layout {
    /// Adds a section; gives its place behind the first section's.
    pub fn add(&mut self, len: u64) -> u64 {
        let at = self.end.next_multiple_of(if len >= PAGE { PAGE } else { ALIGN });
        self.end = at + len;
        self.starts.push(at);
        at
    }
}

/// Where the first section lies after a program of so many bytes.
pub fn first_section(program: usize) -> u64 {
    (HEADER as u64 + program as u64).next_multiple_of(PAGE)
}

/// Writes a container.
pub fn write(
    out: &mut (impl Write + Seek),
    program: &[u8],
    layout: &Layout,
    sections: &[&[u8]],
) -> std::io::Result<u64> {
    let first = first_section(program.len());
    let len = if sections.is_empty() { HEADER as u64 + program.len() as u64 } else { first + layout.end };
    out.write_all(&header(len, program.len() as u64, hash(program)))?;
    out.write_all(program)?;
    let mut at = HEADER as u64 + program.len() as u64;
    for (bytes, start) in sections.iter().zip(&layout.starts) {
        let gap = first + start - at;
        std::io::copy(&mut std::io::Read::take(std::io::repeat(0), gap), out)?;
        out.write_all(bytes)?;
        at = first + start + bytes.len() as u64;
    }
    out.flush()?;
    Ok(len)
}

/// Writes a file that appears under its name when it is whole: readers see the old one or the new one.
pub fn write_file(path: &Path, program: &[u8], layout: &Layout, sections: &[&[u8]]) -> Result<u64, ArtefactError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let failed = |source| ArtefactError::Write { path: path.to_path_buf(), source };
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let temporary: PathBuf = path.with_file_name(format!(".{name}.{}.{count}.tmp", std::process::id()));
    let attempt = || -> std::io::Result<u64> {
        let mut out = BufWriter::with_capacity(1 << 16, File::create_new(&temporary)?);
        let len = write(&mut out, program, layout, sections)?;
        out.seek(SeekFrom::Start(0))?;
        drop(out);
        std::fs::rename(&temporary, path)?;
        Ok(len)
    };
    attempt().map_err(|e| {
        let _ = std::fs::remove_file(&temporary);
        failed(e)
    })
}
