//! Precision policies and scaled quantisation on models made with blocks, traced, and from ONNX.

use rlx::{CompileOptions, CompiledGraph, Device, Module, Precision, PrecisionPolicy, ScaledQuant, Session, Tensor};

use crate::harness::{Case, kernels, run};
use crate::{minilm, small};

fn compile(m: &Module, o: &CompileOptions) -> CompiledGraph {
    Session::new(Device::Cpu).unwrap().compile_hir_with(m, o).unwrap()
}

/// Mean over the tokens that the mask shows, of each text.
fn embeddings(hidden: &Tensor, mask: &Tensor) -> Vec<Vec<f64>> {
    let [batch, seq, width] = hidden.dims()[..] else { panic!("{:?}", hidden.dims()) };
    let (h, m) = (hidden.as_slice::<f32>().unwrap(), mask.as_slice::<i64>().unwrap());
    let of = |b: usize| {
        let mut sum = vec![0.0; width];
        for s in (0..seq).filter(|s| m[b * seq + s] != 0) {
            sum.iter_mut().zip(&h[(b * seq + s) * width..]).for_each(|(a, &x)| *a += f64::from(x));
        }
        sum
    };
    (0..batch).map(of).collect()
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// The least cosine between embeddings.
fn least(a: &[Tensor], b: &[Tensor], mask: &Tensor) -> f64 {
    let (a, b) = (embeddings(&a[0], mask), embeddings(&b[0], mask));
    a.iter().zip(&b).map(|(a, b)| cosine(a, b)).fold(1.0, f64::min)
}

fn options() -> Vec<(String, CompileOptions, f64)> {
    let mut all = Vec::new();
    for p in [Precision::BF16, Precision::F16] {
        for policy in [PrecisionPolicy::AlwaysLow(p), PrecisionPolicy::Mixed(p), PrecisionPolicy::ConservativeMixed(p)]
        {
            all.push((policy.to_string(), CompileOptions::new().policy(policy), 0.9999));
        }
    }
    for q in ScaledQuant::ALL {
        let bound = match q {
            // What the formats themselves cost: NumPy with the same rounding gives minilm 0.9961 for int8 and 0.9976 for E4M3.
            ScaledQuant::Int8 | ScaledQuant::Fp8E4M3 => 0.995,
            ScaledQuant::Mxfp8E4M3 => 0.99,
            ScaledQuant::Mxfp4 => 0.85,
            _ => 0.97,
        };
        all.push((q.to_string(), CompileOptions::new().scaled_quant(Some(q)), bound));
    }
    all
}

#[test]
fn one_policy_works_identically_whichever_way_a_model_is_made() {
    let case = Case::fixture("transformer");
    let mask = case.inputs().into_iter().find(|(n, _)| *n == "attention_mask").unwrap().1;
    let three = small::three();
    let plain = run(&compile(&three[0].1, &CompileOptions::new()), &case.inputs());
    for (name, o, bound) in options() {
        let programs: Vec<_> = three.iter().map(|(way, m)| (way, compile(m, &o))).collect();
        let want = kernels(&programs[0].1);
        for (way, p) in &programs {
            assert_eq!(kernels(p), want, "kernels of {way} under {name}");
            let rewritten = |p: &CompiledGraph| p.report().count("scaled_quant", "rewritten");
            assert_eq!(rewritten(p), rewritten(&programs[0].1), "{way} {name}");
            let c = least(&plain, &run(p, &case.inputs()), &mask);
            assert!(c >= bound, "{way} under {name}: cosine {c}");
        }
    }
}

#[test]
fn minilm_keeps_its_embeddings() {
    let Some(folder) = minilm::folder() else { return };
    let module = rlx::onnx::load(folder.join("model.onnx"), &rlx::onnx::ImportOptions::default()).unwrap().module;
    let case = Case::load(&folder.join("case_1x16.npz"));
    let mask = case.inputs().into_iter().find(|(n, _)| *n == "attention_mask").unwrap().1;
    let plain = run(&compile(&module, &CompileOptions::new()), &case.inputs());
    let mut missed = Vec::new();
    for (name, o, bound) in options() {
        let p = compile(&module, &o);
        let c = least(&plain, &run(&p, &case.inputs()), &mask);
        println!("minilm, {name}: cosine {c:.6}");
        if c < bound {
            missed.push(format!("{name}: cosine {c} below {bound}"));
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}
