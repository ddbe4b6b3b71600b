//! The one list of passes, and how it is run. Every door into the compiler comes through here.

use std::time::Instant;

use rlx_ir::Module;

use crate::error::CompileError;
use crate::options::CompileOptions;
use crate::pass::{Pass, PassCx, PassError, Phase};
use crate::passes::{self, bind_dims, cse, dce, fold, legalise};
use crate::report::{CompileReport, PassReport};
use crate::target::Claims;

/// One place in the pipeline.
pub struct Step {
    /// The phase.
    pub phase: Phase,
    /// The pass.
    pub pass: &'static Pass,
    /// Whether the options want it.
    pub wanted: fn(&CompileOptions) -> bool,
}

const fn step(phase: Phase, pass: &'static Pass, wanted: fn(&CompileOptions) -> bool) -> Step {
    Step { phase, pass, wanted }
}

const fn always(_: &CompileOptions) -> bool {
    true
}
const fn dce(o: &CompileOptions) -> bool {
    o.dce
}
const fn folding(o: &CompileOptions) -> bool {
    o.constant_folding
}

use Phase::{Canonical, Import, Legalise};

/// The passes in order.
pub const PIPELINE: &[Step] = &[
    step(Import, &bind_dims::PASS, always),
    step(Canonical, &dce::PASS, dce),
    step(Canonical, &fold::PASS, folding),
    step(Canonical, &cse::PASS, folding),
    step(Legalise, &legalise::PASS, always),
    step(Legalise, &dce::PASS, dce),
];

/// Names of the passes.
pub fn pass_names() -> Vec<&'static str> {
    passes::ALL.iter().map(|p| p.name).collect()
}

/// A pass by name.
pub fn find_pass(name: &str) -> Result<&'static Pass, CompileError> {
    passes::ALL.iter().find(|p| p.name == name).copied().ok_or_else(|| CompileError::UnknownName {
        kind: "pass",
        name: name.into(),
        known: pass_names(),
    })
}

/// A phase by name.
pub fn find_phase(name: &str) -> Result<Phase, CompileError> {
    Phase::ALL.into_iter().find(|p| p.name() == name).ok_or_else(|| CompileError::UnknownName {
        kind: "phase",
        name: name.into(),
        known: Phase::ALL.iter().map(|p| p.name()).collect(),
    })
}

/// Runs one pass by name.
pub fn run_pass(
    name: &str,
    module: &Module,
    claims: Option<&Claims>,
    options: &CompileOptions,
) -> Result<(Module, PassReport), CompileError> {
    apply(find_pass(name)?, module, claims, options)
}

/// Runs the passes over graphs up to and with a phase. Without claims nothing is legalised.
pub fn run_passes(
    mut module: Module,
    claims: Option<&Claims>,
    options: &CompileOptions,
    last: Phase,
) -> Result<(Module, CompileReport), CompileError> {
    let mut report = CompileReport::default();
    let mut dump = crate::dump::Dumper::new(options)?;
    verify("import", &module, options)?;
    dump.write("import", &module)?;
    for step in PIPELINE.iter().filter(|s| s.phase <= last && (s.wanted)(options)) {
        let (new, pass) = apply(step.pass, &module, claims, options)?;
        module = new;
        report.add(pass);
        dump.write(step.pass.name, &module)?;
    }
    Ok((module, report))
}

fn apply(
    pass: &'static Pass,
    module: &Module,
    claims: Option<&Claims>,
    options: &CompileOptions,
) -> Result<(Module, PassReport), CompileError> {
    let cx = PassCx::new(pass.name, options, claims);
    let start = Instant::now();
    let new = (pass.run)(module, &cx).map_err(|e| match e {
        PassError::Ir(source) => CompileError::Pass { pass: pass.name, source },
        PassError::Unsupported { target, ops } => CompileError::Unsupported { target, ops },
    })?;
    let time = start.elapsed();
    verify(pass.name, &new, options)?;
    let report = PassReport {
        name: pass.name,
        time,
        nodes_before: count_nodes(module),
        nodes_after: count_nodes(&new),
        rewrites: cx.take_counters(),
        remarks: cx.take_remarks(),
    };
    Ok((new, report))
}

fn verify(pass: &'static str, module: &Module, options: &CompileOptions) -> Result<(), CompileError> {
    let _ = (pass, module, options);
    Ok(())
}

fn count_nodes(m: &Module) -> usize {
    fn graph(g: &rlx_ir::Graph) -> usize {
        g.nodes().iter().map(|n| 1 + n.regions.iter().map(graph).sum::<usize>()).sum()
    }
    graph(&m.main) + m.functions.values().map(graph).sum::<usize>()
}
