//! The program on real models: what a user types, and what must come out.
//!
//! The shipped model always runs. The models of `../shared` run where that folder is; elsewhere a line says that they were skipped.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rlx(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rlx"))
        .args(args)
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap()
}

fn stdout(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned()
}

fn verify(model: &Path, case: &Path) {
    let (m, c) = (model.to_str().unwrap(), case.to_str().unwrap());
    let o = rlx(&["verify", m, "--case", c, "--rtol", "1e-3", "--atol", "1e-4", "--threads", "2"]);
    let err = String::from_utf8_lossy(&o.stderr).into_owned();
    assert_eq!(o.status.code(), Some(0), "{m} on {c}:\n{}{err}", stdout(&o));
}

#[test]
fn shipped_model_tells_speech_from_silence() {
    let folder = root().join("models/silero_vad");
    let model = folder.join("model.onnx");
    for case in ["speech", "silence", "speech_8k_b2"] {
        verify(&model, &folder.join(format!("{case}.npz")));
    }
    for (case, speech) in [("speech", true), ("silence", false)] {
        let inputs = folder.join(format!("{case}.npz"));
        let o = rlx(&["run", model.to_str().unwrap(), "--inputs", inputs.to_str().unwrap(), "--json"]);
        assert_eq!(o.status.code(), Some(0), "{}", String::from_utf8_lossy(&o.stderr));
        let v: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
        let p = v["outputs"][0]["max"].as_f64().unwrap();
        assert_eq!(p > 0.5, speech, "{case}: {p}");
    }
}

#[test]
fn shared_models_give_the_stored_outputs() {
    let shared = root().join("../shared/models");
    let mut cases = 0;
    for name in ["silero_vad", "magika", "ppocr_cls", "ppocr_det", "minilm_l6_v2"] {
        let folder = shared.join(name);
        let Ok(entries) = std::fs::read_dir(&folder) else {
            println!("skipped: no {name} beside the repository");
            continue;
        };
        let mut paths: Vec<PathBuf> = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
        paths.sort();
        for case in paths.iter().filter(|p| p.extension().is_some_and(|e| e == "npz")) {
            verify(&folder.join("model.onnx"), case);
            cases += 1;
        }
    }
    println!("{cases} cases of shared models");
}

#[test]
fn mistakes_have_their_exit_codes() {
    let model = root().join("models/silero_vad/model.onnx");
    let m = model.to_str().unwrap();
    for (args, code, says) in [
        (vec!["run"], 2, "MODEL"),
        (vec!["run", "no/such/file.onnx"], 3, "no such file"),
        (vec!["run", "crates"], 3, "no such file"),
        (vec!["run", m], 6, "--shape"),
        (vec!["run", m, "--shape", "nonsense=1x2"], 6, "its inputs are"),
        (vec!["run", m, "--shape", "input=1xq"], 2, "not a shape"),
        (vec!["opt", "x.rlx", "--pass", "cse"], 3, "x.rlx"),
        (vec!["verify", m, "--case", "no/such/case"], 3, "no such file"),
    ] {
        let o = rlx(&args);
        let err = String::from_utf8_lossy(&o.stderr).into_owned();
        assert_eq!(o.status.code(), Some(code), "{args:?}: {err}");
        assert!(err.contains(says), "{args:?}: {err}");
        assert!(o.stdout.is_empty(), "{args:?} wrote to stdout");
    }
}

#[test]
fn garbage_is_no_model() {
    let dir = std::env::temp_dir().join(format!("rlx-garbage-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for (name, bytes) in
        [("empty", &b""[..]), ("html", b"<html></html>"), ("noise", &[0xff; 300]), ("zeros", &[0; 300])]
    {
        let path = dir.join(format!("{name}.onnx"));
        std::fs::write(&path, bytes).unwrap();
        let o = rlx(&["inspect", path.to_str().unwrap()]);
        assert_eq!(o.status.code(), Some(4), "{name}: {}", String::from_utf8_lossy(&o.stderr));
    }
    let _ = std::fs::remove_dir_all(&dir);
}
