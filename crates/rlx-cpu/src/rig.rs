//! A rig for tests of kernels: a program's buffers with memory, and one kernel run on them.

// Buffers are as large as their values are many.
#![allow(clippy::undocumented_unsafe_blocks)]

use crate::buffers::{BindCx, Buffers, Ptr, RunCx, Weight};
use crate::simd::Isa;
use crate::tile::code::{Code, Scope};
use crate::tile::io;
use rlx_compile::MatmulPrecision;
use rlx_compile::lir::{Access, BufId, Buffer, DimId, Epilogue, Inst, Lir, Literal, ScalarOp, ScalarProgram, Storage};
use rlx_driver::{AlignedBuffer, ThreadPool};
use rlx_ir::ops::Elementwise;
use rlx_ir::{DType, Dim};

/// Buffers of a program with their memory.
#[derive(Default)]
pub struct Rig {
    pub lir: Lir,
    memory: Vec<AlignedBuffer>,
}

impl Rig {
    pub fn dim(&mut self, v: i64) -> DimId {
        self.lir.dims.intern(Dim::from(v))
    }

    pub fn sizes(&mut self, sizes: &[usize]) -> Vec<DimId> {
        sizes.iter().map(|&n| self.dim(n as i64)).collect()
    }

    /// A buffer that holds these values, each rounded to the dtype.
    pub fn buffer(&mut self, dtype: DType, values: &[f64]) -> BufId {
        let bytes = dtype.bytes_for(values.len()).unwrap();
        let mut memory = AlignedBuffer::zeroed(bytes.max(1)).unwrap();
        for (i, &v) in values.iter().enumerate() {
            let (mut f, mut d, mut n) = (v as f32, v, [0u64; 2]);
            let slot: *const u8 = match dtype {
                DType::F32 | DType::F16 | DType::BF16 => (&raw mut f).cast(),
                DType::F64 => (&raw mut d).cast(),
                _ => {
                    unsafe { io::write_i128(dtype, n.as_mut_ptr().cast(), 0, v as i128) };
                    n.as_ptr().cast()
                }
            };
            let one = io::Block { sizes: &[], strides: &[] };
            unsafe { io::store(dtype, memory.as_mut_ptr(), i as i64, one, slot) };
        }
        self.memory.push(memory);
        let n = self.dim(values.len() as i64);
        self.lir.buffers.push(Buffer {
            dtype,
            shape: vec![n],
            order: vec![0],
            numel: n,
            storage: Storage::Arena,
            live: None,
            name: None,
        });
        BufId(self.lir.buffers.len() as u32 - 1)
    }

    pub fn access(&mut self, buffer: BufId, offset: i64, strides: &[i64]) -> Access {
        Access { buffer, offset: self.dim(offset), strides: strides.iter().map(|&s| self.dim(s)).collect() }
    }

    /// Marks a buffer as one that stays the same from run to run.
    pub fn weight(&mut self, buffer: BufId) {
        self.lir.buffers[buffer.index()].storage = Storage::Param(0);
    }

    pub fn values(&self, buffer: BufId) -> Vec<f64> {
        let b = self.lir.buffer(buffer);
        let n = self.lir.dims.get(b.numel).as_const().unwrap();
        let base = self.memory[buffer.index()].as_ptr();
        (0..n).map(|i| unsafe { io::read_f64(b.dtype, base, i) }).collect()
    }

    pub fn set(&mut self, buffer: BufId, bytes: &[u8]) {
        self.memory[buffer.index()].as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
    }

    pub fn bytes(&self, buffer: BufId) -> Vec<u8> {
        self.memory[buffer.index()].as_slice().to_vec()
    }

    pub fn bind<R>(&self, isa: Isa, f: impl FnOnce(&BindCx<'_>) -> R) -> R {
        self.bind_with(isa, MatmulPrecision::Highest, f)
    }

    pub fn bind_with<R>(&self, isa: Isa, matmul: MatmulPrecision, f: impl FnOnce(&BindCx<'_>) -> R) -> R {
        let value = |d: &Dim| d.as_const().unwrap();
        let dims: Vec<i64> = self.lir.dims.dims().iter().map(value).collect();
        let numels: Vec<i64> = self.lir.buffers.iter().map(|b| dims[b.numel.index()]).collect();
        let slots: Vec<u32> = (0..numels.len() as u32).collect();
        f(&BindCx { lir: &self.lir, dims: &dims, numels: &numels, isa, matmul, slots: &slots })
    }

    pub fn run(&mut self, isa: Isa, threads: usize, weight: Option<&Weight>, f: impl FnOnce(&RunCx<'_>)) {
        let pool = ThreadPool::new(threads);
        let region = pool.enter(threads);
        let ptrs: Vec<Ptr> = self.memory.iter_mut().map(|m| Ptr(m.as_mut_ptr())).collect();
        f(&RunCx { bufs: Buffers::new(&ptrs), region: &region, isa, weight });
    }

    /// The code of an epilogue.
    pub fn code(&self, e: &Epilogue, acc: DType, rank: usize) -> Code {
        let dtypes = |list: &[Access]| list.iter().map(|a| self.lir.buffer(a.buffer).dtype).collect::<Vec<_>>();
        let (reads, writes) = (dtypes(&e.reads), dtypes(&e.writes));
        let scope = Scope { reads: &reads, writes: &writes, acc: Some(acc), rank, row: false };
        Code::compile(&e.program, &scope).unwrap()
    }
}

/// A step of an epilogue's chain.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Apply(Elementwise),
    /// A function of the chain and a read.
    With(Elementwise, u32),
    /// A function of the chain and a number.
    Number(Elementwise, f64),
    Clamp(f64, f64),
}

/// The program that applies steps to the accumulator and converts to `to`.
pub fn chain(acc: DType, steps: &[Step], to: DType) -> ScalarProgram {
    let mut p = ScalarProgram::default();
    let mut at = p.push(ScalarOp::Acc, vec![], acc);
    let float = |v: f64| ScalarOp::Const(Literal::Float(v.into()));
    for s in steps {
        at = match *s {
            Step::Apply(f) => p.push(ScalarOp::Apply(f), vec![at], acc),
            Step::With(f, read) => {
                let r = p.push(ScalarOp::Read(read), vec![], acc);
                p.push(ScalarOp::Apply(f), vec![at, r], acc)
            }
            Step::Number(f, v) => {
                let c = p.push(float(v), vec![], acc);
                p.push(ScalarOp::Apply(f), vec![at, c], acc)
            }
            Step::Clamp(lo, hi) => {
                let (lo, hi) = (p.push(float(lo), vec![], acc), p.push(float(hi), vec![], acc));
                p.push(ScalarOp::Apply(Elementwise::Clamp), vec![at, lo, hi], acc)
            }
        };
    }
    if to != acc {
        p.insts.push(Inst {
            op: ScalarOp::Apply(Elementwise::Convert { to, saturate: true }),
            args: vec![at],
            dtype: to,
        });
        at = p.insts.len() as u32 - 1;
    }
    p.results = vec![at];
    p
}

/// Numbers in about [−1, 1] that look random.
pub fn noise(n: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f64 / (1u64 << 23) as f64 - 1.0
        })
        .collect()
}

/// Row-major strides.
pub fn dense(sizes: &[usize]) -> Vec<i64> {
    (0..sizes.len()).map(|a| sizes[a + 1..].iter().product::<usize>() as i64).collect()
}

/// Elements are near each other relative to `scale`; NaN equals NaN.
#[track_caller]
pub fn assert_near(got: &[f64], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let same = g == w || g.is_nan() && w.is_nan() || (g - w).abs() <= tolerance * w.abs().max(1.0);
        assert!(same, "{what}: element {i} is {g}, not {w}");
    }
}
