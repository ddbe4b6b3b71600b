//! `rlx quantize`: what it writes is loaded again and gives nearly what the model gave.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

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
    for method in ["minmax", "percentile", "mse", "entropy"] {
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

/// A few numbers far outside the rest: a range cut by percentile, error or entropy is finer where most of them are.
#[test]
fn calibrators_cut_what_lies_far_outside() {
    let (onnx, _) = made("outliers");
    let path = |ending: &str| folder().join(format!("outliers{ending}")).to_str().unwrap().to_string();
    // 40 000 numbers within ±1, four of ±200.
    let values: Vec<f32> = (0..40_000)
        .map(|i| match i % 10_000 {
            77 => {
                if i < 20_000 {
                    200.0
                } else {
                    -200.0
                }
            }
            k => ((k * 7919) % 10_007) as f32 / 5003.5 - 1.0,
        })
        .collect();
    let literal = values.iter().map(|x| format!("{x:?}")).collect::<Vec<_>>().join(", ");
    std::fs::write(
        path("_inputs.rlx"),
        format!(
            "func @main() -> (x: f32[5000, 8]) {{\n  %x = constant {{value = f32[5000, 8]({literal})}}\n  return %x\n}}"
        ),
    )
    .unwrap();
    let npz = path("_far.npz");
    let ran = rlx(&["run", &path("_inputs.rlx"), "--output", &npz]);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let scale = |method: &str| {
        let done = rlx(&["quantize", &onnx, "--calibrate", &npz, "-o", &path(".q.onnx"), "--method", method, "--json"]);
        assert!(done.status.success(), "{method}: {}", text(&done.stderr));
        let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        json["nodes"][0]["scale"].as_f64().unwrap()
    };
    let whole = 400.0 / 255.0;
    assert!((scale("minmax") - whole).abs() < 1e-3 * whole);
    for method in ["percentile", "entropy"] {
        let s = scale(method);
        assert!(s < whole / 3.0, "{method}: {s}");
    }
    // The square of what is cut off weighs more than the rounding of the rest.
    assert!(scale("mse") > 0.8 * whole);
}

/// Quantises a model in every way, from inputs of one file, and says how near results on those of another come: by the program's own
/// report, and in ONNX Runtime where `PYTHON` (or `python3`) has that.
fn quantised(name: &str, model: &Path, seen: &Path, other: &Path, products: usize, least_cosine: f64) {
    let path = |ending: &str| folder().join(format!("{name}{ending}")).to_str().unwrap().to_string();
    let (model, seen, other) = (model.to_str().unwrap(), seen.to_str().unwrap(), other.to_str().unwrap());
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let has = Command::new(&python).args(["-c", "import onnxruntime"]).output().is_ok_and(|o| o.status.success());
    for (method, reduced) in
        [("minmax", false), ("percentile", false), ("mse", false), ("entropy", false), ("mse", true)]
    {
        let out = path(&format!(".{method}.onnx"));
        let args = ["quantize", model, "--calibrate", seen, "-o", &out, "--method", method, "--json"];
        let done = rlx(&[&args[..], if reduced { &["--reduce-range"] } else { &[] }].concat());
        assert!(done.status.success(), "{name} {method}: {}", text(&done.stderr));
        let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(json["nodes"].as_array().unwrap().len(), products, "{name} {method}");
        assert!(json["bytes"].as_u64() < json["bytes_before"].as_u64(), "{name} {method}: no smaller");
        for o in json["outputs"].as_array().unwrap() {
            let cosine = o["cosine"].as_f64().unwrap();
            println!("{name} {method}: output {} cosine {cosine:.5}, SQNR {} dB", o["output"], o["sqnr_db"]);
            assert!(cosine > least_cosine, "{name} {method}: {o}");
        }
        // Inputs that were not seen, in the file as RLX reads it again.
        let (wide, narrow) = (path(".wide.npz"), path(".narrow.npz"));
        for (file, to) in [(model, &wide), (out.as_str(), &narrow)] {
            let ran = rlx(&["run", file, "--inputs", other, "--output", to]);
            assert!(ran.status.success(), "{}", text(&ran.stderr));
        }
        if !has {
            println!("SKIPPED: {python} has no onnxruntime");
            continue;
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/quantized.py");
        let (least, how) = (least_cosine.to_string(), if reduced { "joined" } else { "apart" });
        let peer = Command::new(&python).args([script, &out, other, &wide, &narrow, &least, how]).output().unwrap();
        println!("{}", text(&peer.stdout).trim());
        assert!(peer.status.success(), "{name} {method}: {}{}", text(&peer.stdout), text(&peer.stderr));
    }
}

#[test]
fn a_model_with_depthwise_convolutions_is_quantised_from_an_old_operator_set() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/models/ppocr_cls");
    if !shared.exists() {
        println!("SKIPPED: there is no ../shared/models beside the repository");
        return;
    }
    let (seen, other) = (shared.join("case_b6.npz"), shared.join("case_b1.npz"));
    quantised("ppocr_cls", &shared.join("model.onnx"), &seen, &other, 54, 0.99);
}

#[test]
fn a_residual_network_is_quantised() {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rlx/tests/exported/models/resnet.script.zip");
    let to = folder().join("resnet");
    zip::ZipArchive::new(std::fs::File::open(archive).unwrap()).unwrap().extract(&to).unwrap();
    let inputs = |k: usize| {
        let bytes = std::fs::read(to.join(format!("test_data_set_{k}/input_0.pb"))).unwrap();
        let t = <rlx::onnx::proto::TensorProto as prost::Message>::decode(&bytes[..]).unwrap();
        let dims: Vec<String> = t.dims.iter().map(|d| format!("{d}, ")).collect();
        let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", dims.concat());
        header.extend(std::iter::repeat_n(' ', 63 - (10 + header.len()) % 64));
        header.push('\n');
        let mut npy = b"\x93NUMPY\x01\x00".to_vec();
        npy.extend((header.len() as u16).to_le_bytes());
        npy.extend(header.bytes().chain(t.raw_data.unwrap()));
        let path = to.join(format!("inputs_{k}.npz"));
        let mut zip = zip::ZipWriter::new(std::fs::File::create(&path).unwrap());
        zip.start_file("pixels.npy", zip::write::SimpleFileOptions::default()).unwrap();
        std::io::Write::write_all(&mut zip, &npy).unwrap();
        zip.finish().unwrap();
        path
    };
    quantised("resnet", &to.join("model.onnx"), &inputs(0), &inputs(1), 7, 0.999);
}
