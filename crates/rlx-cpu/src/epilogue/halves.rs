//! Products that end in 16-bit floats: the menu in f32, then a row of a finished block at a time is rounded on its way to memory.

use super::direct::{Direct, Matrix};
use super::menu::Menu;
use crate::buffers::{BoundAccess, Buffers};
use crate::gemm::{GemmArgs, OutputBlock, TileEpilogue};
use crate::space::position;
use crate::tile::io::{self, Block};
use rlx_compile::lir::{Epilogue, ScalarOp};
use rlx_ir::DType;
use rlx_ir::ops::Elementwise;

/// True for the dtypes that this file writes.
pub fn is_half(d: DType) -> bool {
    matches!(d, DType::BF16 | DType::F16)
}

/// The menu of an epilogue that ends in a cast to a 16-bit float.
pub fn menu(e: &Epilogue) -> Option<Menu> {
    let [result] = e.program.results[..] else { return None };
    let last = e.program.insts.get(result as usize)?;
    let cast = matches!(last.op, ScalarOp::Apply(Elementwise::Convert { .. })) && is_half(last.dtype);
    let &[from] = last.args.as_slice() else { return None };
    // The cast is the last instruction, and the only reader of what it casts.
    if !cast || result as usize + 1 != e.program.insts.len() {
        return None;
    }
    let mut wide = e.clone();
    wide.program.insts.pop();
    wide.program.results = vec![from];
    Menu::of(&wide)
}

/// What is written, as a matrix with its steps on the loops around products.
#[derive(Debug)]
pub struct Halves {
    menu: Direct,
    write: Matrix,
    dtype: DType,
}

impl Halves {
    /// From the menu with the result's matrix.
    pub fn new(menu: Direct, write: Matrix, walk: &BoundAccess) -> Halves {
        Halves { menu, write, dtype: walk.dtype }
    }

    /// Gives a product the menu, and what sees its blocks.
    pub fn set<'a>(
        &'a self,
        args: &mut GemmArgs<'_>,
        bufs: &Buffers<'a>,
        outer: &[usize],
        i: usize,
        row: usize,
    ) -> Store<'a> {
        self.menu.set(args, bufs, outer, i, (row, 0), 1);
        (args.c, args.c_row, args.c_col) = (std::ptr::null_mut(), 0, 1);
        let start = position(i, outer, self.write.offset, &self.write.outer) + row as i64 * self.write.row;
        Store { halves: self, base: bufs.base(self.write.buffer), start }
    }
}

/// Writes finished blocks.
pub struct Store<'a> {
    halves: &'a Halves,
    base: *mut u8,
    start: i64,
}

// SAFETY: only an address; blocks of a product do not overlap, and who runs it answers for the memory.
unsafe impl Send for Store<'_> {}
// SAFETY: as above.
unsafe impl Sync for Store<'_> {}

impl TileEpilogue for Store<'_> {
    fn run(&self, block: OutputBlock<'_>) {
        let Halves { write, dtype, .. } = self.halves;
        let columns = [block.cols.len()];
        for (i, r) in block.rows.clone().enumerate() {
            let from = block.data.wrapping_offset(i as isize * block.row_stride).cast::<u8>();
            let to = self.start + r as i64 * write.row + block.cols.start as i64 * write.col;
            let row = Block { sizes: &columns, strides: &[write.col] };
            // SAFETY: the block is within the product, whose result was checked at bind; rows of it are this thread's alone.
            unsafe { io::store(*dtype, self.base, to, row, from) };
        }
    }
}
