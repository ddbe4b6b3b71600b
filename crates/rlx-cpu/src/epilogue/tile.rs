//! Epilogues on finished blocks of an f32 product.

use super::EpiloguePlan;
use crate::buffers::Buffers;
use crate::gemm::{OutputBlock, TileEpilogue};
use crate::simd::Isa;
use crate::tile::code::Code;

/// Runs an epilogue on each block. Row r and column c of the product are row `row(r)` and column `col + c` of the output.
/// Blocks must have a column stride of 1, as those in scratch do.
pub struct OnBlocks<'a> {
    /// The epilogue.
    pub plan: &'a EpiloguePlan,
    /// Its program.
    pub code: &'a Code,
    /// Memory.
    pub bufs: Buffers<'a>,
    /// Instruction set.
    pub isa: Isa,
    /// Output rows of the product's rows.
    pub row: &'a (dyn Fn(usize) -> usize + Sync),
    /// Output column of the product's column 0.
    pub col: usize,
}

impl TileEpilogue for OnBlocks<'_> {
    fn run(&self, block: OutputBlock<'_>) {
        debug_assert_eq!(block.col_stride, 1, "blocks in scratch are dense along columns");
        self.plan.with_runner(self.code, self.bufs, self.isa, |runner| {
            let (step, col) = (block.row_stride * size_of::<f32>() as isize, self.col + block.cols.start);
            let mut r = block.rows.start;
            while r < block.rows.end {
                // Rows of the output that follow each other go together.
                let row = (self.row)(r);
                let next = (r + 1..block.rows.end).take_while(|&q| (self.row)(q) == row + (q - r)).count();
                let acc = block.data.cast::<u8>().wrapping_offset((r - block.rows.start) as isize * step);
                // SAFETY: the block is within the product, whose output is within the plan's; its memory is this
                // thread's alone, and so is the piece of the output, since blocks do not overlap.
                unsafe { runner.run_rows(row..row + next + 1, col, block.cols.len(), acc, step) };
                r += next + 1;
            }
        });
    }
}
