//! The executor: segments, nested programs, prepare, parameters, states, outputs, errors.

use super::{Maker, apply, executable, poisoned};
use crate::CpuExecutable;
use rlx_compile::lir::{
    BranchKernel, BufId, CallKernel, Kernel, LibraryKernel, Lir, LirModule, LoopKernel, MapKernel, ScanKernel, Segment,
    StatePort, Storage, SubProgram,
};
use rlx_compile::target::{ExecutableGraph, TensorMut};
use rlx_compile::{CompileOptions, InputProblem, RunError};
use rlx_driver::Isa;
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::elementwise::{Binary, Compare};
use rlx_ir::ops::shape::ReadDims;
use rlx_ir::{DType, Dim, Symbol, Tensor};

fn add(m: &mut Maker, a: BufId, b: BufId, to: BufId) {
    binary(m, Binary::Add, DType::F32, a, b, to);
}

/// Elementwise over equal shapes; a one-element second operand is broadcast.
fn binary(m: &mut Maker, f: Binary, dtype: DType, a: BufId, b: BufId, to: BufId) {
    map(m, Elementwise::Binary(f), &[dtype, dtype], dtype, &[a, b], to);
}

fn map(m: &mut Maker, op: Elementwise, args: &[DType], out: DType, from: &[BufId], to: BufId) {
    let space = m.lir.buffer(to).shape.clone();
    let reads =
        from.iter()
            .map(|&b| {
                if m.lir.buffer(b).shape == space { m.dense(b) } else { m.access(b, 0, &vec![Dim::ZERO; space.len()]) }
            })
            .collect();
    let writes = vec![m.dense(to)];
    m.kernel(Kernel::Map(MapKernel { space, reads, program: apply(op, args, out), writes }));
}

fn f32s(v: &[f32]) -> Tensor {
    Tensor::from_slice(&[v.len()], v).unwrap()
}

fn sub(lir: Lir) -> SubProgram {
    SubProgram { program: Box::new(lir) }
}

/// y = x + w, z = y + y.
fn two_outputs() -> Maker {
    let mut m = Maker::new();
    let n = Dim::symbol("n");
    let shape = [n];
    let x = m.input(DType::F32, &shape);
    let w = m.param("w", DType::F32, &[1.into()], None);
    let t = m.arena(DType::F32, &shape);
    let y = m.output("y", DType::F32, &shape);
    let z = m.output("z", DType::F32, &shape);
    add(&mut m, x, w, t);
    add(&mut m, t, t, z);
    add(&mut m, x, w, y);
    m
}

#[test]
fn parameters_outputs_and_the_cache_of_bindings() {
    let mut e = two_outputs().executable(&poisoned(Isa::best(), 2).bind_cache(2));
    let x = f32s(&[1.0, 2.0, 3.0]);
    let missing = e.run(&[(&x).into()], None).unwrap_err();
    assert!(missing.to_string().contains("parameter `w`"), "{missing}");
    e.set_param(0, f32s(&[10.0])).unwrap();
    let all = e.run(&[(&x).into()], None).unwrap();
    assert_eq!(all, [f32s(&[11.0, 12.0, 13.0]), f32s(&[22.0, 24.0, 26.0])]);
    assert_eq!((e.stats().binds, e.stats().kernels), (1, 3));
    // Only what the second output needs runs.
    assert_eq!(e.run(&[(&x).into()], Some(&[1])).unwrap(), [f32s(&[22.0, 24.0, 26.0])]);
    assert_eq!((e.stats().binds, e.stats().bind_hits, e.stats().kernels), (1, 1, 5));
    // Clones share parameters until one of them sets its own.
    let clone = e.clone_box();
    e.set_param(0, f32s(&[0.5])).unwrap();
    assert_eq!(e.run(&[(&x).into()], Some(&[0])).unwrap(), [f32s(&[1.5, 2.5, 3.5])]);
    assert_eq!(clone.run(&[(&x).into()], Some(&[0])).unwrap(), [f32s(&[11.0, 12.0, 13.0])]);
    // The least recently used binding goes.
    for n in [1usize, 2, 3, 1, 2] {
        e.run(&[(&f32s(&vec![0.0; n])).into()], None).unwrap();
    }
    assert!(e.stats().binds > 4, "{:?}", e.stats());
    // Borrowed results and results in the caller's memory.
    let got = e.run_borrowed(&[(&x).into()], None).unwrap();
    assert_eq!((got[1].dims, got[1].bytes), (&[3][..], f32s(&[3.0, 5.0, 7.0]).bytes()));
    let (mut a, mut b) = ([0u8; 12], vec![0u8; 13]);
    {
        // The second is not aligned.
        let dims = [3usize];
        let mut outs = [
            TensorMut { dtype: DType::F32, dims: &dims, bytes: &mut a },
            TensorMut { dtype: DType::F32, dims: &dims, bytes: &mut b[1..] },
        ];
        e.run_into(&[(&x).into()], &mut outs).unwrap();
    }
    assert_eq!((&a[..], &b[1..]), (f32s(&[1.5, 2.5, 3.5]).bytes(), f32s(&[3.0, 5.0, 7.0]).bytes()));
    let dims = [4usize];
    let mut outs = [
        TensorMut { dtype: DType::F32, dims: &dims, bytes: &mut a },
        TensorMut { dtype: DType::F32, dims: &dims, bytes: &mut b },
    ];
    let error = e.run_into(&[(&x).into()], &mut outs).unwrap_err();
    assert!(matches!(&error, RunError::Inputs(p) if p.len() == 2), "{error}");
}

#[test]
fn everything_wrong_with_a_call_is_listed() {
    let mut m = Maker::new();
    let n = Dim::symbol("n");
    let [a, b] = [0, 1].map(|_| m.input(DType::F32, std::slice::from_ref(&n)));
    let w = m.param("w", DType::F32, &[1.into()], None);
    let y = m.output("y", DType::F32, &[n]);
    add(&mut m, a, w, y);
    let _ = b;
    let mut e = m.executable(&poisoned(Isa::best(), 1));
    let wrong = Tensor::from_slice(&[2], &[1i32, 2]).unwrap();
    let error = e.run(&[(&wrong).into()], None).unwrap_err();
    let RunError::Inputs(problems) = &error else { panic!("{error}") };
    assert!(matches!(
        problems.as_slice(),
        [
            InputProblem::DType { .. },
            InputProblem::Missing { kind: "input", .. },
            InputProblem::Missing { kind: "parameter", .. }
        ]
    ));
    e.set_param(0, f32s(&[0.0])).unwrap();
    let error = e.run(&[(&f32s(&[1.0, 2.0])).into(), (&f32s(&[1.0])).into()], None).unwrap_err();
    assert!(error.to_string().contains("symbol `n` is 2 (from input `x0` axis 0) but 1"), "{error}");
    let error = e.set_param(0, f32s(&[1.0, 2.0])).unwrap_err();
    assert!(matches!(&error, RunError::Inputs(p) if matches!(p[0], InputProblem::Shape { .. })), "{error}");
    assert!(e.run(&[], Some(&[9])).is_err());
}

#[test]
fn unaligned_inputs_are_copied() {
    let mut e = two_outputs().executable(&poisoned(Isa::best(), 1));
    e.set_param(0, f32s(&[1.0])).unwrap();
    let mut bytes = vec![0u8];
    bytes.extend(f32s(&[1.0, 2.0]).bytes());
    let input = rlx_compile::target::TensorRef { dtype: DType::F32, dims: &[2], bytes: &bytes[1..] };
    assert_eq!(e.run(&[input], Some(&[0])).unwrap(), [f32s(&[2.0, 3.0])]);
}

#[test]
fn prepare_runs_once_for_a_set_of_parameters() {
    let mut p = Maker::new();
    let w = p.param("w", DType::F32, &[2.into()], Some(f32s(&[1.0, 2.0])));
    let out = p.output("ww", DType::F32, &[2.into()]);
    add(&mut p, w, w, out);
    let mut m = Maker::new();
    let x = m.input(DType::F32, &[2.into()]);
    let ww = m.param("ww", DType::F32, &[2.into()], None);
    let v = m.param("v", DType::F32, &[2.into()], Some(f32s(&[100.0, 200.0])));
    let (t, y) = (m.arena(DType::F32, &[2.into()]), m.output("y", DType::F32, &[2.into()]));
    add(&mut m, x, ww, t);
    add(&mut m, t, v, y);
    let module = LirModule { prepare: Some(p.finish()), main: m.finish() };
    let mut e = CpuExecutable::new(module, &poisoned(Isa::best(), 1)).unwrap();
    let names: Vec<_> = e.signature().params.iter().map(|p| p.name.to_string()).collect();
    assert_eq!(names, ["w", "v"]);
    let x = f32s(&[0.5, 0.5]);
    for _ in 0..3 {
        assert_eq!(e.run(&[(&x).into()], None).unwrap(), [f32s(&[102.5, 204.5])]);
    }
    assert_eq!((e.stats().prepares, e.stats().prepared_bytes), (1, 8));
    e.set_param(1, f32s(&[0.0, 0.0])).unwrap();
    assert_eq!(e.run(&[(&x).into()], None).unwrap(), [f32s(&[2.5, 4.5])]);
    assert_eq!(e.stats().prepares, 1);
    e.set_param(0, f32s(&[10.0, 10.0])).unwrap();
    e.finalize_params().unwrap();
    assert_eq!(e.stats().prepares, 2);
    assert_eq!(e.run(&[(&x).into()], None).unwrap(), [f32s(&[20.5, 20.5])]);
    assert_eq!(e.stats().prepares, 2);
}

#[test]
fn states_last_from_run_to_run() {
    let mut m = Maker::new();
    let x = m.input(DType::F32, &[2.into()]);
    let s = m.buffer(DType::F32, &[2.into()], Storage::State(0));
    let y = m.output("y", DType::F32, &[2.into()]);
    add(&mut m, s, x, y);
    let (shape, init) = (m.lir.buffer(s).shape.clone(), Some(f32s(&[1.0, 1.0])));
    m.lir.states.push(StatePort { name: "s".into(), buffer: s, shape, init, grows: None, next: Some(y) });
    let mut e = m.executable(&poisoned(Isa::best(), 1));
    let x = f32s(&[1.0, 2.0]);
    assert!(matches!(e.run(&[(&x).into()], None), Err(RunError::Unsupported(_))));
    assert_eq!(e.state(0).unwrap(), f32s(&[1.0, 1.0]));
    for i in 1..4 {
        let got = e.run_borrowed(&[(&x).into()], None).unwrap();
        assert_eq!(got[0].bytes, f32s(&[1.0 + i as f32, 1.0 + 2.0 * i as f32]).bytes());
    }
    let mut other = e.clone_box();
    other.run_borrowed(&[(&x).into()], None).unwrap();
    assert_eq!((e.state(0).unwrap(), other.state(0).unwrap()), (f32s(&[4.0, 7.0]), f32s(&[5.0, 9.0])));
    e.set_state(0, None).unwrap();
    assert_eq!(e.state(0).unwrap(), f32s(&[1.0, 1.0]));
    e.set_state(0, Some(f32s(&[0.0, 0.0]))).unwrap();
    e.run_borrowed(&[(&x).into()], None).unwrap();
    assert_eq!(e.state(0).unwrap(), x);
}

/// Sizes read from data: the second segment's buffers and plans come when they are known.
#[test]
fn data_become_sizes() {
    let mut m = Maker::new();
    let k = Symbol::new("k");
    let size = m.input(DType::I64, &[1.into()]);
    let w = m.param("w", DType::F32, &[1.into()], Some(f32s(&[2.0])));
    let copy = m.arena(DType::I64, &[1.into()]);
    let t = m.arena(DType::F32, &[Dim::symbol("k")]);
    let y = m.output("y", DType::F32, &[Dim::symbol("k")]);
    let (inputs, outputs) = (vec![m.view(size)], vec![m.view(copy)]);
    let op = ReadDims { symbols: vec![k.clone()] };
    m.kernel(Kernel::Library(LibraryKernel { op: op.into(), dims: vec![], inputs, outputs }));
    map(&mut m, Elementwise::Binary(Binary::Add), &[DType::F32; 2], DType::F32, &[w, w], t);
    add(&mut m, t, w, y);
    m.lir.segments = vec![Segment { kernels: 0..1, defines: vec![k] }, Segment { kernels: 1..3, defines: vec![] }];
    let e = m.executable(&poisoned(Isa::best(), 2));
    for n in [3i64, 0, 2000, 3] {
        let got = e.run(&[(&Tensor::from_slice(&[1], &[n]).unwrap()).into()], None).unwrap();
        assert_eq!(got, [f32s(&vec![6.0; n as usize])]);
    }
    let error = e.run(&[(&Tensor::from_slice(&[1], &[-1i64]).unwrap()).into()], None).unwrap_err();
    assert!(matches!(&error, RunError::Kernel { .. }), "{error}");
}

#[test]
fn the_branch_taken_runs_and_defines_sizes() {
    // then: x + x of n elements; else: x's first element alone.
    let n = Dim::symbol("n");
    let branch = |whole: bool| {
        let mut b = Maker::new();
        let x = b.input(DType::F32, &[Dim::symbol("n")]);
        let size = if whole { Dim::symbol("n") } else { Dim::ONE };
        let y = b.output("y", DType::F32, std::slice::from_ref(&size));
        let space = vec![b.dim(size)];
        let reads = vec![b.access(x, 0, &[Dim::ONE]), b.access(x, 0, &[Dim::ONE])];
        let writes = vec![b.dense(y)];
        let op = Elementwise::Binary(if whole { Binary::Add } else { Binary::Max });
        let program = apply(op, &[DType::F32; 2], DType::F32);
        b.kernel(Kernel::Map(MapKernel { space, reads, program, writes }));
        sub(b.finish())
    };
    let mut m = Maker::new();
    let cond = m.input(DType::Bool, &[]);
    let x = m.input(DType::F32, std::slice::from_ref(&n));
    let k = Dim::symbol("k");
    let t = m.arena(DType::F32, std::slice::from_ref(&k));
    let y = m.output("y", DType::F32, std::slice::from_ref(&k));
    let kernel = BranchKernel {
        cond: m.view(cond),
        captures: vec![m.view(x)],
        then_branch: branch(true),
        else_branch: branch(false),
        outputs: vec![m.view(t)],
        defines: vec![Symbol::new("k")],
    };
    m.kernel(Kernel::Branch(kernel));
    add(&mut m, t, t, y);
    m.lir.segments =
        vec![Segment { kernels: 0..1, defines: vec![Symbol::new("k")] }, Segment { kernels: 1..2, defines: vec![] }];
    let e = m.executable(&poisoned(Isa::best(), 1));
    let x = f32s(&[3.0, 4.0]);
    for (cond, want) in [(true, f32s(&[12.0, 16.0])), (false, f32s(&[6.0]))] {
        let cond = Tensor::from_bools(&[], &[cond]).unwrap();
        assert_eq!(e.run(&[(&cond).into(), (&x).into()], None).unwrap(), [want]);
    }
}

/// sum += step while sum < limit; each sum is stacked.
#[test]
fn loops_carry_and_stack() {
    let mut b = Maker::new();
    let _iteration = b.input(DType::I64, &[]);
    let _go = b.input(DType::Bool, &[]);
    let sum = b.input(DType::F32, &[]);
    let (step, limit) = (b.input(DType::F32, &[]), b.input(DType::F32, &[]));
    let go = b.output("go", DType::Bool, &[]);
    let next = b.output("next", DType::F32, &[]);
    add(&mut b, sum, step, next);
    map(&mut b, Elementwise::Compare(Compare::Lt), &[DType::F32; 2], DType::Bool, &[next, limit], go);
    // The carried value is also the scan output.
    let port = rlx_compile::lir::Port { name: "each".into(), buffer: next };
    b.lir.outputs.push(port);
    let mut m = Maker::new();
    let trips = m.input(DType::I64, &[]);
    let [sum, step, limit] = [0, 1, 2].map(|_| m.input(DType::F32, &[]));
    let last = m.output("last", DType::F32, &[]);
    let each = m.output("each", DType::F32, &[Dim::symbol("t")]);
    let kernel = LoopKernel {
        trip_count: Some(m.view(trips)),
        cond: None,
        carried: vec![m.view(sum)],
        captures: vec![m.view(step), m.view(limit)],
        body: sub(b.finish()),
        outputs: vec![m.view(last), m.view(each)],
        defines: vec![Symbol::new("t")],
    };
    m.kernel(Kernel::Loop(kernel));
    m.lir.segments = vec![Segment { kernels: 0..1, defines: vec![Symbol::new("t")] }];
    let e = m.executable(&poisoned(Isa::best(), 1));
    for (trips, want_last, want) in
        [(100i64, 5.0f32, vec![2.0, 3.0, 4.0, 5.0]), (2, 3.0, vec![2.0, 3.0]), (0, 1.0, vec![])]
    {
        let inputs = [Tensor::scalar(trips), Tensor::scalar(1f32), Tensor::scalar(1f32), Tensor::scalar(5f32)];
        let inputs: Vec<_> = inputs.iter().map(|t| t.into()).collect();
        assert_eq!(e.run(&inputs, None).unwrap(), [Tensor::scalar(want_last), f32s(&want)]);
    }
}

/// Prefix sums over axis 1, forwards and backwards.
#[test]
fn scans_walk_an_axis() {
    for reverse in [false, true] {
        let mut b = Maker::new();
        let two = [Dim::from(2)];
        let (sum, x) = (b.input(DType::F32, &two), b.input(DType::F32, &two));
        let next = b.output("next", DType::F32, &two);
        add(&mut b, sum, x, next);
        b.lir.outputs.push(rlx_compile::lir::Port { name: "each".into(), buffer: next });
        let mut m = Maker::new();
        let zero = m.param("zero", DType::F32, &two, Some(f32s(&[0.0, 0.0])));
        let x = m.input(DType::F32, &[2.into(), Dim::symbol("t")]);
        let total = m.output("total", DType::F32, &two);
        let each = m.output("each", DType::F32, &[2.into(), Dim::symbol("t")]);
        let steps = m.dim(Dim::symbol("t"));
        let kernel = ScanKernel {
            steps,
            carried: vec![m.view(zero)],
            scanned: vec![(m.view(x), 1, reverse)],
            captures: vec![],
            body: sub(b.finish()),
            outputs: vec![m.view(total)],
            stacked: vec![(m.view(each), 1, reverse)],
        };
        m.kernel(Kernel::Scan(kernel));
        let e = m.executable(&poisoned(Isa::best(), 1));
        let x = Tensor::from_slice(&[2, 3], &[1f32, 2.0, 3.0, 10.0, 20.0, 30.0]).unwrap();
        let want = if reverse { [6f32, 5.0, 3.0, 60.0, 50.0, 30.0] } else { [1f32, 3.0, 6.0, 10.0, 30.0, 60.0] };
        let got = e.run(&[(&x).into()], None).unwrap();
        assert_eq!(got, [f32s(&[6.0, 60.0]), Tensor::from_slice(&[2, 3], &want).unwrap()]);
        let empty = Tensor::from_slice::<f32>(&[2, 0], &[]).unwrap();
        assert_eq!(e.run(&[(&empty).into()], None).unwrap(), [f32s(&[0.0, 0.0]), empty]);
    }
}

#[test]
fn called_functions_have_symbols_of_their_own() {
    let mut f = Maker::new();
    // The callee's `n` is the caller's `m`.
    let x = f.input(DType::F32, &[Dim::symbol("n")]);
    let y = f.output("y", DType::F32, &[Dim::symbol("n")]);
    add(&mut f, x, x, y);
    let mut m = Maker::new();
    let a = m.input(DType::F32, &[Dim::symbol("n")]);
    let b = m.input(DType::F32, &[Dim::symbol("m")]);
    let y = m.output("y", DType::F32, &[Dim::symbol("m")]);
    let _ = a;
    let kernel =
        CallKernel { inputs: vec![m.view(b)], body: sub(f.finish()), outputs: vec![m.view(y)], defines: vec![] };
    m.kernel(Kernel::Call(kernel));
    let e = m.executable(&poisoned(Isa::best(), 1));
    let got = e.run(&[(&f32s(&[0.0; 5])).into(), (&f32s(&[1.0, 2.0])).into()], None).unwrap();
    assert_eq!(got, [f32s(&[2.0, 4.0])]);
}

#[test]
fn an_input_may_be_an_output() {
    let mut m = Maker::new();
    let x = m.input(DType::F32, &[2.into()]);
    m.lir.outputs.push(rlx_compile::lir::Port { name: "y".into(), buffer: x });
    let mut e = executable(m.finish(), &poisoned(Isa::best(), 1));
    let x = f32s(&[1.0, 2.0]);
    assert_eq!(e.run(&[(&x).into()], None).unwrap(), std::slice::from_ref(&x));
    assert_eq!(e.run_borrowed(&[(&x).into()], None).unwrap()[0].bytes, x.bytes());
}

#[test]
fn kernels_are_timed() {
    let mut e = two_outputs().executable(&poisoned(Isa::best(), 1));
    e.set_param(0, f32s(&[1.0])).unwrap();
    let profile = e.profile(&[(&f32s(&[0.0; 100])).into()]).unwrap();
    assert_eq!(profile.len(), 3);
    assert!(profile.iter().all(|k| k.kind == "map" && k.ops == 100 && k.bytes >= 800), "{profile:?}");
}

/// A binding of many kernels is made once for each size and found again.
#[test]
fn each_size_of_many_kernels_is_bound_once() {
    let mut m = Maker::new();
    let shape = ["batch", "seq"].map(Dim::symbol);
    let width = |i: usize| Dim::from(64 + i % 7);
    let full = |i: usize| [shape[0].clone(), shape[1].clone(), width(i)];
    let mut x = m.input(DType::F32, &full(0));
    for i in 0..150 {
        // The walk takes the first 64 columns of rows of different widths.
        let y = if i == 149 { m.output("y", DType::F32, &full(0)) } else { m.arena(DType::F32, &full(i)) };
        let space = m.dims(&[shape[0].clone(), shape[1].clone(), Dim::from(64)]);
        let strides = |m: &Maker, b: BufId| {
            let w = m.lir.dims.get(m.lir.buffer(b).shape[2]).clone();
            [&shape[1] * &w, w, Dim::ONE]
        };
        let (from, to) = (strides(&m, x), strides(&m, y));
        let reads = vec![m.access(x, 0, &from), m.access(x, 0, &from)];
        let writes = vec![m.access(y, 0, &to)];
        let program = apply(Elementwise::Binary(Binary::Max), &[DType::F32; 2], DType::F32);
        m.kernel(Kernel::Map(MapKernel { space, reads, program, writes }));
        x = y;
    }
    let e = m.executable(&CompileOptions::new().threads(1));
    let input = |seq: usize| Tensor::zeros(DType::F32, &[2, seq, 64]).unwrap();
    for seq in 1..20 {
        e.run(&[(&input(seq)).into()], None).unwrap();
        // How long a binding takes is measured in bench/; here each size is bound once.
        assert_eq!(e.stats().binds, seq as u64, "bind {seq}");
    }
    let before = e.stats();
    e.run(&[(&input(7)).into()], None).unwrap();
    assert_eq!((e.stats().binds, e.stats().bind_hits), (before.binds, before.bind_hits + 1));
}
