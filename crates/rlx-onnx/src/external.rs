//! Tensor data in files beside the model.
//!
//! Invariants: no file outside the model's folder is opened, whatever the location says; each file
//! is opened once and all its tensors share the buffer; offsets and lengths are checked against the
//! file before use.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use prost::bytes::Bytes;
use rlx_driver::resolve_beneath;

use crate::options::ReadOptions;
use crate::proto::StringStringEntryProto;
use crate::source::Sources;
use crate::text::shown;

/// Why external data cannot be had.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ExternalProblem {
    /// The entry names no file.
    #[error("its external data has no location")]
    NoLocation,
    /// A key appears twice.
    #[error("its external data has more than one '{key}'")]
    RepeatedKey {
        /// The key.
        key: String,
    },
    /// An offset or length that is no number.
    #[error("the {key} '{}' of its external data is not a number of bytes", shown(value))]
    BadNumber {
        /// The key.
        key: &'static str,
        /// What the file says.
        value: String,
    },
    /// The model came from memory, so that there is no folder to look in.
    #[error("its data is in the file '{}', but the model was not read from a folder", shown(location))]
    NoFolder {
        /// The file.
        location: String,
    },
    /// The file cannot be opened, or lies outside the model's folder.
    #[error("its data file '{}' cannot be used: {reason}", shown(location))]
    Unreadable {
        /// The file.
        location: String,
        /// The reason.
        reason: String,
    },
    /// The data does not lie inside the file.
    #[error("its data ({length} bytes at {offset}) is not inside '{}' of {file} bytes", shown(location))]
    TooShort {
        /// The file.
        location: String,
        /// Where the data should start.
        offset: u64,
        /// Bytes of the tensor.
        length: u64,
        /// Bytes of the file.
        file: u64,
    },
    /// The declared length is not that of the tensor's type and dims.
    #[error("its external data declares {declared} bytes, its type and dims need {needed}")]
    WrongLength {
        /// What the file says.
        declared: u64,
        /// What the tensor needs.
        needed: u64,
    },
}

impl ExternalProblem {
    pub(crate) fn hint(&self) -> Option<&'static str> {
        Some(match self {
            ExternalProblem::NoFolder { .. } => "open the model by its path, or pass its folder",
            ExternalProblem::Unreadable { .. } => {
                "keep the data files in the model's folder; links that leave it are not followed"
            }
            ExternalProblem::TooShort { .. } => "the data file is truncated or belongs to another model",
            _ => return None,
        })
    }
}

/// The data files of one model, opened when first asked for.
#[derive(Debug)]
pub(crate) struct ExternalFiles {
    folder: Option<PathBuf>,
    options: ReadOptions,
    sources: Sources,
    opened: HashMap<String, Result<Bytes, ExternalProblem>>,
}

impl ExternalFiles {
    pub(crate) fn new(folder: Option<&Path>, sources: Sources, options: &ReadOptions) -> ExternalFiles {
        ExternalFiles { folder: folder.map(Path::to_owned), options: options.clone(), sources, opened: HashMap::new() }
    }

    /// The files opened so far.
    pub(crate) fn into_sources(self) -> Sources {
        self.sources
    }

    /// The `needed` bytes that the entries of `external_data` point at.
    pub(crate) fn slice(
        &mut self,
        entries: &[StringStringEntryProto],
        needed: usize,
    ) -> Result<Bytes, ExternalProblem> {
        let location = single(entries, "location")?.unwrap_or_default();
        if location.is_empty() {
            return Err(ExternalProblem::NoLocation);
        }
        let offset = number(entries, "offset")?.unwrap_or(0);
        let needed_u64 = needed as u64;
        if let Some(declared) = number(entries, "length")?
            && declared != needed_u64
        {
            return Err(ExternalProblem::WrongLength { declared, needed: needed_u64 });
        }
        let file = self.open(location)?;
        let start = usize::try_from(offset).ok();
        let range = start.and_then(|s| Some((s, s.checked_add(needed)?)));
        match range {
            Some((start, end)) if end <= file.len() => Ok(file.slice(start..end)),
            _ => Err(ExternalProblem::TooShort {
                location: location.to_owned(),
                offset,
                length: needed_u64,
                file: file.len() as u64,
            }),
        }
    }

    fn open(&mut self, location: &str) -> Result<Bytes, ExternalProblem> {
        if let Some(known) = self.opened.get(location) {
            return known.clone();
        }
        let result = self.read(location);
        self.opened.insert(location.to_owned(), result.clone());
        result
    }

    fn read(&mut self, location: &str) -> Result<Bytes, ExternalProblem> {
        let Some(folder) = &self.folder else {
            return Err(ExternalProblem::NoFolder { location: location.to_owned() });
        };
        let unreadable = |reason: String| ExternalProblem::Unreadable { location: location.to_owned(), reason };
        let path = resolve_beneath(folder, location).map_err(|error| unreadable(error.to_string()))?;
        self.sources.open(&path, &self.options).map_err(|error| unreadable(error.to_string()))
    }
}

/// The value of a key that may appear once.
fn single<'a>(entries: &'a [StringStringEntryProto], key: &str) -> Result<Option<&'a str>, ExternalProblem> {
    let mut found = entries.iter().filter(|e| e.key.as_deref() == Some(key));
    let first = found.next().map(|e| e.value.as_deref().unwrap_or_default());
    match found.next() {
        Some(_) => Err(ExternalProblem::RepeatedKey { key: key.to_owned() }),
        None => Ok(first),
    }
}

fn number(entries: &[StringStringEntryProto], key: &'static str) -> Result<Option<u64>, ExternalProblem> {
    single(entries, key)?
        .map(|text| text.parse().map_err(|_| ExternalProblem::BadNumber { key, value: text.to_owned() }))
        .transpose()
}
