//! Contractions that are given integers as they lie in memory, and those that are not.

use rlx_compile::lir::{ContractKernel, Kernel, Lir};
use rlx_compile::{CompileOptions, Fusion};
use rlx_ir::{Builder, DType, Dim, Module, ValueId};

use crate::harness::{lowered, verify};

fn n() -> Dim {
    Dim::symbol("n")
}

fn built(build: impl FnOnce(&mut Builder) -> ValueId) -> (Module, Lir) {
    let mut b = Builder::new("main");
    let y = build(&mut b);
    b.output("y", y).unwrap();
    let m = Module::from_graph(b.finish());
    let sizes: Vec<_> = [1, 3, 0].map(|n| [("n", n)].into_iter().collect()).into();
    let lir = verify(&m, &sizes);
    (m, lir)
}

fn contraction(lir: &Lir) -> &ContractKernel {
    let found = lir.kernels.iter().find_map(|k| if let Kernel::Contract(c) = &k.kernel { Some(c) } else { None });
    found.expect("there is no contraction")
}

/// Dtypes of the operands, and whether they have zero points and scales: left, then right.
fn takes(lir: &Lir) -> [(DType, bool, bool); 2] {
    let c = contraction(lir);
    [(&c.lhs, &c.lhs_scaling), (&c.rhs, &c.rhs_scaling)]
        .map(|(a, s)| (lir.buffer(a.buffer).dtype, s.zero.is_some(), s.scale.is_some()))
}

/// `(x − zero)` as i32, or `(x − zero) · scale` as f32.
fn real(b: &mut Builder, x: ValueId, zero: Option<ValueId>, scale: Option<ValueId>) -> ValueId {
    let mut y = b.convert(x, DType::I32).unwrap();
    if let Some(z) = zero {
        let z = b.convert(z, DType::I32).unwrap();
        y = b.sub(y, z).unwrap();
    }
    if let Some(s) = scale {
        let f = b.convert(y, DType::F32).unwrap();
        y = b.mul(f, s).unwrap();
    }
    y
}

#[test]
fn weights_with_scales_stay_integers() {
    for dtype in [DType::I8, DType::U8, DType::I4, DType::U4] {
        for with_zero in [false, true] {
            let (_, lir) = built(|b| {
                let x = b.input("x", DType::F32, [n(), 6.into()]).unwrap();
                let w = b.param("w", dtype, [6, 5]).unwrap();
                let s = b.param("s", DType::F32, [5]).unwrap();
                let z = b.param("z", dtype, [5]).unwrap();
                let w = real(b, w, with_zero.then_some(z), Some(s));
                b.matmul(x, w).unwrap()
            });
            assert_eq!(takes(&lir), [(DType::F32, false, false), (dtype, with_zero, true)]);
            assert_eq!(lir.kernels.len(), 1, "{lir}");
        }
    }
}

#[test]
fn a_scale_of_blocks_splits_the_contracted_axis() {
    for turned in [false, true] {
        let (_, lir) = built(|b| {
            let x = b.input("x", DType::F32, [n(), 12.into()]).unwrap();
            let (w_dims, s_dims): ([i64; 2], [i64; 2]) = if turned { ([5, 12], [5, 3]) } else { ([12, 5], [3, 5]) };
            let w = b.param("w", DType::I8, w_dims).unwrap();
            let s = b.param("s", DType::F32, s_dims).unwrap();
            let z = b.param("z", DType::I8, s_dims).unwrap();
            let axis = usize::from(turned);
            let mut repeat = |v| {
                let wide = b.expand_dims(v, &[axis as i64 + 1]).unwrap();
                let mut dims = s_dims.to_vec();
                dims.insert(axis + 1, 4);
                let wide = b.broadcast_to(wide, dims.into_iter().map(Dim::from).collect::<Vec<_>>()).unwrap();
                b.reshape(wide, w_dims.map(Dim::from)).unwrap()
            };
            let (s, z) = (repeat(s), repeat(z));
            let w = real(b, w, Some(z), Some(s));
            b.dot_general(x, w, &[], &[], &[1], &[axis], None).unwrap()
        });
        assert_eq!(takes(&lir)[1], (DType::I8, true, true));
        assert_eq!(lir.kernels.len(), 1, "nothing is copied\n{lir}");
        assert_eq!(contraction(&lir).k.len(), 2);
    }
}

#[test]
fn products_of_integers_take_both_sides_as_they_are() {
    let (_, lir) = built(|b| {
        let x = b.input("x", DType::U8, [n(), 6.into()]).unwrap();
        let zx = b.input("zx", DType::U8, [0; 0]).unwrap();
        let w = b.param("w", DType::I8, [6, 5]).unwrap();
        let z = b.param("z", DType::I8, [5]).unwrap();
        let (x, w) = (real(b, x, Some(zx), None), real(b, w, Some(z), None));
        b.matmul(x, w).unwrap()
    });
    assert_eq!(takes(&lir), [(DType::U8, true, false), (DType::I8, true, false)]);
    assert_eq!(lir.kernels.len(), 1, "{lir}");
}

#[test]
fn what_is_quantised_on_the_way_is_written_as_bytes_once() {
    let (_, lir) = built(|b| {
        let x = b.input("x", DType::F32, [n(), 6.into()]).unwrap();
        let zx = b.input("zx", DType::U8, [0; 0]).unwrap();
        let q = b.convert(x, DType::U8).unwrap();
        let left = real(b, q, Some(zx), None);
        let mut sum = None;
        for name in ["q", "k"] {
            let w = b.param(name, DType::I8, [6, 5]).unwrap();
            let w = real(b, w, None, None);
            let y = b.matmul(left, w).unwrap();
            sum = Some(sum.map_or(y, |s| b.add(s, y).unwrap()));
        }
        sum.unwrap()
    });
    assert_eq!(takes(&lir)[0], (DType::U8, true, false));
    let kinds: Vec<_> = lir.kernels.iter().map(|k| k.kernel.kind()).collect();
    assert_eq!(kinds, ["map", "contract", "contract"], "{lir}");
}

#[test]
fn zero_points_of_zero_are_dropped() {
    let (_, lir) = built(|b| {
        let x = b.input("x", DType::I8, [n(), 6.into()]).unwrap();
        let w = b.param("w", DType::I8, [6, 5]).unwrap();
        let z = b.scalar(DType::I8, 0.0).unwrap();
        let (x, w) = (real(b, x, Some(z), None), real(b, w, Some(z), None));
        b.matmul(x, w).unwrap()
    });
    assert_eq!(takes(&lir), [(DType::I8, false, false), (DType::I8, false, false)]);
}

#[test]
fn near_misses_are_made_what_they_stand_for() {
    type Make = fn(&mut Builder, ValueId) -> ValueId;
    let cases: [(&str, DType, Make); 4] = [
        ("the scale is an integer", DType::I8, |b, w| {
            let w = b.convert(w, DType::I32).unwrap();
            let three = b.scalar(DType::I32, 3.0).unwrap();
            let w = b.mul(w, three).unwrap();
            b.convert(w, DType::F32).unwrap()
        }),
        ("the difference wraps in 8 bits", DType::I8, |b, w| {
            let z = b.scalar(DType::I8, 100.0).unwrap();
            let w = b.sub(w, z).unwrap();
            let w = b.convert(w, DType::F32).unwrap();
            let w2 = b.mul(w, w).unwrap();
            b.add(w, w2).unwrap()
        }),
        ("16 bits are no small integers", DType::I16, |b, w| {
            let s = b.scalar(DType::F32, 0.5).unwrap();
            let w = b.convert(w, DType::F32).unwrap();
            b.mul(w, s).unwrap()
        }),
        ("a zero point out of range", DType::U8, |b, w| {
            let w = b.convert(w, DType::I32).unwrap();
            let z = b.scalar(DType::I32, 300.0).unwrap();
            let w = b.sub(w, z).unwrap();
            let w = b.convert(w, DType::F32).unwrap();
            let s = b.scalar(DType::F32, 0.5).unwrap();
            b.mul(w, s).unwrap()
        }),
    ];
    for (what, dtype, make) in cases {
        let (_, lir) = built(|b| {
            let x = b.input("x", DType::F32, [n(), 6.into()]).unwrap();
            let w = b.param("w", dtype, [6, 5]).unwrap();
            let w = make(b, w);
            b.matmul(x, w).unwrap()
        });
        assert_eq!(takes(&lir)[1], (DType::F32, false, false), "{what}");
    }
    // Activations of floats are not: no backend keeps a form of them.
    let (m, lir) = built(|b| {
        let x = b.input("x", DType::F32, [n(), 6.into()]).unwrap();
        let w = b.input("w", DType::I8, [6, 5]).unwrap();
        let w = b.convert(w, DType::F32).unwrap();
        b.matmul(x, w).unwrap()
    });
    assert_eq!(takes(&lir)[1].0, DType::F32);
    let (lir, _) = lowered(&m, &CompileOptions::default().fusion(Fusion::Off));
    assert_eq!(takes(&lir)[1].0, DType::F32);
}
