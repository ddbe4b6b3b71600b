//! A warm borrowed run allocates nothing: counted by an allocator of our own, over all threads of the process.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rlx::ir::IrError;
use rlx::ir::ValueId;
use rlx::ir::ops::control::LoopStep;
use rlx::ir::ops::elementwise::Unary;
use rlx::ir::ops::neural::{Attention, AttnLayout, MaskKind};
use rlx::{
    Builder, CompileOptions, CompiledGraph, DType, Device, Dim, Input, Module, Session, Tensor, TensorMut, TensorRef,
};

struct Counting;

static ON: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicUsize = AtomicUsize::new(0);
static TRACE: AtomicBool = AtomicBool::new(false);

/// Where memory was asked for, if `TRACE_ALLOC` is set.
fn count() {
    if ON.load(Ordering::Relaxed) {
        COUNT.fetch_add(1, Ordering::Relaxed);
        if TRACE.load(Ordering::Relaxed) && ON.swap(false, Ordering::Relaxed) {
            println!("{}", std::backtrace::Backtrace::force_capture());
            ON.store(true, Ordering::Relaxed);
        }
    }
}

// SAFETY: every call is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations while `f` runs.
fn allocations(f: impl FnOnce()) -> usize {
    COUNT.store(0, Ordering::SeqCst);
    ON.store(true, Ordering::SeqCst);
    f();
    ON.store(false, Ordering::SeqCst);
    COUNT.load(Ordering::SeqCst)
}

fn numbers(seed: u64, dims: &[usize]) -> Tensor {
    let mut rng = rlx::ir::testing::Rng::new(seed);
    let v: Vec<f32> = (0..dims.iter().product()).map(|_| rng.unit() as f32 * 0.2).collect();
    Tensor::from_slice(dims, &v).unwrap()
}

const WIDTH: usize = 64;
const HEADS: usize = 4;

/// An encoder layer as minilm has it: embedding, attention with a mask, residuals, norms, a gelu MLP, mean pooling.
fn encoder() -> Result<Module, IrError> {
    let mut b = Builder::new("main");
    let (batch, seq) = (Dim::symbol("batch"), Dim::symbol("seq"));
    let ids = b.input("ids", DType::I64, [batch.clone(), seq.clone()])?;
    let seen = b.input("mask", DType::I64, [batch.clone(), seq.clone()])?;
    let mut seed = 0;
    let mut param = |b: &mut Builder, name: &str, dims: &[usize]| {
        seed += 1;
        b.param_with(name, numbers(seed, dims))
    };
    let table = param(&mut b, "table", &[100, WIDTH])?;
    let mut x = b.gather(table, ids, 0)?;
    let zero = b.constant(Tensor::scalar(0i64))?;
    let seen = b.gt(seen, zero)?;
    let mask = b.reshape(seen, [batch.clone(), Dim::ONE, Dim::ONE, seq.clone()])?;
    for n in 0..2 {
        let mut parts = Vec::new();
        for part in ["q", "k", "v"] {
            let w = param(&mut b, &format!("{n}.{part}"), &[WIDTH, WIDTH])?;
            let c = param(&mut b, &format!("{n}.{part}.bias"), &[WIDTH])?;
            let y = b.matmul(x, w)?;
            let y = b.add(y, c)?;
            parts.push(b.reshape(y, [batch.clone(), seq.clone(), HEADS.into(), (WIDTH / HEADS).into()])?);
        }
        let attention = Attention {
            layout: AttnLayout::Bshd,
            scale: rlx::ir::attr::FloatBits::new(0.25),
            causal: false,
            window: None,
            softcap: None,
            mask: MaskKind::Bool,
        };
        let y = b.op1(attention, &[parts[0], parts[1], parts[2], mask])?;
        let y = b.reshape(y, [batch.clone(), seq.clone(), WIDTH.into()])?;
        let w = param(&mut b, &format!("{n}.out"), &[WIDTH, WIDTH])?;
        let y = b.matmul(y, w)?;
        let y = b.add(x, y)?;
        x = b.layer_norm(y, None, None, &[2], 1e-5)?;
        let (up, down) =
            (param(&mut b, &format!("{n}.up"), &[WIDTH, 256])?, param(&mut b, &format!("{n}.down"), &[256, WIDTH])?);
        let y = b.matmul(x, up)?;
        let y = b.op1(Unary::Gelu, &[y])?;
        let y = b.matmul(y, down)?;
        let y = b.add(x, y)?;
        x = b.layer_norm(y, None, None, &[2], 1e-5)?;
    }
    let y = b.reduce_mean(x, &[1], false)?;
    b.output("tokens", x)?;
    b.output("mean", y)?;
    Ok(Module::from_graph(b.finish()))
}

/// A scan over rows; what it gives is carried by a loop whose first steps take one branch and whose last ones the other.
fn loops() -> Result<Module, IrError> {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n"), 8.into()])?;
    let w = b.param_with("w", numbers(3, &[8, 8]))?;
    let start = b.constant(numbers(9, &[8]))?;
    let scanned = b.scan_(&[start], &[x], &[w], |b, carried, slices, captures| {
        let row = b.reshape(slices[0], [1.into(), 8.into()] as [Dim; 2])?;
        let y = b.matmul(row, captures[0])?;
        let y = b.reshape(y, [8.into()] as [Dim; 1])?;
        let state = b.add(carried[0], y)?;
        Ok((vec![b.tanh(state)?], vec![y]))
    })?;
    let trips = b.constant(Tensor::scalar(5i64))?;
    let looped = b.loop_(Some(trips), None, &[scanned[1]], &[x], |b, args| {
        let limit = b.constant(Tensor::scalar(3i64))?;
        let early = b.lt(args.iteration, limit)?;
        let add = |b: &mut Builder, v: &[ValueId]| Ok(vec![b.add(v[0], v[1])?]);
        let mul = |b: &mut Builder, v: &[ValueId]| Ok(vec![b.mul(v[0], v[1])?]);
        let next = b.if_(early, &[args.carried[0], args.captures[0]], add, mul)?;
        Ok(LoopStep { cond: args.cond, carried: next, scans: vec![] })
    })?;
    b.output("state", scanned[0])?;
    b.output("last", looped[0])?;
    Ok(Module::from_graph(b.finish()))
}

fn compile(m: &Module, threads: usize) -> CompiledGraph {
    let options = CompileOptions::new().threads(threads);
    Session::with_options(Device::Cpu, options).unwrap().compile_hir(m).unwrap()
}

/// Runs in every borrowed way, warm, at each set of inputs in turn.
fn check(what: &str, m: &Module, sets: &[Vec<Tensor>]) {
    for threads in [1, 2] {
        let mut p = compile(m, threads);
        let names: Vec<String> = p.inputs().iter().map(|i| i.name.to_string()).collect();
        let raw: Vec<Vec<TensorRef<'_>>> = sets.iter().map(|s| s.iter().map(TensorRef::from).collect()).collect();
        let named: Vec<Vec<(&str, Input<'_>)>> =
            sets.iter().map(|s| names.iter().map(String::as_str).zip(s.iter().map(Input::from)).collect()).collect();
        let outputs: Vec<Vec<Tensor>> = named.iter().map(|i| p.run_read_outputs(i, None).unwrap()).collect();
        let mut memory: Vec<Vec<Vec<u8>>> =
            outputs.iter().map(|o| o.iter().map(|t| vec![0; t.bytes().len()]).collect()).collect();
        for _ in 0..2 {
            for i in 0..sets.len() {
                p.run_raw(&raw[i]).unwrap();
                p.run_borrowed(&named[i]).unwrap();
                into(&mut p, &raw[i], &outputs[i], &mut memory[i]);
            }
        }
        if std::env::var_os("TRACE_ALLOC").is_some() {
            TRACE.store(true, Ordering::SeqCst);
        }
        for i in 0..sets.len() {
            let n = allocations(|| drop(p.run_raw(&raw[i]).unwrap()));
            assert_eq!(n, 0, "{what}, set {i}, {threads} threads: run_raw");
            let n = allocations(|| drop(p.run_borrowed(&named[i]).unwrap()));
            assert_eq!(n, 0, "{what}, set {i}, {threads} threads: run_borrowed");
            let mut outs: Vec<TensorMut<'_>> = outputs[i]
                .iter()
                .zip(&mut memory[i])
                .map(|(t, bytes)| TensorMut { dtype: t.dtype(), dims: t.dims(), bytes })
                .collect();
            let n = allocations(|| p.run_into(&raw[i], &mut outs).unwrap());
            assert_eq!(n, 0, "{what}, set {i}, {threads} threads: run_into");
            drop(outs);
            for (t, bytes) in outputs[i].iter().zip(&memory[i]) {
                assert_eq!(t.bytes(), bytes, "{what}");
            }
        }
    }
}

fn into(p: &mut CompiledGraph, inputs: &[TensorRef<'_>], like: &[Tensor], memory: &mut [Vec<u8>]) {
    let mut outs: Vec<TensorMut<'_>> =
        like.iter().zip(memory).map(|(t, bytes)| TensorMut { dtype: t.dtype(), dims: t.dims(), bytes }).collect();
    p.run_into(inputs, &mut outs).unwrap();
}

#[test]
fn no_allocation_in_a_warm_borrowed_run() {
    // The counter counts.
    assert!(allocations(|| drop(std::hint::black_box(vec![1u8; 100]))) >= 1);
    let text = |batch: usize, seq: usize| {
        let ids: Vec<i64> = (0..batch * seq).map(|i| (i * 7 % 100) as i64).collect();
        let mask: Vec<i64> = (0..batch * seq).map(|i| i64::from(i % seq < seq - seq / 3)).collect();
        vec![Tensor::from_slice(&[batch, seq], &ids).unwrap(), Tensor::from_slice(&[batch, seq], &mask).unwrap()]
    };
    check("encoder", &encoder().unwrap(), &[text(1, 16), text(3, 33), text(2, 1)]);

    check(
        "loops",
        &loops().unwrap(),
        &[vec![numbers(4, &[3, 8])], vec![numbers(5, &[6, 8])], vec![numbers(6, &[1, 8])]],
    );

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("models/silero_vad/model.onnx");
    let vad = rlx::onnx::load(&path, &rlx::onnx::ImportOptions::default()).unwrap().module;
    let sound = |rate: i64| {
        let n = if rate == 16000 { 576 } else { 288 };
        vec![numbers(1, &[1, n]), numbers(2, &[2, 1, 128]), Tensor::scalar(rate)]
    };
    check("silero_vad", &vad, &[sound(16000)]);

    let shared =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|a| a.join("shared/models/minilm_l6_v2/model.onnx"));
    match shared.into_iter().find(|p| p.is_file()) {
        Some(path) => {
            let m = rlx::onnx::load(&path, &rlx::onnx::ImportOptions::default()).unwrap().module;
            let words = |batch: usize, seq: usize| {
                let of = |f: &dyn Fn(usize) -> i64| {
                    Tensor::from_slice(&[batch, seq], &(0..batch * seq).map(f).collect::<Vec<_>>()).unwrap()
                };
                vec![of(&|i| 1000 + i as i64), of(&|_| 1), of(&|_| 0)]
            };
            check("minilm", &m, &[words(1, 16), words(2, 7)]);
        }
        None => println!("skipped: there is no shared/models/minilm_l6_v2 beside the repository"),
    }
}
