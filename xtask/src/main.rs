//! Checks of the project as code: `cargo xtask check`. See `docs/testing.md`.
#![allow(clippy::print_stdout)]

mod fuzz;
mod ops_table;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "usage: cargo xtask <command>
  check          everything below that changes nothing: fmt, clippy, tidy, generated files
  tidy           file sizes, crate rules, words that stand for unfinished work
  docs           write docs/ops.md
  docs --check   fail if docs/ops.md is not what `docs` would write
  fuzz TARGET S  fuzz a target (onnx, text, dim, artefact) with coverage for so many seconds";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let root = root();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["check"] => check(&root),
        ["tidy"] => tidy::tidy(&root),
        ["docs"] => ops_table::write(&root),
        ["docs", "--check"] => ops_table::check(&root),
        ["fuzz", target, seconds] => fuzz::fuzz(&root, target, seconds),
        _ => Err(vec![USAGE.to_string()]),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problems) => {
            problems.iter().for_each(|p| println!("{p}"));
            ExitCode::FAILURE
        }
    }
}

/// The workspace's folder.
fn root() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().map_or_else(|| manifest.clone(), Path::to_path_buf)
}

fn check(root: &Path) -> Result<(), Vec<String>> {
    let mut problems = Vec::new();
    for step in [
        &["fmt", "--all", "--check"][..],
        &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"][..],
    ] {
        println!("cargo {}", step.join(" "));
        let ok = Command::new("cargo").args(step).current_dir(root).status().is_ok_and(|s| s.success());
        if !ok {
            problems.push(format!("`cargo {}` failed", step.join(" ")));
        }
    }
    problems.extend(tidy::tidy(root).err().into_iter().flatten());
    problems.extend(ops_table::check(root).err().into_iter().flatten());
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}
