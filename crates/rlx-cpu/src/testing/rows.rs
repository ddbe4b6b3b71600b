//! Row kernels against plain f64 loops: softmax, moments, every reduction; rows of every length, along and across.

use super::{Maker, Rng, executable, poisoned, run};
use rlx_compile::lir::{Kernel, Lir, RowKernel, ScalarOp, ScalarProgram};
use rlx_driver::Isa;
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::elementwise::{Binary, Unary};
use rlx_ir::ops::reduction::ReduceKind;
use rlx_ir::{DType, Dim, Tensor};

fn binary(p: &mut ScalarProgram, f: Binary, a: u32, b: u32) -> u32 {
    p.push(ScalarOp::Apply(Elementwise::Binary(f)), vec![a, b], DType::F32)
}

/// Softmax to the first result, the sum of the row times its size to the second.
fn program(m: &mut Maker, r: &Dim) -> ScalarProgram {
    let mut p = ScalarProgram::default();
    let x = p.push(ScalarOp::Read(0), vec![], DType::F32);
    let most = p.push(ScalarOp::Reduce(ReduceKind::Max), vec![x], DType::F32);
    let d = binary(&mut p, Binary::Sub, x, most);
    let e = p.push(ScalarOp::Apply(Elementwise::Unary(Unary::Exp)), vec![d], DType::F32);
    let total = p.push(ScalarOp::Reduce(ReduceKind::Sum), vec![e], DType::F32);
    let y = binary(&mut p, Binary::Div, e, total);
    let sum = p.push(ScalarOp::Reduce(ReduceKind::Sum), vec![x], DType::F32);
    let size = m.dim(r.clone());
    let n = p.push(ScalarOp::Size(size), vec![], DType::F32);
    let s = binary(&mut p, Binary::Mul, sum, n);
    p.results = vec![y, s];
    p
}

/// x is [o, r] (`along`) or [r, o].
fn softmax(along: bool) -> Lir {
    let mut m = Maker::new();
    let (o, r) = (Dim::symbol("o"), Dim::symbol("r"));
    let shape = if along { [o.clone(), r.clone()] } else { [r.clone(), o.clone()] };
    let (x, y) = (m.input(DType::F32, &shape), m.output("y", DType::F32, &shape));
    let s = m.output("s", DType::F32, std::slice::from_ref(&o));
    let strides = if along { [r.clone(), Dim::ONE] } else { [Dim::ONE, o.clone()] };
    let reads = vec![m.access(x, 0, &strides)];
    let writes = vec![m.access(y, 0, &strides), m.dense(s)];
    let program = program(&mut m, &r);
    let (outer, reduced) = (vec![m.dim(o)], vec![m.dim(r)]);
    m.kernel(Kernel::Row(RowKernel { outer, reduced, reads, program, writes }));
    m.finish()
}

#[test]
fn softmax_and_sums_of_every_length() {
    for along in [true, false] {
        let lir = softmax(along);
        for isa in Isa::available() {
            let programs: Vec<_> =
                [1, 2, 3].map(|threads| executable(lir.clone(), &poisoned(isa, threads))).into_iter().collect();
            for (o, r) in [
                (0usize, 5usize),
                (3, 0),
                (1, 1),
                (5, 7),
                (70, 8),
                (100, 15),
                (9, 16),
                (9, 31),
                (3, 257),
                (2, 4096),
                (2, 4097),
                (3, 9001),
                (1, 100_003),
                (600, 33),
            ] {
                let v = Rng(o as u64 * 31 + r as u64 + 1).floats(o * r);
                let dims = if along { [o, r] } else { [r, o] };
                let x = Tensor::from_slice(&dims, &v).unwrap();
                let results: Vec<Vec<Tensor>> = programs.iter().map(|e| run(e, &[&x])).collect();
                assert!(results[1..].iter().all(|t| *t == results[0]), "threads change {o} x {r}");
                let (y, s) = (results[0][0].as_slice::<f32>().unwrap(), results[0][1].as_slice::<f32>().unwrap());
                let at = |i: usize, j: usize| if along { i * r + j } else { j * o + i };
                for i in 0..o {
                    let row: Vec<f64> = (0..r).map(|j| f64::from(v[at(i, j)])).collect();
                    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let total: f64 = row.iter().map(|x| (x - most).exp()).sum();
                    for j in 0..r {
                        let want = (row[j] - most).exp() / total;
                        let got = f64::from(y[at(i, j)]);
                        assert!((got - want).abs() <= 1e-6 * want, "{along} {isa} {o}x{r} [{i},{j}]: {got} {want}");
                    }
                    let want = row.iter().sum::<f64>() * r as f64;
                    let size = row.iter().map(|x| x.abs()).sum::<f64>() * r as f64;
                    let got = f64::from(s[i]);
                    assert!((got - want).abs() <= 3e-7 * size + 1e-30, "{along} {isa} {o}x{r} [{i}]: {got} {want}");
                }
            }
        }
    }
}

fn reduce_program(kind: ReduceKind, dtype: DType) -> ScalarProgram {
    let mut p = ScalarProgram::default();
    let x = p.push(ScalarOp::Read(0), vec![], dtype);
    let r = p.push(ScalarOp::Reduce(kind), vec![x], dtype);
    p.results = vec![r];
    p
}

/// x[a, b, c] reduced over axes 0 and 2.
fn reduce_middle(kind: ReduceKind, dtype: DType) -> Lir {
    let mut m = Maker::new();
    let [a, b, c] = ["a", "b", "c"].map(Dim::symbol);
    let (x, y) = (m.input(dtype, &[a.clone(), b.clone(), c.clone()]), m.output("y", dtype, std::slice::from_ref(&b)));
    let reads = vec![m.access(x, 0, &[c.clone(), &b * &c, Dim::ONE])];
    let writes = vec![m.dense(y)];
    let (outer, reduced) = (vec![m.dim(b)], vec![m.dim(a), m.dim(c)]);
    m.kernel(Kernel::Row(RowKernel { outer, reduced, reads, program: reduce_program(kind, dtype), writes }));
    m.finish()
}

#[test]
fn integer_reductions_over_two_axes() {
    for kind in [ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Min, ReduceKind::Max] {
        let e = executable(reduce_middle(kind, DType::I32), &poisoned(Isa::best(), 2));
        for [a, b, c] in [[2usize, 3usize, 4usize], [0, 3, 4], [30, 5, 200], [5, 100, 1], [1, 1, 20_000]] {
            let mut rng = Rng(5);
            let v: Vec<i32> = (0..a * b * c).map(|_| rng.next() as i32).collect();
            let got = run(&e, &[&Tensor::from_slice(&[a, b, c], &v).unwrap()]).remove(0);
            let got = got.as_slice::<i32>().unwrap();
            for j in 0..b {
                let row = (0..a).flat_map(|i| (0..c).map(move |k| (i, k))).map(|(i, k)| v[(i * b + j) * c + k]);
                let want = match kind {
                    ReduceKind::Sum => row.fold(0i32, i32::wrapping_add),
                    ReduceKind::Prod => row.fold(1i32, i32::wrapping_mul),
                    ReduceKind::Min => row.fold(i32::MAX, i32::min),
                    _ => row.fold(i32::MIN, i32::max),
                };
                assert_eq!(got[j], want, "{kind:?} {a} {b} {c}");
            }
        }
    }
}

#[test]
fn float_extremes_keep_nan_and_signs_of_zero() {
    for (kind, zero) in [(ReduceKind::Min, -0.0f32), (ReduceKind::Max, 0.0f32)] {
        let e = executable(reduce_middle(kind, DType::F32), &poisoned(Isa::best(), 1));
        for n in [1usize, 31, 33, 100, 5000] {
            let mut v = vec![0.0f32; n];
            v[n / 2] = -0.0;
            if kind == ReduceKind::Max {
                v.iter_mut().for_each(|x| *x = -0.0);
                v[n / 2] = 0.0;
            }
            let got = run(&e, &[&Tensor::from_slice(&[1, 1, n], &v).unwrap()]).remove(0);
            assert_eq!(got.as_slice::<f32>().unwrap()[0].to_bits(), zero.to_bits(), "{kind:?} {n}");
            v[n - 1] = f32::NAN;
            let got = run(&e, &[&Tensor::from_slice(&[1, 1, n], &v).unwrap()]).remove(0);
            assert!(got.as_slice::<f32>().unwrap()[0].is_nan(), "{kind:?} {n}");
        }
    }
}

#[test]
fn halves_add_in_f32_and_round_once() {
    let e = executable(reduce_middle(ReduceKind::Sum, DType::BF16), &poisoned(Isa::best(), 1));
    for n in [5usize, 300, 10_000] {
        let v: Vec<half::bf16> = Rng(9).floats(n).into_iter().map(half::bf16::from_f32).collect();
        let got = run(&e, &[&Tensor::from_slice(&[1, 1, n], &v).unwrap()]).remove(0);
        let want: f64 = v.iter().map(|x| x.to_f64()).sum();
        let got = got.as_slice::<half::bf16>().unwrap()[0].to_f64();
        assert!((got - want).abs() <= want.abs() * 0.00391 + 1e-3, "{n}: {got} {want}");
    }
}
