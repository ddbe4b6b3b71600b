//! Prints the time of scalar programs as machine code and on the tile machine: a chain of twelve
//! operations on two large operands against a copy, layer norm and softmax over rows, gelu in cache.
//!
//! `cargo run --release -p rlx-cpu --example scalar_programs [SECONDS_PER_ROW [THREADS]]`

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use rlx_compile::lir::{
    Access, BufId, Buffer, DimId, Kernel, KernelNode, Lir, LirModule, Literal, MapKernel, Port, RowKernel, ScalarOp,
    ScalarProgram, Segment, Storage,
};
use rlx_compile::target::{TensorMut, TensorRef};
use rlx_compile::{CompileOptions, ExecutableGraph};
use rlx_cpu::CpuExecutable;
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::elementwise::{Binary, Unary};
use rlx_ir::ops::reduction::ReduceKind;
use rlx_ir::{DType, Dim};
use std::time::{Duration, Instant};

/// The best time over about `budget`.
fn best(budget: Duration, mut run: impl FnMut()) -> Duration {
    let start = Instant::now();
    let mut best = Duration::MAX;
    while start.elapsed() < budget {
        let t = Instant::now();
        run();
        best = best.min(t.elapsed());
    }
    best
}

/// One kernel in the making.
#[derive(Default)]
struct Maker {
    lir: Lir,
}

impl Maker {
    fn dims(&mut self, v: &[usize]) -> Vec<DimId> {
        v.iter().map(|&n| self.lir.dims.intern(Dim::from(n))).collect()
    }
    fn buffer(&mut self, shape: &[usize], storage: Storage) -> BufId {
        let numel = self.dims(&[shape.iter().product()])[0];
        let (shape, order) = (self.dims(shape), (0..shape.len()).collect());
        self.lir.buffers.push(Buffer {
            dtype: DType::F32,
            shape,
            order,
            numel,
            storage,
            live: Some((0, 0)),
            name: None,
        });
        BufId(self.lir.buffers.len() as u32 - 1)
    }
    fn input(&mut self, shape: &[usize]) -> BufId {
        let n = self.lir.inputs.len();
        let buffer = self.buffer(shape, Storage::Input(n as u32));
        self.lir.inputs.push(Port { name: format!("x{n}").into(), buffer });
        buffer
    }
    fn output(&mut self, shape: &[usize]) -> BufId {
        let buffer = self.buffer(shape, Storage::Output(0));
        self.lir.outputs.push(Port { name: "y".into(), buffer });
        buffer
    }
    fn access(&mut self, buffer: BufId, strides: &[usize]) -> Access {
        Access { buffer, offset: self.dims(&[0])[0], strides: self.dims(strides) }
    }
    fn finish(mut self, kernel: Kernel) -> Lir {
        self.lir.kernels.push(KernelNode { kernel, loc: "example".into() });
        self.lir.segments.push(Segment { kernels: 0..1, defines: Vec::new() });
        self.lir
    }
}

/// A program in the making.
#[derive(Default)]
struct Chain(ScalarProgram);

impl Chain {
    fn read(&mut self, n: u32) -> u32 {
        self.0.push(ScalarOp::Read(n), vec![], DType::F32)
    }
    fn number(&mut self, v: f64) -> u32 {
        self.0.push(ScalarOp::Const(Literal::Float(v.into())), vec![], DType::F32)
    }
    fn one(&mut self, f: Unary, a: u32) -> u32 {
        self.0.push(ScalarOp::Apply(Elementwise::Unary(f)), vec![a], DType::F32)
    }
    fn two(&mut self, f: Binary, a: u32, b: u32) -> u32 {
        self.0.push(ScalarOp::Apply(Elementwise::Binary(f)), vec![a, b], DType::F32)
    }
    fn reduce(&mut self, kind: ReduceKind, a: u32) -> u32 {
        self.0.push(ScalarOp::Reduce(kind), vec![a], DType::F32)
    }
    fn done(mut self, result: u32) -> ScalarProgram {
        self.0.results = vec![result];
        self.0
    }
}

/// mul, add, max, mul, sub, min, abs, mul, add, mul, rsub, mul.
fn chain(n: usize) -> Lir {
    let mut m = Maker::default();
    let (a, b, y) = (m.input(&[n]), m.input(&[n]), m.output(&[n]));
    let mut p = Chain::default();
    let (x, w) = (p.read(0), p.read(1));
    let [c0, c1, c2] = [0.5, 1.5, 2.0].map(|c| p.number(c));
    let v = p.two(Binary::Mul, x, w);
    let v = p.two(Binary::Add, v, x);
    let v = p.two(Binary::Max, v, w);
    let v = p.two(Binary::Mul, v, c0);
    let v = p.two(Binary::Sub, v, w);
    let v = p.two(Binary::Min, v, x);
    let v = p.one(Unary::Abs, v);
    let v = p.two(Binary::Mul, v, c1);
    let v = p.two(Binary::Add, v, w);
    let v = p.two(Binary::Mul, v, x);
    let v = p.two(Binary::Sub, c2, v);
    let v = p.two(Binary::Mul, v, w);
    let (reads, writes) = (vec![m.access(a, &[1]), m.access(b, &[1])], vec![m.access(y, &[1])]);
    let space = m.dims(&[n]);
    m.finish(Kernel::Map(MapKernel { space, reads, program: p.done(v), writes }))
}

fn gelu(n: usize) -> Lir {
    let mut m = Maker::default();
    let (a, y) = (m.input(&[n]), m.output(&[n]));
    let mut p = Chain::default();
    let x = p.read(0);
    let v = p.one(Unary::Gelu, x);
    let (reads, writes) = (vec![m.access(a, &[1])], vec![m.access(y, &[1])]);
    let space = m.dims(&[n]);
    m.finish(Kernel::Map(MapKernel { space, reads, program: p.done(v), writes }))
}

fn layer_norm(rows: usize, n: usize) -> Lir {
    let mut m = Maker::default();
    let (a, scale, bias, y) = (m.input(&[rows, n]), m.input(&[n]), m.input(&[n]), m.output(&[rows, n]));
    let mut p = Chain::default();
    let [x, g, b] = [0, 1, 2].map(|i| p.read(i));
    let [count, eps] = [n as f64, 1e-5].map(|c| p.number(c));
    let sum = p.reduce(ReduceKind::Sum, x);
    let mean = p.two(Binary::Div, sum, count);
    let d = p.two(Binary::Sub, x, mean);
    let square = p.two(Binary::Mul, d, d);
    let sum = p.reduce(ReduceKind::Sum, square);
    let variance = p.two(Binary::Div, sum, count);
    let variance = p.two(Binary::Add, variance, eps);
    let r = p.one(Unary::Rsqrt, variance);
    let v = p.two(Binary::Mul, d, r);
    let v = p.two(Binary::Mul, v, g);
    let v = p.two(Binary::Add, v, b);
    let reads = vec![m.access(a, &[n, 1]), m.access(scale, &[0, 1]), m.access(bias, &[0, 1])];
    let writes = vec![m.access(y, &[n, 1])];
    let (outer, reduced) = (m.dims(&[rows]), m.dims(&[n]));
    m.finish(Kernel::Row(RowKernel { outer, reduced, reads, program: p.done(v), writes }))
}

fn softmax(rows: usize, n: usize) -> Lir {
    let mut m = Maker::default();
    let (a, y) = (m.input(&[rows, n]), m.output(&[rows, n]));
    let mut p = Chain::default();
    let x = p.read(0);
    let most = p.reduce(ReduceKind::Max, x);
    let d = p.two(Binary::Sub, x, most);
    let e = p.one(Unary::Exp, d);
    let total = p.reduce(ReduceKind::Sum, e);
    let v = p.two(Binary::Div, e, total);
    let (reads, writes) = (vec![m.access(a, &[n, 1])], vec![m.access(y, &[n, 1])]);
    let (outer, reduced) = (m.dims(&[rows]), m.dims(&[n]));
    m.finish(Kernel::Row(RowKernel { outer, reduced, reads, program: p.done(v), writes }))
}

/// Times a program with machine code and without, from touched inputs to touched outputs; then the first runs of both.
fn time(lir: &Lir, threads: usize, budget: Duration) -> [Duration; 4] {
    let sizes = |b: BufId| -> Vec<usize> {
        let dim = |&d: &DimId| lir.dims.get(d).as_const().unwrap_or(0) as usize;
        lir.buffers[b.index()].shape.iter().map(dim).collect()
    };
    let inputs: Vec<(Vec<usize>, Vec<f32>)> = lir
        .inputs
        .iter()
        .map(|p| {
            let dims = sizes(p.buffer);
            let data = (0..dims.iter().product()).map(|i: usize| (i * 7 % 101) as f32 * 0.02 - 1.0).collect();
            (dims, data)
        })
        .collect();
    let dims = sizes(lir.outputs[0].buffer);
    let mut out = vec![1u8; 4 * dims.iter().product::<usize>()];
    let mut times = [Duration::ZERO; 4];
    for (k, on) in [true, false].into_iter().enumerate() {
        let module = LirModule { prepare: None, main: lir.clone() };
        let mut e = CpuExecutable::new(module, &CompileOptions::new().threads(threads).jit(on)).unwrap();
        let refs: Vec<TensorRef<'_>> = inputs
            .iter()
            .map(|(dims, data)| TensorRef { dtype: DType::F32, dims, bytes: bytemuck::cast_slice(data) })
            .collect();
        let mut run = || {
            let y = TensorMut { dtype: DType::F32, dims: &dims, bytes: &mut out };
            e.run_into(&refs, &mut [y]).unwrap();
        };
        let t = Instant::now();
        run();
        let first = t.elapsed();
        times[k] = best(budget, &mut run);
        times[2 + k] = first;
        if on && e.functions() == 0 {
            println!("(no machine code on this machine)");
        }
    }
    times
}

fn main() {
    let seconds: f64 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(1.0);
    let threads: usize = std::env::args().nth(2).and_then(|s| s.parse().ok()).unwrap_or(1);
    let budget = Duration::from_secs_f64(seconds);
    let n = 16 << 20;
    let (from, mut to) = (vec![1.0f32; n], vec![2.0f32; n]);
    let copy = best(budget, || std::hint::black_box(&mut to).copy_from_slice(std::hint::black_box(&from)));
    drop((from, to));
    let us = |d: Duration| d.as_secs_f64() * 1e6;
    println!("{:34} {:>11} {:>11} {:>11} {:>11}", "µs", "code", "tile", "first: code", "tile");
    println!("{:34} {:11.1}", "copy of 16 Mi f32", us(copy));
    let rows: [(&str, Lir); 6] = [
        ("chain of 12, 2 × 16 Mi f32", chain(n)),
        ("chain of 12, 2 × 4 Ki f32", chain(4 << 10)),
        ("gelu, 48 Ki f32", gelu(48 << 10)),
        ("layer norm, 128 × 384", layer_norm(128, 384)),
        ("softmax, 1536 × 128", softmax(1536, 128)),
        ("layer norm, 1024 × 768", layer_norm(1024, 768)),
    ];
    for (name, lir) in &rows {
        let [code, tile, first, other] = time(lir, threads, budget);
        println!("{name:34} {:11.1} {:11.1} {:11.1} {:11.1}", us(code), us(tile), us(first), us(other));
    }
}
