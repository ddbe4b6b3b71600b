//! NaN, infinities and signs of zeros.

use rlx::ir::element::Elements;
use rlx::{DType, Tensor};

use crate::onnx::A;
use crate::ways::{Case, LENGTHS, cycled, f32s, of};

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

/// A query whose mask hides every key gives zeros; the rest is ordinary.
#[test]
fn n2_attention_row_that_sees_nothing() {
    let q = of(&[1, 1, 2, 2], &[0.5f32; 4]);
    let k = of(&[1, 1, 3, 2], &[0f32; 6]);
    let v = of(&[1, 1, 3, 2], &[1f32, 2., 3., 4., 5., 6.]);
    let want = of(&[1, 1, 2, 2], &[2f32, 3., 0., 0.]);
    let mask = Tensor::from_bools(&[2, 3], &[true, true, false, false, false, false]).unwrap();
    Case::new("Attention", 23, &[&q, &k, &v, &mask]).gives(std::slice::from_ref(&want));
    let added = of(&[2, 3], &[0.0, 0.0, -INF, -INF, -INF, -INF]);
    Case::new("Attention", 23, &[&q, &k, &v, &added]).gives(std::slice::from_ref(&want));
    // A large negative number is no infinity: the row is the mean.
    let low = of(&[2, 3], &[0.0, 0.0, -INF, -1e30, -1e30, -1e30]);
    Case::new("Attention", 23, &[&q, &k, &v, &low]).near(&of(&[1, 1, 2, 2], &[2f32, 3., 3., 4.]), 1e-6);
    // A plain softmax of nothing but −∞ stays NaN.
    for n in LENGTHS {
        Case::new("Softmax", 13, &[&f32s(&vec![-INF; n])]).gives(&[f32s(&vec![NAN; n])]);
    }
}

/// NaN wins whatever stands after it, in every lane.
#[test]
fn n4_extremes_with_nans_before_a_number() {
    let counts: Vec<usize> = (1..=9).chain([15, 16, 17, 31, 32, 33, 300]).collect();
    for op in ["ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean", "ReduceProd", "ReduceLogSumExp"] {
        for &k in &counts {
            let mut x = vec![NAN; k];
            x.push(42.0);
            let flat = f32s(&x);
            Case::new(op, 13, &[&flat]).with("keepdims", A::I(0)).gives(&[of(&[], &[NAN])]);
            x.reverse();
            Case::new(op, 13, &[&f32s(&x)]).with("keepdims", A::I(0)).gives(&[of(&[], &[NAN])]);
        }
    }
    // Down columns: one with a NaN, one without.
    let x = of(&[3, 2], &[1f32, 5., NAN, 6., 2., 4.]);
    for (op, other) in [("ReduceMax", 6.0), ("ReduceMin", 4.0)] {
        let case = Case::new(op, 13, &[&x]).with("axes", A::Is(vec![0])).with("keepdims", A::I(0));
        case.gives(&[f32s(&[NAN, other])]);
    }
    // The first NaN is the extreme.
    for n in LENGTHS {
        let mut x = vec![3f32; n + 2];
        x[n / 2] = NAN;
        for op in ["ArgMax", "ArgMin"] {
            let case = Case::new(op, 13, &[&f32s(&x)]).with("keepdims", A::I(0));
            case.gives(&[of(&[], &[(n / 2) as i64])]);
        }
    }
}

/// The same in the other float dtypes, of which 16-bit ones are widened on the way.
#[test]
fn n4_extremes_in_every_float() {
    for dtype in [DType::F64, DType::F16, DType::BF16] {
        let of = |dims: &[usize], v: &[f64]| Tensor::from_elements(dtype, dims, &Elements::Float(v.to_vec())).unwrap();
        for n in LENGTHS {
            let mut x = vec![f64::NAN; n];
            x.push(42.0);
            for op in ["ReduceMax", "ReduceMin", "ReduceSum"] {
                let case = Case::new(op, 13, &[&of(&[n + 1], &x)]).with("keepdims", A::I(0));
                case.gives(&[of(&[], &[f64::NAN])]);
            }
            let (x, y) = (of(&[n], &cycled(&[f64::NAN, -0.0, 4.0], n)), of(&[n], &cycled(&[7.0, -0.0, f64::NAN], n)));
            let want = of(&[n], &cycled(&[f64::NAN, -0.0, f64::NAN], n));
            Case::new("Max", 13, &[&x, &y]).gives(std::slice::from_ref(&want));
            Case::new("Min", 13, &[&x, &y]).gives(&[want]);
            let infinite = of(&[n], &cycled(&[f64::INFINITY, f64::NEG_INFINITY, f64::NAN], n));
            Case::new("Abs", 13, &[&infinite])
                .gives(&[of(&[n], &cycled(&[f64::INFINITY, f64::INFINITY, f64::NAN], n))]);
        }
    }
}

#[test]
fn n5_min_max_clip_with_nan_and_with_bounds_that_cross() {
    for n in LENGTHS {
        let (x, y) = (cycled(&[NAN, NAN, 4.0], n), cycled(&[7f32, NAN, 5.], n));
        Case::new("Min", 13, &[&f32s(&x), &f32s(&y)]).gives(&[f32s(&cycled(&[NAN, NAN, 4.0], n))]);
        Case::new("Max", 13, &[&f32s(&x), &f32s(&y)]).gives(&[f32s(&cycled(&[NAN, NAN, 5.0], n))]);
        let x = f32s(&cycled(&[NAN, 1.0, 5.0], n));
        let bound = |v: f32| of(&[], &[v]);
        Case::new("Clip", 13, &[&x, &bound(2.0), &bound(0.0)]).gives(&[f32s(&cycled(&[NAN, 0.0, 0.0], n))]);
        Case::new("Clip", 13, &[&x, &bound(2.0), &bound(4.0)]).gives(&[f32s(&cycled(&[NAN, 2.0, 4.0], n))]);
        Case::new("Relu", 13, &[&x]).gives(&[f32s(&cycled(&[NAN, 1.0, 5.0], n))]);
        let (inf, none) = (f32s(&cycled(&[INF, -INF, NAN], n)), of(&[], &[0f32]));
        Case::new("Clip", 13, &[&inf, &none]).gives(&[f32s(&cycled(&[INF, 0.0, NAN], n))]);
        Case::new("Mul", 13, &[&inf, &none]).gives(&[f32s(&vec![NAN; n])]);
        Case::new("Sub", 13, &[&inf, &inf]).gives(&[f32s(&vec![NAN; n])]);
    }
}

#[test]
fn n7_signs_of_zeros() {
    for n in LENGTHS {
        let unary = |op: &str, x: &[f32], want: &[f32]| {
            Case::new(op, 13, &[&f32s(&cycled(x, n))]).gives(&[f32s(&cycled(want, n))]);
        };
        unary("Abs", &[-0.0, 0.0], &[0.0, 0.0]);
        unary("Neg", &[0.0, -0.0], &[-0.0, 0.0]);
        unary("Round", &[-0.4, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5], &[-0.0, -2.0, -2.0, -0.0, 0.0, 2.0, 2.0]);
        unary("Ceil", &[-0.5, -0.0, 0.0], &[-0.0, -0.0, 0.0]);
        unary("Floor", &[-0.0, 0.5], &[-0.0, 0.0]);
        unary("Sqrt", &[-0.0, 0.0, -1.0], &[-0.0, 0.0, NAN]);
        unary("Reciprocal", &[-0.0, 0.0, -INF], &[-INF, INF, -0.0]);
        unary("Tanh", &[-0.0, 0.0], &[-0.0, 0.0]);
        let x = f32s(&cycled(&[-0.0, 0.0, 1.5], n));
        let with = |op: &str, k: f32, want: &[f32]| {
            Case::new(op, 13, &[&x, &of(&[], &[k])]).fixed(&["x1"]).gives(&[f32s(&cycled(want, n))]);
        };
        with("Add", 0.0, &[0.0, 0.0, 1.5]);
        with("Add", -0.0, &[-0.0, 0.0, 1.5]);
        with("Sub", 0.0, &[-0.0, 0.0, 1.5]);
        with("Mul", 1.0, &[-0.0, 0.0, 1.5]);
        with("Mul", -1.0, &[0.0, -0.0, -1.5]);
        with("Mul", 0.0, &[-0.0, 0.0, 0.0]);
        with("Div", 1.0, &[-0.0, 0.0, 1.5]);
        with("Pow", 1.0, &[-0.0, 0.0, 1.5]);
    }
    // Casts keep the sign where there is one.
    let x = f32s(&[-0.0, 0.0]);
    let half = Tensor::from_elements(DType::F16, &[2], &x.elements()).unwrap();
    Case::new("Cast", 13, &[&x]).with("to", A::I(10)).gives(std::slice::from_ref(&half));
    Case::new("Cast", 13, &[&half]).with("to", A::I(1)).gives(&[x]);
}
