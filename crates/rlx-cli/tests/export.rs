//! `rlx export`: what is written runs as what it was written from.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn rlx(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rlx"))
        .args(args)
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("rlx-export-{}-{name}", std::process::id()))
}

#[test]
fn the_shipped_model_gives_the_same_after_export() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/silero_vad");
    let (from, to) = (models.join("model.onnx"), scratch("vad.onnx"));
    let out = rlx(&["export", from.to_str().unwrap(), "-o", to.to_str().unwrap(), "--json"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("\"bytes\":"), "{}", text(&out.stdout));
    for sound in ["speech.npz", "silence.npz"] {
        let inputs = models.join(sound);
        let run = |m: &Path| {
            let out = rlx(&["run", m.to_str().unwrap(), "--inputs", inputs.to_str().unwrap()]);
            assert!(out.status.success(), "{}", text(&out.stderr));
            text(&out.stdout)
        };
        assert_eq!(run(&from), run(&to), "{sound}");
    }
    std::fs::remove_file(to).unwrap();
}

#[test]
fn what_has_no_form_is_listed_and_nothing_is_written() {
    let (from, to) = (scratch("no_form.rlx"), scratch("no_form.onnx"));
    let graph = "func @main(%x: f32[n], %i: i32[n]) -> (f32[n], i32[n]) {\n  %y = atan2(%x, %x)\n  %z = popcnt(%i)\n  return %y, %z\n}\n";
    std::fs::write(&from, graph).unwrap();
    let out = rlx(&["export", from.to_str().unwrap(), "-o", to.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(5));
    for part in ["`atan2`", "`popcnt`"] {
        assert!(text(&out.stderr).contains(part), "{}", text(&out.stderr));
    }
    assert!(!to.exists());
    let out = rlx(&["export", from.to_str().unwrap(), "-o", "/nowhere/at/all.onnx"]);
    assert_eq!(out.status.code(), Some(5));
}
