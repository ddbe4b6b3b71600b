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
    Command::new(env!("CARGO_BIN_EXE_rlx")).args(args).env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR")).envs(env.iter().copied()).output().unwrap()
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
    let low = with_env(&run, &[("RLX_PRECISION", "bf16")]);
    assert_eq!(code(&low), 0);
    assert!(text(&low.stderr).contains("warning: option `precision` asked for bf16, got f32"), "{}", text(&low.stderr));
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
fn a_memory_limit_refuses_a_run_before_it_starts() {
    let m = model("limit", PLAIN);
    let run = ["run", m.to_str().unwrap(), "--dim", "n=1000", "--memory-limit"];
    assert_eq!(code(&rlx(&[&run[..], &["4064"]].concat())), 0);
    let out = rlx(&[&run[..], &["4063"]].concat());
    assert_eq!(code(&out), 7);
    assert!(text(&out.stderr).contains("`memory_limit` is 4063 bytes"), "{}", text(&out.stderr));
}
