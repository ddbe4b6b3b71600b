//! Prints the speed of f32 products at each level of this machine, as GFLOP/s and as a fraction of the peak that a loop
//! of independent multiply-adds reaches. Samples are thread CPU time, the best of many: the machine may be shared.
//!
//! `cargo run --release -p rlx-cpu --example gemm_peak [SECONDS_PER_ROW]`

#![allow(clippy::print_stdout)]

use rlx_cpu::gemm::{AOperand, Activation, BOperand, Epilogue, GemmArgs, Strided, gemm, pack_b, packed_b_len};
use rlx_cpu::simd::{Isa, Kernel, Simd, UnaryF32, dispatch, unary_f32};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// As many independent chains of multiply-adds as the GEMM tile has; returns the number of floating-point operations.
struct Peak {
    steps: usize,
}
impl Kernel for Peak {
    type Output = f64;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f64 {
        let chains = S::TILE_ROWS * S::TILE_VECTORS;
        let mut acc = [s.splat(1.0); 28];
        let (a, b) = (s.splat(black_box(0.999)), s.splat(black_box(1e-3)));
        for _ in 0..self.steps {
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
        (2 * chains * S::W * self.steps) as f64
    }
}

/// Nanoseconds that this thread has run, or of the clock where the system does not say.
#[cfg(unix)]
fn thread_time() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
#[cfg(not(unix))]
fn thread_time() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// The best rate over about `budget`, in units of work a nanosecond.
fn best(budget: Duration, mut run: impl FnMut() -> f64) -> f64 {
    let start = Instant::now();
    let mut best: f64 = 0.0;
    while start.elapsed() < budget {
        let t = thread_time();
        let work = run();
        best = best.max(work / (thread_time() - t).max(1) as f64);
    }
    best
}

fn main() {
    let seconds: f64 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(0.5);
    let budget = Duration::from_secs_f64(seconds.clamp(0.01, 60.0));
    for isa in Isa::available() {
        let peak = best(budget, || dispatch(isa, Peak { steps: 2000 }));
        println!("{isa}: peak {peak:.1} GFLOP/s");
        functions(isa, budget);
        for (m, k, n) in [
            (128, 384, 1536),
            (16, 384, 384),
            (128, 768, 3072),
            (128, 3072, 768),
            (1024, 1024, 1024),
            (128, 64, 128),
            (192, 16, 16),
            (192, 144, 24),
            (192, 24, 144),
            (192, 96, 96),
            (192, 512, 128),
            (192, 576, 192),
            (1, 4096, 4096),
        ] {
            row(isa, peak, budget, m, k, n);
        }
        for (channels, n, width) in
            [(16, 16, 56), (24, 24, 56), (64, 64, 56), (96, 24, 40), (128, 128, 28), (256, 256, 14), (512, 512, 7)]
        {
            taps(isa, peak, budget, channels, n, width);
        }
    }
}

/// What a block of points of a 3×3 convolution costs: its taps read where they are, or copied to dense rows first.
fn taps(isa: Isa, peak: f64, budget: Duration, channels: usize, n: usize, width: usize) {
    const POINTS: usize = 192;
    let (m, k) = (POINTS, 9 * channels);
    let rows = POINTS.div_ceil(width) + 2;
    let image: Vec<f32> = (0..rows * (width + 2) * channels).map(|i| (i % 13) as f32 * 0.1 - 0.6).collect();
    let b: Vec<f32> = (0..k * n).map(|i| (i % 11) as f32 * 0.1 - 0.5).collect();
    let mut packed = vec![0.0f32; packed_b_len(isa, k, n).unwrap_or(0) + 16];
    let skip = packed.as_ptr().align_offset(64).min(16);
    let panels = packed[skip..].as_mut_ptr();
    // SAFETY: source and destination have the lengths that the shapes ask for.
    unsafe { pack_b(isa, Strided { data: b.as_ptr(), row: n as isize, col: 1 }, k, n, panels) };
    let at = |p: usize, t: usize| ((p / width + t / 3) * (width + 2) + p % width + t % 3) * channels;
    let starts: Vec<*const f32> = (0..m * 9).map(|i| image[at(i / 9, i % 9)..].as_ptr()).collect();
    let mut dense = vec![0.0f32; m * k];
    let mut c = vec![0.0f32; m * n];
    print!("  3x3 of {channels:>3} to {n:>3} channels:");
    for (name, copy) in [("in place", false), ("copied", true)] {
        let a = match copy {
            false => AOperand::Segments { starts: &starts, width: channels },
            true => AOperand::Strided(Strided { data: dense.as_ptr(), row: k as isize, col: 1 }),
        };
        let args = GemmArgs {
            m,
            n,
            k,
            a,
            b: BOperand::Packed(panels),
            c: c.as_mut_ptr(),
            c_row: n as isize,
            c_col: 1,
            accumulate: false,
            epilogue: Epilogue::default(),
        };
        let mut scratch = vec![0.0f32; args.scratch_len(isa)];
        let rate = best(budget, || {
            if copy {
                for (i, start) in starts.iter().enumerate() {
                    // SAFETY: taps lie in the image, and places in `dense`.
                    unsafe { start.copy_to_nonoverlapping(dense.as_mut_ptr().add(i * channels), channels) };
                }
            }
            // SAFETY: operands and result have the lengths that the shapes ask for.
            unsafe { gemm(isa, &args, &mut scratch) };
            (2 * m * k * n) as f64
        });
        print!("  {name} {rate:6.1} ({:3.0} %)", 100.0 * rate / peak);
    }
    println!();
}

/// Elementwise functions on a block in the nearest cache, in nanoseconds an element.
fn functions(isa: Isa, budget: Duration) {
    let x: Vec<f32> = (0..512).map(|i| i as f32 / 64.0 - 4.0).collect();
    let mut y = x.clone();
    print!("  ns per element:");
    for op in [
        UnaryF32::Exp,
        UnaryF32::Log,
        UnaryF32::Tanh,
        UnaryF32::Erf,
        UnaryF32::Sigmoid,
        UnaryF32::Gelu,
        UnaryF32::GeluTanh,
        UnaryF32::Silu,
        UnaryF32::Sin,
    ] {
        let rate = best(budget / 4, || {
            for _ in 0..20 {
                unary_f32(op, isa, black_box(&x), black_box(&mut y));
            }
            20.0 * 512.0
        });
        print!(" {op:?} {:.2}", 1.0 / rate);
    }
    println!();
}

fn row(isa: Isa, peak: f64, budget: Duration, m: usize, k: usize, n: usize) {
    let fill = |len: usize| (0..len).map(|i| (i % 13) as f32 * 0.1 - 0.6).collect::<Vec<f32>>();
    let (a, b, bias) = (fill(m * k), fill(k * n), fill(n));
    let mut c = vec![0.0f32; m * n];
    let source = Strided { data: b.as_ptr(), row: n as isize, col: 1 };
    let transposed = Strided { data: b.as_ptr(), row: 1, col: k as isize };
    // One spare line, so that panels can start at a multiple of 64 bytes as they do in a real arena.
    let mut packed = vec![0.0f32; packed_b_len(isa, k, n).unwrap_or(0) + 16];
    let skip = packed.as_ptr().align_offset(64).min(16);
    let panels = packed[skip..].as_mut_ptr();
    // SAFETY: source and destination have the lengths that the shapes ask for.
    unsafe { pack_b(isa, source, k, n, panels) };
    // The scale keeps gelu's arguments in the range that networks have.
    let menu = Epilogue {
        scale: Some(2.0 / (k as f32).sqrt()),
        bias: Some(Strided { data: bias.as_ptr(), row: 0, col: 1 }),
        activation: Activation::Gelu,
        ..Epilogue::default()
    };
    print!("  {m:>5} x {k:>4} x {n:>4}:");
    let rows: Vec<*const f32> = (0..m).map(|r| a[r * k..].as_ptr()).collect();
    let left = AOperand::Strided(Strided { data: a.as_ptr(), row: k as isize, col: 1 });
    let segments = AOperand::Segments { starts: &rows, width: k };
    for (name, left, operand, epilogue) in [
        ("packed", left, BOperand::Packed(panels), Epilogue::default()),
        ("segments", segments, BOperand::Packed(panels), Epilogue::default()),
        ("+bias+gelu", left, BOperand::Packed(panels), menu),
        ("on the fly", left, BOperand::Strided(source), Epilogue::default()),
        ("transposed", left, BOperand::Strided(transposed), Epilogue::default()),
    ] {
        let args = GemmArgs {
            m,
            n,
            k,
            a: left,
            b: operand,
            c: c.as_mut_ptr(),
            c_row: n as isize,
            c_col: 1,
            accumulate: false,
            epilogue,
        };
        let mut scratch = vec![0.0f32; args.scratch_len(isa)];
        let rate = best(budget, || {
            // SAFETY: operands and result have the lengths that the shapes ask for.
            unsafe { gemm(isa, &args, &mut scratch) };
            (2 * m * k * n) as f64
        });
        print!("  {name} {rate:6.1} ({:3.0} %)", 100.0 * rate / peak);
    }
    println!();
}
