//! Small models, each for one property of the import. Expected values are worked out by hand.

use prost::Message as _;
use rlx_ir::eval::{EvalInputs, evaluate};
use rlx_ir::op::EvalOptions;
use rlx_ir::{Tensor, Value};
use rlx_onnx::proto::attribute_proto::AttributeType;
use rlx_onnx::proto::tensor_shape_proto::{Dimension, dimension};
use rlx_onnx::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TensorShapeProto, TypeProto,
    ValueInfoProto, type_proto,
};
use rlx_onnx::{ImportError, ImportOptions, Imported, OnnxFile, OnnxType, ReadOptions, import};

use crate::make::{body, floats, graph, int, model, named, node, opset, with};

/// A declared tensor; dims are numbers, names, or `?`.
fn typed(name: &str, dtype: OnnxType, dims: &[&str]) -> ValueInfoProto {
    let dim = |d: &&str| Dimension {
        value: match d.parse() {
            Ok(n) => Some(dimension::Value::DimValue(n)),
            Err(_) if *d == "?" => None,
            Err(_) => Some(dimension::Value::DimParam(d.to_string())),
        },
        ..Default::default()
    };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect() };
    let tensor = type_proto::Tensor { elem_type: Some(dtype.code()), shape: Some(shape) };
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..Default::default() }),
        ..Default::default()
    }
}

fn ints(name: &str, dims: &[i64], data: &[i64]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(OnnxType::Int64.code()),
        int64_data: data.to_vec(),
        ..Default::default()
    }
}

/// A graph with typed inputs and untyped outputs.
fn typed_graph(inputs: Vec<ValueInfoProto>, nodes: Vec<NodeProto>, outputs: &str) -> GraphProto {
    GraphProto { input: inputs, ..graph("", nodes, outputs) }
}

fn try_import(m: &ModelProto, options: &ImportOptions) -> Result<Imported, ImportError> {
    let file = OnnxFile::from_bytes(m.encode_to_vec(), None, &ReadOptions::default())?;
    import(&file.into_model()?, options)
}

fn imported(m: &ModelProto) -> Imported {
    let i = try_import(m, &ImportOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    rlx_ir::verify::verify(&i.module).unwrap_or_else(|e| panic!("{e}"));
    i
}

fn run(i: &Imported, inputs: &[Tensor]) -> Vec<Tensor> {
    let inputs =
        EvalInputs { inputs: inputs.iter().map(|t| Value::Tensor(t.clone())).collect(), ..EvalInputs::default() };
    let results = evaluate(&i.module, &inputs, EvalOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    results.outputs.iter().map(|v| v.as_tensor().unwrap().clone()).collect()
}

fn f32s(dims: &[usize], v: &[f32]) -> Tensor {
    Tensor::from_slice(dims, v).unwrap()
}

fn i64s(dims: &[usize], v: &[i64]) -> Tensor {
    Tensor::from_slice(dims, v).unwrap()
}

const F: OnnxType = OnnxType::Float;

#[test]
fn everything_unsupported_is_listed_at_once() {
    let nodes = vec![
        named("a", node("StringNormalizer", "s", "t")),
        named("b", node("Relu", "x", "y")),
        named("c", node("SplitToSequence", "y", "z")),
        named("d", node("SplitToSequence", "z", "w")),
        named("e", NodeProto { domain: Some("my.ops".into()), ..node("Thing", "t", "v") }),
    ];
    let mut m = model(typed_graph(vec![typed("s", OnnxType::String, &["n"]), typed("x", F, &["n"])], nodes, "w v"));
    m.opset_import.push(opset("my.ops", 3));
    let Err(ImportError::Model { unsupported, faults }) = try_import(&m, &ImportOptions::default()) else {
        panic!("imported");
    };
    let listed: Vec<(&str, &str, i64, usize)> =
        unsupported.iter().map(|u| (&*u.domain, &*u.op_type, u.opset, u.nodes.len())).collect();
    // Ops behind one that is not supported are looked at too.
    let all = [("", "StringNormalizer", 18, 1), ("", "SplitToSequence", 18, 2), ("my.ops", "Thing", 3, 1)];
    assert_eq!(listed, all);
    assert!(faults.is_empty(), "{faults:?}");
}

#[test]
fn a_fault_names_node_operands_and_types() {
    let nodes = vec![named("bad_add", node("Add", "x y", "z")), named("bad_cat", node("Concat", "x y", "w"))];
    let m = model(typed_graph(vec![typed("x", F, &["2", "3"]), typed("y", F, &["4"])], nodes, "z w"));
    let e = try_import(&m, &ImportOptions::default()).unwrap_err().to_string();
    for part in ["2 faults", "'bad_add' (Add of x: f32[2, 3], y: f32[4])", "'bad_cat'", "`axis` is missing"] {
        assert!(e.contains(part), "{part} is not in: {e}");
    }
}

#[test]
fn sizes_without_a_real_name_are_not_linked() {
    let m = model(typed_graph(
        vec![typed("x", F, &["unk__7", "?", "n"]), typed("y", F, &["unk__7", "?", "n"])],
        vec![node("Identity", "x", "z"), node("Identity", "y", "w")],
        "z w",
    ));
    let i = imported(&m);
    let g = &i.module.main;
    let ty = |k: usize| g.tensor_type(g.inputs()[k]).unwrap().shape.clone();
    assert_ne!(ty(0)[0], ty(1)[0]);
    assert_ne!(ty(0)[1], ty(1)[1]);
    assert_eq!(ty(0)[2], ty(1)[2]);
}

#[test]
fn a_shape_that_is_data_is_read_at_run_time() {
    let inputs = vec![typed("x", F, &["a", "b"]), typed("s", OnnxType::Int64, &["3"])];
    let i = imported(&model(typed_graph(inputs, vec![node("Reshape", "x s", "y")], "y")));
    let x = f32s(&[2, 6], &(0..12).map(|i| i as f32).collect::<Vec<_>>());
    for (shape, want) in [([2, 3, 2], [2, 3, 2]), ([0, -1, 3], [2, 2, 3]), ([-1, 1, 1], [12, 1, 1])] {
        assert_eq!(run(&i, &[x.clone(), i64s(&[3], &shape)])[0].dims(), want);
    }
}

#[test]
fn bounds_of_slices_that_are_data() {
    let names = ["starts", "ends"];
    let mut inputs = vec![typed("x", F, &["n"])];
    inputs.extend(names.map(|n| typed(n, OnnxType::Int64, &["1"])));
    for (step, cases) in [
        (1, vec![(1, 3, vec![1., 2.]), (-2, i64::MAX, vec![3., 4.]), (9, 2, vec![]), (i64::MIN, -4, vec![0.])]),
        (-1, vec![(-1, i64::MIN, vec![4., 3., 2., 1., 0.]), (-1, i64::MAX, vec![]), (3, 1, vec![3., 2.])]),
    ] {
        let nodes = vec![node("Slice", "x starts ends axes steps", "y")];
        let mut g = typed_graph(inputs.clone(), nodes, "y");
        g.initializer = vec![ints("axes", &[1], &[0]), ints("steps", &[1], &[step])];
        let i = imported(&model(g));
        let x = f32s(&[5], &[0., 1., 2., 3., 4.]);
        for (start, end, want) in cases {
            let y = run(&i, &[x.clone(), i64s(&[1], &[start]), i64s(&[1], &[end])]);
            assert_eq!(&*y[0].as_slice::<f32>().unwrap(), &want[..], "{start}:{end}:{step}");
        }
    }
}

/// A file may declare a vector of sizes as long as it likes: nothing is made for each element before it is known to be few.
#[test]
fn vectors_of_sizes_of_any_declared_length_are_refused() {
    let x = || typed("x", F, &["n", "4"]);
    let long = |name: &str| typed(name, OnnxType::Int64, &["1099511627776"]);
    for (op, operands) in [
        ("Reshape", "x v"),
        ("Expand", "x v"),
        ("Tile", "x v"),
        ("ConstantOfShape", "v"),
        ("Slice", "x v v"),
        ("Slice", "x v v v"),
        ("Slice", "x v v v v"),
        ("Pad", "x v"),
        ("Pad", "x v s v"),
        ("Unsqueeze", "x v"),
        ("Squeeze", "x v"),
        ("Resize", "x   v"),
        ("Upsample", "x f"),
        ("ReduceSum", "x v"),
        ("CenterCropPad", "x v"),
        ("Col2Im", "x v v"),
        ("AffineGrid", "x v"),
        ("Transpose", "v"),
        ("Shape", "v"),
        ("Range", "v v v"),
        ("OneHot", "x v v"),
        ("Split", "x v"),
        ("MaxUnpool", "x x v"),
        ("RoiAlign", "x x v"),
        ("NonMaxSuppression", "x x v"),
        ("STFT", "x v v v"),
        ("DFT", "x v"),
    ] {
        let mut n = node(op, "", "y");
        n.input = operands.split(' ').map(str::to_string).collect();
        let inputs = vec![x(), long("v"), typed("s", F, &[]), typed("f", F, &["1099511627776"])];
        // What is refused says so, and what is imported holds no element for each: neither may take the memory.
        if let Err(e) = try_import(&model(typed_graph(inputs, vec![n], "y")), &ImportOptions::default()) {
            assert!(e.to_string().contains(op), "{op}: {e}");
        }
    }
}

#[test]
fn a_known_condition_imports_only_the_branch_taken() {
    let then = graph("", vec![node("Relu", "x", "t")], "t");
    let otherwise = graph("", vec![node("NoSuchOp", "x", "e")], "e");
    let mut rank = node("Shape", "x", "s");
    rank.output = vec!["s".into()];
    let nodes = vec![
        rank,
        node("Size", "s", "r"),
        node("Equal", "r two", "c"),
        with(with(node("If", "c", "y"), body("then_branch", then)), body("else_branch", otherwise)),
    ];
    let mut g = typed_graph(vec![typed("x", F, &["n", "m"])], nodes, "y");
    g.initializer = vec![ints("two", &[], &[2])];
    let y = run(&imported(&model(g)), &[f32s(&[1, 2], &[-1., 5.])]);
    assert_eq!(y[0], f32s(&[1, 2], &[0., 5.]));
}

#[test]
fn branches_capture_and_weights_inside_become_parameters() {
    let mut then = graph("", vec![node("Add", "h w", "t")], "t");
    then.initializer = vec![floats("w", &[2], &[10., 20.])];
    let otherwise = graph("", vec![node("Mul", "h k", "e")], "e");
    let nodes = vec![
        node("Neg", "x", "h"),
        node("Abs", "x", "k"),
        with(with(node("If", "c", "y"), body("then_branch", then)), body("else_branch", otherwise)),
    ];
    let g = typed_graph(vec![typed("x", F, &["2"]), typed("c", OnnxType::Bool, &[])], nodes, "y");
    let i = imported(&model(g));
    assert_eq!(i.module.main.params().iter().map(|p| &*p.name).collect::<Vec<_>>(), ["w"]);
    let x = f32s(&[2], &[1., -2.]);
    let cond = |b| Tensor::from_bools(&[], &[b]).unwrap();
    assert_eq!(run(&i, &[x.clone(), cond(true)])[0], f32s(&[2], &[9., 22.]));
    assert_eq!(run(&i, &[x, cond(false)])[0], f32s(&[2], &[-1., 4.]));
}

/// A loop whose carried value grows by one element an iteration, with one scan output.
#[test]
fn a_loop_may_change_shapes_and_stop_early() {
    let mut b = graph("i c v", vec![], "c2 v2 out");
    b.input = vec![typed("i", OnnxType::Int64, &[]), typed("c", OnnxType::Bool, &[]), typed("v", F, &["?"])];
    b.node = vec![
        node("Concat", "v x", "v2"),
        node("Less", "i last", "c2"),
        node("ReduceSum", "v2", "total"),
        node("Expand", "total pair", "out"),
    ];
    b.node[0].attribute.push(int("axis", 0));
    b.node[2].attribute.push(int("keepdims", 0));
    b.initializer = vec![ints("pair", &[1], &[2])];
    let nodes = vec![with(node("Loop", "m _ x", "v_final scans"), body("body", b))];
    let inputs = vec![typed("m", OnnxType::Int64, &[]), typed("x", F, &["1"]), typed("last", OnnxType::Int64, &[])];
    let i = imported(&model(typed_graph(inputs, nodes, "v_final scans")));
    let m = |n: i64| Tensor::scalar(n);
    let x = f32s(&[1], &[3.]);
    let y = run(&i, &[m(10), x.clone(), m(2)]);
    assert_eq!(y[0], f32s(&[4], &[3.; 4]));
    assert_eq!(y[1], f32s(&[3, 2], &[6., 6., 9., 9., 12., 12.]));
    let y = run(&i, &[m(0), x, m(2)]);
    assert_eq!(y[0], f32s(&[1], &[3.]));
    assert_eq!(y[1].dims(), [0, 2]);
}

fn reference(name: &str, of: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        r#type: Some(kind as i32),
        ref_attr_name: Some(of.into()),
        ..Default::default()
    }
}

#[test]
fn functions_are_written_out_with_their_attributes() {
    let f = FunctionProto {
        name: Some("Scale".into()),
        domain: Some("my.ops".into()),
        input: vec!["a".into(), "lo".into()],
        output: vec!["r".into()],
        attribute: vec!["alpha".into()],
        opset_import: vec![opset("", 18)],
        node: vec![
            with(node("LeakyRelu", "a", "t"), reference("alpha", "alpha", AttributeType::Float)),
            node("Clip", "t lo", "r"),
        ],
        ..Default::default()
    };
    let alpha = |x: f32| AttributeProto {
        name: Some("alpha".into()),
        r#type: Some(AttributeType::Float as i32),
        f: Some(x),
        ..Default::default()
    };
    let call = |name: &str, i: &str, o: &str, x| {
        named(name, NodeProto { domain: Some("my.ops".into()), ..with(node("Scale", i, o), alpha(x)) })
    };
    // The second call leaves an operand out.
    let mut g = typed_graph(
        vec![typed("x", F, &["2"])],
        vec![call("one", "x lo", "y", 0.5), call("two", "x", "z", 0.25)],
        "y z",
    );
    g.initializer = vec![floats("lo", &[], &[-1.])];
    let mut m = model(g);
    m.opset_import.push(opset("my.ops", 1));
    m.functions = vec![f];
    let i = imported(&m);
    let out = run(&i, &[f32s(&[2], &[-4., 4.])]);
    assert_eq!(out, [f32s(&[2], &[-1., 4.]), f32s(&[2], &[-1., 4.])]);
    let places: Vec<_> = i.module.main.nodes().iter().filter_map(|n| n.loc.name()).collect();
    assert!(places.iter().any(|p| p.starts_with("one/")), "{places:?}");
}

/// Each function calls the next twice: 2^40 nodes if written out.
#[test]
fn functions_that_multiply_are_refused() {
    let f = |k: usize, nodes| FunctionProto {
        name: Some(format!("F{k}")),
        domain: Some("my.ops".into()),
        input: vec!["a".into()],
        output: vec!["r".into()],
        opset_import: vec![opset("", 18), opset("my.ops", 1)],
        node: nodes,
        ..Default::default()
    };
    let call = |k: usize, i: &str, o: &str| NodeProto { domain: Some("my.ops".into()), ..node(&format!("F{k}"), i, o) };
    let mut functions = vec![f(40, vec![node("Identity", "a", "r")])];
    functions.extend((0..40).map(|k| f(k, vec![call(k + 1, "a", "t"), call(k + 1, "t", "r")])));
    let mut m = model(typed_graph(vec![typed("x", F, &["2"])], vec![call(0, "x", "y")], "y"));
    m.opset_import.push(opset("my.ops", 1));
    m.functions = functions;
    let e = try_import(&m, &ImportOptions::default()).unwrap_err().to_string();
    assert!(e.contains("too many nodes"), "{e}");
    // Once the limit is met, what is left is not written out: each function is refused at most once.
    assert!(e.matches("too many nodes").count() <= 41, "{e}");
}

#[test]
fn outputs_may_be_inputs_weights_or_the_same_value() {
    let mut g = typed_graph(vec![typed("x", F, &["2"])], vec![node("Relu", "x", "y")], "x w y y");
    g.initializer = vec![floats("w", &[3], &[1., 2., 3.])];
    let i = imported(&model(g));
    let names: Vec<&str> = i.module.main.outputs().iter().map(|o| &*o.name).collect();
    assert_eq!(names, ["x", "w", "y", "y#4"]);
    let x = f32s(&[2], &[-1., 1.]);
    let y = f32s(&[2], &[0., 1.]);
    assert_eq!(run(&i, std::slice::from_ref(&x)), [x, f32s(&[3], &[1., 2., 3.]), y.clone(), y]);
}

#[test]
fn weights_are_parameters_and_small_integers_constants() {
    let mut g = typed_graph(
        vec![typed("x", F, &["n", "4"])],
        vec![node("Add", "x bias", "h"), node("Mul", "h two", "k"), node("Reshape", "k shape", "y")],
        "y",
    );
    g.initializer = vec![floats("bias", &[4], &[1.; 4]), floats("two", &[1], &[2.]), ints("shape", &[2], &[-1, 2])];
    let i = imported(&model(g));
    let g = &i.module.main;
    assert_eq!(g.params().iter().map(|p| &*p.name).collect::<Vec<_>>(), ["bias"]);
    assert_eq!(g.ty(g.outputs()[0].value).to_string(), "f32[2*n, 2]");
    assert!(i.warnings.is_empty(), "{:?}", i.warnings);
}

#[test]
fn declared_shapes_are_hints() {
    let mut g = typed_graph(vec![typed("x", F, &["2", "3"])], vec![node("Relu", "x", "y")], "");
    g.output = vec![typed("y", F, &["2", "5"])];
    let i = imported(&model(g));
    assert_eq!(i.warnings.len(), 1);
    assert!(i.warnings[0].to_string().contains("declared with size 5 on axis 1"), "{}", i.warnings[0]);
}

#[test]
fn fixed_inputs_tell_what_must_be_known() {
    let inputs = vec![typed("x", F, &["2", "3"]), typed("shape", OnnxType::Int64, &["k"])];
    let m = model(typed_graph(inputs, vec![node("Reshape", "x shape", "y")], "y"));
    let e = try_import(&m, &ImportOptions::default()).unwrap_err().to_string();
    assert!(e.contains("the shape must be a vector of integers of known length"), "{e}");
    let fixed = [("shape".to_owned(), i64s(&[2], &[3, 2]))].into();
    let i = try_import(&m, &ImportOptions { fixed_inputs: fixed, ..Default::default() }).unwrap();
    assert_eq!(i.module.main.inputs().len(), 1);
    assert_eq!(run(&i, &[f32s(&[2, 3], &[1.; 6])])[0], f32s(&[3, 2], &[1.; 6]));
}

#[test]
fn attributes_without_meaning_are_warned_of() {
    let m = model(typed_graph(vec![typed("x", F, &["2"])], vec![with(node("Relu", "x", "y"), int("colour", 3))], "y"));
    assert!(imported(&m).warnings[0].to_string().contains("`colour`"));
}

/// Operands of one op whose ranks differ where the standard wants them equal.
#[test]
fn ranks_that_differ_are_refused() {
    let inputs = || vec![typed("x", F, &["2", "3", "4"]), typed("u", F, &["2"])];
    for (op, operands) in [("TensorScatter", "x u"), ("TensorScatter", "u x"), ("ScatterElements", "x u u")] {
        let mut m = model(typed_graph(inputs(), vec![node(op, operands, "y")], "y"));
        m.opset_import = vec![opset("", 24)];
        let e = try_import(&m, &ImportOptions::default()).unwrap_err().to_string();
        assert!(e.contains("1 fault"), "{op} {operands}: {e}");
    }
}
