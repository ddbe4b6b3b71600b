//! Fuzzing with coverage on the stable toolchain: `cargo xtask fuzz TARGET SECONDS`.
//!
//! The flags are those that `cargo fuzz` passes, less the sanitisers, which need a nightly compiler: what is written in safe Rust shows
//! its faults as panics, and unbounded allocation by libFuzzer's limit. A C++ compiler builds libFuzzer.

use std::path::Path;
use std::process::Command;

/// Counters on every edge, and comparisons, which libFuzzer learns numbers from.
const FLAGS: &str = "--cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Builds and runs a target. What it finds is kept in `target/fuzz/TARGET`, and its starting points are those of `fuzz/corpus`, and for
/// `onnx` the small models that tests have fetched.
pub fn fuzz(root: &Path, target: &str, seconds: &str) -> Result<(), Vec<String>> {
    let folder = root.join("target/fuzz");
    let corpus = folder.join(target);
    gather(root, target, &corpus).map_err(|e| vec![format!("{}: {e}", corpus.display())])?;
    let Some(triple) = host() else { return Err(vec!["`rustc -vV` names no host".into()]) };
    let features = if target == "artefact" { "libfuzzer,artefact" } else { "libfuzzer" };
    // With a target named, the flags are not those of build scripts.
    let built = Command::new("cargo")
        .args(["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--features", features, "--bin", target])
        .args(["--target", &triple, "--target-dir"])
        .arg(&folder)
        .env("RUSTFLAGS", FLAGS)
        .current_dir(root)
        .status();
    if !built.is_ok_and(|s| s.success()) {
        return Err(vec![format!("the fuzz target `{target}` does not build")]);
    }
    let ran = Command::new(folder.join(triple).join("release").join(target))
        .arg(&corpus)
        .args([&*format!("-max_total_time={seconds}"), "-timeout=10", "-max_len=16384", "-print_final_stats=1"])
        .args(["-rss_limit_mb=4096", "-malloc_limit_mb=1024"])
        .arg(format!("-artifact_prefix={}/", folder.display()))
        .status();
    let failed = || vec![format!("`{target}` failed; the input is kept in {}", folder.display())];
    if ran.is_ok_and(|s| s.success()) { Ok(()) } else { Err(failed()) }
}

fn host() -> Option<String> {
    let out = Command::new("rustc").arg("-vV").output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    text.lines().find_map(|l| l.strip_prefix("host: ")).map(str::to_string)
}

/// Copies starting points to where libFuzzer adds its own.
fn gather(root: &Path, target: &str, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    let mut folders = vec![root.join("fuzz/corpus").join(target)];
    if target == "onnx" {
        folders.push(root.join("target/tmp"));
    }
    let mut number = 0;
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            let model = folder.starts_with(root.join("fuzz")) || path.extension().is_some_and(|e| e == "onnx");
            if path.is_dir() {
                folders.push(path);
            } else if model && entry.metadata()?.len() <= 1 << 14 {
                std::fs::copy(&path, to.join(format!("seed-{number}")))?;
                number += 1;
            }
        }
    }
    Ok(())
}
