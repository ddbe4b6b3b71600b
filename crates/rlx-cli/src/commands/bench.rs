//! `rlx bench`: how long a model takes.

use std::time::{Duration, Instant};

use rlx::CacheUse;
use rlx::runtime::{Precision, TensorRef};
use serde::Serialize;

use super::Outcome;
use crate::args::{BenchArgs, PrecisionArg};
use crate::error::CliError;
use crate::progress::Progress;
use crate::stats::{peak_rss_mb, quantile};
use crate::{fill, json, model};

#[derive(Serialize)]
struct Latency {
    median: f64,
    min: f64,
    p10: f64,
    p90: f64,
}

#[derive(Serialize)]
struct Report {
    load_ms: f64,
    compile_ms: f64,
    /// The program was found in the cache.
    cached: bool,
    bind_ms: f64,
    first_run_ms: f64,
    latency_ms: Latency,
    runs: usize,
    threads: usize,
    precision: &'static str,
    peak_rss_mb: f64,
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

/// Runs the command.
pub fn bench(args: &BenchArgs) -> Result<Outcome, CliError> {
    if !(args.seconds > 0.0 && args.seconds <= 3600.0) {
        return Err(CliError::Usage("--seconds wants a number above 0 and at most 3600".into()));
    }
    let (precision, name) = match args.precision {
        PrecisionArg::F32 => (Precision::F32, "f32"),
        PrecisionArg::F16 => (Precision::F16, "f16"),
        PrecisionArg::Bf16 => (Precision::BF16, "bf16"),
    };
    let model = model::open(&args.model, precision)?;
    let inputs = fill::inputs(model.module(), &args.inputs)?;
    let load = model.time();
    let (mut program, compile_time) = model.program(&args.model, precision)?;
    let cached = program.cache_use() == CacheUse::Found;
    let ordered: Vec<TensorRef<'_>> = inputs.iter().map(|(_, t)| t.into()).collect();
    let first = Instant::now();
    program.run_raw(&ordered)?;
    let first = first.elapsed();
    let bind = program.stats().last_bind;
    let progress = Progress::start("measuring");
    let budget = Duration::from_secs_f64(args.seconds);
    // A tenth of the time warms caches and clocks.
    let warm = Instant::now();
    while warm.elapsed() < budget / 10 {
        program.run_raw(&ordered)?;
    }
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < budget || times.len() < 3 {
        let t = Instant::now();
        program.run_raw(&ordered)?;
        times.push(ms(t.elapsed()));
    }
    drop(progress);
    times.sort_by(f64::total_cmp);
    let report = Report {
        load_ms: ms(load),
        compile_ms: ms(compile_time),
        cached,
        bind_ms: ms(bind),
        first_run_ms: ms(first),
        latency_ms: Latency {
            median: quantile(&times, 0.5),
            min: quantile(&times, 0.0),
            p10: quantile(&times, 0.1),
            p90: quantile(&times, 0.9),
        },
        runs: times.len(),
        threads: model::threads(&args.model)?,
        precision: name,
        peak_rss_mb: peak_rss_mb(),
    };
    let text = if args.model.json { json::line(&report)? } else { as_text(&report) };
    Ok(Outcome::ok(text))
}

fn as_text(r: &Report) -> String {
    let l = &r.latency_ms;
    format!(
        "latency   median {:.3} ms   min {:.3}   p10 {:.3}   p90 {:.3}   ({} runs, {} threads, {})\n\
         load      {:.1} ms\ncompile   {:.1} ms{}\nbind      {:.3} ms\nfirst run {:.1} ms (prepares weights)\npeak rss  {:.1} MiB\n",
        l.median,
        l.min,
        l.p10,
        l.p90,
        r.runs,
        r.threads,
        r.precision,
        r.load_ms,
        r.compile_ms,
        if r.cached { " (from the cache; --no-cache compiles)" } else { "" },
        r.bind_ms,
        r.first_run_ms,
        r.peak_rss_mb
    )
}
