//! The program as it is called: exit codes, streams, options.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const STATEFUL: &str =
    "func @main(%x: f32[n]; state %s: f32[] -> %t) {\n  %t = add(%s, %s)\n  %y = add(%x, %s)\n  return %y\n}\n";
const PLAIN: &str = "func @main(%x: f32[n], %k: i64[]) {\n  %c = convert(%k) {to = f32, saturate = true}\n  \
                     %y = mul(%x, %c)\n  return %y\n}\n";

fn model(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("rlx-commands-{}-{name}.rlx", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

fn rlx(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rlx")).args(args).output().unwrap()
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
