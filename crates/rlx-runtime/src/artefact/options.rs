//! The options that an artefact keeps: those of kernels that were set, to run as its maker asked; those of graphs as text, to say what it
//! was compiled with.

use rlx_compile::CompileOptions;
use rlx_ir::{DimBinding, RngOptions};
use serde::{Deserialize, Serialize};

/// Options of kernels that were set, and those of graphs as text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    graphs: Vec<(String, String)>,
    threads: Option<usize>,
    isa: Option<String>,
    jit: Option<bool>,
    arena_alignment: Option<usize>,
    bind_cache: Option<usize>,
    bind_cache_bytes: Option<u64>,
    memory_limit: Option<u64>,
    poison: Option<bool>,
    rng: Option<RngOptions>,
    dim_bindings: DimBinding,
}

/// Options of graphs that say nothing of the program itself.
const ABOUT_STORES: &[&str] = &["cache_dir", "cache_bytes"];

impl Stored {
    /// What is kept of options.
    pub fn of(o: &CompileOptions) -> Stored {
        let set = o.explicit();
        fn when<T>(set: &[&str], name: &str, value: T) -> Option<T> {
            set.contains(&name).then_some(value)
        }
        let graphs = o.of_graphs().into_iter().filter(|(n, _)| !ABOUT_STORES.contains(n));
        Stored {
            graphs: graphs.map(|(n, v)| (n.into(), v)).collect(),
            threads: when(&set, "threads", o.threads),
            isa: o.isa.map(|i| i.to_string()),
            jit: when(&set, "jit", o.jit),
            arena_alignment: when(&set, "arena_alignment", o.arena_alignment),
            bind_cache: when(&set, "bind_cache", o.bind_cache),
            bind_cache_bytes: when(&set, "bind_cache_bytes", o.bind_cache_bytes),
            memory_limit: o.memory_limit,
            poison: when(&set, "poison", o.poison),
            rng: o.rng,
            dim_bindings: o.dim_bindings.clone(),
        }
    }

    /// The options of kernels.
    pub fn options(&self) -> CompileOptions {
        let mut o = CompileOptions::new();
        o = self.threads.map_or(o.clone(), |v| o.threads(v));
        o = self.jit.map_or(o.clone(), |v| o.jit(v));
        o = self.arena_alignment.map_or(o.clone(), |v| o.arena_alignment(v));
        o = self.bind_cache.map_or(o.clone(), |v| o.bind_cache(v));
        o = self.bind_cache_bytes.map_or(o.clone(), |v| o.bind_cache_bytes(v));
        o = self.memory_limit.map_or(o.clone(), |v| o.memory_limit(Some(v)));
        o = self.poison.map_or(o.clone(), |v| o.poison(v));
        o = self.rng.map_or(o.clone(), |v| o.rng(Some(v)));
        o = self.isa.as_ref().and_then(|i| i.parse().ok()).map_or(o.clone(), |v| o.isa(Some(v)));
        self.dim_bindings.iter().fold(o, |o, (s, n)| o.bind_dim(s.clone(), n))
    }

    /// What it was compiled with, where that is not the default.
    pub fn of_graphs(&self) -> Vec<(String, String)> {
        let usual = CompileOptions::new().of_graphs();
        let other = |(name, value): &&(String, String)| !usual.iter().any(|(n, v)| n == name && v == value);
        self.graphs.iter().filter(other).cloned().collect()
    }

    /// The first option of graphs that was set and asks for something else than what the program was compiled with.
    pub fn disagrees(&self, o: &CompileOptions) -> Option<&'static str> {
        let values = o.of_graphs();
        let same = |name: &str| {
            let asked = values.iter().find(|(n, _)| *n == name).map(|(_, v)| v);
            self.graphs.iter().find(|(n, _)| n == name).map(|(_, v)| v) == asked
        };
        o.without_effect_on_lir().into_iter().find(|n| !ABOUT_STORES.contains(n) && !same(n))
    }
}
