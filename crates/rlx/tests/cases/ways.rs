//! All ways of running one graph.

use rlx::ir::eval::{EvalInputs, evaluate};
use rlx::ir::op::EvalOptions;
use rlx::{CompileOptions, Device, Graph, Module, Session, Tensor, Value};
use rlx_ir::testing::RandomGraph;

/// What every way of running a graph gives, by name.
pub fn all(g: &Graph, inputs: &[Tensor]) -> Vec<(String, Vec<Tensor>)> {
    let module = Module::from_graph(g.clone());
    let values = EvalInputs { inputs: inputs.iter().cloned().map(Value::from).collect(), ..Default::default() };
    let out = evaluate(&module, &values, EvalOptions::default()).unwrap();
    let tensors = |v: Vec<Value>| v.iter().map(|v| v.as_tensor().unwrap().clone()).collect::<Vec<_>>();
    let mut all = vec![("evaluator".to_string(), tensors(out.outputs))];
    let mut run = |way: &str, m: &Module, inputs: &[Tensor], options: CompileOptions| {
        let s = Session::with_options(Device::Cpu, options.poison(true)).unwrap();
        let p = s.compile_hir(m).unwrap_or_else(|e| panic!("{way}: {e}"));
        let names: Vec<String> = p.inputs().iter().map(|i| i.name.to_string()).collect();
        let named: Vec<(&str, &Tensor)> = names.iter().map(String::as_str).zip(inputs).collect();
        let first = p.run_tensors(&named).unwrap_or_else(|e| panic!("{way}: {e}"));
        // Case D2: the second call gives what the first gave.
        assert_eq!(p.run_tensors(&named).unwrap(), first, "{way}: the second run");
        all.push((way.to_string(), first));
    };
    let new = CompileOptions::new;
    run("compiled", &module, inputs, new().threads(2));
    run("without optimisation", &module, inputs, new().unoptimised());
    for isa in rlx::driver::Isa::available() {
        run(&format!("{isa}"), &module, inputs, new().threads(1).isa(Some(isa)));
    }
    let graph = RandomGraph { module, inputs: values, seed: 0 };
    let params = graph.inputs_as_params().unwrap();
    run("as parameters", &params.module, &[], new());
    // Sizes first, so that constants fit.
    let mut fixed = new();
    for (symbol, size) in out.binding.iter().filter(|(s, _)| graph.module.main.input_symbols().contains(*s)) {
        fixed = fixed.bind_dim(symbol.clone(), size);
    }
    let (module, _) = rlx::compile::run_pass("bind-dims", &graph.module, None, &fixed).unwrap();
    if module.main.nodes().iter().all(|n| n.op.def().defines().is_empty()) {
        let constants = RandomGraph { module, ..graph }.sources_as_constants().unwrap();
        run("as constants", &constants.module, &[], new());
    }
    all
}

/// Every way gives these bits: signs of zeros and places of NaNs too.
pub fn exact(g: &Graph, inputs: &[Tensor], want: &[Tensor]) {
    for (way, got) in all(g, inputs) {
        assert_eq!(got.len(), want.len(), "{way}");
        for (i, (g, w)) in got.iter().zip(want).enumerate() {
            assert_eq!((g.dtype(), g.dims()), (w.dtype(), w.dims()), "{way}, output {i}");
            assert_eq!(g, w, "{way}, output {i}: {:?} and {:?}", g.elements(), w.elements());
        }
    }
}

/// Every way gives f32 numbers that are these up to a relative and an absolute error; NaNs where NaNs are.
pub fn near(g: &Graph, inputs: &[Tensor], want: &[f64], rtol: f64, atol: f64) {
    for (way, got) in all(g, inputs) {
        let got = got[0].as_slice::<f32>().unwrap().to_vec();
        assert_eq!(got.len(), want.len(), "{way}");
        for (i, (&g, &w)) in got.iter().zip(want).enumerate() {
            let g = f64::from(g);
            let fits = g == w || (g.is_nan() && w.is_nan()) || (g - w).abs() <= atol + rtol * w.abs();
            assert!(fits, "{way}, element {i}: {g} is not {w}");
        }
    }
}
