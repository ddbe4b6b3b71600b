//! Kind shape: S1, S3, S4, S5, S9.

use rlx::{Builder, DType, Dim, Tensor};

use crate::harness::{f32s, numbers};
use crate::ways::exact;

fn iota(dims: &[usize]) -> Tensor {
    let n = dims.iter().product::<usize>();
    Tensor::from_slice(dims, &(0..n).map(|i| i as f32).collect::<Vec<_>>()).unwrap()
}

/// S1 at the level of graphs: reshapes keep all elements, chains equal the last one, empty ones included. The attributes 0, −1 and
/// `allowzero` are ONNX's and tested with its operators.
#[test]
fn case_s1_chains_of_reshapes_are_the_last_one() {
    for (from, through, to) in [
        (&[2usize, 3, 4][..], &[6usize, 4][..], &[2usize, 3, 4, 1][..]),
        (&[2, 3, 4], &[24], &[2, 12]),
        (&[2, 3, 4], &[4, 3, 2], &[2, 3, 1, 4]),
        (&[0, 8, 2], &[8, 0], &[0, 0, 4]),
        (&[0, 8, 2], &[0], &[0, 8, 4]),
    ] {
        let mut b = Builder::new("main");
        let x = b.input("x", DType::F32, from.iter().copied()).unwrap();
        let y = b.reshape(x, through.iter().copied()).unwrap();
        let z = b.reshape(y, to.iter().copied()).unwrap();
        b.output("y", y).unwrap();
        b.output("z", z).unwrap();
        let x = iota(from);
        exact(&b.finish(), std::slice::from_ref(&x), &[x.reshaped(through).unwrap(), x.reshaped(to).unwrap()]);
    }
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [2, 3]).unwrap();
    assert!(b.reshape(x, [4]).is_err());
    assert!(b.reshape(x, [-1i64, 6]).is_err());
}

/// S3: a contraction over nothing is zeros, written and not left as memory was; a bias after it is added.
#[test]
fn case_s3_products_with_a_dimension_of_zero() {
    let product = |a: &[usize], c: &[usize], bias: bool, symbolic: bool| {
        let mut b = Builder::new("main");
        let name = |side: &str, i: usize, n: usize| {
            if symbolic && n == 0 { Dim::symbol(&*format!("{side}{i}")) } else { Dim::from(n) }
        };
        let dims = |side: &str, d: &[usize]| d.iter().enumerate().map(|(i, &n)| name(side, i, n)).collect::<Vec<_>>();
        let k = a.len() - 1;
        let (mut da, mut dc) = (dims("a", a), dims("c", c));
        if symbolic && a[k] == 0 {
            da[k] = Dim::symbol("k");
            dc[c.len() - 2] = Dim::symbol("k");
        }
        let x = b.input("x", DType::F32, da).unwrap();
        let w = b.input("w", DType::F32, dc).unwrap();
        let mut y = b.matmul(x, w).unwrap();
        if bias {
            let c = b.constant(f32s(&[3], &[1., 2., 3.])).unwrap();
            y = b.add(y, c).unwrap();
        }
        b.output("y", y).unwrap();
        b.finish()
    };
    let zeros = |d: &[usize]| Tensor::zeros(DType::F32, d).unwrap();
    for symbolic in [false, true] {
        exact(
            &product(&[1, 0, 3], &[3, 2], false, symbolic),
            &[zeros(&[1, 0, 3]), zeros(&[3, 2])],
            &[zeros(&[1, 0, 2])],
        );
        exact(&product(&[2, 0], &[0, 3], false, symbolic), &[zeros(&[2, 0]), zeros(&[0, 3])], &[zeros(&[2, 3])]);
        let rows = f32s(&[2, 3], &[1., 2., 3., 1., 2., 3.]);
        exact(&product(&[2, 0], &[0, 3], true, symbolic), &[zeros(&[2, 0]), zeros(&[0, 3])], &[rows]);
    }
    // Siblings: a sum, a maximum's neutral element, a mean and a softmax over nothing.
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::from(2), Dim::symbol("n")]).unwrap();
    let s = b.reduce(x, rlx::ir::ops::reduction::ReduceKind::Sum, &[1], false).unwrap();
    let m = b.reduce(x, rlx::ir::ops::reduction::ReduceKind::Max, &[1], false).unwrap();
    let q = b.softmax(x, 1).unwrap();
    for (n, v) in [("s", s), ("m", m), ("q", q)] {
        b.output(n, v).unwrap();
    }
    let low = f32s(&[2], &[f32::NEG_INFINITY; 2]);
    exact(&b.finish(), &[zeros(&[2, 0])], &[zeros(&[2]), low, zeros(&[2, 0])]);
}

/// S4: a batch that is broadcast with stride 0, on either side, equals the repeated copy.
#[test]
fn case_s4_batched_products_with_a_broadcast_batch() {
    let build = |left: &[usize], right: &[usize]| {
        let mut b = Builder::new("main");
        let x = b.input("x", DType::F32, left.iter().copied()).unwrap();
        let w = b.input("w", DType::F32, right.iter().copied()).unwrap();
        let x = b.broadcast_to(x, [8, 32, 32]).unwrap();
        let w = b.broadcast_to(w, [8, 32, 32]).unwrap();
        let y = b.matmul(x, w).unwrap();
        b.output("y", y).unwrap();
        b.finish()
    };
    let ones = |d: &[usize]| Tensor::full(DType::F32, d, 1.0).unwrap();
    let all = Tensor::full(DType::F32, &[8, 32, 32], 32.0).unwrap();
    exact(&build(&[1, 32, 32], &[8, 32, 32]), &[ones(&[1, 32, 32]), ones(&[8, 32, 32])], std::slice::from_ref(&all));
    exact(&build(&[8, 32, 32], &[1, 32, 32]), &[ones(&[8, 32, 32]), ones(&[1, 32, 32])], &[all]);
    // Whole numbers are exact in any order of sums: the repeated copy is the answer.
    let whole = |seed: u64, d: &[usize]| {
        let t = numbers(seed, d);
        let v: Vec<f32> = t.as_slice::<f32>().unwrap().iter().map(|x| (x * 8.0).round()).collect();
        f32s(d, &v)
    };
    let (one, many) = (whole(1, &[1, 32, 32]), whole(2, &[8, 32, 32]));
    let repeated = f32s(&[8, 32, 32], &one.as_slice::<f32>().unwrap().repeat(8));
    let by_hand = |a: &Tensor, c: &Tensor| {
        let (a, c) = (a.as_slice::<f32>().unwrap().to_vec(), c.as_slice::<f32>().unwrap().to_vec());
        let mut y = vec![0f32; 8 * 1024];
        for b in 0..8 {
            for i in 0..32 {
                for j in 0..32 {
                    y[b * 1024 + i * 32 + j] =
                        (0..32).map(|k| a[b * 1024 + i * 32 + k] * c[b * 1024 + k * 32 + j]).sum();
                }
            }
        }
        f32s(&[8, 32, 32], &y)
    };
    exact(&build(&[1, 32, 32], &[8, 32, 32]), &[one.clone(), many.clone()], &[by_hand(&repeated, &many)]);
    exact(&build(&[8, 32, 32], &[1, 32, 32]), &[many.clone(), one], &[by_hand(&many, &repeated)]);
}

/// S5 at the level of graphs: slices forwards and reverses, of empty axes too; a step of zero and limits beyond the axis are errors of
/// building. (ONNX's clamping of INT64_MIN and INT64_MAX is tested with its operators.)
#[test]
fn case_s5_reversed_and_empty_slices() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [4]).unwrap();
    let e = b.input("e", DType::F32, [0, 3]).unwrap();
    let r = b.reverse(x, &[0]).unwrap();
    let none = b.slice_axis(x, 0, Dim::from(4), Dim::from(4), 1).unwrap();
    let s = b.slice_axis(r, 0, Dim::ZERO, Dim::from(4), 3).unwrap();
    let er = b.reverse(e, &[0]).unwrap();
    for (n, v) in [("r", r), ("none", none), ("s", s), ("er", er)] {
        b.output(n, v).unwrap();
    }
    let nothing = |d: &[usize]| Tensor::zeros(DType::F32, d).unwrap();
    let want = [f32s(&[4], &[4., 3., 2., 1.]), nothing(&[0]), f32s(&[2], &[4., 1.]), nothing(&[0, 3])];
    exact(&b.finish(), &[f32s(&[4], &[1., 2., 3., 4.]), nothing(&[0, 3])], &want);
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [4]).unwrap();
    assert!(b.slice_axis(x, 0, Dim::ZERO, Dim::from(4), 0).is_err(), "a step of zero");
    // Limits far beyond the axis: refused when built, compiled or run, or nothing; never a read beyond the axis.
    if let Ok(y) = b.slice(x, vec![i64::MAX.into()], vec![i64::MIN.into()], vec![1])
        && b.output("y", y).is_ok()
        && let Ok(p) = crate::harness::session().compile(b.finish())
        && let Ok(y) = p.run_tensors(&[("x", &f32s(&[4], &[1.0; 4]))])
    {
        assert_eq!(y[0].numel(), 0);
    }
}

/// S9 at the level of graphs: sizes below zero and ranks that an op does not have are errors that name the operand.
#[test]
fn case_s9_negative_sizes_and_ranks_that_do_not_fit() {
    let mut b = Builder::new("main");
    for e in [b.input("x", DType::F32, [-3i64]), b.param("x", DType::F32, [2, -3i64])] {
        let e = e.unwrap_err().to_string();
        assert!(e.contains("`x`") && e.contains("-3"), "{e}");
    }
    assert!(rlx::ir::text::parse_module("func @main(%x: f32[-3]) {\n  return %x\n}").is_err());
    let mut b = Builder::new("main");
    let x = b.input("scalar", DType::F32, [0i64; 0]).unwrap();
    let w = b.input("w", DType::F32, [1, 1, 3]).unwrap();
    let e = b.conv(x, w, None, &[1], &[1], &[Dim::ZERO], &[Dim::ZERO], 1).unwrap_err().to_string();
    assert!(e.contains("%scalar: f32[]"), "{e}");
    let e = b.matmul(x, w).unwrap_err().to_string();
    assert!(e.contains("%scalar: f32[]"), "{e}");
}
