//! How long a new shape takes to bind: `cargo run --release -p rlx --example bind_time -- MODEL SYMBOL SYMBOL…`. The first
//! symbol stays 1; the others take ever new sizes. The first binding of a process touches code for the first time.
#![allow(clippy::print_stdout)]

use rlx::prelude::*;
use rlx::{DimBinding, onnx};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("a model is needed")?;
    let symbols: Vec<String> = args.collect();
    let model = onnx::load(&path, &onnx::ImportOptions::default())?;
    let mut program = Session::new(Device::Cpu)?.compile_hir(&model.module)?;
    let mut times = Vec::new();
    for i in 0..41i64 {
        let mut binding = DimBinding::new();
        for (n, s) in symbols.iter().enumerate() {
            binding.set(s.as_str(), if n == 0 { 1 } else { 100 + i });
        }
        program.prepare_for(&binding)?;
        times.push(program.stats().last_bind.as_secs_f64() * 1e6);
    }
    let first = times.remove(0);
    times.sort_by(f64::total_cmp);
    println!("first {first:.0} µs, then median {:.0} µs ({:.0}..{:.0})", times[20], times[0], times[39]);
    Ok(())
}
