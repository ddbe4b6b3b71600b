//! Random operators: reproducible, and not frozen into the program.

use rlx::ir::RngOptions;
use rlx::ir::ops::random::RNG_STATE;
use rlx::onnx::{ImportOptions, Model, import};
use rlx::{CompileOptions, CompiledGraph, Device, Input, Session, Tensor};

use crate::onnx::{A, node};
use crate::ways::of;

fn program(model: &Model, threads: usize) -> CompiledGraph {
    let module = import(model, &ImportOptions::default()).unwrap().module;
    let options = CompileOptions::new().threads(threads).poison(true);
    Session::with_options(Device::Cpu, options).unwrap().compile_hir(&module).unwrap()
}

fn run(p: &mut CompiledGraph, inputs: &[(&str, &Tensor)]) -> Vec<Tensor> {
    let inputs: Vec<(&str, Input<'_>)> = inputs.iter().map(|&(n, t)| (n, t.into())).collect();
    let outputs = p.run_borrowed(&inputs).unwrap();
    outputs.iter().map(|o| Tensor::from_bytes(o.dtype, o.dims, o.bytes).unwrap()).collect()
}

/// The same seed gives the same bits whatever the thread count; successive runs differ; what is kept is scaled.
#[test]
fn t5_masks_are_reproducible_and_not_frozen() {
    let n = 20_000;
    let x = of(&[n], &vec![1f32; n]);
    let (ratio, training) = (of(&[], &[0.5f32]), Tensor::from_bools(&[], &[true]).unwrap());
    let model = node("Dropout", 13, &[Some(&x), Some(&ratio), Some(&training)], 2, &[]);
    let inputs = [("x0", &x), ("x1", &ratio), ("x2", &training)];
    let mut runs = Vec::new();
    for threads in [1, 2, 3] {
        let mut p = program(&model, threads);
        let two = [run(&mut p, &inputs), run(&mut p, &inputs)];
        assert_ne!(two[0], two[1], "successive runs draw anew");
        runs.push(two);
    }
    assert!(runs.iter().all(|r| *r == runs[0]));
    let (y, mask) = (runs[0][0][0].as_slice::<f32>().unwrap(), runs[0][0][1].elements());
    let kept = mask.ints().unwrap().iter().filter(|&&m| m != 0).count();
    // Four standard deviations.
    assert!((kept as f64 - 10_000.0).abs() < 4.0 * (n as f64 / 4.0).sqrt(), "{kept} of {n} are kept");
    assert!(y.iter().zip(mask.ints().unwrap()).all(|(&y, &m)| y == if m != 0 { 2.0 } else { 0.0 }));
    // The position can be set back, and the seed changed.
    let mut p = program(&model, 2);
    run(&mut p, &inputs);
    let state = p.state(RNG_STATE).unwrap();
    assert_eq!(RngOptions::from_tensor(&state), Some(RngOptions { seed: 0, offset: 1 }));
    p.set_state(RNG_STATE, RngOptions::default().to_tensor()).unwrap();
    assert_eq!(run(&mut p, &inputs), runs[0][0]);
    p.set_state(RNG_STATE, RngOptions { seed: 1, offset: 0 }.to_tensor()).unwrap();
    assert_ne!(run(&mut p, &inputs), runs[0][0]);
}

/// An operator without operands is no constant.
#[test]
fn t5_a_node_without_inputs_is_not_folded() {
    let shape = ("shape", A::Is(vec![50, 40]));
    for (op, low, high) in [("RandomNormal", -0.1, 0.1), ("RandomUniform", 0.45, 0.55)] {
        let mut p = program(&node(op, 1, &[], 1, std::slice::from_ref(&shape)), 1);
        let (a, b) = (run(&mut p, &[]), run(&mut p, &[]));
        assert_ne!(a, b, "{op}");
        let v = a[0].as_slice::<f32>().unwrap();
        let mean = v.iter().sum::<f32>() / v.len() as f32;
        assert!((low..high).contains(&mean), "{op}: the mean of 2000 is {mean}");
    }
    let logits = of(&[2, 3], &[0f32, f32::NEG_INFINITY, 0.0, -100.0, 5.0, -100.0]);
    let model = node("Multinomial", 7, &[Some(&logits)], 1, &[("sample_size", A::I(100))]);
    let drawn = run(&mut program(&model, 1), &[("x0", &logits)]);
    let drawn = drawn[0].as_slice::<i32>().unwrap();
    assert!(drawn[..100].iter().all(|&c| c == 0 || c == 2) && drawn[..100].contains(&0) && drawn[..100].contains(&2));
    assert!(drawn[100..].iter().all(|&c| c == 1));
}
