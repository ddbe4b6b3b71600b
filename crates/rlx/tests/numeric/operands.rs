//! Operands that say how an op works (axes, steps, scales) and are only known when the program runs: wrong ones are errors, as they are
//! when the model is compiled. Right ones are cases of the suite `operands` of `../conformance`.

use rlx::Tensor;

use crate::onnx::A;
use crate::ways::{Case, of};

fn ints(v: &[i64]) -> Tensor {
    of(&[v.len()], v)
}

#[test]
fn g2_axes_out_of_range() {
    let x = of(&[2, 3], &[1f32, 2., 3., 4., 5., 6.]);
    for axes in [[2i64], [-3], [i64::MAX], [i64::MIN]] {
        let (one, scalar) = (ints(&axes), of(&[], &axes));
        for keep in [0, 1] {
            Case::new("ReduceSum", 13, &[&x, &one]).with("keepdims", A::I(keep)).refused();
            Case::new("ReduceMax", 18, &[&x, &one]).with("keepdims", A::I(keep)).refused();
        }
        Case::new("CumSum", 14, &[&x, &scalar]).refused();
        Case::new("Slice", 13, &[&x, &ints(&[0]), &ints(&[1]), &one]).refused();
        let pad = Case { inputs: [&x, &ints(&[1, 1])].map(|t| Some(t.clone())).to_vec(), ..Case::new("Pad", 18, &[]) };
        let inputs = pad.inputs.iter().cloned().chain([None, Some(one.clone())]).collect();
        Case { inputs, ..pad }.refused();
        let thin = of(&[1, 1], &[1f32]);
        Case::new("Squeeze", 13, &[&thin, &one]).refused();
    }
    for axes in [[3i64], [-4]] {
        Case::new("Unsqueeze", 13, &[&x, &ints(&axes)]).refused();
    }
    // The axis of real and imaginary parts is none to transform.
    for axis in [2i64, -1, 3] {
        let signal = of(&[1, 4, 1], &[1f32, 2., 3., 4.]);
        let inputs = vec![Some(signal), None, Some(of(&[], &[axis]))];
        Case { inputs, ..Case::new("DFT", 20, &[]) }.refused();
    }
}

#[test]
fn g2_axes_named_twice() {
    let x = of(&[1, 3], &[1f32, 2., 3.]);
    for axes in [[0i64, 0], [1, -1], [-2, 0]] {
        Case::new("ReduceSum", 13, &[&x, &ints(&axes)]).refused();
        Case::new("Squeeze", 13, &[&of(&[1, 1, 3], &[1f32, 2., 3.]), &ints(&[axes[0], axes[0]])]).refused();
    }
    Case::new("Unsqueeze", 13, &[&x, &ints(&[0, -4])]).refused();
    // Two axes of one element may be dropped, one of three may not.
    Case::new("Squeeze", 13, &[&x, &ints(&[1])]).refused();
    Case::new("Squeeze", 13, &[&of(&[0, 3], &[] as &[f32]), &ints(&[1])]).refused();
}

#[test]
fn g2_steps_and_scales_that_are_none() {
    let x = of(&[1, 1, 2, 2], &[1f32, 2., 3., 4.]);
    let zero = Case::new("Slice", 13, &[&x, &ints(&[0]), &ints(&[2]), &ints(&[2]), &ints(&[0])]);
    zero.refused();
    for bad in [0.0f32, -1.0, f32::NAN, f32::INFINITY] {
        let scales = of(&[4], &[1.0, 1.0, 2.0, bad]);
        let inputs = vec![Some(x.clone()), None, Some(scales)];
        Case { inputs, ..Case::new("Resize", 13, &[]) }.with("mode", A::S("linear")).refused();
    }
    // A filter that would be wider than any memory.
    let inputs = vec![Some(x.clone()), None, Some(of(&[4], &[1.0, 1.0, 1.0, 1e-6f32]))];
    Case { inputs, ..Case::new("Resize", 18, &[]) }.with("mode", A::S("linear")).with("antialias", A::I(1)).refused();
    // As many of one thing as of the other.
    Case::new("Slice", 13, &[&x, &ints(&[0, 0]), &ints(&[1, 1]), &ints(&[1])]).refused();
    Case::new("Slice", 13, &[&x, &ints(&[0]), &ints(&[1]), &ints(&[1, 2])]).refused();
    let inputs = vec![Some(x), Some(ints(&[1, 1, 1])), None, Some(ints(&[2]))];
    Case { inputs, ..Case::new("Pad", 18, &[]) }.refused();
}
