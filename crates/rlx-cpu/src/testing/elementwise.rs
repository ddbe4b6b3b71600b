//! Every elementwise op on every dtype that it takes, at odd sizes and every instruction set, against the tables.

use super::oracle::{apply as value, close, get, values};
use super::{Maker, Rng, apply, poisoned, run};
use rlx_compile::lir::{Kernel, MapKernel};
use rlx_driver::Isa;
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::elementwise::{Binary, Compare, Unary};
use rlx_ir::{DType, Dim, Tensor};

const SIZES: [usize; 11] = [0, 1, 7, 8, 9, 33, 255, 256, 257, 513, 1500];

/// The error that an op may have, in units in the last place of f32 (halved for nothing; f16 and bf16: one of theirs).
fn bound(op: &Elementwise, dtype: DType) -> f64 {
    let exact = match op {
        Elementwise::Unary(u) => matches!(
            u,
            Unary::Neg
                | Unary::Abs
                | Unary::Sign
                | Unary::Ceil
                | Unary::Floor
                | Unary::RoundEven
                | Unary::Trunc
                | Unary::Sqrt
                | Unary::Reciprocal
                | Unary::Relu
                | Unary::Not
                | Unary::Popcnt
                | Unary::IsNan
                | Unary::IsInf
                | Unary::IsFinite
        ),
        Elementwise::Binary(b) => !matches!(b, Binary::Pow | Binary::Atan2 | Binary::Mod | Binary::Rem),
        _ => true,
    };
    match dtype {
        _ if exact => 0.0,
        DType::F32 => 4.5,
        DType::F16 | DType::BF16 => 1.0,
        DType::F64 => 8.0,
        _ => 0.0,
    }
}

fn check(op: Elementwise, args: &[DType], isas: &[Isa]) {
    let Ok(out) = op.result_dtype(args) else { return };
    let n = || Dim::symbol("n");
    for &isa in isas {
        let mut m = Maker::new();
        let inputs: Vec<_> = args.iter().map(|&d| m.input(d, &[n()])).collect();
        let y = m.output("y", out, &[n()]);
        let reads = inputs.iter().map(|&b| m.dense(b)).collect();
        let (space, writes) = (vec![m.dim(n())], vec![m.dense(y)]);
        m.kernel(Kernel::Map(MapKernel { space, reads, program: apply(op, args, out), writes }));
        let e = m.executable(&poisoned(isa, 1));
        let mut rng = Rng(0x9e37_79b9_7f4a_7c15);
        for size in SIZES {
            let tensors: Vec<Tensor> = args.iter().map(|&d| values(d, size, &mut rng)).collect();
            let got = run(&e, &tensors.iter().collect::<Vec<_>>())[0].elements();
            let elements: Vec<_> = tensors.iter().map(Tensor::elements).collect();
            for i in 0..size {
                let scalars: Vec<_> = elements.iter().map(|e| get(e, i)).collect();
                let want = value(&op, args, out, &scalars);
                let mut ulps = bound(&op, out);
                if matches!(op, Elementwise::Unary(Unary::HardSwish)) && out == DType::F32 {
                    // Cancellation near −3.
                    ulps = 1e6;
                }
                assert!(
                    close(out, get(&got, i), want, ulps),
                    "{op:?} {args:?} at {isa}, size {size}: {scalars:?} gives {:?}, not {want:?}",
                    get(&got, i)
                );
            }
        }
    }
}

fn numeric() -> Vec<DType> {
    DType::ALL.iter().copied().filter(|&d| d != DType::Str).collect()
}

#[test]
fn unary_functions() {
    for &f in Unary::ALL {
        for d in numeric() {
            check(Elementwise::Unary(f), &[d], &Isa::available());
        }
    }
}

#[test]
fn binary_functions() {
    for &f in Binary::ALL {
        for d in numeric() {
            check(Elementwise::Binary(f), &[d, d], &Isa::available());
        }
    }
}

#[test]
fn comparisons_selections_and_clamps() {
    for d in numeric() {
        for &f in Compare::ALL {
            check(Elementwise::Compare(f), &[d, d], &Isa::available());
        }
        check(Elementwise::Select, &[DType::Bool, d, d], &Isa::available());
        check(Elementwise::Clamp, &[d, d, d], &Isa::available());
    }
}

#[test]
fn conversions() {
    for from in numeric() {
        for to in numeric() {
            let saturate = [true, false];
            for &saturate in if to.bits() <= 8 { &saturate[..] } else { &saturate[..1] } {
                check(Elementwise::Convert { to, saturate }, &[from], &[Isa::best()]);
            }
        }
    }
}
