//! The program as it is called: exit codes, streams, options.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const STATEFUL: &str =
    "func @main(%x: f32[n]; state %s: f32[] -> %t) {\n  %t = add(%s, %s)\n  %y = add(%x, %s)\n  return %y\n}\n";
const PLAIN: &str = "func @main(%x: f32[n], %k: i64[]) {\n  %c = convert(%k) {to = f32, saturate = true}\n  \
                     %y = mul(%x, %c)\n  return %y\n}\n";

const FUSED: &str = "func @main(%x: f32[n]) {\n  %e = exp(%x)\n  %y = neg(%e)\n  return %y\n}\n";

fn model(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("rlx-commands-{}-{name}.rlx", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

fn rlx(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rlx"))
        .args(args)
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap()
}

fn code(out: &Output) -> i32 {
    out.status.code().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn numbers_fill_inputs_and_what_is_filled_is_said() {
    let m = model("numbers", PLAIN);
    let out = rlx(&["run", m.to_str().unwrap(), "--dim", "n=3", "--input", "k=4", "--fill", "ones", "--json"]);
    assert_eq!(code(&out), 0, "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains(r#""min":4.0"#), "{}", text(&out.stdout));
    assert!(text(&out.stderr).contains("filled with ones: `x` f32[3]"), "{}", text(&out.stderr));
    let out = rlx(&["run", m.to_str().unwrap(), "--dim", "n=3", "--input", "k=4.5"]);
    assert_eq!((code(&out), text(&out.stderr).contains("4.5 is no i64")), (6, true), "{}", text(&out.stderr));
    let out = rlx(&["run", m.to_str().unwrap(), "--dim", "n=3", "--input", "k=nothing.npy"]);
    assert_eq!(code(&out), 3);
}

#[test]
fn graphs_with_states_run_from_their_initial_values() {
    let m = model("states", STATEFUL);
    let out = rlx(&["run", m.to_str().unwrap(), "--dim", "n=2", "--fill", "ones", "--json"]);
    assert_eq!(code(&out), 0, "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains(r#""max":1.0"#), "{}", text(&out.stdout));
}

#[test]
fn tolerances_are_numbers_of_zero_or_more() {
    let m = model("tolerances", PLAIN);
    for wrong in ["--rtol=nan", "--rtol=-1", "--atol=inf"] {
        assert_eq!(code(&rlx(&["verify", m.to_str().unwrap(), "--dim", "n=3", wrong])), 2, "{wrong}");
    }
    assert_eq!(code(&rlx(&["verify", m.to_str().unwrap(), "--dim", "n=3"])), 0);
}

#[test]
fn passes_are_listed_without_a_file() {
    let out = rlx(&["opt", "--list"]);
    assert_eq!(code(&out), 0);
    assert!(text(&out.stdout).lines().any(|l| l == "canonicalise"));
    assert_eq!(code(&rlx(&["opt"])), 2);
}

#[test]
fn results_that_cannot_be_written_are_an_error() {
    let m = model("full", PLAIN);
    // A device that is always full; elsewhere than on Linux there is none.
    if let Ok(full) = File::options().write(true).open("/dev/full") {
        let mut c = Command::new(env!("CARGO_BIN_EXE_rlx"));
        let status = c.args(["inspect", m.to_str().unwrap()]).stdout(full).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(8));
    }
    let inside = m.join("folder");
    assert_eq!(code(&rlx(&["compile", m.to_str().unwrap(), "--dump-ir", inside.to_str().unwrap()])), 8);
}

fn with_env(args: &[&str], env: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rlx"))
        .args(args)
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .envs(env.iter().copied())
        .output()
        .unwrap()
}

#[test]
fn the_environment_sets_options_and_typos_are_an_error_of_usage() {
    let m = model("environment", PLAIN);
    let run = ["run", m.to_str().unwrap(), "--dim", "n=3", "--json"];
    let wrong = with_env(&run, &[("RLX_ISA", "banana"), ("RLX_THREADS", "two")]);
    let stderr = text(&wrong.stderr);
    assert_eq!((code(&wrong), wrong.stdout.len()), (2, 0));
    assert!(stderr.contains("RLX_ISA") && stderr.contains("avx512") && stderr.contains("RLX_THREADS"), "{stderr}");
    // What a backend lacks is a warning on stderr; stdout stays one JSON object.
    let low = with_env(&run, &[("RLX_MATMUL_PRECISION", "high")]);
    assert_eq!(code(&low), 0);
    assert!(
        text(&low.stderr).contains("warning: option `matmul_precision` asked for high, got highest"),
        "{}",
        text(&low.stderr)
    );
    let json: serde_json::Value = serde_json::from_slice(&low.stdout).unwrap();
    assert!(json["outputs"].is_array());
    assert_eq!(code(&with_env(&run, &[("RLX_ISA", "portable"), ("RLX_THREADS", "1"), ("RLX_POISON", "1")])), 0);
    let help = rlx(&["--help"]);
    assert!(text(&help.stdout).contains("RLX_ISA=portable|avx2|avx512|amx|neon"), "{}", text(&help.stdout));
}

#[test]
fn inspect_tells_memory_fusion_placement_and_times_as_data_and_text() {
    let m = model("report", FUSED);
    let m = m.to_str().unwrap();
    let out = rlx(&["inspect", m, "--dim", "n=1000", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&json["memory"]["outputs"], &json["memory"]["arena"]), (&4000.into(), &0.into()));
    assert_eq!(json["target"], "cpu");
    assert_eq!(json["placement"].as_array().unwrap().len(), json["kernels"]["map"].as_u64().unwrap() as usize);
    assert!(json["passes"].as_array().unwrap().iter().any(|p| p["pass"] == "lower" && p["ms"].is_f64()));
    assert!(!json["fusion"]["fused"].as_array().unwrap().is_empty(), "{json}");
    let shown = text(&rlx(&["inspect", m, "--dim", "n=1000"]).stdout);
    assert!(shown.contains("3.9 KiB of its own") && shown.contains("fused"), "{shown}");
    // Without sizes there is no number, and it says what is needed.
    assert!(text(&rlx(&["inspect", m]).stdout).contains("--dim"));
}

#[test]
fn inspect_tells_memory_where_sizes_depend_on_data() {
    let module = |bounds: &str| {
        format!(
            "func @main(%x: f32[n], %k: i64[1]) -> (i: i64[1, found], s: f32[m]) {bounds} {{\n  %i = nonzero(%x) {{count = found}}\n  \
             %d = read_dims(%k) {{symbols = [m]}}\n  %j = iota {{dtype = f32, dims = [m], axis = 0}}\n  %s = exp(%j)\n  return %i, %s\n}}\n"
        )
    };
    let m = model("bounded", &module("bounds(m = 0..16)"));
    let run = ["inspect", m.to_str().unwrap(), "--dim", "n=100"];
    let json: serde_json::Value = serde_json::from_slice(&rlx(&[&run[..], &["--json"]].concat()).stdout).unwrap();
    let parts = json["memory"]["segments"].as_array().unwrap();
    assert_eq!((parts.len(), json["memory"]["partial"].as_bool()), (3, Some(true)), "{json}");
    assert_eq!((&parts[1]["symbols"][0], &parts[1]["outputs"]["at_most"]), (&"found".into(), &800.into()));
    assert_eq!((&parts[2]["symbols"][0], &parts[2]["outputs"]["at_most"]), (&"m".into(), &64.into()));
    assert!(json["memory"]["at_most"].is_u64() && json["memory"]["why"].as_array().unwrap().is_empty(), "{json}");
    let shown = text(&rlx(&run).stdout);
    assert!(shown.contains("once data gives found") && shown.contains("at most"), "{shown}");

    let m = model("unbounded", &module(""));
    let run = ["inspect", m.to_str().unwrap(), "--dim", "n=100"];
    let json: serde_json::Value = serde_json::from_slice(&rlx(&[&run[..], &["--json"]].concat()).stdout).unwrap();
    assert!(json["memory"]["at_most"].is_null() && json["memory"]["segments"][2]["outputs"].is_null(), "{json}");
    assert!(json["memory"]["why"][0].as_str().unwrap().contains("nothing bounds `m`"), "{json}");
    assert!(text(&rlx(&run).stdout).contains("open: nothing bounds `m`"));
}

#[test]
fn a_memory_limit_refuses_a_run_before_it_starts() {
    let m = model("limit", PLAIN);
    let run = ["run", m.to_str().unwrap(), "--dim", "n=1000", "--memory-limit"];
    assert_eq!(code(&rlx(&[&run[..], &["4064"]].concat())), 0);
    let out = rlx(&[&run[..], &["4063"]].concat());
    assert_eq!(code(&out), 7);
    assert!(text(&out.stderr).contains("`memory_limit` is 4063 bytes"), "{}", text(&out.stderr));
}

/// A product whose weights stand in the text.
const WEIGHTED: &str = "func @main(%x: f32[n, 2]; param %w: f32[2, 3] = f32[2, 3](1.0, 2.0, 3.0, 4.0, 5.0, 6.0)) -> (y: f32[n, 3]) {\n  \
                        %y = dot_general(%x, %w) {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0], accumulate = none}\n  return %y\n}\n";

#[test]
fn artefacts_are_written_shown_and_run() {
    let m = model("weighted", WEIGHTED);
    let file = m.with_extension("rlxa");
    let (m, file) = (m.to_str().unwrap(), file.to_str().unwrap());
    let out = rlx(&["compile", m, "-o", file]);
    assert_eq!(code(&out), 0, "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("packed and prepared weights"), "{}", text(&out.stdout));
    let how = ["--dim", "n=2", "--fill", "ones", "--json"];
    let runs: Vec<String> = [m, file].iter().map(|f| text(&rlx(&[&["run", f], &how[..]].concat()).stdout)).collect();
    assert!(runs[0].contains(r#""max":9.0"#) && runs[0] == runs[1], "{runs:?}");
    let out = text(&rlx(&["inspect", file, "--json"]).stdout);
    assert!(out.contains(r#""target":"cpu""#) && out.contains(r#""contract":1"#) && out.contains("panels"), "{out}");
    let out = text(&rlx(&["inspect", file]).stdout);
    assert!(out.contains("version     0.1.0") && out.contains("output"), "{out}");
    let out = rlx(&["bench", file, "--dim", "n=2", "--seconds", "0.05", "--json", "--trust"]);
    assert!(text(&out.stdout).contains(r#""compile_ms":0.0"#), "{}", text(&out.stdout));
    for (wrong, want) in [
        (vec!["compile", file], 2),
        (vec!["verify", file, "--dim", "n=2"], 2),
        (vec!["inspect", file, "--dim", "n=2"], 2),
        (vec!["run", file], 6),
        (vec!["run", "nothing.rlxa"], 3),
    ] {
        assert_eq!(code(&rlx(&wrong)), want, "{wrong:?}");
    }
    let mut bytes = std::fs::read(file).unwrap();
    bytes[200] ^= 1;
    std::fs::write(file, bytes).unwrap();
    let out = rlx(&["run", file, "--dim", "n=2"]);
    assert_eq!((code(&out), text(&out.stderr).contains("[artefact-damaged]")), (4, true), "{}", text(&out.stderr));
}

#[test]
fn compiled_programs_are_kept_where_the_environment_says_and_not_where_the_command_line_says() {
    let m = model("cached", WEIGHTED);
    let dir = m.with_extension("cache");
    let _ = std::fs::remove_dir_all(&dir);
    let bench = |more: &[&str]| {
        let args = [&["bench", m.to_str().unwrap(), "--dim", "n=2", "--seconds", "0.02", "--json"], more].concat();
        text(&with_env(&args, &[("RLX_CACHE_DIR", dir.to_str().unwrap())]).stdout)
    };
    assert!(bench(&["--no-cache"]).contains(r#""cached":false"#) && !dir.exists());
    assert!(bench(&[]).contains(r#""cached":false"#));
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
    assert!(bench(&[]).contains(r#""cached":true"#));
    assert!(bench(&["--no-cache"]).contains(r#""cached":false"#));
}
