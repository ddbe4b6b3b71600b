//! Rules about files that no compiler checks.

use std::path::{Path, PathBuf};

/// Files longer than this fail, unless listed.
const MAX_LINES: usize = 1000;

/// Long for one reason each.
const LONG_FILES: &[(&str, &str)] =
    &[("crates/rlx-onnx/src/proto/onnx.rs", "message types of the format, as generated")];

/// Crates that may hold `unsafe`; every other library says `#![forbid(unsafe_code)]`.
const UNSAFE_CRATES: &[&str] = &["rlx-driver", "rlx-cpu"];

/// The evaluator's ways in; the CPU backend's library code may not name them (its tests may).
const EVALUATOR: &[&str] =
    &["rlx_ir::eval", "::evaluate(", "OpDef::eval", ".def().eval(", "Elementwise::apply", "Elementwise::value"];

/// Checks everything; gives what is wrong.
pub fn tidy(root: &Path) -> Result<(), Vec<String>> {
    let mut problems = Vec::new();
    let mut files = Vec::new();
    for dir in ["crates", "xtask"] {
        walk(&root.join(dir), &mut files);
    }
    for file in files {
        let Ok(text) = std::fs::read_to_string(&file) else {
            problems.push(format!("{}: not readable as UTF-8", file.display()));
            continue;
        };
        let name = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().replace('\\', "/");
        check_file(&name, &text, &mut problems);
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

fn check_file(name: &str, text: &str, problems: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > MAX_LINES && !LONG_FILES.iter().any(|(f, _)| *f == name) {
        problems.push(format!("{name}: {lines} lines; split it, or list it with its reason in xtask/src/tidy.rs"));
    }
    if !text.trim_start().starts_with("//!") && !name.contains("/tests/") && !name.contains("/tests.rs") {
        problems.push(format!("{name}: has no module header"));
    }
    for (i, line) in text.lines().enumerate() {
        if line.ends_with(' ') || line.contains('\t') {
            problems.push(format!("{name}:{}: trailing blank or tab", i + 1));
        }
    }
    let crate_name = name.strip_prefix("crates/").and_then(|n| n.split('/').next()).unwrap_or("");
    let is_library = name.ends_with("/src/lib.rs");
    if is_library && !UNSAFE_CRATES.contains(&crate_name) && !text.contains("#![forbid(unsafe_code)]") {
        problems.push(format!("{name}: must say #![forbid(unsafe_code)]"));
    }
    if crate_name == "rlx-cpu" && name.contains("/src/") && !name.contains("test") {
        let code = text.split("#[cfg(test)]").next().unwrap_or("");
        for word in EVALUATOR.iter().filter(|w| code.contains(**w)) {
            problems.push(format!("{name}: names the evaluator (`{word}`), which no backend may call"));
        }
    }
}

fn walk(dir: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.filter_map(|e| e.ok().map(|e| e.path())) {
        if path.is_dir() && path.file_name().is_some_and(|n| n != "target") {
            walk(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(name: &str, text: &str) -> Vec<String> {
        let mut p = Vec::new();
        check_file(name, text, &mut p);
        p
    }

    #[test]
    fn sees_what_it_forbids() {
        assert!(problems("crates/x/src/a.rs", "//! Header.\nfn f() {}\n").is_empty());
        assert_eq!(problems("crates/x/src/a.rs", "fn f() {}\n").len(), 1);
        assert_eq!(problems("crates/x/src/a.rs", "//! Header.\nfn f() {} \n").len(), 1);
        assert_eq!(problems("crates/rlx-ir/src/lib.rs", "//! Header.\n").len(), 1);
        assert_eq!(problems("crates/rlx-cpu/src/a.rs", "//! Header.\nuse rlx_ir::eval;\n").len(), 1);
        assert!(
            problems("crates/rlx-cpu/src/a.rs", "//! H.\n#[cfg(test)]\nmod tests { use rlx_ir::eval; }\n").is_empty()
        );
        assert_eq!(problems("crates/x/src/a.rs", &format!("//! H.\n{}", "fn f() {}\n".repeat(1001))).len(), 1);
    }
}
