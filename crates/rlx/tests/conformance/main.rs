//! ONNX's own cases, five ways each: evaluator, compiled, compiled without optimisation, inputs as constants, inputs as parameters.
//!
//! What need not pass stands in `exceptions.txt` with its reason; an entry that passes fails the test, so that the list only shrinks.
//! `operators.txt` is what they show of each operator; `BLESS=1` writes it. `CASES=text` runs those whose label contains the text; `cargo run -p rlx --example conformance` prints the table by operator.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod runner;

use std::collections::BTreeMap;
use std::time::Instant;

use runner::{cases, exceptions, table};

#[test]
fn onnx_cases() {
    let filter = std::env::var("CASES").unwrap_or_default();
    let (cases, skipped) = cases::find(&filter).unwrap_or_else(|e| panic!("{e}"));
    for s in &skipped {
        println!("SKIPPED: {s}");
    }
    let start = Instant::now();
    let reports = runner::run_all(&cases);
    println!("{}{}{:.1} s", table::by_way(&reports), table::fixed(&reports), start.elapsed().as_secs_f64());
    let mut list = exceptions::parse(include_str!("exceptions.txt")).unwrap_or_else(|e| panic!("exceptions.txt: {e}"));
    list.retain(|case, _| case.contains(&filter));
    let problems = exceptions::problems(&list, &reports);
    if filter.is_empty() && skipped.is_empty() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/operators.txt");
        let seen = runner::operators::lines(&reports);
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(path, &seen).unwrap();
        }
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        let differs = seen.lines().find(|l| !kept.lines().any(|k| k == *l));
        assert!(seen == kept, "operators.txt is out of date (BLESS=1 writes it), then `cargo xtask docs`: {differs:?}");
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

/// What is written back to a file and read again gives what the cases expect.
#[test]
fn cases_written_as_files_give_the_same() {
    let filter = std::env::var("CASES").unwrap_or_default();
    let (cases, _) = cases::find(&filter).unwrap_or_else(|e| panic!("{e}"));
    let list = exceptions::parse(include_str!("exceptions.txt")).unwrap();
    let (mut written, mut wrong, mut skipped) = (0, Vec::new(), BTreeMap::<String, Vec<String>>::new());
    let wanted: Vec<_> = cases.iter().filter(|c| !list.contains_key(&c.label())).collect();
    for case in &wanted {
        match runner::ways::exported(case) {
            Err(why) => skipped.entry(why.replace('\n', " | ")).or_default().push(case.label()),
            Ok(Ok(())) => written += 1,
            Ok(Err(why)) => wrong.push(format!("{}: {}", case.label(), why.replace('\n', " | "))),
        }
    }
    println!("{written} of {} cases that pass are written as files and give the same", wanted.len());
    for (why, cases) in &skipped {
        println!("SKIPPED {}: {why} (such as {})", cases.len(), cases[0]);
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    let n = wanted.len();
    assert!(!filter.is_empty() || written * 100 >= n * 96, "only {written} of {n} are written");
}

#[test]
fn the_list_of_exceptions_only_shrinks() {
    let case = |name: &str, ways| runner::Report {
        case: cases::Case { suite: "node", name: name.into(), folder: Default::default() },
        operator: String::new(),
        fixed: None,
        ways,
        made: None,
    };
    let failed = runner::Outcome::Failed("no".into());
    let reports = [case("a", vec![runner::Outcome::Passed]), case("b", vec![failed.clone()]), case("c", vec![failed])];
    let list = exceptions::parse("# reasons\nnode/a: x\nnode/b: y\nnode/gone: z\n").unwrap();
    let problems = exceptions::problems(&list, &reports).join("\n");
    assert_eq!(problems.lines().count(), 3, "{problems}");
    for part in ["node/a passes", "node/c fails: evaluator: no", "node/gone is on the list"] {
        assert!(problems.contains(part), "{problems}");
    }
    assert!(exceptions::parse("node/a").is_err() && exceptions::parse("node/a: x\nnode/a: y").is_err());
}
