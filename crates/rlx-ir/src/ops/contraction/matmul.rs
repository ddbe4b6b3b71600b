//! Matrix product with NumPy's rules for ranks, made of [`DotGeneral`](super::DotGeneral).

use crate::builder::Builder;
use crate::dtype::DType;
use crate::error::IrError;
use crate::graph::ValueId;

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
            return Err(IrError::Eval(format!("matmul takes operands of rank 1 or more, got {sa} and {sb}")));
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
        let (batch_a, batch_b) = (sa[..ra - 2].to_vec(), sb[..rb - 2].to_vec());
        let (a, b) = if batch_a == batch_b {
            (a, b)
        } else {
            return Err(IrError::Eval(format!("batches of {sa} and {sb} differ")));
        };
        let n = ra.max(rb) - 2;
        let batch: Vec<usize> = (0..n).collect();
        self.dot_general(a, b, &batch, &batch, &[n + 1], &[n], accumulate)
    }
}
