//! Weights by name, from memory, a module or a safetensors file.

use std::collections::BTreeMap;
use std::path::Path;

use rlx_ir::{Module, Tensor};
use rlx_runtime::safetensors::{SafetensorsError, read};

/// Tensors by name.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    tensors: BTreeMap<String, Tensor>,
}

impl Weights {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Maps a safetensors file. Tensors stay in the file, which must not change while they live; nothing is copied.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SafetensorsError> {
        Ok(read(path)?.into_iter().collect())
    }

    /// The defaults of a module's parameters: what an imported model brings.
    pub fn of_module(module: &Module) -> Self {
        let named = module.main.params().iter().filter_map(|p| Some((p.name.to_string(), p.default.clone()?)));
        Weights { tensors: named.collect() }
    }

    /// Adds a tensor, or replaces the one of that name.
    pub fn insert(&mut self, name: impl Into<String>, value: Tensor) {
        self.tensors.insert(name.into(), value);
    }

    /// The tensor of a name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// All names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// With names changed; those for which `rename` gives none are dropped.
    #[must_use]
    pub fn renamed(self, mut rename: impl FnMut(&str) -> Option<String>) -> Self {
        Weights { tensors: self.tensors.into_iter().filter_map(|(n, t)| Some((rename(&n)?, t))).collect() }
    }
}

impl<N: Into<String>> FromIterator<(N, Tensor)> for Weights {
    fn from_iter<I: IntoIterator<Item = (N, Tensor)>>(items: I) -> Self {
        Weights { tensors: items.into_iter().map(|(n, t)| (n.into(), t)).collect() }
    }
}
