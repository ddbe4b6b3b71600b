//! The `rlx` program: runs, verifies, inspects and measures models.
//!
//! Results go to stdout, everything else to stderr. Exit codes: 0 success, 1 a mismatch, 2 wrong usage, 3 a file, 4 a model that cannot
//! be imported, 5 compiling, 6 inputs, 7 running, 8 writing results, 9 anything else.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

mod args;
mod commands;
mod error;
mod fill;
mod json;
mod model;
mod npz;
mod progress;
mod stats;
mod table;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use args::{Args, Command};
use error::CliError;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(a) => a,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { 2 } else { 0 });
        }
    };
    let result = match args.command {
        Command::Run(a) => commands::run::run(&a),
        Command::Verify(a) => commands::verify::verify(&a),
        Command::Inspect(a) => commands::inspect::inspect(&a),
        Command::Bench(a) => commands::bench::bench(&a),
        Command::Profile(a) => commands::profile::profile(&a),
        Command::Compile(a) => commands::compile::compile(&a),
        Command::Export(a) => commands::export::export(&a),
        Command::Quantize(a) => commands::quantize::quantize(&a),
        Command::Opt(a) => commands::opt::opt(&a),
    };
    match result {
        Ok(commands::Outcome { text, success }) => {
            let mut out = std::io::stdout().lock();
            match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
                // A reader that closes the pipe early has seen what it wanted.
                Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
                    report(&CliError::Output("standard output".into(), e.to_string()))
                }
                _ if success => ExitCode::SUCCESS,
                _ => ExitCode::from(1),
            }
        }
        Err(e) => report(&e),
    }
}

fn report(e: &CliError) -> ExitCode {
    eprintln!("error: {e}");
    ExitCode::from(e.exit_code())
}
