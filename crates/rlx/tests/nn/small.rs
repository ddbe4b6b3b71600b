//! One small transformer made three ways: with blocks, traced, and from an ONNX file. Against NumPy in f64.

use crate::bert::{Bert, weights_of};
use crate::harness::{Case, compile, here, kernels, run, same};
use rlx::Module;

const SIZES: Bert = Bert { words: 23, positions: 12, width: 16, heads: 2, hidden: 24, layers: 2, eps: 1e-5 };

pub fn three() -> [(&'static str, Module); 3] {
    let path = here().join("fixtures/transformer.onnx");
    let onnx = rlx::onnx::load(path, &rlx::onnx::ImportOptions::default()).unwrap().module;
    let weights = weights_of(&onnx);
    let blocks = SIZES.blocks(weights.clone()).unwrap_or_else(|e| panic!("{e}"));
    let traced = SIZES.traced(weights).unwrap_or_else(|e| panic!("{e}"));
    [("onnx", onnx), ("blocks", blocks), ("traced", traced)]
}

#[test]
fn all_ways_of_making_it_give_the_same() {
    let case = Case::fixture("transformer");
    let programs = three().map(|(name, module)| (name, case.check(&module, name)));
    let want = kernels(&programs[0].1);
    for (name, program) in &programs {
        assert_eq!(kernels(program), want, "kernels of {name}");
    }
}

#[test]
fn all_ways_serve_all_shapes() {
    let programs = three().map(|(name, module)| (name, compile(&module)));
    for (batch, seq) in [(1, 1), (2, 12), (5, 3)] {
        let ids = (0..batch * seq).map(|i| (i * 7 % SIZES.words) as i64).collect::<Vec<_>>();
        let ones = vec![1i64; batch * seq];
        let of = |v: &[i64]| rlx::Tensor::from_slice(&[batch, seq], v).unwrap();
        let inputs = [("input_ids", of(&ids)), ("attention_mask", of(&ones)), ("token_type_ids", of(&ones))];
        let want = run(&programs[0].1, &inputs);
        for (name, program) in &programs[1..] {
            same(&want, &run(program, &inputs), &format!("{name} {batch}x{seq}"));
        }
    }
}
