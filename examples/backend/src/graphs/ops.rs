//! The claimed ops, each in plain loops.

use rlx::DType;
use rlx::compile::RunError;
use rlx::ir::Op;
use rlx::ir::element::round_float;
use rlx::ir::ops::contraction::{Contraction, DotGeneral};
use rlx::ir::ops::elementwise::{Elementwise, Scalar};
use rlx::ir::ops::indexing::{Gather, Indexing};
use rlx::ir::ops::neural::{LayerNorm, Neural};
use rlx::ir::ops::reduction::{Reduce, Reduction};
use rlx::ir::ops::shape::ShapeOp;

use crate::array::{Array, fault, float, indices, int, scalars};
use crate::fold::fold;

type Data = Result<Vec<Scalar>, RunError>;

/// The elements of a node's result, whose dtype and sizes are known.
pub fn compute(op: &Op, x: &[&Array], dtype: DType, dims: &[usize]) -> Data {
    match (op, x) {
        (Op::Elementwise(f), _) => elementwise(f, x, dtype, dims),
        (Op::ShapeOp(ShapeOp::Constant(c)), []) => scalars(&c.value),
        (Op::ShapeOp(ShapeOp::Reshape(_)), [x]) => Ok(x.data.clone()),
        (Op::ShapeOp(ShapeOp::BroadcastTo(_)), [x]) => indices(dims).map(|i| x.broadcast_at(&i)).collect(),
        (Op::ShapeOp(ShapeOp::Transpose(t)), [x]) => indices(dims).map(|i| x.at(&unpermuted(&t.perm, &i))).collect(),
        (Op::Reduction(Reduction::Reduce(r)), [x]) => reduce(r, x, dtype, dims),
        (Op::Contraction(Contraction::DotGeneral(d)), [a, b]) => dot(d, a, b, dtype, dims),
        (Op::Indexing(Indexing::Gather(g)), [x, at]) => gather(g, x, at, dims),
        (Op::Neural(Neural::LayerNorm(n)), [x, rest @ ..]) => layer_norm(n, x, rest, dtype),
        _ => Err(fault(op.name(), "the op is not claimed")),
    }
}

fn unpermuted(perm: &[usize], index: &[usize]) -> Vec<usize> {
    let mut from = vec![0; index.len()];
    perm.iter().zip(index).for_each(|(&p, &i)| from[p] = i);
    from
}

fn elementwise(f: &Elementwise, x: &[&Array], dtype: DType, dims: &[usize]) -> Data {
    let dtypes: Vec<DType> = x.iter().map(|a| a.dtype).collect();
    let one = |index: Vec<usize>| {
        let args = x.iter().map(|a| a.broadcast_at(&index)).collect::<Result<Vec<_>, _>>()?;
        f.apply(&dtypes, dtype, &args).ok_or_else(|| fault("elementwise", format!("no value for {dtypes:?}")))
    };
    indices(dims).map(one).collect()
}

fn reduce(r: &Reduce, x: &Array, dtype: DType, dims: &[usize]) -> Data {
    let folded: Vec<usize> = r.axes.iter().map(|&a| x.dims[a]).collect();
    let one = |index: Vec<usize>| {
        // Without the folded axes, the result's index is the operand's.
        let mut kept = index.iter().enumerate().filter(|(a, _)| !r.keep_dims || !r.axes.contains(a)).map(|(_, &i)| i);
        let outer: Vec<usize> =
            (0..x.dims.len()).map(|a| if r.axes.contains(&a) { 0 } else { kept.next().unwrap_or(0) }).collect();
        let items = indices(&folded).map(|inner| {
            let mut at = outer.clone();
            r.axes.iter().zip(&inner).for_each(|(&a, &i)| at[a] = i);
            x.at(&at)
        });
        fold(r.kind, dtype, items.collect::<Result<Vec<_>, _>>()?).map(|s| rounded(s, dtype))
    };
    indices(dims).map(one).collect()
}

fn rounded(s: Scalar, dtype: DType) -> Scalar {
    match s {
        Scalar::F(x) => Scalar::F(round_float(dtype, x)),
        s => s,
    }
}

fn dot(d: &DotGeneral, a: &Array, b: &Array, dtype: DType, dims: &[usize]) -> Data {
    let (free_a, free_b) = (d.lhs_free(a.dims.len()), d.rhs_free(b.dims.len()));
    let summed: Vec<usize> = d.lhs_contract.iter().map(|&x| a.dims[x]).collect();
    let batch = d.lhs_batch.len();
    let mut out = Vec::with_capacity(dims.iter().product());
    for index in indices(dims) {
        let (head, tail) = index.split_at(batch);
        let (rows, columns) = tail.split_at(free_a.len());
        let (mut i, mut j) = (vec![0; a.dims.len()], vec![0; b.dims.len()]);
        d.lhs_batch.iter().zip(head).chain(free_a.iter().zip(rows)).for_each(|(&axis, &n)| i[axis] = n);
        d.rhs_batch.iter().zip(head).chain(free_b.iter().zip(columns)).for_each(|(&axis, &n)| j[axis] = n);
        let mut sum = 0.0;
        for k in indices(&summed) {
            d.lhs_contract.iter().zip(&k).for_each(|(&axis, &n)| i[axis] = n);
            d.rhs_contract.iter().zip(&k).for_each(|(&axis, &n)| j[axis] = n);
            sum += float(a.at(&i)?) * float(b.at(&j)?);
        }
        out.push(Scalar::F(round_float(dtype, sum)));
    }
    Ok(out)
}

fn gather(g: &Gather, x: &Array, at: &Array, dims: &[usize]) -> Data {
    let size = x.dims[g.axis] as i128;
    let one = |index: Vec<usize>| {
        let (outer, rest) = index.split_at(g.axis);
        let (place, inner) = rest.split_at(at.dims.len());
        let wanted = int(at.at(place)?);
        let from_start = if wanted < 0 { wanted + size } else { wanted };
        if !(0..size).contains(&from_start) {
            return Err(fault("gather", format!("index {wanted} is out of range for axis {} of size {size}", g.axis)));
        }
        x.at(&[outer, &[from_start as usize], inner].concat())
    };
    indices(dims).map(one).collect()
}

fn layer_norm(n: &LayerNorm, x: &Array, rest: &[&Array], dtype: DType) -> Data {
    let row: Vec<usize> = n.axes.iter().map(|&a| x.dims[a]).collect();
    let len: usize = row.iter().product();
    let scale = rest.first().filter(|_| n.has_scale);
    let bias = rest.get(usize::from(n.has_scale)).filter(|_| n.has_bias);
    let mut out = Vec::with_capacity(x.data.len());
    for values in x.data.chunks(len.max(1)) {
        let mean = values.iter().map(|&v| float(v)).sum::<f64>() / len as f64;
        let variance = values.iter().map(|&v| (float(v) - mean).powi(2)).sum::<f64>() / len as f64;
        let deviation = (variance + n.eps.get()).sqrt();
        for (&v, index) in values.iter().zip(indices(&row)) {
            let factor = scale.map_or(Ok(1.0), |s| s.broadcast_at(&index).map(float))?;
            let shift = bias.map_or(Ok(0.0), |s| s.broadcast_at(&index).map(float))?;
            out.push(Scalar::F(round_float(dtype, (float(v) - mean) / deviation * factor + shift)));
        }
    }
    Ok(out)
}
