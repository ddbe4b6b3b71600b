//! Indices out of range, and orders of long lines.

use rlx::Tensor;

use crate::onnx::A;
use crate::ways::{Case, of};

/// An error before anything is read or written, in every way.
#[test]
fn g2_indices_out_of_range() {
    let x = of(&[3], &[1f32, 2., 3.]);
    for at in [3i64, -4, i64::MAX, i64::MIN] {
        let one = of(&[1], &[at]);
        let v = of(&[1], &[9f32]);
        let tuple = of(&[1, 1], &[at]);
        Case::new("Gather", 13, &[&x, &one]).refused();
        Case::new("GatherElements", 13, &[&x, &one]).refused();
        Case::new("GatherND", 13, &[&x, &tuple]).refused();
        Case::new("ScatterElements", 18, &[&x, &one, &v]).refused();
        Case::new("ScatterElements", 18, &[&x, &one, &v]).with("reduction", A::S("add")).refused();
        Case::new("ScatterND", 18, &[&x, &tuple, &v]).refused();
    }
    for at in [2i64, -3, 0] {
        let one = of(&[1], &[at]);
        let value = x.as_slice::<f32>().unwrap()[at.rem_euclid(3) as usize];
        Case::new("Gather", 13, &[&x, &one]).gives(&[of(&[1], &[value])]);
    }
    // Nothing to gather from is fine as long as nothing is gathered.
    let (empty, none) = (of::<f32>(&[0], &[]), of::<i64>(&[0], &[]));
    Case::new("Gather", 13, &[&empty, &none]).gives(std::slice::from_ref(&empty));
    Case::new("Gather", 13, &[&empty, &of(&[1], &[0i64])]).refused();
}

#[test]
fn g2_batches_that_differ() {
    let x = of(&[2, 2], &[1f32, 2., 3., 4.]);
    let indices = of(&[3, 1], &[0i64, 1, 0]);
    Case::new("GatherND", 13, &[&x, &indices]).with("batch_dims", A::I(1)).refused();
    let fits = of(&[2, 1], &[1i64, 0]);
    Case::new("GatherND", 13, &[&x, &fits]).with("batch_dims", A::I(1)).gives(&[of(&[2], &[2f32, 3.])]);
    // More than the axis has, and less than none.
    Case::new("TopK", 11, &[&x, &of(&[1], &[3i64])]).outputs(2).refused();
    Case::new("TopK", 11, &[&x, &of(&[1], &[-1i64])]).outputs(2).refused();
}

/// Lines longer than a block: the result is a permutation in order, equal ones by index.
#[test]
fn g4_orders_of_long_lines() {
    for n in [1023usize, 1024, 1025, 4096, 32000] {
        // Multiplying by a number without a common divisor shuffles.
        let shuffled: Vec<f32> = (0..n).map(|i| ((i * 7919) % n) as f32).collect();
        // Few distinct values: ties.
        let ties: Vec<f32> = (0..n).map(|i| ((i * 7919) % n % 5) as f32).collect();
        for v in [&shuffled, &ties] {
            for (dims, axis) in [([1, n], 1), ([n, 1], 0)] {
                for largest in [0, 1] {
                    check(&of(&dims, v), axis, largest == 1);
                }
            }
        }
    }
}

fn check(x: &Tensor, axis: i64, largest: bool) {
    let n = x.numel();
    let case = Case::new("TopK", 11, &[x, &of(&[1], &[n as i64])]).outputs(2);
    let case = case.with("axis", A::I(axis)).with("largest", A::I(largest.into())).fixed(&["x1"]);
    let data = x.as_slice::<f32>().unwrap();
    for (way, got) in case.run() {
        let got = got.unwrap_or_else(|e| panic!("{way}: {e}"));
        let (values, at) = (got[0].as_slice::<f32>().unwrap(), got[1].as_slice::<i64>().unwrap());
        let mut seen = vec![false; n];
        for (k, (&v, &i)) in values.iter().zip(at.iter()).enumerate() {
            assert_eq!(data[i as usize], v, "{way}");
            assert!(!std::mem::replace(&mut seen[i as usize], true), "{way}: {i} twice");
            if k > 0 {
                let (w, j) = (values[k - 1], at[k - 1]);
                let in_order = if largest { w > v } else { w < v };
                assert!(in_order || w == v && j < i, "{way}: {w} at {j} before {v} at {i}");
            }
        }
    }
}
