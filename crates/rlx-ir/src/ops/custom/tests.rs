use super::*;
use crate::attr::AttrValue as _;
use crate::dtype::DType;
use crate::eval::{EvalInputs, evaluate};
use crate::graph::Module;
use crate::op::EvalOptions;
use crate::tensor::Tensor;

/// `x · k`, element by element.
struct Scale;

impl CustomRules for Scale {
    fn infer(&self, attributes: &Attributes, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        attributes.float("k").ok_or_else(|| OpError::new("attribute `k` is missing"))?;
        let t = cx.tensor(0)?.clone();
        cx.result(t.dtype, t.shape);
        Ok(())
    }

    fn eval(&self, attributes: &Attributes, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = crate::op::arg(args, 0)?;
        let k = attributes.float("k").unwrap_or(1.0);
        let y: Vec<f64> = x.elements().to_f64().unwrap_or_default().iter().map(|v| v * k).collect();
        Ok(vec![Tensor::from_elements(x.dtype(), x.dims(), &crate::element::Elements::Float(y))?.into()])
    }
}

#[test]
fn attributes_read_back_as_they_print() {
    let all = Attributes::new()
        .with("i", -3)
        .with("x", 0.5)
        .with("whole", 2.0)
        .with("inf", f64::NEG_INFINITY)
        .with("s", "a \"quoted\" word, with = and }")
        .with("ints", vec![1, -2])
        .with("floats", vec![1.0, -0.0])
        .with("none", Vec::<i64>::new())
        .with("odd name = {", 1);
    let text = all.print();
    assert_eq!(Attributes::parse(&text).unwrap(), all, "{text}");
    assert_eq!(Attributes::parse("{}").unwrap(), Attributes::new());
    for bad in ["", "{a}", "{a = 1, a = 2}", "{a = }", "{\"a = 1}", "[1]", "{a = [1, \"x\"]}", "{a = nothing}"] {
        assert!(Attributes::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_custom_op_is_made_printed_read_and_evaluated_by_its_name() {
    register("test.Scale", Scale);
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::from(3)]).unwrap();
    let y = b.custom("test.Scale", Attributes::new().with("k", 2.5), &[x]).unwrap();
    b.output("y", y[0]).unwrap();
    let m = Module::from_graph(b.finish());
    crate::verify(&m).unwrap();
    let again = crate::text::parse_module(&m.to_string()).unwrap();
    assert_eq!(again.to_string(), m.to_string());
    let x = Tensor::from_slice(&[3], &[1f32, -2.0, 0.5]).unwrap();
    let inputs = EvalInputs { inputs: vec![Value::Tensor(x)], ..EvalInputs::default() };
    let out = evaluate(&again, &inputs, EvalOptions::default()).unwrap();
    let want = Tensor::from_slice(&[3], &[2.5f32, -5.0, 1.25]).unwrap();
    assert_eq!(out.outputs[0].as_tensor().unwrap(), &want);
}

#[test]
fn what_is_not_registered_or_does_not_fit_is_an_error_that_says_so() {
    register("test.Scale", Scale);
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::from(3)]).unwrap();
    let e = b.custom("test.Nothing", Attributes::new(), &[x]).unwrap_err().to_string();
    for part in ["custom op `test.Nothing` is not registered", "test.Scale"] {
        assert!(e.contains(part), "{e}");
    }
    let e = b.custom("test.Scale", Attributes::new(), &[x]).unwrap_err().to_string();
    assert!(e.contains("attribute `k` is missing"), "{e}");
    let e = b.custom("test.Scale", Attributes::new().with("k", 1.0), &[x, x]).unwrap_err().to_string();
    assert!(e.contains("takes 1 operands, got 2"), "{e}");
    let text = "func @main(%x: f32[3]) -> (f32[3]) {\n  %0 = custom(%x) {name = \"test.Nothing\", attributes = {}} : f32[3]\n  return %0\n}\n";
    let e = crate::text::parse_module(text).unwrap_err().to_string();
    assert!(e.contains("is not registered"), "{e}");
}
