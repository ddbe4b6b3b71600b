//! Writes what passes make to numbered files.

use std::fmt::Display;
use std::path::PathBuf;

use crate::error::CompileError;
use crate::options::CompileOptions;

/// Writes `NN-name.rlx` and `NN-name.lir` files to the folder that the options name; does nothing if they name none.
pub struct Dumper {
    dir: Option<PathBuf>,
    number: usize,
}

impl Dumper {
    /// Makes the folder.
    pub fn new(options: &CompileOptions) -> Result<Self, CompileError> {
        Self::numbered_from(options, 0)
    }

    /// A dumper whose next file has this number.
    pub fn numbered_from(options: &CompileOptions, number: usize) -> Result<Self, CompileError> {
        if let Some(dir) = &options.dump {
            std::fs::create_dir_all(dir)
                .map_err(|e| CompileError::Dump(format!("cannot make folder {}: {e}", dir.display())))?;
        }
        Ok(Dumper { dir: options.dump.clone(), number })
    }

    /// Writes a module.
    pub fn write(&mut self, name: &str, module: &dyn Display) -> Result<(), CompileError> {
        self.write_as(name, "rlx", module)
    }

    /// Writes text with a file name extension.
    pub fn write_as(&mut self, name: &str, extension: &str, text: &dyn Display) -> Result<(), CompileError> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let path = dir.join(format!("{:02}-{name}.{extension}", self.number));
        self.number += 1;
        std::fs::write(&path, text.to_string())
            .map_err(|e| CompileError::Dump(format!("cannot write {}: {e}", path.display())))
    }
}
