//! Rearrangements that users know by a name of their own and that are made of the family's ops.

use crate::builder::Builder;
use crate::dim::{Atom, Constraint, ConstraintRecord, Dim};
use crate::dtype::DType;
use crate::error::{IrError, OpError};
use crate::graph::ValueId;
use crate::types::{Shape, normalize_axis};

use super::known::shown_le;
use super::slice::range_len;

/// The index counted from the start, where `i` may count from the end. Of an index whose sign is not known, the size is added
/// where it is negative: `i + n · [i < 0]`.
fn from_start(i: &Dim, n: &Dim) -> Dim {
    if i.lower_bound().is_some_and(|b| b >= 0) {
        return i.clone();
    }
    if i.upper_bound().is_some_and(|b| b < 0) {
        return i + n;
    }
    let negative = (-i).max(Dim::ZERO).min(Dim::ONE);
    i + &(n * &negative)
}

/// `min(max(x, lo), hi)`, leaving out what bounds show.
fn clamp(x: Dim, lo: &Dim, hi: &Dim) -> Dim {
    let x = if shown_le(lo, &x) == Some(true) { x } else { x.max(lo) };
    let fits = match x.as_atom() {
        Some(Atom::Max(list)) => list.iter().all(|d| shown_le(d, hi) == Some(true)),
        _ => shown_le(&x, hi) == Some(true),
    };
    if fits { x } else { x.min(hi) }
}

impl Builder {
    /// Records a fact about dims that is checked at bind.
    fn require(&mut self, constraint: Constraint, why: &str) {
        let origin = match self.loc().name() {
            Some(name) => format!("{name}: {why}"),
            None => why.into(),
        };
        self.graph_mut().add_constraints(&[ConstraintRecord::new(constraint, origin)]);
    }

    /// NumPy broadcast of `x` with a shape, in both directions (ONNX `Expand`): sizes of 1 in either give way.
    pub fn expand(&mut self, x: ValueId, dims: impl IntoIterator<Item = impl Into<Dim>>) -> Result<ValueId, IrError> {
        let to = Shape::new(dims);
        let from = self.shape(x)?;
        let rank = from.rank().max(to.rank());
        let at = |s: &Shape, axis: usize| {
            (axis + s.rank()).checked_sub(rank).and_then(|i| s.get(i).cloned()).unwrap_or(Dim::ONE)
        };
        let mut both = Vec::with_capacity(rank);
        for axis in 0..rank {
            let (a, b) = (at(&from, axis), at(&to, axis));
            both.push(a.bcast(&b));
            let fits = Constraint::Broadcastable(a, b);
            match fits.decide() {
                Some(true) => {}
                Some(false) => {
                    let e =
                        OpError::new(format!("{from} does not broadcast with {to}: on axis {axis} {fits} is false"));
                    return Err(self.refuse("expand", &[x], e));
                }
                None => self.require(fits, "expand"),
            }
        }
        self.broadcast_to(x, both)
    }

    /// New axes of size 1. Axes are those of the result and may count from its end.
    pub fn expand_dims(&mut self, x: ValueId, axes: &[i64]) -> Result<ValueId, IrError> {
        let from = self.shape(x)?;
        let rank = from.rank() + axes.len();
        let mut new = axes
            .iter()
            .map(|&a| {
                normalize_axis(a, rank).ok_or_else(|| {
                    let e = OpError::new(format!("axis {a} is out of range for the result's rank {rank}"));
                    self.refuse("expand_dims", &[x], e)
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        new.sort_unstable();
        if new.windows(2).any(|w| w[0] == w[1]) {
            return Err(self.refuse("expand_dims", &[x], OpError::new(format!("axes {axes:?} name an axis twice"))));
        }
        if new.is_empty() {
            return Ok(x);
        }
        let mut rest = from.iter();
        let dims: Vec<Dim> =
            (0..rank).filter_map(|i| if new.contains(&i) { Some(Dim::ONE) } else { rest.next().cloned() }).collect();
        self.reshape(x, dims)
    }

    /// Without these axes, whose sizes must be 1 (checked at bind where they are symbolic).
    pub fn squeeze(&mut self, x: ValueId, axes: &[i64]) -> Result<ValueId, IrError> {
        let axes = self.axes("squeeze", x, axes)?;
        if axes.is_empty() {
            return Ok(x);
        }
        let from = self.shape(x)?;
        for &a in &axes {
            if from[a].known_eq(&Dim::ONE) == Some(false) {
                let e = OpError::new(format!("axis {a} has size {}; only axes of size 1 can be squeezed", from[a]));
                return Err(self.refuse("squeeze", &[x], e));
            }
            if !from[a].is_const() {
                self.require(Constraint::Eq(from[a].clone(), Dim::ONE), &format!("squeeze: squeezed axis {a}"));
            }
        }
        let dims: Vec<Dim> =
            from.iter().enumerate().filter(|(i, _)| !axes.contains(i)).map(|(_, d)| d.clone()).collect();
        self.reshape(x, dims)
    }

    /// Without all axes whose size is the constant 1.
    pub fn squeeze_all(&mut self, x: ValueId) -> Result<ValueId, IrError> {
        let ones: Vec<i64> =
            self.shape(x)?.iter().enumerate().filter(|(_, d)| **d == 1).map(|(i, _)| i as i64).collect();
        self.squeeze(x, &ones)
    }

    /// Two axes: those before `axis` (in `-rank..=rank`) and the rest.
    pub fn flatten(&mut self, x: ValueId, axis: i64) -> Result<ValueId, IrError> {
        let from = self.shape(x)?;
        let at = if axis == from.rank() as i64 { from.rank() } else { self.axis("flatten", x, axis)? };
        let (a, b) = from.dims().split_at(at);
        self.reshape(x, [Dim::product(a.iter().cloned()), Dim::product(b.iter().cloned())])
    }

    /// Two axes swapped.
    pub fn swap_axes(&mut self, x: ValueId, a: i64, b: i64) -> Result<ValueId, IrError> {
        let (a, b) = (self.axis("swap_axes", x, a)?, self.axis("swap_axes", x, b)?);
        if a == b {
            return Ok(x);
        }
        let mut perm: Vec<usize> = (0..self.shape(x)?.rank()).collect();
        perm.swap(a, b);
        self.transpose(x, &perm)
    }

    /// Operands of one shape along a new axis of the result.
    pub fn stack(&mut self, xs: &[ValueId], axis: i64) -> Result<ValueId, IrError> {
        let xs = xs.iter().map(|&x| self.expand_dims(x, &[axis])).collect::<Result<Vec<_>, _>>()?;
        self.concat(&xs, axis)
    }

    /// A range with a step on one axis, by the rules of ONNX `Slice`: indices may count from the end; then, going up, both bounds are
    /// clamped to `0..=n`, and going down, the start to `0..=n−1` and the end to `−1..=n−1`.
    pub fn slice_axis(
        &mut self,
        x: ValueId,
        axis: i64,
        start: impl Into<Dim>,
        end: impl Into<Dim>,
        step: i64,
    ) -> Result<ValueId, IrError> {
        let axis = self.axis("slice", x, axis)?;
        let shape = self.shape(x)?;
        let n = shape[axis].clone();
        let (start, limit) = (self.slice_bound(start.into(), &n), self.slice_bound(end.into(), &n));
        let last = &n - 1;
        let (start, limit) = if step < 0 {
            // On an empty axis the start becomes −1, as the end is.
            (start.max(Dim::ZERO).min(&last), clamp(limit, &Dim::from(-1), &last))
        } else {
            (clamp(start, &Dim::ZERO, &n), clamp(limit, &Dim::ZERO, &n))
        };
        let mut starts = vec![Dim::ZERO; shape.rank()];
        let mut limits = shape.dims().to_vec();
        let mut strides = vec![1; shape.rank()];
        (starts[axis], limits[axis], strides[axis]) = (start, limit, step);
        self.slice(x, starts, limits, strides)
    }

    /// An index as written in a model, resolved against a size. Writers say "to the end" by a huge number, which on a symbolic axis is
    /// taken as the size itself.
    fn slice_bound(&mut self, i: Dim, n: &Dim) -> Dim {
        // The smallest that is in use (tf2onnx).
        const HUGE: i64 = 1_000_000_000;
        match i.as_const() {
            Some(c) if !n.is_const() && c >= HUGE => {
                if c < i64::MAX >> 1 {
                    self.require(Constraint::Le(n.clone(), i), &format!("slice: end {c} of a slice"));
                }
                n.clone()
            }
            // Below the first element whatever the size.
            Some(c) if c < i64::MIN >> 1 => Dim::from(-1),
            _ => from_start(&i, n),
        }
    }

    /// Consecutive pieces of these sizes along an axis; they must add up to its size.
    pub fn split(&mut self, x: ValueId, axis: i64, sizes: &[Dim]) -> Result<Vec<ValueId>, IrError> {
        let axis = self.axis("split", x, axis)?;
        let shape = self.shape(x)?;
        let total = Dim::sum(sizes.iter().cloned());
        match total.known_eq(&shape[axis]) {
            Some(true) => {}
            Some(false) => {
                let e = OpError::new(format!("pieces add up to {total}, axis {axis} has {}", shape[axis]));
                return Err(self.refuse("split", &[x], e));
            }
            None => {
                self.require(Constraint::Eq(total, shape[axis].clone()), "split: sizes of the pieces");
            }
        }
        let mut at = Dim::ZERO;
        let mut out = Vec::with_capacity(sizes.len());
        for size in sizes {
            let end = &at + size;
            let mut starts = vec![Dim::ZERO; shape.rank()];
            let mut limits = shape.dims().to_vec();
            starts[axis] = std::mem::replace(&mut at, end.clone());
            limits[axis] = end;
            out.push(self.slice(x, starts, limits, vec![1; shape.rank()])?);
        }
        Ok(out)
    }

    /// `n` consecutive pieces along an axis, of equal size but for the last, which may be smaller.
    pub fn split_even(&mut self, x: ValueId, axis: i64, n: usize) -> Result<Vec<ValueId>, IrError> {
        let a = self.axis("split", x, axis)?;
        if n == 0 {
            return Err(self.refuse("split", &[x], OpError::new("cannot split into 0 pieces")));
        }
        let size = self.shape(x)?[a].clone();
        let piece = size.ceil_div(n as i64);
        let bound = |i: usize| (&piece * i as i64).min(&size);
        let sizes: Vec<Dim> = if &piece * n as i64 == size {
            vec![piece.clone(); n]
        } else {
            (0..n).map(|i| bound(i + 1) - bound(i)).collect()
        };
        self.split(x, axis, &sizes)
    }

    /// The whole repeated along each axis.
    pub fn tile(&mut self, x: ValueId, repeats: &[Dim]) -> Result<ValueId, IrError> {
        let from = self.shape(x)?;
        super::known::one_per_axis("repeats", repeats.len(), from.rank()).map_err(|e| self.refuse("tile", &[x], e))?;
        if repeats.iter().all(|r| *r == 1) {
            return Ok(x);
        }
        let apart: Vec<Dim> = from.iter().flat_map(|d| [Dim::ONE, d.clone()]).collect();
        let wide: Vec<Dim> = from.iter().zip(repeats).flat_map(|(d, r)| [r.clone(), d.clone()]).collect();
        let to: Vec<Dim> = from.iter().zip(repeats).map(|(d, r)| d * r).collect();
        let x = self.reshape(x, apart)?;
        let x = self.broadcast_to(x, wide)?;
        self.reshape(x, to)
    }

    /// `start, start + step, …`: `len` numbers of the dtype of `start` and `step`, which are scalars.
    pub fn range(&mut self, start: ValueId, len: impl Into<Dim>, step: ValueId) -> Result<ValueId, IrError> {
        let dtype = self.dtype(start)?;
        let count = self.iota(dtype, [len.into()], 0)?;
        let scaled = self.mul(count, step)?;
        self.add(scaled, start)
    }

    /// The integers from `start` up (or down) to, not including, `limit`.
    pub fn range_dims(&mut self, start: Dim, limit: Dim, step: i64) -> Result<ValueId, IrError> {
        if step == 0 {
            return Err(self.refuse("range", &[], OpError::new("step is 0; give a step other than 0")));
        }
        let len = range_len(&start, &limit, step);
        if let Some(n) = len.as_const().filter(|&n| n <= crate::op::MAX_KNOWN_ELEMS as i64) {
            return self.from_dims((0..n).map(|i| &start + &(Dim::from(i) * step)).collect());
        }
        let step = self.constant(crate::Tensor::scalar(step))?;
        let start = self.from_dim(start)?;
        self.range(start, len, step)
    }

    /// `bool[rows, cols]`: true on and above (`upper`) or on and below the diagonal that starts `k` (an `i64` scalar) columns right.
    pub fn triangle(&mut self, rows: Dim, cols: Dim, k: ValueId, upper: bool) -> Result<ValueId, IrError> {
        let row = self.iota(DType::I64, [rows, Dim::ONE], 0)?;
        let col = self.iota(DType::I64, [Dim::ONE, cols], 1)?;
        let edge = self.add(row, k)?;
        if upper { self.ge(col, edge) } else { self.le(col, edge) }
    }

    /// The upper or lower triangle of the last two axes, zero elsewhere. `k` is an `i64` scalar.
    pub fn trilu(&mut self, x: ValueId, k: ValueId, upper: bool) -> Result<ValueId, IrError> {
        let shape = self.shape(x)?;
        let [.., rows, cols] = shape.dims() else {
            return Err(self.refuse("trilu", &[x], OpError::new("needs two axes or more")));
        };
        let mask = self.triangle(rows.clone(), cols.clone(), k, upper)?;
        let zero = self.scalar_like(x, 0.0)?;
        self.select(mask, x, zero)
    }

    /// `on` at the position along a new axis of size `depth` that each index names, `off` elsewhere; an index outside `-depth..depth`
    /// has no position. `on` and `off` are scalars of one dtype.
    pub fn one_hot(
        &mut self,
        indices: ValueId,
        depth: Dim,
        axis: i64,
        on: ValueId,
        off: ValueId,
    ) -> Result<ValueId, IrError> {
        let indices = self.convert(indices, DType::I64)?;
        let zero = self.constant(crate::Tensor::scalar(0i64))?;
        let negative = self.lt(indices, zero)?;
        let size = self.from_dim(depth.clone())?;
        let wrapped = self.add(indices, size)?;
        let at = self.select(negative, wrapped, indices)?;
        let at = self.expand_dims(at, &[axis])?;
        let rank = self.shape(at)?.rank();
        let axis = normalize_axis(axis, rank)
            .ok_or_else(|| self.refuse("one_hot", &[indices], OpError::new(format!("axis {axis} is out of range"))))?;
        let mut dims = vec![Dim::ONE; rank];
        dims[axis] = depth;
        let classes = self.iota(DType::I64, dims, axis as i64)?;
        let hit = self.eq(at, classes)?;
        self.select(hit, on, off)
    }

    /// Blocks of channels become blocks of space: `[n, b·b·c, h, w]` to `[n, c, h·b, w·b]`. `columns_first` is ONNX's mode `CRD`.
    pub fn depth_to_space(&mut self, x: ValueId, block: i64, columns_first: bool) -> Result<ValueId, IrError> {
        let [n, c, h, w] = self.image_dims("depth_to_space", x, block)?;
        let inner = c.floor_div(block.saturating_mul(block));
        let b = Dim::from(block);
        let (apart, perm) = if columns_first {
            ([n.clone(), inner.clone(), b.clone(), b.clone(), h.clone(), w.clone()], [0, 1, 4, 2, 5, 3])
        } else {
            ([n.clone(), b.clone(), b.clone(), inner.clone(), h.clone(), w.clone()], [0, 3, 4, 1, 5, 2])
        };
        let y = self.reshape(x, apart)?;
        let y = self.transpose(y, &perm)?;
        self.reshape(y, [n, inner, h * block, w * block])
    }

    /// Blocks of space become blocks of channels: `[n, c, h·b, w·b]` to `[n, b·b·c, h, w]`.
    pub fn space_to_depth(&mut self, x: ValueId, block: i64) -> Result<ValueId, IrError> {
        let [n, c, h, w] = self.image_dims("space_to_depth", x, block)?;
        let (h, w, b) = (h.floor_div(block), w.floor_div(block), Dim::from(block));
        let y = self.reshape(x, [n.clone(), c.clone(), h.clone(), b.clone(), w.clone(), b])?;
        let y = self.transpose(y, &[0, 3, 5, 1, 2, 4])?;
        self.reshape(y, [n, c * block.saturating_mul(block), h, w])
    }

    fn image_dims(&self, op: &str, x: ValueId, block: i64) -> Result<[Dim; 4], IrError> {
        let shape = self.shape(x)?;
        if block < 1 {
            return Err(self.refuse(op, &[x], OpError::new(format!("block size must be ≥ 1, got {block}"))));
        }
        <[Dim; 4]>::try_from(shape.into_dims())
            .map_err(|d| self.refuse(op, &[x], OpError::new(format!("needs 4 axes [n, c, h, w], got {}", d.len()))))
    }
}
