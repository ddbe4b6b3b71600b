//! The ways of running one graph.

use rlx::compile::run_pass;
use rlx::ir::eval::evaluate;
use rlx::ir::op::EvalOptions;
use rlx::runtime::BorrowedTensor;
use rlx::{CompileOptions, CompiledGraph, Device, Input, Module, Session, Tensor, TensorMut, TensorRef, Value};
use rlx_ir::testing::{RandomGraph, close};

use crate::tolerance::Tolerance;

/// Errors unless every way of running the graph gives what the evaluator gives.
pub fn check(g: &RandomGraph) -> Result<(), String> {
    rlx::ir::verify(&g.module).map_err(|e| format!("generated graph: {e}"))?;
    let exact = EvalOptions { f64_accumulate: true, ..EvalOptions::default() };
    let oracle = evaluate(&g.module, &g.inputs, exact).map_err(|e| format!("evaluator: {e}"))?;
    let tolerance = Tolerance::of(&g.module, &g.inputs)?;
    let check = |way: &str, got: Result<Vec<Tensor>, String>| {
        let got = got.map_err(|e| format!("{way}: {e}"))?;
        agree(&g.module, &oracle.outputs, &got, &tolerance).map_err(|e| format!("{way}: {e}"))
    };
    // One thread and arenas filled with a pattern: no kernel may read what none has written.
    let base = || CompileOptions::new().threads(1).poison(true);
    let optimised = run(&g.module, g, &base());
    check("optimised", optimised.clone())?;
    let threads = run(&g.module, g, &base().threads(2));
    if threads.map_err(|e| format!("two threads: {e}"))? != optimised? {
        return Err("two threads: the bits differ from those of one thread".into());
    }
    check("unoptimised", run(&g.module, g, &base().unoptimised()))?;
    let loaded = run_loaded(&g.module, g, &base());
    if loaded.map_err(|e| format!("artefact: {e}"))? != run(&g.module, g, &base())? {
        return Err("artefact: the bits differ from those of the program that was saved".into());
    }
    check("no machine code", run(&g.module, g, &base().jit(false)))?;
    check("portable", run(&g.module, g, &base().isa(Some(rlx::driver::Isa::Portable))))?;

    let params = g.inputs_as_params().map_err(|e| format!("inputs as parameters: {e}"))?;
    check("inputs as parameters", run(&params.module, &params, &base()))?;

    let mut fixed = base();
    for (symbol, size) in oracle.binding.iter().filter(|(s, _)| g.module.main.input_symbols().contains(*s)) {
        fixed = fixed.bind_dim(symbol.clone(), size);
    }
    check("fixed sizes", run(&g.module, g, &fixed))?;
    let (module, _) = run_pass("bind-dims", &g.module, None, &fixed).map_err(|e| format!("fixed sizes: {e}"))?;
    // Nodes whose sizes depend on data are made for what was known of it: constants would say more.
    if module.main.nodes().iter().any(|n| !n.op.def().defines().is_empty()) {
        return Ok(());
    }
    let fixed = RandomGraph { module, ..g.clone() };
    let constants = fixed.sources_as_constants().map_err(|e| format!("constants: {e}"))?;
    check("constants", run(&constants.module, &constants, &base()))
}

/// Runs twice, so that the second run finds its sizes bound and its memory used.
fn run(module: &Module, g: &RandomGraph, options: &CompileOptions) -> Result<Vec<Tensor>, String> {
    let session = Session::with_options(Device::Cpu, options.clone()).map_err(|e| e.to_string())?;
    let program = session.compile_hir(module).map_err(|e| e.to_string())?;
    run_program(&program, g)
}

/// The same from a file, without compiling.
fn run_loaded(module: &Module, g: &RandomGraph, options: &CompileOptions) -> Result<Vec<Tensor>, String> {
    let session = Session::with_options(Device::Cpu, options.clone()).map_err(|e| e.to_string())?;
    let mut program = session.compile_hir(module).map_err(|e| e.to_string())?;
    let path =
        std::env::temp_dir().join(format!("rlx-random-{}-{:?}.rlxa", std::process::id(), std::thread::current().id()));
    program.save(&path).map_err(|e| e.to_string())?;
    let loaded = session.load(&path).map_err(|e| e.to_string());
    std::fs::remove_file(&path).map_err(|e| e.to_string())?;
    run_program(&loaded?, g)
}

fn run_program(program: &CompiledGraph, g: &RandomGraph) -> Result<Vec<Tensor>, String> {
    let tensors = g.inputs.inputs.iter().filter_map(Value::as_tensor);
    let names: Vec<String> = program.inputs().iter().map(|p| p.name.to_string()).collect();
    let inputs: Vec<(&str, &Tensor)> = names.iter().map(String::as_str).zip(tensors).collect();
    let first = program.run_tensors(&inputs).map_err(|e| e.to_string())?;
    let second = program.run_tensors(&inputs).map_err(|e| format!("second run: {e}"))?;
    if first != second {
        return Err("the second run differs from the first".into());
    }
    borrowed(program, &inputs, &first)?;
    Ok(first)
}

/// Errors unless a clone gives the same bits by every way that leaves results in its memory or the caller's, whatever is read.
fn borrowed(program: &CompiledGraph, inputs: &[(&str, &Tensor)], want: &[Tensor]) -> Result<(), String> {
    let mut p = program.clone();
    let refs: Vec<TensorRef<'_>> = inputs.iter().map(|(_, t)| (*t).into()).collect();
    let lent = |o: &BorrowedTensor<'_>| Tensor::from_bytes(o.dtype, o.dims, o.bytes).map_err(|e| e.to_string());
    let raw = p.run_raw(&refs).map_err(|e| format!("run_raw: {e}"))?;
    let raw: Vec<Tensor> = raw.iter().map(lent).collect::<Result<_, _>>()?;
    let named: Vec<(&str, Input<'_>)> = inputs.iter().map(|(n, t)| (*n, Input::from(*t))).collect();
    let out = p.run_borrowed(&named).map_err(|e| format!("run_borrowed: {e}"))?;
    let out: Vec<Tensor> = out.iter().map(lent).collect::<Result<_, _>>()?;
    let mut memory: Vec<Vec<u8>> = want.iter().map(|t| vec![0xcc; t.bytes().len()]).collect();
    let mut outs: Vec<TensorMut<'_>> =
        want.iter().zip(&mut memory).map(|(t, bytes)| TensorMut { dtype: t.dtype(), dims: t.dims(), bytes }).collect();
    p.run_into(&refs, &mut outs).map_err(|e| format!("run_into: {e}"))?;
    drop(outs);
    let backwards: Vec<usize> = (0..want.len()).rev().collect();
    let mut read = p.run_read_outputs(&named, Some(&backwards)).map_err(|e| format!("run_read_outputs: {e}"))?;
    read.reverse();
    for (way, same) in [
        ("run_raw", raw == want),
        ("run_borrowed", out == want),
        ("run_into", want.iter().zip(&memory).all(|(t, m)| t.bytes() == m)),
        ("run_read_outputs", read == want),
    ] {
        if !same {
            return Err(format!("{way}: the bits differ from those of run_tensors"));
        }
    }
    Ok(())
}

fn agree(m: &Module, want: &[Value], got: &[Tensor], tolerance: &Tolerance) -> Result<(), String> {
    if want.len() != got.len() {
        return Err(format!("{} outputs, not {}", got.len(), want.len()));
    }
    for ((o, want), got) in m.main.outputs().iter().zip(want).zip(got) {
        let (rtol, atol) = tolerance.get(o.value);
        close(want, &got.clone().into(), rtol, atol)
            .map_err(|e| format!("output `{}` (rtol {rtol:.1e}, atol {atol:.1e}): {e}", o.name))?;
    }
    Ok(())
}
