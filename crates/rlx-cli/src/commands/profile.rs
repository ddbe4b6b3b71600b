//! `rlx profile`: where a model's time goes, kernel by kernel.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use rlx::compile::target::{KernelProfile, Peak};
use rlx::runtime::{Precision, TensorRef};
use rlx::{Device, backend_for};
use serde::Serialize;
use serde_json::json;

use super::Outcome;
use crate::args::ProfileArgs;
use crate::error::CliError;
use crate::progress::Progress;
use crate::stats::quantile;
use crate::table::table;
use crate::{fill, json, model};

/// A kernel, or all kernels of a kind.
#[derive(Serialize, Clone)]
struct Row {
    kind: String,
    loc: String,
    kernels: usize,
    median_us: f64,
    share: f64,
    bytes: u64,
    ops: u64,
    /// Fraction of the rate that binds: of arithmetic or of memory, whichever takes longer at peak.
    of_peak: Option<f64>,
}

#[derive(Serialize)]
struct Report {
    runs: usize,
    threads: usize,
    peak_gflops: Option<f64>,
    peak_gb_per_s: Option<f64>,
    wall_us: f64,
    kernels_us: f64,
    kinds: Vec<Row>,
    kernels: Vec<Row>,
}

impl Row {
    fn finish(mut self, total: f64, peak: Option<Peak>) -> Row {
        self.share = self.median_us / total.max(f64::MIN_POSITIVE);
        self.of_peak = peak.map(|p| {
            let least = (self.ops as f64 / p.ops).max(self.bytes as f64 / p.bytes);
            least * 1e6 / self.median_us.max(f64::MIN_POSITIVE)
        });
        self
    }

    fn cells(&self) -> Vec<String> {
        let seconds = self.median_us.max(f64::MIN_POSITIVE) / 1e6;
        vec![
            format!("{:.1}", self.median_us),
            format!("{:.1} %", self.share * 100.0),
            format!("{:.1}", self.ops as f64 / seconds / 1e9),
            format!("{:.1}", self.bytes as f64 / seconds / 1e9),
            self.of_peak.map_or(String::new(), |f| format!("{:.0} %", f * 100.0)),
            self.kernels.to_string(),
            self.kind.clone(),
            shortened(&self.loc),
        ]
    }
}

fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    if text.chars().count() <= MOST {
        return text.to_string();
    }
    text.chars().take(MOST - 1).chain(['…']).collect()
}

/// Runs the command.
pub fn profile(args: &ProfileArgs) -> Result<Outcome, CliError> {
    if !(args.seconds > 0.0 && args.seconds <= 3600.0) {
        return Err(CliError::Usage("--seconds wants a number above 0 and at most 3600".into()));
    }
    let model = model::open(&args.model, Precision::F32)?;
    let inputs = fill::inputs(model.module(), &args.inputs)?;
    let (mut program, _) = model.program(&args.model, Precision::F32)?;
    let ordered: Vec<TensorRef<'_>> = inputs.iter().map(|(_, t)| t.into()).collect();
    let peak = backend_for(Device::Cpu)?.peak(Device::Cpu, model::threads(&args.model)?);
    let _progress = Progress::start("measuring");
    let budget = Duration::from_secs_f64(args.seconds);
    let warm = Instant::now();
    program.run_raw(&ordered)?;
    while warm.elapsed() < budget / 10 {
        program.run_raw(&ordered)?;
    }
    let mut runs: Vec<(f64, Vec<KernelProfile>)> = Vec::new();
    let start = Instant::now();
    while start.elapsed() < budget || runs.len() < 3 {
        let t = Instant::now();
        let kernels = program.profile(&ordered)?;
        runs.push((t.elapsed().as_secs_f64() * 1e6, kernels));
    }
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    // The run in the middle stands for all; times of kernels are medians over runs.
    let middle = &runs[(runs.len() - 1) / 2];
    if let Some(path) = &args.trace {
        write_trace(path, &middle.1)?;
    }
    let median = |k: usize| {
        let mut times: Vec<f64> =
            runs.iter().filter_map(|(_, r)| r.get(k)).map(|k| k.own.as_secs_f64() * 1e6).collect();
        times.sort_by(f64::total_cmp);
        quantile(&times, 0.5)
    };
    let kernels: Vec<Row> = (middle.1.iter().enumerate())
        .map(|(i, k)| Row {
            kind: k.kind.clone(),
            loc: k.loc.to_string(),
            kernels: 1,
            median_us: median(i),
            share: 0.0,
            bytes: k.bytes,
            ops: k.ops,
            of_peak: None,
        })
        .collect();
    let total: f64 = kernels.iter().map(|r| r.median_us).sum();
    let mut kinds: BTreeMap<&str, Row> = BTreeMap::new();
    for r in &kernels {
        let empty =
            || Row { loc: String::new(), kernels: 0, median_us: 0.0, bytes: 0, ops: 0, share: 0.0, ..r.clone() };
        let sum = kinds.entry(&r.kind).or_insert_with(empty);
        sum.kernels += 1;
        sum.median_us += r.median_us;
        sum.bytes += r.bytes;
        sum.ops += r.ops;
    }
    let finish = |rows: Vec<Row>| {
        let mut rows: Vec<Row> = rows.into_iter().map(|r| r.finish(total, peak)).collect();
        rows.sort_by(|a, b| b.median_us.total_cmp(&a.median_us));
        rows
    };
    let kinds = finish(kinds.into_values().collect());
    let report = Report {
        runs: runs.len(),
        threads: model::threads(&args.model)?,
        peak_gflops: peak.map(|p| p.ops / 1e9),
        peak_gb_per_s: peak.map(|p| p.bytes / 1e9),
        wall_us: middle.0,
        kernels_us: total,
        kinds,
        kernels: finish(kernels),
    };
    Ok(Outcome::ok(if args.model.json { json::line(&report)? } else { as_text(&report, args.top) }))
}

fn as_text(r: &Report, top: usize) -> String {
    let header = ["us", "share", "GFLOP/s", "GB/s", "of peak", "kernels", "kind", "from"];
    let rows = |list: &[Row]| list.iter().map(Row::cells).collect::<Vec<_>>();
    let shown = if top == 0 { r.kernels.len() } else { top.min(r.kernels.len()) };
    let peak = match (r.peak_gflops, r.peak_gb_per_s) {
        (Some(f), Some(b)) => format!("peak {f:.0} GFLOP/s, {b:.1} GB/s from memory (measured)\n"),
        _ => String::new(),
    };
    let percent = r.kernels_us / r.wall_us.max(f64::MIN_POSITIVE) * 100.0;
    format!(
        "{peak}run {:.1} us, of which kernels {:.1} us ({percent:.1} %); medians of {} runs\n\n{}\n{}",
        r.wall_us,
        r.kernels_us,
        r.runs,
        table(&header, &rows(&r.kinds)),
        table(&header, &rows(&r.kernels[..shown])),
    )
}

/// Chrome's trace event format: complete events, in microseconds.
fn write_trace(path: &Path, kernels: &[KernelProfile]) -> Result<(), CliError> {
    let us = |d: Duration| d.as_secs_f64() * 1e6;
    let events: Vec<serde_json::Value> = kernels
        .iter()
        .map(|k| {
            json!({
                "name": k.kind, "cat": "kernel", "ph": "X", "pid": 1, "tid": 1, "ts": us(k.start), "dur": us(k.time),
                "args": { "from": &*k.loc, "bytes": k.bytes, "operations": k.ops },
            })
        })
        .collect();
    let text = json!({ "traceEvents": events, "displayTimeUnit": "ns" }).to_string();
    std::fs::write(path, text).map_err(|e| CliError::Output(path.to_path_buf(), e.to_string()))
}
