//! `rlx quantize`: an ONNX file with int8 products, their scales found from inputs, and what that costs node by node.

use std::collections::BTreeMap;

use rlx::compile::options::Selector;
use rlx::ir::Loc;
use rlx::ir::ops::elementwise::Unary;
use rlx::onnx::quantize::{
    ActivationScale, Product, QuantizeError, WeightRange, products, quantize as write, with_outputs,
};
use rlx::onnx::{ImportOptions, OnnxFile, import};
use rlx::{CompileOptions, CompiledGraph, Device, Session, Tensor};
use serde::Serialize;

use super::Outcome;
use crate::args::{Calibrator, QuantizeArgs};
use crate::error::CliError;
use crate::{json, npz, table};

/// Bins of a histogram.
const BINS: usize = 2048;
/// Numbers that a bin should hold on the average, where a distribution is compared: with too few of them it is noise.
const A_BIN: usize = 32;
/// The part of the numbers at each end that a percentile leaves out.
const OUTSIDE: f64 = 1e-4;

#[derive(Serialize)]
struct Row {
    node: String,
    op: String,
    scale: f32,
    zero_point: u8,
    /// Signal to noise of the node's result, dB; infinite without noise.
    sqnr_db: Option<f64>,
    cosine: Option<f64>,
}

#[derive(Serialize)]
struct Output {
    output: String,
    sqnr_db: Option<f64>,
    cosine: Option<f64>,
}

/// Runs the command.
pub fn quantize(args: &QuantizeArgs) -> Result<Outcome, CliError> {
    let failed = |e: QuantizeError| CliError::Compile(e.to_string());
    let Readable { bytes, products: all, anew } = readable(args)?;
    let excluded = |p: &Product| args.exclude.iter().any(|e| fits(e, &p.name));
    let unknown: Vec<&String> = args.exclude.iter().filter(|e| !all.iter().any(|p| fits(e, &p.name))).collect();
    if !unknown.is_empty() {
        return Err(CliError::Usage(format!("--exclude names no node that would be quantised: {unknown:?}")));
    }
    let (left, plan): (Vec<_>, Vec<_>) = all.into_iter().partition(excluded);
    if plan.is_empty() {
        return Err(CliError::Compile("the model has no product of an activation and an f32 weight".into()));
    }
    let cases = args.calibrate.iter().map(|p| npz::read_npz(p)).collect::<Result<Vec<_>, _>>()?;
    let mut seen: Vec<String> = plan.iter().flat_map(|p| [p.activation.clone(), p.output.clone()]).collect();
    seen.sort();
    seen.dedup();
    let wide = Shown::new(&with_outputs(&bytes, &seen).map_err(failed)?)?;
    let results = cases.iter().map(|c| wide.run(c)).collect::<Result<Vec<_>, _>>()?;
    let mut scales: BTreeMap<&str, ActivationScale> = BTreeMap::new();
    for p in &plan {
        if !scales.contains_key(p.activation.as_str()) {
            scales.insert(&p.activation, calibrated(&p.activation, &results, args.method)?);
        }
    }
    let usual = ActivationScale::covering(0.0, 1.0);
    let chosen: Vec<(Product, ActivationScale)> =
        plan.iter().map(|p| (p.clone(), scales.get(p.activation.as_str()).copied().unwrap_or(usual))).collect();
    let weights = if args.reduce_range { WeightRange::Reduced } else { WeightRange::Whole };
    let quantised = write(&bytes, &chosen, weights).map_err(failed)?;
    let narrow = Shown::new(&with_outputs(&quantised, &seen).map_err(failed)?)?;
    let again = cases.iter().map(|c| narrow.run(c)).collect::<Result<Vec<_>, _>>()?;
    std::fs::write(&args.output, &quantised).map_err(|e| CliError::Output(args.output.clone(), e.to_string()))?;
    let rows: Vec<Row> = (chosen.iter())
        .map(|(p, s)| {
            let (sqnr_db, cosine) = compare(&p.output, &results, &again);
            Row { node: p.name.clone(), op: p.op.clone(), scale: s.scale, zero_point: s.zero_point, sqnr_db, cosine }
        })
        .collect();
    let own =
        wide.program.outputs().iter().map(|o| o.name.to_string()).filter(|n| !seen.contains(n) || is_own(&bytes, n));
    let outputs: Vec<Output> = own
        .map(|output| {
            let (sqnr_db, cosine) = compare(&output, &results, &again);
            Output { output, sqnr_db, cosine }
        })
        .collect();
    let excluded: Vec<String> = left.into_iter().map(|p| p.name).collect();
    if args.json {
        let value = serde_json::json!({
            "file": args.output.display().to_string(), "bytes": quantised.len(), "bytes_before": bytes.len(),
            "nodes": rows, "outputs": outputs, "excluded": excluded, "written_anew": anew,
        });
        return Ok(Outcome::ok(json::line(&value)?));
    }
    let number = |x: Option<f64>, digits: usize| x.map_or_else(|| "-".into(), |x| format!("{x:.digits$}"));
    let cells: Vec<Vec<String>> = (rows.iter())
        .map(|r| {
            let scale = format!("{:.4e}", r.scale);
            let zero = r.zero_point.to_string();
            vec![r.node.clone(), r.op.clone(), scale, zero, number(r.sqnr_db, 1), number(r.cosine, 6)]
        })
        .collect();
    let mut text = table::table(&["node", "op", "scale", "zero point", "SQNR dB", "cosine"], &cells);
    for o in &outputs {
        text.push_str(&format!(
            "output {}: SQNR {} dB, cosine {}\n",
            o.output,
            number(o.sqnr_db, 1),
            number(o.cosine, 6)
        ));
    }
    if let Some(why) = anew {
        text.push_str(&format!("the file was written anew before: {why}\n"));
    }
    text.push_str(&format!(
        "{}: {} of {} bytes, {} products quantised, {} left out\n",
        args.output.display(),
        quantised.len(),
        bytes.len(),
        rows.len(),
        excluded.len()
    ));
    Ok(Outcome::ok(text))
}

/// A file that can be quantised.
struct Readable {
    bytes: Vec<u8>,
    products: Vec<Product>,
    /// Why it is another file than was given.
    anew: Option<String>,
}

/// The file and what can be quantised of it. One that cannot be as it is (an old operator set, weights in other files or in nodes) is read and
/// written anew first, in terms of newer operators; then also why.
fn readable(args: &QuantizeArgs) -> Result<Readable, CliError> {
    let bytes = std::fs::read(&args.model).map_err(|e| CliError::File(args.model.clone(), e.to_string()))?;
    let why = match products(&bytes) {
        Ok(products) if !products.is_empty() => return Ok(Readable { bytes, products, anew: None }),
        Ok(_) => "none of its weights is an initialiser".to_owned(),
        Err(e) => e.0.join("; "),
    };
    let module = rlx::onnx::load(&args.model, &ImportOptions::default());
    let module = module.map_err(|e| CliError::Compile(e.to_string()))?.module;
    let bytes = rlx::onnx::export(&module).map_err(|e| {
        CliError::Compile(format!(
            "the file cannot be quantised as it is ({why}), nor be written anew: {}",
            e.problems.join("; ")
        ))
    })?;
    let products = products(&bytes).map_err(|e| CliError::Compile(e.to_string()))?;
    Ok(Readable { bytes, products, anew: Some(why) })
}

/// True for a result of the model itself.
fn is_own(bytes: &[u8], name: &str) -> bool {
    Shown::module(bytes).is_ok_and(|m| m.main.outputs().iter().any(|o| &*o.name == name))
}

fn fits(pattern: &str, name: &str) -> bool {
    // Patterns are those of precision policies; the op does not matter to a name.
    Selector::Name(pattern.into()).selects(&Unary::Abs.into(), &Loc::new(name))
}

/// A program that shows values inside a model.
struct Shown {
    program: CompiledGraph,
}

/// Results by name.
type Results = BTreeMap<String, Tensor>;

impl Shown {
    fn module(bytes: &[u8]) -> Result<rlx::Module, CliError> {
        let wrong = |e: &dyn std::fmt::Display| CliError::Compile(e.to_string());
        let options = ImportOptions::default();
        let file = OnnxFile::from_bytes(bytes.to_vec(), None, &options.read).map_err(|e| wrong(&e))?;
        let model = file.into_model().map_err(|e| wrong(&e))?;
        Ok(import(&model, &options).map_err(|e| wrong(&e))?.module)
    }

    fn new(bytes: &[u8]) -> Result<Shown, CliError> {
        let module = Shown::module(bytes)?;
        let program = Session::with_options(Device::Cpu, CompileOptions::new())?.compile_hir(&module)?;
        Ok(Shown { program })
    }

    fn run(&self, case: &[(String, Tensor)]) -> Result<Results, CliError> {
        let mut inputs: Vec<(&str, &Tensor)> = Vec::new();
        for port in self.program.inputs() {
            let found = case.iter().find(|(n, _)| n == &*port.name || n.strip_prefix("in.") == Some(&*port.name));
            let Some((_, t)) = found else {
                let there: Vec<&str> = case.iter().map(|(n, _)| n.as_str()).collect();
                return Err(CliError::Inputs(format!(
                    "the calibration has no array for input `{}`; it has: {}",
                    port.name,
                    there.join(", ")
                )));
            };
            inputs.push((&port.name, t));
        }
        let out = self.program.run_tensors(&inputs)?;
        Ok(self.program.outputs().iter().map(|o| o.name.to_string()).zip(out).collect())
    }
}

fn values(name: &str, results: &[Results]) -> Vec<f32> {
    let of = |r: &Results| r.get(name).and_then(|t| t.as_slice::<f32>().ok().map(|s| s.to_vec()));
    results.iter().filter_map(of).flatten().collect()
}

/// The scale of an activation by what was seen of it.
fn calibrated(name: &str, results: &[Results], how: Calibrator) -> Result<ActivationScale, CliError> {
    let all = values(name, results);
    if all.is_empty() || all.iter().any(|x| !x.is_finite()) {
        return Err(CliError::Inputs(format!("calibration sees no numbers, or some that are not finite, in `{name}`")));
    }
    let low = all.iter().copied().fold(f32::INFINITY, f32::min);
    let high = all.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    Ok(match how {
        Calibrator::Minmax => ActivationScale::covering(low, high),
        Calibrator::Percentile => {
            let mut sorted = all;
            sorted.sort_by(f32::total_cmp);
            let cut = (sorted.len() as f64 * OUTSIDE) as usize;
            let at = |i: usize| sorted.get(i).copied().unwrap_or(0.0);
            ActivationScale::covering(at(cut), at(sorted.len() - 1 - cut))
        }
        Calibrator::Mse => {
            let h = Histogram::of(&all, low, high, BINS);
            least(low, high, |s| h.error(s))
        }
        Calibrator::Entropy => {
            // Where there are no more bins than levels, nothing is lost and the whole range is kept.
            let h = Histogram::of(&all, low, high, (all.len() / A_BIN).clamp(1, BINS));
            least(low, high, |s| h.divergence(s))
        }
    })
}

/// Of ranges cut at both ends alike, that with the least cost; of equals the widest.
fn least(low: f32, high: f32, cost: impl Fn(&ActivationScale) -> f64) -> ActivationScale {
    let mut best = (f64::INFINITY, ActivationScale::covering(low, high));
    for part in (20..=100).rev() {
        let part = part as f32 / 100.0;
        let s = ActivationScale::covering(low * part, high * part);
        let e = cost(&s);
        if e < best.0 {
            best = (e, s);
        }
    }
    best.1
}

/// How often numbers lie where.
struct Histogram {
    /// For each bin that is not empty, the number in its middle and how many there are.
    bins: Vec<(f32, u64)>,
}

impl Histogram {
    fn of(all: &[f32], low: f32, high: f32, bins: usize) -> Histogram {
        let width = f64::from(high - low) / bins as f64;
        let mut counts = vec![0u64; bins];
        for &x in all {
            let bin = if width > 0.0 { (f64::from(x - low) / width) as usize } else { 0 };
            if let Some(c) = counts.get_mut(bin.min(bins.saturating_sub(1))) {
                *c += 1;
            }
        }
        let centre = |i: usize| (f64::from(low) + (i as f64 + 0.5) * width) as f32;
        let bins = counts.into_iter().enumerate().filter(|(_, c)| *c > 0).map(|(i, c)| (centre(i), c)).collect();
        Histogram { bins }
    }

    /// The square error of rounding, summed.
    fn error(&self, s: &ActivationScale) -> f64 {
        self.bins.iter().map(|&(x, c)| c as f64 * f64::from(s.rounded(x) - x).powi(2)).sum()
    }

    /// The Kullback-Leibler divergence of what is left of the distribution after rounding from the distribution with its ends moved to the
    /// bounds of the range: each level's numbers are spread evenly over the bins that become it and are not empty.
    fn divergence(&self, s: &ActivationScale) -> f64 {
        let (low, high) = (s.rounded(f32::NEG_INFINITY), s.rounded(f32::INFINITY));
        let inside = |x: f32| (low..=high).contains(&x);
        // Numbers beyond the bounds count where the range ends, in the distribution as it is but not in its levels: cutting them costs.
        let first = self.bins.iter().position(|b| inside(b.0));
        let last = self.bins.iter().rposition(|b| inside(b.0));
        let (Some(first), Some(last)) = (first, last) else { return f64::INFINITY };
        let mut whole: Vec<f64> = self.bins[first..=last].iter().map(|b| b.1 as f64).collect();
        let kept: f64 = whole.iter().sum();
        let count = |part: &[(f32, u64)]| part.iter().map(|b| b.1 as f64).sum::<f64>();
        let mut levels: BTreeMap<u32, (f64, usize)> = BTreeMap::new();
        for (x, c) in &self.bins[first..=last] {
            let level = levels.entry(s.rounded(*x).to_bits()).or_default();
            *level = (level.0 + *c as f64, level.1 + 1);
        }
        if let Some(w) = whole.first_mut() {
            *w += count(&self.bins[..first]);
        }
        if let Some(w) = whole.last_mut() {
            *w += count(&self.bins[last + 1..]);
        }
        let total: f64 = whole.iter().sum();
        let mut sum = 0.0;
        for (w, (x, _)) in whole.iter().zip(&self.bins[first..=last]) {
            let (mass, n) = levels.get(&s.rounded(*x).to_bits()).copied().unwrap_or((0.0, 1));
            let (p, q) = (w / total, mass / n as f64 / kept);
            sum += p * (p / q).ln();
        }
        sum
    }
}

/// Signal to noise in dB and cosine between what two programs gave; `None` where there is nothing to compare, or no noise.
fn compare(name: &str, wide: &[Results], narrow: &[Results]) -> (Option<f64>, Option<f64>) {
    let (a, b) = (values(name, wide), values(name, narrow));
    if a.is_empty() || a.len() != b.len() {
        return (None, None);
    }
    let pairs = || a.iter().zip(&b).map(|(&x, &y)| (f64::from(x), f64::from(y)));
    let (aa, bb) = (pairs().map(|(x, _)| x * x).sum::<f64>(), pairs().map(|(_, y)| y * y).sum::<f64>());
    let (ab, noise) = (pairs().map(|(x, y)| x * y).sum::<f64>(), pairs().map(|(x, y)| (x - y).powi(2)).sum::<f64>());
    (json::number(10.0 * (aa / noise).log10()), json::number(ab / (aa * bb).sqrt()))
}
