//! Products of integers against plain loops, bit by bit.

// Every operand here is a vector of the size that the shapes ask for.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::tests::Random;
use super::*;
use crate::simd::quads;

/// What elements and zero points are.
#[derive(Clone, Copy, Debug)]
struct Case {
    signed_a: bool,
    signed_b: bool,
    zero_a: bool,
    zero_b: bool,
    /// All elements at the ends of their range.
    extreme: bool,
}

/// Layouts that can hold the elements, also those that this level would not choose.
fn layouts(isa: Isa, k: usize, bytes: bool) -> Vec<IntLayout> {
    let chosen = IntLayout::new(isa, k, bytes);
    // Tiles have a width of their own.
    let vectors = IntLayout { width: panel_width(isa), ..chosen };
    let of = |elem| IntLayout { elem, ..vectors };
    let mut all = vec![of(IntElem::Pairs16)];
    if bytes {
        all.push(of(IntElem::Pairs8));
        // Other levels emulate fours of bytes.
        if !matches!(crate::simd::effective(isa), Isa::Avx512 | Isa::Amx) || quads(isa) {
            all.push(of(IntElem::Quads8));
        }
        if amx::has_tiles(isa) {
            all.push(chosen);
        }
    }
    assert!(all.contains(&chosen));
    all
}

fn elements(random: &mut Random, n: usize, signed: bool, extreme: bool) -> Vec<i32> {
    let (lo, hi) = if signed { (-128, 127) } else { (0, 255) };
    let mut one = || match extreme {
        true => [lo, hi][random.below(2)],
        false => lo + random.below(256) as i32,
    };
    (0..n).map(|_| one()).collect()
}

fn check(random: &mut Random, isa: Isa, (m, n, k): (usize, usize, usize), case: Case) {
    let mut a = elements(random, m * k, case.signed_a, case.extreme);
    let mut b = elements(random, k * n, case.signed_b, case.extreme);
    if case.extreme && random.below(2) == 0 {
        // The largest products that there are, all of one sign.
        a.fill(if case.signed_a { -128 } else { 255 });
        b.fill(if case.signed_b { -128 } else { 255 });
    }
    let za: Vec<i32> =
        elements(random, m, case.signed_a, case.extreme).iter().map(|&z| if case.zero_a { z } else { 0 }).collect();
    let zb: Vec<i32> =
        elements(random, n, case.signed_b, case.extreme).iter().map(|&z| if case.zero_b { z } else { 0 }).collect();
    let memory: Vec<u8> = a.iter().map(|&x| x as u8).collect();
    let by_column = random.below(4) == 0;
    let (row, col) = if by_column { (1, m as isize) } else { (k as isize, 1) };
    let at = |r: usize, p: usize| a[(r as isize * row + p as isize * col) as usize];
    let less = |p: usize, c: usize| b[p * n + c] - zb[c];
    let bytes = (0..k * n).all(|i| (-128..=127).contains(&less(i / n, i % n)));
    let mut want = vec![0i32; m * n];
    for r in 0..m {
        for c in 0..n {
            want[r * n + c] = (0..k).fold(0i32, |sum, p| sum.wrapping_add((at(r, p) - za[r]).wrapping_mul(less(p, c))));
        }
    }
    let rows: Vec<f32> = (0..m).map(|_| random.float()).collect();
    let columns: Vec<f32> = (0..n).map(|_| random.float()).collect();
    let bias: Vec<f32> = (0..n).map(|_| random.float()).collect();
    let residual: Vec<f32> = (0..m * n).map(|_| random.float()).collect();
    let activation = [Activation::None, Activation::Relu, Activation::Tanh][random.below(3)];
    let with_rows = random.below(2) == 0;
    for layout in layouts(isa, k, bytes) {
        let what = format!("{isa} {layout:?} {m}x{k}x{n} {case:?} {activation:?}");
        let mut packed = vec![u64::MAX; layout.bytes(n).unwrap().div_ceil(8)];
        let panels = n.div_ceil(layout.width);
        for range in [0..panels / 2, panels / 2..panels] {
            unsafe { pack_integers(&layout, n, range, packed.as_mut_ptr().cast(), less) };
        }
        let zero = |r: usize| za[r];
        let sums = Collect { n, sums: std::sync::Mutex::new(vec![None; m * n]) };
        let mut c = vec![7.0f32; m * n];
        let mut args = IntArgs {
            m,
            n,
            k,
            a: Bytes { data: memory.as_ptr(), signed: case.signed_a, row, col },
            a_zero: case.zero_a.then_some(&zero as _),
            b: packed.as_ptr().cast(),
            layout,
            factors: [
                Some(Strided { data: columns.as_ptr(), row: 0, col: 1 }),
                with_rows.then_some(Strided { data: rows.as_ptr(), row: 1, col: 0 }),
            ],
            c: std::ptr::null_mut(),
            c_row: n as isize,
            epilogue: Epilogue { hook: Some(&sums), ..Epilogue::default() },
        };
        run(isa, &args);
        let got: Vec<i32> =
            sums.sums.lock().unwrap().iter().copied().map(|x| x.expect("an element was left out")).collect();
        assert_eq!(got, want, "{what}");
        args.c = c.as_mut_ptr();
        args.epilogue = Epilogue {
            bias: Some(Strided { data: bias.as_ptr(), row: 0, col: 1 }),
            residual: (m % 2 == 1).then_some(Strided { data: residual.as_ptr(), row: n as isize, col: 1 }),
            activation,
            ..Epilogue::default()
        };
        assert!(args.epilogue.integers_fit());
        run(isa, &args);
        for (i, &got) in c.iter().enumerate() {
            let mut v = want[i] as f32 * columns[i % n];
            if with_rows {
                v *= rows[i / n];
            }
            v += bias[i % n];
            if m % 2 == 1 {
                v += residual[i];
            }
            match activation {
                Activation::Relu => assert_eq!(got, v.max(0.0), "{what} {i}"),
                Activation::Tanh => assert!((got - v.tanh()).abs() <= 1e-6, "{what} {i}: {got}, not {}", v.tanh()),
                _ => assert_eq!(got.to_bits(), v.to_bits(), "{what} {i}: {got}, not {v}"),
            }
        }
    }
}

/// Runs a product in parts.
fn run(isa: Isa, args: &IntArgs<'_>) {
    let mut scratch = vec![0xa5u8; args.scratch_bytes()];
    let grid = gemm_tasks(isa, args.m, args.n, args.k, 3);
    for task in 0..grid.len() {
        let (rows, cols) = grid.block(task);
        unsafe { gemm_integers(isa, args, rows, cols, &mut scratch) };
    }
}

/// Keeps the sums that a hook is shown.
struct Collect {
    n: usize,
    sums: std::sync::Mutex<Vec<Option<i32>>>,
}
impl TileEpilogue for Collect {
    fn run(&self, block: OutputBlock<'_>) {
        let mut sums = self.sums.lock().unwrap();
        for (i, r) in block.rows.clone().enumerate() {
            for (j, c) in block.cols.clone().enumerate() {
                let p = block.data.cast::<i32>().wrapping_offset(i as isize * block.row_stride).wrapping_add(j);
                assert!(sums[r * self.n + c].replace(unsafe { *p }).is_none(), "an element was shown twice");
            }
        }
    }
}

fn cases() -> impl Iterator<Item = Case> {
    (0..32).map(|i| Case {
        signed_a: i & 1 != 0,
        signed_b: i & 2 != 0,
        zero_a: i & 4 != 0,
        zero_b: i & 8 != 0,
        extreme: i & 16 != 0,
    })
}

#[test]
fn integers_of_odd_sizes_are_exact() {
    let mut random = Random(1);
    for isa in crate::simd::levels() {
        for case in cases() {
            let sizes = [
                (1, 1, 1),
                (1, 7, 2),
                (2, 8, 3),
                (3, 17, 5),
                (6, 16, 31),
                (7, 9, 64),
                (13, 33, 7),
                (0, 4, 4),
                (4, 0, 4),
                (5, 6, 0),
            ];
            sizes.into_iter().for_each(|size| check(&mut random, isa, size, case));
            for _ in 0..6 {
                let size = (random.below(30), random.below(80), random.below(50));
                check(&mut random, isa, size, case);
            }
        }
    }
}

#[test]
fn integers_of_many_rows_columns_and_depths_are_exact() {
    let mut random = Random(2);
    for isa in crate::simd::levels() {
        for (i, case) in cases().enumerate() {
            let sizes = [(1, 65, 3001), (101, 24, 130), (6, 801, 12), (1, 1, 40_000), (99, 20, 1031)];
            check(&mut random, isa, sizes[i % sizes.len()], case);
        }
        // Sums of the largest products wrap as i32 does.
        let case = Case { signed_a: false, signed_b: false, zero_a: false, zero_b: false, extreme: true };
        check(&mut random, isa, (2, 9, 70_000), case);
    }
}
