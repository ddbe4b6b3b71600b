//! Reductions of blocks.
//!
//! The order is fixed by a block's length alone: 32 interleaved partial results that are combined as a tree, whatever
//! the instruction set. Blocks are added one after another to an accumulator that is wider than their elements
//! (f64 for f32 sums).

use super::Work;
use rlx_ir::DType;
use rlx_ir::ops::reduction::ReduceKind;

use crate::simd::{Isa, Kernel, Simd, dispatch};

/// Interleaved partial results of a block.
const LANES: usize = 32;

/// An accumulator of any working type: f32 sums and products are held as f64.
#[derive(Clone, Copy, Debug)]
pub enum Total {
    /// Floats.
    F(f64),
    /// Integers and booleans, wrapped to their type when read.
    I(i64),
    /// Unsigned 64-bit integers.
    U(u64),
    /// Complex numbers.
    C([f64; 2]),
}

/// Smallest, NaN if any is; −0 before +0.
#[inline(always)]
pub fn min_f32(a: f32, b: f32) -> f32 {
    if a.is_nan() || b < a || (a == b && b.is_sign_negative()) || b.is_nan() {
        if a.is_nan() { a } else { b }
    } else {
        a
    }
}

/// Largest, NaN if any is; +0 after −0.
#[inline(always)]
pub fn max_f32(a: f32, b: f32) -> f32 {
    -min_f32(-a, -b)
}

fn min_f64(a: f64, b: f64) -> f64 {
    if a.is_nan() || b < a || (a == b && b.is_sign_negative()) || b.is_nan() {
        if a.is_nan() { a } else { b }
    } else {
        a
    }
}

fn max_f64(a: f64, b: f64) -> f64 {
    -min_f64(-a, -b)
}

/// The neutral element of a dtype that is computed in a working type: integers narrower than theirs have narrower extremes.
pub fn neutral(kind: ReduceKind, work: Work, dtype: DType) -> Total {
    use ReduceKind as K;
    match work {
        Work::F32 | Work::F64 => Total::F(match kind {
            K::Sum | K::Any => 0.0,
            K::Prod | K::All => 1.0,
            K::Min => f64::INFINITY,
            K::Max => f64::NEG_INFINITY,
        }),
        Work::Complex => Total::C(if kind == K::Prod { [1.0, 0.0] } else { [0.0, 0.0] }),
        Work::U64 => Total::U(match kind {
            K::Sum | K::Any | K::Max => 0,
            K::Prod | K::All => 1,
            K::Min => u64::MAX,
        }),
        _ => Total::I(kind.neutral_int(dtype) as i64),
    }
}

/// Combines two results.
pub fn combine(kind: ReduceKind, a: Total, b: Total) -> Total {
    use ReduceKind as K;
    match (a, b) {
        (Total::F(x), Total::F(y)) => Total::F(match kind {
            K::Sum | K::Any => x + y,
            K::Prod | K::All => x * y,
            K::Min => min_f64(x, y),
            K::Max => max_f64(x, y),
        }),
        (Total::I(x), Total::I(y)) => Total::I(match kind {
            K::Sum => x.wrapping_add(y),
            K::Prod => x.wrapping_mul(y),
            K::Min => x.min(y),
            K::Max => x.max(y),
            K::Any => i64::from(x != 0 || y != 0),
            K::All => i64::from(x != 0 && y != 0),
        }),
        (Total::U(x), Total::U(y)) => Total::U(match kind {
            K::Sum => x.wrapping_add(y),
            K::Prod => x.wrapping_mul(y),
            K::Min => x.min(y),
            K::Max => x.max(y),
            K::Any => u64::from(x != 0 || y != 0),
            K::All => u64::from(x != 0 && y != 0),
        }),
        (Total::C(x), Total::C(y)) => Total::C(match kind {
            K::Prod => [x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]],
            _ => [x[0] + y[0], x[1] + y[1]],
        }),
        (a, _) => a,
    }
}

/// How two results of a kind become one. No closures: they would be compiled for the baseline.
trait Pair {
    fn lanes<S: Simd>(s: S, a: S::F, b: S::F) -> S::F;
    fn one(a: f32, b: f32) -> f32;
}

macro_rules! pairs {
    ($($name:ident = $lanes:ident, |$a:ident, $b:ident| $one:expr;)*) => {
        $(
            struct $name;
            impl Pair for $name {
                #[inline(always)]
                fn lanes<S: Simd>(s: S, a: S::F, b: S::F) -> S::F {
                    s.$lanes(a, b)
                }
                #[inline(always)]
                fn one($a: f32, $b: f32) -> f32 {
                    $one
                }
            }
        )*
    };
}

pairs! {
    Sum = add, |a, b| a + b;
    Product = mul, |a, b| a * b;
    Least = min, |a, b| min_f32(a, b);
    Most = max, |a, b| max_f32(a, b);
}

struct BlockF32 {
    x: *const f32,
    n: usize,
    kind: ReduceKind,
}

impl Kernel for BlockF32 {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        match self.kind {
            ReduceKind::Sum | ReduceKind::Any => self.fold::<S, Sum>(s, 0.0),
            ReduceKind::Prod | ReduceKind::All => self.fold::<S, Product>(s, 1.0),
            ReduceKind::Min => self.fold::<S, Least>(s, f32::INFINITY),
            ReduceKind::Max => self.fold::<S, Most>(s, f32::NEG_INFINITY),
        }
    }
}

impl BlockF32 {
    #[inline(always)]
    fn fold<S: Simd, P: Pair>(&self, s: S, start: f32) -> f32 {
        let mut partial = [start; LANES];
        let mut i = 0;
        // SAFETY: i + LANES ≤ n, or the element's own index is below n; LANES is a multiple of every width up to 16.
        unsafe {
            if self.n >= LANES {
                const MOST: usize = LANES / 4;
                let vectors = LANES / S::W;
                let mut v = [s.splat(start); MOST];
                while i + LANES <= self.n {
                    let mut k = 0;
                    while k < vectors {
                        v[k] = P::lanes(s, v[k], s.load(self.x.add(i + k * S::W)));
                        k += 1;
                    }
                    i += LANES;
                }
                let mut k = 0;
                while k < vectors {
                    s.store(partial.as_mut_ptr().add(k * S::W), v[k]);
                    k += 1;
                }
            }
            let mut lane = 0;
            while i < self.n {
                partial[lane] = P::one(partial[lane], *self.x.add(i));
                lane += 1;
                i += 1;
            }
        }
        let mut width = LANES / 2;
        while width > 0 {
            for k in 0..width {
                partial[k] = P::one(partial[k], partial[k + width]);
            }
            width /= 2;
        }
        partial[0]
    }
}

macro_rules! fold_int {
    ($t:ty, $total:ident, $wide:ty, $x:expr, $n:expr, $kind:expr) => {{
        // SAFETY: the caller's block holds n elements.
        let x = unsafe { std::slice::from_raw_parts($x.cast::<$t>(), $n) };
        Total::$total(<$wide>::from(match $kind {
            ReduceKind::Sum => x.iter().fold(0 as $t, |a, &b| a.wrapping_add(b)),
            ReduceKind::Prod => x.iter().fold(1 as $t, |a, &b| a.wrapping_mul(b)),
            ReduceKind::Min => x.iter().fold(<$t>::MAX, |a, &b| a.min(b)),
            ReduceKind::Max => x.iter().fold(<$t>::MIN, |a, &b| a.max(b)),
            ReduceKind::Any => <$t>::from(x.iter().any(|&b| b != 0)),
            ReduceKind::All => <$t>::from(x.iter().all(|&b| b != 0)),
        }))
    }};
}

/// The reduction of a block of at least one element.
/// # Safety
/// `x` holds `n` elements of the type.
pub unsafe fn block(isa: Isa, kind: ReduceKind, work: Work, x: *const u8, n: usize) -> Total {
    match work {
        Work::F32 => Total::F(f64::from(dispatch(isa, BlockF32 { x: x.cast(), n, kind }))),
        Work::F64 => {
            // SAFETY: the caller's promise.
            let x = unsafe { std::slice::from_raw_parts(x.cast::<f64>(), n) };
            x.iter().fold(neutral(kind, work, DType::F64), |a, &b| combine(kind, a, Total::F(b)))
        }
        Work::Complex => {
            // SAFETY: the caller's promise.
            let x = unsafe { std::slice::from_raw_parts(x.cast::<[f64; 2]>(), n) };
            x.iter().fold(neutral(kind, work, DType::C128), |a, &b| combine(kind, a, Total::C(b)))
        }
        Work::I8 => fold_int!(i8, I, i64, x, n, kind),
        Work::I16 => fold_int!(i16, I, i64, x, n, kind),
        Work::I32 => fold_int!(i32, I, i64, x, n, kind),
        Work::I64 => fold_int!(i64, I, i64, x, n, kind),
        Work::U8 => fold_int!(u8, I, i64, x, n, kind),
        Work::U16 => fold_int!(u16, I, i64, x, n, kind),
        Work::U32 => fold_int!(u32, I, i64, x, n, kind),
        Work::U64 => fold_int!(u64, U, u64, x, n, kind),
        Work::Bool => match kind {
            ReduceKind::Min => fold_int!(u8, I, i64, x, n, ReduceKind::All),
            ReduceKind::Max => fold_int!(u8, I, i64, x, n, ReduceKind::Any),
            kind => fold_int!(u8, I, i64, x, n, kind),
        },
    }
}

/// Reads one element as a total.
/// # Safety
/// `x` holds an element of the type.
pub unsafe fn one(work: Work, x: *const u8) -> Total {
    // SAFETY: the caller's promise.
    unsafe {
        match work {
            Work::F32 => Total::F(f64::from(*x.cast::<f32>())),
            Work::F64 => Total::F(*x.cast::<f64>()),
            Work::I8 => Total::I(i64::from(*x.cast::<i8>())),
            Work::I16 => Total::I(i64::from(*x.cast::<i16>())),
            Work::I32 => Total::I(i64::from(*x.cast::<i32>())),
            Work::I64 => Total::I(*x.cast::<i64>()),
            Work::U8 | Work::Bool => Total::I(i64::from(*x)),
            Work::U16 => Total::I(i64::from(*x.cast::<u16>())),
            Work::U32 => Total::I(i64::from(*x.cast::<u32>())),
            Work::U64 => Total::U(*x.cast::<u64>()),
            Work::Complex => Total::C(*x.cast::<[f64; 2]>()),
        }
    }
}

/// Writes a total as one element, wrapped or rounded to its type.
/// # Safety
/// `y` is valid for an element of the type.
pub unsafe fn write(work: Work, total: Total, y: *mut u8) {
    let int = match total {
        Total::I(v) => v,
        Total::U(v) => v as i64,
        Total::F(_) | Total::C(_) => 0,
    };
    // SAFETY: the caller's promise.
    unsafe {
        match (work, total) {
            (Work::F32, Total::F(v)) => *y.cast::<f32>() = v as f32,
            (Work::F64, Total::F(v)) => *y.cast::<f64>() = v,
            (Work::Complex, Total::C(v)) => *y.cast::<[f64; 2]>() = v,
            (Work::I8 | Work::U8, _) => *y = int as u8,
            (Work::Bool, _) => *y = u8::from(int != 0),
            (Work::I16 | Work::U16, _) => *y.cast::<u16>() = int as u16,
            (Work::I32 | Work::U32, _) => *y.cast::<u32>() = int as u32,
            (Work::I64 | Work::U64, _) => *y.cast::<u64>() = int as u64,
            _ => {}
        }
    }
}
