//! Contractions against plain f64 loops.

// Buffers have the sizes that the plans were made for.
#![allow(clippy::undocumented_unsafe_blocks)]
// Loops are written as the sums that they stand for.
#![allow(clippy::needless_range_loop)]

use super::*;
use crate::buffers::Weight;
use crate::rig::{Rig, Step, assert_near, chain, dense, noise};
use crate::simd::Isa;
use rlx_compile::MatmulPrecision;
use rlx_compile::lir::Epilogue;
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::elementwise::{Binary, Unary};

/// A contraction to be tested: sizes of the axis groups, and how operands lie.
#[derive(Clone, Debug)]
struct Case {
    batch: Vec<usize>,
    m: Vec<usize>,
    n: Vec<usize>,
    k: Vec<usize>,
    dtypes: [DType; 3],
    acc: DType,
    /// Order in memory of the axes of lhs, rhs and result, outermost first; empty: as they are.
    orders: [Vec<usize>; 3],
    /// Batch axes along which rhs stays the same.
    shared: bool,
    steps: Vec<Step>,
    weight: bool,
    matmul: MatmulPrecision,
}

impl Case {
    fn new(batch: &[usize], m: &[usize], n: &[usize], k: &[usize]) -> Case {
        Case {
            batch: batch.into(),
            m: m.into(),
            n: n.into(),
            k: k.into(),
            dtypes: [DType::F32; 3],
            acc: DType::F32,
            orders: [vec![], vec![], vec![]],
            shared: false,
            steps: vec![],
            weight: false,
            matmul: MatmulPrecision::Highest,
        }
    }
}

/// Strides of axes that lie in memory in this order.
fn strides(sizes: &[usize], order: &[usize]) -> Vec<i64> {
    let order: Vec<usize> = if order.is_empty() { (0..sizes.len()).collect() } else { order.to_vec() };
    let permuted: Vec<usize> = order.iter().map(|&a| sizes[a]).collect();
    let lying = dense(&permuted);
    (0..sizes.len()).map(|a| lying[order.iter().position(|&o| o == a).unwrap()]).collect()
}

fn scalar(f: Elementwise, x: f64, y: f64) -> f64 {
    match f {
        Elementwise::Binary(Binary::Add) => x + y,
        Elementwise::Binary(Binary::Mul) => x * y,
        Elementwise::Binary(Binary::Sub) => x - y,
        Elementwise::Unary(Unary::Relu) => x.max(0.0),
        Elementwise::Unary(Unary::Gelu) => 0.5 * x * libm::erfc(-x / 2f64.sqrt()),
        Elementwise::Unary(Unary::GeluTanh) => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
        }
        Elementwise::Unary(Unary::Silu) => x / (1.0 + (-x).exp()),
        Elementwise::Unary(Unary::Sigmoid) => 1.0 / (1.0 + (-x).exp()),
        Elementwise::Unary(Unary::Tanh) => x.tanh(),
        Elementwise::Unary(Unary::HardSwish) => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
        Elementwise::Unary(Unary::Exp) => x.exp(),
        other => panic!("{other:?} has no oracle"),
    }
}

#[track_caller]
fn check(case: &Case) {
    let integer = !case.acc.is_float();
    let join = |parts: &[&[usize]]| parts.concat();
    let (b, m, n, k) = (&case.batch[..], &case.m[..], &case.n[..], &case.k[..]);
    let (lhs_sizes, out_sizes) = (join(&[b, m, k]), join(&[b, m, n]));
    let rhs_batch: Vec<usize> = if case.shared { vec![1; b.len()] } else { b.to_vec() };
    let rhs_sizes = join(&[&rhs_batch, n, k]);
    let count = |s: &[usize]| s.iter().product::<usize>();
    let values = |n: usize, seed| -> Vec<f64> {
        let v = noise(n, seed);
        if integer { v.iter().map(|x| (x * 100.0).round()).collect() } else { v }
    };
    let (total_b, total_m, total_n, total_k) = (count(b), count(m), count(n), count(k));
    let mut rig = Rig::default();
    let lhs = rig.buffer(case.dtypes[0], &values(count(&lhs_sizes), 1));
    let rhs = rig.buffer(case.dtypes[1], &values(count(&rhs_sizes), 2));
    let out = rig.buffer(case.dtypes[2], &vec![7.0; count(&out_sizes)]);
    // Read 0 varies along columns, read 1 along everything, read 2 along rows, read 3 not at all.
    let column = rig.buffer(case.acc, &values(total_n, 3));
    let all = rig.buffer(case.acc, &values(count(&out_sizes), 4));
    let row = rig.buffer(case.acc, &values(total_m, 5));
    let one = rig.buffer(case.acc, &values(1, 6));
    if case.weight {
        rig.weight(rhs);
    }
    let lhs_strides = strides(&lhs_sizes, &case.orders[0]);
    let mut rhs_strides = strides(&rhs_sizes, &case.orders[1]);
    if case.shared {
        rhs_strides[..b.len()].fill(0);
    }
    let out_strides = strides(&out_sizes, &case.orders[2]);
    let around = |before: usize, middle: &[usize], after: usize| {
        let mut s = vec![0; before];
        s.extend(dense(middle));
        s.extend(vec![0; after]);
        s
    };
    let mut reads = vec![
        rig.access(column, 0, &around(b.len() + m.len(), n, 0)),
        rig.access(all, 0, &out_strides),
        rig.access(row, 0, &around(b.len(), m, n.len())),
        rig.access(one, 0, &vec![0; out_sizes.len()]),
    ];
    let used = case.steps.iter().filter_map(|s| if let Step::With(_, r) = s { Some(*r as usize + 1) } else { None });
    reads.truncate(used.max().unwrap_or(0));
    let writes = vec![rig.access(out, 0, &out_strides)];
    let kernel = ContractKernel {
        batch: rig.sizes(b),
        m: rig.sizes(m),
        n: rig.sizes(n),
        k: rig.sizes(k),
        lhs: rig.access(lhs, 0, &lhs_strides),
        rhs: rig.access(rhs, 0, &rhs_strides),
        lhs_scaling: Default::default(),
        rhs_scaling: Default::default(),
        acc: case.acc,
        epilogue: Epilogue { reads, program: chain(case.acc, &case.steps, case.dtypes[2]), writes },
    };
    // The oracle.
    let (x, y) = (rig.values(lhs), rig.values(rhs));
    let (bias, residual, rows, single) = (rig.values(column), rig.values(all), rig.values(row), rig.values(one));
    let at = |i: usize, sizes: &[usize], strides: &[i64]| crate::space::position(i, sizes, 0, strides) as usize;
    let (nb, nm, nn) = (b.len(), m.len(), n.len());
    let mut want = vec![0.0; count(&out_sizes)];
    for bi in 0..total_b {
        for mi in 0..total_m {
            for ni in 0..total_n {
                let l = at(bi, b, &lhs_strides[..nb]) + at(mi, m, &lhs_strides[nb..nb + nm]);
                let r = at(bi, b, &rhs_strides[..nb]) + at(ni, n, &rhs_strides[nb..nb + nn]);
                let mut v: f64 = (0..total_k)
                    .map(|ki| x[l + at(ki, k, &lhs_strides[nb + nm..])] * y[r + at(ki, k, &rhs_strides[nb + nn..])])
                    .sum();
                let o = at(bi, b, &out_strides[..nb])
                    + at(mi, m, &out_strides[nb..nb + nm])
                    + at(ni, n, &out_strides[nb + nm..]);
                for s in &case.steps {
                    v = match *s {
                        Step::Apply(f) => scalar(f, v, 0.0),
                        Step::With(f, 0) => scalar(f, v, bias[ni]),
                        Step::With(f, 1) => scalar(f, v, residual[o]),
                        Step::With(f, 2) => scalar(f, v, rows[mi]),
                        Step::With(f, _) => scalar(f, v, single[0]),
                        Step::Number(f, y) => scalar(f, v, y),
                        Step::Clamp(lo, hi) => v.clamp(lo, hi),
                    };
                }
                want[o] = v;
            }
        }
    }
    let tolerance = match case.dtypes[2] {
        DType::F32 if case.matmul == MatmulPrecision::High => 1e-5 * (total_k as f64).sqrt().max(4.0),
        DType::F32 => 2e-6 * (total_k as f64).sqrt().max(4.0),
        DType::F64 => 1e-12,
        DType::BF16 => 8e-3,
        DType::F16 => 1e-3,
        _ => 0.0,
    };
    for isa in crate::simd::levels() {
        let mut first: Option<Vec<u8>> = None;
        for threads in 1..=3 {
            let code = rig.code(&kernel.epilogue, case.acc, out_sizes.len());
            let plan = rig.bind_with(isa, case.matmul, |cx| plan(&kernel, &code, cx)).unwrap();
            let weight = Weight::default();
            for _ in 0..2 {
                rig.run(isa, threads, case.weight.then_some(&weight), |cx| unsafe { run(&plan, &code, cx) });
            }
            assert_near(&rig.values(out), &want, tolerance, &format!("{case:?} {isa} {threads}"));
            let bytes = rig.bytes(out);
            assert_eq!(first.get_or_insert_with(|| bytes.clone()), &bytes, "{case:?} {isa} {threads} threads");
        }
    }
}

const ADD: Elementwise = Elementwise::Binary(Binary::Add);

#[test]
fn plain_products_of_odd_sizes() {
    for (m, k, n) in [(1, 1, 1), (7, 13, 17), (6, 8, 16), (5, 3, 15), (64, 96, 33), (97, 7, 1), (1, 64, 31), (3, 0, 5)]
    {
        check(&Case::new(&[], &[m], &[n], &[k]));
        check(&Case { weight: true, ..Case::new(&[], &[m], &[n], &[k]) });
        check(&Case::new(&[2], &[m], &[n], &[k]));
    }
    check(&Case::new(&[0], &[3], &[4], &[5]));
    check(&Case::new(&[2], &[0], &[4], &[5]));
    check(&Case::new(&[2], &[3], &[0], &[5]));
}

#[test]
fn axes_merge_or_become_loops() {
    // Attention projections: rows [batch, sequence], columns [heads, features], result by heads.
    let mut c = Case { weight: true, ..Case::new(&[], &[2, 13], &[3, 20], &[24]) };
    c.steps = vec![Step::With(ADD, 0)];
    c.orders[2] = vec![0, 2, 1, 3];
    check(&c);
    // The same with short sequences, which go through blocks.
    let mut c = Case { weight: true, ..Case::new(&[], &[20, 3], &[5, 20], &[24]) };
    c.steps = vec![Step::With(ADD, 0)];
    c.orders[2] = vec![0, 2, 1, 3];
    check(&c);
    // Contraction over [heads, features] that lie apart.
    let mut c = Case { weight: true, ..Case::new(&[], &[2, 9], &[17], &[3, 5]) };
    c.orders[0] = vec![0, 2, 1, 3];
    check(&c);
    check(&Case { weight: false, ..c });
    // Batches in the middle.
    let mut c = Case::new(&[2, 3], &[9], &[10], &[11]);
    c.orders = [vec![0, 2, 1, 3], vec![0, 3, 1, 2], vec![0, 2, 1, 3]];
    check(&c);
    // Columns that lie apart, without packing.
    let mut c = Case::new(&[2], &[9], &[4, 5], &[11]);
    c.orders[1] = vec![1, 0, 3, 2];
    check(&c);
}

#[test]
fn transposed_operands_and_results() {
    for orders in [[vec![1, 0], vec![], vec![]], [vec![], vec![1, 0], vec![]], [vec![1, 0], vec![1, 0], vec![1, 0]]] {
        check(&Case { orders: orders.clone(), ..Case::new(&[], &[19], &[35], &[22]) });
        let steps = vec![Step::With(ADD, 0), Step::With(ADD, 1), Step::Apply(Elementwise::Unary(Unary::Relu))];
        check(&Case { orders, steps, weight: true, ..Case::new(&[], &[19], &[35], &[22]) });
    }
}

#[test]
fn a_right_operand_shared_by_the_batch_makes_one_product() {
    check(&Case { shared: true, ..Case::new(&[3, 2], &[5], &[18], &[9]) });
    check(&Case { shared: true, weight: true, ..Case::new(&[3, 2], &[5], &[18], &[9]) });
}

#[test]
fn weights_with_batches_are_packed_apart() {
    check(&Case { weight: true, ..Case::new(&[3], &[5], &[18], &[9]) });
}

#[test]
fn every_epilogue() {
    let mul = Elementwise::Binary(Binary::Mul);
    let sub = Elementwise::Binary(Binary::Sub);
    let apply = |f: Unary| Step::Apply(Elementwise::Unary(f));
    let mut chains = vec![
        vec![Step::Number(mul, 0.25)],
        vec![Step::With(ADD, 0), Step::With(ADD, 1)],
        vec![Step::With(ADD, 1), apply(Unary::Relu)],
        vec![Step::With(ADD, 2), Step::Clamp(-0.5, 0.75)],
        vec![Step::With(ADD, 3), apply(Unary::Silu), Step::With(ADD, 1)],
        vec![Step::Number(mul, 0.5), Step::With(ADD, 0), apply(Unary::Gelu)],
        // Not on the menu.
        vec![Step::With(mul, 0), apply(Unary::Exp)],
        vec![Step::With(sub, 1)],
        vec![Step::With(ADD, 0), Step::With(ADD, 1), Step::With(ADD, 2)],
        vec![apply(Unary::Relu), Step::Number(mul, 3.0)],
    ];
    for f in [Unary::Relu, Unary::Gelu, Unary::GeluTanh, Unary::Silu, Unary::Sigmoid, Unary::Tanh, Unary::HardSwish] {
        chains.push(vec![Step::With(ADD, 0), apply(f)]);
    }
    for steps in chains {
        check(&Case { steps: steps.clone(), weight: true, ..Case::new(&[], &[14], &[21], &[10]) });
        check(&Case { steps, ..Case::new(&[2], &[3, 5], &[21], &[10]) });
    }
}

#[test]
fn narrow_floats_widen() {
    for d in [DType::BF16, DType::F16] {
        for dtypes in [[d, d, d], [DType::F32, d, DType::F32], [d, DType::F32, d]] {
            for weight in [false, true] {
                let steps = vec![Step::With(ADD, 0)];
                check(&Case { dtypes, weight, steps, ..Case::new(&[2], &[101], &[19], &[12]) });
            }
        }
    }
}

#[test]
fn doubles_and_integers() {
    let case = |d: [DType; 3], acc| Case { dtypes: d, acc, ..Case::new(&[2], &[3, 5], &[70], &[11]) };
    check(&case([DType::F64; 3], DType::F64));
    check(&case([DType::I32; 3], DType::I32));
    check(&case([DType::I64; 3], DType::I64));
    check(&case([DType::I8, DType::I8, DType::I32], DType::I32));
    check(&Case { orders: [vec![3, 0, 1, 2], vec![1, 0, 2], vec![]], ..case([DType::I32; 3], DType::I32) });
    check(&Case { acc: DType::F64, dtypes: [DType::F64; 3], shared: true, ..Case::new(&[2], &[1], &[1], &[0]) });
}

#[test]
fn a_residual_may_lie_where_the_result_goes() {
    let mut rig = Rig::default();
    let (x, y) = (noise(12 * 8, 1), noise(8 * 20, 2));
    let start = noise(12 * 20, 3);
    let (lhs, rhs) = (rig.buffer(DType::F32, &x), rig.buffer(DType::F32, &y));
    let out = rig.buffer(DType::F32, &start);
    let kernel = ContractKernel {
        batch: vec![],
        m: rig.sizes(&[12]),
        n: rig.sizes(&[20]),
        k: rig.sizes(&[8]),
        lhs: rig.access(lhs, 0, &[8, 1]),
        rhs: rig.access(rhs, 0, &[1, 20]),
        lhs_scaling: Default::default(),
        rhs_scaling: Default::default(),
        acc: DType::F32,
        epilogue: Epilogue {
            reads: vec![rig.access(out, 0, &[20, 1])],
            program: chain(DType::F32, &[Step::With(ADD, 0)], DType::F32),
            writes: vec![rig.access(out, 0, &[20, 1])],
        },
    };
    let (x, y, start) = (rig.values(lhs), rig.values(rhs), rig.values(out));
    let code = rig.code(&kernel.epilogue, DType::F32, 2);
    let plan = rig.bind(Isa::best(), |cx| plan(&kernel, &code, cx)).unwrap();
    rig.run(Isa::best(), 2, None, |cx| unsafe { run(&plan, &code, cx) });
    let want: Vec<f64> =
        (0..240).map(|i| start[i] + (0..8).map(|k| x[i / 20 * 8 + k] * y[k * 20 + i % 20]).sum::<f64>()).collect();
    assert_near(&rig.values(out), &want, 1e-5, "in place");
}

/// All orders of `n` axes.
fn orders(n: usize) -> Vec<Vec<usize>> {
    let Some(last) = n.checked_sub(1) else { return vec![vec![]] };
    let inserted = |order: Vec<usize>| {
        (0..n).map(move |at| {
            let mut order = order.clone();
            order.insert(at, last);
            order
        })
    };
    orders(last).into_iter().flat_map(inserted).collect()
}

/// Axes that lie one way in an operand and another in the result: what merges for the one must not be taken as merged for the other.
#[test]
fn axes_merge_only_where_all_walks_do() {
    for order in orders(4) {
        for result in orders(4) {
            for weight in [false, true] {
                let mut columns = Case::new(&[], &[5], &[2, 3, 32], &[7]);
                columns.orders = [vec![], order.clone(), result.clone()];
                columns.weight = weight;
                check(&columns);
            }
            let mut rows = Case::new(&[], &[2, 3, 32], &[24], &[7]);
            rows.dtypes[0] = DType::F16;
            rows.orders = [order.clone(), vec![], result];
            check(&rows);
        }
    }
}

/// Enough rows for a matrix unit, where the level has one: f32 taken apart, bf16 in tiles, weights and operands of the run.
#[test]
fn products_for_matrix_units() {
    let gelu = vec![Step::With(ADD, 0), Step::Apply(Elementwise::Unary(Unary::Gelu))];
    let bf16 = [DType::BF16; 3];
    for (m, k, n) in [(64, 33, 40), (129, 70, 65), (300, 31, 17), (31, 64, 32), (1, 40, 50)] {
        for weight in [false, true] {
            for steps in [vec![], gelu.clone(), vec![Step::With(ADD, 1)]] {
                let case = Case { weight, steps, ..Case::new(&[], &[m], &[n], &[k]) };
                check(&case);
                check(&Case { matmul: MatmulPrecision::High, ..case.clone() });
                check(&Case { dtypes: bf16, ..case.clone() });
                check(&Case { dtypes: [DType::BF16, DType::BF16, DType::F32], ..case.clone() });
                check(&Case { orders: [vec![1, 0], vec![1, 0], vec![1, 0]], ..case.clone() });
                check(&Case { dtypes: bf16, orders: [vec![1, 0], vec![1, 0], vec![1, 0]], ..case });
            }
        }
    }
    for dtypes in [[DType::F32; 3], bf16] {
        for weight in [false, true] {
            // Attention's projections, products in batches, and rows that must be gathered.
            let mut heads = Case { weight, dtypes, ..Case::new(&[], &[5, 13], &[3, 20], &[24]) };
            heads.orders[2] = vec![0, 2, 1, 3];
            check(&heads);
            check(&Case { weight, dtypes, ..Case::new(&[2], &[70], &[35], &[40]) });
            let mut apart = Case { weight, dtypes, ..Case::new(&[], &[8, 9], &[17], &[3, 5]) };
            apart.orders[0] = vec![0, 2, 1, 3];
            check(&apart);
        }
    }
}

/// The matrix unit is what multiplies them: its roundings are not those of multiply-adds.
#[test]
fn products_for_matrix_units_take_it() {
    if !crate::gemm::amx::has_tiles(Isa::Amx) {
        return;
    }
    let (m, k, n) = (64, 96, 48);
    let run_at = |isa: Isa, matmul: MatmulPrecision, dtype: DType, weight: bool| {
        let mut rig = Rig::default();
        let (lhs, rhs) = (rig.buffer(dtype, &noise(m * k, 1)), rig.buffer(dtype, &noise(k * n, 2)));
        let out = rig.buffer(DType::F32, &vec![0.0; m * n]);
        if weight {
            rig.weight(rhs);
        }
        let kernel = ContractKernel {
            batch: vec![],
            m: rig.sizes(&[m]),
            n: rig.sizes(&[n]),
            k: rig.sizes(&[k]),
            lhs: rig.access(lhs, 0, &[k as i64, 1]),
            rhs: rig.access(rhs, 0, &[1, n as i64]),
            lhs_scaling: Default::default(),
            rhs_scaling: Default::default(),
            acc: DType::F32,
            epilogue: Epilogue {
                reads: vec![],
                program: chain(DType::F32, &[], DType::F32),
                writes: vec![rig.access(out, 0, &[n as i64, 1])],
            },
        };
        let code = rig.code(&kernel.epilogue, DType::F32, 2);
        let plan = rig.bind_with(isa, matmul, |cx| plan(&kernel, &code, cx)).unwrap();
        let kept = Weight::default();
        rig.run(isa, 2, weight.then_some(&kept), |cx| unsafe { run(&plan, &code, cx) });
        rig.bytes(out)
    };
    let vectors = if Isa::Avx512.is_available() { Isa::Avx512 } else { Isa::best() };
    for weight in [false, true] {
        for dtype in [DType::F32, DType::BF16] {
            let [highest, high] =
                [MatmulPrecision::Highest, MatmulPrecision::High].map(|p| run_at(Isa::Amx, p, dtype, weight));
            let plain = run_at(vectors, MatmulPrecision::Highest, dtype, weight);
            assert_ne!(highest, plain, "{dtype:?} {weight}");
            assert_eq!(highest == high, dtype == DType::BF16, "{dtype:?} {weight}");
            // Elsewhere the option asks for nothing.
            assert_eq!(plain, run_at(vectors, MatmulPrecision::High, dtype, weight), "{dtype:?} {weight}");
        }
    }
}
