//! Faults 21 to 30 and 34: the compiler. 31 (files, prints, registries) is `cargo xtask tidy` and the lints; 32 (a test of the system
//! against itself) is answered by the evaluator and stored results as oracles; 33 (crates that do not compile together) by the workspace.

use rlx::compile::target::Claims;
use rlx::ir::ops::control::LoopStep;
use rlx::ir::ops::elementwise::Compare;
use rlx::{Builder, CompileOptions, DType, Device, Dim, Fusion, Module, Tensor};

use crate::harness::{compile, f32s, numbers, oracle, same, session};

/// Fault 21: Elementwise regions are formed and undone; broadcasts are materialised.
#[test]
fn fault_21_an_elementwise_region_with_broadcasts_is_one_kernel() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n"), 8.into()]).unwrap();
    let (r, c) =
        (b.input("r", DType::F32, [8]).unwrap(), b.input("c", DType::F32, [Dim::symbol("n"), 1.into()]).unwrap());
    let y = b.mul(x, r).unwrap();
    let y = b.add(y, c).unwrap();
    let y = b.exp(y).unwrap();
    let y = b.sub(y, x).unwrap();
    b.output("y", y).unwrap();
    let g = b.finish();
    let p = compile(g.clone(), &CompileOptions::new());
    assert_eq!(p.report().kernels, [("map".to_string(), 1)]);
    let inputs = [numbers(1, &[5, 8]), numbers(2, &[8]), numbers(3, &[5, 1])];
    let got = p.run_tensors(&[("x", &inputs[0]), ("r", &inputs[1]), ("c", &inputs[2])]).unwrap();
    same(&oracle(&g, &inputs, &[]), &got, "region");
    // No memory for what is between.
    assert_eq!(p.memory_for(&[("n", 5)].into_iter().collect()).unwrap().arena, 0);
}

/// Fault 22: Folding is f32-only: a concatenation of weights ran at every token.
#[test]
fn fault_22_a_concatenation_of_weights_runs_once_whatever_the_dtype() {
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I32, DType::I8, DType::Bool] {
        let mut b = Builder::new("main");
        let x = b.input("x", dtype, [Dim::symbol("n"), 6.into()]).unwrap();
        let half = |b: &mut Builder, n: &str| b.param_with(n, Tensor::full(dtype, &[1, 3], 1.0).unwrap());
        let (u, v) = (half(&mut b, "u").unwrap(), half(&mut b, "v").unwrap());
        let w = b.concat(&[u, v], 1).unwrap();
        let y = if dtype == DType::Bool { b.op1(rlx::ir::ops::elementwise::Binary::And, &[x, w]) } else { b.add(x, w) };
        b.output("y", y.unwrap()).unwrap();
        let p = compile(b.finish(), &CompileOptions::new());
        let x = Tensor::full(dtype, &[2, 6], 1.0).unwrap();
        p.run_tensors(&[("x", &x)]).unwrap();
        let before = p.stats().kernels;
        p.run_tensors(&[("x", &x)]).unwrap();
        assert_eq!((p.stats().kernels - before, p.stats().prepares), (1, 1), "{dtype}");
    }
}

/// Fault 23: `If` runs both branches; `While` must be bounded, is unrolled, returns only its first carried value.
#[test]
fn fault_23_one_branch_runs_and_loops_end_by_their_condition_with_all_values() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [4]).unwrap();
    let c = b.input("c", DType::Bool, [0; 0]).unwrap();
    let i = b.input("i", DType::I64, [1]).unwrap();
    // The branch not taken would fail on an index out of range.
    let y = b
        .if_(
            c,
            &[x, i],
            |b, a| Ok(vec![b.gather(a[0], a[1], 0)?]),
            |b, a| {
                let first = b.slice_axis(a[0], 0, Dim::ZERO, Dim::ONE, 1)?;
                Ok(vec![b.neg(first)?])
            },
        )
        .unwrap();
    b.output("y", y[0]).unwrap();
    let p = compile(b.finish(), &CompileOptions::new());
    let run = |c: bool, i: i64| {
        let (c, i) = (Tensor::from_bools(&[], &[c]).unwrap(), Tensor::from_slice(&[1], &[i]).unwrap());
        p.run_tensors(&[("x", &f32s(&[4], &[1., 2., 3., 4.])), ("c", &c), ("i", &i)])
    };
    assert_eq!(run(false, 99).unwrap(), [f32s(&[1], &[-1.0])]);
    assert_eq!(run(true, 2).unwrap(), [f32s(&[1], &[3.0])]);
    assert!(run(true, 99).unwrap_err().to_string().contains("99"));

    // No limit: doubles until above the input; two carried values and a scan output.
    let mut b = Builder::new("main");
    let top = b.input("top", DType::F32, [0; 0]).unwrap();
    let (one, zero) = (b.scalar(DType::F32, 1.0).unwrap(), b.constant(Tensor::scalar(0i64)).unwrap());
    let out = b
        .loop_(None, None, &[one, zero], &[top], |b, a| {
            let two = b.scalar(DType::F32, 2.0)?;
            let x = b.mul(a.carried[0], two)?;
            let one = b.constant(Tensor::scalar(1i64))?;
            let n = b.add(a.carried[1], one)?;
            let cond = b.op1(Compare::Lt, &[x, a.captures[0]])?;
            Ok(LoopStep { cond, carried: vec![x, n], scans: vec![x] })
        })
        .unwrap();
    for (name, v) in ["x", "n", "all"].into_iter().zip(out) {
        b.output(name, v).unwrap();
    }
    let p = compile(b.finish(), &CompileOptions::new());
    assert_eq!(p.report().kernels.iter().map(|k| k.1).sum::<usize>(), p.report().placement.len());
    for (top, n) in [(3.0f32, 2i64), (1000.0, 10), (1e30, 100)] {
        let out = p.run_tensors(&[("top", &Tensor::scalar(top))]).unwrap();
        assert_eq!((&out[0], &out[1]), (&Tensor::scalar(2f32.powi(n as i32)), &Tensor::scalar(n)));
        assert_eq!(out[2].dims(), [n as usize]);
    }
}

/// Fault 24: Multi-result ops packed into one f32 tensor; indices travel as f32.
#[test]
fn fault_24_results_are_separate_and_indices_exact_beyond_2_to_the_24() {
    const N: usize = (1 << 24) + 4;
    let mut b = Builder::new("main");
    let x = b.input("x", DType::U8, [Dim::symbol("n")]).unwrap();
    let (values, at) = b.top_k(x, 1, 0, true, true).unwrap();
    b.output("values", values).unwrap();
    b.output("at", at).unwrap();
    let p = compile(b.finish(), &CompileOptions::new());
    assert_eq!((p.outputs()[0].ty.dtype, p.outputs()[1].ty.dtype), (DType::U8, DType::I64));
    let mut v = vec![0u8; N];
    v[N - 2] = 7;
    let out = p.run_tensors(&[("x", &Tensor::from_slice(&[N], &v).unwrap())]).unwrap();
    assert_eq!(out, [Tensor::from_slice(&[1], &[7u8]).unwrap(), Tensor::from_slice(&[1], &[N as i64 - 2]).unwrap()]);
}

/// Fault 25: Attention layout guessed from which axis equals the number of heads.
#[test]
fn fault_25_attention_layout_is_an_attribute_even_where_sizes_agree() {
    use rlx::ir::ops::neural::{Attention, AttnLayout, MaskKind};
    // As many heads as queries: only the attribute tells the axes apart.
    let build = |layout: AttnLayout| {
        let mut b = Builder::new("main");
        let q = b.input("q", DType::F32, [1, 3, 3, 4]).unwrap();
        let op = Attention {
            layout,
            scale: rlx::ir::attr::FloatBits::new(0.5),
            causal: false,
            window: None,
            softcap: None,
            mask: MaskKind::None,
        };
        let y = b.op1(op, &[q, q, q]).unwrap();
        b.output("y", y).unwrap();
        b.finish()
    };
    let x = numbers(5, &[1, 3, 3, 4]);
    let mut results = Vec::new();
    for layout in [AttnLayout::Bshd, AttnLayout::Bhsd] {
        let g = build(layout);
        let got = compile(g.clone(), &CompileOptions::new()).run_tensors(&[("q", &x)]).unwrap();
        same(&oracle(&g, std::slice::from_ref(&x), &[]), &got, "attention");
        results.push(got);
    }
    assert_ne!(results[0], results[1]);
}

/// Fault 26: Duplicate leaf names accepted; the verifier compiled out of release builds.
#[test]
fn fault_26_duplicate_names_are_refused_and_modules_verified_in_every_build() {
    let mut b = Builder::new("main");
    b.input("x", DType::F32, [1]).unwrap();
    assert!(b.input("x", DType::F32, [1]).unwrap_err().to_string().contains("`x`"));
    b.param("w", DType::F32, [1]).unwrap();
    assert!(b.param("w", DType::F32, [1]).is_err());
    let y = b.scalar(DType::F32, 1.0).unwrap();
    b.output("y", y).unwrap();
    assert!(b.output("y", y).is_err());
    let text = "func @main(%x: f32[1], %x: f32[1]) {\n  return %x\n}";
    assert!(rlx::ir::text::parse_module(text).is_err());
    let mut m = Module::from_graph(b.finish());
    m.stage = rlx::ir::Stage::Mir { target: "t".into(), claims: Default::default() };
    assert!(session().compile_module_with(&m, &CompileOptions::new().verify(false)).is_err());
}

/// Fault 27: A memory planner that needs guard bytes because kernels read and write past their slots. (The checker of plans and the tests of
/// kernels at every odd size show more.)
#[test]
fn fault_27_outputs_of_exact_size_have_untouched_neighbours() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n"), Dim::symbol("m")]).unwrap();
    let t = b.transpose(x, &[1, 0]).unwrap();
    let y = b.matmul(x, t).unwrap();
    let y = b.softmax(y, 1).unwrap();
    b.output("y", y).unwrap();
    let mut p = compile(b.finish(), &CompileOptions::new().poison(true));
    for n in [1usize, 3, 7, 8, 15, 17, 33] {
        for m in [1usize, 5, 16, 31] {
            // Input and output end where their memory ends, between borders that must stay.
            let x = numbers(n as u64, &[n, m]);
            let size = n * n * 4;
            let mut memory = vec![0x5au8; size + 128];
            let out = rlx::TensorMut { dtype: DType::F32, dims: &[n, n], bytes: &mut memory[64..64 + size] };
            p.run_into(&[(&x).into()], &mut [out]).unwrap();
            assert!(memory[..64].iter().chain(&memory[64 + size..]).all(|&b| b == 0x5a), "{n}x{m}");
        }
    }
}

/// Fault 28: Scatter bounds checked in debug builds only; an out-of-range gather returns zeros.
#[test]
fn fault_28_indices_out_of_range_are_errors_before_anything_is_written() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [3]).unwrap();
    let i = b.input("i", DType::I64, [2]).unwrap();
    let u = b.input("u", DType::F32, [2]).unwrap();
    let g = b.gather(x, i, 0).unwrap();
    let s = b.scatter_elements(x, i, u, 0, rlx::ir::ops::indexing::Combiner::Set).unwrap();
    b.output("g", g).unwrap();
    b.output("s", s).unwrap();
    let p = compile(b.finish(), &CompileOptions::new());
    let (x, u) = (f32s(&[3], &[1., 2., 3.]), f32s(&[2], &[8., 9.]));
    for (name, number) in [("g", 0), ("s", 1)] {
        for wrong in [3i64, -4, i64::MAX, i64::MIN] {
            let i = Tensor::from_slice(&[2], &[0, wrong]).unwrap();
            let inputs = [("x", (&x).into()), ("i", (&i).into()), ("u", (&u).into())];
            let e = p.run_read_outputs(&inputs, Some(&[number])).unwrap_err().to_string();
            assert!(e.contains(&wrong.to_string()) && e.contains('3'), "{name}: {e}");
        }
    }
    let i = Tensor::from_slice(&[2], &[-1i64, 0]).unwrap();
    let out = p.run_tensors(&[("x", &x), ("i", &i), ("u", &u)]).unwrap();
    assert_eq!(out, [f32s(&[2], &[3., 1.]), f32s(&[3], &[9., 2., 8.])]);
}

/// Fault 29: A backend with an empty claim set "supports" everything.
#[test]
fn fault_29_an_empty_claim_set_supports_nothing() {
    let cpu = rlx::backend_for(Device::Cpu).unwrap();
    let full = cpu.claims(Device::Cpu);
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [2]).unwrap();
    let y = b.neg(x).unwrap();
    b.output("y", y).unwrap();
    let m = Module::from_graph(b.finish());
    let refused = |claims: Claims| rlx::compile::compile_module(&m, &claims, &CompileOptions::new()).is_err();
    assert!(!refused(full.clone()));
    assert!(refused(Claims { ops: Default::default(), ..full.clone() }));
    assert!(refused(Claims { dtypes: Default::default(), ..full }));
}

/// Fault 30: A missing derivative or batching rule panics. There are no such transforms yet: an op that a target lacks and that has no
/// decomposition is the same kind of gap, and an error that names it.
#[test]
fn fault_30_a_missing_rule_is_an_error_that_names_the_op() {
    let mut claims = rlx::backend_for(Device::Cpu).unwrap().claims(Device::Cpu);
    claims.ops.remove("sort");
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [2]).unwrap();
    let (y, _) = b.sort(x, 0, false).unwrap();
    b.output("y", y).unwrap();
    let m = Module::from_graph(b.finish());
    let e = rlx::compile::compile_module(&m, &claims, &CompileOptions::new()).unwrap_err().to_string();
    assert!(e.contains("`sort"), "{e}");
}

/// Fault 34: A 256×256×256 matmul that takes 8 ms. Time depends on the machine and the build: by count, it is one kernel that packs once.
#[test]
fn fault_34_a_small_matmul_is_one_blocked_kernel() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [256, 256]).unwrap();
    let w = b.param_with("w", numbers(1, &[256, 256])).unwrap();
    let y = b.matmul(x, w).unwrap();
    b.output("y", y).unwrap();
    let mut p = compile(b.finish(), &CompileOptions::new().threads(1).fusion(Fusion::On));
    assert_eq!(p.report().kernels, [("contract".to_string(), 1)]);
    let x = numbers(2, &[256, 256]);
    p.run_raw(&[(&x).into()]).unwrap();
    let packed = p.stats().prepared_bytes;
    assert!((1 << 18..1 << 19).contains(&packed), "{packed}");
    let best = (0..20).map(|_| {
        let t = std::time::Instant::now();
        p.run_raw(&[(&x).into()]).unwrap();
        t.elapsed()
    });
    println!("256x256x256: {:?}", best.min().unwrap());
    assert_eq!(p.stats().prepared_bytes, packed);
}
