//! Traced closures: what they compute, what they record, and how they fail.

use rlx::ir::ops::neural::{Attention, AttnLayout};
use rlx::nn::{LayerNorm, Linear, Sequential};
use rlx::trace::{Trace, Traced};
use rlx::{DType, Module, Tensor, trace};

use crate::harness::{compile, oracle, random, run, same};

/// Compiled and evaluated, and both compared with `want` computed here.
fn gives(module: &Module, inputs: &[(&str, Tensor)], want: &[f32]) {
    let got = run(&compile(module), inputs);
    same(&oracle(module, inputs), &got, "evaluator");
    let got = got[0].as_slice::<f32>().unwrap().to_vec();
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= 1e-5 * (1.0 + w.abs()), "element {i}: {g} for {w}");
    }
}

fn vector(v: &[f32]) -> Tensor {
    Tensor::from_slice(&[v.len()], v).unwrap()
}

#[test]
fn operators_are_what_they_are_on_numbers() {
    let (a, b) = ([1.5f32, -2.0, 0.25, 8.0], [0.5f32, 3.0, -4.0, 2.0]);
    let module = trace("f", [("a", "f32[n]"), ("b", "f32[n]")], |_, [a, b]| {
        let c = (a + b) * (a - b) / (b * b) - a % b;
        2.0 * c + 1 - (3 - a) / 4.0 + (-b) * 0.5
    })
    .unwrap();
    let want: Vec<f32> = a
        .iter()
        .zip(b)
        .map(|(&a, b)| {
            let c = (a + b) * (a - b) / (b * b) - a % b;
            2.0 * c + 1.0 - (3.0 - a) / 4.0 + (-b) * 0.5
        })
        .collect();
    gives(&module, &[("a", vector(&a)), ("b", vector(&b))], &want);
}

#[test]
fn shapes_broadcast_as_in_numpy() {
    let module = trace("f", [("a", "f32[n, 1]"), ("b", "f32[m]")], |_, [a, b]| (a + b).max(&[0], false)).unwrap();
    let a = Tensor::from_slice(&[2, 1], &[1.0f32, 5.0]).unwrap();
    gives(&module, &[("a", a), ("b", vector(&[1.0, 2.0, 3.0]))], &[6.0, 7.0, 8.0]);
    assert_eq!(module.main.ty(module.main.outputs()[0].value).to_string(), "f32[m]");
}

#[test]
fn methods_of_every_kind() {
    let module = trace("f", [("x", "f32[b, s, 6]")], |t, [x]| {
        let [left, right] = x.split(-1, [2, 4]);
        let h = t.concat(&[right, left], 2).swap_axes(1, 2).t();
        let flat = h.reshape([-1, 6]);
        let scores = flat.matmul(flat.t()).softmax(-1);
        let mixed = scores.matmul(flat).reshape([x.dim(0), x.dim(1), 6.into()]);
        let top = mixed.argmax(-1, false).convert(DType::F32).expand_dims(&[-1]);
        let seen = (mixed.gt(x) | mixed.lt(left.slice(2, 0, 1))) & !mixed.is_nan();
        let y = seen.select(mixed, x.clamp(-0.5, 0.5)) + top / 6.0;
        let y = y.maximum(x).minimum(y * 2.0).abs().sqrt() + y.mean(&[1], true);
        let numbered = y + t.arange(x.dim(1)).convert(DType::F32).reshape([-1, 1]);
        t.stack(&[numbered, y.tanh().exp()], 0).sum(&[0], false)
    })
    .unwrap();
    let program = compile(&module);
    for dims in [[1, 1, 6], [2, 5, 6]] {
        let inputs = [("x", random(7, &dims))];
        let got = run(&program, &inputs);
        assert_eq!(got[0].dims(), dims);
        same(&oracle(&module, &inputs), &got, "methods");
    }
}

#[test]
fn composites_are_recorded_whole() {
    let module = trace("f", [("x", "f32[b, s, 2, 4]")], |t, [x]| {
        let (scale, bias) = (t.param("scale", "f32[4]"), t.param("bias", "f32[4]"));
        let op = Attention { causal: true, ..Attention::new(AttnLayout::Bshd, 0.5) };
        x.attention(op, x, x, None).layer_norm(scale, bias, 1e-5).gelu().rms_norm(scale, 1e-6).log_softmax(-1)
    })
    .unwrap();
    let ops: Vec<&str> = module.main.nodes().iter().map(|n| n.op.name()).collect();
    assert_eq!(ops, ["attention", "layer_norm", "gelu", "rms_norm", "softmax"]);
    assert!(module.main.nodes().iter().all(|n| n.loc.name().is_some_and(|l| l.contains("traced.rs:"))));
}

#[test]
fn blocks_apply_to_traced_values() {
    let block = Sequential::new().then(Linear::new(4, 4)).then(LayerNorm::new(4));
    let module = Trace::new("f")
        .run_many([("x", "f32[n, 4]")], |t, [x]| {
            let y = x.through("body", &block);
            let z = t.block("head", &[y], |s, v| rlx::nn::Layer::apply(&Linear::new(4, 2), s, v[0]));
            vec![("y", y), ("z", z)]
        })
        .unwrap();
    let names: Vec<String> = module.main.params().iter().map(|p| p.name.to_string()).collect();
    assert_eq!(names, ["body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias", "head.weight", "head.bias"]);
    let outputs: Vec<String> = module.main.outputs().iter().map(|o| o.name.to_string()).collect();
    assert_eq!(outputs, ["y", "z"]);
}

#[test]
fn all_problems_are_reported_once_each_with_their_places() {
    let first = line!() + 3;
    let e = trace("f", [("x", "f32[n, 4]"), ("y", "f32[n, 5]")], |t, [x, y]| {
        let ids = t.arange(4);
        let bad = x + y;
        let after = bad.exp().matmul(bad) * 3.0;
        let worse = ids * 0.5;
        let mixed = x.take(ids, 1) + ids;
        let w = t.param("w", "f32[4, oops");
        after.reshape([x.dim(2)]) + worse + mixed + w
    })
    .unwrap_err();
    let lines: Vec<u32> = e.problems.iter().map(|p| p.place.line()).collect();
    assert_eq!(lines, [first, first + 2, first + 3, first + 4, first + 5], "{e}");
    assert!(e.problems.iter().all(|p| p.place.file().ends_with("traced.rs")));
    let text = e.to_string();
    for word in ["5 problem", "f32[n, 4]", "f32[n, 5]", "0.5", "convert", "f32[4, oops", "axis 2"] {
        assert!(text.contains(word), "{word} in {text}");
    }
}

#[test]
fn the_place_is_the_line_of_the_operator() {
    fn helper<'t>(a: Traced<'t>, b: Traced<'t>) -> Traced<'t> {
        a.matmul(b)
    }
    let e = trace("f", [("x", "f32[3, 4]")], |_, [x]| helper(x, x)).unwrap_err();
    assert_eq!(e.problems.len(), 1);
    assert!(e.to_string().contains("f32[3, 4]"), "{e}");
}

#[test]
fn types_that_cannot_be_read_are_problems() {
    for ty in ["", "f32", "f32[", "f99[2]", "f32[2,,3]", "f32[2 3]", "f32]2["] {
        let e = trace("f", [("x", ty)], |_, [x]| x).unwrap_err();
        assert!(e.to_string().contains("no type such as"), "{ty}: {e}");
    }
    for (ty, want) in [("f32[]", "f32[]"), (" i64 [ 2*n , m + 1 ] ", "i64[2*n, m + 1]")] {
        let module = trace("f", [("x", ty)], |_, [x]| x).unwrap();
        assert_eq!(module.main.ty(module.main.inputs()[0]).to_string(), want);
    }
}

#[test]
fn values_of_another_trace_are_refused() {
    let mut inner_error = None;
    trace("outer", [("x", "f32[n]")], |_, [x]| {
        inner_error = trace("inner", [("y", "f32[n]")], |t, [y]| t.custom(&[y], |b, v| b.exp(v[0])) + 1.0).err();
        assert!(inner_error.is_none());
        inner_error = trace("inner", [("y", "f32[n]")], |t, [_]| {
            t.custom(&[x], |b, v| b.exp(v[0]));
            t.constant(Tensor::scalar(1.0f32))
        })
        .err();
        x
    })
    .unwrap();
    assert!(inner_error.unwrap().to_string().contains("another trace"));
}

#[test]
fn a_trace_of_no_inputs_and_of_constants() {
    let module = Trace::new("f")
        .run_many([] as [(&str, &str); 0], |t, []| vec![("three", t.constant(Tensor::scalar(1i64)) + 2)])
        .unwrap();
    let got = run(&compile(&module), &[]);
    assert_eq!(*got[0].as_slice::<i64>().unwrap(), [3]);
}

#[test]
fn weights_bind_by_name() {
    let weights = [("w", Tensor::from_slice(&[2], &[2.0f32, 3.0]).unwrap())].into_iter().collect();
    let module = Trace::new("f").with_weights(weights).run([("x", "f32[2]")], |t, [x]| x * t.param("w", "f32[2]"));
    gives(&module.unwrap(), &[("x", vector(&[10.0, 10.0]))], &[20.0, 30.0]);
    let none = Trace::new("f").with_weights(Default::default());
    let e = none.run([("x", "f32[2]")], |t, [x]| x * t.param("w", "f32[2]")).unwrap_err();
    assert!(e.to_string().contains("`w` (f32[2]) is missing"), "{e}");
}
