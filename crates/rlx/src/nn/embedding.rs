//! Tables of vectors looked up by index.

use rlx_ir::{DType, Dim, ValueId};

use super::block::{Block, Layer, ParamSpec};
use super::error::NnError;
use super::net::Scope;

/// Rows of a table by index. Parameter: `weight` `[rows, features]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedding {
    rows: usize,
    features: usize,
}

impl Embedding {
    /// A table.
    pub const fn new(rows: usize, features: usize) -> Self {
        Embedding { rows, features }
    }

    /// The first `count` rows, `[count, features]`: the embedding of positions.
    pub fn first(&self, scope: &mut Scope<'_>, count: impl Into<Dim>) -> Result<ValueId, NnError> {
        let count = count.into();
        let params = scope.declare(self)?;
        let features = Dim::from(self.features);
        scope.build(self.kind(), &params, |b| {
            let Some(&table) = params.first() else { return b.from_dims(Vec::new()) };
            b.slice(table, vec![Dim::ZERO, Dim::ZERO], vec![count, features], vec![1, 1])
        })
    }

    /// The table's transpose as a layer without bias, `[…, features]` to `[…, rows]`, sharing the parameter.
    pub const fn tied(&self) -> super::Linear {
        super::Linear::new(self.features, self.rows).bias(false)
    }
}

impl Block for Embedding {
    fn kind(&self) -> &'static str {
        "embedding"
    }

    fn params(&self, dtype: DType) -> Vec<ParamSpec> {
        vec![ParamSpec::new("weight", dtype, [self.rows, self.features])]
    }
}

impl Layer for Embedding {
    /// Integers of any shape to their rows on a new last axis. An index outside the table is an error of the run.
    fn apply(&self, scope: &mut Scope<'_>, x: ValueId) -> Result<ValueId, NnError> {
        let params = scope.declare(self)?;
        scope.build(self.kind(), &[x], |b| match params.first() {
            Some(&table) => b.gather(table, x, 0),
            None => Ok(x),
        })
    }
}
