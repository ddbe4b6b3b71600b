//! Tests on hand-made LIR, and what they are made with.

mod control;
mod elementwise;
mod kernels;
mod maps;
mod oracle;
mod programs;
mod rows;

use crate::CpuExecutable;
use rlx_compile::CompileOptions;
use rlx_compile::lir::{
    Access, BufId, Buffer, DimId, Inst, Kernel, KernelNode, Lir, LirModule, ParamPort, Port, ScalarOp, ScalarProgram,
    Segment, Storage, View,
};
use rlx_compile::target::{ExecutableGraph, TensorRef};
use rlx_driver::Isa;
use rlx_ir::ops::Elementwise;
use rlx_ir::{DType, Dim, Tensor};

/// Puts a program together.
#[derive(Default)]
pub struct Maker {
    pub lir: Lir,
}

impl Maker {
    pub fn new() -> Self {
        Maker { lir: Lir { name: "main".into(), ..Lir::default() } }
    }

    pub fn dim(&mut self, d: impl Into<Dim>) -> DimId {
        self.lir.dims.intern(d)
    }

    pub fn dims<D: Into<Dim> + Clone>(&mut self, dims: &[D]) -> Vec<DimId> {
        dims.iter().map(|d| self.dim(d.clone())).collect()
    }

    pub fn buffer(&mut self, dtype: DType, shape: &[Dim], storage: Storage) -> BufId {
        let numel = self.dim(Dim::product(shape.iter().cloned()));
        let rank = shape.len();
        let shape = self.dims(shape);
        self.lir.buffers.push(Buffer {
            dtype,
            shape,
            order: (0..rank).collect(),
            numel,
            storage,
            live: None,
            name: None,
        });
        BufId(self.lir.buffers.len() as u32 - 1)
    }

    pub fn input(&mut self, dtype: DType, shape: &[Dim]) -> BufId {
        let n = self.lir.inputs.len() as u32;
        let buffer = self.buffer(dtype, shape, Storage::Input(n));
        self.lir.inputs.push(Port { name: format!("x{n}").into(), buffer });
        buffer
    }

    pub fn param(&mut self, name: &str, dtype: DType, shape: &[Dim], default: Option<Tensor>) -> BufId {
        let n = self.lir.params.len() as u32;
        let buffer = self.buffer(dtype, shape, Storage::Param(n));
        self.lir.params.push(ParamPort { name: name.into(), buffer, default });
        buffer
    }

    pub fn output(&mut self, name: &str, dtype: DType, shape: &[Dim]) -> BufId {
        let n = self.lir.outputs.len() as u32;
        let buffer = self.buffer(dtype, shape, Storage::Output(n));
        self.lir.outputs.push(Port { name: name.into(), buffer });
        buffer
    }

    pub fn arena(&mut self, dtype: DType, shape: &[Dim]) -> BufId {
        self.buffer(dtype, shape, Storage::Arena)
    }

    pub fn access(&mut self, buffer: BufId, offset: impl Into<Dim>, strides: &[Dim]) -> Access {
        Access { buffer, offset: self.dim(offset), strides: self.dims(strides) }
    }

    /// The row-major walk of a buffer.
    pub fn dense(&mut self, buffer: BufId) -> Access {
        let shape: Vec<Dim> = self.lir.buffer(buffer).shape.iter().map(|&d| self.lir.dims.get(d).clone()).collect();
        let strides = row_major(&shape);
        self.access(buffer, 0, &strides)
    }

    pub fn view(&mut self, buffer: BufId) -> View {
        View { sizes: self.lir.buffer(buffer).shape.clone(), access: self.dense(buffer) }
    }

    pub fn kernel(&mut self, kernel: Kernel) -> usize {
        self.lir.kernels.push(KernelNode { kernel, loc: "test".into() });
        self.lir.kernels.len() - 1
    }

    /// Fills in intervals and, unless there are some, segments.
    pub fn finish(mut self) -> Lir {
        for (i, k) in self.lir.kernels.iter().enumerate() {
            let i = i as u32;
            for a in k.kernel.reads().into_iter().chain(k.kernel.writes()) {
                let b = &mut self.lir.buffers[a.buffer.index()];
                b.live = Some(b.live.map_or((i, i), |(first, _)| (first, i)));
            }
            for v in crate::control::output_views(&k.kernel) {
                let b = &mut self.lir.buffers[v.access.buffer.index()];
                b.live = Some(b.live.map_or((i, i), |(first, _)| (first, i)));
            }
        }
        if self.lir.segments.is_empty() {
            self.lir.segments.push(Segment { kernels: 0..self.lir.kernels.len() as u32, defines: Vec::new() });
        }
        self.lir
    }

    pub fn executable(self, options: &CompileOptions) -> CpuExecutable {
        executable(self.finish(), options)
    }
}

pub fn executable(main: Lir, options: &CompileOptions) -> CpuExecutable {
    CpuExecutable::new(LirModule { prepare: None, main }, options).unwrap()
}

pub fn row_major(shape: &[Dim]) -> Vec<Dim> {
    (0..shape.len()).map(|a| Dim::product(shape[a + 1..].iter().cloned())).collect()
}

pub fn run(e: &CpuExecutable, inputs: &[&Tensor]) -> Vec<Tensor> {
    let inputs: Vec<TensorRef<'_>> = inputs.iter().map(|&t| t.into()).collect();
    e.run(&inputs, None).unwrap()
}

/// Options with arenas poisoned.
pub fn poisoned(isa: Isa, threads: usize) -> CompileOptions {
    CompileOptions::new().isa(Some(isa)).threads(threads).poison(true)
}

/// A program that applies one op to its reads.
pub fn apply(op: Elementwise, args: &[DType], out: DType) -> ScalarProgram {
    let mut p = ScalarProgram::default();
    let reads: Vec<u32> =
        args.iter().enumerate().map(|(i, &d)| p.push(ScalarOp::Read(i as u32), Vec::new(), d)).collect();
    p.insts.push(Inst { op: ScalarOp::Apply(op), args: reads, dtype: out });
    p.results = vec![p.insts.len() as u32 - 1];
    p
}

/// Small deterministic numbers.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n.max(1)
    }

    /// Between −1 and 1.
    pub fn float(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float() as f32).collect()
    }
}

/// Rounding the sources of the crate for calls that it must not make.
#[test]
fn the_evaluator_is_never_called() {
    fn visit(dir: &std::path::Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if path.file_name().is_none_or(|n| n != "testing") {
                    visit(&path, found);
                }
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                for (i, line) in text.lines().enumerate() {
                    let code = line.split("//").next().unwrap_or("");
                    for word in ["rlx_ir::eval", ".eval(cx", "EvalCx", "Scalar::", ".apply(&", "def().eval"] {
                        if code.contains(word) {
                            found.push(format!("{}:{}: {line}", path.display(), i + 1));
                        }
                    }
                }
            }
        }
    }
    let mut found = Vec::new();
    visit(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut found);
    assert!(found.is_empty(), "{found:#?}");
}
