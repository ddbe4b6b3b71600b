//! Products on the matrix unit against plain f64 loops, at the sizes around its tiles; on the processor where it has the
//! unit, else on the model.

// Every operand here is a vector of the size that the shapes ask for.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::super::tests::Random;
use super::super::*;
use super::tiles::{Dot, Job, Pass, ROW_BYTES, SIDE, Unit};
use super::{BLOCK, Parts, model};
use half::bf16;

const SIZES: [usize; 12] = [1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129];

/// Operands row by row.
struct Case {
    m: usize,
    n: usize,
    k: usize,
    a: Vec<f32>,
    b: Vec<f32>,
}

/// How a product is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// Weights kept as tiles, A of bf16.
    Tiles,
    /// Weights kept as tiles, A of f32, rounded.
    Rounded,
    Split(Parts),
    /// By multiply-adds.
    Plain,
}

impl Case {
    fn new(random: &mut Random, m: usize, n: usize, k: usize) -> Case {
        Case { m, n, k, a: random.vec(m * k), b: random.vec(k * n) }
    }

    fn rounded(mut self) -> Case {
        self.a.iter_mut().chain(&mut self.b).for_each(|x| *x = bf16::from_f32(*x).to_f32());
        self
    }

    /// In f64: the result, and the sums of magnitudes.
    fn reference(&self) -> Vec<(f64, f64)> {
        let mut c = vec![(0.0, 0.0); self.m * self.n];
        for r in 0..self.m {
            for p in 0..self.k {
                let x = f64::from(self.a[r * self.k + p]);
                for j in 0..self.n {
                    let y = x * f64::from(self.b[p * self.n + j]);
                    let sum = &mut c[r * self.n + j];
                    *sum = (sum.0 + y, sum.1 + y.abs());
                }
            }
        }
        c
    }

    fn tiles(&self) -> (PanelLayout, Vec<u64>) {
        let layout = PanelLayout::new(Isa::Amx, PanelElem::Bf16Tiles, self.k, 1).unwrap();
        let mut memory = vec![u64::MAX; layout.bytes(self.n).unwrap().div_ceil(8)];
        let value = |p: usize, c: usize| i32::from(bf16::from_f32(self.b[p * self.n + c]).to_bits());
        let panels = self.n.div_ceil(layout.width);
        for range in [0..panels / 2, panels / 2..panels] {
            unsafe { pack_narrow(&layout, self.n, range, memory.as_mut_ptr().cast(), value, |_, _| (1.0, 0.0)) };
        }
        (layout, memory)
    }

    fn panels(&self) -> Vec<f32> {
        let b = Strided { data: self.b.as_ptr(), row: self.n as isize, col: 1 };
        let mut panels = vec![f32::NAN; packed_b_len(Isa::Amx, self.k, self.n).unwrap()];
        unsafe { pack_b(Isa::Amx, b, self.k, self.n, panels.as_mut_ptr()) };
        panels
    }

    /// The product, for so many threads.
    fn run(&self, how: How, threads: usize, change: impl Fn(&mut GemmArgs<'_>)) -> Vec<f32> {
        let halves: Vec<u16> = self.a.iter().map(|&x| bf16::from_f32(x).to_bits()).collect();
        let (layout, tiles) = self.tiles();
        let panels = self.panels();
        let row = self.k as isize;
        let a = Strided { data: self.a.as_ptr(), row, col: 1 }.into();
        let narrow = BOperand::Narrow(NarrowPanels { data: tiles.as_ptr().cast(), layout });
        let (a, b) = match how {
            How::Tiles => (AOperand::Bf16 { data: halves.as_ptr(), row, col: 1 }, narrow),
            How::Rounded => (a, narrow),
            How::Split(parts) => (a, BOperand::Split(panels.as_ptr(), parts)),
            How::Plain => (a, BOperand::Packed(panels.as_ptr())),
        };
        let mut c = vec![0.25; self.m * self.n];
        let mut args = GemmArgs {
            m: self.m,
            n: self.n,
            k: self.k,
            a,
            b,
            c: c.as_mut_ptr(),
            c_row: self.n as isize,
            c_col: 1,
            accumulate: false,
            epilogue: Epilogue::default(),
        };
        change(&mut args);
        let mut scratch = vec![f32::NAN; args.scratch_len(Isa::Amx)];
        let grid = gemm_tasks(Isa::Amx, self.m, self.n, self.k, threads);
        for task in (0..grid.len()).rev() {
            unsafe { gemm_task(Isa::Amx, &args, &grid, task, &mut scratch) };
        }
        c
    }
}

fn bits(v: &[f32]) -> Vec<u32> {
    v.iter().map(|x| x.to_bits()).collect()
}

/// ‖error‖ / ‖result‖.
fn error(got: &[f32], want: &[(f64, f64)]) -> f64 {
    let sum = |f: &dyn Fn(f64, f64) -> f64| got.iter().zip(want).map(|(&g, w)| f(f64::from(g), w.0)).sum::<f64>();
    (sum(&|g, w| (g - w) * (g - w)) / sum(&|_, w| w * w).max(f64::MIN_POSITIVE)).sqrt()
}

#[test]
fn all_sizes_around_tiles() {
    let mut random = Random(1);
    for m in SIZES {
        for n in SIZES {
            for k in SIZES {
                let case = Case::new(&mut random, m, n, k);
                let want = case.reference();
                for (how, most) in
                    [(How::Rounded, 4e-3), (How::Split(Parts::Two), 8e-6), (How::Split(Parts::Three), 1e-6)]
                {
                    let got = case.run(how, 1, |_| ());
                    // Sums of few products may cancel: the bound is on what was summed, too.
                    let size =
                        want.iter().map(|w| w.1 * w.1).sum::<f64>() / want.iter().map(|w| w.0 * w.0).sum::<f64>();
                    let most = most * if m * n < 64 { size.sqrt() } else { 1.0 };
                    assert!(error(&got, &want) <= most, "{how:?} {m}x{k}x{n}: {} of {most}", error(&got, &want));
                    for (i, (&g, w)) in got.iter().zip(&want).enumerate() {
                        let most = 4.0 * most * w.1 + 1e-30;
                        assert!((f64::from(g) - w.0).abs() <= most, "{how:?} {m}x{k}x{n} {i}: {g}, not {}", w.0);
                    }
                }
                // What is of bf16 already is the same in all ways.
                if (m + n + k) % 3 == 0 {
                    let case = case.rounded();
                    let first = bits(&case.run(How::Tiles, 1, |_| ()));
                    assert_eq!(first, bits(&case.run(How::Rounded, 3, |_| ())), "{m}x{k}x{n}");
                    assert_eq!(first, bits(&case.run(How::Split(Parts::One), 2, |_| ())), "{m}x{k}x{n}");
                }
            }
        }
    }
}

#[test]
fn errors_are_those_of_the_formats() {
    let mut random = Random(2);
    for (m, n, k) in [(64, 48, 384), (70, 33, 768), (64, 16, 3072)] {
        let case = Case::new(&mut random, m, n, k);
        let want = case.reference();
        let of = |how| error(&case.run(how, 1, |_| ()), &want);
        let (one, two, three) = (of(How::Rounded), of(How::Split(Parts::Two)), of(How::Split(Parts::Three)));
        assert!((1e-4..4e-3).contains(&one), "one product: {one}");
        assert!((2e-7..8e-6).contains(&two), "three products: {two}");
        assert!(three < 1e-6, "six products: {three}");
        assert!(three < 2.0 * of(How::Plain), "as exact as multiply-adds: {three}");
    }
}

#[test]
fn divisions_and_neighbours_change_no_bit() {
    let mut random = Random(3);
    for (m, n, k) in [(129, 300, 70), (65, 129, 401), (300, 70, 33), (17, 800, 64)] {
        let case = Case::new(&mut random, m, n, k);
        for how in [How::Rounded, How::Split(Parts::Two), How::Split(Parts::Three)] {
            let whole = bits(&case.run(how, 1, |_| ()));
            for threads in [2, 3, 8] {
                assert_eq!(whole, bits(&case.run(how, threads, |_| ())), "{how:?} {m}x{k}x{n} on {threads} threads");
            }
            // A row beside rows of infinities and NaN.
            for r in [0, m / 2, m - 1] {
                let mut a = vec![f32::INFINITY; m * k];
                a[r * k..(r + 1) * k].copy_from_slice(&case.a[r * k..(r + 1) * k]);
                a[(r + 1) % m * k] = f32::NAN;
                let other = Case { a, b: case.b.clone(), ..case };
                let got = bits(&other.run(how, 1, |_| ()));
                let row = r * n..(r + 1) * n;
                assert_eq!(got[row.clone()], whole[row], "{how:?} row {r} of {m}x{k}x{n}");
            }
        }
    }
}

/// What f32 multiply-adds make of numbers that bf16 parts cannot show.
#[test]
fn numbers_out_of_the_ordinary_are_those_of_multiply_adds() {
    let mut random = Random(4);
    let odd = [
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MAX,
        -f32::MAX,
        3.3e38,
        1e30,
        f32::MIN_POSITIVE,
        1e-40,
        -1e-45,
        1e-30,
        0.0,
        -0.0,
    ];
    for round in 0..odd.len() * 3 {
        let (m, n, k) = (33 + round % 3, 20 + round, 40);
        let mut case = Case::new(&mut random, m, n, k);
        for _ in 0..3 {
            let special = odd[round % odd.len()];
            match round / odd.len() {
                0 => case.a[random.below(m * k)] = special,
                1 => case.b[random.below(k * n)] = special,
                _ => {
                    // A whole row and a whole column.
                    let (r, c) = (random.below(m), random.below(n));
                    case.a[r * k..(r + 1) * k].fill(special);
                    (0..k).for_each(|p| case.b[p * n + c] = special);
                }
            }
        }
        let plain = case.run(How::Plain, 1, |_| ());
        let class = |x: f32| (x.is_nan(), if x.is_infinite() { x } else { 0.0 });
        for parts in [Parts::Two, Parts::Three] {
            let got = case.run(How::Split(parts), 1, |_| ());
            for (i, (&g, &p)) in got.iter().zip(&plain).enumerate() {
                assert_eq!(
                    format!("{:?}", class(g)),
                    format!("{:?}", class(p)),
                    "{parts:?} round {round} {i}: {g}, not {p}"
                );
                let near = if parts == Parts::Two { 1e-4 } else { 1e-5 };
                let want: f32 = (0..k).map(|q| (case.a[i / n * k + q] * case.b[q * n + i % n]).abs()).sum();
                let close = !p.is_finite() || !want.is_finite() || (g - p).abs() <= near * want;
                assert!(close, "{parts:?} round {round} {i}: {g}, not {p}");
            }
        }
        // One product keeps infinities and NaN; subnormals become zeros.
        let got = case.run(How::Rounded, 1, |_| ());
        let tame = case.a.iter().chain(&case.b).all(|x| !x.is_finite() || x.abs() < 1e10);
        if tame {
            for (&g, &p) in got.iter().zip(&plain) {
                assert_eq!(format!("{:?}", class(g)), format!("{:?}", class(p)), "round {round}: {g}, not {p}");
            }
        }
    }
}

#[test]
fn epilogues_accumulation_and_strides() {
    let mut random = Random(5);
    for (m, n, k) in [(1, 40, 33), (37, 65, 20), (64, 33, 64), (130, 64, 7), (40, 1, 50), (5, 9, 0)] {
        let case = Case::new(&mut random, m, n, k).rounded();
        let bias = random.vec(n);
        let residual = random.vec(m * n);
        for activation in [Activation::None, Activation::Relu, Activation::Gelu, Activation::Clip { lo: -0.5, hi: 0.5 }]
        {
            for (accumulate, last, by_column) in [(false, false, false), (true, true, false), (true, false, true)] {
                let change = |args: &mut GemmArgs<'_>| {
                    args.accumulate = accumulate;
                    args.epilogue = Epilogue {
                        scale: Some(0.5),
                        bias: Some(Strided { data: bias.as_ptr(), row: 0, col: 1 }),
                        residual: Some(Strided { data: residual.as_ptr(), row: n as isize, col: 1 }),
                        residual_last: last,
                        activation,
                        affine: Affine { mul: Some(2.0), add: Some(0.125) },
                        ..Epilogue::default()
                    };
                    // The pointers outlive the call.
                    args.epilogue.hook = None;
                    if by_column {
                        (args.c_row, args.c_col) = (1, m as isize);
                    }
                };
                let want = case.run(How::Plain, 1, change);
                for how in [How::Tiles, How::Split(Parts::Two), How::Split(Parts::Three)] {
                    for threads in [1, 3] {
                        let got = case.run(how, threads, change);
                        for (i, (g, w)) in got.iter().zip(&want).enumerate() {
                            let near = 2e-5 * (1.0 + w.abs());
                            assert!((g - w).abs() <= near, "{how:?} {activation:?} {m}x{k}x{n} {i}: {g}, not {w}");
                        }
                    }
                }
            }
        }
    }
}

/// Blocks that a hook has seen.
struct Seen(std::sync::Mutex<Vec<f32>>, usize);
impl TileEpilogue for Seen {
    fn run(&self, block: OutputBlock<'_>) {
        let mut c = self.0.lock().unwrap();
        for (i, r) in block.rows.enumerate() {
            for (j, col) in block.cols.clone().enumerate() {
                let at = i as isize * block.row_stride + j as isize * block.col_stride;
                let x = unsafe { *block.data.offset(at) };
                assert!(c[r * self.1 + col].is_nan(), "seen twice");
                c[r * self.1 + col] = x;
            }
        }
    }
}

#[test]
fn hooks_see_every_element_once() {
    let mut random = Random(6);
    for (m, n, k) in [(3, 5, 7), (40, 401, 33), (300, 37, 64)] {
        let case = Case::new(&mut random, m, n, k).rounded();
        for how in [How::Tiles, How::Split(Parts::Three)] {
            let want = case.run(how, 1, |_| ());
            for threads in [1, 4] {
                let seen = Seen(std::sync::Mutex::new(vec![f32::NAN; m * n]), n);
                let hook: &'static Seen = Box::leak(Box::new(seen));
                case.run(how, threads, |args| {
                    args.c = std::ptr::null_mut();
                    args.epilogue.hook = Some(hook);
                });
                assert_eq!(bits(&hook.0.lock().unwrap()), bits(&want), "{how:?} {m}x{k}x{n}");
            }
        }
    }
}

#[test]
fn rows_of_any_stride_and_in_segments() {
    let mut random = Random(7);
    for (m, n, k) in [(33, 20, 36), (16, 33, 72), (70, 40, 1100)] {
        let case = Case::new(&mut random, m, n, k);
        let across: Vec<f32> = (0..k * m).map(|i| case.a[i % m * k + i / m]).collect();
        let halves: Vec<u16> = across.iter().map(|&x| bf16::from_f32(x).to_bits()).collect();
        let width = 12.min(k / 3);
        let width = if k.is_multiple_of(width) { width } else { 4 };
        let starts: Vec<*const f32> = (0..m * (k / width)).map(|i| unsafe { case.a.as_ptr().add(i * width) }).collect();
        for how in [How::Rounded, How::Split(Parts::Two), How::Split(Parts::Three)] {
            let want = bits(&case.run(how, 1, |_| ()));
            let got = case.run(how, 1, |args| {
                args.a = Strided { data: across.as_ptr(), row: 1, col: m as isize }.into();
            });
            assert_eq!(want, bits(&got), "{how:?} across");
            if how == How::Rounded {
                let got = case.run(how, 1, |args| {
                    args.a = AOperand::Bf16 { data: halves.as_ptr(), row: 1, col: m as isize };
                });
                assert_eq!(want, bits(&got), "{how:?} of bf16");
            }
            // A division into tasks by rows counts segments from the first row on.
            let leaked: &'static [*const f32] = starts.clone().leak();
            let got = case.run(how, 2, |args| args.a = AOperand::Segments { starts: leaked, width });
            assert_eq!(want, bits(&got), "{how:?} in segments");
        }
    }
}

/// The processor gives the bits of the model, instruction by instruction.
#[test]
fn the_unit_does_what_the_model_does() {
    let mut random = Random(8);
    let unit = Unit::of(Isa::Amx).unwrap();
    let entered = unit.enter();
    let tile = SIDE * ROW_BYTES;
    for round in 0..40 {
        for dot in [Dot::Bf16, Dot::I8I8, Dot::U8I8] {
            for (two, wide) in [(false, false), (true, false), (false, true), (true, true)] {
                let steps = 1 + round % 3;
                let mut memory = |n: usize| -> Vec<u8> {
                    let mut one = || random.bits() as u32 ^ (random.bits() as u32) << 7;
                    match dot {
                        // Ordinary numbers, and any bits at all: subnormals, infinities, NaN.
                        Dot::Bf16 if round % 4 != 0 => (0..n / 2)
                            .flat_map(|_| {
                                let x = one();
                                let exponent = 120 + x % 12;
                                ((x & 0x8000 | exponent << 7 | x >> 20 & 0x7f) as u16).to_le_bytes()
                            })
                            .collect(),
                        _ => (0..n).map(|_| one() as u8).collect(),
                    }
                };
                let (a, b) = (memory(2 * 2 * steps * tile), memory(2 * 2 * steps * tile));
                let passes = [0, 2 * steps * tile].map(|at| Pass { a: a[at..].as_ptr(), b: b[at..].as_ptr() });
                let passes = &passes[..1 + round % 2];
                let mut c = [vec![7u32; BLOCK * BLOCK], vec![7u32; BLOCK * BLOCK]];
                let [mine, model] = &mut c;
                unsafe {
                    entered.multiply(dot, two, &Job::dense(passes, steps, wide, mine.as_mut_ptr().cast()));
                    model::multiply(dot, two, &Job::dense(passes, steps, wide, model.as_mut_ptr().cast()));
                }
                for (i, (&x, &y)) in c[0].iter().zip(&c[1]).enumerate() {
                    let nan = |v: u32| dot == Dot::Bf16 && f32::from_bits(v).is_nan();
                    assert!(x == y || nan(x) && nan(y), "{unit:?} {dot:?} {i}: {x:#x}, not {y:#x}");
                }
                // One row of tiles leaves the second one's sums alone.
                assert_eq!(c[0][BLOCK * SIDE] == 7, !two, "rows written");
            }
        }
    }
}

/// Sums by hand, so that the model is not its own judge.
#[test]
fn tiles_multiply_as_matrices_do() {
    let mut random = Random(9);
    let (a, b): (Vec<i8>, Vec<i8>) = {
        let mut of = || (0..SIDE * ROW_BYTES).map(|_| random.bits() as i8).collect::<Vec<_>>();
        (of(), of())
    };
    for dot in [Dot::I8I8, Dot::U8I8, Dot::Bf16] {
        let mut c = vec![0u32; BLOCK * BLOCK];
        let pass = [Pass { a: a.as_ptr().cast(), b: b.as_ptr().cast() }];
        unsafe {
            Unit::of(Isa::Amx).unwrap().enter().multiply(
                dot,
                false,
                &Job::dense(&pass, 1, false, c.as_mut_ptr().cast()),
            )
        };
        for r in 0..SIDE {
            for n in 0..SIDE {
                let got = c[r * BLOCK + n];
                if dot == Dot::Bf16 {
                    let half = |v: &[i8], i: usize| {
                        let x = f64::from(bf16::from_le_bytes([v[2 * i] as u8, v[2 * i + 1] as u8]).to_f32());
                        if x.abs() < f64::from(f32::MIN_POSITIVE) { 0.0 } else { x }
                    };
                    let terms = (0..32).map(|k| half(&a, r * 32 + k) * half(&b, k / 2 * 32 + 2 * n + k % 2));
                    let (sum, size) = terms.fold((0.0, 0.0), |(s, z), t| (s + t, z + t.abs()));
                    let got = f64::from(f32::from_bits(got));
                    assert!(
                        !size.is_finite() || size > 1e38 || (got - sum).abs() <= 1e-6 * size + 1e-37,
                        "{r} {n}: {got}, not {sum}"
                    );
                } else {
                    let left = |k: usize| match dot {
                        Dot::I8I8 => i32::from(a[r * 64 + k]),
                        _ => i32::from(a[r * 64 + k] as u8),
                    };
                    let sum: i32 = (0..64).map(|k| left(k) * i32::from(b[k / 4 * 64 + 4 * n + k % 4])).sum();
                    assert_eq!(got as i32, sum, "{dot:?} {r} {n}");
                }
            }
        }
    }
}
