//! Winograd's convolutions against f64 loops, and against direct sums where those loops say too little.

// Buffers have the sizes that the plans were made for.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::*;
use crate::buffers::Weight;
use crate::conv::tests::{ADD, Case, MUL, Made, Way, check, make};
use crate::conv::{self, How};
use crate::rig::Step;
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::elementwise::Unary;

const RELU: Step = Step::Apply(Elementwise::Unary(Unary::Relu));
const EXP: Step = Step::Apply(Elementwise::Unary(Unary::Exp));

/// Epilogues: none, those of the menu, a long one of it, programs.
fn epilogues() -> [Vec<Step>; 7] {
    [
        vec![],
        vec![Step::With(ADD, 0), RELU],
        vec![Step::With(ADD, 0), Step::With(ADD, 1), RELU],
        vec![Step::With(ADD, 0), RELU, Step::With(ADD, 1)],
        vec![Step::With(ADD, 0), Step::Clamp(-0.3, 0.4)],
        vec![Step::With(MUL, 0), Step::With(ADD, 1)],
        vec![Step::With(ADD, 0), EXP, Step::Number(MUL, 0.125)],
    ]
}

/// Fills this thread's working memory with NaN.
fn poison() {
    fn nested(depth: usize) {
        scratch::with(1 << 20, |memory| {
            memory.fill(0xff);
            if depth > 0 {
                nested(depth - 1);
            }
        });
    }
    nested(5);
}

fn case(channels: [usize; 2], input: [usize; 2], pads: [[i64; 2]; 2], batch: usize) -> Case {
    poison();
    Case { way: Way::Transformed, batch, pads: pads.into(), ..Case::new(channels, &input, &[3, 3]) }
}

#[test]
fn odd_sizes() {
    let sizes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 17];
    let channels = [1, 31, 32, 33, 64, 65];
    let epilogues = epilogues();
    let mut n = 0usize;
    for (i, &h) in sizes.iter().enumerate() {
        for (j, &w) in sizes.iter().enumerate() {
            // Numbers that go through all combinations at different rates.
            n += 1;
            let pad = |k: usize| (n / [1, 3, 9, 27][k] % 3) as i64;
            let pads = [[pad(0), pad(1)], [pad(2), pad(3)]];
            if h as i64 + pads[0][0] + pads[0][1] < 3 || w as i64 + pads[1][0] + pads[1][1] < 3 {
                continue;
            }
            let (ci, co) = (channels[(n + i) % 6], channels[(n / 6 + j) % 6]);
            let steps = epilogues[n % 7].clone();
            check(&Case { steps, ..case([ci, co], [h, w], pads, 1 + n % 3) });
        }
    }
}

#[test]
fn every_epilogue_in_both_layouts() {
    for steps in epilogues() {
        check(&Case { steps: steps.clone(), ..case([17, 33], [7, 10], [[1, 1], [0, 2]], 2) });
        check(&Case { steps: steps.clone(), weight: false, ..case([8, 19], [5, 5], [[1, 1]; 2], 1) });
    }
    // A program writes any layout.
    let steps = vec![Step::With(ADD, 0), EXP];
    check(&Case { steps, last: [true, false], ..case([17, 33], [7, 10], [[1, 1]; 2], 2) });
}

/// Blocks of some lines and of parts of lines, tiles of several images in one, columns in parts; sums of several blocks of K.
#[test]
fn blocks_and_parts() {
    let steps = vec![Step::With(ADD, 0), Step::With(ADD, 1), RELU];
    check(&Case { steps: steps.clone(), ..case([16, 17], [65, 67], [[1, 1]; 2], 1) });
    check(&Case { steps: steps.clone(), ..case([33, 150], [9, 11], [[1, 1]; 2], 3) });
    check(&Case { steps: steps.clone(), ..case([20, 20], [5, 200], [[1, 1]; 2], 2) });
    check(&Case { steps, ..case([500, 70], [6, 5], [[1, 1]; 2], 1) });
}

#[test]
fn padding_far_beyond_the_input() {
    check(&case([3, 4], [4, 5], [[9, 8], [7, 10]], 1));
}

#[test]
fn sizes_decide() {
    let chosen = |channels, input: &[usize], window: &[usize], pads: &[[i64; 2]]| {
        let case = Case { pads: pads.into(), ..Case::new(channels, input, window) };
        let Made { rig, kernel, .. } = make(&case);
        let code = rig.code(&kernel.epilogue, DType::F32, input.len() + 2);
        Isa::available().into_iter().map(move |isa| {
            let plan = rig.bind(isa, |cx| conv::plan(&kernel, &code, cx)).unwrap();
            matches!(plan.how, How::Winograd(_))
        })
    };
    let ones = [[1, 1]; 2];
    assert!(chosen([64, 64], &[14, 14], &[3, 3], &ones).all(|c| c));
    assert!(chosen([96, 24], &[10, 14], &[3, 3], &ones).all(|c| c));
    for (channels, input) in
        [([8, 99], [14, 14]), ([99, 8], [14, 14]), ([16, 16], [14, 14]), ([64, 64], [4, 5]), ([64, 64], [1, 99])]
    {
        assert!(!chosen(channels, &input, &[3, 3], &ones).any(|c| c), "{channels:?} {input:?}");
    }
    assert!(!chosen([64, 64], &[14, 14], &[5, 5], &ones).any(|c| c));
    assert!(!chosen([64, 64], &[14], &[3], &ones[..1]).any(|c| c));
}

/// Runs a case in its way; the results.
fn results(case: &Case, isa: Isa, threads: usize) -> Vec<f64> {
    let Made { mut rig, kernel, out, .. } = make(case);
    let code = rig.code(&kernel.epilogue, DType::F32, 4);
    let mut plan = rig.bind(isa, |cx| conv::plan(&kernel, &code, cx)).unwrap();
    plan.how = match case.way {
        Way::Transformed => How::Winograd(Box::new(of(&plan, isa).unwrap())),
        _ => How::Product(Box::new(product::plan(&plan, isa, None))),
    };
    let weight = Weight::default();
    for _ in 0..2 {
        rig.run(isa, threads, Some(&weight), |cx| unsafe { conv::run(&plan, &code, cx) });
    }
    rig.values(out)
}

/// Results are what direct sums give, where those are not finite, and near them elsewhere.
#[track_caller]
fn as_direct(case: &Case) {
    for isa in Isa::available() {
        let want = results(&Case { way: Way::Direct, ..case.clone() }, isa, 1);
        let got: Vec<Vec<f64>> = (1..=3).map(|threads| results(case, isa, threads)).collect();
        for (i, (&w, &g)) in want.iter().zip(&got[0]).enumerate() {
            let same = w.is_nan() && g.is_nan() || w == g || (w - g).abs() <= 2e-5 * w.abs().max(1.0);
            assert!(same, "{isa}: element {i} is {g}, by direct sums {w}; {:?} {:?}", case.odd, case.steps);
        }
        let bits = |v: &[f64]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert!(got.iter().all(|g| bits(g) == bits(&got[0])), "{isa} {:?}", case.odd);
    }
}

#[test]
fn infinities_nans_and_huge_inputs_stay_where_they_are_seen() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let numbers = [inf, -inf, nan, 3e38, -1e30, 1e20, 1e-40, -1e-45];
    let base = case([19, 35], [9, 11], [[1, 1], [0, 2]], 2);
    for (n, v) in numbers.into_iter().enumerate() {
        let at = [0, 19 * 40 + 7, 19 * 98 + 18, 19 * 99 + 3][n % 4];
        for steps in [vec![], epilogues()[2].clone(), epilogues()[5].clone(), epilogues()[6].clone()] {
            as_direct(&Case { odd: vec![(0, at, v)], steps, ..base.clone() });
        }
    }
    // Opposite infinities in one tile, and one everywhere.
    as_direct(&Case { odd: vec![(0, 19 * 40, inf), (0, 19 * 41, -inf), (0, 19 * 120, nan)], ..base.clone() });
    as_direct(&Case { odd: (0..19 * 99).map(|i| (0, i, inf)).collect(), ..base.clone() });
    // What meets a weight of zero, and one that is lost beside its neighbours.
    let weights = vec![(1, 4, 0.0), (1, 0, 1.0), (1, 2, 1.0), (1, 1, 1e-30), (0, 19 * 40, inf)];
    as_direct(&Case { odd: weights, ..base });
}

/// All else is zero, so that sums are as small as their terms.
#[test]
fn subnormal_numbers_are_not_flushed() {
    let mut odd: Vec<_> = (0..16 * 36).map(|i| (0, i, if i % 5 == 0 { 3e-40 } else { 0.0 })).collect();
    odd.extend((0..18 * 16 * 9).map(|i| (1, i, ((i % 7) as f64 - 3.0) / 4.0)));
    let base = Case { odd, ..case([16, 18], [6, 6], [[1, 1]; 2], 1) };
    for isa in Isa::available() {
        let want = results(&Case { way: Way::Direct, ..base.clone() }, isa, 1);
        let got = results(&base, isa, 1);
        assert!(want.iter().filter(|w| **w != 0.0).count() > 100);
        for (w, g) in want.iter().zip(got) {
            assert!((w - g).abs() <= 1e-43, "{isa}: {g}, by direct sums {w}");
        }
    }
}

#[test]
fn weights_that_transforms_would_spoil() {
    for v in [f64::INFINITY, f64::NAN, 1e38, -1e10] {
        for steps in [vec![], epilogues()[2].clone()] {
            let odd = vec![(1, 9 * 33 + 5, v)];
            as_direct(&Case { odd, steps, ..case([17, 18], [8, 8], [[1, 1]; 2], 1) });
        }
    }
}

/// The norm of the error against f64 is about that of direct sums.
#[test]
fn as_accurate_as_direct_sums() {
    for channels in [32, 128, 384, 512] {
        let base = case([channels, 40], [14, 14], [[1, 1]; 2], 1);
        let Made { rig, input, weight, .. } = make(&base);
        let (x, w) = (rig.values(input), rig.values(weight));
        let mut want = vec![0.0; 14 * 14 * 40];
        for (i, y) in want.iter_mut().enumerate() {
            let (point, o) = (i / 40, i % 40);
            for t in 0..9 {
                let (r, c) = ((point / 14 + t / 3).wrapping_sub(1), (point % 14 + t % 3).wrapping_sub(1));
                if r < 14 && c < 14 {
                    let at = (r * 14 + c) * channels;
                    *y += (0..channels).map(|k| x[at + k] * w[(o * channels + k) * 9 + t]).sum::<f64>();
                }
            }
        }
        let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
        let all = norm(&mut want.iter().copied());
        for isa in Isa::available() {
            let error = |way| {
                let got = results(&Case { way, ..base.clone() }, isa, 1);
                norm(&mut got.iter().zip(&want).map(|(g, w)| g - w)) / all
            };
            let (direct, transformed) = (error(Way::Direct), error(Way::Transformed));
            println!("{channels} channels, {isa}: direct {direct:.2e}, transformed {transformed:.2e}");
            assert!(transformed < 1e-6 && transformed < 1.5 * direct, "{isa}: {transformed}, direct {direct}");
        }
    }
}

/// A weight that kernels read as two matrices keeps both; a third is not kept.
#[test]
fn two_forms_of_a_weight_are_kept() {
    let weight = Weight::default();
    let form = |n| crate::buffers::Form { fingerprint: n, bytes: Some(64) };
    let mut made = 0;
    for _ in 0..2 {
        for n in [1, 2] {
            assert!(weight.form(&form(n), |_| made += 1).is_some());
        }
        assert!(weight.form(&form(3), |_| made += 100).is_none());
    }
    assert_eq!((made, weight.bytes()), (2, 256));
    assert!(weight.has(&form(1)).is_some() && weight.has(&form(2)).is_some() && weight.has(&form(3)).is_none());
}
