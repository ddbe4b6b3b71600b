//! Finding a file that another file names, without ever leaving a folder.
//!
//! A model may keep its weights in files beside it and name them by relative paths. The model is hostile until proven
//! otherwise: such a name must not reach another folder, by any spelling or through a symbolic link. Names are judged
//! by the rules of every system, not only this one, so that a model is accepted or refused alike everywhere.

use std::io;
use std::path::{Path, PathBuf};

/// Why a relative path was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// Nothing to look for.
    #[error("the file name is empty")]
    Empty,
    /// A NUL byte ends names in system calls, so that what is checked is not what is opened.
    #[error("the file name {relative:?} contains a NUL byte")]
    Nul {
        /// The name, shortened.
        relative: String,
    },
    /// Starts at a root, a drive or a share.
    #[error("the file name {relative:?} is absolute; it must be relative to {}", folder.display())]
    Absolute {
        /// The folder to stay in.
        folder: PathBuf,
        /// The name, shortened.
        relative: String,
    },
    /// Contains `..`.
    #[error("the file name {relative:?} contains `..`; it must stay inside {}", folder.display())]
    Parent {
        /// The folder to stay in.
        folder: PathBuf,
        /// The name, shortened.
        relative: String,
    },
    /// A symbolic link leads out.
    #[error(
        "{relative:?} is a link that leads to {}, outside {}; put the file itself into the folder",
        target.display(), folder.display()
    )]
    Escapes {
        /// The folder to stay in.
        folder: PathBuf,
        /// The name, shortened.
        relative: String,
        /// Where it leads.
        target: PathBuf,
    },
    /// A folder, pipe, socket or device.
    #[error("{} is not a regular file", path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
    },
    /// The system refused, most often because there is no such file.
    #[error("cannot find {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The canonical path of the regular file that `relative` names inside `folder`; an empty `folder` is the current one.
///
/// The answer holds for the moment of asking: who may write into the folder may swap the file afterwards.
pub fn resolve_beneath(folder: &Path, relative: &str) -> Result<PathBuf, PathError> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let shortened = || relative.chars().take(256).collect::<String>();
    if relative.is_empty() {
        return Err(PathError::Empty);
    }
    if relative.contains('\0') {
        return Err(PathError::Nul { relative: shortened() });
    }
    if is_absolute_anywhere(relative) {
        return Err(PathError::Absolute { folder: folder.to_path_buf(), relative: shortened() });
    }
    if relative.split(['/', '\\']).any(|part| part == "..") {
        return Err(PathError::Parent { folder: folder.to_path_buf(), relative: shortened() });
    }
    let io_error = |path: &Path| {
        let path = path.to_path_buf();
        move |source| PathError::Io { path, source }
    };
    let root = folder.canonicalize().map_err(io_error(folder))?;
    let joined = root.join(relative);
    let target = joined.canonicalize().map_err(io_error(&joined))?;
    if !target.starts_with(&root) {
        return Err(PathError::Escapes { folder: root, relative: shortened(), target });
    }
    // The path is canonical, so this is the file itself and no link.
    let meta = target.symlink_metadata().map_err(io_error(&target))?;
    if !meta.is_file() {
        return Err(PathError::NotRegular { path: target });
    }
    Ok(target)
}

/// Whether some system would not take the path as relative: a root, a share, or a drive letter.
fn is_absolute_anywhere(path: &str) -> bool {
    let bytes = path.as_bytes();
    let rooted = matches!(bytes.first(), Some(b'/' | b'\\'));
    let drive = bytes.get(1) == Some(&b':') && bytes.first().is_some_and(u8::is_ascii_alphabetic);
    rooted || drive || Path::new(path).is_absolute()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn model_folder(name: &str) -> (Scratch, PathBuf) {
        let scratch = Scratch::new(name);
        let model = scratch.path().join("model");
        std::fs::create_dir_all(model.join("sub")).unwrap();
        std::fs::create_dir(scratch.path().join("model2")).unwrap();
        std::fs::write(model.join("w.bin"), b"in").unwrap();
        std::fs::write(model.join("sub/w.bin"), b"in").unwrap();
        std::fs::write(model.join("a..b"), b"in").unwrap();
        std::fs::write(scratch.path().join("secret"), b"out").unwrap();
        std::fs::write(scratch.path().join("model2/secret"), b"out").unwrap();
        (scratch, model)
    }

    #[test]
    fn files_inside_are_found() {
        let (_scratch, model) = model_folder("inside");
        for name in ["w.bin", "./w.bin", "sub/w.bin", "sub//./w.bin", "a..b"] {
            let path = resolve_beneath(&model, name).unwrap();
            assert!(path.starts_with(model.canonicalize().unwrap()));
            assert_eq!(std::fs::read(path).unwrap(), b"in");
        }
    }

    #[test]
    fn every_spelling_of_outside_is_refused() {
        let (scratch, model) = model_folder("outside");
        let absolute = scratch.path().join("secret").to_string_lossy().into_owned();
        for name in
            ["/etc/passwd", &absolute, "C:\\w.bin", "c:w.bin", "\\\\server\\share\\w", "\\w.bin", "\\\\?\\C:\\w"]
        {
            let e = resolve_beneath(&model, name).unwrap_err();
            assert!(matches!(e, PathError::Absolute { .. }), "{name}: {e}");
        }
        for name in
            ["..", "../secret", "sub/../../secret", "sub/../w.bin", "..\\secret", "sub\\..\\..\\secret", "w.bin/.."]
        {
            let e = resolve_beneath(&model, name).unwrap_err();
            assert!(matches!(e, PathError::Parent { .. }), "{name}: {e}");
        }
        assert!(matches!(resolve_beneath(&model, ""), Err(PathError::Empty)));
        let e = resolve_beneath(&model, "w.bin\0.txt").unwrap_err();
        assert!(matches!(e, PathError::Nul { .. }), "{e}");
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let (_scratch, model) = model_folder("no_file");
        for name in ["sub", "."] {
            let e = resolve_beneath(&model, name).unwrap_err();
            assert!(matches!(e, PathError::NotRegular { .. }), "{name}: {e}");
        }
        for name in ["missing", "w.bin/x", &"x".repeat(100_000)] {
            let e = resolve_beneath(&model, name).unwrap_err();
            assert!(matches!(e, PathError::Io { .. }), "{e}");
        }
        let e = resolve_beneath(&model.join("nowhere"), "w.bin").unwrap_err();
        assert!(e.to_string().contains("nowhere"), "{e}");
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_inside_only() {
        use std::os::unix::fs::symlink;
        let (scratch, model) = model_folder("links");
        symlink("w.bin", model.join("good")).unwrap();
        symlink("../secret", model.join("bad")).unwrap();
        symlink("bad", model.join("chained")).unwrap();
        symlink("../model2", model.join("folder")).unwrap();
        symlink("loop", model.join("loop")).unwrap();
        assert!(resolve_beneath(&model, "good").is_ok());
        for name in ["bad", "chained", "folder/secret"] {
            let e = resolve_beneath(&model, name).unwrap_err();
            assert!(matches!(e, PathError::Escapes { .. }), "{name}: {e}");
        }
        assert!(resolve_beneath(&model, "loop").is_err());
        // The folder itself may be reached through a link.
        symlink(&model, scratch.path().join("alias")).unwrap();
        assert!(resolve_beneath(&scratch.path().join("alias"), "w.bin").is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn pipes_are_refused() {
        let (scratch, model) = model_folder("pipes");
        scratch.pipe("model/pipe");
        let e = resolve_beneath(&model, "pipe").unwrap_err();
        assert!(matches!(e, PathError::NotRegular { .. }), "{e}");
    }
}
