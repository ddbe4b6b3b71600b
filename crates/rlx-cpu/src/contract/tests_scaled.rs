//! Contractions whose operands stand for others, and those of integers, against plain loops.

// Buffers have the sizes that the plans were made for.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::*;
use crate::buffers::Weight;
use crate::rig::{Rig, dense, noise};
use crate::simd::Isa;
use rlx_compile::lir::{BufId, Epilogue, Inst, ScalarOp, ScalarProgram};
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::elementwise::{Binary, Unary};

/// How zero points or scales differ: not at all, by column, by group of K and column.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    All,
    Column,
    Group(usize),
}

/// A case: sizes, dtypes of the operands, what goes with them.
#[derive(Clone, Debug)]
struct Case {
    m: usize,
    n: usize,
    k: usize,
    lhs: DType,
    rhs: DType,
    /// The right operand lies column by column.
    turned: bool,
    /// So does the left one.
    left_turned: bool,
    left_zero: Option<bool>,
    zero: Option<By>,
    scale: Option<By>,
    weight: bool,
    finish: Finishing,
}

/// What follows the sum.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Finishing {
    Nothing,
    /// Converted to f32, times a number by column (and another by row), plus a bias, relu.
    Menu {
        rows: bool,
    },
    /// The same with a function that is not on the menu.
    Program,
}

const CASE: Case = Case {
    m: 5,
    n: 19,
    k: 24,
    lhs: DType::F32,
    rhs: DType::I8,
    turned: false,
    left_turned: false,
    left_zero: None,
    zero: None,
    scale: Some(By::Column),
    weight: true,
    finish: Finishing::Nothing,
};

fn values(dtype: DType, n: usize, seed: u64) -> Vec<f64> {
    let v = noise(n, seed);
    match dtype.int_range() {
        Some((lo, hi)) => {
            let (lo, hi) = (lo as f64, hi as f64);
            let whole = |(i, x): (usize, f64)| match i % 5 {
                0 => lo,
                1 => hi,
                _ => (lo + (x + 1.0) / 2.0 * (hi - lo)).round().clamp(lo, hi),
            };
            v.into_iter().enumerate().map(whole).collect()
        }
        None => v,
    }
}

fn check(case: &Case) {
    let Case { m, n, k, .. } = *case;
    let integer = !case.lhs.is_float();
    let acc = if integer { DType::I32 } else { DType::F32 };
    let mut rig = Rig::default();
    let (x, y) = (values(case.lhs, m * k, 1), values(case.rhs, k * n, 2));
    let (lhs, rhs) = (rig.buffer(case.lhs, &x), rig.buffer(case.rhs, &y));
    let (x, y) = (rig.values(lhs), rig.values(rhs));
    let count = |b: By| match b {
        By::All => 1,
        By::Column => n,
        By::Group(size) => n * (k / size.max(1)),
    };
    // Axes of the walk: n, then K (in groups where numbers differ by group).
    let size =
        [case.zero, case.scale].into_iter().flatten().find_map(|b| if let By::Group(g) = b { Some(g) } else { None });
    let axes = |outer: i64, inner: i64| match size {
        Some(g) => vec![inner * g as i64, inner, outer],
        None => vec![inner, outer],
    };
    let turn = |mut v: Vec<i64>, last: bool| {
        // Free axis first.
        if last {
            let free = v.pop().unwrap();
            v.insert(0, free);
        }
        v
    };
    let k_sizes: Vec<usize> = size.map_or(vec![k], |g| vec![k / g, g]);
    let numbers = |b: By| match (b, size) {
        (By::All, None) => vec![0, 0],
        (By::All, Some(_)) => vec![0, 0, 0],
        (By::Column, None) => vec![1, 0],
        (By::Column, Some(_)) => vec![1, 0, 0],
        (By::Group(_), _) => vec![1, n as i64, 0],
    };
    let index = |b: By, p: usize, c: usize| match b {
        By::All => 0,
        By::Column => c,
        By::Group(g) => p / g * n + c,
    };
    let mut of = |b: Option<By>, dtype: DType, seed| -> (Option<Access>, Vec<f64>) {
        let Some(b) = b else { return (None, vec![]) };
        let v: Vec<f64> = match dtype {
            DType::F32 => noise(count(b), seed).iter().map(|x| 0.02 + x.abs() * 0.01).collect(),
            _ => values(dtype, count(b), seed),
        };
        let buffer = rig.buffer(dtype, &v);
        if case.weight {
            rig.weight(buffer);
        }
        let walk = rig.access(buffer, 0, &numbers(b));
        (Some(walk), rig.values(buffer))
    };
    let (zero, zeros) = of(case.zero, case.rhs, 3);
    let (scale, scales) = of(case.scale, DType::F32, 4);
    let mut left_zeros = vec![0.0; m];
    let mut left_zero = None;
    if let Some(by_row) = case.left_zero {
        let v = values(case.lhs, if by_row { m } else { 1 }, 5);
        let buffer = rig.buffer(case.lhs, &v);
        let mut strides = vec![i64::from(by_row)];
        strides.extend(vec![0; k_sizes.len()]);
        left_zero = Some(rig.access(buffer, 0, &strides));
        left_zeros = (0..m).map(|r| v[if by_row { r } else { 0 }]).collect();
    }
    if case.weight {
        rig.weight(rhs);
    }
    let out_dtype = if integer && case.finish == Finishing::Nothing { DType::I32 } else { DType::F32 };
    let out = rig.buffer(out_dtype, &vec![7.0; m * n]);
    let (columns, rows, bias) = (noise(n, 6), noise(m, 7), noise(n, 8));
    let [columns, rows, bias] = [columns, rows, bias].map(|v| rig.buffer(DType::F32, &v));
    let reads: Vec<Access> = match case.finish {
        Finishing::Nothing => vec![],
        _ => [(columns, [0, 1]), (rows, [1, 0]), (bias, [0, 1])].map(|(b, s)| rig.access(b, 0, &s)).into(),
    };
    let left = if case.left_turned { axes(1, m as i64) } else { axes(k as i64, 1) };
    let right = if case.turned { axes(k as i64, 1) } else { axes(1, n as i64) };
    let kernel = ContractKernel {
        batch: vec![],
        m: rig.sizes(&[m]),
        n: rig.sizes(&[n]),
        k: rig.sizes(&k_sizes),
        lhs: rig.access(lhs, 0, &turn(left, true)),
        rhs: rig.access(rhs, 0, &turn(right, true)),
        lhs_scaling: Scaling { zero: left_zero, scale: None },
        rhs_scaling: Scaling { zero, scale },
        acc,
        epilogue: Epilogue {
            reads,
            program: program(acc, case.finish),
            writes: vec![rig.access(out, 0, &dense(&[m, n]))],
        },
    };
    let at = |v: &[f64], b: Option<By>, p, c, none| b.map_or(none, |b| v[index(b, p, c)]);
    let (columns, rows, bias) = (rig.values(columns), rig.values(rows), rig.values(bias));
    let mut want = vec![];
    let mut near = vec![];
    for r in 0..m {
        for c in 0..n {
            let (mut sum, mut size) = (0.0f64, 0.0f64);
            for p in 0..k {
                let x = x[if case.left_turned { p * m + r } else { r * k + p }] - left_zeros[r];
                let y = y[if case.turned { c * k + p } else { p * n + c }] - at(&zeros, case.zero, p, c, 0.0);
                let y = if integer { y } else { f64::from(y as f32 * at(&scales, case.scale, p, c, 1.0) as f32) };
                sum += x * y;
                size += (x * y).abs();
            }
            if integer {
                // Exact, and as i32 wraps.
                sum = f64::from(sum as i64 as i32);
            }
            let mut v = if integer { f64::from(sum as f32) } else { sum };
            if let Finishing::Menu { rows: by_row } = case.finish {
                v *= columns[c] * if by_row { rows[r] } else { 1.0 };
                v = (v + bias[c]).max(0.0);
            } else if case.finish == Finishing::Program {
                v = (v * columns[c]).sin();
            }
            near.push(match (integer, case.finish) {
                (true, Finishing::Nothing) => 0.0,
                (true, Finishing::Program) => 1e-6 * size * 4.0 + 1e-6,
                _ => 2e-7 * (size * ((k as f64).sqrt() / 2.0 + 2.0) + 1.0),
            });
            want.push(v);
        }
    }
    for isa in crate::simd::levels() {
        let mut first: Option<Vec<u8>> = None;
        for threads in 1..=3 {
            let code = rig.code(&kernel.epilogue, acc, 2);
            let plan = rig.bind(isa, |cx| plan(&kernel, &code, cx)).unwrap();
            let weight = Weight::default();
            for _ in 0..2 {
                rig.run(isa, threads, case.weight.then_some(&weight), |cx| unsafe { run(&plan, &code, cx) });
            }
            for (i, (got, want)) in rig.values(out).iter().zip(&want).enumerate() {
                assert!((got - want).abs() <= near[i], "{case:?} {isa} {threads}: element {i} is {got}, not {want}");
            }
            let bytes = rig.bytes(out);
            assert_eq!(first.get_or_insert_with(|| bytes.clone()), &bytes, "{case:?} {isa} {threads} threads");
        }
    }
}

fn program(acc: DType, finish: Finishing) -> ScalarProgram {
    let mut p = ScalarProgram::default();
    let mut v = p.push(ScalarOp::Acc, vec![], acc);
    if finish != Finishing::Nothing {
        if acc != DType::F32 {
            let op = ScalarOp::Apply(Elementwise::Convert { to: DType::F32, saturate: true });
            p.insts.push(Inst { op, args: vec![v], dtype: DType::F32 });
            v = p.insts.len() as u32 - 1;
        }
        let mut with = |v: u32, f: Binary, read: u32| {
            let r = p.push(ScalarOp::Read(read), vec![], DType::F32);
            p.push(ScalarOp::Apply(Elementwise::Binary(f)), vec![v, r], DType::F32)
        };
        v = with(v, Binary::Mul, 0);
        if let Finishing::Menu { rows } = finish {
            if rows {
                v = with(v, Binary::Mul, 1);
            }
            v = with(v, Binary::Add, 2);
            v = p.push(ScalarOp::Apply(Elementwise::Unary(Unary::Relu)), vec![v], DType::F32);
        } else {
            v = p.push(ScalarOp::Apply(Elementwise::Unary(Unary::Sin)), vec![v], DType::F32);
        }
    }
    p.results = vec![v];
    p
}

const SIZES: [(usize, usize, usize); 7] =
    [(1, 1, 2), (1, 64, 48), (2, 7, 96), (5, 19, 24), (13, 33, 240), (30, 16, 12), (101, 40, 384)];

#[test]
fn weights_of_integers_with_scales() {
    for rhs in [DType::I8, DType::U8, DType::I4, DType::U4] {
        for (i, (m, n, k)) in SIZES.into_iter().enumerate() {
            for scale in [None, Some(By::All), Some(By::Column), Some(By::Group(2)), Some(By::Group(12))] {
                if matches!(scale, Some(By::Group(g)) if k % g != 0) {
                    continue;
                }
                let zero = [None, Some(By::Column), scale, Some(By::All)][i % 4];
                for weight in [true, false] {
                    let case = Case { m, n, k, rhs, scale, zero, weight, turned: i % 2 == 0, ..CASE };
                    check(&case);
                }
            }
        }
        check(&Case { rhs, lhs: DType::BF16, ..CASE });
        check(&Case { rhs, m: 0, ..CASE });
        check(&Case { rhs, n: 0, ..CASE });
        check(&Case { rhs, k: 0, ..CASE });
    }
}

#[test]
fn weights_of_half_floats_stay_narrow() {
    for rhs in [DType::BF16, DType::F16] {
        for (m, n, k) in SIZES {
            for lhs in [DType::F32, rhs] {
                check(&Case { m, n, k, lhs, rhs, scale: None, finish: Finishing::Menu { rows: false }, ..CASE });
            }
        }
    }
}

#[test]
fn products_of_bytes() {
    for (lhs, rhs) in [(DType::U8, DType::I8), (DType::U8, DType::U8), (DType::I8, DType::I8), (DType::I8, DType::U8)] {
        for (i, (m, n, k)) in SIZES.into_iter().enumerate() {
            for finish in [Finishing::Nothing, Finishing::Menu { rows: i % 2 == 0 }, Finishing::Program] {
                for (left_zero, zero) in [(None, None), (Some(false), Some(By::Column)), (Some(true), Some(By::All))] {
                    let (turned, left_turned) = (i % 2 == 1, i % 3 == 1);
                    let case =
                        Case { m, n, k, lhs, rhs, scale: None, zero, left_zero, turned, left_turned, finish, ..CASE };
                    check(&case);
                    check(&Case { weight: false, ..case });
                }
            }
        }
        // Zero points that differ along K.
        check(&Case { lhs, rhs, scale: None, zero: Some(By::Group(4)), left_zero: Some(false), ..CASE });
    }
}

#[test]
fn packed_weights_are_kept_and_not_read_again() {
    let mut rig = Rig::default();
    let (lhs, rhs) = (rig.buffer(DType::U8, &[3.0; 8]), rig.buffer(DType::I8, &[2.0; 8 * 16]));
    rig.weight(rhs);
    let out = rig.buffer(DType::I32, &[0.0; 16]);
    let kernel = ContractKernel {
        batch: vec![],
        m: rig.sizes(&[1]),
        n: rig.sizes(&[16]),
        k: rig.sizes(&[8]),
        lhs: rig.access(lhs, 0, &[8, 1]),
        rhs: rig.access(rhs, 0, &[1, 16]),
        lhs_scaling: Scaling::default(),
        rhs_scaling: Scaling::default(),
        acc: DType::I32,
        epilogue: Epilogue {
            reads: vec![],
            program: program(DType::I32, Finishing::Nothing),
            writes: vec![rig.access(out, 0, &[16, 1])],
        },
    };
    let code = rig.code(&kernel.epilogue, DType::I32, 2);
    let plan = rig.bind(Isa::best(), |cx| plan(&kernel, &code, cx)).unwrap();
    let weight = Weight::default();
    let run_it = |rig: &mut Rig, out: BufId| {
        rig.run(Isa::best(), 1, Some(&weight), |cx| unsafe {
            run(&plan, &code, cx);
            assert!(!reads_right(&plan, cx));
        });
        rig.values(out)
    };
    assert_eq!(run_it(&mut rig, out), [48.0; 16]);
    rig.set(rhs, &[0; 128]);
    assert_eq!(run_it(&mut rig, out), [48.0; 16]);
}
