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
            for (i, r) in block.rows.clone().enumerate() {
                let acc = block.data.wrapping_offset(i as isize * block.row_stride).cast::<u8>();
                let (row, col) = ((self.row)(r), self.col + block.cols.start);
                // SAFETY: the block is within the product, whose output is within the plan's; its memory is this
                // thread's alone, and so is the piece of the output, since blocks do not overlap.
                unsafe { runner.run(row, col, block.cols.len(), acc) };
            }
        });
    }
}
