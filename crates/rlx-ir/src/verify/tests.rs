use super::*;
use crate::text::parse_module;
use serde_json::{Value as Json, json};

const TEXT: &str = "func @main(%x: f32[n, 3]; param %w: f32[3] = f32[3](1.0, 2.0, 3.0), state %k: f32[3] -> %s) {
  %a = add(%x, %w)
  %s = add(%k, %w)
  %b = relu(%a) @\"r\"
  return %b
}";

/// The module after a change of its data that no builder makes.
fn broken(change: impl FnOnce(&mut Json)) -> String {
    let m = parse_module(TEXT).unwrap();
    verify(&m).unwrap();
    let mut j = serde_json::to_value(&m).unwrap();
    change(&mut j["main"]);
    let m: Module = serde_json::from_value(j).unwrap();
    // Broken graphs still print.
    let _ = m.to_string();
    verify(&m).unwrap_err().to_string()
}

#[test]
fn each_invariant_of_data_is_checked() {
    type Change = Box<dyn FnOnce(&mut Json)>;
    let cases: Vec<(u32, &str, Change)> = vec![
        (1, "reads %99", Box::new(|g| g["nodes"][2]["operands"][0] = json!(99))),
        (1, "output `out0` is %99", Box::new(|g| g["outputs"][0]["value"] = json!(99))),
        (1, "state `k` becomes %99", Box::new(|g| g["states"][0]["next"] = json!(99))),
        (1, "input 0", Box::new(|g| g["inputs"][0] = json!(99))),
        (2, "%5", Box::new(|g| g["values"][5]["def"] = json!({"Input": 0}))),
        (2, "%3 is result 0 of node 1", Box::new(|g| g["nodes"][1]["results"][0] = json!(3))),
        (3, "node 0 `add` reads %b before", Box::new(|g| g["nodes"][0]["operands"][0] = json!(5))),
        (
            4,
            "%b is f16[n, 3], inferred f32[n, 3]",
            Box::new(|g| {
                let ty = g["values"][5]["ty"].to_string().replace("F32", "F16");
                g["values"][5]["ty"] = serde_json::from_str(&ty).unwrap();
            }),
        ),
        (4, "known elements", Box::new(|g| g["values"][5]["elems"] = json!([]))),
        (4, "at \"r\"", Box::new(|g| g["nodes"][2]["operands"] = json!([3, 3]))),
        (
            6,
            "output `out0` is declared twice",
            Box::new(|g| {
                let o = g["outputs"][0].clone();
                g["outputs"] = json!([o, o]);
            }),
        ),
        (6, "parameter `v` has the value %w", Box::new(|g| g["params"][0]["name"] = json!("v"))),
        (6, "input 0 has no name", Box::new(|g| g["values"][0]["name"] = Json::Null)),
        (
            8,
            "1 elements of %x",
            Box::new(|g| g["values"][0]["elems"] = json!([g["values"][1]["ty"]["Tensor"]["shape"][0]])),
        ),
    ];
    for (invariant, what, change) in cases {
        let e = broken(change);
        assert!(e.contains(&format!("invariant {invariant} ")) && e.contains(what), "{invariant} {what}: {e}");
    }
}

#[test]
fn constraints_must_be_recorded() {
    let m = parse_module("func @main(%x: f32[n], %y: f32[m]) { %0 = add(%x, %y) return %0 }").unwrap();
    verify(&m).unwrap();
    let mut j = serde_json::to_value(&m).unwrap();
    j["main"]["constraints"] = json!([]);
    let e = verify(&serde_json::from_value(j).unwrap()).unwrap_err().to_string();
    assert!(e.contains("invariant 5 ") && e.contains("broadcasts"), "{e}");
}

#[test]
fn only_the_entry_has_parameters_and_names_agree() {
    let e = |text: &str| verify(&parse_module(text).unwrap()).unwrap_err().to_string();
    assert!(e("func @main() { return } func @f(; param %w: f32[]) { return }").contains("invariant 10 "));
    let mut m = parse_module("func @main() { return }").unwrap();
    m.functions.insert("f".into(), Graph::new("g"));
    assert!(verify(&m).unwrap_err().to_string().contains("invariant 12 "));
}

#[test]
fn all_violations_are_listed() {
    let m = parse_module("module {stage = mir, target = \"t\", claims = [\"add\"]} func @main(%x: f32[n]; param %w: f32[2] = f32[3](1, 2, 3)) { %0 = relu(%x) %1 = neg(%0) return %1 }").unwrap();
    let Err(IrError::Many(list)) = verify(&m) else { panic!() };
    assert_eq!(list.len(), 3);
}

#[test]
fn deep_nesting_is_an_error() {
    let plain = || parse_module("func @r(%c: bool[]) { return %c }").unwrap().main;
    let nest = |levels: usize| {
        let mut g = plain();
        for _ in 0..levels {
            let mut b = crate::Builder::new("r");
            let c = b.input("c", crate::DType::Bool, Vec::<crate::Dim>::new()).unwrap();
            let out = b.if_regions(c, &[c], g, plain()).unwrap();
            b.output("out", out[0]).unwrap();
            g = b.finish();
        }
        verify(&Module::from_graph(g))
    };
    nest(crate::eval::MAX_DEPTH).unwrap();
    assert!(nest(crate::eval::MAX_DEPTH + 1).unwrap_err().to_string().contains("invariant 11 "));
}
