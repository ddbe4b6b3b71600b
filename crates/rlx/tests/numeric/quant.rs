//! Quantisation.

use half::f16;
use rlx::{DType, Tensor};

use crate::onnx::A;
use crate::ways::{Case, LENGTHS, cycled, f32s, of};

#[test]
fn q2_ties_saturation_and_halves() {
    let scalar = |v: f32| of(&[], &[v]);
    for n in LENGTHS {
        let case = |x: &[f32], scale: f32, zero: i8, want: &[i8]| {
            let case = Case::new("QuantizeLinear", 13, &[&f32s(&cycled(x, n)), &scalar(scale), &of(&[], &[zero])]);
            case.gives(&[of(&[n], &cycled(want, n))]);
        };
        case(&[0.25, 0.75, 1.25, 1.75, -0.25, -0.75], 0.5, 0, &[0, 2, 2, 4, 0, -2]);
        case(
            &[-129., -128., -127.5, -127., 126.5, 127., 127.5, 128.],
            1.0,
            0,
            &[-128, -128, -128, -127, 126, 127, 127, 127],
        );
        // The zero point is added after rounding.
        case(&[0.5, 1.5, 2.5, 1e30, f32::NEG_INFINITY], 1.0, 1, &[1, 3, 3, 127, -128]);
        let unsigned = Case::new("QuantizeLinear", 13, &[&f32s(&cycled(&[-1., 0.5, 1.5, 300.], n)), &scalar(1.0)]);
        unsigned.gives(&[of(&[n], &cycled(&[0u8, 0, 2, 255], n))]);
        // And back: the difference does not wrap.
        let x = of(&[n], &cycled(&[-128i8, 127, 0], n));
        let back = Case::new("DequantizeLinear", 13, &[&x, &scalar(0.5), &of(&[], &[127i8])]);
        back.gives(&[f32s(&cycled(&[-127.5, 0.0, -63.5], n))]);
    }
    // The quotient is just above one half: it must not be rounded to f16 first.
    let half = |v: f32| Tensor::from_slice(&[1], &[f16::from_f32(v)]).unwrap();
    let scale = half(0.099_975_6).reshaped(&[]).unwrap();
    let case = Case::new("QuantizeLinear", 19, &[&half(0.050_018_3), &scale, &of(&[], &[0i8])]);
    case.gives(&[of(&[1], &[1i8])]);
}

/// Siblings: scales along an axis and in blocks, and what is dynamically quantised.
#[test]
fn q2_scales_of_axes_and_blocks() {
    let x = of(&[2, 4], &[1f32, 2., 3., 4., 10., 20., 30., 40.]);
    let zero = of(&[2], &[0i8, 1]);
    let rows = Case::new("QuantizeLinear", 13, &[&x, &f32s(&[1.0, 10.0]), &zero]).with("axis", A::I(-2));
    rows.gives(&[of(&[2, 4], &[1i8, 2, 3, 4, 2, 3, 4, 5])]);
    let scales = of(&[2, 2], &[1f32, 2., 10., 20.]);
    let blocks = Case::new("QuantizeLinear", 21, &[&x, &scales]).with("axis", A::I(1)).with("block_size", A::I(2));
    blocks.gives(&[of(&[2, 4], &[1u8, 2, 2, 2, 1, 2, 2, 2])]);
    // A range without 0 is widened to it; a constant zero has scale 0 and still gives a result of the right type.
    let case = Case::new("DynamicQuantizeLinear", 11, &[&f32s(&[5.1, 2.0, 0.0])]).outputs(3);
    case.gives(&[of(&[3], &[255u8, 100, 0]), of(&[], &[5.1f32 / 255.0]), of(&[], &[0u8])]);
    for (way, got) in Case::new("DynamicQuantizeLinear", 11, &[&f32s(&[0.0; 5])]).outputs(3).run() {
        let got = got.unwrap_or_else(|e| panic!("{way}: {e}"));
        assert_eq!((got[0].dtype(), got[0].dims()), (DType::U8, &[5][..]), "{way}");
    }
}
