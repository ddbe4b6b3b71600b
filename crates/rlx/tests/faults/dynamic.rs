//! Faults 7 to 13: dynamic shapes.

use rlx::{Builder, CompileOptions, CompiledGraph, DType, Dim, Graph, Input, RngOptions, Tensor, TensorRef};

use crate::harness::{compile, dense, f32s, numbers, oracle, same, session};

fn run1(p: &CompiledGraph, x: &Tensor) -> Vec<Tensor> {
    p.run_tensors(&[("x", x)]).unwrap()
}

/// Fault 7: One cached specialisation: alternating two lengths recompiles at every run.
#[test]
fn fault_07_alternating_lengths_do_not_recompile() {
    let p = compile(dense(), &CompileOptions::new());
    let x = [numbers(1, &[16, 4]), numbers(2, &[8, 4])];
    for i in 0..200 {
        run1(&p, &x[i % 2]);
    }
    // Main twice, prepare once.
    assert_eq!((p.stats().binds, p.stats().prepares), (3, 1));
}

/// Fault 8: Shapes known only from element counts: one dynamic dim an input; an explicit binding is ignored.
#[test]
fn fault_08_any_number_of_dynamic_dims_an_input_and_bindings_hold() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("a"), Dim::symbol("b"), Dim::symbol("c")]).unwrap();
    let y = b.reduce_mean(x, &[1], false).unwrap();
    b.output("y", y).unwrap();
    let g = b.finish();
    let p = compile(g.clone(), &CompileOptions::new());
    for dims in [[2, 3, 4], [4, 3, 2], [1, 24, 1], [24, 1, 1]] {
        let x = numbers(3, &dims);
        same(&oracle(&g, std::slice::from_ref(&x), &[]), &run1(&p, &x), "same count, other shape");
    }
    let p = compile(g, &CompileOptions::new().bind_dim("b", 3));
    assert!(p.run_tensors(&[("x", &numbers(3, &[2, 4, 3]))]).is_err());
}

/// Fault 9: Zero-length, non-divisible, conflicting or missing inputs panic.
#[test]
fn fault_09_odd_sizes_are_results_or_errors() {
    let mut b = Builder::new("main");
    let n = Dim::symbol("n");
    let x = b.input("x", DType::F32, [n.clone() * 3]).unwrap();
    let y = b.input("y", DType::F32, [n.clone()]).unwrap();
    let x = b.reshape(x, [n, 3.into()]).unwrap();
    let s = b.reduce_mean(x, &[1], false).unwrap();
    let z = b.add(s, y).unwrap();
    b.output("z", z).unwrap();
    let p = compile(b.finish(), &CompileOptions::new());
    assert_eq!(p.run(&[("x", &[]), ("y", &[])]).unwrap(), [vec![0f32; 0]]);
    let e = |inputs: &[(&str, &[f32])]| p.run(inputs).unwrap_err().to_string();
    assert!(e(&[("x", &[1.0; 7]), ("y", &[1.0; 2])]).contains("input `x`"));
    assert!(e(&[("x", &[1.0; 6]), ("y", &[1.0; 3])]).contains("input `y`"));
    assert!(e(&[("x", &[1.0; 6])]).contains("input `y` (f32[n]) is missing"));
    let unshaped = [("x", &f32s(&[7], &[0.0; 7])), ("y", &f32s(&[2], &[0.0; 2]))];
    assert!(p.run_tensors(&unshaped).is_err());
}

/// Sizes in attributes of reshape, broadcast, slice and concat, at the top and inside a branch.
fn attributes() -> Graph {
    let mut b = Builder::new("main");
    let n = Dim::symbol("n");
    let x = b.input("x", DType::F32, [n.clone(), 4.into()]).unwrap();
    let c = b.input("c", DType::Bool, [0; 0]).unwrap();
    let block = |b: &mut Builder, x: rlx::ir::ValueId| {
        let n = Dim::symbol("n");
        let flat = b.reshape(x, [n.clone() * 4])?;
        let twice = b.concat(&[flat, flat], 0)?;
        let part = b.slice_axis(twice, 0, n.clone(), n.clone() * 5, 1)?;
        let one = b.scalar(DType::F32, 2.0)?;
        let wide = b.broadcast_to(one, [n * 4])?;
        b.mul(part, wide)
    };
    let top = block(&mut b, x).unwrap();
    let inside = b
        .if_(c, &[x], |b, a| Ok(vec![block(b, a[0])?]), |b, a| Ok(vec![b.reshape(a[0], [Dim::symbol("n") * 4])?]))
        .unwrap();
    b.output("top", top).unwrap();
    b.output("inside", inside[0]).unwrap();
    b.finish()
}

/// Fault 10: Sizes held in attributes are not re-derived after binding; nested bodies are not visited.
#[test]
fn fault_10_sizes_in_attributes_follow_the_shapes_in_nested_bodies_too() {
    let g = attributes();
    let p = compile(g.clone(), &CompileOptions::new());
    for n in [3usize, 1, 7, 0, 3] {
        for c in [true, false] {
            let inputs = [numbers(n as u64, &[n, 4]), Tensor::from_bools(&[], &[c]).unwrap()];
            let got = p.run_tensors(&[("x", &inputs[0]), ("c", &inputs[1])]).unwrap();
            same(&oracle(&g, &inputs, &[]), &got, &format!("n = {n}, {c}"));
        }
    }
}

/// Fault 11: Weights held twice and uploaded again per shape. Values set typed and then as f32 are replayed in the wrong order.
#[test]
fn fault_11_weights_are_held_once_and_the_last_value_stays_after_shape_changes() {
    let mut p = compile(dense(), &CompileOptions::new());
    let (a, b) = (numbers(1, &[4, 3]), numbers(2, &[4, 3]));
    p.set_param_typed("w", DType::F32, a.bytes()).unwrap();
    p.set_param("w", &b.as_slice::<f32>().unwrap()).unwrap();
    let mut held = None;
    for n in [2, 5, 2, 9] {
        let x = numbers(n as u64, &[n, 4]);
        same(&oracle(&dense(), std::slice::from_ref(&x), &[("w", b.clone())]), &run1(&p, &x), "last set");
        assert_eq!(*held.get_or_insert(p.stats().prepared_bytes), p.stats().prepared_bytes);
    }
    // And the other way round.
    p.set_param_typed("w", DType::F32, a.bytes()).unwrap();
    let x = numbers(3, &[3, 4]);
    same(&oracle(&dense(), std::slice::from_ref(&x), &[("w", a)]), &run1(&p, &x), "typed last");
}

/// Fault 12: Unknown names and wrong lengths accepted silently; clone panics; raw access without error; state, handles and RNG position lost.
#[test]
fn fault_12_nothing_is_accepted_silently_and_nothing_is_lost_at_a_shape_change() {
    let mut p = compile(dense(), &CompileOptions::new());
    assert!(p.set_param("nobody", &[1.0]).is_err() && p.set_param("w", &[1.0]).is_err());
    // Raw access with too few, too many or wrong inputs is an error, never an empty list.
    let x = numbers(1, &[2, 4]);
    assert!(p.run_raw(&[]).is_err());
    assert!(p.run_raw(&[(&x).into(), (&x).into()]).is_err());
    assert!(p.run_raw(&[TensorRef { dtype: DType::F64, ..(&x).into() }]).is_err());
    assert_eq!(p.run_raw(&[(&x).into()]).unwrap().len(), 2);
    let mut q = p.clone();
    assert_eq!(q.run_raw(&[(&x).into()]).unwrap().len(), 2);

    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n")]).unwrap();
    let key = b.rng_key().unwrap();
    let u = b.random_unit(key, DType::F32, [Dim::symbol("n")], 0).unwrap();
    let y = b.add(x, u).unwrap();
    b.output("y", y).unwrap();
    let mut p = compile(b.finish(), &CompileOptions::new().rng(Some(RngOptions { seed: 4, offset: 9 })));
    for (i, n) in [3usize, 5, 3, 1].into_iter().enumerate() {
        // The option is not overwritten by the default, and the position goes on over shapes.
        assert_eq!(p.rng().unwrap(), Some(RngOptions { seed: 4, offset: 9 + i as u64 }));
        let x = f32s(&[n], &vec![0.0; n]);
        p.run_borrowed(&[("x", Input::from(&x))]).unwrap();
    }
}

/// Fault 13: All passes rerun per shape although only sizes changed; no way to warm up. (`tests/shapes` counts pass runs.)
#[test]
fn fault_13_shapes_are_bound_not_compiled_and_can_be_warmed_up() {
    let mut p = session().compile(dense()).unwrap();
    p.finalize_params().unwrap();
    p.prepare_for(&[("n", 12)].into_iter().collect()).unwrap();
    let binds = p.stats().binds;
    run1(&p, &numbers(1, &[12, 4]));
    assert_eq!((p.stats().binds, p.stats().bind_hits), (binds, 1));
}
