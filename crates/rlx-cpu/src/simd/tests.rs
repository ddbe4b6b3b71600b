//! Every level against f64 references over sweeps of bit patterns, at the special values, and lane independence.

use super::*;

/// |y − r| in units in the last place of r (of the smallest subnormal, for tiny r).
fn ulps(y: f32, r: f64) -> f64 {
    if r.is_nan() || y.is_nan() {
        return if r.is_nan() && y.is_nan() { 0.0 } else { f64::INFINITY };
    }
    let nearest = r as f32;
    if nearest == y {
        return 0.0;
    }
    if y.is_infinite() {
        // An overflow is in order where the exact result is near the end of the range.
        return if r.abs() > f64::from(f32::MAX) * (1.0 - 2.5e-7) && r.signum() == f64::from(y).signum() {
            1.0
        } else {
            f64::INFINITY
        };
    }
    let exponent = if r == 0.0 { -149 } else { (((r.to_bits() >> 52) & 0x7ff) as i32 - 1023 - 23).max(-149) };
    (f64::from(y) - r).abs() / 2f64.powi(exponent)
}

fn reference(op: UnaryF32, x: f64) -> f64 {
    use UnaryF32::*;
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
    let gelu = |x: f64| 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
    match op {
        Softsign if x.is_infinite() => x.signum(),
        Abs => x.abs(),
        Neg => -x,
        Square => x * x,
        Sqrt => x.sqrt(),
        Rsqrt => 1.0 / x.sqrt(),
        Recip => 1.0 / x,
        Floor => x.floor(),
        Ceil => x.ceil(),
        Trunc => x.trunc(),
        RoundEven => x.round_ties_even(),
        Sign => {
            if x == 0.0 || x.is_nan() {
                x
            } else {
                x.signum()
            }
        }
        Exp => x.exp(),
        Exp2 => x.exp2(),
        Expm1 => x.exp_m1(),
        Log => x.ln(),
        Log2 => x.log2(),
        Log10 => x.log10(),
        Log1p => x.ln_1p(),
        Sin => x.sin(),
        Cos => x.cos(),
        Tan => x.tan(),
        Asin => x.asin(),
        Acos => x.acos(),
        Atan => x.atan(),
        Sinh => x.sinh(),
        Cosh => x.cosh(),
        Tanh => x.tanh(),
        Asinh => libm::asinh(x),
        Acosh => libm::acosh(x),
        Atanh => libm::atanh(x),
        Erf => libm::erf(x),
        Erfc => libm::erfc(x),
        Sigmoid => sigmoid(x),
        LogSigmoid => -softplus(-x),
        Silu => x * sigmoid(x),
        Gelu => gelu(x),
        GeluTanh => {
            // ½ x (1 + tanh u) = x · sigmoid(2u): no cancellation.
            let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            x * sigmoid(2.0 * u)
        }
        Mish => {
            // tanh(log1p e) = e (e + 2) / (e (e + 2) + 2).
            if x > 40.0 || x.is_nan() {
                x
            } else {
                let e = x.exp();
                x * (e * (e + 2.0) / (e * (e + 2.0) + 2.0))
            }
        }
        Softplus => softplus(x),
        Softsign => x / (1.0 + x.abs()),
        Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
    }
}

fn bound(op: UnaryF32) -> f64 {
    use UnaryF32::*;
    match op {
        Abs | Neg | Sqrt | Recip | Square | Floor | Ceil | Trunc | RoundEven | Sign | Relu => 0.5001,
        Rsqrt | Exp | Expm1 | Log | Log1p | Sin | Cos | Tanh | Erf | Softsign => 2.0,
        Sigmoid => 2.5,
        Gelu | GeluTanh | Silu | Mish | Tan | Softplus | LogSigmoid => 4.0,
        // Cancellation near −3 makes a relative bound meaningless; checked apart.
        HardSwish => f64::INFINITY,
        // Computed in f64, rounded once; the references may differ in the last bit of the f64.
        Exp2 | Log2 | Log10 | Asin | Acos | Atan | Sinh | Cosh | Asinh | Acosh | Atanh | Erfc => 0.51,
    }
}

fn sweep() -> Vec<f32> {
    let mut v: Vec<f32> = (0..=u32::MAX).step_by(4099).map(f32::from_bits).collect();
    // Where the functions do their work, more densely.
    v.extend((0..400_000).map(|i| -20.0 + i as f32 * 1e-4));
    v.extend((0..100_000).map(|i| -110.0 + i as f32 * 2.1e-3));
    v.extend([0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN]);
    v.extend([f32::MIN_POSITIVE, -f32::MIN_POSITIVE, 1e-45, -1e-45, 88.72284, 88.7229, -87.33655, -103.97]);
    v
}

#[test]
fn unary_functions_meet_their_bounds() {
    let x = sweep();
    let mut y = vec![0.0; x.len()];
    let mut failures = Vec::new();
    for &op in UnaryF32::ALL {
        let exact: Vec<f64> = x.iter().map(|&v| reference(op, f64::from(v))).collect();
        for isa in Isa::available() {
            unary_f32(op, isa, &x, &mut y);
            let (mut worst, mut at) = (0.0, 0);
            for i in 0..x.len() {
                let e = ulps(y[i], exact[i]);
                if e > worst {
                    (worst, at) = (e, i);
                }
            }
            println!("{op:?} {isa:?}: {worst:.3} ULP at {:e}", x[at]);
            if worst > bound(op) {
                failures
                    .push(format!("{op:?} {isa:?}: {worst} ULP at {:e}: {:e}, exact {:e}", x[at], y[at], exact[at]));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn hard_swish_is_close_in_absolute_terms() {
    let x = sweep();
    let mut y = vec![0.0; x.len()];
    for isa in Isa::available() {
        unary_f32(UnaryF32::HardSwish, isa, &x, &mut y);
        for (&x, &y) in x.iter().zip(&y) {
            let r = reference(UnaryF32::HardSwish, f64::from(x));
            assert!(ulps(y, r) <= 2.0 || (f64::from(y) - r).abs() < 3e-7, "{x:e}: {y:e}, exact {r:e}");
        }
    }
}

#[test]
fn signs_of_zero_are_kept() {
    use UnaryF32::*;
    for isa in Isa::available() {
        for op in [Abs, Sqrt, Floor, Ceil, Trunc, RoundEven, Expm1, Log1p, Sin, Tan, Tanh, Erf, Asinh, Softsign, Sign] {
            for x in [0.0f32, -0.0] {
                let mut y = [1.0];
                unary_f32(op, isa, &[x], &mut y);
                let negative = op != Abs && x.is_sign_negative();
                assert_eq!((y[0], y[0].is_sign_negative()), (0.0, negative), "{op:?} {isa:?} {x}");
            }
        }
    }
}

#[test]
fn a_lane_never_depends_on_its_place() {
    let x: Vec<f32> = (0..67).map(|i| (i as f32 - 30.0) * 1.37 + if i % 9 == 0 { 1e6 } else { 0.0 }).collect();
    for isa in Isa::available() {
        for &op in UnaryF32::ALL {
            let mut whole = vec![0.0; x.len()];
            unary_f32(op, isa, &x, &mut whole);
            for i in 0..x.len() {
                for len in [1, 3, 8, 9, 17] {
                    let part = &x[i..(i + len).min(x.len())];
                    let mut y = vec![0.0; part.len()];
                    unary_f32(op, isa, part, &mut y);
                    for (j, v) in y.iter().enumerate() {
                        assert_eq!(v.to_bits(), whole[i + j].to_bits(), "{op:?} {isa:?} {}", x[i + j]);
                    }
                    let mut z = part.to_vec();
                    unary_f32_in_place(op, isa, &mut z);
                    assert!(z.iter().zip(&y).all(|(a, b)| a.to_bits() == b.to_bits()));
                }
            }
        }
    }
}

fn specials() -> Vec<f32> {
    let mut v = vec![0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 7.0, 1e-40, 1e-10, 1e10, 16_777_215.0, 16_777_216.0, 1e30, f32::MAX];
    v.extend([f32::INFINITY, f32::MIN_POSITIVE, 0.99999994, 1.0000001, 33.0, 101.0, 0.1]);
    v = v.iter().flat_map(|&x| [x, -x]).collect();
    v.push(f32::NAN);
    v
}

#[test]
fn binary_functions_meet_their_bounds() {
    let special = specials();
    let mut pairs: Vec<(f32, f32)> = special.iter().flat_map(|&a| special.iter().map(move |&b| (a, b))).collect();
    // A linear congruential walk over (bits of x, exponent in the range that neither over- nor underflows).
    let mut state = 1u64;
    for _ in 0..300_000 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let x = f32::from_bits((state >> 33) as u32);
        let t = ((state >> 8) & 0xffff) as f32 / 65536.0 * 220.0 - 110.0;
        let y = t / x.ln();
        pairs.push((x, if y.is_finite() { y } else { t }));
    }
    let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
    let mut y = vec![0.0; a.len()];
    for isa in Isa::available() {
        for &op in BinaryF32::ALL {
            binary_f32(op, isa, &a, &b, &mut y);
            let mut worst: f64 = 0.0;
            for i in 0..a.len() {
                let (p, q) = (f64::from(a[i]), f64::from(b[i]));
                let r = match op {
                    BinaryF32::Add => p + q,
                    BinaryF32::Sub => p - q,
                    BinaryF32::Mul => p * q,
                    BinaryF32::Div => p / q,
                    BinaryF32::Min | BinaryF32::Max if p.is_nan() || q.is_nan() => f64::NAN,
                    BinaryF32::Min => p.min(q),
                    BinaryF32::Max => p.max(q),
                    BinaryF32::Pow => p.powf(q),
                    BinaryF32::Atan2 => p.atan2(q),
                    BinaryF32::Fmod => p % q,
                };
                let e = ulps(y[i], r);
                worst = worst.max(e);
                let limit = if op == BinaryF32::Pow { 4.0 } else { 0.51 };
                assert!(e <= limit, "{op:?} {isa:?} ({:e}, {:e}): {:e}, exact {r:e}: {e} ULP", a[i], b[i], y[i]);
                if op == BinaryF32::Pow && r == 0.0 {
                    assert_eq!(y[i].is_sign_negative(), r.is_sign_negative(), "pow({:e}, {:e})", a[i], b[i]);
                }
            }
            println!("{op:?} {isa:?}: {worst:.3} ULP");
        }
        let mut y = [1.0f32; 4];
        binary_f32(BinaryF32::Min, isa, &[0.0, -0.0, 0.0, -0.0], &[-0.0, 0.0, 0.0, -0.0], &mut y);
        assert_eq!(y.map(f32::is_sign_negative), [true, true, false, true]);
        binary_f32(BinaryF32::Max, isa, &[0.0, -0.0, 0.0, -0.0], &[-0.0, 0.0, 0.0, -0.0], &mut y);
        assert_eq!(y.map(f32::is_sign_negative), [false, false, false, true]);
    }
}

/// `math::gelu_block` of whole vectors of a slice.
struct GeluBlock<'a>(&'a mut [f32]);

impl Kernel for GeluBlock<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> usize {
        let count = self.0.len() / S::W;
        // SAFETY: so many vectors fit.
        unsafe { math::gelu_block(s, self.0.as_mut_ptr(), count) };
        count * S::W
    }
}

#[test]
fn gelu_in_blocks_has_the_bits_of_gelu() {
    let values: Vec<f32> = sweep().into_iter().chain(specials()).collect();
    for isa in Isa::available() {
        // Counts of vectors around the stages' own.
        for len in [0, 16, 240, 256, 272, values.len() / 16 * 16] {
            let mut all = values[..len].to_vec();
            assert_eq!(dispatch(isa, GeluBlock(&mut all)), len);
            let mut each = vec![0.0; len];
            unary_f32(UnaryF32::Gelu, isa, &values[..len], &mut each);
            for ((x, a), b) in values.iter().zip(&all).zip(&each) {
                assert_eq!(a.to_bits(), b.to_bits(), "gelu({x}) on {isa}");
            }
        }
    }
}

/// `math::exp_weight` of a slice.
struct ExpWeight<'a>(&'a mut [f32]);

impl Kernel for ExpWeight<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for part in self.0.chunks_mut(S::W) {
            // SAFETY: the part has this many elements.
            unsafe {
                let v = math::exp_weight(s, s.load_partial(part.as_ptr(), part.len()));
                s.store_partial(part.as_mut_ptr(), v, part.len());
            }
        }
    }
}

#[test]
fn weights_are_exp_or_zero_where_it_is_as_good_as_subnormal() {
    let values: Vec<f32> = sweep().into_iter().chain(specials()).filter(|x| x.is_nan() || *x <= 0.0).collect();
    for isa in Isa::available() {
        let mut got = values.clone();
        dispatch(isa, ExpWeight(&mut got));
        for (&x, &y) in values.iter().zip(&got) {
            if x < -87.0 {
                assert_eq!(y.to_bits(), 0, "weight of {x} on {isa}");
            } else {
                assert!(ulps(y, f64::from(x).exp()) <= 2.0, "weight of {x} is {y} on {isa}");
            }
        }
    }
}
