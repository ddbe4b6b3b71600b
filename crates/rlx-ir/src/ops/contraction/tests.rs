use crate::builder::Builder;
use crate::dim::Dim;
use crate::eval::{EvalInputs, evaluate};
use crate::graph::{Graph, Module};
use crate::op::EvalOptions;
use crate::tensor::{Tensor, Value};
use crate::{DType, IrError, ValueId};

fn run(g: Graph, inputs: Vec<Tensor>) -> Tensor {
    let inputs = inputs.into_iter().map(Value::from).collect();
    let m = Module::from_graph(g);
    let out = evaluate(&m, &EvalInputs { inputs, ..Default::default() }, EvalOptions::default()).unwrap().outputs;
    out[0].as_tensor().unwrap().clone()
}

/// A graph of inputs with all sizes symbolic, each axis its own symbol unless named the same.
fn build(
    inputs: &[(DType, &[&str])],
    f: impl FnOnce(&mut Builder, &[ValueId]) -> Result<ValueId, IrError>,
) -> Result<Graph, IrError> {
    let mut b = Builder::new("main");
    let mut ids = Vec::new();
    for (i, (dtype, dims)) in inputs.iter().enumerate() {
        ids.push(b.input(&format!("x{i}"), *dtype, dims.iter().map(|d| Dim::parse(d).unwrap()))?);
    }
    let y = f(&mut b, &ids)?;
    b.output("y", y)?;
    Ok(b.finish())
}

fn f32s(dims: &[usize], v: &[f32]) -> Tensor {
    Tensor::from_slice(dims, v).unwrap()
}

fn ramp(dims: &[usize], scale: f32, shift: f32) -> Tensor {
    let n: usize = dims.iter().product();
    f32s(dims, &(0..n).map(|i| ((i * 7 % 11) as f32) * scale + shift).collect::<Vec<_>>())
}

fn close(a: &Tensor, b: &[f32]) {
    let a = a.elements().to_f64().unwrap();
    assert_eq!(a.len(), b.len());
    for (x, y) in a.iter().zip(b) {
        assert!((x - f64::from(*y)).abs() <= 1e-5 * (1.0 + x.abs()), "{a:?} {b:?}");
    }
}

fn matmul(a: (&[&str], Tensor), b: (&[&str], Tensor)) -> Tensor {
    let g = build(&[(a.1.dtype(), a.0), (b.1.dtype(), b.0)], |b, x| b.matmul(x[0], x[1])).unwrap();
    run(g, vec![a.1, b.1])
}

#[test]
fn matmul_of_zero_length() {
    // CASES S3.
    let y = matmul((&["b", "0", "3"], f32s(&[1, 0, 3], &[])), (&["3", "2"], ramp(&[3, 2], 1., 0.)));
    assert_eq!(y.dims(), [1, 0, 2]);
    let y = matmul((&["m", "k"], f32s(&[2, 0], &[])), (&["k", "n"], f32s(&[0, 3], &[])));
    assert_eq!(y, f32s(&[2, 3], &[0.; 6]));
    let g = build(&[(DType::F32, &["m", "k"]), (DType::F32, &["k", "n"]), (DType::F32, &["n"])], |b, x| {
        let y = b.matmul(x[0], x[1])?;
        b.add(y, x[2])
    });
    let y = run(g.unwrap(), vec![f32s(&[2, 0], &[]), f32s(&[0, 3], &[]), f32s(&[3], &[1., 2., 3.])]);
    assert_eq!(y, f32s(&[2, 3], &[1., 2., 3., 1., 2., 3.]));
}

#[test]
fn matmul_broadcasts_batches() {
    // CASES S4: a batch of 1 against 32, on either side and with the sizes symbolic, then against an explicit copy.
    let ones = |b: usize| f32s(&[b, 32, 32], &vec![1.; b * 1024]);
    for (p, q) in [(1, 32), (32, 1), (32, 32)] {
        let y = matmul((&["b", "m", "k"], ones(p)), (&["c", "k", "n"], ones(q)));
        assert_eq!(y, f32s(&[32, 32, 32], &vec![32.; 32 * 1024]));
    }
    let (a, b) = (ramp(&[1, 3, 5], 0.5, -1.), ramp(&[4, 5, 2], 0.25, -1.));
    let copy = Tensor::from_bytes(DType::F32, &[4, 3, 5], &a.bytes().repeat(4)).unwrap();
    let want = matmul((&["b", "m", "k"], copy), (&["b", "k", "n"], b.clone()));
    assert_eq!(matmul((&["1", "m", "k"], a.clone()), (&["b", "k", "n"], b.clone())), want);
    assert_eq!(matmul((&["c", "m", "k"], a), (&["b", "k", "n"], b)), want);
}

#[test]
fn matmul_ranks_as_numpy() {
    // numpy: a = (arange(n)*7 % 11).reshape(dims); a @ b
    let r = |d: &[usize]| ramp(d, 1., 0.);
    close(&matmul((&["k"], r(&[3])), (&["k"], r(&[3]))), &[58.]);
    close(&matmul((&["m", "k"], r(&[2, 3])), (&["k"], r(&[3]))), &[58., 48.]);
    close(&matmul((&["k"], r(&[2])), (&["k", "n"], r(&[2, 3]))), &[70., 42., 14.]);
    let y = matmul((&["m", "k"], r(&[2, 3])), (&["b", "k", "n"], r(&[2, 3, 2])));
    assert_eq!(y.dims(), [2, 2, 2]);
    close(&y, &[39., 76., 30., 134., 19., 56., 104., 98.]);
    let y = matmul((&["k"], r(&[3])), (&["b", "k", "n"], r(&[2, 3, 2])));
    assert_eq!(y.dims(), [2, 2]);
}

#[test]
fn integers_wrap_and_widen() {
    let i8s = |d: &[usize], v: &[i8]| Tensor::from_slice(d, v).unwrap();
    let g = |acc| {
        build(&[(DType::I8, &["m", "k"]), (DType::I8, &["k", "n"])], |b, x| b.matmul_to(x[0], x[1], acc)).unwrap()
    };
    let args = || vec![i8s(&[1, 2], &[127, -128]), i8s(&[2, 1], &[127, -128])];
    assert_eq!(run(g(Some(DType::I32)), args()), Tensor::from_slice(&[1, 1], &[32513i32]).unwrap());
    // 32513 mod 256 is 1.
    assert_eq!(run(g(None), args()), i8s(&[1, 1], &[1]));
    let g =
        build(&[(DType::U8, &["m", "k"]), (DType::I8, &["k", "n"])], |b, x| b.matmul_to(x[0], x[1], Some(DType::I32)));
    let u = Tensor::from_slice(&[1, 2], &[255u8, 1]).unwrap();
    assert_eq!(run(g.unwrap(), vec![u, i8s(&[2, 1], &[-128, 5])]), Tensor::from_slice(&[1, 1], &[-32635i32]).unwrap());
}

#[test]
fn complex_products() {
    let c = |v: &[f32]| Tensor::from_bytes(DType::C64, &[v.len() / 2], bytemuck::cast_slice(v)).unwrap();
    // (1+2i)(3−i) + i·i = 5+5i − 1.
    let y = matmul((&["k"], c(&[1., 2., 0., 1.])), (&["k"], c(&[3., -1., 0., 1.])));
    assert_eq!(y.elements(), crate::element::Elements::Complex(vec![[4.0, 5.0]]));
}

#[test]
fn half_precision_accumulates_in_f32() {
    // In f16 the sum 2048 + 1 + 1 + … would stay 2048.
    let v: Vec<half::f16> = std::iter::once(2048.).chain([1.; 64]).map(half::f16::from_f32).collect();
    let ones = vec![half::f16::from_f32(1.); 65];
    let t = |v: &[half::f16]| Tensor::from_slice(&[v.len()], v).unwrap();
    assert_eq!(matmul((&["k"], t(&v)), (&["k"], t(&ones))).elements().to_f64().unwrap(), [2112.0]);
}

#[test]
fn errors_say_what_differs() {
    let e = build(&[(DType::F32, &["2", "3"]), (DType::F32, &["4", "2"])], |b, x| b.matmul(x[0], x[1]));
    let e = e.unwrap_err().to_string();
    assert!(e.contains("3 and 4 must be equal") && e.contains("%x0: f32[2, 3]"), "{e}");
    let e = build(&[(DType::F32, &["2", "3"]), (DType::F64, &["3", "2"])], |b, x| b.matmul(x[0], x[1]));
    assert!(e.unwrap_err().to_string().contains("convert"));
    // CASES S9: a convolution of a scalar.
    let e = build(&[(DType::F32, &[]), (DType::F32, &["1", "1", "1"])], |b, x| {
        b.conv(x[0], x[1], None, &[1], &[1], &[0.into()], &[0.into()], 1)
    });
    assert!(e.unwrap_err().to_string().contains("[N, C, spatial"));
}

struct ConvCase<'a> {
    x: (&'a [&'a str], &'a [usize]),
    w: &'a [usize],
    strides: &'a [i64],
    dilations: &'a [i64],
    low: &'a [i64],
    high: &'a [i64],
    out_pad: &'a [i64],
    groups: i64,
    bias: bool,
}

fn conv(c: &ConvCase<'_>, transpose: bool) -> (String, Tensor) {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, c.x.0.iter().map(|d| Dim::parse(d).unwrap())).unwrap();
    let w = b.input("w", DType::F32, c.w.iter().copied()).unwrap();
    let o = if transpose { c.w[1] * c.groups as usize } else { c.w[0] };
    let bias = c.bias.then(|| b.input("b", DType::F32, [o]).unwrap());
    let (low, high): (Vec<Dim>, Vec<Dim>) =
        (c.low.iter().map(|&p| p.into()).collect(), c.high.iter().map(|&p| p.into()).collect());
    let y = if transpose {
        b.conv_transpose(x, w, bias, c.strides, c.dilations, &low, &high, c.out_pad, c.groups)
    } else {
        b.conv(x, w, bias, c.strides, c.dilations, &low, &high, c.groups)
    };
    b.output("y", y.unwrap()).unwrap();
    let g = b.finish();
    let ty = g.ty(g.outputs()[0].value).to_string();
    let mut inputs = vec![ramp(c.x.1, 0.5, -2.), ramp(c.w, 0.25, -1.)];
    if c.bias {
        inputs.push(ramp(&[o], 1., 0.5));
    }
    (ty, run(g, inputs))
}

/// The definition, one product at a time.
fn naive(c: &ConvCase<'_>, out: &[usize]) -> Vec<f32> {
    let (x, w) =
        (ramp(c.x.1, 0.5, -2.).elements().to_f64().unwrap(), ramp(c.w, 0.25, -1.).elements().to_f64().unwrap());
    let b = ramp(&[c.w[0]], 1., 0.5).elements().to_f64().unwrap();
    let (xd, wd) = (c.x.1, c.w);
    let per = wd[0] / c.groups as usize;
    let mut y = Vec::new();
    for n in 0..out[0] {
        for o in 0..out[1] {
            for i in 0..out[2] {
                for j in 0..out[3] {
                    let mut s = if c.bias { b[o] } else { 0.0 };
                    for ch in 0..wd[1] {
                        for p in 0..wd[2] {
                            for q in 0..wd[3] {
                                let r = i as i64 * c.strides[0] + p as i64 * c.dilations[0] - c.low[0];
                                let t = j as i64 * c.strides[1] + q as i64 * c.dilations[1] - c.low[1];
                                if r < 0 || t < 0 || r >= xd[2] as i64 || t >= xd[3] as i64 {
                                    continue;
                                }
                                let channel = o / per * wd[1] + ch;
                                let at = ((n * xd[1] + channel) * xd[2] + r as usize) * xd[3] + t as usize;
                                s += x[at] * w[((o * wd[1] + ch) * wd[2] + p) * wd[3] + q];
                            }
                        }
                    }
                    y.push(s as f32);
                }
            }
        }
    }
    y
}

#[test]
fn convolution_by_definition() {
    let case = ConvCase {
        x: (&["n", "4", "h", "w"], &[2, 4, 7, 6]),
        w: &[6, 2, 3, 2],
        strides: &[2, 1],
        dilations: &[1, 2],
        low: &[1, 0],
        high: &[2, 1],
        out_pad: &[],
        groups: 2,
        bias: true,
    };
    let (ty, y) = conv(&case, false);
    assert_eq!(ty, "f32[n, 6, h floordiv 2 + 1, w - 1]");
    assert_eq!(y.dims(), [2, 6, 4, 5]);
    close(&y, &naive(&case, y.dims()));
    // Negative padding crops; a kernel of one cell; depthwise.
    let case = ConvCase { low: &[-1, 0], high: &[-2, 0], w: &[4, 1, 1, 1], groups: 4, bias: false, ..case };
    let (_, y) = conv(&case, false);
    assert_eq!(y.dims(), [2, 4, 2, 6]);
    close(&y, &naive(&case, y.dims()));
}

#[test]
fn transposed_convolution_is_the_adjoint() {
    // ⟨conv(x), y⟩ = ⟨x, conv_transpose(y)⟩ for the same kernel and geometry.
    let forward = ConvCase {
        x: (&["n", "4", "h", "w"], &[2, 4, 8, 6]),
        w: &[6, 2, 3, 2],
        strides: &[2, 1],
        dilations: &[1, 2],
        low: &[1, 0],
        high: &[2, 1],
        out_pad: &[],
        groups: 2,
        bias: false,
    };
    let (_, fx) = conv(&forward, false);
    let back = ConvCase { x: (&["n", "6", "h", "w"], fx.dims()), out_pad: &[0, 0], ..forward };
    let (_, ty) = conv(&back, true);
    assert_eq!(ty.dims(), [2, 4, 8, 6]);
    let dot = |a: &Tensor, b: &Tensor| -> f64 {
        a.elements().to_f64().unwrap().iter().zip(b.elements().to_f64().unwrap()).map(|(x, y)| x * y).sum()
    };
    let (x, y) = (ramp(&[2, 4, 8, 6], 0.5, -2.), ramp(fx.dims(), 0.5, -2.));
    let (l, r) = (dot(&fx, &y), dot(&x, &ty));
    assert!((l - r).abs() < 1e-3 * l.abs(), "{l} {r}");
}

#[test]
fn transposed_convolution_same_padding() {
    // CASES W4: SAME_UPPER at stride 1 cuts one cell on each side of the 4×4 full result.
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [1, 1, 2, 2]).unwrap();
    let w = b.input("w", DType::F32, [1, 1, 3, 3]).unwrap();
    let one = [Dim::ONE, Dim::ONE];
    let y = b.conv_transpose(x, w, None, &[1, 1], &[1, 1], &one, &one, &[0, 0], 1).unwrap();
    b.output("y", y).unwrap();
    let w: Vec<f32> = (2..=10).map(|x| x as f32).collect();
    let y = run(b.finish(), vec![f32s(&[1, 1, 2, 2], &[2., 3., 4., 5.]), f32s(&[1, 1, 3, 3], &w)]);
    assert_eq!(y, f32s(&[1, 1, 2, 2], &[49., 63., 91., 105.]));
}
