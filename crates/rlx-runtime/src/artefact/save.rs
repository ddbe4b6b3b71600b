//! Writing artefacts.

use std::collections::{BTreeSet, HashMap};
use std::io::Cursor;
use std::path::Path;

use rlx_compile::target::{Made, Snapshot, TargetModule};
use rlx_compile::{CompileOptions, Fallback};
use rlx_driver::Isa;
use rlx_ir::ops::Custom;
use rlx_ir::{DType, Module, Op, Tensor};

use super::SaveOptions;
use super::container::{self, Layout};
use super::error::ArtefactError;
use super::options::Stored;
use super::payload::{Body, Entry, INLINE, Identity, MadeEntry, Place, Program};

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes of the program.
    pub program: u64,
    /// Bytes of parameters' values.
    pub sources: u64,
    /// Bytes of what the backend made of them.
    pub made: u64,
}

/// Tensors on their way into a file, each once.
#[derive(Default)]
struct Tensors {
    entries: Vec<Entry>,
    /// By address and length of the bytes, dtype and shape.
    known: HashMap<(usize, usize, String), u32>,
    layout: Layout,
    sections: Vec<Tensor>,
    /// Entries whose hash is still to be found, with their tensors.
    unhashed: Vec<(usize, Tensor)>,
    bytes: u64,
}

impl Tensors {
    /// The number of a tensor; `given` names the parameter under which its contents will be given.
    fn add(&mut self, t: &Tensor, given: Option<&str>) -> u32 {
        let bytes = t.bytes();
        let key = (bytes.as_ptr().addr(), bytes.len(), format!("{t:?} {given:?}"));
        let large = t.strings().is_none() && bytes.len() > INLINE;
        if let Some(&n) = self.known.get(&key).filter(|_| large) {
            return n;
        }
        let number = self.entries.len() as u32;
        let len = bytes.len() as u64;
        let place = match (t.strings(), given) {
            (Some(s), _) => Place::Strings(s.to_vec()),
            (None, _) if !large => Place::Inline(bytes.to_vec()),
            (None, Some(name)) => {
                self.unhashed.push((self.entries.len(), t.clone()));
                Place::Given(name.into(), len, 0)
            }
            (None, None) => {
                self.bytes += len;
                self.sections.push(t.clone());
                self.unhashed.push((self.entries.len(), t.clone()));
                Place::Section(self.layout.add(len), len, 0)
            }
        };
        self.entries.push(Entry { dtype: t.dtype(), dims: t.dims().to_vec(), place });
        self.known.insert(key, number);
        number
    }

    fn hash(&mut self) {
        let list: Vec<&[u8]> = self.unhashed.iter().map(|(_, t)| t.bytes()).collect();
        for (&(i, _), h) in self.unhashed.iter().zip(container::hash_all(&list)) {
            if let Some(Place::Section(_, _, hash) | Place::Given(_, _, hash)) =
                self.entries.get_mut(i).map(|e| &mut e.place)
            {
                *hash = h;
            }
        }
    }
}

/// A file about to be written.
struct Draft {
    program: Vec<u8>,
    tensors: Tensors,
    saved: Saved,
}

impl Draft {
    fn new(identity: &Identity, mut body: Body, mut tensors: Tensors, saved: Saved) -> Result<Draft, ArtefactError> {
        tensors.hash();
        body.tensors = std::mem::take(&mut tensors.entries);
        let failed = |e: postcard::Error| ArtefactError::Unsupported(format!("the program has no encoding: {e}"));
        let mut program = postcard::to_stdvec(identity).map_err(failed)?;
        program.extend(postcard::to_stdvec(&body).map_err(failed)?);
        let saved = Saved { program: program.len() as u64, ..saved };
        Ok(Draft { program, tensors, saved })
    }

    fn sections(&self) -> Vec<&[u8]> {
        self.tensors.sections.iter().map(Tensor::bytes).collect()
    }

    fn write(&self, path: &Path) -> Result<Saved, ArtefactError> {
        let bytes = container::write_file(path, &self.program, &self.tensors.layout, &self.sections())?;
        Ok(Saved { bytes, ..self.saved })
    }

    fn bytes(&self) -> Result<Vec<u8>, ArtefactError> {
        let mut out = Cursor::new(Vec::new());
        container::write(&mut out, &self.program, &self.tensors.layout, &self.sections())
            .map_err(|source| ArtefactError::Write { path: Default::default(), source })?;
        Ok(out.into_inner())
    }
}

/// Writes a program of kernels with what was made of it.
pub(crate) fn write_kernels(
    path: &Path,
    target: &str,
    snapshot: Snapshot,
    options: &CompileOptions,
    fallbacks: &[Fallback],
    how: &SaveOptions,
) -> Result<Saved, ArtefactError> {
    let TargetModule::Lir(mut module) = snapshot.module else {
        return Err(ArtefactError::Unsupported("a backend gave a graph as a program of kernels".into()));
    };
    let mut tensors = Tensors::default();
    // What stands in the program in place of its tensors.
    let nothing = Tensor::zeros(DType::U8, &[0]).map_err(|e| ArtefactError::Unsupported(e.to_string()))?;
    let mut sources = HashMap::new();
    if !how.sources {
        for p in module.prepare.iter().flat_map(|p| &p.params).chain(&module.main.params) {
            if let Some(t) = &p.default {
                sources.insert(t.bytes().as_ptr().addr(), p.name.to_string());
            }
        }
    }
    let mut numbers = Vec::new();
    let done: Result<(), std::convert::Infallible> = module.for_each_tensor(&mut |t| {
        let given = sources.get(&t.bytes().as_ptr().addr()).map(String::as_str);
        numbers.push(tensors.add(t, given));
        *t = nothing.clone();
        Ok(())
    });
    match done {
        Ok(()) => {}
    }
    let of_sources = tensors.bytes;
    let made =
        |m: &Made| MadeEntry { key: m.key.clone(), layout: m.layout.clone(), tensor: tensors.add(&m.data, None) };
    let made = snapshot.made.iter().map(made).collect();
    let saved = Saved { sources: of_sources, made: tensors.bytes - of_sources, ..Saved::default() };
    let identity = Identity {
        version: rlx_compile::version(),
        target: target.into(),
        host: format!("{} {}", std::env::consts::ARCH, options.isa.unwrap_or_else(Isa::best)),
        kernels: true,
    };
    let fallbacks =
        fallbacks.iter().map(|f| [f.option.into(), f.asked.clone(), f.got.clone(), f.why.clone()]).collect();
    let customs = module.custom_ops().into_iter().map(String::from).collect();
    let program = Program::Kernels(Box::new(module), numbers);
    let body = Body { program, tensors: Vec::new(), made, options: Stored::of(options), customs, fallbacks };
    Draft::new(&identity, body, tensors, saved)?.write(path)
}

/// Names of a module's custom ops.
pub(crate) fn custom_ops(module: &Module) -> Vec<String> {
    fn collect(g: &rlx_ir::Graph, names: &mut BTreeSet<String>) {
        for node in g.nodes() {
            if let Op::Custom(Custom::CustomOp(op)) = &node.op {
                names.insert(op.name.clone());
            }
            node.regions.iter().for_each(|r| collect(r, names));
        }
    }
    let mut names = BTreeSet::new();
    std::iter::once(&module.main).chain(module.functions.values()).for_each(|g| collect(g, &mut names));
    names.into_iter().collect()
}

fn graph_draft(
    module: &Module,
    options: &CompileOptions,
    given: &dyn Fn(&str) -> bool,
) -> Result<Draft, ArtefactError> {
    let mut tensors = Tensors::default();
    let g = &module.main;
    let params = g.params().iter().filter_map(|p| {
        let number = tensors.add(p.default.as_ref()?, given(&p.name).then_some(&*p.name));
        Some((p.name.to_string(), number))
    });
    let params = params.collect();
    let states =
        g.states().iter().filter_map(|s| Some((s.name.to_string(), tensors.add(s.init.as_ref()?, None)))).collect();
    let version = env!("CARGO_PKG_VERSION").into();
    let identity = Identity { version, target: String::new(), host: String::new(), kernels: false };
    let program = Program::Graph { text: module.to_string(), params, states };
    let (options, customs) = (Stored::of(options), custom_ops(module));
    let body = Body { program, tensors: Vec::new(), made: Vec::new(), options, customs, fallbacks: Vec::new() };
    let saved = Saved { sources: tensors.bytes, ..Saved::default() };
    Draft::new(&identity, body, tensors, saved)
}

/// Writes a graph, to be compiled for whichever device it is loaded on. Parameters and states keep their default values.
pub fn write_graph(path: &Path, module: &Module, options: &CompileOptions) -> Result<Saved, ArtefactError> {
    graph_draft(module, options, &|_| false)?.write(path)
}

/// As [`write_graph`], to memory: what a program embeds. The values of parameters for which `given` is true are left out, unless they are
/// small, and are given when it is loaded ([`LoadOptions::source`](super::LoadOptions::source)).
pub fn graph_bytes(
    module: &Module,
    options: &CompileOptions,
    given: &dyn Fn(&str) -> bool,
) -> Result<Vec<u8>, ArtefactError> {
    graph_draft(module, options, given)?.bytes()
}
