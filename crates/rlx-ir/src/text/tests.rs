use super::*;
use crate::dim::{Constraint, ConstraintRecord};
use crate::{Builder, DType, Dim, Graph, IrError, Loc, Module, Stage, Symbol, Tensor, Type};

fn round_trip(m: &Module) -> String {
    let text = m.to_string();
    let back = parse_module(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(back.to_string(), text);
    assert_eq!(&back, m, "{text}");
    text
}

#[test]
fn a_graph_with_everything_reads_back_equal() {
    let mut b = Builder::new("torch-jit export");
    let n = Dim::symbol("n");
    let x = b.input("x", DType::F32, [n.clone(), Dim::from(3)]).unwrap();
    let y = b.input("odd name/\"0\"", DType::F32, [Dim::symbol("unk__214"), Dim::from(3)]).unwrap();
    let s = b.input("s", DType::I64, [2]).unwrap();
    b.graph_mut().set_input_elems(s, Some(vec![n.clone() * 3, Dim::from(-1)]));
    let w = b.param_with("w", Tensor::from_slice(&[3], &[1f32, -0.0, f32::INFINITY]).unwrap()).unwrap();
    let nan = b.param_with("x", Tensor::from_slice(&[1], &[f32::from_bits(0x7fc0_1234)]).unwrap()).unwrap();
    let k = b.graph_mut().add_state("k", Type::tensor(DType::F32, vec![Dim::from(3)]), None).unwrap();
    b.set_loc(Loc::new("enc/add \"1\"\n"));
    let a = b.add(x, y).unwrap();
    b.graph_mut().set_value_name(a, "a.b");
    let c = b.mul(a, w).unwrap();
    b.graph_mut().set_value_name(c, "a.b");
    b.set_loc(Loc::none());
    let d = b.add(c, nan).unwrap();
    let e = b.add(k, w).unwrap();
    b.graph_mut().set_state_next(0, e).unwrap();
    let f = b.from_dims(vec![n.clone().floor_div(Dim::from(2)), Dim::from(7)]).unwrap();
    b.graph_mut().set_value_name(f, "0");
    b.output("y out", d).unwrap();
    b.output("f", f).unwrap();
    let mut g = b.finish();
    g.bounds_mut().set(Symbol::new("n"), 1, Some(64));
    g.bounds_mut().set(Symbol::new("unk__214"), 2, None);
    g.add_constraints(&[ConstraintRecord::new(Constraint::Divisible(n, Dim::from(4)), "reshape \"r\"")]);
    let text = round_trip(&Module::from_graph(g));
    assert!(text.contains("requires(divisible(n, 4) @\"reshape \\\"r\\\"\")"), "{text}");
    assert!(!text.contains("broadcastable"), "inference gives it back: {text}");
}

#[test]
fn stage_and_functions_read_back() {
    let mut m = Module::from_graph(parse_graph("func @main(%x: f32[n]) { return %x }").unwrap());
    m.functions.insert("f g".into(), parse_graph("func @\"f g\"() { return }").unwrap());
    m.stage = Stage::Mir { target: "cpu \"1\"".into(), claims: ["add".to_string(), "relu".into()].into() };
    let text = round_trip(&m);
    assert!(
        text.starts_with("module {stage = mir, target = \"cpu \\\"1\\\"\", claims = [\"add\", \"relu\"]}\n"),
        "{text}"
    );
}

#[test]
fn numbering_follows_print_order_not_history() {
    // The input is declared after a node, so that value ids and order of printing differ.
    let mut g = Graph::new("main");
    let mut b = Builder::from_graph(std::mem::take(&mut g));
    let c = b.scalar(DType::F32, 2.0).unwrap();
    let x = b.input("x", DType::F32, [2]).unwrap();
    let y = b.add(x, c).unwrap();
    b.output("y", y).unwrap();
    let text = b.finish().to_string();
    assert!(text.contains("%1 = constant") && text.contains("%2 = add(%x, %1)"), "{text}");
    assert_eq!(parse_graph(&text).unwrap().to_string(), text);
}

#[test]
fn large_defaults_come_from_a_resolver() {
    let w = Tensor::from_slice(&[17], &[0.5f32; 17]).unwrap();
    let mut b = Builder::new("main");
    let p = b.param_with("w", w.clone()).unwrap();
    b.output("w", p).unwrap();
    let text = b.finish().to_string();
    assert!(text.contains("param %w: f32[17] = external \"w\""), "{text}");
    assert_eq!(parse_graph(&text).unwrap().params()[0].default, None);
    let m = parse_module_with(&text, &mut |e| {
        assert_eq!((e.kind, e.name), (ExternalKind::Param, "w"));
        Some(w.clone())
    });
    assert_eq!(m.unwrap().to_string(), text);
    let wrong = parse_module_with(&text, &mut |_| Some(Tensor::scalar(1i8)));
    assert!(wrong.unwrap_err().to_string().contains("i8"));
}

#[test]
fn semantic_errors_are_listed_all_at_once() {
    let e = parse_module(
        "func @main(%x: f32[2]) {\n  %0 = foo(%x)\n  %1 = bar(%0)\n  %2 = relu(%y) : f32[2]\n  %3 = relu(%x) : f32[3]\n  return %1\n}",
    )
    .unwrap_err();
    let IrError::Many(list) = &e else { panic!("{e}") };
    let text: Vec<String> = list.iter().map(ToString::to_string).collect();
    assert_eq!(text.len(), 4, "{e}");
    assert!(text[0].contains("line 2, column 8") && text[0].contains("unknown op `foo`"), "{e}");
    assert!(text[1].contains("line 3") && text[1].contains("`bar`"), "{e}");
    assert!(text[2].contains("line 4, column 13") && text[2].contains("%y"), "{e}");
    assert!(text[3].contains("f32[3]") && text[3].contains("f32[2]"), "{e}");
}

#[test]
fn syntax_errors_say_where_and_what() {
    for (text, at, what) in [
        ("", (1, 1), "`func`"),
        ("func main", (1, 6), "`@`"),
        ("func @f(%x f32[2]) { return }", (1, 12), "`:`"),
        ("func @f(%x: f33[2]) { return }", (1, 13), "f33"),
        ("func @f(%x: f32[2)) { return }", (1, 18), "`]`"),
        ("func @f() {\n  %0 = relu(%x", (2, 15), "`)`"),
        ("func @f() {\n  %0 = constant {value = f32[](}", (2, 32), "closed"),
        ("func @f(%x: f32[n +]) { return }", (1, 20), "symbol"),
        ("func @f() { return } x", (1, 22), "`func`"),
        ("func @\"f", (1, 7), "closing quote"),
    ] {
        match parse_module(text).unwrap_err() {
            IrError::Parse { line, column, message } => {
                assert_eq!((line, column), at, "{text}: {message}");
                assert!(message.contains(what), "{text}: {message}");
            }
            e => panic!("{text}: {e}"),
        }
    }
}

#[test]
fn hostile_text_is_refused_within_bounds() {
    let deep = "func @f() { ".to_string() + &"relu() (@g() { ".repeat(100_000);
    assert!(parse_module(&deep).unwrap_err().to_string().contains("deeper"));
    let types = format!("func @f(%x: {}", "seq<".repeat(1_000_000));
    assert!(parse_module(&types).unwrap_err().to_string().contains("deeper"));
    let dims = format!("func @f(%x: f32[{}", "(".repeat(1_000_000));
    assert!(parse_module(&dims).is_err());
    let brackets = format!("func @f() {{ relu {{a = {}", "[{(".repeat(1_000_000));
    assert!(parse_module(&brackets).is_err());
    let huge =
        "func @f(; param %w: f32[9223372036854775807, 9223372036854775807] = f32[9223372036854775807](1.0)) { return }";
    assert!(parse_module(huge).is_err());
    let wide = format!("func @f(%x: f32[{}]) {{ return %x }}", vec!["n"; 100_000].join(", "));
    assert!(parse_module(&wide).is_ok());
}

#[test]
fn any_cut_or_changed_text_gives_an_error_or_a_module() {
    let text = "module {stage = hir}\nfunc @main(%x: f32[n, 2] , %s: i64[1] elems [n]; param %w: f32[2] = f32[2](1.0, 2.0), state %k: f32[] -> %x) -> (y: f32[n, 2]) bounds(n = 1..4) requires(eq(n, 4) @\"é\") {\n  %0 \"a\" = constant {value = f32[](0x0000c07f)} : f32[] @\"l\"\n  %1 = add(%x, %w)\n  return %1\n}\n";
    for (i, _) in text.char_indices() {
        let _ = parse_module(&text[..i]);
        for c in ["\"", "(", "}", "%", "é", "-", "9", ""] {
            let next = text[i..].chars().next().map_or(0, char::len_utf8);
            let _ = parse_module(&format!("{}{c}{}", &text[..i], &text[i + next..]));
        }
    }
}
