//! Section 4: random numbers.

use std::sync::Arc;

use rlx::{Builder, CompileOptions, CompiledGraph, DType, Device, Dim, Graph, Input, RngOptions, Session, Tensor};

use crate::backends::Lesser;
use crate::harness::{compile, numbers, session};

/// Uniform, normal, Bernoulli and multinomial numbers, as many as `x` has rows; `x` is `[n, 3]` log-probabilities.
fn draws() -> Graph {
    let mut b = Builder::new("main");
    let n = Dim::symbol("n");
    let x = b.input("x", DType::F32, [n.clone(), 3.into()]).unwrap();
    let key = b.rng_key().unwrap();
    let u = b.random_uniform(key, DType::F32, [n.clone()], (-1.0, 3.0), 0).unwrap();
    let z = b.random_normal(key, DType::F32, [n.clone()], (2.0, 0.5), 1).unwrap();
    let p = b.scalar(DType::F32, 0.25).unwrap();
    let p = b.broadcast_to(p, [n]).unwrap();
    let c = b.random_bernoulli(key, p, 2).unwrap();
    let m = b.random_multinomial(key, x, 4, 3).unwrap();
    for (name, v) in [("uniform", u), ("normal", z), ("bernoulli", c), ("multinomial", m)] {
        b.output(name, v).unwrap();
    }
    b.finish()
}

fn draw(p: &mut CompiledGraph, n: usize) -> Vec<Tensor> {
    let x = numbers(7, &[n, 3]);
    let out = p.run_borrowed(&[("x", Input::from(&x))]).unwrap();
    out.iter().map(|t| Tensor::from_bytes(t.dtype, t.dims, t.bytes).unwrap()).collect()
}

fn seeded(seed: u64, threads: usize) -> CompiledGraph {
    compile(draws(), &CompileOptions::new().threads(threads).rng(Some(RngOptions { seed, offset: 0 })))
}

#[test]
fn spec_4_rng_gives_the_published_vectors_of_philox() {
    // Salmon et al., Random123: philox4x32-10 of counter 0 under key 0.
    let mut b = Builder::new("main");
    let key = b.rng_key().unwrap();
    let bits = b.random_bits(key, DType::U32, [4], 0).unwrap();
    b.output("bits", bits).unwrap();
    let mut p = compile(b.finish(), &CompileOptions::new());
    let out = p.run_borrowed(&[]).unwrap();
    let words: Vec<u32> =
        out.get(0).unwrap().bytes.chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
    assert_eq!(words, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
}

#[test]
fn spec_4_rng_is_equal_at_every_number_of_threads() {
    const N: usize = 20_000;
    let all: Vec<Vec<Tensor>> = [1, 2, 3, 8].into_iter().map(|t| draw(&mut seeded(5, t), N)).collect();
    assert!(all.iter().all(|a| *a == all[0]));
    assert_ne!(draw(&mut seeded(6, 1), N), all[0]);
}

#[test]
fn spec_4_rng_returns_what_was_set_and_each_run_moves_on() {
    let mut p = seeded(9, 1);
    assert_eq!(p.rng().unwrap(), Some(RngOptions { seed: 9, offset: 0 }));
    let first = draw(&mut p, 10);
    assert_ne!(draw(&mut p, 10), first, "successive runs differ");
    assert_eq!(p.rng().unwrap(), Some(RngOptions { seed: 9, offset: 2 }));
    let set = RngOptions { seed: u64::MAX, offset: 1 << 40 };
    p.set_rng(set).unwrap();
    assert_eq!(p.rng().unwrap(), Some(set));
    p.reset_state("rng").unwrap();
    assert_eq!(p.rng().unwrap(), Some(RngOptions { seed: 9, offset: 0 }));
    assert_eq!(draw(&mut p, 10), first);
}

#[test]
fn spec_4_rng_position_is_saved_restored_and_untouched_by_shape_changes() {
    let mut p = seeded(9, 2);
    draw(&mut p, 3);
    let saved = p.rng().unwrap().unwrap();
    let want: Vec<Vec<Tensor>> = [5, 1000, 5, 2].into_iter().map(|n| draw(&mut p, n)).collect();
    // The position counts runs, whatever their shapes; numbers of a shorter run begin those of a longer one.
    assert_eq!(p.rng().unwrap().unwrap(), RngOptions { seed: 9, offset: saved.offset + 4 });
    let mut q = seeded(1, 1);
    q.set_rng(saved).unwrap();
    assert_eq!([5, 1000, 5, 2].into_iter().map(|n| draw(&mut q, n)).collect::<Vec<_>>(), want);
    let copy = &mut q.clone();
    assert_eq!(draw(copy, 8), draw(&mut q, 8), "a clone starts where the original stands");
}

#[test]
fn spec_4_rng_has_the_distributions_it_names() {
    const N: usize = 40_000;
    let out = draw(&mut seeded(3, 2), N);
    let f = |t: &Tensor| t.as_slice::<f32>().unwrap().iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    let moments = |v: &[f64]| {
        let mean = v.iter().sum::<f64>() / v.len() as f64;
        (mean, v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / v.len() as f64)
    };
    let n = N as f64;
    // Within five deviations of each estimate.
    let (mean, var) = moments(&f(&out[0]));
    assert!((mean - 1.0).abs() < 5.0 * (16.0 / 12.0 / n).sqrt() && (var - 16.0 / 12.0).abs() < 0.05, "{mean} {var}");
    assert!(f(&out[0]).iter().all(|x| (-1.0..=3.0).contains(x)));
    let (mean, var) = moments(&f(&out[1]));
    assert!((mean - 2.0).abs() < 5.0 * (0.25 / n).sqrt() && (var - 0.25).abs() < 0.01, "{mean} {var}");
    let kept = out[2].bytes().iter().filter(|&&b| b == 1).count() as f64;
    assert!((kept - n / 4.0).abs() < 5.0 * (n * 0.1875).sqrt(), "{kept}");
    // Each row has its own log-probabilities: expected counts by softmax in f64.
    let x = f(&numbers(7, &[N, 3]));
    let mut want = [0f64; 3];
    for r in x.chunks(3) {
        let sum: f64 = r.iter().map(|x| x.exp()).sum();
        want.iter_mut().zip(r).for_each(|(w, x)| *w += 4.0 * x.exp() / sum);
    }
    let mut got = [0f64; 3];
    out[3].as_slice::<i64>().unwrap().iter().for_each(|&c| got[c as usize] += 1.0);
    assert!(got.iter().zip(want).all(|(g, w)| (g - w).abs() < 5.0 * (4.0 * n * 0.25).sqrt()), "{got:?} {want:?}");
}

#[test]
fn spec_4_rng_starts_as_the_options_say_for_static_and_dynamic_graphs() {
    let start = RngOptions { seed: 77, offset: 3 };
    let o = CompileOptions::new().rng(Some(start));
    let mut dynamic = compile(draws(), &o);
    let mut fixed = compile(draws(), &o.clone().bind_dim("n", 6));
    assert_eq!((dynamic.rng().unwrap(), fixed.rng().unwrap()), (Some(start), Some(start)));
    let want = draw(&mut dynamic, 6);
    assert_eq!(draw(&mut fixed, 6), want);
    // And where each shape is compiled on its own.
    rlx::register_backend(Device::Hexagon, Arc::new(Lesser { symbolic: false, ..Lesser::new("fixed") }));
    let mut p = Session::new(Device::Hexagon).unwrap().compile_with(draws(), &o).unwrap();
    assert_eq!(p.rng().unwrap(), Some(start));
    assert_eq!(draw(&mut p, 6), want);
    draw(&mut p, 2);
    assert_eq!(p.rng().unwrap(), Some(RngOptions { seed: 77, offset: 5 }));
    assert_eq!(draw(&mut dynamic, 2).len(), 4);
    assert_eq!(draw(&mut p, 6), draw(&mut dynamic, 6));
}

#[test]
fn spec_4_rng_of_a_program_that_draws_nothing() {
    let mut p = session().compile(crate::harness::dense()).unwrap();
    assert_eq!(p.rng().unwrap(), None);
    assert!(p.set_rng(RngOptions::default()).unwrap_err().to_string().contains("no random numbers"));
}
