//! Integers, booleans and small floats in machine code against the tile machine: every function of every dtype, operands and results in
//! place, gathered and uniform.

use super::tests::{LENGTHS, numbers, pair, same};
use crate::testing::{Maker, Rng};
use rlx_compile::lir::{Kernel, MapKernel, RowKernel, ScalarOp, ScalarProgram};
use rlx_ir::element::small_float_values;
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::elementwise::{Binary, Compare, Unary};
use rlx_ir::ops::reduction::ReduceKind;
use rlx_ir::{DType, Dim, Tensor};

const INTEGERS: [DType; 5] = [DType::I8, DType::U8, DType::I16, DType::U16, DType::I32];
const ALL: [DType; 7] = [DType::I8, DType::U8, DType::I16, DType::U16, DType::I32, DType::Bool, DType::F32];

/// Numbers of a dtype, its extremes among them.
fn values(rng: &mut Rng, dtype: DType, dims: &[usize]) -> Tensor {
    if dtype == DType::F32 {
        // With what lies at the edges of integers.
        let edges = [
            448.0f32,
            464.0,
            480.0,
            57344.0,
            61440.0,
            0.001953125,
            0.0009765625,
            0.017578125,
            1e-5,
            127.5,
            128.0,
            -129.0,
            255.0,
            256.0,
            65535.5,
            65536.0,
            2_147_483_648.0,
            -2_147_483_648.0,
            4e9,
        ];
        let t = numbers(rng, dims);
        let mut v = t.as_slice::<f32>().unwrap().into_owned();
        v.iter_mut().for_each(|x| {
            if rng.below(4) == 0 {
                *x = edges[rng.below(edges.len())];
            }
        });
        return Tensor::from_slice(dims, &v).unwrap();
    }
    let size = dtype.bits() / 8;
    let mut bytes = Vec::new();
    for _ in 0..dims.iter().product::<usize>() {
        let bits: i64 = match rng.below(5) {
            _ if dtype == DType::Bool => rng.below(2) as i64,
            0 => 0,
            1 => -1,
            2 => i64::MIN >> (64 - dtype.bits()),
            3 => !(i64::MIN >> (64 - dtype.bits())),
            _ => rng.below(1 << 20) as i64 - (1 << 19),
        };
        bytes.extend_from_slice(&bits.to_le_bytes()[..size]);
    }
    Tensor::from_bytes(dtype, dims, &bytes).unwrap()
}

/// How an operand lies over a space [r, c].
#[derive(Clone, Copy)]
enum Lies {
    Whole,
    Column,
    Row,
    One,
    Turned,
}

fn dims_of<T: Clone>(lies: Lies, r: &T, c: &T) -> Vec<T> {
    match lies {
        Lies::Whole => vec![r.clone(), c.clone()],
        Lies::Column => vec![c.clone()],
        Lies::Row => vec![r.clone()],
        Lies::One => vec![],
        Lies::Turned => vec![c.clone(), r.clone()],
    }
}

fn strides_of(lies: Lies, r: &Dim, c: &Dim) -> [Dim; 2] {
    match lies {
        Lies::Whole => [c.clone(), Dim::ONE],
        Lies::Column => [Dim::ZERO, Dim::ONE],
        Lies::Row => [Dim::ONE, Dim::ZERO],
        Lies::One => [Dim::ZERO, Dim::ZERO],
        Lies::Turned => [Dim::ONE, r.clone()],
    }
}

/// Runs a program over [r, c] both ways at several sizes; true if it became machine code.
fn agree(program: &ScalarProgram, reads: &[(DType, Lies)], results: &[DType], what: &str) -> bool {
    let mut m = Maker::new();
    let (r, c) = (Dim::symbol("r"), Dim::symbol("c"));
    let mut accesses = Vec::new();
    for &(dtype, lies) in reads {
        let x = m.input(dtype, &dims_of(lies, &r, &c));
        accesses.push(m.access(x, 0, &strides_of(lies, &r, &c)));
    }
    let mut writes = Vec::new();
    for (k, &d) in results.iter().enumerate() {
        let y = m.output(&format!("y{k}"), d, &[r.clone(), c.clone()]);
        writes.push(m.dense(y));
    }
    let space = vec![m.dim(r), m.dim(c)];
    m.kernel(Kernel::Map(MapKernel { space, reads: accesses, program: program.clone(), writes }));
    let Some(pair) = pair(&m.finish(), 2) else { return true };
    let mut rng = Rng(what.len() as u64 + 3);
    let rows = LENGTHS.iter().map(|&n| (1, n));
    for (r, c) in rows.chain([(3, 5), (4, 8), (5, 24), (70, 3), (129, 40), (2, 20_000), (0, 4), (4, 0)]) {
        let inputs: Vec<Tensor> = reads.iter().map(|&(d, lies)| values(&mut rng, d, &dims_of(lies, &r, &c))).collect();
        same(&pair, &inputs.iter().collect::<Vec<_>>(), &format!("{what} {r}x{c}"));
    }
    pair[0].functions() > 0
}

fn apply(op: Elementwise, operands: &[DType]) -> (ScalarProgram, DType) {
    let mut p = ScalarProgram::default();
    let dtype = op.result_dtype(operands).unwrap();
    let args = operands.iter().enumerate().map(|(i, &d)| p.push(ScalarOp::Read(i as u32), vec![], d)).collect();
    let y = p.push(ScalarOp::Apply(op), args, dtype);
    p.results = vec![y];
    (p, dtype)
}

#[test]
fn every_function_of_every_integer() {
    // What has no operation of lanes stays on the tile machine, with the same results.
    let unary = [Unary::Neg, Unary::Abs, Unary::Relu, Unary::Not, Unary::Sign];
    let binary =
        [Binary::Add, Binary::Sub, Binary::Mul, Binary::Min, Binary::Max, Binary::And, Binary::Or, Binary::Xor];
    for d in INTEGERS {
        for &f in Unary::ALL {
            let op = Elementwise::Unary(f);
            if op.result_dtype(&[d]).is_ok() {
                let (p, y) = apply(op, &[d]);
                let taken = agree(&p, &[(d, Lies::Whole)], &[y], &format!("{} {d}", f.name()));
                assert_eq!(taken, unary.contains(&f), "{} {d}", f.name());
            }
        }
        for &f in Binary::ALL {
            let op = Elementwise::Binary(f);
            // Powers and shifts of any number are the tile machine's.
            if op.result_dtype(&[d; 2]).is_ok() && binary.contains(&f) {
                let (p, y) = apply(op, &[d; 2]);
                assert!(agree(&p, &[(d, Lies::Whole), (d, Lies::Row)], &[y], &format!("{} {d}", f.name())));
            }
        }
        for &f in Compare::ALL {
            let (p, y) = apply(Elementwise::Compare(f), &[d; 2]);
            assert!(agree(&p, &[(d, Lies::Whole), (d, Lies::Column)], &[y], &format!("{} {d}", f.name())));
        }
        let (p, y) = apply(Elementwise::Clamp, &[d; 3]);
        assert!(agree(&p, &[(d, Lies::Whole), (d, Lies::One), (d, Lies::Row)], &[y], &format!("clamp {d}")));
        let (p, y) = apply(Elementwise::Select, &[DType::Bool, d, d]);
        let reads = [(DType::Bool, Lies::Whole), (d, Lies::Turned), (d, Lies::Whole)];
        assert!(agree(&p, &reads, &[y], &format!("select {d}")));
    }
}

#[test]
fn every_conversion() {
    for from in ALL {
        for to in ALL.into_iter().filter(|&to| to != from) {
            for lies in [Lies::Whole, Lies::Row, Lies::Turned] {
                let (p, y) = apply(Elementwise::Convert { to, saturate: true }, &[from]);
                // The second operand only says how large the space is.
                let reads = [(from, lies), (DType::F32, Lies::Whole)];
                assert!(agree(&p, &reads, &[y], &format!("{from} to {to}")), "{from} to {to}");
            }
        }
    }
}

#[test]
fn quantising_and_numbers_of_rows() {
    // clamp(round(x / s) + z), as QuantizeLinear has it, and x·s back, and [x = i].
    let mut p = ScalarProgram::default();
    let x = p.push(ScalarOp::Read(0), vec![], DType::F32);
    let s = p.push(ScalarOp::Read(1), vec![], DType::F32);
    let z = p.push(ScalarOp::Read(2), vec![], DType::U8);
    let of = |p: &mut ScalarProgram, op, args: &[u32], d| p.push(ScalarOp::Apply(op), args.to_vec(), d);
    let q = of(&mut p, Elementwise::Binary(Binary::Div), &[x, s], DType::F32);
    let q = of(&mut p, Elementwise::Unary(Unary::RoundEven), &[q], DType::F32);
    let f = of(&mut p, Elementwise::Convert { to: DType::F32, saturate: true }, &[z], DType::F32);
    let q = of(&mut p, Elementwise::Binary(Binary::Add), &[q, f], DType::F32);
    let y = of(&mut p, Elementwise::Convert { to: DType::U8, saturate: true }, &[q], DType::U8);
    let w = of(&mut p, Elementwise::Convert { to: DType::I32, saturate: true }, &[y], DType::I32);
    let at = p.push(ScalarOp::Index(1), vec![], DType::I32);
    let m = of(&mut p, Elementwise::Compare(Compare::Eq), &[w, at], DType::Bool);
    p.results = vec![y, m, w];
    let reads = [(DType::F32, Lies::Whole), (DType::F32, Lies::One), (DType::U8, Lies::One)];
    assert!(agree(&p, &reads, &[DType::U8, DType::Bool, DType::I32], "quantise"));
}

#[test]
fn rows_write_bytes() {
    let mut p = ScalarProgram::default();
    let x = p.push(ScalarOp::Read(0), vec![], DType::F32);
    let b = p.push(ScalarOp::Read(1), vec![], DType::I8);
    let most = p.push(ScalarOp::Reduce(ReduceKind::Max), vec![x], DType::F32);
    let of = |p: &mut ScalarProgram, op, args: &[u32], d| p.push(ScalarOp::Apply(op), args.to_vec(), d);
    let q = of(&mut p, Elementwise::Binary(Binary::Div), &[x, most], DType::F32);
    let y = of(&mut p, Elementwise::Convert { to: DType::I8, saturate: true }, &[q], DType::I8);
    let y = of(&mut p, Elementwise::Binary(Binary::Add), &[y, b], DType::I8);
    p.results = vec![y, most];
    let mut m = Maker::new();
    let (r, c) = (Dim::symbol("r"), Dim::symbol("c"));
    let dims = [r.clone(), c.clone()];
    let (x, b) = (m.input(DType::F32, &dims), m.input(DType::I8, &dims));
    let (y, t) = (m.output("y", DType::I8, &dims), m.output("t", DType::F32, std::slice::from_ref(&r)));
    let (reads, writes) = (vec![m.dense(x), m.dense(b)], vec![m.dense(y), m.dense(t)]);
    let (outer, reduced) = (vec![m.dim(r)], vec![m.dim(c)]);
    m.kernel(Kernel::Row(RowKernel { outer, reduced, reads, program: p, writes }));
    let Some(pair) = pair(&m.finish(), 2) else { return };
    let mut rng = Rng(5);
    for (r, c) in [(1, 1), (3, 5), (7, 16), (5, 31), (4, 33), (129, 40), (20, 384), (2, 4096), (2, 4100), (0, 4)] {
        let inputs = [values(&mut rng, DType::F32, &[r, c]), values(&mut rng, DType::I8, &[r, c])];
        same(&pair, &inputs.iter().collect::<Vec<_>>(), &format!("row {r}x{c}"));
    }
    assert!(pair[0].functions() > 0);
}

/// Floats of 8 bits: bytes in memory, numbers in lanes.
#[test]
fn small_floats_are_read_and_written_as_bytes() {
    for d in [DType::F8E4M3FN, DType::F8E4M3FNUZ, DType::F8E5M2, DType::F8E5M2FNUZ, DType::F8E8M0] {
        for lies in [Lies::Whole, Lies::Turned] {
            for to in [DType::F32, DType::BF16] {
                let (p, _) = apply(Elementwise::Convert { to, saturate: true }, &[d]);
                assert!(agree(&p, &[(d, lies)], &[to], &format!("{d} to {to}")), "{d} to {to} is no machine code");
            }
            for saturate in [true, false] {
                let (p, _) = apply(Elementwise::Convert { to: d, saturate }, &[DType::F32]);
                let compiled = agree(&p, &[(DType::F32, lies)], &[d], &format!("f32 to {d} ({saturate})"));
                assert_eq!(compiled, d != DType::F8E8M0, "f32 to {d}");
            }
        }
        for lies in [Lies::Column, Lies::Row, Lies::One] {
            let mut p = ScalarProgram::default();
            let x = p.push(ScalarOp::Read(0), vec![], d);
            let s = p.push(ScalarOp::Read(1), vec![], DType::F32);
            let x =
                p.push(ScalarOp::Apply(Elementwise::Convert { to: DType::F32, saturate: true }), vec![x], DType::F32);
            let y = p.push(ScalarOp::Apply(Elementwise::Binary(Binary::Mul)), vec![x, s], DType::F32);
            p.results = vec![y];
            assert!(agree(&p, &[(d, lies), (DType::F32, Lies::Whole)], &[DType::F32], &format!("{d} along")));
        }
        // Scaled, rounded, and what was rounded read again.
        let mut p = ScalarProgram::default();
        let x = p.push(ScalarOp::Read(0), vec![], DType::F32);
        let s = p.push(ScalarOp::Read(1), vec![], DType::F32);
        let y = p.push(ScalarOp::Apply(Elementwise::Binary(Binary::Mul)), vec![x, s], DType::F32);
        let q = p.push(ScalarOp::Apply(Elementwise::Convert { to: d, saturate: true }), vec![y], d);
        let z = p.push(ScalarOp::Apply(Elementwise::Convert { to: DType::F32, saturate: true }), vec![q], DType::F32);
        let e = p.push(ScalarOp::Apply(Elementwise::Binary(Binary::Sub)), vec![y, z], DType::F32);
        p.results = vec![q, e];
        let reads = [(DType::F32, Lies::Whole), (DType::F32, Lies::Row)];
        assert_eq!(agree(&p, &reads, &[d, DType::F32], &format!("rounding to {d}")), d != DType::F8E8M0);
        // Functions of small floats themselves are the tile machine's.
        let (p, _) = apply(Elementwise::Binary(Binary::Add), &[d, d]);
        assert!(!agree(&p, &[(d, Lies::Whole), (d, Lies::One)], &[d], &format!("sum of {d}")));
    }
}

/// Around every number of a format, and halfway between neighbours, rounding decides by the last bit.
#[test]
fn small_floats_are_rounded_to_their_nearest_neighbours() {
    for d in [DType::F8E4M3FN, DType::F8E4M3FNUZ, DType::F8E5M2, DType::F8E5M2FNUZ] {
        let mut codes: Vec<f32> =
            small_float_values(d).iter().copied().filter(|v| *v >= 0.0 && v.is_finite()).collect();
        codes.sort_by(f32::total_cmp);
        let most = codes.last().copied().unwrap();
        codes.extend([most * 1.0625, most * 1.125, most * 1.25, most * 2.0, f32::MAX]);
        let halfway = codes.windows(2).map(|w| w[0] + (w[1] - w[0]) / 2.0);
        let near = |x: f32| [x, f32::from_bits(x.to_bits() + 1), f32::from_bits(x.to_bits().saturating_sub(1))];
        let mut edges: Vec<f32> = codes.iter().copied().chain(halfway).flat_map(near).flat_map(|x| [x, -x]).collect();
        edges.extend([f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-45, -1e-45]);
        edges.resize(edges.len().next_multiple_of(8), 0.0);
        let x = Tensor::from_slice(&[edges.len()], &edges).unwrap();
        for saturate in [true, false] {
            let (p, _) = apply(Elementwise::Convert { to: d, saturate }, &[DType::F32]);
            let mut m = Maker::new();
            let n = Dim::symbol("n");
            let from = m.input(DType::F32, std::slice::from_ref(&n));
            let to = m.output("y", d, std::slice::from_ref(&n));
            let (reads, writes) = (vec![m.dense(from)], vec![m.dense(to)]);
            let space = vec![m.dim(n)];
            m.kernel(Kernel::Map(MapKernel { space, reads, program: p, writes }));
            let Some(pair) = pair(&m.finish(), 1) else { return };
            same(&pair, &[&x], &format!("{d} ({saturate})"));
            assert!(pair[0].functions() > 0);
        }
    }
}
