//! Small figures of the runtime, one line each: `cargo run --release -p rlx --example micro [NAME]`.
//!
//! - `chain`: a chain of twelve elementwise ops over two inputs that are used again, against a copy of as many bytes;
//! - `small`: ten ops (4×4 products and tanh in turn): time of a run;
//! - `callers`: sixteen callers of one program at once, against the same work in sequence;
//! - `attention`: attention of one sequence, twelve heads, as GFLOP/s of its products, on one thread;
//! - `product`: products, as GFLOP/s, and a product of one row, as GB/s, on one and two threads.
#![allow(clippy::print_stdout)]

use rlx::compile::target::{TensorMut, TensorRef};
use rlx::prelude::*;
use std::time::{Duration, Instant};

/// A product of two matrices in text form.
const DOT: &str = "{lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0], accumulate = none}";

type Failure = Box<dyn std::error::Error>;

/// The median of many runs' times, in microseconds, over about `seconds`.
fn median(seconds: f64, mut run: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    for _ in 0..3 {
        run()?;
    }
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < Duration::from_secs_f64(seconds) || times.len() < 5 {
        let t = Instant::now();
        run()?;
        times.push(t.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

fn compile(text: &str, threads: usize) -> Result<CompiledGraph, Failure> {
    let module = rlx::ir::text::parse_module(text)?;
    Ok(Session::new(Device::Cpu)?.compile_module_with(&module, &CompileOptions::new().threads(threads))?)
}

fn f32s<'a>(dims: &'a [usize], values: &'a [f32]) -> TensorRef<'a> {
    TensorRef { dtype: DType::F32, dims, bytes: bytemuck::cast_slice(values) }
}

const CHAIN: &str = "
func @main(%x: f32[n], %y: f32[n]) -> (out: f32[n]) {
  %0 = mul(%x, %y)
  %1 = add(%0, %x)
  %2 = maximum(%1, %y)
  %3 = mul(%2, %x)
  %4 = sub(%3, %y)
  %5 = minimum(%4, %x)
  %6 = abs(%5)
  %7 = mul(%6, %y)
  %8 = add(%7, %x)
  %9 = mul(%8, %y)
  %10 = sub(%x, %9)
  %11 = mul(%10, %y)
  return %11
}
";

fn chain(threads: usize) -> Result<(), Failure> {
    const N: usize = 16 << 20;
    let mut program = compile(CHAIN, threads)?;
    let (x, y, mut out) = (vec![0.5f32; N], vec![0.75f32; N], vec![1.0f32; N]);
    let (x, y) = (f32s(&[N], &x), f32s(&[N], &y));
    let memory: &mut [u8] = bytemuck::cast_slice_mut(&mut out);
    let time = median(3.0, || {
        let output = TensorMut { dtype: DType::F32, dims: &[N], bytes: &mut *memory };
        Ok(program.run_into(&[x, y], &mut [output])?)
    })?;
    let copy = median(3.0, || {
        memory.copy_from_slice(x.bytes);
        Ok(())
    })?;
    let kernels: usize = program.report().kernels.iter().map(|k| k.1).sum();
    let ratio = time / copy;
    println!(
        "chain of 12 over {N} f32, {threads} threads: {time:.0} µs, {ratio:.2} times a copy ({copy:.0} µs); {kernels} kernel"
    );
    Ok(())
}

/// Products of 4×4 and tanh in turn.
fn ten() -> Result<CompiledGraph, Failure> {
    let mut text = String::from("func @main(%x: f32[4, 4]; param %w: f32[4, 4]) -> (out: f32[4, 4]) {\n");
    let mut last = "%x".to_string();
    for i in 0..5 {
        let (a, b) = (2 * i, 2 * i + 1);
        text += &format!("  %{a} = dot_general({last}, %w) {DOT}\n  %{b} = tanh(%{a})\n");
        last = format!("%{b}");
    }
    text += &format!("  return {last}\n}}\n");
    let mut program = compile(&text, 1)?;
    program.set_param("w", &[0.1; 16])?;
    Ok(program)
}

fn small() -> Result<(), Failure> {
    let mut program = ten()?;
    let x = [0.5f32; 16];
    let time = median(1.0, || {
        for _ in 0..100 {
            program.run_raw(&[f32s(&[4, 4], &x)])?;
        }
        Ok(())
    })?;
    let kernels: usize = program.report().kernels.iter().map(|k| k.1).sum();
    println!("ten small ops ({kernels} kernels): {:.2} µs a run", time / 100.0);
    Ok(())
}

fn product(m: usize, k: usize, n: usize, threads: usize) -> Result<(), Failure> {
    let text = format!(
        "func @main(%x: f32[{m}, {k}]; param %w: f32[{k}, {n}]) -> (out: f32[{m}, {n}]) {{
  %0 = dot_general(%x, %w) {DOT}
  return %0
}}
"
    );
    let mut program = compile(&text, threads)?;
    program.set_param("w", &vec![0.01; k * n])?;
    let x = vec![0.5f32; m * k];
    let time = median(2.0, || {
        program.run_raw(&[f32s(&[m, k], &x)])?;
        Ok(())
    })?;
    let (flops, bytes) = (2.0 * (m * k * n) as f64, 4.0 * (k * n) as f64);
    println!(
        "{m}x{k}x{n}, {threads} threads: {:.1} GFLOP/s, weights {:.1} GB/s",
        flops / time / 1e3,
        bytes / time / 1e3
    );
    Ok(())
}

fn attention(queries: usize, heads: usize, head_dim: usize) -> Result<(), Failure> {
    let (ty, scale) = (format!("f32[1, {queries}, {heads}, {head_dim}]"), (head_dim as f64).sqrt().recip());
    let text = format!(
        "func @main(%q: {ty}, %k: {ty}, %v: {ty}) -> (out: {ty}) {{
  %0 = attention(%q, %k, %v) {{layout = bshd, scale = {scale}, causal = false, window = none, softcap = none, mask = none}}
  return %0
}}
"
    );
    let mut program = compile(&text, 1)?;
    let dims = [1, queries, heads, head_dim];
    let values: Vec<f32> = (0..dims.iter().product::<usize>()).map(|i| (i % 17) as f32 / 17.0 - 0.5).collect();
    let x = f32s(&dims, &values);
    let time = median(1.0, || {
        program.run_raw(&[x, x, x])?;
        Ok(())
    })?;
    let flops = 4.0 * (heads * queries * queries * head_dim) as f64;
    println!(
        "attention {heads} heads, {queries} queries, {head_dim} features: {time:.0} µs, {:.1} GFLOP/s",
        flops / time / 1e3
    );
    Ok(())
}

fn callers() -> Result<(), Failure> {
    const CALLERS: usize = 16;
    const RUNS: usize = 200;
    let text = format!(
        "func @main(%x: f32[64, 256]; param %w: f32[256, 256]) -> (out: f32[64, 256]) {{
  %0 = dot_general(%x, %w) {DOT}
  %1 = tanh(%0)
  return %1
}}
"
    );
    let mut program = compile(&text, 0)?;
    program.set_param("w", &vec![0.01; 256 * 256])?;
    let x = Tensor::from_slice(&[64, 256], &vec![0.5f32; 64 * 256])?;
    program.run_tensors(&[("x", &x)])?;
    let together = median(3.0, || {
        std::thread::scope(|scope| {
            let call = || (0..RUNS).try_for_each(|_| program.run_tensors(&[("x", &x)]).map(|_| ()));
            let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(call)).collect();
            callers.into_iter().try_for_each(|c| c.join().map_err(|_| "a caller panicked")?.map_err(Failure::from))
        })
    })?;
    let sequence = median(3.0, || {
        for _ in 0..CALLERS * RUNS {
            program.run_tensors(&[("x", &x)])?;
        }
        Ok(())
    })?;
    let each = |t: f64| t / (CALLERS * RUNS) as f64;
    println!(
        "{CALLERS} callers at once: {:.1} µs a run, in sequence {:.1} µs: {:.2} times",
        each(together),
        each(sequence),
        together / sequence
    );
    Ok(())
}

fn main() -> Result<(), Failure> {
    let only = std::env::args().nth(1);
    let wanted = |name: &str| only.as_deref().is_none_or(|o| o == name);
    for threads in [1, 2] {
        if wanted("chain") {
            chain(threads)?;
        }
        if wanted("product") {
            product(1024, 1024, 1024, threads)?;
            product(1, 4096, 4096, threads)?;
        }
    }
    if wanted("attention") {
        attention(128, 12, 32)?;
        attention(128, 12, 64)?;
        attention(16, 12, 32)?;
    }
    if wanted("small") {
        small()?;
    }
    if wanted("callers") {
        callers()?;
    }
    Ok(())
}
