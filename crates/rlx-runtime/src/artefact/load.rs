//! Reading artefacts.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use rlx_compile::lir::LirModule;
use rlx_compile::target::Made;
use rlx_compile::{CompileOptions, Fallback};
use rlx_driver::{FileAccess, MappedFile};
use rlx_ir::tensor::ByteSource;
use rlx_ir::text::{ExternalKind, parse_module_with};
use rlx_ir::{DType, Module, Tensor};

use super::container::{self, first_section};
use super::error::ArtefactError;
use super::payload::{Body, Entry, Identity, Place, Program};
use super::{LoadOptions, Verify};

/// A part of the file.
struct Part {
    whole: Arc<dyn ByteSource>,
    /// Lies within it.
    range: Range<usize>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        (*self.whole).as_ref().get(self.range.clone()).unwrap_or(&[])
    }
}

/// An artefact that was opened and whose header and program were checked.
pub struct Artefact {
    bytes: Arc<dyn ByteSource>,
    /// The file, if it is mapped.
    file: Option<File>,
    identity: Identity,
    body: Body,
    /// Where sections begin.
    first: u64,
    program_bytes: usize,
}

/// A tensor of an artefact, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// What it is: the key of what the backend made, or none for what the program holds.
    pub made: Option<(String, String)>,
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub dims: Vec<usize>,
    /// Bytes in the file.
    pub bytes: u64,
}

/// What is there to be run.
pub(crate) enum Ready {
    /// Kernels with what was made of them.
    Kernels(Box<LirModule>, Vec<Made>),
    /// A graph to compile.
    Graph(Box<Module>),
}

impl Artefact {
    /// Opens a file.
    pub fn open(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Artefact, ArtefactError> {
        let path = path.as_ref();
        let mapped = MappedFile::open_as(path, options.access)?;
        let mut artefact = Self::from_source(Arc::new(mapped))?;
        artefact.file = File::open(path).ok().filter(|_| options.access == FileAccess::Map);
        Ok(artefact)
    }

    /// Opens bytes in memory, such as a program embeds. They are read where they lie; aligned to 64 bytes nothing is copied.
    pub fn from_source(bytes: Arc<dyn ByteSource>) -> Result<Artefact, ArtefactError> {
        let all: &[u8] = (*bytes).as_ref();
        let program = container::open(all)?;
        let malformed = |e: postcard::Error| ArtefactError::Malformed(e.to_string());
        let (identity, rest) = postcard::take_from_bytes::<Identity>(program).map_err(malformed)?;
        // What a graph means is told by its text; how it is wrapped, by the crate's version.
        let ours = if identity.kernels { rlx_compile::version() } else { env!("CARGO_PKG_VERSION").into() };
        if identity.version != ours {
            return Err(ArtefactError::Version { found: identity.version, ours });
        }
        let (body, rest) = postcard::take_from_bytes::<Body>(rest).map_err(malformed)?;
        if !rest.is_empty() {
            return Err(ArtefactError::Malformed(format!("{} bytes follow its end", rest.len())));
        }
        if identity.kernels != matches!(body.program, Program::Kernels(..)) {
            return Err(ArtefactError::Malformed("it is another program than it says".into()));
        }
        // Before the program is looked at any further: its types follow from the rules of its ops.
        let unknown =
            body.customs.iter().filter(|n| !rlx_ir::ops::custom::is_registered(n)).cloned().collect::<Vec<_>>();
        if !unknown.is_empty() {
            return Err(ArtefactError::CustomOps(unknown));
        }
        let (first, program_bytes) = (first_section(program.len()), program.len());
        Ok(Artefact { bytes, file: None, identity, body, first, program_bytes })
    }

    /// The version that made it.
    pub fn version(&self) -> &str {
        &self.identity.version
    }

    /// The target that it was made for; `None` for a graph, which any device takes.
    pub fn target(&self) -> Option<&str> {
        self.identity.kernels.then_some(&*self.identity.target)
    }

    /// The kind of machine that made it; empty for a graph.
    pub fn host(&self) -> &str {
        &self.identity.host
    }

    /// Bytes of the program.
    pub fn program_bytes(&self) -> usize {
        self.program_bytes
    }

    /// Bytes of the whole.
    pub fn bytes(&self) -> usize {
        (*self.bytes).as_ref().len()
    }

    /// What it was compiled with, where that is not the default.
    pub fn compiled_with(&self) -> Vec<(String, String)> {
        self.body.options.of_graphs()
    }

    /// The options that its maker set for running.
    pub fn options(&self) -> CompileOptions {
        self.body.options.options()
    }

    /// The kernels, as text; `None` for a graph.
    pub fn kernels(&self) -> Option<&LirModule> {
        match &self.body.program {
            Program::Kernels(m, _) => Some(m),
            Program::Graph { .. } => None,
        }
    }

    /// The graph's text; `None` for a program of kernels.
    pub fn graph(&self) -> Option<&str> {
        match &self.body.program {
            Program::Graph { text, .. } => Some(text),
            Program::Kernels(..) => None,
        }
    }

    /// All tensors.
    pub fn tensors(&self) -> Vec<TensorInfo> {
        let info = |(i, e): (usize, &Entry)| {
            let made =
                self.body.made.iter().find(|m| m.tensor as usize == i).map(|m| (m.key.clone(), m.layout.clone()));
            let bytes = match &e.place {
                Place::Section(_, len, _) => *len,
                Place::Inline(b) => b.len() as u64,
                Place::Strings(s) => s.iter().map(|s| s.len() as u64).sum(),
                Place::Given(..) => 0,
            };
            TensorInfo { made, dtype: e.dtype, dims: e.dims.clone(), bytes }
        };
        self.body.tensors.iter().enumerate().map(info).collect()
    }

    pub(crate) fn fallbacks(&self) -> Vec<Fallback> {
        let known = |name: &str| CompileOptions::NAMES.iter().copied().find(|n| *n == name);
        let one = |[option, asked, got, why]: &[String; 4]| Some(Fallback::new(known(option)?, asked, got, why));
        self.body.fallbacks.iter().filter_map(one).collect()
    }

    /// The first option that speaks of graphs and asks for something else than the program was compiled with.
    pub(crate) fn disagrees(&self, options: &CompileOptions) -> Option<&'static str> {
        self.identity.kernels.then(|| self.body.options.disagrees(options)).flatten()
    }

    /// The bytes of a section.
    fn section(&self, offset: u64, len: u64) -> Option<Range<usize>> {
        let start = usize::try_from(self.first.checked_add(offset)?).ok()?;
        let end = start.checked_add(usize::try_from(len).ok()?)?;
        (end <= self.bytes()).then_some(start..end)
    }

    /// All tensors, checked as far as asked.
    fn read(&self, options: &LoadOptions) -> Result<Vec<Tensor>, ArtefactError> {
        let (mut tensors, mut missing, mut damaged) = (Vec::new(), Vec::new(), Vec::new());
        let mut expected: Vec<(usize, u128)> = Vec::new();
        for (i, e) in self.body.tensors.iter().enumerate() {
            let wrong = |why: String| ArtefactError::Malformed(format!("tensor {i}: {why}"));
            let made = match &e.place {
                Place::Inline(bytes) => Tensor::from_bytes(e.dtype, &e.dims, bytes),
                Place::Strings(list) if e.dtype == DType::Str => Tensor::from_strings(&e.dims, list.clone()),
                Place::Strings(_) => return Err(wrong(format!("strings of dtype {}", e.dtype))),
                Place::Section(offset, len, hash) => {
                    let range = self.section(*offset, *len);
                    let range = range.ok_or_else(|| wrong(format!("{len} bytes at {offset} lie beyond the end")))?;
                    expected.push((i, *hash));
                    Tensor::from_source(e.dtype, &e.dims, Arc::new(Part { whole: self.bytes.clone(), range }))
                }
                Place::Given(name, len, hash) => match options.sources.get(name) {
                    Some(t) if t.dtype() == e.dtype && t.dims() == e.dims && t.bytes().len() as u64 == *len => {
                        if !options.trusted_sources {
                            expected.push((i, *hash));
                        }
                        Ok(t.clone())
                    }
                    other => {
                        let got = other.map_or(String::new(), |t| format!(", not {t:?}"));
                        missing.push(format!("`{name}` ({}{:?}{got})", e.dtype, e.dims));
                        Tensor::zeros(e.dtype, &[0])
                    }
                },
            };
            tensors.push(made.map_err(|e| wrong(e.to_string()))?);
        }
        if !missing.is_empty() {
            return Err(ArtefactError::Sources(missing));
        }
        if options.verify == Verify::All {
            for ((i, want), got) in expected.iter().zip(self.hashes(&tensors, &expected)) {
                let Some(e) = self.body.tensors.get(*i).filter(|_| got != *want) else { continue };
                match &e.place {
                    Place::Given(name, ..) => missing.push(format!("`{name}` has other contents than it had")),
                    _ => damaged.push(format!("tensor {i} ({}{:?})", e.dtype, e.dims)),
                }
            }
        }
        match (damaged.is_empty(), missing.is_empty()) {
            (true, true) => Ok(tensors),
            (false, _) => Err(ArtefactError::Damaged(damaged)),
            (true, false) => Err(ArtefactError::Sources(missing)),
        }
    }

    /// The hashes of these tensors: from the file where they lie in it, so that their pages need not come into memory.
    fn hashes(&self, tensors: &[Tensor], of: &[(usize, u128)]) -> Vec<u128> {
        let parts: Option<Vec<(u64, u64)>> = of
            .iter()
            .map(|(i, _)| match self.body.tensors.get(*i)?.place {
                Place::Section(offset, len, _) => Some((self.first.checked_add(offset)?, len)),
                _ => None,
            })
            .collect();
        let read = self.file.as_ref().zip(parts).and_then(|(file, parts)| container::hash_file(file, &parts));
        read.unwrap_or_else(|| {
            let list: Vec<&[u8]> = of.iter().filter_map(|(i, _)| tensors.get(*i)).map(Tensor::bytes).collect();
            container::hash_all(&list)
        })
    }

    /// The program with its tensors.
    pub(crate) fn into_ready(self, options: &LoadOptions) -> Result<Ready, ArtefactError> {
        let tensors = self.read(options)?;
        let of = |n: u32| tensors.get(n as usize).cloned();
        let none = |n: u32| ArtefactError::Malformed(format!("it names tensor {n} of {}", tensors.len()));
        match self.body.program {
            Program::Kernels(mut module, numbers) => {
                let mut rest = numbers.into_iter();
                module.for_each_tensor(&mut |t| {
                    let n = rest
                        .next()
                        .ok_or_else(|| ArtefactError::Malformed("it has more tensors than it lists".into()))?;
                    *t = of(n).ok_or_else(|| none(n))?;
                    Ok::<(), ArtefactError>(())
                })?;
                let made = self.body.made.into_iter().map(|m| {
                    let data = of(m.tensor).ok_or_else(|| none(m.tensor))?;
                    Ok(Made { key: m.key, layout: m.layout, data })
                });
                Ok(Ready::Kernels(module, made.collect::<Result<_, ArtefactError>>()?))
            }
            Program::Graph { text, params, states } => {
                let find =
                    |list: &[(String, u32)], name: &str| list.iter().find(|(n, _)| n == name).and_then(|(_, t)| of(*t));
                let module = parse_module_with(&text, &mut |e| match e.kind {
                    ExternalKind::Param => find(&params, e.name),
                    ExternalKind::State => find(&states, e.name),
                });
                Ok(Ready::Graph(Box::new(module.map_err(|e| ArtefactError::Malformed(e.to_string()))?)))
            }
        }
    }
}

impl std::fmt::Debug for Artefact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Artefact")
            .field("identity", &self.identity)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
