//! Faults of caches and artefacts. What a damaged, forged or foreign file does: `contract/spec7_artefacts.rs`.

use rlx::{Builder, CacheUse, CompileOptions, DType, Dim, Fusion, Graph, Tensor};

use crate::harness::{Folder, f32s, numbers, session};

/// A softmax over an axis of a sum with a constant, and a product with a parameter.
fn graph(constant: &[f32; 3], axis: usize, weight: u64, name: &str) -> Graph {
    let mut b = Builder::new("main");
    let x = b.input(name, DType::F32, [Dim::symbol("n"), 3.into()]).unwrap();
    let k = b.constant(f32s(&[3], constant)).unwrap();
    let y = b.add(x, k).unwrap();
    let y = b.softmax(y, axis).unwrap();
    let w = b.param_with("w", numbers(weight, &[3, 3])).unwrap();
    let y = b.matmul(y, w).unwrap();
    b.output("y", y).unwrap();
    b.finish()
}

/// Fault 19: Keys chosen by the caller, or made of text that omits attributes and constant bytes, or by an unstable hasher: the wrong program
/// comes back. Options, op set, device and version are not part of the key or are not checked.
#[test]
fn fault_19_the_wrong_program_never_comes_back() {
    let folder = Folder::new("fault-19");
    let cached = CompileOptions::new().cache_dir(Some(folder.0.clone()));
    let k = [0.5f32, -1.0, 2.0];
    // The constant's last bit, the sign of a zero, the axis, a weight, an input's name.
    let near = [0.5, -1.0, f32::from_bits(2.0f32.to_bits() ^ 1)];
    let variants: Vec<(&str, Graph)> = vec![
        ("x", graph(&k, 1, 1, "x")),
        ("x", graph(&near, 1, 1, "x")),
        ("x", graph(&[0.5, -1.0, 0.0], 1, 1, "x")),
        ("x", graph(&[0.5, -1.0, -0.0], 1, 1, "x")),
        ("x", graph(&k, 0, 1, "x")),
        ("x", graph(&k, 1, 2, "x")),
        ("z", graph(&k, 1, 1, "z")),
    ];
    let x = numbers(4, &[4, 3]);
    for round in [CacheUse::Kept, CacheUse::Found] {
        for (i, (input, g)) in variants.iter().enumerate() {
            let fresh = session().compile(g.clone()).unwrap().run_tensors(&[(input, &x)]).unwrap();
            let p = session().compile_with(g.clone(), &cached).unwrap();
            assert_eq!(p.cache_use(), round, "variant {i}");
            assert_eq!(p.run_tensors(&[(input, &x)]).unwrap(), fresh, "variant {i}");
        }
        for (i, o) in [
            cached.clone().fusion(Fusion::Off),
            cached.clone().recognise(false),
            cached.clone().bind_dim("n", 4),
            cached.clone().bind_param("w", numbers(9, &[3, 3])),
        ]
        .iter()
        .enumerate()
        {
            let p = session().compile_with(graph(&k, 1, 1, "x"), o).unwrap();
            let fresh = session().compile_with(graph(&k, 1, 1, "x"), &o.clone().cache_dir(None)).unwrap();
            assert_eq!(p.cache_use(), round, "options {i}");
            let run = |p: &rlx::CompiledGraph| -> Vec<Tensor> { p.run_tensors(&[("x", &x)]).unwrap() };
            assert_eq!(run(&p), run(&fresh), "options {i}");
        }
    }
}
