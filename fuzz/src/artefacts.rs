//! The reader of artefacts, and what runs of what it reads.

use std::sync::Arc;

use rlx_ir::Tensor;
use rlx_ir::testing::{GraphOptions, RandomGraph};
use rlx_runtime::{CompileOptions, Device, Input, LoadOptions, Session, Verify};

/// Loading an artefact as it is, and as a forger would seal it; what loads is run once on small inputs, within little memory.
pub fn artefact(data: &[u8]) {
    let options = CompileOptions::new().memory_limit(Some(32 << 20)).threads(1).isa(Some(rlx_driver::Isa::best()));
    let Ok(session) = Session::with_options(Device::Cpu, options) else { return };
    let how = LoadOptions::new().verify(Verify::Program);
    if let Err(e) = session.load_bytes(Arc::new(data.to_vec()), &LoadOptions::new()) {
        assert!(!e.to_string().is_empty());
    }
    let mut sealed = data.to_vec();
    rlx_runtime::artefact::reseal(&mut sealed);
    let Ok(mut program) = session.load_bytes(Arc::new(sealed), &how) else { return };
    // A loop without end is a program too: what repeats is not run.
    if program.report().placement.iter().any(|k| matches!(k.kind, "loop" | "scan")) {
        return;
    }
    for n in [2usize, 5] {
        let mut inputs = Vec::new();
        for p in program.inputs() {
            let dims: Vec<usize> =
                p.ty.shape.iter().map(|d| d.as_const().map_or(n, |c| usize::try_from(c).unwrap_or(0))).collect();
            let small = dims.iter().try_fold(1usize, |a, &d| a.checked_mul(d)).is_some_and(|n| n <= 1 << 16);
            let Some(t) = Tensor::zeros(p.ty.dtype, &dims).ok().filter(|_| small) else { return };
            inputs.push((p.name.to_string(), t));
        }
        let named: Vec<(&str, Input<'_>)> = inputs.iter().map(|(n, t)| (n.as_str(), Input::from(t))).collect();
        if let Err(e) = program.run_borrowed(&named) {
            assert!(!e.to_string().is_empty());
        }
    }
}

/// Artefacts of random graphs, kernels and graphs, made by this version: a corpus that no other version could have left.
pub fn artefacts() -> Vec<Vec<u8>> {
    let path = std::env::temp_dir().join(format!("rlx-fuzz-{}.rlxa", std::process::id()));
    let mut out = Vec::new();
    for seed in 0..60 {
        let g = RandomGraph::generate(seed, 1 + seed as usize % 9, &GraphOptions::default());
        let module = if seed % 3 == 0 { g.inputs_as_params().map_or(g.module, |p| p.module) } else { g.module };
        if seed % 10 == 0 {
            out.extend(rlx_runtime::artefact::graph_bytes(&module, &CompileOptions::new(), &|_| false));
        }
        let saved = Session::new(Device::Cpu).and_then(|s| s.compile_hir(&module)).and_then(|mut p| p.save(&path));
        if saved.is_ok() {
            out.extend(std::fs::read(&path).ok().filter(|b| b.len() <= 1 << 16));
        }
    }
    let _ = std::fs::remove_file(&path);
    out
}
