//! Products of bytes on the matrix unit, for [`super::super::integer`]: exact sums in i32, finished as those of vectors are.

use super::super::integer::{IntArgs, Out, Tile};
use super::tiles::{BLOCK, Dot, Job, Pass, ROW_BYTES, SIDE, Unit};
use crate::simd::{Isa, Kernel, Simd};
use std::ops::Range;

/// Rows of A as tiles: for each sixteen rows, tile after tile along K.
pub struct Rows<'a> {
    /// The product.
    pub args: &'a IntArgs<'a>,
    /// Its rows.
    pub rows: Range<usize>,
    /// Has room for them.
    pub to: *mut u8,
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (a, k) = (self.args.a, self.args.k);
        let steps = self.args.a_row() / ROW_BYTES;
        for i in 0..self.rows.len().next_multiple_of(SIDE) {
            let row = self.rows.start + i;
            let there = if row < self.rows.end { k } else { 0 };
            let from = a.data.wrapping_offset(row as isize * a.row);
            for step in 0..steps {
                let to = self.to.wrapping_add((i / SIDE * steps + step) * SIDE * ROW_BYTES + i % SIDE * ROW_BYTES);
                let first = step * ROW_BYTES;
                let n = there.saturating_sub(first).min(ROW_BYTES);
                // SAFETY: the row's elements are valid, and the scratch holds whole tiles.
                unsafe {
                    if a.col == 1 {
                        std::ptr::copy_nonoverlapping(from.wrapping_add(first), to, n);
                    } else {
                        for c in 0..n {
                            to.add(c).write(*from.offset((first + c) as isize * a.col));
                        }
                    }
                    std::ptr::write_bytes(to.add(n), 0, ROW_BYTES - n);
                }
            }
        }
    }
}

/// A part of C.
pub struct Tiles<'a> {
    /// The product.
    pub args: &'a IntArgs<'a>,
    /// What [`Rows`] wrote of the rows.
    pub a: *const u8,
    /// The rows.
    pub rows: Range<usize>,
    /// The columns, from a panel's edge on.
    pub cols: Range<usize>,
    /// Where it goes, from its first element on.
    pub out: Out,
}

/// Sums of a block.
#[repr(align(64))]
struct Sums([i32; BLOCK * BLOCK]);

impl Kernel for Tiles<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Tiles { args, a, rows, cols, out } = self;
        let layout = &args.layout;
        let steps = args.a_row() / ROW_BYTES;
        // Only levels that have a unit choose this layout.
        let Some(unit) = Unit::of(Isa::Amx) else { return debug_assert!(false, "no matrix unit") };
        let entered = unit.enter();
        let dot = if args.a.signed { Dot::I8I8 } else { Dot::U8I8 };
        let mut sums = Sums([0; BLOCK * BLOCK]);
        for col in cols.clone().step_by(BLOCK) {
            let width = (cols.end - col).min(BLOCK);
            let panel = args.b.wrapping_add(col / SIDE * layout.step());
            for row in rows.clone().step_by(BLOCK) {
                let height = (rows.end - row).min(BLOCK);
                let first = a.wrapping_add((row - rows.start) * args.a_row());
                let passes = [Pass { a: first, b: panel.wrapping_add(layout.head()) }];
                let mut job = Job::dense(&passes, steps, width > SIDE, sums.0.as_mut_ptr().cast());
                if width > SIDE {
                    job.b_beside = layout.step();
                }
                if args.k == 0 {
                    sums.0.fill(0);
                } else {
                    // SAFETY: the caller promises panels, and `Rows` wrote whole tiles; sums have room.
                    unsafe { entered.multiply(dot, height > SIDE, &job) };
                }
                let tile = Tile { args, a: first, b: panel, elem: layout.elem, row, col, count: 1, width, out };
                for r in 0..height {
                    for j in (0..width).step_by(S::W) {
                        let lanes = (width - j).min(S::W);
                        // SAFETY: the lanes lie within C, and in whole vectors within the sums and the panels' heads.
                        unsafe {
                            let mut v = [s.bits(s.load(sums.0.as_ptr().add(r * BLOCK + j).cast()))];
                            let head = panel.wrapping_add(j / SIDE * layout.step()).cast::<i32>();
                            tile.less_zeros(s, &mut v, row + r, 0, head.wrapping_add(j % SIDE));
                            let out = match out {
                                Out::Sums(to, across) => {
                                    let at = (row + r - rows.start) * across + col - cols.start;
                                    Out::Sums(to.wrapping_add(at), across)
                                }
                                floats => floats,
                            };
                            tile.write(s, v, out, (row + r, j, lanes));
                        }
                    }
                }
            }
        }
    }
}
