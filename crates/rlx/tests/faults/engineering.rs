//! Faults 31 to 33: of how a system is kept, read off the sources.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

/// Rust files of a folder and those in it.
fn sources(folder: &Path, out: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for p in entries {
        if p.is_dir() {
            sources(&p, out);
        } else if p.extension().is_some_and(|e| e == "rs") {
            out.push(p);
        }
    }
}

fn crates() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| root().join("crates").join(n).join("Cargo.toml").exists())
        .collect();
    names.sort();
    names
}

/// Files of the libraries with their text up to their tests.
fn library() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    // One is a program, one speaks to cargo while others are built.
    for name in crates().iter().filter(|n| !["rlx-cli", "rlx-sources"].contains(&n.as_str())) {
        sources(&root().join("crates").join(name).join("src"), &mut files);
    }
    let is_test = |p: &Path| {
        p.components().any(|c| matches!(c.as_os_str().to_str(), Some("tests" | "testing"))) || {
            let name = p.file_stem().and_then(|n| n.to_str()).unwrap_or("");
            name.starts_with("tests") || name == "rig"
        }
    };
    let mut out = Vec::new();
    for p in files.into_iter().filter(|p| !is_test(p)) {
        let text = std::fs::read_to_string(&p).unwrap();
        let own = text.split("#[cfg(test)]").next().unwrap_or("").to_string();
        out.push((p, own));
    }
    out
}

#[test]
fn fault_31_an_op_is_declared_once_files_stay_small_and_libraries_print_nothing() {
    let files = library();
    assert!(files.len() > 300, "{} files were found", files.len());
    let mut wrong = Vec::new();
    let mut declared: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut registries = Vec::new();
    for (path, text) in &files {
        let lines = text.lines().count();
        if lines > 800 {
            wrong.push(format!("{}: {lines} lines", path.display()));
        }
        for (i, line) in text.lines().enumerate().filter(|(_, l)| !l.trim_start().starts_with("//")) {
            let prints = ["println!(", "eprintln!(", "print!(", "eprint!(", "dbg!("];
            let word = |p: &&str| {
                line.split(p).next().is_some_and(|b| line.len() > b.len() && !b.ends_with(char::is_alphanumeric))
            };
            if prints.iter().any(word) && !path.ends_with("build.rs") {
                wrong.push(format!("{}:{}: {}", path.display(), i + 1, line.trim()));
            }
            // `pub struct NonZero = "nonzero" {` in an `op!`.
            if let Some((head, rest)) = line.split_once(" = \"")
                && head.trim_start().starts_with("pub struct ")
                && let Some((name, _)) = rest.split_once('"')
            {
                declared.entry(name.into()).or_default().push(path.display().to_string());
            }
        }
        if text.contains("pub fn register_backend") || text.contains("pub fn register_op") {
            registries.push(path.clone());
        }
    }
    wrong.extend(
        declared.iter().filter(|(_, at)| at.len() > 1).map(|(n, at)| format!("op `{n}` is declared in {at:?}")),
    );
    assert!(declared.len() > 40, "only {} declarations were found", declared.len());
    assert_eq!(registries.len(), 1, "{registries:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn fault_32_the_oracle_knows_no_kernel_and_no_kernel_the_oracle() {
    // What a test compares with must not be what it tests: the evaluator's crate depends on none of ours, the kernels' never names it.
    let manifest = std::fs::read_to_string(root().join("crates/rlx-ir/Cargo.toml")).unwrap();
    let ours: Vec<&str> = manifest.lines().filter(|l| l.starts_with("rlx-") && !l.starts_with("rlx-sources")).collect();
    assert!(ours.is_empty(), "rlx-ir depends on {ours:?}");
    let mut files = Vec::new();
    sources(&root().join("crates/rlx-cpu/src"), &mut files);
    for p in files.iter().filter(|p| !p.components().any(|c| c.as_os_str() == "testing")) {
        let text = std::fs::read_to_string(p).unwrap();
        let named = text.lines().find(|l| l.contains("rlx_ir::eval") || l.contains("eval::evaluate"));
        assert!(named.is_none(), "{}: {named:?}", p.display());
    }
    // And it is itself held against what others computed: NumPy and ONNX's own cases.
    for fixture in ["crates/rlx/tests/conformance/reference.zip", "crates/rlx/tests/nn/fixtures/make.py"] {
        assert!(root().join(fixture).exists(), "{fixture}");
    }
}

#[test]
fn fault_33_crates_of_one_version_depend_on_each_other_by_it() {
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let after = |text: &str, key: &str| text.split(key).nth(1).and_then(|t| t.split('"').next()).map(str::to_owned);
    let version = after(&workspace, "\nversion = \"").unwrap();
    for name in crates() {
        let manifest = std::fs::read_to_string(root().join("crates").join(&name).join("Cargo.toml")).unwrap();
        assert!(manifest.contains("version.workspace = true"), "{name} has a version of its own");
        let ours = manifest.lines().filter(|l| l.starts_with("rlx") && l.contains('='));
        for line in ours {
            let dependency = line.split(['.', ' ', '=']).next().unwrap();
            let by_workspace = line.contains(".workspace = true") || line.contains("workspace = true");
            assert!(by_workspace, "{name}: `{line}` does not take the workspace's version");
            let entry = workspace.lines().find(|l| l.starts_with(&format!("{dependency} = "))).unwrap_or("");
            assert_eq!(after(entry, "version = \"").as_deref(), Some(version.as_str()), "{name}: {dependency}");
        }
    }
}
