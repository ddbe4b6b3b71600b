//! The pipeline as a whole: options, phases, dumps, names, and what it costs.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use rlx_compile::target::{Claims, InputStage};
use rlx_compile::{
    CompileError, CompileOptions, Phase, TargetModule, compile_module, pass_names, run_pass, run_passes,
};
use rlx_ir::text::parse_module;
use rlx_ir::{DType, Module, Op, Stage};

const SMALL: &str = "func @main(%x: f32[n, 4]; param %w: f32[4, 4], param %k: f32[4, 1]) -> (y: f32[n, 4]) {
  %one = constant {value = f32[](1.0)}
  %a = mul(%x, %one)
  %v = mul(%w, %k)
  %d = dot_general(%a, %v) {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0], accumulate = none}
  %s = sigmoid(%d)
  %y = mul(%d, %s)
  return %y
}";

/// A target that takes graphs of every op but one.
fn all_but(op: &str) -> Claims {
    let ops = Op::families()
        .into_iter()
        .flat_map(|(_, ops)| ops)
        .map(|(name, _)| name)
        .filter(|n| *n != op)
        .map(String::from)
        .collect();
    let dtypes = DType::ALL.iter().copied().collect();
    Claims {
        ops,
        dtypes,
        symbolic_shapes: true,
        in_place: true,
        growing_states: true,
        scaled_operands: true,
        ..Claims::new("test", InputStage::Mir)
    }
}

fn mir(m: &Module, claims: &Claims, options: &CompileOptions) -> (Option<Module>, Module) {
    match compile_module(m, claims, options).unwrap().target {
        TargetModule::Mir { prepare, main } => (prepare, main),
        TargetModule::Lir(_) => panic!("the target takes graphs"),
    }
}

fn ops(m: &Module) -> Vec<&'static str> {
    m.main.nodes().iter().map(|n| n.op.name()).collect()
}

#[test]
fn phases_follow_each_other_and_can_be_stopped_after() {
    let m = parse_module(SMALL).unwrap();
    let options = CompileOptions::default().verify(true);
    let claims = all_but("none");
    let until = |phase| run_passes(m.clone(), Some(&claims), &options, phase).unwrap().0;
    assert_eq!(ops(&until(Phase::Import)), ops(&m));
    assert_eq!(ops(&until(Phase::Canonical)), ["mul", "dot_general", "sigmoid", "mul"]);
    assert_eq!(ops(&until(Phase::Recognise)), ["mul", "dot_general", "silu"]);
    assert!(matches!(until(Phase::Legalise).stage, Stage::Mir { .. }));
    let (prepare, main) = mir(&m, &claims, &options);
    assert_eq!(ops(&main), ["dot_general", "silu"]);
    assert_eq!(ops(&prepare.unwrap()), ["mul"]);
}

#[test]
fn options_switch_passes_off() {
    let m = parse_module(SMALL).unwrap();
    let claims = all_but("none");
    let (prepare, main) = mir(&m, &claims, &CompileOptions::default().unoptimised());
    assert!(prepare.is_none());
    assert_eq!(ops(&main), ["constant", "mul", "mul", "dot_general", "sigmoid", "mul"]);
    let (_, main) = mir(&m, &claims, &CompileOptions::default().recognise(false));
    assert_eq!(ops(&main), ["dot_general", "sigmoid", "mul"]);
}

#[test]
fn what_is_recognised_but_not_claimed_decomposes_and_compiling_again_changes_nothing() {
    let m = parse_module(SMALL).unwrap();
    let claims = all_but("softmax");
    let (_, main) = mir(&m, &claims, &CompileOptions::default());
    let (prepare, again) = mir(&main, &claims, &CompileOptions::default());
    assert!(prepare.is_none());
    assert_eq!(main.to_string(), again.to_string());
    let none = all_but("dot_general");
    match compile_module(&m, &none, &CompileOptions::default()) {
        Err(CompileError::Unsupported { target, ops }) => {
            assert_eq!((target.as_str(), ops.len()), ("test", 1));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn sizes_are_fixed_and_bounded_by_options() {
    let m = parse_module(SMALL).unwrap();
    let fixed = run_pass("bind-dims", &m, None, &CompileOptions::default().bind_dim("n", 3)).unwrap().0;
    assert!(fixed.to_string().contains("-> (y: f32[3, 4])"), "{fixed}");
    let bounded = run_pass("bind-dims", &m, None, &CompileOptions::default().bound_dim("n", 1, Some(8))).unwrap().0;
    assert_eq!(bounded.main.bounds().get(&"n".into()), (1, Some(8)));
    let unknown = run_pass("bind-dims", &m, None, &CompileOptions::default().bind_dim("batch", 3)).unwrap_err();
    assert!(unknown.to_string().contains("`batch`") && unknown.to_string().contains("n"), "{unknown}");
}

#[test]
fn names_that_do_not_exist_are_answered_with_those_that_do() {
    let m = parse_module(SMALL).unwrap();
    let e = run_pass("fuze", &m, None, &CompileOptions::default()).unwrap_err().to_string();
    assert!(pass_names().iter().all(|n| e.contains(n)), "{e}");
}

#[test]
fn dumps_are_numbered_and_read_back() {
    let dir = std::env::temp_dir().join(format!("rlx-dump-{}", std::process::id()));
    let m = parse_module(SMALL).unwrap();
    compile_module(&m, &all_but("none"), &CompileOptions::default().dump(Some(dir.clone()))).unwrap();
    let mut names: Vec<String> =
        std::fs::read_dir(&dir).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert!(names[0] == "00-import.rlx" && names.iter().any(|n| n.ends_with("-prepare.rlx")), "{names:?}");
    for name in &names {
        parse_module(&std::fs::read_to_string(dir.join(name)).unwrap()).unwrap();
    }
    std::fs::remove_dir_all(dir).unwrap();
}

/// Layers as exporters write them: attention, norms and gelu in pieces.
fn transformer(layers: usize) -> String {
    let mut body = String::from("  %x0 = relu(%x)\n");
    let mut params = Vec::new();
    for i in 0..layers {
        for w in ["q", "k", "v", "o"] {
            params.push(format!("param %w{w}{i}: f32[24, 24]"));
        }
        params.extend([format!("param %g{i}: f32[24]"), format!("param %b{i}: f32[24]")]);
        let plain = "{lhs_batch = [], rhs_batch = [], lhs_contract = [2], rhs_contract = [0], accumulate = none}";
        let heads =
            "{lhs_batch = [0, 1], rhs_batch = [0, 1], lhs_contract = [3], rhs_contract = [2], accumulate = none}";
        for (w, perm) in [("q", "[0, 2, 1, 3]"), ("k", "[0, 2, 3, 1]"), ("v", "[0, 2, 1, 3]")] {
            body += &format!(
                "  %{w}a{i} = dot_general(%x{i}, %w{w}{i}) {plain}\n  %{w}b{i} = reshape(%{w}a{i}) {{dims = [b, s, 3, 8]}}
  %{w}c{i} = transpose(%{w}b{i}) {{perm = {perm}}}\n"
            );
        }
        body += &format!(
            "  %sa{i} = dot_general(%qc{i}, %kc{i}) {heads}
  %c{i} = constant {{value = f32[](2.828427)}}
  %sb{i} = div(%sa{i}, %c{i})
  %sc{i} = add(%sb{i}, %mask)
  %p{i} = softmax(%sc{i}) {{axis = 3, log = false}}
  %oa{i} = dot_general(%p{i}, %vc{i}) {heads}
  %ob{i} = transpose(%oa{i}) {{perm = [0, 2, 1, 3]}}
  %oc{i} = reshape(%ob{i}) {{dims = [b, s, 24]}}
  %od{i} = dot_general(%oc{i}, %wo{i}) {plain}
  %r{i} = add(%x{i}, %od{i})
  %n{i} = constant {{value = f32[](24.0)}}
  %sum{i} = reduce(%r{i}) {{kind = sum, axes = [2], keep_dims = true}}
  %mean{i} = div(%sum{i}, %n{i})
  %dev{i} = sub(%r{i}, %mean{i})
  %two{i} = constant {{value = f32[](2.0)}}
  %sq{i} = pow(%dev{i}, %two{i})
  %ss{i} = reduce(%sq{i}) {{kind = sum, axes = [2], keep_dims = true}}
  %var{i} = div(%ss{i}, %n{i})
  %eps{i} = constant {{value = f32[](1e-5)}}
  %ve{i} = add(%var{i}, %eps{i})
  %sd{i} = sqrt(%ve{i})
  %nn{i} = div(%dev{i}, %sd{i})
  %ng{i} = mul(%nn{i}, %g{i})
  %nb{i} = add(%ng{i}, %b{i})
  %root{i} = constant {{value = f32[](1.4142135)}}
  %ga{i} = div(%nb{i}, %root{i})
  %gb{i} = erf(%ga{i})
  %one{i} = constant {{value = f32[](1.0)}}
  %gc{i} = add(%gb{i}, %one{i})
  %half{i} = constant {{value = f32[](0.5)}}
  %gd{i} = mul(%half{i}, %gc{i})
  %x{} = mul(%nb{i}, %gd{i})\n",
            i + 1
        );
    }
    format!(
        "func @main(%x: f32[b, s, 24], %mask: f32[b, 1, 1, s]; {}) {{\n{body}  return %x{layers}\n}}",
        params.join(", ")
    )
}

#[test]
fn every_composite_of_a_transformer_is_recognised() {
    let m = parse_module(&transformer(12)).unwrap();
    assert!(m.main.nodes().len() > 480);
    let options = CompileOptions::default().verify(false);
    let (m, report) = run_passes(m, Some(&all_but("none")), &options, Phase::Legalise).unwrap();
    let count = |name: &str| ops(&m).iter().filter(|n| **n == name).count();
    assert_eq!([count("attention"), count("layer_norm"), count("gelu")], [12, 12, 12], "{m}");
    assert_eq!(ops(&m).len(), 1 + 12 * (4 + 3 + 1 + 1 + 1 + 1 + 1), "{m}");
    // Passes run once over the whole, not once for each thing they find.
    assert!(report.passes.len() < 40, "{report}");
}
