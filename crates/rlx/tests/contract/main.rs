//! The contract of devices, sessions, options, compiled graphs and dynamic shapes: a file per section, a test per row, named
//! `spec_<section>_<row>`.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod backends;
mod harness;
mod spec0_names;
mod spec1_devices;
mod spec2_precision;
mod spec2_session;
mod spec3_options;
mod spec3_prepare;
mod spec4_cache;
mod spec4_parameters;
mod spec4_rng;
mod spec4_running;
mod spec4_state;
mod spec5_dynamic;
mod spec6_ways;
mod spec7_artefacts;
mod spec7_custom;

/// From the contract to its tests: every test that `docs/contract.md` names exists, and every test here is named there.
#[test]
fn the_contract_and_its_tests_name_each_other() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let doc = std::fs::read_to_string(here.ancestors().nth(2).unwrap().join("docs/contract.md")).unwrap();
    let named: std::collections::BTreeSet<&str> =
        doc.split('`').skip(1).step_by(2).filter(|w| w.starts_with("spec_") && !w.contains('<')).collect();
    let mut there = std::collections::BTreeSet::new();
    let files: Vec<String> = std::fs::read_dir(here.join("tests/contract"))
        .unwrap()
        .map(|f| std::fs::read_to_string(f.unwrap().path()).unwrap())
        .collect();
    for f in &files {
        there.extend(f.split("\nfn spec_").skip(1).filter_map(|t| t.split('(').next()));
    }
    let missing: Vec<&&str> = named.iter().filter(|n| !there.contains(n.trim_start_matches("spec_"))).collect();
    assert!(missing.is_empty(), "docs/contract.md names tests that do not exist: {missing:?}");
    // Fields of the options are many and named by their rule.
    let unnamed: Vec<&&str> = there
        .iter()
        .filter(|t| !named.contains(format!("spec_{t}").as_str()))
        .filter(|t| !rlx::CompileOptions::NAMES.iter().any(|n| t.starts_with(&format!("3_{n}_"))))
        .filter(|t| **t != "3_every_option_is_tested")
        .collect();
    assert!(unnamed.is_empty(), "docs/contract.md lacks: {unnamed:?}");
}
