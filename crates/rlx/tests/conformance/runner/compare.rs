//! What tells results apart.

use rlx::Tensor;
use rlx::ir::element::Elements;

/// What tells two tensors apart, as NumPy's `assert_allclose` sees it.
pub fn difference(want: &Tensor, got: &Tensor, rtol: f64, atol: f64) -> Option<String> {
    if want.dtype() != got.dtype() || want.dims() != got.dims() {
        return Some(format!("is {}{:?}, should be {}{:?}", got.dtype(), got.dims(), want.dtype(), want.dims()));
    }
    let near = |w: f64, g: f64| w == g || (w.is_nan() && g.is_nan()) || (w - g).abs() <= atol + rtol * w.abs();
    match (want.elements(), got.elements()) {
        (Elements::Float(w), Elements::Float(g)) => first(&w, &g, |w, g| near(*w, *g)),
        (Elements::Complex(w), Elements::Complex(g)) => first(&w, &g, |w, g| near(w[0], g[0]) && near(w[1], g[1])),
        // Of integers only a case that says so may be off, by whole ones.
        (Elements::Int(w), Elements::Int(g)) => {
            first(&w, &g, |w, g| w == g || atol >= 1.0 && (w - g).unsigned_abs() as f64 <= atol)
        }
        (w, g) => (w != g).then(|| "differs".into()),
    }
}

fn first<T: std::fmt::Debug>(want: &[T], got: &[T], same: impl Fn(&T, &T) -> bool) -> Option<String> {
    let differs = |(w, g): (&T, &T)| !same(w, g);
    let at = want.iter().zip(got).position(differs)?;
    let n = want.iter().zip(got).filter(|&(w, g)| differs((w, g))).count();
    Some(format!("{n} of {} elements differ; element {at} is {:?}, should be {:?}", want.len(), got[at], want[at]))
}

/// What a case with random results is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Random {
    /// One with the probability that the input says.
    Bernoulli,
    /// The input with elements dropped, and perhaps what was kept.
    Dropout,
}

/// What is wrong with random results: another type or shape than expected, or another distribution.
pub fn implausible(kind: Random, inputs: &[Tensor], want: &[Tensor], got: &[Tensor]) -> Option<String> {
    for (w, g) in want.iter().zip(got) {
        if w.dtype() != g.dtype() || w.dims() != g.dims() {
            return Some(format!("is {}{:?}, should be {}{:?}", g.dtype(), g.dims(), w.dtype(), w.dims()));
        }
    }
    let x = inputs.first()?.elements().to_f64()?;
    let y = got.first()?.elements().to_f64()?;
    let (hits, mean, variance) = match kind {
        Random::Bernoulli => {
            if let Some(v) = y.iter().find(|v| **v != 0.0 && **v != 1.0) {
                return Some(format!("an element is {v}, neither 0 nor 1"));
            }
            (y.iter().sum::<f64>(), x.iter().sum::<f64>(), x.iter().map(|p| p * (1.0 - p)).sum::<f64>())
        }
        Random::Dropout => {
            let ratio = inputs.get(1).and_then(|r| r.elements().to_f64()?.first().copied()).unwrap_or(0.5);
            let scale = 1.0 / (1.0 - ratio);
            let odd = |(x, y): &(&f64, &f64)| **y != 0.0 && (**y - **x * scale).abs() > 1e-5 * x.abs();
            if let Some((x, y)) = x.iter().zip(&y).find(odd) {
                return Some(format!("an element is {y}; its input is {x}, the scale {scale}"));
            }
            if let Some(mask) = got.get(1).and_then(|m| m.elements().to_f64())
                && mask.iter().zip(&y).any(|(m, y)| (*m != 0.0) != (*y != 0.0))
            {
                return Some("the mask does not tell what was kept".into());
            }
            let n = y.len() as f64;
            (y.iter().filter(|y| **y != 0.0).count() as f64, n * (1.0 - ratio), n * ratio * (1.0 - ratio))
        }
    };
    let sigma = variance.sqrt();
    ((hits - mean).abs() > 5.0 * sigma + 1e-9)
        .then(|| format!("{hits} of {} elements are not zero, {mean:.1} ± {sigma:.1} should be", y.len()))
}
