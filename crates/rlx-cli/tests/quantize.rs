//! `rlx quantize`: what it writes is loaded again and gives nearly what the model gave.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn rlx(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rlx")).args(args).env("RLX_CACHE_DIR", "").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("quantize");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A model of two products with weights, as an ONNX file, and inputs to calibrate with.
fn made(name: &str) -> (String, String) {
    let literal = |rows: usize, cols: usize| {
        let row = |i: usize| {
            let of = |j: usize| format!("{:.3}", ((i * 31 + j * 17 + 5) % 23) as f32 / 11.5 - 1.0);
            (0..cols).map(of).collect::<Vec<_>>().join(", ")
        };
        format!("f32[{rows}, {cols}]({})", (0..rows).map(row).collect::<Vec<_>>().join(", "))
    };
    let dot = "{lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0], accumulate = none}";
    let model = format!(
        "func @main(%x: f32[n, 8]; param %w: f32[8, 6] = {}, param %v: f32[6, 5] = {}) -> (y: f32[n, 5]) {{
  %0 = dot_general(%x, %w) {dot}
  %1 = relu(%0)
  %y = dot_general(%1, %v) {dot}
  return %y
}}",
        literal(8, 6),
        literal(6, 5)
    );
    let identity = "func @main(%a: f32[n, 8]) -> (x: f32[n, 8]) {\n  %x = neg(%a)\n  return %x\n}";
    let path = |ending: &str| folder().join(format!("{name}{ending}")).to_str().unwrap().to_string();
    std::fs::write(path(".rlx"), model).unwrap();
    std::fs::write(path("_inputs.rlx"), identity).unwrap();
    let (onnx, npz) = (path(".onnx"), path(".npz"));
    for args in [
        vec!["export", &path(".rlx"), "-o", &onnx],
        vec!["run", &path("_inputs.rlx"), "--dim", "n=64", "--output", &npz],
    ] {
        let out = rlx(&args);
        assert!(out.status.success(), "{args:?}: {}", text(&out.stderr));
    }
    (onnx, npz)
}

#[test]
fn a_quantised_file_says_what_it_costs_and_is_loaded_again() {
    let (onnx, npz) = made("plain");
    for method in ["minmax", "percentile", "mse"] {
        let out = folder().join(format!("{method}.onnx"));
        let out = out.to_str().unwrap();
        let done = rlx(&["quantize", &onnx, "--calibrate", &npz, "-o", out, "--method", method, "--json"]);
        assert!(done.status.success(), "{}", text(&done.stderr));
        let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        let nodes = json["nodes"].as_array().unwrap();
        assert_eq!(nodes.len(), 2, "{json}");
        for n in nodes.iter().chain(json["outputs"].as_array().unwrap()) {
            assert!(n["cosine"].as_f64().unwrap() > 0.999 && n["sqnr_db"].as_f64().unwrap() > 25.0, "{method}: {n}");
            assert!(n["sqnr_db"].as_f64().unwrap() < 80.0, "{method}: {n} is not rounded at all");
        }
        let ran = rlx(&["run", out, "--inputs", &npz, "--json"]);
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        let bytes = std::fs::read(out).unwrap();
        for needle in ["QuantizeLinear", "DequantizeLinear", "_quantized"] {
            assert!(bytes.windows(needle.len()).any(|w| w == needle.as_bytes()), "{needle}");
        }
    }
    let table = rlx(&["quantize", &onnx, "--calibrate", &npz, "-o", folder().join("t.onnx").to_str().unwrap()]);
    assert!(text(&table.stdout).contains("SQNR dB") && text(&table.stdout).contains("2 products quantised"));
}

#[test]
fn nodes_are_left_out_by_name_and_names_of_nothing_are_errors() {
    let (onnx, npz) = made("exclude");
    let out = folder().join("excluded.onnx");
    let args = ["quantize", &onnx, "--calibrate", &npz, "-o", out.to_str().unwrap(), "--json"];
    let all: serde_json::Value = serde_json::from_slice(&rlx(&args).stdout).unwrap();
    let first = all["nodes"][0]["node"].as_str().unwrap().to_string();
    let some = rlx(&[&args[..], &["--exclude", &first]].concat());
    let json: serde_json::Value = serde_json::from_slice(&some.stdout).unwrap();
    assert_eq!((json["nodes"].as_array().unwrap().len(), &json["excluded"][0]), (1, &all["nodes"][0]["node"]));
    let wrong = rlx(&[&args[..], &["--exclude", "no such node"]].concat());
    assert_eq!(wrong.status.code(), Some(2));
    // Inputs that the model lacks.
    let missing = rlx(&["quantize", &onnx, "--calibrate", &made("other").0, "-o", out.to_str().unwrap()]);
    assert!(!missing.status.success() && missing.stdout.is_empty());
}
