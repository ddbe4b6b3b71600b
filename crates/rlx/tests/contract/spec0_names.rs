//! Section 0: names. That this file compiles is most of the test.

use rlx::{CompileOptions, DType, Device, Dim, Graph, HirModule, Module, Session};

use crate::harness::{dense, f32s, session};

#[test]
fn spec_0_names_of_devices_and_registry() {
    use rlx_driver::{Availability, feature_compiled};
    assert!(feature_compiled(Device::Cpu));
    let state: Availability = rlx::runtime::availability(Device::Cpu);
    assert!(state.is_available() && rlx::is_available(Device::Cpu) && rlx::runtime::is_available(Device::Cpu));
    let _: fn(Device, std::sync::Arc<dyn rlx::Backend>) = rlx::runtime::register_backend;
    let _: fn(Device) -> rlx::runtime::Result<std::sync::Arc<dyn rlx::Backend>> = rlx::runtime::backend_for;
    assert!(rlx::runtime::registered_devices().contains(&Device::Cpu));
    let _: Option<&dyn rlx::compile::target::Backend> = None;
    let _: Option<&dyn rlx::compile::target::ExecutableGraph> = None;
}

#[test]
fn spec_0_names_of_sessions_return_results() {
    use rlx::{Precision, PrecisionPolicy};
    let s: Session = Session::new(Device::Cpu).unwrap();
    assert_eq!((s.device(), s.precision(), s.policy()), (Device::Cpu, Precision::F32, &PrecisionPolicy::AlwaysF32));
    let low = Session::new_with_precision(Device::Cpu, Precision::BF16).unwrap();
    assert_eq!(low.precision(), Precision::BF16);
    let mixed = Session::with_policy(Device::Cpu, PrecisionPolicy::Mixed(Precision::F16)).unwrap();
    assert_eq!(mixed.policy(), &PrecisionPolicy::Mixed(Precision::F16));
    assert!(Session::new(Device::Xdna).is_err());
    assert!(Session::new_with_precision(Device::Xdna, Precision::F16).is_err());
    assert!(Session::with_policy(Device::Xdna, PrecisionPolicy::AlwaysF32).is_err());
}

#[test]
#[allow(deprecated)]
fn spec_0_compile_graph_is_a_deprecated_alias_of_compile() {
    let x = f32s(&[1, 4], &[1.0, -2.0, 3.0, 0.5]);
    let a = session().compile_graph(dense()).unwrap().run_tensors(&[("x", &x)]).unwrap();
    let b = session().compile(dense()).unwrap().run_tensors(&[("x", &x)]).unwrap();
    assert_eq!(a, b);
}

#[test]
fn spec_0_names_of_graphs() {
    use rlx::ir::{DimBinding, GraphModule, Shape, Symbol};
    let g: Graph = dense();
    let m: HirModule = GraphModule::from_graph(g);
    let (inputs, outputs) = m.io_dtypes();
    assert_eq!((inputs, outputs), (vec![Some(DType::F32)], vec![Some(DType::F32); 2]));
    assert!(m.has_dynamic_dims());
    let shape = Shape::new([Dim::symbol("a") * 2 + 1]);
    let binding: DimBinding = [(Symbol::from("a"), 4)].into_iter().collect();
    // Dims are expressions, not bare symbols.
    assert!(shape.has_dynamic_dims() && shape.eval(&binding).unwrap() == [9]);
}

#[test]
fn spec_0_lower_error_is_the_compile_error() {
    let same = |e: rlx::LowerError| -> rlx::CompileError { e };
    let e = same(rlx::compile::LowerError::NoEffectAtStage("fusion"));
    assert!(e.to_string().contains("`fusion`"));
}

/// A typo in a variable can neither panic nor change what a program does that did not ask for the environment.
#[test]
fn spec_0_default_options_never_read_the_environment() {
    if std::env::var_os("RLX_CONTRACT_CHILD").is_some() {
        assert_eq!(CompileOptions::default(), CompileOptions::new());
        let options = CompileOptions::default();
        assert_eq!((options.threads, options.isa), (0, None));
        let x = f32s(&[1, 4], &[1.0; 4]);
        session().compile(dense()).unwrap().run_tensors(&[("x", &x)]).unwrap();
        let e = CompileOptions::from_env().unwrap_err().to_string();
        assert!(e.contains("RLX_ISA") && e.contains("avx512") && e.contains("RLX_THREADS"), "{e}");
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "spec0_names::spec_0_default_options_never_read_the_environment"])
        .envs([("RLX_CONTRACT_CHILD", "1"), ("RLX_ISA", "banana"), ("RLX_THREADS", "-3")])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn spec_0_a_module_is_a_graph_module() {
    let m: Module = Module::from_graph(dense());
    assert!(session().compile_hir(&m).is_ok() && session().compile_module(&m).is_ok());
}
