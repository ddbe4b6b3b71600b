use std::collections::BTreeSet;

use super::*;
use crate::eval::evaluate;
use crate::fingerprint::fingerprint;
use crate::op::EvalOptions;
use crate::text::{External, ExternalKind, parse_module_with};
use crate::verify;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn graphs_verify_print_and_read_back(r in random_graph(24, GraphOptions::wild())) {
        verify(&r.module).unwrap();
        let text = r.module.to_string();
        let params = r.module.main.params();
        let mut resolve = |e: &External<'_>| {
            assert_eq!(e.kind, ExternalKind::Param);
            params.iter().find(|p| &*p.name == e.name).and_then(|p| p.default.clone())
        };
        let back = parse_module_with(&text, &mut resolve).unwrap();
        prop_assert_eq!(back.to_string(), text);
        prop_assert_eq!(fingerprint(&back), fingerprint(&r.module));
        verify(&back).unwrap();
    }

    #[test]
    fn graphs_evaluate(r in random_graph(24, GraphOptions::wild())) {
        // The evaluator checks every result against its type and known elements.
        evaluate(&r.module, &r.inputs, EvalOptions::default()).unwrap();
    }

    #[test]
    fn inputs_as_parameters_give_the_same(r in random_graph(24, GraphOptions::default())) {
        let p = r.inputs_as_params().unwrap();
        verify(&p.module).unwrap();
        prop_assert!(p.module.main.inputs().is_empty());
        let options = EvalOptions::default();
        let (a, b) = (evaluate(&r.module, &r.inputs, options).unwrap(), evaluate(&p.module, &p.inputs, options).unwrap());
        close_all(&a.outputs, &b.outputs, 0.0, 0.0).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn tame_graphs_are_well_conditioned(r in random_graph(24, GraphOptions::default())) {
        // Accumulating in f64 is another right implementation.
        let run = |f64_accumulate| evaluate(&r.module, &r.inputs, EvalOptions { f64_accumulate, ..EvalOptions::default() }).unwrap().outputs;
        for (a, b) in run(true).iter().zip(&run(false)) {
            let bits = a.as_tensor().map_or(0, |t| t.dtype().bits());
            let tol = if bits >= 32 { 1e-3 } else { 0.1 };
            close(a, b, tol, tol * 10.0).map_err(TestCaseError::fail)?;
        }
    }
}

#[test]
fn graphs_of_a_seed_are_prefixes() {
    for seed in 0..20 {
        let nodes = |n| RandomGraph::generate(seed, n, &GraphOptions::default()).module.main.nodes().to_vec();
        let (short, long) = (nodes(5), nodes(9));
        assert!(!short.is_empty() && long.len() > short.len());
        assert_eq!(long[..short.len()], short[..]);
    }
}

#[test]
fn the_table_is_used_up() {
    let (mut ops, mut dtypes, mut symbolic, mut empty, mut backwards) = (BTreeSet::new(), BTreeSet::new(), 0, 0, 0);
    for seed in 0..300 {
        let r = RandomGraph::generate(seed, 20, &GraphOptions::wild());
        let g = &r.module.main;
        symbolic += usize::from(r.module.has_dynamic_dims());
        empty += usize::from(r.inputs.inputs.iter().any(|v| v.as_tensor().is_some_and(|t| t.numel() == 0)));
        for n in g.nodes() {
            ops.insert(n.op.name());
            backwards +=
                usize::from(n.op.to_string().starts_with("slice") && n.op.to_string().contains("strides = [-"));
            dtypes.extend(n.results.iter().filter_map(|&v| g.tensor_type(v)).map(|t| t.dtype));
        }
    }
    for op in
        ["slice", "concat", "pad", "reduce", "gather", "dot_general", "softmax", "layer_norm", "convert", "select"]
    {
        assert!(ops.contains(op), "no {op}");
    }
    assert!(ops.len() > 60, "{ops:?}");
    assert_eq!(dtypes.len(), crate::DType::ALL.len() - 1, "{dtypes:?}");
    assert!(symbolic > 100 && empty > 30 && backwards > 20, "{symbolic} {empty} {backwards}");
}
