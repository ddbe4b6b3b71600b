//! Which elements of an axis make an element of the resized axis, and with which weights.

use super::{CoordMode, NearestMode, Resize, ResizeMode};
use crate::attr::FloatBits;

/// Beyond any axis, and exact in both f64 and i64.
const FAR: f64 = (1u64 << 52) as f64;

/// The elements that one element of the result is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Taps {
    /// Index on the operand's axis, and weight.
    pub weights: Vec<(usize, f64)>,
    /// The value instead, if the place lies outside the operand.
    pub extrapolated: Option<f64>,
}

impl Taps {
    /// The element of greatest weight.
    pub fn strongest(&self) -> usize {
        self.weights.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |w| w.0)
    }

    /// For each element of the resized axis.
    pub(super) fn of_axis(op: &Resize, axis: usize, input: usize, output: usize) -> Vec<Taps> {
        let scale = op.scale(axis, input, output);
        (0..output).map(|i| Taps::at(op, op.place(axis, i, input, output, scale), input, scale)).collect()
    }

    fn at(op: &Resize, place: f64, input: usize, scale: f64) -> Taps {
        let last = input.saturating_sub(1);
        if op.coords == CoordMode::TfCropAndResize && !(place >= 0.0 && place <= last as f64) {
            return Taps { weights: vec![(0, 1.0)], extrapolated: Some(op.extrapolation.get()) };
        }
        // Places this far outside are all the border; the limit keeps the arithmetic on indices exact.
        let place = place.clamp(-FAR, FAR);
        let below = place.floor();
        // A place on an element counts as the right end of the interval before it, so that the fraction is in (0, 1].
        let whole = place == below;
        let ratio = if whole { 1.0 } else { place - below };
        let mut weights = op.weights(ratio, scale);
        let n = weights.len() as i64;
        let first = below as i64 - n / 2 + i64::from(!whole);
        let outside = |k: usize| !(0..input as i64).contains(&(first + k as i64));
        if op.exclude_outside {
            (0..weights.len()).filter(|&k| outside(k)).for_each(|k| weights[k] = 0.0);
            let sum: f64 = weights.iter().sum();
            if sum != 0.0 {
                weights.iter_mut().for_each(|w| *w /= sum);
            }
        }
        let index = |k: usize| (first + k as i64).clamp(0, last as i64) as usize;
        Taps { weights: weights.iter().enumerate().map(|(k, &w)| (index(k), w)).collect(), extrapolated: None }
    }
}

impl Resize {
    /// About how many elements of the operand make one of the result.
    pub(super) fn taps_per_element(&self, axis: usize, input: usize, output: usize) -> usize {
        let radius = match self.mode {
            ResizeMode::Nearest | ResizeMode::Linear => 1.0,
            ResizeMode::Cubic => 2.0,
        };
        let scale = if self.antialias { self.scale(axis, input, output).min(1.0) } else { 1.0 };
        // Casts of floats saturate.
        (2.0 * radius / scale).ceil() as usize
    }

    /// Elements of the result per element of the operand.
    fn scale(&self, axis: usize, input: usize, output: usize) -> f64 {
        self.scales.get(axis).copied().flatten().map_or_else(|| output as f64 / input as f64, FloatBits::get)
    }

    /// Where element `i` of the resized axis lies on the operand's.
    fn place(&self, axis: usize, i: usize, input: usize, output: usize, scale: f64) -> f64 {
        let (i, input, stretched) = (i as f64, input as f64, scale * input as f64);
        let half_pixel = (i + 0.5) / scale - 0.5;
        match self.coords {
            CoordMode::HalfPixel => half_pixel,
            CoordMode::PytorchHalfPixel => {
                if stretched == 1.0 {
                    -0.5
                } else {
                    half_pixel
                }
            }
            CoordMode::HalfPixelSymmetric => input / 2.0 * (1.0 - output as f64 / stretched) + half_pixel,
            CoordMode::Asymmetric => i / scale,
            CoordMode::AlignCorners => {
                if stretched == 1.0 {
                    0.0
                } else {
                    i * (input - 1.0) / (stretched - 1.0)
                }
            }
            CoordMode::TfCropAndResize => {
                let (start, end) = self.region(axis);
                let extent = (end - start) * (input - 1.0);
                let step = if stretched == 1.0 { extent / 2.0 } else { i * extent / (stretched - 1.0) };
                step + start * (input - 1.0)
            }
        }
    }

    /// Weights of neighbours for a place at `ratio` in (0, 1] between the middle two.
    fn weights(&self, ratio: f64, scale: f64) -> Vec<f64> {
        match self.mode {
            ResizeMode::Nearest => {
                let upper = ratio == 1.0
                    || match self.nearest {
                        NearestMode::RoundPreferFloor => ratio > 0.5,
                        NearestMode::RoundPreferCeil => ratio >= 0.5,
                        NearestMode::Floor => false,
                        NearestMode::Ceil => true,
                    };
                if upper { vec![0.0, 1.0] } else { vec![1.0, 0.0] }
            }
            ResizeMode::Linear => self.filter(ratio, scale, 1.0, |x| (1.0 - x).max(0.0)),
            ResizeMode::Cubic => {
                let a = self.cubic_a.get();
                self.filter(ratio, scale, 2.0, |x| {
                    if x <= 1.0 {
                        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
                    } else if x < 2.0 {
                        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
                    } else {
                        0.0
                    }
                })
            }
        }
    }

    /// Weights by distance, the filter widened by `1 / scale` when antialiasing.
    fn filter(&self, ratio: f64, scale: f64, radius: f64, f: impl Fn(f64) -> f64) -> Vec<f64> {
        let scale = if self.antialias { scale.min(1.0) } else { 1.0 };
        let first = (-radius / scale).floor() as i64 + 1;
        let mut weights: Vec<f64> = (first..2 - first).map(|i| f(((i as f64 - ratio) * scale).abs())).collect();
        if self.antialias {
            let sum: f64 = weights.iter().sum();
            weights.iter_mut().for_each(|w| *w /= sum);
        }
        weights
    }
}
