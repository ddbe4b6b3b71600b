//! Faults 14 to 18: running. 19 and 20 speak of caches of compiled programs and artefacts, which come later; equality of graphs is here.

use rlx::{Builder, CompileOptions, DType, Dim, Input, Module, Tensor, TensorMut, TensorRef};

use crate::harness::{compile, dense, f32s, numbers, session};

/// Fault 14: Raw outputs dangle (`Outputs` has compile-fail doc tests). Over-long data overwrite the neighbour; short data leave stale values;
/// unknown names are ignored; a missing input reads zeros.
#[test]
fn fault_14_inputs_of_wrong_length_name_or_number_are_errors_and_write_nothing() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [4]).unwrap();
    let y = b.input("y", DType::F32, [4]).unwrap();
    let z = b.add(x, y).unwrap();
    b.output("z", z).unwrap();
    let mut p = compile(b.finish(), &CompileOptions::new());
    let good = [1.0f32, 2.0, 3.0, 4.0];
    assert_eq!(p.run(&[("x", &good), ("y", &good)]).unwrap(), [[2.0, 4.0, 6.0, 8.0]]);
    for n in [0, 3, 5, 4096] {
        let e = p.run(&[("x", &vec![9.0; n]), ("y", &good)]).unwrap_err().to_string();
        assert!(e.contains("`x`"), "{e}");
        let bytes = vec![0u8; n * 4];
        let long = TensorRef { dtype: DType::F32, dims: &[4], bytes: &bytes };
        assert!(p.run_raw(&[long, (&f32s(&[4], &good)).into()]).is_err());
        let lying = TensorRef { dtype: DType::F32, dims: &[n], bytes: &bytes };
        assert!(p.run_raw(&[lying, (&f32s(&[4], &good)).into()]).is_err());
    }
    assert!(p.run(&[("x", &good), ("y", &good), ("w", &good)]).is_err());
    assert!(p.run(&[("x", &good)]).unwrap_err().to_string().contains("`y`"));
    assert_eq!(p.run(&[("y", &good), ("x", &good)]).unwrap(), [[2.0, 4.0, 6.0, 8.0]]);
}

/// Fault 15: Typed runs copy bytes by the caller's dtype; half-precision outputs are misread; prepared values are not fed on some paths.
#[test]
fn fault_15_dtypes_are_compared_and_halves_read_right_on_every_path() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F16, [Dim::symbol("n")]).unwrap();
    let w = b.param_with("w", Tensor::full(DType::F16, &[1], 3.0).unwrap()).unwrap();
    let v = b.mul(w, w).unwrap();
    let y = b.mul(x, v).unwrap();
    b.output("y", y).unwrap();
    let mut p = compile(b.finish(), &CompileOptions::new());
    let half = Tensor::full(DType::F16, &[2], 0.5).unwrap();
    let want = Tensor::full(DType::F16, &[2], 4.5).unwrap();
    // As many bytes of another dtype.
    for wrong in [DType::BF16, DType::I16, DType::U16] {
        assert!(p.run_typed(&[("x", wrong, half.bytes())]).is_err(), "{wrong}");
    }
    assert_eq!(p.run_typed(&[("x", DType::F16, half.bytes())]).unwrap()[0], want);
    assert_eq!(p.run_tensors(&[("x", &half)]).unwrap()[0], want);
    assert_eq!(p.run(&[("x", &[0.5, 0.5])]).unwrap(), [[4.5, 4.5]]);
    assert_eq!(p.run_raw(&[(&half).into()]).unwrap().get(0).unwrap().bytes, want.bytes());
    assert_eq!(p.run_borrowed(&[("x", Input::Flat(&[0.5, 0.5]))]).unwrap().get(0).unwrap().bytes, want.bytes());
    let mut bytes = [0u8; 4];
    p.run_into(&[(&half).into()], &mut [TensorMut { dtype: DType::F16, dims: &[2], bytes: &mut bytes }]).unwrap();
    assert_eq!(bytes, want.bytes());
}

/// Fault 16: Every run zero-fills the arena, builds sets, sorts ranges, allocates vectors. (`tests/alloc` counts allocations of warm runs: none.)
#[test]
fn fault_16_a_warm_run_copies_nothing() {
    let mut p = compile(dense(), &CompileOptions::new());
    let x = numbers(1, &[8, 4]);
    p.run_raw(&[(&x).into()]).unwrap();
    let before = p.stats();
    for _ in 0..10 {
        p.run_raw(&[(&x).into()]).unwrap();
    }
    let after = p.stats();
    assert_eq!((after.bytes_moved, after.binds, after.prepares), (before.bytes_moved, before.binds, before.prepares));
}

/// Fault 17: A process-global setting makes two executables interfere.
#[test]
fn fault_17_two_programs_of_different_options_do_not_interfere() {
    let options = [
        CompileOptions::new().threads(1).isa(Some(rlx::driver::Isa::Portable)),
        CompileOptions::new().threads(2).poison(true),
        CompileOptions::new().unoptimised().memory_limit(Some(1 << 30)),
    ];
    let x = numbers(1, &[40, 4]);
    let programs: Vec<_> = options.iter().map(|o| compile(dense(), o)).collect();
    let alone: Vec<_> = options.iter().map(|o| compile(dense(), o).run_tensors(&[("x", &x)]).unwrap()).collect();
    std::thread::scope(|s| {
        for (p, want) in programs.iter().zip(&alone) {
            let x = &x;
            s.spawn(move || (0..300).for_each(|_| assert_eq!(p.run_tensors(&[("x", x)]).unwrap(), *want)));
        }
    });
}

/// Fault 18: Clones copy all weights.
#[test]
fn fault_18_clones_share_weights() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [1, 512]).unwrap();
    let w = b.param_with("w", numbers(1, &[512, 512])).unwrap();
    let y = b.matmul(x, w).unwrap();
    b.output("y", y).unwrap();
    let p = compile(b.finish(), &CompileOptions::new());
    let x = numbers(2, &[1, 512]);
    let want = p.run_tensors(&[("x", &x)]).unwrap();
    let clones: Vec<_> = (0..8).map(|_| p.clone()).collect();
    for c in &clones {
        assert_eq!(c.run_tensors(&[("x", &x)]).unwrap(), want);
        // The packed weight is the original's: nothing was prepared or packed again.
        assert_eq!((c.stats().prepares, c.stats().prepared_bytes), (0, p.stats().prepared_bytes));
    }
}

/// Fault 20: Equality of graphs compares names and counts.
#[test]
fn fault_20_graphs_differ_where_attributes_or_constants_differ() {
    let make = |c: f32, axis: usize| {
        let mut b = Builder::new("main");
        let x = b.input("x", DType::F32, [3, 3]).unwrap();
        let k = b.constant(f32s(&[3], &[1.0, c, 3.0])).unwrap();
        let y = b.mul(x, k).unwrap();
        let y = b.softmax(y, axis).unwrap();
        b.output("y", y).unwrap();
        Module::from_graph(b.finish())
    };
    let (a, same, constant, axis) = (make(2.0, 1), make(2.0, 1), make(2.5, 1), make(2.0, 0));
    assert_eq!(a, same);
    assert!(a != constant && a != axis && constant != axis);
    let print = |m: &Module| rlx::ir::fingerprint::fingerprint(m);
    assert_eq!(print(&a), print(&same));
    assert!(print(&a) != print(&constant) && print(&a) != print(&axis));
    let x = numbers(1, &[3, 3]);
    let run = |m: &Module| session().compile_hir(m).unwrap().run_tensors(&[("x", &x)]).unwrap();
    assert!(run(&a) != run(&constant) && run(&a) != run(&axis));
}
