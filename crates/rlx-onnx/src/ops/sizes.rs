//! Pieces that many ops share: ranges of axes, axes dropped and added, facts recorded about sizes.

use rlx_ir::dim::{Constraint, ConstraintRecord};
use rlx_ir::{Dim, ValueId};

use super::context::{Failure, NodeCx};

impl NodeCx<'_, '_> {
    /// Records a fact that the op needs, to be checked when sizes are known; an error if it is known not to hold.
    pub fn require(&mut self, constraint: Constraint, why: &str) -> Result<(), Failure> {
        match constraint.decide() {
            Some(true) => Ok(()),
            Some(false) => Err(Failure::refused(format!("{why}: it does not hold that {constraint}"))),
            None => {
                let origin = format!("{}: {why}", self.node.label);
                self.b().graph_mut().add_constraints(&[ConstraintRecord::new(constraint, origin)]);
                Ok(())
            }
        }
    }

    /// A range of one axis; bounds are within the axis.
    pub fn range_of(&mut self, x: ValueId, axis: usize, start: Dim, limit: Dim, step: i64) -> Result<ValueId, Failure> {
        let shape = self.shape(x)?;
        let mut starts = vec![Dim::ZERO; shape.rank()];
        let mut limits = shape.into_dims();
        let mut steps = vec![1; limits.len()];
        if let (Some(s), Some(l), Some(t)) = (starts.get_mut(axis), limits.get_mut(axis), steps.get_mut(axis)) {
            (*s, *l, *t) = (start, limit, step);
        }
        Ok(self.b().slice(x, starts, limits, steps)?)
    }

    /// A vector along one axis of a tensor of `rank` axes.
    pub fn along(&mut self, v: ValueId, axis: usize, rank: usize) -> Result<ValueId, Failure> {
        let n = self.shape(v)?.numel();
        let mut dims = vec![Dim::ONE; rank];
        if let Some(d) = dims.get_mut(axis) {
            *d = n;
        }
        Ok(self.b().reshape(v, dims)?)
    }
}

/// The product of dims.
pub(super) fn product(dims: &[Dim]) -> Dim {
    Dim::product(dims.iter().cloned())
}

/// Arithmetic with numbers.
impl NodeCx<'_, '_> {
    /// `x · k`.
    pub fn times(&mut self, x: ValueId, k: f64) -> Result<ValueId, Failure> {
        let k = self.scalar_like(x, k)?;
        Ok(self.b().mul(x, k)?)
    }

    /// `x + k`.
    pub fn plus(&mut self, x: ValueId, k: f64) -> Result<ValueId, Failure> {
        let k = self.scalar_like(x, k)?;
        Ok(self.b().add(x, k)?)
    }

    /// A size as a scalar of a dtype.
    pub fn dim_as(&mut self, d: Dim, dtype: rlx_ir::DType) -> Result<ValueId, Failure> {
        let v = self.b().from_dim(d)?;
        Ok(self.b().convert(v, dtype)?)
    }

    /// `x` between two numbers.
    pub fn between(&mut self, x: ValueId, lo: ValueId, hi: ValueId) -> Result<ValueId, Failure> {
        let (above, below) = (self.b().ge(x, lo)?, self.b().le(x, hi)?);
        Ok(self.b().and(above, below)?)
    }
}
