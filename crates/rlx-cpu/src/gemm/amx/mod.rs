//! Products on the matrix unit of x86-64 (AMX): bf16 operands, f32 sums.
//!
//! Three kinds of right operands come here, see [`Right`]: weights that are kept as tiles of bf16, and panels of f32 that
//! are split into one, two or three bf16 numbers ([`split`]) block by block. Rows of A are made tiles of once for a block
//! of rows. A block of 32 by 32 sums stays in tile registers over all of K, and is finished by the menu of f32 products.
//!
//! Invariants, besides those of [`super`]:
//! - An element depends on its row, its column, K and the kind of product alone: which elements leave the unit for
//!   multiply-adds is decided for each by itself ([`split::Extent`]), and padding is zero on both sides.
//! - Sums of one part are those of [`tiles::Dot::Bf16`], in ascending k.

pub(super) mod integer;
#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod model;
pub(super) mod split;
pub(super) mod tiles;

pub use split::Parts;

use super::block::{self, Out, each};
use super::epilogue::{Activate, Activation, Affine, ApplyMenu, Epilogue, Lines, OutputBlock};
use super::narrow::{NarrowPanels, PanelElem};
use super::{BOperand, GemmArgs};
use crate::simd::{Isa, Kernel, Simd, dispatch};
use rlx_compile::MatmulPrecision;
use split::{Columns, DEPTH, Extent, Rows, TILE};
use std::ops::Range;
use tiles::{BLOCK, Dot, Job, Pass, SIDE, Unit};

/// Rows of A made tiles of at a time, at most.
const ROWS: usize = 256;
/// Bound on them in bytes, where K is large.
const A_LIMIT: usize = 768 << 10;
/// Columns of C worked on before the hook runs.
const COLS: usize = 384;
/// The alignment of scratch, in elements of 32 bits.
const ALIGN: usize = 16;

/// Whether products of this level run on a matrix unit.
pub fn has_tiles(isa: Isa) -> bool {
    Unit::of(isa).is_some()
}

/// How panels of f32 are taken apart for products of so many rows on the level's matrix unit; `bf16`: both operands are of bf16, which
/// the panels hold exactly. `None`: they are multiplied as they are. With few rows, taking them apart costs more than the unit saves: as
/// measured, six products win from some 64 rows on, fewer products earlier.
pub fn parts(isa: Isa, matmul: MatmulPrecision, bf16: bool, rows: usize) -> Option<Parts> {
    let (parts, least) = match matmul {
        _ if bf16 => (Parts::One, 16),
        MatmulPrecision::Highest => (Parts::Three, 64),
        MatmulPrecision::High => (Parts::Two, 32),
        // What this rounds is of bf16 by now.
        MatmulPrecision::Medium => return None,
    };
    (rows >= least && has_tiles(isa)).then_some(parts)
}

/// What is multiplied.
#[derive(Clone, Copy)]
enum Right {
    /// Tiles of bf16.
    Tiles(NarrowPanels),
    /// Panels of f32.
    Split(*const f32, Parts),
}

impl Right {
    fn parts(self) -> Parts {
        match self {
            Right::Tiles(_) => Parts::One,
            Right::Split(_, parts) => parts,
        }
    }
}

/// A product for the matrix unit: how it uses scratch, in elements.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    unit: Unit,
    right: Right,
    /// Rows at a time.
    rows: usize,
    a_len: usize,
    b_len: usize,
    c_len: usize,
    /// For multiply-adds.
    spare: usize,
}

impl Plan {
    /// `None`: the operands are not for the unit.
    pub(super) fn new(isa: Isa, args: &GemmArgs<'_>, m: usize, n: usize) -> Option<Plan> {
        let right = match args.b {
            BOperand::Narrow(panels) if panels.layout.elem == PanelElem::Bf16Tiles => Right::Tiles(panels),
            BOperand::Split(panels, parts) => Right::Split(panels, parts),
            _ => return None,
        };
        let unit = Unit::of(isa)?;
        let count = right.parts().count();
        let limit = A_LIMIT / (2 * count * args.k.next_multiple_of(DEPTH).max(1)) / BLOCK * BLOCK;
        let rows = m.next_multiple_of(SIDE).clamp(SIDE, limit.clamp(BLOCK, ROWS));
        let split = matches!(right, Right::Split(..));
        let len = |numbers: usize| (numbers * count).div_ceil(2).next_multiple_of(ALIGN);
        Some(Plan {
            unit,
            right,
            rows,
            a_len: len(Rows::len(rows, args.k)),
            b_len: if split { len(Columns::len(BLOCK, args.k)) } else { 0 },
            c_len: if args.c.is_null() { rows * COLS.min(n.next_multiple_of(ALIGN)) } else { 0 },
            // Packed rows of a block.
            spare: if right.parts() == Parts::One { 0 } else { (BLOCK * args.k).next_multiple_of(ALIGN) + ALIGN },
        })
    }

    /// Elements of scratch.
    pub(super) fn len(&self) -> usize {
        self.a_len + self.b_len + self.c_len + self.spare + ALIGN
    }

    /// Computes some rows and columns of C.
    ///
    /// # Safety
    /// The promise of [`GemmArgs`]; rows and columns lie within C, columns from a panel's edge on; the plan is that of as
    /// many rows and columns, or more.
    pub(super) unsafe fn run(
        self,
        isa: Isa,
        args: &GemmArgs<'_>,
        rows: Range<usize>,
        cols: Range<usize>,
        scratch: &mut [f32],
    ) {
        assert!(
            scratch.len() >= self.len(),
            "a product on the matrix unit needs {} elements of scratch, not {}",
            self.len(),
            scratch.len()
        );
        let skip = scratch.as_ptr().align_offset(ALIGN * size_of::<f32>()).min(ALIGN);
        let (_, rest) = scratch.split_at_mut(skip);
        let (a, rest) = rest.split_at_mut(self.a_len);
        let (b, rest) = rest.split_at_mut(self.b_len);
        let (c, rest) = rest.split_at_mut(self.c_len);
        let (spare, hook_scratch) = rest.split_at_mut(self.spare);
        dispatch(isa, Tiled { plan: self, args, rows, cols, a, b, c, spare, hook_scratch });
    }
}

/// The same product by multiply-adds, without a result.
fn plain<'a>(args: &GemmArgs<'a>, panels: *const f32) -> GemmArgs<'a> {
    GemmArgs {
        b: BOperand::Packed(panels),
        c: std::ptr::dangling_mut(),
        c_row: BLOCK as isize,
        c_col: 1,
        accumulate: false,
        epilogue: Epilogue::default(),
        ..*args
    }
}

/// A block of sums.
#[repr(align(64))]
struct Sums([f32; BLOCK * BLOCK]);

impl Sums {
    fn lines(&mut self) -> Lines {
        Lines { data: self.0.as_mut_ptr(), row: BLOCK as isize }
    }
}

/// The rows and columns of a block of sums.
#[derive(Clone, Copy)]
struct Place {
    row: usize,
    col: usize,
    rows: usize,
    cols: usize,
}

struct Tiled<'a> {
    plan: Plan,
    args: &'a GemmArgs<'a>,
    rows: Range<usize>,
    cols: Range<usize>,
    a: &'a mut [f32],
    b: &'a mut [f32],
    c: &'a mut [f32],
    spare: &'a mut [f32],
    hook_scratch: &'a mut [f32],
}

impl Kernel for Tiled<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let (args, plan) = (self.args, self.plan);
        let parts = plan.right.parts();
        let steps = args.k.div_ceil(DEPTH);
        let entered = plan.unit.enter();
        let mut sums = Sums([0.0; BLOCK * BLOCK]);
        let (mut of_rows, mut of_cols) = ([Extent::NONE; ROWS], [Extent::NONE; BLOCK]);
        for row in self.rows.clone().step_by(plan.rows) {
            let rows = row..self.rows.end.min(row + plan.rows);
            let a = self.a.as_mut_ptr().cast::<u16>();
            let a_part = Rows::len(rows.len(), args.k);
            s.vectorize(Rows { a: args.a, row, k: args.k, parts, to: a, extents: &mut of_rows[..rows.len()] });
            for part in self.cols.clone().step_by(COLS) {
                let part = part..self.cols.end.min(part + COLS);
                let out = self.out(rows.start, part.start, part.len());
                for col in part.clone().step_by(BLOCK) {
                    let cols = (part.end - col).min(BLOCK);
                    let wide = cols > SIDE;
                    let (b, b_part) = match plan.right {
                        Right::Tiles(panels) => (panels.at(col / SIDE, 0), 0),
                        Right::Split(panels, _) => {
                            let to = self.b.as_mut_ptr().cast::<u16>();
                            let extents = &mut of_cols[..if wide { BLOCK } else { SIDE }];
                            let b_part = Columns::len(extents.len(), args.k);
                            s.vectorize(Columns { b: panels, n: args.n, col, k: args.k, parts, to, extents });
                            (to.cast::<u8>().cast_const(), b_part)
                        }
                    };
                    let mut r = 0;
                    while r < rows.len() {
                        let place = Place { row: rows.start + r, col, rows: (rows.len() - r).min(BLOCK), cols };
                        let mut passes = [Pass { a: std::ptr::null(), b }; 6];
                        for (pass, &(of_a, of_b)) in passes.iter_mut().zip(parts.products()) {
                            pass.a = a.wrapping_add(of_a * a_part + r / SIDE * steps * TILE).cast();
                            pass.b = b.wrapping_add(2 * of_b * b_part);
                        }
                        if steps == 0 {
                            sums.0.fill(0.0);
                        } else {
                            let passes = &passes[..parts.products().len()];
                            let job = Job::dense(passes, steps, wide, sums.0.as_mut_ptr().cast());
                            // SAFETY: tiles of A were made above, whole ones; those of B likewise, or the caller
                            // promises them; sums have room.
                            unsafe { entered.multiply(Dot::Bf16, place.rows > SIDE, &job) };
                        }
                        if let (Right::Split(panels, _), true) = (plan.right, parts != Parts::One) {
                            let of_rows = &of_rows[r..r + place.rows];
                            // SAFETY: the block lies within C.
                            unsafe { self.mend(s, panels, place, of_rows, &of_cols, &mut sums) };
                        }
                        let to = out.part(r, col - part.start);
                        // SAFETY: as above.
                        unsafe { self.finish(s, place, &mut sums, to) };
                        r += BLOCK;
                    }
                }
                if let Some(hook) = args.epilogue.hook {
                    hook.run(OutputBlock {
                        rows: rows.clone(),
                        cols: part,
                        data: out.data,
                        row_stride: out.row,
                        col_stride: out.col,
                        scratch: &mut *self.hook_scratch,
                    });
                }
            }
        }
    }
}

impl Tiled<'_> {
    /// Where the block of C from `row` and `col` on, `width` columns wide, is written.
    fn out(&mut self, row: usize, col: usize, width: usize) -> Out {
        let args = self.args;
        if args.c.is_null() {
            return Out { data: self.c.as_mut_ptr(), row: width as isize, col: 1 };
        }
        let offset = row as isize * args.c_row + col as isize * args.c_col;
        Out { data: args.c.wrapping_offset(offset), row: args.c_row, col: args.c_col }
    }

    /// Computes again, by multiply-adds, what parts cannot show.
    ///
    /// # Safety
    /// The block lies within C.
    #[inline(always)]
    unsafe fn mend<S: Simd>(
        &mut self,
        s: S,
        panels: *const f32,
        place: Place,
        of_rows: &[Extent],
        of_cols: &[Extent; BLOCK],
        sums: &mut Sums,
    ) {
        let of_cols = &of_cols[..place.cols];
        let all = |of: &[Extent]| of.iter().copied().fold(Extent::NONE, Extent::join);
        let k = self.args.k;
        if all(of_rows).fits(all(of_cols), k) {
            return;
        }
        let mut other = Sums([0.0; BLOCK * BLOCK]);
        let back = place.row as isize * BLOCK as isize + place.col as isize;
        let args = GemmArgs { c: other.0.as_mut_ptr().wrapping_offset(-back), ..plain(self.args, panels) };
        let (rows, cols) = (place.row..place.row + place.rows, place.col..place.col + place.cols);
        let plan = block::Plan::new(S::W * S::TILE_VECTORS, &args, rows.len(), cols.len());
        // SAFETY: the caller's promise; the result is a block of its own.
        s.vectorize(unsafe { block::Block::new(plan, &args, rows, cols, &mut *self.spare) });
        for (r, of_row) in of_rows.iter().enumerate() {
            for (c, of_col) in of_cols.iter().enumerate() {
                if !of_row.fits(*of_col, k) {
                    sums.0[r * BLOCK + c] = other.0[r * BLOCK + c];
                }
            }
        }
    }

    /// Takes the menu's steps on sums and writes them.
    ///
    /// # Safety
    /// The block lies within C, and begins at `to`.
    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, s: S, place: Place, sums: &mut Sums, to: Out) {
        let Place { row, col, rows, cols } = place;
        let epilogue = &self.args.epilogue;
        let from = sums.lines();
        // SAFETY: the caller's promise, for the whole body.
        unsafe {
            if self.args.accumulate {
                each(rows, cols, |r, c| *from.at(r, c) += *to.at(r, c));
            }
            if to.col != 1 {
                s.vectorize(ApplyMenu { epilogue, row, col, rows, cols, from, to: from });
                each(rows, cols, |r, c| *to.at(r, c) = *from.at(r, c));
                return;
            }
            let to = to.lines();
            match epilogue.in_registers() {
                Some((_, activation)) if activation != Activation::None && cols == BLOCK => {
                    let short = Epilogue { activation: Activation::None, affine: Affine::default(), ..*epilogue };
                    s.vectorize(ApplyMenu { epilogue: &short, row, col, rows, cols, from, to: from });
                    let affine = epilogue.affine;
                    s.vectorize(Activate { activation, affine, tile: from.data, rows, cols, to });
                }
                _ => s.vectorize(ApplyMenu { epilogue, row, col, rows, cols, from, to }),
            }
        }
    }
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests;
