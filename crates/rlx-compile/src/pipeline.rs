//! The one list of passes, and how it is run. Every door into the compiler comes through here.

use std::collections::BTreeSet;
use std::time::Instant;

use rlx_ir::{Graph, Module, Node};

use crate::error::CompileError;
use crate::lir::LirModule;
use crate::lower::{self, lower};
use crate::options::{CompileOptions, MatmulPrecision};
use crate::pass::{Pass, PassCx, PassError, Phase};
use crate::passes::{
    self, bind_dims, bind_params, canonicalise, cse, dce, fold, hoist, join, legalise, precision, recognise,
    scaled_quant, split, split_reduce,
};
pub use crate::report::{CompileReport, PassReport};
use crate::target::{Claims, InputStage, Offender, TargetModule};

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
const fn hoisting(o: &CompileOptions) -> bool {
    o.cache_param_invariant
}
fn binding_params(o: &CompileOptions) -> bool {
    !o.param_bindings.is_empty()
}
const fn quantising(o: &CompileOptions) -> bool {
    o.scaled_quant.is_some()
}
fn lowering(o: &CompileOptions) -> bool {
    o.effective_policy().low().is_some() || o.matmul_precision == MatmulPrecision::Medium
}
fn by_rows(o: &CompileOptions) -> bool {
    o.fusion.allows("row")
}
// Joining copies the weights: once where they are prepared, otherwise on every run.
fn joining(o: &CompileOptions) -> bool {
    o.cache_param_invariant && o.fusion.allows("join")
}
const fn recognition(o: &CompileOptions) -> bool {
    o.recognise
}

use Phase::{Canonical, Import, Legalise, Recognise, Transform};

/// The passes in order.
pub const PIPELINE: &[Step] = &[
    step(Import, &bind_params::PASS, binding_params),
    step(Import, &bind_dims::PASS, always),
    step(Canonical, &dce::PASS, dce),
    step(Canonical, &canonicalise::PASS, folding),
    step(Canonical, &fold::PASS, folding),
    step(Canonical, &cse::PASS, folding),
    step(Recognise, &recognise::PASS, recognition),
    step(Recognise, &canonicalise::PASS, folding),
    step(Recognise, &cse::PASS, folding),
    step(Recognise, &dce::PASS, dce),
    step(Transform, &scaled_quant::PASS, quantising),
    step(Transform, &precision::PASS, lowering),
    step(Transform, &join::PASS, joining),
    step(Legalise, &legalise::PASS, always),
    step(Legalise, &split_reduce::PASS, by_rows),
    step(Legalise, &canonicalise::PASS, folding),
    step(Legalise, &fold::PASS, folding),
    step(Legalise, &cse::PASS, folding),
    step(Legalise, &hoist::PASS, hoisting),
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
    apply(find_pass(name)?, module.clone(), claims, options)
}

/// Runs the passes over graphs up to and with a phase. Without claims nothing is legalised.
pub fn run_passes(
    mut module: Module,
    claims: Option<&Claims>,
    options: &CompileOptions,
    last: Phase,
) -> Result<(Module, CompileReport), CompileError> {
    let mut report = CompileReport::default();
    options.check()?;
    let mut dump = crate::dump::Dumper::new(options)?;
    // What comes in may be made by hand or read from a file: it is verified whatever the options say.
    rlx_ir::verify(&module).map_err(|source| CompileError::Pass { pass: "import", source })?;
    dump.write("import", &module)?;
    for step in PIPELINE.iter().filter(|s| s.phase <= last && (s.wanted)(options)) {
        let (new, pass) = apply(step.pass, module, claims, options)?;
        module = new;
        report.add(pass);
        dump.write(step.pass.name, &module)?;
    }
    Ok((module, report))
}

/// A module compiled for a target, not yet by its backend.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// What the backend takes.
    pub target: TargetModule,
    /// What was done.
    pub report: CompileReport,
}

/// Runs all phases. A size that depends on data is an error for a target without symbolic shapes.
pub fn compile_module(module: &Module, claims: &Claims, options: &CompileOptions) -> Result<Compiled, CompileError> {
    let (module, mut report) = run_passes(module.clone(), Some(claims), options, Phase::Legalise)?;
    if !claims.symbolic_shapes {
        no_sizes_of_data(&module.main, claims)?;
    }
    let mut dump = crate::dump::Dumper::numbered_from(options, report.passes.len() + 1)?;
    let nodes = count_nodes(&module);
    let (prepare, main) = timed(&split::PASS, nodes, Some(claims), options, &mut report, |cx| {
        split::split(module, cx).map_err(PassError::from)
    })?;
    if let Some(p) = &prepare {
        dump.write("prepare", p)?;
    }
    dump.write("main", &main)?;
    let target = match claims.stage {
        InputStage::Mir => TargetModule::Mir { prepare, main },
        InputStage::Lir => {
            let lir = lower_all(prepare.as_ref(), &main, claims, options, &mut report)?;
            dump.write_as("lower", "lir", &lir)?;
            TargetModule::Lir(lir)
        }
    };
    report.target = claims.target.clone();
    if !options.remarks {
        report.passes.iter_mut().for_each(|p| p.remarks.clear());
    }
    Ok(Compiled { target, report })
}

/// Takes a program of kernels as it is: checks it, and that no option asks for what only a graph can be given.
pub fn compile_lir(lir: &LirModule, claims: &Claims, options: &CompileOptions) -> Result<Compiled, CompileError> {
    options.check()?;
    if let Some(&option) = options.without_effect_on_lir().first() {
        return Err(CompileError::NoEffectAtStage(option));
    }
    if claims.stage != InputStage::Lir {
        return Err(CompileError::Backend(format!("the target `{}` takes graphs, not kernels", claims.target)));
    }
    let mut report = CompileReport { target: claims.target.clone(), ..CompileReport::default() };
    let start = Instant::now();
    check_lir(lir)?;
    let nodes = lir.main.kernels.len();
    let (time, rewrites, remarks) = (start.elapsed(), Default::default(), Vec::new());
    report.add(PassReport { name: "check", time, nodes_before: nodes, nodes_after: nodes, rewrites, remarks });
    report.place(&lir.main);
    crate::dump::Dumper::new(options)?.write_as("lower", "lir", lir)?;
    Ok(Compiled { target: TargetModule::Lir(lir.clone()), report })
}

/// As [`compile_lir`], of a program from a file: its structure is checked, but no sizes are tried, which takes longer than loading.
pub fn load_lir(lir: LirModule, claims: &Claims, options: &CompileOptions) -> Result<Compiled, CompileError> {
    options.check()?;
    if claims.stage != InputStage::Lir {
        return Err(CompileError::Backend(format!("the target `{}` takes graphs, not kernels", claims.target)));
    }
    for (name, program) in lir.prepare.iter().map(|p| ("prepare", p)).chain([("main", &lir.main)]) {
        lower::check::sound(program).map_err(|f| CompileError::Lir(format!("{name}: {}", f.join("\n  "))))?;
    }
    let mut report = CompileReport { target: claims.target.clone(), ..CompileReport::default() };
    report.place(&lir.main);
    Ok(Compiled { target: TargetModule::Lir(lir), report })
}

fn check_lir(lir: &LirModule) -> Result<(), CompileError> {
    for (name, program) in lir.prepare.iter().map(|p| ("prepare", p)).chain([("main", &lir.main)]) {
        lower::check::check(program).map_err(|faults| CompileError::Lir(format!("{name}: {}", faults.join("\n  "))))?;
    }
    Ok(())
}

/// Every node whose size depends on data, as one error: for targets that take fixed sizes.
fn no_sizes_of_data(g: &Graph, claims: &Claims) -> Result<(), CompileError> {
    let known = g.input_symbols();
    let of_data = |n: &Node| {
        let mut symbols = BTreeSet::new();
        n.results.iter().for_each(|&r| g.ty(r).collect_symbols(&mut symbols));
        !symbols.is_subset(&known)
    };
    let why = |n: &Node| {
        let types: Vec<String> = n.results.iter().map(|&r| g.ty(r).to_string()).collect();
        format!("the target takes fixed sizes only, and that of its result {} depends on data", types.join(", "))
    };
    let offends = g.nodes().iter().filter(|n| of_data(n));
    let ops: Vec<Offender> = offends.map(|n| (g.describe(&n.op, &n.operands, &n.loc), why(n))).collect();
    if ops.is_empty() { Ok(()) } else { Err(CompileError::Unsupported { target: claims.target.clone(), ops }) }
}

/// Lowers both programs, counts kernels, and in tests and debug builds checks the result.
fn lower_all(
    prepare: Option<&Module>,
    main: &Module,
    claims: &Claims,
    options: &CompileOptions,
    report: &mut CompileReport,
) -> Result<LirModule, CompileError> {
    let start = Instant::now();
    let mut remarks = Vec::new();
    let lir = LirModule {
        prepare: prepare.map(|p| lower(p, claims, options, &mut remarks)).transpose()?,
        main: lower(main, claims, options, &mut remarks)?,
    };
    let nodes = count_nodes(main);
    report.add(PassReport {
        name: "lower",
        time: start.elapsed(),
        nodes_before: nodes,
        nodes_after: nodes,
        rewrites: Default::default(),
        remarks,
    });
    report.place(&lir.main);
    if options.verify {
        check_lir(&lir)?;
    }
    Ok(lir)
}

fn apply(
    pass: &'static Pass,
    module: Module,
    claims: Option<&Claims>,
    options: &CompileOptions,
) -> Result<(Module, PassReport), CompileError> {
    let mut report = CompileReport::default();
    let nodes = count_nodes(&module);
    let new = timed(pass, nodes, claims, options, &mut report, |cx| (pass.run)(module, cx))?;
    verify(pass.name, &new, options)?;
    let mut run = report.passes.remove(0);
    run.nodes_after = count_nodes(&new);
    Ok((new, run))
}

/// Runs a pass's work with a context of its own, and reports on it.
fn timed<T>(
    pass: &'static Pass,
    nodes: usize,
    claims: Option<&Claims>,
    options: &CompileOptions,
    report: &mut CompileReport,
    work: impl FnOnce(&PassCx<'_>) -> Result<T, PassError>,
) -> Result<T, CompileError> {
    let cx = PassCx::new(pass.name, options, claims);
    let start = Instant::now();
    let made = work(&cx).map_err(|e| match e {
        PassError::Ir(source) => CompileError::Pass { pass: pass.name, source },
        PassError::Unsupported { target, ops } => CompileError::Unsupported { target, ops },
    })?;
    report.add(PassReport {
        name: pass.name,
        time: start.elapsed(),
        nodes_before: nodes,
        nodes_after: nodes,
        rewrites: cx.take_counters(),
        remarks: cx.take_remarks(),
    });
    Ok(made)
}

fn verify(pass: &'static str, module: &Module, options: &CompileOptions) -> Result<(), CompileError> {
    if options.verify {
        rlx_ir::verify(module).map_err(|source| CompileError::Pass { pass, source })?;
    }
    Ok(())
}

fn count_nodes(m: &Module) -> usize {
    fn graph(g: &Graph) -> usize {
        g.nodes().iter().map(|n| 1 + n.regions.iter().map(graph).sum::<usize>()).sum()
    }
    graph(&m.main) + m.functions.values().map(graph).sum::<usize>()
}
