//! Section 2: sessions and the doors into compilation.

use rlx::compile::target::{InputStage, TargetModule};
use rlx::compile::{compile_module, run_passes};
use rlx::{
    Builder, CompileError, CompileOptions, CompiledGraph, DType, Device, Dim, Error, Fusion, Graph, Module, Precision,
    PrecisionPolicy, Session, Tensor,
};

use crate::backends::{Lesser, cpu};
use crate::harness::{dense, f32s, numbers, same, session};

/// The same graph through every door.
fn doors(s: &Session, g: &Graph, o: &CompileOptions) -> Vec<(&'static str, CompiledGraph)> {
    let m = Module::from_graph(g.clone());
    let claims = cpu().claims(Device::Cpu);
    let mir = run_passes(m.clone(), Some(&claims), &o.over(s.options()), rlx::compile::Phase::Legalise).unwrap().0;
    vec![
        ("compile_with", s.compile_with(g.clone(), o).unwrap()),
        ("compile_hir_with", s.compile_hir_with(&m, o).unwrap()),
        ("compile_module_with", s.compile_module_with(&m, o).unwrap()),
        ("compile_module_with on MIR", s.compile_module_with(&mir, o).unwrap()),
    ]
}

#[test]
fn spec_2_an_unavailable_device_is_an_error_that_says_why() {
    let e = Session::new(Device::Rocm).unwrap_err().to_string();
    assert!(e.contains("[session-device]") && e.contains("rocm") && e.contains("register_backend"), "{e}");
}

/// A device whose backend claims no 16-bit floats.
fn without_halves() -> Device {
    let mut lesser = Lesser::new("no halves");
    lesser.without_dtypes = &[DType::F16, DType::BF16];
    rlx::register_backend(Device::Metal, std::sync::Arc::new(lesser));
    Device::Metal
}

#[test]
fn spec_2_precision_that_a_backend_lacks_falls_back_and_is_reported() {
    let s = Session::new_with_precision(without_halves(), Precision::BF16).unwrap();
    let p = s.compile(dense()).unwrap();
    let f = &p.report().fallbacks;
    assert_eq!((f.len(), f[0].option, f[0].asked.as_str(), f[0].got.as_str()), (1, "precision", "bf16", "f32"));
    let plain = session().compile(dense()).unwrap();
    assert!(plain.report().fallbacks.is_empty());
    let x = numbers(9, &[3, 4]);
    assert_eq!(p.run_tensors(&[("x", &x)]).unwrap(), plain.run_tensors(&[("x", &x)]).unwrap());
}

#[test]
fn spec_2_a_policy_that_a_backend_lacks_falls_back_and_is_reported_on_every_door() {
    let s = Session::with_policy(without_halves(), PrecisionPolicy::Mixed(Precision::BF16)).unwrap();
    let (g, none) = (dense(), CompileOptions::new());
    let m = Module::from_graph(g.clone());
    let programs = [
        ("compile", s.compile(g.clone())),
        ("compile_with", s.compile_with(g, &none)),
        ("compile_hir", s.compile_hir(&m)),
        ("compile_hir_with", s.compile_hir_with(&m, &none)),
        ("compile_module", s.compile_module(&m)),
        ("compile_module_with", s.compile_module_with(&m, &none)),
    ];
    for (door, p) in programs {
        let p = p.unwrap();
        let f = &p.report().fallbacks;
        assert_eq!((f.len(), f[0].option, f[0].got.as_str()), (1, "policy", "always f32"), "{door}");
    }
}

#[test]
fn spec_2_all_doors_are_one_path() {
    let x = numbers(4, &[5, 4]);
    let s = Session::with_options(Device::Cpu, CompileOptions::new().threads(1)).unwrap();
    let o = CompileOptions::new().remarks(true);
    let all = doors(&s, &dense(), &o);
    let want = all[0].1.run_tensors(&[("x", &x)]).unwrap();
    same(&crate::harness::oracle(&dense(), std::slice::from_ref(&x), &[]), &want, "first door");
    let passes = |p: &CompiledGraph| p.report().passes.iter().map(|p| (p.name, p.rewrites.clone())).collect::<Vec<_>>();
    let first = passes(&all[0].1);
    for (door, p) in &all {
        assert_eq!(p.run_tensors(&[("x", &x)]).unwrap(), want, "{door}");
        assert_eq!(p.report().placement, all[0].1.report().placement, "{door}");
        assert_eq!((p.params(), p.inputs(), p.outputs()), (all[0].1.params(), all[0].1.inputs(), all[0].1.outputs()));
        // A graph that is legal already passes through unchanged, so that its report counts less.
        if !door.ends_with("MIR") {
            assert_eq!(passes(p), first, "{door}");
        } else {
            assert_eq!(
                passes(p).iter().map(|p| p.0).collect::<Vec<_>>(),
                first.iter().map(|p| p.0).collect::<Vec<_>>()
            );
        }
        // The split is made whichever door.
        assert_eq!(p.stats().prepares, 1, "{door}");
    }
}

#[test]
fn spec_2_boundary_dtypes_are_converted_on_every_door() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F16, [Dim::symbol("n")]).unwrap();
    let w = b.param("w", DType::BF16, [1]).unwrap();
    let w = b.convert(w, DType::F16).unwrap();
    let y = b.mul(x, w).unwrap();
    b.output("y", y).unwrap();
    let g = b.finish();
    for (door, mut p) in doors(&session(), &g, &CompileOptions::new()) {
        p.set_param("w", &[2.0]).unwrap();
        // 1 + 2⁻¹¹ lies between two halves of f16: to even is 1.
        let y = p.run(&[("x", &[1.0 + f32::powi(2.0, -11), 1.0 + 3.0 * f32::powi(2.0, -11)])]).unwrap();
        assert_eq!(y[0], [2.0, 2.0 + f32::powi(2.0, -8)], "{door}");
    }
}

#[test]
fn spec_2_dynamic_shapes_work_on_every_door() {
    for (door, p) in doors(&session(), &dense(), &CompileOptions::new()) {
        for n in [1, 7, 0, 3] {
            assert_eq!(p.run_tensors(&[("x", &numbers(1, &[n, 4]))]).unwrap()[0].dims(), [n, 3], "{door}");
        }
        assert_eq!(p.stats().binds - 1, 4, "{door}: main at four sizes, prepare once");
    }
}

#[test]
fn spec_2_explicit_options_are_merged_over_the_sessions() {
    let base = CompileOptions::new().precision(Precision::F16).threads(1).fusion(Fusion::Off).constant_folding(false);
    let s = Session::with_options(Device::Cpu, base).unwrap();
    // Options that say nothing change nothing.
    let plain = s.compile_with(dense(), &CompileOptions::new()).unwrap();
    let own = s.compile(dense()).unwrap();
    assert_eq!(plain.report().placement, own.report().placement);
    assert_eq!(plain.report().fallbacks, own.report().fallbacks);
    assert!(plain.report().passes.iter().all(|p| p.name != "fold"));
    // Options that are set hold, even to what is the default; the others stay the session's.
    let set = CompileOptions::new().fusion(Fusion::On).precision(Precision::F32);
    let merged = s.compile_with(dense(), &set).unwrap();
    assert!(merged.report().placement.len() < own.report().placement.len());
    assert_eq!((own.report().count("precision", "low"), merged.report().count("precision", "low")), (4, 0));
    assert!(merged.report().passes.iter().all(|p| p.name != "fold"), "folding is still off");
}

fn lir() -> rlx::runtime::LirModule {
    let claims = cpu().claims(Device::Cpu);
    assert_eq!(claims.stage, InputStage::Lir);
    match compile_module(&Module::from_graph(dense()), &claims, &CompileOptions::new()).unwrap().target {
        TargetModule::Lir(l) => l,
        TargetModule::Mir { .. } => panic!("the CPU takes kernels"),
    }
}

#[test]
fn spec_2_a_module_at_lir_is_verified_and_handed_on() {
    let x = numbers(4, &[5, 4]);
    let p = session().compile_module(&lir()).unwrap();
    let want = session().compile(dense()).unwrap().run_tensors(&[("x", &x)]).unwrap();
    assert_eq!(p.run_tensors(&[("x", &x)]).unwrap(), want);
    let mut broken = lir();
    broken.main.kernels.remove(0);
    let e = session().compile_module(&broken).unwrap_err();
    assert!(matches!(e, Error::Compile(CompileError::Lir(_))), "{e}");
}

#[test]
fn spec_2_options_of_earlier_stages_have_no_effect_at_lir_and_say_so() {
    let graph_options = [
        ("precision", CompileOptions::new().precision(Precision::F32)),
        ("policy", CompileOptions::new().policy(PrecisionPolicy::AlwaysF32)),
        ("matmul_precision", CompileOptions::new().matmul_precision(rlx::MatmulPrecision::Medium)),
        ("scaled_quant", CompileOptions::new().scaled_quant(Some(rlx::ScaledQuant::Int8))),
        ("dce", CompileOptions::new().dce(true)),
        ("constant_folding", CompileOptions::new().constant_folding(false)),
        ("recognise", CompileOptions::new().recognise(false)),
        ("fusion", CompileOptions::new().fusion(Fusion::Off)),
        ("cache_param_invariant", CompileOptions::new().cache_param_invariant(false)),
        ("dim_bindings", CompileOptions::new().bind_dim("n", 1)),
        ("dim_bounds", CompileOptions::new().bound_dim("n", 1, None)),
        ("param_bindings", CompileOptions::new().bind_param("w", Tensor::scalar(1f32))),
        ("remarks", CompileOptions::new().remarks(false)),
    ];
    for (name, o) in graph_options {
        match session().compile_module_with(&lir(), &o) {
            Err(Error::Compile(CompileError::NoEffectAtStage(option))) => assert_eq!(option, name),
            other => panic!("{name}: {other:?}"),
        }
    }
    // Options of kernels have their effect.
    let o =
        CompileOptions::new().threads(1).poison(true).bind_cache(3).verify(true).isa(Some(rlx::driver::Isa::Portable));
    let p = session().compile_module_with(&lir(), &o).unwrap();
    same(
        &crate::harness::oracle(&dense(), &[f32s(&[1, 4], &[1.0; 4])], &[]),
        &p.run_tensors(&[("x", &f32s(&[1, 4], &[1.0; 4]))]).unwrap(),
        "lir",
    );
}
