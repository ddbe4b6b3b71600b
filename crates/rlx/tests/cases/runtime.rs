//! Kind runtime: R3 and R4, as far as a library has them; servers come later.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rlx::{
    Builder, CompileOptions, CompiledGraph, DType, Device, Dim, Error, MatmulPrecision, RunError, Session, Tensor,
};

use crate::harness::{compile, f32s};

/// Fails where an index is out of range.
fn gather() -> CompiledGraph {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n")]).unwrap();
    let i = b.input("i", DType::I64, [Dim::symbol("k")]).unwrap();
    let e = b.exp(x).unwrap();
    let y = b.gather(e, i, 0).unwrap();
    let y = b.neg(y).unwrap();
    b.output("y", y).unwrap();
    compile(b.finish(), &CompileOptions::new().threads(2))
}

/// R3: a run that fails in a kernel is an error of that run; others finish, and the program is usable after it.
#[test]
fn case_r3_a_failing_run_leaves_others_and_the_program_whole() {
    let p = Arc::new(gather());
    let x = f32s(&[3], &[0.0, 0.0, 0.0]);
    let (good, bad) = (Tensor::from_slice(&[2], &[0i64, 2]).unwrap(), Tensor::from_slice(&[1], &[7i64]).unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|s| {
        for _ in 0..3 {
            let (p, x, good, stop) = (p.clone(), &x, &good, stop.clone());
            s.spawn(move || {
                let mut runs = 0;
                while !stop.load(Ordering::Relaxed) || runs < 50 {
                    let y = p.run_tensors(&[("x", x), ("i", good)]).unwrap();
                    assert_eq!(y, [f32s(&[2], &[-1.0, -1.0])]);
                    runs += 1;
                }
            });
        }
        for _ in 0..300 {
            match p.run_tensors(&[("x", &x), ("i", &bad)]) {
                Err(Error::Run(RunError::Kernel { kernel, message, .. })) => {
                    assert!(kernel == "gather" && message.contains('7'), "{kernel}: {message}");
                }
                other => panic!("{other:?}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(p.run_tensors(&[("x", &x), ("i", &good)]).is_ok());
}

/// R3: memory that cannot be had is an error, before and after which the program runs.
#[test]
fn case_r3_memory_that_cannot_be_had_is_an_error() {
    let mut b = Builder::new("main");
    let n = b.input("n", DType::I64, [1]).unwrap();
    b.read_dims(n, vec!["size".into()]).unwrap();
    let one = b.scalar(DType::F32, 1.0).unwrap();
    let wide = b.broadcast_to(one, [Dim::symbol("size"), Dim::symbol("size")]).unwrap();
    let e = b.sort(wide, 1, false).unwrap().0;
    b.output("y", e).unwrap();
    let mut p = compile(b.finish(), &CompileOptions::new());
    let run = |p: &CompiledGraph, n: i64| p.run_tensors(&[("n", &Tensor::from_slice(&[1], &[n]).unwrap())]);
    assert_eq!(run(&p, 2).unwrap()[0].dims(), [2, 2]);
    for huge in [1i64 << 24, 1 << 31, 1 << 40, i64::MAX] {
        assert!(run(&p, huge).is_err(), "{huge}");
        assert_eq!(run(&p, 3).unwrap()[0].dims(), [3, 3]);
    }
    assert!(matches!(run(&p, -1), Err(Error::Run(_))));
    let n = Tensor::from_slice(&[1], &[4i64]).unwrap();
    assert_eq!(p.run_raw(&[(&n).into()]).unwrap().get(0).unwrap().dims, [4, 4]);
}

/// R4: a missing device is an error that says what is missing; what is not as asked is reported, never silent.
#[test]
fn case_r4_no_fallback_is_silent() {
    let e = Session::new(Device::Cuda).unwrap_err().to_string();
    assert!(e.contains("cuda") && e.contains("register_backend"), "{e}");
    // Three bf16 products need a matrix unit, which this level has on no machine.
    let o = CompileOptions::new().isa(Some(rlx::driver::Isa::Portable)).matmul_precision(MatmulPrecision::High);
    let s = Session::with_options(Device::Cpu, o).unwrap();
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [2]).unwrap();
    let y = b.exp(x).unwrap();
    b.output("y", y).unwrap();
    let p = s.compile(b.finish()).unwrap();
    assert_eq!(p.report().fallbacks.len(), 1);
    // Placement is a table: every kernel, with the source that it computes.
    assert_eq!((p.report().target.as_str(), p.report().placement.len()), ("cpu", 1));
}
