//! Machine code against the tile machine: the same bits, but for which NaN a NaN is. (The tile machine itself is tested
//! against the evaluator, and both run in the tests of maps, rows and random graphs.)

use crate::CpuExecutable;
use crate::testing::{Maker, Rng, apply, executable, poisoned, run};
use rlx_compile::lir::{Kernel, Lir, Literal, MapKernel, RowKernel, ScalarOp, ScalarProgram};
use rlx_driver::Isa;
use rlx_ir::element::Elements;
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::elementwise::{Binary, Compare, Unary};
use rlx_ir::ops::reduction::ReduceKind;
use rlx_ir::{DType, Dim, Tensor};

pub(super) const LENGTHS: [usize; 14] = [0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, 513, 16_391];

/// With machine code and without; nothing where the machine lacks the level.
pub(super) fn pair(lir: &Lir, threads: usize) -> Option<[CpuExecutable; 2]> {
    if !super::supported(Isa::Avx2) {
        println!("skipped: no AVX2 here");
        return None;
    }
    Some([true, false].map(|on| executable(lir.clone(), &poisoned(Isa::Avx2, threads).jit(on))))
}

#[track_caller]
pub(super) fn same(pair: &[CpuExecutable; 2], inputs: &[&Tensor], what: &str) {
    let [a, b] = [0, 1].map(|i| run(&pair[i], inputs));
    for (k, (a, b)) in a.iter().zip(&b).enumerate() {
        assert_eq!((a.dims(), a.dtype()), (b.dims(), b.dtype()));
        if let (DType::BF16 | DType::F16, Elements::Float(x), Elements::Float(y)) =
            (a.dtype(), a.elements(), b.elements())
        {
            let equal = |(x, y): (&f64, &f64)| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
            assert!(x.iter().zip(&y).all(equal), "{what}: result {k} of {}", a.dtype());
            continue;
        }
        if a.dtype() != DType::F32 {
            assert_eq!(a.bytes(), b.bytes(), "{what}: result {k} of {}", a.dtype());
            continue;
        }
        let (a, b) = (a.as_slice::<f32>().unwrap(), b.as_slice::<f32>().unwrap());
        for (i, (x, y)) in a.iter().zip(b.iter()).enumerate() {
            let equal = x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
            assert!(equal, "{what}: result {k} [{i}] of {}: {x} ({:#x}), not {y}", a.len(), x.to_bits());
        }
    }
}

/// Ordinary numbers among zeros, infinities, NaN, subnormals and the largest.
pub(super) fn numbers(rng: &mut Rng, dims: &[usize]) -> Tensor {
    const ODD: [f32; 16] = [
        0.0,
        -0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1e-40,
        -1e-42,
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
        1.0,
        -1.0,
        0.5,
        88.9,
        -103.5,
        16_777_216.0,
    ];
    let v: Vec<f32> = (0..dims.iter().product())
        .map(|_| match rng.below(6) {
            0 => ODD[rng.below(ODD.len())],
            1 => (rng.float() * 60.0) as f32,
            _ => (rng.float() * 3.0) as f32,
        })
        .collect();
    Tensor::from_slice(dims, &v).unwrap()
}

fn map_of(program: ScalarProgram, reads: usize) -> Lir {
    let mut m = Maker::new();
    let n = || Dim::symbol("n");
    let inputs: Vec<_> = (0..reads).map(|_| m.input(DType::F32, &[n()])).collect();
    let y = m.output("y", DType::F32, &[n()]);
    let space = vec![m.dim(n())];
    let reads = inputs.iter().map(|&x| m.dense(x)).collect();
    let writes = vec![m.dense(y)];
    m.kernel(Kernel::Map(MapKernel { space, reads, program, writes }));
    m.finish()
}

fn check_map(program: &ScalarProgram, reads: usize, taken: bool, what: &str) {
    let Some(pair) = pair(&map_of(program.clone(), reads), 1) else { return };
    let mut rng = Rng(11);
    for n in LENGTHS {
        let inputs: Vec<Tensor> = (0..reads).map(|_| numbers(&mut rng, &[n])).collect();
        same(&pair, &inputs.iter().collect::<Vec<_>>(), &format!("{what} {n}"));
    }
    assert_eq!(pair[0].functions() > 0, taken, "{what}");
    assert_eq!(pair[1].functions(), 0);
}

#[test]
fn every_function_of_one_operand() {
    // Those that go through a scalar function lane by lane, or branch on lanes.
    const SCALAR: [Unary; 11] = [
        Unary::Sin,
        Unary::Cos,
        Unary::Tan,
        Unary::Asin,
        Unary::Acos,
        Unary::Atan,
        Unary::Sinh,
        Unary::Cosh,
        Unary::Asinh,
        Unary::Acosh,
        Unary::Atanh,
    ];
    for &f in Unary::ALL {
        let op = Elementwise::Unary(f);
        match op.result_dtype(&[DType::F32]) {
            Ok(DType::F32) => check_map(&apply(op, &[DType::F32], DType::F32), 1, !SCALAR.contains(&f), f.name()),
            Ok(DType::Bool) => {
                let mut p = ScalarProgram::default();
                let x = p.push(ScalarOp::Read(0), vec![], DType::F32);
                let c = p.push(ScalarOp::Apply(op), vec![x], DType::Bool);
                let d = p.push(ScalarOp::Apply(Elementwise::Unary(Unary::Not)), vec![c], DType::Bool);
                let z = p.push(ScalarOp::Const(Literal::Float(7.0.into())), vec![], DType::F32);
                let y = p.push(ScalarOp::Apply(Elementwise::Select), vec![d, x, z], DType::F32);
                p.results = vec![y];
                check_map(&p, 1, true, f.name());
            }
            _ => {}
        }
    }
}

#[test]
fn every_function_of_two_operands_and_comparison() {
    for &f in Binary::ALL {
        let op = Elementwise::Binary(f);
        if op.result_dtype(&[DType::F32; 2]).is_ok() {
            let taken = !matches!(f, Binary::Atan2 | Binary::Rem | Binary::Mod);
            check_map(&apply(op, &[DType::F32; 2], DType::F32), 2, taken, f.name());
        }
    }
    for &f in Compare::ALL {
        let mut p = ScalarProgram::default();
        let [x, y] = [0, 1].map(|i| p.push(ScalarOp::Read(i), vec![], DType::F32));
        let c = p.push(ScalarOp::Apply(Elementwise::Compare(f)), vec![x, y], DType::Bool);
        let d = p.push(ScalarOp::Apply(Elementwise::Convert { to: DType::F32, saturate: false }), vec![c], DType::F32);
        let s = p.push(ScalarOp::Apply(Elementwise::Select), vec![c, y, d], DType::F32);
        p.results = vec![s];
        check_map(&p, 2, true, f.name());
    }
    check_map(&apply(Elementwise::Clamp, &[DType::F32; 3], DType::F32), 3, true, "clamp");
}

const UNARY: [Unary; 14] = [
    Unary::Exp,
    Unary::Tanh,
    Unary::Gelu,
    Unary::Sigmoid,
    Unary::Silu,
    Unary::Log,
    Unary::Abs,
    Unary::Neg,
    Unary::Sqrt,
    Unary::Rsqrt,
    Unary::Floor,
    Unary::Erf,
    Unary::Relu,
    Unary::Sign,
];
const BINARY: [Binary; 7] = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Min, Binary::Max, Binary::Pow];

/// Appends instructions that take earlier values at random.
fn grow(p: &mut ScalarProgram, rng: &mut Rng, values: &mut Vec<u32>, bools: &mut Vec<u32>, count: usize) {
    for _ in 0..count {
        let pick = |rng: &mut Rng, of: &[u32]| of[of.len() - 1 - rng.below(of.len().min(9))];
        let (a, b, c) = (pick(rng, values), pick(rng, values), pick(rng, values));
        let v = match rng.below(12) {
            0..=2 => p.push(ScalarOp::Apply(Elementwise::Unary(UNARY[rng.below(14)])), vec![a], DType::F32),
            3 if !bools.is_empty() => {
                let m = bools[rng.below(bools.len())];
                p.push(ScalarOp::Apply(Elementwise::Select), vec![m, a, b], DType::F32)
            }
            4 => {
                let f = Compare::ALL[rng.below(6)];
                let m = p.push(ScalarOp::Apply(Elementwise::Compare(f)), vec![a, b], DType::Bool);
                bools.push(m);
                continue;
            }
            5 => p.push(ScalarOp::Apply(Elementwise::Clamp), vec![a, b, c], DType::F32),
            6 => p.push(ScalarOp::Const(Literal::Float(rng.float().into())), vec![], DType::F32),
            _ => p.push(ScalarOp::Apply(Elementwise::Binary(BINARY[rng.below(7)])), vec![a, b], DType::F32),
        };
        values.push(v);
    }
}

/// Operands of a space [r, c]: whole, one a column, one a row, one in all, whole booleans, booleans a row, transposed.
fn operands(m: &mut Maker) -> (Vec<rlx_compile::lir::Access>, Vec<DType>) {
    let (r, c) = (Dim::symbol("r"), Dim::symbol("c"));
    let shapes: [(DType, Vec<Dim>, [Dim; 2]); 7] = [
        (DType::F32, vec![r.clone(), c.clone()], [c.clone(), Dim::ONE]),
        (DType::F32, vec![c.clone()], [Dim::ZERO, Dim::ONE]),
        (DType::F32, vec![r.clone()], [Dim::ONE, Dim::ZERO]),
        (DType::F32, vec![], [Dim::ZERO, Dim::ZERO]),
        (DType::Bool, vec![r.clone(), c.clone()], [c.clone(), Dim::ONE]),
        (DType::Bool, vec![r.clone()], [Dim::ONE, Dim::ZERO]),
        (DType::F32, vec![c.clone(), r.clone()], [Dim::ONE, r.clone()]),
    ];
    let mut reads = Vec::new();
    for (d, shape, strides) in &shapes {
        let x = m.input(*d, shape);
        reads.push(m.access(x, 0, strides));
    }
    (reads, shapes.iter().map(|s| s.0).collect())
}

fn values_of(rng: &mut Rng, r: usize, c: usize) -> Vec<Tensor> {
    let bools = |rng: &mut Rng, dims: &[usize]| {
        let v: Vec<u8> = (0..dims.iter().product()).map(|_| rng.below(2) as u8).collect();
        Tensor::from_bytes(DType::Bool, dims, &v).unwrap()
    };
    vec![
        numbers(rng, &[r, c]),
        numbers(rng, &[c]),
        numbers(rng, &[r]),
        numbers(rng, &[]),
        bools(rng, &[r, c]),
        bools(rng, &[r]),
        numbers(rng, &[c, r]),
    ]
}

/// Reads some of the operands at random.
fn read_some(p: &mut ScalarProgram, rng: &mut Rng, dtypes: &[DType], place: bool) -> (Vec<u32>, Vec<u32>) {
    let (mut values, mut bools) = (Vec::new(), Vec::new());
    for (i, &d) in dtypes.iter().enumerate() {
        // With operands in place only, many rows go at once.
        if i > 0 && (rng.below(3) == 0 || place && i >= 4) {
            continue;
        }
        let v = p.push(ScalarOp::Read(i as u32), vec![], d);
        if d == DType::Bool { bools.push(v) } else { values.push(v) }
    }
    (values, bools)
}

#[test]
fn random_maps() {
    let mut taken = 0;
    for seed in 0..60u64 {
        let mut rng = Rng(seed * 77 + 5);
        let mut m = Maker::new();
        let (reads, dtypes) = operands(&mut m);
        let mut p = ScalarProgram::default();
        let (mut values, mut bools) = read_some(&mut p, &mut rng, &dtypes, seed % 2 == 0);
        if seed % 5 == 1 {
            values.push(p.push(ScalarOp::Index((seed % 2) as u32), vec![], DType::F32));
        }
        let count = 2 + rng.below(40);
        grow(&mut p, &mut rng, &mut values, &mut bools, count);
        let (r, c) = (Dim::symbol("r"), Dim::symbol("c"));
        let results = 1 + rng.below(3);
        let mut writes = Vec::new();
        for k in 0..results {
            // Now and then a result is transposed, or one of the operands.
            let turned = rng.below(6) == 0;
            let shape = if turned { [c.clone(), r.clone()] } else { [r.clone(), c.clone()] };
            let strides = if turned { [Dim::ONE, r.clone()] } else { [c.clone(), Dim::ONE] };
            let y = m.output(&format!("y{k}"), DType::F32, &shape);
            writes.push(m.access(y, 0, &strides));
            p.results.push(values[values.len() - 1 - rng.below(values.len().min(4))]);
        }
        let space = vec![m.dim(r), m.dim(c)];
        m.kernel(Kernel::Map(MapKernel { space, reads, program: p, writes }));
        let Some(pair) = pair(&m.finish(), 1 + seed as usize % 3) else { return };
        for (r, c) in [(1, 1), (3, 5), (7, 16), (4, 33), (129, 40), (1, 700), (2, 20_000), (70, 3), (0, 4), (40, 1)] {
            let inputs = values_of(&mut rng, r, c);
            same(&pair, &inputs.iter().collect::<Vec<_>>(), &format!("map {seed} {r}x{c}"));
        }
        taken += usize::from(pair[0].functions() > 0);
    }
    // Where all results are operands there is nothing to compute.
    assert!(taken >= 50, "{taken} of 60 maps have code");
}

#[test]
fn random_rows() {
    const KINDS: [ReduceKind; 4] = [ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::Prod];
    for seed in 0..60u64 {
        let mut rng = Rng(seed * 131 + 9);
        let mut m = Maker::new();
        let (reads, dtypes) = operands(&mut m);
        let mut p = ScalarProgram::default();
        let (mut values, mut bools) = read_some(&mut p, &mut rng, &dtypes, seed % 2 == 0);
        let c = Dim::symbol("c");
        let size = m.dim(c.clone());
        values.push(p.push(ScalarOp::Size(size), vec![], DType::F32));
        let mut sums = Vec::new();
        for _ in 0..1 + rng.below(4) {
            let count = rng.below(8);
            grow(&mut p, &mut rng, &mut values, &mut bools, count);
            let a = values[values.len() - 1 - rng.below(values.len().min(5))];
            let sum = p.push(ScalarOp::Reduce(KINDS[rng.below(4)]), vec![a], DType::F32);
            values.push(sum);
            sums.push(sum);
        }
        let count = 1 + rng.below(8);
        grow(&mut p, &mut rng, &mut values, &mut bools, count);
        // What varies along the row whatever the rest is: the last value plus the first operand.
        let last = values[values.len() - 1];
        let y = p.push(ScalarOp::Apply(Elementwise::Binary(Binary::Add)), vec![last, 0], DType::F32);
        p.results = vec![y, sums[sums.len() - 1]];
        let r = Dim::symbol("r");
        let (y, s) =
            (m.output("y", DType::F32, &[r.clone(), c.clone()]), m.output("s", DType::F32, std::slice::from_ref(&r)));
        let writes = vec![m.dense(y), m.dense(s)];
        let (outer, reduced) = (vec![m.dim(r)], vec![m.dim(c)]);
        m.kernel(Kernel::Row(RowKernel { outer, reduced, reads, program: p, writes }));
        let Some(pair) = pair(&m.finish(), 1 + seed as usize % 3) else { return };
        for (r, c) in [(1, 1), (3, 5), (7, 16), (5, 31), (4, 33), (129, 40), (20, 384), (2, 4096), (2, 4100), (0, 4)] {
            let inputs = values_of(&mut rng, r, c);
            same(&pair, &inputs.iter().collect::<Vec<_>>(), &format!("row {seed} {r}x{c}"));
        }
        assert!(pair[0].functions() > 0, "row {seed} stays on the tile machine");
    }
}

#[test]
fn softmax_keeps_its_exponentials_and_code_is_made_once() {
    let mut m = Maker::new();
    let (r, c) = (Dim::symbol("r"), Dim::symbol("c"));
    let (x, y) = (m.input(DType::F32, &[r.clone(), c.clone()]), m.output("y", DType::F32, &[r.clone(), c.clone()]));
    let mut p = ScalarProgram::default();
    let a = p.push(ScalarOp::Read(0), vec![], DType::F32);
    let most = p.push(ScalarOp::Reduce(ReduceKind::Max), vec![a], DType::F32);
    let d = p.push(ScalarOp::Apply(Elementwise::Binary(Binary::Sub)), vec![a, most], DType::F32);
    let e = p.push(ScalarOp::Apply(Elementwise::Unary(Unary::Exp)), vec![d], DType::F32);
    let total = p.push(ScalarOp::Reduce(ReduceKind::Sum), vec![e], DType::F32);
    let q = p.push(ScalarOp::Apply(Elementwise::Binary(Binary::Div)), vec![e, total], DType::F32);
    p.results = vec![q];
    let scope = crate::tile::code::Scope { reads: &[DType::F32], writes: &[DType::F32], acc: None, rank: 2, row: true };
    let code = crate::tile::Code::compile(&p, &scope).unwrap();
    let nest = super::nest::Nest::new(&code, &[false, true, false, false, true, false], &[true]).unwrap();
    assert_eq!(nest.ports.iter().filter(|p| **p == super::nest::Port::Kept).count(), 1);
    assert_eq!(nest.passes.len(), 3);
    let (reads, writes) = (vec![m.dense(x)], vec![m.dense(y)]);
    let (outer, reduced) = (vec![m.dim(r)], vec![m.dim(c)]);
    m.kernel(Kernel::Row(RowKernel { outer, reduced, reads, program: p, writes }));
    let Some(pair) = pair(&m.finish(), 1) else { return };
    let mut rng = Rng(3);
    for (r, c) in [(3, 17), (20, 128), (5, 4000), (1, 64)] {
        same(&pair, &[&numbers(&mut rng, &[r, c])], "softmax");
    }
    assert_eq!(pair[0].functions(), 1, "one function for all shapes");
}

/// Results larger than the caches are written around them, whatever their alignment.
#[test]
fn large_maps() {
    let mut p = ScalarProgram::default();
    let [x, y] = [0, 1].map(|i| p.push(ScalarOp::Read(i), vec![], DType::F32));
    let s = p.push(ScalarOp::Apply(Elementwise::Binary(Binary::Add)), vec![x, y], DType::F32);
    let r = p.push(ScalarOp::Apply(Elementwise::Binary(Binary::Mul)), vec![s, x], DType::F32);
    p.results = vec![r];
    let Some(mut pair) = pair(&map_of(p, 2), 2) else { return };
    let n = super::run::past_caches() / 8 + 12_345;
    let mut rng = Rng(5);
    let (x, y) = (rng.floats(n), rng.floats(n));
    let [x, y] = [x, y].map(|v| Tensor::from_slice(&[n], &v).unwrap());
    same(&pair, &[&x, &y], "large");
    assert_eq!(pair[0].functions(), 2);
    // At every place against a line of the cache.
    let want = run(&pair[1], &[&x, &y]).remove(0);
    for offset in [0, 1, 3, 7] {
        let mut memory = vec![7f32; n + 16];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut memory[offset..offset + n]);
        let to = rlx_compile::target::TensorMut { dtype: DType::F32, dims: &[n], bytes };
        rlx_compile::ExecutableGraph::run_into(&mut pair[0], &[(&x).into(), (&y).into()], &mut [to]).unwrap();
        assert!(memory[offset..offset + n] == *want.as_slice::<f32>().unwrap(), "{offset}");
        assert!(memory[..offset].iter().chain(&memory[offset + n..]).all(|&v| v == 7.0));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn no_page_is_writable_and_executable() {
    let p = apply(Elementwise::Unary(Unary::Gelu), &[DType::F32], DType::F32);
    let scope =
        crate::tile::code::Scope { reads: &[DType::F32], writes: &[DType::F32], acc: None, rank: 1, row: false };
    let code = crate::tile::Code::compile(&p, &scope).unwrap();
    let f = super::Compiled::new(&code, &[false, false], &[true], false).unwrap();
    let at = f.pages.start() as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut found = false;
    for line in maps.lines() {
        let (range, rest) = line.split_once(' ').unwrap();
        let [from, to] =
            range.split_once('-').map(|(a, b)| [a, b]).unwrap().map(|s| usize::from_str_radix(s, 16).unwrap());
        let mode = &rest[..4];
        assert!(!(mode.contains('w') && mode.contains('x')), "{line}");
        if (from..to).contains(&at) {
            assert_eq!(mode, "r-xp");
            found = true;
        }
    }
    assert!(found);
}
