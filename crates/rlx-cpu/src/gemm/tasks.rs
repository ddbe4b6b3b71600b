//! Division of C into independent blocks.

use super::panel_width;
use crate::simd::Isa;
use std::ops::Range;

/// Multiply-adds below which a task is not worth a hand-over to another thread (some microseconds).
const SMALLEST_TASK: usize = 1 << 17;

/// A grid of blocks of C: they cover it and do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskGrid {
    m: usize,
    n: usize,
    row_step: usize,
    col_step: usize,
}

impl TaskGrid {
    /// Tasks that divide the columns alone, for about `threads` threads.
    pub fn columns(isa: Isa, m: usize, n: usize, k: usize, threads: usize) -> TaskGrid {
        let nr = panel_width(isa);
        let work = m.saturating_mul(n).saturating_mul(k.max(1));
        let wanted = (work / SMALLEST_TASK).clamp(1, threads.max(1));
        let col_step = n.div_ceil(nr).max(1).div_ceil(wanted) * nr;
        TaskGrid { m, n, row_step: m.max(1), col_step }
    }

    fn row_tasks(&self) -> usize {
        self.m.div_ceil(self.row_step)
    }

    /// Number of tasks; 0 where C is empty.
    pub fn len(&self) -> usize {
        self.row_tasks() * self.n.div_ceil(self.col_step)
    }

    /// Is C empty?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows and columns of task `task`; both empty from [`Self::len`] on. Neighbouring tasks share columns of B.
    pub fn block(&self, task: usize) -> (Range<usize>, Range<usize>) {
        if task >= self.len() {
            return (0..0, 0..0);
        }
        let r = task % self.row_tasks() * self.row_step;
        let c = task / self.row_tasks() * self.col_step;
        (r..self.m.min(r + self.row_step), c..self.n.min(c + self.col_step))
    }
}

/// Is a product of this size one task for any number of threads?
pub fn is_one_task(m: usize, n: usize, k: usize) -> bool {
    m.saturating_mul(n).saturating_mul(k.max(1)) / SMALLEST_TASK <= 1
}

/// A division of an `m` by `n` by `k` product for `threads` threads: about one task a thread, fewer where the work is
/// small, whole panels of B each. The division never changes a result.
pub fn gemm_tasks(isa: Isa, m: usize, n: usize, k: usize, threads: usize) -> TaskGrid {
    let nr = panel_width(isa);
    // Row cuts at multiples of 12 or 28 keep register tiles full on the common levels.
    const ROW_UNIT: usize = 12;
    let work = m.saturating_mul(n).saturating_mul(k.max(1));
    let wanted = (work / SMALLEST_TASK).clamp(1, threads.max(1));
    let (row_units, col_units) = (m.div_ceil(ROW_UNIT).max(1), n.div_ceil(nr).max(1));
    let mut best = (usize::MAX, usize::MAX, row_units, col_units);
    for across in 1..=wanted.min(col_units) {
        let down = (wanted / across).clamp(1, row_units);
        let (r, c) = (row_units.div_ceil(down), col_units.div_ceil(across));
        // Time goes with the largest block; among equals, the least data read: each task reads its rows of A and its
        // columns of B.
        let largest = r * ROW_UNIT.min(m.max(1)) * c * nr;
        let read = down * n + across * m;
        if (largest, read) < (best.0, best.1) {
            best = (largest, read, r, c);
        }
    }
    TaskGrid { m, n, row_step: best.2 * ROW_UNIT, col_step: best.3 * nr }
}
