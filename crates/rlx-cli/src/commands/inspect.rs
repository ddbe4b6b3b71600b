//! `rlx inspect`: what a model is made of.

use std::collections::BTreeMap;

use rlx::CompileReport;
use rlx::Dim;
use rlx::ir::{Graph, TensorType};
use rlx::runtime::{Extent, MemoryReport};

use super::Outcome;
use crate::args::InspectArgs;
use crate::error::CliError;
use crate::{fill, json, model, table};

/// Runs the command.
pub fn inspect(args: &InspectArgs) -> Result<Outcome, CliError> {
    if model::is_artefact(&args.model.model) {
        return super::artefact::inspect(args);
    }
    let loaded = model::load(&args.model.model)?;
    let shapes = fill::shapes(&loaded.module, &args.shapes)?;
    let binding = fill::binding(&loaded.module, &BTreeMap::new(), &shapes, &args.dims)?;
    // What passes did is to be seen: they run.
    let (program, time) = model::compile_with(&loaded.module, model::options(&args.model)?.cache_dir(None))?;
    let g = &loaded.module.main;
    let mut ops = BTreeMap::new();
    count_ops(g, &mut ops);
    let open = g.input_symbols().iter().any(|s| binding.get(s).is_none());
    // With all sizes known, memory is planned as a run would.
    let memory = match open {
        true => None,
        false => Some(program.memory_for(&binding)?),
    };
    let work = work(g);
    let params = ports(program.params());
    let report = Inspection {
        inputs: ports(program.inputs()),
        outputs: ports(program.outputs()),
        param_bytes: g
            .params()
            .iter()
            .filter_map(|p| p.default.as_ref())
            .map(|t| t.bytes().len() as f64)
            .fold(0.0, |a, b| a + b),
        params,
        ops,
        work_value: work.eval(&binding).ok(),
        work,
        memory,
        compiled: program.report().clone(),
        kernels: program.report().kernels.clone(),
        compile_ms: time.as_secs_f64() * 1e3,
    };
    let text = if args.model.json { report.json()? } else { report.text() };
    Ok(Outcome::ok(text))
}

fn count_ops(g: &Graph, ops: &mut BTreeMap<String, usize>) {
    for n in g.nodes() {
        *ops.entry(n.op.name().to_string()).or_default() += 1;
        n.regions.iter().for_each(|r| count_ops(r, ops));
    }
}

/// Arithmetic of the graph and of those nested in it, as a dim over its symbols.
fn work(g: &Graph) -> Dim {
    Dim::sum(g.nodes().iter().map(|n| {
        let types =
            |ids: &[rlx::ir::ValueId]| ids.iter().filter_map(|&v| g.tensor_type(v).cloned()).collect::<Vec<_>>();
        let (operands, results) = (types(&n.operands), types(&n.results));
        let regions: Vec<Dim> = n.regions.iter().map(work).collect();
        n.op.def().work(&operands, &results) + n.op.def().nested_work(&operands, &results, &regions)
    }))
}

/// Bytes that are known, or of which the most is known; null where neither is.
fn extent(e: Extent) -> serde_json::Value {
    match e {
        Extent::Exact(n) => serde_json::json!({ "exact": n }),
        Extent::AtMost(n) => serde_json::json!({ "at_most": n }),
        Extent::Open => serde_json::Value::Null,
    }
}

struct Port {
    name: String,
    ty: TensorType,
}

fn ports(list: &[rlx::runtime::PortInfo]) -> Vec<Port> {
    list.iter().map(|p| Port { name: p.name.to_string(), ty: p.ty.clone() }).collect()
}

struct Inspection {
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    params: Vec<Port>,
    param_bytes: f64,
    ops: BTreeMap<String, usize>,
    work: Dim,
    work_value: Option<i64>,
    memory: Option<MemoryReport>,
    compiled: CompileReport,
    kernels: Vec<(String, usize)>,
    compile_ms: f64,
}

impl Inspection {
    fn json(&self) -> Result<String, CliError> {
        let ports = |list: &[Port]| -> Vec<serde_json::Value> {
            list.iter()
                .map(|p| {
                    let shape: Vec<String> = p.ty.shape.iter().map(ToString::to_string).collect();
                    serde_json::json!({ "name": p.name, "dtype": p.ty.dtype.name(), "shape": shape })
                })
                .collect()
        };
        json::line(&serde_json::json!({
            "inputs": ports(&self.inputs),
            "outputs": ports(&self.outputs),
            "params": self.params.len(),
            "param_bytes": self.param_bytes,
            "ops": self.ops,
            "operations": self.work.to_string(),
            "operations_value": self.work_value,
            "arena_bytes": self.memory.as_ref().map(|m| m.arena),
            "memory": self.memory.as_ref().map(|m| serde_json::json!({
                "params": m.params, "prepared": m.prepared, "packed": m.packed, "arena": m.arena, "outputs": m.outputs,
                "states": m.states, "own": m.own(), "at_most": m.at_most(), "partial": m.partial,
                "why": m.reasons().collect::<Vec<_>>(),
                "segments": m.segments.iter().map(|s| serde_json::json!({
                    "kernels": [s.kernels.start, s.kernels.end], "symbols": s.symbols,
                    "arena": extent(s.arena), "outputs": extent(s.outputs), "handed": extent(s.handed), "why": s.open,
                })).collect::<Vec<_>>(),
            })),
            "target": self.compiled.target,
            "placement": self.compiled.placement.iter().map(|k| {
                serde_json::json!({ "kernel": k.kind, "source": &*k.loc, "depth": k.depth })
            }).collect::<Vec<_>>(),
            "fallbacks": self.compiled.fallbacks.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "fusion": {
                "fused": self.compiled.fusion().fused.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "missed": self.compiled.fusion().missed.iter().map(ToString::to_string).collect::<Vec<_>>(),
            },
            "passes": self.compiled.passes.iter().map(|p| {
                serde_json::json!({ "pass": p.name, "ms": p.time.as_secs_f64() * 1e3 })
            }).collect::<Vec<_>>(),
            "kernels": self.kernels.iter().cloned().collect::<BTreeMap<_, _>>(),
            "host": Vec::<String>::new(),
            "compile_ms": self.compile_ms,
        }))
    }

    fn text(&self) -> String {
        let rows = |kind: &str, list: &[Port]| -> Vec<Vec<String>> {
            list.iter().map(|p| vec![kind.into(), p.name.clone(), p.ty.to_string()]).collect()
        };
        let mut all = rows("input", &self.inputs);
        all.extend(rows("output", &self.outputs));
        let mut s = table::table(&["", "name", "type"], &all);
        s.push_str(&format!("\nparameters  {} ({})\n", self.params.len(), table::bytes(self.param_bytes)));
        match self.work_value {
            Some(n) => s.push_str(&format!("operations  {} = {}\n", self.work, table::count(n as f64))),
            None => s.push_str(&format!("operations  {}\n", self.work)),
        }
        match &self.memory {
            Some(m) => {
                let b = |n: u64| table::bytes(n as f64);
                let more = match (m.partial, m.at_most()) {
                    (false, _) => String::new(),
                    (true, Some(most)) => format!("; more where sizes depend on data, at most {} in all", b(most)),
                    (true, None) => "; more where sizes depend on data".into(),
                };
                s.push_str(&format!(
                    "arena       {}\nmemory      {} of its own: packed weights {}, prepared {}, arena {}, outputs {}, states {}{more}\n",
                    b(m.arena), b(m.own()), b(m.packed), b(m.prepared), b(m.arena), b(m.outputs), b(m.states),
                ));
                let size = |e: Extent| match e {
                    Extent::Exact(n) => b(n),
                    Extent::AtMost(n) => format!("at most {}", b(n)),
                    Extent::Open => "open".into(),
                };
                for part in m.segments.iter().filter(|_| m.segments.len() > 1) {
                    let from = match &part.symbols[..] {
                        [] => String::new(),
                        symbols => format!(" once data gives {}", symbols.join(", ")),
                    };
                    s.push_str(&format!(
                        "            kernels {}..{}{from}: arena {}, outputs {}, handed over {}\n",
                        part.kernels.start,
                        part.kernels.end,
                        size(part.arena),
                        size(part.outputs),
                        size(part.handed),
                    ));
                }
                m.reasons().for_each(|why| s.push_str(&format!("            open: {why}\n")));
            }
            None => s.push_str("arena       depends on the open sizes: give them with --shape or --dim\n"),
        }
        let fusion = self.compiled.fusion();
        s.push_str(&format!("fusion      {} fused, {} not\n", fusion.fused.len(), fusion.missed.len()));
        let mut why: BTreeMap<String, usize> = BTreeMap::new();
        fusion.missed.iter().for_each(|r| *why.entry(r.message.clone()).or_default() += 1);
        let mut why: Vec<(String, usize)> = why.into_iter().collect();
        why.sort_by_key(|(m, n)| (std::cmp::Reverse(*n), m.clone()));
        why.iter().take(5).for_each(|(m, n)| s.push_str(&format!("            {n} × {m}\n")));
        s.push_str(&format!(
            "compiled in {:.1} ms\nhost        nothing runs outside compiled kernels\n",
            self.compile_ms
        ));
        let list = |counts: Vec<(String, usize)>| {
            counts.iter().map(|(n, c)| format!("{n} {c}")).collect::<Vec<_>>().join(", ")
        };
        let mut ops: Vec<(String, usize)> = self.ops.iter().map(|(n, c)| (n.clone(), *c)).collect();
        ops.sort_by_key(|(n, c)| (std::cmp::Reverse(*c), n.clone()));
        s.push_str(&format!("\nops         {}\nkernels     {}\n", list(ops), list(self.kernels.clone())));
        s
    }
}
