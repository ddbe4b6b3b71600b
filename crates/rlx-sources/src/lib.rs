//! For build scripts: a name for the sources that are compiled, so that files made by one build are not taken by another in which ops or
//! packed weights mean something else.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

fn walk(dir: &Path, out: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            walk(&path, out)?;
        } else {
            out.push(path);
        }
    }
    Ok(())
}

/// Gives the crate that is built the variable `RLX_SOURCES`: sixteen hexadecimal digits that differ where a file below `src` does.
///
/// # Errors
/// Where a source cannot be read.
// A build script speaks to cargo by what it prints.
#[allow(clippy::print_stdout)]
pub fn name() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=src");
    let mut files = Vec::new();
    walk(Path::new("src"), &mut files)?;
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for file in files {
        for byte in file.to_string_lossy().bytes().chain(fs::read(&file)?) {
            // Line ends differ between checkouts.
            if byte != b'\r' {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    println!("cargo::rustc-env=RLX_SOURCES={hash:016x}");
    Ok(())
}
