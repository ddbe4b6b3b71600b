//! Kind compiler: C3, C4, C6.

use rlx::ir::ops::elementwise::Compare;
use rlx::ir::ops::reduction::ReduceKind;
use rlx::{Builder, CompileOptions, DType, Dim, Tensor, TensorMut};

use crate::harness::{compile, f32s, numbers};
use crate::ways::exact;

/// C3: values that are outputs and read further, inputs, parameters and constants as outputs, one value as two outputs.
#[test]
fn case_c3_any_value_may_be_an_output() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [1, 1, 1, 4]).unwrap();
    let w = b.constant(f32s(&[1, 1, 1, 2], &[1.0, -1.0])).unwrap();
    let p = b.param_with("p", f32s(&[2], &[5.0, 6.0])).unwrap();
    let c = b.conv(x, w, None, &[1, 1], &[1, 1], &[Dim::ZERO, Dim::ZERO], &[Dim::ZERO, Dim::ZERO], 1).unwrap();
    let r = b.relu(c).unwrap();
    let n = b.neg(r).unwrap();
    let outputs =
        [("conv", c), ("relu", r), ("neg", n), ("x", x), ("w", w), ("p", p), ("again", r), ("x2", x), ("w2", w)];
    for (name, v) in outputs {
        b.output(name, v).unwrap();
    }
    let g = b.finish();
    let x = f32s(&[1, 1, 1, 4], &[1.0, 3.0, 2.0, 2.0]);
    let (conv, relu) = (f32s(&[1, 1, 1, 3], &[-2.0, 1.0, 0.0]), f32s(&[1, 1, 1, 3], &[0.0, 1.0, 0.0]));
    let neg = f32s(&[1, 1, 1, 3], &[-0.0, -1.0, -0.0]);
    let (w, p) = (f32s(&[1, 1, 1, 2], &[1.0, -1.0]), f32s(&[2], &[5.0, 6.0]));
    let want = [&conv, &relu, &neg, &x, &w, &p, &relu, &x, &w].map(Clone::clone);
    exact(&g, std::slice::from_ref(&x), &want);
    let mut program = compile(g, &CompileOptions::new());
    let names: Vec<String> = program.outputs().iter().map(|o| o.name.to_string()).collect();
    assert_eq!(names, outputs.map(|o| o.0));
    // The caller's memory is written, every output of it; constants are copied there and not handed out.
    let mut memory: Vec<Vec<u8>> = want.iter().map(|t| vec![0xee; t.bytes().len()]).collect();
    for _ in 0..2 {
        let mut outs: Vec<TensorMut<'_>> = want
            .iter()
            .zip(&mut memory)
            .map(|(t, bytes)| TensorMut { dtype: t.dtype(), dims: t.dims(), bytes })
            .collect();
        program.run_into(&[(&x).into()], &mut outs).unwrap();
        drop(outs);
        assert!(want.iter().zip(&memory).all(|(t, m)| t.bytes() == m));
        memory.iter_mut().for_each(|m| m.fill(0x11));
    }
}

/// C4: reductions over axes that a permutation or reshape moved, for all orders.
#[test]
fn case_c4_reductions_through_swapped_axes() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [1, 2, 4]).unwrap();
    let t = b.transpose(x, &[0, 2, 1]).unwrap();
    let mean = b.reduce_mean(t, &[2], false).unwrap();
    let wide = b.reduce_mean(t, &[2], true).unwrap();
    let d = b.sub(t, wide).unwrap();
    let sq = b.mul(d, d).unwrap();
    let var = b.reduce_mean(sq, &[2], false).unwrap();
    b.output("mean", mean).unwrap();
    b.output("var", var).unwrap();
    let x = f32s(&[1, 2, 4], &[1., 2., 3., 4., 5., 6., 7., 9.]);
    exact(&b.finish(), &[x], &[f32s(&[1, 4], &[3., 4., 5., 6.5]), f32s(&[1, 4], &[4., 4., 4., 6.25])]);

    // Whole numbers: sums are exact in any order.
    let whole: Vec<f32> = numbers(4, &[2, 3, 5]).as_slice::<f32>().unwrap().iter().map(|x| (x * 9.0).round()).collect();
    let at = |i: [usize; 3]| whole[(i[0] * 3 + i[1]) * 5 + i[2]];
    let sizes = [2usize, 3, 5];
    for perm in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for axis in 0..3usize {
            let mut b = Builder::new("main");
            let x = b.input("x", DType::F32, sizes).unwrap();
            let t = b.transpose(x, &perm).unwrap();
            let e = b.abs(t).unwrap();
            let s = b.reduce(e, ReduceKind::Sum, &[axis as i64], false).unwrap();
            b.output("s", s).unwrap();
            let turned = perm.map(|p| sizes[p]);
            let kept: Vec<usize> = (0..3).filter(|&a| a != axis).collect();
            let mut want = Vec::new();
            for i in 0..turned[kept[0]] {
                for j in 0..turned[kept[1]] {
                    want.push(
                        (0..turned[axis])
                            .map(|k| {
                                let mut t = [0; 3];
                                (t[kept[0]], t[kept[1]], t[axis]) = (i, j, k);
                                let mut o = [0; 3];
                                perm.iter().zip(t).for_each(|(&p, v)| o[p] = v);
                                at(o).abs()
                            })
                            .sum::<f32>(),
                    );
                }
            }
            exact(&b.finish(), &[f32s(&sizes, &whole)], &[f32s(&[turned[kept[0]], turned[kept[1]]], &want)]);
        }
    }
    // Permute, reshape, sum over (2, 2, 256).
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [2, 2, 256]).unwrap();
    let t = b.transpose(x, &[1, 0, 2]).unwrap();
    let r = b.reshape(t, [2, 512]).unwrap();
    let s = b.reduce(r, ReduceKind::Sum, &[1], false).unwrap();
    b.output("s", s).unwrap();
    let v: Vec<f32> = (0..1024).map(|i| (i % 13) as f32).collect();
    let want: Vec<f32> = (0..2)
        .map(|i| (0..2).flat_map(|j| (0..256).map(move |k| (j, k))).map(|(j, k)| v[(j * 2 + i) * 256 + k]).sum())
        .collect();
    exact(&b.finish(), &[f32s(&[2, 2, 256], &v)], &[f32s(&[2], &want)]);
}

/// C6: a comparison with a reduction of the same value, alone and inside a larger expression.
#[test]
fn case_c6_comparisons_with_a_reduction_of_the_same_value() {
    for (compare, want) in [
        (Compare::Eq, [false, true, false, true]),
        (Compare::Ge, [false, true, false, true]),
        (Compare::Lt, [true, false, true, false]),
        (Compare::Ne, [true, false, true, false]),
    ] {
        let mut b = Builder::new("main");
        let x = b.input("x", DType::F32, [Dim::symbol("n")]).unwrap();
        let m = b.reduce(x, ReduceKind::Max, &[0], true).unwrap();
        let y = b.op1(compare, &[x, m]).unwrap();
        let zero = b.scalar(DType::F32, 0.0).unwrap();
        let larger = b.select(y, x, zero).unwrap();
        let larger = b.add(larger, m).unwrap();
        b.output("y", y).unwrap();
        b.output("z", larger).unwrap();
        let x = [1f32, 3., 2., 3.];
        let z: Vec<f32> = x.iter().zip(want).map(|(&x, w)| if w { x + 3.0 } else { 3.0 }).collect();
        exact(&b.finish(), &[f32s(&[4], &x)], &[Tensor::from_bools(&[4], &want).unwrap(), f32s(&[4], &z)]);
    }
}
