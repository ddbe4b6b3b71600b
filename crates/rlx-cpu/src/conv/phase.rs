//! Which input points an output point sees.
//!
//! Along each axis, output index `first + step · j` and tap `first_tap + tap_step · t` of the window meet input index
//! `source + per_out · j + per_tap · t`. A convolution is one phase with all outputs and all taps. A transposed
//! convolution of stride s has a phase for each remainder of its output index by s: only every so-manyth tap meets an
//! input there, and among those it is a plain convolution that runs backwards over its taps.

use super::ConvPlan;
use crate::space::unravel;
use smallvec::SmallVec;

/// One axis of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Along {
    /// Output indices.
    pub outs: usize,
    /// The first of them.
    pub first: usize,
    /// From one to the next.
    pub step: usize,
    /// Taps.
    pub taps: usize,
    /// The first of them.
    pub first_tap: usize,
    /// From one to the next.
    pub tap_step: usize,
    /// Input index of the first tap for the first output.
    pub source: i64,
    /// Input indices from one output to the next.
    pub per_out: i64,
    /// Input indices from one tap to the next.
    pub per_tap: i64,
    /// Size of the input.
    pub input: usize,
    /// Step of the input in memory.
    pub stride: i64,
}

impl Along {
    /// An axis that is not there: one output sees one input.
    pub const POINT: Along = Along {
        outs: 1,
        first: 0,
        step: 1,
        taps: 1,
        first_tap: 0,
        tap_step: 1,
        source: 0,
        per_out: 1,
        per_tap: 1,
        input: 1,
        stride: 0,
    };

    /// The input index that tap `t` of output `j` sees, if it lies inside.
    #[inline]
    pub fn at(&self, j: usize, t: usize) -> Option<usize> {
        let i = self.source + j as i64 * self.per_out + t as i64 * self.per_tap;
        usize::try_from(i).ok().filter(|&i| i < self.input)
    }

    /// The outputs `low..high` for which tap `t` lies inside.
    pub fn inside(&self, t: usize) -> (usize, usize) {
        let base = self.source + t as i64 * self.per_tap;
        // The first j with base + j · per_out ≥ 0, and the first with base + j · per_out ≥ input.
        let reach = |bound: i64| {
            let gap = bound - base;
            let j = if gap <= 0 { 0 } else { (gap - 1) / self.per_out + 1 };
            usize::try_from(j).unwrap_or(0).min(self.outs)
        };
        let (low, high) = (reach(0), reach(self.input as i64));
        (low, high.max(low))
    }
}

/// A part of the output with the taps that reach it.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Its axes.
    pub axes: SmallVec<[Along; 3]>,
}

impl Phase {
    /// Number of output points.
    pub fn points(&self) -> usize {
        self.axes.iter().map(|a| a.outs).product()
    }

    /// Number of taps.
    pub fn taps(&self) -> usize {
        self.axes.iter().map(|a| a.taps).product()
    }
}

/// Rows of the input that the taps of all axes but the last see from one output row.
pub type Rows = SmallVec<[Row; 8]>;

/// A row of the input.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Position of index 0 of the last axis.
    pub at: i64,
    /// The first of its taps.
    pub tap: usize,
}

/// The input rows of one output row, from the position of the image (and channel) on.
pub fn rows(outer: &[Along], row: usize, last_taps: usize, from: i64) -> Rows {
    let outs: SmallVec<[usize; 4]> = outer.iter().map(|a| a.outs).collect();
    let taps: SmallVec<[usize; 4]> = outer.iter().map(|a| a.taps).collect();
    let mut index: SmallVec<[usize; 4]> = smallvec::smallvec![0; outer.len()];
    let mut tap = index.clone();
    unravel(row, &outs, &mut index);
    (0..taps.iter().product())
        .filter_map(|t| {
            unravel(t, &taps, &mut tap);
            let at = outer
                .iter()
                .enumerate()
                .try_fold(from, |at, (a, along)| along.at(index[a], tap[a]).map(|i| at + i as i64 * along.stride))?;
            Some(Row { at, tap: t * last_taps })
        })
        .collect()
}

/// Outputs for which every tap of an axis lies inside.
pub fn interior(x: Along) -> (usize, usize) {
    let (mut low, mut high) = (0, x.outs);
    for t in 0..x.taps {
        let (l, h) = x.inside(t);
        (low, high) = (low.max(l), high.min(h));
    }
    (low.min(high), high.max(low.min(high)))
}

fn plain(p: &ConvPlan, a: usize) -> Along {
    Along {
        outs: p.out_spatial[a],
        first: 0,
        step: 1,
        taps: p.window[a],
        first_tap: 0,
        tap_step: 1,
        source: -p.pad_low[a],
        per_out: p.strides[a],
        per_tap: p.dilations[a],
        input: p.in_spatial[a],
        stride: p.input.strides[2 + a],
    }
}

/// The phases of an axis of a transposed convolution. Output o, tap w and input i meet where o + pad = i · s + w · d.
fn transposed(p: &ConvPlan, a: usize) -> Vec<Along> {
    let (s, d, pad) = (p.strides[a], p.dilations[a], p.pad_low[a]);
    let (outs, taps) = (p.out_spatial[a], p.window[a]);
    let meets = |first: i64, w: i64| (first + pad - w * d).rem_euclid(s) == 0;
    (0..s.min(outs as i64))
        .map(|first| {
            let found: SmallVec<[i64; 8]> = (0..taps as i64).filter(|&w| meets(first, w)).collect();
            let (w, step) = match found[..] {
                [] => (0, 1),
                [w] => (w, 1),
                [w, next, ..] => (w, next - w),
            };
            Along {
                outs: (outs as i64 - first + s - 1).div_euclid(s) as usize,
                first: first as usize,
                step: s as usize,
                taps: found.len(),
                first_tap: w as usize,
                tap_step: step as usize,
                source: (first + pad - w * d).div_euclid(s),
                per_out: 1,
                per_tap: -(step * d).div_euclid(s),
                input: p.in_spatial[a],
                stride: p.input.strides[2 + a],
            }
        })
        .collect()
}

/// All phases of a convolution: together they have every output point once.
pub fn phases(p: &ConvPlan) -> Vec<Phase> {
    let mut phases = vec![Phase { axes: SmallVec::new() }];
    for a in 0..p.window.len() {
        let choices = if p.transposed { transposed(p, a) } else { vec![plain(p, a)] };
        phases = phases
            .iter()
            .flat_map(|before| {
                choices.iter().map(move |&along| {
                    let mut phase = before.clone();
                    phase.axes.push(along);
                    phase
                })
            })
            .collect();
    }
    phases
}
