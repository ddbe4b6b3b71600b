//! A transformer of two layers with symbolic batch and sequence.

use rlx::ir::ops::elementwise::Unary;
use rlx::ir::ops::neural::{Attention, AttnLayout, MaskKind};
use rlx::ir::{IrError, ValueId};
use rlx::{Builder, DType, Dim, Module, Tensor};

use crate::harness::{Once, ids, random, rows, same};

const WIDTH: usize = 32;
const HEADS: usize = 4;
const WORDS: usize = 50;

/// `x · w + b` with new parameters.
fn linear(b: &mut Builder, x: ValueId, name: &str, from: usize, to: usize) -> Result<ValueId, IrError> {
    let seed = name.bytes().fold(7u64, |s, c| s.wrapping_mul(31) + u64::from(c));
    let weights: Vec<f32> = random(seed, &[from, to]).as_slice::<f32>().unwrap().iter().map(|x| x * 0.2).collect();
    let w = b.param_with(&format!("{name}.weight"), Tensor::from_slice(&[from, to], &weights).unwrap())?;
    let bias = b.param_with(&format!("{name}.bias"), random(seed + 1, &[to]))?;
    let y = b.matmul(x, w)?;
    b.add(y, bias)
}

fn layer(b: &mut Builder, x: ValueId, mask: ValueId, n: usize) -> Result<ValueId, IrError> {
    let (batch, seq) = (Dim::symbol("batch"), Dim::symbol("seq"));
    let normed = b.layer_norm(x, None, None, &[2], 1e-5)?;
    let mut parts = Vec::new();
    for part in ["q", "k", "v"] {
        let y = linear(b, normed, &format!("{n}.{part}"), WIDTH, WIDTH)?;
        parts.push(b.reshape(y, [batch.clone(), seq.clone(), HEADS.into(), (WIDTH / HEADS).into()])?);
    }
    let attention = Attention {
        layout: AttnLayout::Bshd,
        scale: rlx::ir::attr::FloatBits::new(1.0 / ((WIDTH / HEADS) as f64).sqrt()),
        causal: false,
        window: None,
        softcap: None,
        mask: MaskKind::Bool,
    };
    let y = b.op1(attention, &[parts[0], parts[1], parts[2], mask])?;
    let y = b.reshape(y, [batch, seq, WIDTH.into()])?;
    let y = linear(b, y, &format!("{n}.out"), WIDTH, WIDTH)?;
    let x = b.add(x, y)?;
    let y = b.layer_norm(x, None, None, &[2], 1e-5)?;
    let y = linear(b, y, &format!("{n}.up"), WIDTH, 2 * WIDTH)?;
    let y = b.op1(Unary::Gelu, &[y])?;
    let y = linear(b, y, &format!("{n}.down"), 2 * WIDTH, WIDTH)?;
    b.add(x, y)
}

fn transformer() -> Module {
    let build = || -> Result<Module, IrError> {
        let mut b = Builder::new("main");
        let (batch, seq) = (Dim::symbol("batch"), Dim::symbol("seq"));
        let words = b.input("ids", DType::I64, [batch.clone(), seq.clone()])?;
        let seen = b.input("mask", DType::Bool, [batch.clone(), seq.clone()])?;
        let table = b.param_with("table", random(1, &[WORDS, WIDTH]))?;
        let mut x = b.gather(table, words, 0)?;
        let mask = b.reshape(seen, [batch, Dim::ONE, Dim::ONE, seq])?;
        for n in 0..2 {
            x = layer(&mut b, x, mask, n)?;
        }
        let y = b.layer_norm(x, None, None, &[2], 1e-5)?;
        b.output("y", y)?;
        Ok(Module::from_graph(b.finish()))
    };
    build().unwrap()
}

/// Words, of which the last third is padding in every second row.
fn sentences(batch: usize, seq: usize) -> Vec<Tensor> {
    let mask: Vec<bool> = (0..batch * seq).map(|i| (i / seq).is_multiple_of(2) || i % seq < seq - seq / 3).collect();
    vec![ids((batch * 1000 + seq) as u64, &[batch, seq], WORDS), Tensor::from_bools(&[batch, seq], &mask).unwrap()]
}

#[test]
fn one_transformer_serves_all_shapes() {
    let once = Once::new(transformer());
    for (batch, seq) in [(1, 16), (8, 128), (3, 77), (1, 1), (2, 17), (5, 3)] {
        let got = once.check(&sentences(batch, seq), &format!("{batch}x{seq}"));
        assert_eq!(got[0].dims(), [batch, seq, WIDTH]);
    }
    once.compiled_once();
}

#[test]
fn nothing_is_no_special_case() {
    let once = Once::new(transformer());
    for (batch, seq) in [(0, 5), (3, 0), (0, 0)] {
        let inputs =
            vec![ids(1, &[batch, seq], WORDS), Tensor::from_bools(&[batch, seq], &vec![true; batch * seq]).unwrap()];
        assert_eq!(once.run(&inputs)[0].dims(), [batch, seq, WIDTH]);
    }
    once.compiled_once();
}

#[test]
fn rows_of_a_batch_are_what_they_are_alone() {
    let once = Once::new(transformer());
    let inputs = sentences(4, 33);
    let together = once.run(&inputs);
    for i in 0..4 {
        let alone: Vec<Tensor> = inputs.iter().map(|t| rows(t, i, 1)).collect();
        same(&[rows(&together[0], i, 1)], &once.run(&alone), &format!("row {i}"));
    }
    once.compiled_once();
}

#[test]
fn memory_grows_with_the_sequence_and_not_with_its_square() {
    let mut once = Once::new(transformer());
    let (short, long) =
        (once.arena(&[("batch", 1), ("seq", 2048)]) as f64, once.arena(&[("batch", 1), ("seq", 4096)]) as f64);
    assert!((1.9..2.1).contains(&(long / short)), "{short} bytes at 2048, {long} at 4096");
    // A matrix of scores would need 4 bytes for each pair and head.
    assert!(long < (4096 * 4096 * HEADS * 4) as f64 / 8.0, "{long} bytes");
    once.compiled_once();
}

#[test]
fn two_shapes_in_turn_are_bound_twice() {
    let once = Once::new(transformer());
    once.alternate(&sentences(1, 16), &sentences(2, 9));
    once.compiled_once();
}

#[test]
fn parameters_may_be_set_between_runs() {
    let mut once = Once::new(transformer());
    let inputs = sentences(2, 11);
    let before = once.check(&inputs, "as built");
    let table = random(99, &[WORDS, WIDTH]);
    let weight = random(98, &[WIDTH, WIDTH]);
    once.program.set_param_shaped("table", table.clone()).unwrap();
    once.program.set_param("1.v.weight", &weight.as_slice::<f32>().unwrap()).unwrap();
    let after = once.run(&inputs);
    same(&once.oracle(&inputs, &[("table", table), ("1.v.weight", weight)]), &after, "set");
    assert_ne!(before, after);
    once.compiled_once();
}
