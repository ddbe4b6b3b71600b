//! Section 5: dynamic shapes.

use std::sync::Arc;

use rlx::runtime::MissReason;
use rlx::{
    Builder, CompileOptions, CompiledGraph, DType, Device, Dim, DimBinding, Graph, Input, Module, Session, Symbol,
    Tensor, register_backend,
};

use crate::backends::Lesser;
use crate::harness::{compile, dense, f32s, numbers, oracle, same, session};

fn binding(list: &[(&str, i64)]) -> DimBinding {
    list.iter().map(|&(s, n)| (s, n)).collect()
}

/// `z[a, b] = softmax(x[a, b] + y[b]) · s`, where `b` and `a` stand in several inputs, and a third input has a composite dim.
fn several() -> Graph {
    let mut b = Builder::new("main");
    let (m, n) = (Dim::symbol("a"), Dim::symbol("b"));
    let x = b.input("x", DType::F32, [m.clone(), n.clone()]).unwrap();
    let y = b.input("y", DType::F32, [n.clone()]).unwrap();
    let t = b.input("t", DType::F32, [m.clone() * 2 + 1, n.clone()]).unwrap();
    let z = b.add(x, y).unwrap();
    let z = b.softmax(z, 1).unwrap();
    let part = b.slice_axis(t, 0, Dim::ONE, m + 1, 1).unwrap();
    let z = b.mul(z, part).unwrap();
    b.output("z", z).unwrap();
    b.finish()
}

fn several_inputs(a: usize, b: usize) -> Vec<Tensor> {
    vec![numbers(1, &[a, b]), numbers(2, &[b]), numbers(3, &[2 * a + 1, b])]
}

fn run(p: &CompiledGraph, inputs: &[Tensor]) -> Vec<Tensor> {
    let named: Vec<(&str, &Tensor)> = ["x", "y", "t"].into_iter().zip(inputs).collect();
    p.run_tensors(&named).unwrap()
}

#[test]
fn spec_5_several_symbols_are_solved_from_all_inputs_together() {
    let p = compile(several(), &CompileOptions::new());
    for (a, b) in [(1, 1), (3, 5), (2, 17), (0, 4), (4, 0), (0, 0), (5, 3)] {
        let inputs = several_inputs(a, b);
        same(&oracle(&several(), &inputs, &[]), &run(&p, &inputs), &format!("{a}x{b}"));
    }
}

#[test]
fn spec_5_conflicts_name_both() {
    let p = compile(several(), &CompileOptions::new());
    let mut inputs = several_inputs(2, 3);
    inputs[1] = numbers(1, &[4]);
    let named: Vec<(&str, &Tensor)> = ["x", "y", "t"].into_iter().zip(&inputs).collect();
    let e = p.run_tensors(&named).unwrap_err().to_string();
    assert!(e.contains("input `x` axis 1") && e.contains("input `y` axis 0"), "{e}");
    inputs[1] = numbers(1, &[3]);
    inputs[2] = numbers(1, &[6, 3]);
    let named: Vec<(&str, &Tensor)> = ["x", "y", "t"].into_iter().zip(&inputs).collect();
    let e = p.run_tensors(&named).unwrap_err().to_string();
    assert!(e.contains("input `t` axis 0") && e.contains("2*a"), "{e}");
}

#[test]
fn spec_5_explicit_bindings_are_accepted_and_checked() {
    // `k` stands in no input alone: only a binding makes it known.
    let mut b = Builder::new("main");
    let k = Dim::symbol("k");
    let x = b.input("x", DType::F32, [k.clone() * Dim::symbol("j")]).unwrap();
    let y = b.reshape(x, [k, Dim::symbol("j")]).unwrap();
    let y = b.reduce_mean(y, &[1], false).unwrap();
    b.output("y", y).unwrap();
    let g = b.finish();
    let x = f32s(&[6], &[1., 2., 3., 4., 5., 6.]);
    let e = compile(g.clone(), &CompileOptions::new()).run_tensors(&[("x", &x)]).unwrap_err().to_string();
    assert!(e.contains("bind it explicitly"), "{e}");
    let p = compile(g, &CompileOptions::new().bind_dim("k", 2));
    assert_eq!(p.run_tensors(&[("x", &x)]).unwrap()[0].as_slice::<f32>().unwrap().to_vec(), [2.0, 5.0]);
    assert!(p.run_tensors(&[("x", &f32s(&[7], &[0.0; 7]))]).is_err());
    let fixed = compile(dense(), &CompileOptions::new().bind_dim("n", 2));
    let e = fixed.run_tensors(&[("x", &numbers(1, &[3, 4]))]).unwrap_err().to_string();
    assert!(e.contains("input `x` axis 0") && e.contains('3') && e.contains('2'), "{e}");
}

#[test]
fn spec_5_alternating_shapes_miss_twice_in_a_thousand_runs() {
    let mut p = compile(several(), &CompileOptions::new());
    let shapes = [several_inputs(2, 5), several_inputs(3, 4)];
    for i in 0..1000 {
        let [x, y, t] = &shapes[i % 2][..] else { panic!() };
        p.run_raw(&[x.into(), y.into(), t.into()]).unwrap();
    }
    let s = p.stats();
    assert_eq!((s.binds, s.bind_hits, s.bind_entries, s.bind_evictions), (2, 998, 2, 0));
    let misses = p.bind_misses();
    assert_eq!(misses.iter().map(|m| m.reason).collect::<Vec<_>>(), [MissReason::First, MissReason::NewSizes]);
    assert_eq!(misses[1].sizes, [("a".to_string(), 3), ("b".to_string(), 4)].into());
    assert!(misses.iter().all(|m| m.program == "main" && m.bytes > 0));
}

#[test]
fn spec_5_the_cache_is_bounded_and_says_why_it_missed() {
    let p = compile(several(), &CompileOptions::new().bind_cache(3));
    for n in [1, 2, 3, 1, 4, 2, 1] {
        run(&p, &several_inputs(n, 2));
    }
    use MissReason::{EvictedByCount, First, NewSizes};
    let reasons: Vec<MissReason> = p.bind_misses().iter().map(|m| m.reason).collect();
    assert_eq!(reasons, [First, NewSizes, NewSizes, NewSizes, EvictedByCount]);
    assert_eq!((p.stats().bind_entries, p.stats().bind_hits), (3, 2));
}

#[test]
fn spec_5_two_thousand_lengths_leave_the_cache_flat() {
    let p = compile(dense(), &CompileOptions::new().bind_cache(16));
    let mut most = 0;
    for n in 1..=2000usize {
        p.run_tensors(&[("x", &numbers(1, &[n, 4]))]).unwrap();
        most = most.max(p.stats().bind_bytes);
    }
    let s = p.stats();
    assert_eq!((s.bind_entries, s.bind_evictions, s.prepares), (16, 1984, 1));
    assert!(most < 1 << 20, "{most} bytes of bindings");
    assert_eq!(p.bind_misses().len(), 64, "misses are kept to the latest few");
}

#[test]
fn spec_5_prepare_for_warms_up() {
    let mut p = compile(several(), &CompileOptions::new());
    p.prepare_for(&binding(&[("a", 2), ("b", 5)])).unwrap();
    let before = p.stats();
    run(&p, &several_inputs(2, 5));
    let after = p.stats();
    assert_eq!((before.binds, after.binds, after.bind_hits), (1, 1, 1));
    let e = p.prepare_for(&binding(&[("a", 2)])).unwrap_err().to_string();
    assert!(e.contains('b'), "{e}");
    assert!(p.prepare_for(&binding(&[("a", -2), ("b", 1)])).is_err());
}

#[test]
fn spec_5_parameters_and_state_are_unchanged_by_a_shape_change() {
    let mut p = compile(dense(), &CompileOptions::new());
    p.set_param("w", &[2.0; 12]).unwrap();
    p.run_tensors(&[("x", &numbers(1, &[3, 4]))]).unwrap();
    let held = p.stats().prepared_bytes;
    let w = Tensor::full(DType::F32, &[4, 3], 2.0).unwrap();
    for n in [1, 9, 2] {
        let x = numbers(n as u64, &[n, 4]);
        same(
            &oracle(&dense(), std::slice::from_ref(&x), &[("w", w.clone())]),
            &p.run_tensors(&[("x", &x)]).unwrap(),
            "set",
        );
        assert_eq!((p.stats().prepares, p.stats().prepared_bytes), (1, held), "weights are held once");
    }
}

#[test]
fn spec_5_sizes_that_depend_on_data_are_handled_at_run_time() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n")]).unwrap();
    let at = b.nonzero(x, "found").unwrap();
    let at = b.transpose(at, &[1, 0]).unwrap();
    let y = b.gather_nd(x, at, 0).unwrap();
    let z = b.softmax(y, 0).unwrap();
    b.output("y", y).unwrap();
    b.output("z", z).unwrap();
    let g = b.finish();
    let p = compile(g.clone(), &CompileOptions::new());
    for v in [&[0.0, 1.0, 0.0, 2.0][..], &[0.0; 4], &[3.0; 4], &[], &[0.0, 0.0, 0.0, 7.0]] {
        let x = f32s(&[v.len()], v);
        same(&oracle(&g, std::slice::from_ref(&x), &[]), &p.run_tensors(&[("x", &x)]).unwrap(), &format!("{v:?}"));
    }
}

#[test]
fn spec_5_compiled_once_where_shapes_are_symbolic() {
    // Passes are counted for the process, and other tests run: what this program's report says is its own.
    let p = compile(several(), &CompileOptions::new());
    let passes = p.report().passes.len();
    for n in 1..20 {
        run(&p, &several_inputs(n, 3));
    }
    assert_eq!(p.report().passes.len(), passes);
    // `tests/shapes` counts pass runs in a process of its own.
}

pub fn fixed_sizes_only(device: Device) -> (Session, Arc<Lesser>) {
    let backend = Arc::new(Lesser { symbolic: false, ..Lesser::new("fixed") });
    register_backend(device, backend.clone());
    (Session::new(device).unwrap(), backend)
}

#[test]
fn spec_5_elsewhere_programs_are_specialised_per_binding() {
    let (s, backend) = fixed_sizes_only(Device::WebGpu);
    let p = s.compile_with(several(), &CompileOptions::new().bind_cache(2)).unwrap();
    for (a, b) in [(2, 5), (3, 4), (2, 5), (3, 4), (2, 5)] {
        let inputs = several_inputs(a, b);
        same(&oracle(&several(), &inputs, &[]), &run(&p, &inputs), "fixed");
    }
    let compiled = || backend.compiled.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!((compiled(), p.stats().binds, p.stats().bind_hits), (2, 2, 3));
    run(&p, &several_inputs(1, 1));
    run(&p, &several_inputs(3, 4));
    assert_eq!(compiled(), 4, "the least recently used went");
    let reasons: Vec<MissReason> = p.bind_misses().iter().map(|m| m.reason).collect();
    assert_eq!(reasons, [MissReason::First, MissReason::NewSizes, MissReason::NewSizes, MissReason::EvictedByCount]);
    // The same errors.
    let mut inputs = several_inputs(2, 3);
    inputs[1] = numbers(1, &[4]);
    let named: Vec<(&str, &Tensor)> = ["x", "y", "t"].into_iter().zip(&inputs).collect();
    let e = p.run_tensors(&named).unwrap_err().to_string();
    assert!(e.contains("input `x` axis 1") && e.contains("input `y` axis 0"), "{e}");
}

#[test]
fn spec_5_specialised_programs_share_parameters_and_keep_state() {
    let (s, _) = fixed_sizes_only(Device::Vulkan);
    let mut p = s.compile(dense()).unwrap();
    let mut params: Vec<(&str, Tensor)> = Vec::new();
    for (i, n) in [2usize, 5, 2, 5, 2].into_iter().enumerate() {
        let x = numbers(i as u64, &[n, 4]);
        same(&oracle(&dense(), std::slice::from_ref(&x), &params), &p.run_tensors(&[("x", &x)]).unwrap(), "param");
        let w = numbers(90 + i as u64, &[4, 3]);
        p.set_param_shaped("w", w.clone()).unwrap();
        params = vec![("w", w)];
    }
    let mut q = p.clone();
    q.set_param("w", &[0.0; 12]).unwrap();
    let x = numbers(1, &[3, 4]);
    same(&oracle(&dense(), std::slice::from_ref(&x), &params), &p.run_tensors(&[("x", &x)]).unwrap(), "original");

    let text = "func @main(%x: f32[n]; state %count: f32[] -> %new) -> (new: f32[]) {
  %sum = reduce(%x) {kind = sum, axes = [0], keep_dims = false}
  %new = add(%count, %sum)
  return %new
}";
    let mut p = s.compile_hir(&rlx::ir::text::parse_module(text).unwrap()).unwrap();
    let mut total = 0.0;
    for n in [1usize, 3, 1, 4, 3] {
        total += n as f32;
        let x = f32s(&[n], &vec![1.0; n]);
        let out = p.run_borrowed(&[("x", Input::from(&x))]).unwrap();
        assert_eq!(out.get(0).unwrap().bytes, total.to_le_bytes());
    }
    assert_eq!(p.state("count").unwrap(), Tensor::scalar(total));
    p.set_state("count", Tensor::scalar(10f32)).unwrap();
    let x = f32s(&[2], &[1.0, 1.0]);
    assert_eq!(p.run_borrowed(&[("x", Input::from(&x))]).unwrap().get(0).unwrap().bytes, 12f32.to_le_bytes());
    let mut q = p.clone();
    q.reset_state("count").unwrap();
    assert_eq!((p.state("count").unwrap(), q.state("count").unwrap()), (Tensor::scalar(12f32), Tensor::scalar(0f32)));
}

#[test]
fn spec_5_a_malformed_symbolic_graph_is_an_error_of_compiling() {
    let (s, backend) = fixed_sizes_only(Device::Mlx);
    let m = Module {
        stage: rlx::ir::Stage::Mir { target: "x".into(), claims: Default::default() },
        ..Module::from_graph(several())
    };
    assert!(s.compile_module(&m).is_err());
    assert_eq!(backend.compiled.load(std::sync::atomic::Ordering::Relaxed), 0);
    let _ = (Symbol::from("n"), session());
}
