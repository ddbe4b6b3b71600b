//! Results that an f32 product writes itself: an epilogue of the menu whose walks are matrices.

use super::menu::Menu;
use crate::buffers::{BoundAccess, Buffers, Strides};
use crate::gemm::{self, GemmArgs, Strided};
use crate::space::position;

/// A walk as a matrix, with its steps on the loops around products.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// The buffer.
    pub buffer: u32,
    /// Position of element 0.
    pub offset: i64,
    /// Steps of the loops.
    pub outer: Strides,
    /// From one row to the next.
    pub row: i64,
    /// From one column to the next.
    pub col: i64,
}

impl Matrix {
    /// The matrix at point `i` of the loops, from a row and column on.
    #[inline]
    fn at(&self, bufs: &Buffers<'_>, outer: &[usize], i: usize, row: usize, col: usize) -> Strided {
        let offset = position(i, outer, self.offset, &self.outer) as isize;
        let data = bufs.base(self.buffer).cast::<f32>().wrapping_offset(offset).cast_const();
        let all = Strided { data, row: self.row as isize, col: self.col as isize };
        Strided { data: all.at(row, col), ..all }
    }
}

/// What the product writes and what it adds.
#[derive(Debug)]
pub struct Direct {
    menu: Menu,
    write: Matrix,
    bias: Option<Matrix>,
    residual: Option<Matrix>,
    factors: [Option<Matrix>; 2],
    in_place: bool,
}

/// Whether one of the reads, which follow the write, walks the very elements that are written; `None` where one walks
/// others of the same buffer.
pub fn in_place(walks: &[BoundAccess]) -> Option<bool> {
    let (write, reads) = walks.split_first()?;
    let mut found = false;
    for r in reads.iter().filter(|r| r.buffer == write.buffer) {
        if r.offset != write.offset || r.strides != write.strides {
            return None;
        }
        found = true;
    }
    Some(found)
}

impl Direct {
    /// From the matrices of the write, then of the menu's reads; `in_place` is what [`in_place`] says of their walks.
    pub fn new(menu: Menu, matrices: impl IntoIterator<Item = Matrix>, in_place: bool) -> Option<Direct> {
        let mut matrices = matrices.into_iter();
        let write = matrices.next()?;
        let bias = menu.bias.and_then(|_| matrices.next());
        let residual = menu.residual.and_then(|_| matrices.next());
        let factors = menu.factors.map(|f| f.and_then(|_| matrices.next()));
        Some(Direct { menu, write, bias, residual, factors, in_place })
    }

    /// The same for a product of integers with so many columns, if that can take it.
    pub fn for_integers(mut self, columns: usize) -> Option<Direct> {
        if columns == 1 {
            let walks = [&mut self.write].into_iter().chain(&mut self.bias).chain(&mut self.residual);
            walks.for_each(|m| m.col = 1);
        }
        let null = |m: &Matrix| Strided { data: std::ptr::null(), row: m.row as isize, col: m.col as isize };
        let (write, menu) = self.seen(null);
        let factors = self.factors.iter().flatten().all(|f| f.col == 0 || f.row == 0 && f.col == 1);
        (write.col == 1 && factors && menu.integers_fit()).then_some(self)
    }

    /// The factors at point `i` of the loops, from a row on.
    pub fn factors(&self, bufs: &Buffers<'_>, outer: &[usize], i: usize, row: usize) -> [Option<Strided>; 2] {
        [0, 1].map(|f| self.factors[f].as_ref().map(|m| m.at(bufs, outer, i, row, 0)))
    }

    /// Whether what is added lies where the result goes.
    pub fn in_place(&self) -> bool {
        self.in_place
    }

    /// From one row of the result to the next, and from one column to the next.
    pub fn steps(&self) -> (i64, i64) {
        (self.write.row, self.write.col)
    }

    /// The result's matrix and the menu, which points into `self`, at point `i` of the loops, from a row and column on.
    #[inline]
    pub fn at(
        &self,
        bufs: &Buffers<'_>,
        outer: &[usize],
        i: usize,
        row: usize,
        col: usize,
    ) -> (Strided, gemm::Epilogue<'static>) {
        self.seen(|m: &Matrix| m.at(bufs, outer, i, row, col))
    }

    /// The result's matrix and the menu, with walks placed by `place`.
    #[inline(always)]
    fn seen(&self, place: impl Fn(&Matrix) -> Strided) -> (Strided, gemm::Epilogue<'static>) {
        let shift = self.menu.shift.as_ref().map(|x| Strided { data: x, row: 0, col: 0 });
        let menu = gemm::Epilogue {
            scale: self.menu.scale,
            bias: shift.or(self.bias.as_ref().map(&place)),
            residual: self.residual.as_ref().map(&place),
            residual_last: self.menu.residual_last,
            activation: self.menu.activation,
            affine: self.menu.affine,
            in_place: self.in_place,
            hook: None,
        };
        (place(&self.write), menu)
    }

    /// Makes a product write its result, every `step`th row from `row` on.
    #[inline]
    pub fn set(
        &self,
        args: &mut GemmArgs<'_>,
        bufs: &Buffers<'_>,
        outer: &[usize],
        i: usize,
        (row, col): (usize, usize),
        step: usize,
    ) {
        let (c, mut menu) = self.at(bufs, outer, i, row, col);
        for m in menu.bias.iter_mut().chain(&mut menu.residual) {
            m.row *= step as isize;
        }
        (args.c, args.c_row, args.c_col) = (c.data.cast_mut(), c.row * step as isize, c.col);
        args.epilogue = menu;
    }
}
