//! Against plain f64 loops, at every level; and bit equality over divisions and paths.

// Every operand here is a vector of the size that the shapes ask for.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::*;
use std::ops::Range;
use std::sync::Mutex;

/// A linear congruential generator: numbers in [−1, 1) and in ranges.
pub(super) struct Random(pub(super) u64);
impl Random {
    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }
    pub(super) fn float(&mut self) -> f32 {
        self.bits() as f32 / (1u64 << 30) as f32 - 1.0
    }
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }
    pub(super) fn vec(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }
}

/// A matrix with its memory: any of row-major, column-major, padded, reversed.
struct Owned {
    memory: Vec<f32>,
    offset: usize,
    row: isize,
    col: isize,
    cols: usize,
}
impl Owned {
    fn new(random: &mut Random, rows: usize, cols: usize) -> Self {
        let pad = random.below(3);
        let (mut row, mut col) = match random.below(4) {
            0 => ((cols + pad) as isize, 1),
            1 => (1, (rows + pad) as isize),
            2 => ((2 * cols + pad) as isize, 2),
            _ => (cols as isize, 1),
        };
        let mut offset = 0;
        if random.below(4) == 0 {
            offset += rows.saturating_sub(1) * row as usize;
            row = -row;
        }
        if random.below(4) == 0 {
            offset += cols.saturating_sub(1) * col as usize;
            col = -col;
        }
        let extent = rows.saturating_sub(1) * row.unsigned_abs() + cols.saturating_sub(1) * col.unsigned_abs() + 1;
        Owned { memory: random.vec(extent), offset, row, col, cols }
    }
    fn view(&self) -> Strided {
        Strided { data: &self.memory[self.offset], row: self.row, col: self.col }
    }
    fn index(&self, r: usize, c: usize) -> usize {
        (self.offset as isize + r as isize * self.row + c as isize * self.col) as usize
    }
    fn get(&self, r: usize, c: usize) -> f32 {
        assert!(c < self.cols);
        self.memory[self.index(r, c)]
    }
}

fn run(isa: Isa, args: &GemmArgs<'_>) {
    let mut scratch = vec![f32::NAN; args.scratch_len(isa)];
    unsafe { gemm(isa, args, &mut scratch) };
}

fn packed(isa: Isa, b: Strided, k: usize, n: usize) -> Vec<f32> {
    let mut dst = vec![f32::NAN; packed_b_len(isa, k, n).unwrap()];
    unsafe { pack_b(isa, b, k, n, dst.as_mut_ptr()) };
    dst
}

/// |error| allowed for a sum of `k` products of numbers below 1, where `size` is the sum of their absolute values.
fn tolerance(k: usize, size: f64) -> f64 {
    6e-8 * (size * (3.0 + (k as f64).sqrt() / 4.0) + 1e-6)
}

fn reference(k: usize, a: &Owned, b: &Owned, r: usize, c: usize) -> (f64, f64) {
    (0..k).fold((0.0, 0.0), |(sum, size), p| {
        let x = f64::from(a.get(r, p)) * f64::from(b.get(p, c));
        (sum + x, size + x.abs())
    })
}

fn check(random: &mut Random, isa: Isa, m: usize, n: usize, k: usize) {
    let (a, b) = (Owned::new(random, m, k), Owned::new(random, k, n));
    let before = Owned::new(random, m, n);
    let dense = packed(isa, b.view(), k, n);
    let accumulate = random.below(3) == 0;
    let mut results = Vec::new();
    for operand in [BOperand::Packed(dense.as_ptr()), BOperand::Strided(b.view())] {
        let mut c = Owned { memory: before.memory.clone(), ..before };
        let data: *mut f32 = if c.memory.is_empty() { continue } else { &mut c.memory[c.offset] };
        let args = GemmArgs {
            m,
            n,
            k,
            a: a.view().into(),
            b: operand,
            c: data,
            c_row: c.row,
            c_col: c.col,
            accumulate,
            epilogue: Epilogue::default(),
        };
        run(isa, &args);
        let mut reached = vec![false; c.memory.len()];
        for r in 0..m {
            for j in 0..n {
                reached[c.index(r, j)] = true;
                let (sum, size) = reference(k, &a, &b, r, j);
                let old = if accumulate { f64::from(before.get(r, j)) } else { 0.0 };
                let got = f64::from(c.get(r, j));
                let allowed = tolerance(k, size + old.abs());
                assert!((got - sum - old).abs() <= allowed, "{isa:?} {m}x{k}x{n} ({r}, {j}): {got}, not {}", sum + old);
            }
        }
        for (i, &hit) in reached.iter().enumerate() {
            assert!(hit || c.memory[i].to_bits() == before.memory[i].to_bits(), "wrote between the elements of C");
        }
        results.push(c.memory);
    }
    assert!(results.windows(2).all(|w| same_bits(&w[0], &w[1])), "packed and strided B differ: {isa:?} {m}x{k}x{n}");
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits())
}

#[test]
fn odd_sizes_and_strides() {
    let mut random = Random(1);
    let sizes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 13, 15, 16, 17, 31, 33, 47, 64, 97];
    for isa in crate::simd::levels() {
        // Tiles of one to three rows write beyond themselves while they are transposed.
        for (m, k) in [(1, 20), (2, 21), (3, 97), (15, 97), (7, 9)] {
            (0..20).for_each(|_| check(&mut random, isa, m, 8, k));
        }
        for _ in 0..600 {
            let [m, n, k] = [(); 3].map(|()| sizes[random.below(sizes.len())]);
            check(&mut random, isa, m, n, k);
        }
    }
}

#[test]
fn depths_around_the_blocks_of_k() {
    let mut random = Random(2);
    for isa in crate::simd::levels() {
        for k in [0, 1, 2, 383, 384, 385, 768, 769, 1024, 1025] {
            for (m, n) in [(1, 67), (2, 33), (3, 16), (7, 49), (13, 17)] {
                check(&mut random, isa, m, n, k);
            }
        }
    }
}

#[test]
fn more_rows_and_columns_than_a_block() {
    let mut random = Random(3);
    for isa in crate::simd::levels() {
        for (m, n, k) in [(401, 23, 9), (5, 1031, 11), (200, 800, 3), (1, 2000, 400)] {
            check(&mut random, isa, m, n, k);
        }
    }
}

#[test]
fn all_divisions_and_shapes_give_the_same_bits() {
    let mut random = Random(4);
    for isa in crate::simd::levels() {
        for (m, n, k) in [(1, 300, 500), (50, 70, 400), (129, 100, 37), (37, 257, 801)] {
            let (a, b) = (random.vec(m * k), random.vec(k * n));
            let a = Strided { data: a.leak().as_ptr(), row: k as isize, col: 1 };
            let b = Strided { data: b.leak().as_ptr(), row: n as isize, col: 1 };
            let dense = packed(isa, b, k, n);
            let args = |operand, c: &mut Vec<f32>| GemmArgs {
                m,
                n,
                k,
                a: a.into(),
                b: operand,
                c: c.as_mut_ptr(),
                c_row: n as isize,
                c_col: 1,
                accumulate: false,
                epilogue: Epilogue { activation: Activation::Gelu, ..Default::default() },
            };
            let mut whole = vec![0.0; m * n];
            run(isa, &args(BOperand::Packed(dense.as_ptr()), &mut whole));
            for operand in [BOperand::Packed(dense.as_ptr()), BOperand::Strided(b)] {
                for threads in [1, 2, 3, 5, 8, 64] {
                    let grid = gemm_tasks(isa, m, n, k, threads);
                    let mut c = vec![f32::NAN; m * n];
                    let args = args(operand, &mut c);
                    let mut scratch = vec![f32::NAN; args.scratch_len(isa)];
                    for task in (0..grid.len()).rev() {
                        unsafe { gemm_task(isa, &args, &grid, task, &mut scratch) };
                    }
                    assert!(same_bits(&c, &whole), "{isa:?} {m}x{k}x{n} on {threads} threads");
                }
            }
            // Each row alone, at another m.
            for r in 0..m.min(20) {
                let mut c = vec![f32::NAN; n];
                let one = GemmArgs {
                    m: 1,
                    a: Strided { data: a.at(r, 0), ..a }.into(),
                    ..args(BOperand::Packed(dense.as_ptr()), &mut c)
                };
                run(isa, &one);
                assert!(same_bits(&c, &whole[r * n..(r + 1) * n]), "{isa:?} row {r} of {m}x{k}x{n}");
            }
        }
    }
}

#[test]
fn grids_cover_c_once() {
    for isa in crate::simd::levels() {
        for (m, n, k) in
            [(0, 5, 5), (5, 0, 5), (1, 1, 1), (1, 4096, 4096), (128, 1536, 384), (1000, 7, 300), (97, 89, 1000)]
        {
            for threads in [1, 2, 3, 4, 7, 16, 200] {
                let grid = gemm_tasks(isa, m, n, k, threads);
                assert!(grid.len() <= threads.max(1) && grid.is_empty() == (m * n == 0));
                let mut hits = vec![0u8; m * n];
                for task in 0..grid.len() {
                    let (rows, cols) = grid.block(task);
                    assert!(!rows.is_empty() && !cols.is_empty() && cols.start % panel_width(isa) == 0);
                    for r in rows {
                        cols.clone().for_each(|c| hits[r * n + c] += 1);
                    }
                }
                assert!(hits.iter().all(|&h| h == 1), "{m}x{n} on {threads}");
                assert_eq!(grid.block(grid.len()), (0..0, 0..0));
            }
        }
    }
}

fn activate(f: Activation, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match f {
        Activation::None => x,
        Activation::Relu => x.max(0.0),
        Activation::Gelu => 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }
        Activation::Silu => x * sigmoid(x),
        Activation::Sigmoid => sigmoid(x),
        Activation::Tanh => x.tanh(),
        Activation::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        Activation::Clip { lo, hi } => x.max(f64::from(lo)).min(f64::from(hi)),
    }
}

#[test]
fn every_epilogue() {
    use Activation::*;
    let mut random = Random(5);
    let clip = Clip { lo: -0.25, hi: 0.5 };
    for isa in crate::simd::levels() {
        for activation in [None, Relu, Gelu, GeluTanh, Silu, Sigmoid, Tanh, HardSwish, clip] {
            for (m, n, k) in [(1, 50, 20), (13, 37, 0), (23, 33, 390), (4, 3, 7)] {
                let (a, b) = (Owned::new(&mut random, m, k), Owned::new(&mut random, k, n));
                let residual = Owned::new(&mut random, m, n);
                let bias = random.vec(m.max(n));
                let bias = Strided { data: bias.leak().as_ptr(), row: 0, col: 0 };
                let biases =
                    [Option::None, Some(bias), Some(Strided { col: 1, ..bias }), Some(Strided { row: 1, ..bias })];
                for (i, bias) in biases.into_iter().enumerate() {
                    let (with_residual, residual_last) = (i % 2 == 1 || m == 4, i == 3);
                    let scale = if i == 2 { Option::None } else { Some(-0.75) };
                    let affine = match i {
                        1 => Affine { mul: Some(1.25), add: Option::None },
                        2 => Affine { mul: Some(-0.5), add: Some(0.375) },
                        _ => Affine::default(),
                    };
                    let c = Owned::new(&mut random, m, n);
                    let mut memory = c.memory.clone();
                    let args = GemmArgs {
                        m,
                        n,
                        k,
                        a: a.view().into(),
                        b: BOperand::Strided(b.view()),
                        c: &mut memory[c.offset],
                        c_row: c.row,
                        c_col: c.col,
                        accumulate: false,
                        epilogue: Epilogue {
                            scale,
                            bias,
                            residual: with_residual.then(|| residual.view()),
                            residual_last,
                            activation,
                            affine,
                            in_place: false,
                            hook: Option::None,
                        },
                    };
                    run(isa, &args);
                    if with_residual {
                        // The residual where the result goes gives the same bits.
                        let mut there = c.memory.clone();
                        for (r, j) in (0..m).flat_map(|r| (0..n).map(move |j| (r, j))) {
                            there[c.index(r, j)] = residual.get(r, j);
                        }
                        let first = there[c.offset..].as_mut_ptr();
                        let old = Strided { data: first, row: c.row, col: c.col };
                        let epilogue = Epilogue { residual: Some(old), in_place: true, ..args.epilogue };
                        run(isa, &GemmArgs { c: first, epilogue, ..args });
                        for (r, j) in (0..m).flat_map(|r| (0..n).map(move |j| (r, j))) {
                            let at = c.index(r, j);
                            assert_eq!(there[at].to_bits(), memory[at].to_bits(), "{isa:?} {m}x{k}x{n} in place");
                        }
                    }
                    for r in 0..m {
                        for j in 0..n {
                            let (sum, size) = reference(k, &a, &b, r, j);
                            let mut x = sum * f64::from(scale.unwrap_or(1.0));
                            x += bias.map_or(0.0, |b| f64::from(unsafe { *b.at(r, j) }));
                            let res = if with_residual { f64::from(residual.get(r, j)) } else { 0.0 };
                            let after = |x: f64| {
                                x * f64::from(affine.mul.unwrap_or(1.0)) + f64::from(affine.add.unwrap_or(0.0))
                            };
                            let x = if residual_last {
                                after(activate(activation, x)) + res
                            } else {
                                after(activate(activation, x + res))
                            };
                            let got = f64::from(memory[c.index(r, j)]);
                            let allowed = 2.0 * tolerance(k, size) + 6e-7 * (1.0 + x.abs());
                            assert!(
                                (got - x).abs() <= allowed,
                                "{isa:?} {activation:?} {m}x{k}x{n} ({r}, {j}): {got}, not {x}"
                            );
                        }
                    }
                }
            }
        }
    }
}

/// Copies each block to a matrix of its own, doubled, and keeps the ranges.
struct Doubling {
    to: usize,
    n: usize,
    seen: Mutex<Vec<(Range<usize>, Range<usize>)>>,
}
impl TileEpilogue for Doubling {
    fn run(&self, block: OutputBlock<'_>) {
        assert_eq!(block.scratch.len(), 77);
        for (i, r) in block.rows.clone().enumerate() {
            for (j, c) in block.cols.clone().enumerate() {
                let at = i as isize * block.row_stride + j as isize * block.col_stride;
                unsafe { *(self.to as *mut f32).add(r * self.n + c) = 2.0 * *block.data.offset(at) };
            }
        }
        self.seen.lock().unwrap().push((block.rows, block.cols));
    }
}

#[test]
fn hooks_see_every_block_once_with_and_without_c() {
    let mut random = Random(6);
    for isa in crate::simd::levels() {
        for (m, n, k) in [(1, 500, 20), (220, 470, 5), (9, 9, 0), (30, 400, 800)] {
            let (a, b) = (Owned::new(&mut random, m, k), Owned::new(&mut random, k, n));
            let one = [1.0f32];
            let mut c = vec![0.0; m * n];
            for c_at in [std::ptr::null_mut(), c.as_mut_ptr()] {
                let mut to = vec![f32::NAN; m * n];
                let hook = Doubling { to: to.as_mut_ptr() as usize, n, seen: Mutex::default() };
                let args = GemmArgs {
                    m,
                    n,
                    k,
                    a: a.view().into(),
                    b: BOperand::Strided(b.view()),
                    c: c_at,
                    c_row: n as isize,
                    c_col: 1,
                    accumulate: false,
                    epilogue: Epilogue {
                        bias: Some(Strided { data: one.as_ptr(), row: 0, col: 0 }),
                        hook: Some(&hook),
                        ..Default::default()
                    },
                };
                for threads in [1, 3] {
                    let grid = gemm_tasks(isa, m, n, k, threads);
                    for task in 0..grid.len() {
                        // Exactly what this task's plan leaves over cannot be known here: trim to a known rest.
                        let (rows, cols) = grid.block(task);
                        let need = block::needed(isa, &args, rows, cols);
                        let mut scratch = vec![f32::NAN; need + 77];
                        let skip = scratch.as_ptr().align_offset(64).min(16);
                        let aligned = if need == 0 { 0 } else { 16 - skip };
                        scratch.truncate(need + 77 - aligned);
                        unsafe { gemm_task(isa, &args, &grid, task, &mut scratch) };
                    }
                }
                let area: usize = hook.seen.lock().unwrap().iter().map(|(r, c)| r.len() * c.len()).sum();
                assert_eq!(area, 2 * m * n);
                for r in 0..m {
                    for j in 0..n {
                        let (sum, size) = reference(k, &a, &b, r, j);
                        let got = f64::from(to[r * n + j]);
                        assert!(
                            (got - 2.0 * (sum + 1.0)).abs() <= 2.0 * tolerance(k, size + 1.0),
                            "{isa:?} ({r}, {j})"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn infinities_and_nans_stay_where_they_belong() {
    for isa in crate::simd::levels() {
        let (m, n, k) = (7, 19, 11);
        let mut a = vec![1.0f32; m * k];
        let mut b = vec![0.5f32; k * n];
        a[2 * k + 3] = f32::INFINITY;
        a[5 * k] = f32::NAN;
        b[4 * n + 18] = f32::NEG_INFINITY;
        let (av, bv) = (
            Strided { data: a.as_ptr(), row: k as isize, col: 1 },
            Strided { data: b.as_ptr(), row: n as isize, col: 1 },
        );
        let mut c = vec![0.0f32; m * n];
        let args = GemmArgs {
            m,
            n,
            k,
            a: av.into(),
            b: BOperand::Strided(bv),
            c: c.as_mut_ptr(),
            c_row: n as isize,
            c_col: 1,
            accumulate: false,
            epilogue: Epilogue::default(),
        };
        run(isa, &args);
        for r in 0..m {
            for j in 0..n {
                let expected: f32 = (0..k).map(|p| a[r * k + p] * b[p * n + j]).sum();
                let got = c[r * n + j];
                assert!(
                    got == expected || got.is_nan() && expected.is_nan(),
                    "{isa:?} ({r}, {j}): {got}, not {expected}"
                );
            }
        }
    }
}

#[test]
fn other_types_match_wide_sums() {
    use super::typed::{Element, Matrix, gemm_rows};
    fn check<T: Element>(of: impl Fn(i64) -> T, same: impl Fn(T, i128) -> bool) {
        let mut random = Random(7);
        for (m, n, k) in [(0, 3, 3), (1, 1, 1), (3, 70, 5), (5, 64, 0), (4, 7, 33)] {
            for transposed in [false, true] {
                let mut draw = |len: usize| (0..len).map(|_| random.below(15) as i64 - 7).collect::<Vec<_>>();
                let (a, b) = (draw(m * k), draw(k * n));
                let (ta, tb): (Vec<T>, Vec<T>) =
                    (a.iter().map(|&x| of(x)).collect(), b.iter().map(|&x| of(x)).collect());
                let mut c = vec![of(3); m * n];
                let (row, col) = if transposed { (1, k as isize) } else { (n as isize, 1) };
                for accumulate in [true, false] {
                    c.fill(of(3));
                    unsafe {
                        gemm_rows(
                            0..m,
                            n,
                            k,
                            Matrix { data: ta.as_ptr(), row: k as isize, col: 1 },
                            Matrix { data: tb.as_ptr(), row, col },
                            Matrix { data: c.as_mut_ptr(), row: n as isize, col: 1 },
                            accumulate,
                        );
                    }
                    for r in 0..m {
                        for j in 0..n {
                            let b_at = |p: usize| if transposed { b[j * k + p] } else { b[p * n + j] };
                            let start = if accumulate { 3 } else { 0 };
                            let sum = start + (0..k).map(|p| i128::from(a[r * k + p] * b_at(p))).sum::<i128>();
                            assert!(same(c[r * n + j], sum));
                        }
                    }
                }
            }
        }
    }
    check(|x| x as f64, |y, r| y == r as f64);
    check(|x| x as f32, |y, r| y == r as f32);
    check(|x| x as i8, |y, r| y == r as i8);
    check(|x| x as u8, |y, r| y == r as u8);
    check(|x| x as i32, |y, r| y == r as i32);
    check(
        |x| x.wrapping_mul(1 << 60),
        |y: i64, r| {
            // Only the initial 3 is linear in the factor; the products carry it twice and vanish mod 2⁶⁴.
            let _ = r;
            y == 0 || y == 3i64.wrapping_mul(1 << 60)
        },
    );
    check(|x| x as u64, |y, r| y == r as u64);
    check(|x| half::f16::from_f32(x as f32), |y, r| y == half::f16::from_f32(r as f32));
    check(|x| half::bf16::from_f32(x as f32), |y, r| y == half::bf16::from_f32(r as f32));
}

/// Rows in segments at scattered places, and rows where they are, against the packed copy of the same numbers: to the bit.
#[test]
fn rows_in_place_equal_packed_rows() {
    let mut random = Random(41);
    for isa in crate::simd::levels() {
        for _ in 0..120 {
            let (m, n) = (random.below(40) + 1, [1, 3, 7, 8, 9, 16, 17, 24, 25, 40, 300][random.below(11)]);
            let (width, count) = (random.below(70) + 1, [1, 2, 3, 9][random.below(4)]);
            let k = width * count;
            let memory = random.vec(4096 + width);
            let starts: Vec<*const f32> = (0..m * count).map(|_| memory[random.below(4096)..].as_ptr()).collect();
            let dense: Vec<f32> =
                (0..m * k).map(|i| unsafe { *starts[i / k * count + i % k / width].add(i % width) }).collect();
            // Column-major rows are always packed.
            let turned: Vec<f32> = (0..m * k).map(|i| dense[i % m * k + i / m]).collect();
            let b = random.vec(k * n);
            let panels = packed(isa, Strided { data: b.as_ptr(), row: n as isize, col: 1 }, k, n);
            let (bias, residual) = (random.vec(n), random.vec(m * n));
            let activation = [
                Activation::None,
                Activation::Relu,
                Activation::Clip { lo: -0.5, hi: 0.5 },
                Activation::Sigmoid,
                Activation::HardSwish,
            ][random.below(5)];
            let epilogue = Epilogue {
                scale: (random.below(2) == 0).then_some(0.5),
                bias: (random.below(2) == 0).then_some(Strided { data: bias.as_ptr(), row: 0, col: 1 }),
                residual: (random.below(2) == 0).then_some(Strided {
                    data: residual.as_ptr(),
                    row: n as isize,
                    col: 1,
                }),
                residual_last: random.below(2) == 0,
                activation,
                affine: Affine {
                    mul: (random.below(3) == 0).then_some(1.5),
                    add: (random.below(3) == 0).then_some(-0.25),
                },
                ..Epilogue::default()
            };
            let ways = [
                AOperand::Strided(Strided { data: turned.as_ptr(), row: 1, col: m as isize }),
                AOperand::Strided(Strided { data: dense.as_ptr(), row: k as isize, col: 1 }),
                AOperand::Segments { starts: &starts, width },
            ];
            let before = random.vec(m * n);
            let accumulate = random.below(3) == 0;
            // Rows of C side by side, and columns.
            for (c_row, c_col) in [(n as isize, 1), (1, m as isize)] {
                let results = ways.map(|a| {
                    let mut c = before.clone();
                    let b = BOperand::Packed(panels.as_ptr());
                    run(isa, &GemmArgs { m, n, k, a, b, c: c.as_mut_ptr(), c_row, c_col, accumulate, epilogue });
                    c.iter().map(|x| x.to_bits()).collect::<Vec<u32>>()
                });
                assert_eq!(results[0], results[1], "{isa}: {m} x {k} x {n} in place, {activation:?}");
                assert_eq!(results[0], results[2], "{isa}: {m} x {count} * {width} x {n} in segments, {activation:?}");
            }
        }
    }
}
