//! Random graphs run in several ways and compared with the evaluator.
//!
//! `SEEDS=from..to` (or one seed) takes other seeds, `KIND=name` one kind of graphs, `NODES=n` graphs of that many nodes, printed. A failing seed is reported with the smallest
//! graph of it that fails.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod tolerance;
mod ways;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rlx::DType;
use rlx_ir::testing::{GraphOptions, RandomGraph};

fn seeds(default: u64) -> Range<u64> {
    let Ok(text) = std::env::var("SEEDS") else { return 0..default };
    let number = |s: &str| s.parse().unwrap_or_else(|_| panic!("SEEDS={text}: not a seed or a range of seeds"));
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => number(&text)..number(&text) + 1,
    }
}

/// Runs one graph in all ways; what differs, a panic included.
fn fault(seed: u64, nodes: usize, options: &GraphOptions) -> Option<String> {
    let g = RandomGraph::generate(seed, nodes, options);
    match catch_unwind(AssertUnwindSafe(|| ways::check(&g))) {
        Ok(Ok(())) => None,
        Ok(Err(e)) => Some(format!("{e}\n{g:?}")),
        Err(p) => {
            let text = p.downcast_ref::<String>().map(String::as_str).or_else(|| p.downcast_ref::<&str>().copied());
            Some(format!("panic: {}\n{g:?}", text.unwrap_or("?")))
        }
    }
}

/// Fails on the first seed that differs, with the smallest graph of that seed that does; `KEEP_GOING` looks at all seeds.
fn sweep(kind: &str, count: u64, max_nodes: usize, options: &GraphOptions) {
    if std::env::var("KIND").is_ok_and(|k| k != kind) {
        return;
    }
    let keep_going = std::env::var_os("KEEP_GOING").is_some();
    let fixed = std::env::var("NODES").ok().and_then(|n| n.parse().ok());
    let mut faults = 0;
    for seed in seeds(count) {
        let nodes = fixed.unwrap_or(1 + seed as usize % max_nodes);
        if fixed.is_some() {
            println!("{:?}", RandomGraph::generate(seed, nodes, options));
        }
        let Some(first) = fault(seed, nodes, options) else { continue };
        let small = (1..=nodes).find_map(|n| fault(seed, n, options).map(|e| format!("{n} nodes: {e}")));
        let text =
            format!("{kind} graphs, seed {seed}, {}", small.unwrap_or_else(|| format!("once and not again: {first}")));
        assert!(keep_going, "{text}");
        println!("FAULT {text}\n");
        faults += 1;
    }
    assert_eq!(faults, 0, "seeds of {kind} graphs differ");
}

#[test]
fn graphs_of_all_dtypes() {
    sweep("all", 300, 14, &GraphOptions { max_elems: 1024, ..GraphOptions::default() });
}

#[test]
fn graphs_of_f32() {
    sweep("f32", 120, 24, &GraphOptions::default().dtypes(&[DType::F32, DType::I64, DType::Bool]));
}
