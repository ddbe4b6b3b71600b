//! What is wrong with blocks is a typed error that names path, types and what to do; what is wrong with weights is one error.

use rlx::nn::{
    Activation, Attention, Conv, GroupNorm, Gru, Layer, LayerNorm, Linear, Mlp, Net, NnError, Rotary, WeightProblem,
    Weights,
};
use rlx::{DType, Dim, Tensor};

fn refused(layer: &dyn Layer, dtype: DType, shape: &[Dim]) -> String {
    let mut net = Net::new("main");
    let x = net.input("x", dtype, shape).unwrap();
    layer.apply(&mut net.at("encoder.part"), x).unwrap_err().to_string()
}

/// A layer, the dtype and shape that it is applied to, and words of the error.
type Refused = (Box<dyn Layer>, DType, Vec<Dim>, &'static [&'static str]);

#[test]
fn errors_name_path_types_and_sizes() {
    let (n, eight) = (Dim::symbol("n"), Dim::from(8));
    let cases: [Refused; 9] = [
        (
            Box::new(Linear::new(4, 2)),
            DType::F32,
            vec![n.clone(), eight.clone()],
            &["linear", "4 features", "f32[n, 8]"],
        ),
        (Box::new(Linear::new(4, 2)), DType::F32, vec![], &["4 features", "f32[]"]),
        (
            Box::new(Linear::new(8, 2)),
            DType::F16,
            vec![n.clone(), eight.clone()],
            &["linear", "f16[n, 8]", "dot_general"],
        ),
        (Box::new(LayerNorm::new(8)), DType::I32, vec![n.clone(), eight.clone()], &["layer norm", "i32[n, 8]"]),
        (Box::new(GroupNorm::new(3, 8)), DType::F32, vec![n.clone(), eight.clone()], &["8 channels", "3 groups"]),
        (Box::new(Conv::new(8, 6, &[3]).groups(4)), DType::F32, vec![n.clone()], &["6", "4 groups"]),
        (
            Box::new(Conv::new(8, 6, &[3])),
            DType::F32,
            vec![n.clone(), 5.into(), n.clone()],
            &["convolution", "f32[n, 5, n]"],
        ),
        (
            Box::new(Attention::new(8, 4).kv_heads(3)),
            DType::F32,
            vec![n.clone(), n.clone(), eight.clone()],
            &["4 query heads", "3 key heads"],
        ),
        (Box::new(Gru::new(8, 3)), DType::F32, vec![n.clone(), eight.clone()], &["GRU", "[batch, sequence, features]"]),
    ];
    for (layer, dtype, shape, words) in cases {
        let message = refused(layer.as_ref(), dtype, &shape);
        assert!(message.contains("encoder.part"), "{message}");
        assert!(words.iter().all(|w| message.contains(w)), "{words:?} in {message}");
    }
}

#[test]
fn nothing_panics_on_absurd_sizes() {
    let shape = [Dim::symbol("b"), Dim::symbol("s"), Dim::from(8)];
    let layers: Vec<Box<dyn Layer>> = vec![
        Box::new(Attention::new(8, 0)),
        Box::new(Attention::new(8, 2).kv_heads(0)),
        Box::new(Attention::new(8, 16)),
        Box::new(Conv::new(8, 8, &[]).groups(0)),
        Box::new(Conv::new(8, 8, &[0]).stride(0)),
        Box::new(Conv::new(8, 8, &[1, 1]).padding_of(&[1], &[])),
        Box::new(Gru::new(8, 0)),
        Box::new(Gru::new(8, 2).layers(0)),
        Box::new(GroupNorm::new(0, 8)),
        Box::new(Linear::new(usize::MAX, 2)),
        Box::new(Mlp::new(8, usize::MAX, Activation::Relu)),
    ];
    for l in layers {
        let mut net = Net::new("main");
        let x = net.input("x", DType::F32, &shape).unwrap();
        // Either an error or a graph; never a panic.
        if let Err(e) = l.apply(&mut net.at("p"), x) {
            assert!(e.to_string().contains('p'), "{e}");
        }
    }
    let mut net = Net::new("main");
    for d in [0, 3] {
        let e = Rotary::new(d).tables(&mut net.at("r"), 4).unwrap_err();
        assert!(matches!(e, NnError::Sizes { .. }), "{e}");
    }
}

#[test]
fn one_path_is_one_parameter_of_one_type() {
    let mut net = Net::new("main");
    let x = net.input("x", DType::F32, [Dim::symbol("n"), Dim::from(4)]).unwrap();
    Linear::new(4, 2).apply(&mut net.at("head"), x).unwrap();
    Linear::new(4, 2).apply(&mut net.at("head"), x).unwrap();
    assert_eq!(net.params().count(), 2);
    let e = Linear::new(4, 3).apply(&mut net.at("head"), x).unwrap_err();
    assert!(matches!(&e, NnError::Shared { path, .. } if path == "head.weight"), "{e}");
    assert!(e.to_string().contains("f32[2, 4]") && e.to_string().contains("f32[3, 4]"), "{e}");
}

#[test]
fn all_weights_that_do_not_fit_are_one_error() {
    let weights: Weights = [
        ("a.weight", Tensor::zeros(DType::F32, &[2, 4]).unwrap()),
        ("a.bias", Tensor::zeros(DType::F16, &[2]).unwrap()),
        ("b.weight", Tensor::zeros(DType::F32, &[2, 3]).unwrap()),
        ("other", Tensor::zeros(DType::F32, &[1]).unwrap()),
    ]
    .into_iter()
    .collect();
    let mut net = Net::new("main").with_weights(weights);
    let x = net.input("x", DType::F32, [Dim::symbol("n"), Dim::from(4)]).unwrap();
    for part in ["a", "b"] {
        let y = Linear::new(4, 2).apply(&mut net.at(part), x).unwrap();
        net.output(part, y).unwrap();
    }
    assert_eq!(net.unused_weights(), ["other"]);
    let e = net.finish().unwrap_err();
    let NnError::Weights(problems) = &e else { panic!("{e}") };
    assert_eq!(problems.len(), 3, "{e}");
    assert!(matches!(&problems[0], WeightProblem::Type { path, .. } if path == "a.bias"));
    assert!(matches!(&problems[2], WeightProblem::Missing { path, .. } if path == "b.bias"));
    assert!(e.to_string().contains("`b.weight` must be f32[2, 4], the weight is f32[2, 3]"), "{e}");
}
