//! Nested graphs, and ops whose sizes depend on data. The data is a new source, so that the sizes are known here.

use super::computes;
use crate::builder::Builder;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::IrError;
use crate::graph::ValueId;
use crate::ops::control::LoopStep;
use crate::ops::elementwise::{Binary, Compare, Unary};
use crate::tensor::Tensor;
use crate::testing::generate::{Built, Gen, Known};

/// A scalar source.
fn scalar(g: &mut Gen<'_>, value: Tensor) -> Option<ValueId> {
    Some(g.source_of(vec![], value)?.id)
}

fn boolean(g: &mut Gen<'_>, value: bool) -> Option<ValueId> {
    scalar(g, Tensor::from_bools(&[], &[value]).ok()?)
}

/// A step on values of a dtype that keeps floats small and everything else exact.
fn step(b: &mut Builder, x: ValueId, y: ValueId, dtype: DType, kind: usize) -> Result<ValueId, IrError> {
    let add = |b: &mut Builder, op: Binary| b.op1(op, &[x, y]);
    if dtype == DType::Bool {
        return add(b, [Binary::Xor, Binary::And, Binary::Or][kind % 3]);
    }
    let sum = add(b, [Binary::Add, Binary::Sub, Binary::Max][kind % 3])?;
    if dtype.is_float() { b.op1(Unary::Tanh, &[sum]) } else { Ok(sum) }
}

/// Something that a step takes.
fn operand(g: &mut Gen<'_>, ranks: std::ops::RangeFrom<usize>) -> Option<Known> {
    let fits = |k: &Known| {
        let small = k.dtype.is_float() && k.bound < 100.0;
        ranks.contains(&k.dims.len()) && (small || k.dtype.is_int() || k.dtype == DType::Bool)
    };
    g.pick(fits).filter(|k| computes(g, k))
}

/// One branch computes, the other one does something else or cuts the first axis, so that the size depends on the condition.
pub(super) fn branch(g: &mut Gen<'_>) -> Option<Built> {
    let x = operand(g, 1..)?;
    let y = operand(g, 0..).filter(|y| y.dtype == x.dtype && y.sizes == x.sizes && y.dims == x.dims);
    let taken = g.rng.chance(50);
    let cond = boolean(g, taken)?;
    let captures: Vec<ValueId> = [Some(x.id), y.map(|y| y.id)].into_iter().flatten().collect();
    let (cut, kind, dtype) = (g.rng.chance(50), g.rng.below(3), x.dtype);
    let keep = g.rng.below(x.sizes[0] + 1);
    let results =
        g.b.if_(
            cond,
            &captures,
            |b, a| {
                let last = a.last().copied().unwrap_or(a[0]);
                Ok(vec![step(b, a[0], last, dtype, kind)?])
            },
            |b, a| {
                if !cut {
                    return Ok(vec![a[0]]);
                }
                let shape = b.shape(a[0])?;
                let mut limits = shape.to_vec();
                limits[0] = Dim::from(keep);
                Ok(vec![b.slice(a[0], vec![Dim::ZERO; shape.rank()], limits, vec![1; shape.rank()])?])
            },
        )
        .ok()?;
    let mut sizes = x.sizes.clone();
    if cut && !taken {
        sizes[0] = keep;
    }
    Some(Built { results, sizes: vec![sizes], exact: x.exact && !x.dtype.is_float(), bound: x.bound.max(1.0) * 2.0 })
}

/// A counted loop, which may end early, that carries a value and stacks its steps.
pub(super) fn repeat(g: &mut Gen<'_>) -> Option<Built> {
    let x = operand(g, 0..)?;
    let count = g.rng.below(5) as i64 - 1;
    let trips = scalar(g, Tensor::scalar(count))?;
    let (starts, ends) = (!g.rng.chance(15), g.rng.chance(40).then(|| g.rng.below(3) as i64));
    let cond = if g.rng.chance(50) || !starts { Some(boolean(g, starts)?) } else { None };
    let (kind, dtype) = (g.rng.below(3), x.dtype);
    let results =
        g.b.loop_(Some(trips), cond, &[x.id], &[x.id], |b, a| {
            let next = step(b, a.carried[0], a.captures[0], dtype, kind)?;
            let more = match ends {
                Some(n) => {
                    let n = b.constant(Tensor::scalar(n))?;
                    b.op1(Compare::Lt, &[a.iteration, n])?
                }
                None => a.cond,
            };
            Ok(LoopStep { cond: more, carried: vec![next], scans: vec![next] })
        })
        .ok()?;
    let ran = if starts { count.max(0).min(ends.map_or(i64::MAX, |n| n + 1)) as usize } else { 0 };
    let stacked: Vec<usize> = [ran].iter().chain(&x.sizes).copied().collect();
    let exact = x.exact && !x.dtype.is_float();
    Some(Built { results, sizes: vec![x.sizes.clone(), stacked], exact, bound: x.bound.max(1.0) })
}

/// A loop whose carried value grows by its first one in each step.
pub(super) fn grow(g: &mut Gen<'_>) -> Option<Built> {
    let x = g.pick(|k| !k.dims.is_empty())?;
    let axis = g.rng.below(x.dims.len());
    let count = g.rng.below(4);
    let trips = scalar(g, Tensor::scalar(count as i64))?;
    let results =
        g.b.loop_(Some(trips), None, &[x.id], &[x.id], |b, a| {
            let grown = b.concat(&[a.carried[0], a.captures[0]], axis as i64)?;
            Ok(LoopStep { cond: a.cond, carried: vec![grown], scans: vec![] })
        })
        .ok()?;
    let mut sizes = x.sizes.clone();
    sizes[axis] *= 1 + count;
    Some(Built { results, sizes: vec![sizes], exact: x.exact, bound: x.bound })
}

/// A running fold over the first axis, and its steps.
pub(super) fn scan(g: &mut Gen<'_>) -> Option<Built> {
    let x = operand(g, 1..)?;
    let dims: Vec<Dim> = x.dims[1..].iter().zip(&x.sizes[1..]).map(|(d, &n)| g.plain(d, n)).collect();
    if dims != x.dims[1..] {
        return None;
    }
    let init = g.source(x.dtype, dims, x.sizes[1..].to_vec())?;
    let (kind, dtype) = (g.rng.below(3), x.dtype);
    let results =
        g.b.scan_(&[init.id], &[x.id], &[], |b, carried, slices, _| {
            let next = step(b, carried[0], slices[0], dtype, kind)?;
            Ok((vec![next], vec![next]))
        })
        .ok()?;
    let exact = x.exact && !x.dtype.is_float();
    let bound = x.bound.max(init.bound);
    Some(Built { results, sizes: vec![init.sizes, x.sizes.clone()], exact, bound })
}

/// Indices of what is not zero in a new source.
pub(super) fn nonzero(g: &mut Gen<'_>) -> Option<Built> {
    let dtype = g.dtype(|d| d != DType::Str)?;
    let rank = 1 + g.rng.below(3);
    let (mut dims, mut sizes) = (Vec::new(), Vec::new());
    for _ in 0..rank {
        let (d, n) = g.dim();
        dims.push(d);
        sizes.push(n);
    }
    if sizes.iter().product::<usize>() > g.options.max_elems / 4 {
        return None;
    }
    let tensor = crate::testing::random_tensor(&mut g.rng, dtype, &sizes, false).ok()?;
    let count = match tensor.elements() {
        crate::element::Elements::Float(v) => v.iter().filter(|&&x| x != 0.0).count(),
        crate::element::Elements::Int(v) => v.iter().filter(|&&x| x != 0).count(),
        crate::element::Elements::Complex(v) => v.iter().filter(|&&x| x != [0.0, 0.0]).count(),
        crate::element::Elements::Str(_) => return None,
    };
    let x = g.source_of(dims, tensor)?;
    let symbol = g.fresh_symbol();
    let result = g.b.nonzero(x.id, symbol).ok()?;
    Some(Built { results: vec![result], sizes: vec![vec![rank, count]], exact: true, bound: 1.0 })
}

/// A range and a repeated value whose sizes are read from a new source.
pub(super) fn read_dims(g: &mut Gen<'_>) -> Option<Built> {
    let size = g.rng.below(6);
    let data = g.source_of(vec![Dim::ONE], Tensor::from_slice(&[1], &[size as i64]).ok()?)?;
    if g.b.graph().elems(data.id).is_some() {
        return None;
    }
    let symbol = g.fresh_symbol();
    g.b.read_dims(data.id, vec![symbol.clone()]).ok()?;
    let dtype = g.dtype(|d| d != DType::Bool && d != DType::Str)?;
    let range = g.b.iota(dtype, vec![Dim::from(&symbol)], 0).ok()?;
    let x = g.pick(|k| k.dims.len() < 4)?;
    let dims: Vec<Dim> = [Dim::from(&symbol)].into_iter().chain(x.dims.clone()).collect();
    let repeated = g.b.broadcast_to(x.id, dims).ok()?;
    let sizes = [size].iter().chain(&x.sizes).copied().collect();
    Some(Built {
        results: vec![range, repeated],
        sizes: vec![vec![size], sizes],
        exact: x.exact,
        bound: x.bound.max(5.0),
    })
}
