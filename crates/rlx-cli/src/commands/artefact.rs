//! `rlx inspect` of artefacts: what a file holds, without running it.

use std::collections::BTreeMap;

use rlx::runtime::PortInfo;
use rlx::{Artefact, Device, Session};
use serde_json::json;

use super::Outcome;
use crate::args::InspectArgs;
use crate::error::CliError;
use crate::{json, model, table};

/// Runs the command on an artefact.
pub fn inspect(args: &InspectArgs) -> Result<Outcome, CliError> {
    if !args.shapes.is_empty() || !args.dims.is_empty() {
        return Err(CliError::Usage("an artefact is shown as it is: --shape and --dim are for graphs".into()));
    }
    let path = &args.model.model;
    let how = model::load_options(&args.model);
    let artefact = Artefact::open(path, &how).map_err(rlx::Error::from)?;
    let program = Session::with_options(Device::Cpu, model::options(&args.model)?)?.load_with(path, &how)?;
    let (mut sources, mut made) = (0, BTreeMap::<String, (usize, u64)>::new());
    for t in artefact.tensors() {
        match t.made {
            Some((_, layout)) => {
                let of = made.entry(layout).or_default();
                *of = (of.0 + 1, of.1 + t.bytes);
            }
            None => sources += t.bytes,
        }
    }
    let kernels: Vec<(String, usize)> = program.report().kernels.clone();
    if args.model.json {
        let ports = |list: &[PortInfo]| -> Vec<serde_json::Value> {
            list.iter()
                .map(|p| {
                    let shape: Vec<String> = p.ty.shape.iter().map(ToString::to_string).collect();
                    json!({ "name": &*p.name, "dtype": p.ty.dtype.name(), "shape": shape })
                })
                .collect()
        };
        return Ok(Outcome::ok(json::line(&json!({
            "version": artefact.version(), "target": artefact.target(), "host": artefact.host(), "bytes": artefact.bytes(),
            "program_bytes": artefact.program_bytes(), "source_bytes": sources,
            "made": made.iter().map(|(layout, (n, bytes))| json!({ "layout": layout, "tensors": n, "bytes": bytes })).collect::<Vec<_>>(),
            "made_again": program.made_again(),
            "compiled_with": artefact.compiled_with().into_iter().collect::<BTreeMap<_, _>>(),
            "set": artefact.options().explicit(),
            "inputs": ports(program.inputs()), "outputs": ports(program.outputs()), "states": ports(program.states()),
            "params": program.params().len(), "kernels": kernels.into_iter().collect::<BTreeMap<_, _>>(),
        }))?));
    }
    let rows = |kind: &str, list: &[PortInfo]| -> Vec<Vec<String>> {
        list.iter().map(|p| vec![kind.into(), p.name.to_string(), p.ty.to_string()]).collect()
    };
    let mut all = rows("input", program.inputs());
    all.extend(rows("output", program.outputs()));
    all.extend(rows("state", program.states()));
    let mut s = table::table(&["", "name", "type"], &all);
    let b = |n: u64| table::bytes(n as f64);
    let target = artefact.target().map_or("any (a graph, compiled when it is loaded)".to_string(), |t| {
        format!("{t}, made on {}", artefact.host())
    });
    s.push_str(&format!(
        "\nversion     {}\ntarget      {target}\nfile        {}\n",
        artefact.version(),
        b(artefact.bytes() as u64)
    ));
    s.push_str(&format!(
        "program     {}\nparameters  {} ({})\n",
        b(artefact.program_bytes() as u64),
        program.params().len(),
        b(sources)
    ));
    for (layout, (n, bytes)) in &made {
        s.push_str(&format!("made        {n} tensors, {}: {layout}\n", b(*bytes)));
    }
    match program.made_again().len() {
        0 => {}
        n => s.push_str(&format!("            {n} of them were made for another machine and are made again here\n")),
    }
    for (name, value) in artefact.compiled_with() {
        s.push_str(&format!("option      {name} = {value}\n"));
    }
    let list: Vec<String> = kernels.iter().map(|(k, n)| format!("{k} {n}")).collect();
    s.push_str(&format!("kernels     {}\n", list.join(", ")));
    Ok(Outcome::ok(s))
}
