//! Matrix multiplication: C = epilogue(A · B), and the pieces a caller needs to run it on threads.
//!
//! f32 runs on packed panels in the manner of BLIS: B is copied to panels that a register tile reads in order, once for
//! all ([`pack_b`]) where it is a weight, else on the fly. Rows of A are read where they lie, in segments too
//! ([`AOperand`]), or copied to tiles where that pays. Short steps of the epilogue are taken in registers, long ones while a
//! tile is in the nearest cache. Other element types have plain blocked loops ([`typed`]).
//!
//! Invariants:
//! - **Order of summation.** K is cut into blocks whose size depends on K alone ([`k_block`]). Within a block each
//!   element of C is one chain of multiply-adds in ascending k, starting at zero; blocks are added in ascending order.
//!   Every path (any tile size, packed or not, one row or many) keeps to this, so that a result depends on K and the
//!   level only: not on M, N, the division into tasks, or the neighbours of a row or column. On a matrix unit ([`amx`])
//!   sums are the unit's; there too a result depends on K and on what the operands are ([`BOperand`]) alone.
//! - **Padding never leaks.** Panels are padded with zeros; what padded lanes compute (0 · ∞ too) is dropped.
//! - Nothing here allocates: scratch comes from the caller ([`GemmArgs::scratch_len`]).
//! - Pointers are the caller's promise (see [`GemmArgs`]); strides are in elements and may be negative or zero for
//!   what is only read.

pub mod amx;
mod block;
mod epilogue;
mod integer;
mod microkernel;
mod narrow;
mod pack;
mod stream;
mod tasks;
pub mod typed;

pub use epilogue::{Activation, Affine, Epilogue, OutputBlock, TileEpilogue, apply_menu};
pub(crate) use epilogue::{Finish, Lines, apply_menu_to, load};
pub use integer::{Bytes, IntArgs, IntElem, IntLayout, gemm_integers, pack_integers};
pub use narrow::{NarrowPanels, PanelElem, PanelLayout, pack_narrow, widen_panels};
pub use pack::{pack_b, pack_b_panels, packed_b_len, panel_width};
pub use tasks::{TaskGrid, gemm_tasks, is_one_task};

use crate::simd::{Isa, dispatch};
use std::ops::Range;

/// A matrix in memory: element (r, c) stands at `data + r · row + c · col`.
#[derive(Clone, Copy, Debug)]
pub struct Strided {
    /// Element (0, 0).
    pub data: *const f32,
    /// Elements from one row to the next.
    pub row: isize,
    /// Elements from one column to the next.
    pub col: isize,
}

impl Strided {
    /// Where element (r, c) stands; the caller answers for its being inside the matrix.
    #[inline(always)]
    pub(crate) fn at(&self, r: usize, c: usize) -> *const f32 {
        self.data.wrapping_offset(r as isize * self.row + c as isize * self.col)
    }
}

/// The left operand.
#[derive(Clone, Copy, Debug)]
pub enum AOperand<'a> {
    /// A matrix as it is, M by K.
    Strided(Strided),
    /// Rows in segments of unit stride, such as the taps of a convolution's points: segment `i` of row `r` begins at
    /// `starts[r · (k / width) + i]`.
    Segments {
        /// Where segments begin.
        starts: &'a [*const f32],
        /// Elements of each; K is a multiple of it.
        width: usize,
    },
    /// A matrix of bf16, for products of bf16 on a matrix unit alone.
    Bf16 {
        /// Element (0, 0).
        data: *const u16,
        /// Elements from one row to the next.
        row: isize,
        /// Elements from one column to the next.
        col: isize,
    },
}

impl From<Strided> for AOperand<'_> {
    fn from(matrix: Strided) -> Self {
        AOperand::Strided(matrix)
    }
}

/// The right operand.
#[derive(Clone, Copy, Debug)]
pub enum BOperand {
    /// Panels that [`pack_b`] wrote at the same level, for the same K and N.
    Packed(*const f32),
    /// Panels of narrower elements at the same level, for the same K and N.
    Narrow(NarrowPanels),
    /// A matrix as it is, K by N.
    Strided(Strided),
    /// Panels as of [`BOperand::Packed`], multiplied as sums of so many bf16 numbers on the level's matrix unit
    /// ([`amx::has_tiles`]).
    Split(*const f32, amx::Parts),
}

/// One product: A is `m` by `k`, B is `k` by `n`, C is `m` by `n`.
///
/// # Safety of use
/// [`gemm`] and [`gemm_task`] require: every element of A, B, C and of the epilogue's operands that the shapes reach
/// is valid; C overlaps nothing else that is read (for `C += …` use `accumulate`; bias or residual may be C itself if the
/// epilogue says so), and no two of its elements coincide.
#[derive(Clone, Copy)]
pub struct GemmArgs<'a> {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B. With `k = 0` the product is zero, and C is still written.
    pub k: usize,
    /// The left operand.
    pub a: AOperand<'a>,
    /// The right operand.
    pub b: BOperand,
    /// Element (0, 0) of the result. Null: the result goes to scratch block by block, and only the epilogue's hook
    /// sees it (there must be one, and `accumulate` must be off).
    pub c: *mut f32,
    /// Elements from one row of C to the next.
    pub c_row: isize,
    /// Elements from one column of C to the next.
    pub c_col: isize,
    /// Adds what C held before to the product, before the epilogue.
    pub accumulate: bool,
    /// What happens to the product on its way to C.
    pub epilogue: Epilogue<'a>,
}

// SAFETY: the pointers are only a description; whoever passes it to `gemm_task` promises their validity there, on
// whichever thread that is, and that tasks of one grid write disjoint parts of C is `TaskGrid`'s invariant.
unsafe impl Send for GemmArgs<'_> {}
// SAFETY: as above.
unsafe impl Sync for GemmArgs<'_> {}

impl GemmArgs<'_> {
    /// The scratch that one call of [`gemm`], or each concurrent call of [`gemm_task`], needs. More may be given: the
    /// rest is handed to the epilogue's hook.
    pub fn scratch_len(&self, isa: Isa) -> usize {
        match amx::Plan::new(isa, self, self.m, self.n) {
            Some(plan) => plan.len(),
            None => block::scratch_len(isa, self),
        }
    }

    /// Makes column steps 1 wherever there is one column alone: the step says nothing then, but decides how C is written.
    fn with_plain<R>(&self, f: impl FnOnce(&GemmArgs<'_>) -> R) -> R {
        if self.n != 1 {
            return f(self);
        }
        let mut args = *self;
        args.c_col = 1;
        for m in args.epilogue.bias.iter_mut().chain(&mut args.epilogue.residual) {
            m.col = 1;
        }
        f(&args)
    }
}

/// Computes the whole product.
///
/// # Safety
/// See [`GemmArgs`].
pub unsafe fn gemm(isa: Isa, args: &GemmArgs<'_>, scratch: &mut [f32]) {
    // SAFETY: the caller keeps GemmArgs' promise.
    unsafe { part(isa, args, 0..args.m, 0..args.n, scratch) }
}

/// Some rows and columns of a product.
///
/// # Safety
/// See [`GemmArgs`]; rows and columns lie within C, columns from a panel's edge on.
unsafe fn part(isa: Isa, args: &GemmArgs<'_>, rows: Range<usize>, cols: Range<usize>, scratch: &mut [f32]) {
    args.with_plain(|args| {
        if let Some(plan) = amx::Plan::new(isa, args, rows.len(), cols.len()) {
            // SAFETY: the caller's promise.
            return unsafe { plan.run(isa, args, rows, cols, scratch) };
        }
        let plan = block::Plan::new(panel_width(isa), args, rows.len(), cols.len());
        // SAFETY: the caller's promise.
        dispatch(isa, unsafe { block::Block::new(plan, args, rows, cols, scratch) });
    });
}

/// How a product that is computed as a whole by multiply-adds uses scratch: worked out once for products that differ in
/// addresses alone.
#[derive(Clone, Copy, Debug)]
pub struct Planned(block::Plan);

impl Planned {
    /// Plans a product. Of addresses it matters only whether C is null, of the epilogue whether it reads C.
    pub fn new(isa: Isa, args: &GemmArgs<'_>) -> Planned {
        args.with_plain(|args| Planned(block::Plan::new(panel_width(isa), args, args.m, args.n)))
    }

    /// The scratch that [`gemm_planned`] needs.
    pub fn scratch_len(&self) -> usize {
        self.0.len()
    }
}

/// [`gemm`] of a product that was planned.
///
/// # Safety
/// See [`GemmArgs`]. `planned` was made for the same product, up to addresses.
pub unsafe fn gemm_planned(isa: Isa, args: &GemmArgs<'_>, planned: &Planned, scratch: &mut [f32]) {
    args.with_plain(|args| {
        // SAFETY: the caller's promise.
        dispatch(isa, unsafe { block::Block::new(planned.0, args, 0..args.m, 0..args.n, scratch) });
    });
}

/// Computes some rows of the part of C whose columns belong to task `task` of `grid`, which was made for one row of tasks
/// ([`TaskGrid::columns`]).
///
/// # Safety
/// See [`GemmArgs`]. `grid` must be of the same `isa` and `n`.
pub unsafe fn gemm_columns(isa: Isa, args: &GemmArgs<'_>, grid: &TaskGrid, task: usize, scratch: &mut [f32]) {
    // SAFETY: the caller keeps GemmArgs' promise, and the grid's columns lie within n.
    unsafe { part(isa, args, 0..args.m, grid.block(task).1, scratch) }
}

/// Computes the part of C that belongs to task `task` of `grid`; the results of all tasks together equal [`gemm`]'s
/// bit by bit.
///
/// # Safety
/// See [`GemmArgs`]. `grid` must come from [`gemm_tasks`] with the same `isa`, `m` and `n`.
pub unsafe fn gemm_task(isa: Isa, args: &GemmArgs<'_>, grid: &TaskGrid, task: usize, scratch: &mut [f32]) {
    let (rows, cols) = grid.block(task);
    // SAFETY: the caller keeps GemmArgs' promise, and the grid's blocks lie within m by n.
    unsafe { part(isa, args, rows, cols, scratch) }
}

/// The size of all blocks of K but the last, which may be smaller.
pub(crate) fn k_block(k: usize) -> usize {
    /// A panel of B of this depth leaves room for a panel of A in 32 KiB.
    const LARGEST: usize = 384;
    if k <= LARGEST {
        return k.next_multiple_of(4);
    }
    // Even blocks: a short last one would pay the reload of C for little work.
    k.div_ceil(k.div_ceil(LARGEST).max(1)).next_multiple_of(4)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_integer;
#[cfg(test)]
mod tests_narrow;
