//! Values of every dtype, and elementwise ops on them by the tables of the IR.

use super::Rng;
use rlx_ir::element::{Elements, round_float};
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::elementwise::Scalar;
use rlx_ir::{DType, Tensor};

/// Values of a dtype: the delicate ones, then ordinary ones.
pub fn values(dtype: DType, n: usize, rng: &mut Rng) -> Tensor {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        0.5,
        -0.5,
        2.5,
        -3.5,
        7.0,
        1e-3,
        1e10,
        -1e10,
        2147483648.0,
        -9.3e18,
        65520.0,
        448.0,
        1e-40,
    ];
    let float = |rng: &mut Rng| {
        let r = rng.next();
        match r % 8 {
            0 | 1 => special[(r >> 8) as usize % special.len()],
            2 => rng.float() * 100.0,
            _ => rng.float() * 4.0,
        }
    };
    let elements = if dtype.is_complex() {
        Elements::Complex((0..n).map(|_| [rng.float() * 4.0, rng.float() * 4.0]).collect())
    } else if dtype.is_float() {
        Elements::Float((0..n).map(|_| float(rng)).collect())
    } else {
        let (lo, hi) = dtype.int_range().unwrap();
        let int = |rng: &mut Rng| {
            let r = rng.next();
            match r % 6 {
                0 => [lo, hi, 0, 1, lo + 1, hi - 1][(r >> 8) as usize % 6].clamp(lo, hi),
                1 => lo + i128::from(rng.next()) % (hi - lo + 1),
                _ => (i128::from(r >> 16) % 21 - 10).clamp(lo, hi),
            }
        };
        Elements::Int((0..n).map(|_| int(rng)).collect())
    };
    Tensor::from_elements(dtype, &[n], &elements).unwrap()
}

/// Element `i`.
pub fn get(e: &Elements, i: usize) -> Scalar {
    match e {
        Elements::Float(v) => Scalar::F(v[i]),
        Elements::Int(v) => Scalar::I(v[i]),
        Elements::Complex(v) => Scalar::C(v[i]),
        Elements::Str(_) => unreachable!(),
    }
}

/// The op's value by the tables.
pub fn apply(op: &Elementwise, args: &[DType], out: DType, scalars: &[Scalar]) -> Scalar {
    op.apply(args, out, scalars).unwrap()
}

/// Whether two values of a dtype are the same, or at most `ulps` apart.
pub fn close(dtype: DType, got: Scalar, want: Scalar, ulps: f64) -> bool {
    match (got, want) {
        (Scalar::F(a), Scalar::F(b)) => close_floats(dtype, a, b, ulps),
        (Scalar::I(a), Scalar::I(b)) => a == b,
        (Scalar::C(a), Scalar::C(b)) => (0..2).all(|i| close_floats(DType::F64, a[i], b[i], ulps)),
        _ => false,
    }
}

fn close_floats(dtype: DType, a: f64, b: f64, ulps: f64) -> bool {
    if a.is_nan() || b.is_nan() {
        return a.is_nan() && b.is_nan();
    }
    if a.to_bits() == b.to_bits() {
        return true;
    }
    if ulps == 0.0 {
        return false;
    }
    if a == b {
        return true;
    }
    let (digits, least) = match dtype {
        DType::F16 => (11, -24),
        DType::BF16 => (8, -133),
        DType::F32 => (24, -149),
        _ => (53, -1074),
    };
    let top = if b == 0.0 { least } else { b.abs().log2().floor() as i32 - digits + 1 };
    let unit = 2f64.powi(top.max(least));
    if b.is_infinite() || a.is_infinite() {
        // Overflow within the bound: the finite one must be the largest of its dtype.
        let finite = if a.is_infinite() { b } else { a };
        return finite.is_finite() && round_float(dtype, finite * (1.0 + 1e-3)).is_infinite();
    }
    (a - b).abs() <= ulps * unit
}
