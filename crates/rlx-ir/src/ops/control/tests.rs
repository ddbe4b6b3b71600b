use crate::DType;
use crate::builder::Builder;
use crate::dim::Dim;
use crate::eval::{EvalInputs, evaluate};
use crate::graph::{Graph, Module};
use crate::op::EvalOptions;
use crate::ops::control::LoopStep;
use crate::ops::elementwise::Compare;
use crate::ops::reduction::ReduceKind;
use crate::tensor::{Tensor, Value};
use crate::types::Type;

fn run_module(m: &Module, inputs: Vec<Tensor>) -> Vec<Tensor> {
    let inputs = inputs.into_iter().map(Value::from).collect();
    let out = evaluate(m, &EvalInputs { inputs, ..Default::default() }, EvalOptions::default()).unwrap().outputs;
    out.iter().map(|v| v.as_tensor().unwrap().clone()).collect()
}

fn run(g: Graph, inputs: Vec<Tensor>) -> Vec<Tensor> {
    run_module(&Module::from_graph(g), inputs)
}

fn f32s(dims: &[usize], v: &[f32]) -> Tensor {
    Tensor::from_slice(dims, v).unwrap()
}

fn boolean(x: bool) -> Tensor {
    Tensor::from_bools(&[], &[x]).unwrap()
}

#[test]
fn only_the_branch_taken_runs() {
    let mut b = Builder::new("main");
    let c = b.input("c", DType::Bool, [0i64; 0]).unwrap();
    let x = b.input("x", DType::F32, [Dim::symbol("n")]).unwrap();
    let i = b.input("i", DType::I64, [1]).unwrap();
    // The second branch fails if it runs: the index is out of range.
    let y = b.if_(c, &[x, i], |b, a| Ok(vec![b.relu(a[0])?]), |b, a| Ok(vec![b.gather(a[0], a[1], 0)?])).unwrap();
    b.output("y", y[0]).unwrap();
    let g = b.finish();
    // n against 1: not known before the run.
    assert!(g.tensor_type(y[0]).unwrap().shape[0].as_symbol().is_some_and(|s| s.name() != "n"));
    let args = |c| vec![boolean(c), f32s(&[3], &[-1., 2., 3.]), Tensor::from_slice(&[1], &[7i64]).unwrap()];
    assert_eq!(run(g.clone(), args(true)), [f32s(&[3], &[0., 2., 3.])]);
    let m = Module::from_graph(g);
    let inputs = args(false).into_iter().map(Value::from).collect();
    assert!(evaluate(&m, &EvalInputs { inputs, ..Default::default() }, EvalOptions::default()).is_err());
}

#[test]
fn branches_keep_equal_sizes() {
    let mut b = Builder::new("main");
    let c = b.input("c", DType::Bool, [0i64; 0]).unwrap();
    let x = b.input("x", DType::F32, [Dim::symbol("n"), Dim::symbol("m")]).unwrap();
    let y = b
        .if_(
            c,
            &[x],
            |b, a| Ok(vec![b.transpose(a[0], &[1, 0])?]),
            |b, a| {
                let y = b.neg(a[0])?;
                Ok(vec![b.transpose(y, &[1, 0])?])
            },
        )
        .unwrap();
    assert_eq!(b.ty(y[0]).unwrap().to_string(), "f32[m, n]");
}

#[test]
fn branches_of_other_kinds_are_refused() {
    let mut b = Builder::new("main");
    let c = b.input("c", DType::Bool, [0i64; 0]).unwrap();
    let x = b.input("x", DType::F32, [2, 3]).unwrap();
    let e = b.if_(c, &[x], |_, a| Ok(vec![a[0]]), |b, a| Ok(vec![b.convert(a[0], DType::F16)?])).unwrap_err();
    let e = e.to_string();
    assert!(e.contains("f32[2, 3] in then") && e.contains("f16[2, 3] in else"), "{e}");
    let e = b.if_(x, &[], |_, _| Ok(vec![]), |_, _| Ok(vec![])).unwrap_err().to_string();
    assert!(e.contains("condition must be bool[]"), "{e}");
}

/// Counts to a limit, summing `x` times the iteration number, and gives each partial sum.
fn summing(trips: bool, cond: bool) -> Graph {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [2]).unwrap();
    let m = trips.then(|| b.input("m", DType::I64, [0i64; 0]).unwrap());
    let c = cond.then(|| b.input("c", DType::Bool, [0i64; 0]).unwrap());
    let y = b
        .loop_(m, c, &[x], &[x], |b, a| {
            let i = b.convert(a.iteration, DType::F32)?;
            let term = b.mul(a.captures[0], i)?;
            let sum = b.add(a.carried[0], term)?;
            let three = b.constant(Tensor::scalar(2i64))?;
            let more = b.op1(Compare::Lt, &[a.iteration, three])?;
            Ok(LoopStep { cond: if cond { more } else { a.cond }, carried: vec![sum], scans: vec![sum] })
        })
        .unwrap();
    b.output("sum", y[0]).unwrap();
    b.output("all", y[1]).unwrap();
    b.finish()
}

#[test]
fn loops_end_by_count_or_condition() {
    // CASES D5 and D6.
    let x = || f32s(&[2], &[1., 10.]);
    let count = |n: i64| Tensor::scalar(n);
    let out = run(summing(true, true), vec![x(), count(0), boolean(true)]);
    assert_eq!(out, [x(), f32s(&[0, 2], &[])]);
    let out = run(summing(true, true), vec![x(), count(10), boolean(true)]);
    assert_eq!(out, [f32s(&[2], &[4., 40.]), f32s(&[3, 2], &[1., 10., 2., 20., 4., 40.])]);
    let out = run(summing(true, true), vec![x(), count(10), boolean(false)]);
    assert_eq!(out, [x(), f32s(&[0, 2], &[])]);
    let out = run(summing(false, true), vec![x(), boolean(true)]);
    assert_eq!(out[0], f32s(&[2], &[4., 40.]));
    let out = run(summing(true, false), vec![x(), count(2)]);
    assert_eq!(out, [f32s(&[2], &[2., 20.]), f32s(&[2, 2], &[1., 10., 2., 20.])]);
    let out = run(summing(true, false), vec![x(), count(-3)]);
    assert_eq!(out[1].dims(), [0, 2]);
}

#[test]
fn a_known_count_gives_the_length() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n")]).unwrap();
    let m = b.from_dim(Dim::symbol("n")).unwrap();
    let y = b
        .loop_(Some(m), None, &[], &[x], |_, a| {
            Ok(LoopStep { cond: a.cond, carried: vec![], scans: vec![a.captures[0]] })
        })
        .unwrap();
    assert_eq!(b.ty(y[0]).unwrap().to_string(), "f32[n, n]");
    b.output("y", y[0]).unwrap();
    assert_eq!(run(b.finish(), vec![f32s(&[2], &[1., 2.])]), [f32s(&[2, 2], &[1., 2., 1., 2.])]);
}

#[test]
fn carried_shapes_may_grow() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n"), Dim::from(2)]).unwrap();
    let m = b.input("m", DType::I64, [0i64; 0]).unwrap();
    let y = b
        .loop_(Some(m), None, &[x], &[x], |b, a| {
            let grown = b.concat(&[a.carried[0], a.captures[0]], 0)?;
            Ok(LoopStep { cond: a.cond, carried: vec![grown], scans: vec![] })
        })
        .unwrap();
    let ty = b.tensor_type(y[0]).unwrap().clone();
    assert!(ty.shape[0].as_symbol().is_some() && ty.shape[1] == Dim::from(2), "{ty}");
    b.output("y", y[0]).unwrap();
    let g = b.finish();
    let x = || f32s(&[1, 2], &[1., 2.]);
    assert_eq!(run(g.clone(), vec![x(), Tensor::scalar(3i64)]), [f32s(&[4, 2], &[1., 2.].repeat(4))]);
    assert_eq!(run(g, vec![x(), Tensor::scalar(0i64)]), [x()]);
}

#[test]
fn scans_along_axes_in_both_orders() {
    // Running sums of the columns of [[1, 2, 3], [10, 20, 30]] from the right, stacked from the right as columns.
    let mut b = Builder::new("main");
    let init = b.input("init", DType::F32, [Dim::symbol("r")]).unwrap();
    let x = b.input("x", DType::F32, [Dim::symbol("r"), Dim::symbol("t")]).unwrap();
    let mut body = Builder::new("body");
    let s = body.input("s", DType::F32, [Dim::symbol("r")]).unwrap();
    let column = body.input("column", DType::F32, [Dim::symbol("r")]).unwrap();
    let sum = body.add(s, column).unwrap();
    body.output("next", sum).unwrap();
    body.output("all", sum).unwrap();
    let op = super::Scan {
        carried: 1,
        num_scan_inputs: 1,
        input_axes: vec![1],
        input_reverse: vec![true],
        output_axes: vec![1],
        output_reverse: vec![true],
    };
    let y = b.scan_regions(op, &[init], &[x], &[], body.finish()).unwrap();
    assert_eq!(b.ty(y[1]).unwrap().to_string(), "f32[r, t]");
    b.output("last", y[0]).unwrap();
    b.output("all", y[1]).unwrap();
    let g = b.finish();
    let out = run(g.clone(), vec![f32s(&[2], &[0., 0.]), f32s(&[2, 3], &[1., 2., 3., 10., 20., 30.])]);
    assert_eq!(out, [f32s(&[2], &[6., 60.]), f32s(&[2, 3], &[6., 5., 3., 60., 50., 30.])]);
    let out = run(g, vec![f32s(&[2], &[4., 5.]), f32s(&[2, 0], &[])]);
    assert_eq!(out, [f32s(&[2], &[4., 5.]), f32s(&[2, 0], &[])]);
}

#[test]
fn scan_built_by_a_closure() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("t"), Dim::symbol("r")]).unwrap();
    let y = b
        .scan_(&[], &[x], &[x], |b, _, slices, captured| {
            let all = b.reduce(captured[0], ReduceKind::Sum, &[0, 1], false)?;
            Ok((vec![], vec![b.mul(slices[0], all)?]))
        })
        .unwrap();
    b.output("y", y[0]).unwrap();
    assert_eq!(run(b.finish(), vec![f32s(&[2, 1], &[1., 2.])]), [f32s(&[2, 1], &[3., 6.])]);
}

#[test]
fn calls_reach_functions_and_refuse_unknown_ones() {
    let mut f = Builder::new("twice");
    let x = f.input("x", DType::F32, [Dim::symbol("k")]).unwrap();
    let y = f.add(x, x).unwrap();
    f.output("y", y).unwrap();
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n")]).unwrap();
    let y = b.call("twice", &[x], vec![Type::tensor(DType::F32, vec![Dim::symbol("n")])]).unwrap();
    b.output("y", y[0]).unwrap();
    let mut m = Module::from_graph(b.finish());
    let inputs = || EvalInputs { inputs: vec![f32s(&[2], &[1., 2.]).into()], ..Default::default() };
    let e = evaluate(&m, &inputs(), EvalOptions::default()).unwrap_err().to_string();
    assert!(e.contains("no function `twice`"), "{e}");
    m.functions.insert("twice".into(), f.finish());
    assert_eq!(run_module(&m, vec![f32s(&[2], &[1., 2.])]), [f32s(&[2], &[2., 4.])]);
}

#[test]
fn types_read_back() {
    use crate::attr::AttrValue;
    for text in ["f32[n, 4]", "seq<opt<i64[]>>", "bool[2*n + 1]"] {
        assert_eq!(Type::parse(text).unwrap().to_string(), text);
    }
    assert!(Type::parse("seq<f32[2]").is_err() && Type::parse("q8[2]").is_err());
    assert!(Type::parse(&("seq<".repeat(1000) + "f32[]" + &">".repeat(1000))).is_err());
}

/// A branch costs its costlier side, a scan its body times its length.
#[test]
fn nested_work_is_counted_as_often_as_it_runs() {
    use crate::op::OpDef;
    use crate::ops::control::{If, Scan};
    use crate::types::TensorType;
    let sides = [Dim::from(30), Dim::from(50)];
    assert_eq!(If { defines: vec![] }.nested_work(&[], &[], &sides).as_const(), Some(50));
    let scan = Scan {
        carried: 0,
        num_scan_inputs: 1,
        input_axes: vec![1],
        input_reverse: vec![false],
        output_axes: vec![],
        output_reverse: vec![],
    };
    let x = TensorType::new(DType::F32, vec![Dim::from(2), Dim::from(7)]);
    assert_eq!(scan.nested_work(&[x], &[], &[Dim::from(30)]).as_const(), Some(210));
}
