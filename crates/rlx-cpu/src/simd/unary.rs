//! Elementwise functions of one f32 operand on slices.

use super::{Isa, Kernel, Simd, dispatch, math};

/// A function of one lane, generic over the level.
trait Map {
    fn apply<S: Simd>(s: S, x: S::F) -> S::F;
}

/// `y[i] = f(x[i])` for `i < n`; `x` and `y` are equal or do not overlap.
struct MapLoop<F> {
    x: *const f32,
    y: *mut f32,
    n: usize,
    f: std::marker::PhantomData<F>,
}

impl<F: Map> Kernel for MapLoop<F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let whole = self.n - self.n % S::W;
        let mut i = 0;
        // SAFETY: both pointers are valid for n elements (the makers in this file take them from slices of that
        // length), and i stays within n.
        unsafe {
            while i < whole {
                s.store(self.y.add(i), F::apply(s, s.load(self.x.add(i))));
                i += S::W;
            }
            if i < self.n {
                let rest = self.n - i;
                let v = F::apply(s, s.load_partial(self.x.add(i), rest));
                s.store_partial(self.y.add(i), v, rest);
            }
        }
    }
}

macro_rules! unary_functions {
    ($($(#[$doc:meta])* $name:ident = |$s:ident, $x:ident| $body:expr;)*) => {
        /// The functions that [`unary_f32`] computes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum UnaryF32 {
            $($(#[$doc])* $name,)*
        }
        impl UnaryF32 {
            /// Every function, in the order of declaration.
            pub const ALL: &'static [UnaryF32] = &[$(UnaryF32::$name,)*];
        }
        mod functions {
            use super::{Map, Simd, math};
            $(
                pub struct $name;
                impl Map for $name {
                    #[inline(always)]
                    fn apply<S: Simd>($s: S, $x: S::F) -> S::F { $body }
                }
            )*
        }
        /// The function on one vector.
        pub fn unary_lanes<S: Simd>(op: UnaryF32, s: S, x: S::F) -> S::F {
            match op {
                $(UnaryF32::$name => functions::$name::apply(s, x),)*
            }
        }
        /// `y[i] = op(x[i])` for `i < n`.
        /// # Safety
        /// `x` and `y` are valid for `n` elements, and equal or disjoint.
        pub unsafe fn unary_f32_raw(op: UnaryF32, isa: Isa, x: *const f32, y: *mut f32, n: usize) {
            match op {
                $(UnaryF32::$name => {
                    dispatch(isa, MapLoop { x, y, n, f: std::marker::PhantomData::<functions::$name> })
                })*
            }
        }
    };
}

unary_functions! {
    /// |x|.
    Abs = |s, x| s.abs(x);
    /// −x.
    Neg = |s, x| s.neg(x);
    /// x².
    Square = |s, x| s.mul(x, x);
    /// √x.
    Sqrt = |s, x| s.sqrt(x);
    /// 1 / √x.
    Rsqrt = |s, x| s.div(s.splat(1.0), s.sqrt(x));
    /// 1 / x.
    Recip = |s, x| s.div(s.splat(1.0), x);
    /// Toward −∞.
    Floor = |s, x| s.floor(x);
    /// Toward +∞.
    Ceil = |s, x| s.ceil(x);
    /// Toward zero.
    Trunc = |s, x| s.trunc(x);
    /// To nearest, ties to even.
    RoundEven = |s, x| s.round_even(x);
    /// −1, 0 or 1.
    Sign = |s, x| math::sign(s, x);
    /// eˣ.
    Exp = |s, x| math::exp(s, x);
    /// 2ˣ.
    Exp2 = |s, x| s.map(x, |v| libm::exp2(f64::from(v)) as f32);
    /// eˣ − 1.
    Expm1 = |s, x| math::expm1(s, x);
    /// Natural logarithm.
    Log = |s, x| math::log(s, x);
    /// Logarithm to base 2.
    Log2 = |s, x| s.map(x, |v| libm::log2(f64::from(v)) as f32);
    /// Logarithm to base 10.
    Log10 = |s, x| s.map(x, |v| libm::log10(f64::from(v)) as f32);
    /// log(1 + x).
    Log1p = |s, x| math::log1p(s, x);
    /// Sine.
    Sin = |s, x| math::sin(s, x);
    /// Cosine.
    Cos = |s, x| math::cos(s, x);
    /// Tangent.
    Tan = |s, x| math::tan(s, x);
    /// Inverse sine.
    Asin = |s, x| s.map(x, |v| libm::asin(f64::from(v)) as f32);
    /// Inverse cosine.
    Acos = |s, x| s.map(x, |v| libm::acos(f64::from(v)) as f32);
    /// Inverse tangent.
    Atan = |s, x| s.map(x, |v| libm::atan(f64::from(v)) as f32);
    /// Hyperbolic sine.
    Sinh = |s, x| s.map(x, |v| libm::sinh(f64::from(v)) as f32);
    /// Hyperbolic cosine.
    Cosh = |s, x| s.map(x, |v| libm::cosh(f64::from(v)) as f32);
    /// Hyperbolic tangent.
    Tanh = |s, x| math::tanh(s, x);
    /// Inverse hyperbolic sine.
    Asinh = |s, x| s.map(x, |v| libm::asinh(f64::from(v)) as f32);
    /// Inverse hyperbolic cosine.
    Acosh = |s, x| s.map(x, |v| libm::acosh(f64::from(v)) as f32);
    /// Inverse hyperbolic tangent.
    Atanh = |s, x| s.map(x, |v| libm::atanh(f64::from(v)) as f32);
    /// Error function.
    Erf = |s, x| math::erf(s, x);
    /// 1 − erf(x).
    Erfc = |s, x| s.map(x, |v| libm::erfc(f64::from(v)) as f32);
    /// 1 / (1 + e⁻ˣ).
    Sigmoid = |s, x| math::sigmoid(s, x);
    /// log(sigmoid(x)).
    LogSigmoid = |s, x| math::log_sigmoid(s, x);
    /// x · sigmoid(x).
    Silu = |s, x| math::silu(s, x);
    /// x · Φ(x).
    Gelu = |s, x| math::gelu(s, x);
    /// gelu by its tanh formula.
    GeluTanh = |s, x| math::gelu_tanh(s, x);
    /// x · tanh(softplus(x)).
    Mish = |s, x| math::mish(s, x);
    /// log(1 + eˣ).
    Softplus = |s, x| math::softplus(s, x);
    /// x / (1 + |x|).
    Softsign = |s, x| math::softsign(s, x);
    /// max(x, 0).
    Relu = |s, x| math::relu(s, x);
    /// x · min(max(x + 3, 0), 6) / 6.
    HardSwish = |s, x| math::hard_swish(s, x);
}

/// `y[i] = op(x[i])` over the shorter of the two slices.
pub fn unary_f32(op: UnaryF32, isa: Isa, x: &[f32], y: &mut [f32]) {
    let n = x.len().min(y.len());
    debug_assert_eq!(x.len(), y.len(), "operand and result differ in length");
    // SAFETY: both slices hold n elements, and a shared and an exclusive slice never overlap.
    unsafe { unary_f32_raw(op, isa, x.as_ptr(), y.as_mut_ptr(), n) }
}

/// `x[i] = op(x[i])`.
pub fn unary_f32_in_place(op: UnaryF32, isa: Isa, x: &mut [f32]) {
    let p = x.as_mut_ptr();
    // SAFETY: operand and result are the same slice.
    unsafe { unary_f32_raw(op, isa, p, p, x.len()) }
}
