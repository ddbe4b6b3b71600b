//! Tests of the composites.

mod activations;
mod decompositions;
mod reference;

use crate::builder::Builder;
use crate::dim::Dim;
use crate::eval::{EvalInputs, evaluate};
use crate::graph::{Graph, Module};
use crate::op::{EvalOptions, Op};
use crate::tensor::{Tensor, Value};

/// `(7i mod 11) · scale + shift`, row by row.
pub(super) fn ramp(dims: &[usize], scale: f32, shift: f32) -> Tensor {
    let n: usize = dims.iter().product();
    Tensor::from_slice(dims, &(0..n).map(|i| ((i * 7 % 11) as f32) * scale + shift).collect::<Vec<_>>()).unwrap()
}

pub(super) fn run(g: Graph, inputs: Vec<Tensor>) -> Vec<Tensor> {
    let inputs = inputs.into_iter().map(Value::from).collect();
    let m = Module::from_graph(g);
    let out = evaluate(&m, &EvalInputs { inputs, ..Default::default() }, EvalOptions::default()).unwrap().outputs;
    out.iter().map(|v| v.as_tensor().unwrap().clone()).collect()
}

/// A graph of one op over tensors whose sizes the graph knows.
pub(super) fn graph_of(op: Op, types: &[(crate::DType, Vec<Dim>)]) -> Graph {
    let mut b = Builder::new("main");
    let args: Vec<_> =
        types.iter().enumerate().map(|(i, (d, s))| b.input(&format!("x{i}"), *d, s.iter()).unwrap()).collect();
    for (i, v) in b.op(op, &args).unwrap().into_iter().enumerate() {
        b.output(&format!("y{i}"), v).unwrap();
    }
    b.finish()
}

/// The op's results on tensors.
pub(super) fn evaluated(op: impl Into<Op>, args: Vec<Tensor>) -> Vec<Tensor> {
    let types: Vec<_> = args.iter().map(|t| (t.dtype(), t.dims().iter().map(|&d| Dim::from(d)).collect())).collect();
    run(graph_of(op.into(), &types), args)
}

pub(super) fn close(a: &Tensor, want: &[f32]) {
    let a = a.elements().to_f64().unwrap();
    assert_eq!(a.len(), want.len());
    for (i, (x, y)) in a.iter().zip(want).enumerate() {
        assert!((x - f64::from(*y)).abs() <= 2e-5 * (1.0 + y.abs() as f64), "element {i}: {x} for {y}\n{a:?}");
    }
}

/// Work in numbers that are counted by hand.
#[test]
fn work_counts_multiply_adds_twice() {
    use crate::dtype::DType;
    use crate::op::OpDef;
    use crate::ops::neural::{Attention, AttnLayout, Gru, Lstm};
    use crate::types::TensorType;
    let t = |dims: &[i64]| TensorType::new(DType::F32, dims.iter().map(|&d| Dim::from(d)).collect::<Vec<_>>());
    let attention = Attention::new(AttnLayout::Bhsd, 1.0);
    // 2 · 3 heads, 5 queries, 7 keys, 11 features, 13 of the values.
    let (q, k, v, y) = (t(&[2, 3, 5, 11]), t(&[2, 3, 7, 11]), t(&[2, 3, 7, 13]), t(&[2, 3, 5, 13]));
    assert_eq!(attention.work(&[q, k, v], &[y]).as_const(), Some(2 * 6 * 5 * 7 * (11 + 13)));
    // 4 steps of 2 sequences; 3 features, 5 hidden, one direction.
    let x = t(&[4, 2, 3]);
    let lstm = [x.clone(), t(&[1, 20, 3]), t(&[1, 20, 5])];
    assert_eq!(Lstm::new(5).work(&lstm, &[]).as_const(), Some(2 * 4 * 2 * 20 * (3 + 5)));
    let gru = [x, t(&[1, 15, 3]), t(&[1, 15, 5])];
    assert_eq!(Gru::new(5).work(&gru, &[]).as_const(), Some(2 * 4 * 2 * 15 * (3 + 5)));
}
