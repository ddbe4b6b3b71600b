//! Epilogues of products as machine code against the tile machine: sums of both kinds, columns of every length, rows that follow each other
//! and rows that do not, results in place and scattered.

use super::tests::{numbers, pair, same};
use crate::testing::{Maker, Rng};
use rlx_compile::lir::{ContractKernel, Epilogue, Kernel, Literal, ScalarOp, ScalarProgram};
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::elementwise::{Binary, Unary};
use rlx_ir::{DType, Dim, Tensor};

const F32: DType = DType::F32;

fn bytes(rng: &mut Rng, dtype: DType, dims: &[usize]) -> Tensor {
    let v: Vec<u8> = (0..dims.iter().product()).map(|_| rng.below(256) as u8).collect();
    Tensor::from_bytes(dtype, dims, &v).unwrap()
}

/// What a quantised layer does with its sums, and more: factors of columns and rows, a residual in bytes, the index of the column.
/// Results: bytes, f32, and numbers of the format `small`.
fn program(acc: DType, small: DType) -> ScalarProgram {
    let mut p = ScalarProgram::default();
    let convert = |to| ScalarOp::Apply(Elementwise::Convert { to, saturate: true });
    let two = |f| ScalarOp::Apply(Elementwise::Binary(f));
    let mut v = p.push(ScalarOp::Acc, vec![], acc);
    if acc != F32 {
        v = p.push(convert(F32), vec![v], F32);
    }
    let by = p.push(ScalarOp::Read(0), vec![], F32);
    let plus = p.push(ScalarOp::Read(1), vec![], F32);
    let other = p.push(ScalarOp::Read(2), vec![], DType::U8);
    let other = p.push(convert(F32), vec![other], F32);
    let column = p.push(ScalarOp::Index(2), vec![], DType::I32);
    let column = p.push(convert(F32), vec![column], F32);
    let scale = p.push(ScalarOp::Const(Literal::Float(0.037.into())), vec![], F32);
    let v = p.push(two(Binary::Mul), vec![v, by], F32);
    let v = p.push(two(Binary::Add), vec![v, plus], F32);
    let v = p.push(two(Binary::Div), vec![v, scale], F32);
    let v = p.push(two(Binary::Add), vec![v, other], F32);
    let v = p.push(two(Binary::Add), vec![v, column], F32);
    let rounded = p.push(ScalarOp::Apply(Elementwise::Unary(Unary::RoundEven)), vec![v], F32);
    let q = p.push(convert(DType::U8), vec![rounded], DType::U8);
    let tanh = p.push(ScalarOp::Apply(Elementwise::Unary(Unary::Tanh)), vec![v], F32);
    let f = p.push(convert(small), vec![v], small);
    p.results = vec![q, tanh, f];
    p
}

fn check(acc: DType, small: DType, turned: bool) {
    let operand = if acc == F32 { F32 } else { DType::I8 };
    let mut m = Maker::new();
    let [b, r, c, k] = ["b", "r", "c", "k"].map(Dim::symbol);
    let lhs = m.input(operand, &[b.clone(), r.clone(), k.clone()]);
    let rhs = m.input(operand, &[k.clone(), c.clone()]);
    let by = m.input(F32, std::slice::from_ref(&c));
    let plus = m.input(F32, &[b.clone(), r.clone()]);
    let other = m.input(DType::U8, &[b.clone(), r.clone(), c.clone()]);
    let whole = [b.clone(), r.clone(), c.clone()];
    let outs = [DType::U8, F32, small].map(|d| m.output(&format!("{d}"), d, &whole));
    let (zero, one) = (Dim::ZERO, Dim::ONE);
    let rc = r.clone() * c.clone();
    // The space is [b, r, c]; where it is turned, results lie with columns outside of rows.
    let dense = [rc.clone(), c.clone(), one.clone()];
    let lying = if turned { [rc.clone(), one.clone(), r.clone()] } else { dense.clone() };
    let reads = vec![
        m.access(by, 0, &[zero.clone(), zero.clone(), one.clone()]),
        m.access(plus, 0, &[r.clone(), one.clone(), zero.clone()]),
        m.access(other, 0, &dense),
    ];
    let writes = outs.map(|o| m.access(o, 0, &lying)).to_vec();
    let rk = r.clone() * k.clone();
    let kernel = ContractKernel {
        batch: vec![m.dim(b)],
        m: vec![m.dim(r)],
        n: vec![m.dim(c.clone())],
        k: vec![m.dim(k.clone())],
        lhs: m.access(lhs, 0, &[rk, k.clone(), one.clone()]),
        rhs: m.access(rhs, 0, &[zero, one, c]),
        lhs_scaling: Default::default(),
        rhs_scaling: Default::default(),
        acc,
        epilogue: Epilogue { reads, program: program(acc, small), writes },
    };
    m.kernel(Kernel::Contract(kernel));
    let lir = m.finish();
    for threads in [1, 2] {
        let Some(pair) = pair(&lir, threads) else { return };
        let mut rng = Rng(11);
        for n in [0, 1, 7, 8, 9, 16, 17, 31, 40, 64, 65, 513, 1032] {
            for (b, m, k) in [(1, 1, 3), (1, 13, 8), (3, 7, 5)] {
                let of = |rng: &mut Rng, dims: &[usize]| {
                    if acc == F32 { numbers(rng, dims) } else { bytes(rng, DType::I8, dims) }
                };
                let inputs = [
                    of(&mut rng, &[b, m, k]),
                    of(&mut rng, &[k, n]),
                    numbers(&mut rng, &[n]),
                    numbers(&mut rng, &[b, m]),
                    bytes(&mut rng, DType::U8, &[b, m, n]),
                ];
                same(&pair, &inputs.iter().collect::<Vec<_>>(), &format!("{acc} {small} {turned} {b}x{m}x{k}x{n}"));
            }
        }
        assert!(pair[0].functions() > 0, "{acc} {small} is no machine code");
    }
}

#[test]
fn sums_become_what_the_tile_machine_makes_of_them() {
    for acc in [F32, DType::I32] {
        for small in [DType::BF16, DType::F8E4M3FN, DType::F8E5M2, DType::I16] {
            for turned in [false, true] {
                check(acc, small, turned);
            }
        }
    }
}
