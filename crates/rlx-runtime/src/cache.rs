//! A folder of compiled programs, by what they are compiled from.
//!
//! An entry is an artefact without sources: the graph at hand has them. Its name is a hash of everything that decides what is compiled: the
//! graph with contents and names, options of graphs, device, target, what the backend makes of weights, instruction set, and the version of
//! the compiler. Entries are written under another name and renamed, so that processes that share the folder see whole ones; one that cannot
//! be read is removed and made again. When entries take more bytes than they may, those that were not used for longest go first.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rlx_compile::CompileOptions;
use rlx_compile::target::{Backend, Claims};
use rlx_driver::{Device, Isa};
use rlx_ir::fingerprint::{content_hash, fingerprint_exact};
use rlx_ir::{Module, Tensor};
use twox_hash::XxHash3_128;

use crate::artefact::{Artefact, LoadOptions, SaveOptions, Verify};
use crate::compiled::CompiledGraph;
use crate::session::Session;

/// Ending of entries.
const ENDING: &str = "rlxa";
/// Files of writers that never came to an end are removed when they are as old as this.
const ABANDONED: std::time::Duration = std::time::Duration::from_secs(3600);

/// What became of the folder of programs in a compilation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheUse {
    /// None was asked for, or the program is of a kind that is not kept.
    #[default]
    Off,
    /// The program was found there.
    Found,
    /// It was compiled, and kept where the folder could be written.
    Kept,
}

/// A folder of compiled programs.
#[derive(Clone, Debug)]
pub struct Cache {
    dir: PathBuf,
    bytes: u64,
}

/// The name of a program in a folder.
pub(crate) fn key(
    module: &Module,
    device: Device,
    claims: &Claims,
    backend: &dyn Backend,
    options: &CompileOptions,
) -> String {
    // Contents are hashed on all threads; a tensor is told by where its bytes lie.
    let place = |t: &Tensor| (t.bytes().as_ptr().addr(), t.bytes().len());
    let defaults = module.main.params().iter().filter_map(|p| p.default.as_ref());
    let all: Vec<&Tensor> = defaults.chain(options.param_bindings.values()).filter(|t| t.strings().is_none()).collect();
    let bytes: Vec<&[u8]> = all.iter().map(|t| t.bytes()).collect();
    let hashes = crate::artefact::hash_all(&bytes);
    let known: HashMap<(usize, usize), u128> = all.iter().map(|t| place(t)).zip(hashes).collect();
    let hash =
        |t: &Tensor| known.get(&place(t)).copied().filter(|_| t.strings().is_none()).unwrap_or_else(|| content_hash(t));
    let mut text = format!(
        "{}\n{}\n{device} {}\n{} {}\n{}\n",
        rlx_compile::version(),
        env!("CARGO_PKG_VERSION"),
        claims.target,
        std::env::consts::ARCH,
        options.isa.unwrap_or_else(Isa::best),
        backend.layouts(device, options),
    );
    for (name, value) in options.of_graphs().iter().filter(|(n, _)| !n.starts_with("cache_")) {
        text.push_str(&format!("{name} = {value}\n"));
    }
    for (name, t) in &options.param_bindings {
        text.push_str(&format!("{name:?} {t:?} {:x}\n", hash(t)));
    }
    text.push_str(&fingerprint_exact(module, &hash).to_string());
    format!("{:032x}", XxHash3_128::oneshot(text.as_bytes()))
}

impl Cache {
    /// The programs in a folder, which is made when the first is kept.
    pub fn new(dir: impl Into<PathBuf>, bytes: u64) -> Cache {
        Cache { dir: dir.into(), bytes }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.dir.join(format!("{key}.{ENDING}"))
    }

    /// The program of a key, with the parameters of the module that it was made from.
    pub(crate) fn find(
        &self,
        key: &str,
        module: &Module,
        session: &Session,
        options: &CompileOptions,
    ) -> Option<CompiledGraph> {
        let path = self.path(key);
        if !path.exists() {
            return None;
        }
        let mut how = LoadOptions::new();
        for p in module.main.params() {
            if let Some(t) = &p.default {
                how.sources.insert(p.name.to_string(), t.clone());
            }
        }
        // The key was made from the contents of parameters, and what the folder holds is checked besides.
        how.verify = Verify::All;
        how.trusted_sources = true;
        let program = Artefact::open(&path, &how)
            .map_err(crate::Error::from)
            .and_then(|a| session.with(options.clone()).revive(a, &how, CacheUse::Found));
        match program {
            Ok(p) => {
                // The time of use; that of another process may come between, which does no harm.
                let used = std::fs::File::open(&path).and_then(|f| f.set_modified(SystemTime::now()));
                drop(used);
                Some(p)
            }
            Err(_) => {
                let _ = std::fs::remove_file(&path);
                None
            }
        }
    }

    /// Keeps a program, if the folder can be written; otherwise the next compilation makes it again.
    pub(crate) fn keep(&self, key: &str, program: &mut CompiledGraph) {
        let kept = std::fs::create_dir_all(&self.dir)
            .is_ok_and(|()| program.save_with(self.path(key), &SaveOptions::new().sources(false)).is_ok());
        if kept {
            self.trim(Some(&self.path(key)));
        }
    }

    /// Entries with their bytes, those used last at the end.
    fn entries(&self) -> Vec<(PathBuf, u64, SystemTime)> {
        let Ok(list) = std::fs::read_dir(&self.dir) else { return Vec::new() };
        let mut out: Vec<(PathBuf, u64, SystemTime)> = list
            .filter_map(|e| {
                let e = e.ok()?;
                let meta = e.metadata().ok().filter(std::fs::Metadata::is_file)?;
                Some((e.path(), meta.len(), meta.modified().ok()?))
            })
            .collect();
        out.sort_by(|a, b| (a.2, &a.0).cmp(&(b.2, &b.0)));
        out
    }

    /// Bytes of all entries.
    pub fn size(&self) -> u64 {
        self.entries().iter().filter(|(p, ..)| is_entry(p)).map(|(_, n, _)| n).sum()
    }

    /// How many programs there are.
    pub fn len(&self) -> usize {
        self.entries().iter().filter(|(p, ..)| is_entry(p)).count()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes what was not used for longest until the rest may stay; `last` goes last.
    fn trim(&self, last: Option<&Path>) {
        let entries = self.entries();
        for (path, _, time) in entries.iter().filter(|(p, ..)| is_unfinished(p)) {
            if time.elapsed().is_ok_and(|age| age > ABANDONED) {
                let _ = std::fs::remove_file(path);
            }
        }
        let mut own: Vec<&(PathBuf, u64, SystemTime)> = entries.iter().filter(|(p, ..)| is_entry(p)).collect();
        own.sort_by_key(|(p, _, time)| (Some(p.as_path()) == last, *time));
        let mut total: u64 = own.iter().map(|(_, n, _)| n).sum();
        for (path, bytes, _) in own {
            if total <= self.bytes {
                return;
            }
            if std::fs::remove_file(path).is_ok() {
                total -= bytes;
            }
        }
    }
}

/// Names of entries are 32 hexadecimal digits: nothing else in the folder is touched.
fn is_entry(path: &Path) -> bool {
    let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or("");
    path.extension().is_some_and(|e| e == ENDING) && stem.len() == 32 && stem.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_unfinished(path: &Path) -> bool {
    let name = path.file_name().and_then(|s| s.to_str()).unwrap_or("");
    name.starts_with('.') && name.ends_with(".tmp") && name.contains(&format!(".{ENDING}."))
}
