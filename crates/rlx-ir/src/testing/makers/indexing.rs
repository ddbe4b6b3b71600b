//! Gather, scatter, order, blocks at places that data gives.

use super::{computes, steady, union};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::ops::indexing::{
    Combiner, DynamicSlice, DynamicUpdateSlice, GatherElements, GatherNd, ScatterElements, ScatterNd, Sort, TopK,
};
use crate::ops::reduction::{ArgKind, ArgReduce};
use crate::tensor::Tensor;
use crate::testing::generate::{Gen, Known, Plan};

/// A source of indices: for each element, one below the size that `size` gives for its position, from the end sometimes.
fn indices(g: &mut Gen<'_>, dims: Vec<Dim>, sizes: &[usize], size: impl Fn(usize) -> usize) -> Option<Known> {
    let n: usize = sizes.iter().product();
    let mut list = Vec::with_capacity(n);
    for i in 0..n {
        let most = size(i);
        let at = g.rng.below(most) as i64;
        list.push(if g.rng.chance(25) { at - most as i64 } else { at });
    }
    if g.rng.chance(30) {
        let narrow: Vec<i32> = list.iter().map(|&i| i as i32).collect();
        return g.source_of(dims, Tensor::from_slice(sizes, &narrow).ok()?);
    }
    g.source_of(dims, Tensor::from_slice(sizes, &list).ok()?)
}

/// A value with an axis of at least one element, and the axis.
fn with_axis(g: &mut Gen<'_>, fits: impl Fn(&Known) -> bool) -> Option<(Known, usize)> {
    let x = g.pick(|k| k.sizes.iter().any(|&n| n > 0) && fits(k))?;
    let list: Vec<usize> = (0..x.sizes.len()).filter(|&a| x.sizes[a] > 0).collect();
    let axis = *g.rng.pick(&list)?;
    Some((x, axis))
}

/// Dims and sizes of indices into `x` with some other size along an axis.
fn along(g: &mut Gen<'_>, x: &Known, axis: usize) -> (Vec<Dim>, Vec<usize>) {
    let mut dims: Vec<Dim> = x.dims.iter().zip(&x.sizes).map(|(d, &n)| g.plain(d, n)).collect();
    let mut sizes = x.sizes.clone();
    sizes[axis] = [0, 1, 2, 3, 5][g.rng.below(5)];
    dims[axis] = Dim::from(sizes[axis]);
    (dims, sizes)
}

pub(super) fn gather_elements(g: &mut Gen<'_>) -> Option<Plan> {
    let (x, axis) = with_axis(g, |_| true)?;
    let (dims, sizes) = along(g, &x, axis);
    let n = x.sizes[axis];
    let i = indices(g, dims, &sizes, |_| n)?;
    Some(Plan::moves(GatherElements { axis }, vec![x, i]))
}

/// Index tuples of `depth` into `x` from axis `batch` on, with `lead` as the axes before them.
fn tuples(g: &mut Gen<'_>, x: &Known, batch: usize, depth: usize, lead: &[usize]) -> Option<Known> {
    let mut dims: Vec<Dim> = (0..batch).map(|a| g.plain(&x.dims[a], x.sizes[a])).collect();
    let mut sizes: Vec<usize> = x.sizes[..batch].to_vec();
    for &n in lead.iter().chain([&depth]) {
        dims.push(Dim::from(n));
        sizes.push(n);
    }
    let into = x.sizes[batch..].to_vec();
    indices(g, dims, &sizes, |i| into[i % depth.max(1)])
}

pub(super) fn gather_nd(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|k| !k.sizes.is_empty() && k.sizes.iter().all(|&n| n > 0))?;
    let rank = x.sizes.len();
    let batch_dims = g.rng.below(rank);
    let depth = 1 + g.rng.below(rank - batch_dims);
    let lead: Vec<usize> = (0..g.rng.below(3)).map(|_| g.rng.below(4)).collect();
    let i = tuples(g, &x, batch_dims, depth, &lead)?;
    Some(Plan::moves(GatherNd { batch_dims }, vec![x, i]))
}

/// A combiner, whether it is exact on a dtype, and the bound of its results where at most `n` updates meet.
fn combiner(g: &mut Gen<'_>, x: &Known, updates: &Known, n: usize) -> Option<(Combiner, bool, f64)> {
    let all = [Combiner::Set, Combiner::Add, Combiner::Mul, Combiner::Min, Combiner::Max];
    let rounds = x.dtype.is_float() || x.dtype.is_complex();
    let fits = |c: &&Combiner| {
        let moves = matches!(c, Combiner::Set | Combiner::Min | Combiner::Max);
        moves || !g.options.tame || !rounds || (**c == Combiner::Add && computes(g, x))
    };
    let list: Vec<Combiner> = all.iter().filter(fits).copied().collect();
    let c = *g.rng.pick(&list)?;
    let bound = if c == Combiner::Add { x.bound + n as f64 * updates.bound } else { x.bound.max(updates.bound) };
    Some((c, !rounds || !matches!(c, Combiner::Add | Combiner::Mul), bound))
}

pub(super) fn scatter_elements(g: &mut Gen<'_>) -> Option<Plan> {
    let (x, axis) = with_axis(g, |_| true)?;
    let (dims, sizes) = along(g, &x, axis);
    let (n, many) = (x.sizes[axis], sizes[axis]);
    let i = indices(g, dims.clone(), &sizes, |_| n)?;
    let updates = g.source(x.dtype, dims, sizes)?;
    let (combiner, exact, bound) = combiner(g, &x, &updates, many)?;
    Some(Plan { op: ScatterElements { axis, combiner }.into(), operands: vec![x, i, updates], exact, bound })
}

pub(super) fn scatter_nd(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|k| !k.sizes.is_empty() && k.sizes.iter().all(|&n| n > 0))?;
    let depth = 1 + g.rng.below(x.sizes.len());
    let lead: Vec<usize> = (0..g.rng.below(3)).map(|_| g.rng.below(4)).collect();
    let i = tuples(g, &x, 0, depth, &lead)?;
    let mut dims: Vec<Dim> = lead.iter().map(|&n| Dim::from(n)).collect();
    dims.extend(x.dims[depth..].iter().zip(&x.sizes[depth..]).map(|(d, &n)| g.plain(d, n)));
    let sizes: Vec<usize> = lead.iter().chain(&x.sizes[depth..]).copied().collect();
    let updates = g.source(x.dtype, dims, sizes)?;
    let (combiner, exact, bound) = combiner(g, &x, &updates, lead.iter().product())?;
    Some(Plan { op: ScatterNd { combiner }.into(), operands: vec![x, i, updates], exact, bound })
}

/// Order is the same everywhere where elements are.
pub(super) fn sort(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|k| !k.dims.is_empty()).filter(|k| steady(g, k))?;
    let axis = g.rng.below(x.dims.len());
    let descending = g.rng.chance(50);
    Some(Plan::moves(Sort { axis, descending }, vec![x]))
}

pub(super) fn top_k(g: &mut Gen<'_>) -> Option<Plan> {
    let (x, axis) = with_axis(g, |_| true).filter(|(k, _)| steady(g, k))?;
    let k = Dim::from(g.rng.below(x.sizes[axis] + 1));
    let (largest, sorted) = (g.rng.chance(50), g.rng.chance(70));
    Some(Plan::moves(TopK { k, axis, largest, sorted }, vec![x]))
}

pub(super) fn arg_reduce(g: &mut Gen<'_>) -> Option<Plan> {
    let (x, axis) = with_axis(g, |_| true).filter(|(k, _)| steady(g, k))?;
    let kind = if g.rng.chance(50) { ArgKind::Min } else { ArgKind::Max };
    let (keep_dims, select_last) = (g.rng.chance(50), g.rng.chance(50));
    let dtype = if g.rng.chance(70) { DType::I64 } else { DType::I32 };
    Some(Plan {
        op: ArgReduce { kind, axis, keep_dims, select_last, dtype }.into(),
        operands: vec![x],
        exact: true,
        bound: 1.0,
    })
}

/// Places that may lie outside: they are clamped.
fn starts(g: &mut Gen<'_>, x: &Known) -> Option<Known> {
    let list: Vec<i64> = x.sizes.iter().map(|&n| g.rng.below(n + 4) as i64 - 2).collect();
    g.source_of(vec![Dim::from(list.len())], Tensor::from_slice(&[list.len()], &list).ok()?)
}

pub(super) fn dynamic_slice(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|k| !k.dims.is_empty())?;
    let sizes = x.sizes.iter().map(|&n| Dim::from(g.rng.below(n + 1))).collect();
    let s = starts(g, &x)?;
    Some(Plan::moves(DynamicSlice { sizes }, vec![x, s]))
}

pub(super) fn dynamic_update_slice(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|k| !k.dims.is_empty())?;
    let sizes: Vec<usize> = x.sizes.iter().map(|&n| g.rng.below(n + 1)).collect();
    let update = g.source(x.dtype, sizes.iter().map(|&n| Dim::from(n)).collect(), sizes)?;
    let s = starts(g, &x)?;
    let bound = union(&[x.clone(), update.clone()]);
    Some(Plan { op: DynamicUpdateSlice {}.into(), operands: vec![x, update, s], exact: true, bound })
}
