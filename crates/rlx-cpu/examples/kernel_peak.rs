//! Prints the speed of a contraction, some convolutions and an attention as fractions of the peak that a loop of
//! independent multiply-adds reaches, on one thread: the best of many samples, since the machine may be shared.
//!
//! `cargo run --release -p rlx-cpu --example kernel_peak [SECONDS_PER_ROW]`

#![allow(clippy::print_stdout)]

use rlx_compile::lir::{
    Access, AttentionKernel, BufId, Buffer, ContractKernel, ConvKernel, DimId, Epilogue, Lir, ScalarOp, ScalarProgram,
    Storage,
};
use rlx_cpu::buffers::{BindCx, BindError, Buffers, Ptr, RunCx, Weight};
use rlx_cpu::simd::{Isa, Kernel, Simd, dispatch};
use rlx_cpu::tile::code::{Code, Scope};
use rlx_cpu::{attention, contract, conv};
use rlx_driver::Region;
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::elementwise::{Binary, Unary};
use rlx_ir::{DType, Dim};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// As many independent chains of multiply-adds as the GEMM tile has; returns the number of floating-point operations.
struct Peak;
impl Kernel for Peak {
    type Output = f64;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f64 {
        const STEPS: usize = 2000;
        let chains = S::TILE_ROWS * S::TILE_VECTORS;
        let mut acc = [s.splat(1.0); 28];
        let (a, b) = (s.splat(black_box(0.999)), s.splat(black_box(1e-3)));
        for _ in 0..STEPS {
            for v in acc.iter_mut().take(chains) {
                *v = s.mul_add(*v, a, b);
            }
        }
        let mut sum = acc[0];
        for v in acc.into_iter().take(chains) {
            sum = s.add(sum, v);
        }
        let mut out = [0.0f32; 16];
        // SAFETY: sixteen elements hold the lanes of any level.
        unsafe { s.store(out.as_mut_ptr(), sum) };
        black_box(out);
        (2 * chains * S::W * STEPS) as f64
    }
}

/// The best rate over about `budget`, in units of work a nanosecond.
fn best(budget: Duration, mut run: impl FnMut() -> f64) -> f64 {
    let start = Instant::now();
    let mut best: f64 = 0.0;
    while start.elapsed() < budget {
        let t = Instant::now();
        let work = run();
        best = best.max(work / t.elapsed().as_nanos().max(1) as f64);
    }
    best
}

/// A program's buffers with memory.
#[derive(Default)]
struct Rig {
    lir: Lir,
    memory: Vec<Vec<f32>>,
}

impl Rig {
    fn dim(&mut self, v: usize) -> DimId {
        self.lir.dims.intern(Dim::from(v as i64))
    }
    fn dims(&mut self, v: &[usize]) -> Vec<DimId> {
        v.iter().map(|&n| self.dim(n)).collect()
    }
    fn buffer(&mut self, len: usize, storage: Storage) -> BufId {
        self.memory.push((0..len).map(|i| (i % 13) as f32 * 0.1 - 0.6).collect());
        let n = self.dim(len);
        let (shape, order) = (vec![n], vec![0]);
        self.lir.buffers.push(Buffer { dtype: DType::F32, shape, order, numel: n, storage, live: None, name: None });
        BufId(self.lir.buffers.len() as u32 - 1)
    }
    fn access(&mut self, buffer: BufId, strides: &[usize]) -> Access {
        Access { buffer, offset: self.dim(0), strides: self.dims(strides) }
    }
    fn code(&self, e: &Epilogue, rank: usize) -> Result<Code, String> {
        let (reads, writes) = (vec![DType::F32; e.reads.len()], vec![DType::F32; e.writes.len()]);
        let scope = Scope { reads: &reads, writes: &writes, acc: Some(DType::F32), rank, row: false };
        Code::compile(&e.program, &scope)
    }
    fn bind<R>(&self, isa: Isa, f: impl FnOnce(&BindCx<'_>) -> Result<R, BindError>) -> Result<R, BindError> {
        let dims: Vec<i64> = self.lir.dims.dims().iter().map(|d| d.as_const().unwrap_or(0)).collect();
        let numels: Vec<i64> = self.memory.iter().map(|m| m.len() as i64).collect();
        let slots: Vec<u32> = (0..numels.len() as u32).collect();
        f(&BindCx { lir: &self.lir, dims: &dims, numels: &numels, isa, matmul: Default::default(), slots: &slots })
    }
    fn report(&mut self, name: &str, isa: Isa, peak: f64, budget: Duration, work: f64, run: impl Fn(&RunCx<'_>)) {
        let ptrs: Vec<Ptr> = self.memory.iter_mut().map(|m| Ptr(m.as_mut_ptr().cast())).collect();
        let (weight, region) = (Weight::default(), Region::inline());
        let cx = RunCx { bufs: Buffers::new(&ptrs), region: &region, isa, weight: Some(&weight) };
        let rate = best(budget, || {
            run(&cx);
            work
        });
        println!("  {name:<44} {:8.1} us  {rate:6.1} GFLOP/s ({:3.0} %)", work / rate / 1e3, 100.0 * rate / peak);
    }
}

fn epilogue(rig: &mut Rig, bias: (BufId, &[usize]), f: Unary, out: (BufId, &[usize])) -> Epilogue {
    let mut p = ScalarProgram::default();
    let acc = p.push(ScalarOp::Acc, vec![], DType::F32);
    let read = p.push(ScalarOp::Read(0), vec![], DType::F32);
    let sum = p.push(ScalarOp::Apply(Elementwise::Binary(Binary::Add)), vec![acc, read], DType::F32);
    let y = p.push(ScalarOp::Apply(Elementwise::Unary(f)), vec![sum], DType::F32);
    p.results = vec![y];
    Epilogue { reads: vec![rig.access(bias.0, bias.1)], program: p, writes: vec![rig.access(out.0, out.1)] }
}

fn contraction(isa: Isa, peak: f64, budget: Duration, [m, k, n]: [usize; 3]) -> Result<(), String> {
    let mut r = Rig::default();
    let (x, w) = (r.buffer(m * k, Storage::Arena), r.buffer(k * n, Storage::Param(0)));
    let (b, y) = (r.buffer(n, Storage::Arena), r.buffer(m * n, Storage::Arena));
    let kernel = ContractKernel {
        batch: vec![],
        m: r.dims(&[m]),
        n: r.dims(&[n]),
        k: r.dims(&[k]),
        lhs: r.access(x, &[k, 1]),
        rhs: r.access(w, &[1, n]),
        acc: DType::F32,
        lhs_scaling: Default::default(),
        rhs_scaling: Default::default(),
        epilogue: epilogue(&mut r, (b, &[0, 1]), Unary::Gelu, (y, &[n, 1])),
    };
    let code = r.code(&kernel.epilogue, 2)?;
    let plan = r.bind(isa, |cx| contract::plan(&kernel, &code, cx))?;
    r.report(&format!("contract {m}x{k}x{n} bias gelu"), isa, peak, budget, (2 * m * k * n) as f64, |cx| {
        // SAFETY: the buffers are those of the plan.
        unsafe { contract::run(&plan, &code, cx) }
    });
    Ok(())
}

/// Channels, size, window, stride and groups of a convolution of a square image.
struct Image(usize, usize, usize, usize, usize, usize);

fn convolution(isa: Isa, peak: f64, budget: Duration, image: &Image, last: bool) -> Result<(), String> {
    let &Image(ci, co, size, window, stride, groups) = image;
    let mut r = Rig::default();
    let out = (size - 1) / stride + 1;
    let (cg, kk) = (ci / groups, window * window);
    let (x, w) = (r.buffer(ci * size * size, Storage::Arena), r.buffer(co * cg * kk, Storage::Param(0)));
    let (b, y) = (r.buffer(co, Storage::Arena), r.buffer(co * out * out, Storage::Arena));
    let lay = |c: usize, n: usize| if last { [c * n * n, 1, n * c, c] } else { [c * n * n, n * n, n, 1] };
    let kernel = ConvKernel {
        transposed: false,
        batch: r.dim(1),
        groups: groups as i64,
        in_channels: r.dim(ci),
        out_channels: r.dim(co),
        in_spatial: r.dims(&[size, size]),
        out_spatial: r.dims(&[out, out]),
        window: r.dims(&[window, window]),
        strides: vec![stride as i64; 2],
        dilations: vec![1, 1],
        pad_low: r.dims(&[window / 2, window / 2]),
        input: r.access(x, &lay(ci, size)),
        weight: r.access(w, &[cg * kk, kk, window, 1]),
        acc: DType::F32,
        epilogue: epilogue(&mut r, (b, &[0, 1, 0, 0]), Unary::Relu, (y, &lay(co, out))),
    };
    let code = r.code(&kernel.epilogue, 4)?;
    let plan = r.bind(isa, |cx| conv::plan(&kernel, &code, cx))?;
    let name = format!(
        "conv {ci}->{co} {size}x{size} {window}x{window}/{stride} g{groups} {}",
        if last { "channels-last" } else { "channels-first" }
    );
    r.report(&name, isa, peak, budget, (2 * out * out * co * cg * kk) as f64, |cx| {
        // SAFETY: the buffers are those of the plan.
        unsafe { conv::run(&plan, &code, cx) }
    });
    Ok(())
}

fn attentions(isa: Isa, peak: f64, budget: Duration, [h, s, t, d]: [usize; 4]) -> Result<(), String> {
    let mut r = Rig::default();
    let buffers: Vec<BufId> = [s, t, t, s].iter().map(|&n| r.buffer(h * n * d, Storage::Arena)).collect();
    let lay = [h * s * d, d, h * d, 1];
    let kernel = AttentionKernel {
        batch: r.dim(1),
        heads: r.dim(h),
        kv_heads: r.dim(h),
        queries: r.dim(s),
        keys: r.dim(t),
        head_dim: r.dim(d),
        value_dim: r.dim(d),
        q: r.access(buffers[0], &lay),
        k: r.access(buffers[1], &lay),
        v: r.access(buffers[2], &lay),
        out: r.access(buffers[3], &lay),
        mask: None,
        scale: (1.0 / (d as f64).sqrt()).into(),
        causal: false,
        window: None,
        softcap: None,
    };
    let plan = r.bind(isa, |cx| attention::plan(&kernel, cx))?;
    r.report(&format!("attention {h} heads {s}x{t}x{d}"), isa, peak, budget, (4 * h * s * t * d) as f64, |cx| {
        // SAFETY: the buffers are those of the plan.
        unsafe { attention::run(&plan, cx) }
    });
    Ok(())
}

fn main() -> Result<(), String> {
    let seconds: f64 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(0.5);
    let budget = Duration::from_secs_f64(seconds.clamp(0.01, 60.0));
    let isa = Isa::best();
    let peak = best(budget, || dispatch(isa, Peak));
    println!("{isa}: peak {peak:.1} GFLOP/s");
    for sizes in [[128, 384, 1536], [128, 1536, 384], [16, 384, 384], [128, 768, 3072]] {
        contraction(isa, peak, budget, sizes)?;
    }
    for image in [
        Image(64, 64, 56, 3, 1, 1),
        Image(256, 256, 14, 3, 1, 1),
        Image(512, 512, 7, 3, 1, 1),
        Image(64, 256, 56, 1, 1, 1),
        Image(3, 64, 224, 7, 2, 1),
        Image(144, 144, 56, 3, 1, 144),
    ] {
        convolution(isa, peak, budget, &image, true)?;
        convolution(isa, peak, budget, &image, false)?;
    }
    for sizes in [[12, 16, 16, 32], [12, 128, 128, 32], [12, 512, 512, 64], [12, 1, 4096, 64]] {
        attentions(isa, peak, budget, sizes)?;
    }
    Ok(())
}
