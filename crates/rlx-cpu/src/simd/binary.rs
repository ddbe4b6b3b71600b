//! Elementwise functions of two f32 operands on slices.

use super::{Isa, Kernel, Simd, dispatch, math};

/// A function of two lanes, generic over the level.
trait Map2 {
    fn apply<S: Simd>(s: S, a: S::F, b: S::F) -> S::F;
}

/// `y[i] = f(a[i], b[i])`; lengths are equal.
struct Map2Loop<'a, F> {
    a: &'a [f32],
    b: &'a [f32],
    y: &'a mut [f32],
    f: std::marker::PhantomData<F>,
}

impl<F: Map2> Kernel for Map2Loop<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.y.len().min(self.a.len()).min(self.b.len());
        let (a, b, y) = (self.a.as_ptr(), self.b.as_ptr(), self.y.as_mut_ptr());
        let whole = n - n % S::W;
        let mut i = 0;
        // SAFETY: i and the partial width stay within n, which no slice is shorter than.
        unsafe {
            while i < whole {
                s.store(y.add(i), F::apply(s, s.load(a.add(i)), s.load(b.add(i))));
                i += S::W;
            }
            if i < n {
                let rest = n - i;
                let (u, v) = (s.load_partial(a.add(i), rest), s.load_partial(b.add(i), rest));
                s.store_partial(y.add(i), F::apply(s, u, v), rest);
            }
        }
    }
}

macro_rules! binary_functions {
    ($($(#[$doc:meta])* $name:ident = |$s:ident, $a:ident, $b:ident| $body:expr;)*) => {
        /// The functions that [`binary_f32`] computes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum BinaryF32 {
            $($(#[$doc])* $name,)*
        }
        impl BinaryF32 {
            /// Every function, in the order of declaration.
            pub const ALL: &'static [BinaryF32] = &[$(BinaryF32::$name,)*];
        }
        mod functions {
            use super::{Map2, Simd, math};
            $(
                pub struct $name;
                impl Map2 for $name {
                    #[inline(always)]
                    fn apply<S: Simd>($s: S, $a: S::F, $b: S::F) -> S::F { $body }
                }
            )*
        }
        /// `y[i] = op(a[i], b[i])` over the shortest of the three slices.
        pub fn binary_f32(op: BinaryF32, isa: Isa, a: &[f32], b: &[f32], y: &mut [f32]) {
            debug_assert!(a.len() == y.len() && b.len() == y.len(), "operands and result differ in length");
            match op {
                $(BinaryF32::$name => {
                    dispatch(isa, Map2Loop { a, b, y, f: std::marker::PhantomData::<functions::$name> })
                })*
            }
        }
    };
}

binary_functions! {
    /// a + b.
    Add = |s, a, b| s.add(a, b);
    /// a − b.
    Sub = |s, a, b| s.sub(a, b);
    /// a · b.
    Mul = |s, a, b| s.mul(a, b);
    /// a / b.
    Div = |s, a, b| s.div(a, b);
    /// The lesser; NaN where either is.
    Min = |s, a, b| s.min(a, b);
    /// The greater; NaN where either is.
    Max = |s, a, b| s.max(a, b);
    /// a to the power b.
    Pow = |s, a, b| math::pow(s, a, b);
    /// The angle of the point (b, a).
    Atan2 = |s, a, b| s.map2(a, b, |y, x| libm::atan2(f64::from(y), f64::from(x)) as f32);
    /// The remainder with the sign of a, exact.
    Fmod = |s, a, b| s.map2(a, b, |x, y| x % y);
}
