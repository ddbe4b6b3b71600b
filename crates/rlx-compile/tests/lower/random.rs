//! Random graphs: fused and unfused programs agree with the evaluator at odd sizes.

use rlx_ir::ops::elementwise::{Binary, Compare, Elementwise, Unary};
use rlx_ir::ops::reduction::{ReduceKind, ReduceWindow, WindowKind};
use rlx_ir::ops::shape::PadMode;
use rlx_ir::{Builder, DType, Dim, DimBinding, IrError, Module, ValueId};

use crate::harness::{agree, agree_on, lowered};
use rlx_compile::{CompileOptions, Fusion};

/// A small generator; the tests need variety, not quality.
struct Random(u64);

impl Random {
    fn next(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n.max(1)
    }

    fn pick<T: Clone>(&mut self, v: &[T]) -> T {
        v[self.next(v.len())].clone()
    }
}

fn dim(r: &mut Random) -> Dim {
    r.pick(&[Dim::symbol("n"), Dim::symbol("m"), 1.into(), 2.into(), 3.into(), 4.into()])
}

/// One random op on random values; an error where they do not fit.
fn step(b: &mut Builder, r: &mut Random, values: &[ValueId]) -> Result<Vec<ValueId>, IrError> {
    let recent = &values[values.len().saturating_sub(5)..];
    let x = if r.next(3) > 0 { r.pick(recent) } else { r.pick(values) };
    let y = r.pick(values);
    let t = b.tensor_type(x)?.clone();
    let dims = t.shape.to_vec();
    let rank = dims.len();
    Ok(vec![match r.next(19) {
        0..=2 => {
            let u = r.pick(&[Unary::Neg, Unary::Abs, Unary::Relu, Unary::Tanh, Unary::Sigmoid]);
            b.op1(u, &[x])?
        }
        3..=5 => {
            let op = r.pick(&[Binary::Add, Binary::Sub, Binary::Min, Binary::Max]);
            b.op1(op, &[x, y])?
        }
        6 => {
            let c = b.op1(Compare::Lt, &[x, y])?;
            let z = r.pick(values);
            b.op1(Elementwise::Select, &[c, x, z])?
        }
        7 => {
            let mut perm: Vec<usize> = (0..rank).collect();
            for i in (1..rank).rev() {
                perm.swap(i, r.next(i + 1));
            }
            b.transpose(x, &perm)?
        }
        8 => {
            // Merges two neighbours, or splits off an axis of 1.
            let mut to = dims.clone();
            if rank >= 2 && r.next(2) == 0 {
                let i = r.next(rank - 1);
                let d = to.remove(i + 1);
                to[i] = &to[i] * &d;
            } else {
                to.insert(r.next(rank + 1), 1.into());
            }
            b.reshape(x, to)?
        }
        9 => {
            let mut to = dims.clone();
            for d in &mut to {
                if d.as_const() == Some(1) {
                    *d = dim(r);
                }
            }
            if r.next(2) == 0 {
                to.insert(0, dim(r));
            }
            b.broadcast_to(x, to)?
        }
        10 => {
            let axis = r.next(rank);
            let (mut lo, mut hi, mut st) = (vec![Dim::ZERO; rank], dims.clone(), vec![1; rank]);
            match r.next(3) {
                0 => {
                    lo[axis] = Dim::ONE.min(&dims[axis]);
                    st[axis] = 2;
                }
                1 => {
                    lo[axis] = &dims[axis] - 1;
                    hi[axis] = Dim::from(-1);
                    st[axis] = -1;
                }
                _ => hi[axis] = Dim::from(2).min(&dims[axis]),
            }
            b.slice(x, lo, hi, st)?
        }
        11 => {
            let kind = r.pick(&[ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min]);
            let axis = r.next(rank) as i64;
            let keep = r.next(2) == 0;
            let s = b.reduce(x, kind, &[axis], keep)?;
            if kind == ReduceKind::Sum { b.tanh(s)? } else { s }
        }
        12 => b.softmax(x, r.next(rank))?,
        13 => b.layer_norm(x, None, None, &[rank - 1], 0.1)?,
        14 => {
            let s = b.matmul(x, y)?;
            b.tanh(s)?
        }
        15 => b.concat(&[x, y], r.next(rank) as i64)?,
        16 => {
            let v = b.scalar(DType::F32, 0.5)?;
            let pad = |r: &mut Random| (0..rank).map(|_| Dim::from(r.next(2) as i64)).collect::<Vec<_>>();
            let (low, high) = (pad(r), pad(r));
            b.pad(x, Some(v), low, high, PadMode::Constant)?
        }
        17 => {
            let i = b.iota(DType::F32, dims.clone(), r.next(rank) as i64)?;
            let i = b.tanh(i)?;
            b.add(x, i)?
        }
        _ => {
            let mut op = ReduceWindow::new(r.pick(&[WindowKind::Max, WindowKind::Mean]), &[2]);
            op.pad_low = vec![1.into()];
            b.reduce_window(x, op)?
        }
    }])
}

fn graph(seed: u64) -> Module {
    let mut r = Random(seed.wrapping_mul(0x9e3779b97f4a7c15) | 1);
    let mut b = Builder::new("main");
    let mut values = Vec::new();
    for i in 0..3 {
        let rank = 1 + r.next(3);
        let dims: Vec<Dim> = (0..rank).map(|_| dim(&mut r)).collect();
        values.push(b.input(&format!("x{i}"), DType::F32, dims).unwrap());
    }
    let n = 4 + r.next(14);
    for _ in 0..n * 3 {
        if values.len() > n {
            break;
        }
        // Ops that do not fit leave nothing behind but constants.
        if let Ok(new) = step(&mut b, &mut r, &values) {
            let small = new
                .iter()
                .all(|&v| b.graph().tensor_type(v).is_some_and(|t| t.shape.rank() <= 4 && t.shape.rank() > 0));
            if small {
                values.extend(new);
            }
        }
    }
    let mut outputs: Vec<ValueId> = values.iter().rev().take(2).copied().collect();
    outputs.push(r.pick(&values));
    for (i, v) in outputs.into_iter().enumerate() {
        b.output(&format!("y{i}"), v).unwrap();
    }
    Module::from_graph(b.finish())
}

/// All seeds, or the one that `SEED` names.
fn seeds(default: u64) -> std::ops::Range<u64> {
    match std::env::var("SEED").ok().and_then(|s| s.parse().ok()) {
        Some(s) => s..s + 1,
        None => 0..std::env::var("SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(default),
    }
}

#[test]
fn random_graphs_agree_with_the_evaluator() {
    let (mut ran, mut fused_kernels, mut plain_kernels) = (0, 0, 0);
    for seed in seeds(300) {
        println!("seed {seed}");
        let m = graph(seed);
        let (fused, _) = lowered(&m, &CompileOptions::default());
        let (plain, _) = lowered(&m, &CompileOptions::default().fusion(Fusion::Off));
        fused_kernels += fused.kernels.len();
        plain_kernels += plain.kernels.len();
        for (n, m_) in [(2, 3), (3, 2), (1, 1), (1, 4), (5, 1), (0, 2), (3, 3)] {
            let binding: DimBinding = [("n", n), ("m", m_)].into_iter().collect();
            if agree(&m, &fused, &binding) {
                agree(&m, &plain, &binding);
                ran += 1;
            }
        }
    }
    // Most graphs run at most sizes, and fusion does something.
    assert!(ran > 600, "only {ran} comparisons ran");
    assert!(2 * fused_kernels < plain_kernels * 3 / 2, "{fused_kernels} fused, {plain_kernels} plain");
}

/// Graphs of all ops and dtypes but complex numbers and strings.
#[test]
fn random_graphs_of_all_dtypes_agree_with_the_evaluator() {
    use rlx_ir::testing::{GraphOptions, RandomGraph};
    let mut ran = 0;
    for seed in seeds(120) {
        println!("seed {seed}");
        let g = RandomGraph::generate(
            seed,
            3 + seed as usize % 14,
            &GraphOptions { max_elems: 256, all_ops: false, ..Default::default() },
        );
        let inputs = g.inputs.inputs.iter().filter_map(|v| v.as_tensor().cloned()).collect::<Vec<_>>();
        let params =
            g.module.main.params().iter().filter_map(|p| g.inputs.params.get(&*p.name).or(p.default.as_ref()).cloned());
        let params: Vec<_> = params.collect();
        for options in [CompileOptions::default(), CompileOptions::default().fusion(Fusion::Off)] {
            let (lir, _) = lowered(&g.module, &options);
            ran += usize::from(agree_on(&g.module, &lir, inputs.clone(), params.clone(), &g.inputs.binding));
        }
    }
    let tried = 2 * seeds(120).count();
    assert!(ran * 10 > tried * 9, "only {ran} of {tried} comparisons ran");
}
