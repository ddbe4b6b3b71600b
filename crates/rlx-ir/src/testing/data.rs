//! Random numbers and tensors.

use crate::dtype::{Class, DType};
use crate::element::Elements;
use crate::tensor::{Tensor, TensorError};

/// SplitMix64: small, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..n`; 0 if n is 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % (n.max(1) as u64)) as usize
    }

    /// True `percent` of the time.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of a list; `None` if it is empty.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        list.get(self.below(list.len()))
    }

    /// A float in `-1.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// Largest magnitude of ordinary floats.
pub(super) const BOUND: f64 = 3.0;

fn float(rng: &mut Rng, specials: bool) -> f64 {
    const ODD: [f64; 8] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, -1e30, 65519.0, 1e-40, 1e-310];
    match rng.below(20) {
        0 => 0.0,
        1 => -0.0,
        2 => 1.0,
        3 if specials => ODD[rng.below(ODD.len())],
        // Halves tie when they are rounded to integers.
        4 => (rng.unit() * 5.0).round() / 2.0,
        _ => rng.unit() * BOUND,
    }
}

fn int(rng: &mut Rng, dtype: DType, specials: bool) -> i128 {
    let (lo, hi) = dtype.int_range().unwrap_or((0, 1));
    match rng.below(12) {
        0 if specials => lo,
        1 if specials => hi,
        2 => 0,
        _ => (rng.below(11) as i128 - 4).clamp(lo, hi),
    }
}

/// A tensor of random elements. With `specials` some are infinite, NaN or extreme.
pub fn random_tensor(rng: &mut Rng, dtype: DType, dims: &[usize], specials: bool) -> Result<Tensor, TensorError> {
    let n = crate::tensor::checked_numel(dims)?;
    let elements = match dtype.class() {
        Class::Float => Elements::Float((0..n).map(|_| float(rng, specials)).collect()),
        Class::Complex => Elements::Complex((0..n).map(|_| [float(rng, specials), float(rng, specials)]).collect()),
        Class::Bool => Elements::Int((0..n).map(|_| rng.below(2) as i128).collect()),
        Class::Str => Elements::Str((0..n).map(|_| "ab".repeat(rng.below(3))).collect()),
        Class::Int | Class::UInt => Elements::Int((0..n).map(|_| int(rng, dtype, specials)).collect()),
    };
    Tensor::from_elements(dtype, dims, &elements)
}
