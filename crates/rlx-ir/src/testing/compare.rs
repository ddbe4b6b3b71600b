//! Comparison of results with a tolerance.

use crate::element::Elements;
use crate::tensor::{Tensor, Value};

/// Errors unless two values are equal, floats up to `atol + rtol · |expected|`. NaN equals NaN, an infinity only itself, and zeros
/// of either sign each other.
pub fn close(expected: &Value, got: &Value, rtol: f64, atol: f64) -> Result<(), String> {
    match (expected, got) {
        (Value::Tensor(a), Value::Tensor(b)) => tensors(a, b, rtol, atol),
        (Value::Sequence(a), Value::Sequence(b)) => close_all(a, b, rtol, atol),
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => close(a, b, rtol, atol),
        (a, b) if a == b => Ok(()),
        (a, b) => Err(format!("expected {a:?}, got {b:?}")),
    }
}

/// [`close`] for lists.
pub fn close_all(expected: &[Value], got: &[Value], rtol: f64, atol: f64) -> Result<(), String> {
    if expected.len() != got.len() {
        return Err(format!("expected {} values, got {}", expected.len(), got.len()));
    }
    let mut pairs = expected.iter().zip(got).enumerate();
    pairs.try_for_each(|(i, (a, b))| close(a, b, rtol, atol).map_err(|e| format!("value {i}: {e}")))
}

fn tensors(a: &Tensor, b: &Tensor, rtol: f64, atol: f64) -> Result<(), String> {
    if a.dtype() != b.dtype() || a.dims() != b.dims() {
        return Err(format!("expected {a:?}, got {b:?}"));
    }
    let near = |x: f64, y: f64| x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= atol + rtol * x.abs();
    let differs = |i: usize, x: String, y: String| Err(format!("{a:?}: element {i}: expected {x}, got {y}"));
    match (a.elements(), b.elements()) {
        (Elements::Float(x), Elements::Float(y)) => match x.iter().zip(&y).position(|(&x, &y)| !near(x, y)) {
            Some(i) => differs(i, x[i].to_string(), y[i].to_string()),
            None => Ok(()),
        },
        (Elements::Complex(x), Elements::Complex(y)) => {
            match x.iter().zip(&y).position(|(x, y)| !near(x[0], y[0]) || !near(x[1], y[1])) {
                Some(i) => differs(i, format!("{:?}", x[i]), format!("{:?}", y[i])),
                None => Ok(()),
            }
        }
        (Elements::Int(x), Elements::Int(y)) => match x.iter().zip(&y).position(|(x, y)| x != y) {
            Some(i) => differs(i, x[i].to_string(), y[i].to_string()),
            None => Ok(()),
        },
        (x, y) if x == y => Ok(()),
        _ => Err(format!("{a:?}: strings differ")),
    }
}
