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
    let e = t.elements();
    let first = first_values(&e, 6);
    let v = match &e {
        Elements::Complex(c) => c.iter().map(|x| x[0].hypot(x[1])).collect(),
        e => e.to_f64().unwrap_or_default(),
    };
    let finite: Vec<f64> = v.iter().copied().filter(|x| x.is_finite()).collect();
    let numbers = v.iter().copied().filter(|x| !x.is_nan());
    Summary {
        min: numbers.clone().fold(f64::NAN, f64::min),
        max: numbers.fold(f64::NAN, f64::max),
        mean: finite.iter().sum::<f64>() / finite.len() as f64,
        first,
        not_finite: v.len() - finite.len(),
    }
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
    let flat = |t: &Tensor| -> Option<Vec<f64>> {
        match t.elements() {
            Elements::Complex(v) => Some(v.into_iter().flatten().collect()),
            e => e.to_f64(),
        }
    };
    let (Some(a), Some(b)) = (flat(out), flat(reference)) else {
        if out != reference {
            d.mismatch = Some("strings differ".into());
        }
        return d;
    };
    let (mut num, mut den) = (0.0, 0.0);
    for (i, (&x, &y)) in a.iter().zip(&b).enumerate() {
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
}
