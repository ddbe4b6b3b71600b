//! Maps over walks of every kind, against plain loops.

use super::{Maker, Rng, poisoned, run};
use rlx_compile::lir::{Access, Kernel, Literal, MapKernel, ScalarOp, ScalarProgram};
use rlx_driver::Isa;
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::elementwise::Binary;
use rlx_ir::{DType, Dim, Tensor};

fn binary(op: Binary) -> ScalarOp {
    ScalarOp::Apply(Elementwise::Binary(op))
}

/// y[i, j, k] = 2 a[·] + b[·] · (i·100 + k), where a and b are walked with the given strides.
fn program() -> ScalarProgram {
    let mut p = ScalarProgram::default();
    let a = p.push(ScalarOp::Read(0), vec![], DType::F32);
    let b = p.push(ScalarOp::Read(1), vec![], DType::F32);
    let i = p.push(ScalarOp::Index(0), vec![], DType::F32);
    let k = p.push(ScalarOp::Index(2), vec![], DType::F32);
    let two = p.push(ScalarOp::Const(Literal::Float(2.0.into())), vec![], DType::F32);
    let hundred = p.push(ScalarOp::Const(Literal::Float(100.0.into())), vec![], DType::F32);
    let a2 = p.push(binary(Binary::Mul), vec![two, a], DType::F32);
    let i100 = p.push(binary(Binary::Mul), vec![i, hundred], DType::F32);
    let at = p.push(binary(Binary::Add), vec![i100, k], DType::F32);
    let scaled = p.push(binary(Binary::Mul), vec![b, at], DType::F32);
    let sum = p.push(binary(Binary::Add), vec![a2, scaled], DType::F32);
    p.results = vec![sum];
    p
}

#[test]
fn walks_of_every_kind() {
    let mut rng = Rng(7);
    for sizes in [[1usize, 1, 1], [3, 4, 5], [2, 1, 700], [40, 3, 16], [7, 90, 1], [5, 8, 130], [0, 3, 4], [64, 2, 2]] {
        let [i, j, k] = sizes.map(|n| n as i64);
        let walks: [(i64, [i64; 3]); 8] = [
            (0, [j * k, k, 1]),
            (0, [0, 0, 1]),
            (0, [0, 1, 0]),
            (0, [1, 0, 0]),
            (0, [0, 0, 0]),
            (0, [1, i, i * j]),
            ((i * j * k - 1).max(0), [-j * k, -k, -1]),
            (3, [j * k, k, 1]),
        ];
        for (a, b, y_order) in [(0, 1, 0), (5, 2, 0), (6, 3, 0), (4, 5, 0), (7, 6, 0), (0, 5, 1), (1, 2, 1), (3, 0, 1)]
        {
            let numel = (i * j * k + 3) as usize;
            let mut m = Maker::new();
            let (xa, xb) = (m.input(DType::F32, &[Dim::from(numel)]), m.input(DType::F32, &[Dim::from(numel)]));
            let y = m.output("y", DType::F32, &[Dim::from(numel)]);
            let to_dims = |s: [i64; 3]| s.map(Dim::from);
            let reads: Vec<Access> =
                vec![m.access(xa, walks[a].0, &to_dims(walks[a].1)), m.access(xb, walks[b].0, &to_dims(walks[b].1))];
            let out = if y_order == 0 { walks[7] } else { walks[5] };
            let writes = vec![m.access(y, out.0, &to_dims(out.1))];
            let space = m.dims(&[i, j, k]);
            m.kernel(Kernel::Map(MapKernel { space, reads, program: program(), writes }));
            let lir = m.finish();
            let (va, vb) = (rng.floats(numel), rng.floats(numel));
            let ta = Tensor::from_slice(&[numel], &va).unwrap();
            let tb = Tensor::from_slice(&[numel], &vb).unwrap();
            let mut first: Option<Vec<f32>> = None;
            for threads in [1, 2, 3] {
                let e = super::executable(lir.clone(), &poisoned(Isa::best(), threads));
                let got = run(&e, &[&ta, &tb]).remove(0);
                let got = got.as_slice::<f32>().unwrap().to_vec();
                for (x, yy, z) in points(sizes) {
                    let at = |w: (i64, [i64; 3])| {
                        (w.0 + x as i64 * w.1[0] + yy as i64 * w.1[1] + z as i64 * w.1[2]) as usize
                    };
                    let scaled = vb[at(walks[b])] * (x as f32 * 100.0 + z as f32);
                    let want = 2.0 * va[at(walks[a])] + scaled;
                    assert_eq!(got[at(out)], want, "{sizes:?} {a} {b} {y_order} at {x} {yy} {z}");
                }
                let written: Vec<f32> = points(sizes)
                    .map(|(x, yy, z)| {
                        got[(out.0 + x as i64 * out.1[0] + yy as i64 * out.1[1] + z as i64 * out.1[2]) as usize]
                    })
                    .collect();
                assert_eq!(*first.get_or_insert(written.clone()), written);
            }
        }
    }
}

fn points([i, j, k]: [usize; 3]) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..i).flat_map(move |x| (0..j).flat_map(move |y| (0..k).map(move |z| (x, y, z))))
}

/// x := (x + 1) · x, where the write walks the read's own memory.
#[test]
fn in_place_maps_read_before_they_write() {
    let mut m = Maker::new();
    let n = || Dim::symbol("n");
    let x = m.input(DType::F32, &[n()]);
    let t = m.arena(DType::F32, &[n()]);
    let y = m.output("y", DType::F32, &[n()]);
    let space = vec![m.dim(n())];
    let copy = |m: &mut Maker, from, to| {
        let mut p = ScalarProgram::default();
        let a = p.push(ScalarOp::Read(0), vec![], DType::F32);
        p.results = vec![a];
        let (reads, writes) = (vec![m.dense(from)], vec![m.dense(to)]);
        m.kernel(Kernel::Map(MapKernel { space: space.clone(), reads, program: p, writes }));
    };
    copy(&mut m, x, t);
    let mut p = ScalarProgram::default();
    let a = p.push(ScalarOp::Read(0), vec![], DType::F32);
    let one = p.push(ScalarOp::Const(Literal::Float(1.0.into())), vec![], DType::F32);
    let s = p.push(binary(Binary::Add), vec![a, one], DType::F32);
    let r = p.push(binary(Binary::Mul), vec![s, a], DType::F32);
    p.results = vec![r];
    let (reads, writes) = (vec![m.dense(t)], vec![m.dense(t)]);
    m.kernel(Kernel::Map(MapKernel { space: space.clone(), reads, program: p, writes }));
    copy(&mut m, t, y);
    let e = m.executable(&poisoned(Isa::best(), 2));
    for n in [1usize, 100, 40_000] {
        let v = Rng(3).floats(n);
        let got = run(&e, &[&Tensor::from_slice(&[n], &v).unwrap()]).remove(0);
        let want: Vec<f32> = v.iter().map(|&x| (x + 1.0) * x).collect();
        assert_eq!(got.as_slice::<f32>().unwrap().as_ref(), want);
    }
}

#[test]
fn walks_that_leave_their_buffer_are_refused() {
    let mut m = Maker::new();
    let x = m.input(DType::F32, &[Dim::symbol("n")]);
    let y = m.output("y", DType::F32, &[Dim::symbol("n")]);
    let mut p = ScalarProgram::default();
    let a = p.push(ScalarOp::Read(0), vec![], DType::F32);
    p.results = vec![a];
    let (reads, writes) = (vec![m.access(x, 1, &[Dim::ONE])], vec![m.dense(y)]);
    let space = vec![m.dim(Dim::symbol("n"))];
    m.kernel(Kernel::Map(MapKernel { space, reads, program: p, writes }));
    let e = m.executable(&poisoned(Isa::best(), 1));
    let t = Tensor::from_slice(&[4], &[1f32, 2.0, 3.0, 4.0]).unwrap();
    let error = rlx_compile::ExecutableGraph::run(&e, &[(&t).into()], None).unwrap_err();
    assert!(error.to_string().contains("reaches positions 1 to 4"), "{error}");
}
