//! Blocks against NumPy in f64.

use rlx::nn::{
    Activation, Attention, AttentionInputs, AttentionMask, DepthwiseSeparable, GatedMlp, GroupNorm, Gru, Layer, Lstm,
    Net, NnError, RmsNorm, Rotary,
};
use rlx::{DType, Dim, Module};

use crate::harness::Case;

fn net(case: &Case) -> Net {
    Net::new("main").with_weights(case.params.clone())
}

fn symbols<const N: usize>(names: [&str; N]) -> [Dim; N] {
    names.map(|n| n.parse::<i64>().map_or_else(|_| Dim::symbol(n), Dim::from))
}

fn check(name: &str, build: impl FnOnce(&Case) -> Result<Module, NnError>) {
    let case = Case::fixture(name);
    let module = build(&case).unwrap_or_else(|e| panic!("{name}: {e}"));
    case.check(&module, name);
}

#[test]
fn lstm_of_two_layers_in_both_directions_from_given_states() {
    check("lstm", |case| {
        let mut net = net(case);
        let x = net.input("x", DType::F32, symbols(["b", "t", "3"]))?;
        let h0 = net.input("h0", DType::F32, symbols(["4", "b", "4"]))?;
        let c0 = net.input("c0", DType::F32, symbols(["4", "b", "4"]))?;
        let block = Lstm::new(3, 4).layers(2).bidirectional(true);
        let out = block.run(&mut net.at(""), x, Some(h0), Some(c0))?;
        net.output("y", out.y)?;
        net.output("h", out.h)?;
        net.output("c", out.c)?;
        net.finish()
    });
}

#[test]
fn gru() {
    check("gru", |case| {
        let mut net = net(case);
        let x = net.input("x", DType::F32, symbols(["b", "t", "2"]))?;
        let (y, h) = Gru::new(2, 3).run(&mut net.at(""), x, None)?;
        net.output("y", y)?;
        net.output("h", h)?;
        net.finish()
    });
}

#[test]
fn reordered_gates_are_prepared() {
    let case = Case::fixture("gru");
    let mut net = net(&case);
    let x = net.input("x", DType::F32, symbols(["b", "t", "2"])).unwrap();
    let y = Gru::new(2, 3).apply(&mut net.at(""), x).unwrap();
    net.output("y", y).unwrap();
    let program = crate::harness::compile(&net.finish().unwrap());
    let kinds: Vec<&str> = program.report().kernels.iter().map(|(k, _)| k.as_str()).collect();
    assert!(kinds.contains(&"gru"), "{kinds:?}");
    crate::harness::run(&program, &case.inputs()[..1]);
    assert_eq!(program.stats().prepares, 1);
}

#[test]
fn depthwise_separable_convolution() {
    let case = Case::fixture("separable");
    let mut net = net(&case);
    let x = net.input("x", DType::F32, symbols(["n", "4", "h", "w"])).unwrap();
    let y = DepthwiseSeparable::new(4, 5, &[3, 3], 2, Activation::Relu).apply(&mut net.at(""), x).unwrap();
    net.output("y", y).unwrap();
    let program = case.check(&net.finish().unwrap(), "separable");
    // Normalisation and activation are part of the convolutions.
    assert_eq!(program.report().kernels, [("conv".to_string(), 2)]);
}

#[test]
fn grouped_attention_with_rotary_embedding_and_a_causal_window() {
    let case = Case::fixture("attention");
    let mut net = net(&case);
    let x = net.input("x", DType::F32, symbols(["b", "s", "12"])).unwrap();
    let tables = Rotary::new(2).tables(&mut net.at("rotary"), Dim::symbol("s")).unwrap();
    let block = Attention::new(12, 4)
        .kv_heads(2)
        .head_dim(4)
        .bias(false, false)
        .causal(true)
        .window(3)
        .names(["q_proj", "k_proj", "v_proj", "o_proj"]);
    let y = block.attend(&mut net.at(""), AttentionInputs::new(x).rotary(tables)).unwrap();
    net.output("y", y).unwrap();
    let program = case.check(&net.finish().unwrap(), "attention");
    let kinds = &program.report().kernels;
    assert!(kinds.contains(&("attention".to_string(), 1)), "{kinds:?}");
}

#[test]
fn attention_to_a_context_with_a_bias() {
    check("cross_attention", |case| {
        let mut net = net(case);
        let x = net.input("x", DType::F32, symbols(["b", "s", "8"]))?;
        let context = net.input("context", DType::F32, symbols(["b", "t", "6"]))?;
        let bias = net.input("bias", DType::F32, symbols(["1", "2", "s", "t"]))?;
        let inputs = AttentionInputs::new(x).context(context).mask(AttentionMask::Bias(bias));
        let y = Attention::new(8, 2).context_width(6).attend(&mut net.at(""), inputs)?;
        net.output("y", y)?;
        net.finish()
    });
}

#[test]
fn gated_mlp_behind_rms_norm() {
    check("gated_mlp", |case| {
        let mut net = net(case);
        let x = net.input("x", DType::F32, symbols(["b", "s", "4"]))?;
        let h = RmsNorm::new(4).apply(&mut net.at("norm"), x)?;
        let h = GatedMlp::new(4, 6, Activation::Silu).apply(&mut net.at("mlp"), h)?;
        let y = net.builder().add(x, h)?;
        net.output("y", y)?;
        net.finish()
    });
}

#[test]
fn group_norm() {
    check("group_norm", |case| {
        let mut net = net(case);
        let x = net.input("x", DType::F32, symbols(["n", "6", "h", "w"]))?;
        let y = GroupNorm::new(3, 6).apply(&mut net.at(""), x)?;
        net.output("y", y)?;
        net.finish()
    });
}
