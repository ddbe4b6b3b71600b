//! Elementwise ops, shapes, reductions, products, rows.

use super::{axes, computes, shuffled, steady, union};
use crate::attr::FloatBits;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::ops::contraction::DotGeneral;
use crate::ops::elementwise::{Binary, Compare, Elementwise, Unary};
use crate::ops::indexing::Gather;
use crate::ops::neural::{LayerNorm, Softmax};
use crate::ops::random::RandomBits;
use crate::ops::reduction::{Reduce, ReduceKind};
use crate::ops::shape::{
    BitcastConvert, BroadcastTo, Concat, Iota, Pad, PadMode, Reshape, Reverse, ShapeOf, Slice, Transpose,
};
use crate::tensor::Tensor;
use crate::testing::data::BOUND;
use crate::testing::generate::{Gen, Known, Plan};

/// Continuous, exact.
const EXACT: &[Unary] = &[Unary::Neg, Unary::Abs, Unary::Relu];
/// Steps, exact.
const STEPS: &[Unary] = &[
    Unary::Sign,
    Unary::Ceil,
    Unary::Floor,
    Unary::RoundEven,
    Unary::Trunc,
    Unary::Not,
    Unary::Popcnt,
    Unary::IsNan,
    Unary::IsInf,
    Unary::IsFinite,
];
/// Smooth with a bounded derivative.
const SMOOTH: &[Unary] = &[
    Unary::Tanh,
    Unary::Sigmoid,
    Unary::Erf,
    Unary::Softsign,
    Unary::Sin,
    Unary::Cos,
    Unary::Atan,
    Unary::Silu,
    Unary::Gelu,
    Unary::GeluTanh,
    Unary::HardSwish,
    Unary::Mish,
    Unary::Softplus,
];

pub(super) fn unary(g: &mut Gen<'_>) -> Option<Plan> {
    let tame = g.options.tame;
    let x = g.pick(|_| true).filter(|k| computes(g, k))?;
    let fits = |u: &&Unary| {
        let safe = EXACT.contains(u) || SMOOTH.contains(u) || (steady(g, &x) && STEPS.contains(u));
        u.domain().has(x.dtype) && (!tame || safe || (*u == &Unary::Exp && x.bound < 8.0))
    };
    let list: Vec<Unary> = Unary::ALL.iter().filter(fits).copied().collect();
    let u = *g.rng.pick(&list)?;
    let exact = !x.dtype.is_float() || EXACT.contains(&u) || STEPS.contains(&u);
    let bound = if u == Unary::Exp { x.bound.exp() } else { x.bound.max(1.0) + 1.0 };
    Some(Plan { op: u.into(), operands: vec![x], exact, bound })
}

pub(super) fn binary(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|_| true).filter(|k| computes(g, k))?;
    let y = g.partner(&x, x.dtype)?;
    let tame = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Min, Binary::Max];
    let any = !g.options.tame || !x.dtype.is_float();
    let fits = |o: &&Binary| o.domain().has(x.dtype) && (any || tame.contains(o));
    let list: Vec<Binary> = Binary::ALL.iter().filter(fits).copied().collect();
    let op = *g.rng.pick(&list)?;
    let exact = !x.dtype.is_float() && !x.dtype.is_complex() || matches!(op, Binary::Min | Binary::Max);
    let bound = match op {
        Binary::Add | Binary::Sub => x.bound + y.bound,
        Binary::Mul => x.bound * y.bound,
        _ => x.bound.max(y.bound),
    };
    let operands = if g.rng.chance(50) { vec![x, y] } else { vec![y, x] };
    Some(Plan { op: op.into(), operands, exact, bound })
}

pub(super) fn compare(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|_| true).filter(|k| steady(g, k))?;
    let y = g.partner(&x, x.dtype).filter(|k| steady(g, k))?;
    let op = *g.rng.pick(Compare::ALL)?;
    Some(Plan { op: op.into(), operands: vec![x, y], exact: true, bound: 1.0 })
}

pub(super) fn select(g: &mut Gen<'_>) -> Option<Plan> {
    let a = g.pick(|_| true)?;
    let b = g.partner(&a, a.dtype)?;
    let c = g.partner(&a, DType::Bool)?;
    Some(Plan::moves(Elementwise::Select, vec![c, a, b]))
}

pub(super) fn clamp(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|_| true)?;
    let (lo, hi) = (g.source(x.dtype, vec![], vec![])?, g.source(x.dtype, vec![], vec![])?);
    Some(Plan::moves(Elementwise::Clamp, vec![x, lo, hi]))
}

pub(super) fn convert(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|_| true)?;
    let free = steady(g, &x);
    let to = g.dtype(|d| d != x.dtype && (free || d.is_float() && d.bits() >= 16))?;
    let saturate = g.rng.chance(50);
    // Integers may be large, and become floats of that size.
    let (_, most) = x.dtype.int_range().unwrap_or((0, 0));
    let bound = if x.dtype.is_float() { x.bound } else { most as f64 };
    Some(Plan { op: Elementwise::Convert { to, saturate }.into(), operands: vec![x], exact: true, bound })
}

pub(super) fn transpose(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|k| k.dims.len() >= 2)?;
    let perm = shuffled(g, x.dims.len());
    Some(Plan::moves(Transpose { perm }, vec![x]))
}

pub(super) fn reverse(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|k| !k.dims.is_empty())?;
    let axes = axes(g, x.dims.len());
    Some(Plan::moves(Reverse { axes }, vec![x]))
}

pub(super) fn slice(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|k| !k.dims.is_empty())?;
    let (mut starts, mut limits, mut strides) = (Vec::new(), Vec::new(), Vec::new());
    for (d, &n) in x.dims.iter().zip(&x.sizes) {
        let stride = [1, 1, 2, 3, -1, -2][g.rng.below(6)];
        let (start, limit) = match (stride, g.rng.below(3)) {
            (1.., 0) => (Dim::ZERO, d.clone()),
            (1.., _) => {
                let start = g.rng.below(n + 1);
                (Dim::from(start), Dim::from(start + g.rng.below(n + 1 - start)))
            }
            (_, 0) => (d.clone() - 1, Dim::from(-1)),
            _ if n == 0 => (Dim::from(-1), Dim::from(-1)),
            _ => {
                let start = g.rng.below(n);
                (Dim::from(start), Dim::from(g.rng.below(start + 1)) - 1)
            }
        };
        starts.push(start);
        limits.push(limit);
        strides.push(stride);
    }
    Some(Plan::moves(Slice { starts, limits, strides }, vec![x]))
}

pub(super) fn concat(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|k| !k.dims.is_empty())?;
    let axis = g.rng.below(x.dims.len());
    let mut operands = vec![x.clone()];
    for _ in 0..1 + g.rng.below(2) {
        let mut dims: Vec<Dim> = x.dims.iter().zip(&x.sizes).map(|(d, &n)| g.plain(d, n)).collect();
        let mut sizes = x.sizes.clone();
        sizes[axis] = g.rng.below(4);
        dims[axis] = Dim::from(sizes[axis]);
        let y = g.source(x.dtype, dims, sizes)?;
        operands.insert(g.rng.below(operands.len() + 1), y);
    }
    Some(Plan::moves(Concat { axis }, operands))
}

pub(super) fn pad(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|k| !k.dims.is_empty())?;
    let value = g.source(x.dtype, vec![], vec![])?;
    let mut ends = |n: usize| Dim::from(g.rng.below(5) as i64 - i64::from(n >= 4) * 2);
    let low = x.sizes.iter().map(|&n| ends(n)).collect();
    let high = x.sizes.iter().map(|&n| ends(n)).collect();
    Some(Plan::moves(Pad { low, high, mode: PadMode::Constant }, vec![x, value]))
}

pub(super) fn broadcast_to(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|_| true)?;
    let mut dims: Vec<Dim> = (0..g.rng.below(2)).map(|_| Dim::from(2)).collect();
    for (d, &n) in x.dims.iter().zip(&x.sizes) {
        dims.push(if n == 1 { Dim::from(g.rng.below(6)) } else { d.clone() });
    }
    Some(Plan::moves(BroadcastTo { dims }, vec![x]))
}

pub(super) fn reshape(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|_| true)?;
    let mut dims = x.dims.clone();
    match g.rng.below(4) {
        0 => dims = vec![Dim::product(dims)],
        1 => dims.insert(g.rng.below(dims.len() + 1), Dim::ONE),
        2 if dims.len() >= 2 => {
            let i = g.rng.below(dims.len() - 1);
            let d = dims.remove(i + 1);
            dims[i] = dims[i].clone() * d;
        }
        _ => {
            let i = dims.iter().position(|d| d.as_const().is_some_and(|n| n > 2 && n % 2 == 0))?;
            dims[i] = dims[i].floor_div(Dim::from(2));
            dims.insert(i + g.rng.below(2), Dim::from(2));
        }
    }
    Some(Plan::moves(Reshape { dims }, vec![x]))
}

pub(super) fn reduce(g: &mut Gen<'_>) -> Option<Plan> {
    let tame = g.options.tame;
    let x = g.pick(|k| !k.dims.is_empty()).filter(|k| computes(g, k))?;
    let fits = |k: &&ReduceKind| k.takes(x.dtype) && !(tame && x.dtype.is_float() && **k == ReduceKind::Prod);
    let list: Vec<ReduceKind> = ReduceKind::ALL.iter().filter(fits).copied().collect();
    let kind = *g.rng.pick(&list)?;
    let axes = axes(g, x.dims.len());
    let n: usize = axes.iter().map(|&a| x.sizes[a]).product();
    let sums = matches!(kind, ReduceKind::Sum | ReduceKind::Prod);
    // No elements reduce to ±∞, which is exact and harmless until it is multiplied or subtracted.
    if tame && !sums && n == 0 && x.dtype.is_float() {
        return None;
    }
    let exact = !sums || !x.dtype.is_float() && !x.dtype.is_complex();
    let bound = if sums { x.bound * n as f64 } else { x.bound };
    let keep_dims = g.rng.chance(50);
    Some(Plan { op: Reduce { kind, axes, keep_dims }.into(), operands: vec![x], exact, bound })
}

pub(super) fn gather(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|k| k.sizes.iter().any(|&n| n > 0))?;
    let list: Vec<usize> = (0..x.sizes.len()).filter(|&a| x.sizes[a] > 0).collect();
    let axis = *g.rng.pick(&list)?;
    let n = x.sizes[axis];
    let dims: Vec<usize> = (0..g.rng.below(3)).map(|_| g.rng.below(4)).collect();
    let picks: Vec<i64> = (0..dims.iter().product::<usize>()).map(|_| g.rng.below(2 * n) as i64 - n as i64).collect();
    let indices = g.source_of(dims.iter().map(|&d| Dim::from(d)).collect(), Tensor::from_slice(&dims, &picks).ok()?)?;
    Some(Plan::moves(Gather { axis }, vec![x, indices]))
}

pub(super) fn dot_general(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|k| !k.dims.is_empty() && (k.dtype.is_float() || k.dtype.is_int())).filter(|k| computes(g, k))?;
    let order = shuffled(g, x.dims.len());
    let contract = order[0];
    let batch: Vec<usize> = order[1..].iter().copied().filter(|_| g.rng.chance(40)).collect();
    let (mut dims, mut sizes) = (Vec::new(), Vec::new());
    for &a in batch.iter().chain([&contract]) {
        dims.push(g.plain(&x.dims[a], x.sizes[a]));
        sizes.push(x.sizes[a]);
    }
    for _ in 0..g.rng.below(3) {
        sizes.push([1, 2, 3, 8, 17][g.rng.below(5)]);
        dims.push(Dim::from(sizes[sizes.len() - 1]));
    }
    let y = g.source(x.dtype, dims, sizes)?;
    let rhs_batch: Vec<usize> = (0..batch.len()).collect();
    let bound = x.bound * BOUND * x.sizes[contract] as f64;
    let exact = !x.dtype.is_float();
    let wide = match x.dtype {
        DType::I8 | DType::U8 => Some(DType::I32),
        DType::F16 | DType::BF16 => Some(DType::F32),
        _ => None,
    };
    let accumulate = wide.filter(|_| g.rng.chance(40));
    let op = DotGeneral {
        rhs_contract: vec![batch.len()],
        lhs_batch: batch,
        rhs_batch,
        lhs_contract: vec![contract],
        accumulate,
    };
    Some(Plan { op: op.into(), operands: vec![x, y], exact, bound })
}

pub(super) fn softmax(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|k| !k.dims.is_empty() && k.dtype.is_float()).filter(|k| computes(g, k))?;
    let axis = g.rng.below(x.dims.len());
    let log = g.rng.chance(30);
    let bound = if log { 2.0 * x.bound + 10.0 } else { 1.0 };
    Some(Plan { op: Softmax { axis, log }.into(), operands: vec![x], exact: false, bound })
}

pub(super) fn layer_norm(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|k| !k.dims.is_empty() && k.dtype.is_float()).filter(|k| computes(g, k))?;
    let last = x.dims.len() - 1;
    let (dim, n) = (g.plain(&x.dims[last], x.sizes[last]), x.sizes[last]);
    let (has_scale, has_bias) = (g.rng.chance(60), g.rng.chance(40));
    let mut operands = vec![x.clone()];
    for _ in 0..usize::from(has_scale) + usize::from(has_bias) {
        operands.push(g.source(x.dtype, vec![dim.clone()], vec![n])?);
    }
    // A large epsilon keeps the norm of a row of equal elements from blowing up its rounding errors.
    let eps = FloatBits::new(if g.options.tame { 0.25 } else { 1e-5 });
    let bound = BOUND * (1.0 + (n as f64).sqrt()) + union(&operands[1..]);
    Some(Plan { op: LayerNorm { axes: vec![last], eps, has_scale, has_bias }.into(), operands, exact: false, bound })
}

pub(super) fn iota(g: &mut Gen<'_>) -> Option<Plan> {
    let dtype = g.dtype(|d| d != DType::Bool)?;
    let dims: Vec<Dim> = (0..1 + g.rng.below(3)).map(|_| Dim::from([0, 1, 3, 8][g.rng.below(4)])).collect();
    let axis = g.rng.below(dims.len());
    Some(Plan { op: Iota { dtype, dims, axis }.into(), operands: vec![], exact: true, bound: 8.0 })
}

pub(super) fn shape_of(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|_| true)?;
    Some(Plan { op: ShapeOf {}.into(), operands: vec![Known { exact: true, ..x }], exact: true, bound: 0.0 })
}

/// Among integers only: other bits read as floats are of any size.
pub(super) fn bitcast_convert(g: &mut Gen<'_>) -> Option<Plan> {
    let x = g.pick(|k| k.dtype.is_int())?;
    let to = g.dtype(|d| d.is_int() && d.bits() == x.dtype.bits())?;
    let bound = (x.dtype.bits() as f64).exp2();
    Some(Plan { op: BitcastConvert { to }.into(), operands: vec![x], exact: true, bound })
}

pub(super) fn random_bits(g: &mut Gen<'_>) -> Option<Plan> {
    // Other nodes may read the key as numbers, which must be small.
    let words = [g.rng.below(4) as u64, g.rng.below(4) as u64];
    let key = g.source_of(vec![Dim::from(2)], Tensor::from_slice(&[2], &words).ok()?)?;
    let dtype = if g.rng.chance(50) { DType::U32 } else { DType::U64 };
    let dims: Vec<Dim> = (0..g.rng.below(3)).map(|_| Dim::from([0, 1, 5, 8][g.rng.below(4)])).collect();
    let stream = g.rng.bits() as u32;
    Some(Plan { op: RandomBits { dtype, dims, stream }.into(), operands: vec![key], exact: true, bound: 64f64.exp2() })
}
