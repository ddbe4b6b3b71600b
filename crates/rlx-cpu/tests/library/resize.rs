//! Resizing.

use crate::harness::*;
use rlx_ir::attr::FloatBits;
use rlx_ir::ops::neural::{CoordMode, NearestMode, Resize, ResizeMode};
use rlx_ir::{DType, Dim, Tensor};

const COORDS: [CoordMode; 5] = [
    CoordMode::HalfPixel,
    CoordMode::HalfPixelSymmetric,
    CoordMode::PytorchHalfPixel,
    CoordMode::AlignCorners,
    CoordMode::Asymmetric,
];

fn to(sizes: &[usize], mode: ResizeMode, coords: CoordMode) -> Resize {
    Resize::to_sizes(sizes.iter().map(|&n| Dim::from(n)).collect(), mode, coords)
}

fn tolerance(d: DType) -> f64 {
    match d {
        DType::F32 => 2e-6,
        DType::F16 => 2e-3,
        DType::BF16 => 2e-2,
        _ => 0.0,
    }
}

#[test]
fn nearest_of_every_dtype() {
    for d in dtypes().filter(|d| !d.is_complex()) {
        for nearest in
            [NearestMode::RoundPreferFloor, NearestMode::RoundPreferCeil, NearestMode::Floor, NearestMode::Ceil]
        {
            for coords in COORDS {
                let op = Resize { nearest, ..to(&[2, 7, 6], ResizeMode::Nearest, coords) };
                check(&[data(d, &[2, 3, 5], 1)], 0.0, &|b, v| Ok(vec![b.resize(op.clone(), v[0])?]));
            }
        }
    }
    // Upscaling of images by whole factors, channels first and last.
    for (dims, sizes) in [(&[2usize, 3, 17, 19][..], &[2usize, 3, 34, 57][..]), (&[1, 17, 19, 5], &[1, 34, 38, 5])] {
        let op = to(sizes, ResizeMode::Nearest, CoordMode::Asymmetric);
        check(&[data(DType::F32, dims, 1)], 0.0, &|b, v| Ok(vec![b.resize(op.clone(), v[0])?]));
    }
}

#[test]
fn interpolation_of_every_dtype() {
    for d in dtypes().filter(|d| !d.is_complex()) {
        for mode in [ResizeMode::Linear, ResizeMode::Cubic] {
            for coords in COORDS {
                for exclude_outside in [false, true] {
                    let op = Resize { exclude_outside, ..to(&[2, 7, 4], mode, coords) };
                    let x = if d.is_float() { finite(d, &[2, 3, 6], 1) } else { data(d, &[2, 3, 6], 1) };
                    check(&[x], tolerance(d), &|b, v| Ok(vec![b.resize(op.clone(), v[0])?]));
                }
            }
        }
    }
}

#[test]
fn shapes_scales_and_views() {
    let f = |s: f64| Some(FloatBits::new(s));
    for (dims, sizes, scales) in [
        (&[1usize][..], &[5usize][..], vec![None]),
        (&[5], &[1], vec![None]),
        (&[2, 3, 9, 11], &[2, 3, 20, 31], vec![None; 4]),
        (&[2, 9, 11, 3], &[2, 20, 31, 3], vec![None; 4]),
        (&[3, 4, 5, 6], &[7, 4, 5, 2], vec![None; 4]),
        (&[2, 2, 10, 10], &[2, 2, 8, 8], vec![f(1.0), f(1.0), f(0.8), f(0.8)]),
        (&[0, 4], &[0, 9], vec![None; 2]),
        (&[4, 4], &[4, 0], vec![None; 2]),
        (&[130, 170], &[97, 213], vec![None; 2]),
    ] {
        for mode in [ResizeMode::Nearest, ResizeMode::Linear, ResizeMode::Cubic] {
            for antialias in [false, true] {
                if antialias && mode == ResizeMode::Nearest {
                    continue;
                }
                let op = Resize { antialias, scales: scales.clone(), ..to(sizes, mode, CoordMode::HalfPixel) };
                let x = finite(DType::F32, dims, 1);
                let t = if mode == ResizeMode::Nearest { 0.0 } else { 4e-6 };
                check(&[x], t, &|b, v| Ok(vec![b.resize(op.clone(), v[0])?]));
            }
        }
    }
    let op = to(&[3, 9, 8], ResizeMode::Linear, CoordMode::HalfPixel);
    check(&[finite(DType::F32, &[4, 5, 3], 1)], 2e-6, &|b, v| {
        let x = b.transpose(v[0], &[2, 1, 0])?;
        let y = b.resize(op.clone(), x)?;
        Ok(vec![b.concat(&[y, y], 2)?])
    });
}

#[test]
fn crops_extrapolate() {
    for mode in [ResizeMode::Nearest, ResizeMode::Linear, ResizeMode::Cubic] {
        let op = Resize {
            roi_start: [0.0, 0.4, -0.2].map(FloatBits::new).to_vec(),
            roi_end: [1.0, 0.9, 1.3].map(FloatBits::new).to_vec(),
            extrapolation: FloatBits::new(10.0),
            ..to(&[2, 3, 6], mode, CoordMode::TfCropAndResize)
        };
        check(&[finite(DType::F32, &[2, 4, 5], 1)], 2e-6, &|b, v| Ok(vec![b.resize(op.clone(), v[0])?]));
    }
}

#[test]
fn values_of_the_standard() {
    // ONNX's resize_upsample_scales_linear and resize_upsample_scales_nearest.
    let x = Tensor::from_slice(&[1, 1, 2, 2], &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
    let op = to(&[1, 1, 4, 4], ResizeMode::Linear, CoordMode::HalfPixel);
    let got = check(std::slice::from_ref(&x), 1e-6, &|b, v| Ok(vec![b.resize(op.clone(), v[0])?]));
    let want = [1.0, 1.25, 1.75, 2.0, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3.0, 3.25, 3.75, 4.0f32];
    assert_eq!(got[0].as_slice::<f32>().unwrap().as_ref(), want);
    let op = to(&[1, 1, 4, 6], ResizeMode::Nearest, CoordMode::HalfPixel);
    let got = check(&[x], 0.0, &|b, v| Ok(vec![b.resize(op.clone(), v[0])?]));
    let row = |a: f32, b: f32| [a, a, a, b, b, b];
    assert_eq!(
        got[0].as_slice::<f32>().unwrap().as_ref(),
        [row(1.0, 2.0), row(1.0, 2.0), row(3.0, 4.0), row(3.0, 4.0)].concat()
    );
}
