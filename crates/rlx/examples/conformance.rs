//! Runs ONNX's own cases five ways and prints tables: by operator, and by suite and way.
//!
//! `cargo run -p rlx --example conformance -- [FILTER] [--verbose]` runs the cases whose `suite/name` contains FILTER; `--verbose`
//! prints every failure.
#![allow(clippy::print_stdout, clippy::print_stderr)]

#[path = "../tests/conformance/runner/mod.rs"]
mod runner;

use std::process::ExitCode;
use std::time::Instant;

use runner::{cases, table};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let filter = args.iter().find(|a| !a.starts_with("--")).map_or("", String::as_str);
    let (cases, skipped) = match cases::find(filter) {
        Ok(found) => found,
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::FAILURE;
        }
    };
    let start = Instant::now();
    let reports = runner::run_all(&cases);
    let seconds = start.elapsed().as_secs_f64();
    if args.iter().any(|a| a == "--verbose") {
        for r in &reports {
            if let Some(why) = r.why() {
                println!("FAILED {}: {why}", r.case.label());
            }
        }
    }
    print!("{}", table::by_operator(&reports));
    println!("\n{}{}{seconds:.1} s", table::by_way(&reports), table::fixed(&reports));
    skipped.iter().for_each(|s| println!("SKIPPED: {s}"));
    ExitCode::SUCCESS
}
