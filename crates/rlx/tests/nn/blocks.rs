//! Every block declares what it says, and computes what the evaluator does, at several shapes.

use rlx::ir::ValueId;
use rlx::nn::{
    Activation, Attention, AttentionInputs, AttentionMask, BatchNorm, Block, Conv, ConvBlock, DepthwiseSeparable,
    Embedding, GatedMlp, GroupNorm, Gru, Layer, LayerNorm, Linear, Lstm, Mlp, Net, NnError, RmsNorm, Rotary, Scope,
    Sequential, Weights,
};
use rlx::{DType, Dim, Module, Tensor};

use crate::harness::{compile, oracle, random, run, same};

/// Weights that fit a block at a path, small so that sums stay near 1.
fn weights(block: &dyn Block, path: &str) -> Weights {
    let name = |n: &str| if path.is_empty() { n.to_string() } else { format!("{path}.{n}") };
    let values = block.params(DType::F32).into_iter().enumerate().map(|(i, p)| {
        let dims = p.ty.shape.as_static().unwrap();
        let drawn = random(i as u64 + 1, &dims);
        let v = drawn.as_slice::<f32>().unwrap();
        // A variance is positive.
        let v: Vec<f32> =
            v.iter().map(|x| if p.name.ends_with("running_var") { 1.0 + x.abs() } else { x * 0.5 }).collect();
        (name(&p.name), Tensor::from_slice(&dims, &v).unwrap())
    });
    values.collect()
}

/// Applies a layer at `part` of a net with fitting weights; checks the parameters it declared.
fn module(layer: &dyn Layer, dtype: DType, shape: &[Dim]) -> Module {
    let mut net = Net::new("main").with_weights(weights(layer, "part"));
    let x = net.input("x", dtype, shape).unwrap();
    let y = layer.apply(&mut net.at("part"), x).unwrap_or_else(|e| panic!("{e}"));
    net.output("y", y).unwrap();
    let declared: Vec<(String, String)> = net.params().map(|(n, t)| (n.to_string(), t.to_string())).collect();
    let said: Vec<(String, String)> =
        layer.params(DType::F32).iter().map(|p| (format!("part.{}", p.name), p.ty.to_string())).collect();
    assert_eq!(declared, said, "parameters of {}", layer.kind());
    assert!(net.unused_weights().is_empty());
    let module = net.finish().unwrap();
    let places: Vec<&str> = module.main.nodes().iter().filter_map(|n| n.loc.name()).collect();
    assert!(places.iter().all(|p| p.starts_with("part")), "{places:?}");
    module
}

fn agrees(layer: &dyn Layer, shape: [Dim; 3], sizes: &[[usize; 3]]) {
    let module = module(layer, DType::F32, &shape);
    let program = compile(&module);
    for (i, dims) in sizes.iter().enumerate() {
        let inputs = [("x", random(100 + i as u64, dims))];
        same(&oracle(&module, &inputs), &run(&program, &inputs), &format!("{} on {dims:?}", layer.kind()));
    }
}

#[test]
fn blocks_over_features() {
    let layers: Vec<Box<dyn Layer>> = vec![
        Box::new(Linear::new(8, 5)),
        Box::new(Linear::new(8, 5).bias(false)),
        Box::new(Linear::new(8, 5).transposed(true)),
        Box::new(LayerNorm::new(8)),
        Box::new(LayerNorm::new(8).bias(false).eps(1e-3)),
        Box::new(LayerNorm::new(8).affine(false)),
        Box::new(RmsNorm::new(8)),
        Box::new(RmsNorm::new(8).weight(false)),
        Box::new(Mlp::new(8, 12, Activation::Gelu)),
        Box::new(Mlp::new(8, 12, Activation::Relu6).bias(false).transposed(true)),
        Box::new(GatedMlp::new(8, 12, Activation::Silu)),
        Box::new(GatedMlp::new(8, 12, Activation::GeluTanh).bias(true)),
        Box::new(Attention::new(8, 2)),
        Box::new(Attention::new(8, 4).kv_heads(2).bias(false, true).causal(true)),
        Box::new(Attention::new(8, 4).kv_heads(1).window(2)),
        Box::new(Attention::new(8, 2).causal(true).window(3).softcap(0.5).scale(0.7)),
        Box::new(Attention::new(8, 3).head_dim(5).transposed(true)),
        Box::new(Lstm::new(8, 3)),
        Box::new(Lstm::new(8, 3).bias(false).bidirectional(true).batch_first(false)),
        Box::new(Gru::new(8, 3).layers(2).bidirectional(true)),
        Box::new(Gru::new(8, 3).bias(false)),
        Box::new(Sequential::new().then(Linear::new(8, 4)).then(Activation::Tanh).then_named("out", Linear::new(4, 2))),
    ];
    for l in &layers {
        let shape = [Dim::symbol("b"), Dim::symbol("s"), Dim::from(8)];
        agrees(l.as_ref(), shape, &[[1, 1, 8], [3, 5, 8], [2, 7, 8]]);
    }
}

#[test]
fn activations() {
    use Activation::{Gelu, GeluTanh, HardSwish, Identity, Relu, Relu6, Sigmoid, Silu, Tanh};
    for a in [Identity, Relu, Relu6, Gelu, GeluTanh, Silu, Sigmoid, Tanh, HardSwish] {
        agrees(&a, ["a", "b", "c"].map(Dim::symbol), &[[2, 3, 9]]);
    }
}

#[test]
fn blocks_over_channels() {
    let layers: Vec<Box<dyn Layer>> = vec![
        Box::new(Conv::new(4, 6, &[3])),
        Box::new(Conv::new(4, 6, &[3]).padding(1).stride(2).bias(false)),
        Box::new(Conv::new(4, 4, &[3]).groups(4).dilation(2).same()),
        Box::new(Conv::new(4, 6, &[2]).padding_of(&[2], &[0]).groups(2)),
        Box::new(ConvBlock::new(Conv::new(4, 6, &[3]).same(), Activation::HardSwish)),
        Box::new(DepthwiseSeparable::new(4, 6, &[3], 2, Activation::Relu6)),
        Box::new(BatchNorm::new(4).eps(1e-3)),
        Box::new(GroupNorm::new(2, 4)),
        Box::new(GroupNorm::new(4, 4).affine(false)),
    ];
    for l in &layers {
        let shape = [Dim::symbol("n"), Dim::from(4), Dim::symbol("w")];
        agrees(l.as_ref(), shape, &[[1, 4, 6], [2, 4, 11]]);
    }
}

#[test]
fn embedding_and_its_transpose_share_a_table() {
    let table = Embedding::new(7, 4);
    let mut net = Net::new("main").with_weights(weights(&table, "tokens"));
    let ids = net.input("ids", DType::I64, [Dim::symbol("b"), Dim::symbol("s")]).unwrap();
    let x = table.apply(&mut net.at("tokens"), ids).unwrap();
    let places = table.first(&mut net.at("tokens"), Dim::symbol("s")).unwrap();
    let x = net.builder().add(x, places).unwrap();
    let y = table.tied().apply(&mut net.at("tokens"), x).unwrap();
    net.output("y", y).unwrap();
    assert_eq!(net.params().count(), 1);
    let module = net.finish().unwrap();
    let program = compile(&module);
    let inputs = [("ids", Tensor::from_slice(&[2, 3], &[0i64, 6, 3, 1, 1, -1]).unwrap())];
    let got = run(&program, &inputs);
    assert_eq!(got[0].dims(), [2, 3, 7]);
    same(&oracle(&module, &inputs), &got, "tied");
    // More positions than the table has.
    let long = Tensor::from_slice(&[1, 8], &[0i64; 8]).unwrap();
    assert!(program.run_tensors(&[("ids", &long)]).unwrap_err().to_string().contains('7'));
}

/// Attention with a mask made by `mask` from a boolean or float input.
fn masked(
    block: &Attention,
    dtype: DType,
    shape: &[Dim],
    mask: fn(ValueId) -> AttentionMask,
    data: Tensor,
) -> (Tensor, Tensor) {
    let mut net = Net::new("main").with_weights(weights(block, ""));
    let x = net.input("x", DType::F32, [Dim::symbol("b"), Dim::symbol("s"), Dim::from(8)]).unwrap();
    let m = net.input("mask", dtype, shape).unwrap();
    let y = block.attend(&mut net.at(""), AttentionInputs::new(x).mask(mask(m))).unwrap_or_else(|e| panic!("{e}"));
    net.output("y", y).unwrap();
    let module = net.finish().unwrap();
    let program = compile(&module);
    let kinds = &program.report().kernels;
    assert!(kinds.contains(&("attention".to_string(), 1)), "{kinds:?}");
    let inputs = [("x", random(5, &[2, 4, 8])), ("mask", data)];
    let got = run(&program, &inputs);
    same(&oracle(&module, &inputs), &got, "masked attention");
    (got.into_iter().next().unwrap(), inputs.into_iter().next().unwrap().1)
}

#[test]
fn masks_of_every_kind() {
    let block = Attention::new(8, 2).causal(true);
    let (b, s) = (Dim::symbol("b"), Dim::symbol("s"));
    let rows = Tensor::from_bools(&[2, 4], &[true, true, true, true, true, true, false, false]).unwrap();
    let (padding, _) = masked(&block, DType::Bool, &[b.clone(), s.clone()], AttentionMask::Padding, rows);
    let wide: Vec<bool> = (0..2 * 4 * 4).map(|i| i / 16 == 0 || i % 4 < 2).collect();
    let wide = Tensor::from_bools(&[2, 1, 4, 4], &wide).unwrap();
    let shape = [b.clone(), Dim::ONE, s.clone(), s.clone()];
    let (custom, _) = masked(&block, DType::Bool, &shape, AttentionMask::Seen, wide);
    let bias: Vec<f32> =
        (0..2 * 4 * 4).map(|i| if i / 16 == 0 || i % 4 < 2 { 0.0 } else { f32::NEG_INFINITY }).collect();
    let bias = Tensor::from_slice(&[2, 1, 4, 4], &bias).unwrap();
    let (biased, _) = masked(&block, DType::F32, &shape, AttentionMask::Bias, bias);
    // One mask said three ways.
    let padding = [padding];
    same(&padding, &[custom], "padding and custom");
    same(&padding, &[biased], "padding and bias");
}

#[test]
fn rotation_by_given_positions_continues_a_sequence() {
    // Attention to all keys depends on distances only: moving all positions changes nothing.
    let block = Attention::new(8, 2);
    let made = |interleaved: bool| {
        let mut net = Net::new("main").with_weights(weights(&block, ""));
        let x = net.input("x", DType::F32, [Dim::symbol("b"), Dim::symbol("s"), Dim::from(8)]).unwrap();
        let at = net.input("at", DType::I64, [Dim::symbol("b"), Dim::symbol("s")]).unwrap();
        let tables = Rotary::new(4).theta(100.0).interleaved(interleaved).tables_of(&mut net.at("rotary"), at).unwrap();
        let y = block.attend(&mut net.at(""), AttentionInputs::new(x).rotary(tables)).unwrap();
        net.output("y", y).unwrap();
        net.finish().unwrap()
    };
    for interleaved in [false, true] {
        let module = made(interleaved);
        let program = compile(&module);
        let at = |v: [i64; 4]| Tensor::from_slice(&[1, 4], &v).unwrap();
        let with = |v: [i64; 4]| [("x", random(6, &[1, 4, 8])), ("at", at(v))];
        let (first, moved) = (run(&program, &with([0, 1, 2, 3])), run(&program, &with([50, 51, 52, 53])));
        same(&oracle(&module, &with([0, 1, 2, 3])), &first, "rotary");
        same(&first, &moved, "moved");
        let apart = run(&program, &with([0, 5, 9, 30]));
        assert_ne!(first[0].as_slice::<f32>().unwrap(), apart[0].as_slice::<f32>().unwrap());
    }
}

#[test]
fn blocks_in_sixteen_bits() {
    for dtype in [DType::F16, DType::BF16] {
        let mut net = Net::new("main").dtype(dtype);
        let x = net.input("x", dtype, [Dim::symbol("b"), Dim::symbol("s"), Dim::from(8)]).unwrap();
        let tables = Rotary::new(4).tables(&mut net.at("rotary"), Dim::symbol("s")).unwrap();
        let y = Attention::new(8, 2).attend(&mut net.at("a"), AttentionInputs::new(x).rotary(tables)).unwrap();
        let y = RmsNorm::new(8).apply(&mut net.at("n"), y).unwrap();
        net.output("y", y).unwrap();
        assert!(net.params().all(|(_, t)| t.dtype == dtype));
        let module = net.finish().unwrap();
        assert_eq!(module.main.ty(module.main.outputs()[0].value).to_string(), format!("{dtype}[b, s, 8]"));
    }
}

#[test]
fn a_block_of_ones_own() {
    /// `x + gate · mlp(norm(x))`.
    struct Gated(LayerNorm, Mlp);
    impl Block for Gated {
        fn kind(&self) -> &'static str {
            "gated residual"
        }
        fn params(&self, dtype: DType) -> Vec<rlx::nn::ParamSpec> {
            use rlx::nn::ParamSpec;
            ParamSpec::under("norm", self.0.params(dtype))
                .chain(ParamSpec::under("mlp", self.1.params(dtype)))
                .chain([ParamSpec::new("gate", dtype, [1usize])])
                .collect()
        }
    }
    impl Layer for Gated {
        fn apply(&self, scope: &mut Scope<'_>, x: ValueId) -> Result<ValueId, NnError> {
            let y = self.0.apply(&mut scope.at("norm"), x)?;
            let y = self.1.apply(&mut scope.at("mlp"), y)?;
            let gate = scope.param(&rlx::nn::ParamSpec::new("gate", scope.dtype(), [1usize]))?;
            scope.build(self.kind(), &[x, y], |b| {
                let y = b.mul(y, gate)?;
                b.add(x, y)
            })
        }
    }
    let block = Gated(LayerNorm::new(8), Mlp::new(8, 4, Activation::Relu));
    agrees(&block, [Dim::symbol("b"), Dim::symbol("s"), Dim::from(8)], &[[2, 3, 8]]);
}
