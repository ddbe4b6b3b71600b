//! Section 4: state.

use rlx::{Builder, CompileOptions, CompiledGraph, DType, Dim, Input, Module, Symbol, Tensor};

use crate::harness::{compile, f32s, numbers, session};

/// `count` becomes `count + sum(x)`; the output is the old count.
fn counter() -> CompiledGraph {
    let text = "func @main(%x: f32[n]; state %count: f32[] -> %new) -> (old: f32[], new: f32[]) {
  %sum = reduce(%x) {kind = sum, axes = [0], keep_dims = false}
  %new = add(%count, %sum)
  %old = neg(%count)
  return %old, %new
}";
    session().compile_hir(&rlx::ir::text::parse_module(text).unwrap()).unwrap()
}

fn step(p: &mut CompiledGraph, x: &[f32]) -> f32 {
    let x = f32s(&[x.len()], x);
    let out = p.run_borrowed(&[("x", Input::from(&x))]).unwrap();
    f32::from_le_bytes(out.get(1).unwrap().bytes.try_into().unwrap())
}

fn value(p: &CompiledGraph, name: &str) -> Vec<f32> {
    p.state(name).unwrap().as_slice::<f32>().unwrap().to_vec()
}

#[test]
fn spec_4_state_is_updated_across_runs_and_survives_shape_changes() {
    let mut p = counter();
    assert_eq!(value(&p, "count"), [0.0]);
    assert_eq!(step(&mut p, &[1.0, 2.0]), 3.0);
    assert_eq!(step(&mut p, &[1.0; 5]), 8.0);
    assert_eq!(step(&mut p, &[]), 8.0);
    assert_eq!(value(&p, "count"), [8.0]);
}

#[test]
fn spec_4_state_is_read_written_and_reset() {
    let mut p = counter();
    step(&mut p, &[4.0]);
    p.set_state("count", f32s(&[], &[100.0])).unwrap();
    assert_eq!(step(&mut p, &[1.0]), 101.0);
    p.reset_state("count").unwrap();
    assert_eq!((value(&p, "count"), step(&mut p, &[2.0])), (vec![0.0], 2.0));
    for e in [
        p.set_state("count", f32s(&[1], &[1.0])).unwrap_err(),
        p.set_state("count", Tensor::scalar(1i64)).unwrap_err(),
        p.set_state("cuont", Tensor::scalar(1f32)).unwrap_err(),
        p.state("cuont").unwrap_err(),
        p.reset_state("cuont").unwrap_err(),
    ] {
        assert!(e.to_string().contains("count"), "{e}");
    }
    assert_eq!(value(&p, "count"), [2.0]);
}

#[test]
fn spec_4_a_clone_has_a_state_of_its_own() {
    let mut p = counter();
    step(&mut p, &[5.0]);
    let mut q = p.clone();
    step(&mut q, &[1.0]);
    step(&mut p, &[10.0]);
    assert_eq!((value(&p, "count"), value(&q, "count")), (vec![15.0], vec![6.0]));
}

#[test]
fn spec_4_owned_runs_of_a_stateful_program_say_what_to_use() {
    let e = counter().run_tensors(&[("x", &f32s(&[1], &[1.0]))]).unwrap_err().to_string();
    assert!(e.contains("run_borrowed"), "{e}");
}

#[test]
fn spec_4_a_failed_run_says_so_and_the_next_one_is_right() {
    let mut p = counter();
    step(&mut p, &[1.0]);
    assert!(p.run_borrowed(&[("y", Input::Flat(&[1.0]))]).is_err());
    assert_eq!(step(&mut p, &[1.0]), 2.0);
}

/// One step of attention over a cache: a row of keys and values is written at `len`, then `len` grows.
fn cache(capacity: Dim, width: i64) -> Module {
    let mut b = Builder::new("main");
    let row = b.input("row", DType::F32, [1, width]).unwrap();
    let ty = |d: Vec<Dim>, t| rlx::ir::Type::tensor(t, d);
    let keys = b.graph_mut().add_state("keys", ty(vec![capacity, width.into()], DType::F32), None).unwrap();
    let len = b.graph_mut().add_state("len", ty(vec![], DType::I64), None).unwrap();
    let at = b.expand_dims(len, &[0]).unwrap();
    let zero = b.constant(Tensor::from_slice(&[1], &[0i64]).unwrap()).unwrap();
    let starts = b.concat(&[at, zero], 0).unwrap();
    let grown = b.dynamic_update_slice(keys, row, starts).unwrap();
    let one = b.constant(Tensor::scalar(1i64)).unwrap();
    let more = b.add(len, one).unwrap();
    // Attention over the rows written so far alone.
    let n = Symbol::from("used");
    let used = b.expand_dims(more, &[0]).unwrap();
    b.read_dims(used, vec![n.clone()]).unwrap();
    let seen = b.slice_axis(grown, 0, Dim::ZERO, Dim::symbol(n), 1).unwrap();
    let turned = b.transpose(seen, &[1, 0]).unwrap();
    let scores = b.matmul(row, turned).unwrap();
    let p = b.softmax(scores, 1).unwrap();
    let y = b.matmul(p, seen).unwrap();
    b.output("y", y).unwrap();
    b.graph_mut().set_state_next(0, grown).unwrap();
    b.graph_mut().set_state_next(1, more).unwrap();
    Module::from_graph(b.finish())
}

/// The same by hand, in f64.
fn attend(rows: &[Vec<f32>]) -> Vec<f64> {
    let q = rows.last().unwrap();
    let scores: Vec<f64> =
        rows.iter().map(|r| r.iter().zip(q).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()).collect();
    let top = scores.iter().fold(f64::MIN, |a, &b| a.max(b));
    let e: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
    let sum: f64 = e.iter().sum();
    (0..q.len()).map(|i| rows.iter().zip(&e).map(|(r, e)| f64::from(r[i]) * e / sum).sum()).collect()
}

#[test]
fn spec_4_a_cache_grows_a_row_a_call_and_nothing_else_is_copied() {
    const WIDTH: usize = 64;
    let mut p = session().compile_hir(&cache(512.into(), WIDTH as i64)).unwrap();
    let mut rows: Vec<Vec<f32>> = Vec::new();
    for i in 0..200 {
        let row = numbers(i, &[1, WIDTH]);
        rows.push(row.as_slice::<f32>().unwrap().to_vec());
        let before = p.stats().bytes_moved;
        let out = p.run_borrowed(&[("row", Input::from(&row))]).unwrap();
        let y: Vec<f32> =
            out.get(0).unwrap().bytes.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect();
        for (a, b) in y.iter().zip(attend(&rows)) {
            assert!((f64::from(*a) - b).abs() < 1e-5, "row {i}: {a} and {b}");
        }
        // The cache has 128 KiB; what is copied besides the kernels' work is nothing.
        let moved = p.stats().bytes_moved - before;
        assert_eq!(moved, 0, "row {i}");
    }
    assert_eq!(p.state("len").unwrap(), Tensor::scalar(200i64));
    let keys = value(&p, "keys");
    assert_eq!(keys.len(), 512 * WIDTH);
    assert_eq!(&keys[..200 * WIDTH], rows.concat());
    assert!(keys[200 * WIDTH..].iter().all(|&k| k == 0.0));
}

#[test]
fn spec_4_a_cache_of_symbolic_capacity_is_grown_by_setting_it() {
    let mut p = session().compile_hir(&cache(Dim::symbol("capacity"), 4)).unwrap();
    let zeros = |n| Tensor::zeros(DType::F32, &[n, 4]).unwrap();
    p.set_state("keys", zeros(2)).unwrap();
    let mut rows: Vec<Vec<f32>> = Vec::new();
    for i in 0..20usize {
        let held = p.state("keys").unwrap();
        if i == held.dims()[0] {
            // Twice the room, and what was there before.
            let bytes = [held.bytes(), zeros(i).bytes()].concat();
            p.set_state("keys", Tensor::from_bytes(DType::F32, &[2 * i, 4], &bytes).unwrap()).unwrap();
        }
        let row = numbers(i as u64, &[1, 4]);
        rows.push(row.as_slice::<f32>().unwrap().to_vec());
        let out = p.run_borrowed(&[("row", Input::from(&row))]).unwrap();
        let y: Vec<f32> =
            out.get(0).unwrap().bytes.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect();
        assert!(y.iter().zip(attend(&rows)).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-5), "row {i}");
    }
    assert_eq!(p.state("keys").unwrap().dims(), [32, 4]);
}

#[test]
fn spec_4_optimiser_moments_are_updated_in_place() {
    // Adam's first two moments and a weight, in one elementwise step.
    const N: usize = 1000;
    let mut b = Builder::new("main");
    let g = b.input("g", DType::F32, [N]).unwrap();
    let ty = || rlx::ir::Type::tensor(DType::F32, vec![Dim::from(N)]);
    let states: Vec<_> = ["m", "v", "w"].iter().map(|n| b.graph_mut().add_state(n, ty(), None).unwrap()).collect();
    let k = |b: &mut Builder, x: f64| b.scalar(DType::F32, x).unwrap();
    let (b1, c1, b2, c2) = (k(&mut b, 0.9), k(&mut b, 0.1), k(&mut b, 0.99), k(&mut b, 0.01));
    let (lr, eps) = (k(&mut b, 0.1), k(&mut b, 1e-8));
    let (p, q) = (b.mul(states[0], b1).unwrap(), b.mul(g, c1).unwrap());
    let m = b.add(p, q).unwrap();
    let gg = b.mul(g, g).unwrap();
    let (p, q) = (b.mul(states[1], b2).unwrap(), b.mul(gg, c2).unwrap());
    let v = b.add(p, q).unwrap();
    let root = b.sqrt(v).unwrap();
    let root = b.add(root, eps).unwrap();
    let step = b.div(m, root).unwrap();
    let step = b.mul(step, lr).unwrap();
    let w = b.sub(states[2], step).unwrap();
    for (i, next) in [m, v, w].into_iter().enumerate() {
        b.graph_mut().set_state_next(i, next).unwrap();
    }
    let mut p = compile(b.finish(), &CompileOptions::new());
    let (mut m, mut v, mut w) = (vec![0f64; N], vec![0f64; N], vec![0f64; N]);
    for i in 0..20 {
        let g = numbers(i, &[N]);
        for (j, &x) in g.as_slice::<f32>().unwrap().iter().enumerate() {
            let x = f64::from(x);
            m[j] = 0.9 * m[j] + 0.1 * x;
            v[j] = 0.99 * v[j] + 0.01 * x * x;
            w[j] -= 0.1 * m[j] / (v[j].sqrt() + 1e-8);
        }
        p.run_borrowed(&[("g", Input::from(&g))]).unwrap();
    }
    for (name, want) in [("m", &m), ("v", &v), ("w", &w)] {
        let got = value(&p, name);
        assert!(got.iter().zip(want).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-4), "{name}");
    }
    assert_eq!(p.stats().bytes_moved, 0, "moments are written where they lie");
}

#[test]
fn spec_4_states_that_swap_or_are_given_out_keep_their_old_values() {
    // a ← b, b ← a + b, and the old a is an output: nothing may be written before it is read.
    let text = "func @main(; state %a: i64[] = i64[](0) -> %b, state %b: i64[] = i64[](1) -> %c) -> (a: i64[]) {
  %c = add(%a, %b)
  return %a
}";
    let mut p = session().compile_hir(&rlx::ir::text::parse_module(text).unwrap()).unwrap();
    let fibonacci: Vec<i64> = (0..12)
        .map(|_| i64::from_le_bytes(p.run_borrowed(&[]).unwrap().get(0).unwrap().bytes.try_into().unwrap()))
        .collect();
    assert_eq!(fibonacci, [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]);
}
