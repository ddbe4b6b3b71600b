//! Section 3: every field of `CompileOptions` changes something that can be seen.

use rlx::compile::run_pass;
use rlx::{
    Builder, CacheUse, CompileError, CompileOptions, CompiledGraph, DType, Dim, Error, Fusion, Graph, MatmulPrecision,
    Module, Precision, PrecisionPolicy, RunError, ScaledQuant, Tensor,
};

use crate::harness::{Folder, compile, dense, f32s, numbers, same, session};

fn options() -> CompileOptions {
    CompileOptions::new()
}

fn ran(p: &CompiledGraph, name: &str) -> usize {
    p.report().passes.iter().filter(|p| p.name == name).count()
}

fn kernels(p: &CompiledGraph) -> usize {
    p.report().placement.len()
}

/// Every option is in this list or in a test of its own below.
#[test]
fn spec_3_every_option_is_tested() {
    let here = include_str!("spec3_options.rs");
    for name in CompileOptions::NAMES {
        assert!(here.contains(&format!("fn spec_3_{name}_")), "option `{name}` has no test here");
    }
}

#[test]
fn spec_3_precision_lowers_all_but_what_a_policy_decides() {
    let low = |o: &CompileOptions| compile(dense(), o).report().count("precision", "low");
    assert_eq!(low(&options()), 0);
    assert_eq!(low(&options().precision(Precision::F16)), 4);
    // A policy that is set decides, also to what is the default; the report says that the precision does not hold.
    let o = options().precision(Precision::F16).policy(PrecisionPolicy::AlwaysF32);
    assert_eq!((low(&o), compile(dense(), &o).report().fallbacks[0].option), (0, "precision"));
}

#[test]
fn spec_3_policy_computes_low_and_says_what() {
    let x = numbers(3, &[6, 4]);
    let plain = compile(dense(), &options());
    let want = plain.run_tensors(&[("x", &x)]).unwrap();
    for policy in [PrecisionPolicy::AlwaysLow(Precision::BF16), PrecisionPolicy::ConservativeMixed(Precision::BF16)] {
        let p = compile(dense(), &options().policy(policy.clone()));
        assert!(p.report().fallbacks.is_empty());
        let said: Vec<String> =
            p.report().remarks().filter(|r| r.pass == "precision").map(ToString::to_string).collect();
        assert!(said.iter().any(|r| r.contains("bf16: `dot_general`")), "{policy}: {said:?}");
        let got = p.run_tensors(&[("x", &x)]).unwrap();
        assert_ne!(got, want, "{policy}");
        for (g, w) in got.iter().zip(&want) {
            rlx::ir::testing::close(&w.clone().into(), &g.clone().into(), 2e-2, 2e-2)
                .unwrap_or_else(|e| panic!("{policy}: {e}"));
        }
    }
}

#[test]
fn spec_3_matmul_precision_rounds_operands_or_is_reported() {
    let portable = options().isa(Some(rlx::driver::Isa::Portable));
    let p = compile(dense(), &portable.matmul_precision(MatmulPrecision::High));
    assert_eq!(p.report().fallbacks[0].asked, "high");
    let p = compile(dense(), &options().matmul_precision(MatmulPrecision::High));
    assert_eq!(p.report().fallbacks.is_empty(), rlx::driver::Isa::Amx.is_available(), "a matrix unit does it");
    let medium = compile(dense(), &options().matmul_precision(MatmulPrecision::Medium));
    assert!(medium.report().fallbacks.is_empty());
    assert_eq!(medium.report().count("precision", "low"), 1);
    assert!(compile(dense(), &options().matmul_precision(MatmulPrecision::Highest)).report().fallbacks.is_empty());
}

#[test]
fn spec_3_dce_drops_what_nothing_needs() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [4]).unwrap();
    let dead = b.exp(x).unwrap();
    b.sort(dead, 0, false).unwrap();
    let y = b.neg(x).unwrap();
    b.output("y", y).unwrap();
    let g = b.finish();
    let unfused = options().fusion(Fusion::Off).constant_folding(false).cache_param_invariant(false);
    let left = |o: &CompileOptions| {
        let p = compile(g.clone(), o);
        p.report().passes.iter().filter(|p| p.name == "recognise").map(|p| p.nodes_before).sum::<usize>()
    };
    assert_eq!((left(&unfused), left(&unfused.clone().dce(false))), (1, 3));
}

#[test]
fn spec_3_constant_folding_computes_at_compile_time() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [2]).unwrap();
    let c = b.constant(f32s(&[2], &[4.0, 9.0])).unwrap();
    let c = b.sqrt(c).unwrap();
    let y = b.mul(x, c).unwrap();
    b.output("y", y).unwrap();
    let g = b.finish();
    let on = compile(g.clone(), &options());
    let off = compile(g, &options().constant_folding(false));
    assert_eq!((on.report().count("fold", "node"), ran(&off, "fold")), (1, 0), "{}", on.report());
    let x = f32s(&[2], &[1.0, -1.0]);
    assert_eq!(on.run_tensors(&[("x", &x)]).unwrap(), off.run_tensors(&[("x", &x)]).unwrap());
}

/// `x · sigmoid(x)`.
fn silu() -> Graph {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [8]).unwrap();
    let s = b.sigmoid(x).unwrap();
    let y = b.mul(x, s).unwrap();
    b.output("y", y).unwrap();
    b.finish()
}

#[test]
fn spec_3_recognise_finds_composites() {
    assert_eq!(compile(silu(), &options()).report().count("recognise", "silu"), 1);
    assert_eq!(ran(&compile(silu(), &options().recognise(false)), "recognise"), 0);
}

#[test]
fn spec_3_fusion_is_on_off_or_by_pattern() {
    let on = compile(dense(), &options());
    let off = compile(dense(), &options().fusion(Fusion::Off));
    let part = compile(dense(), &options().fusion(Fusion::Without(vec!["epilogue".into()])));
    assert!(
        kernels(&on) < kernels(&part) && kernels(&part) < kernels(&off),
        "{} {} {}",
        kernels(&on),
        kernels(&part),
        kernels(&off)
    );
    let x = numbers(7, &[3, 4]);
    let want = on.run_tensors(&[("x", &x)]).unwrap();
    same(&want, &off.run_tensors(&[("x", &x)]).unwrap(), "off");
    same(&want, &part.run_tensors(&[("x", &x)]).unwrap(), "without epilogues");
    // A name that is no fusion is an error, not nothing.
    let e = session().compile_with(dense(), &options().fusion(Fusion::Without(vec!["eplogue".into()]))).unwrap_err();
    assert!(e.to_string().contains("`eplogue`") && e.to_string().contains("epilogue"), "{e}");
}

#[test]
fn spec_3_cache_param_invariant_splits_off_parameter_work() {
    let x = numbers(7, &[3, 4]);
    for (on, prepares) in [(true, 1), (false, 0)] {
        let p = compile(dense(), &options().cache_param_invariant(on));
        same(
            &crate::harness::oracle(&dense(), std::slice::from_ref(&x), &[]),
            &p.run_tensors(&[("x", &x)]).unwrap(),
            "split",
        );
        assert_eq!(p.stats().prepares, prepares);
    }
}

#[test]
fn spec_3_scaled_quant_rewrites_contractions_and_prepares_weights() {
    let x = numbers(3, &[6, 4]);
    for format in ScaledQuant::ALL {
        let p = compile(dense(), &options().scaled_quant(Some(format)));
        assert_eq!(p.report().count("scaled_quant", "rewritten"), 1, "{format}");
        let got = p.run_tensors(&[("x", &x)]).unwrap();
        // What the pass wrote, by the evaluator.
        let o = options().scaled_quant(Some(format));
        let rewritten = run_pass("scaled_quant", &Module::from_graph(dense()), None, &o).unwrap().0;
        let want = crate::harness::oracle(&rewritten.main, std::slice::from_ref(&x), &[]);
        crate::harness::same(&want, &got, &format.to_string());
        assert_eq!(p.stats().prepares, 1, "{format}: weights are quantised in prepare");
    }
}

/// Six-bit formats have no dtype of their own: what they round to is held against all their numbers, made from their bits.
#[test]
fn spec_3_scaled_quant_mxfp6_rounds_to_the_numbers_of_the_format() {
    for (format, exponent_bits, fraction_bits, bias, greatest) in
        [(ScaledQuant::Mxfp6E2M3, 2, 3, 1, 7.5f64), (ScaledQuant::Mxfp6E3M2, 3, 2, 3, 28.0)]
    {
        let codes: Vec<f64> = (0..1u32 << (exponent_bits + fraction_bits))
            .map(|code| {
                let (exponent, fraction) = ((code >> fraction_bits) as i32, code & ((1 << fraction_bits) - 1));
                let part = f64::from(fraction) / f64::from(1u32 << fraction_bits);
                if exponent == 0 {
                    part * f64::from(1 - bias).exp2()
                } else {
                    (1.0 + part) * f64::from(exponent - bias).exp2()
                }
            })
            .collect();
        assert_eq!(codes.iter().copied().fold(0.0, f64::max), greatest);
        let nearest = |x: f64| {
            let distance = |c: usize| (codes[c] - x.abs()).abs();
            let best =
                (0..codes.len()).min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))));
            codes[best.unwrap()].copysign(x)
        };
        let rounded = |row: &[f32]| -> Vec<f32> {
            let most = row.iter().fold(0f64, |m, x| m.max(f64::from(x.abs())));
            let scale = (most.log2().floor() - greatest.log2().floor()).exp2();
            row.iter().map(|&x| (nearest(f64::from(x) / scale) * scale) as f32).collect()
        };
        // Rows: all numbers of the format as they are; those between them, ties among them; others at several scales.
        let mut rows: Vec<Vec<f32>> = vec![codes.iter().map(|&c| c as f32).collect()];
        rows.push(codes.windows(2).map(|w| ((w[0] + w[1]) / 2.0) as f32).chain([greatest as f32]).collect());
        for k in 0..8 {
            let of = numbers(40 + k, &[32]);
            rows.push(of.as_slice::<f32>().unwrap().iter().map(|x| x * 3f32.powi(3 * k as i32 - 12)).collect());
        }
        let x: Vec<f32> = rows.iter().flatten().copied().collect();
        assert!(rows.iter().all(|r| r.len() == 32));
        let identity: Vec<f32> = (0..32 * 32).map(|i| f32::from(u8::from(i % 33 == 0))).collect();
        let mut b = Builder::new("main");
        let v = b.input("x", DType::F32, [Dim::symbol("n"), 32.into()]).unwrap();
        let w = b.param_with("w", f32s(&[32, 32], &identity)).unwrap();
        let y = b.matmul(v, w).unwrap();
        b.output("y", y).unwrap();
        let p = compile(b.finish(), &options().scaled_quant(Some(format)));
        assert_eq!(p.report().count("scaled_quant", "rewritten"), 1);
        let got = p.run_tensors(&[("x", &f32s(&[rows.len(), 32], &x))]).unwrap();
        let got = got[0].as_slice::<f32>().unwrap();
        for (i, row) in rows.iter().enumerate() {
            assert_eq!(&got[32 * i..32 * (i + 1)], &rounded(row)[..], "{format}: row {i} of {row:?}");
        }
    }
}

#[test]
fn spec_3_scaled_quant_attention_is_on_request() {
    let mut b = Builder::new("main");
    let q = b.input("q", DType::F32, [Dim::symbol("b"), 2.into(), Dim::symbol("s"), 32.into()]).unwrap();
    let attention = rlx::ir::ops::neural::Attention {
        layout: rlx::ir::ops::neural::AttnLayout::Bhsd,
        scale: rlx::ir::attr::FloatBits::new(0.2),
        causal: false,
        window: None,
        softcap: None,
        mask: rlx::ir::ops::neural::MaskKind::None,
    };
    let y = b.op1(attention, &[q, q, q]).unwrap();
    b.output("y", y).unwrap();
    let g = b.finish();
    let o = options().scaled_quant(Some(ScaledQuant::Mxfp8E4M3));
    let (off, on) = (compile(g.clone(), &o), compile(g, &o.clone().scaled_quant_attention(true)));
    assert_eq!(off.report().count("scaled_quant", "not rewritten"), 1);
    assert!(off.report().remarks().any(|r| r.message.contains("`scaled_quant_attention` is off")));
    assert_eq!(on.report().count("scaled_quant", "rewritten"), 1);
    let x = numbers(4, &[2, 2, 5, 32]);
    let (a, b) = (off.run_tensors(&[("q", &x)]).unwrap(), on.run_tensors(&[("q", &x)]).unwrap());
    assert_ne!(a, b);
    rlx::ir::testing::close(&a[0].clone().into(), &b[0].clone().into(), 0.15, 0.15).unwrap();
}

#[test]
fn spec_3_rng_starts_the_generator_and_a_program_without_one_reports_it() {
    // `spec4_rng` runs programs that draw numbers, of static and dynamic shapes.
    let p = compile(dense(), &options().rng(Some(rlx::RngOptions { seed: 1, offset: 0 })));
    assert_eq!(p.report().fallbacks[0].option, "rng");
    assert_eq!(p.rng().unwrap(), None);
}

#[test]
fn spec_3_arena_alignment_places_buffers() {
    // Two buffers of a few bytes each: the arena grows with the alignment.
    let arena = |align: usize| {
        let mut p = compile(dense(), &options().arena_alignment(align).fusion(Fusion::Off));
        p.prepare_for(&[("n", 1)].into_iter().collect()).unwrap();
        p.stats().arena_bytes
    };
    assert!(arena(4096) > arena(64), "{} {}", arena(4096), arena(64));
    assert_eq!(arena(4096) % 4096, 0);
    for wrong in [0, 3, 32, 1 << 40] {
        let e = session().compile_with(dense(), &options().arena_alignment(wrong)).unwrap_err();
        assert!(e.to_string().contains("arena_alignment"), "{e}");
    }
}

#[test]
fn spec_3_dim_bindings_fix_sizes() {
    let p = compile(dense(), &options().bind_dim("n", 2));
    assert_eq!(p.inputs()[0].ty.to_string(), "f32[2, 4]");
    assert!(p.run_tensors(&[("x", &numbers(1, &[3, 4]))]).is_err());
    assert!(p.run_tensors(&[("x", &numbers(1, &[2, 4]))]).is_ok());
    let e = session().compile_with(dense(), &options().bind_dim("m", 2)).unwrap_err().to_string();
    assert!(e.contains("`m`") && e.contains("n"), "{e}");
    assert!(session().compile_with(dense(), &options().bind_dim("n", -2)).is_err());
}

#[test]
fn spec_3_dim_bounds_are_checked_at_bind() {
    let p = compile(dense(), &options().bound_dim("n", 2, Some(5)));
    for (n, fits) in [(1, false), (2, true), (5, true), (6, false)] {
        assert_eq!(p.run_tensors(&[("x", &numbers(1, &[n, 4]))]).is_ok(), fits, "{n}");
    }
}

#[test]
fn spec_3_param_bindings_are_constants_at_compile_time() {
    let (w, k) = (numbers(11, &[4, 3]), numbers(12, &[4, 3]));
    let o = options().bind_param("w", w.clone()).bind_param("k", k.clone());
    let mut p = compile(dense(), &o);
    assert_eq!(p.params().iter().map(|p| p.name.to_string()).collect::<Vec<_>>(), ["c"]);
    let x = numbers(7, &[3, 4]);
    same(
        &crate::harness::oracle(&dense(), std::slice::from_ref(&x), &[("w", w), ("k", k)]),
        &p.run_tensors(&[("x", &x)]).unwrap(),
        "bound",
    );
    assert!(p.report().count("fold", "node") >= 1 && p.stats().prepares == 0);
    assert!(p.set_param("w", &[0.0; 12]).is_err());
    let wrong = options().bind_param("w", numbers(1, &[4])).bind_param("v", numbers(1, &[4]));
    let e = session().compile_with(dense(), &wrong).unwrap_err().to_string();
    assert!(e.contains("`v`") && e.contains("`w`") && e.contains("f32[4, 3]"), "{e}");
}

#[test]
fn spec_3_verify_checks_after_every_pass() {
    // Counted by time alone: verification is no pass. What is malformed is found either way, since the door verifies.
    let mut m = rlx::Module::from_graph(dense());
    m.stage = rlx::ir::Stage::Mir { target: "cpu".into(), claims: Default::default() };
    for verify in [true, false] {
        let e = session().compile_module_with(&m, &options().verify(verify));
        assert!(matches!(e, Err(Error::Compile(CompileError::Pass { pass: "import", .. }))), "{e:?}");
    }
}

#[test]
fn spec_3_dump_writes_every_stage() {
    let dir = Folder::new("dump");
    let p = compile(dense(), &options().dump(Some(dir.0.clone())));
    let files: Vec<String> =
        std::fs::read_dir(&dir.0).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    assert!(files.len() >= p.report().passes.len(), "{files:?}");
    assert!(files.iter().any(|f| f.ends_with("lower.lir")) && files.iter().any(|f| f.ends_with("prepare.rlx")));
    let blocked = dir.0.join("file");
    std::fs::write(&blocked, "").unwrap();
    let e = session().compile_with(dense(), &options().dump(Some(blocked))).unwrap_err();
    assert!(matches!(e, Error::Compile(CompileError::Dump(_))), "{e}");
}

#[test]
fn spec_3_remarks_are_kept_or_not() {
    assert!(compile(dense(), &options()).report().remarks().count() > 0);
    assert_eq!(compile(dense(), &options().remarks(false)).report().remarks().count(), 0);
}

#[test]
fn spec_3_threads_change_nothing_but_time() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n"), 257.into()]).unwrap();
    let w = b.param_with("w", numbers(5, &[257, 129])).unwrap();
    let y = b.matmul(x, w).unwrap();
    let y = b.softmax(y, 1).unwrap();
    let z = b.reduce_mean(y, &[0], false).unwrap();
    b.output("z", z).unwrap();
    let g = b.finish();
    let x = numbers(6, &[301, 257]);
    let all: Vec<Vec<Tensor>> = [1, 2, 3, 0]
        .into_iter()
        .map(|n| compile(g.clone(), &options().threads(n)).run_tensors(&[("x", &x)]).unwrap())
        .collect();
    assert!(all.iter().all(|a| *a == all[0]), "bits depend on the number of threads");
    // That a pool of the asked size is made is seen in the threads of the process.
    let before = threads();
    let wide = compile(g, &options().threads(7));
    wide.run_tensors(&[("x", &x)]).unwrap();
    if let (Some(a), Some(b)) = (before, threads()) {
        assert!(b >= a + 4, "{a} threads before, {b} after");
    }
}

/// Threads of this process, where the system tells.
fn threads() -> Option<usize> {
    std::fs::read_dir("/proc/self/task").ok().map(|d| d.count())
}

#[test]
fn spec_3_isa_forces_an_instruction_set() {
    let x = numbers(7, &[33, 4]);
    for isa in rlx::driver::Isa::available() {
        let p = compile(dense(), &options().isa(Some(isa)));
        let got = p.run_tensors(&[("x", &x)]).unwrap();
        same(&crate::harness::oracle(&dense(), std::slice::from_ref(&x), &[]), &got, &format!("{isa}"));
    }
    // Fused multiply-adds round once: on a machine with them the portable bits differ.
    if rlx::driver::Isa::available().len() > 1 {
        let of = |isa| {
            let mut b = Builder::new("main");
            let x = b.input("x", DType::F32, [64, 64]).unwrap();
            let y = b.matmul(x, x).unwrap();
            b.output("y", y).unwrap();
            compile(b.finish(), &options().isa(isa)).run_tensors(&[("x", &numbers(3, &[64, 64]))]).unwrap()
        };
        assert_ne!(of(Some(rlx::driver::Isa::Portable)), of(None));
    }
}

#[test]
fn spec_3_jit_is_used_or_reported() {
    // Machine code is for one level; at another, asking for it is answered in the report, and the default says nothing.
    let portable = options().isa(Some(rlx::driver::Isa::Portable));
    assert_eq!(compile(dense(), &portable.clone().jit(true)).report().fallbacks[0].option, "jit");
    assert!(compile(dense(), &portable).report().fallbacks.is_empty());
    assert!(compile(dense(), &options().jit(false)).report().fallbacks.is_empty());
    if cfg!(all(target_arch = "x86_64", unix)) && rlx::driver::Isa::available().contains(&rlx::driver::Isa::Avx2) {
        let avx2 = options().isa(Some(rlx::driver::Isa::Avx2));
        assert!(compile(dense(), &avx2.clone().jit(true)).report().fallbacks.is_empty());
        let x = numbers(2, &[5, 4]);
        let run = |on| compile(dense(), &avx2.clone().jit(on)).run_tensors(&[("x", &x)]).unwrap();
        assert_eq!(run(true), run(false));
    }
}

#[test]
fn spec_3_bind_cache_bounds_the_number_of_bindings() {
    let p = compile(dense(), &options().bind_cache(2));
    for n in 1..=5 {
        p.run_tensors(&[("x", &numbers(1, &[n, 4]))]).unwrap();
    }
    assert_eq!((p.stats().bind_entries, p.stats().bind_evictions), (2, 3));
}

#[test]
fn spec_3_bind_cache_bytes_bounds_the_size_of_bindings() {
    let p = compile(dense(), &options().bind_cache_bytes(1));
    for n in 1..=3 {
        p.run_tensors(&[("x", &numbers(1, &[n, 4]))]).unwrap();
    }
    assert_eq!((p.stats().bind_entries, p.stats().bind_evictions), (1, 2));
    assert_eq!(p.bind_misses().last().unwrap().reason, rlx::runtime::MissReason::NewSizes);
    p.run_tensors(&[("x", &numbers(1, &[2, 4]))]).unwrap();
    assert_eq!(p.bind_misses().last().unwrap().reason, rlx::runtime::MissReason::EvictedByBytes);
}

#[test]
fn spec_3_memory_limit_refuses_before_the_run() {
    let need = compile(dense(), &options()).memory_for(&[("n", 1000)].into_iter().collect()).unwrap();
    let p = compile(dense(), &options().memory_limit(Some(need.own())));
    p.run_tensors(&[("x", &numbers(1, &[1000, 4]))]).unwrap();
    let runs = p.stats().kernels;
    match p.run_tensors(&[("x", &numbers(1, &[1100, 4]))]) {
        Err(Error::Run(RunError::Memory(why))) => {
            assert!(why.contains("memory_limit") && why.contains(&need.own().to_string()), "{why}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(p.stats().kernels, runs, "kernels ran");
    p.run_tensors(&[("x", &numbers(1, &[10, 4]))]).unwrap();
    // What every run needs is refused before parameters are prepared.
    let mut none = compile(dense(), &options().memory_limit(Some(10)));
    assert!(none.run_tensors(&[("x", &numbers(1, &[1, 4]))]).is_err());
    assert_eq!(none.stats().prepares, 0);
    assert!(matches!(none.prepare_for(&[("n", 1)].into_iter().collect()), Err(Error::Run(RunError::Memory(_)))));
}

#[test]
fn spec_3_poison_fills_arenas_and_changes_no_result() {
    let x = numbers(7, &[3, 4]);
    let of = |on| compile(dense(), &options().poison(on)).run_tensors(&[("x", &x)]).unwrap();
    assert_eq!(of(true), of(false));
}

#[test]
fn spec_3_from_env_is_documented_variable_by_variable() {
    // `options::env` tests each; here: the list is public, and an empty environment is the default.
    let names: Vec<&str> = rlx::compile::options::VARIABLES.iter().map(|v| v.0).collect();
    assert!(
        names.contains(&"RLX_ISA") && names.contains(&"RLX_THREADS") && names.iter().all(|n| n.starts_with("RLX_"))
    );
    assert_eq!(CompileOptions::from_variables(|_| None).unwrap(), CompileOptions::new());
    let set = CompileOptions::from_variables(|n| (n == "RLX_ISA").then(|| "portable".into())).unwrap();
    assert_eq!(set.isa, Some(rlx::driver::Isa::Portable));
}

#[test]
fn spec_3_folding_dce_and_cse_are_the_same_in_nested_bodies_and_for_all_dtypes() {
    for dtype in [DType::F32, DType::I64, DType::U8, DType::F16, DType::Bool, DType::F64] {
        let mut b = Builder::new("main");
        let x = b.input("x", dtype, [2]).unwrap();
        let c = b.input("c", DType::Bool, [0; 0]).unwrap();
        let one = |b: &mut Builder| {
            let v = if dtype == DType::Bool {
                Tensor::from_bools(&[2], &[true, false])
            } else {
                Tensor::full(dtype, &[2], 1.0)
            };
            b.constant(v.unwrap())
        };
        let both = |b: &mut Builder, a: &[rlx::ir::ValueId]| {
            let (p, q) = (one(b)?, one(b)?);
            // Folds, since both are constant; `r` is the same again; the sort is dead.
            let s = b.reverse(p, &[0])?;
            let r = b.reverse(q, &[0])?;
            b.sort(r, 0, false)?;
            b.concat(&[a[0], s, r], 0).map(|v| vec![v])
        };
        let y = b.if_(c, &[x], both, both).unwrap();
        b.output("y", y[0]).unwrap();
        let g = b.finish();
        let p = compile(g.clone(), &options().fusion(Fusion::Off));
        let r = p.report();
        // Small integers are known elements before the folder sees them.
        let computed = r.count("fold", "node") + r.count("canonicalise", "known elements");
        assert!(computed >= 2, "{dtype}: {r}");
        assert!(r.placement.iter().all(|k| k.kind != "sort"), "{dtype}: {r}");
    }
}

#[test]
fn spec_3_cache_dir_keeps_compiled_programs() {
    let folder = Folder::new("3-cache");
    let o = options().cache_dir(Some(folder.0.clone()));
    let uses: Vec<CacheUse> = (0..2).map(|_| compile(dense(), &o).cache_use()).collect();
    assert_eq!(uses, [CacheUse::Kept, CacheUse::Found]);
    // Where passes are to be seen, they run, and the report says that nothing is kept.
    let dumps = Folder::new("3-cache-dumps");
    let p = compile(dense(), &o.clone().dump(Some(dumps.0.clone())));
    assert_eq!((p.cache_use(), p.report().fallbacks[0].option), (CacheUse::Off, "cache_dir"));
}

#[test]
fn spec_3_cache_bytes_bounds_what_is_kept() {
    let folder = Folder::new("3-cache-bytes");
    let o = options().cache_dir(Some(folder.0.clone())).cache_bytes(1);
    let uses: Vec<CacheUse> = (0..2).map(|_| compile(dense(), &o).cache_use()).collect();
    assert_eq!(uses, [CacheUse::Kept; 2]);
}
