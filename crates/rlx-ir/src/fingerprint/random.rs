//! Fingerprints of random graphs: every attribute and every byte counts, names do not, and another process finds the same.

use std::process::Command;

use serde_json::Value as Json;

use super::{content_hash, fingerprint, fingerprint_exact, fingerprint_with_contents};
use crate::graph::Module;
use crate::testing::{GraphOptions, RandomGraph};

fn graphs(seeds: std::ops::Range<u64>) -> impl Iterator<Item = (u64, Module)> {
    seeds.map(|seed| (seed, RandomGraph::generate(seed, 16, &GraphOptions::wild()).module))
}

/// Every leaf of a JSON value with its path.
fn leaves(v: &Json, path: &mut String, out: &mut Vec<String>) {
    let mut child = |key: String, v: &Json| {
        let before = path.len();
        path.push('/');
        path.push_str(&key.replace('~', "~0").replace('/', "~1"));
        leaves(v, path, out);
        path.truncate(before);
    };
    match v {
        Json::Array(items) => items.iter().enumerate().for_each(|(i, v)| child(i.to_string(), v)),
        Json::Object(map) => map.iter().for_each(|(k, v)| child(k.clone(), v)),
        _ => out.push(path.clone()),
    }
}

/// The leaf as something else of its kind.
fn other(v: &Json) -> Json {
    match v {
        Json::Bool(b) => (!b).into(),
        Json::Number(n) => match (n.as_u64(), n.as_i64()) {
            (Some(n), _) => (n ^ 1).into(),
            (_, Some(n)) => (n ^ 1).into(),
            _ => 0.5.into(),
        },
        // Dims are text, and so are variants' names, most of which no other variant has.
        Json::String(s) if s.parse::<i64>().is_ok() => format!("{s}1").into(),
        Json::String(s) => format!("{s} + 1").into(),
        _ => Json::Null,
    }
}

#[test]
fn every_attribute_and_every_byte_counts() {
    let mut changed = 0;
    for (seed, module) in graphs(0..40) {
        let (print, contents) = (fingerprint(&module), fingerprint_with_contents(&module));
        let json = serde_json::to_value(&module).unwrap();
        let mut paths = Vec::new();
        leaves(&json, &mut String::new(), &mut paths);
        let attribute = |p: &str| p.contains("/nodes/") && p.contains("/op/");
        let content = |p: &str| p.contains("/default/") || p.contains("/init/");
        // Large values stand for themselves: a few of their bytes will do.
        let step = (paths.len() / 150).max(1);
        for path in paths.iter().filter(|p| attribute(p) || content(p)).step_by(step) {
            let mut altered = json.clone();
            let leaf = altered.pointer_mut(path).unwrap();
            *leaf = other(leaf);
            let Ok(altered) = serde_json::from_value::<Module>(altered) else { continue };
            if altered == module {
                continue;
            }
            changed += 1;
            if attribute(path) {
                assert_ne!(fingerprint(&altered), print, "seed {seed}: {path}");
            } else {
                assert_eq!(fingerprint(&altered), print, "seed {seed}: {path}");
            }
            assert_ne!(fingerprint_with_contents(&altered), contents, "seed {seed}: {path}");
        }
    }
    assert!(changed > 1_500, "only {changed} changes were tried");
}

/// The module with every name that callers do not speak of changed, and every place.
fn renamed(module: &Module) -> Module {
    let mut json = serde_json::to_value(module).unwrap();
    fn walk(v: &mut Json, count: &mut usize) {
        match v {
            Json::Array(items) => items.iter_mut().for_each(|v| walk(v, count)),
            Json::Object(map) => {
                let value = map.contains_key("def") && map.contains_key("ty");
                let input = value && map.get("def").is_some_and(|d| d.get("Input").is_some());
                let node = map.contains_key("operands") && map.contains_key("loc");
                *count += 1;
                if value && !input {
                    map.insert("name".into(), format!("renamed_{count}").into());
                }
                if node {
                    map.insert("loc".into(), format!("place_{count}").into());
                }
                map.values_mut().for_each(|v| walk(v, count));
            }
            _ => {}
        }
    }
    walk(&mut json, &mut 0);
    serde_json::from_value(json).unwrap()
}

#[test]
fn names_and_places_do_not_count() {
    for (seed, module) in graphs(0..80) {
        let other = renamed(&module);
        assert_eq!(fingerprint(&other), fingerprint(&module), "seed {seed}");
        assert_eq!(fingerprint_with_contents(&other), fingerprint_with_contents(&module), "seed {seed}");
        if !module.main.nodes().is_empty() {
            let exact = |m: &Module| fingerprint_exact(m, &content_hash);
            assert_ne!(exact(&other), exact(&module), "seed {seed}");
        }
    }
}

/// Set for the process that a test starts.
const CHILD: &str = "RLX_TEST_FINGERPRINTS";

fn listed() -> String {
    let line = |(seed, m): (u64, Module)| {
        format!(
            "{seed} {} {} {}\n",
            fingerprint(&m),
            fingerprint_with_contents(&m),
            fingerprint_exact(&m, &content_hash)
        )
    };
    graphs(0..60).map(line).collect()
}

#[test]
fn another_process_finds_the_same() {
    if let Ok(path) = std::env::var(CHILD) {
        std::fs::write(path, listed()).unwrap();
        return;
    }
    let path = std::env::temp_dir().join(format!("rlx-fingerprints-{}", std::process::id()));
    let name = "fingerprint::random::another_process_finds_the_same";
    let status = Command::new(std::env::current_exe().unwrap()).args(["--exact", name]).env(CHILD, &path).status();
    assert!(status.unwrap().success());
    let theirs = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(theirs.lines().count(), 60);
    assert_eq!(theirs, listed());
}
