//! Matrix product with NumPy's rules for ranks, made of [`DotGeneral`](super::DotGeneral).

use crate::builder::Builder;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{IrError, OpError};
use crate::graph::ValueId;
use crate::types::Shape;

impl Builder {
    /// `a @ b` as NumPy defines it: rank-1 operands are a row on the left and a column on the right, batch axes broadcast.
    pub fn matmul(&mut self, a: ValueId, b: ValueId) -> Result<ValueId, IrError> {
        self.matmul_to(a, b, None)
    }

    /// [`matmul`](Builder::matmul) with the result's dtype given.
    pub fn matmul_to(&mut self, a: ValueId, b: ValueId, accumulate: Option<DType>) -> Result<ValueId, IrError> {
        let (sa, sb) = (self.shape(a)?, self.shape(b)?);
        let (ra, rb) = (sa.rank(), sb.rank());
        if ra == 0 || rb == 0 {
            return Err(self.refuse("matmul", &[a, b], OpError::new("takes operands of rank 1 or more")));
        }
        // Batch axes on one side only need no broadcast: that side's are free axes.
        if ra <= 2 || rb <= 2 {
            let k = rb.saturating_sub(2);
            if rb <= 2 {
                return self.dot_general(a, b, &[], &[], &[ra - 1], &[k], accumulate);
            }
            let out = self.dot_general(a, b, &[], &[], &[ra - 1], &[k], accumulate)?;
            // dot_general puts the left side's row axis first, matmul puts it before the column.
            if ra == 2 {
                let rank = rb;
                let perm: Vec<usize> = (1..rank - 1).chain([0, rank - 1]).collect();
                return self.transpose(out, &perm);
            }
            return Ok(out);
        }
        let (a, b) = self.broadcast_batches(a, b)?;
        let n = ra.max(rb) - 2;
        let batch: Vec<usize> = (0..n).collect();
        self.dot_general(a, b, &batch, &batch, &[n + 1], &[n], accumulate)
    }

    /// The operands with equal batch axes: all but the last two broadcast against each other.
    fn broadcast_batches(&mut self, a: ValueId, b: ValueId) -> Result<(ValueId, ValueId), IrError> {
        let (sa, sb) = (self.shape(a)?, self.shape(b)?);
        let (na, nb) = (sa.rank() - 2, sb.rank() - 2);
        let n = na.max(nb);
        let batch: Vec<Dim> = (0..n)
            .map(|i| {
                let dim = |s: &Shape, k: usize| (i + k).checked_sub(n).map_or(Dim::ONE, |i| s[i].clone());
                dim(&sa, na).bcast(dim(&sb, nb))
            })
            .collect();
        let mut expand = |x: ValueId, s: &Shape| {
            let dims: Vec<Dim> = batch.iter().chain(&s[s.rank() - 2..]).cloned().collect();
            if s.dims() == dims { Ok(x) } else { self.broadcast_to(x, dims) }
        };
        Ok((expand(a, &sa)?, expand(b, &sb)?))
    }
}
