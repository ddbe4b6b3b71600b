//! Instructions in f32: for f32 itself, and for f16 and bf16 before rounding.
//!
//! Functions of two operands, and `clamp`, take operands that are one element for the whole block.

use super::loops::{Args, OpFn, op};
use crate::simd::{Kernel, Simd, UnaryF32, dispatch, math};
use rlx_ir::ops::elementwise::{Binary, Compare, Unary};
use std::marker::PhantomData;

/// The vector function of a function of one operand.
pub fn unary(f: Unary) -> Option<UnaryF32> {
    Some(match f {
        Unary::Neg => UnaryF32::Neg,
        Unary::Abs => UnaryF32::Abs,
        Unary::Sign => UnaryF32::Sign,
        Unary::Ceil => UnaryF32::Ceil,
        Unary::Floor => UnaryF32::Floor,
        Unary::RoundEven => UnaryF32::RoundEven,
        Unary::Trunc => UnaryF32::Trunc,
        Unary::Sqrt => UnaryF32::Sqrt,
        Unary::Rsqrt => UnaryF32::Rsqrt,
        Unary::Reciprocal => UnaryF32::Recip,
        Unary::Exp => UnaryF32::Exp,
        Unary::Expm1 => UnaryF32::Expm1,
        Unary::Log => UnaryF32::Log,
        Unary::Log1p => UnaryF32::Log1p,
        Unary::Sin => UnaryF32::Sin,
        Unary::Cos => UnaryF32::Cos,
        Unary::Tan => UnaryF32::Tan,
        Unary::Asin => UnaryF32::Asin,
        Unary::Acos => UnaryF32::Acos,
        Unary::Atan => UnaryF32::Atan,
        Unary::Sinh => UnaryF32::Sinh,
        Unary::Cosh => UnaryF32::Cosh,
        Unary::Tanh => UnaryF32::Tanh,
        Unary::Asinh => UnaryF32::Asinh,
        Unary::Acosh => UnaryF32::Acosh,
        Unary::Atanh => UnaryF32::Atanh,
        Unary::Erf => UnaryF32::Erf,
        Unary::Sigmoid => UnaryF32::Sigmoid,
        Unary::Relu => UnaryF32::Relu,
        Unary::Gelu => UnaryF32::Gelu,
        Unary::GeluTanh => UnaryF32::GeluTanh,
        Unary::Silu => UnaryF32::Silu,
        Unary::HardSwish => UnaryF32::HardSwish,
        Unary::Mish => UnaryF32::Mish,
        Unary::Softplus => UnaryF32::Softplus,
        Unary::Softsign => UnaryF32::Softsign,
        Unary::Not | Unary::Popcnt | Unary::IsNan | Unary::IsInf | Unary::IsFinite => return None,
    })
}

/// The loop of a predicate.
pub fn predicate(f: Unary) -> Option<OpFn> {
    Some(match f {
        Unary::IsNan => op!(map1, f32, u8; |x: f32| u8::from(x.is_nan())),
        Unary::IsInf => op!(map1, f32, u8; |x: f32| u8::from(x.is_infinite())),
        Unary::IsFinite => op!(map1, f32, u8; |x: f32| u8::from(x.is_finite())),
        _ => return None,
    })
}

/// A function of two lanes.
trait Lanes2 {
    fn apply<S: Simd>(s: S, a: S::F, b: S::F) -> S::F;
}

macro_rules! lanes2 {
    ($($name:ident = |$s:ident, $a:ident, $b:ident| $body:expr;)*) => {
        $(
            struct $name;
            impl Lanes2 for $name {
                #[inline(always)]
                fn apply<S: Simd>($s: S, $a: S::F, $b: S::F) -> S::F { $body }
            }
        )*
    };
}

lanes2! {
    Add = |s, a, b| s.add(a, b);
    Sub = |s, a, b| s.sub(a, b);
    Mul = |s, a, b| s.mul(a, b);
    Div = |s, a, b| s.div(a, b);
    Min = |s, a, b| s.min(a, b);
    Max = |s, a, b| s.max(a, b);
    Pow = |s, a, b| math::pow(s, a, b);
    Atan2 = |s, a, b| s.map2(a, b, |y, x| libm::atan2(f64::from(y), f64::from(x)) as f32);
    Rem = |s, a, b| s.map2(a, b, |x, y| x % y);
    Mod = |s, a, b| s.map2(a, b, rem_floor);
}

fn rem_floor(a: f32, b: f32) -> f32 {
    let r = a % b;
    if r == 0.0 {
        r.abs().copysign(b)
    } else if (r < 0.0) != (b < 0.0) {
        r + b
    } else {
        r
    }
}

struct Loop2<F> {
    a: *const f32,
    b: *const f32,
    splat: (bool, bool),
    y: *mut f32,
    n: usize,
    f: PhantomData<F>,
}

impl<F: Lanes2> Kernel for Loop2<F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Loop2 { a, b, splat, y, n, .. } = self;
        match splat {
            (false, false) => {
                let mut i = 0;
                // SAFETY: operands and result hold n elements; i plus the width, or the rest, stays within n.
                unsafe {
                    while i + S::W <= n {
                        s.store(y.add(i), F::apply(s, s.load(a.add(i)), s.load(b.add(i))));
                        i += S::W;
                    }
                    if i < n {
                        let r = n - i;
                        let v = F::apply(s, s.load_partial(a.add(i), r), s.load_partial(b.add(i), r));
                        s.store_partial(y.add(i), v, r);
                    }
                }
            }
            (false, true) => {
                // SAFETY: the operand is one element.
                let b = s.splat(unsafe { *b });
                // SAFETY: operand and result hold n elements.
                unsafe { each::<S, F, false>(s, b, a, y, n) };
            }
            (true, _) => {
                // SAFETY: the operand is one element.
                let a = s.splat(unsafe { *a });
                // SAFETY: operand and result hold n elements; two operands of one element only occur with n = 1.
                unsafe { each::<S, F, true>(s, a, b, y, n) };
            }
        }
    }
}

/// `y = f(x, fixed)` by lanes, or `f(fixed, x)` if `FIRST`. No closure: one would be compiled for the baseline.
/// # Safety
/// Both hold n elements.
#[inline(always)]
unsafe fn each<S: Simd, F: Lanes2, const FIRST: bool>(s: S, fixed: S::F, x: *const f32, y: *mut f32, n: usize) {
    let mut i = 0;
    // SAFETY: i plus the width, or the rest, stays within n.
    unsafe {
        while i + S::W <= n {
            let v = s.load(x.add(i));
            s.store(y.add(i), if FIRST { F::apply(s, fixed, v) } else { F::apply(s, v, fixed) });
            i += S::W;
        }
        if i < n {
            let v = s.load_partial(x.add(i), n - i);
            s.store_partial(y.add(i), if FIRST { F::apply(s, fixed, v) } else { F::apply(s, v, fixed) }, n - i);
        }
    }
}

/// # Safety
/// See [`Args`].
unsafe fn run2<F: Lanes2>(x: &Args) {
    let (a, b) = (x.a[0].cast(), x.a[1].cast());
    dispatch(x.isa, Loop2 { a, b, splat: (x.splat[0], x.splat[1]), y: x.y.cast(), n: x.n, f: PhantomData::<F> });
}

/// The loop of a function of two operands.
pub fn binary(f: Binary) -> Option<OpFn> {
    Some(match f {
        Binary::Add => run2::<Add>,
        Binary::Sub => run2::<Sub>,
        Binary::Mul => run2::<Mul>,
        Binary::Div => run2::<Div>,
        Binary::Min => run2::<Min>,
        Binary::Max => run2::<Max>,
        Binary::Pow => run2::<Pow>,
        Binary::Atan2 => run2::<Atan2>,
        Binary::Rem => run2::<Rem>,
        Binary::Mod => run2::<Mod>,
        Binary::And | Binary::Or | Binary::Xor | Binary::ShiftLeft | Binary::ShiftRight => return None,
    })
}

/// A function of two operands on vectors, where it is one.
pub fn binary_lanes<S: Simd>(f: Binary, s: S, a: S::F, b: S::F) -> Option<S::F> {
    Some(match f {
        Binary::Add => Add::apply(s, a, b),
        Binary::Sub => Sub::apply(s, a, b),
        Binary::Mul => Mul::apply(s, a, b),
        Binary::Div => Div::apply(s, a, b),
        Binary::Min => Min::apply(s, a, b),
        Binary::Max => Max::apply(s, a, b),
        Binary::Pow => Pow::apply(s, a, b),
        _ => return None,
    })
}

/// The loop of a comparison.
pub fn compare(f: Compare) -> OpFn {
    match f {
        Compare::Eq => op!(map2, f32, u8; |a, b| u8::from(a == b)),
        Compare::Ne => op!(map2, f32, u8; |a, b| u8::from(a != b)),
        Compare::Lt => op!(map2, f32, u8; |a, b| u8::from(a < b)),
        Compare::Le => op!(map2, f32, u8; |a, b| u8::from(a <= b)),
        Compare::Gt => op!(map2, f32, u8; |a, b| u8::from(a > b)),
        Compare::Ge => op!(map2, f32, u8; |a, b| u8::from(a >= b)),
    }
}

/// `clamp` on vectors.
#[inline(always)]
pub fn clamp_lanes<S: Simd>(s: S, x: S::F, lo: S::F, hi: S::F) -> S::F {
    s.min(s.max(x, lo), hi)
}

struct Clamp {
    x: *const f32,
    lo: *const f32,
    hi: *const f32,
    splat: (bool, bool),
    y: *mut f32,
    n: usize,
}

/// A bound of `clamp` at element `i`.
#[inline(always)]
fn bound<S: Simd>(s: S, p: *const f32, splat: bool, i: usize, n: usize) -> S::F {
    // SAFETY: as in `Loop2`.
    unsafe { if splat { s.splat(*p) } else { s.load_partial(p.add(i), n) } }
}

impl Kernel for Clamp {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut i = 0;
        while i < self.n {
            let n = S::W.min(self.n - i);
            let (lo, hi) = (bound(s, self.lo, self.splat.0, i, n), bound(s, self.hi, self.splat.1, i, n));
            // SAFETY: as in `Loop2`.
            unsafe {
                let x = s.load_partial(self.x.add(i), n);
                s.store_partial(self.y.add(i), clamp_lanes(s, x, lo, hi), n);
            }
            i += n;
        }
    }
}

/// The loop of `clamp`.
pub fn clamp() -> OpFn {
    /// # Safety
    /// See [`Args`].
    unsafe fn run(x: &Args) {
        let (a, lo, hi) = (x.a[0].cast(), x.a[1].cast(), x.a[2].cast());
        dispatch(x.isa, Clamp { x: a, lo, hi, splat: (x.splat[1], x.splat[2]), y: x.y.cast(), n: x.n });
    }
    run
}
