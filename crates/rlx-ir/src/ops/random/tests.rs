use super::*;
use crate::eval::{EvalInputs, evaluate};
use crate::op::EvalOptions;
use crate::{Builder, DType, Dim, IrError, Module, ValueId};

/// Vectors that the generator's authors publish with their library (`kat_vectors`, philox4x32 10).
#[test]
fn philox_gives_the_known_answers() {
    let all = u32::MAX;
    let cases = [
        ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([all; 4], [all; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];
    for (counter, key, words) in cases {
        assert_eq!(philox4x32_10(counter, key), words, "{counter:x?} {key:x?}");
    }
}

fn draw(rng: RngOptions, make: impl Fn(&mut Builder, ValueId) -> Result<ValueId, IrError>) -> (Tensor, RngOptions) {
    let mut b = Builder::new("main");
    let key = b.rng_key().unwrap();
    let y = make(&mut b, key).unwrap();
    b.output("y", y).unwrap();
    let module = Module::from_graph(b.finish());
    crate::verify(&module).unwrap();
    let states = [(RNG_STATE.to_owned(), rng.to_tensor())].into_iter().collect();
    let out = evaluate(&module, &EvalInputs { states, ..Default::default() }, EvalOptions::default()).unwrap();
    let next = RngOptions::from_tensor(&out.states[RNG_STATE]).unwrap();
    (out.outputs[0].as_tensor().unwrap().clone(), next)
}

#[test]
fn words_stand_where_the_text_says() {
    let rng = RngOptions { seed: 0x299f_31d0_a409_3822, offset: 0x0370_7344_1319_8a2e };
    let (t, next) = draw(rng, |b, key| b.random_bits(key, DType::U32, [2, 5], 0x85a3_08d3));
    assert_eq!(next, RngOptions { seed: rng.seed, offset: rng.offset + 1 });
    let block = |i: u32| philox4x32_10([i, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]);
    let words: Vec<u32> = (0..3).flat_map(block).take(10).collect();
    assert_eq!(*t.as_slice::<u32>().unwrap(), words);
    let (t, _) = draw(rng, |b, key| b.random_bits(key, DType::U64, [3], 0x85a3_08d3));
    let wide: Vec<u64> = words.chunks(2).take(3).map(|w| u64::from(w[0]) | u64::from(w[1]) << 32).collect();
    assert_eq!(*t.as_slice::<u64>().unwrap(), wide);
}

#[test]
fn keys_and_dtypes_are_checked() {
    let mut b = Builder::new("main");
    let key = b.rng_key().unwrap();
    assert_eq!(b.rng_key().unwrap(), key);
    let short = b.input("k", DType::U64, [Dim::from(1)]).unwrap();
    assert!(b.random_bits(short, DType::U32, [2], 0).unwrap_err().to_string().contains("u64[2]"));
    assert!(b.random_bits(key, DType::I32, [2], 0).is_err());
    assert!(b.random_bits(key, DType::U32, [-2], 0).is_err());
    assert!(b.random_unit(key, DType::I8, [2], 0).is_err());
    assert!(RngOptions::from_tensor(&Tensor::scalar(1u64)).is_none());
}

/// Mean, variance, skewness and kurtosis.
fn moments(x: &[f64]) -> [f64; 4] {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let m = |k: i32| x.iter().map(|v| (v - mean).powi(k)).sum::<f64>() / n;
    [mean, m(2), m(3) / m(2).powf(1.5), m(4) / m(2).powi(2)]
}

#[test]
fn uniform_and_normal_numbers_have_their_moments() {
    let n = 40_000;
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let numbers = |t: Tensor| {
            assert_eq!(t.dtype(), dtype);
            t.elements().to_f64().unwrap()
        };
        let rng = RngOptions { seed: 7, offset: 3 };
        let u = numbers(draw(rng, |b, key| b.random_uniform(key, dtype, [n], (-2.0, 4.0), 1)).0);
        assert!(u.iter().all(|v| (-2.0..=4.0).contains(v)));
        let z = numbers(draw(rng, |b, key| b.random_normal(key, dtype, [n], (1.0, 2.0), 1)).0);
        assert!(z.iter().all(|v| v.is_finite()));
        // Standard errors of the moments at this n are below a quarter of the bounds; bf16 rounds by up to 2^-8 of the value.
        for (x, want) in [(u, [1.0, 3.0, 0.0, 1.8]), (z, [1.0, 4.0, 0.0, 3.0])] {
            for (got, want) in moments(&x).iter().zip(want) {
                assert!((got - want).abs() < 0.15, "{dtype}: {got} instead of {want}");
            }
        }
    }
}

#[test]
fn categories_come_as_often_as_they_should() {
    let p = [0.1, 0.0, 0.4, 0.5, 0.0];
    let logits: Vec<f32> = p.iter().map(|p: &f64| p.ln() as f32 + 3.0).collect();
    let n = 20_000;
    let (t, _) = draw(RngOptions::default(), |b, key| {
        let x = b.constant(Tensor::from_slice(&[1, 5], &logits).unwrap())?;
        b.random_multinomial(key, x, n, 9)
    });
    assert_eq!(t.dims(), [1, n as usize]);
    let mut counts = [0.0; 5];
    t.as_slice::<i64>().unwrap().iter().for_each(|&c| counts[c as usize] += 1.0);
    for (count, p) in counts.iter().zip(p) {
        let (mean, sigma) = (n as f64 * p, (n as f64 * p * (1.0 - p)).sqrt());
        assert!((count - mean).abs() <= 5.0 * sigma, "{counts:?}");
    }
}

#[test]
fn a_coin_falls_as_its_probability_says() {
    let n = 10_000;
    for p in [0.0f64, 0.2, 1.0] {
        let (t, _) = draw(RngOptions { seed: 1, offset: 0 }, |b, key| {
            let p = b.constant(Tensor::full(DType::F32, &[n], p).unwrap())?;
            b.random_bernoulli(key, p, 0)
        });
        let hits = t.elements().ints().unwrap().iter().filter(|&&x| x != 0).count() as f64;
        let n = n as f64;
        assert!((hits - n * p).abs() <= 5.0 * (n * p * (1.0 - p)).sqrt(), "{hits} at {p}");
    }
}
