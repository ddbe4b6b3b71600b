//! Faults 1 to 6: sessions.

use rlx::compile::target::{Claims, InputStage};
use rlx::{
    Availability, Builder, CompileError, CompileOptions, DType, Device, Dim, Error, Fusion, Module, Precision,
    PrecisionPolicy, ScaledQuant, Session,
};

use crate::harness::{dense, numbers, session};

/// Fault 1: An unavailable device panics, or its message names the wrong missing half.
#[test]
fn fault_01_an_unavailable_device_is_an_error_that_names_what_is_missing() {
    for d in Device::ALL.into_iter().filter(|d| *d != Device::Cpu) {
        let e = Session::new(d).unwrap_err();
        assert!(matches!(&e, Error::Unavailable(Availability::NoBackend { .. })), "{e}");
        let text = e.to_string();
        // This repository has no backend for it: neither a feature nor a driver is what is missing.
        assert!(
            text.contains("register_backend") && !text.contains("--features") && !text.contains("driver"),
            "{text}"
        );
    }
}

/// Fault 2: Compile errors abort the process instead of saying node, op, shapes, pass.
#[test]
fn fault_02_compile_errors_name_node_op_shapes_and_pass() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n"), 4.into()]).unwrap();
    b.set_loc(rlx::ir::Loc::new("layer/softmax"));
    let y = b.softmax(x, 1).unwrap();
    b.output("y", y).unwrap();
    let m = Module::from_graph(b.finish());
    let claims = Claims { symbolic_shapes: true, ..Claims::new("bare", InputStage::Mir) };
    let e = rlx::compile::compile_module(&m, &claims, &CompileOptions::new()).unwrap_err().to_string();
    for part in ["[compile-unsupported]", "bare", "layer/softmax", "f32[n, 4]", "is not claimed"] {
        assert!(e.contains(part), "{part} is not in: {e}");
    }
    // A shape that cannot be is told when the op is appended, with both operands.
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [2, 3]).unwrap();
    let y = b.input("y", DType::F32, [2, 3]).unwrap();
    let e = b.matmul(x, y).unwrap_err().to_string();
    assert!(e.contains("%x: f32[2, 3]") && e.contains("%y: f32[2, 3]"), "{e}");
    // A pass that fails is named.
    let e = session().compile_with(dense(), &CompileOptions::new().bind_dim("no", 1)).unwrap_err().to_string();
    assert!(e.contains("bind-dims"), "{e}");
}

/// Fault 3: A quantisation option on a dynamic graph panics because static dims are unwrapped first.
#[test]
fn fault_03_a_quantisation_option_on_a_dynamic_graph_does_not_panic() {
    let g = dense();
    assert!(Module::from_graph(g.clone()).has_dynamic_dims());
    let x = numbers(2, &[5, 4]);
    let want = session().compile(g.clone()).unwrap().run_tensors(&[("x", &x)]).unwrap();
    for format in ScaledQuant::ALL {
        let p = session().compile_with(g.clone(), &CompileOptions::new().scaled_quant(Some(format))).unwrap();
        assert_eq!(p.report().count("scaled_quant", "rewritten"), 1, "{format}");
        let got = p.run_tensors(&[("x", &x)]).unwrap();
        assert_eq!(got[0].dims(), want[0].dims());
        assert_ne!(got, want, "{format} rounds nothing");
    }
}

/// Fault 4: The doors differ. (`spec_2_*` compares reports, boundary dtypes and options door by door.)
#[test]
fn fault_04_all_doors_check_fold_share_split_and_keep_the_sessions_options() {
    let o = CompileOptions::new().precision(Precision::F16).fusion(Fusion::Off);
    let s = Session::with_options(Device::Cpu, o).unwrap();
    let m = Module::from_graph(dense());
    let none = CompileOptions::new();
    let programs = [
        s.compile(dense()).unwrap(),
        s.compile_with(dense(), &none).unwrap(),
        s.compile_hir(&m).unwrap(),
        s.compile_hir_with(&m, &none).unwrap(),
        s.compile_module(&m).unwrap(),
        s.compile_module_with(&m, &none).unwrap(),
    ];
    let x = numbers(1, &[4, 4]);
    let first = programs[0].run_tensors(&[("x", &x)]).unwrap();
    for p in &programs {
        assert_eq!(p.run_tensors(&[("x", &x)]).unwrap(), first);
        assert_eq!(
            (p.report().placement.clone(), p.report().fallbacks.clone(), p.stats().prepares),
            (programs[0].report().placement.clone(), programs[0].report().fallbacks.clone(), 1)
        );
        assert_eq!((p.report().count("precision", "low"), p.report().count("precision", "cast") > 0), (4, true));
    }
}

/// Fault 5: Dynamic graphs never get the prepare/main split. A malformed symbolic graph is first reported at run.
#[test]
fn fault_05_dynamic_graphs_are_split_and_malformed_ones_refused_when_compiled() {
    let p = session().compile(dense()).unwrap();
    assert!(p.inputs()[0].ty.shape.has_dynamic_dims());
    assert_eq!(p.report().count("split", "prepared value"), 1);
    let mut m = Module::from_graph(dense());
    m.stage = rlx::ir::Stage::Mir { target: "other".into(), claims: Default::default() };
    // Whatever the options and the build say: release builds verify what comes in too.
    let e = session().compile_module_with(&m, &CompileOptions::new().verify(false)).unwrap_err();
    assert!(matches!(e, Error::Compile(CompileError::Pass { pass: "import", .. })), "{e}");
}

/// Fault 6: Options that do nothing; defaults read from the environment. (`spec_3_*` has a test for every option, `spec_0_default_…` runs with
/// typos in the environment.)
#[test]
fn fault_06_no_option_does_nothing_silently() {
    // Machine code is not made for the portable level.
    let o = CompileOptions::new().isa(Some(rlx::driver::Isa::Portable)).precision(Precision::BF16).jit(true);
    let o =
        o.policy(PrecisionPolicy::AlwaysF32).matmul_precision(rlx::MatmulPrecision::High).scaled_quant_attention(true);
    let p = session().compile_with(dense(), &o).unwrap();
    let told: Vec<&str> = p.report().fallbacks.iter().map(|f| f.option).collect();
    assert_eq!(told, ["precision", "matmul_precision", "scaled_quant_attention", "jit"]);
    let e = session().compile_with(dense(), &CompileOptions::new().fusion(Fusion::Without(vec!["all".into()])));
    assert!(e.is_err());
}
