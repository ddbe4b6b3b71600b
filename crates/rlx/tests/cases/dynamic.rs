//! Kind dynamic: D2, D5, D6, D7. What is said of ONNX's attributes there is tested with its operators; here the graphs behind them.

use rlx::ir::IrError;
use rlx::ir::ops::control::LoopStep;
use rlx::ir::ops::elementwise::{Binary, Compare, Unary};
use rlx::ir::ops::neural::{Attention, AttnLayout, MaskKind};
use rlx::{Builder, DType, Dim, Graph, Module, Tensor};

use crate::harness::{f32s, numbers, oracle, same, session};
use crate::ways::{all, exact};

/// D2: a chain of 150 mixed ops called twice (every way here calls twice); bodies that match with output lists that differ.
#[test]
fn case_d2_long_chains_and_programs_that_differ_in_their_outputs_alone() {
    let chain = |outputs: &[usize]| -> Result<Graph, IrError> {
        let mut b = Builder::new("main");
        let x = b.input("x", DType::F32, [Dim::symbol("n")])?;
        let half = b.scalar(DType::F32, 0.5)?;
        let mut v = vec![x];
        for i in 0..150 {
            let last = v[v.len() - 1];
            v.push(match i % 5 {
                0 => b.op1(Unary::Tanh, &[last])?,
                1 => b.op1(Binary::Add, &[last, half])?,
                2 => b.op1(Unary::Abs, &[last])?,
                3 => b.op1(Binary::Mul, &[last, half])?,
                _ => b.op1(Binary::Max, &[last, x])?,
            });
        }
        for &o in outputs {
            b.output(&format!("v{o}"), v[o])?;
        }
        Ok(b.finish())
    };
    let x = numbers(3, &[19]);
    let lists: [&[usize]; 4] = [&[150], &[150, 75], &[75, 150], &[1, 2, 149]];
    for list in lists {
        let g = chain(list).unwrap();
        let want = oracle(&g, std::slice::from_ref(&x), &[]);
        for (way, got) in all(&g, std::slice::from_ref(&x)) {
            same(&want, &got, &way);
        }
    }
    let (a, c) = (chain(lists[1]).unwrap(), chain(lists[2]).unwrap());
    let print = |g: &Graph| rlx::ir::fingerprint::fingerprint(&Module::from_graph(g.clone()));
    assert_ne!(print(&a), print(&c));
    let run = |g: Graph| session().compile(g).unwrap().run_tensors(&[("x", &x)]).unwrap();
    let (a, c) = (run(a), run(c));
    assert_eq!((&a[0], &a[1]), (&c[1], &c[0]));
}

/// A loop over `x: f32[2]` that doubles it, stacks it, and goes on while fewer than `until` steps are done.
fn doubling(trips: bool, cond: bool, until: i64) -> Graph {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [2]).unwrap();
    let m = b.input("m", DType::I64, [0; 0]).unwrap();
    let c = b.input("c", DType::Bool, [0; 0]).unwrap();
    let out = b
        .loop_(trips.then_some(m), cond.then_some(c), &[x], &[], |b, a| {
            let y = b.add(a.carried[0], a.carried[0])?;
            let n = b.constant(Tensor::scalar(until - 1))?;
            let more = b.op1(Compare::Lt, &[a.iteration, n])?;
            Ok(LoopStep { cond: more, carried: vec![y], scans: vec![y] })
        })
        .unwrap();
    b.output("last", out[0]).unwrap();
    b.output("all", out[1]).unwrap();
    b.finish()
}

fn loop_inputs(m: i64, c: bool) -> [Tensor; 3] {
    [f32s(&[2], &[1.0, 3.0]), Tensor::scalar(m), Tensor::from_bools(&[], &[c]).unwrap()]
}

fn doubled(steps: usize) -> [Tensor; 2] {
    let rows: Vec<f32> = (1..=steps as i32).flat_map(|i| [2f32.powi(i), 3.0 * 2f32.powi(i)]).collect();
    [f32s(&[2], &[2f32.powi(steps as i32), 3.0 * 2f32.powi(steps as i32)]), f32s(&[steps, 2], &rows)]
}

/// D5: no iteration, an early exit, a limit that is reached. The limit says nothing of the number of results.
#[test]
fn case_d5_loops_of_no_step_early_exits_and_sizes_of_scans() {
    exact(&doubling(true, false, 99), &loop_inputs(0, true), &doubled(0));
    exact(&doubling(true, false, 99), &loop_inputs(-5, true), &doubled(0));
    exact(&doubling(true, false, 3), &loop_inputs(10, true), &doubled(3));
    exact(&doubling(true, false, 99), &loop_inputs(4, true), &doubled(4));
    exact(&doubling(true, true, 99), &loop_inputs(4, false), &doubled(0));
    let p = session().compile(doubling(true, false, 3)).unwrap();
    assert!(p.outputs()[1].ty.shape[0].as_const().is_none(), "{}", p.outputs()[1].ty);
}

/// D6: loops without a limit, without a first condition, without both.
#[test]
fn case_d6_loops_without_limit_or_condition() {
    exact(&doubling(false, true, 5), &loop_inputs(0, true), &doubled(5));
    exact(&doubling(false, true, 5), &loop_inputs(0, false), &doubled(0));
    exact(&doubling(false, false, 6), &loop_inputs(0, false), &doubled(6));
    exact(&doubling(true, false, 6), &loop_inputs(2, false), &doubled(2));
    // A scalar limit on one side alone.
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [3]).unwrap();
    let top = b.scalar(DType::F32, 1.5).unwrap();
    let y = b.op1(Binary::Min, &[x, top]).unwrap();
    b.output("y", y).unwrap();
    exact(&b.finish(), &[f32s(&[3], &[-9.0, 1.0, 2.0])], &[f32s(&[3], &[-9.0, 1.0, 1.5])]);
}

/// D7: with fewer queries than keys, query i sees keys up to `i + keys − queries`.
#[test]
fn case_d7_causal_masks_with_fewer_queries_than_keys() {
    for (queries, keys, window) in
        [(1usize, 4usize, None), (2, 4, None), (4, 4, None), (3, 7, Some(2i64)), (2, 40, None)]
    {
        let mut b = Builder::new("main");
        let (m, n) = (Dim::symbol("queries"), Dim::symbol("keys"));
        let q = b.input("q", DType::F32, [1.into(), 1.into(), m, 2.into()]).unwrap();
        let k = b.input("k", DType::F32, [1.into(), 1.into(), n.clone(), 2.into()]).unwrap();
        let v = b.input("v", DType::F32, [Dim::ONE, Dim::ONE, n, Dim::from(1)]).unwrap();
        let op = Attention {
            layout: AttnLayout::Bhsd,
            scale: rlx::ir::attr::FloatBits::new(1.0),
            causal: true,
            window,
            softcap: None,
            mask: MaskKind::None,
        };
        let y = b.op1(op, &[q, k, v]).unwrap();
        b.output("y", y).unwrap();
        let g = b.finish();
        // Equal keys: each query's answer is the mean of the values that it sees.
        let zeros = |n| Tensor::zeros(DType::F32, &[1, 1, n, 2]).unwrap();
        let values: Vec<f32> = (0..keys).map(|i| (i * i) as f32).collect();
        let inputs = [zeros(queries), zeros(keys), f32s(&[1, 1, keys, 1], &values)];
        let want: Vec<f32> = (0..queries)
            .map(|i| {
                let last = i + keys - queries;
                let first = window.map_or(0, |w| (last + 1).saturating_sub(w as usize));
                let seen = &values[first..=last];
                seen.iter().sum::<f32>() / seen.len() as f32
            })
            .collect();
        for (way, got) in all(&g, &inputs) {
            same(
                &[f32s(&[1, 1, queries, 1], &want)],
                &got,
                &format!("{way}: {queries} queries, {keys} keys, {window:?}"),
            );
        }
    }
}
