//! Instructions on complex numbers, computed in f64.

use super::loops::{OpFn, op};
use rlx_ir::ops::elementwise::{Binary, Compare, Unary};

type C = [f64; 2];

fn mul(a: C, b: C) -> C {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

fn div(a: C, b: C) -> C {
    let n = b[0] * b[0] + b[1] * b[1];
    [(a[0] * b[0] + a[1] * b[1]) / n, (a[1] * b[0] - a[0] * b[1]) / n]
}

/// The loop of a function of one operand.
pub fn unary(f: Unary) -> Option<OpFn> {
    (f == Unary::Neg).then(|| op!(plain1, C, C; |a: C| [-a[0], -a[1]]))
}

/// The loop of a function of two operands.
pub fn binary(f: Binary) -> Option<OpFn> {
    Some(match f {
        Binary::Add => op!(plain2, C, C; |a: C, b: C| [a[0] + b[0], a[1] + b[1]]),
        Binary::Sub => op!(plain2, C, C; |a: C, b: C| [a[0] - b[0], a[1] - b[1]]),
        Binary::Mul => op!(plain2, C, C; mul),
        Binary::Div => op!(plain2, C, C; div),
        _ => return None,
    })
}

/// The loop of a comparison.
pub fn compare(f: Compare) -> Option<OpFn> {
    Some(match f {
        Compare::Eq => op!(plain2, C, u8; |a: C, b: C| u8::from(a == b)),
        Compare::Ne => op!(plain2, C, u8; |a: C, b: C| u8::from(a != b)),
        _ => return None,
    })
}
