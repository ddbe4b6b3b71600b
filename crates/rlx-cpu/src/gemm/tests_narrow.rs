//! Products with narrow panels against plain f64 loops, and bit by bit against panels of f32 of the same values.

// Every operand here is a vector of the size that the shapes ask for.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::tests::Random;
use super::*;
use half::{bf16, f16};

const ELEMS: [PanelElem; 5] = [PanelElem::Bf16, PanelElem::F16, PanelElem::I8, PanelElem::I8Zero, PanelElem::U4Zero];

/// A right operand in narrow elements: bits, tables, and what each element is worth.
struct Right {
    k: usize,
    n: usize,
    bits: Vec<i32>,
    scales: Vec<f32>,
    zeros: Vec<f32>,
    groups: usize,
    worth: Vec<f32>,
}

impl Right {
    fn new(random: &mut Random, elem: PanelElem, k: usize, n: usize, groups: usize) -> Right {
        let mut bits: Vec<i32> = Vec::new();
        for i in 0..k * n {
            let x = random.float();
            bits.push(match elem {
                PanelElem::F32 => x.to_bits() as i32,
                PanelElem::Bf16 | PanelElem::Bf16Tiles => i32::from(bf16::from_f32(x).to_bits()),
                PanelElem::F16 => i32::from(f16::from_f32(x * if i % 7 == 0 { 1e-5 } else { 1.0 }).to_bits()),
                PanelElem::I8 | PanelElem::I8Zero => [-128, 127, 0, (x * 127.0) as i32][random.below(4)],
                PanelElem::U4Zero => random.below(16) as i32,
            });
        }
        let scales: Vec<f32> = (0..groups * n).map(|_| 0.01 + random.float().abs() * 0.01).collect();
        let zeros: Vec<f32> =
            (0..groups * n).map(|_| if elem == PanelElem::I8 { 0.0 } else { random.below(16) as f32 }).collect();
        let size = k / groups.max(1);
        let worth = (0..k * n).map(|i| {
            let (p, c) = (i / n, i % n);
            let table = p / size.max(1) * n + c;
            match elem {
                PanelElem::F32 => f32::from_bits(bits[i] as u32),
                PanelElem::Bf16 | PanelElem::Bf16Tiles => bf16::from_bits(bits[i] as u16).to_f32(),
                PanelElem::F16 => f16::from_bits(bits[i] as u16).to_f32(),
                _ => (bits[i] as f32 - zeros[table]) * scales[table],
            }
        });
        let worth = worth.collect();
        Right { k, n, bits, scales, zeros, groups, worth }
    }

    fn pack(&self, isa: Isa, elem: PanelElem) -> (PanelLayout, Vec<u64>) {
        let layout = PanelLayout::new(isa, elem, self.k, self.groups).unwrap();
        let mut memory = vec![u64::MAX; layout.bytes(self.n).unwrap().div_ceil(8)];
        let panels = self.n.div_ceil(layout.width);
        let dst = memory.as_mut_ptr().cast();
        for range in [0..panels / 2, panels / 2..panels] {
            let value = |p: usize, c: usize| self.bits[p * self.n + c];
            let table = |g: usize, c: usize| (self.scales[g * self.n + c], self.zeros[g * self.n + c]);
            unsafe { pack_narrow(&layout, self.n, range, dst, value, table) };
        }
        (layout, memory)
    }
}

fn check(random: &mut Random, isa: Isa, elem: PanelElem, (m, n, k): (usize, usize, usize), groups: usize) {
    let right = Right::new(random, elem, k, n, groups);
    let (layout, memory) = right.pack(isa, elem);
    let narrow = NarrowPanels { data: memory.as_ptr().cast(), layout };
    let dense = Strided { data: right.worth.as_ptr(), row: n as isize, col: 1 };
    let mut wide = vec![f32::NAN; packed_b_len(isa, k, n).unwrap()];
    unsafe { pack_b(isa, dense, k, n, wide.as_mut_ptr()) };
    let mut widened = vec![f32::NAN; wide.len()];
    unsafe { widen_panels(isa, narrow, n, widened.as_mut_ptr()) };
    // Padding may hold anything finite: what it yields is dropped.
    for (i, (x, y)) in wide.iter().zip(&widened).enumerate() {
        let column = i / (k.max(1) * layout.width) * layout.width + i % layout.width;
        assert!(column >= n || x.to_bits() == y.to_bits(), "{isa} {elem:?} {m}x{k}x{n} {i}: {y}, not {x}");
    }
    let a: Vec<f32> = (0..m * k).map(|_| random.float()).collect();
    let plain = random.below(2) == 0;
    let (row, col) = if plain { (k as isize, 1) } else { (1, m as isize) };
    let bias: Vec<f32> = (0..n).map(|_| random.float()).collect();
    let residual: Vec<f32> = (0..m * n).map(|_| random.float()).collect();
    let activations = [Activation::None, Activation::Relu, Activation::Gelu];
    let activation = activations[random.below(3)];
    let mut results = Vec::new();
    for b in [BOperand::Packed(wide.as_ptr()), BOperand::Narrow(narrow)] {
        let mut c = vec![0.5; m * n];
        let args = GemmArgs {
            m,
            n,
            k,
            a: Strided { data: a.as_ptr(), row, col }.into(),
            b,
            c: c.as_mut_ptr(),
            c_row: n as isize,
            c_col: 1,
            accumulate: m % 3 == 1,
            epilogue: Epilogue {
                bias: Some(Strided { data: bias.as_ptr(), row: 0, col: 1 }),
                residual: (m % 2 == 0).then_some(Strided { data: residual.as_ptr(), row: n as isize, col: 1 }),
                activation,
                ..Epilogue::default()
            },
        };
        let mut scratch = vec![f32::NAN; args.scratch_len(isa)];
        for threads in [1, 3] {
            c.fill(0.5);
            let grid = gemm_tasks(isa, m, n, k, threads);
            for task in 0..grid.len() {
                unsafe { gemm_task(isa, &args, &grid, task, &mut scratch) };
            }
            let grid = TaskGrid::columns(isa, m, n, k, threads);
            let whole = c.clone();
            c.fill(0.5);
            for task in 0..grid.len() {
                unsafe { gemm_columns(isa, &args, &grid, task, &mut scratch) };
            }
            let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&whole), bits(&c), "columns alone");
            results.push(bits(&c));
        }
    }
    assert!(results.windows(2).all(|w| w[0] == w[1]), "{isa} {elem:?} {m}x{k}x{n}, {groups} groups");
    if activation == Activation::None {
        for (i, &got) in results[0].iter().enumerate() {
            let (r, j) = (i / n, i % n);
            let x = |p: usize| f64::from(a[(r as isize * row + p as isize * col) as usize]);
            let products = (0..k).map(|p| x(p) * f64::from(right.worth[p * n + j]));
            let (sum, size) = products.fold((0.0, 0.0), |(s, z), x| (s + x, z + x.abs()));
            let more = if m % 2 == 0 { f64::from(residual[i]) } else { 0.0 } + if m % 3 == 1 { 0.5 } else { 0.0 };
            let want = sum + f64::from(bias[j]) + more;
            let near = 6e-8 * (size + 4.0) * (3.0 + (k as f64).sqrt() / 4.0);
            assert!((f64::from(f32::from_bits(got)) - want).abs() <= near, "{isa} {elem:?} {m}x{k}x{n} ({r}, {j})");
        }
    }
}

#[test]
fn narrow_panels_give_the_bits_of_wide_ones() {
    let mut random = Random(1);
    for isa in crate::simd::levels() {
        for elem in ELEMS {
            for (m, n, k, groups) in [
                (1, 1, 2, 1),
                (1, 7, 4, 2),
                (1, 64, 386, 1),
                (1, 65, 800, 5),
                (2, 33, 32, 4),
                (3, 100, 12, 1),
                (5, 17, 770, 7),
                (12, 31, 64, 2),
                (13, 16, 40, 1),
                (29, 50, 388, 2),
                (0, 5, 4, 1),
                (3, 0, 4, 1),
                (4, 9, 0, 1),
                (200, 401, 10, 1),
            ] {
                check(&mut random, isa, elem, (m, n, k), groups);
            }
            for _ in 0..60 {
                let (m, n) = (random.below(20), random.below(70));
                let group = 2 * random.below(30);
                let groups = 1 + random.below(4);
                check(&mut random, isa, elem, (m, n, group * groups), groups);
            }
        }
    }
}

#[test]
fn a_layout_refuses_what_it_cannot_hold() {
    let isa = Isa::Portable;
    assert!(PanelLayout::new(isa, PanelElem::I8, 10, 3).is_none(), "groups of no whole size");
    assert!(PanelLayout::new(isa, PanelElem::U4Zero, 6, 2).is_none(), "odd groups of 4 bits");
    let huge = PanelLayout::new(isa, PanelElem::Bf16, usize::MAX / 4, 1).unwrap();
    assert_eq!(huge.bytes(1), None);
    let of = |e| PanelLayout::new(isa, e, 8, 1).unwrap().id();
    let ids: std::collections::BTreeSet<u64> = ELEMS.into_iter().map(of).collect();
    assert_eq!(ids.len(), ELEMS.len());
}
