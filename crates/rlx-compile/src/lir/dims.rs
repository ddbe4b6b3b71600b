//! The table of a program's sizes.

use std::collections::HashMap;

use rlx_ir::Dim;
use serde::{Deserialize, Serialize};

/// A dim of a program's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DimId(pub u32);

impl DimId {
    /// Position in the table.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Distinct dims, each evaluated once when sizes are known.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Dim>", into = "Vec<Dim>")]
pub struct DimTable {
    dims: Vec<Dim>,
    index: HashMap<Dim, DimId>,
}

impl DimTable {
    /// The id of a dim, added if new.
    pub fn intern(&mut self, dim: impl Into<Dim>) -> DimId {
        let dim = dim.into();
        if let Some(&id) = self.index.get(&dim) {
            return id;
        }
        let id = DimId(self.dims.len() as u32);
        self.dims.push(dim.clone());
        self.index.insert(dim, id);
        id
    }

    /// The dim of an id of this table.
    pub fn get(&self, id: DimId) -> &Dim {
        &self.dims[id.index()]
    }

    /// All dims, by id.
    pub fn dims(&self) -> &[Dim] {
        &self.dims
    }

    /// Number of dims.
    pub fn len(&self) -> usize {
        self.dims.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.dims.is_empty()
    }
}

impl PartialEq for DimTable {
    fn eq(&self, other: &Self) -> bool {
        self.dims == other.dims
    }
}

impl From<Vec<Dim>> for DimTable {
    fn from(dims: Vec<Dim>) -> Self {
        let mut t = DimTable::default();
        for d in dims {
            t.intern(d);
        }
        t
    }
}

impl From<DimTable> for Vec<Dim> {
    fn from(t: DimTable) -> Self {
        t.dims
    }
}
