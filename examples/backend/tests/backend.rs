//! Both backends run a transformer of two layers as the CPU does, and the registry treats them as any other.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod transformer;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rlx::compile::target::InputStage;
use rlx::compile::{CompileError, RunError};
use rlx::ir::element::Elements;
use rlx::{
    Backend, Builder, CompileOptions, DType, Device, Dim, DimBinding, Error, Module, Session, Tensor, register_backend,
};
use rlx_example_backend::{GraphBackend, KernelBackend};

use transformer::{WIDTH, WORDS, sentences, transformer};

/// The registry is the process's own, so that tests that change it take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn backends() -> [(&'static str, Arc<dyn Backend>); 2] {
    [("graphs", Arc::new(GraphBackend)), ("kernels", Arc::new(KernelBackend))]
}

fn session(backend: &Arc<dyn Backend>) -> Session {
    register_backend(Device::Hexagon, backend.clone());
    Session::new(Device::Hexagon).unwrap()
}

fn inputs(t: &[Tensor]) -> [(&str, &Tensor); 2] {
    [("ids", &t[0]), ("mask", &t[1])]
}

/// Plain f64 sums rounded once against blocked f32 kernels.
fn close(want: &Tensor, got: &Tensor, what: &str) {
    rlx_ir::testing::close(&want.clone().into(), &got.clone().into(), 1e-5, 2e-5)
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    let Elements::Float(values) = got.elements() else { panic!("no floats") };
    assert!(values.iter().any(|x| x.abs() > 0.1), "{what}: nothing is computed");
}

#[test]
fn a_transformer_runs_as_on_the_cpu() {
    let _turn = turn();
    let module = transformer();
    let cpu = Session::new(Device::Cpu).unwrap().compile_hir(&module).unwrap();
    for (name, backend) in backends() {
        let program = session(&backend).compile_hir(&module).unwrap();
        assert_eq!(program.device(), Device::Hexagon);
        assert_eq!((program.inputs(), program.outputs()), (cpu.inputs(), cpu.outputs()));
        for (batch, seq) in [(1, 4), (2, 7), (1, 1)] {
            let t = sentences(batch, seq);
            let want = cpu.run_tensors(&inputs(&t)).unwrap();
            close(&want[0], &program.run_tensors(&inputs(&t)).unwrap()[0], &format!("{name} {batch}x{seq}"));
        }
        assert!(program.stats().kernels > 0, "{name} ran nothing");
    }
}

#[test]
fn what_is_not_claimed_arrives_decomposed() {
    let module = transformer();
    let (claimed, arrived) = {
        let claims = GraphBackend.claims(Device::Hexagon);
        let options = CompileOptions::new().bind_dim("batch", 1).bind_dim("seq", 3);
        let made = rlx::compile::compile_module(&module, &claims, &options).unwrap();
        assert_eq!(claims.stage, InputStage::Mir);
        let rlx::compile::TargetModule::Mir { prepare, main } = made.target else { panic!("graphs are wanted") };
        assert!(prepare.is_some(), "the parameter-only product is prepared");
        let ops: Vec<String> = main.main.nodes().iter().map(|n| n.op.name().to_string()).collect();
        (claims.ops, ops)
    };
    let before: Vec<&str> = module.main.nodes().iter().map(|n| n.op.name()).collect();
    for composite in ["attention", "layer_norm"] {
        assert!(before.contains(&composite), "the graph has no {composite}");
    }
    assert!(arrived.iter().all(|op| claimed.contains(op)), "{arrived:?}");
    // Claimed composites stay whole, others are gone.
    assert!(arrived.iter().any(|op| op == "layer_norm") && !arrived.iter().any(|op| op == "attention"));
}

#[test]
fn what_cannot_be_decomposed_is_one_error_with_all_of_it() {
    let _turn = turn();
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n"), Dim::from(4)]).unwrap();
    let s = b.sin(x).unwrap();
    let e = b.erf(s).unwrap();
    let (sorted, _) = b.sort(e, 1, false).unwrap();
    let y = b.add(sorted, x).unwrap();
    b.output("y", y).unwrap();
    let module = Module::from_graph(b.finish());
    let backend: Arc<dyn Backend> = Arc::new(GraphBackend);
    let Err(Error::Compile(CompileError::Unsupported { target, ops })) = session(&backend).compile_hir(&module) else {
        panic!("it must be refused when compiling");
    };
    assert_eq!(target, "example-graphs");
    let names: Vec<&str> = ops.iter().map(|(n, _)| n.op.split([' ', '(', '{']).next().unwrap()).collect();
    assert_eq!(names, ["sin", "erf", "sort"]);
    assert!(ops.iter().all(|(n, why)| why.contains("not claimed") && n.operands[0].contains("f32[n, 4]")), "{ops:?}");
}

#[test]
fn the_last_registration_serves() {
    let _turn = turn();
    let module = transformer();
    let t = sentences(1, 3);
    let [(_, graphs), (_, kernels)] = backends();
    // Programs keep the backend that they were compiled by.
    let first = session(&graphs).compile_hir(&module).unwrap();
    let second = session(&kernels).compile_hir(&module).unwrap();
    assert!(first.report().kernels.is_empty() && !second.report().kernels.is_empty());
    let (a, b) = (first.run_tensors(&inputs(&t)).unwrap(), second.run_tensors(&inputs(&t)).unwrap());
    close(&a[0], &b[0], "before and after");
}

#[test]
fn two_threads_register_at_once() {
    let _turn = turn();
    let module = Arc::new(transformer());
    let t = sentences(1, 2);
    let cpu = Session::new(Device::Cpu).unwrap().compile_hir(&module).unwrap();
    let want = cpu.run_tensors(&inputs(&t)).unwrap();
    let barrier = Arc::new(std::sync::Barrier::new(2));
    let threads: Vec<_> = backends()
        .into_iter()
        .map(|(name, backend)| {
            let (module, barrier, t) = (module.clone(), barrier.clone(), t.clone());
            std::thread::spawn(move || {
                barrier.wait();
                for _ in 0..200 {
                    register_backend(Device::Hexagon, backend.clone());
                    assert!(rlx::is_available(Device::Hexagon));
                    assert!(rlx::registered_devices().contains(&Device::Hexagon));
                }
                // Whichever backend serves now, it is a whole one.
                let program = Session::new(Device::Hexagon).unwrap().compile_hir(&module).unwrap();
                (name, program.run_tensors(&inputs(&t)).unwrap())
            })
        })
        .collect();
    for thread in threads {
        let (name, got) = thread.join().unwrap();
        close(&want[0], &got[0], name);
    }
}

#[test]
fn fixed_sizes_are_compiled_once_each_and_kept() {
    let _turn = turn();
    let backend: Arc<dyn Backend> = Arc::new(GraphBackend);
    let mut program = session(&backend).compile_hir(&transformer()).unwrap();
    let (a, b) = (sentences(1, 3), sentences(2, 2));
    for _ in 0..3 {
        program.run_tensors(&inputs(&a)).unwrap();
        program.run_tensors(&inputs(&b)).unwrap();
    }
    let stats = program.stats();
    assert_eq!((stats.binds, stats.bind_hits), (2, 4));
    // Each specialisation prepares once.
    assert_eq!(stats.prepares, 2);
    let warm = DimBinding::from_iter([("batch", 1), ("seq", 5)]);
    program.prepare_for(&warm).unwrap();
    assert_eq!(program.stats().binds, 3);
    program.run_tensors(&inputs(&sentences(1, 5))).unwrap();
    assert_eq!(program.stats().binds, 3);
}

#[test]
fn parameters_belong_to_all_shapes() {
    let _turn = turn();
    let module = transformer();
    let mut cpu = Session::new(Device::Cpu).unwrap().compile_hir(&module).unwrap();
    let table: Vec<f32> = (0..WORDS * WIDTH).map(|i| (i % 13) as f32 / 13.0).collect();
    let (a, b) = (sentences(1, 3), sentences(2, 2));
    for (name, backend) in backends() {
        let mut program = session(&backend).compile_hir(&module).unwrap();
        let old = program.run_tensors(&inputs(&a)).unwrap();
        let other = program.clone();
        for p in [&mut program, &mut cpu] {
            p.set_param("table", &table).unwrap();
            // Read by prepare alone.
            p.set_param("log_scale", &[0.5]).unwrap();
        }
        for t in [&a, &b] {
            let want = cpu.run_tensors(&inputs(t)).unwrap();
            close(&want[0], &program.run_tensors(&inputs(t)).unwrap()[0], name);
        }
        assert_eq!(other.run_tensors(&inputs(&a)).unwrap(), old, "{name}: a clone keeps its own");
        assert_ne!(program.run_tensors(&inputs(&a)).unwrap(), old);
    }
}

#[test]
fn prepare_runs_again_only_for_what_it_reads() {
    let _turn = turn();
    let t = sentences(1, 3);
    for (name, backend) in backends() {
        let mut program = session(&backend).compile_hir(&transformer()).unwrap();
        for (param, prepares) in [("", 1), ("0.q.bias", 1), ("log_scale", 2), ("1.norm2.weight", 2), ("table", 3)] {
            if let Some(p) = program.params().iter().find(|p| &*p.name == param) {
                let n: usize = p.ty.shape.as_static().unwrap().iter().product();
                program.set_param(param, &vec![0.5; n]).unwrap();
            }
            program.run_tensors(&inputs(&t)).unwrap();
            assert_eq!(program.stats().prepares, prepares, "{name} after setting {param}");
        }
    }
}

#[test]
fn what_is_not_read_is_not_computed() {
    let _turn = turn();
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n")]).unwrap();
    let cheap = b.exp(x).unwrap();
    let dear = [(); 5].iter().try_fold(x, |y, ()| b.exp(y)).unwrap();
    b.output("cheap", cheap).unwrap();
    b.output("dear", dear).unwrap();
    let module = Module::from_graph(b.finish());
    let program = session(&(Arc::new(GraphBackend) as Arc<dyn Backend>)).compile_hir(&module).unwrap();
    let x = [0.5f32, -1.0];
    let given = [("x", x.as_slice().into())];
    program.run_read_outputs(&given, Some(&[0])).unwrap();
    assert_eq!(program.stats().kernels, 1);
    let both = program.run_read_outputs(&given, Some(&[1, 0])).unwrap();
    assert_eq!(program.stats().kernels, 1 + 5);
    assert_eq!(*both[1].as_slice::<f32>().unwrap(), x.map(f32::exp));
}

#[test]
fn every_way_of_running_agrees() {
    let _turn = turn();
    let t = sentences(2, 3);
    for (name, backend) in backends() {
        let mut program = session(&backend).compile_hir(&transformer()).unwrap();
        let want = program.run_tensors(&inputs(&t)).unwrap();
        let named: Vec<(&str, rlx::Input<'_>)> = inputs(&t).iter().map(|(n, t)| (*n, (*t).into())).collect();
        let read = program.run_read_outputs(&named, Some(&[0, 0])).unwrap();
        assert_eq!((&read[0], &read[1]), (&want[0], &want[0]), "{name}");
        assert_eq!(program.run_borrowed(&named).unwrap().get(0).unwrap().bytes, want[0].bytes(), "{name}");
        let mut bytes = vec![0; want[0].bytes().len()];
        let dims = want[0].dims().to_vec();
        let refs = [(&t[0]).into(), (&t[1]).into()];
        let out = rlx::runtime::TensorMut { dtype: DType::F32, dims: &dims, bytes: &mut bytes };
        program.run_into(&refs, &mut [out]).unwrap();
        assert_eq!(bytes, want[0].bytes(), "{name}");
        assert_eq!(program.profile(&refs).unwrap().len(), 1);
    }
}

#[test]
fn wrong_calls_list_what_is_wrong() {
    let _turn = turn();
    for (name, backend) in backends() {
        let program = session(&backend).compile_hir(&transformer()).unwrap();
        let (ids, mask) = (Tensor::from_slice(&[1, 3], &[1i64, 2, 3]), Tensor::from_bools(&[1, 2], &[true, true]));
        let e = program.run_tensors(&[("ids", &ids.unwrap()), ("mask", &mask.unwrap())]).unwrap_err();
        assert!(matches!(e, Error::Run(RunError::Inputs(_))), "{name}: {e}");
        let text = e.to_string();
        assert!(text.contains("seq") && text.contains("ids") && text.contains("mask"), "{name}: {text}");
        let outside = Tensor::from_slice(&[1, 1], &[WORDS as i64]).unwrap();
        let seen = Tensor::from_bools(&[1, 1], &[true]).unwrap();
        let e = program.run_tensors(&[("ids", &outside), ("mask", &seen)]).unwrap_err();
        assert!(matches!(&e, Error::Run(RunError::Kernel { kernel, .. }) if kernel == "gather"), "{name}: {e}");
    }
}

#[test]
fn states_outlive_a_change_of_shape() {
    let _turn = turn();
    // A counter of all elements seen.
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n")]).unwrap();
    let scalar = rlx::ir::types::TensorType::new(DType::F32, rlx::Shape::scalar());
    let count = b.graph_mut().add_state("sum", scalar, Some(Tensor::scalar(10.0f32))).unwrap();
    let total = b.reduce(x, rlx::ir::ops::reduction::ReduceKind::Sum, &[0], false).unwrap();
    let next = b.add(count, total).unwrap();
    b.graph_mut().set_state_next(0, next).unwrap();
    b.output("y", next).unwrap();
    let module = Module::from_graph(b.finish());
    for (name, backend) in backends() {
        let mut program = session(&backend).compile_hir(&module).unwrap();
        let mut give = |values: &[f32]| {
            let out = program.run_borrowed(&[("x", values.into())]).unwrap();
            f32::from_le_bytes(out.get(0).unwrap().bytes.try_into().unwrap())
        };
        assert_eq!([give(&[1.0]), give(&[2.0, 3.0]), give(&[4.0])], [11.0, 16.0, 20.0], "{name}");
        assert_eq!(program.state("sum").unwrap(), Tensor::scalar(20.0f32));
        program.set_state("sum", Tensor::scalar(1.0f32)).unwrap();
        program.run_borrowed(&[("x", [1.0f32, 1.0, 1.0].as_slice().into())]).unwrap();
        assert_eq!(program.state("sum").unwrap(), Tensor::scalar(4.0f32), "{name}");
        program.reset_state("sum").unwrap();
        assert_eq!(program.state("sum").unwrap(), Tensor::scalar(10.0f32), "{name}");
    }
}

#[test]
fn sizes_that_depend_on_data_are_refused_where_sizes_are_fixed() {
    let _turn = turn();
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n")]).unwrap();
    let at = b.nonzero(x, "count").unwrap();
    b.output("at", at).unwrap();
    let backend: Arc<dyn Backend> = Arc::new(GraphBackend);
    let e = session(&backend).compile_hir(&Module::from_graph(b.finish())).unwrap_err();
    assert!(e.to_string().contains("nonzero"), "{e}");
}
