//! Integers at their ends, and conversions to them.

use rlx::ir::element::Elements;
use rlx::{DType, Tensor};

use crate::onnx::A;
use crate::ways::{Case, LENGTHS, cycled, f32s, of};

fn ints(dtype: DType, v: &[i128]) -> Tensor {
    Tensor::from_elements(dtype, &[v.len()], &Elements::Int(v.to_vec())).unwrap()
}

#[test]
fn i2_remainders_and_division_by_powers_of_two() {
    for dtype in [DType::I8, DType::I16, DType::I32, DType::I64] {
        for n in LENGTHS {
            let case = |op: &'static str, x: &[i128], y: &[i128], want: &[i128]| {
                let (x, y, want) = (cycled(x, n), cycled(y, n), cycled(want, n));
                let case = Case::new(op, 13, &[&ints(dtype, &x), &ints(dtype, &y)]);
                case.gives(&[ints(dtype, &want)]);
            };
            case("Mod", &[-7, 7, -7, 7], &[3, -3, -3, 3], &[2, -2, -1, 1]);
            case("Div", &[-7, 7, -7, 7], &[3, -3, -3, 3], &[-2, -2, 2, 2]);
            // A divisor that the compiler knows: no shift may take the place of the division.
            for (k, want) in [(4, [-1, 0, 1]), (-4, [1, 0, -1]), (1, [-7, -1, 7]), (-1, [7, 1, -7]), (2, [-3, 0, 3])] {
                let x = ints(dtype, &cycled(&[-7, -1, 7], n));
                let k = Tensor::from_elements(dtype, &[], &Elements::Int(vec![k])).unwrap();
                Case::new("Div", 13, &[&x, &k]).fixed(&["x1"]).gives(&[ints(dtype, &cycled(&want, n))]);
            }
            // The smallest integer has no counterpart: arithmetic wraps.
            let (low, high) = dtype.int_range().unwrap();
            case("Div", &[low, high], &[-1, -1], &[low, -high]);
            case("Mod", &[low, low], &[-1, 1], &[0, 0]);
            case("Add", &[high, low], &[1, -1], &[low, high]);
            case("Mul", &[low, high], &[-1, 2], &[low, -2]);
            let x = ints(dtype, &cycled(&[low, high], n));
            Case::new("Abs", 13, &[&x]).gives(&[ints(dtype, &cycled(&[low, high], n))]);
            Case::new("Neg", 13, &[&x]).gives(&[ints(dtype, &cycled(&[low, -high], n))]);
            case("Max", &[low, high], &[high, low], &[high, high]);
        }
    }
    let (x, y) = (f32s(&[-7., 7., -7., 7., 5.5, -0.0]), f32s(&[3., -3., -3., 3., f32::INFINITY, 2.0]));
    Case::new("Mod", 13, &[&x, &y]).with("fmod", A::I(1)).gives(&[f32s(&[-1., 1., -1., 1., 5.5, -0.0])]);
}

/// Out of range the standard leaves the result open; ours is the end of the range, and 0 for NaN, everywhere.
#[test]
fn i4_casts_of_floats_out_of_range() {
    let x = [300.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 50.9, -50.9];
    for n in LENGTHS {
        for (dtype, code) in [(DType::I8, 3), (DType::U8, 2), (DType::I16, 5), (DType::I32, 6), (DType::I64, 7)] {
            let (low, high) = dtype.int_range().unwrap();
            let want = [300.min(high), 0, high, low, 50, (-50).max(low)];
            let case = Case::new("Cast", 13, &[&f32s(&cycled(&x, n))]).with("to", A::I(code));
            case.gives(&[ints(dtype, &cycled(&want, n))]);
        }
        let want = cycled(&[true, true, true, true, true, true, false, false], n);
        let x = cycled(&[300.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.5, -0.5, 0.0, -0.0], n);
        let want = Tensor::from_bools(&[n], &want).unwrap();
        Case::new("Cast", 13, &[&f32s(&x)]).with("to", A::I(9)).gives(&[want]);
        // Between integers the low bits stay.
        let wide = of(&[n], &cycled(&[300i32, -1, 128, i32::MIN], n));
        let case = Case::new("Cast", 13, &[&wide]).with("to", A::I(3));
        case.gives(&[of(&[n], &cycled(&[44i8, -1, -128, 0], n))]);
    }
}
