//! What is said of a tensor, and of the difference of two.

use rlx::Tensor;
use rlx::ir::element::Elements;

/// Smallest, mean and largest element, the first few, and how many are not finite.
pub struct Summary {
    /// Smallest, ignoring NaN.
    pub min: f64,
    /// Mean of the finite elements.
    pub mean: f64,
    /// Largest, ignoring NaN.
    pub max: f64,
    /// The first few elements.
    pub first: Vec<String>,
    /// NaNs and infinities.
    pub not_finite: usize,
}

/// Summarises a tensor.
pub fn summary(t: &Tensor) -> Summary {
    let mut s = Summary { min: f64::NAN, mean: f64::NAN, max: f64::NAN, first: Vec::new(), not_finite: 0 };
    let (mut sum, mut finite) = (0.0, 0usize);
    for e in pieces(t) {
        if s.first.is_empty() {
            s.first = first_values(&e, 6);
        }
        let v = match &e {
            Elements::Complex(c) => c.iter().map(|x| x[0].hypot(x[1])).collect(),
            e => e.to_f64().unwrap_or_default(),
        };
        for x in v {
            (s.min, s.max) = (s.min.min(x), s.max.max(x));
            if x.is_finite() {
                sum += x;
                finite += 1;
            } else {
                s.not_finite += 1;
            }
        }
    }
    s.mean = sum / finite as f64;
    s
}

/// Elements of a piece.
const PIECE: usize = 1 << 16;

/// A tensor's elements, piece by piece: wide forms of large tensors would not fit in memory.
fn pieces(t: &Tensor) -> impl Iterator<Item = Elements> {
    let bits = t.dtype().bits();
    let whole = (bits == 0 || t.numel() <= PIECE).then(|| t.elements());
    let cut = if whole.is_some() { 0 } else { t.numel().div_ceil(PIECE) };
    let part = move |i: usize| {
        let n = PIECE.min(t.numel() - i * PIECE);
        // A piece begins at a whole byte in every dtype.
        let first = i * PIECE / 8 * bits;
        let bytes = t.bytes().get(first..first + (n * bits).div_ceil(8))?;
        Tensor::from_bytes(t.dtype(), &[n], bytes).ok().map(|p| p.elements())
    };
    whole.into_iter().chain((0..cut).filter_map(part))
}

fn first_values(e: &Elements, n: usize) -> Vec<String> {
    match e {
        Elements::Float(v) => v.iter().take(n).map(|x| format!("{x:.5}")).collect(),
        Elements::Int(v) => v.iter().take(n).map(ToString::to_string).collect(),
        Elements::Complex(v) => v.iter().take(n).map(|c| format!("{:.4}{:+.4}i", c[0], c[1])).collect(),
        Elements::Str(v) => v.iter().take(n).map(|s| format!("{s:?}")).collect(),
    }
}

/// How far a result is from a reference.
#[derive(Clone, Debug, Default)]
pub struct Difference {
    /// Largest |out − ref|.
    pub max_abs: f64,
    /// Largest |out − ref| / |ref|, where ref is not 0.
    pub max_rel: f64,
    /// ‖out − ref‖ / ‖ref‖.
    pub norm: f64,
    /// Elements outside the tolerance.
    pub outside: usize,
    /// The first of them.
    pub first_outside: Option<usize>,
    /// Why the two cannot be compared.
    pub mismatch: Option<String>,
}

/// Compares a result with a reference: |out − ref| ≤ atol + rtol · |ref|. NaNs match NaNs, infinities match themselves.
pub fn difference(out: &Tensor, reference: &Tensor, rtol: f64, atol: f64) -> Difference {
    let mut d = Difference::default();
    if out.dtype() != reference.dtype() || out.dims() != reference.dims() {
        d.mismatch = Some(format!("is {out:?}, the reference is {reference:?}"));
        return d;
    }
    if out.dtype().bits() == 0 {
        if out != reference {
            d.mismatch = Some("strings differ".into());
        }
        return d;
    }
    let (mut num, mut den) = (0.0, 0.0);
    let pairs = pieces(out).zip(pieces(reference)).flat_map(|(a, b)| numbers(a).into_iter().zip(numbers(b)));
    for (i, (x, y)) in pairs.enumerate() {
        if x == y || x.is_nan() && y.is_nan() {
            den += if y.is_finite() { y * y } else { 0.0 };
            continue;
        }
        let e = (x - y).abs();
        let e = if e.is_nan() { f64::INFINITY } else { e };
        d.max_abs = d.max_abs.max(e);
        if y != 0.0 {
            d.max_rel = d.max_rel.max(e / y.abs());
        }
        num += e * e;
        den += if y.is_finite() { y * y } else { 0.0 };
        if e > atol + rtol * y.abs() {
            d.outside += 1;
            d.first_outside.get_or_insert(i);
        }
    }
    d.norm = if num == 0.0 { 0.0 } else { (num / den).sqrt() };
    d
}

/// Elements as numbers, those of complex elements one after another.
fn numbers(e: Elements) -> Vec<f64> {
    match e {
        Elements::Complex(v) => v.into_iter().flatten().collect(),
        e => e.to_f64().unwrap_or_default(),
    }
}

/// The p-th quantile (0..=1) of sorted numbers.
pub fn quantile(sorted: &[f64], p: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((p * last as f64).round() as usize).copied().unwrap_or(f64::NAN)
}

/// Largest resident memory of this process so far, MiB; 0 where the system does not say.
pub fn peak_rss_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t(v: &[f32]) -> Tensor {
        Tensor::from_slice(&[v.len()], v).unwrap()
    }

    #[test]
    fn difference_counts_what_is_outside() {
        let d = difference(&t(&[1.0, 2.0, f32::NAN]), &t(&[1.0, 2.5, f32::NAN]), 0.0, 0.1);
        assert_eq!((d.outside, d.first_outside, d.max_abs), (1, Some(1), 0.5));
        assert_eq!(difference(&t(&[f32::NAN]), &t(&[1.0]), 1.0, 1.0).outside, 1);
        assert_eq!(difference(&t(&[f32::INFINITY]), &t(&[f32::INFINITY]), 0.0, 0.0).outside, 0);
        assert!(difference(&t(&[1.0]), &t(&[1.0, 2.0]), 1.0, 1.0).mismatch.is_some());
    }

    #[test]
    fn large_tensors_are_taken_piece_by_piece() {
        let n = 2 * PIECE + 3;
        let mut v: Vec<f32> = (0..n).map(|i| (i % 7) as f32).collect();
        (v[PIECE], v[n - 1]) = (f32::NAN, -5.0);
        let big = t(&v);
        let s = summary(&big);
        assert_eq!((s.min, s.max, s.not_finite, s.first.len()), (-5.0, 6.0, 1, 6));
        let mut w = v.clone();
        w[n - 2] += 1.0;
        let d = difference(&big, &t(&w), 0.0, 0.5);
        assert_eq!((d.outside, d.first_outside, d.max_abs), (1, Some(n - 2), 1.0));
        let nibbles = Tensor::from_bytes(rlx::DType::U4, &[n], &vec![0x21; n.div_ceil(2)]).unwrap();
        let s = summary(&nibbles);
        assert_eq!((s.min, s.max), (1.0, 2.0));
    }
}
