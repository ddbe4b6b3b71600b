//! Section 4: inputs, ways of running, boundary dtypes, ports, clones, threads, reports.

use std::sync::Arc;

use half::{bf16, f16};
use rlx::ir::IrError;
use rlx::runtime::Extent;
use rlx::{
    Builder, CompileOptions, CompiledGraph, DType, Dim, Error, Fusion, Graph, Input, InputProblem, RunError, Tensor,
    TensorMut, TensorRef,
};

use crate::harness::{compile, dense, f32s, numbers, oracle, same, session, two_outputs};
use crate::spec3_prepare::WAYS;

fn problems(e: Error) -> Vec<InputProblem> {
    match e {
        Error::Run(RunError::Inputs(p)) => p,
        other => panic!("{other}"),
    }
}

/// `y[n, m] = a[n] ⊗ b[m]`, `k` an integer.
fn outer() -> CompiledGraph {
    let mut b = Builder::new("main");
    let (n, m) = (Dim::symbol("n"), Dim::symbol("m"));
    let x = b.input("a", DType::F32, [n.clone()]).unwrap();
    let y = b.input("b", DType::F32, [m.clone()]).unwrap();
    let k = b.input("k", DType::I64, [0; 0]).unwrap();
    let x = b.reshape(x, [n, Dim::ONE]).unwrap();
    let y = b.reshape(y, [Dim::ONE, m]).unwrap();
    let z = b.mul(x, y).unwrap();
    b.output("z", z).unwrap();
    b.output("k", k).unwrap();
    compile(b.finish(), &CompileOptions::new())
}

#[test]
fn spec_4_everything_wrong_with_inputs_is_one_error() {
    let p = outer();
    let (t, wrong) = (numbers(1, &[3]), numbers(1, &[3, 1]));
    let k = Tensor::scalar(1i32);
    let e = problems(p.run_tensors(&[("a", &wrong), ("a", &t), ("q", &t), ("k", &k)]).unwrap_err());
    let has = |f: &dyn Fn(&InputProblem) -> bool| e.iter().any(f);
    assert!(has(
        &|p| matches!(p, InputProblem::Unknown { name, known, .. } if name == "q" && known == &["a", "b", "k"])
    ));
    assert!(has(&|p| matches!(p, InputProblem::Duplicate { name, .. } if name == "a")));
    assert!(has(&|p| matches!(p, InputProblem::Missing { name, expected, .. } if name == "b" && expected == "f32[m]")));
    assert!(has(
        &|p| matches!(p, InputProblem::DType { name, expected: DType::I64, got: DType::I32, .. } if name == "k")
    ));
    assert!(has(&|p| matches!(p, InputProblem::Shape { name, got, .. } if name == "a" && got == &[3, 1])));
    let fixed = compile(dense(), &CompileOptions::new());
    let e = fixed.run_tensors(&[("x", &numbers(1, &[2, 5]))]).unwrap_err().to_string();
    assert!(e.contains("input `x` axis 1") && e.contains('5') && e.contains('4'), "{e}");
}

#[test]
fn spec_4_flat_slices_are_accepted_where_shapes_are_unique() {
    let p = compile(dense(), &CompileOptions::new());
    assert_eq!(p.run(&[("x", &[0.5; 12])]).unwrap()[0].len(), 9);
    let e = p.run(&[("x", &[0.5; 13])]).unwrap_err().to_string();
    assert!(e.contains("length of input `x`"), "{e}");
    // Two open dims in one input: its length says too little.
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("r"), Dim::symbol("c")]).unwrap();
    let y = b.neg(x).unwrap();
    b.output("y", y).unwrap();
    let p = compile(b.finish(), &CompileOptions::new());
    let e = p.run(&[("x", &[1.0; 6])]).unwrap_err().to_string();
    assert!(e.contains("open") && e.contains("pass tensors with shapes"), "{e}");
}

#[test]
fn spec_4_all_ways_of_running_agree() {
    for options in [CompileOptions::new(), CompileOptions::new().unoptimised(), CompileOptions::new().threads(1)] {
        let mut p = compile(dense(), &options);
        for n in [1, 5, 16, 0, 33] {
            let x = numbers(n as u64, &[n, 4]);
            let want = p.run_tensors(&[("x", &x)]).unwrap();
            same(&oracle(&dense(), std::slice::from_ref(&x), &[]), &want, "evaluator");
            // Flat data of no element says nothing of the other axis' length, so that it is shaped here.
            for (way, run) in WAYS.iter().filter(|(w, _)| n > 0 || !["run", "run_typed"].contains(w)) {
                assert_eq!(run(&mut p, &x), want, "{way} with n = {n}");
            }
        }
    }
}

#[test]
fn spec_4_read_outputs_keeps_order_allows_repeats_and_refuses_what_is_not_there() {
    let p = compile(two_outputs(), &CompileOptions::new());
    let x = f32s(&[3], &[0.0, 1.0, 2.0]);
    let input = [("x", Input::from(&x))];
    let all = p.run_read_outputs(&input, None).unwrap();
    assert_eq!(all.len(), 3);
    let some = p.run_read_outputs(&input, Some(&[2, 0, 2, 1, 0])).unwrap();
    assert_eq!(some, [&all[2], &all[0], &all[2], &all[1], &all[0]].map(Clone::clone));
    assert_eq!(p.run_read_outputs(&input, Some(&[])).unwrap(), []);
    let e = problems(p.run_read_outputs(&input, Some(&[0, 3, 9])).unwrap_err());
    assert_eq!(e.len(), 2);
    assert!(matches!(&e[0], InputProblem::Unknown { kind: "output", known, .. } if known.len() == 3), "{e:?}");
}

#[test]
fn spec_4_kernels_of_unread_outputs_do_not_run() {
    let p = compile(two_outputs(), &CompileOptions::new().fusion(Fusion::Off));
    let x = f32s(&[3], &[0.0, 1.0, 2.0]);
    let ran = |read: Option<&[usize]>| {
        let before = p.stats().kernels;
        p.run_read_outputs(&[("x", Input::from(&x))], read).unwrap();
        p.stats().kernels - before
    };
    let (all, exp, softmax, input) = (ran(None), ran(Some(&[0])), ran(Some(&[1])), ran(Some(&[2])));
    assert_eq!((exp, input), (1, 0));
    assert!(softmax >= 1 && all == exp + softmax, "{all} {exp} {softmax}");
}

#[test]
fn spec_4_ragged_bytes_are_an_error() {
    let p = compile(dense(), &CompileOptions::new());
    for n in [1, 15, 47, 49] {
        let e = p.run_typed(&[("x", DType::F32, &vec![0; n])]).unwrap_err().to_string();
        assert!(e.contains("whole f32s"), "{e}");
    }
    // With a shape the length has to be exact.
    for n in [0, 47, 49, 64] {
        let bytes = vec![0; n];
        let t = TensorRef { dtype: DType::F32, dims: &[3, 4], bytes: &bytes };
        let e = problems(p.run_read_outputs(&[("x", t.into())], None).unwrap_err());
        assert!(matches!(&e[..], [InputProblem::Length { expected: 48, .. }]), "{e:?}");
    }
}

#[test]
fn spec_4_elements_below_a_byte_are_packed_low_nibble_first() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::U4, [Dim::symbol("n")]).unwrap();
    let y = b.convert(x, DType::I32).unwrap();
    b.output("y", y).unwrap();
    let p = compile(b.finish(), &CompileOptions::new());
    let t = TensorRef { dtype: DType::U4, dims: &[3], bytes: &[0x21, 0x03] };
    let y = p.run_read_outputs(&[("x", t.into())], None).unwrap();
    assert_eq!(y[0].as_slice::<i32>().unwrap().to_vec(), [1, 2, 3]);
}

#[test]
fn spec_4_f32_entry_points_convert_halves_to_nearest_even() {
    fn edges(unit: f32) -> Vec<f32> {
        let mut v = vec![0.0, -0.0, f32::INFINITY, f32::NAN, 1e30, -1e30, 1e-40];
        v.extend((0..64).map(|i| 1.0 + i as f32 * unit / 4.0));
        v
    }
    for dtype in [DType::F16, DType::BF16] {
        let mut b = Builder::new("main");
        let x = b.input("x", dtype, [Dim::symbol("n")]).unwrap();
        b.output("y", x).unwrap();
        let p = compile(b.finish(), &CompileOptions::new());
        let x = edges(if dtype == DType::F16 { 9.8e-4 } else { 7.8e-3 });
        let want: Vec<f32> = x
            .iter()
            .map(|&v| if dtype == DType::F16 { f16::from_f32(v).to_f32() } else { bf16::from_f32(v).to_f32() })
            .collect();
        let got = p.run(&[("x", &x)]).unwrap();
        for (w, g) in want.iter().zip(&got[0]) {
            assert!(w.to_bits() == g.to_bits() || (w.is_nan() && g.is_nan()), "{dtype}: {w} and {g}");
        }
    }
}

#[test]
fn spec_4_f64_and_integers_never_pass_through_f32() {
    for dtype in [DType::F64, DType::I64, DType::I32, DType::U64] {
        let mut b = Builder::new("main");
        let x = b.input("x", dtype, [Dim::symbol("n")]).unwrap();
        let w = b.param("w", dtype, [1]).unwrap();
        let y = b.add(x, w).unwrap();
        b.output("y", y).unwrap();
        let mut p = compile(b.finish(), &CompileOptions::new());
        assert!(matches!(&problems(p.set_param("w", &[0.0]).unwrap_err())[..], [InputProblem::DType { .. }]));
        p.set_param_shaped("w", Tensor::zeros(dtype, &[1]).unwrap()).unwrap();
        assert!(matches!(&problems(p.run(&[("x", &[1.0])]).unwrap_err())[..], [InputProblem::DType { .. }]));
        // 2²⁴ + 1 and 1 + 2⁻⁴⁰ have no f32.
        let exact = match dtype {
            DType::F64 => Tensor::from_slice(&[2], &[16_777_217.0f64, 1.0 + 2f64.powi(-40)]),
            DType::I64 => Tensor::from_slice(&[2], &[16_777_217i64, i64::MAX]),
            DType::U64 => Tensor::from_slice(&[2], &[16_777_217u64, u64::MAX]),
            _ => Tensor::from_slice(&[2], &[16_777_217i32, i32::MAX]),
        }
        .unwrap();
        assert_eq!(p.run_tensors(&[("x", &exact)]).unwrap()[0], exact);
        assert_eq!(p.run_typed(&[("x", dtype, exact.bytes())]).unwrap(), [exact]);
    }
}

#[test]
fn spec_4_ports_have_names_dtypes_and_symbolic_shapes() {
    let p = outer();
    let text =
        |ports: &[rlx::runtime::PortInfo]| ports.iter().map(|p| format!("{}: {}", p.name, p.ty)).collect::<Vec<_>>();
    assert_eq!(text(p.inputs()), ["a: f32[n]", "b: f32[m]", "k: i64[]"]);
    assert_eq!(text(p.outputs()), ["z: f32[n, m]", "k: i64[]"]);
    let d = compile(dense(), &CompileOptions::new());
    let mut params = text(d.params());
    params.sort();
    assert_eq!(params, ["c: f32[3]", "k: f32[4, 3]", "w: f32[4, 3]"]);
    assert!(d.params().iter().all(|p| p.has_default));
}

#[test]
fn spec_4_outputs_in_the_callers_memory_are_checked_and_complete() {
    let mut p = compile(dense(), &CompileOptions::new());
    let x = numbers(1, &[2, 4]);
    let want = p.run_tensors(&[("x", &x)]).unwrap();
    // Memory of odd alignment, with a border that must stay.
    let mut memory = [0xaau8; 60];
    let mut other = [0u8; 24];
    {
        let y = TensorMut { dtype: DType::F32, dims: &[2, 3], bytes: &mut memory[13..37] };
        let z = TensorMut { dtype: DType::F32, dims: &[2, 3], bytes: &mut other };
        p.run_into(&[(&x).into()], &mut [y, z]).unwrap();
    }
    assert_eq!(&memory[13..37], want[0].bytes());
    assert_eq!(other, want[1].bytes());
    assert!(memory[..13].iter().chain(&memory[37..]).all(|&b| b == 0xaa));
    let mut bad = |dtype, dims: &[usize], len: usize| {
        let (mut a, mut b) = (vec![0; len], vec![0; 24]);
        let y = TensorMut { dtype, dims, bytes: &mut a };
        let z = TensorMut { dtype: DType::F32, dims: &[2, 3], bytes: &mut b };
        p.run_into(&[(&x).into()], &mut [y, z]).unwrap_err()
    };
    assert!(bad(DType::I32, &[2, 3], 24).to_string().contains("f32"));
    assert!(bad(DType::F32, &[3, 2], 24).to_string().contains("[2, 3]"));
    assert!(bad(DType::F32, &[2, 3], 20).to_string().contains("24 bytes"));
    assert!(p.run_into(&[(&x).into()], &mut []).is_err());
}

#[test]
fn spec_4_one_program_runs_on_many_threads_with_weights_held_once() {
    fn sync<T: Send + Sync>(_: &T) {}
    let p = compile(dense(), &CompileOptions::new());
    sync(&p);
    let inputs: Vec<Tensor> = (0..16).map(|i| numbers(i, &[1 + i as usize % 5, 4])).collect();
    let want: Vec<Vec<Tensor>> = inputs.iter().map(|x| p.run_tensors(&[("x", x)]).unwrap()).collect();
    let before = p.stats();
    let (p, inputs, want) = (Arc::new(p), Arc::new(inputs), Arc::new(want));
    let threads: Vec<_> = (0..16usize)
        .map(|t| {
            let (p, inputs, want) = (p.clone(), inputs.clone(), want.clone());
            std::thread::spawn(move || {
                for run in 0..500 {
                    let i = (t + run) % inputs.len();
                    assert_eq!(p.run_tensors(&[("x", &inputs[i])]).unwrap(), want[i], "thread {t}, run {run}");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    let after = p.stats();
    assert_eq!((after.prepares, after.binds, after.runs - before.runs), (1, before.binds, 8000));
    assert_eq!(after.prepared_bytes, before.prepared_bytes);
}

#[test]
fn spec_4_a_clone_shares_program_and_weights_and_works_for_dynamic_graphs() {
    let p = compile(dense(), &CompileOptions::new());
    p.run_tensors(&[("x", &numbers(1, &[3, 4]))]).unwrap();
    let held = p.stats().prepared_bytes;
    let clones: Vec<CompiledGraph> = (0..3).map(|_| p.clone()).collect();
    std::thread::scope(|s| {
        for (i, mut c) in clones.into_iter().enumerate() {
            s.spawn(move || {
                for n in 1..20 {
                    let x = numbers(n as u64, &[n + i, 4]);
                    let out = c.run_borrowed(&[("x", Input::from(&x))]).unwrap();
                    assert_eq!(out.get(0).unwrap().dims, [n + i, 3]);
                }
                // It prepared nothing of its own: what the original has packed and prepared is shared.
                assert_eq!((c.stats().prepares, c.stats().prepared_bytes), (0, held));
            });
        }
    });
}

/// `x` scanned row by row through products of 64 columns, or a loop as long as an input says that stacks what it gives.
fn rows(looped: bool) -> Graph {
    let build = || -> Result<Graph, IrError> {
        let mut b = Builder::new("main");
        let x = b.input("x", DType::F32, [Dim::symbol("n"), 64.into()])?;
        let w = b.param_with("w", numbers(1, &[64, 64]))?;
        let y = if looped {
            let trips = b.input("trips", DType::I64, [] as [Dim; 0])?;
            b.loop_(Some(trips), None, &[], &[x, w], |b, args| {
                let y = b.matmul(args.captures[0], args.captures[1])?;
                let y = b.reduce_mean(y, &[0], false)?;
                Ok(rlx::ir::ops::control::LoopStep { cond: args.cond, carried: vec![], scans: vec![y] })
            })?[0]
        } else {
            let scanned = b.scan_(&[], &[x], &[w], |b, _, slices, captures| {
                let row = b.reshape(slices[0], [Dim::ONE, 64.into()])?;
                let y = b.matmul(row, captures[0])?;
                let y = b.tanh(y)?;
                Ok((vec![], vec![b.matmul(y, captures[0])?]))
            })?;
            scanned[0]
        };
        b.output("y", y)?;
        Ok(b.finish())
    };
    build().unwrap()
}

#[test]
fn spec_4_memory_of_nested_programs_is_known_before_they_run() {
    let n = |n: i64| [("n", n)].into_iter().collect();
    let p = compile(rows(false), &CompileOptions::new());
    let (few, many) = (p.memory_for(&n(10)).unwrap(), p.memory_for(&n(1000)).unwrap());
    assert!(!few.partial && !many.partial, "{few}");
    // What the scan stacks is there twice, a row's own results in any case.
    assert!(few.arena >= 10 * 256 + 256 && many.arena >= few.arena + 990 * 256, "{few}\n{many}");
    assert_eq!(p.stats().binds, 0);
    let limited = CompileOptions::new().memory_limit(Some((few.own() + many.own()) / 2));
    let p = compile(rows(false), &limited);
    p.run_tensors(&[("x", &numbers(2, &[10, 64]))]).unwrap();
    let refused = p.run_tensors(&[("x", &numbers(2, &[1000, 64]))]).unwrap_err().to_string();
    assert!(refused.contains("memory_limit"), "{refused}");
    // How long a loop's stack gets is only known after it.
    let m = compile(rows(true), &CompileOptions::new()).memory_for(&n(10)).unwrap();
    assert!(m.partial && m.to_string().contains("depend on data"), "{m}");
}

#[test]
fn spec_4_memory_of_sizes_that_depend_on_data_has_bounds_or_says_why() {
    let sizes = |n: i64| [("n", n)].into_iter().collect();
    let of = |text: &str| session().compile_hir(&rlx::ir::text::parse_module(text).unwrap()).unwrap();
    // No more elements are not zero than there are.
    let p = of("func @main(%x: f32[n]) -> (y: f32[n], i: f32[found]) {
  %y = exp(%x)
  %i = nonzero(%x) {count = found}
  %f = reshape(%i) {dims = [found]}
  %c = convert(%f) {to = f32, saturate = true}
  %s = softmax(%c) {axis = 0, log = false}
  %t = reverse(%s) {axes = [0]}
  %u = softmax(%t) {axis = 0, log = false}
  return %y, %u
}");
    let m = p.memory_for(&sizes(100)).unwrap();
    assert!(m.partial && m.reasons().next().is_none(), "{m}");
    let [first, second] = &m.segments[..] else { panic!("{m:?}") };
    assert_eq!((first.symbols.len(), &second.symbols[..]), (0, &["found".to_string()][..]));
    assert_eq!(first.kernels.end, second.kernels.start);
    assert_eq!((first.outputs, second.outputs), (Extent::Exact(400), Extent::AtMost(400)));
    assert_eq!((first.arena.exact().is_some(), second.handed), (true, Extent::AtMost(800)));
    assert_eq!(m.outputs, 400);
    let most = m.at_most().unwrap();
    assert!(m.to_string().contains(&format!("at most {most} in all")), "{m}");
    // Where every element counts, the second part is as large as was said.
    let mut q = p.clone();
    q.run_borrowed(&[("x", Input::from(&f32s(&[100], &[1.0; 100])))]).unwrap();
    let arenas = first.arena.exact().unwrap() + second.arena.most().unwrap();
    let bound = q.bind_misses().iter().map(|b| b.sizes.get("found").copied()).collect::<Vec<_>>();
    assert_eq!(bound, [None, Some(100)]);
    assert!(q.stats().arena_bytes <= arenas && second.arena.most() == Some(q.stats().arena_bytes), "{m:?}");

    // A limit holds for what data gives too.
    let limit = CompileOptions::new().memory_limit(Some(m.own() + 500));
    let text = "func @main(%x: f32[n]) -> (i: i64[1, found]) {
  %i = nonzero(%x) {count = found}
  return %i
}";
    let p = session().compile_hir_with(&rlx::ir::text::parse_module(text).unwrap(), &limit).unwrap();
    let of_ones = |n: usize| f32s(&[1000], &[vec![1.0; n], vec![0.0; 1000 - n]].concat());
    assert_eq!(p.run_tensors(&[("x", &of_ones(10))]).unwrap()[0].dims(), [1, 10]);
    let e = p.run_tensors(&[("x", &of_ones(1000))]).unwrap_err().to_string();
    assert!(e.contains("memory_limit") && e.contains("1000"), "{e}");
    assert_eq!(p.run_tensors(&[("x", &of_ones(20))]).unwrap()[0].dims(), [1, 20]);

    // Bounds of symbols say it where the op does not.
    let text = |bounds: &str| {
        format!(
            "func @main(%x: f32[n], %k: i64[1]) -> (y: f32[m]) {bounds} {{
  %d = read_dims(%k) {{symbols = [m]}}
  %i = iota {{dtype = f32, dims = [m], axis = 0}}
  %s = softmax(%i) {{axis = 0, log = false}}
  return %s
}}"
        )
    };
    let m = of(&text("bounds(m = 0..64)")).memory_for(&sizes(3)).unwrap();
    assert_eq!((m.segments[1].outputs, m.at_most().is_some()), (Extent::AtMost(256), true));
    let m = of(&text("")).memory_for(&sizes(3)).unwrap();
    assert_eq!((m.segments[1].outputs, m.at_most()), (Extent::Open, None));
    let why: Vec<&str> = m.reasons().collect();
    assert!(why.len() == 1 && why[0].contains("nothing bounds `m`") && why[0].contains("read_dims"), "{why:?}");
    assert!(m.to_string().contains("nothing bounds `m`"), "{m}");

    // Without such sizes there is one part, and nothing is open.
    let m = compile(dense(), &CompileOptions::new()).memory_for(&sizes(9)).unwrap();
    assert_eq!((m.segments.len(), m.at_most(), m.partial), (1, Some(m.own()), false));
}

#[test]
fn spec_4_the_report_is_data_and_text() {
    let p = compile(dense(), &CompileOptions::new());
    let r = p.report();
    // What fused, and what did not and why.
    assert!(!r.fusion().fused.is_empty(), "{r}");
    assert!(r.fusion().fused.iter().all(|f| f.pass == "lower" && !f.message.is_empty()));
    let off = compile(dense(), &CompileOptions::new().fusion(Fusion::Off));
    assert!(off.report().fusion().fused.is_empty());
    // Placement.
    assert_eq!(r.target, "cpu");
    assert_eq!(r.placement.len(), r.kernels.iter().map(|k| k.1).sum::<usize>());
    // Time per pass.
    assert!(r.time() > std::time::Duration::ZERO && r.passes.iter().any(|p| p.name == "lower"));
    assert!(r.to_string().contains("lower") && r.to_string().contains("in all"));
    // Memory, before anything has run.
    let m = p.memory_for(&[("n", 100)].into_iter().collect()).unwrap();
    assert_eq!((p.stats().binds, p.stats().prepares), (0, 0));
    assert_eq!((m.params, m.prepared, m.outputs, m.partial), (48 + 48 + 12, 48, 2 * 100 * 12, false));
    assert!(m.to_string().contains(&m.own().to_string()));
    let ten = p.memory_for(&[("n", 1000)].into_iter().collect()).unwrap();
    assert_eq!(ten.outputs, 10 * m.outputs);
    let mut q = p.clone();
    q.prepare_for(&[("n", 100)].into_iter().collect()).unwrap();
    assert_eq!(q.stats().arena_bytes, m.arena);
    assert!(p.memory_for(&Default::default()).unwrap_err().to_string().contains("`n`"));
}
