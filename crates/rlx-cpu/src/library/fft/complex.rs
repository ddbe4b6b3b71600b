//! Fast transforms of complex lines in f64, real and imaginary parts apart.
//!
//! A length that is a product of small primes is transformed in stages of radix 4, 2, 3, 5 and others, each from one block of memory
//! into another in the order that makes the last stage's result come out sorted. Any other length becomes a convolution with a chirp,
//! which transforms of a power of two do.

use crate::simd::{Isa, Kernel, Simd, dispatch};
use std::f64::consts::TAU;

/// The largest prime that has a stage of its own.
const LARGEST_RADIX: usize = 31;

/// A forward transform `y[k] = Σ x[j]·e^(−2πi·jk/n)`; the inverse is that of swapped parts.
#[derive(Debug)]
pub struct Transform {
    /// Points, 1 or more.
    pub n: usize,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Stages(Vec<Stage>),
    Chirp(Box<Chirp>),
}

/// `e^(−2πi·k/n)` as cosine and negative sine, from an angle of at most an eighth of a turn.
pub fn turn(k: u128, n: usize) -> (f64, f64) {
    let n = n as u128;
    let eighth = (8 * (k % n)) / n;
    // The distance to the nearest multiple of a quarter, in turns.
    let quarter = eighth.div_ceil(2);
    let rest = (4 * (k % n)) as i128 - (quarter * n) as i128;
    let (sin, cos) = (TAU / 4.0 * rest as f64 / n as f64).sin_cos();
    match quarter % 4 {
        0 => (cos, -sin),
        1 => (-sin, -cos),
        2 => (-cos, sin),
        _ => (sin, cos),
    }
}

impl Transform {
    pub fn new(n: usize) -> Transform {
        let n = n.max(1);
        let (mut rest, mut radices) = (n, Vec::new());
        for r in [4].into_iter().chain(2..=LARGEST_RADIX) {
            while rest.is_multiple_of(r) {
                radices.push(r);
                rest /= r;
            }
        }
        if rest > 1 {
            return Transform { n, way: Way::Chirp(Box::new(Chirp::new(n))) };
        }
        let (mut len, mut stages) = (n, Vec::new());
        for r in radices {
            stages.push(Stage::new(r, len, n / len));
            len /= r;
        }
        Transform { n, way: Way::Stages(stages) }
    }

    /// Numbers of working memory that a run needs beside the line.
    pub fn scratch(&self) -> usize {
        match &self.way {
            Way::Stages(_) => 2 * self.n,
            Way::Chirp(c) => 2 * c.inner.n + c.inner.scratch(),
        }
    }

    /// Transforms a line of `n` in place; `scratch` has the numbers asked for.
    pub fn run(&self, isa: Isa, re: &mut [f64], im: &mut [f64], scratch: &mut [f64]) {
        match &self.way {
            Way::Stages(stages) => {
                let (a, b) = scratch.split_at_mut(self.n);
                let mut there = (&mut *re, &mut *im);
                let mut other = (a, &mut b[..self.n]);
                for stage in stages {
                    dispatch(isa, Step { stage, x: (&*there.0, &*there.1), y: (&mut *other.0, &mut *other.1) });
                    std::mem::swap(&mut there, &mut other);
                }
                if stages.len() % 2 == 1 {
                    // The result lies in the working memory, and `other` is the line.
                    other.0.copy_from_slice(there.0);
                    other.1.copy_from_slice(there.1);
                }
            }
            Way::Chirp(c) => c.run(isa, re, im, scratch),
        }
    }
}

/// One stage: lines of `radix · m` points, of which `stride` lie interleaved.
#[derive(Debug)]
struct Stage {
    radix: usize,
    m: usize,
    stride: usize,
    /// For each of the m positions, factors of results 1 to radix − 1: cosine, negative sine.
    twiddles: Vec<(f64, f64)>,
    /// `e^(−2πi·t/radix)`, for radices that have no butterfly of their own.
    roots: Vec<(f64, f64)>,
}

impl Stage {
    fn new(radix: usize, len: usize, stride: usize) -> Stage {
        let m = len / radix;
        let twiddle = |p: usize| (1..radix).map(move |k| turn((p * k) as u128, len));
        let twiddles = (0..m).flat_map(twiddle).collect();
        let roots = (0..radix).map(|t| turn(t as u128, radix)).collect();
        Stage { radix, m, stride, twiddles, roots }
    }
}

struct Step<'a> {
    stage: &'a Stage,
    x: (&'a [f64], &'a [f64]),
    y: (&'a mut [f64], &'a mut [f64]),
}

type C = (f64, f64);

#[inline(always)]
fn add(a: C, b: C) -> C {
    (a.0 + b.0, a.1 + b.1)
}

#[inline(always)]
fn sub(a: C, b: C) -> C {
    (a.0 - b.0, a.1 - b.1)
}

#[inline(always)]
fn mul(a: C, b: C) -> C {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

#[inline(always)]
fn times(a: C, k: f64) -> C {
    (a.0 * k, a.1 * k)
}

/// `−i·a`.
#[inline(always)]
fn back(a: C) -> C {
    (a.1, -a.0)
}

#[inline(always)]
fn of_2([a, b]: [C; 2]) -> [C; 2] {
    [add(a, b), sub(a, b)]
}

#[inline(always)]
fn of_3([a, b, c]: [C; 3]) -> [C; 3] {
    let sin = 0.866_025_403_784_438_6;
    let (sum, turned) = (add(b, c), times(back(sub(b, c)), sin));
    let centre = sub(a, times(sum, 0.5));
    [add(a, sum), add(centre, turned), sub(centre, turned)]
}

#[inline(always)]
fn of_4([a, b, c, d]: [C; 4]) -> [C; 4] {
    let ([p, q], [r, s]) = (of_2([a, c]), of_2([b, d]));
    let s = back(s);
    [add(p, r), add(q, s), sub(p, r), sub(q, s)]
}

#[inline(always)]
fn of_5([a, b, c, d, e]: [C; 5]) -> [C; 5] {
    let (c1, c2) = (0.309_016_994_374_947_45, -0.809_016_994_374_947_5);
    let (s1, s2) = (0.951_056_516_295_153_5, 0.587_785_252_292_473_1);
    let (outer, inner) = (add(b, e), add(c, d));
    let (apart, near) = (sub(b, e), sub(c, d));
    let first = add(a, add(times(outer, c1), times(inner, c2)));
    let second = add(a, add(times(outer, c2), times(inner, c1)));
    let t1 = back(add(times(apart, s1), times(near, s2)));
    let t2 = back(sub(times(apart, s2), times(near, s1)));
    [add(a, add(outer, inner)), add(first, t1), add(second, t2), sub(second, t2), sub(first, t1)]
}

impl Step<'_> {
    /// A stage whose butterfly is a function of `R` numbers.
    #[inline(always)]
    fn each<const R: usize>(self, butterfly: impl Fn([C; R]) -> [C; R]) {
        let (m, s) = (self.stage.m, self.stage.stride);
        let (re, im) = self.x;
        let outputs = self.y.0.chunks_exact_mut(R * s).zip(self.y.1.chunks_exact_mut(R * s));
        let twiddles = self.stage.twiddles.chunks_exact(R - 1);
        for (p, ((yr, yi), w)) in outputs.zip(twiddles).enumerate() {
            let (xr, xi): ([&[f64]; R], [&[f64]; R]) = (lines(re, p, m, s), lines(im, p, m, s));
            let mut w_of = [(1.0, 0.0); R];
            w_of[1..].copy_from_slice(w);
            for q in 0..s {
                let y = butterfly(std::array::from_fn(|j| (xr[j][q], xi[j][q])));
                for k in 0..R {
                    let v = if k == 0 { y[0] } else { mul(y[k], w_of[k]) };
                    (yr[k * s + q], yi[k * s + q]) = v;
                }
            }
        }
    }

    /// A stage of any radix.
    #[inline(always)]
    fn any(self) {
        let Stage { radix, m, stride: s, twiddles, roots } = self.stage;
        let (radix, m, s) = (*radix, *m, *s);
        let mut a = [(0.0, 0.0); LARGEST_RADIX];
        for p in 0..m {
            for q in 0..s {
                for (j, a) in a.iter_mut().enumerate().take(radix) {
                    let at = q + s * (p + m * j);
                    *a = (self.x.0[at], self.x.1[at]);
                }
                for k in 0..radix {
                    let mut sum = a[0];
                    for (j, &a) in a.iter().enumerate().take(radix).skip(1) {
                        sum = add(sum, mul(a, roots[j * k % radix]));
                    }
                    if k > 0 {
                        sum = mul(sum, twiddles[p * (radix - 1) + k - 1]);
                    }
                    let at = q + s * (radix * p + k);
                    (self.y.0[at], self.y.1[at]) = sum;
                }
            }
        }
    }
}

/// The operands of butterfly p: `R` runs of s numbers, m runs apart.
#[inline(always)]
fn lines<const R: usize>(v: &[f64], p: usize, m: usize, s: usize) -> [&[f64]; R] {
    std::array::from_fn(|j| &v[s * (p + m * j)..][..s])
}

impl Kernel for Step<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        match self.stage.radix {
            2 => self.each(of_2),
            3 => self.each(of_3),
            4 => self.each(of_4),
            5 => self.each(of_5),
            _ => self.any(),
        }
    }
}

/// A transform of any length n as a convolution: `jk = (j² + k² − (k − j)²)/2`.
#[derive(Debug)]
struct Chirp {
    /// `e^(−πi·j²/n)`.
    chirp: Vec<C>,
    /// The transform of its conjugate, wrapped around; divided by its length.
    filter: Vec<C>,
    inner: Transform,
}

impl Chirp {
    fn new(n: usize) -> Chirp {
        let chirp: Vec<C> = (0..n).map(|j| turn((j as u128 * j as u128) % (2 * n as u128), 2 * n)).collect();
        let m = (2 * n - 1).next_power_of_two();
        let inner = Transform::new(m);
        let (mut re, mut im) = (vec![0.0; m], vec![0.0; m]);
        for (j, &(c, s)) in chirp.iter().enumerate() {
            let wrapped = (m - j) % m;
            (re[j], im[j], re[wrapped], im[wrapped]) = (c, -s, c, -s);
        }
        let mut scratch = vec![0.0; inner.scratch()];
        inner.run(Isa::Portable, &mut re, &mut im, &mut scratch);
        let filter = re.into_iter().zip(im).map(|f| times(f, 1.0 / m as f64)).collect();
        Chirp { chirp, filter, inner }
    }

    fn run(&self, isa: Isa, re: &mut [f64], im: &mut [f64], scratch: &mut [f64]) {
        let m = self.inner.n;
        let (a, rest) = scratch.split_at_mut(m);
        let (b, rest) = rest.split_at_mut(m);
        a.fill(0.0);
        b.fill(0.0);
        for (j, &w) in self.chirp.iter().enumerate() {
            (a[j], b[j]) = mul((re[j], im[j]), w);
        }
        self.inner.run(isa, a, b, rest);
        for ((a, b), &f) in a.iter_mut().zip(b.iter_mut()).zip(&self.filter) {
            // Parts swapped on the way in and out make the next transform an inverse one.
            (*b, *a) = mul((*a, *b), f);
        }
        self.inner.run(isa, a, b, rest);
        for (j, &w) in self.chirp.iter().enumerate() {
            (re[j], im[j]) = mul((b[j], a[j]), w);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The sum as it is defined, with exact angles, in twice the precision by compensated adding.
    fn slow(x: &[C]) -> Vec<C> {
        let n = x.len();
        let roots: Vec<C> = (0..n).map(|t| turn(t as u128, n)).collect();
        let sum = |k: usize, pick: fn(C) -> f64| {
            let (mut total, mut lost) = (0.0f64, 0.0);
            for (j, &a) in x.iter().enumerate() {
                let v = pick(mul(a, roots[j * k % n]));
                let next = total + v;
                lost += if total.abs() >= v.abs() { (total - next) + v } else { (v - next) + total };
                total = next;
            }
            total + lost
        };
        (0..n).map(|k| (sum(k, |c| c.0), sum(k, |c| c.1))).collect()
    }

    #[test]
    fn every_length_up_to_300_and_some_larger_ones() {
        let isas = Isa::available();
        for n in (1..300).chain([1009, 1024, 1000, 961, 1155, 2017, 4096]) {
            let x: Vec<C> =
                (0..n).map(|j| (((j * 37) % 101) as f64 / 50.0 - 1.0, ((j * 53) % 97) as f64 / 48.0 - 1.0)).collect();
            let want = slow(&x);
            let size = x.iter().map(|c| c.0 * c.0 + c.1 * c.1).sum::<f64>().sqrt();
            let t = Transform::new(n);
            for &isa in &isas {
                let (mut re, mut im): (Vec<f64>, Vec<f64>) = x.iter().copied().unzip();
                let mut scratch = vec![f64::NAN; t.scratch()];
                t.run(isa, &mut re, &mut im, &mut scratch);
                for (k, &w) in want.iter().enumerate() {
                    let error = (re[k] - w.0).abs().max((im[k] - w.1).abs());
                    // Relative to the line's norm, as the error of a fast transform is.
                    assert!(error <= 4e-16 * (2.0 + (n as f64).log2()) * size, "{n} {isa:?} {k}: {error:e} of {size}");
                }
            }
        }
    }

    #[test]
    fn turns_are_exact_where_they_can_be() {
        for n in [4, 8, 12, 100] {
            assert_eq!(turn(0, n), (1.0, -0.0));
            assert_eq!((turn(n as u128 / 4, n).0.abs(), turn(n as u128 / 4, n).1), (0.0, -1.0));
            assert_eq!(turn(n as u128 / 2, n).0, -1.0);
        }
        for k in 0..77u128 {
            let angle = -TAU * k as f64 / 77.0;
            assert!((turn(k, 77).0 - angle.cos()).abs() < 2e-15 && (turn(k, 77).1 - angle.sin()).abs() < 2e-15);
        }
    }
}
