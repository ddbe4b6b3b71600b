//! Windows at the border.

use crate::onnx::A;
use crate::ways::{Case, of};

fn iota(from: i32, n: usize) -> Vec<f32> {
    (0..n as i32).map(|i| (from + i) as f32).collect()
}

#[test]
fn w2_divisors_of_averages_at_the_border() {
    let line = |v: &[f32]| of(&[1, 1, v.len()], v);
    let pool = |v: &[f32], k: i64, stride: i64| {
        Case::new("AveragePool", 19, &[&line(v)])
            .with("kernel_shape", A::Is(vec![k]))
            .with("strides", A::Is(vec![stride]))
    };
    let case = pool(&iota(1, 5), 3, 3).with("pads", A::Is(vec![1, 1])).with("ceil_mode", A::I(1));
    case.near(&line(&[1.5, 4.0]), 1e-6);
    let case = pool(&iota(0, 6), 5, 1).with("auto_pad", A::S("SAME_LOWER")).with("count_include_pad", A::I(1));
    case.near(&line(&[0.6, 1.2, 2.0, 3.0, 2.8, 2.4]), 1e-6);
    let wide = |include: i64| {
        let case = pool(&iota(1, 9), 7, 3).with("pads", A::Is(vec![0, 3])).with("ceil_mode", A::I(1));
        case.with("count_include_pad", A::I(include))
    };
    // Padding counts if asked for, but not what lies beyond it.
    wide(0).near(&line(&[4.0, 6.5, 8.0]), 1e-6);
    wide(1).near(&line(&[4.0, 39.0 / 7.0, 4.0]), 1e-6);
    // Siblings: the last window of a maximum begins inside; sums do not count what is not there.
    let max = Case::new("MaxPool", 12, &[&line(&iota(1, 5))]);
    let max = max.with("kernel_shape", A::Is(vec![2])).with("strides", A::Is(vec![2])).with("ceil_mode", A::I(1));
    max.gives(&[line(&[2.0, 4.0, 5.0])]);
    let negative: Vec<f32> = iota(-5, 3);
    let max = Case::new("MaxPool", 12, &[&line(&negative)]).with("kernel_shape", A::Is(vec![3]));
    // Padding is below every number, not 0.
    max.with("pads", A::Is(vec![1, 1])).gives(&[line(&[-4.0, -3.0, -3.0])]);
    let norm = Case::new("LpPool", 18, &[&line(&[3.0, 4.0, 6.0])]).with("kernel_shape", A::Is(vec![2]));
    norm.with("strides", A::Is(vec![2])).with("ceil_mode", A::I(1)).near(&line(&[5.0, 6.0]), 1e-6);
}

#[test]
fn w4_transposed_convolution_with_automatic_padding() {
    let x = of(&[1, 1, 2, 2], &[2f32, 3., 4., 5.]);
    let w = of(&[1, 1, 3, 3], &iota(2, 9));
    let case = Case::new("ConvTranspose", 11, &[&x, &w]).with("auto_pad", A::S("SAME_UPPER"));
    case.gives(&[of(&[1, 1, 2, 2], &[49f32, 63., 91., 105.])]);
    // Stride 2: the output is the input times the stride; what is too much is cut at the end, or at the start.
    let x = of(&[1, 1, 3, 3], &[1f32; 9]);
    let w = of(&[1, 1, 3, 3], &iota(1, 9));
    for (auto, first, last) in [("SAME_UPPER", 1f32, 5.0), ("SAME_LOWER", 5.0, 9.0)] {
        let case = Case::new("ConvTranspose", 11, &[&x, &w]);
        let case = case.with("auto_pad", A::S(auto)).with("strides", A::Is(vec![2, 2]));
        for (way, got) in case.run() {
            let got = got.unwrap_or_else(|e| panic!("{way}: {e}"));
            assert_eq!(got[0].dims(), [1, 1, 6, 6], "{auto} {way}");
            let v = got[0].as_slice::<f32>().unwrap();
            assert_eq!((v[0], v[35]), (first, last), "{auto} {way}");
        }
    }
}
