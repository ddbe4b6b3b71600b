//! Branches, loops, calls, and sizes that depend on data.

use rlx_ir::ops::control::LoopStep;
use rlx_ir::{Builder, DType, Dim, DimBinding, Module, Symbol, Tensor};

use crate::harness::{agree_on, lowered, sample};
use rlx_compile::CompileOptions;

const F: DType = DType::F32;

fn check(b: Builder, inputs: Vec<Tensor>) -> rlx_compile::lir::Lir {
    let m = Module::from_graph(b.finish());
    let (lir, _) = lowered(&m, &CompileOptions::default());
    assert!(agree_on(&m, &lir, inputs, vec![], &DimBinding::new()));
    lir
}

#[test]
fn both_sides_of_a_branch() {
    for side in [true, false] {
        let mut b = Builder::new("main");
        let n = Dim::symbol("n");
        let c = b.input("c", DType::Bool, [0i64; 0]).unwrap();
        let x = b.input("x", F, [n.clone(), 3.into()]).unwrap();
        let t = b.transpose(x, &[1, 0]).unwrap();
        let y = b
            .if_(
                c,
                &[t],
                |b, v| {
                    let y = b.relu(v[0])?;
                    Ok(vec![b.exp(y)?])
                },
                |b, v| Ok(vec![b.concat(&[v[0], v[0]], 1)?]),
            )
            .unwrap();
        let z = b.neg(y[0]).unwrap();
        b.output("z", z).unwrap();
        let lir = check(b, vec![Tensor::from_bools(&[], &[side]).unwrap(), sample(F, &[4, 3], 1)]);
        assert_eq!(lir.segments.len(), 2);
    }
}

#[test]
fn a_loop_with_carried_and_stacked_values() {
    let mut b = Builder::new("main");
    let x = b.input("x", F, [Dim::symbol("n"), 3.into()]).unwrap();
    let count = b.input("count", DType::I64, [0i64; 0]).unwrap();
    let h = b.tanh(x).unwrap();
    let y = b
        .loop_(Some(count), None, &[h], &[x], |b, a| {
            let next = b.add(a.carried[0], a.captures[0])?;
            let row = b.relu(next)?;
            Ok(LoopStep { cond: a.cond, carried: vec![next], scans: vec![row] })
        })
        .unwrap();
    for (i, v) in y.into_iter().enumerate() {
        b.output(&format!("y{i}"), v).unwrap();
    }
    check(b, vec![sample(F, &[2, 3], 0), Tensor::scalar(3i64)]);
}

#[test]
fn sizes_read_from_data_cut_the_program() {
    let mut b = Builder::new("main");
    let x = b.input("x", F, [Dim::symbol("n"), 3.into()]).unwrap();
    let k = b.input("k", DType::I64, [1]).unwrap();
    let two = b.scalar(DType::I64, 2.0).unwrap();
    let k2 = b.mul(k, two).unwrap();
    let sizes = b.read_dims(k2, vec![Symbol::new("k")]).unwrap();
    let kd = Dim::symbol("k");
    let y = b.broadcast_to(x, [kd.clone(), Dim::symbol("n"), 3.into()]).unwrap();
    let y = b.relu(y).unwrap();
    let k32 = b.convert(sizes, F).unwrap();
    let y = b.mul(y, k32).unwrap();
    let z = b.concat(&[y, y], 0).unwrap();
    b.output("z", z).unwrap();
    let lir = check(b, vec![sample(F, &[2, 3], 0), Tensor::from_slice(&[1], &[2i64]).unwrap()]);
    assert_eq!(lir.segments.len(), 2);
}

#[test]
fn counts_of_non_zero_elements_cut_the_program() {
    let mut b = Builder::new("main");
    let x = b.input("x", F, [Dim::symbol("n"), 3.into()]).unwrap();
    let early = b.exp(x).unwrap();
    let flat = b.reshape(early, [Dim::symbol("n") * 3]).unwrap();
    let at = b.nonzero(x, Symbol::new("count")).unwrap();
    let row = b
        .slice(
            at,
            vec![0.into(), 0.into()],
            vec![1.into(), b.graph().tensor_type(at).unwrap().shape[1].clone()],
            vec![1, 1],
        )
        .unwrap();
    let count = b.graph().tensor_type(at).unwrap().shape[1].clone();
    let row = b.reshape(row, [count]).unwrap();
    let row = b.convert(row, F).unwrap();
    let both = b.concat(&[flat, row], 0).unwrap();
    b.output("both", both).unwrap();
    let lir = check(b, vec![sample(F, &[4, 3], 0)]);
    assert_eq!(lir.segments.len(), 2);
}

#[test]
fn calls_lower_the_function() {
    let mut f = Builder::new("f");
    let n = Dim::symbol("n");
    let v = f.input("v", F, [n.clone()]).unwrap();
    let w = f.softmax(v, 0).unwrap();
    f.output("w", w).unwrap();
    let mut b = Builder::new("main");
    let x = b.input("x", F, [Dim::symbol("rows"), Dim::symbol("n")]).unwrap();
    let flat = b.reshape(x, [Dim::symbol("rows") * Dim::symbol("n")]).unwrap();
    let ty = rlx_ir::Type::tensor(F, [Dim::symbol("rows") * Dim::symbol("n")].to_vec());
    let y = b.call("f", &[flat], vec![ty]).unwrap();
    let y = b.relu(y[0]).unwrap();
    b.output("y", y).unwrap();
    let mut m = Module::from_graph(b.finish());
    m.functions.insert("f".into(), f.finish());
    let (lir, _) = lowered(&m, &CompileOptions::default());
    assert!(agree_on(&m, &lir, vec![sample(F, &[2, 3], 0)], vec![], &DimBinding::new()));
}

#[test]
fn a_scan_over_slices_of_a_computed_value() {
    let mut b = Builder::new("main");
    let x = b.input("x", F, [Dim::symbol("n"), 3.into()]).unwrap();
    let h0 = b.input("h0", F, [3]).unwrap();
    let y = b.tanh(x).unwrap();
    let r = b
        .scan_(&[h0], &[y], &[], |b, carried, slices, _| {
            let h = b.add(carried[0], slices[0])?;
            let out = b.softmax(h, 0)?;
            Ok((vec![h], vec![out]))
        })
        .unwrap();
    for (i, v) in r.into_iter().enumerate() {
        b.output(&format!("y{i}"), v).unwrap();
    }
    check(b, vec![sample(F, &[4, 3], 0), sample(F, &[3], 1)]);
}
