//! Graphs: order, scopes, definitions, attributes, functions.

use rlx_onnx::OnnxError;
use rlx_onnx::model::{Attr, DimDef, TypeDef};
use rlx_onnx::proto::{
    AttributeProto, FunctionProto, NodeProto, TensorShapeProto, ValueInfoProto, attribute_proto::AttributeType,
    tensor_shape_proto, type_proto,
};

use crate::make::*;

#[test]
fn unsorted_nodes_are_sorted() {
    let nodes = vec![node("C", "b", "c"), node("B", "a", "b"), node("A", "x", "a")];
    let model = read(&model(graph("x", nodes, "c"))).unwrap();
    let ops: Vec<&str> = model.main.nodes.iter().map(|n| n.op_type.as_str()).collect();
    assert_eq!(ops, ["A", "B", "C"]);
    assert_eq!(model.main.nodes[0].index, 2);
    assert_eq!(model.main.nodes[0].label, "A_2");
}

#[test]
fn order_counts_what_nested_graphs_use() {
    let inner = graph("", vec![node("Neg", "late", "r")], "r");
    let nodes = vec![with(node("If", "c", "y"), body("then_branch", inner)), node("Relu", "x", "late")];
    let model = read(&model(graph("c x", nodes, "y"))).unwrap();
    assert_eq!(model.main.nodes[0].op_type, "Relu");
    let Some(Attr::Graph(branch)) = model.main.nodes[1].attr("then_branch") else { panic!() };
    assert_eq!(branch.captures, ["late"]);
}

#[test]
fn all_faults_are_listed_at_once() {
    let inner = graph("", vec![node("Neg", "nowhere", "r")], "r gone");
    let mut main = graph(
        "x x",
        vec![
            named("p", node("Add", "q_out x", "p_out")),
            named("q", node("Add", "p_out _", "q_out")),
            node("Add", "x missing", "s"),
            node("Relu", "x", "s"),
            with(with(node("Relu", "x", "t"), int("axis", 1)), int("axis", 2)),
            with(named("if", node("If", "x", "u")), body("then_branch", inner)),
            NodeProto { domain: Some("com.example".into()), ..node("Foo", "x", "v") },
            node("", "x", "w"),
        ],
        "y t",
    );
    main.initializer = vec![floats("k", &[1], &[1.0]), floats("k", &[1], &[1.0])];
    main.initializer.push(floats("m", &[2], &[1.0]));
    let lines = fault_lines(&model(main));
    let expected = [
        "main: the initialiser 'k' appears more than once",
        "main: initialiser 'm': dims [2] of float need 2 entries of data, the file has 1",
        "main: the value 'x' is defined twice: as a graph input and as a graph input",
        "main: node 'Relu_4' has more than one attribute 'axis'",
        "main: node '_7' has no op type",
        "main: the value 's' is defined twice: as an output of node 'Add_2' and as an output of node 'Relu_3'",
        "main: the nodes 'p', 'q' form a cycle",
        "main: operand 1 of node 'Add_2' (Add) is 'missing', which nothing defines",
        "main/if.then_branch: operand 0 of node 'Neg_0' (Neg) is 'nowhere', which nothing defines",
        "main/if.then_branch: the output 'gone' is never produced",
        "main: the output 'y' is never produced",
        "the operator set 'com.example' is not imported, but 1 node(s) use it, the first is 'Foo_6' in main",
    ];
    for line in expected {
        assert!(lines.iter().any(|l| l == line), "{line}\n{lines:#?}");
    }
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
}

#[test]
fn a_node_that_uses_itself_is_a_cycle() {
    let lines = fault_lines(&model(graph("x", vec![node("Add", "x y", "y")], "y")));
    assert_eq!(lines, ["main: the nodes 'Add_0' form a cycle"]);
    let inner = graph("", vec![node("Neg", "y", "r")], "r");
    let nodes = vec![with(node("If", "x", "y"), body("then_branch", inner))];
    assert_eq!(fault_lines(&model(graph("x", nodes, "y"))), ["main: the nodes 'If_0' form a cycle"]);
}

#[test]
fn many_faults_are_counted() {
    let nodes = (0..5000).map(|i| node("Neg", "nowhere", &format!("v{i}"))).collect();
    let Err(OnnxError::Invalid(faults)) = read(&model(graph("", nodes, "v0"))) else { panic!() };
    assert_eq!((faults.list().len(), faults.omitted()), (100, 4900));
    assert!(faults.to_string().starts_with("the model is not valid, 5000 faults:"));
}

#[test]
fn long_chains_and_wide_graphs_are_quick() {
    let n = 50_000;
    let chain: Vec<_> = (0..n).rev().map(|i| node("Neg", &format!("v{i}"), &format!("v{}", i + 1))).collect();
    let read_model = read(&model(graph("v0", chain, &format!("v{n}")))).unwrap();
    assert_eq!(read_model.main.nodes[0].inputs, ["v0"]);
}

#[test]
fn inner_names_hide_outer_ones() {
    let inner = graph("", vec![node("Neg", "x", "y"), node("Abs", "y", "r")], "r");
    let nodes = vec![with(node("If", "x", "y"), body("then_branch", inner))];
    let model = read(&model(graph("x", nodes, "y"))).unwrap();
    let Some(Attr::Graph(branch)) = model.main.nodes[0].attr("then_branch") else { panic!() };
    assert_eq!(branch.captures, ["x"]);
}

#[test]
fn an_outer_value_may_be_returned() {
    let branch = || graph("", vec![], "x");
    let outer = graph("", vec![with(node("If", "x", "z"), body("then_branch", branch()))], "z");
    let nodes = vec![with(node("If", "x", "y"), body("else_branch", outer))];
    let model = read(&model(graph("x", nodes, "y"))).unwrap();
    assert_eq!(model.main.nodes[0].graphs().next().unwrap().captures, ["x"]);
}

#[test]
fn initialisers_that_are_inputs() {
    let mut main = graph("x w", vec![node("Add", "x w", "s"), node("Add", "s b", "y")], "y");
    main.initializer = vec![floats("w", &[1], &[1.0]), floats("b", &[1], &[2.0])];
    for (ir_version, overridable) in [(3, false), (4, true), (10, true)] {
        let mut file = model(main.clone());
        file.ir_version = Some(ir_version);
        let read = read(&file).unwrap().main;
        assert_eq!(read.inputs.iter().map(|v| v.name.as_str()).collect::<Vec<_>>(), ["x"]);
        assert_eq!(read.declared_inputs, ["x", "w"]);
        let w = &read.initialisers[0];
        assert!(w.name == "w" && w.declared.is_some());
        assert_eq!(w.overridable, overridable);
        assert!(!read.initialisers[1].overridable && read.initialisers[1].declared.is_none());
    }
}

#[test]
fn dims_of_declarations() {
    use tensor_shape_proto::{Dimension, dimension::Value};
    let dims = [
        (Some(Value::DimValue(3)), DimDef::Fixed(3)),
        (Some(Value::DimValue(0)), DimDef::Unknown),
        (Some(Value::DimValue(-1)), DimDef::Unknown),
        (Some(Value::DimValue(i64::MIN)), DimDef::Unknown),
        (Some(Value::DimParam("".into())), DimDef::Unknown),
        (Some(Value::DimParam("?".into())), DimDef::Unknown),
        (Some(Value::DimParam("batch".into())), DimDef::Named("batch".into())),
        (None, DimDef::Unknown),
    ];
    let mut main = graph("x", vec![], "x");
    let shape =
        TensorShapeProto { dim: dims.iter().map(|(v, _)| Dimension { value: v.clone(), denotation: None }).collect() };
    let ty = main.input[0].r#type.as_mut().unwrap();
    let Some(type_proto::Value::TensorType(tensor)) = &mut ty.value else { panic!() };
    tensor.shape = Some(shape);
    let read_model = read(&model(main.clone())).unwrap();
    let Some(TypeDef::Tensor { shape: Some(shape), .. }) = &read_model.main.inputs[0].ty else { panic!() };
    assert_eq!(shape, &dims.map(|(_, expected)| expected));
    // No type at all, and a type that is none.
    main.input.push(ValueInfoProto { name: Some("untyped".into()), ..Default::default() });
    assert_eq!(read(&model(main.clone())).unwrap().main.inputs[1].ty, None);
    let ty = main.input[0].r#type.as_mut().unwrap();
    let Some(type_proto::Value::TensorType(tensor)) = &mut ty.value else { panic!() };
    tensor.elem_type = Some(99);
    assert_eq!(fault_lines(&model(main)), ["main: the type of 'x': data type 99 is unknown"]);
}

#[test]
fn attributes_hold_what_they_declare() {
    let attribute =
        |ty: AttributeType| AttributeProto { name: Some("a".into()), r#type: Some(ty as i32), ..Default::default() };
    let outcome = |attribute: AttributeProto| {
        let file = model(graph("x", vec![with(node("Op", "x", "y"), attribute)], "y"));
        match read(&file) {
            Ok(model) => Ok(model.main.nodes[0].attr("a").cloned()),
            Err(_) => Err(fault_lines(&file).join("\n")),
        }
    };
    // Left-out zeros.
    assert_eq!(outcome(attribute(AttributeType::Int)), Ok(Some(Attr::Int(0))));
    assert_eq!(outcome(attribute(AttributeType::Ints)), Ok(Some(Attr::Ints(vec![]))));
    // No declared type, as old files have it.
    let mut old = attribute(AttributeType::Undefined);
    old.floats = vec![1.5, -0.0];
    assert_eq!(outcome(old.clone()), Ok(Some(Attr::Floats(vec![1.5, -0.0]))));
    old.i = Some(3);
    assert!(outcome(old).unwrap_err().contains("more than one content"));
    let mut other = attribute(AttributeType::Int);
    other.floats = vec![1.0];
    assert!(outcome(other).unwrap_err().contains("its type is INT, and it holds FLOATS"));
    assert!(outcome(attribute(AttributeType::Tensor)).unwrap_err().contains("has none"));
    assert!(outcome(attribute(AttributeType::Undefined)).unwrap_err().contains("no content"));
    let mut text = attribute(AttributeType::String);
    text.s = Some(vec![0xff, 0xfe].into());
    assert!(outcome(text).unwrap_err().contains("not UTF-8"));
    let mut reference = attribute(AttributeType::Int);
    reference.ref_attr_name = Some("alpha".into());
    assert!(outcome(reference).unwrap_err().contains("stands in none"));
    let mut unknown = attribute(AttributeType::Int);
    unknown.r#type = Some(77);
    assert!(outcome(unknown).unwrap_err().contains("attribute type 77 is unknown"));
    let mut tensor = attribute(AttributeType::Tensor);
    tensor.t = Some(Box::new(floats("", &[-1], &[])));
    assert_eq!(
        outcome(tensor).unwrap_err(),
        "main: node 'Op_0', attribute 'a': dim 0 is -1; dims of data are never negative"
    );
}

fn function(name: &str, calls: &str) -> FunctionProto {
    FunctionProto {
        name: Some(name.into()),
        domain: Some("my".into()),
        input: vec!["a".into()],
        output: vec!["b".into()],
        attribute: vec!["alpha".into()],
        opset_import: vec![opset("", 17)],
        node: vec![with(
            NodeProto { domain: Some("my".into()), ..node(calls, "a", "b") },
            AttributeProto {
                name: Some("slope".into()),
                r#type: Some(AttributeType::Float as i32),
                ref_attr_name: Some("alpha".into()),
                ..Default::default()
            },
        )],
        ..Default::default()
    }
}

#[test]
fn functions_are_read_and_found() {
    let mut leaf = function("Leaf", "LeakyRelu");
    leaf.node[0].domain = None;
    let call = NodeProto { domain: Some("my".into()), ..node("F", "x", "y") };
    let mut file = model(graph("x", vec![call], "y"));
    file.functions = vec![function("F", "Leaf"), leaf];
    let model = read(&file).unwrap();
    let f = model.function_of(&model.main.nodes[0]).unwrap();
    assert_eq!(f.opsets.get(""), Some(&17));
    assert_eq!(f.attributes, ["alpha"]);
    let leaf = model.function_of(&f.body.nodes[0]).unwrap();
    assert_eq!(leaf.body.nodes[0].attr("slope"), Some(&Attr::Reference("alpha".into())));
    assert!(model.function_of(&leaf.body.nodes[0]).is_none());
}

#[test]
fn faults_of_functions() {
    let mut file = model(graph("x", vec![], "x"));
    file.functions = vec![function("F", "G"), function("G", "F"), function("H", "H")];
    file.functions.push(function("F", "H"));
    let mut open = function("Open", "F");
    open.node[0].input = vec!["nothing".into()];
    file.functions.push(open);
    assert_eq!(
        fault_lines(&file),
        [
            "the function 'my:F' is defined more than once",
            "function my:Open: operand 0 of node 'F_0' (F) is 'nothing', which nothing defines",
            "the functions 'my:F', 'my:G' call each other without end",
            "the functions 'my:H' call each other without end",
        ]
    );
}

#[test]
fn opsets() {
    let mut file = model(graph("x", vec![node("Relu", "x", "y")], "y"));
    file.opset_import = vec![opset("ai.onnx", 18), opset("", 18)];
    assert_eq!(read(&file).unwrap().opsets.get(""), Some(&18));
    file.opset_import = vec![opset("", 18), opset("", 17), opset("z", 0)];
    assert_eq!(
        fault_lines(&file),
        [
            "the operator set 'ai.onnx' is imported at the versions 18 and 17",
            "the operator set 'z' is imported at the version 0; versions start at 1",
        ]
    );
}

#[test]
fn omitted_operands_and_results() {
    let nodes = vec![node("Clip", "x _ x", "y"), node("LSTM", "x", "_ h _"), node("G", "x", "_ _")];
    let model = read(&model(graph("x", nodes, "y h"))).unwrap();
    assert_eq!(model.main.nodes[0].inputs, ["x", "", "x"]);
    assert_eq!(model.main.nodes[1].outputs, ["", "h", ""]);
}

#[test]
fn nameless_parts() {
    let mut main = graph("_ x", vec![], "x _");
    main.initializer = vec![floats("", &[1], &[1.0])];
    assert_eq!(
        fault_lines(&model(main)),
        ["main: a graph input has no name", "main: an initialiser has no name", "main: a graph output has no name",]
    );
}
