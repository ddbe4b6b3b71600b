//! Convolutions against plain f64 loops.

// Buffers have the sizes that the plans were made for.
#![allow(clippy::undocumented_unsafe_blocks)]
// Loops are written as the sums that they stand for.
#![allow(clippy::needless_range_loop)]

use super::*;
use crate::buffers::Weight;
use crate::rig::{Rig, Step, assert_near, chain, dense, noise};
use crate::simd::Isa;
use crate::space::{position, unravel};
use rlx_compile::MatmulPrecision;
use rlx_compile::lir::{BufId, Epilogue};
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::elementwise::{Binary, Unary};

#[derive(Clone, Debug)]
pub(super) struct Case {
    pub transposed: bool,
    pub batch: usize,
    pub groups: usize,
    pub channels: [usize; 2],
    pub input: Vec<usize>,
    pub window: Vec<usize>,
    pub strides: Vec<i64>,
    pub dilations: Vec<i64>,
    pub pads: Vec<[i64; 2]>,
    /// Input and output are channels-last.
    pub last: [bool; 2],
    pub dtype: DType,
    pub steps: Vec<Step>,
    pub weight: bool,
    /// The way that is taken: the chosen one, the products of sums, or that of transforms.
    pub way: Way,
    /// How exact sums are.
    pub matmul: MatmulPrecision,
    /// Elements of the input (0) or the weights (1) with values of their own.
    pub odd: Vec<(usize, usize, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Way {
    Chosen,
    Direct,
    Transformed,
}

impl Case {
    pub fn new(channels: [usize; 2], input: &[usize], window: &[usize]) -> Case {
        let rank = input.len();
        Case {
            transposed: false,
            batch: 2,
            groups: 1,
            channels,
            input: input.into(),
            window: window.into(),
            strides: vec![1; rank],
            dilations: vec![1; rank],
            pads: vec![[0, 0]; rank],
            last: [true, true],
            dtype: DType::F32,
            steps: vec![],
            weight: true,
            way: Way::Chosen,
            matmul: MatmulPrecision::Highest,
            odd: vec![],
        }
    }

    /// The plan of the case's way.
    fn plan(&self, rig: &Rig, kernel: &ConvKernel, code: &Code, isa: Isa) -> ConvPlan {
        let mut found = rig.bind_with(isa, self.matmul, |cx| plan(kernel, code, cx)).unwrap();
        match self.way {
            Way::Chosen => {}
            Way::Direct => found.how = How::Product(Box::new(product::plan(&found, isa, None))),
            Way::Transformed => found.how = How::Winograd(Box::new(winograd::of(&found, isa).unwrap())),
        }
        found
    }

    fn output(&self) -> Vec<usize> {
        (0..self.input.len())
            .map(|a| {
                let reach = (self.window[a] as i64 - 1) * self.dilations[a] + 1;
                let (n, s, pad) = (self.input[a] as i64, self.strides[a], self.pads[a][0] + self.pads[a][1]);
                let out = if self.transposed { (n - 1) * s + reach - pad } else { (n + pad - reach).div_euclid(s) + 1 };
                out.max(0) as usize
            })
            .collect()
    }
}

/// Strides of batch, channels, points.
fn lay(sizes: &[usize], last: bool) -> Vec<i64> {
    if !last {
        return dense(sizes);
    }
    let mut turned: Vec<usize> = vec![sizes[0]];
    turned.extend(&sizes[2..]);
    turned.push(sizes[1]);
    let d = dense(&turned);
    let mut out = vec![d[0], d[turned.len() - 1]];
    out.extend(&d[1..turned.len() - 1]);
    out
}

/// A case's kernel.
pub(super) struct Made {
    pub rig: Rig,
    pub kernel: ConvKernel,
    pub input: BufId,
    pub weight: BufId,
    pub out: BufId,
    pub bias: BufId,
    pub residual: BufId,
    /// Strides of input, weights and output.
    strides: [Vec<i64>; 3],
}

pub(super) fn make(case: &Case) -> Made {
    let out_spatial = case.output();
    let [ci, co] = case.channels;
    let join = |head: [usize; 2], tail: &[usize]| [&head[..], tail].concat();
    let in_sizes = join([case.batch, ci], &case.input);
    let out_sizes = join([case.batch, co], &out_spatial);
    let w_sizes = if case.transposed {
        join([ci, co / case.groups], &case.window)
    } else {
        join([co, ci / case.groups], &case.window)
    };
    let count = |s: &[usize]| s.iter().product::<usize>();
    let mut rig = Rig::default();
    let mut values = [noise(count(&in_sizes), 1), noise(count(&w_sizes), 2)];
    for &(operand, at, v) in &case.odd {
        values[operand][at] = v;
    }
    let input = rig.buffer(case.dtype, &values[0]);
    let weight = rig.buffer(case.dtype, &values[1]);
    let out = rig.buffer(case.dtype, &vec![9.0; count(&out_sizes)]);
    let acc = if case.dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let bias = rig.buffer(acc, &noise(co, 3));
    let residual_buffer = rig.buffer(acc, &noise(count(&out_sizes), 4));
    if case.weight {
        rig.weight(weight);
    }
    let (xs, ws, ys) = (lay(&in_sizes, case.last[0]), dense(&w_sizes), lay(&out_sizes, case.last[1]));
    let mut along_channels = vec![0; out_sizes.len()];
    along_channels[1] = 1;
    let mut reads = vec![rig.access(bias, 0, &along_channels), rig.access(residual_buffer, 0, &ys)];
    let used = case.steps.iter().filter_map(|s| if let Step::With(_, r) = s { Some(*r as usize + 1) } else { None });
    reads.truncate(used.max().unwrap_or(0));
    let kernel = ConvKernel {
        transposed: case.transposed,
        batch: rig.dim(case.batch as i64),
        groups: case.groups as i64,
        in_channels: rig.dim(ci as i64),
        out_channels: rig.dim(co as i64),
        in_spatial: rig.sizes(&case.input),
        out_spatial: rig.sizes(&out_spatial),
        window: rig.sizes(&case.window),
        strides: case.strides.clone(),
        dilations: case.dilations.clone(),
        pad_low: case.pads.iter().map(|p| rig.dim(p[0])).collect(),
        input: rig.access(input, 0, &xs),
        weight: rig.access(weight, 0, &ws),
        input_zero: None,
        weight_zero: None,
        acc,
        epilogue: Epilogue {
            reads,
            program: chain(acc, &case.steps, case.dtype),
            writes: vec![rig.access(out, 0, &ys)],
        },
    };
    Made { rig, kernel, input, weight, out, bias, residual: residual_buffer, strides: [xs, ws, ys] }
}

#[track_caller]
pub(super) fn check(case: &Case) {
    let Made { mut rig, mut kernel, input, weight, out, bias, residual: residual_buffer, strides } = make(case);
    let [xs, ws, ys] = strides;
    let (acc, rank, out_spatial) = (kernel.acc, case.input.len(), case.output());
    let [ci, co] = case.channels;
    let count = |s: &[usize]| s.iter().product::<usize>();
    let out_sizes = [&[case.batch, co], &out_spatial[..]].concat();
    let pad_low: Vec<i64> = case.pads.iter().map(|p| p[0]).collect();
    // The residual may lie where the result goes.
    let in_place = kernel.epilogue.reads.len() == 2 && acc == case.dtype;
    let in_place = in_place.then(|| rig.access(out, 0, &ys));
    // The oracle scatters for transposes and gathers for plain convolutions.
    let (x, w) = (rig.values(input), rig.values(weight));
    let mut want = vec![0.0; count(&out_sizes)];
    let (in_group, out_group) = (ci / case.groups, co / case.groups);
    let (from, to) = if case.transposed { (&case.input, &out_spatial) } else { (&out_spatial, &case.input) };
    let (mut at, mut tap) = (vec![0; rank], vec![0; rank]);
    for b in 0..case.batch {
        for i in 0..count(from) {
            unravel(i, from, &mut at);
            for t in 0..count(&case.window) {
                unravel(t, &case.window, &mut tap);
                let other: Vec<i64> = (0..rank)
                    .map(|a| at[a] as i64 * case.strides[a] + tap[a] as i64 * case.dilations[a] - pad_low[a])
                    .collect();
                if other.iter().zip(to).any(|(&o, &n)| o < 0 || o >= n as i64) {
                    continue;
                }
                let other: Vec<usize> = other.iter().map(|&o| o as usize).collect();
                let (ip, op) = if case.transposed { (&at, &other) } else { (&other, &at) };
                let spot = |p: &[usize], s: &[i64]| p.iter().zip(&s[2..]).map(|(&i, &s)| i as i64 * s).sum::<i64>();
                let wt = position(t, &case.window, 0, &ws[2..]);
                for g in 0..case.groups {
                    for o in 0..out_group {
                        for c in 0..in_group {
                            let (ic, oc) = (g * in_group + c, g * out_group + o);
                            let wi = if case.transposed { [ic, o] } else { [oc, c] };
                            let wi = wi[0] as i64 * ws[0] + wi[1] as i64 * ws[1] + wt;
                            let xi = b as i64 * xs[0] + ic as i64 * xs[1] + spot(ip, &xs);
                            let yi = b as i64 * ys[0] + oc as i64 * ys[1] + spot(op, &ys);
                            want[yi as usize] += x[xi as usize] * w[wi as usize];
                        }
                    }
                }
            }
        }
    }
    let (bias, residual) = (rig.values(bias), rig.values(residual_buffer));
    for i in 0..want.len() {
        // Channel of the element in memory.
        let (plane, c) = (count(&out_spatial), co);
        let channel = if case.last[1] { i % c } else { i / plane % c };
        for s in &case.steps {
            let v = want[i];
            want[i] = match *s {
                Step::With(f, 0) if f == MUL => v * bias[channel],
                Step::With(_, 0) => v + bias[channel],
                Step::With(_, _) => v + residual[i],
                Step::Apply(Elementwise::Unary(Unary::Relu)) => v.max(0.0),
                Step::Apply(_) => v.exp(),
                Step::Number(_, y) => v * y,
                Step::Clamp(lo, hi) => v.clamp(lo, hi),
            };
        }
    }
    let tolerance = match case.dtype {
        DType::F64 => 1e-12,
        DType::BF16 => 1e-2,
        _ if case.matmul == MatmulPrecision::High => 1e-4,
        // Sums of transformed numbers are larger than what is left of them.
        _ if case.way == Way::Transformed => 6e-5,
        _ => 2e-5,
    };
    for isa in crate::simd::levels() {
        let mut first: Option<Vec<u8>> = None;
        for threads in 1..=3 {
            let code = rig.code(&kernel.epilogue, acc, out_sizes.len());
            let plan = case.plan(&rig, &kernel, &code, isa);
            let weight = Weight::default();
            for _ in 0..2 {
                rig.run(isa, threads, case.weight.then_some(&weight), |cx| unsafe { run(&plan, &code, cx) });
            }
            assert_near(&rig.values(out), &want, tolerance, &format!("{case:?} {isa} {threads}"));
            let bytes = rig.bytes(out);
            assert_eq!(first.get_or_insert_with(|| bytes.clone()), &bytes, "{case:?} {isa} {threads} threads");
        }
    }
    let Some(access) = in_place else { return };
    let start = rig.bytes(residual_buffer);
    kernel.epilogue.reads[1] = access;
    for isa in crate::simd::levels() {
        let code = rig.code(&kernel.epilogue, acc, out_sizes.len());
        let plan = case.plan(&rig, &kernel, &code, isa);
        rig.set(out, &start);
        rig.run(isa, 2, None, |cx| unsafe { run(&plan, &code, cx) });
        assert_near(&rig.values(out), &want, tolerance, &format!("{case:?} {isa} in place"));
    }
}

pub(super) const ADD: Elementwise = Elementwise::Binary(Binary::Add);
pub(super) const MUL: Elementwise = Elementwise::Binary(Binary::Mul);

/// Both layouts of input and output, with and without an epilogue of each kind.
#[track_caller]
fn check_all(case: Case) {
    let relu = Step::Apply(Elementwise::Unary(Unary::Relu));
    let exp = Step::Apply(Elementwise::Unary(Unary::Exp));
    for last in [[true, true], [false, false], [false, true], [true, false]] {
        check(&Case { last, steps: vec![Step::With(ADD, 0), relu], ..case.clone() });
        check(&Case { last, weight: false, steps: vec![Step::With(ADD, 0), exp], ..case.clone() });
    }
    check(&Case { steps: vec![Step::With(ADD, 0), Step::With(ADD, 1), relu], ..case.clone() });
    check(&case);
}

#[test]
fn images() {
    check_all(Case { pads: vec![[1, 1], [1, 1]], ..Case::new([5, 18], &[7, 9], &[3, 3]) });
    check_all(Case { strides: vec![2, 2], pads: vec![[1, 0], [2, 1]], ..Case::new([8, 7], &[9, 11], &[3, 4]) });
    check_all(Case { dilations: vec![2, 3], pads: vec![[2, 2], [3, 3]], ..Case::new([3, 4], &[8, 10], &[3, 3]) });
    check_all(Case::new([13, 17], &[6, 5], &[1, 1]));
    check_all(Case { strides: vec![2, 2], ..Case::new([13, 17], &[6, 5], &[1, 1]) });
    check_all(Case { strides: vec![1, 2], ..Case::new([1, 1], &[6, 5], &[2, 5]) });
    // Padding wider than the window; negative padding crops.
    check_all(Case { pads: vec![[4, 4], [-1, 2]], ..Case::new([3, 4], &[5, 6], &[2, 3]) });
}

#[test]
fn other_ranks() {
    check_all(Case { pads: vec![[2, 2]], ..Case::new([5, 18], &[40], &[5]) });
    check_all(Case { strides: vec![3], ..Case::new([2, 3], &[100], &[8]) });
    check_all(Case { pads: vec![[1, 1]; 3], strides: vec![1, 2, 1], ..Case::new([3, 4], &[4, 5, 6], &[3, 2, 3]) });
    check_all(Case::new([3, 4], &[], &[]));
}

#[test]
fn few_channels_along_long_lines() {
    // Lines are cut into parts.
    check(&Case { batch: 1, strides: vec![2], pads: vec![[2, 3]], ..Case::new([3, 10], &[3500], &[5]) });
    check(&Case { batch: 1, last: [false; 2], pads: vec![[1, 1]; 2], ..Case::new([2, 9], &[3, 1700], &[3, 3]) });
    // Several whole lines a block.
    check(&Case { batch: 1, strides: vec![2, 2], pads: vec![[3, 3]; 2], ..Case::new([3, 9], &[41, 60], &[7, 7]) });
}

/// What lies between points far apart is not copied, nor is padding that no point sees.
#[test]
fn strides_and_padding_far_beyond_the_input() {
    let far = 1 << 30;
    for channels in [3, 9] {
        let (strides, pads) = (vec![far, far], vec![[far, far]; 2]);
        let case = Case { batch: 1, strides, pads, ..Case::new([channels, 4], &[4, 5], &[2, 3]) };
        check(&case);
        check(&Case { last: [false; 2], ..case });
    }
}

#[test]
fn groups() {
    check_all(Case { groups: 3, pads: vec![[1, 1]; 2], ..Case::new([6, 9], &[5, 6], &[3, 3]) });
    check_all(Case { groups: 2, ..Case::new([4, 40], &[5, 6], &[1, 1]) });
    // One input channel and two output channels a group.
    check_all(Case { groups: 5, ..Case::new([5, 10], &[5, 6], &[3, 2]) });
}

#[test]
fn depthwise() {
    for n in [2, 15, 16, 17, 33] {
        check_all(Case { groups: n, pads: vec![[1, 1]; 2], ..Case::new([n, n], &[7, 12], &[3, 3]) });
    }
    check_all(Case { groups: 9, strides: vec![2, 2], pads: vec![[0, 1]; 2], ..Case::new([9, 9], &[7, 23], &[3, 3]) });
    check_all(Case { groups: 9, dilations: vec![2, 2], ..Case::new([9, 9], &[7, 29], &[3, 3]) });
    check_all(Case { groups: 9, pads: vec![[3, 3]], ..Case::new([9, 9], &[31], &[4]) });
    check_all(Case { groups: 4, pads: vec![[5, 5]], ..Case::new([4, 4], &[2], &[3]) });
    check_all(Case { groups: 3, pads: vec![[1, 1]; 3], ..Case::new([3, 3], &[3, 4, 12], &[3, 3, 3]) });
    for strides in [vec![1, 1], vec![2, 2], vec![1, 3]] {
        check_all(Case { groups: 17, strides, pads: vec![[2, 2]; 2], ..Case::new([17, 17], &[6, 25], &[5, 5]) });
    }
}

#[test]
fn transposes() {
    let base =
        |channels, input: &[usize], window: &[usize]| Case { transposed: true, ..Case::new(channels, input, window) };
    check_all(base([3, 5], &[4, 5], &[3, 3]));
    check_all(Case { strides: vec![2, 2], pads: vec![[1, 1]; 2], ..base([6, 18], &[4, 5], &[4, 4]) });
    check_all(Case { strides: vec![3, 2], pads: vec![[0, 1], [1, 0]], ..base([3, 5], &[4, 5], &[2, 3]) });
    check_all(Case { strides: vec![2, 3], dilations: vec![2, 2], ..base([3, 5], &[4, 3], &[3, 2]) });
    check_all(Case { strides: vec![4], dilations: vec![6], pads: vec![[3, 2]], ..base([2, 3], &[7], &[4]) });
    check_all(Case { groups: 2, strides: vec![2, 2], ..base([4, 6], &[3, 4], &[2, 2]) });
    check_all(Case { groups: 4, strides: vec![2], ..base([4, 4], &[9], &[5]) });
}

#[test]
fn empty_and_single() {
    check(&Case { batch: 0, ..Case::new([3, 4], &[5, 5], &[3, 3]) });
    check(&Case::new([3, 0], &[5, 5], &[3, 3]));
    check(&Case::new([0, 4], &[5, 5], &[3, 3]));
    check(&Case { batch: 1, ..Case::new([1, 1], &[1, 1], &[1, 1]) });
}

#[test]
fn other_dtypes() {
    for dtype in [DType::F64, DType::BF16] {
        check_all(Case { dtype, pads: vec![[1, 1]; 2], ..Case::new([4, 6], &[5, 6], &[3, 3]) });
    }
}

#[test]
fn large_blocks_divide_into_tasks() {
    check(&Case { batch: 1, pads: vec![[1, 1]; 2], ..Case::new([64, 32], &[24, 20], &[3, 3]) });
    check(&Case { batch: 1, pads: vec![[1, 1]; 2], last: [false; 2], ..Case::new([64, 200], &[9, 9], &[3, 3]) });
}

/// Enough points and channels for a matrix unit, where the level has one: rows of every way of reading, blocks and channels that do not
/// fill tiles, groups, phases, and all kinds of products.
#[test]
fn products_on_a_matrix_unit() {
    let of = |case: Case| {
        for matmul in [MatmulPrecision::Highest, MatmulPrecision::High] {
            check_all(Case { matmul, ..case.clone() });
        }
        check_all(Case { dtype: DType::BF16, ..case });
    };
    of(Case { pads: vec![[1, 1], [1, 1]], ..Case::new([9, 18], &[9, 8], &[3, 3]) });
    of(Case::new([33, 40], &[13, 5], &[1, 1]));
    of(Case { strides: vec![2, 2], pads: vec![[3, 3]; 2], ..Case::new([3, 17], &[17, 19], &[7, 7]) });
    of(Case { groups: 2, batch: 1, ..Case::new([20, 32], &[67], &[5]) });
    of(Case { batch: 1, transposed: true, strides: vec![2, 2], ..Case::new([10, 33], &[9, 8], &[2, 2]) });
    let unit = |case: &Case, isa: Isa| {
        let made = make(case);
        let code = made.rig.code(&made.kernel.epilogue, made.kernel.acc, case.output().len() + 2);
        let plan = made.rig.bind_with(isa, case.matmul, |cx| plan(&made.kernel, &code, cx)).unwrap();
        matches!(&plan.how, How::Product(p) if p.on_unit())
    };
    for isa in crate::simd::levels() {
        let case = Case { matmul: MatmulPrecision::High, ..Case::new([16, 32], &[12, 12], &[3, 3]) };
        assert_eq!(unit(&case, isa), crate::gemm::amx::has_tiles(isa), "{isa}");
        assert!(!unit(&Case::new([16, 4], &[12, 12], &[3, 3]), isa), "few channels at {isa}");
    }
}
