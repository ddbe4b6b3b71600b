use super::*;
use crate::ops::testing::{arange, fails, floats, run, run_static, run1, t};
use crate::{Builder, DType, Dim, Symbol, Tensor};

fn dims(d: &[i64]) -> Vec<Dim> {
    d.iter().map(|&d| Dim::from(d)).collect()
}

#[test]
fn broadcast_to_repeats_axes_of_one() {
    let y = run1(&[t(&[2, 1], &[1i32, 2])], |b, x| b.broadcast_to(x[0], [2, 2, 3]));
    assert_eq!(y, t(&[2, 2, 3], &[1i32, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2]));
    assert_eq!(run1(&[t(&[1], &[7u8])], |b, x| b.broadcast_to(x[0], [0])).dims(), &[0]);
    assert!(fails(&[t(&[2], &[1i32, 2])], |b, x| b.broadcast_to(x[0], [3])).contains("broadcast"));
    assert!(fails(&[t(&[2], &[1i32, 2])], |b, x| b.broadcast_to(x[0], [1])).contains("broadcast"));
}

#[test]
fn slice_goes_both_ways() {
    let x = t(&[5], &[0i64, 1, 2, 3, 4]);
    let s = |start: i64, limit: i64, step: i64| {
        run1(std::slice::from_ref(&x), |b, x| b.slice(x[0], dims(&[start]), dims(&[limit]), vec![step]))
    };
    assert_eq!(s(1, 5, 2), t(&[2], &[1i64, 3]));
    assert_eq!(s(4, -1, -1), t(&[5], &[4i64, 3, 2, 1, 0]));
    assert_eq!(s(4, 0, -3), t(&[2], &[4i64, 1]));
    assert_eq!(s(3, 3, 1).dims(), &[0]);
    assert_eq!(s(2, 5, i64::MAX), t(&[1], &[2i64]));
    assert_eq!(s(2, -1, i64::MIN), t(&[1], &[2i64]));
    for (start, limit, step) in [(0, 6, 1), (-1, 3, 1), (5, -1, -1), (0, -2, -1), (0, 3, 0)] {
        let e = fails(std::slice::from_ref(&x), |b, x| b.slice(x[0], dims(&[start]), dims(&[limit]), vec![step]));
        assert!(e.contains("axis 0") || e.contains("start"), "{e}");
    }
}

#[test]
fn concat_joins_any_dtype() {
    let y = run1(&[t(&[2, 1], &[1i16, 2]), t(&[2, 2], &[3i16, 4, 5, 6])], |b, x| b.concat(x, -1));
    assert_eq!(y, t(&[2, 3], &[1i16, 3, 4, 2, 5, 6]));
    let s = |v: &[&str]| Tensor::from_strings(&[v.len()], v.iter().map(|s| s.to_string()).collect()).unwrap();
    assert_eq!(run1(&[s(&["a"]), s(&[]), s(&["b", "c"])], |b, x| b.concat(x, 0)), s(&["a", "b", "c"]));
    let nib = |v: &[i128]| Tensor::from_elements(DType::I4, &[v.len()], &crate::element::Elements::Int(v.to_vec()));
    let (a, b, ab) = (nib(&[1, -2, 3]).unwrap(), nib(&[-8]).unwrap(), nib(&[1, -2, 3, -8]).unwrap());
    assert_eq!(run1(&[a, b], |b, x| b.concat(x, 0)), ab);
    assert!(fails(&[arange(&[2, 2]), arange(&[3, 2])], |b, x| b.concat(x, 1)).contains("must be equal"));
}

#[test]
fn pad_modes() {
    let p = |n: usize, low: i64, high: i64, mode| {
        let y = run1(&[arange(&[n])], |b, x| b.pad(x[0], None, dims(&[low]), dims(&[high]), mode));
        floats(&y).into_iter().map(|x| x as i32).collect::<Vec<_>>()
    };
    assert_eq!(p(3, 2, 1, PadMode::Constant), [0, 0, 0, 1, 2, 0]);
    assert_eq!(p(3, 2, 2, PadMode::Edge), [0, 0, 0, 1, 2, 2, 2]);
    assert_eq!(p(3, 3, 4, PadMode::Reflect), [1, 2, 1, 0, 1, 2, 1, 0, 1, 2]);
    assert_eq!(p(3, 4, 2, PadMode::Wrap), [2, 0, 1, 2, 0, 1, 2, 0, 1]);
    assert_eq!(p(1, 2, 1, PadMode::Reflect), [0, 0, 0, 0]);
    assert_eq!(p(4, -1, 1, PadMode::Edge), [1, 2, 3, 3]);
    assert_eq!(p(4, -2, -1, PadMode::Constant), [2]);
    assert!(fails(&[arange(&[3])], |b, x| b.pad(x[0], None, dims(&[-2]), dims(&[-2]), PadMode::Edge)).contains("crop"));
    assert!(
        fails(&[arange(&[0])], |b, x| b.pad(x[0], None, dims(&[1]), dims(&[0]), PadMode::Edge)).contains("no element")
    );
}

#[test]
fn iota_and_reverse() {
    assert_eq!(
        run1(&[], |b, _| b.iota(DType::I32, [2, 3], 1).and_then(|v| b.reverse(v, &[0, -1]))),
        t(&[2, 3], &[2i32, 1, 0, 2, 1, 0])
    );
    assert_eq!(run1(&[], |b, _| b.iota(DType::F16, [0, 3], 1)).dims(), &[0, 3]);
}

#[test]
fn shape_arithmetic_stays_known() {
    let mut b = Builder::new("main");
    let (n, m) = (Dim::symbol("n"), Dim::symbol("m"));
    let x = b.input("x", DType::F32, [n.clone(), m.clone(), Dim::from(4)]).unwrap();
    let s = b.shape_of(x).unwrap();
    let head = b.slice(s, dims(&[0]), dims(&[2]), vec![1]).unwrap();
    let product = b.reduce(head, crate::ops::reduction::ReduceKind::Prod, &[0], true).unwrap();
    let idx = b.constant(t(&[1], &[-1i64])).unwrap();
    let last = b.gather(s, idx, 0).unwrap();
    let joined = b.concat(&[product, last], 0).unwrap();
    assert_eq!(b.graph().elems(joined).unwrap(), &[&n * &m, Dim::from(4)]);
    let back = b.reverse(joined, &[0]).unwrap();
    assert_eq!(b.graph().elems(back).unwrap(), &[Dim::from(4), n * m]);
    let all = b.broadcast_to(last, [3]).unwrap();
    assert_eq!(b.graph().elems(all).unwrap(), dims(&[4, 4, 4]));
}

#[test]
fn data_becomes_sizes() {
    let y = run1(&[t(&[2], &[2i64, 3])], |b, x| {
        let flat = b.slice(x[0], dims(&[0]), dims(&[2]), vec![1])?;
        let read = b.read_dims(flat, vec![Symbol::new("p"), Symbol::new("q")])?;
        let sizes = b.graph().elems(read).unwrap().to_vec();
        b.iota(DType::I32, sizes, 0)
    });
    assert_eq!(y, t(&[2, 3], &[0i32, 0, 0, 1, 1, 1]));
}

#[test]
fn slices_by_the_rules_of_onnx() {
    let x = arange(&[4]);
    let s = |start: i64, end: i64, step| {
        let y = run1(std::slice::from_ref(&x), |b, x| b.slice_axis(x[0], 0, start, end, step));
        let fixed = run_static(std::slice::from_ref(&x), |b, x| Ok(vec![b.slice_axis(x[0], 0, start, end, step)?]));
        assert_eq!(fixed.unwrap(), std::slice::from_ref(&y), "symbolic and static axes agree");
        floats(&y).into_iter().map(|v| v as i64).collect::<Vec<_>>()
    };
    assert_eq!(s(-1, i64::MIN, -1), [3, 2, 1, 0]);
    assert_eq!(s(-1, i64::MAX, -1), [0i64; 0]);
    assert_eq!(s(0, 5, -1), [0i64; 0]);
    assert_eq!(s(1, i64::MAX, 1), [1, 2, 3]);
    assert_eq!(s(0, i64::from(i32::MAX), 3), [0, 3]);
    assert_eq!(s(-3, -1, 1), [1, 2]);
    assert_eq!(s(10, 20, 1), [0i64; 0]);
    assert_eq!(s(10, 0, -2), [3, 1]);
    assert_eq!(s(-10, 2, 1), [0, 1]);
    let y = run1(&[arange(&[0, 3])], |b, x| b.slice_axis(x[0], 0, -1, i64::MIN, -1));
    assert_eq!(y.dims(), &[0, 3]);
    assert!(fails(&[arange(&[3])], |b, x| b.slice_axis(x[0], 0, 0, 3, 0)).contains("step"));
}

#[test]
fn helpers_rearrange() {
    let x = arange(&[2, 3]);
    let one = std::slice::from_ref(&x);
    let y = run1(one, |b, x| b.tile(x[0], &dims(&[1, 2])));
    assert_eq!(y, t(&[2, 6], &[0f32, 1., 2., 0., 1., 2., 3., 4., 5., 3., 4., 5.]));
    assert_eq!(run1(one, |b, x| b.expand_dims(x[0], &[0, -1])).dims(), &[1, 2, 3, 1]);
    assert_eq!(run1(&[arange(&[1, 3])], |b, x| b.squeeze(x[0], &[0])).dims(), &[3]);
    assert!(fails(one, |b, x| b.squeeze(x[0], &[0])).contains("equal"));
    assert_eq!(run1(&[arange(&[2, 3, 4])], |b, x| b.flatten(x[0], -1)).dims(), &[6, 4]);
    assert_eq!(run1(&[arange(&[2, 3])], |b, x| b.flatten(x[0], 2)).dims(), &[6, 1]);
    let parts = run(&[arange(&[7])], |b, x| b.split_even(x[0], 0, 3)).unwrap();
    assert_eq!(parts.iter().map(floats).collect::<Vec<_>>(), [vec![0., 1., 2.], vec![3., 4., 5.], vec![6.]]);
    assert_eq!(run1(&[arange(&[1, 3])], |b, x| b.expand(x[0], dims(&[2, 2, 1]))).dims(), &[2, 2, 3]);
    assert!(fails(one, |b, x| b.expand(x[0], dims(&[4]))).contains("broadcast"));
    let y = run1(&[], |b, _| b.range_dims(Dim::from(5), Dim::from(-2), -3));
    assert_eq!(y, t(&[3], &[5i64, 2, -1]));
    let y = run1(one, |b, x| {
        let k = b.constant(Tensor::scalar(0i64))?;
        b.trilu(x[0], k, true)
    });
    assert_eq!(floats(&y), [0., 1., 2., 0., 4., 5.]);
    let y = run1(&[t(&[3], &[1i32, -1, 7])], |b, x| {
        let (on, off) = (b.constant(Tensor::scalar(5u8))?, b.constant(Tensor::scalar(1u8))?);
        b.one_hot(x[0], Dim::from(3), -1, on, off)
    });
    assert_eq!(y, t(&[3, 3], &[1u8, 5, 1, 1, 1, 5, 1, 1, 1]));
    let y = run1(&[arange(&[1, 4, 1, 2])], |b, x| b.depth_to_space(x[0], 2, false));
    assert_eq!(y, t(&[1, 1, 2, 4], &[0f32, 2., 1., 3., 4., 6., 5., 7.]));
    let y = run1(&[y], |b, x| b.space_to_depth(x[0], 2));
    assert_eq!(y, arange(&[1, 4, 1, 2]));
    let y = run1(&[arange(&[2]), arange(&[2])], |b, x| b.stack(x, 1));
    assert_eq!(y, t(&[2, 2], &[0f32, 0., 1., 1.]));
}
