//! All ways of running one module, which several tests share.
#![allow(dead_code)]

use rlx::driver::Isa;
use rlx::ir::eval::{EvalInputs, evaluate};
use rlx::ir::op::EvalOptions;
use rlx::{CompileOptions, Device, Module, Session, Tensor, Value};
use rlx_ir::testing::RandomGraph;

/// What one way gives.
pub type Run = Result<Vec<Tensor>, String>;

/// Compiles and runs twice.
pub fn compiled(module: &Module, inputs: &[Tensor], options: CompileOptions) -> Run {
    let session = Session::with_options(Device::Cpu, options.poison(true)).map_err(|e| e.to_string())?;
    let program = session.compile_hir(module).map_err(|e| e.to_string())?;
    let names: Vec<String> = program.inputs().iter().map(|p| p.name.to_string()).collect();
    let given: Vec<(&str, &Tensor)> = names.iter().map(String::as_str).zip(inputs).collect();
    let first = program.run_tensors(&given).map_err(|e| e.to_string())?;
    // Case D2: the second call gives what the first gave.
    assert_eq!(program.run_tensors(&given).map_err(|e| e.to_string())?, first, "the second run");
    Ok(first)
}

/// What every way of running a module gives, by name: the evaluator, compiled, without optimisation, at each instruction set, with inputs
/// as parameters and, where no size depends on data, as constants.
pub fn all(module: &Module, inputs: &[Tensor]) -> Vec<(String, Run)> {
    rlx::ir::verify(module).unwrap();
    let values = EvalInputs { inputs: inputs.iter().cloned().map(Value::from).collect(), ..Default::default() };
    let evaluated = evaluate(module, &values, EvalOptions::default()).map_err(|e| e.to_string());
    let binding = evaluated.as_ref().ok().map(|out| out.binding.clone());
    let tensors = |v: Vec<Value>| v.iter().map(|v| v.as_tensor().unwrap().clone()).collect();
    let mut all = vec![("evaluator".to_string(), evaluated.map(|out| tensors(out.outputs)))];
    let new = CompileOptions::new;
    let mut add = |way: &str, run: Run| all.push((way.to_string(), run));
    add("compiled", compiled(module, inputs, new().threads(2)));
    add("unoptimised", compiled(module, inputs, new().threads(1).unoptimised()));
    for isa in Isa::available() {
        add(&isa.to_string(), compiled(module, inputs, new().threads(1).isa(Some(isa))));
    }
    let graph = RandomGraph { module: module.clone(), inputs: values, seed: 0 };
    add("parameters", compiled(&graph.inputs_as_params().unwrap().module, &[], new().threads(1)));
    let Some(binding) = binding else { return all };
    // Sizes first, so that constants fit.
    let mut fixed = new();
    for (symbol, size) in binding.iter().filter(|(s, _)| module.main.input_symbols().contains(*s)) {
        fixed = fixed.bind_dim(symbol.clone(), size);
    }
    let (bound, _) = rlx::compile::run_pass("bind-dims", module, None, &fixed).unwrap();
    if bound.main.nodes().iter().all(|n| n.op.def().defines().is_empty()) {
        let constants = RandomGraph { module: bound, ..graph }.sources_as_constants().unwrap();
        add("constants", compiled(&constants.module, &[], new().threads(1)));
    }
    all
}
