use super::*;
use crate::{Builder, DType};

fn run(g: Graph, inputs: Vec<Value>) -> Vec<Value> {
    let m = Module::from_graph(g);
    evaluate(&m, &EvalInputs { inputs, ..Default::default() }, EvalOptions::default()).unwrap().outputs
}

#[test]
fn broadcasts_and_keeps_symbols() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n"), Dim::from(1)]).unwrap();
    let y = b.input("y", DType::F32, [Dim::symbol("m")]).unwrap();
    let z = b.add(x, y).unwrap();
    let t = b.transpose(z, &[1, 0]).unwrap();
    b.output("t", t).unwrap();
    let g = b.finish();
    assert_eq!(g.ty(g.outputs()[0].value).to_string(), "f32[m, n]");
    let x = Tensor::from_slice(&[2, 1], &[10f32, 20.]).unwrap();
    let y = Tensor::from_slice(&[3], &[1f32, 2., 3.]).unwrap();
    let out = run(g, vec![x.into(), y.into()]);
    assert_eq!(out[0].as_tensor().unwrap(), &Tensor::from_slice(&[3, 2], &[11f32, 21., 12., 22., 13., 23.]).unwrap());
}

#[test]
fn unequal_symbols_broadcast_at_run_time() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n")]).unwrap();
    let y = b.input("y", DType::F32, [Dim::symbol("m")]).unwrap();
    let z = b.mul(x, y).unwrap();
    b.output("z", z).unwrap();
    let g = b.finish();
    let t = |v: &[f32]| Value::from(Tensor::from_slice(&[v.len()], v).unwrap());
    assert_eq!(run(g.clone(), vec![t(&[2.]), t(&[1., 3.])]), vec![t(&[2., 6.])]);
    assert_eq!(run(g.clone(), vec![t(&[]), t(&[1.])]), vec![t(&[])]);
    let m = Module::from_graph(g);
    let e = evaluate(
        &m,
        &EvalInputs { inputs: vec![t(&[1., 2.]), t(&[1., 2., 3.])], ..Default::default() },
        EvalOptions::default(),
    );
    assert!(e.unwrap_err().to_string().contains("broadcast"));
}

#[test]
fn shape_arithmetic_is_known() {
    let mut b = Builder::new("main");
    let _ = b.input("x", DType::F32, [Dim::symbol("n"), Dim::from(4)]).unwrap();
    let d = b.from_dims(vec![Dim::symbol("n"), Dim::from(4)]).unwrap();
    let two = b.constant(Tensor::scalar(2i64)).unwrap();
    let e = b.mul(d, two).unwrap();
    assert_eq!(b.graph().elems(e).unwrap(), &[Dim::symbol("n") * 2, Dim::from(8)]);
}

#[test]
fn errors_name_the_node_and_its_operands() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [2]).unwrap();
    let y = b.input("y", DType::I32, [2]).unwrap();
    let e = b.add(x, y).unwrap_err().to_string();
    assert!(e.contains("%x: f32[2]") && e.contains("%y: i32[2]") && e.contains("convert"), "{e}");
}

/// Results of absurd sizes, by every way that makes much of little, are refused before anything is allocated.
#[test]
fn absurd_results_are_errors() {
    use crate::ops::shape::PadMode;
    let huge = || Dim::from(1i64 << 40);
    type Make = fn(&mut Builder, ValueId, Dim) -> Result<ValueId, IrError>;
    let makes: [Make; 5] = [
        |b, _, n| b.iota(DType::I64, [n], 0),
        |b, x, n| b.broadcast_to(x, [n, Dim::from(3)]),
        |b, x, n| b.pad(x, None, vec![n], vec![Dim::ZERO], PadMode::Constant),
        |b, x, n| b.pad(x, None, vec![n], vec![Dim::ZERO], PadMode::Reflect),
        |b, x, n| {
            let rows = b.broadcast_to(x, [n.clone(), Dim::from(3)])?;
            b.reshape(rows, [n * 3])
        },
    ];
    for (i, make) in makes.iter().enumerate() {
        let mut b = Builder::new("main");
        let x = b.input("x", DType::F32, [Dim::from(3)]).unwrap();
        let y = make(&mut b, x, huge()).unwrap();
        b.output("y", y).unwrap();
        let m = Module::from_graph(b.finish());
        let start = EvalInputs { inputs: vec![Tensor::zeros(DType::F32, &[3]).unwrap().into()], ..Default::default() };
        let e = evaluate(&m, &start, EvalOptions::accurate()).unwrap_err().to_string();
        assert!(e.contains("more than the evaluator's limit"), "{i}: {e}");
    }
}

/// What is held at a time is limited, not what is made and dropped.
#[test]
fn what_is_held_is_limited() {
    let chain = |n: usize, keep: bool| {
        let mut b = Builder::new("main");
        let mut last = b.input("x", DType::F32, [Dim::from(100)]).unwrap();
        let mut all = Vec::new();
        for _ in 0..n {
            last = b.neg(last).unwrap();
            all.push(last);
        }
        for &v in all.iter().filter(|_| keep) {
            last = b.add(last, v).unwrap();
        }
        b.output("y", last).unwrap();
        let m = Module::from_graph(b.finish());
        let start =
            EvalInputs { inputs: vec![Tensor::zeros(DType::F32, &[100]).unwrap().into()], ..Default::default() };
        evaluate(&m, &start, EvalOptions { max_elements: 200, ..EvalOptions::default() })
    };
    assert!(chain(50, false).is_ok());
    assert!(chain(6, true).is_ok());
    let e = chain(50, true).unwrap_err().to_string();
    assert!(e.contains("more than the evaluator's limit of 800"), "{e}");
}
