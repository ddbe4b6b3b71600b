//! Section 7: custom ops, registered by name, run by kernels or decompositions, kept in artefacts by name.

use rlx::artefact::write_graph;
use rlx::custom::{self, Attribute, Attributes, CustomKernel, CustomRules, KernelInput, KernelOutput};
use rlx::ir::error::OpError;
use rlx::ir::eval::{EvalInputs, evaluate};
use rlx::ir::op::{EvalCx, EvalOptions, InferCx, Rule, arg};
use rlx::ir::text::parse_module;
use rlx::onnx::proto::attribute_proto::AttributeType;
use rlx::onnx::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto};
use rlx::onnx::{ImportOptions, OnnxFile, import};
use rlx::{
    ArtefactError, Builder, CompileOptions, DType, Dim, Error, LoadOptions, Module, SaveOptions, Session, Tensor, Value,
};

use crate::harness::{Folder, f32s, session};

/// `x · k + c`; of these two numbers the first is an attribute and the second may be one.
struct Line;

impl Line {
    fn numbers(attributes: &Attributes) -> Result<(f64, f64), OpError> {
        let k = attributes.float("k").ok_or_else(|| OpError::new("attribute `k` is missing"))?;
        Ok((k, attributes.float("c").unwrap_or(0.0)))
    }
}

impl CustomRules for Line {
    fn infer(&self, attributes: &Attributes, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        Line::numbers(attributes)?;
        let t = cx.tensor(0)?.clone();
        cx.result(t.dtype, t.shape);
        Ok(())
    }

    fn eval(&self, attributes: &Attributes, _: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let (x, (k, c)) = (arg(args, 0)?, Line::numbers(attributes)?);
        let y: Vec<f32> = x.as_slice::<f32>()?.iter().map(|x| x * k as f32 + c as f32).collect();
        Ok(vec![Tensor::from_slice(x.dims(), &y)?.into()])
    }

    fn decompose(
        &self,
        attributes: &Attributes,
        b: &mut Builder,
        args: &[rlx::ir::ValueId],
    ) -> Rule<Vec<rlx::ir::ValueId>> {
        let (&[x], Ok((k, c))) = (args, Line::numbers(attributes)) else { return None };
        Some((|| {
            let (k, c) = (b.scalar_like(x, k)?, b.scalar_like(x, c)?);
            let y = b.mul(x, k)?;
            Ok(vec![b.add(y, c)?])
        })())
    }
}

/// Rows in reverse order, and the sum of each: two results, and nothing that it is made of.
struct Mirror;

fn mirrored(x: &[f32], columns: usize) -> (Vec<f32>, Vec<f32>) {
    let rows = x.chunks_exact(columns.max(1));
    (rows.clone().rev().flatten().copied().collect(), rows.map(|r| r.iter().sum()).collect())
}

impl CustomRules for Mirror {
    fn infer(&self, _: &Attributes, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        let t = cx.tensor(0)?.clone();
        let [rows, _] = t.shape.dims() else {
            return Err(OpError::new(format!("takes a matrix, got {}", t.shape)));
        };
        cx.result(t.dtype, t.shape.clone());
        cx.result(t.dtype, vec![rows.clone()]);
        Ok(())
    }

    fn eval(&self, _: &Attributes, _: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = arg(args, 0)?;
        let (y, sums) = mirrored(&x.as_slice::<f32>()?, x.dims()[1]);
        Ok(vec![Tensor::from_slice(x.dims(), &y)?.into(), Tensor::from_slice(&x.dims()[..1], &sums)?.into()])
    }
}

impl CustomKernel for Mirror {
    fn run(&self, attributes: &Attributes, x: &[KernelInput<'_>], y: &mut [KernelOutput<'_>]) -> Result<(), String> {
        if attributes.int("fail") == Some(1) {
            return Err("it was told to".into());
        }
        let from: Vec<f32> = x[0].bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        let (mirror, sums) = mirrored(&from, x[0].dims[1]);
        for (out, values) in y.iter_mut().zip([mirror, sums]) {
            assert_eq!(out.dims.iter().product::<usize>(), values.len());
            out.bytes.chunks_exact_mut(4).zip(&values).for_each(|(b, v)| b.copy_from_slice(&v.to_le_bytes()));
        }
        Ok(())
    }
}

fn registered() {
    custom::register("test.Line", Line);
    custom::register("test.Mirror", Mirror);
    custom::register_kernel("test.Mirror", Mirror);
}

fn line() -> Attributes {
    Attributes::new().with("k", 2.5).with("c", -1.0)
}

/// Both ops, the one with a kernel on a transposed operand of free sizes.
fn module() -> Module {
    registered();
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("m"), Dim::symbol("n")]).unwrap();
    let y = b.custom("test.Line", line(), &[x]).unwrap()[0];
    let y = b.transpose(y, &[1, 0]).unwrap();
    let [y, sums] = b.custom("test.Mirror", Attributes::new(), &[y]).unwrap()[..] else { panic!("two results") };
    let y = b.relu(y).unwrap();
    b.output("y", y).unwrap();
    b.output("sums", sums).unwrap();
    Module::from_graph(b.finish())
}

fn inputs() -> Vec<Tensor> {
    [(2, 3), (1, 5), (4, 1), (3, 0)]
        .into_iter()
        .map(|(m, n)| f32s(&[m, n], &(0..m * n).map(|i| i as f32 - 2.0).collect::<Vec<_>>()))
        .collect()
}

/// What the evaluator says, and what follows from the definition for the first input.
fn wanted(m: &Module, x: &Tensor) -> Vec<Tensor> {
    let inputs = EvalInputs { inputs: vec![Value::Tensor(x.clone())], ..EvalInputs::default() };
    let out = evaluate(m, &inputs, EvalOptions::default()).unwrap();
    out.outputs.iter().map(|v| v.as_tensor().unwrap().clone()).collect()
}

#[test]
fn spec_7_custom_ops_run_by_kernels_and_decompositions() {
    let m = module();
    let p = session().compile_hir(&m).unwrap();
    assert!(p.report().kernels.iter().any(|(k, n)| k == "custom" && *n == 1), "{:?}", p.report().kernels);
    for x in inputs() {
        assert_eq!(p.run_tensors(&[("x", &x)]).unwrap(), wanted(&m, &x), "{:?}", x.dims());
    }
    // Known beforehand: [-2, -1, 0; 1, 2, 3] becomes [-6, -3.5, -1; 1.5, 4, 6.5], columns from the last one on.
    let got = p.run_tensors(&[("x", &inputs()[0])]).unwrap();
    assert_eq!(got[0], f32s(&[3, 2], &[0.0, 6.5, 0.0, 4.0, 0.0, 1.5]));
    assert_eq!(got[1], f32s(&[3], &[-4.5, 0.5, 5.5]));
    // The same from text, without optimisation, and with all of it known when it is compiled.
    let again = parse_module(&m.to_string()).unwrap();
    assert_eq!(again.to_string(), m.to_string());
    let plain = Session::with_options(rlx::Device::Cpu, CompileOptions::new().unoptimised()).unwrap();
    let plain = plain.compile_hir(&again).unwrap();
    for x in inputs() {
        assert_eq!(plain.run_tensors(&[("x", &x)]).unwrap(), wanted(&m, &x), "{:?}", x.dims());
    }
}

#[test]
fn spec_7_custom_ops_that_cannot_run_are_errors_that_say_how_they_could() {
    registered();
    // Rules alone, neither kernel nor decomposition.
    custom::register("test.Bare", Mirror);
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [2, 2]).unwrap();
    let y = b.custom("test.Bare", Attributes::new(), &[x]).unwrap();
    b.output("y", y[0]).unwrap();
    let e = session().compile(b.finish()).unwrap_err().to_string();
    for part in ["custom", "no kernel is registered for `test.Bare`", "register_kernel"] {
        assert!(e.contains(part), "{e}");
    }
    // A kernel's own error ends the run, and names the op.
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [2, 2]).unwrap();
    let y = b.custom("test.Mirror", Attributes::new().with("fail", 1), &[x]).unwrap();
    b.output("y", y[0]).unwrap();
    let p = session().compile(b.finish()).unwrap();
    let e = p.run_tensors(&[("x", &f32s(&[2, 2], &[0.0; 4]))]).unwrap_err().to_string();
    assert!(e.contains("custom op `test.Mirror`: it was told to"), "{e}");
}

fn onnx(domain: &str, op: &str, k: Option<f32>) -> Result<Module, String> {
    let attribute = k.map(|k| AttributeProto {
        name: Some("k".into()),
        r#type: Some(AttributeType::Float as i32),
        f: Some(k),
        ..Default::default()
    });
    let node = NodeProto {
        domain: Some(domain.into()),
        op_type: Some(op.into()),
        input: vec!["x".into()],
        output: vec!["y".into()],
        attribute: attribute.into_iter().collect(),
        ..Default::default()
    };
    let mut template = rlx::onnx::export(&{
        let mut b = Builder::new("main");
        let x = b.input("x", DType::F32, [Dim::symbol("n")]).unwrap();
        let y = b.neg(x).unwrap();
        b.output("y", y).unwrap();
        Module::from_graph(b.finish())
    })
    .map(|bytes| <ModelProto as prost::Message>::decode(&bytes[..]).unwrap())
    .unwrap();
    let graph: &mut GraphProto = template.graph.as_mut().unwrap();
    graph.node = vec![node];
    graph.output = vec![ValueInfoProto { name: Some("y".into()), ..Default::default() }];
    template.opset_import.push(OperatorSetIdProto { domain: Some(domain.into()), version: Some(1) });
    let bytes = prost::Message::encode_to_vec(&template);
    let options = ImportOptions::default();
    let model =
        OnnxFile::from_bytes(bytes, None, &options.read).and_then(OnnxFile::into_model).map_err(|e| e.to_string())?;
    import(&model, &options).map(|i| i.module).map_err(|e| e.to_string())
}

#[test]
fn spec_7_nodes_of_a_registered_domain_and_name_are_custom_ops() {
    registered();
    let m = onnx("test", "Line", Some(0.5)).unwrap();
    let p = session().compile_hir(&m).unwrap();
    let x = f32s(&[3], &[1.0, -2.0, 4.0]);
    assert_eq!(p.run_tensors(&[("x", &x)]).unwrap()[0], f32s(&[3], &[0.5, -1.0, 2.0]));
    // What the rules refuse names the node's operator; what nobody registered is unsupported as ever.
    let e = onnx("test", "Line", None).unwrap_err();
    assert!(e.contains("attribute `k` is missing"), "{e}");
    let e = onnx("test", "Curve", Some(0.5)).unwrap_err();
    assert!(e.contains("Curve"), "{e}");
}

/// Written to a file, an op that decomposes is what it is made of, which other engines run; one that does not is a node of its domain.
#[test]
fn spec_7_files_hold_custom_ops_as_nodes_or_what_they_are_made_of() {
    registered();
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n"), 2.into()]).unwrap();
    let y = b.custom("test.Line", line(), &[x]).unwrap()[0];
    let attributes = Attributes::new().with("axes", vec![1i64, 0]).with("mode", "fast").with("rates", vec![0.5, -2.0]);
    let both = b.custom("test.Mirror", attributes, &[y]).unwrap();
    b.output("mirror", both[0]).unwrap();
    b.output("sums", both[1]).unwrap();
    let m = Module::from_graph(b.finish());
    let bytes = rlx::onnx::export(&m).unwrap();
    let file = <ModelProto as prost::Message>::decode(&bytes[..]).unwrap();
    let nodes = file.graph.as_ref().unwrap().node.iter().map(|n| (n.domain(), n.op_type()));
    let nodes: Vec<(&str, &str)> = nodes.filter(|n| n.1 != "Identity").collect();
    assert_eq!(nodes, [("", "Mul"), ("", "Add"), ("test", "Mirror")]);
    assert!(file.opset_import.iter().any(|s| s.domain() == "test"));
    let options = ImportOptions::default();
    let model = OnnxFile::from_bytes(bytes, None, &options.read).and_then(OnnxFile::into_model).unwrap();
    let again = import(&model, &options).unwrap().module;
    let x = f32s(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let run = |m: &Module| session().compile_hir(m).unwrap().run_tensors(&[("x", &x)]).unwrap();
    assert_eq!(run(&m), run(&again));
    assert_eq!(run(&m)[1], f32s(&[3], &[5.5, 15.5, 25.5]));

    // What a file cannot hold is said.
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [2, 2]).unwrap();
    let y = b.custom("test.Mirror", Attributes::new().with("rate", 0.1), &[x]).unwrap()[0];
    b.output("y", y).unwrap();
    let e = rlx::onnx::export(&Module::from_graph(b.finish())).unwrap_err().to_string();
    assert!(e.contains("attribute `rate` holds 0.1"), "{e}");
}

#[test]
fn spec_7_artefacts_keep_custom_ops_by_name() {
    let folder = Folder::new("7-custom");
    let m = module();
    let (kernels, graph) = (folder.0.join("kernels.rlxa"), folder.0.join("graph.rlxa"));
    let mut p = session().compile_hir(&m).unwrap();
    p.save_with(&kernels, &SaveOptions::new()).unwrap();
    write_graph(&graph, &m, &CompileOptions::new()).unwrap();
    for path in [&kernels, &graph] {
        let loaded = session().load(path).unwrap();
        for x in inputs() {
            assert_eq!(loaded.run_tensors(&[("x", &x)]).unwrap(), wanted(&m, &x), "{}", path.display());
        }
    }
}

/// In a process where nothing is registered: this test starts itself again.
#[test]
fn spec_7_an_artefact_with_unknown_custom_ops_says_which() {
    const FILE: &str = "RLX_TEST_ARTEFACT";
    if let Some(path) = std::env::var_os(FILE) {
        let unknown = |e: Error| match e {
            Error::Artefact(ArtefactError::CustomOps(names)) => names,
            e => panic!("another error: {e}"),
        };
        let e = session().load_with(path, &LoadOptions::new()).map(|_| ()).unwrap_err();
        let text = e.to_string();
        for part in ["[artefact-custom]", "test.Line", "test.Mirror", "rlx::custom::register"] {
            assert!(text.contains(part) || part == "test.Line" && std::env::var_os("KERNELS").is_some(), "{text}");
        }
        let names = unknown(e);
        assert!(names.contains(&"test.Mirror".to_owned()), "{names:?}");
        return;
    }
    let folder = Folder::new("7-custom-unknown");
    let m = module();
    let (kernels, graph) = (folder.0.join("kernels.rlxa"), folder.0.join("graph.rlxa"));
    session().compile_hir(&m).unwrap().save(&kernels).unwrap();
    write_graph(&graph, &m, &CompileOptions::new()).unwrap();
    for (path, kernels) in [(&kernels, true), (&graph, false)] {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "spec7_custom::spec_7_an_artefact_with_unknown_custom_ops_says_which"]).env(FILE, path);
        if kernels {
            // What was decomposed is no custom op any more.
            child.env("KERNELS", "1");
        }
        let out = child.output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && text.contains("1 passed"), "{text}");
    }
    // Attributes have a text form of their own.
    assert_eq!(line().get("k"), Some(&Attribute::Float(2.5.into())));
}
