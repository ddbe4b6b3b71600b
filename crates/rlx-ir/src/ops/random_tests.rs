//! Random small graphs of shape, reduction and indexing ops: with symbolic sizes, with the same sizes static, and over a constant.
//!
//! The evaluator checks every value against the type and the elements that inference promised, so a graph that runs proves that rule
//! and evaluation agree. A graph that cannot be built for static sizes must fail with symbolic ones when they take those values.

use proptest::prelude::*;

use super::indexing::Combiner;
use super::reduction::{ArgKind, CumKind, ReduceKind, ReduceWindow, WindowKind};
use super::shape::PadMode;
use crate::error::IrError;
use crate::eval::{EvalInputs, evaluate};
use crate::graph::{Module, ValueId};
use crate::op::EvalOptions;
use crate::{Builder, DType, Dim, Symbol, Tensor};

const SIZES: &[usize] = &[0, 1, 2, 3, 5];

/// Parameters of one op, drawn one after another.
#[derive(Clone, Debug)]
struct Draw(Vec<u8>);

impl Draw {
    fn next(&mut self, below: usize) -> usize {
        let n = self.0.pop().unwrap_or(0);
        usize::from(n) % below.max(1)
    }
    fn int(&mut self, lo: i64, hi: i64) -> i64 {
        lo + self.next((hi - lo + 1) as usize) as i64
    }
    fn flag(&mut self) -> bool {
        self.next(2) == 1
    }
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.next(of.len())]
    }
}

/// Applies one op to an `i64` tensor; its result is an `i64` tensor again.
fn apply(b: &mut Builder, x: ValueId, op: u8, d: &mut Draw, fresh: usize) -> Result<ValueId, IrError> {
    let shape = b.shape(x)?;
    let rank = shape.rank();
    let axis = d.next(rank) as i64;
    let needs_axis = rank == 0;
    match op % 20 {
        0 => {
            let mut dims = shape.into_dims();
            dims.insert(0, Dim::from(d.int(0, 2)));
            b.broadcast_to(x, dims)
        }
        1 => b.tile(x, &(0..rank).map(|_| Dim::from(d.int(0, 2))).collect::<Vec<_>>()),
        2 if !needs_axis => {
            let (start, end, step) = (d.int(-6, 6), d.int(-6, 6), d.pick(&[1, 2, -1, -3]));
            b.slice_axis(x, axis, start, end, step)
        }
        3 if !needs_axis => b.concat(&[x, x], axis),
        4 => {
            let mode = d.pick(PadMode::ALL);
            let (low, high) = (0..rank).map(|_| (Dim::from(d.int(-1, 2)), Dim::from(d.int(-1, 2)))).unzip();
            b.pad(x, None, low, high, mode)
        }
        5 if !needs_axis => b.reverse(x, &[axis]),
        6 if !needs_axis => b.swap_axes(x, 0, axis),
        7 if !needs_axis => {
            let kind = d.pick(&[ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Min, ReduceKind::Max]);
            b.reduce(x, kind, &[axis], d.flag())
        }
        8 if !needs_axis => b.cumulative(x, d.pick(CumKind::ALL), axis, d.flag(), d.flag()),
        9 if !needs_axis => b.arg_reduce(x, d.pick(ArgKind::ALL), axis, d.flag(), d.flag()),
        10 if !needs_axis => {
            let op = ReduceWindow {
                strides: vec![d.int(1, 3)],
                dilations: vec![d.int(1, 2)],
                pad_low: vec![d.int(0, 2).into()],
                pad_high: vec![d.int(0, 3).into()],
                ceil: d.flag(),
                count_include_pad: d.flag(),
                ..ReduceWindow::new(d.pick(&[WindowKind::Max, WindowKind::Sum]), &[d.int(1, 3)])
            };
            b.reduce_window(x, op)
        }
        11 if !needs_axis => {
            let i = (0..d.next(3)).map(|_| d.int(-2, 1)).collect::<Vec<_>>();
            let i = b.constant(Tensor::from_slice(&[i.len()], &i).unwrap())?;
            b.gather(x, i, axis)
        }
        12 if !needs_axis => {
            let i = b.constant(Tensor::from_slice(&vec![1; rank], &[d.int(-2, 1)]).unwrap())?;
            b.gather_elements(x, i, axis)
        }
        13 if !needs_axis => {
            let i = b.constant(Tensor::from_slice(&[2, 1], &[d.int(-1, 1), 0]).unwrap())?;
            b.gather_nd(x, i, 0)
        }
        14 if !needs_axis => {
            let i = b.constant(Tensor::from_slice(&vec![1; rank], &[d.int(-2, 1)]).unwrap())?;
            let u = b.constant(Tensor::from_slice(&vec![1; rank], &[7i64]).unwrap())?;
            b.scatter_elements(x, i, u, axis, d.pick(Combiner::ALL))
        }
        15 if !needs_axis => Ok(b.sort(x, axis, d.flag())?.0),
        16 if !needs_axis => Ok(b.top_k(x, d.int(0, 2), axis, d.flag(), true)?.1),
        17 => b.nonzero(x, Symbol::new(format!("count{fresh}"))),
        18 if !needs_axis => {
            let starts = b.constant(Tensor::from_slice(&[rank], &vec![d.int(-1, 3); rank]).unwrap())?;
            b.dynamic_slice(x, starts, vec![Dim::from(d.int(0, 2)); rank])
        }
        _ => b.flatten(x, axis.min(rank as i64)),
    }
}

enum Input {
    Symbolic,
    Static,
    Constant,
}

/// Builds the chain once and runs it; the sizes of a symbolic input come with the value.
fn run(x: &Tensor, ops: &[(u8, Draw)], input: Input) -> Result<Tensor, IrError> {
    let mut b = Builder::new("main");
    let dims: Vec<Dim> = match input {
        Input::Symbolic => (0..x.rank()).map(|i| Dim::symbol(format!("n{i}"))).collect(),
        _ => x.dims().iter().map(|&d| Dim::from(d as i64)).collect(),
    };
    let constant = matches!(input, Input::Constant);
    let mut v = if constant { b.constant(x.clone())? } else { b.input("x", DType::I64, dims)? };
    for (i, (op, draw)) in ops.iter().enumerate() {
        v = apply(&mut b, v, *op, &mut draw.clone(), i)?;
    }
    b.output("y", v)?;
    let inputs = if constant { vec![] } else { vec![x.clone().into()] };
    let inputs = EvalInputs { inputs, ..Default::default() };
    let out = evaluate(&Module::from_graph(b.finish()), &inputs, EvalOptions::default())?;
    Ok(out.outputs[0].as_tensor().unwrap().clone())
}

fn draws() -> impl Strategy<Value = (u8, Draw)> {
    (any::<u8>(), prop::collection::vec(any::<u8>(), 8)).prop_map(|(op, d)| (op, Draw(d)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn symbolic_static_and_constant_agree(
        dims in prop::collection::vec(prop::sample::select(SIZES), 0..4),
        ops in prop::collection::vec(draws(), 1..4),
        seed in any::<u32>(),
    ) {
        let n: usize = dims.iter().product();
        let values: Vec<i64> = (0..n).map(|i| (i as i64 * 7 + i64::from(seed % 97)) % 11 - 3).collect();
        let x = Tensor::from_slice(&dims, &values).unwrap();
        let fixed = run(&x, &ops, Input::Static);
        let symbolic = run(&x, &ops, Input::Symbolic);
        let constant = run(&x, &ops, Input::Constant);
        match (&fixed, &symbolic, &constant) {
            (Ok(a), Ok(b), Ok(c)) => prop_assert!(a == b && a == c, "{a:?} {b:?} {c:?}"),
            (Err(_), Err(_), Err(_)) => {}
            _ => prop_assert!(false, "static {fixed:?}\nsymbolic {symbolic:?}\nconstant {constant:?}"),
        }
        for e in [&fixed, &symbolic, &constant].into_iter().filter_map(|r| r.as_ref().err()) {
            // A result that is not what inference promised is no error of the user.
            prop_assert!(!e.to_string().contains("results,"), "{e}");
        }
    }
}
