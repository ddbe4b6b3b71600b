//! Axes that data name. What stands on them is told when the program runs, so their sizes are read from arithmetic on the operand's
//! sizes; an operand is seen as a matrix whose columns run over the named axes, whichever those are.

use rlx_ir::dim::Constraint;
use rlx_ir::ops::indexing::Combiner;
use rlx_ir::ops::reduction::{CumKind, ReduceKind};
use rlx_ir::{DType, Dim, Tensor, ValueId};

use super::context::{Failure, NodeCx};
use super::sizes::product;

/// What an operand of axes holds.
pub(super) enum Axes {
    /// Numbers that are known when the model is compiled.
    Known(Vec<i64>),
    /// Numbers that only the run tells.
    Data(ValueId),
}

impl NodeCx<'_, '_> {
    /// Operand `i` as axes, if it is given.
    pub(super) fn axes_at(&mut self, i: usize, what: &str) -> Result<Option<Axes>, Failure> {
        if !self.has(i) {
            return Ok(None);
        }
        match self.known_ints_at(i, what)? {
            Some(known) => Ok(Some(Axes::Known(known))),
            None => Ok(Some(Axes::Data(self.input(i)?))),
        }
    }
}

/// The axes of a tensor that data name.
pub(super) struct Named {
    /// A row for each name: 1 at the axis that it means. `i64[names, rank]`.
    hot: ValueId,
    /// 1 for each axis that is named. `i64[rank]`.
    marks: ValueId,
    /// How many names there are, if that is known.
    count: Option<usize>,
}

impl Named {
    /// Of a tensor of `rank` axes. A name that is out of range, and an axis that is named twice, are errors of the run: both are indices
    /// into tables that have no such entry.
    pub fn of(cx: &mut NodeCx<'_, '_>, axes: ValueId, rank: usize) -> Result<Named, Failure> {
        let n = cx.shape(axes)?.numel();
        let count = n.as_const().and_then(|n| usize::try_from(n).ok());
        if count.is_some_and(|n| n > rank) {
            return Err(Failure::refused(format!("{n} axes are named of {rank}")));
        }
        let mut eye = vec![0i64; rank * rank];
        eye.iter_mut().step_by(rank + 1).for_each(|x| *x = 1);
        let b = cx.b();
        let axes = b.convert(axes, DType::I64)?;
        let axes = b.reshape(axes, [n])?;
        let eye = b.constant(Tensor::from_slice(&[rank, rank], &eye)?)?;
        let hot = b.gather(eye, axes, 0)?;
        let times = b.reduce(hot, ReduceKind::Sum, &[0], false)?;
        let once = b.constant(Tensor::from_slice(&[2], &[0i64, 1])?)?;
        let marks = b.gather(once, times, 0)?;
        Ok(Named { hot, marks, count })
    }

    /// Of an operand that must name one axis.
    pub fn one(cx: &mut NodeCx<'_, '_>, axis: ValueId, rank: usize) -> Result<Named, Failure> {
        let n = cx.shape(axis)?.numel();
        cx.require(Constraint::Eq(n, Dim::ONE), "the axis must be one number")?;
        let axis = cx.b().reshape(axis, [1i64])?;
        Named::of(cx, axis, rank)
    }

    /// All axes where the data name none.
    pub fn or_all(self, cx: &mut NodeCx<'_, '_>) -> Result<Named, Failure> {
        if self.count.is_some() {
            return Ok(self);
        }
        let names = self.names(cx)?;
        let names = cx.b().from_dim(names)?;
        let (zero, one) = (cx.scalar_like(names, 0.0)?, cx.scalar_like(names, 1.0)?);
        let none = cx.b().eq(names, zero)?;
        let marks = cx.b().select(none, one, self.marks)?;
        Ok(Named { marks, ..self })
    }

    /// The same of a tensor without the last axis, which must not be named.
    pub fn before_last(self, cx: &mut NodeCx<'_, '_>, rank: usize) -> Result<Named, Failure> {
        let n = Dim::from(rank as i64);
        let last = cx.range_of(self.marks, 0, n.clone(), &n + 1, 1)?;
        let marks = cx.range_of(self.marks, 0, Dim::ZERO, n.clone(), 1)?;
        let marks = unless(cx, marks, last)?;
        let hot = cx.range_of(self.hot, 1, Dim::ZERO, n, 1)?;
        Ok(Named { marks, hot, count: self.count })
    }

    /// How many names there are.
    pub fn names(&self, cx: &mut NodeCx<'_, '_>) -> Result<Dim, Failure> {
        Ok(cx.shape(self.hot)?.first().cloned().unwrap_or(Dim::ZERO))
    }

    /// Numbers for each name as numbers for each axis; `default` stands where no name is. `i64[rank]`.
    pub fn spread(&self, cx: &mut NodeCx<'_, '_>, v: ValueId, default: ValueId) -> Result<ValueId, Failure> {
        let b = cx.b();
        let v = b.convert(v, DType::I64)?;
        let v = b.expand_dims(v, &[1])?;
        let v = b.mul(self.hot, v)?;
        let v = b.reduce(v, ReduceKind::Sum, &[0], false)?;
        self.choose(cx, v, default)
    }

    /// `v` where an axis is named, `w` elsewhere.
    pub fn choose(&self, cx: &mut NodeCx<'_, '_>, v: ValueId, w: ValueId) -> Result<ValueId, Failure> {
        let zero = cx.scalar_like(self.marks, 0.0)?;
        let named = cx.b().ne(self.marks, zero)?;
        Ok(cx.b().select(named, v, w)?)
    }

    /// How many axes are not named; their number must be known, or so must not be the rank of what is left.
    fn rest(&self, rank: usize) -> Result<usize, Failure> {
        self.count.map(|n| rank - n).ok_or_else(|| {
            Failure::refused(
                "the number of axes must be known when the model is compiled: the result's rank follows from it",
            )
        })
    }

    /// The sizes of the axes that are not named, in order. `i64[rank − names]`.
    fn left(&self, cx: &mut NodeCx<'_, '_>, sizes: ValueId, rank: usize) -> Result<ValueId, Failure> {
        let rest = self.rest(rank)?;
        let one = cx.scalar_like(self.marks, 1.0)?;
        let (zero, b) = (cx.scalar_like(self.marks, 0.0)?, cx.b());
        let stays = b.sub(one, self.marks)?;
        let before = b.cumulative(stays, CumKind::Sum, 0, true, false)?;
        let place = b.iota(DType::I64, [Dim::from(rest as i64), Dim::ONE], 0)?;
        let here = b.eq(place, before)?;
        let sizes = b.mul(stays, sizes)?;
        let sizes = b.select(here, sizes, zero)?;
        Ok(b.reduce(sizes, ReduceKind::Sum, &[1], false)?)
    }

    /// The operand without the named axes, which must have one element.
    pub fn squeeze(&self, cx: &mut NodeCx<'_, '_>, x: ValueId) -> Result<ValueId, Failure> {
        let shape = cx.shape(x)?.into_dims();
        let rank = shape.len();
        let sizes = cx.b().from_dims(shape)?;
        let left = self.left(cx, sizes, rank)?;
        let one = cx.scalar_like(sizes, 1.0)?;
        // Only axes of one element can be dropped.
        let dropped = self.choose(cx, sizes, one)?;
        let more = cx.b().sub(dropped, one)?;
        let more = cx.b().abs(more)?;
        let left = unless(cx, left, more)?;
        let left = cx.sizes(left, "the sizes")?;
        Ok(cx.b().reshape(x, left)?)
    }

    /// The operand with axes of one element where the result's are named; these are the names of a tensor of the result's rank.
    pub fn unsqueeze(&self, cx: &mut NodeCx<'_, '_>, x: ValueId) -> Result<ValueId, Failure> {
        let one = cx.scalar_like(self.marks, 1.0)?;
        let b = cx.b();
        let stays = b.sub(one, self.marks)?;
        let before = b.cumulative(stays, CumKind::Sum, 0, true, false)?;
        // Behind the operand's last axis only new ones may stand, whose size is not looked up.
        let sizes: Vec<Dim> = cx.shape(x)?.into_dims().into_iter().chain([Dim::ONE]).collect();
        let sizes = cx.b().from_dims(sizes)?;
        let sizes = cx.b().gather(sizes, before, 0)?;
        let sizes = self.choose(cx, one, sizes)?;
        let sizes = cx.sizes(sizes, "the sizes")?;
        Ok(cx.b().reshape(x, sizes)?)
    }
}

/// `v`, unless some element of `wrong` is not 0: then an error of the run. Such an element is an index into a table of one element, whose
/// value, 0, is added to `v`: so nothing that leaves out what is not used leaves out the check.
fn unless(cx: &mut NodeCx<'_, '_>, v: ValueId, wrong: ValueId) -> Result<ValueId, Failure> {
    let b = cx.b();
    let table = b.constant(Tensor::from_slice(&[1], &[0i64])?)?;
    let none = b.gather(table, wrong, 0)?;
    let none = b.reduce(none, ReduceKind::Sum, &[0], false)?;
    Ok(b.add(v, none)?)
}

/// The steps of a row-major tensor of sizes. `i64[rank]`.
fn strides(cx: &mut NodeCx<'_, '_>, sizes: ValueId) -> Result<ValueId, Failure> {
    Ok(cx.b().cumulative(sizes, CumKind::Prod, 0, true, true)?)
}

/// Where the elements of a tensor of sizes `part` stand, in order, in one of steps `steps`. `i64[count]`.
fn walk(cx: &mut NodeCx<'_, '_>, part: ValueId, steps: ValueId, count: Dim) -> Result<ValueId, Failure> {
    let own = strides(cx, part)?;
    let b = cx.b();
    let i = b.iota(DType::I64, [count, Dim::ONE], 0)?;
    // A tensor without elements has sizes and steps of 0, and nothing to place.
    let turn = b.div(i, own)?;
    let at = b.rem(turn, part)?;
    let at = b.mul(at, steps)?;
    Ok(b.reduce(at, ReduceKind::Sum, &[1], false)?)
}

/// An operand as a matrix: a row for each position on the axes that stay, a column for each on those that are named.
pub(super) struct Arranged {
    /// Sizes of the axes that stay, 1 for named ones; and the other way round. `i64[rank]` each.
    parts: [ValueId; 2],
    /// Numbers of rows and of columns.
    counts: [Dim; 2],
    /// The result's sizes where the named axes become of one element, or are dropped.
    pub rest: Vec<Dim>,
}

impl Arranged {
    /// Of a tensor of these sizes.
    pub fn of(cx: &mut NodeCx<'_, '_>, named: &Named, shape: &[Dim], drop: bool) -> Result<Arranged, Failure> {
        let rank = shape.len();
        let sizes = cx.b().from_dims(shape.to_vec())?;
        let one = cx.scalar_like(sizes, 1.0)?;
        let parts = [named.choose(cx, one, sizes)?, named.choose(cx, sizes, one)?];
        let rest = if drop { named.left(cx, sizes, rank)? } else { parts[0] };
        let all = cx.b().concat(&[parts[1], rest], 0)?;
        let mut columns = cx.sizes(all, "the sizes")?;
        let rest = columns.split_off(rank);
        let counts = [product(&rest), product(&columns)];
        Ok(Arranged { parts, counts, rest })
    }

    /// Where the elements of the matrix stand in a row-major tensor, `columns` being sizes of the named axes and 1 elsewhere, `count` their
    /// product. `i64[rows, count]`.
    fn positions(&self, cx: &mut NodeCx<'_, '_>, columns: ValueId, count: Dim) -> Result<ValueId, Failure> {
        let sizes = cx.b().mul(self.parts[0], columns)?;
        let steps = strides(cx, sizes)?;
        let row = walk(cx, self.parts[0], steps, self.counts[0].clone())?;
        let column = walk(cx, columns, steps, count)?;
        let (row, column) = (cx.b().expand_dims(row, &[1])?, cx.b().expand_dims(column, &[0])?);
        Ok(cx.b().add(row, column)?)
    }

    /// The number of columns.
    pub fn columns(&self) -> Dim {
        self.counts[1].clone()
    }

    /// The matrix; where the operand has `inner` axes behind those that may be named, its elements are rows of those.
    pub fn matrix(&self, cx: &mut NodeCx<'_, '_>, x: ValueId, inner: &[Dim]) -> Result<ValueId, Failure> {
        let shape = cx.shape(x)?;
        let outer = shape.dims().get(..shape.rank() - inner.len()).unwrap_or_default();
        let flat = cx.b().reshape(x, [product(outer)].into_iter().chain(inner.iter().cloned()))?;
        let at = self.positions(cx, self.parts[1], self.counts[1].clone())?;
        Ok(cx.b().gather(flat, at, 0)?)
    }

    /// The inverse of [`matrix`](Self::matrix) for a matrix of `count` columns, which become the named axis: there must be one.
    pub fn back(
        &self,
        cx: &mut NodeCx<'_, '_>,
        named: &Named,
        y: ValueId,
        shape: Option<&[Dim]>,
    ) -> Result<ValueId, Failure> {
        let ys = cx.shape(y)?;
        let [rows, count, inner @ ..] = ys.dims() else {
            return Err(Failure::refused(format!("{ys} is no matrix")));
        };
        let columns = cx.b().from_dim(count.clone())?;
        let one = cx.scalar_like(columns, 1.0)?;
        let columns = named.choose(cx, columns, one)?;
        let at = self.positions(cx, columns, count.clone())?;
        let sizes = match shape {
            Some(s) => s.to_vec(),
            None => {
                let sizes = cx.b().mul(self.parts[0], columns)?;
                cx.sizes(sizes, "the sizes")?
            }
        };
        let zero = cx.scalar_like(y, 0.0)?;
        let cells = rows * count;
        let b = cx.b();
        let with = |n: Dim| [n].into_iter().chain(inner.iter().cloned()).collect::<Vec<_>>();
        let into = b.broadcast_to(zero, with(product(&sizes)))?;
        let at = b.reshape(at, [cells.clone(), Dim::ONE])?;
        let y = b.reshape(y, with(cells))?;
        let y = b.scatter_nd(into, at, y, Combiner::Set)?;
        Ok(b.reshape(y, sizes.into_iter().chain(inner.iter().cloned()))?)
    }
}
